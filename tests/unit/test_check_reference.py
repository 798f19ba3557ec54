"""The checker against the plainest model there is: a vector clock per thread and the records of every word."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from generators import program, ring

from tidegate.check import check
from tidegate.ir import tir
from tidegate.ir.expr import evaluate
from tidegate.ir.layout import active_threads, byte_offsets, coordinates
from tidegate.ir.text import parse_kernel


class Broken(Exception):
    pass


@dataclass
class Word:
    writer: tuple[int, int] | None = None  # (thread, its event)
    copy: tuple[int, int] | None = None  # (thread, group) of the writer while the copy may be in flight
    buffer: str = ""
    readers: dict[int, int] = field(default_factory=dict)


class Reference:
    """One CTA with concrete sizes. ``clock[t, s]``: the latest event of thread s that thread t knows."""

    def __init__(self, kernel: tir.Kernel, sizes: dict[str, int]) -> None:
        self.kernel, self.names = kernel, dict(sizes)
        self.clock = np.zeros((kernel.threads, kernel.threads), int)
        self.words = [Word() for _ in range(kernel.smem // 4)]
        self.cursors = {c.name: 0 for c in kernel.cursors}
        self.committed = [0] * kernel.threads

    def run(self) -> None:
        self.block(self.kernel.body)
        if any(b.copy for b in self.words):
            raise Broken("outstanding")

    def block(self, body: tuple[tir.Stmt, ...]) -> None:
        for stmt in body:
            if isinstance(stmt, tir.For):
                for i in range(evaluate(stmt.start, self.names), evaluate(stmt.stop, self.names)):
                    self.names[stmt.index] = i
                    self.block(stmt.body)
            elif isinstance(stmt, tir.If):
                if evaluate(stmt.condition, self.names):
                    self.block(stmt.body)
            else:
                self.step(stmt)

    def step(self, stmt: tir.Stmt) -> None:
        warps = range(self.kernel.warps)
        match stmt:
            case tir.CpAsync():
                self.access(stmt.dst, stmt.layout, "copy")
            case tir.StShared():
                self.access(stmt.dst, self.kernel.register(stmt.src).layout, "write")
            case tir.LdShared():
                self.access(stmt.src, self.kernel.register(stmt.dst).layout, "read")
            case tir.CpCommit():
                self.committed = [c + 1 for c in self.committed]
            case tir.CpWait():
                for b in self.words:
                    if b.copy and b.copy[1] < self.committed[b.copy[0]] - stmt.n:
                        thread = b.copy[0]
                        b.copy, b.writer = None, (thread, self.tick(thread))
            case tir.SyncWarp():
                for w in warps:
                    self.rendezvous([w])
            case tir.SyncBlock():
                self.rendezvous(list(warps))
            case tir.BarSync():
                self.rendezvous(list(stmt.warps))
            case tir.Advance():
                depth = next(c.depth for c in self.kernel.cursors if c.name == stmt.cursor)
                self.cursors[stmt.cursor] = (self.cursors[stmt.cursor] + 1) % depth

    def tick(self, thread: int) -> int:
        self.clock[thread, thread] += 1
        return int(self.clock[thread, thread])

    def rendezvous(self, warps: list[int]) -> None:
        threads = [w * 32 + lane for w in warps for lane in range(32)]
        self.clock[threads] = self.clock[threads].max(axis=0)

    def access(self, slot: tir.Slot, layout_name: str, how: str) -> None:
        layout, buffer = self.kernel.layout(layout_name), self.kernel.buffer(slot.buffer)
        coords = coordinates(layout)
        coords = tuple(reversed(coords)) if slot.transposed else coords
        at = byte_offsets(buffer.layout, tuple(c + o for c, o in zip(coords, slot.origin, strict=True)))
        at = at + buffer.offset + (self.cursors[slot.cursor] if slot.cursor else 0) * buffer.stride
        events = [self.tick(t) for t in range(layout.threads)]
        for t in np.flatnonzero(active_threads(layout)):
            for first in at[t]:
                self.touch(self.words[first // 4], int(t), events[t], how, buffer.name)

    def touch(self, b: Word, t: int, event: int, how: str, buffer: str) -> None:
        def known(thread: int, when: int) -> bool:
            return thread == t or self.clock[t, thread] >= when

        if b.copy:
            raise Broken("in flight")
        if b.writer and not known(*b.writer):
            raise Broken("race with a write")
        if how == "read":
            if b.writer is None or b.buffer != buffer:
                raise Broken("never written so")
            b.readers[t] = event
            return
        if not all(known(thread, when) for thread, when in b.readers.items()):
            raise Broken("race with a read")
        b.readers = {}
        b.writer, b.buffer = (t, event), buffer
        b.copy = (t, self.committed[t]) if how == "copy" else None


def expected(kernel: tir.Kernel, n: int, m: int) -> str | None:
    for j in range(m):
        for i in range(n):
            for g in range(j if kernel.grid else 1):
                try:
                    Reference(kernel, {"N": i, "M": j, "g": g}).run()
                except Broken as broken:
                    return f"{broken} at N = {i}, M = {j}, g = {g}"
    return None


@pytest.mark.parametrize("make", [program, ring])
def test_agrees_with_a_model_of_every_word_and_thread(make) -> None:
    seen = {"safe": 0, "unsafe": 0}
    for seed in range(60):
        text = make(seed)
        kernel = parse_kernel(text)
        verdict = check(kernel)
        if verdict.findings and verdict.findings[0].kind == "malformed":
            pytest.fail(f"{verdict.text()}\n{text}")
        fault = expected(kernel, 7, 4)
        seen[verdict.status] += 1
        assert verdict.status == ("unsafe" if fault else "safe"), f"seed {seed}: {fault}\n{verdict.text()}\n{text}"
    assert min(seen.values()) > 5, seen
