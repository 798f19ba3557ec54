"""A deadlock in words: who waits for what, which arrivals or bytes are missing, and who should have brought them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tidegate.check.machine import Machine
from tidegate.check.phases import slot_of, title
from tidegate.check.sites import groups, placed
from tidegate.check.state import Fault, Log, State
from tidegate.check.verdict import Finding, Step
from tidegate.check.witness import event, timeline
from tidegate.ir import tir
from tidegate.ir.text import print_stmt


def deadlock(machine: Machine, fault: Fault) -> tuple[Finding, tuple[Step, ...]]:
    """The finding, with the groups that wait for each other, and the steps that led there."""
    state = fault.state
    assert state is not None
    assert fault.stmt is not None
    name = fault.group.name if fault.group else ""
    waiting = fault.waiting = fault.waiting or (Log(fault.stmt, fault.at, state.now, None, 0, name),)
    lines = [_waits(machine, state, log, waiting) for log in waiting]
    first = event(machine, waiting[0])
    second = event(machine, waiting[1]) if len(waiting) > 1 else None
    remedy = "; ".join(dict.fromkeys(r for log in waiting for r in _missing(machine, state, log)))
    message = "no group can go on:\n    " + "\n    ".join(lines)
    return Finding("deadlock", message, first, second, remedy or "an arrival"), timeline(fault, state)


def _waits(machine: Machine, state: State, log: Log, waiting: tuple[Log, ...]) -> str:
    """One arc of the wait-for graph."""
    table = groups(machine.kernel)
    me = table[log.group]
    at = ", ".join(f"{n} = {v}" for n, v in log.at if v is not None)
    here = f"{me} waits{f' at {at}' if at else ''} in {print_stmt(log.stmt)}"
    if isinstance(log.stmt, tir.BarrierWait):
        slot = slot_of(machine, state, log.stmt)
        count = machine.barriers[log.stmt.barrier].count
        left, size = int(state.left[slot]), int(state.balance[slot].sum())
        parts = [f"{left} of {count} arrivals"] * (left > 0) + [f"{size} bytes"] * (size != 0)
        here += f": phase {state.phase[slot]} of {title(machine, slot)} lacks {' and '.join(parts)}"
        who = _arrivers(machine, log.stmt.barrier)
    elif isinstance(log.stmt, tir.BarSync):
        number = machine.frame.names.index(log.stmt.barrier)
        here += f": {state.bar_left[number]} of {machine.totals[log.stmt.barrier]} threads are missing"
        who = [
            (g.name, s) for s, g in placed(machine.kernel)
            if isinstance(s, (tir.BarArrive, tir.BarSync)) and s.barrier == log.stmt.barrier and g.name != log.group
        ]  # fmt: skip
    else:
        return f"{here}: nobody has arrived"
    return f"{here}; {_from(machine, who, waiting)}"


def _arrivers(machine: Machine, barrier: str) -> list[tuple[str, tir.Stmt]]:
    kinds = (tir.BarrierArrive, tir.BarrierExpect, tir.CpArrive)
    return [(g.name, s) for s, g in placed(machine.kernel) if isinstance(s, kinds) and s.barrier == barrier]


def _from(machine: Machine, who: list[tuple[str, tir.Stmt]], waiting: tuple[Log, ...]) -> str:
    """Where those are who should arrive."""
    if not who:
        return "no statement arrives there"
    stopped = {log.group: log for log in waiting}
    table = groups(machine.kernel)
    parts = []
    for name, stmt in dict.fromkeys(who):
        other = stopped.get(name)
        where = f"itself waits in {print_stmt(other.stmt)}" if other is not None else "has ended"
        parts.append(f"{table[name]} would arrive in {print_stmt(stmt)} and {where}")
    return ", ".join(parts)


def _missing(machine: Machine, state: State, log: Log) -> Iterator[str]:
    if isinstance(log.stmt, tir.BarrierWait):
        slot = slot_of(machine, state, log.stmt)
        count = machine.barriers[log.stmt.barrier].count
        came = count - int(state.left[slot])
        if came and state.left[slot]:
            yield f"{state.left[slot]} more arrivals on {title(machine, slot)}, or a count of {came}"
        elif state.balance[slot].any():
            size = int(state.balance[slot].sum())
            yield f"copies of {size} more bytes on {title(machine, slot)}, or an expect of less"
        else:
            yield f"{count} arrivals on {title(machine, slot)} before this wait"
    elif isinstance(log.stmt, tir.BarSync):
        number = machine.frame.names.index(log.stmt.barrier)
        yield f"{int(np.asarray(state.bar_left[number]))} more threads at barrier {log.stmt.barrier}"
