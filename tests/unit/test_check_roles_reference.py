"""The checker against kernels that really run: threads in random order, copies that land whenever they like.

The model keeps a vector clock per thread, for ordinary accesses and for those through the async proxy, and has barriers
as the hardware has them: a count, bytes, a parity. It knows nothing of phases that arrivals or waits mean.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import product

import numpy as np
import pytest
from generators import role_nested, role_ring, role_staged

from tidegate.check import check
from tidegate.ir import tir
from tidegate.ir.expr import evaluate
from tidegate.ir.layout import active_threads, byte_offsets, coordinates
from tidegate.ir.text import parse_kernel

OPS = 200  # engine operations in one run


class Broken(Exception):
    pass


@dataclass
class Word:
    writer: tuple[int, int, bool] | None = None  # column of a clock, time, through the async proxy?
    copy: tuple[int, int] | None = None  # thread and group of a cp.async in flight
    readers: dict[tuple[int, bool], int] = field(default_factory=dict)
    reading: list[tuple[int, int]] = field(default_factory=list)  # thread and bulk group of stores in flight


@dataclass
class Bar:
    count: int
    left: int
    acc: np.ndarray
    rel: np.ndarray
    phase: int = 0
    bytes: int = 0


class Run:
    def __init__(self, kernel: tir.Kernel, sizes: dict[str, int], seed: int) -> None:
        self.kernel, self.sizes, self.rng = kernel, sizes, random.Random(seed)
        self.columns = kernel.threads + OPS
        self.clock = np.zeros((2, kernel.threads, self.columns), int)
        self.words = [Word() for _ in range(kernel.smem // 4)]
        self.cursors: dict[tuple[str, int], int] = {}
        self.groups = np.zeros((2, kernel.threads), int)  # cp.async, bulk
        self.bars: dict[tuple[str, int], Bar] = {}
        self.flying: list[tuple[int, str, int, int, list[int]]] = []  # op, barrier, slot, bytes or -threads, words
        self.named: dict[int, list] = {}
        self.op = kernel.threads
        self.slow = self.rng.choice([None, "land", *range(kernel.warps)])

    def go(self) -> None:
        main = [self.program(self.kernel.body, w, {}) for w in range(self.kernel.warps)]
        waiting: dict[int, object] = dict.fromkeys(range(self.kernel.warps))
        while waiting:
            able = [w for w, test in waiting.items() if test is None or test()]  # type: ignore[operator]
            some = [w for w in able if w != self.slow] or able
            if self.flying and (not some or (self.slow != "land" and self.rng.random() < 0.3)):
                self.land(self.rng.randrange(len(self.flying)))
            elif some:
                w = self.rng.choice(some)
                try:
                    waiting[w] = next(main[w])
                except StopIteration:
                    del waiting[w]
            else:
                raise Broken("deadlock")
        if any(w.copy or w.reading for w in self.words) or self.flying:
            raise Broken("outstanding")
        if any(not self.clock[0, :, op].any() for op in range(self.kernel.threads, self.op)):
            raise Broken("nobody waited")

    def program(self, body, w, names, role=None):  # type: ignore[no-untyped-def]
        for stmt in body:
            if isinstance(stmt, tir.InRole):
                role = next(r for r in self.kernel.roles if r.name == stmt.role)
                if role.first <= w < role.first + role.count:
                    yield from self.program(stmt.body, w, names, role)
            elif isinstance(stmt, tir.For):
                for i in range(
                    evaluate(stmt.start, {**self.sizes, **names}), evaluate(stmt.stop, {**self.sizes, **names})
                ):
                    yield from self.program(stmt.body, w, {**names, stmt.index: i}, role)
            elif isinstance(stmt, tir.If):
                if evaluate(stmt.condition, {**self.sizes, **names}):
                    yield from self.program(stmt.body, w, names, role)
            else:
                test = self.step(stmt, w, role)
                yield test
                if test is not None and isinstance(stmt, tir.BarrierWait):
                    self.acquire(range(32 * w, 32 * w + 32), self.bar(stmt, w).rel)
                elif test is not None:
                    self.acquire(range(32 * w, 32 * w + 32), test.rel)

    def bar(self, stmt, w) -> Bar:  # type: ignore[no-untyped-def]
        it = next(b for b in self.kernel.barriers if b.name == stmt.barrier)
        slot = (it.name, self.cursors.get((stmt.cursor, w), 0) % it.stages)
        zero = np.zeros((2, self.columns), int)
        return self.bars.setdefault(slot, Bar(it.count, it.count, zero, zero.copy()))

    def acquire(self, threads, vector) -> None:  # type: ignore[no-untyped-def]
        rows = list(threads)
        self.clock[:, rows] = np.maximum(self.clock[:, rows], vector[:, None])

    def tick(self, t: int) -> int:
        self.clock[0, t, t] += 1
        return int(self.clock[0, t, t])

    def arrive(self, b: Bar, vector: np.ndarray, n: int = 1, size: int = 0) -> None:
        b.acc = np.maximum(b.acc, vector)
        b.left -= n
        b.bytes += size
        if b.left == 0 and b.bytes == 0:
            b.rel, b.acc = b.acc, np.zeros_like(b.acc)
            b.phase, b.left = b.phase + 1, b.count

    def step(self, stmt, w, role):  # type: ignore[no-untyped-def]
        lanes = range(32 * w, 32 * w + 32)
        first = role.first if role else 0
        one = 32 * w if w == first else None
        match stmt:
            case tir.SyncWarp():
                self.clock[:, lanes] = self.clock[:, lanes].max(axis=1, keepdims=True)
            case tir.SyncBlock():
                return self.meet(0, w, self.kernel.threads, True)
            case tir.BarSync():
                total = next(
                    (
                        s.count
                        for s in tir.walk(self.kernel.body)
                        if isinstance(s, tir.BarArrive) and s.barrier == stmt.barrier
                    ),
                    32 * len(stmt.warps),
                )
                return self.meet(stmt.barrier, w, total, True) if w in stmt.warps else None
            case tir.BarArrive():
                return self.meet(stmt.barrier, w, stmt.count, False)
            case tir.FenceAsync():
                self.clock[1, lanes] = np.maximum(self.clock[1, lanes], self.clock[0, lanes])
            case tir.Advance():
                self.cursors[stmt.cursor, w] = self.cursors.get((stmt.cursor, w), 0) + 1
            case tir.BarrierWait():
                it = next(b for b in self.kernel.barriers if b.name == stmt.barrier)
                b, parity = self.bar(stmt, w), self.cursors.get((stmt.cursor, w), 0) // it.stages + stmt.flip
                return lambda: b.phase % 2 != parity % 2
            case tir.BarrierArrive():
                b = self.bar(stmt, w)
                for t in {"thread": lanes, "warp": [32 * w], "role": [one] if one is not None else []}[stmt.per]:
                    self.arrive(b, self.clock[:, t])
            case tir.BarrierExpect() if one is not None:
                self.arrive(self.bar(stmt, w), self.clock[:, one], 1, stmt.bytes)
            case tir.CpCommit():
                self.groups[0, lanes] += 1
            case tir.CpWait():
                for word in self.words:
                    if word.copy and word.copy[0] in lanes and word.copy[1] < self.groups[0, word.copy[0]] - stmt.n:
                        word.writer, word.copy = (word.copy[0], self.tick(word.copy[0]), False), None
            case tir.CpArrive():
                mine = [n for n, word in enumerate(self.words) if word.copy and word.copy[0] in lanes]
                self.fly(stmt, w, -32, mine)
            case tir.TmaLoad() if one is not None:
                place = self.place(stmt.dst, w)
                for n in place:
                    self.touch(n, one, True, True)
                    self.words[n].writer, self.words[n].readers = (self.op, 1, True), {}
                self.fly(stmt, w, 4 * len(place), [])
            case tir.TmaStore() if one is not None:
                for n in self.place(stmt.src, w):
                    self.touch(n, one, False, True)
                    self.words[n].reading.append((one, int(self.groups[1, one])))
            case tir.BulkCommit() if one is not None:
                self.groups[1, one] += 1
            case tir.BulkWait() if one is not None:
                for word in self.words:
                    for t, g in list(word.reading):
                        if t == one and g < self.groups[1, one] - stmt.n:
                            word.reading.remove((t, g))
                            word.readers[t, True] = self.tick(t)
            case tir.StShared() | tir.LdShared() | tir.CpAsync():
                self.access(stmt, w, first)
        return None

    def meet(self, number: int, w: int, total: int, waits: bool):  # type: ignore[no-untyped-def]
        state = self.named.setdefault(number, [total, np.zeros((2, self.columns), int), None])
        if state[2] is None:
            state[2] = type("Generation", (), {"done": False, "rel": None, "__call__": lambda g: g.done})()
        state[0] -= 32
        state[1] = np.maximum(state[1], self.clock[:, 32 * w : 32 * w + 32].max(axis=1))
        generation = state[2]
        if state[0] == 0:
            generation.done, generation.rel = True, state[1]
            self.named[number] = [total, np.zeros((2, self.columns), int), None]
        return generation if waits else None

    def fly(self, stmt, w, size, words) -> None:  # type: ignore[no-untyped-def]
        b = self.bar(stmt, w)
        self.flying.append((self.op, b, size, words))  # type: ignore[arg-type]
        self.op += 1
        if self.op == self.columns:
            raise Broken("too long")

    def land(self, which: int) -> None:
        if self.flying[which][2] < 0:  # arrivals of one warp's copies keep their order
            which = next(n for n, f in enumerate(self.flying) if f[2] < 0)
        op, b, size, words = self.flying.pop(which)  # type: ignore[misc]
        vector = np.zeros((2, self.columns), int)
        vector[:, op] = 1
        for n in words:
            if self.words[n].copy:
                self.words[n].copy, self.words[n].writer = None, (op, 1, False)
        if size < 0:
            vector[1] = 0
        self.arrive(b, vector, 0 if size > 0 else -size, -size if size > 0 else 0)  # type: ignore[arg-type]

    def place(self, slot: tir.Slot, w: int) -> range:
        buffer = self.kernel.buffer(slot.buffer)
        at = buffer.offset + self.cursors.get((slot.cursor, w), 0) % buffer.stages * buffer.stride  # type: ignore[arg-type]
        return range(at // 4, (at + buffer.layout.bytes) // 4)

    def access(self, stmt, w, first) -> None:  # type: ignore[no-untyped-def]
        slot = stmt.src if isinstance(stmt, tir.LdShared) else stmt.dst
        name = (
            stmt.layout
            if isinstance(stmt, tir.CpAsync)
            else self.kernel.register(stmt.dst if isinstance(stmt, tir.LdShared) else stmt.src).layout
        )
        layout = self.kernel.layout(name)
        at = byte_offsets(self.kernel.buffer(slot.buffer).layout, coordinates(layout)) // 4 + self.place(slot, w).start
        events = [self.tick(t) for t in range(32 * w, 32 * w + 32)]
        for t in np.flatnonzero(active_threads(layout)):
            thread = int(t) + 32 * first
            if thread // 32 != w:
                continue
            for n in at[t]:
                word = self.words[n]
                self.touch(n, thread, not isinstance(stmt, tir.LdShared), False)
                if isinstance(stmt, tir.LdShared):
                    word.readers[thread, False] = events[thread % 32]
                else:
                    word.writer, word.readers = (thread, events[thread % 32], False), {}
                    word.copy = (thread, int(self.groups[0, thread])) if isinstance(stmt, tir.CpAsync) else None

    def touch(self, n: int, t: int, write: bool, engine: bool) -> None:
        word = self.words[n]

        def known(column: int, when: int, through: bool) -> bool:
            ordered = column == t or self.clock[0, t, column] >= when
            return ordered and (not engine or through or self.clock[1, t, column] >= when)

        if word.copy or (word.reading and write):
            raise Broken("in flight")
        if word.writer is None and not write:
            raise Broken("never written")
        if word.writer and not known(*word.writer):
            raise Broken("a write is not ordered")
        if write and not all(known(c, when, through) for (c, through), when in word.readers.items()):
            raise Broken("a read is not ordered")


STRICT = ("phase lead", "transaction bytes", "barrier life", "barrier reuse")
"""Faults that need not show in a run: the next kernel, or a slower thread, would show them."""


def expected(kernel: tir.Kernel, runs: int = 6) -> str | None:
    tiles = (0, 1, 2, 3) if any(d.name == "M" for d in kernel.dims) else (1,)
    for n, m in product((0, 1, 2, 4, 7), tiles):
        for seed in range(runs if n * m else 1):
            try:
                Run(kernel, {"N": n, "M": m}, seed).go()
            except Broken as broken:
                return f"{broken} at N = {n}, M = {m}, seed {seed}"
    return None


@pytest.mark.parametrize(("make", "count"), [(role_ring, 50), (role_nested, 20), (role_staged, 40)])
def test_agrees_with_random_runs(make, count: int) -> None:  # type: ignore[no-untyped-def]
    seen = {"safe": 0, "unsafe": 0, "strict": 0}
    for seed in range(count):
        text = make(seed)
        kernel = parse_kernel(text)
        verdict = check(kernel)
        if verdict.findings and verdict.findings[0].kind == "malformed":
            pytest.fail(f"{verdict.text()}\n{text}")
        if text.count("tma_store") > 1 and verdict.status == "not proved":
            assert "tensor engine" in verdict.reason, verdict.text()  # two stores to one place, in no order
            continue
        seen[verdict.status] += 1
        fault = expected(kernel)
        if verdict.status == "unsafe" and fault is None:
            assert verdict.findings[0].kind in STRICT, f"seed {seed}\n{verdict.text()}\n{text}"
            seen["strict"] += 1
        else:
            assert verdict.status == ("unsafe" if fault else "safe"), f"seed {seed}: {fault}\n{verdict.text()}\n{text}"
    assert min(seen["safe"], seen["unsafe"]) > 4, seen
    assert seen["strict"] * 3 < seen["unsafe"], seen
