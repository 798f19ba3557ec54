"""Which warp and which lanes run next: an adversary that keeps the order of each thread and of every rendezvous.

Between two points where a warp must be together (a rendezvous, a wait for a phase, ldmatrix, mma, wgmma) its lanes are
split at random into two parts, and one part runs through all statements before the other begins. Among warps one is
often left to run ahead until something stops it. A script makes given warps go first to given statements.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tidegate.ir import tir
from tidegate.ir.layout import LANES
from tidegate.simulate.barriers import Slot
from tidegate.simulate.machine import Cta
from tidegate.simulate.meeting import BLOCK_BARRIER, Cluster, Meeting, Meetings, listed
from tidegate.simulate.report import statement
from tidegate.simulate.trace import Group, Step, shared_operand, window_operand

UNTIL_BLOCKED = 1 << 62
TURNS = (1, 4, UNTIL_BLOCKED)
TURN_WEIGHTS = (1, 1, 4)

SETTLE_EVERY = 256
"""Steps of a warp between two looks for writes that everyone knows of."""

TOGETHER = (
    tir.SyncWarp, tir.SyncBlock, tir.ClusterArrive, tir.ClusterWait, tir.BarrierWait, tir.LdMatrix, tir.StMatrix,
    tir.Mma, tir.Reduce, tir.Wgmma, tir.WgmmaFence, tir.WgmmaCommit, tir.WgmmaWait, tir.SetMaxRegisters,
)  # fmt: skip
"""Where the lanes of a warp are together; so they are at the named barriers of their warp."""

ONE_LANE = (
    tir.BarrierInit, tir.BarrierInvalidate, tir.BarrierArrive, tir.BarrierExpect, tir.TmaLoad, tir.TmaStore,
    tir.BulkCommit, tir.BulkWait,
)  # fmt: skip
"""What one lane may do before the others of its warp have done what stands before it."""

ScriptStep = tuple["str | Sequence[int]", Sequence[int]]
"""Who (a role, '' for warps without one, or a sequence of warps) executes which statement, given by its index path in
the body, next."""


@dataclass(eq=False)
class Warp:
    """``parts``: the lanes still to run through the segment ``at``..``end``, and where each part stands. ``last`` is
    the path of the statement that it executed last; ``blocked`` says what it waits for."""

    index: int
    threads: np.ndarray
    group: Group
    end: int = 0
    parts: list[np.ndarray] = field(default_factory=list)
    at: list[int] = field(default_factory=list)
    last: tuple[int, ...] = ()
    blocked: Slot | Meeting | Cluster | None = None
    waits: int = 0

    @property
    def next(self) -> Step:
        return self.group.steps[self.end]

    @property
    def ended(self) -> bool:
        return self.end == len(self.group.steps) and all(a == self.end for a in self.at)


class Scheduler:
    """Runs one CTA to its end, or until no warp can go on, which is reported as a deadlock."""

    def __init__(self, cta: Cta, groups: Sequence[Group], rng: random.Random, script: Sequence[ScriptStep]) -> None:
        self._cta, self._rng, self._script = cta, rng, script
        kernel = cta.program.kernel
        self._conflicts: dict[tuple[int, int, int], bool] = {}
        self._meetings = Meetings(kernel, cta.clocks)
        self._cluster = Cluster(cta.clocks, kernel.warps)
        self._points: dict[int, np.ndarray] = {}
        self._warps: list[Warp] = []
        for group in groups:
            for w in group.warps:
                self._warps.append(Warp(w, np.arange(w * LANES, (w + 1) * LANES), group))
                self._points[w] = _convergence_points(group, w)
        self._warps.sort(key=lambda warp: warp.index)
        self._runnable = list(self._warps)
        self._steps = 0
        cta.barriers.wake = self._wake

    def run(self) -> None:
        for warp in self._warps:
            self._enter(warp, 0)
        for who, path in self._script:
            self._replay(who, tuple(path))
        while self._runnable:
            warp = self._rng.choice(self._runnable)
            self._drift()
            turn = self._rng.choices(TURNS, TURN_WEIGHTS)[0]
            while turn and self._advance(warp):
                turn -= 1
        if any(w.blocked for w in self._warps):
            self._report_deadlock()
        else:
            self._cta.end()

    def _replay(self, who: str | Sequence[int], path: tuple[int, ...]) -> None:
        """Lets the warps run up to their next execution of a statement, as far as they can."""
        for warp in self._warps:
            if warp.group.role == who if isinstance(who, str) else warp.index in who:
                warp.last = ()
                while warp.last != path and warp in self._runnable and self._advance(warp):
                    pass

    def _drift(self) -> None:
        self._cta.memory.drift()
        self._cta.engines.drift()

    # ------------------------------------------------------------------------------------------ one statement

    def _advance(self, warp: Warp) -> bool:
        """One statement for one part of the warp, or the point where it must be together; whether it can go on."""
        self._steps += 1
        if self._steps % SETTLE_EVERY == 0:
            self._cta.settle()
        for part, threads in enumerate(warp.parts):
            if warp.at[part] < warp.end:
                step = warp.group.steps[warp.at[part]]
                self._cta.execute(step, threads)
                warp.at[part] += 1
                if all(a >= warp.at[part] for a in warp.at):
                    warp.last = step.path
                return True
        if warp.end == len(warp.group.steps):
            self._runnable.remove(warp)
            return False
        self._drift()
        return self._together(warp, warp.next)

    def _together(self, warp: Warp, step: Step) -> bool:
        stmt = step.stmt
        self._cta.clocks.now += 1
        if isinstance(stmt, tir.BarrierWait):
            return self._wait(warp, step, stmt)
        if isinstance(stmt, tir.SyncBlock):
            return self._meet(warp, BLOCK_BARRIER, step, blocks=True)
        if isinstance(stmt, (tir.BarSync, tir.BarArrive)):
            return self._meet(warp, stmt.barrier, step, blocks=isinstance(stmt, tir.BarSync))
        if isinstance(stmt, tir.ClusterWait):
            return self._wait_cluster(warp)
        if isinstance(stmt, tir.ClusterArrive):
            if self._cluster.arrive(warp.index, warp.threads):
                self._release(self._cluster)
        elif isinstance(stmt, tir.SyncWarp):
            self._cta.clocks.acquire(warp.threads, self._cta.clocks.released(warp.threads))
        else:
            self._cta.execute(step, warp.threads)
        self._pass(warp)
        return True

    def _pass(self, warp: Warp) -> None:
        """The warp leaves the point where it was together."""
        warp.last = warp.next.path
        warp.blocked = None
        self._enter(warp, warp.end + 1)

    def _block(self, warp: Warp, on: Slot | Meeting | Cluster) -> bool:
        warp.blocked = on
        self._runnable.remove(warp)
        return False

    def _release(self, what: Slot | Cluster) -> None:
        """Those who wait for it look again."""
        for warp in self._warps:
            if warp.blocked is what:
                warp.blocked = None
                self._runnable.append(warp)

    def _wake(self, slot: Slot) -> None:
        if slot.waiters:
            self._release(slot)

    # ------------------------------------------------------------------------------------------ waits

    def _wait(self, warp: Warp, step: Step, stmt: tir.BarrierWait) -> bool:
        barriers = self._cta.barriers
        slot = barriers.of(step, stmt.barrier)
        if barriers.usable(step, slot, warp.threads):
            slot.waiters.add(int(warp.threads[0]))
            while not slot.passes(step.phase):
                if not self._cta.engines.force(slot):
                    return self._block(warp, slot)
            barriers.passed(step, slot, warp.threads)
        self._pass(warp)
        return True

    def _wait_cluster(self, warp: Warp) -> bool:
        if not self._cluster.passes(warp.waits):
            return self._block(warp, self._cluster)
        self._cta.clocks.acquire(warp.threads, self._cluster.released)
        warp.waits += 1
        self._pass(warp)
        return True

    def _meet(self, warp: Warp, number: int, step: Step, *, blocks: bool) -> bool:
        meeting = self._meetings.arrive(number, step.stmt, warp.index, warp.threads, self._cta.reports)
        if blocks:
            self._block(warp, meeting)
        if meeting.complete:
            self._meetings.end(number)
            for met in [w for w in self._warps if w.blocked is meeting]:
                self._cta.clocks.acquire(met.threads, meeting.knowledge)
                self._pass(met)
                self._runnable.append(met)
            if number == BLOCK_BARRIER:
                self._cta.settle()
        if blocks:
            return False
        self._pass(warp)
        return True

    # ------------------------------------------------------------------------------------------ segments

    def _enter(self, warp: Warp, start: int) -> None:
        """Starts the segment from ``start`` to the next point where the warp must be together."""
        points = self._points[warp.index]
        warp.end = int(points[np.searchsorted(points, start)])
        warp.parts = self._split(warp.threads) if self._order_shows(warp, start) else [warp.threads]
        warp.at = [start] * len(warp.parts)

    def _split(self, threads: np.ndarray) -> list[np.ndarray]:
        bits = self._rng.choice((self._rng.getrandbits(LANES), 1 << self._rng.randrange(LANES), 0xFFFF, 0x55555555, 1))
        first = (bits >> np.arange(LANES)) & 1 != 0
        if self._rng.random() < 0.5:
            first = ~first
        return [part for part in (threads[first], threads[~first]) if len(part)]

    def _order_shows(self, warp: Warp, start: int) -> bool:
        """Whether the order of lanes within the warp can show in the segment: two accesses touch common bytes and one
        writes, or one lane does something after what others do."""
        key = (id(warp.group), start, warp.end)
        if key not in self._conflicts:
            self._conflicts[key] = self._find_conflict(warp.group.steps[start : warp.end])
        return self._conflicts[key]

    def _find_conflict(self, steps: Sequence[Step]) -> bool:
        ranges: dict[tuple[int, int], bool] = {}
        tensors: dict[str, bool] = {}
        for step in steps:
            if (window := window_operand(step.stmt)) is not None and self._cta.tensors.ordered(window.tensor):
                writes = not isinstance(step.stmt, (tir.LdGlobal, tir.CpAsync, tir.TmaLoad))
                if window.tensor in tensors and (writes or tensors[window.tensor]):
                    return True
                tensors[window.tensor] = tensors.get(window.tensor, False) or writes
            one = isinstance(step.stmt, ONE_LANE)
            if one and not (isinstance(step.stmt, tir.BarrierArrive) and step.stmt.per == "thread"):
                if ranges:
                    return True
                continue
            if shared_operand(step.stmt) is None:
                continue
            access = self._cta.program.shared(step)
            shift = step.slot * access.stride
            lo, hi = access.span[0] + shift, access.span[1] + shift
            writes = not isinstance(step.stmt, tir.LdShared)
            if any(lo < b and a < hi and (writes or wrote) for (a, b), wrote in ranges.items()):
                return True
            ranges[lo, hi] = ranges.get((lo, hi), False) or writes
        return False

    # ------------------------------------------------------------------------------------------ deadlock

    def _report_deadlock(self) -> None:
        seen: set[tuple[int, int]] = set()
        for warp in self._warps:
            key = (id(warp.blocked), id(warp.next.stmt) if warp.blocked else 0)
            if warp.blocked is None or key in seen:
                continue
            seen.add(key)
            self._cta.reports.add(
                "deadlock", warp.next.stmt, thread=int(warp.threads[0]), detail=self._explain(warp), instance=key
            )

    def _explain(self, warp: Warp) -> str:
        """Who waits for what, and where the other warps are."""
        here = {w.index for w in self._warps if w.blocked is warp.blocked}
        others = f": {self._whereabouts(here)}"
        if isinstance(warp.blocked, Slot):
            return f"warps {listed(here)} wait for phase {warp.next.phase}; {warp.blocked.state}{others}"
        if isinstance(warp.blocked, Meeting):
            return f"warps {listed(here)} wait for {warp.blocked.missing}{others}"
        return f"warps {listed(here)} wait for all warps to arrive{others}"

    def _whereabouts(self, here: set[int]) -> str:
        """Where the warps are that do not wait for the same."""
        places: dict[str, set[int]] = {}
        for warp in self._warps:
            if warp.index not in here:
                place = f"wait at {statement(warp.next.stmt)}" if warp.blocked else "have ended"
                places.setdefault(place, set()).add(warp.index)
        return ", ".join(f"{listed(warps)} {place}" for place, warps in places.items()) or "no other warp is left"


def _convergence_points(group: Group, warp: int) -> np.ndarray:
    """The positions where the lanes of a warp must be together, and the end."""
    points = []
    for position, step in enumerate(group.steps):
        stmt = step.stmt
        named = isinstance(stmt, (tir.BarSync, tir.BarArrive)) and warp in stmt.warps
        if named or isinstance(stmt, TOGETHER):
            points.append(position)
    return np.array([*points, len(group.steps)])
