"""The meaning of the language: ``kernel.plain`` against straightforward NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tidegate as tg
from tidegate import cuda
from tidegate.ops.plain import rounding_bound

BF16 = ml_dtypes.bfloat16


def numbers(*shape: int, dtype: object = "f4", seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def filled(*shape: int, dtype: object = "f4") -> np.ndarray:
    """An output whose old content would show."""
    return np.full(shape, 77, dtype)


# ------------------------------------------------------------------------------------------ windows and edges


@tg.kernel
def copy(x: tg.Tensor["M", "N", "f32"], y: tg.Out["M", "N", "f32"], *, BM=16, BN=32):
    for m, n in tg.grid(tg.tiles("M", BM), tg.tiles("N", BN)):
        y[m, n] = tg.load(x[m, n])


@pytest.mark.parametrize("shape", [(16, 32), (1, 1), (17, 33), (15, 95), (0, 5), (5, 0)])
def test_edges_are_masked(shape: tuple[int, int]) -> None:
    x, y = numbers(*shape), filled(*shape)
    copy.plain(x, y)
    assert np.array_equal(x, y)


@tg.kernel
def row_sums(x: tg.Tensor["M", "N", "f32"], y: tg.Out["M", 8, "f32"], *, BM=16, BN=8):
    for m in tg.grid(tg.tiles("M", BM)):
        total = tg.full((BM, BN), 0.5)
        for n in tg.tiles("N", BN):
            total += tg.load(x[m, n])
        y[m, :] = total


@pytest.mark.parametrize("columns", [0, 1, 7, 8, 20])
def test_reads_beyond_an_edge_give_zero_and_values_are_carried(columns: int) -> None:
    x, y = numbers(19, columns), filled(19, 8)
    row_sums.plain(x, y)
    want = np.full((19, 8), 0.5, "f4")
    for start in range(0, columns, 8):
        part = x[:, start : start + 8]
        want[:, : part.shape[1]] += part
    assert np.array_equal(y, want)


@tg.kernel
def rows_of_a_cube(x: tg.Tensor["A", "B", 6, "f32"], y: tg.Out["B", "f32"], z: tg.Out["A", "B", 6, "f32"]):
    for b in tg.grid(tg.tiles("B", 4)):
        y[b] = tg.full(4, -1.0)
        for a in tg.tiles("A", 2):
            z[a, b, :] = -tg.load(x[a, b, :])


def test_ranks_one_and_three_and_whole_axes() -> None:
    x, y, z = numbers(3, 5, 6), filled(5), filled(3, 5, 6)
    rows_of_a_cube.plain(x, y, z)
    assert np.array_equal(z, -x)
    assert (y == -1).all()


@tg.kernel
def diagonal_blocks(x: tg.Tensor["N", "N", "f32"], y: tg.Out["N", "N", "f32"]):
    for n in tg.grid(tg.tiles("N", 4)):
        y[n, n] = tg.load(x[n, n]) + 1.0


def test_one_index_on_two_axes_and_untouched_elements_stay() -> None:
    x, y = numbers(6, 6), filled(6, 6)
    diagonal_blocks.plain(x, y)
    want = filled(6, 6)
    for s in (slice(0, 4), slice(4, 8)):
        want[s, s] = x[s, s] + np.float32(1)
    assert np.array_equal(y, want)


# ------------------------------------------------------------------------------------------ loops


@tg.kernel(warps=1)
def siblings(x: tg.Tensor["R", 8, "f32"], y: tg.Out["R", 8, "f32"], z: tg.Out["R", 8, "f32"]):
    last = tg.zeros((1, 8))
    for r in tg.tiles("R", 1):
        row = tg.load(x[r, :], by=cuda.cp_async(), stages=2)
        y[r, :] = row + last
        last = row
    for r in tg.tiles("R", 1):  # the same index name, and the carried value of the first loop
        z[r, :] = last


@pytest.mark.parametrize("rows", [0, 1, 2, 5])
def test_sibling_loops_and_a_value_of_the_trip_before(rows: int) -> None:
    x, y, z = numbers(rows, 8), filled(rows, 8), filled(rows, 8)
    siblings.plain(x, y, z)
    before = np.concatenate([np.zeros((1, 8), "f4"), x])[:rows]
    assert np.array_equal(y, x + before)
    assert np.array_equal(z, np.broadcast_to(x[-1:] if rows else x, (rows, 8)))


@tg.kernel(warps=1)
def nested(x: tg.Tensor["A", "B", "f32"], y: tg.Out["A", 4, "f32"], *, TRIPS=3):
    best = tg.full((2, 4), float("-inf"))
    for a in tg.tiles("A", 2):
        total = tg.zeros((2, 4))
        for b in tg.tiles("B", 4):
            tile = tg.load(x[a, b])
            total = total * 0.5 + tile
            for _ in tg.tiles(TRIPS, 1):
                tile = tile + 1
            best = tg.maximum(best, tile)
        y[a, :] = total + best


@pytest.mark.parametrize("trips", [0, 3])
@pytest.mark.parametrize("shape", [(4, 8), (3, 9), (2, 0), (5, 1)])
def test_nested_loops(shape: tuple[int, int], trips: int) -> None:
    x, y = numbers(*shape), filled(shape[0], 4)
    nested.plain(x, y, TRIPS=trips)
    padded = np.zeros((-(-shape[0] // 2) * 2, -(-shape[1] // 4) * 4), "f4")
    padded[: shape[0], : shape[1]] = x
    want, best = np.zeros((len(padded), 4), "f4"), np.full((2, 4), -np.inf, "f4")
    for a in range(0, len(padded), 2):
        total = np.zeros((2, 4), "f4")
        for b in range(0, padded.shape[1], 4):
            tile = padded[a : a + 2, b : b + 4]
            total = total * np.float32(0.5) + tile
            for _ in range(trips):
                tile = tile + np.float32(1)
            best = np.maximum(best, tile)
        want[a : a + 2] = total + best
    assert np.array_equal(y, want[: shape[0]])


@tg.kernel(warps=1)
def swap(x: tg.Tensor["T", 4, "f32"], y: tg.Out[4, "f32"], z: tg.Out[4, "f32"]):
    a = tg.zeros(4)
    b = tg.full(4, 1.0)
    for _ in tg.tiles("T", 1):
        old = a
        a = b
        b = old
    y[:] = a
    z[:] = b


@pytest.mark.parametrize("trips", [0, 1, 2, 3])
def test_carried_values_change_places(trips: int) -> None:
    y, z = filled(4), filled(4)
    swap.plain(numbers(trips, 4), y, z)
    assert (y == trips % 2).all()
    assert (z == 1 - trips % 2).all()


# ------------------------------------------------------------------------------------------ arithmetic


@tg.kernel
def arithmetic(
    x: tg.Tensor["N", "f32"], w: tg.Tensor["N", "f32"], y: tg.Out["N", "f32"], z: tg.Out["N", "f32"], *, ALPHA=3
):
    for n in tg.grid(tg.tiles("N", 32)):
        a = tg.load(x[n])
        b = tg.load(w[n])
        c = (1 - a) * b / ALPHA
        c -= 2
        c *= b
        y[n] = tg.maximum(tg.minimum(c, 4.0), -a)
        z[n] = tg.minimum(a, tg.maximum(b, a.shape[0] / 16))


def test_elementwise_operations_on_tiles_and_numbers() -> None:
    x, w, y, z = numbers(50), numbers(50, seed=1), filled(50), filled(50)
    x[3], w[4] = np.nan, np.inf
    arithmetic.plain(x, w, y, z)
    with np.errstate(invalid="ignore"):
        c = ((1 - x) * w / np.float32(3) - np.float32(2)) * w
    assert np.array_equal(y, np.maximum(np.minimum(c, np.float32(4)), -x), equal_nan=True)
    assert np.array_equal(z, np.minimum(x, np.maximum(w, np.float32(2))), equal_nan=True)


@tg.kernel
def mixed(
    h: tg.Tensor["N", "f16"],
    b: tg.Tensor["N", "bf16"],
    f: tg.Tensor["N", "f32"],
    hh: tg.Out["N", "f16"],
    hf: tg.Out["N", "f32"],
    bf: tg.Out["N", "f32"],
    bb: tg.Out["N", "bf16"],
):
    for n in tg.grid(tg.tiles("N", 32)):
        p = tg.load(h[n])
        q = tg.load(b[n])
        r = tg.load(f[n])
        hh[n] = p * 0.1 + p  # rounds to f16 after each step
        hf[n] = p * r
        bf[n] = r - q
        bb[n] = q / q.astype("f32").astype(q.dtype)


def test_promotion_and_rounding_per_operation() -> None:
    h, b, f = numbers(40, dtype="f2"), numbers(40, dtype=BF16, seed=1), numbers(40, seed=2)
    outs = [filled(40, dtype=d) for d in ("f2", "f4", "f4", BF16)]
    mixed.plain(h, b, f, *outs)
    once = (h.astype("f4") * np.float32(0.1)).astype("f2")
    assert np.array_equal(outs[0], (once.astype("f4") + h.astype("f4")).astype("f2"))
    assert np.array_equal(outs[1], h.astype("f4") * f)
    assert np.array_equal(outs[2], f - b.astype("f4"))
    assert (outs[3] == 1).all()


@tg.kernel
def casts(x: tg.Tensor["N", "f32"], y: tg.Out["N", "bf16"], z: tg.Out["N", "f16"], back: tg.Out["N", "f32"]):
    for n in tg.grid(tg.tiles("N", 32)):
        t = tg.load(x[n])
        y[n] = t.astype("bf16")
        z[n] = t.astype("f16")
        back[n] = t.astype("bf16").astype("f32")


def test_casts_round_to_nearest_even() -> None:
    ties = [1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-11, 1 + 3 * 2**-11, 65519.0, 65520.0, 1e-8, -0.0, np.inf, 3.4e38]
    x = np.array(ties, "f4")
    y, z, back = filled(10, dtype=BF16), filled(10, dtype="f2"), filled(10)
    casts.plain(x, y, z, back)
    assert list(y[:2].astype("f4")) == [1.0, 1 + 2**-6]  # to even mantissas
    assert list(z[2:4]) == [1.0, 1 + 2**-9]
    assert z[4] == 65504
    assert z[5] == np.inf
    assert np.array_equal(back, y.astype("f4"))
    with np.errstate(over="ignore"):
        assert np.array_equal(z, x.astype("f2"))


# ------------------------------------------------------------------------------------------ products and transposes


@tg.kernel
def product(
    a: tg.Tensor["M", "K", "bf16"], b: tg.Tensor["N", "K", "bf16"], c: tg.Out["M", "N", "f32"], *, BM=16, BN=8, BK=16
):
    for m, n in tg.grid(tg.tiles("M", BM), tg.tiles("N", BN)):
        acc = tg.full((BM, BN), 1.0)
        for k in tg.tiles("K", BK):
            acc = tg.dot(tg.load(a[m, k]), tg.load(b[n, k]).T, acc, by=cuda.mma())
        c[m, n] = acc


@pytest.mark.parametrize("shape", [(16, 8, 16), (20, 10, 40), (1, 1, 1), (7, 9, 0)])
def test_product_with_a_transposed_operand(shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    a, b, c = numbers(m, k, dtype=BF16), numbers(n, k, dtype=BF16, seed=1), filled(m, n)
    product.plain(a, b, c)
    exact = 1 + a.astype("f8") @ b.astype("f8").T
    bound = rounding_bound(product.program(), {"a": a, "b": b, "c": c})["c"]
    assert (np.abs(c - exact) <= bound).all()


@tg.kernel
def squared(a: tg.Tensor[16, 16, "f32"], b: tg.Out[16, 16, "f32"]):
    t = tg.load(a[:, :])
    for _ in tg.range(8):
        t = tg.dot(t.astype("bf16"), t.T.astype("bf16"), t)
    b[:, :] = t + 1.0


def test_where_sums_overflow_nothing_is_promised() -> None:
    a, b = np.full((16, 16), 100, "f4"), filled(16, 16)
    assert np.isinf(rounding_bound(squared.program(), {"a": a, "b": b})["b"]).all()


@tg.kernel(warps=1)
def overflowing(a: tg.Tensor[16, 16, "f32"], b: tg.Out[16, 16, "bf16"], c: tg.Out[16, 1, "bf16"]):
    t = tg.load(a[:, :])
    b[:, :] = tg.dot(t, t, by=cuda.mma(tf32=True)).astype("bf16")
    c[:, :] = tg.sum(t, axis=1, keepdims=True).astype("bf16")


def test_sums_that_may_overflow_have_no_bound_in_any_dtype() -> None:
    """One order comes to an infinity, another to a number, or to none."""
    a = np.full((16, 16), 3e37, np.float32)
    a[:, ::2] = -3e37
    b, c = np.zeros((16, 16), BF16), np.zeros((16, 1), BF16)
    bounds = rounding_bound(overflowing.program(), {"a": a, "b": b, "c": c})
    assert np.isinf(bounds["b"]).all()
    assert np.isinf(bounds["c"]).all()
    bounds = rounding_bound(overflowing.program(), {"a": a / np.float32(1e30), "b": b, "c": c})
    assert np.isfinite(bounds["b"]).all()
    assert np.isfinite(bounds["c"]).all()


@tg.kernel
def matrix_sign(x: tg.Tensor["N", "f32"], y: tg.Out["N", "f32"], z: tg.Out[4, 3, "f32"]):
    for n in tg.tiles("N", 3):
        y[n] = tg.load(x[n])
    a = tg.full((3, 5), 2.0, "f32")
    b = tg.full((5, 4), 0.25, "f32")
    z[:, :] = (a @ b).T.T.T


def test_matmul_operator_and_repeated_transposes() -> None:
    y, z = filled(4), filled(4, 3)
    matrix_sign.plain(numbers(4), y, z)
    assert (z == 2.5).all()


# ------------------------------------------------------------------------------------------ compile-time values

OFFSET = {"a": 1.5}


def chosen(size: int) -> int:
    return size // 2


def make(factor: float) -> tg.Kernel:
    @tg.kernel
    def scaled(x: tg.Tensor["N", "f32"], y: tg.Out["N", "f32"], *, B=64, MODE="up"):
        size = chosen(B)
        add = OFFSET["a"] if MODE == "up" else -OFFSET["a"]
        for n in tg.grid(tg.tiles("N", size)):
            t = tg.load(x[n], by=cuda.ld() if B < 100 else cuda.cp_async())
            scale = factor * len([i for i in range(3) if i])
            y[n] = t * scale + add

    return scaled


@pytest.mark.parametrize("mode", ["up", "down"])
def test_compile_time_values_come_from_constants_closures_and_helpers(mode: str) -> None:
    x, y = numbers(70), filled(70)
    make(3.0).plain(x, y, MODE=mode)
    assert np.array_equal(y, x * np.float32(6) + np.float32(1.5 if mode == "up" else -1.5))


def test_constants_sizes_and_numpy_integers() -> None:
    x, y = numbers(16, 32), filled(16, 32)
    copy.plain(x, y, BM=np.int64(8), M=np.int32(16), warps=np.int64(2))
    assert np.array_equal(x, y)
    with pytest.raises(tg.TidegateError, match="TG701"):
        copy.plain(x, y, M=17)


def test_a_kernel_in_a_class_is_a_kernel() -> None:
    class Home:
        @tg.kernel
        def double(x: tg.Tensor["N", "f32"], y: tg.Out["N", "f32"]):
            for n in tg.grid(tg.tiles("N", 32)):
                y[n] = tg.load(x[n]) * 2

    x, y = numbers(5), filled(5)
    Home.double.plain(x, y)
    assert np.array_equal(y, 2 * x)


@tg.kernel(warps=1)
def branching(x: tg.Tensor["R", 32, "f32"], y: tg.Out["R", 32, "f32"], *, MODE=0):
    for r in tg.tiles("R", 4):
        t = tg.load(x[r, :])
        if MODE == 0:
            t = t * 2.0
        elif MODE == 1:
            t = -t
        y[r, :] = t + 1.0 if MODE else t


def test_compile_time_choices() -> None:
    """An if or a conditional expression on constants keeps the chosen branch alone."""
    x = numbers(6, 32)
    for mode, want in ((0, x * 2), (1, 1 - x), (2, x + 1)):
        y = filled(6, 32)
        branching.plain(x, y, MODE=mode)
        assert np.array_equal(y, want)


@tg.kernel(warps=1)
def below(x: tg.Tensor["N", "N", "f32"], y: tg.Out["N", 16, "f32"], *, B=16, STAGES=2):
    """Sums the tiles of a row block up to the diagonal; beyond the diagonal nothing counts."""
    for m in tg.grid(tg.tiles("N", 32)):
        acc = tg.zeros((32, B))
        for n in tg.tiles("N", B, until=tg.end(m)):
            t = tg.load(x[m, n], by=cuda.cp_async(), stages=STAGES)
            acc = acc + tg.where(tg.positions(n)[None, :] <= tg.positions(m)[:, None], t, 0.0)
        y[m, :] = acc


@pytest.mark.parametrize("size", [0, 4, 32, 36, 100])
@pytest.mark.parametrize("stages", [1, 2, 3])
def test_loops_that_end_with_another_tile(size: int, stages: int) -> None:
    x = numbers(size, size)
    padded = np.zeros((size, -(-size // 16) * 16), np.float32)
    padded[:, :size] = np.tril(x)
    want = padded.reshape(size, -1, 16).sum(axis=1) if size else np.zeros((0, 16), np.float32)
    y = filled(size, 16)
    below.plain(x, y, STAGES=stages)
    assert np.allclose(y, want, rtol=1e-5, atol=1e-5)
    compiled = below.compile(target="sm_80", STAGES=stages, multiples={"N": 4})
    assert compiled.check().status == "safe"
    for completion in ("late", "early", "random"):
        z = filled(size, 16)
        assert compiled.simulate(x, z, completion=completion, seed=1).ok
        assert np.array_equal(z, y)


# ------------------------------------------------------------------------------------------ names of loops


@tg.kernel
def three_loops(x: tg.Tensor[8, "N", "f32"], y: tg.Out[8, 16, "f32"]):
    total = tg.zeros((8, 16))
    for n in tg.tiles("N", 16):
        total += tg.load(x[:, n])
    for n in tg.tiles("N", 16):
        total -= tg.load(x[:, n]) * 3
    for n in tg.tiles("N", 16):
        if total.dtype == "f32" and total.shape[1] == 16:
            total += tg.load(x[:, n])
    y[:, :] = total


def test_loops_one_after_the_other_share_their_index() -> None:
    x, y = numbers(8, 48), filled(8, 16)
    three_loops.plain(x, y)
    assert np.allclose(y, -x.reshape(8, 3, 16).sum(axis=1), atol=1e-5)
