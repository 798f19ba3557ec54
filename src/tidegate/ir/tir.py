"""TIR: the explicit program of one CTA. Every byte, thread, copy, wait and barrier is written out; nothing is implied.

A kernel declares its sizes, parameters, scalars, layouts, shared buffers, barriers, cursors, registers and roles; its
body is a sequence of statements. An instruction works on whole tiles: its register layout says what each thread does,
so the text stays short while the access of every thread is exact. All control flow is uniform over the CTA (or the
role).

Each instruction class states, as class keywords, what every pass needs to know of it: which fields it reads and
writes, through which proxy, and how it completes. A class that leaves one out fails at import. ``syntax`` is its line
in the text form (see :mod:`tidegate.ir.text`; docs/tir.md lists the grammar).
"""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.ir.instructions import *  # noqa: F403
from tidegate.ir.instructions import For, If, InRole, Instruction, Stmt
from tidegate.ir.layout import Layout
from tidegate.ir.operands import *  # noqa: F403
from tidegate.ir.operands import Buffer, Cursor, Dim, GridAxis, Mbarrier, Name, Param, Register, Role, Scalar
from tidegate.ir.syncs import *  # noqa: F403


@dataclass(frozen=True)
class Kernel:
    """One kernel. ``target`` is a name known to tidegate.target; ``smem`` is the dynamic shared memory in bytes."""

    name: Name
    target: Name
    warps: int
    smem: int
    dims: tuple[Dim, ...]
    params: tuple[Param, ...]
    grid: tuple[GridAxis, ...]
    layouts: tuple[tuple[Name, Layout], ...]
    buffers: tuple[Buffer, ...]
    barriers: tuple[Mbarrier, ...]
    cursors: tuple[Cursor, ...]
    registers: tuple[Register, ...]
    roles: tuple[Role, ...]
    body: tuple[Stmt, ...]
    scalars: tuple[Scalar, ...] = ()

    @property
    def threads(self) -> int:
        return self.warps * 32

    @property
    def pitches(self) -> tuple[tuple[Param, int], ...]:
        """The strides that are launch arguments: tensor and axis, in the order of the arguments."""
        return tuple((p, axis) for p in self.params if p.strided for axis in range(len(p.shape) - 1))

    def layout(self, name: Name) -> Layout:
        return dict(self.layouts)[name]

    def buffer(self, name: Name) -> Buffer:
        return next(b for b in self.buffers if b.name == name)

    def register(self, name: Name) -> Register:
        return next(r for r in self.registers if r.name == name)

    def param(self, name: Name) -> Param:
        return next(p for p in self.params if p.name == name)

    def scalar(self, name: Name) -> Scalar:
        return next(s for s in self.scalars if s.name == name)

    @property
    def arguments(self) -> tuple[Scalar, ...]:
        """The scalars that a launch gives, in order."""
        return tuple(s for s in self.scalars if s.argument)


def walk(body: tuple[Stmt, ...]) -> list[Stmt]:
    """All statements in textual order, bodies included."""
    out: list[Stmt] = []
    for stmt in body:
        out.append(stmt)
        if isinstance(stmt, (For, If, InRole)):
            out.extend(walk(stmt.body))
    return out


def _all(cls: type[Instruction]) -> list[type[Instruction]]:
    out = []
    for sub in cls.__subclasses__():
        if sub.syntax:
            out.append(sub)
        out.extend(_all(sub))
    return out


INSTRUCTIONS: tuple[type[Instruction], ...] = tuple(_all(Instruction))
"""Every instruction class, the whole vocabulary."""
