"""Dependences: the pairs of accesses whose order matters, decided on bytes and threads after allocation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from math import gcd

import numpy as np

from tidegate.analyze.access import NOBODY, Access, granule, layout_of, window_of
from tidegate.analyze.memory import Allocation
from tidegate.ir import legal, tir
from tidegate.ir.expr import linear
from tidegate.ir.layout import Coord, Layout


class Kind(Enum):
    """Read after write, write after read, write after write."""

    RAW = "RAW"
    WAR = "WAR"
    WAW = "WAW"


@dataclass(frozen=True)
class Scope:
    """Between which threads an order is needed. ``warps``: those whose threads meet (none: every thread with itself
    only); ``lanes``: each of them among its own lanes only, not with another warp."""

    lanes: bool
    warps: frozenset[int]

    @property
    def private(self) -> bool:
        return not self.warps


PRIVATE = Scope(False, frozenset())


@dataclass(frozen=True)
class Dependence:
    """``sink`` must come after ``source``. ``distance`` in fills of the ring: 0 for the same item, S for a reuse of the
    slot; None between different rings that share bytes: ``slots`` are then the pairs of slots that do, each with its
    scope."""

    id: str
    kind: Kind
    source: str
    sink: str
    places: tuple[str, ...]
    distance: int | None
    scope: Scope
    awaits: bool
    slots: tuple[tuple[int, int, Scope], ...] = ()

    def __str__(self) -> str:
        return f"{self.kind.value} {self.source} -> {self.sink}"


def dependences(
    program: legal.LegalProgram, accesses: Mapping[str, Access], allocation: Allocation
) -> tuple[Dependence, ...]:
    """All ordered pairs of steps that can touch the same bytes, at least one writing.

    Both directions are listed: within a loop, either step can be the earlier one.
    """
    found: list[Dependence] = []
    unit = granule(program)
    for u in accesses.values():
        for v in accesses.values():
            if not (u.writes or v.writes):
                continue
            scope, slots = _scope(program, u, v, allocation, unit)
            if scope is None:
                continue
            kind = Kind.RAW if u.writes and not v.writes else Kind.WAW if u.writes else Kind.WAR
            awaits = u.completes is not tir.Completion.RETURN
            if scope.private and not awaits:
                continue
            distance = _distance(program, u, v, kind)
            places = (u.place,) if u.place == v.place else (u.place, v.place)
            number = f"d{len(found)}"
            found.append(Dependence(number, kind, u.step.id, v.step.id, places, distance, scope, awaits, slots))
    return tuple(found)


def _distance(program: legal.LegalProgram, u: Access, v: Access, kind: Kind) -> int | None:
    if u.place != v.place or u.touch is None:
        return None
    return 0 if kind is Kind.RAW else program.ring(u.place).stages


def _scope(
    program: legal.LegalProgram, u: Access, v: Access, allocation: Allocation, unit: int
) -> tuple[Scope | None, tuple[tuple[int, int, Scope], ...]]:
    """Who must wait for whom (None if the two never touch a common byte), and between which slots of two rings."""
    if u.touch is None or v.touch is None:
        return _global_scope(program, u, v), ()
    if u.place == v.place:
        return _meet(u, v, 0, unit), ()
    a, b = allocation.of(u.place), allocation.of(v.place)
    if a.offset + a.size <= b.offset or b.offset + b.size <= a.offset:
        return None, ()
    met: list[tuple[int, int, Scope]] = []
    for s in range(program.ring(u.place).stages):
        for t in range(program.ring(v.place).stages):
            shift = (b.offset + t * b.stride) - (a.offset + s * a.stride)
            scope = _meet(u, v, shift, unit)
            if scope is not None:
                met.append((s, t, scope))
    return joint(scope for _, _, scope in met), tuple(met)


def joint(scopes: Iterable[Scope]) -> Scope | None:
    """One scope for all; None for none."""
    found = list(scopes)
    if not found:
        return None
    warps = frozenset[int]().union(*(s.warps for s in found))
    return Scope(bool(warps) and all(s.lanes or s.private for s in found), warps)


def _global_scope(program: legal.LegalProgram, u: Access, v: Access) -> Scope | None:
    """Accesses to one tensor. Windows that coincide or are disjoint, and are shared among threads by one layout, leave
    each element to one thread; anything else is taken to collide. Atomic additions need no order among themselves."""
    first, second = u.step.instr, v.step.instr
    if u.place != v.place or (isinstance(first, tir.AtomicAdd) and isinstance(second, tir.AtomicAdd)):
        return None
    layouts = layout_of(program, first), layout_of(program, second)
    meet = _windows_meet(_widened(first, layouts[0]), _widened(second, layouts[1]))
    if meet is None:
        return None
    return PRIVATE if meet and layouts[0] == layouts[1] else Scope(program.warps == 1, frozenset(range(program.warps)))


def _widened(instr: tir.Instruction, layout: Layout) -> tuple[tir.Window, Coord]:
    found = window_of(instr)
    assert found is not None  # without a touch of shared memory it is one of global memory
    return found[0], layout.with_axes(found[0].fixed).shape


def _windows_meet(u: tuple[tir.Window, Coord], v: tuple[tir.Window, Coord]) -> bool | None:
    """Whether windows that have a common element are equal, in any two iterations; None: no two have one."""
    (first, extents), (second, others) = u, v
    if first.rows is not None or second.rows is not None:
        return False
    equal = first.fixed == second.fixed and extents == others
    for one, other, m, n in zip(first.origin, second.origin, extents, others, strict=True):
        (base, terms), (base2, terms2) = linear(one), linear(other)
        step, apart = gcd(*terms.values(), *terms2.values()), base2 - base
        if (apart >= m or -apart >= n) if step == 0 else m <= apart % step <= step - n:
            return None
        equal = equal and (apart == 0 if step == 0 else apart % step == 0 and step >= m)
    return equal


def _meet(u: Access, v: Access, shift: int, unit: int) -> Scope | None:
    """Scope over the common bytes when v's slot begins ``shift`` bytes after u's."""
    assert u.touch is not None  # the caller has sorted global stores out
    assert v.touch is not None
    step = shift // unit  # offsets are multiples of 16 bytes, granules divide 16
    low, high = max(0, step), min(len(u.touch.thread), len(v.touch.thread) + step)
    if low >= high:
        return None
    tu, tv = u.touch.thread[low:high], v.touch.thread[low - step : high - step]
    common = (tu != NOBODY) & (tv != NOBODY)
    if not common.any():
        return None
    crossing = common & ~((tu == tv) & (tu >= 0))
    if not crossing.any():
        return PRIVATE
    warps = (u.touch.warps[low:high] | v.touch.warps[low - step : high - step])[crossing]
    several = warps & (warps - 1) != 0
    mask = int(np.bitwise_or.reduce(warps))  # lanes that cross inside further warps join the same rendezvous
    return Scope(not several.any(), frozenset(i for i in range(mask.bit_length()) if mask >> i & 1))
