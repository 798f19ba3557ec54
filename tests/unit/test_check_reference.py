"""The checker against the plainest model there is: a vector clock per thread and the records of every word."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np
import pytest

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


HEAD = """kernel random target sm_80 warps 2 smem 768
dim N
dim M
param a f32 [64, 64] in align 16
param b f32 [64, 64] out align 16
layout row [2, 32] reg - lane 0,1 0,2 0,4 0,8 0,16 warp 1,0 rep 1,1
layout col [2, 32] reg - lane 1,0 0,2 0,4 0,8 0,16 warp 0,1 rep 1,1
layout one [2, 32] reg 1,0 lane 0,1 0,2 0,4 0,8 0,16 warp 0,0 rep 1,1
"""
TAIL = """register x f32 layout row
register y f32 layout col
register z f32 layout one
body {
fill x <- 0.0
fill y <- 0.0
fill z <- 0.0
"""
LAYOUTS = {"x": "row", "y": "col", "z": "one"}


def program(seed: int) -> str:
    """Random, but with a leaning towards correct: mostly whole patterns of copy, wait, sync, read."""
    rng = random.Random(seed)
    stages = rng.choice([1, 2, 2, 3])
    other = rng.choice([stages * 256 % 768, 0, 256]) if stages < 3 else rng.choice([0, 512])
    slot = "p[{}]" if stages > 1 else "p"
    text = (
        HEAD
        + f"buffer p f32 [2, 32] stages {stages} at 0 stride 256\nbuffer q f32 [2, 32] stages 1 at {other} stride 256\n"
    )
    text += f"cursor u depth {stages}\ncursor v depth {stages}\n" if stages > 1 else ""
    text += TAIL

    def sync() -> str:
        return rng.choice(["sync_block", "sync_block", "sync_warp", "bar_sync 1 warps 0,1", "bar_sync 2 warps 0"])

    grid = rng.random() < 0.3
    text = text.replace("layout row", "grid g < M\nlayout row", 1) if grid else text

    def condition(index: str) -> str:
        if index and rng.random() < 0.7:
            return rng.choice(["{} < 1", "0 < {}", "{} % 2 == 0", "{} % 3 == 2", "{} + 1 < N", "{} != 1"]).format(index)
        if grid and rng.random() < 0.7:
            return rng.choice(["g == 0", "g + 1 < M", "g + 1 == M", "0 < g && g < 2", "g % 2 == 1"])
        return f"{rng.choice('012')} < {rng.choice('NM')}"

    def piece(depth: int, index: str = "") -> list[str]:
        register = rng.choice("xyz")
        place = slot.format(rng.choice("uv"))
        copied = rng.choice([place, place, "q"])
        match rng.randrange(12):
            case 0 | 1:
                body = [f"cp_async {copied} <- a[0, 0] layout {LAYOUTS[register]} bytes 4"]
                return body + (["advance u"] if stages > 1 and rng.random() < 0.6 else [])
            case 2:
                return [
                    f"cp_async {copied} <- a[0, 0] layout {LAYOUTS[register]} bytes 4",
                    "cp_commit",
                    "cp_wait 0",
                    sync(),
                ]
            case 3:
                return ["cp_commit"]
            case 4:
                return [f"cp_wait {rng.randrange(3)}"] + ([sync()] if rng.random() < 0.8 else [])
            case 5:
                return [sync(), f"ld_shared {register} <- {copied} bytes 4"]
            case 6:
                return [f"ld_shared {register} <- {copied} bytes 4"] + (["advance v"] if stages > 1 else [])
            case 7:
                return [f"st_shared {copied} <- {register} bytes 4", sync()]
            case 8:
                return [sync()]
            case 9 if depth < 2:
                count = rng.choice(["N", "N", "M", "3", "min(N, 2)", "N + 1"])
                name = f"i{depth}{rng.randrange(10**6)}"
                inner = [s for _ in range(rng.randrange(2, 6)) for s in piece(depth + 1, name)]
                return [f"for {name} = 0 .. {count} {{", *inner, "}"]
            case 10:
                inner = [s for _ in range(rng.randrange(1, 3)) for s in piece(2)]
                return [f"if {condition(index)} {{", *inner, "}"]
        return ["cp_commit", "cp_wait 0", "sync_block"]

    lines = [
        "cp_async p <- a[0, 0] layout row bytes 4".replace("p ", slot.format("u") + " "),
        "cp_commit",
        "cp_wait 0",
        "sync_block",
    ]
    lines += [s for _ in range(rng.randrange(1, 7)) for s in piece(0)]
    lines += ["cp_commit", "cp_wait 0"] if rng.random() < 0.8 else []
    return text + "\n".join(lines) + "\n}\n"


def ring(seed: int) -> str:
    """A ring with prologue and guard, every number drawn near the right one."""
    rng = random.Random(seed)
    stages = rng.choice([2, 3])
    ahead = stages - 1 if rng.random() < 0.8 else rng.randrange(0, stages + 1)
    read = rng.choice("xyz")
    write = read if rng.random() < 0.3 else rng.choice("xyz")
    copy = f"cp_async p[u] <- a[0, 0] layout {LAYOUTS[write]} bytes 4\nadvance u\n"
    text = (
        HEAD
        + f"buffer p f32 [2, 32] stages {stages} at 0 stride 256\ncursor u depth {stages}\ncursor v depth {stages}\n"
        + TAIL
    )
    for i in range(ahead):
        text += f"if {i} < N {{\n{copy}}}\n" + ("cp_commit\n" if rng.random() < 0.95 else "")
    wait = max(ahead - rng.choice([1, 1, 1, 0, 2]), 0)
    sync = rng.choice(["sync_block\n", "sync_block\n", "sync_block\n", "sync_warp\n", "bar_sync 1 warps 0\n", ""])
    again = rng.choice(["", "", "sync_block\n", "sync_warp\n"])
    guarded = f"if k + {ahead if rng.random() < 0.85 else ahead + 1} < N {{\n{copy}}}\ncp_commit\n"
    use = f"ld_shared {read} <- p[v] bytes 4\nadvance v\n"
    order = [guarded, use] if rng.random() < 0.7 else [use, guarded]
    inner = f"for k = 0 .. N {{\ncp_wait {wait}\n{sync}{order[0]}{again}{order[1]}}}\n"
    if rng.random() < 0.2:
        last = rng.choice(["", "cp_wait 0\n", "sync_block\n"])
        inner = f"for t = 0 .. M {{\n{inner}{last}}}\n"
    return text + inner + rng.choice(["", "", "cp_wait 0\n"]) + "}\n"


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
