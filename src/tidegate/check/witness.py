"""From a fault of the machine to a finding that a person can act on: threads, bytes, iterations, and the run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tidegate.check.machine import Machine
from tidegate.check.pattern import aligned, other_thread, pattern
from tidegate.check.phases import title
from tidegate.check.sites import groups
from tidegate.check.state import At, Fault, Log, State, steps
from tidegate.check.verdict import Access, Finding, Step
from tidegate.ir import tir
from tidegate.ir.text import print_stmt

ACTIONS = {
    "read": "reads",
    "write": "writes",
    "copy": "copies asynchronously to",
    "load": "has the tensor engine write",
    "store": "has the tensor engine read",
    "operand": "has wgmma read",
    "barrier": "turns into or from a barrier",
}

SHOWN = 28
"""Longest timeline that is shown whole."""


def describe(machine: Machine, fault: Fault) -> tuple[Finding, tuple[Step, ...]]:
    """The finding of a fault and the timeline that leads to it."""
    assert fault.state is not None
    build = {
        "race": _race,
        "missing fence": _unfenced,
        "incomplete copy": _incomplete,
        "incomplete store": _incomplete,
        "incomplete wgmma": _incomplete,
        "outstanding copy": _outstanding,
        "uninitialised": _uninitialised,
        "overwritten": _overwritten,
    }.get(fault.kind, _told)
    build = _told if fault.earlier is None and fault.kind != "uninitialised" else build
    finding = build(machine, fault, fault.state)
    note = _stale_wait(machine, fault.state)
    if note is not None:
        finding = replace(finding, message=f"{finding.message}; {note[1]}", remedy=f"{finding.remedy}; {note[2]}")
        fault.since = fault.since or note[0]
    groups_seen = {access.group for access in (finding.first, finding.second) if access is not None}
    return finding, timeline(fault, fault.state, groups_seen)


def _stale_wait(machine: Machine, state: State) -> tuple[Log, str, str] | None:
    """The last wait that passed on a phase which its group had waited for before, in words, and what it should be."""
    if not state.stale:
        return None
    (slot, group), log = max(state.stale.items(), key=lambda item: item[1].time)
    name, at = title(machine, slot), ", ".join(f"{n} = {v}" for n, v in _at(log.at))
    who = group or "everyone"
    why = (
        f"{print_stmt(log.stmt)}{f' at {at}' if at else ''} has"
        f" passed at once, on a phase of {name} that {who} had waited for before: its cursor does not count every use"
    )
    return log, why, f"a cursor of {who} that counts every use of {name}, over all tiles and loops"


def _told(machine: Machine, fault: Fault, state: State) -> Finding:
    """A fault that carries its own words: of barriers and registers."""
    first = None if fault.since is None else event(machine, fault.since)
    second = None
    if fault.earlier is not None and fault.later is not None:
        first, second = _both(machine, fault, state)
    elif fault.stmt is not None and state.log is not None:
        second = event(machine, Log(fault.stmt, fault.at, 0, None, 0, fault.group.name if fault.group else ""))
    return Finding(fault.kind, fault.detail, first, second, fault.remedy or "other bytes for one of them")


def event(machine: Machine, log: Log) -> Access:
    """A step as one side of a finding, its threads being those of its group that take part."""
    group = groups(machine.kernel)[log.group]
    stmt = log.stmt
    one = isinstance(stmt, tir.Instruction) and stmt.by == tir.Participants.ELECTED
    one = one or (isinstance(stmt, tir.BarrierArrive) and stmt.per == "role")
    threads = (32 * group.first,) if one else (32 * group.first, 32 * (group.first + group.count) - 1)
    barrier = getattr(stmt, "barrier", "")
    at, low = (f"barrier {barrier}" if isinstance(barrier, int) else barrier), 0
    if isinstance(barrier, str) and barrier:
        it = machine.barriers[tir.Name(barrier)]
        return Access(
            "executes", f"mbarrier {at}", threads, it.offset, it.offset + 8 * it.stages - 1, _at(log.at), stmt.line,
            print_stmt(stmt), log.group,
        )  # fmt: skip
    return Access("executes", at, threads, low, low, _at(log.at), stmt.line, print_stmt(stmt), log.group)


def _race(machine: Machine, fault: Fault, state: State) -> Finding:
    first, second = _both(machine, fault, state)
    if fault.detail:
        return Finding("race", fault.detail, first, second, "one writer per byte")
    site = machine.sites[fault.earlier or 0]
    waits = {
        "copy": "after the cp_wait that completes the copy",
        "store": "after the bulk_wait of the thread that issued the store",
        "operand": "after the wgmma_wait of the warpgroup",
    }
    after = waits.get(site.kind, "between the two accesses")
    message = f"nothing orders the two accesses ({_hazard(machine, fault)})"
    return Finding("race", message, first, second, f"a rendezvous of {_who(fault, first, second)}, {after}")


def _who(fault: Fault, first: Access, second: Access) -> str:
    """The threads that have to meet, and how they could."""
    assert fault.bad is not None
    pairs = np.argwhere(fault.bad) // 2
    warps = ", ".join(map(str, np.unique(pairs)))
    if first.group != second.group:
        return f"{first.group or 'all'} and {second.group or 'all'} (an arrival and a wait, or a named barrier)"
    if (pairs[:, 0] == pairs[:, 1]).all():
        return f"the lanes of each of the warps {warps}: sync_warp"
    block = "" if first.group else "sync_block, or "
    return f"the warps {warps}: {block}bar_sync of these"


def _unfenced(machine: Machine, fault: Fault, state: State) -> Finding:
    first, second = _both(machine, fault, state)
    assert fault.earlier is not None
    old, new = machine.sites[fault.earlier], machine.sites[fault.later or 0]
    message = (
        f"the accesses are ordered, but not between the proxies ({_hazard(machine, fault)}: a generic"
        f" {'write' if old.write else 'read'}, then an access through the async proxy)"
    )
    where = "after the wait for the copy and " if old.kind == "copy" else "after the access and "
    remedy = (
        f"fence_async shared by every thread of {first.group or 'the CTA'} that made the first access, {where}before"
        f" the rendezvous; or by {second.group or 'the issuing threads'} after it"
    )
    trusted = {("read", "load"): "war release", ("copy", "operand"): "cp.async operand"}.get((old.kind, new.kind))
    if trusted:
        remedy += f" (trust={{{trusted!r}}} exempts such pairs)"
    return Finding("missing fence", message, first, second, remedy)


def _incomplete(machine: Machine, fault: Fault, state: State) -> Finding:
    first, second = _both(machine, fault, state)
    assert fault.earlier is not None
    site = machine.sites[fault.earlier]
    hazard = _hazard(machine, fault)
    if site.kind == "load" or state.via[fault.earlier] >= 0 or state.landing[fault.earlier] >= 0:
        return _not_landed(machine, fault, state, first, second)
    what, wait = {
        "store": ("the store may still be reading", "bulk_wait"),
        "operand": ("the wgmma may still be reading", "wgmma_wait"),
    }.get(site.kind, ("the copy may still be in flight", "cp_wait"))
    warp = int(np.argmax(state.group[fault.earlier]))
    group, committed = int(state.group[fault.earlier, warp]), int(state.counts[site.family, warp])
    commit = {"cp_wait": "cp_commit", "bulk_wait": "bulk_commit", "wgmma_wait": "wgmma_commit"}[wait]
    if group == committed:
        message = f"{what}: it was not committed ({hazard})"
        remedy = f"{commit} and then {wait}, by the thread that issued it"
    else:
        message = f"{what}: no {wait} covers its group ({hazard})"
        remedy = _better_wait(state, committed - 1 - group, wait, first.group)
    if first.threads != second.threads:
        remedy += ", and a rendezvous with the other thread after it"
    return Finding(fault.kind, message, first, second, remedy)


def _not_landed(machine: Machine, fault: Fault, state: State, first: Access, second: Access) -> Finding:
    """A copy that completes on an mbarrier, and an access that no wait for that phase precedes."""
    assert fault.earlier is not None
    column = int(state.via[fault.earlier])
    slot = column - machine.frame.classes if column >= 0 else int(state.landing[fault.earlier])
    name = title(machine, slot)
    phase = int(state.phase[slot]) - (1 if column >= 0 else 0)
    message = f"nothing makes this wait for phase {phase} of {name}, with which the copy completes"
    message += f" ({_hazard(machine, fault)})"
    remedy = f"wait {name.split('[')[0]} for that phase, by {second.group or 'the threads'} or by one that releases"
    return Finding("incomplete copy", message, first, second, remedy)


def _better_wait(state: State, newer: int, wait: str, group: str) -> str:
    """Which wait would complete a group that has ``newer`` later ones by now: the last executed one with a smaller
    count, when the group was committed before it."""
    kinds = {"cp_wait": (tir.CpWait, tir.CpCommit), "bulk_wait": (tir.BulkWait, tir.BulkCommit)}
    waits, commits = kinds.get(wait, (tir.WgmmaWait, tir.WgmmaCommit))
    later = 0
    log = state.log
    while log is not None and not (isinstance(log.stmt, waits) and log.group == group) and later <= newer:
        later += isinstance(log.stmt, commits) and log.group == group
        log = log.before
    if log is not None and isinstance(log.stmt, waits) and later <= newer:
        return f"{wait} {newer - later} or less instead of {print_stmt(log.stmt)}: so many groups were newer there"
    return f"{wait} {newer} or less before the access, by the thread that issued it: {newer} groups are newer"


def _outstanding(machine: Machine, fault: Fault, state: State) -> Finding:
    assert fault.earlier is not None
    low, high, thread, _ = _meeting_point(machine, fault.earlier, fault.earlier, None)
    first = _access(machine, fault.earlier, state.last[fault.earlier], thread, low, high)
    site = machine.sites[fault.earlier]
    what = {"store": "a store", "operand": "a wgmma"}.get(site.kind, "a copy")
    words = {"store": ("bulk_commit", "bulk_wait 0 read"), "operand": ("wgmma_commit", "wgmma_wait 0")}
    commit, wait = words.get(site.kind, ("cp_commit", "cp_wait 0"))
    slot = int(max(state.via[fault.earlier] - machine.frame.classes, state.landing[fault.earlier]))
    if slot >= 0:
        why, remedy = (
            f"nobody waits for it on {title(machine, slot)}",
            f"a wait on {title(machine, slot)} before the end",
        )
    else:
        warp = int(np.argmax(state.group[fault.earlier]))
        committed = state.group[fault.earlier, warp] < state.counts[site.family, warp]
        why = f"no {wait.split()[0]} covers its group" if committed else "it was never committed"
        remedy = f"{commit} and {wait} by the issuing thread before the end"
    message = f"{what} may still be in flight when the kernel ends: {why}"
    return Finding("outstanding copy", message, first, None, remedy)


def _uninitialised(machine: Machine, fault: Fault, state: State) -> Finding:
    second = _reader(machine, fault)
    return Finding("uninitialised", "the bytes were never written", None, second, "a write before the read")


def _overwritten(machine: Machine, fault: Fault, state: State) -> Finding:
    assert fault.earlier is not None
    assert fault.where is not None
    second = _reader(machine, fault)
    owner = machine.sites[fault.earlier]
    threads = _threads_at(machine, fault.earlier, fault.where[0])
    first = _access(machine, fault.earlier, state.last[fault.earlier], threads, *fault.where)
    message = (
        f"the bytes were last written through {owner.buffer}, not through {machine.sites[fault.later or 0].buffer}"
    )
    return Finding("overwritten", message, first, second, "buffers that share no bytes while both are in use")


# ---------------------------------------------------------------------------------------------- accesses


def _both(machine: Machine, fault: Fault, state: State) -> tuple[Access, Access]:
    assert fault.earlier is not None
    assert fault.later is not None
    low, high, one, two = _meeting_point(machine, fault.earlier, fault.later, fault.bad)
    first = _access(machine, fault.earlier, state.last[fault.earlier], one, low, high)
    assert fault.stmt is not None
    now = Log(fault.stmt, fault.at, state.now, None, 0, fault.group.name if fault.group else "")
    return first, _access(machine, fault.later, now, two, low, high)


def _reader(machine: Machine, fault: Fault) -> Access:
    assert fault.later is not None
    assert fault.stmt is not None
    assert fault.where is not None
    now = Log(fault.stmt, fault.at, 0, None, 0, fault.group.name if fault.group else "")
    return _access(machine, fault.later, now, _threads_at(machine, fault.later, fault.where[0]), *fault.where)


def _access(machine: Machine, site: int, log: Log, threads: tuple[int, ...], low: int, high: int) -> Access:
    it = machine.sites[site]
    memory = it.buffer if it.kind == "barrier" or machine.buffers[it.buffer].stages == 1 else f"{it.buffer}[{it.slot}]"
    return Access(
        ACTIONS[it.kind], memory, threads, low, high, _at(log.at), log.stmt.line, print_stmt(log.stmt), log.group
    )


def _at(at: At) -> tuple[tuple[str, int], ...]:
    return tuple((name, value) for name, value in at if value is not None)


def _threads_at(machine: Machine, site: int, byte: int) -> tuple[int, ...]:
    it = machine.sites[site]
    table = pattern(it.shape, machine.kernel.warps)
    row = table.lanes[(byte - it.base) // table.unit]
    return (_thread(row, int(np.flatnonzero(row)[0])),)


def _thread(row: np.ndarray, which: int, other_than: int = -1) -> int:
    first = which // 2 * 32
    lanes = [lane for lane in range(32) if int(row[which]) >> lane & 1 and first + lane != other_than]
    return first + lanes[0] if lanes else other_than


def _meeting_point(
    machine: Machine, earlier: int, later: int, bad: np.ndarray | None
) -> tuple[int, int, tuple[int, ...], tuple[int, ...]]:
    """The first bytes (absolute: first, and after the last) where two threads meet whose classes ``bad`` names, and the
    two threads; without ``bad`` any two, one thread with itself included."""
    one, two = machine.sites[earlier], machine.sites[later]
    warps = machine.kernel.warps
    unit, low, a, b = aligned(pattern(one.shape, warps), pattern(two.shape, warps), two.base - one.base)
    if bad is None:
        rows = np.flatnonzero((a != 0).any(axis=1) & (b != 0).any(axis=1))
        wa, wb = (int(np.flatnonzero(x[rows[0]])[0]) for x in (a, b))
        s = _thread(a[rows[0]], wa)
        t = s if b[rows[0], _class(s)] >> (s % 32) & 1 else _thread(b[rows[0]], wb)
    else:
        pairs = np.argwhere(bad)
        wa, wb = (int(x) for x in max(pairs, key=lambda pair: bool(pair[0] // 2 != pair[1] // 2)))  # across warps
        together = other_thread(a[:, wa], b[:, wb]) if wa == wb else (a[:, wa] != 0) & (b[:, wb] != 0)
        rows = np.flatnonzero(together if together.any() else (a[:, wa] != 0) & (b[:, wb] != 0))
        s = _thread(a[rows[0]], wa)
        if wa == wb and int(b[rows[0], wb]) == 1 << s % 32:
            s = _thread(a[rows[0]], wa, other_than=s)
        t = _thread(b[rows[0]], wb, other_than=s)
    first = last = int(rows[0])
    u, v = _class(s), _class(t)
    while last + 1 < len(a) and a[last + 1, u] >> (s % 32) & 1 and b[last + 1, v] >> (t % 32) & 1:
        last += 1
    start = one.base + low
    return start + first * unit, start + (last + 1) * unit - 1, (s,), (t,)


def _class(thread: int) -> int:
    return thread // 32 * 2 + (thread % 32 > 0)


def _hazard(machine: Machine, fault: Fault) -> str:
    def kind(site: int | None) -> str:
        return "write" if site is not None and machine.sites[site].write else "read"

    pair = (kind(fault.later), kind(fault.earlier))
    return {("read", "write"): "read after write", ("write", "read"): "write after read"}.get(pair, "write after write")


# ---------------------------------------------------------------------------------------------- timeline


def timeline(fault: Fault, state: State, seen: set[str] | None = None) -> tuple[Step, ...]:
    """The steps of both sides (groups in ``seen``; None: all) from the first access to the fault."""
    log = [x for x in steps(state.log) if seen is None or not seen or x.group in seen or not x.group]
    start = state.last[fault.earlier] if fault.earlier is not None and fault.earlier in state.last else fault.since
    since = log.index(start) if start is not None and start in log else max(len(log) - SHOWN // 2, 0)
    out = [_step(entry, "first" if entry is start else "") for entry in log[since:]]
    if fault.kind == "deadlock":
        out += [_step(entry, "waits for ever") for entry in fault.waiting]
    elif fault.stmt is None:
        out.append(Step("end of the kernel", (), note="second"))
    elif out:
        note = "first and second" if start is log[-1] else "second" if start is not None else "fault"
        out[-1] = _step(log[-1], note)
    if len(out) > SHOWN:
        left_out = Step("", (), count=len(out) - SHOWN)
        out = [*out[: SHOWN // 2], left_out, *out[-SHOWN // 2 :]]
    return tuple(out)


def _step(entry: Log, note: str) -> Step:
    if entry.skipped:
        return Step("", (), count=entry.skipped)
    return Step(print_stmt(entry.stmt), _at(entry.at), entry.stmt.line, note, group=entry.group)
