"""The mbarriers of one CTA, as the hardware keeps them: pending arrivals, transaction bytes and a phase.

A wait passes by parity alone; that it passed in the phase it meant is checked beside (PTX ISA, "mbarrier").
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from tidegate.ir import tir
from tidegate.simulate.clocks import PLAIN, Clocks, Knowledge
from tidegate.simulate.report import Kind, Reports
from tidegate.simulate.trace import Step


@dataclass(eq=False)
class Slot:
    """One mbarrier. ``completed`` counts its phases; ``pending``, ``tx``, ``expected`` and ``issued`` (bytes), and
    ``gathered`` (what its arrivals release) belong to the current one, ``released`` to the last one. ``used`` says when
    each thread touched it last; ``owner`` initialised it at ``since``, and ``fenced`` that for the async proxy."""

    name: str
    index: int
    number: int
    count: int
    gathered: Knowledge
    released: Knowledge
    used: np.ndarray
    live: bool = False
    owner: int = 0
    since: int = 0
    fenced: bool = False
    pending: int = 0
    tx: int = 0
    expected: int = 0
    issued: int = 0
    completed: int = 0
    waiters: set[int] = field(default_factory=set)

    def passes(self, phase: int) -> bool:
        """Whether a wait for phase number ``phase`` (from 1 on) returns: the hardware sees its parity."""
        return (self.completed - phase) % 2 == 0

    @property
    def state(self) -> str:
        missing = [f"{self.pending} of {self.count} arrivals"] if self.pending else []
        missing += [f"{self.tx} bytes"] if self.tx else []
        done = f"{self.completed} phases of {self.name}[{self.index}] have completed"
        return f"{done}, the next lacks {' and '.join(missing) or 'nothing'}"


class Barriers:
    """``wake`` is called with a slot whenever its state has changed."""

    def __init__(self, kernel: tir.Kernel, clocks: Clocks, reports: Reports) -> None:
        self._clocks, self._reports = clocks, reports
        self.wake: Callable[[Slot], None] = lambda slot: None
        self._rings: dict[str, list[Slot]] = {}
        number = 0
        for b in kernel.barriers:
            self._rings[b.name] = []
            for index in range(b.stages):
                used = np.zeros(clocks.threads, np.int32)
                slot = Slot(b.name, index, number, b.count, clocks.nothing(), clocks.nothing(), used)
                self._rings[b.name].append(slot)
                number += 1

    def ring(self, name: str) -> list[Slot]:
        return self._rings[name]

    def of(self, step: Step, name: str) -> Slot:
        return self._rings[name][step.bar]

    # ------------------------------------------------------------------------------------------ life

    def init(self, step: Step, name: str, thread: int) -> None:
        for slot in self._rings[name]:
            if slot.live:
                self._report("barrier in use", step, slot, thread, "it is initialised already")
            self._end(step, slot, thread)
            slot.live, slot.owner, slot.since, slot.fenced = True, thread, self._clocks.now, False
            slot.pending, slot.tx, slot.expected, slot.issued, slot.completed = slot.count, 0, 0, 0, 0
            slot.gathered, slot.released = self._clocks.nothing(), self._clocks.nothing()

    def invalidate(self, step: Step, name: str, thread: int) -> None:
        for slot in self._rings[name]:
            if self.usable(step, slot, np.array([thread])):
                self._end(step, slot, thread)
                if slot.pending != slot.count or slot.tx:
                    self._report("barrier in use", step, slot, thread, f"a phase is pending: {slot.state}")
                if slot.waiters:
                    self._report("barrier in use", step, slot, thread, f"thread {min(slot.waiters)} waits")
            slot.live = False

    def fence_init(self, thread: int) -> None:
        for ring in self._rings.values():
            for slot in ring:
                slot.fenced |= slot.live and slot.owner == thread

    def _end(self, step: Step, slot: Slot, thread: int) -> None:
        """Reports uses by threads that ``thread`` does not know to be over."""
        known = self._clocks.known[PLAIN, thread, : self._clocks.threads] >= slot.used
        known[thread] = True
        if not known.all():
            user = int(np.flatnonzero(~known)[0])
            self._report("barrier in use", step, slot, thread, f"thread {user} may not have passed it yet")

    def usable(self, step: Step, slot: Slot, threads: np.ndarray, *, engine: bool = False) -> bool:
        """Whether the slot is live and the threads know it; marks the use."""
        if not slot.live:
            self._report("uninitialised barrier", step, slot, int(threads[0]), "no barrier_init came before")
            return False
        known = (self._clocks.known[PLAIN, threads, slot.owner] >= slot.since) | (threads == slot.owner)
        if not known.all():
            detail = "no rendezvous came after barrier_init"
            self._report("uninitialised barrier", step, slot, int(threads[~known][0]), detail)
        if engine and not slot.fenced:
            detail = "no fence_barrier_init makes it visible to the async proxy"
            self._report("uninitialised barrier", step, slot, int(threads[0]), detail)
        slot.used[threads] = self._clocks.now
        return True

    # ------------------------------------------------------------------------------------------ phases

    def arrive(
        self, step: Step, slot: Slot, threads: np.ndarray, released: Callable[[np.ndarray], Knowledge], bytes: int = 0
    ) -> None:
        """Each of ``threads`` arrives once; ``released`` gives what some of them pass on. Before, ``bytes`` are added
        to the phase. Arrivals beyond the count fall into the next phase, as they do in the hardware."""
        slot.tx += bytes
        slot.expected += bytes
        while len(threads):
            taken, threads = threads[: slot.pending], threads[slot.pending :]
            if len(threads):
                self._report("too many arrivals", step, slot, int(threads[0]), slot.state)
            if not len(taken):
                break
            slot.gathered = np.maximum(slot.gathered, released(taken))
            slot.pending -= len(taken)
            self._complete(slot)
        self.wake(slot)

    def issue(self, step: Step, slot: Slot, bytes: int, thread: int) -> None:
        """A copy of ``bytes`` onto the slot is issued."""
        slot.issued += bytes
        if slot.issued > slot.expected:
            detail = f"expected are {slot.expected} bytes, issued {slot.issued}"
            self._report("unexpected bytes", step, slot, thread, detail)

    def landed(self, slot: Slot, bytes: int) -> None:
        slot.tx -= bytes
        agent = self._clocks.tensor(slot.number)
        slot.gathered[PLAIN, agent] = self._clocks.now
        self._complete(slot)
        self.wake(slot)

    def _complete(self, slot: Slot) -> None:
        if slot.pending or slot.tx:
            return
        slot.completed += 1
        slot.pending, slot.expected, slot.issued = slot.count, 0, 0
        slot.released, slot.gathered = slot.gathered, self._clocks.nothing()

    def passed(self, step: Step, slot: Slot, threads: np.ndarray) -> None:
        """The threads' wait has returned: they acquire what the phase released."""
        slot.waiters.difference_update(threads.tolist())
        slot.used[threads] = self._clocks.now
        if slot.completed != step.phase:
            detail = f"it waits for phase {step.phase}, and {slot.completed} phases have completed"
            self._report("phase lead", step, slot, int(threads[0]), detail)
        if slot.completed:
            self._clocks.acquire(threads, slot.released)

    def _report(self, kind: Kind, step: Step, slot: Slot, thread: int, detail: str) -> None:
        self._reports.add(kind, step.stmt, thread=thread, buffer=slot.name, slot=slot.index, detail=detail)
