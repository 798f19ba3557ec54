"""The order of accesses to a tensor that a kernel reads and writes: what a thread may rely on within its CTA.

Like shared memory, global memory shows a thread what it knows of: its own writes, and those before a rendezvous that it
took part in (PTX ISA, "Memory Consistency Model"). An element remembers its latest write of the running CTA and the
value before it, which is what a thread sees that does not know of the write. Other CTAs are not ordered at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tidegate.ir import tir
from tidegate.simulate.clocks import PLAIN, Clocks
from tidegate.simulate.readers import Readers
from tidegate.simulate.report import Kind
from tidegate.simulate.trace import Step

NOBODY, SEVERAL = -1, -2

OUTSIDE = -1
"""Stands for elements outside the tensor where a write is compared with reads, which keep the last row for these."""


@dataclass(frozen=True, eq=False)
class Fault:
    """``bad`` [threads, elements]; ``other`` is the access on the other side, where it is of the same CTA."""

    kind: Kind
    bad: np.ndarray
    other: tir.Stmt | None = None


class Order:
    """The elements of one tensor, and one more for all that lie outside. Faults are for the caller to report."""

    def __init__(self, elements: int) -> None:
        self._elements = elements
        self._time = np.zeros(elements + 1, np.int32)  # of the latest write in this CTA, 0: none
        self._owner = np.zeros(elements + 1, np.int32)
        self._event = np.zeros(elements + 1, np.int32)
        self._added = np.zeros(elements + 1, bool)  # whether that was an atomic addition
        self._ctas = {how: np.full(elements + 1, NOBODY, np.int32) for how in ("read", "write", "add")}
        self._touched: list[np.ndarray] = []

    def begin(self, cta: int, clocks: Clocks, trace: list[Step]) -> None:
        """A CTA starts."""
        for flat in self._touched:
            self._time[flat] = 0
        self._touched = []
        self._cta, self._clocks, self._trace = cta, clocks, trace
        self._readers = Readers(clocks)

    def settle(self) -> None:
        """Forgets the reads that everyone knows of."""
        self._readers.settle(self._clocks.settled(False))

    def read(self, step: Step, flat: np.ndarray, threads: np.ndarray) -> Iterator[Fault]:
        yield from self._other_ctas(flat, ("write", "add"))
        yield from self._unordered("unordered read", flat, self._behind(flat, threads))
        self._readers.add(step, 0, flat, threads, together=False)
        self._note("read", flat)

    def stale(self, flat: np.ndarray, threads: np.ndarray) -> np.ndarray:
        """Where a read does not know of the latest write."""
        return self._behind(flat, threads)

    def write(self, step: Step, flat: np.ndarray, threads: np.ndarray, *, add: bool) -> Iterator[Fault]:
        yield from self._other_ctas(flat, ("read", "write") if add else ("read", "write", "add"))
        behind = self._behind(flat, threads)
        if add:
            behind &= ~self._added[flat]  # additions commute
        yield from self._unordered("unordered write", flat, behind)
        cells = np.where(flat < self._elements, flat, OUTSIDE)
        for clash in self._readers.clashes(cells, threads, None):
            bad = np.isin(flat, clash.cells) & np.isin(threads, clash.threads)[:, None]
            yield Fault("overwrite", bad, clash.read.step.stmt)
        self._time[flat], self._event[flat], self._added[flat] = self._clocks.now, step.event, add
        self._owner[flat] = threads[:, None]
        self._touched.append(flat)
        self._note("add" if add else "write", flat)

    def _behind(self, flat: np.ndarray, threads: np.ndarray) -> np.ndarray:
        """Which elements were written last by an access that the thread does not know of."""
        time, owner = self._time[flat], self._owner[flat]
        known = self._clocks.known[PLAIN][threads[:, None], owner] >= time
        behind: np.ndarray = ~(known | (owner == threads[:, None])) & (time > 0) & (flat < self._elements)
        return behind

    def _unordered(self, kind: Kind, flat: np.ndarray, behind: np.ndarray) -> Iterator[Fault]:
        if behind.any():
            for event in np.unique(self._event[flat[behind]]):
                yield Fault(kind, behind & (self._event[flat] == event), self._trace[int(event) - 1].stmt)

    def _other_ctas(self, flat: np.ndarray, hows: tuple[str, ...]) -> Iterator[Fault]:
        bad = np.zeros(flat.shape, bool)
        for how in hows:
            other = self._ctas[how][flat]
            bad |= (other != NOBODY) & (other != self._cta)
        bad &= flat < self._elements
        if bad.any():
            yield Fault("two CTAs", bad)

    def _note(self, how: str, flat: np.ndarray) -> None:
        before = self._ctas[how][flat]
        self._ctas[how][flat] = np.where((before == NOBODY) | (before == self._cta), self._cta, SEVERAL)
