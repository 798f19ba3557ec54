"""Barriers with phases: mbarriers, named barriers with arrivals that do not block, the barrier of the cluster.

What makes one parity bit enough is order, and is proved as such: whoever arrives for a phase has observed the one
before, and a phase completes only after every wait for the one before it (see docs/checking.md, "Phases"). So the
phase that an arrival or a wait means does not depend on timing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tidegate.check.sites import COPY, Group
from tidegate.check.state import CAUSE, DATA, PROXY, At, Fault, State
from tidegate.ir import tir

if TYPE_CHECKING:
    from tidegate.check.machine import Machine


def slot_of(m: Machine, state: State, stmt: tir.Stmt) -> int:
    """The number of the mbarrier that a statement works on."""
    barrier, cursor = stmt.barrier, stmt.cursor  # type: ignore[attr-defined]
    return m.first_slot[barrier] + state.cursors[cursor] % m.depths[cursor]


def title(m: Machine, slot: int) -> str:
    name, stage = m.frame.slots[slot]
    return f"{name}[{stage}]" if m.barriers[tir.Name(name)].stages > 1 else name


# ---------------------------------------------------------------------------------------------- life


def init(m: Machine, state: State, stmt: tir.Stmt, at: At, group: Group) -> bool:
    assert isinstance(stmt, tir.BarrierInit)
    barrier = m.barriers[stmt.barrier]
    slots = slice(m.first_slot[stmt.barrier], m.first_slot[stmt.barrier] + barrier.stages)
    if (state.completed[slots] >= 0).any():
        detail = f"{stmt.barrier} is initialised while it is in use"
        remedy = "barrier_invalidate and a rendezvous before"
        raise Fault("barrier life", stmt, at, state=state, group=group, detail=detail, remedy=remedy)
    _bytes(m, state, stmt, at, group)
    state.phase[slots], state.left[slots], state.balance[slots] = 0, barrier.count, 0
    state.completed[slots], state.previous[slots] = state.now, 0
    state.acc[slots] = state.rel[slots] = 0
    for slot in range(slots.start, slots.stop):
        state.clock[:, group.leader, m.frame.slot_column(slot)] = state.now
    return True


def invalidate(m: Machine, state: State, stmt: tir.Stmt, at: At, group: Group) -> bool:
    assert isinstance(stmt, tir.BarrierInvalidate)
    barrier = m.barriers[stmt.barrier]
    for slot in range(m.first_slot[stmt.barrier], m.first_slot[stmt.barrier] + barrier.stages):
        _alive(m, state, stmt, at, group, slot, slice(group.leader, group.leader + 1))
        if state.left[slot] != barrier.count or state.balance[slot].any():
            _life(m, state, stmt, at, group, f"a phase of {title(m, slot)} is pending")
        if (state.waits[slot] > state.clock[CAUSE, group.leader, : m.frame.classes])[_others(m, group)].any():
            _life(m, state, stmt, at, group, f"a wait for {title(m, slot)} may still come")
        state.completed[slot] = -1
    _bytes(m, state, stmt, at, group)
    return True


def _others(m: Machine, group: Group) -> np.ndarray:
    mask: np.ndarray = np.arange(m.frame.classes) != group.leader
    return mask


def _life(m: Machine, state: State, stmt: tir.Stmt, at: At, group: Group, why: str) -> None:
    remedy = "a rendezvous after the last use, before barrier_invalidate"
    raise Fault("barrier life", stmt, at, state=state, group=group, detail=why, remedy=remedy)


def _bytes(m: Machine, state: State, stmt: tir.Stmt, at: At, group: Group) -> None:
    """The bytes change hands between barrier and data."""
    for number, site in enumerate(m.sites):
        if site.kind == "barrier" and site.buffer == stmt.barrier:  # type: ignore[attr-defined]
            m.touch(state, stmt, at, group, number)


def fence_init(m: Machine, state: State, stmt: tir.Stmt, at: At, group: Group) -> bool:
    for number, barrier in enumerate(m.kernel.barriers):
        slot = m.first_slot[barrier.name]
        if 0 <= state.completed[slot] <= state.clock[CAUSE, group.leader, m.frame.slot_column(slot)]:
            state.clock[:, group.leader, m.frame.fence_column(number)] = state.now
    return True


def _alive(m: Machine, state: State, stmt: tir.Stmt, at: At, group: Group, slot: int, classes: slice) -> np.ndarray:
    """Which of the classes know of the phases that are complete; all know at least of the initialisation."""
    column = state.clock[CAUSE, classes, m.frame.slot_column(slot)]
    if state.completed[slot] < 0:
        detail = f"{title(m, slot)} is not initialised"
        remedy = "barrier_init and a rendezvous before"
        raise Fault("barrier life", stmt, at, state=state, group=group, detail=detail, remedy=remedy)
    born = state.completed[slot] if state.phase[slot] == 0 else state.previous[slot] if state.phase[slot] == 1 else 0
    if (column < born).any():
        detail = f"nothing orders the initialisation of {title(m, slot)} before this use"
        remedy = "a rendezvous between barrier_init and the first use"
        raise Fault("barrier life", stmt, at, state=state, group=group, detail=detail, remedy=remedy)
    known: np.ndarray = column >= state.completed[slot]
    return known


# ---------------------------------------------------------------------------------------------- arrivals


def arrive(m: Machine, state: State, stmt: tir.Stmt, at: At, group: Group) -> bool:
    assert isinstance(stmt, tir.BarrierArrive)
    slot = slot_of(m, state, stmt)
    if stmt.per == "thread":
        _arrive(m, state, stmt, at, group, slot, 32 * group.count, state.released(group.classes), group.classes)
    elif stmt.per == "warp":
        leaders = np.arange(group.classes.start, group.classes.stop, 2)
        _arrive(m, state, stmt, at, group, slot, group.count, _by_leaders(state, leaders), group.classes, leaders)
    else:
        _elected(m, state, stmt, at, group, slot)
    return True


def _by_leaders(state: State, leaders: np.ndarray) -> np.ndarray:
    vector: np.ndarray = state.clock[:, leaders].max(axis=1)
    vector[DATA, leaders] = vector[CAUSE, leaders] = state.now
    vector[PROXY, leaders] = np.maximum(vector[PROXY, leaders], state.fence[leaders])
    return vector


def _elected(m: Machine, state: State, stmt: tir.Stmt, at: At, group: Group, slot: int) -> None:
    one = slice(group.leader, group.leader + 1)
    _arrive(m, state, stmt, at, group, slot, 1, state.released(one), one)


def expect(m: Machine, state: State, stmt: tir.Stmt, at: At, group: Group) -> bool:
    assert isinstance(stmt, tir.BarrierExpect)
    slot = slot_of(m, state, stmt)
    state.balance[slot, group.first] += stmt.bytes
    _elected(m, state, stmt, at, group, slot)
    return True


def cp_arrive(m: Machine, state: State, stmt: tir.Stmt, at: At, group: Group) -> bool:
    """An arrival that the copies make when they land: it publishes these, and of the threads only the moment."""
    slot = slot_of(m, state, stmt)
    _alive(m, state, stmt, at, group, slot, group.classes)
    mine = state.group[:, group.warps].max(axis=1) >= 0
    state.landing[mine & (m.catalogue.family == COPY) & (state.landing < 0)] = slot
    vector = state.known(group.classes)
    vector[DATA] = vector[PROXY] = 0
    vector[CAUSE, group.classes] = state.now
    _arrive(m, state, stmt, at, group, slot, 32 * group.count, vector, group.classes)
    return True


def _arrive(
    m: Machine,
    state: State,
    stmt: tir.Stmt,
    at: At,
    group: Group,
    slot: int,
    arrivals: int,
    vector: np.ndarray,
    classes: slice,
    who: np.ndarray | None = None,
) -> None:
    known = _alive(m, state, stmt, at, group, slot, classes)
    if who is not None:
        known = known[who - classes.start]
    if not known.all():
        detail = (
            f"this arrival on {title(m, slot)} may count for phase {state.phase[slot] - 1} instead of"
            f" {state.phase[slot]}: not every thread that arrives has observed that the one before is complete"
        )
        remedy = "a wait for the phase before, by the threads that arrive or by one that they rendezvous with"
        raise Fault("phase lead", stmt, at, state=state, group=group, detail=detail, remedy=remedy)
    if arrivals > state.left[slot]:
        count = m.barriers[tir.Name(m.frame.slots[slot][0])].count
        detail = (
            f"{arrivals} threads of {group} arrive on {title(m, slot)}, and phase {state.phase[slot]} expects only"
            f" {state.left[slot]} more (its count is {count})"
        )
        remedy = f"a count of {count - state.left[slot] + arrivals}, or fewer arrivals"
        raise Fault("arrival count", stmt, at, state=state, group=group, detail=detail, remedy=remedy)
    state.left[slot] -= arrivals
    np.maximum(state.acc[slot], vector, out=state.acc[slot])
    _complete(m, state, stmt, at, group, slot)


def _complete(m: Machine, state: State, stmt: tir.Stmt, at: At, group: Group, slot: int) -> None:
    """The phase is over if nothing is pending."""
    if state.left[slot] or state.balance[slot].any():
        return
    early = np.flatnonzero(state.waits[slot] > state.acc[slot, CAUSE, : m.frame.classes])
    if len(early):
        warps = ", ".join(map(str, np.unique(early // 2)))
        since = next((log for (s, _), log in reversed(state.waited.items()) if s == slot), None)
        detail = (
            f"phase {state.phase[slot]} of {title(m, slot)} may complete before warps {warps} have passed their wait"
            f" for phase {state.phase[slot] - 1}: by the parity they would then wait for the phase after"
        )
        remedy = "a rendezvous of all waiting threads between their wait and the arrival, or an arrival of each"
        raise Fault("phase lead", stmt, at, state=state, group=group, detail=detail, remedy=remedy, since=since)
    column = m.frame.slot_column(slot)
    state.acc[slot, DATA, column] = state.acc[slot, CAUSE, column] = state.now  # a landed cp.async is no proxy fence
    state.rel[slot] = state.acc[slot]
    state.acc[slot] = 0
    state.phase[slot] += 1
    state.left[slot] = m.barriers[tir.Name(m.frame.slots[slot][0])].count
    state.previous[slot], state.completed[slot] = state.completed[slot], state.now
    landed = state.landing == slot
    if landed.any():
        state.via[landed], state.done[landed] = column, state.now
        state.group[landed], state.landing[landed] = -1, -1
        state.pending[landed] = False


def tma_load(m: Machine, state: State, stmt: tir.Stmt, at: At, group: Group) -> bool:
    assert isinstance(stmt, tir.TmaLoad)
    slot = slot_of(m, state, stmt)
    one = slice(group.leader, group.leader + 1)
    known = _alive(m, state, stmt, at, group, slot, one)
    number = [b.name for b in m.kernel.barriers].index(stmt.barrier)
    if not state.clock[CAUSE, group.leader, m.frame.fence_column(number)]:
        detail = f"{title(m, slot)} is used by a tensor copy, and its initialisation was not fenced"
        remedy = "fence_barrier_init by the thread that initialises, then a rendezvous"
        raise Fault("missing fence", stmt, at, state=state, group=group, detail=detail, remedy=remedy)
    size = m.buffers[stmt.dst.buffer].layout.bytes
    expected = int(state.balance[slot, group.first])
    if not known.all() or expected < size:
        detail = (
            f"the copy delivers {size} bytes to {title(m, slot)}, and its thread has announced {expected} bytes that"
            f" are still to come in phase {state.phase[slot]}: the phase may complete without this copy"
        )
        remedy = "an expect of all bytes of the phase, by the same thread, before the copies"
        raise Fault("transaction bytes", stmt, at, state=state, group=group, detail=detail, remedy=remedy)
    m.access(state, stmt, at, group)
    site = next(n for n, log in state.last.items() if log is state.log)
    state.landing[site], state.pending[site] = slot, True
    state.balance[slot, group.first] -= size
    _complete(m, state, stmt, at, group, slot)
    return True


# ---------------------------------------------------------------------------------------------- waits


def wait(m: Machine, state: State, stmt: tir.Stmt, at: At, group: Group) -> bool:
    assert isinstance(stmt, tir.BarrierWait)
    slot = slot_of(m, state, stmt)
    known = _alive(m, state, stmt, at, group, slot, group.classes)
    phase = int(state.phase[slot])
    parity = (state.cursors[stmt.cursor] // m.depths[stmt.cursor] + stmt.flip) % 2
    passes = parity != phase % 2
    column = state.clock[CAUSE, group.classes, m.frame.slot_column(slot)]
    if not known.all() and (not passes or (column < state.previous[slot]).any()):
        detail = (
            f"a wait of parity {parity} on {title(m, slot)}: phase {phase - 1} may have completed before some thread"
            f" gets here, or not; the parity does not tell it from phase {phase - 3 if passes else phase - 2}"
        )
        remedy = "at most one phase between arrivals and waits: the arrival for a phase after the waits for the last"
        raise Fault("phase lead", stmt, at, state=state, group=group, detail=detail, remedy=remedy)
    if not passes:
        return False
    place = (slot, group.name)
    assert state.log is not None
    if known.all() and phase and place in state.waited:
        state.stale[place] = state.log
    else:
        state.stale.pop(place, None)
    state.waited[place] = state.log
    state.acquire(group.classes, state.rel[slot])
    state.waits[slot, group.classes] = state.now
    leaders = np.arange(group.classes.start, group.classes.stop, 2)
    # The lanes of a warp leave the loop that polls together.
    state.clock[CAUSE, leaders, leaders + 1] = state.clock[CAUSE, leaders + 1, leaders] = state.now
    return True


# ---------------------------------------------------------------------------------------------- named barriers


def bar_sync(m: Machine, state: State, stmt: tir.Stmt, at: At, group: Group) -> bool:
    assert isinstance(stmt, tir.BarSync)
    name = m.frame.names.index(stmt.barrier)
    first = stmt.warps[0]
    if state.bar_in[name, first] < 0:
        generation = int(state.generation[name])
        _named(m, state, stmt, at, group, name, stmt.warps)
        if state.generation[name] == generation:
            state.bar_in[name, list(stmt.warps)] = generation
            return False
    elif state.bar_in[name, first] == state.generation[name]:
        return False
    state.bar_in[name, list(stmt.warps)] = -1
    classes = [c for w in stmt.warps for c in (2 * w, 2 * w + 1)]
    state.clock[:, classes] = np.maximum(state.clock[:, classes], state.bar_rel[name][:, None])
    return True


def bar_arrive(m: Machine, state: State, stmt: tir.Stmt, at: At, group: Group) -> bool:
    assert isinstance(stmt, tir.BarArrive)
    _named(m, state, stmt, at, group, m.frame.names.index(stmt.barrier), stmt.warps)
    return True


def _named(m: Machine, state: State, stmt: tir.Stmt, at: At, group: Group, name: int, warps: tuple[int, ...]) -> None:
    """Some warps arrive at a named barrier."""
    number, column = m.frame.names[name], m.frame.name_column(name)
    vector = np.zeros_like(state.cluster)
    for warp in warps:
        np.maximum(vector, state.released(slice(2 * warp, 2 * warp + 2)), out=vector)
    classes = [c for w in warps for c in (2 * w, 2 * w + 1)]
    if (state.clock[CAUSE, classes, column] < state.bar_done[name]).any():
        detail = (
            f"barrier {number} is used again by warps that do not know that its last generation is complete: their"
            " arrival may count for that one"
        )
        remedy = "a rendezvous with warps that have passed it, or another barrier"
        raise Fault("barrier reuse", stmt, at, state=state, group=group, detail=detail, remedy=remedy)
    if 32 * len(warps) > state.bar_left[name]:
        total = m.totals[number]
        detail = f"{32 * len(warps)} threads come to barrier {number}, which expects {state.bar_left[name]} of {total}"
        remedy = "a count of arriving and syncing threads together"
        raise Fault("arrival count", stmt, at, state=state, group=group, detail=detail, remedy=remedy)
    state.bar_left[name] -= 32 * len(warps)
    np.maximum(state.bar_acc[name], vector, out=state.bar_acc[name])
    if state.bar_left[name] == 0:
        state.bar_acc[name][:, column] = state.now
        state.bar_rel[name], state.bar_acc[name] = state.bar_acc[name].copy(), 0
        state.bar_left[name] = m.totals[number]
        state.bar_done[name] = state.now
        state.generation[name] += 1


# ---------------------------------------------------------------------------------------------- cluster


def cluster_arrive(m: Machine, state: State, stmt: tir.Stmt, at: At, group: Group) -> bool:
    if state.arrived:
        detail = "the threads arrive twice at the barrier of the cluster without a wait in between"
        raise Fault("arrival count", stmt, at, state=state, group=group, detail=detail, remedy="cluster_wait before")
    state.cluster = state.released(group.classes)
    state.arrived = True
    return True


def cluster_wait(m: Machine, state: State, stmt: tir.Stmt, at: At, group: Group) -> bool:
    if not state.arrived:
        return False
    state.acquire(group.classes, state.cluster)
    state.arrived = False
    return True
