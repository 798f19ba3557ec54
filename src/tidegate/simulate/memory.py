"""Shared memory of one CTA as an adversary sees it: what is published, and what a writer has not yet made known.

Every cell has a published value and at most one *pending* write, which belongs to one thread. Who sees a pending write:

* its own thread, once it is complete: a store at once, a cp.async when the thread's wait covers its group;
* the warps in ``seen``, which met the writer, or a warp that had seen the write, at a rendezvous after completion.

Everyone else sees the published value. A write seen by all warps becomes the published value. An access that meets a
pending write which it does not see is not ordered with it, whatever the timing: that is reported.

completion 'late' keeps writes pending as long as the rules allow, 'early' publishes them at issue (which exposes an
overwrite that comes too soon), 'random' lets them land at seeded moments in between. (PTX ISA, "Data Movement and
Conversion Instructions: Asynchronous copy", and "Memory Consistency Model".)
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tidegate.ir import tir
from tidegate.ir.layout import LANES
from tidegate.simulate.access import CELL_TYPES
from tidegate.simulate.report import Kind, Reports, first_run
from tidegate.simulate.trace import Step, shared_operand

Completion = Literal["early", "late", "random"]

STORE = -1
"""Group of a write that is complete when its thread has issued it."""

MAX_FLYING = 32
"""Beyond this many, those that have landed at a rendezvous meanwhile are dropped."""


@dataclass(frozen=True, eq=False)
class Flying:
    """A write that may land at any moment (completion 'random')."""

    event: int
    cells: np.ndarray
    threads: np.ndarray


class SharedMemory:
    """``trace`` gives the statement of an event: a pending write is known by the position of its step, plus one."""

    def __init__(
        self,
        size: int,
        cell: int,
        warps: int,
        completion: Completion,
        rng: random.Random,
        reports: Reports,
        trace: Sequence[Step],
    ) -> None:
        cells, threads, kind = -(-size // cell), warps * LANES, CELL_TYPES[cell]
        self._cell, self._everyone = cell, (1 << warps) - 1
        self._completion, self._rng, self._reports, self._trace = completion, rng, reports, trace
        self._poison = np.iinfo(kind).max  # all bits set is a NaN in every float format
        self._data = np.full(cells, self._poison, kind)
        self._written = np.zeros(cells, bool)
        self._event = np.zeros(cells, np.int32)  # 0: no pending write
        self._value = np.zeros(cells, kind)
        self._owner = np.zeros(cells, np.int64)
        self._group = np.zeros(cells, np.int32)
        self._seen = np.zeros(cells, np.int64)  # one bit per warp
        self._open_group = np.zeros(threads, np.int32)  # groups committed so far
        self._landed = np.zeros(threads, np.int32)  # oldest groups known to be complete
        self._flying: list[Flying] = []

    # ------------------------------------------------------------------------------------------ accesses

    def read(self, step: Step, cells: np.ndarray, threads: np.ndarray, *, collective: bool = False) -> np.ndarray:
        """Values of ``cells`` [threads, n] as ``threads`` see them; poison where they may not be relied on.

        ``collective``: the warp reads on behalf of all its lanes, so that no lane's own pending write counts as seen.
        """
        values = self._data[cells]
        known = self._written[cells]
        event = self._event[cells]
        if event.any():
            self._overlay(step, cells, threads, collective, values, known)
        if not known.all():
            self._report_unwritten(step, cells, threads, known | (self._event[cells] != 0))
            values[~known] = self._poison
        return values

    def write(
        self, position: int, cells: np.ndarray, threads: np.ndarray, values: np.ndarray, *, copy: bool, replicated: bool
    ) -> None:
        """A store or (``copy``) a cp.async of the step at ``position``. ``replicated``: other threads write the same
        values to the same cells."""
        if self._completion == "early":
            self._data[cells] = values
            self._written[cells] = True
            return
        agreed = self._collide(position, cells, threads, values, copy) if self._event[cells].any() else None
        self._event[cells] = position + 1
        self._value[cells] = values
        self._owner[cells] = threads[:, None]
        self._group[cells] = self._open_group[threads][:, None] if copy else STORE
        self._seen[cells] = (1 << (threads // LANES))[:, None] if replicated else 0
        if agreed is not None:
            self._seen[agreed[0]] |= agreed[1]
        if self._completion == "random":
            self._flying.append(Flying(position + 1, cells, threads))

    # ------------------------------------------------------------------------------------------ order

    def commit(self, threads: np.ndarray) -> None:
        self._open_group[threads] += 1

    def wait(self, threads: np.ndarray, n: int) -> None:
        self._landed[threads] = np.maximum(self._landed[threads], self._open_group[threads] - n)

    def rendezvous(self, warps: int) -> None:
        """All threads of the warps in the bit mask have met: each now sees what any of them saw."""
        pending = np.flatnonzero(self._event)
        if not len(pending):
            return
        owner, seen = self._owner[pending], self._seen[pending]
        present = (warps >> (owner // LANES)) & 1 != 0
        known = (self._group[pending] < self._landed[owner]) & (present | (seen & warps != 0))
        known |= seen & warps != 0  # seen before, hence complete
        met = pending[known]
        self._seen[met] |= warps
        self._publish(met[self._seen[met] == self._everyone])

    def drift(self) -> None:
        """With completion 'random': lets some of the pending writes land."""
        if not self._flying or self._rng.random() < 0.5:
            return
        if len(self._flying) > MAX_FLYING:
            self._flying = [f for f in self._flying if (self._event[f.cells] == f.event).any()]
        for flight in self._rng.sample(self._flying, self._rng.randint(0, len(self._flying))):
            share = self._rng.choice((0.3, 1.0))
            lanes = np.array([self._rng.random() < share for _ in flight.threads])
            cells, threads = flight.cells[lanes], flight.threads[lanes]
            mine = (self._event[cells] == flight.event) & (self._owner[cells] == threads[:, None])
            self._publish(cells[mine])
            if lanes.all():
                self._flying.remove(flight)

    def _publish(self, cells: np.ndarray) -> None:
        self._data[cells] = self._value[cells]
        self._written[cells] = True
        self._event[cells] = 0

    # ------------------------------------------------------------------------------------------ meeting pending writes

    def _overlay(
        self,
        step: Step,
        cells: np.ndarray,
        threads: np.ndarray,
        collective: bool,
        values: np.ndarray,
        known: np.ndarray,
    ) -> None:
        """Puts the pending writes that the readers see into values and known, and reports those they do not see."""
        at = np.nonzero(self._event[cells])
        cell, reader = cells[at], threads[at[0]]
        owner = self._owner[cell]
        flying = self._group[cell] >= self._landed[owner]
        met = (self._seen[cell] >> (reader // LANES)) & 1 != 0
        sees = met if collective else met | (owner == reader)
        sees &= ~flying
        values[at[0][sees], at[1][sees]] = self._value[cell[sees]]
        known[at] = np.where(sees, True, known[at] & ~flying)
        if not sees.all():
            self._report(step, cell, reader, ~sees & flying, "not landed")
            self._report(step, cell, reader, ~sees & ~flying, "unordered read")

    def _collide(
        self, position: int, cells: np.ndarray, threads: np.ndarray, values: np.ndarray, copy: bool
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """Checks a write over pending ones. Returns the cells where replicas agree, and the warps that hold them."""
        at = np.nonzero(self._event[cells])
        cell, writer = cells[at], threads[at[0]]
        owner = self._owner[cell]
        flying = self._group[cell] >= self._landed[owner]
        met = (self._seen[cell] >> (writer // LANES)) & 1 != 0
        ordered = ~flying & (met | (owner == writer))
        agreed = (self._event[cell] == position + 1) & (self._group[cell] == STORE) & (self._value[cell] == values[at])
        if copy:
            agreed[:] = False
        if not (ordered | agreed).all():
            step, bad = self._trace[position], ~ordered & ~agreed
            self._report(step, cell, writer, bad & flying, "not landed")
            self._report(step, cell, writer, bad & ~flying, "unordered write")
        # A warp that has seen the old write may not fall back behind it.
        self._publish(cell[ordered & (self._seen[cell] != 0)])
        if not agreed.any():
            return None
        warps = self._seen[cell] | (1 << (owner // LANES)) | (1 << (writer // LANES))
        return cell[agreed], warps[agreed]

    # ------------------------------------------------------------------------------------------ reports

    def _report(self, step: Step, cell: np.ndarray, thread: np.ndarray, bad: np.ndarray, kind: Kind) -> None:
        """One report per pending write that is met, for the first thread that meets it."""
        if not bad.any():
            return
        cell, thread = cell[bad], thread[bad]
        event = self._event[cell]
        for number in np.unique(event):
            of_event = event == number
            first = int(thread[of_event][0])
            writer = self._trace[int(number) - 1].stmt
            self._add(kind, step, cell[of_event & (thread == first)], first, writer)

    def _report_unwritten(self, step: Step, cells: np.ndarray, threads: np.ndarray, fine: np.ndarray) -> None:
        rows = np.flatnonzero(~fine.all(axis=1))
        if len(rows):
            row = rows[0]
            self._add("never written", step, cells[row][~fine[row]], int(threads[row]), None)

    def _add(self, kind: Kind, step: Step, cells: np.ndarray, thread: int, writer: tir.Stmt | None) -> None:
        operand = shared_operand(step.stmt)
        assert operand is not None
        slot = step.slot if operand.cursor is not None else None
        self._reports.add(
            kind,
            step.stmt,
            thread=thread,
            buffer=operand.buffer,
            slot=slot,
            bytes=first_run(cells, self._cell),
            writer=writer,
        )
