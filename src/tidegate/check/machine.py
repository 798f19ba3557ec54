"""The abstract machine: one CTA executes TIR statement by statement, and every shared access is checked against order.

A group of warps executes a statement together. A step either happens, changes the state in place and returns True, or
has to wait for other groups and returns False. It raises :class:`Fault` at the first rule that is broken. Clocks and
their columns are those of :mod:`tidegate.check.state`; barriers are in :mod:`tidegate.check.phases`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import takewhile

import numpy as np

from tidegate.check import phases
from tidegate.check.automaton import Automaton
from tidegate.check.canonical import Canonical
from tidegate.check.knowledge import Forms
from tidegate.check.pattern import uncovered
from tidegate.check.sites import BULK, COPY, WGMMA, Group, Key, Rivals, Sites, Statements, accesses, everyone
from tidegate.check.state import CAUSE, DATA, PROXY, At, Fault, Frame, Log, State
from tidegate.ir import tir
from tidegate.ir.text import print_stmt

WARPGROUP = 4


class Machine:
    """Executes instructions of one kernel on states. ``trust`` names the rules about fences that do not apply (see
    :func:`tidegate.check.check`); ``exempted`` collects the pairs that broke one of these. ``pairs``: statements on
    global memory that have to be ordered as well. ``wholes``: buffers that conflict as wholes (see :class:`Sites`)."""

    def __init__(
        self,
        kernel: tir.Kernel,
        trust: frozenset[str] = frozenset(),
        pairs: Sequence[Statements] = (),
        wholes: frozenset[str] = frozenset(),
    ) -> None:
        self.kernel = kernel
        self.everyone = everyone(kernel)
        self.catalogue = Sites(kernel, trust, pairs, wholes)
        self.sites = self.catalogue.items
        self.buffers = self.catalogue.buffers
        self.depths = self.catalogue.depths
        body = tir.walk(kernel.body)
        self.frame = Frame(
            kernel.warps,
            tuple((b.name, s) for b in kernel.barriers for s in range(b.stages)),
            tuple(sorted({s.barrier for s in body if isinstance(s, (tir.BarSync, tir.BarArrive))})),
            kernel.barriers,
            tuple(dict.fromkeys(s.d for s in body if isinstance(s, tir.Wgmma))),
        )
        self.first_slot = {b: n for n, (b, s) in enumerate(self.frame.slots) if s == 0}
        self.barriers = {b.name: b for b in kernel.barriers}
        self.totals = {s.barrier: 32 * len(s.warps) for s in body if isinstance(s, tir.BarSync)}
        self.totals |= {s.barrier: s.count for s in body if isinstance(s, tir.BarArrive)}
        self.canonical = Canonical(kernel, self.frame, self.catalogue)
        self.registers = {r: n for n, r in enumerate(self.frame.tracked)}
        self.exempted: dict[str, None] = {}
        self._keys: dict[tuple[int, int], list[Key]] = {}
        self.automaton = Automaton(self)
        self.forms = Forms()

    def start(self) -> State:
        state = State(self.frame, self.catalogue)
        state.bar_left[:] = [self.totals[n] for n in self.frame.names]
        return state

    def key(self, state: State) -> bytes:
        return self.canonical.key(state)

    def sees(self, stmt: tir.Stmt) -> bool:
        """Whether a statement does more than move registers, and global memory that needs no order: which the machine
        does not model."""
        handler = HANDLERS.get(type(stmt))
        idle = handler is None or (handler is Machine.on_tensor and id(stmt) not in self.catalogue.tensors)
        return bool(self.registers) or not idle

    def step(self, state: State, stmt: tir.Stmt, at: At, group: Group | None = None) -> bool:
        """Executes one instruction in place; False when it has to wait."""
        if not self.sees(stmt):
            return True
        handler = HANDLERS.get(type(stmt))
        group = group or self.everyone
        before = state.log
        state.now += 1
        state.log = Log(stmt, at, state.now, before, group=group.name)
        if self.registers:
            self._registers(state, stmt, at, group)
        if handler is not None and not handler(self, state, stmt, at, group):
            state.now -= 1
            state.log = before
            return False
        return True

    # ------------------------------------------------------------------------------------------ accesses

    def access(self, state: State, stmt: tir.Stmt, at: At, group: Group) -> bool:
        """Every site of the statement is checked, then executed."""
        found = self._keys.get((id(stmt), group.first))
        if found is None:
            found = self._keys[id(stmt), group.first] = accesses(stmt, group)
        for key in found:
            slot = key[0]
            turn = state.cursors[slot.cursor] % self.depths[slot.cursor] if slot.cursor is not None else 0
            self.touch(state, stmt, at, group, self.catalogue.of[key][turn])
        return self.on_tensor(state, stmt, at, group)

    def on_tensor(self, state: State, stmt: tir.Stmt, at: At, group: Group) -> bool:
        """An access to global memory, where it has to be ordered."""
        site = self.catalogue.tensors.get(id(stmt))
        if site is not None:
            self.touch(state, stmt, at, group, site)
        return True

    def touch(self, state: State, stmt: tir.Stmt, at: At, group: Group, site: int) -> None:
        me = self.sites[site]
        self._ordered(state, stmt, at, group, site)
        if me.kind in ("write", "copy"):
            if (twice := self.catalogue.meet(site, site).crossing).any():
                detail = "two threads write the same bytes in one statement"
                self._execute(state, site, group)
                raise Fault("race", stmt, at, site, site, twice, detail=detail, state=state, group=group)
        elif not me.write and not me.on_tensor:
            self._written(state, stmt, at, group, site)
        self._execute(state, site, group)

    def _execute(self, state: State, site: int, group: Group) -> None:
        assert state.log is not None
        state.last[site] = state.log
        state.issued[site] = state.done[site] = state.now
        state.via[site] = state.landing[site] = -1
        me = self.sites[site]
        if me.family >= 0:
            warps = group.warps if me.kind != "store" else slice(group.first, group.first + 1)
            state.group[site] = -1
            state.group[site, warps] = state.counts[me.family, warps]
            state.pending[site] = True

    def _ordered(self, state: State, stmt: tir.Stmt, at: At, group: Group, site: int) -> None:
        rivals = self.catalogue.rivals(site)
        numbers = rivals.numbers
        pending = state.pending[numbers]
        if pending.any():
            kind = self.sites[int(numbers[np.argmax(pending)])].kind
            name = {"operand": "incomplete wgmma", "store": "incomplete store"}.get(kind, "incomplete copy")
            earlier = int(numbers[np.argmax(pending)])
            raise Fault(name, stmt, at, earlier, site, state=state, group=group)
        self._alive(state, stmt, at, group, site, numbers)
        bad = self._behind(state, rivals, rivals.crossing, DATA)
        if bad.any():
            self._race("race", state, stmt, at, group, site, rivals, bad)
        if not rivals.generic.any():
            return
        bad = self._behind(state, rivals, rivals.together & rivals.generic[:, None, None], PROXY)
        if (bad & rivals.trusted[:, None, None]).any():
            for k in np.flatnonzero((bad & rivals.trusted[:, None, None]).any(axis=(1, 2))):
                self.exempted[f"{print_stmt(state.last[int(numbers[k])].stmt)}  before  {print_stmt(stmt)}"] = None
            bad &= ~rivals.trusted[:, None, None]
        if bad.any():
            self._race("missing fence", state, stmt, at, group, site, rivals, bad)

    def _behind(self, state: State, rivals: Rivals, pairs: np.ndarray, plane: int) -> np.ndarray:
        """Per rival the pairs of classes of which the first does not know, in a plane, what the second did."""
        numbers = rivals.numbers
        done, via = state.done[numbers], state.via[numbers]
        clock = state.clock[plane]
        bad: np.ndarray = pairs & (done[:, None, None] > clock[:, : self.frame.classes])
        for k in np.flatnonzero(via >= 0):
            reached = rivals.together[k] if plane == DATA else pairs[k]
            bad[k] = reached & (done[k] > clock[:, via[k]])[:, None]
        return bad

    def _race(
        self, kind: str, state: State, stmt: tir.Stmt, at: At, group: Group, site: int, rivals: Rivals, bad: np.ndarray
    ) -> None:
        late = np.flatnonzero(bad.any(axis=(1, 2)))
        which = int(late[np.argmax(state.issued[rivals.numbers[late]])])
        earlier = int(rivals.numbers[which])
        if kind == "race" and state.via[earlier] >= 0:
            kind = "incomplete copy"  # it may land later than in this replay: nobody here has waited for it
        raise Fault(kind, stmt, at, earlier, site, bad[which].T, state=state, group=group)

    def _alive(self, state: State, stmt: tir.Stmt, at: At, group: Group, site: int, numbers: np.ndarray) -> None:
        """No data where an mbarrier is alive."""
        if self.sites[site].kind == "barrier":
            return
        for n in numbers:
            it = self.sites[int(n)]
            if it.kind == "barrier" and state.completed[self.first_slot[it.buffer]] >= 0:
                detail = f"the bytes are those of the mbarrier {it.buffer}, which is in use"
                raise Fault("barrier bytes", stmt, at, int(n), site, state=state, group=group, detail=detail)

    def _written(self, state: State, stmt: tir.Stmt, at: At, group: Group, site: int) -> None:
        """Every byte was written, and last through the buffer that is read."""
        me = self.sites[site]
        numbers = self.catalogue.rivals(site).numbers
        writes = [int(n) for n in numbers[np.argsort(-state.issued[numbers])] if state.issued[n]]
        if me.buffer in self.catalogue.wholes:
            writes = list(takewhile(lambda n: self.sites[n].buffer == me.buffer, writes))
        if writes and self.sites[writes[0]].buffer == me.buffer and self.catalogue.meet(writes[0], site).covers:
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
            earlier = writes[owner] if owner >= 0 else None
            raise Fault(kind, stmt, at, earlier, site, where=where, state=state, group=group)

    # ------------------------------------------------------------------------------------------ groups of copies

    def cp_commit(self, state: State, stmt: tir.Stmt, at: At, group: Group) -> bool:
        state.counts[COPY, group.warps] += 1
        return True

    def cp_wait(self, state: State, stmt: tir.Stmt, at: At, group: Group) -> bool:
        assert isinstance(stmt, tir.CpWait)
        self._complete(state, COPY, group.warps, stmt.n)
        return True

    def bulk_commit(self, state: State, stmt: tir.Stmt, at: At, group: Group) -> bool:
        state.counts[BULK, group.first] += 1
        return True

    def bulk_wait(self, state: State, stmt: tir.Stmt, at: At, group: Group) -> bool:
        """Reads are complete either way; what `done` adds concerns global memory alone."""
        assert isinstance(stmt, tir.BulkWait)
        self._complete(state, BULK, slice(group.first, group.first + 1), stmt.n)
        return True

    def _complete(self, state: State, family: int, warps: slice, newest: int) -> None:
        mine = state.group[:, warps]
        over = (mine >= 0) & (mine < state.counts[family, warps] - newest) & (self.catalogue.family == family)[:, None]
        if over.any():
            mine[over] = -1
            complete = over.any(axis=1) & (state.group.max(axis=1) < 0)
            state.done[complete] = state.now
            state.pending[complete] = False
            state.landing[complete] = -1

    # ------------------------------------------------------------------------------------------ wgmma

    def wgmma(self, state: State, stmt: tir.Stmt, at: At, group: Group) -> bool:
        assert isinstance(stmt, tir.Wgmma)
        number = self.registers[stmt.d]
        if state.dirty[number, group.warps].any():
            detail = f"{stmt.d} was written by other instructions, and no wgmma_fence stands between them and the wgmma"
            raise Fault(
                "missing fence", stmt, at, state=state, group=group, detail=detail,
                remedy="wgmma_fence by the warpgroup before the first wgmma", since=_writer(state, stmt.d, group),
            )  # fmt: skip
        self.access(state, stmt, at, group)
        state.flight[number, group.warps] = state.counts[WGMMA, group.warps]
        return True

    def wgmma_fence(self, state: State, stmt: tir.Stmt, at: At, group: Group) -> bool:
        state.dirty[:, group.warps] = False
        return True

    def wgmma_commit(self, state: State, stmt: tir.Stmt, at: At, group: Group) -> bool:
        state.counts[WGMMA, group.warps] += 1
        return True

    def wgmma_wait(self, state: State, stmt: tir.Stmt, at: At, group: Group) -> bool:
        assert isinstance(stmt, tir.WgmmaWait)
        self._complete(state, WGMMA, group.warps, stmt.n)
        flight = state.flight[:, group.warps]
        flight[flight < state.counts[WGMMA, group.warps] - stmt.n] = -1
        return True

    def _registers(self, state: State, stmt: tir.Stmt, at: At, group: Group) -> None:
        """Registers of a wgmma in flight are out of bounds for others; other writes need a fence before the next."""
        if isinstance(stmt, (tir.Wgmma, tir.Sync, tir.For, tir.If)):
            return
        for how in ("reads", "writes"):
            for name in tir.registers(stmt, how):
                number = self.registers.get(name)
                if number is None:
                    continue
                if state.flight[number, group.warps].max() >= 0:
                    since = _writer(state, name, group, tir.Wgmma)
                    done = "read" if how == "reads" else "written"
                    raise Fault(
                        "incomplete wgmma", stmt, at, state=state, group=group, since=since,
                        detail=f"{name} is {done} while a wgmma that writes it may be in flight",
                        remedy="wgmma_commit and a wgmma_wait that covers the group, by the warpgroup, before this",
                    )  # fmt: skip
                if how == "writes":
                    state.dirty[number, group.warps] = True

    # ------------------------------------------------------------------------------------------ rendezvous

    def sync_warp(self, state: State, stmt: tir.Stmt, at: At, group: Group) -> bool:
        state.join_lanes(group.classes)
        return True

    def sync_block(self, state: State, stmt: tir.Stmt, at: At, group: Group) -> bool:
        state.join(group.classes)
        return True

    def fence_async(self, state: State, stmt: tir.Stmt, at: At, group: Group) -> bool:
        assert isinstance(stmt, tir.FenceAsync)
        if stmt.space == "shared":
            classes = group.classes
            state.fence[classes] = state.now
            np.maximum(state.clock[PROXY, classes], state.clock[DATA, classes], out=state.clock[PROXY, classes])
            leaders = np.arange(classes.start, classes.stop, 2)
            state.clock[PROXY, leaders, leaders] = state.now  # a class of one thread
        return True

    def advance(self, state: State, stmt: tir.Stmt, at: At, group: Group) -> bool:
        assert isinstance(stmt, tir.Advance)
        state.cursors[stmt.cursor] = (state.cursors[stmt.cursor] + 1) % (2 * self.depths[stmt.cursor])
        return True

    def nothing(self, state: State, stmt: tir.Stmt, at: At, group: Group) -> bool:
        return True

    def finish(self, state: State) -> None:
        """Nothing may be outstanding when the CTA exits."""
        pending = np.flatnonzero(state.pending)
        if len(pending):
            raise Fault("outstanding copy", None, (), int(pending[0]), None, state=state)
        for site in np.flatnonzero(state.via >= 0):
            if state.done[site] > state.clock[DATA, :, state.via[site]].max():
                raise Fault("outstanding copy", None, (), int(site), None, state=state)
        if (state.flight >= 0).any():
            name = self.frame.tracked[int(np.argwhere(state.flight >= 0)[0][0])]
            detail = f"a wgmma that writes {name} may still be in flight when the kernel ends"
            remedy = "wgmma_commit and wgmma_wait 0 by the warpgroup before the end"
            raise Fault("outstanding copy", None, (), state=state, detail=detail, remedy=remedy)


def _writer(state: State, register: str, group: Group, kind: type[tir.Stmt] = tir.Instruction) -> Log | None:
    """The last step of a group that wrote a register."""
    log = state.log.before if state.log is not None else None
    while log is not None:
        if log.group == group.name and isinstance(log.stmt, kind) and register in tir.registers(log.stmt, "writes"):
            return log
        log = log.before
    return None


Handler = Callable[[Machine, State, tir.Stmt, At, Group], bool]

HANDLERS: dict[type[tir.Stmt], Handler] = {
    tir.LdGlobal: Machine.on_tensor,
    tir.StGlobal: Machine.on_tensor,
    tir.AtomicAdd: Machine.on_tensor,
    tir.CpAsync: Machine.access,
    tir.StShared: Machine.access,
    tir.LdShared: Machine.access,
    tir.LdMatrix: Machine.access,
    tir.StMatrix: Machine.access,
    tir.TmaStore: Machine.access,
    tir.TmaLoad: phases.tma_load,
    tir.Wgmma: Machine.wgmma,
    tir.CpCommit: Machine.cp_commit,
    tir.CpWait: Machine.cp_wait,
    tir.BulkCommit: Machine.bulk_commit,
    tir.BulkWait: Machine.bulk_wait,
    tir.WgmmaFence: Machine.wgmma_fence,
    tir.WgmmaCommit: Machine.wgmma_commit,
    tir.WgmmaWait: Machine.wgmma_wait,
    tir.SyncWarp: Machine.sync_warp,
    tir.SyncBlock: Machine.sync_block,
    tir.BarSync: phases.bar_sync,
    tir.BarArrive: phases.bar_arrive,
    tir.ClusterArrive: phases.cluster_arrive,
    tir.ClusterWait: phases.cluster_wait,
    tir.FenceAsync: Machine.fence_async,
    tir.FenceBarrierInit: phases.fence_init,
    tir.BarrierInit: phases.init,
    tir.BarrierInvalidate: phases.invalidate,
    tir.BarrierArrive: phases.arrive,
    tir.BarrierExpect: phases.expect,
    tir.BarrierWait: phases.wait,
    tir.CpArrive: phases.cp_arrive,
    tir.SetMaxRegisters: Machine.nothing,
    tir.Advance: Machine.advance,
}

WITHOUT_ORDER: tuple[type[tir.Stmt], ...] = (
    tir.LdScalar,
    tir.Mma,
    tir.Fill,
    tir.Splat,
    tir.Map,
    tir.Positions,
    tir.Cast,
    tir.Move,
    tir.Slice,
    tir.Spread,
    tir.Reduce,
)
"""Executed, and of no effect on memory."""

MODELLED: tuple[type[tir.Stmt], ...] = (tir.For, tir.If, tir.InRole, *HANDLERS, *WITHOUT_ORDER)
"""Everything else is an unknown effect, and stops the check."""

__all__ = ["CAUSE", "MODELLED", "At", "Fault", "Log", "Machine", "State"]
