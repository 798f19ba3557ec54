"""What the asynchronous instructions and the syncs of single threads do to a CTA.

What happens later is a flight of :mod:`tidegate.simulate.engines`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from tidegate.ir import tir
from tidegate.ir.layout import LANES
from tidegate.simulate.access import CELL_TYPES, first_thread
from tidegate.simulate.clocks import PLAIN, Clocks
from tidegate.simulate.engines import Arrival, Groups, Landing, Product, Store
from tidegate.simulate.memory import Engine
from tidegate.simulate.report import Reports
from tidegate.simulate.trace import Step

if TYPE_CHECKING:
    from tidegate.simulate.machine import Cta


class CopyGroups:
    """The cp.async groups of every thread."""

    def __init__(self, clocks: Clocks) -> None:
        self._clocks = clocks
        self._commits = np.zeros((clocks.threads, 8), np.int32)  # time of each commit
        self._open = np.zeros(clocks.threads, np.int32)  # groups committed so far
        self._issued = np.zeros(clocks.threads, np.int32)  # time of the latest copy
        self._steps: dict[int, Step] = {}  # the latest copy of each warp

    def issue(self, step: Step, threads: np.ndarray) -> None:
        self._issued[threads] = self._clocks.now
        self._steps[int(threads[0]) // LANES] = step

    def commit(self, threads: np.ndarray) -> None:
        if self._open[threads].max() == self._commits.shape[1]:
            self._commits = np.concatenate([self._commits, np.zeros_like(self._commits)], axis=1)
        self._commits[threads, self._open[threads]] = self._clocks.now
        self._open[threads] += 1

    def wait(self, threads: np.ndarray, n: int) -> None:
        newest = self._open[threads] - 1 - n
        threads, newest = threads[newest >= 0], newest[newest >= 0]
        self._clocks.learn_engine(threads, self._clocks.copies(threads), self._commits[threads, newest])

    def end(self, reports: Reports) -> None:
        """Reports copies that no wait has covered."""
        everyone = np.arange(self._clocks.threads)
        known = self._clocks.known[PLAIN].max(axis=0)[self._clocks.copies(everyone)]
        for thread in np.flatnonzero(known < self._issued):
            step = self._steps[int(thread) // LANES]
            reports.add("outstanding", step.stmt, thread=int(thread), detail="no cp_wait covers it")


class Accumulators:
    """Per warp: registers that a wgmma works on, with their true contents, and those written since the last fence."""

    def __init__(self, warps: int) -> None:
        self.contents: dict[tuple[str, int], np.ndarray] = {}
        self._touched: set[tuple[str, int]] = set()
        self._fenced = [False] * warps

    def busy(self, name: str, warp: int) -> bool:
        return (name, warp) in self.contents

    def touch(self, name: str, warp: int) -> None:
        self._touched.add((name, warp))

    def fence(self, warp: int) -> None:
        self._fenced[warp] = True
        self._touched = {t for t in self._touched if t[1] != warp}

    def fenced(self, name: str, warp: int) -> bool:
        return self._fenced[warp] and (name, warp) not in self._touched


# ---------------------------------------------------------------------------------------------- mbarriers


def barrier_init(cta: Cta, step: Step, stmt: tir.BarrierInit, threads: np.ndarray) -> None:
    if step.elected in threads:
        _take_bytes(cta, step, stmt.barrier, live=True)
        cta.barriers.init(step, stmt.barrier, step.elected)


def barrier_invalidate(cta: Cta, step: Step, stmt: tir.BarrierInvalidate, threads: np.ndarray) -> None:
    if step.elected in threads:
        cta.barriers.invalidate(step, stmt.barrier, step.elected)
        _take_bytes(cta, step, stmt.barrier, live=False)


def fence_barrier_init(cta: Cta, step: Step, stmt: tir.FenceBarrierInit, threads: np.ndarray) -> None:
    if step.elected in threads:
        cta.barriers.fence_init(step.elected)


def _take_bytes(cta: Cta, step: Step, name: str, *, live: bool) -> None:
    """Counts as a write of the barrier's bytes, where a buffer shares them, by the elected thread."""
    barrier = next(b for b in cta.program.kernel.barriers if b.name == name)
    low, high = barrier.offset, barrier.offset + 8 * barrier.stages
    if any(b.offset < high and low < b.end for b in cta.program.kernel.buffers):
        cells = np.arange(low // cta.memory.cell, high // cta.memory.cell)[None]
        poison = np.full(cells.shape, cta.memory.poison, CELL_TYPES[cta.memory.cell])
        cta.memory.guard(cells, live=False)
        cta.memory.write(step, cells, np.array([step.elected]), poison, copy=False, replicated=False)
        cta.memory.guard(cells, live)


def arrive(cta: Cta, step: Step, stmt: tir.BarrierArrive, threads: np.ndarray) -> None:
    if stmt.per == "warp":
        threads = threads[threads % LANES == 0]
    elif stmt.per == "role":
        threads = threads[threads == step.elected]
    slot = cta.barriers.of(step, stmt.barrier)
    if len(threads) and cta.barriers.usable(step, slot, threads):
        cta.barriers.arrive(step, slot, threads, cta.clocks.released)


def expect(cta: Cta, step: Step, stmt: tir.BarrierExpect, threads: np.ndarray) -> None:
    one = threads[threads == step.elected]
    slot = cta.barriers.of(step, stmt.barrier)
    if len(one) and cta.barriers.usable(step, slot, one):
        cta.barriers.arrive(step, slot, one, cta.clocks.released, stmt.bytes)


def cp_arrive(cta: Cta, step: Step, stmt: tir.CpArrive, threads: np.ndarray) -> None:
    slot = cta.barriers.of(step, stmt.barrier)
    if cta.barriers.usable(step, slot, threads):
        cta.engines.launch(Arrival(step, slot, threads, cta.clocks.now))


# ---------------------------------------------------------------------------------------------- tensor copies


def tma_load(cta: Cta, step: Step, stmt: tir.TmaLoad, threads: np.ndarray) -> None:
    one = threads[threads == step.elected]
    if not len(one):
        return
    access = cta.program.shared(step)
    cells = access.cells(one, step.slot).ravel()
    values = cta.tensors.load(step, cta.program.window(step), one).ravel()
    slot = cta.barriers.of(step, stmt.barrier)
    counts = cta.barriers.usable(step, slot, one, engine=True)
    size = len(cells) * cta.memory.cell
    if counts:
        cta.barriers.issue(step, slot, size, step.elected)
    engine = Engine(step.elected, cta.clocks.sight(one, engine=True))
    cta.memory.launch(step, cells, values, cta.clocks.tensor(slot.number), engine)
    cta.engines.launch(Landing(step, slot, cells, values, size, counts))


def tma_store(cta: Cta, step: Step, stmt: tir.TmaStore, threads: np.ndarray) -> None:
    one = threads[threads == step.elected]
    if not len(one):
        return
    cells = cta.program.shared(step).cells(one, step.slot).ravel()
    engine = Engine(step.elected, cta.clocks.sight(one, engine=True), stmt.src, step.slot)
    cta.memory.engine_read(step, cells, cta.clocks.bulk(step.warps.start), engine)
    window = cta.program.window(step)

    def write(values: np.ndarray) -> None:
        cta.tensors.store(step, window, one, values)

    groups = cta.engines.stores.setdefault(step.elected, Groups())
    cta.engines.launch(Store(step, cells, engine, cta.clocks.now, len(groups.times), write))


def bulk_commit(cta: Cta, step: Step, stmt: tir.BulkCommit, threads: np.ndarray) -> None:
    if step.elected in threads:
        cta.engines.stores.setdefault(step.elected, Groups()).times.append(cta.clocks.now)


def bulk_wait(cta: Cta, step: Step, stmt: tir.BulkWait, threads: np.ndarray) -> None:
    if step.elected in threads:
        cta.engines.wait_stores(step.elected, stmt.n)


# ---------------------------------------------------------------------------------------------- wgmma


def wgmma(cta: Cta, step: Step, stmt: tir.Wgmma, threads: np.ndarray) -> None:
    """Each warp of the warpgroup multiplies its own rows, at a moment of its own."""
    base = first_thread(cta.program.layouts[stmt.d], step.warps)
    warp = int(threads[0]) // LANES
    shares = cta.program.wgmma(stmt)
    if not 0 <= warp - base // LANES < len(shares):
        return
    share = shares[warp - base // LANES]
    key, now = (stmt.d, warp), cta.clocks.now
    if not cta.accumulators.fenced(stmt.d, warp):
        cta.reports.add("unfenced register", stmt, thread=int(threads[0]), buffer=stmt.d)
    if key not in cta.accumulators.contents:
        cta.use(stmt.d, stmt, cta.program.holders(stmt.d, step).of(threads))
        cta.accumulators.contents[key] = cta.values_of(stmt.d)[threads].copy()
        cta.cells_of(stmt.d)[threads] = cta.memory.poison
    sight = cta.clocks.sight(threads, engine=True)
    thread = int(threads[0])
    cells, engines = [], []
    for which, slot, index, tile in (("a", stmt.a, step.slot, share.a), ("b", stmt.b, step.other, share.b)):
        access = cta.program.operand(stmt, slot, tile, (which, warp))
        cells.append(access.cells(np.zeros(1, np.intp), index).ravel())
        engines.append(Engine(thread, sight, slot, index))
        cta.memory.engine_read(step, cells[-1], cta.clocks.matrix(warp), engines[-1])
    kind = cta.program.kernel.buffer(stmt.a.buffer).dtype.numpy

    def add(a: np.ndarray, b: np.ndarray) -> None:
        total = share(a.view(kind), b.view(kind), cta.accumulators.contents[key])
        cta.accumulators.contents[key] = total

    group = len(cta.engines.products.setdefault(warp, Groups()).times)
    pair, both = (cells[0], cells[1]), (engines[0], engines[1])
    cta.engines.launch(Product(step, warp, pair, both, now, group, stmt.d, add))


def wgmma_fence(cta: Cta, step: Step, stmt: tir.WgmmaFence, threads: np.ndarray) -> None:
    cta.accumulators.fence(int(threads[0]) // LANES)


def wgmma_commit(cta: Cta, step: Step, stmt: tir.WgmmaCommit, threads: np.ndarray) -> None:
    cta.engines.products.setdefault(int(threads[0]) // LANES, Groups()).times.append(cta.clocks.now)


def wgmma_wait(cta: Cta, step: Step, stmt: tir.WgmmaWait, threads: np.ndarray) -> None:
    warp = int(threads[0]) // LANES
    for name in cta.engines.wait_products(warp, threads, stmt.n):
        cta.values_of(name)[threads] = cta.accumulators.contents.pop((name, warp))


ASYNCHRONOUS: dict[type, Callable[..., None]] = {
    tir.BarrierInit: barrier_init,
    tir.BarrierInvalidate: barrier_invalidate,
    tir.FenceBarrierInit: fence_barrier_init,
    tir.BarrierArrive: arrive,
    tir.BarrierExpect: expect,
    tir.CpArrive: cp_arrive,
    tir.TmaLoad: tma_load,
    tir.TmaStore: tma_store,
    tir.BulkCommit: bulk_commit,
    tir.BulkWait: bulk_wait,
    tir.Wgmma: wgmma,
    tir.WgmmaFence: wgmma_fence,
    tir.WgmmaCommit: wgmma_commit,
    tir.WgmmaWait: wgmma_wait,
}
