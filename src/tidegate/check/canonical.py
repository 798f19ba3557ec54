"""When two states have the same future: times are replaced by what comparisons can see of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tidegate.check.sites import BULK, COPY, WGMMA, Sites
from tidegate.check.state import CAUSE, DATA, PROXY, Frame, State
from tidegate.ir import tir


class Canonical:
    """Keys of states of one kernel: equal keys, equal futures.

    A clock is only ever compared with *thresholds* of its column: times of accesses, waits, phases, generations.
    So a time may be replaced by the number of thresholds that it reaches. A threshold may be dropped that all have
    reached who will ever be compared with it; one of an access whose bytes other threads never conflict on; and one
    that every clock reaches that reaches the one before: clocks are only ever set to times of each other, or to one
    later than all. Of writes it matters which have bytes that none has covered since, and the order of two that
    overlap; of a group whether it is so old that every wait completes it, else its age. Parities matter relative to
    each other: all phases and cursors that waits connect may be flipped together. The slots of a ring are alike if it
    shares no bytes, or if those who do conflict with all of it, so it may be turned, with its cursors, until one of
    these is 0.
    """

    def __init__(self, kernel: tir.Kernel, frame: Frame, sites: Sites) -> None:
        self.frame = frame
        self.sites = sites
        self.proxies = any(site.asynchronous for site in sites.items)
        landing = any(isinstance(s, (tir.CpArrive, tir.TmaLoad)) for s in tir.walk(kernel.body))
        known = self._touched if landing else self._awaited
        pairs = [(n, c) for n in range(len(sites.items)) for c in np.flatnonzero(known(n))]
        self.pair_site = np.array([n for n, _ in pairs], np.int64)
        self.pair_class = np.array([c for _, c in pairs], np.int64)
        self.start = np.searchsorted(self.pair_site, np.arange(len(sites.items)))
        self.rings = _rings(kernel, sites)
        turning = {cursor for ring in self.rings for cursor in ring.cursors}
        self.components = [c for c in _components(kernel) if not turning & set(c[0])]
        self.depths = {str(c.name): c.depth for c in kernel.cursors}
        self.newest = _newest(kernel)
        writes = [n for n, site in enumerate(sites.items) if site.write]
        meets = [(a, b) for a in writes for b in writes if a != b and sites.near(sites.items[a], sites.items[b])]
        self.overlaps = np.array([(a, b) for a, b in meets if a < b and sites.meet(a, b).overlap], int).reshape(-1, 2)
        self.covers = np.array([(a, b) for a, b in meets if sites.meet(a, b).covers], int).reshape(-1, 2)
        self.writes = np.array([site.write for site in sites.items], bool)
        self.compared = self._compared()
        self.flips = not any(isinstance(s, tir.BarrierInvalidate) for s in tir.walk(kernel.body))

    def _touched(self, site: int) -> np.ndarray:
        """The classes of which some thread makes an access."""
        found = self.sites.meet(site, site).together.any(axis=0)
        return np.asarray(found)

    def _awaited(self, site: int) -> np.ndarray:
        """The classes whose share in an access others may have to know of: not what one thread alone meets again."""
        found = np.zeros(self.frame.classes, bool)
        for other in range(len(self.sites.items)):
            rivals = self.sites.rivals(other)
            for k in np.flatnonzero(rivals.numbers == site):
                pairs = rivals.together[k] if rivals.generic[k] else rivals.crossing[k]
                found |= pairs.any(axis=0)
        return found

    def _compared(self) -> np.ndarray:
        """Per plane which clocks, [class, column], may be compared with times of their column: where the column is a
        class, those of classes that it conflicts with, unless waits on mbarriers compare others too."""
        classes = self.frame.classes
        found = np.ones((3, classes, self.frame.columns), bool)
        if not self.frame.barriers:
            rivals = [self.sites.rivals(n).together.any(axis=0) for n in range(len(self.sites.items))]
            found[:, :, :classes] = np.logical_or.reduce([np.zeros((classes, classes), bool), *rivals])
        leaders = np.arange(0, classes, 2)
        found[DATA, leaders, leaders] = False  # one thread knows itself
        return found

    def key(self, state: State) -> bytes:
        column, time = self._thresholds(state)
        scale = state.now + 2
        known = np.where(self.compared[DATA], state.clock[DATA], scale).min(axis=0)
        for plane in (PROXY, CAUSE) if self.proxies else (CAUSE,):
            known = np.minimum(known, np.where(self.compared[plane], state.clock[plane], scale).min(axis=0))
        live = time > known[column]
        every = np.arange(self.frame.columns)
        own = every[: self.frame.classes]
        tables = [state.clock, state.acc, state.rel, state.bar_acc, state.bar_rel, state.cluster]
        clocks = [*((t + every * scale).ravel() for t in tables), state.fence + own * scale]
        marks = _told_apart(np.unique(column[live] * scale + time[live]), np.concatenate(clocks), scale)
        starts = np.searchsorted(marks, every * scale)

        def rank(times: np.ndarray, columns: np.ndarray) -> np.ndarray:
            found = np.searchsorted(marks, np.maximum(times, 0) + columns * scale, side="right") - starts[columns]
            return found.astype(np.int16)

        ranks = [rank(t, np.broadcast_to(every, t.shape)) for t in tables]
        turned = self._turned(state)
        pairs = self.start[turned[self.pair_site]] + np.arange(len(self.pair_site)) - self.start[self.pair_site]
        times = rank(time, column)
        ranks += [times[: len(pairs)][pairs], times[len(pairs) :]]
        ranks.append(rank(state.fence, own))
        ages = np.where(state.group >= 0, state.counts[self.sites.family] - state.group, -1)
        ages = np.minimum(ages, self.newest[self.sites.family][:, None]).astype(np.int16)
        flight = np.where(state.flight >= 0, np.minimum(state.counts[WGMMA] - state.flight, self.newest[WGMMA]), -1)
        waiting = np.where(state.bar_in >= 0, state.generation[:, None] - state.bar_in, -1)
        parts: Iterable[np.ndarray] = (
            *ranks, *self._written(state, turned), ages[turned], flight, waiting, state.via[turned],
            state.landing[turned], state.pending[turned], state.dirty, state.left, state.balance, state.bar_left,
            state.completed >= 0, np.minimum(state.phase, 2),
        )  # fmt: skip
        return b"".join(p.tobytes() for p in parts) + repr((self._parities(state), state.arrived)).encode()

    def _thresholds(self, state: State) -> tuple[np.ndarray, np.ndarray]:
        """Columns and times of everything that clocks are compared with."""
        frame = self.frame
        via = state.via[self.pair_site]
        column = np.where(via >= 0, via, self.pair_class)
        time = np.where(state.pending[self.pair_site], 0, state.done[self.pair_site])
        slots = frame.classes + np.arange(len(frame.slots))
        names = frame.classes + len(frame.slots) + np.arange(len(frame.names))
        classes = np.broadcast_to(np.arange(frame.classes), state.waits.shape).ravel()
        columns = [column, slots, slots, names, classes]
        times = [time, state.completed, state.previous, state.bar_done, state.waits.ravel()]
        if frame.barriers:
            columns.append(frame.fence_column(0) + np.arange(len(frame.barriers)))
            times.append(np.ones(len(frame.barriers), np.int64))
        return np.concatenate(columns), np.concatenate(times)

    def _written(self, state: State, turned: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Which writes left bytes that none has covered since, and for two of them that overlap, whether the first came
        later: what decides who wrote a byte last."""
        issued = np.where(self.writes, state.issued, 0)[turned]
        later, earlier = self.covers.T
        gone = earlier[issued[later] > issued[earlier]]
        issued[gone] = 0
        first, second = self.overlaps.T
        return issued > 0, issued[first] > issued[second]

    def _turned(self, state: State) -> np.ndarray:
        """Per site the one in its place: its slot is as far behind the ring's first cursor as that one's behind 0."""
        turned = np.arange(len(self.sites.items))
        for ring in self.rings:
            at = state.cursors[ring.cursors[0]] % ring.depth
            for slots in ring.sites:
                turned[slots] = np.roll(slots, -at)
        return turned

    def _parities(self, state: State) -> tuple[object, ...]:
        out: list[object] = []
        for ring in self.rings:
            first = state.cursors[ring.cursors[0]]
            out.append(tuple((state.cursors[c] - first) % ring.depth for c in ring.cursors))
        turn: dict[str, int] = {str(name): count for name, count in state.cursors.items()}
        for cursors, slots in self.components:
            parity = [turn[c] // self.depths[c] for c in cursors]
            flip = parity[0] if cursors and self.flips else 0
            out.append(tuple(turn[c] % self.depths[c] for c in cursors))
            out.append(tuple(p ^ flip for p in parity))
            out.append(tuple(int(state.phase[s]) % 2 ^ flip if state.completed[s] >= 0 else 2 for s in slots))
        return tuple(out)


def _told_apart(marks: np.ndarray, clocks: np.ndarray, scale: int) -> np.ndarray:
    """Of sorted thresholds those that some clock tells from the one before, in the same column."""
    below = np.searchsorted(np.sort(clocks), marks)
    same = (marks[1:] // scale == marks[:-1] // scale) & (below[1:] == below[:-1])
    return marks[np.concatenate(([True], ~same))[: len(marks)]]


def _newest(kernel: tir.Kernel) -> np.ndarray:
    """Per family of groups the age from which on every wait of the kernel completes a group."""
    found = np.ones(3, np.int64)
    for stmt in tir.walk(kernel.body):
        for family, kind in ((COPY, tir.CpWait), (BULK, tir.BulkWait), (WGMMA, tir.WgmmaWait)):
            if isinstance(stmt, kind):
                found[family] = max(found[family], stmt.n + 1)
    return found


@dataclass(frozen=True)
class Ring:
    """Buffers that cursors walk through together. ``sites``: arrays [slot] of sites that differ in the slot alone."""

    cursors: tuple[tir.Name, ...]
    depth: int
    sites: tuple[np.ndarray, ...]


def _rings(kernel: tir.Kernel, sites: Sites) -> tuple[Ring, ...]:
    """The rings of a kernel whose slots are alike: accessed through cursors of their own depth only, which no mbarrier
    shares, and apart from all other bytes."""
    users: dict[str, set[tir.Name | None]] = {}
    for slot, *_ in sites.of:
        users.setdefault(slot.buffer, set()).add(slot.cursor)
    bound = {getattr(s, "cursor", None) for s in tir.walk(kernel.body) if getattr(s, "barrier", None) is not None}
    groups: list[tuple[set[str], set[tir.Name | None]]] = []
    for buffer, cursors in users.items():
        mine = [g for g in groups if g[1] & cursors]
        groups = [g for g in groups if g not in mine]
        groups.append(({buffer}.union(*(g[0] for g in mine)), cursors.union(*(g[1] for g in mine))))
    found = []
    for buffers, cursors in groups:
        depths = {sites.depths[c] if c is not None else 0 for c in cursors} | {sites.buffers[b].stages for b in buffers}
        if len(depths) > 1 or None in cursors or cursors & bound or not all(_apart(b, sites) for b in buffers):
            continue
        keys = [key for key in sites.of if key[0].buffer in buffers]
        arrays = {sites.of[key]: np.array(sites.of[key]) for key in keys}
        found.append(Ring(tuple(sorted(c for c in cursors if c is not None)), depths.pop(), tuple(arrays.values())))
    return tuple(found)


def _apart(buffer: str, sites: Sites) -> bool:
    """Whether every slot of a buffer keeps its bytes to itself, or shares them as every other slot does."""
    return not any(
        sites.near(a, b)
        for a in sites.items
        if a.buffer == buffer
        for b in sites.items
        if not sites.as_wholes(a, b) and (a.buffer, a.slot) != (b.buffer, b.slot)
    )


def _components(kernel: tir.Kernel) -> list[tuple[tuple[str, ...], tuple[int, ...]]]:
    """Cursors and slots of mbarriers that instructions connect."""
    names: list[str] = [*(c.name for c in kernel.cursors), *(b.name for b in kernel.barriers)]
    parent = {name: name for name in names}

    def root(name: str) -> str:
        while parent[name] != name:
            name = parent[name]
        return name

    for stmt in tir.walk(kernel.body):
        barrier, cursor = getattr(stmt, "barrier", None), getattr(stmt, "cursor", None)
        if isinstance(barrier, str) and isinstance(cursor, str):
            parent[root(barrier)] = root(cursor)
    slots: dict[str, list[int]] = {}
    number = 0
    for b in kernel.barriers:
        for _ in range(b.stages):
            slots.setdefault(root(b.name), []).append(number)
            number += 1
    members: dict[str, list[str]] = {}
    for c in kernel.cursors:
        members.setdefault(root(c.name), []).append(c.name)
    return [(tuple(members.get(r, ())), tuple(slots.get(r, ()))) for r in dict.fromkeys([*members, *slots])]
