"""The abstract machine: one CTA executes TIR statement by statement and every shared access is checked against order.

Time counts executed statements. ``known[a, b]`` is the latest time up to which every thread of warp b knows what the
*other* threads of warp a did; a rendezvous joins these clocks among its participants. Control is uniform and no sync
tells lanes of a warp apart, so this table of warps says exactly what a vector clock per thread would (docs/checking.md
has the argument). A *site* is one shape of access to one slot; per site only its latest execution matters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from tidegate.check.pattern import Meeting, Shape, meeting, slot_shape, uncovered
from tidegate.ir import tir
from tidegate.ir.layout import Layout

At = tuple[tuple[str, int | None], ...]
"""Loop and grid indices at a step; None where a whole range of values is replayed at once."""


@dataclass(frozen=True)
class Site:
    """One shape of access to one slot. ``base`` is the slot's first byte."""

    buffer: str
    slot: int
    base: int
    shape: Shape
    write: bool
    copy: bool


@dataclass(frozen=True, eq=False)
class Log:
    """Executed steps, newest first."""

    stmt: tir.Stmt
    at: At
    time: int
    before: Log | None
    skipped: int = 0


@dataclass(eq=False)
class Fault(Exception):
    """A broken rule. ``earlier`` and ``later`` are sites (``later`` None: the end of the kernel); ``bad[a, b]``: the
    pairs of warps that nothing orders (None: any)."""

    kind: str
    stmt: tir.Stmt | None
    at: At
    earlier: int | None = None
    later: int | None = None
    bad: np.ndarray | None = None
    where: tuple[int, int] | None = None
    detail: str = ""
    state: State | None = field(default=None, repr=False)


class State:
    """Everything that the future depends on, and for witnesses which steps led here."""

    __slots__ = ("alone", "committed", "cursors", "done", "group", "issued", "known", "last", "log", "now")

    def __init__(self, warps: int, alone: np.ndarray, cursors: dict[str, int]) -> None:
        self.now = 0
        self.alone = alone  # per site: no other site writes its bytes, so it does not matter when it was executed
        sites = len(alone)
        self.known = np.zeros((warps, warps), np.int64)
        self.issued = np.zeros(sites, np.int64)  # time of the latest execution, 0: never
        self.done = np.zeros(sites, np.int64)  # time that others must know: of a copy, that of the issuer's wait
        self.group = np.full(sites, -1, np.int64)  # of an incomplete copy: number of its commit group; else -1
        self.committed = 0  # groups closed so far, equal for all threads
        self.cursors = cursors
        self.last: dict[int, Log] = {}  # per site the step that executed it last
        self.log: Log | None = None

    def copy(self) -> State:
        other = State.__new__(State)
        other.now, other.committed, other.log, other.alone = self.now, self.committed, self.log, self.alone
        other.known, other.issued = self.known.copy(), self.issued.copy()
        other.done, other.group = self.done.copy(), self.group.copy()
        other.cursors, other.last = dict(self.cursors), dict(self.last)
        return other

    def key(self) -> bytes:
        """Equal for states with the same future. Times matter by their order alone, groups by their age."""
        pending = self.group >= 0
        # What all know, all will know: such times need not be told apart.
        done = np.where(pending, 0, np.maximum(self.done, self.known.min()))
        issued = np.where(self.alone, np.minimum(self.issued, 1), self.issued)
        times = np.concatenate([np.array([0, 1]), self.known.ravel(), issued, done])
        ranks = np.unique(times, return_inverse=True)[1].astype(np.int32)
        ages = np.where(pending, self.committed - self.group, -1).astype(np.int32)
        return ranks.tobytes() + ages.tobytes() + repr(list(self.cursors.values())).encode()


class Machine:
    """Executes instructions of one kernel on states. Raises :class:`Fault` at the first rule that is broken."""

    def __init__(self, kernel: tir.Kernel) -> None:
        self.kernel = kernel
        self.buffers: dict[str, tir.Buffer] = {b.name: b for b in kernel.buffers}
        self.depths = {c.name: c.depth for c in kernel.cursors}
        self.layouts: dict[str, Layout] = dict(kernel.layouts)
        self.tiles: dict[str, Layout] = {r.name: self.layouts[r.layout] for r in kernel.registers}
        self.sites: list[Site] = []
        self.accesses: dict[tuple[tir.Slot, str, bool, bool, bool], tuple[int, ...]] = {}
        self.rivals: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self.numbers: dict[Site, int] = {}
        for stmt in tir.walk(kernel.body):
            if isinstance(stmt, (tir.CpAsync, tir.LdShared, tir.StShared, tir.LdMatrix)):
                self._declare(stmt)
        self.alone = np.array([self._alone(site) for site in self.sites], bool)

    def start(self) -> State:
        return State(self.kernel.warps, self.alone, dict.fromkeys(self.depths, 0))

    # ------------------------------------------------------------------------------------------ sites

    def _declare(self, stmt: tir.Instruction) -> None:
        key = _access(stmt)
        if key in self.accesses:
            return
        slot, tile, write, copy, whole = key
        layout = self.layouts[tile] if copy else self.tiles[tile]
        buffer = self.buffers[slot.buffer]
        shape = slot_shape(self.kernel, slot, layout, whole)
        count = self.depths[slot.cursor] if slot.cursor is not None else 1
        sites = [Site(buffer.name, s, buffer.offset + s * buffer.stride, shape, write, copy) for s in range(count)]
        self.accesses[key] = tuple(self.numbers.setdefault(site, len(self.numbers)) for site in sites)
        self.sites.extend(site for site in list(self.numbers)[len(self.sites) :])

    def _alone(self, me: Site) -> bool:
        return not me.write or not any(it is not me and it.write and _near(me, it) for it in self.sites)

    def meet(self, first: int, second: int) -> Meeting:
        a, b = self.sites[first], self.sites[second]
        return meeting(a.shape, b.shape, b.base - a.base, self.kernel.warps)

    def _rivals(self, site: int) -> tuple[np.ndarray, np.ndarray]:
        """Sites whose bytes conflict with this one's, and per such site the pairs of warps that must be ordered."""
        if site not in self.rivals:
            me = self.sites[site]
            numbers, crossings = [], []
            for other, it in enumerate(self.sites):
                if _near(me, it) and (me.write or it.write) and (met := self.meet(other, site)).overlap:
                    numbers.append(other)
                    crossings.append(met.crossing)
            w = self.kernel.warps
            self.rivals[site] = (np.array(numbers, int), np.array(crossings, bool).reshape(len(numbers), w, w))
        return self.rivals[site]

    # ------------------------------------------------------------------------------------------ steps

    def step(self, state: State, stmt: tir.Stmt, at: At) -> None:
        """Executes one instruction in place."""
        handler = HANDLERS.get(type(stmt))
        if handler is None:
            return  # registers and global memory only
        state.now += 1
        state.log = Log(stmt, at, state.now, state.log)
        handler(self, state, stmt, at)

    def access(self, state: State, stmt: tir.Stmt, at: At) -> None:
        assert isinstance(stmt, tir.Instruction)
        slot, *_ = key = _access(stmt)
        site = self.accesses[key][state.cursors[slot.cursor] if slot.cursor is not None else 0]
        me = self.sites[site]
        self._ordered(state, stmt, at, site)
        if me.write:
            if (twice := self.meet(site, site).crossing).any():
                detail = "two threads write the same bytes in one statement"
                raise Fault("race", stmt, at, site, site, twice, detail=detail, state=self._execute(state, site))
        else:
            self._written(state, stmt, at, site)
        self._execute(state, site)

    def _execute(self, state: State, site: int) -> State:
        assert state.log is not None
        state.last[site] = state.log
        state.issued[site] = state.done[site] = state.now
        if self.sites[site].copy:
            state.group[site] = state.committed
        return state

    def _ordered(self, state: State, stmt: tir.Stmt, at: At, site: int) -> None:
        numbers, crossings = self._rivals(site)
        pending = state.group[numbers] >= 0
        if pending.any():
            earlier = int(numbers[np.argmax(pending)])
            raise Fault("incomplete copy", stmt, at, earlier, site, state=state)
        unordered = crossings & (state.done[numbers][:, None, None] > state.known)
        if unordered.any():
            late = np.flatnonzero(unordered.any(axis=(1, 2)))
            which = int(late[np.argmax(state.issued[numbers[late]])])
            raise Fault("race", stmt, at, int(numbers[which]), site, unordered[which], state=state)

    def _written(self, state: State, stmt: tir.Stmt, at: At, site: int) -> None:
        """Every byte was written, and last through the buffer that is read."""
        me = self.sites[site]
        numbers, _ = self._rivals(site)
        writes = [int(n) for n in numbers[np.argsort(-state.issued[numbers])] if state.issued[n]]
        if writes and self.sites[writes[0]].buffer == me.buffer and self.meet(writes[0], site).covers:
            return
        found = uncovered(
            me.shape,
            tuple((s.shape, s.base - me.base, s.buffer == me.buffer) for s in (self.sites[n] for n in writes)),
            self.kernel.warps,
        )
        if found is not None:
            low, high, owner = found
            where = (me.base + low, me.base + high)
            kind = "overwritten" if owner >= 0 else "uninitialised"
            raise Fault(kind, stmt, at, writes[owner] if owner >= 0 else None, site, where=where, state=state)

    def commit(self, state: State, stmt: tir.Stmt, at: At) -> None:
        state.committed += 1

    def wait(self, state: State, stmt: tir.Stmt, at: At) -> None:
        assert isinstance(stmt, tir.CpWait)
        complete = (state.group >= 0) & (state.group < state.committed - stmt.n)
        state.done[complete] = state.now
        state.group[complete] = -1

    def sync_warp(self, state: State, stmt: tir.Stmt, at: At) -> None:
        np.fill_diagonal(state.known, state.now)

    def sync_block(self, state: State, stmt: tir.Stmt, at: At) -> None:
        state.known[:] = state.now

    def bar_sync(self, state: State, stmt: tir.Stmt, at: At) -> None:
        assert isinstance(stmt, tir.BarSync)
        inside = list(stmt.warps)
        state.known[:, inside] = state.known[:, inside].max(axis=1, keepdims=True)
        state.known[np.ix_(inside, inside)] = state.now

    def advance(self, state: State, stmt: tir.Stmt, at: At) -> None:
        assert isinstance(stmt, tir.Advance)
        state.cursors[stmt.cursor] = (state.cursors[stmt.cursor] + 1) % self.depths[stmt.cursor]

    def finish(self, state: State) -> None:
        """No copy may be outstanding when the CTA exits."""
        pending = np.flatnonzero(state.group >= 0)
        if len(pending):
            raise Fault("outstanding copy", None, (), int(pending[0]), None, state=state)


def _near(a: Site, b: Site) -> bool:
    """Whether two slots share bytes."""
    return b.base < a.base + a.shape.shared.bytes and a.base < b.base + b.shape.shared.bytes


def _access(stmt: tir.Instruction) -> tuple[tir.Slot, str, bool, bool, bool]:
    """Slot, register or layout, is it a write, is it a copy, do whole warps touch it."""
    match stmt:
        case tir.CpAsync():
            return stmt.dst, stmt.layout, True, True, False
        case tir.StShared():
            return stmt.dst, stmt.src, True, False, False
        case tir.LdShared() | tir.LdMatrix():
            return stmt.src, stmt.dst, False, False, isinstance(stmt, tir.LdMatrix)
    raise AssertionError(f"{type(stmt).__name__} touches no shared memory that is modelled")


Handler = Callable[[Machine, State, tir.Stmt, At], None]

HANDLERS: dict[type[tir.Stmt], Handler] = {
    tir.CpAsync: Machine.access,
    tir.StShared: Machine.access,
    tir.LdShared: Machine.access,
    tir.LdMatrix: Machine.access,
    tir.CpCommit: Machine.commit,
    tir.CpWait: Machine.wait,
    tir.SyncWarp: Machine.sync_warp,
    tir.SyncBlock: Machine.sync_block,
    tir.BarSync: Machine.bar_sync,
    tir.Advance: Machine.advance,
}

WITHOUT_ORDER: tuple[type[tir.Stmt], ...] = (
    tir.LdGlobal,
    tir.StGlobal,
    tir.Mma,
    tir.Fill,
    tir.Map,
    tir.Cast,
    tir.Move,
)
"""Executed, and of no effect on shared memory."""

MODELLED: tuple[type[tir.Stmt], ...] = (tir.For, tir.If, *HANDLERS, *WITHOUT_ORDER)


def steps(log: Log | None) -> Iterator[Log]:
    """The steps of a log, oldest first."""
    out = []
    while log is not None:
        out.append(log)
        log = log.before
    return reversed(out)
