"""The engines that work beside the threads: tensor copies, bulk stores, wgmma, and arrivals of cp.async.

Each operation is a flight from its issue to the moment it happens. completion 'early' lets it happen at its issue,
'late' when a wait cannot pass without it, 'random' at some moment in between. Its wait tells the waiting threads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tidegate.ir import tir
from tidegate.simulate.barriers import Barriers, Slot
from tidegate.simulate.clocks import PLAIN, Clocks, Knowledge
from tidegate.simulate.memory import Engine, SharedMemory
from tidegate.simulate.report import Reports
from tidegate.simulate.trace import Step


@dataclass(frozen=True, eq=False)
class Flight:
    """An operation under way. ``group``, where there is one, counts the commit groups of its issuer."""

    step: Step

    def happen(self, engines: Engines) -> None:
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Landing(Flight):
    """A tensor copy to shared memory, whose bytes count on a barrier."""

    slot: Slot
    cells: np.ndarray
    values: np.ndarray
    bytes: int
    counts: bool

    def happen(self, engines: Engines) -> None:
        agent = engines.clocks.tensor(self.slot.number)
        engines.memory.land(self.step.event, self.cells, self.values, agent)
        if self.counts:
            engines.barriers.landed(self.slot, self.bytes)


@dataclass(frozen=True, eq=False)
class Arrival(Flight):
    """cp.async.mbarrier.arrive.noinc of ``threads``: their copies issued before ``time`` have landed."""

    slot: Slot
    threads: np.ndarray
    time: int

    def happen(self, engines: Engines) -> None:
        def released(threads: np.ndarray) -> Knowledge:
            knowledge = engines.clocks.nothing()
            knowledge[PLAIN, engines.clocks.copies(threads)] = self.time
            return knowledge

        engines.barriers.arrive(self.step, self.slot, self.threads, released)


@dataclass(frozen=True, eq=False)
class Store(Flight):
    """A tensor copy from shared memory: ``write`` receives what it read."""

    cells: np.ndarray
    engine: Engine
    issued: int
    group: int
    write: Callable[[np.ndarray], None]

    def happen(self, engines: Engines) -> None:
        self.write(engines.memory.engine_values(self.cells, self.engine, self.issued))


@dataclass(frozen=True, eq=False)
class Product(Flight):
    """One warp's share of a wgmma: ``add`` takes the values of ``a`` and ``b``."""

    warp: int
    cells: tuple[np.ndarray, np.ndarray]
    engines: tuple[Engine, Engine]
    issued: int
    group: int
    register: str
    add: Callable[[np.ndarray, np.ndarray], None]

    def happen(self, engines: Engines) -> None:
        a, b = (engines.memory.engine_values(c, e, self.issued) for c, e in zip(self.cells, self.engines, strict=True))
        self.add(a, b)


class Groups:
    """Commit groups of one issuer: ``times`` of its commits, and how many oldest ones a wait has covered."""

    def __init__(self) -> None:
        self.times: list[int] = []
        self.covered = 0

    def wait(self, n: int) -> int | None:
        """Covers all but the ``n`` newest; the commit time of the newest one covered, None when there is none."""
        self.covered = max(self.covered, len(self.times) - n)
        return self.times[self.covered - 1] if self.covered > 0 else None


class Engines:
    """The flights of one CTA."""

    def __init__(self, memory: SharedMemory, barriers: Barriers, clocks: Clocks, reports: Reports) -> None:
        self.memory, self.barriers, self.clocks, self._reports = memory, barriers, clocks, reports
        self._open: list[Flight] = []
        self.stores: dict[int, Groups] = {}
        self.products: dict[int, Groups] = {}
        self._bulk: list[Store] = []
        self._matrix: list[Product] = []

    def launch(self, flight: Flight) -> None:
        """Issues an operation."""
        if isinstance(flight, Store):
            self._bulk.append(flight)
        elif isinstance(flight, Product):
            self._matrix.append(flight)
        if self.memory.completion == "early":
            flight.happen(self)
        else:
            self._open.append(flight)
            if isinstance(flight, (Landing, Arrival)):
                self.barriers.wake(flight.slot)  # a wait may force it

    def drift(self) -> None:
        """With completion 'random': some operations happen, each warp's wgmma in order."""
        if self.memory.completion != "random" or not self._open or self.memory.rng.random() < 0.6:
            return
        for flight in self.memory.rng.sample(self._open, self.memory.rng.randint(0, len(self._open))):
            if flight in self._open:
                self._finish(flight)

    def force(self, slot: Slot) -> bool:
        """Lets one more operation on a barrier's slot happen that a wait cannot do without; whether there was one."""
        mine: list[Flight] = [f for f in self._open if isinstance(f, Arrival) and f.slot is slot]
        if not slot.pending:
            mine += [f for f in self._open if isinstance(f, Landing) and f.slot is slot]
        if not mine:
            return False
        self._finish(self.memory.rng.choice(mine))
        return True

    def _finish(self, flight: Flight) -> None:
        if isinstance(flight, Product):  # a chain on one accumulator happens in order
            for earlier in [f for f in self._open if isinstance(f, Product) and f.warp == flight.warp]:
                self._open.remove(earlier)
                earlier.happen(self)
                if earlier is flight:
                    return
        self._open.remove(flight)
        flight.happen(self)

    # ------------------------------------------------------------------------------------------ groups

    def wait_stores(self, thread: int, n: int) -> None:
        groups = self.stores.setdefault(thread, Groups())
        time = groups.wait(n)
        done = [f for f in self._bulk if f.engine.thread == thread and f.group < groups.covered]
        for flight in done:
            self._bulk.remove(flight)
            if flight in self._open:
                self._finish(flight)
        if time is not None:
            self.clocks.learn_engine(np.array([thread]), self.clocks.bulk(thread // 32), time)

    def wait_products(self, warp: int, threads: np.ndarray, n: int) -> set[str]:
        """The registers of the warp that have no wgmma under way any more."""
        groups = self.products.setdefault(warp, Groups())
        time = groups.wait(n)
        done = [f for f in self._matrix if f.warp == warp and f.group < groups.covered]
        for flight in done:
            self._matrix.remove(flight)
            if flight in self._open:
                self._finish(flight)
        if time is not None:
            self.clocks.learn_engine(threads, self.clocks.matrix(warp), time)
        busy = {f.register for f in self._matrix if f.warp == warp}
        return {f.register for f in done} - busy

    def end(self) -> None:
        """The kernel ends: what is still under way is reported, and happens."""
        for flight in (*self._bulk, *self._matrix, *(f for f in self._open if isinstance(f, (Landing, Arrival)))):
            thread = flight.engine.thread if isinstance(flight, Store) else flight.step.elected
            self._reports.add("outstanding", flight.step.stmt, thread=thread, detail=REMEDY[type(flight.step.stmt)])
        for store in [f for f in self._open if isinstance(f, Store)]:
            self._finish(store)


REMEDY: dict[type, str] = {
    tir.TmaStore: "no bulk_wait covers it",
    tir.Wgmma: "no wgmma_wait covers it",
    tir.TmaLoad: "nobody waits for its bytes",
    tir.CpArrive: "nobody waits for its phase",
}
