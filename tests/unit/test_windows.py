"""Windows beyond tiles: gathered rows and slices, against NumPy and through plan, check, simulation and CUDA text."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from forms import agrees, numbers
from kernels import example
from test_language_errors import load, source

import tidegate as tg
from tidegate import cuda
from tidegate.errors import TidegateError
from tidegate.ir import tir

BF16 = ml_dtypes.bfloat16
COPY = cuda.cp_async()


def rows_for(*shape: int, most: int, seed: int = 0) -> np.ndarray:
    """Positions, some of them before or behind the axis."""
    return np.random.default_rng(seed).integers(-3, most + 4, shape).astype(np.int32)


def taken(x: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """x[rows], zero for rows outside."""
    inside = (rows >= 0) & (rows < len(x))
    return np.where(inside[:, None], x[np.where(inside, rows, 0)], np.zeros((), x.dtype))


# ------------------------------------------------------------------------------------------ gathers


@tg.kernel(warps=4)
def take(index: tg.Tensor["M", "i32"], x: tg.Tensor["R", "D", "f32"], y: tg.Out["M", "D", "f32"], *, D=64):
    for m in tg.grid(tg.tiles("M", 16)):
        rows = tg.load(index[m])
        y[m, :] = tg.load(x[rows, :]) * 2.0


@tg.kernel(warps=4)
def bag(
    index: tg.Tensor["B", "L", "i32"],
    table: tg.Tensor["R", "D", "f32"],
    y: tg.Out["B", "D", "f32"],
    *,
    D=64,
    STAGES=3,
    BY=COPY,
    LENGTH=0,
):
    """The rows are computed in the loop: a fill that runs ahead computes them again. Behind the end of the index, which
    reads as 0, no row is meant."""
    for b in tg.grid(tg.range("B")):
        total = tg.zeros((D,))
        for n in tg.tiles("L", 16):
            rows = tg.load(index[b, n])
            found = tg.where(tg.positions(n) < LENGTH, rows + 1, -1)
            total = total + tg.load(table[found, :], by=BY, stages=STAGES).sum(axis=0)
        y[b, :] = total


@tg.kernel(warps=4)
def product(
    index: tg.Tensor["M", "i32"],
    x: tg.Tensor["R", "K", "bf16"],
    w: tg.Tensor["K", "N", "bf16"],
    y: tg.Out["M", "N", "f32"],
    *,
    STAGES=3,
):
    """The rows are loaded before the loop, once per thread that copies them."""
    for m, n in tg.grid(tg.tiles("M", 32), tg.tiles("N", 32)):
        rows = tg.load(index[m])
        acc = tg.zeros((32, 32))
        for k in tg.tiles("K", 32):
            a = tg.load(x[rows, k], by=cuda.cp_async(), stages=STAGES)
            b = tg.load(w[k, n], by=cuda.cp_async(), stages=STAGES)
            acc = tg.dot(a, b, acc)
        y[m, n] = acc


@tg.kernel(warps=2)
def middle(index: tg.Tensor["M", "i32"], x: tg.Tensor[3, "R", "D", "f32"], y: tg.Out["M", 3, "D", "f32"], *, D=32):
    """Another axis, and rows that are used as numbers as well."""
    for m in tg.grid(tg.tiles("M", 8)):
        rows = tg.load(index[m])
        for h in tg.range(3):
            t = tg.load(x[h, rows, :], to="shared")
            y[m, h, :] = tg.where(rows[:, None] > 2, t, 1.0)


@tg.kernel(warps=2)
def exchanged(x: tg.Tensor["M", 16, "f32"], table: tg.Tensor["R", 64, "f32"], y: tg.Out["M", 64, "f32"]):
    """Rows that are no loads: other threads hold them, or the trip before has made them."""
    for m in tg.grid(tg.tiles("M", 16)):
        rows = tg.load(x[m, :]).argmax(axis=1)
        total = tg.load(table[rows, :])
        for _ in tg.range(2):
            rows = rows + 1
            total += tg.load(table[rows, :], to="shared")
        y[m, :] = total


@tg.kernel(warps=2)
def chosen(
    x: tg.Tensor["M", 16, "f32"],
    shift: tg.Tensor["K", 16, "i32"],
    table: tg.Tensor["R", 64, "f32"],
    y: tg.Out["M", 64, "f32"],
    *,
    STAGES=3,
):
    """A fill that runs ahead needs what was made in front of the loop, and held otherwise."""
    for m in tg.grid(tg.tiles("M", 16)):
        rows = tg.load(x[m, :]).argmax(axis=1)
        total = tg.zeros((16, 64))
        for k in tg.range("K"):
            total += tg.load(table[rows, :], by=COPY, stages=STAGES)
            total += tg.load(table[rows + tg.load(shift[k, :]), :], by=COPY, stages=STAGES)
        y[m, :] = total


@pytest.mark.parametrize("count", [0, 1, 4])
def test_fills_that_run_ahead_take_rows_from_before_the_loop(count: int) -> None:
    x, table, shift = numbers(20, 16), numbers(17, 64), rows_for(count, 16, most=4)
    (y,) = agrees(chosen, x, shift, table, np.full((20, 64), np.nan, "f4"), multiples={"M": 4, "R": 1, "K": 1})
    rows = x.argmax(axis=1)
    shifts = np.tile(shift, 2)[:, :20]
    assert np.allclose(y, sum((table[rows] + taken(table, rows + s) for s in shifts), np.float32(0)), atol=1e-5)


def test_rows_may_be_results_of_any_kind() -> None:
    x, table = numbers(20, 16), numbers(17, 64)
    (y,) = agrees(exchanged, x, table, np.full((20, 64), np.nan, "f4"), multiples={"M": 4, "R": 1})
    best = x.argmax(axis=1).astype("i4")
    wanted = taken(table, best) + taken(table, best + 1) + taken(table, best + 2)
    assert np.allclose(y, wanted, atol=1e-5)


@pytest.mark.parametrize("count", [0, 8, 40])
def test_rows_are_taken_and_rows_outside_are_zero(count: int) -> None:
    index, x = rows_for(count, most=20), numbers(20, 64)
    (y,) = agrees(take, index, x, np.full((count, 64), np.nan, "f4"), multiples={"M": 8, "R": 1})
    assert np.array_equal(y, taken(x, index) * 2)


@pytest.mark.parametrize("by", [cuda.cp_async(), cuda.ld()], ids=str)
@pytest.mark.parametrize("stages", [1, 2, 3, 4])
def test_fills_that_run_ahead_compute_their_rows(stages: int, by: Any) -> None:
    x = numbers(20, 64)
    for length in (0, 8, 16, 72):
        index = rows_for(3, length, most=20)
        out = np.full((3, 64), np.nan, "f4")
        (y,) = agrees(bag, index, x, out, STAGES=stages, BY=by, LENGTH=length, multiples={"L": 8, "R": 1})
        wanted = [taken(x, row + 1).sum(axis=0) for row in index]
        assert np.allclose(y, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("stages", [1, 3])
def test_a_gathered_product_copies_16_bytes_at_a_time(stages: int) -> None:
    for depth in (0, 24, 136):
        index, x, w = rows_for(40, most=20), numbers(20, depth, dtype=BF16), numbers(depth, 40, dtype=BF16)
        out = np.full((40, 40), np.nan, "f4")
        (y,) = agrees(product, index, x, w, out, STAGES=stages, multiples={"K": 8, "M": 8, "N": 8, "R": 1})
        assert np.allclose(y, taken(x, index).astype("f4") @ w.astype("f4"), rtol=1e-3, atol=1e-3)
    kernel = product.compile("sm_80", STAGES=stages).kernel
    assert {s.bytes for s in tir.walk(kernel.body) if isinstance(s, tir.CpAsync)} == {16}
    loads = [s for s in kernel.body if isinstance(s, tir.LdGlobal)]
    assert len(loads) == 1, "the rows are loaded outside the loop"


def test_another_axis_and_rows_as_numbers() -> None:
    index, x = rows_for(20, most=6), numbers(3, 6, 32)
    (y,) = agrees(middle, index, x, np.full((20, 3, 32), np.nan, "f4"), multiples={"M": 4, "R": 1})
    wanted = np.stack([taken(part, index) for part in x], axis=1)
    assert np.array_equal(y, np.where(index[:, None, None] > 2, wanted, np.float32(1)))


# ------------------------------------------------------------------------------------------ slices


@tg.kernel(warps=2)
def shifted(x: tg.Tensor["T", "C", "f16"], y: tg.Out["T", "C", "f16"], *, BEFORE=1, LEFT=1):
    for t, c in tg.grid(tg.tiles("T", 8), tg.tiles("C", 16)):
        part = tg.load(x[tg.begin(t) - BEFORE : tg.end(t) - BEFORE, tg.begin(c) - LEFT : tg.end(c) - LEFT])
        y[t, c] = part


@tg.kernel(warps=1)
def constant_slices(x: tg.Tensor["R", 24, "f32"], y: tg.Out["R", 16, "f32"], z: tg.Out["R", 16, "f32"]):
    for r in tg.grid(tg.tiles("R", 4)):
        y[r, 0:8] = tg.load(x[r, 16:])
        y[r, 8:16] = tg.load(x[r, 4:12], to="shared")
        z[r, :] = tg.load(x[r, 12:28])


def moved(x: np.ndarray, down: int, right: int) -> np.ndarray:
    out = np.zeros_like(x)
    rows, columns = (np.arange(n) - by for n, by in zip(x.shape, (down, right), strict=True))
    inside = ((rows >= 0) & (rows < len(x)))[:, None] & ((columns >= 0) & (columns < x.shape[1]))
    out[inside] = x[np.ix_(rows % max(len(x), 1), columns % max(x.shape[1], 1))][inside]
    return out


@pytest.mark.parametrize(("before", "left"), [(1, 1), (8, 4), (0, -3), (-2, -4), (20, 40)])
def test_slices_reach_beyond_both_ends(before: int, left: int) -> None:
    for shape in ((0, 16), (12, 24), (21, 40)):
        x = numbers(*shape, dtype="f2")
        out = np.full(shape, np.nan, "f2")
        (y,) = agrees(shifted, x, out, BEFORE=before, LEFT=left, multiples={"T": 1, "C": 8})
        assert np.array_equal(y, moved(x, before, left))


def test_an_offset_decides_how_wide_accesses_are() -> None:
    def widths(left: int) -> set[int]:
        kernel = shifted.compile("sm_80", LEFT=left, warps=1).kernel
        return {s.bytes for s in tir.walk(kernel.body) if isinstance(s, tir.LdGlobal)}

    assert (widths(16), widths(4), widths(2), widths(1)) == ({8}, {8}, {4}, {2})  # 4 elements per thread


def test_constant_slices_are_read_and_written() -> None:
    x = numbers(10, 24)
    y, z = agrees(constant_slices, x, *(np.full((10, 16), np.nan, "f4") for _ in "yz"), multiples={"R": 2})
    assert np.array_equal(y, np.concatenate([x[:, 16:], x[:, 4:12]], axis=1))
    assert np.array_equal(z, np.concatenate([x[:, 12:], np.zeros((10, 4), "f4")], axis=1))


@pytest.mark.parametrize("stages", [1, 2, 3])
def test_stencil(stages: int) -> None:
    module = example("stencil")
    for length, taps in ((0, 3), (70, 0), (70, 5), (3, 5)):
        x, w, out = numbers(length, 72), numbers(taps, 72, seed=1), np.full((length, 72), np.nan, "f4")
        (y,) = agrees(module.causal_conv, x, w, out, STAGES=stages, multiples={"C": 8})
        wanted = sum((w[k] * moved(x, k, 0) for k in range(taps)), np.zeros_like(x))
        assert np.allclose(y, wanted, rtol=1e-4, atol=1e-5)
    x = numbers(20, 70)
    (y,) = agrees(module.jacobi, x, np.full_like(x, np.nan), multiples={"H": 1, "W": 2})
    assert np.allclose(
        y, (moved(x, 1, 0) + moved(x, -1, 0) + moved(x, 0, 1) + moved(x, 0, -1)) / 4, rtol=1e-5, atol=1e-6
    )


@tg.kernel(warps=2)
def heads_side_by_side(
    x: tg.Tensor["B", "S", "HEADS", 32, "f32"],
    y: tg.Out["B", "S", "WIDTH", "f32"],
    *,
    KV=3,
    GROUP=2,
    HEADS=6,
    WIDTH=192,
):
    """The place in the output has digits: the head of keys and values, and the query head of its group."""
    for b, s, h in tg.grid(tg.range("B"), tg.tiles("S", 8), tg.range(KV)):
        for g in tg.range(GROUP):
            head = h * GROUP + g
            t = tg.load(x[b, s, head, :], by=COPY, stages=2)
            y[b, s, head * 32 : head * 32 + 32] = t * 2.0


@tg.kernel(warps=2)
def rows_of_all_batches(x: tg.Tensor["B", 48, 16, "f32"], y: tg.Out["N", 16, "f32"]):
    for b, t in tg.grid(tg.range("B"), tg.tiles(48, 16)):
        y[b * 48 + tg.begin(t) : b * 48 + tg.end(t), :] = tg.load(x[b, t, :]) + 1.0


@pytest.mark.parametrize("sizes", [(0, 5), (1, 1), (2, 20)])
def test_places_with_digits_belong_to_one_cta(sizes: tuple[int, int]) -> None:
    batches, length = sizes
    x = numbers(batches, length, 6, 32)
    (y,) = agrees(heads_side_by_side, x, np.full((batches, length, 192), np.nan, "f4"), multiples={"S": 1})
    assert np.array_equal(y, (x * 2).reshape(y.shape))
    x = numbers(batches, 48, 16)
    for rows in (batches * 48, batches * 40):
        (y,) = agrees(rows_of_all_batches, x, np.full((rows, 16), np.nan, "f4"), multiples={"N": 8})
        assert np.array_equal(y, x.reshape(-1, 16)[:rows] + 1)


# ------------------------------------------------------------------------------------------ refusals

GATHER = 'i: tg.Tensor["M", "i32"], x: tg.Tensor["R", 32, "f32"], y: tg.Out["M", 32, "f32"]'
BEGIN = 'for m in tg.grid(tg.tiles("M", 8)):\n    '
REFUSED = {
    "TG203 indexed by the tile t, f32 (8,)": "t = tg.load(i[m]).astype('f32')\n    y[m, :] = tg.load(x[t, :])",
    "TG203 the last axis of x is gathered": "t = tg.load(i[m])\n    y[m, :] = tg.load(x[0:8, t])",
    "TG205 it may name one twice": "t = tg.load(i[m])\n    y[t, :] = tg.load(x[t, :])",
    "TG203 no fixed number of elements": "y[m, :] = tg.load(x[tg.begin(m) : 40, :])",
    "TG203 has 0 elements": "y[m, :] = tg.load(x[tg.begin(m) : tg.begin(m), :])",
    "TG203 has a step": "y[m, :] = tg.load(x[0:16:2, :])",
    "TG203 the position -8": "y[m, :] = tg.load(x[-8:0, :])",
    "TG203 takes the rest of axis 0": "y[m, :] = tg.load(x[8:, :])",
    "TG203 the slice begins at 32": "y[m, :] = tg.load(x[0:8, 32:64])",
    "TG203 is no position": "y[m, :] = tg.load(x[m : m + 8, :])",
    "TG105 'tg.end(8)'": "y[m, :] = tg.load(x[0 : tg.end(8), :])",
    "TG205 no multiple of 16": "y[m, 8:24] = tg.load(x[0:8, 0:16])",
    "TG205 only computes with the grid": "for k in tg.range(9):\n        y[tg.begin(m) + k, :] = tg.load(x[0, :])",
    "TG301 loaded to registers": "t = tg.load(i[m], to='shared')\n    y[m, :] = tg.load(x[t, :])",
    "TG302 begin at a multiple of 2 elements": "y[m, 0:16] = tg.load(x[0:8, 1:17], by=cuda.cp_async(bytes=8))",
    "TG302 shows as s // 2 * 2 + ...": "s = tg.load(i[0])\n"
    "    y[m, 0:16] = tg.load(x[0:8, s : s + 16], by=cuda.cp_async(bytes=8))",
    "TG301 its rows depend on t": "t = tg.load(i[m])\n    acc = tg.zeros((8, 32))\n    for k in tg.range(3):\n"
    "        acc += tg.load(x[t, :], stages=2)\n        t = t + 1\n    y[m, :] = acc",
}


@pytest.mark.parametrize("expected", REFUSED)
def test_what_is_refused(expected: str, tmp_path: Any) -> None:
    code, text = expected.split(" ", 1)
    with pytest.raises(TidegateError) as caught:
        load(source(BEGIN + REFUSED[expected], GATHER), tmp_path).k.compile("sm_80")
    assert caught.value.code == code
    assert text in str(caught.value)
    assert caught.value.span is not None
