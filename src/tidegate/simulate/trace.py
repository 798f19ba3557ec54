"""What every warp of a CTA executes, as straight lists of steps.

Control flow is uniform over a CTA, or over a role, so loops, conditions, cursors and index expressions can be worked
out before any thread runs. What is left to interleave is one list of instructions per group of warps, with known slots,
phases and origins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tidegate.errors import IntegerOverflow, NotExecutable
from tidegate.ir import tir
from tidegate.ir.expr import Expr, Overflow, in_32_bits, symbols
from tidegate.ir.layout import LANES
from tidegate.ir.spec import WORDS, references
from tidegate.simulate.report import statement

Path = tuple[int, ...]

BARRIER_USES = (tir.TmaLoad, tir.CpArrive, tir.BarrierArrive, tir.BarrierExpect, tir.BarrierWait)


@dataclass(frozen=True, slots=True)
class Step:
    """One executed instruction.

    ``path`` is its place in the body (as in tidegate.ir.spec.Placed). ``warps`` are those of the group that executes
    it: a role, or the whole CTA. ``slot`` is the ring slot of its shared operand (of a, for wgmma; ``other`` that of
    b); ``bar`` that of its mbarrier, and ``phase`` the number of phases that a wait wants completed. ``origin`` and
    ``bounds`` belong to its window; a splat's ``origin`` is its value. ``event`` counts all steps of the CTA from 1 on.
    """

    stmt: tir.Instruction
    path: Path
    warps: range
    event: int
    slot: int = 0
    other: int = 0
    bar: int = 0
    phase: int = 0
    origin: tuple[int, ...] = ()
    bounds: tuple[int | None, ...] = ()

    @property
    def elected(self) -> int:
        """The thread that executes what one thread of the group executes."""
        return self.warps.start * LANES


@dataclass(frozen=True, eq=False)
class Group:
    """Warps that execute the same steps: a role, or those without one (``role`` is '')."""

    role: str
    warps: tuple[int, ...]
    steps: tuple[Step, ...]


def resolve(kernel: tir.Kernel) -> None:
    """Raises NotExecutable at the first name that refers to nothing."""
    declared = {
        "buffer": {b.name for b in kernel.buffers},
        "mbarrier": {b.name for b in kernel.barriers},
        "cursor": {c.name for c in kernel.cursors},
        "register": {r.name for r in kernel.registers},
        "param": {p.name for p in kernel.params},
        "layout": {name for name, _ in kernel.layouts},
        "role": {r.name for r in kernel.roles},
        "scalar": {s.name for s in kernel.scalars},
    }
    for register in kernel.registers:
        if register.layout not in declared["layout"]:
            raise NotExecutable(stmt=f"register {register.name}", what=f"no layout {register.layout!r} is declared")
    for stmt in tir.walk(kernel.body):
        for name, kind in references(stmt):
            if kind in declared and name not in declared[kind]:
                raise NotExecutable(stmt=statement(stmt), what=f"no {kind} {name!r} is declared")
            if kind in WORDS and kind != "op" and name not in WORDS[kind]():
                raise NotExecutable(stmt=statement(stmt), what=f"{kind} {name!r} is none of {', '.join(WORDS[kind]())}")


Element = Callable[[str, tuple[int, ...]], int]
"""The element of an input, 0 outside."""


def expand(
    kernel: tir.Kernel, env: Mapping[str, int], numbers: Mapping[str, float], element: Element
) -> tuple[list[Group], list[Step]]:
    """The groups of the CTA whose sizes, integer arguments and grid indices are ``env``, and all their steps in the
    order of events. ``numbers``: all scalar arguments. Inputs do not change, so integers may be read beforehand."""
    everyone = range(kernel.warps)
    members: dict[str, tuple[int, ...]] = {
        r.name: tuple(w for w in range(r.first, r.first + r.count) if w in everyone) for r in kernel.roles
    }
    taken = {w for warps in members.values() for w in warps}
    members[""] = tuple(w for w in everyone if w not in taken)
    table: list[Step] = []
    groups = []
    for role, warps in members.items():
        if warps:
            start = len(table)
            table += _Expansion(kernel, env, numbers, element, role, start).steps()
            groups.append(Group(role, warps, tuple(table[start:])))
    return groups, table


def shared_operand(stmt: tir.Stmt) -> tir.Slot | None:
    """The slot that a statement reads or writes; of wgmma a."""
    if isinstance(stmt, tir.Wgmma):
        return stmt.a
    if isinstance(stmt, (tir.CpAsync, tir.StShared, tir.StMatrix, tir.TmaLoad)):
        return stmt.dst
    return stmt.src if isinstance(stmt, (tir.LdShared, tir.LdMatrix, tir.TmaStore)) else None


def window_operand(stmt: tir.Stmt) -> tir.Window | None:
    if isinstance(stmt, (tir.StGlobal, tir.AtomicAdd, tir.TmaStore)):
        return stmt.dst
    return stmt.src if isinstance(stmt, (tir.CpAsync, tir.LdGlobal, tir.LdScalar, tir.TmaLoad)) else None


def masked(window: tir.Window, step: Step) -> bool:
    """Does the one element of a window lie outside its bounds?"""
    return any(
        bound is not None and (at >= bound or (at < 0 and axis in window.below))
        for axis, (at, bound) in enumerate(zip(step.origin, step.bounds, strict=True))
    )


class _Expansion:
    """The walk of one group through the body: its own indices and cursors."""

    def __init__(
        self,
        kernel: tir.Kernel,
        env: Mapping[str, int],
        numbers: Mapping[str, float],
        element: Element,
        role: str,
        start: int,
    ) -> None:
        self._kernel, self._scope, self._role, self._event = kernel, dict(env), role, start
        self._numbers, self._element = numbers, element
        self._uses: dict[str, int] = {c.name: 0 for c in kernel.cursors}
        self._depth: dict[str, int] = {c.name: c.depth for c in kernel.cursors}
        self._stages: dict[str, int] = {b.name: b.stages for b in kernel.buffers}
        self._stages |= {b.name: b.stages for b in kernel.barriers}

    def steps(self) -> list[Step]:
        everyone = range(self._kernel.warps)
        out = []
        for stmt, path, warps in self._flatten(self._kernel.body, (), everyone):
            if isinstance(stmt, tir.Advance):
                self._uses[stmt.cursor] += 1
            else:
                self._event += 1
                out.append(self._step(stmt, path, warps))
                if isinstance(stmt, tir.LdScalar):
                    outside = masked(stmt.src, out[-1])
                    self._scope[stmt.scalar] = 0 if outside else self._element(stmt.src.tensor, out[-1].origin)
        return out

    def _flatten(
        self, body: tuple[tir.Stmt, ...], path: Path, warps: range
    ) -> Iterator[tuple[tir.Instruction, Path, range]]:
        scope = self._scope
        for number, stmt in enumerate(body):
            here = (*path, number)
            if isinstance(stmt, tir.For):
                for index in range(_evaluate(stmt.start, scope, stmt), _evaluate(stmt.stop, scope, stmt)):
                    scope[stmt.index] = index
                    yield from self._flatten(stmt.body, here, warps)
            elif isinstance(stmt, tir.If):
                if _evaluate(stmt.condition, scope, stmt):
                    yield from self._flatten(stmt.body, here, warps)
            elif isinstance(stmt, tir.InRole):
                if stmt.role == self._role:
                    role = next(r for r in self._kernel.roles if r.name == stmt.role)
                    yield from self._flatten(stmt.body, here, range(role.first, role.first + role.count))
            elif isinstance(stmt, tir.Instruction):
                yield stmt, here, warps

    def _step(self, stmt: tir.Instruction, path: Path, warps: range) -> Step:
        operand, window = shared_operand(stmt), window_operand(stmt)
        slot = self._at(stmt, operand.buffer, operand.cursor) if operand else 0
        other = self._at(stmt, stmt.b.buffer, stmt.b.cursor) if isinstance(stmt, tir.Wgmma) else 0
        bar = self._at(stmt, stmt.barrier, stmt.cursor) if isinstance(stmt, BARRIER_USES) else 0
        phase = 0
        if isinstance(stmt, tir.BarrierWait):
            phase = self._uses[stmt.cursor] // self._depth[stmt.cursor] + 1 - stmt.flip
        origin: tuple[Any, ...] = ()
        bounds: tuple[int | None, ...] = ()
        if isinstance(stmt, tir.Positions):
            origin = (_evaluate(stmt.origin, self._scope, stmt),)
        if isinstance(stmt, tir.Splat):
            named = self._numbers.get(str(stmt.value))
            origin = (_evaluate(stmt.value, self._scope, stmt) if named is None else named,)
        if window is not None:
            origin = tuple(_evaluate(e, self._scope, stmt) for e in window.origin)
            bounds = tuple(None if e is None else _evaluate(e, self._scope, stmt) for e in window.bounds)
        return Step(stmt, path, warps, self._event, slot, other, bar, phase, origin, bounds)

    def _at(self, stmt: tir.Stmt, ring: str, cursor: str | None) -> int:
        """The slot of ``ring`` that ``cursor`` points at."""
        at = self._uses[cursor] % self._depth[cursor] if cursor is not None else 0
        if at >= self._stages[ring]:
            raise NotExecutable(stmt=statement(stmt), what=f"{ring} has {self._stages[ring]} slots, not slot {at}")
        return at


def _evaluate(expr: Expr, scope: Mapping[str, int], stmt: tir.Stmt) -> int:
    try:
        return in_32_bits(expr, scope)
    except Overflow as e:
        names = ", ".join(f"{n} = {scope[n]}" for n in dict.fromkeys(symbols(e.part)))
        where = f"{e.part} in '{statement(stmt)}'"
        raise IntegerOverflow(expression=where, value=e.value, names=names) from None
    except KeyError as e:
        raise NotExecutable(stmt=statement(stmt), what=f"{e.args[0]} has no value here") from None
    except ZeroDivisionError:
        raise NotExecutable(stmt=statement(stmt), what=f"{expr} divides by zero") from None
