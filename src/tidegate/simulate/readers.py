"""The reads of shared memory that a later write must be ordered after."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tidegate.simulate.clocks import PLAIN, Clocks
from tidegate.simulate.trace import Step

MAX_READS = 1024
"""Beyond this many, the oldest are forgotten; a write over them is not reported."""


@dataclass(frozen=True, eq=False, slots=True)
class Read:
    """``cells`` [agents, n] were read at ``time``; with ``together`` each of the ``agents`` read all of them. ``low``
    and ``high`` bound the cells, half open."""

    step: Step
    cells: np.ndarray
    agents: np.ndarray
    together: bool
    time: int
    low: int
    high: int


@dataclass(frozen=True, eq=False, slots=True)
class Clash:
    """Cells of a write, with the thread that writes each, that a read may still need."""

    read: Read
    cells: np.ndarray
    threads: np.ndarray


class Readers:
    """The latest read of each statement, slot and set of threads: a writer that knows of it knows of the earlier."""

    def __init__(self, clocks: Clocks) -> None:
        self._clocks = clocks
        self._reads: dict[tuple[object, ...], Read] = {}

    def add(self, step: Step, slot: int, cells: np.ndarray, agents: np.ndarray, *, together: bool) -> None:
        low, high = int(cells.min()), int(cells.max()) + 1
        key = (id(step.stmt), slot, low, high, agents.tobytes())
        self._reads.pop(key, None)  # the order of the table is that of time
        self._reads[key] = Read(step, cells, agents, together, self._clocks.now, low, high)
        if len(self._reads) > MAX_READS:
            self._reads = dict(list(self._reads.items())[MAX_READS // 2 :])

    def settle(self, known: np.ndarray) -> None:
        """Drops the reads that everyone knows of; ``known`` is Clocks.settled."""
        self._reads = {k: r for k, r in self._reads.items() if (known[r.agents] < r.time).any()}

    def clashes(self, cells: np.ndarray, threads: np.ndarray, sight: np.ndarray | None) -> Iterator[Clash]:
        """Reads that a write of ``cells`` [threads, n] is not ordered after; ``sight`` is what an engine of the async
        proxy goes by (None: the threads write themselves)."""
        if not self._reads:
            return
        low, high = int(cells.min()), int(cells.max()) + 1
        common = self._clocks.sight(threads, engine=False) if sight is None else sight
        for read in self._reads.values():
            if read.low >= high or read.high <= low or (common[read.agents] >= read.time).all():
                continue
            known = np.repeat((common[read.agents] >= read.time)[None], len(threads), axis=0)
            if sight is None:
                known = self._clocks.known[PLAIN][threads[:, None], read.agents] >= read.time
                known |= threads[:, None] == read.agents
            if not known.all():
                yield from self._meet(read, cells, threads, known)

    def _meet(self, read: Read, cells: np.ndarray, threads: np.ndarray, known: np.ndarray) -> Iterator[Clash]:
        """The clash, if the write and the read that it does not know of have cells in common."""
        rows = np.broadcast_to(np.arange(len(threads))[:, None], cells.shape).ravel()
        flat = cells.ravel()
        if read.together:
            bad = ~np.all(known, axis=1)[rows] & np.isin(flat, read.cells)
        else:
            order = np.argsort(read.cells, axis=None, kind="stable")
            places = read.cells.ravel()[order]
            readers = order // read.cells.shape[1]
            first = np.searchsorted(places, flat, "left")
            last = np.searchsorted(places, flat, "right")
            bad = np.zeros(len(flat), bool)
            for shift in range(int((last - first).max(initial=0))):
                at = first + shift
                here = at < last
                bad[here] |= ~known[rows[here], readers[at[here]]]
        if bad.any():
            yield Clash(read, flat[bad], threads[rows[bad]])
