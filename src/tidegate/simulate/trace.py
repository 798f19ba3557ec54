"""The body of one CTA as a straight list of steps.

Control flow is uniform over a CTA, so the loops, conditions, cursors and index expressions of a CTA can be worked out
before any thread runs. What is left to interleave is a list of instructions with known slots and origins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tidegate.errors import NotExecutable, NotSimulated
from tidegate.ir import tir
from tidegate.ir.expr import Expr, evaluate
from tidegate.simulate.report import statement

PER_THREAD = (
    tir.CpAsync, tir.LdGlobal, tir.StGlobal, tir.LdShared, tir.StShared, tir.Fill, tir.Map, tir.Cast, tir.Move,
    tir.CpCommit, tir.CpWait,
)  # fmt: skip
WARP_COLLECTIVE = (tir.LdMatrix, tir.Mma)
RENDEZVOUS = (tir.SyncWarp, tir.BarSync, tir.SyncBlock)
EXECUTED = (*PER_THREAD, *WARP_COLLECTIVE, *RENDEZVOUS, tir.Advance)


@dataclass(frozen=True, slots=True)
class Step:
    """One executed instruction. ``slot`` is the ring slot of its shared operand; ``origin`` and ``bounds`` belong to
    its window."""

    stmt: tir.Instruction
    slot: int = 0
    origin: tuple[int, ...] = ()
    bounds: tuple[int | None, ...] = ()


def refuse_unknown(kernel: tir.Kernel) -> None:
    """Raises NotSimulated at the first statement that the simulator cannot execute."""
    for stmt in tir.walk(kernel.body):
        if isinstance(stmt, tir.InRole):
            raise NotSimulated(instruction="roles", text=statement(stmt).removesuffix(" {"))
        if isinstance(stmt, tir.Instruction) and not isinstance(stmt, EXECUTED):
            raise NotSimulated(instruction=type(stmt).syntax.split()[0], text=statement(stmt))


def expand(kernel: tir.Kernel, env: Mapping[str, int]) -> list[Step]:
    """The steps of the CTA whose sizes and grid indices are ``env``."""
    scope = dict(env)
    uses = {c.name: 0 for c in kernel.cursors}
    depth = {c.name: c.depth for c in kernel.cursors}
    stages = {b.name: b.stages for b in kernel.buffers}
    steps = []
    for stmt in _flatten(kernel.body, scope):
        if isinstance(stmt, tir.Advance):
            uses[stmt.cursor] += 1
            continue
        slot, window = shared_operand(stmt), window_operand(stmt)
        at = uses[slot.cursor] % depth[slot.cursor] if slot and slot.cursor is not None else 0
        if slot and at >= stages[slot.buffer]:
            raise NotExecutable(
                stmt=statement(stmt), what=f"{slot.buffer} has {stages[slot.buffer]} slots, not slot {at}"
            )
        if window is None:
            steps.append(Step(stmt, at))
            continue
        origin = tuple(_evaluate(e, scope, stmt) for e in window.origin)
        bounds = tuple(None if e is None else _evaluate(e, scope, stmt) for e in window.bounds)
        steps.append(Step(stmt, at, origin, bounds))
    return steps


def shared_operand(stmt: tir.Stmt) -> tir.Slot | None:
    if isinstance(stmt, (tir.CpAsync, tir.StShared)):
        return stmt.dst
    return stmt.src if isinstance(stmt, (tir.LdShared, tir.LdMatrix)) else None


def window_operand(stmt: tir.Stmt) -> tir.Window | None:
    if isinstance(stmt, tir.StGlobal):
        return stmt.dst
    return stmt.src if isinstance(stmt, (tir.CpAsync, tir.LdGlobal)) else None


def _flatten(body: tuple[tir.Stmt, ...], scope: dict[str, int]) -> Iterator[tir.Instruction]:
    for stmt in body:
        if isinstance(stmt, tir.For):
            for index in range(_evaluate(stmt.start, scope, stmt), _evaluate(stmt.stop, scope, stmt)):
                scope[stmt.index] = index
                yield from _flatten(stmt.body, scope)
        elif isinstance(stmt, tir.If):
            if _evaluate(stmt.condition, scope, stmt):
                yield from _flatten(stmt.body, scope)
        elif isinstance(stmt, tir.Instruction):
            yield stmt


def _evaluate(expr: Expr, scope: Mapping[str, int], stmt: tir.Stmt) -> int:
    try:
        return evaluate(expr, scope)
    except KeyError as e:
        raise NotExecutable(stmt=statement(stmt), what=f"{e.args[0]} has no value here") from None
    except ZeroDivisionError:
        raise NotExecutable(stmt=statement(stmt), what=f"{expr} divides by zero") from None
