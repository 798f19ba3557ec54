"""From a fault of the machine to a finding that a person can act on: threads, bytes, iterations, and the run."""

from __future__ import annotations

import numpy as np

from tidegate.check.machine import At, Fault, Log, Machine, State, steps
from tidegate.check.pattern import aligned, other_thread, pattern
from tidegate.check.verdict import Access, Finding, Step
from tidegate.ir import tir
from tidegate.ir.text import print_stmt

SHOWN = 28
"""Longest timeline that is shown whole."""


def describe(machine: Machine, fault: Fault) -> tuple[Finding, tuple[Step, ...]]:
    """The finding of a fault and the timeline that leads to it."""
    assert fault.state is not None
    build = {
        "race": _race,
        "incomplete copy": _incomplete,
        "outstanding copy": _outstanding,
        "uninitialised": _uninitialised,
        "overwritten": _overwritten,
    }[fault.kind]
    return build(machine, fault, fault.state), _timeline(fault, fault.state)


def _race(machine: Machine, fault: Fault, state: State) -> Finding:
    first, second = _both(machine, fault, state)
    hazard = _hazard(machine, fault)
    if fault.detail:
        return Finding("race", fault.detail, first, second, "one writer per byte")
    assert fault.bad is not None
    pairs = np.argwhere(fault.bad)
    warps = ", ".join(map(str, np.unique(pairs)))
    if (pairs[:, 0] == pairs[:, 1]).all():
        who = f"the lanes of each of the warps {warps}: sync_warp"
    else:
        who = f"the warps {warps}: sync_block, or bar_sync of these"
    copied = machine.sites[fault.earlier or 0].copy
    after = "after the cp_wait that completes the copy" if copied else "between the two accesses"
    message = f"nothing orders the two accesses ({hazard})"
    return Finding("race", message, first, second, f"a rendezvous of {who}, {after}")


def _incomplete(machine: Machine, fault: Fault, state: State) -> Finding:
    first, second = _both(machine, fault, state)
    assert fault.earlier is not None
    group = int(state.group[fault.earlier])
    if group == state.committed:
        message = f"the copy may still be in flight: it was not committed ({_hazard(machine, fault)})"
        remedy = "cp_commit and then cp_wait, by the thread that issued the copy"
    else:
        message = f"the copy may still be in flight: no cp_wait covers its group ({_hazard(machine, fault)})"
        remedy = _better_wait(state, state.committed - 1 - group)
    if first.threads != second.threads:
        remedy += ", and a rendezvous with the other thread after it"
    return Finding("incomplete copy", message, first, second, remedy)


def _better_wait(state: State, newer: int) -> str:
    """Which wait would complete a group that has ``newer`` later ones by now: the last executed one with a smaller
    count, when the group was committed before it."""
    later = 0
    log = state.log
    while log is not None and not isinstance(log.stmt, tir.CpWait) and later <= newer:
        later += isinstance(log.stmt, tir.CpCommit)
        log = log.before
    if log is not None and isinstance(log.stmt, tir.CpWait) and later <= newer:
        return f"cp_wait {newer - later} or less instead of {print_stmt(log.stmt)}: so many groups were newer there"
    return f"cp_wait {newer} or less before the access, by the thread that issued the copy: {newer} groups are newer"


def _outstanding(machine: Machine, fault: Fault, state: State) -> Finding:
    assert fault.earlier is not None
    low, high, thread, _ = _meeting_point(machine, fault.earlier, fault.earlier, None)
    first = _access(machine, fault.earlier, state.last[fault.earlier], thread, low, high)
    committed = state.group[fault.earlier] < state.committed
    why = "no cp_wait covers its group" if committed else "it was never committed"
    message = f"a copy may still be in flight when the kernel ends: {why}"
    return Finding(
        "outstanding copy", message, first, None, "cp_commit and cp_wait 0 by the issuing thread before the end"
    )


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
    now = Log(fault.stmt, fault.at, state.now, None)
    return first, _access(machine, fault.later, now, two, low, high)


def _reader(machine: Machine, fault: Fault) -> Access:
    assert fault.later is not None
    assert fault.stmt is not None
    assert fault.where is not None
    now = Log(fault.stmt, fault.at, 0, None)
    return _access(machine, fault.later, now, _threads_at(machine, fault.later, fault.where[0]), *fault.where)


def _access(machine: Machine, site: int, log: Log, threads: tuple[int, ...], low: int, high: int) -> Access:
    it = machine.sites[site]
    action = "copies asynchronously to" if it.copy else "writes" if it.write else "reads"
    memory = f"{it.buffer}[{it.slot}]" if machine.buffers[it.buffer].stages > 1 else it.buffer
    return Access(action, memory, threads, low, high, _at(log.at), log.stmt.line, print_stmt(log.stmt))


def _at(at: At) -> tuple[tuple[str, int], ...]:
    return tuple((name, value) for name, value in at if value is not None)


def _threads_at(machine: Machine, site: int, byte: int) -> tuple[int, ...]:
    it = machine.sites[site]
    table = pattern(it.shape, machine.kernel.warps)
    row = table.lanes[(byte - it.base) // table.unit]
    return (_thread(row, int(np.flatnonzero(row)[0])),)


def _thread(row: np.ndarray, warp: int, other_than: int = -1) -> int:
    lanes = [lane for lane in range(32) if int(row[warp]) >> lane & 1 and warp * 32 + lane != other_than]
    return warp * 32 + lanes[0]


def _meeting_point(
    machine: Machine, earlier: int, later: int, bad: np.ndarray | None
) -> tuple[int, int, tuple[int, ...], tuple[int, ...]]:
    """The first bytes (absolute: first, and after the last) where two threads meet whose warps ``bad`` names, and the
    two threads; without ``bad`` any two, one thread with itself included."""
    one, two = machine.sites[earlier], machine.sites[later]
    warps = machine.kernel.warps
    unit, low, a, b = aligned(pattern(one.shape, warps), pattern(two.shape, warps), two.base - one.base)
    if bad is None:
        rows = np.flatnonzero((a != 0).any(axis=1) & (b != 0).any(axis=1))
        wa, wb = (int(np.flatnonzero(x[rows[0]])[0]) for x in (a, b))
        s = _thread(a[rows[0]], wa)
        t = s if b[rows[0], wa] >> (s % 32) & 1 else _thread(b[rows[0]], wb)
    else:
        pairs = np.argwhere(bad)
        wa, wb = (int(x) for x in max(pairs, key=lambda pair: bool(pair[0] != pair[1])))  # across warps if there is one
        together = other_thread(a[:, wa], b[:, wb]) if wa == wb else (a[:, wa] != 0) & (b[:, wb] != 0)
        rows = np.flatnonzero(together)
        s = _thread(a[rows[0]], wa)
        if wa == wb and int(b[rows[0], wb]) == 1 << s % 32:
            s = _thread(a[rows[0]], wa, other_than=s)
        t = _thread(b[rows[0]], wb, other_than=s)
    first = int(rows[0])
    last = first
    while last + 1 < len(a) and a[last + 1, s // 32] >> (s % 32) & 1 and b[last + 1, t // 32] >> (t % 32) & 1:
        last += 1
    start = one.base + low
    return start + first * unit, start + (last + 1) * unit - 1, (s,), (t,)


def _hazard(machine: Machine, fault: Fault) -> str:
    def kind(site: int | None) -> str:
        return "write" if site is not None and machine.sites[site].write else "read"

    pair = (kind(fault.later), kind(fault.earlier))
    return {("read", "write"): "read after write", ("write", "read"): "write after read"}.get(pair, "write after write")


# ---------------------------------------------------------------------------------------------- timeline


def _timeline(fault: Fault, state: State) -> tuple[Step, ...]:
    """The steps from the first access to the fault."""
    log = list(steps(state.log))
    start = state.last[fault.earlier] if fault.earlier is not None and fault.earlier in state.last else None
    since = log.index(start) if start is not None and start in log else max(len(log) - SHOWN // 2, 0)
    out = [_step(entry, "first" if entry is start else "") for entry in log[since:]]
    if fault.stmt is None:
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
    return Step(print_stmt(entry.stmt), _at(entry.at), entry.stmt.line, note)
