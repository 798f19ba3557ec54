"""Shared memory of one CTA as an adversary sees it: values, and which writes and reads are ordered before an access.

Every cell has a published value and knows its latest write: by which agent (see :mod:`tidegate.simulate.clocks`) and
when. While that write is *held*, only those who know of it see its value, everyone else the value before. An access
that does not know of the latest write, or a write that does not know of a read, is not ordered after it, whatever the
timing: that is reported. For an engine of the async proxy, a generic access counts as known only once it is fenced.

completion 'late' holds every write, 'early' holds none (which exposes an overwrite that comes too soon), 'random' lets
them go at seeded moments in between. (PTX ISA, "Memory Consistency Model" and "Asynchronous operations".)
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
from tidegate.simulate.clocks import NEVER, PLAIN, Clocks
from tidegate.simulate.readers import Readers
from tidegate.simulate.report import Kind, Reports, first_run
from tidegate.simulate.trace import Step, shared_operand

Completion = Literal["early", "late", "random"]

MAX_FLYING = 32
"""Beyond this many held writes, those that are not held any more are dropped from the list."""


@dataclass(frozen=True)
class Engine:
    """On whose behalf the async proxy accesses memory: ``thread`` issues, ``sight`` is what it goes by (see
    Clocks.sight), ``slot`` the operand where it is not the first one of the statement."""

    thread: int
    sight: np.ndarray
    slot: tir.Slot | None = None
    index: int = 0


@dataclass(frozen=True, eq=False)
class Held:
    """A write that completion 'random' may publish at any moment; ``agents`` per row of ``cells``."""

    event: int
    cells: np.ndarray
    agents: np.ndarray


class SharedMemory:
    """``trace`` gives the step of an event. ``strict``: the kernel uses the async proxy."""

    def __init__(
        self,
        size: int,
        cell: int,
        completion: Completion,
        rng: random.Random,
        reports: Reports,
        trace: Sequence[Step],
        clocks: Clocks,
        strict: bool,
    ) -> None:
        cells, kind = -(-size // cell), CELL_TYPES[cell]
        self.cell, self.completion, self.rng = cell, completion, rng
        self._reports, self._trace, self._clocks, self._strict = reports, trace, clocks, strict
        self.poison = np.iinfo(kind).max  # all bits set is a NaN in every float format
        self._data = np.full(cells, self.poison, kind)
        self._written = np.zeros(cells, bool)
        self._event = np.zeros(cells, np.int32)  # of the latest write; 0: everyone knows of it
        self._held = np.zeros(cells, bool)
        self._value = np.zeros(cells, kind)
        self._owner = np.zeros(cells, np.int32)
        self._time = np.zeros(cells, np.int32)
        self._same = np.zeros(cells, np.int64)  # one bit per warp that wrote the same value in the same statement
        self._guarded = np.zeros(cells, bool)
        self._any_guarded = False
        self._readers = Readers(clocks)
        self._flying: list[Held] = []

    def guard(self, cells: np.ndarray, live: bool) -> None:
        """Marks bytes of an mbarrier, which are no data while it is ``live``."""
        self._guarded[cells] = live
        self._any_guarded = bool(self._guarded.any())

    # ------------------------------------------------------------------------------------------ accesses of threads

    def read(self, step: Step, cells: np.ndarray, threads: np.ndarray, *, collective: bool = False) -> np.ndarray:
        """Values of ``cells`` [threads, n] as ``threads`` see them; poison where they may not be relied on.

        ``collective``: the warp reads on behalf of all its lanes, so that every lane must know of a write.
        """
        self._check_guard(step, cells, int(threads[0]), None)
        values = self._data[cells]
        known = self._written[cells]
        if self._event[cells].any():
            self._overlay(step, cells, threads, collective, values, known)
        if not known.all():
            self._report_unwritten(step, cells, threads, known | (self._event[cells] != 0))
            values[~known] = self.poison
        if collective:
            self._readers.add(step, step.slot, cells.reshape(1, -1), threads, together=True)
        else:
            self._readers.add(step, step.slot, cells, threads, together=False)
        return values

    def write(
        self, step: Step, cells: np.ndarray, threads: np.ndarray, values: np.ndarray, *, copy: bool, replicated: bool
    ) -> None:
        """A store or (``copy``) a cp.async. ``replicated``: other threads write the same values to the same cells."""
        self._check_guard(step, cells, int(threads[0]), None)
        agreed = None
        if self._event[cells].any():
            agreed = self._collide(step, cells, threads, values, copy)
        rows = threads
        if agreed is None:
            self._check_reads(step, cells, rows, None)
        elif not agreed.all():
            row, column = np.nonzero(~agreed)
            self._check_reads(step, cells[row, column][:, None], rows[row], None)
        same = None if agreed is None else self._same[cells] | (np.int64(1) << (self._owner[cells] // LANES % 64))
        agents = self._clocks.copies(threads) if copy else threads
        self._put(step.event, cells, values, agents, self._clocks.now)
        self._same[cells] = (1 << (threads // LANES))[:, None] if replicated else 0
        if agreed is not None and same is not None and agreed.any():
            self._same[cells[agreed]] |= same[agreed]

    def drift(self) -> None:
        """With completion 'random': publishes some of the held writes."""
        if not self._flying or self.rng.random() < 0.5:
            return
        if len(self._flying) > MAX_FLYING:
            self._flying = [f for f in self._flying if self._live(f).any()]
        for flight in self.rng.sample(self._flying, self.rng.randint(0, len(self._flying))):
            share = self.rng.choice((0.3, 1.0))
            rows = np.array([self.rng.random() < share for _ in flight.agents])
            self._publish(flight.cells[rows][self._live(flight)[rows]])
            if rows.all():
                self._flying.remove(flight)

    def _live(self, flight: Held) -> np.ndarray:
        cells = flight.cells
        return (self._event[cells] == flight.event) & (self._owner[cells] == flight.agents[:, None]) & self._held[cells]

    def settle(self) -> None:
        """Forgets the writes and reads that everyone knows of."""
        cells = np.flatnonzero(self._event)
        known = self._clocks.settled(self._strict)
        done = cells[known[self._owner[cells]] >= self._time[cells]]
        self._publish(done)
        self._event[done] = 0
        self._readers.settle(known)

    # ------------------------------------------------------------------------------------------ accesses of engines

    def engine_read(self, step: Step, cells: np.ndarray, agent: int, engine: Engine) -> None:
        """Checks, at its issue, a read of flat ``cells`` that happens later."""
        self._check_guard(step, cells, engine.thread, engine)
        at = cells[self._event[cells] != 0]
        bad = engine.sight[self._owner[at]] < self._time[at]
        if bad.any():
            self._report_engine(step, at[bad], engine, "unordered read")
        unwritten = ~self._written[cells] & (self._event[cells] == 0)
        if unwritten.any():
            self._add("never written", step, cells[unwritten], engine.thread, None, engine)
        self._readers.add(step, engine.index, cells[None], np.array([agent]), together=True)

    def engine_values(self, cells: np.ndarray, engine: Engine, issued: int) -> np.ndarray:
        """What a read of flat ``cells`` that was issued at a time finds now: the writes that were ordered before it,
        and those that came after it, but not those that it could not rely on."""
        seen = (engine.sight[self._owner[cells]] >= self._time[cells]) | (self._time[cells] > issued)
        seen &= self._held[cells] & (self._time[cells] != NEVER)
        values = np.where(seen, self._value[cells], self._data[cells])
        values[~(self._written[cells] | seen)] = self.poison
        return values

    def launch(self, step: Step, cells: np.ndarray, values: np.ndarray, agent: int, engine: Engine) -> None:
        """Issues an engine's write of flat ``cells``, which has not landed."""
        self._check_guard(step, cells, engine.thread, engine)
        at = cells[self._event[cells] != 0]
        bad = engine.sight[self._owner[at]] < self._time[at]
        if bad.any():
            self._report_engine(step, at[bad], engine, "unordered write")
        self._publish(at[~bad])
        self._check_reads(step, cells[None], np.array([engine.thread]), engine)
        self._event[cells], self._owner[cells], self._time[cells] = step.event, agent, NEVER
        self._value[cells], self._held[cells], self._same[cells] = values, True, 0

    def land(self, event: int, cells: np.ndarray, values: np.ndarray, agent: int) -> None:
        """The write of :meth:`launch` happens; those who learn of ``agent`` from now on know of it."""
        self._put(event, cells[None], values[None], np.array([agent]), self._clocks.now)

    # ------------------------------------------------------------------------------------------ state of cells

    def _put(self, event: int, cells: np.ndarray, values: np.ndarray, agents: np.ndarray, time: int) -> None:
        self._event[cells] = event
        self._owner[cells] = agents[:, None]
        self._time[cells] = time
        if self.completion == "early":
            self._data[cells] = values
            self._written[cells] = True
            self._held[cells] = False
            return
        self._value[cells] = values
        self._held[cells] = True
        if self.completion == "random":
            self._flying.append(Held(event, cells, agents))

    def _publish(self, cells: np.ndarray) -> None:
        cells = cells[self._held[cells] & (self._time[cells] != NEVER)]
        self._data[cells] = self._value[cells]
        self._written[cells] = True
        self._held[cells] = False

    # ------------------------------------------------------------------------------------------ meeting earlier writes

    def _overlay(
        self,
        step: Step,
        cells: np.ndarray,
        threads: np.ndarray,
        collective: bool,
        values: np.ndarray,
        known: np.ndarray,
    ) -> None:
        """Puts the held writes that the readers see into values and known, and reports those they do not see."""
        at = np.nonzero(self._event[cells])
        cell, reader = cells[at], threads[at[0]]
        if collective:
            sees = self._clocks.sight(threads, engine=False)[self._owner[cell]] >= self._time[cell]
        else:
            sees = self._clocks.knows(reader, self._owner[cell], self._time[cell])
        sees |= (self._same[cell] >> (reader // LANES)) & 1 != 0
        held = self._held[cell]
        shown = sees & held
        values[at[0][shown], at[1][shown]] = self._value[cell[shown]]
        if sees.all():
            known[at] = True
            return
        flying = self._flies(cell)
        known[at] = np.where(sees, True, known[at] & ~(flying & held))
        self._report(step, cell, reader, ~sees & flying, "not landed")
        self._report(step, cell, reader, ~sees & ~flying, "unordered read")

    def _flies(self, cell: np.ndarray) -> np.ndarray:
        """Whether nobody knows of the latest write: it is an engine's, and no wait has covered it."""
        known = self._clocks.known[PLAIN].max(axis=0)
        owner = self._owner[cell]
        return (owner >= self._clocks.threads) & (known[owner] < self._time[cell])

    def _collide(
        self, step: Step, cells: np.ndarray, threads: np.ndarray, values: np.ndarray, copy: bool
    ) -> np.ndarray:
        """Checks a write over earlier ones. Returns where replicas agree, like ``cells``."""
        at = np.nonzero(self._event[cells])
        cell, writer = cells[at], threads[at[0]]
        ordered = self._clocks.knows(writer, self._owner[cell], self._time[cell])
        ordered |= (self._same[cell] >> (writer // LANES)) & 1 != 0
        current = np.where(self._held[cell], self._value[cell], self._data[cell])
        agreed = (self._event[cell] == step.event) & (self._owner[cell] < self._clocks.threads)
        agreed &= current == values[at]
        if copy:
            agreed[:] = False
        bad = ~ordered & ~agreed
        if bad.any():
            flying = self._flies(cell)
            self._report(step, cell, writer, bad & flying, "not landed")
            self._report(step, cell, writer, bad & ~flying, "unordered write")
        self._publish(cell[ordered])
        out = np.zeros(cells.shape, bool)
        out[at] = agreed
        return out

    def _check_guard(self, step: Step, cells: np.ndarray, thread: int, engine: Engine | None) -> None:
        if self._any_guarded and self._guarded[cells].any():
            self._add("barrier in use", step, cells[self._guarded[cells]], thread, None, engine)

    def _check_reads(self, step: Step, cells: np.ndarray, threads: np.ndarray, engine: Engine | None) -> None:
        for clash in self._readers.clashes(cells, threads, engine.sight if engine else None):
            first = int(clash.threads[0])
            unfenced = engine is not None and self._unfenced(first, int(clash.read.agents[0]), clash.read.time)
            kind: Kind = "unfenced" if unfenced else "overwrite"
            mine = clash.cells[clash.threads == first]
            self._add(kind, step, mine, first, clash.read.step.stmt, engine)

    # ------------------------------------------------------------------------------------------ reports

    def _unfenced(self, thread: int, agent: int, time: int) -> bool:
        """Whether a generic access is known to a thread, so that only the proxy fence is missing."""
        known = self._clocks.knows(np.array([thread]), np.array([agent]), np.array([time]))
        return bool(self._clocks.generic[agent] and known[0])

    def _report_engine(self, step: Step, cells: np.ndarray, engine: Engine, kind: Kind) -> None:
        for number in np.unique(self._event[cells]):
            mine = cells[self._event[cells] == number]
            one = mine[:1]
            found: Kind = kind
            if self._unfenced(engine.thread, int(self._owner[one[0]]), int(self._time[one[0]])):
                found = "unfenced"
            elif self._flies(one)[0]:
                found = "not landed"
            self._add(found, step, mine, engine.thread, self._trace[int(number) - 1].stmt, engine)

    def _report(self, step: Step, cell: np.ndarray, thread: np.ndarray, bad: np.ndarray, kind: Kind) -> None:
        """One report per earlier write that is met, for the first thread that meets it."""
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

    def _add(
        self,
        kind: Kind,
        step: Step,
        cells: np.ndarray,
        thread: int,
        writer: tir.Stmt | None,
        engine: Engine | None = None,
    ) -> None:
        operand, index = shared_operand(step.stmt), step.slot
        if engine is not None and engine.slot is not None:
            operand, index = engine.slot, engine.index
        name, slot = "", None
        if operand is not None:
            name, slot = operand.buffer, index if operand.cursor is not None else None
        span = first_run(cells, self.cell)
        self._reports.add(kind, step.stmt, thread=thread, buffer=name, slot=slot, bytes=span, writer=writer)
