"""The legal program: loops and conditions whose leaves are TIR instructions that are not yet placed or ordered.

Legalisation has chosen every instruction and layout and made every memory access a step of its own; no later pass adds
one. Slots name their ring with ``cursor=None``; where a ring lies, which slot a step uses, how far ahead it is issued
and what orders it is the plan's business.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tidegate.errors import Span
from tidegate.ir import tir
from tidegate.ir.dtypes import DType
from tidegate.ir.expr import Expr
from tidegate.ir.layout import Coord, Layout, SharedLayout, Swizzle


@dataclass(frozen=True)
class Ring:
    """A tile in shared memory with ``stages`` slots. ``loop`` is the loop whose trips fill it (None: no loop).

    ``staged``: filled by a load, so a schedule may fill it ahead; otherwise a scratch tile of a layout conversion.
    """

    name: str
    dtype: DType
    shape: Coord
    stages: int
    swizzle: Swizzle
    loop: str | None
    staged: bool
    span: Span

    @property
    def layout(self) -> SharedLayout:
        return SharedLayout(self.shape, self.dtype.size, self.swizzle)


@dataclass(frozen=True)
class Step:
    """One instruction. ``id`` is unique and readable; ``fills`` names the ring that this step helps to fill."""

    id: str
    instr: tir.Instruction
    span: Span
    fills: str | None = None


@dataclass(frozen=True)
class Loop:
    """``body`` for index = 0 .. trips-1."""

    id: str
    index: str
    trips: Expr
    body: Body
    span: Span


@dataclass(frozen=True)
class If:
    """``body`` if the uniform condition is not 0."""

    id: str
    condition: Expr
    body: Body
    span: Span


Node = Step | Loop | If
Body = tuple[Node, ...]


@dataclass(frozen=True)
class LegalProgram:
    """A legalised kernel: declarations as in TIR, rings without places, and the body."""

    name: str
    file: str
    target: str
    warps: int
    dims: tuple[tir.Dim, ...]
    params: tuple[tir.Param, ...]
    grid: tuple[tir.GridAxis, ...]
    layouts: tuple[tuple[str, Layout], ...]
    rings: tuple[Ring, ...]
    registers: tuple[tir.Register, ...]
    body: Body
    span: Span
    scalars: tuple[tir.Scalar, ...] = ()
    ctas_per_sm: int | None = None

    def ring(self, name: str) -> Ring:
        return next(r for r in self.rings if r.name == name)

    def layout(self, name: str) -> Layout:
        return dict(self.layouts)[name]

    def register(self, name: str) -> tir.Register:
        return next(r for r in self.registers if r.name == name)


def walk(body: Body) -> Iterator[Node]:
    """All nodes in textual order, those of bodies included."""
    for node in body:
        yield node
        if not isinstance(node, Step):
            yield from walk(node.body)


def steps(body: Body) -> Iterator[Step]:
    """All steps in textual order."""
    return (node for node in walk(body) if isinstance(node, Step))


def loops(body: Body) -> Iterator[Loop]:
    """All loops in textual order."""
    return (node for node in walk(body) if isinstance(node, Loop))
