"""Where warps meet: named barriers, that of the CTA, and that of the cluster (of one CTA)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tidegate.ir import tir
from tidegate.ir.layout import LANES
from tidegate.simulate.clocks import Clocks, Knowledge
from tidegate.simulate.report import Reports

BLOCK_BARRIER = 0
"""sync_block is named barrier 0 over all warps."""


@dataclass(eq=False)
class Meeting:
    """One generation of a named barrier: ``expected`` warps, or with bar_arrive any ``count`` threads; ``arrived``
    lists the warps so far, and ``knowledge`` what they know."""

    expected: frozenset[int] | None
    count: int
    knowledge: Knowledge
    arrived: tuple[int, ...] = ()

    @property
    def complete(self) -> bool:
        return LANES * len(self.arrived) >= self.count

    @property
    def missing(self) -> str:
        if self.expected is not None:
            return listed(self.expected - set(self.arrived))
        return f"{self.count - LANES * len(self.arrived)} of {self.count} threads"


class Meetings:
    """The named barriers of a CTA. The hardware counts threads; warps that are not meant to meet are reported."""

    def __init__(self, kernel: tir.Kernel, clocks: Clocks) -> None:
        self._clocks, self._everyone = clocks, frozenset(range(kernel.warps))
        self._open: dict[int, Meeting] = {}
        self._counts: dict[int, int] = {}
        for stmt in tir.walk(kernel.body):
            if isinstance(stmt, tir.BarArrive):
                self._counts.setdefault(stmt.barrier, stmt.count)

    def arrive(self, number: int, stmt: tir.Stmt, warp: int, threads: np.ndarray, reports: Reports) -> Meeting:
        expected, count = self._demand(number, stmt)
        meeting = self._open.setdefault(number, Meeting(expected, count, self._clocks.nothing()))
        if (meeting.expected, meeting.count) != (expected, count):
            others = f"{meeting.count} threads" if meeting.expected is None else listed(meeting.expected)
            reports.add("barrier mismatch", stmt, thread=int(threads[0]), detail=f"it waits for {others}")
        meeting.arrived = (*meeting.arrived, warp)
        meeting.knowledge = np.maximum(meeting.knowledge, self._clocks.released(threads))
        return meeting

    def end(self, number: int) -> None:
        """The next arrival begins a new generation."""
        del self._open[number]

    def _demand(self, number: int, stmt: tir.Stmt) -> tuple[frozenset[int] | None, int]:
        if isinstance(stmt, tir.BarArrive):
            return None, stmt.count
        if number in self._counts:
            return None, self._counts[number]
        expected = frozenset(stmt.warps) if isinstance(stmt, tir.BarSync) else self._everyone
        return expected, LANES * len(expected)


class Cluster:
    """The barrier of a cluster of one CTA: the n-th wait of a warp passes when all warps have arrived n times."""

    def __init__(self, clocks: Clocks, warps: int) -> None:
        self._clocks = clocks
        self._arrivals = [0] * warps
        self._gathered = clocks.nothing()
        self.released = clocks.nothing()

    def arrive(self, warp: int, threads: np.ndarray) -> bool:
        """Whether this arrival completes a phase."""
        before = min(self._arrivals)
        self._arrivals[warp] += 1
        self._gathered = np.maximum(self._gathered, self._clocks.released(threads))
        if min(self._arrivals) == before:
            return False
        self.released = self._gathered
        return True

    def passes(self, waits: int) -> bool:
        return min(self._arrivals) > waits


def listed(warps: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(warps)))
