"""Integers, conditions and scalars together with copies that run ahead, gathers, slices, updates and products."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from forms import PRODUCERS, agrees, numbers
from judging import without

import tidegate as tg
from tidegate import cuda
from tidegate.check import check
from tidegate.ir import tir
from tidegate.ir.text import parse_kernel, print_kernel
from tidegate.lang.kernel import Kernel

BF16 = ml_dtypes.bfloat16
STAGES = (1, 2, 3, 4)


@tg.kernel(warps=2)
def chosen_blocks(
    x: tg.Tensor["N", "C", "f32"], use: tg.Tensor["N", "i32"], y: tg.Out["B", "C", "f32"], *, C=32, STAGES=2
):
    """A condition of its own for every copy that runs ahead; what one branch makes is carried."""
    for b in tg.grid(tg.tiles("B", 8)):
        total = tg.zeros((8, C))
        for n in tg.tiles("N", 8):
            if tg.load(use[tg.end(n) - 1]) > 2 and n != 1:
                tile = tg.load(x[n, :], by=cuda.cp_async(), stages=STAGES)
                total = total + tile.T[:, 0:8].T * 2.0
            else:
                total = total - 1.0
        y[b, :] = total


@pytest.mark.parametrize("stages", STAGES[:3])
@pytest.mark.parametrize("rows", [0, 5, 100])
def test_a_condition_around_a_copy_that_runs_ahead(stages: int, rows: int) -> None:
    use = np.random.default_rng(rows).integers(0, 6, rows).astype("i4")
    agrees(
        chosen_blocks, numbers(rows, 32), use, numbers(8, 32), compile_text=rows == 5, STAGES=stages, multiples={"N": 1}
    )


@tg.kernel(warps=2)
def ragged_bags(
    index: tg.Tensor["B", "N", "i32"],
    counts: tg.Tensor["B", "i32"],
    x: tg.Tensor["R", "C", "f32"],
    shift: tg.Scalar["i32"],
    y: tg.Out["B", 8, "C", "f32"],
    *,
    C=32,
    STAGES=2,
):
    """How many rows are gathered is read, and so is from where on; a scalar moves them."""
    for b in tg.grid(tg.range("B")):
        total = tg.zeros((8, C))
        for n in tg.tiles(tg.load(counts[b]), 8):
            rows = tg.load(index[b, n])
            kept = tg.where(tg.positions(n) < tg.load(counts[b]), rows + shift, -1)
            total = total + tg.load(x[kept, :], by=cuda.cp_async(), stages=STAGES)
        y[b, :, :] = total


@pytest.mark.parametrize("stages", STAGES)
def test_a_gather_of_a_number_of_rows_that_is_read(stages: int) -> None:
    index = np.random.default_rng(0).integers(-2, 24, (7, 48)).astype("i4")
    counts = np.array([0, 1, 8, 13, 40, 60, -3], "i4")
    agrees(ragged_bags, index, counts, numbers(20, 32), 3, numbers(7, 8, 32), compile_text=stages == 3, STAGES=stages)


@tg.kernel(warps=2)
def moved(
    x: tg.Tensor["T", "C", "f32"],
    starts: tg.Tensor["B", "i32"],
    back: tg.Scalar["i32"],
    alpha: tg.Scalar["f32"],
    y: tg.Out["B", 8, "C", "f32"],
    *,
    C=32,
    STAGES=2,
):
    """Slices from a number on that is read, less one that is given: both ends may lie outside."""
    for b in tg.tiles("B", 1):
        start = tg.load(starts[tg.begin(b)]) - back
        first = tg.load(x[start : start + 8, :], stages=STAGES)
        second = tg.load(x[8 * start + 8 : 8 * start + 16, :], stages=STAGES)
        y[tg.begin(b), :, :] = first * alpha + second


@pytest.mark.parametrize("stages", STAGES)
@pytest.mark.parametrize("back", [-(2**27), 0, 3])
def test_a_slice_from_a_number_on(stages: int, back: int) -> None:
    starts = np.array([-20, -3, 0, 1, 5, 29, 40, 2**28 - 3], "i4") if back in (0, 3) else np.arange(8, dtype="i4")
    text = back == 0 and stages == 3
    arguments = numbers(30, 32), starts, back, 0.5, numbers(8, 8, 32)
    agrees(moved, *arguments, compile_text=text, STAGES=stages, multiples={"T": 1})


@tg.kernel(warps=4)
def updates(
    x: tg.Tensor["M", "C", "f32"],
    what: tg.Tensor["M", "i32"],
    y: tg.InOut["M", "C", "f32"],
    sums: tg.InOut["S", "C", "f32"],
    *,
    C=32,
):
    """Updates and atomic additions under conditions; a later read of other threads' rows comes behind them."""
    for m in tg.grid(tg.tiles("M", 8)):
        row = tg.load(what[tg.begin(m)])
        tile = tg.load(x[m, :])
        for r in tg.range(3):
            if row == r or r > 1:
                y[m, :] += tile
                tg.atomic_add(sums[row : row + 8, :], tile)
            elif row > 7:
                y[m, :] = tile.T.T * 3.0
        if row < 100:
            y[m, :] *= tg.load(y[m, :]).max(axis=1)[:, None]


def test_updates_under_conditions() -> None:
    what = np.array([0] * 8 + [1] * 8 + [9] * 8 + [-4] * 8 + [2] * 3, "i4")
    x = np.round(numbers(35, 32) * 4)
    agrees(
        updates, x, what, np.round(numbers(35, 32, seed=1) * 4), np.zeros((12, 32), "f4"), multiples={"M": 1, "S": 1}
    )


@tg.kernel(warps=4)
def counted_gemm(
    a: tg.Tensor["M", "K", "bf16"],
    b: tg.Tensor["K", "N", "bf16"],
    depth: tg.Tensor["G", "i32"],
    scale: tg.Scalar["f32"],
    c: tg.Out["M", "N", "f32"],
    *,
    STAGES=3,
    DROP=False,
):
    """The GEMM loop for a depth that is read; ``DROP``: with a condition that touches no tile of the loop."""
    for m, n in tg.grid(tg.tiles("M", 64), tg.tiles("N", 64)):
        acc = tg.zeros((64, 64))
        for k in tg.tiles(tg.load(depth[tg.end(m) // 64 - 1]), 32):
            x = tg.load(a[m, k], by=cuda.cp_async(), stages=STAGES)
            y = tg.load(b[k, n], by=cuda.cp_async(), stages=STAGES)
            acc = tg.dot(x, y, acc, by=cuda.mma())
            if DROP and (k == 1 or tg.load(depth[0]) == 3):
                acc = acc * scale
        c[m, n] = acc * scale


@pytest.mark.parametrize("drop", [False, True])
@pytest.mark.parametrize("stages", STAGES)
def test_the_pipelined_loop_of_a_number_of_trips_that_is_read(stages: int, drop: bool) -> None:
    depth = np.array([0, 1, 64, 96, 200, -5][:: 1 if stages > 1 else 2], "i4")
    a, b = numbers(64 * len(depth), 96, dtype=BF16), numbers(96, 64, dtype=BF16, seed=1)
    arguments = a, b, depth, -0.5, numbers(64 * len(depth), 64)
    agrees(counted_gemm, *arguments, compile_text=stages == 3, STAGES=stages, DROP=drop)


def test_its_first_fragments_are_read_a_trip_early() -> None:
    k = counted_gemm.compile("sm_80", plan="multistage", STAGES=3)
    (loop,) = k.plan.schedule
    assert loop.early
    assert loop.sooner


@tg.kernel(warps=2)
def mixed(
    x: tg.Tensor["M", "C", "f16"],
    q: tg.Tensor["M", "C", "i8"],
    w: tg.Tensor["M", "C", "i64"],
    alpha: tg.Scalar["f32"],
    n: tg.Scalar["i32"],
    y: tg.Out["M", "C", "f16"],
    p: tg.Out["M", "C", "i8"],
    v: tg.Out["M", "C", "i64"],
    *,
    C=32,
):
    """Numbers of a run beside tiles of every size: as f32, as 32 bits, as 64."""
    for m in tg.grid(tg.tiles("M", 8)):
        t = tg.load(x[m, :])
        y[m, :] = tg.where(t > alpha, t * alpha + n, tg.full((8, C), alpha, "f16"))
        p[m, :] = tg.maximum(tg.load(q[m, :]), n) + n * 3
        v[m, :] = (tg.load(w[m, :]) + n) // tg.full((8, C), n * n + 1, "i64")


@pytest.mark.parametrize("n", [-(2**15), 0, 5])
def test_numbers_beside_tiles_of_every_size(n: int) -> None:
    rng = np.random.default_rng(0)
    q = rng.integers(-128, 128, (11, 32)).astype("i1")
    w = rng.integers(-(2**40), 2**40, (11, 32))
    outs: list[Any] = [np.zeros((11, 32), kind) for kind in ("f2", "i1", "i8")]
    agrees(mixed, numbers(11, 32, dtype="f2"), q, w, 0.3, n, *outs, compile_text=n == 5, multiples={"M": 1})


def test_integers_of_a_fill_ahead_are_its_own() -> None:
    k = chosen_blocks.compile("sm_80", plan="multistage", STAGES=3)
    read = [s.scalar for s in tir.walk(k.kernel.body) if isinstance(s, tir.LdScalar)]
    copies = [name for name in read if name.endswith("_ahead")]
    assert len(copies) == 3  # two in the prologue, one in the loop
    assert len(read) == 4


@pytest.mark.parametrize("producer", PRODUCERS)
@pytest.mark.parametrize("kernel", [chosen_blocks, ragged_bags, moved, counted_gemm], ids=lambda k: k.name)
def test_every_sync_is_necessary(kernel: Kernel, producer: str) -> None:
    k = kernel.compile("sm_80", plan=producer, STAGES=3)
    assert k.plan.syncs
    for sync in k.plan.syncs:
        verdict = check(replace(k.kernel, body=without(k.kernel.body, sync)))
        assert verdict.status == "unsafe", f"{sync}: {verdict.text()}"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("use[=(n + 3) * 8 - 1 < N]", "use[=(n + 3) * 8 < N]"),
        ("if 2 < n2_ahead && n + 2 != 1", "if 3 < n2_ahead && n + 2 != 1"),
        ("if n + 2 < cdiv(N, 8)", "if n + 3 < cdiv(N, 8)"),
    ],
)
def test_a_fill_that_asks_another_question_than_its_reader_is_found(before: str, after: str) -> None:
    text = print_kernel(chosen_blocks.compile("sm_80", plan="multistage", STAGES=3).kernel)
    assert text.count(before) == 1
    assert check(parse_kernel(text.replace(before, after))).status == "unsafe"
