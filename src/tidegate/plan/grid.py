"""In which order CTAs take their tiles: the GPU starts them by their linear index."""

from __future__ import annotations

from tidegate.ir import legal
from tidegate.ir.expr import Expr, Int, Sym, symbols
from tidegate.plan.plan import AxisOrder

BAND = 8
"""Rows of CTAs that are walked together: those that run at a time then share rows and columns of operands in L2."""


def grid_order(program: legal.LegalProgram) -> tuple[AxisOrder, ...]:
    """Bands of rows; an axis with whose index a CTA's work grows runs backwards, for CTAs that take long should not be
    the last ones."""
    before_last = len(program.grid) - 2
    return tuple(
        AxisOrder(axis.name, BAND if at == before_last else 1, _works_more(program, axis.name))
        for at, axis in enumerate(program.grid)
    )


def _works_more(program: legal.LegalProgram, index: str) -> bool:
    """Do loops make more trips, and none fewer, as a grid index grows?"""
    trips = [loop.trips for loop in legal.loops(program.body) if index in symbols(loop.trips)]
    return bool(trips) and all(direction(count, index) == 1 for count in trips)


def direction(e: Expr, name: str) -> int | None:
    """1 if e never falls as the name grows, -1 if it never rises, 0 if it does not depend on it; None if unknown."""
    if isinstance(e, Int):
        return 0
    if isinstance(e, Sym):
        return int(e.name == name)
    a, b = direction(e.a, name), direction(e.b, name)
    if a == b == 0:
        return 0
    if a is None or b is None:
        return None
    if e.op in ("*", "/", "cdiv"):
        scale = e.b if isinstance(e.b, Int) else e.a if isinstance(e.a, Int) and e.op == "*" else Int(0)
        return (a or b) if scale.value > 0 else None
    found = {d for d in (a, -b if e.op == "-" else b) if d}
    return found.pop() if e.op in ("+", "-", "min", "max") and len(found) == 1 else None
