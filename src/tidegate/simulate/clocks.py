"""Who knows of whose accesses: vector clocks, the order that the memory model gives.

Time is one counter over all executed steps. For every thread and every *agent*, ``known`` says up to which time the
thread knows of the agent's accesses. Agents are the threads themselves, and per thread the engine of its cp.async, per
warp that of its wgmma and of its bulk stores, and per mbarrier slot that of its tensor copies. An engine's access is
known once a wait has covered it; a rendezvous or an arrival passes on what its threads know.

There are two such tables: PLAIN for accesses of any kind, and FENCED for the order between the generic and the async
proxy, into which only fence.proxy.async copies (PTX ISA, "Async proxy").
"""

from __future__ import annotations

import numpy as np

from tidegate.ir.layout import LANES

PLAIN, FENCED = 0, 1

NEVER = np.iinfo(np.int32).max
"""Time of an access that has not happened yet."""

Knowledge = np.ndarray
"""int32 [PLAIN and FENCED, agents]."""


class Clocks:
    """``known`` is int32 [PLAIN and FENCED, threads, agents]. A thread's own column is not kept up to date in its own
    row: it always knows what it did itself."""

    def __init__(self, warps: int, barrier_slots: int) -> None:
        self.threads, self.warps = warps * LANES, warps
        self.now = 1
        self._matrix = 2 * self.threads
        self._bulk = self._matrix + warps
        self._tensor = self._bulk + warps
        self.agents = self._tensor + barrier_slots
        self.generic = np.arange(self.agents) < self._matrix
        self.known = np.zeros((2, self.threads, self.agents), np.int32)

    # ------------------------------------------------------------------------------------------ agents

    def copies(self, threads: np.ndarray) -> np.ndarray:
        """The agents of the cp.async of ``threads``."""
        return threads + self.threads

    def matrix(self, warp: int) -> int:
        return self._matrix + warp

    def bulk(self, warp: int) -> int:
        return self._bulk + warp

    def tensor(self, slot: int) -> int:
        return self._tensor + slot

    # ------------------------------------------------------------------------------------------ what is known

    def sight(self, threads: np.ndarray, *, engine: bool) -> np.ndarray:
        """[agents]: what all of ``threads`` know; for accesses of an ``engine`` of the async proxy, generic ones only
        as far as they are fenced."""
        plain = self.known[PLAIN, threads].min(axis=0)
        if not engine:
            return plain
        return np.where(self.generic, self.known[FENCED, threads].min(axis=0), plain)

    def knows(self, threads: np.ndarray, agents: np.ndarray, times: np.ndarray) -> np.ndarray:
        """Whether each thread knows of its agent's access."""
        return (self.known[PLAIN, threads, agents] >= times) | (agents == threads)

    def settled(self, strict: bool) -> np.ndarray:
        """[agents]: what every thread knows, and with ``strict`` has fenced."""
        plain = self.known[PLAIN].min(axis=0)
        return np.where(self.generic, self.known[FENCED].min(axis=0), plain) if strict else plain

    def learn_engine(self, threads: np.ndarray, agents: np.ndarray | int, times: np.ndarray | int) -> None:
        """A wait of each thread covers its agent's accesses up to a time."""
        plain = self.known[PLAIN]
        plain[threads, agents] = np.maximum(plain[threads, agents], times)

    # ------------------------------------------------------------------------------------------ passing on

    def released(self, threads: np.ndarray) -> Knowledge:
        """What these threads pass on together by now."""
        together: Knowledge = self.known[:, threads].max(axis=1)
        together[PLAIN, threads] = self.now
        return together

    def acquire(self, threads: np.ndarray, knowledge: Knowledge) -> None:
        self.known[:, threads] = np.maximum(self.known[:, threads], knowledge[:, None, :])

    def fence(self, threads: np.ndarray) -> None:
        """Each thread's fence.proxy.async: of its own accesses, and of those that it knows of."""
        self.known[FENCED, threads] = np.maximum(self.known[FENCED, threads], self.known[PLAIN, threads])
        self.known[FENCED, threads, threads] = self.now

    def nothing(self) -> Knowledge:
        return np.zeros((2, self.agents), np.int32)
