"""Which warp and which lanes run next: an adversary that keeps the order of each thread and of every rendezvous.

Between two points where a warp must be together (a rendezvous, ldmatrix, mma) its lanes are split at random into two
parts, and one part runs through all statements before the other begins. Among warps one is often left to run ahead
until a barrier stops it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tidegate.ir import tir
from tidegate.ir.layout import LANES
from tidegate.simulate.machine import Cta
from tidegate.simulate.report import statement
from tidegate.simulate.trace import RENDEZVOUS, WARP_COLLECTIVE, Step, shared_operand

BLOCK_BARRIER = 0
"""sync_block is named barrier 0 over all warps."""

UNTIL_BLOCKED = 1 << 62
TURNS = (1, 4, UNTIL_BLOCKED)
TURN_WEIGHTS = (1, 1, 4)


@dataclass
class Warp:
    """``parts``: the lanes still to run through the segment ``at``..``end``, and where each part stands."""

    index: int
    threads: np.ndarray
    end: int = 0
    parts: list[np.ndarray] = field(default_factory=list)
    at: list[int] = field(default_factory=list)


@dataclass
class Barrier:
    """Warps that wait at one named barrier, for ``expected``."""

    expected: frozenset[int]
    waiting: list[Warp] = field(default_factory=list)


class Scheduler:
    """Runs one CTA to its end, or until no warp can go on, which is reported as a deadlock."""

    def __init__(self, cta: Cta, rng: random.Random) -> None:
        self._cta, self._rng, self._trace = cta, rng, cta.trace
        warps = cta.program.kernel.warps
        self._everyone = frozenset(range(warps))
        self._together = _convergence_points(cta.trace, warps)
        self._conflicts: dict[tuple[int, int], bool] = {}
        self._barriers: dict[int, Barrier] = {}
        self._runnable = [Warp(w, np.arange(w * LANES, (w + 1) * LANES)) for w in range(warps)]

    def run(self) -> None:
        for warp in self._runnable:
            self._enter(warp, 0)
        while self._runnable:
            warp = self._rng.choice(self._runnable)
            self._cta.memory.drift()
            turn = self._rng.choices(TURNS, TURN_WEIGHTS)[0]
            while turn and self._advance(warp):
                turn -= 1
        if self._barriers:
            self._report_deadlock()

    def _advance(self, warp: Warp) -> bool:
        """One statement for one part of the warp, or the point where it must be together; whether it can go on."""
        for part, threads in enumerate(warp.parts):
            if warp.at[part] < warp.end:
                self._cta.execute(warp.at[part], threads)
                warp.at[part] += 1
                return True
        if warp.end == len(self._trace):
            self._runnable.remove(warp)
            return False
        stmt = self._trace[warp.end].stmt
        self._cta.memory.drift()
        if isinstance(stmt, tir.SyncBlock):
            return self._arrive(warp, BLOCK_BARRIER, self._everyone, stmt)
        if isinstance(stmt, tir.BarSync):
            return self._arrive(warp, stmt.barrier, frozenset(stmt.warps), stmt)
        if isinstance(stmt, tir.SyncWarp):
            self._cta.memory.rendezvous(1 << warp.index)
        else:
            self._cta.execute(warp.end, warp.threads)
        self._enter(warp, warp.end + 1)
        return True

    def _arrive(self, warp: Warp, number: int, expected: frozenset[int], stmt: tir.Stmt) -> bool:
        self._runnable.remove(warp)
        barrier = self._barriers.setdefault(number, Barrier(expected))
        if barrier.expected != expected:
            self._cta.reports.add(
                "barrier mismatch", stmt, thread=int(warp.threads[0]), detail=f"it waits for {_list(barrier.expected)}"
            )
        barrier.waiting.append(warp)
        if len(barrier.waiting) < len(barrier.expected):
            return False
        del self._barriers[number]
        self._cta.memory.rendezvous(sum(1 << w.index for w in barrier.waiting))
        for met in barrier.waiting:
            self._enter(met, met.end + 1)
            self._runnable.append(met)
        return False

    # ------------------------------------------------------------------------------------------ segments

    def _enter(self, warp: Warp, start: int) -> None:
        """Starts the segment from ``start`` to the next point where the warp must be together."""
        points = self._together[warp.index]
        warp.end = int(points[np.searchsorted(points, start)])
        warp.parts = self._split(warp.threads) if self._has_conflict(start, warp.end) else [warp.threads]
        warp.at = [start] * len(warp.parts)

    def _split(self, threads: np.ndarray) -> list[np.ndarray]:
        bits = self._rng.choice((self._rng.getrandbits(LANES), 1 << self._rng.randrange(LANES), 0xFFFF, 0x55555555))
        first = (bits >> np.arange(LANES)) & 1 != 0
        if self._rng.random() < 0.5:
            first = ~first
        return [threads[first], threads[~first]]

    def _has_conflict(self, start: int, end: int) -> bool:
        """Whether two accesses of the segment touch common bytes and one writes: only then can the order of lanes
        within a warp show."""
        key = (start, end)
        if key not in self._conflicts:
            self._conflicts[key] = self._find_conflict(start, end)
        return self._conflicts[key]

    def _find_conflict(self, start: int, end: int) -> bool:
        ranges: dict[tuple[int, int], bool] = {}
        for step in self._trace[start:end]:
            if shared_operand(step.stmt) is None:
                continue
            access = self._cta.program.shared(step.stmt)
            shift = step.slot * access.stride
            lo, hi = access.span[0] + shift, access.span[1] + shift
            writes = isinstance(step.stmt, (tir.CpAsync, tir.StShared))
            if any(lo < b and a < hi and (writes or wrote) for (a, b), wrote in ranges.items()):
                return True
            ranges[lo, hi] = ranges.get((lo, hi), False) or writes
        return False

    def _report_deadlock(self) -> None:
        for barrier in self._barriers.values():
            here = {w.index for w in barrier.waiting}
            for warp in barrier.waiting:
                stmt = self._trace[warp.end].stmt
                detail = f"warps {_list(here)} wait for {_list(barrier.expected - here)}: {self._whereabouts(here)}"
                self._cta.reports.add("deadlock", stmt, thread=int(warp.threads[0]), detail=detail)

    def _whereabouts(self, here: set[int]) -> str:
        """Where the warps are that do not wait at this barrier."""
        out = []
        away = set(self._everyone) - here
        for barrier in self._barriers.values():
            elsewhere = {w.index for w in barrier.waiting} - here
            if elsewhere:
                away -= elsewhere
                out.append(f"{_list(elsewhere)} wait at {statement(self._trace[barrier.waiting[0].end].stmt)}")
        if away:
            out.append(f"{_list(away)} have ended")
        return ", ".join(out)


def _convergence_points(trace: Sequence[Step], warps: int) -> list[np.ndarray]:
    """Per warp, the positions where its lanes must be together, and the end."""
    points: list[list[int]] = [[] for _ in range(warps)]
    for position, step in enumerate(trace):
        if isinstance(step.stmt, tir.BarSync):
            for warp in set(step.stmt.warps) & set(range(warps)):
                points[warp].append(position)
        elif isinstance(step.stmt, (*RENDEZVOUS, *WARP_COLLECTIVE)):
            for own in points:
                own.append(position)
    return [np.array([*own, len(trace)]) for own in points]


def _list(warps: frozenset[int] | set[int]) -> str:
    return ", ".join(map(str, sorted(warps)))
