"""Buffers that every trip of a loop writes afresh: what it wrote before need not be told apart.

That a trip reads nothing that an earlier one wrote is a guess: made of buffers that are accessed inside the loop alone,
and given up when a read then finds its bytes unwritten. To forget a write can only make a read look unwritten, so what
is in order then is in order.
"""

from __future__ import annotations

import numpy as np

from tidegate.check.sites import Sites, accesses, placed
from tidegate.check.state import Fault, State
from tidegate.ir import tir


class Afresh:
    """Per loop the sites of writes that are forgotten before and behind each of its trips. Buffers that share bytes are
    forgotten together: of two writes to one byte the earlier must not be all that is left. ``loops``: per group of such
    buffers the loops around all that accesses them."""

    def __init__(self, kernel: tir.Kernel, sites: Sites) -> None:
        self.sites = sites
        users: dict[str, set[int]] = {}
        for stmt, group in placed(kernel):
            for slot, *_ in accesses(stmt, group):
                users.setdefault(slot.buffer, set()).add(id(stmt))
        inside = {id(s): {id(t) for t in tir.walk(s.body)} for s in tir.walk(kernel.body) if isinstance(s, tir.For)}
        self.loops = {
            buffers: [loop for loop, stmts in inside.items() if all(users[b] <= stmts for b in buffers)]
            for buffers in sites.parts
        }
        self.writes = self._writes()

    def _writes(self) -> dict[int, np.ndarray]:
        found: dict[int, list[int]] = {}
        for buffers, loops in self.loops.items():
            writes = [n for n, site in enumerate(self.sites.items) if site.buffer in buffers and site.write]
            for loop in loops:
                found.setdefault(loop, []).extend(writes)
        return {loop: np.array(writes, int) for loop, writes in found.items()}

    def forget(self, loop: tir.For, state: State) -> State | None:
        """The state at the head of a trip, a new one; None where nothing is forgotten."""
        writes = self.writes.get(id(loop))
        if writes is None or not state.issued[writes].any():
            return None
        state = state.copy()
        state.issued[writes] = 0
        return state

    def spare(self, fault: Fault) -> bool:
        """Forgets no longer what a read that is faulty may have missed; whether that is news."""
        if fault.later is None or fault.kind not in ("uninitialised", "overwritten"):
            return False
        read = self.sites.items[fault.later].buffer
        loops = [self.loops.pop(buffers) for buffers in list(self.loops) if read in buffers]
        self.writes = self._writes()
        return any(loops)
