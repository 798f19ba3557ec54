"""Faults of place: control flow around barriers, shared memory, alignment, registers, shapes of instructions."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import pytest
from agreement import agree, normal, unwritten
from stopwatch import least_seconds

import tidegate as tg
from tidegate import cuda
from tidegate.errors import BadSchedule, CopyAlignment, NoInstruction, OverCapacity, WrongWarps
from tidegate.ir import tir
from tidegate.ir.expr import Expr, symbols

F16 = np.float16

# ------------------------------------------------------------------------------------------ 10 divergence


@tg.kernel(warps=4)
def edges(a: tg.Tensor["M", "N", "f32"], b: tg.Out["N", "M", "f32"]):
    for m in tg.grid(tg.tiles("M", 16)):
        for n in tg.tiles("N", 32, until=tg.end(m)):
            t = tg.load(a[m, n], stages=2)
            b[n, m] = t.T


def test_10_barrier_under_control_of_a_thread() -> None:
    """A barrier is reached by the threads that have work, or not after an early return; the others wait for ever.

    Edges are masks of single accesses: no thread returns early, and loops and guards around a barrier ask for sizes and
    indices of the CTA only, the same for all its threads."""
    compiled = edges.compile(target="sm_80")
    control = [s for s in tir.walk(compiled.kernel.body) if isinstance(s, tir.For | tir.If)]
    asked = {name for stmt in control for e in bounds_of(stmt) for name in symbols(e)}
    assert asked <= {"M", "N", "m", "n"}
    kernel = compiled.cuda.split("__global__")[-1]
    assert "return" not in kernel
    threaded = [line for line in kernel.splitlines() if "if (" in line and re.search(r"thread|lane|warp", line)]
    assert not any("sync" in line for line in threaded)


def bounds_of(stmt: tir.Stmt) -> tuple[Expr, ...]:
    return (stmt.condition,) if isinstance(stmt, tir.If) else (stmt.start, stmt.stop)  # type: ignore[attr-defined]


@tg.kernel(warps=4)
def narrow(a: tg.Tensor["M", 8, "f32"], b: tg.Out[8, "M", "f32"]):
    for m in tg.tiles("M", 8):
        t = tg.load(a[m, :], by=cuda.cp_async(bytes=4))
        b[:, m] = t.T


def test_10_barrier_identifiers_and_counts() -> None:
    """A barrier of some warps takes the number of the whole block's, or a count of other threads than its own.

    Barrier 0 is the block's alone; a named one counts 32 threads for each of the warps that it lists."""
    compiled = agree(narrow, normal(20, 8), unwritten(8, 20), multiples={"M": 4})["multistage"]
    named = [s for s in tir.walk(compiled.kernel.body) if isinstance(s, tir.BarSync)]
    assert named
    assert all(1 <= s.barrier <= 15 for s in named)
    calls = re.findall(r"bar_sync\((\d+), (\d+)\)", compiled.cuda.split("__global__")[-1])
    assert calls == [("1", "64")] * len(named)


# ------------------------------------------------------------------------------------------ 14 shapes of products


@tg.kernel(warps=2)
def product(a: tg.Tensor["M", "K", "f16"], b: tg.Tensor["K", "N", "f16"], c: tg.Out["M", "N", "f32"], *, T=(16, 8, 16)):
    for m, n in tg.grid(tg.tiles("M", T[0]), tg.tiles("N", T[1])):
        acc = tg.zeros((T[0], T[1]))
        for k in tg.tiles("K", T[2]):
            acc = tg.dot(tg.load(a[m, k]), tg.load(b[k, n]), acc, by=cuda.mma())
        c[m, n] = acc


@pytest.mark.parametrize("tile", [(16, 8, 16), (48, 24, 80), (96, 40, 16), (80, 16, 48)], ids=str)
def test_14_legal_shapes_compute(tile: tuple[int, int, int]) -> None:
    """A shape is accepted for which there is no instruction, or legal ones are not tried.

    Legality is a table: multiples of the instruction's shape, powers of two or not, and nothing else."""
    rows, columns, depth = (size + 8 for size in tile)
    a, b, c = normal(rows, depth, dtype=F16), normal(depth, columns, dtype=F16), unwritten(rows, columns)
    agree(product, a, b, c, T=tile, multiples={"M": 2, "N": 8, "K": 8})


def test_14_illegal_shapes_are_refused_at_once() -> None:
    """What the instruction cannot do is refused with all the sizes that break its rule and the nearest legal ones."""
    with pytest.raises(NoInstruction) as caught:
        product.compile(target="sm_80", T=(15, 12, 24))
    assert all(text in str(caught.value) for text in ("M=15", "use 16", "N=12", "K=24", "use 32"))


@tg.kernel(warps=2)
def touched(a: tg.Tensor["K", 16, "f16"], c: tg.Out[16, 16, "f32"], d: tg.Out["K", 16, "f32"]):
    acc = tg.zeros((16, 16))
    for k in tg.tiles("K", 16):
        x = tg.load(a[k, :], by=cuda.cp_async(), stages=3)
        acc = tg.dot(x, x.T, acc)
        d[k, :] = tg.where(acc > 0.0, acc, 0.0)
        acc = tg.where(acc > 4.0, acc * 0.5, acc)
    c[:, :] = acc


def test_14_accumulator_is_read_inside_the_loop() -> None:
    """An accumulator is read and written between products, while one of them is still under way.

    mma.sync has completed when the next instruction reads its result; the accumulator is a carried value."""
    agree(touched, normal(80, 16, dtype=F16), unwritten(16, 16), unwritten(80, 16), multiples={"K": 16})


# ------------------------------------------------------------------------------------------ 15 allocation


@tg.kernel(warps=2)
def phases(a: tg.Tensor["M", "N", "f32"], b: tg.Tensor["M", "N", "f32"], c: tg.Out["N", "M", "f32"]):
    for m in tg.tiles("M", 16):
        for n in tg.tiles("N", 16):
            x = tg.load(a[m, n], by=cuda.cp_async(), stages=2)
            c[n, m] = x.T
        for n in tg.tiles("N", 16):
            y = tg.load(b[m, n], by=cuda.cp_async(), stages=2)
            c[n, m] = y.T


def test_15_touches_attached_to_the_outer_loop() -> None:
    """Buffers of different phases of a loop seem to live through all of it, or a carried one through a phase only.

    Rings of two inner loops share bytes, at the price of a sync; a ring is live across the whole of its own loop."""
    arrays = [normal(32, 48), normal(32, 48, seed=1), unwritten(48, 32)]
    compiled = agree(phases, *arrays, multiples={"M": 4, "N": 4})["multistage"]
    first, second = compiled.smem.buffers
    assert first.offset == second.offset == 0
    assert compiled.smem.peak == first.bytes
    apart = phases.compile(target="sm_80", share=False)
    assert apart.smem.peak == first.bytes + second.bytes


@tg.kernel(warps=4)
def scratch(a: tg.Tensor["M", 64, "f32"], b: tg.Out[64, "M", "f32"]):
    for m in tg.tiles("M", 8):
        t = tg.load(a[m, :], by=cuda.cp_async(), stages=3)
        u = t - t.max(axis=0, keepdims=True) + t.sum(axis=1)[:, None]
        b[:, m] = u.T


def test_15_scratch_outside_the_model() -> None:
    """Scratch of a reduction or a change of layout lies over a buffer that is in use, because no analysis saw it.

    Scratch is a ring like others: it has its row in the report, its life and its syncs."""
    compiled = agree(scratch, normal(20, 64), unwritten(64, 20), multiples={"M": 4})["multistage"]
    rows = sorted(compiled.smem.buffers, key=lambda b: b.offset)
    ring = next(b for b in rows if b.stages == 3)
    others = [b for b in rows if b is not ring]
    assert others
    assert all(b.offset >= ring.offset + ring.bytes or b.offset + b.bytes <= ring.offset for b in others)
    assert compiled.smem.peak == max(b.offset + b.bytes for b in rows) == compiled.kernel.smem


@tg.kernel(warps=2)
def chosen(a: tg.Tensor["K", 32, "f32"], b: tg.Tensor["K", 32, "f32"], c: tg.Out[32, 16, "f32"]):
    one = tg.zeros((16, 32))
    two = tg.zeros((16, 32))
    for k in tg.tiles("K", 16):
        x = tg.load(a[k, :], by=cuda.cp_async())
        y = tg.load(b[k, :], by=cuda.cp_async())
        old = one
        one = tg.where(x > y, two, x)
        two = tg.where(y > 0.0, old, y)
    c[:, :] = (one - two).T


def test_15_a_choice_keeps_all_candidates() -> None:
    """Behind a choice, or an exchange of names, only one of the buffers that may be meant is kept alive.

    Choices are elementwise on values, carried values are registers, and names are gone before memory is given out."""
    agree(chosen, normal(70, 32), normal(70, 32, seed=1), unwritten(32, 16), multiples={"K": 2})


# ------------------------------------------------------------------------------------------ 16 size and alignment


@tg.kernel(warps=4)
def block(a: tg.Tensor["R", "C", "f32"], b: tg.Out["C", "R", "f32"], *, ROWS=32, S=1):
    for c in tg.tiles("C", 32):
        for r in tg.tiles("R", ROWS):
            t = tg.load(a[r, c], by=cuda.cp_async(), stages=S)
            b[c, r] = t.T


@pytest.mark.parametrize(("target", "capacity"), [("sm_80", 166912), ("sm_86", 101376), ("sm_89", 101376)])
def test_16_exactly_the_capacity(target: str, capacity: int) -> None:
    """A size that is estimated is wrong at the limit: 48 KiB and one byte, all that there is, and one slot more.

    The size is exact: the largest number of slots fits, one more is refused with a table of the buffers."""
    slot = 16384
    most = capacity // slot
    assert block.compile(target=target, ROWS=128, S=most).smem.peak == most * slot <= capacity
    assert block.smem(target, ROWS=128, S=3).peak == 49152
    with pytest.raises(OverCapacity) as caught:
        block.compile(target=target, ROWS=128, S=most + 1)
    assert f"stages={most} is the most that fits" in str(caught.value)
    assert "t " in str(caught.value)
    assert str(capacity) in str(caught.value)


def test_16_wrong_culprit() -> None:
    """2048 threads and 60 KiB of shared memory: the report speaks of memory.

    Threads are checked first and reported as such."""
    with pytest.raises(WrongWarps, match="64"):
        block.compile(target="sm_89", S=15, warps=64)


@pytest.mark.parametrize("rows", [8, 24, 40, 5])
def test_16_alignment_of_every_slot(rows: int) -> None:
    """Alignment is checked for the ring's first byte only, or before the ring is expanded.

    Each slot is aligned for the widest access to it, at its absolute address."""
    given = {"ROWS": rows, "S": 3, "multiples": {"R": 1, "C": 4}}
    compiled = agree(block, normal(50, 64), unwritten(64, 50), **given)["multistage"]
    (ring,) = compiled.smem.buffers
    (buffer,) = compiled.plan.buffers
    assert buffer.offset % 16 == 0
    assert buffer.stride % 16 == 0
    assert buffer.stride >= rows * 32 * 4
    assert ring.bytes >= 2 * buffer.stride + rows * 32 * 4


@pytest.mark.parametrize("columns", [24, 40, 48, 80, 96, 104])
def test_16_swizzle_with_odd_rows(columns: int) -> None:
    """A swizzle for rows of 128 bytes is laid over rows of other lengths, tears accesses apart or leaves the buffer.

    The swizzle is chosen per buffer from all accesses to it; every piece stays whole and inside."""
    a, b, c = normal(40, columns, dtype=F16), normal(columns, 40, dtype=F16), unwritten(40, 40)
    k = columns if columns % 16 == 0 else 16
    agree(product, a, b, c, T=(16, 40, k), multiples={"M": 8, "N": 8, "K": 8})


# ------------------------------------------------------------------------------------------ 17 copies that fall back


@tg.kernel(warps=2)
def rows(a: tg.Tensor["M", "N", "f32"], b: tg.Out["N", "M", "f32"], *, BY=cuda.cp_async()):  # noqa: B008
    for m in tg.grid(tg.tiles("M", 16)):
        for n in tg.tiles("N", 32):
            t = tg.load(a[m, n], by=BY, stages=3)
            b[n, m] = t.T


@pytest.mark.parametrize(("columns", "bytes_"), [(256, 16), (250, 8), (251, 4)])
def test_17_mixed_legality(columns: int, bytes_: int) -> None:
    """Rows of 250 elements are not aligned as the copy wants; some copies fall back after the waits were counted.

    How wide pieces are follows from the tensor's sizes before anything is planned."""
    a, b = normal(18, columns), unwritten(columns, 18)
    for producer in agree(rows, a, b, N=columns, multiples={"M": 2}).values():
        copies = [s for s in tir.walk(producer.kernel.body) if isinstance(s, tir.CpAsync)]
        assert {s.bytes for s in copies} == {bytes_}


@tg.kernel(warps=2)
def halves(a: tg.Tensor["M", "N", "f16"], b: tg.Out["N", "M", "f16"], *, BY=None):
    for m in tg.grid(tg.tiles("M", 16)):
        for n in tg.tiles("N", 32):
            t = tg.load(a[m, n], by=BY, stages=3)
            b[n, m] = t.T


def test_17_unaligned_rows() -> None:
    """A copy in 16 bytes begins at an odd element: an illegal address at run time.

    What is asked for is refused with the tensor and its alignment; what is left open is loaded otherwise."""
    with pytest.raises(CopyAlignment, match="2 bytes"):
        halves.compile(target="sm_80", BY=cuda.cp_async(), N=251)
    with pytest.raises(CopyAlignment, match=r"pieces of 16 aligned bytes.* only 8 bytes"):
        rows.compile(target="sm_80", BY=cuda.cp_async(bytes=16), N=250)
    compiled = agree(halves, normal(18, 251, dtype=F16), unwritten(251, 18, dtype=F16), N=251)["multistage"]
    assert "cp_async" not in compiled.tir


# ------------------------------------------------------------------------------------------ 18 registers


def test_18_more_registers_than_there_are() -> None:
    """A tile per thread that no register file holds is found by the back end, as spills or as a launch that fails.

    Tiles that cannot be held are refused before anything is computed per element, and bounds are given to the back
    end; nothing asks for a fixed number of registers."""

    def refused() -> None:
        with pytest.raises((NoInstruction, OverCapacity)):
            product.compile(target="sm_80", T=(4096, 4096, 16), warps=1)

    assert least_seconds(refused, tries=1) < 5
    text = product.compile(target="sm_80").cuda
    assert "__launch_bounds__(64, 1)" in text
    assert "setmaxnreg" not in text


def test_17_what_cannot_be_planned_is_refused() -> None:
    """An instruction that the plan does not know is accepted and silently replaced by another."""
    with pytest.raises(BadSchedule, match="cannot be made yet"):
        rows.compile(target="h200", BY=cuda.tma())


def test_15_rings_that_live_together_lie_apart() -> None:
    """Two rings of one loop, or a ring and what lives behind it, are given one place."""
    compiled = chosen.compile(target="sm_80")
    placed = sorted(compiled.smem.buffers, key=lambda b: b.offset)
    assert all(one.offset + one.bytes <= two.offset for one, two in pairwise(placed[:2]))
