"""What reductions, broadcasting, elementwise functions and integer indices mean: ``kernel.plain`` against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from judging import difference
from kernels import example
from test_language_errors import load, source

import tidegate as tg
from tidegate.errors import TidegateError
from tidegate.ir import hir
from tidegate.ops.elementwise import ELEMENTWISE
from tidegate.ops.plain import _Machine, bind_sizes, rounding_bound

BF16 = ml_dtypes.bfloat16
FOLDS: dict[str, Any] = {"sum": np.sum, "max": np.max, "min": np.min}


def numbers(*shape: int, dtype: Any = "f4", seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def filled(*shape: int, dtype: Any = "f4") -> np.ndarray:
    """An output whose old content would show."""
    return np.full(shape, 77, dtype)


def run(body: str, signature: str, tmp_path: Any, *arrays: np.ndarray, **constants: Any) -> None:
    load(source(body, signature), tmp_path).k.plain(*arrays, **constants)


# ------------------------------------------------------------------------------------------ reductions


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("axis", [0, 1, -1, -2])
@pytest.mark.parametrize("fold", FOLDS)
def test_a_fold_accumulates_in_f32_and_rounds_once(fold: str, axis: int, keep: bool, dtype: str, tmp_path: Any) -> None:
    kind = {"f32": "f4", "f16": "f2", "bf16": BF16}[dtype]
    x = (numbers(12, 40) * 3).astype(kind)
    shape = [(1, 40), (12, 1)][axis % 2] if keep else [(40,), (12,)][axis % 2]
    method, function = filled(*shape, dtype=kind), filled(*shape, dtype=kind)
    sizes = ", ".join(map(str, shape))
    colons = ", ".join(":" * len(shape))
    run(
        f"t = tg.load(x[:, :])\ny[{colons}] = t.{fold}(axis={axis}, keepdims={keep})\n"
        f"z[{colons}] = tg.{fold}(t, {axis}, {keep})",
        f'x: tg.Tensor[12, 40, "{dtype}"], y: tg.Out[{sizes}, "{dtype}"], z: tg.Out[{sizes}, "{dtype}"]',
        tmp_path,
        x,
        method,
        function,
    )
    wide = FOLDS[fold](x.astype("f4"), axis=axis, keepdims=keep)
    assert np.array_equal(method, wide.astype(kind))
    assert np.array_equal(function, method)


@tg.kernel
def many_small(x: tg.Tensor["R", 4096, "f16"], y: tg.Out["R", 1, "f16"]):
    for r in tg.grid(tg.tiles("R", 1)):
        y[r, :] = tg.load(x[r, :]).sum(axis=1, keepdims=True)


def test_a_sum_of_many_halves_is_not_stuck_where_half_would_be() -> None:
    x, y = np.ones((2, 4096), "f2"), filled(2, 1, dtype="f2")
    many_small.plain(x, y)
    assert (y == 4096).all()  # adding 1 to 2048 in f16 gives 2048


@pytest.mark.parametrize("fold", ["max", "min"])
@pytest.mark.parametrize("place", [0, 7, 15])
def test_largest_and_smallest_propagate_nan_and_know_infinities(fold: str, place: int, tmp_path: Any) -> None:
    x = numbers(4, 16)
    x[1, place], x[2, place], x[3, place] = np.nan, np.inf, -np.inf
    y = filled(4)
    run(f"y[:] = tg.load(x[:, :]).{fold}(axis=1)", 'x: tg.Tensor[4, 16, "f32"], y: tg.Out[4, "f32"]', tmp_path, x, y)
    assert np.array_equal(y, FOLDS[fold](x, axis=1), equal_nan=True)
    assert np.isnan(y[1])


@pytest.mark.parametrize("fold", FOLDS)
def test_an_axis_of_one_element_folds_to_itself(fold: str, tmp_path: Any) -> None:
    x, y, z = numbers(5, 1), filled(5), filled(5, 1)
    run(
        f"t = tg.load(x[:, :])\ny[:] = t.{fold}(axis=1)\nz[:, :] = t.{fold}(axis=1, keepdims=True)",
        'x: tg.Tensor[5, 1, "f32"], y: tg.Out[5, "f32"], z: tg.Out[5, 1, "f32"]',
        tmp_path,
        x,
        y,
        z,
    )
    assert np.array_equal(y, x[:, 0])
    assert np.array_equal(z, x)


@pytest.mark.parametrize("keep", [True, False])
def test_a_tile_of_rank_one_folds_to_one_element(keep: bool, tmp_path: Any) -> None:
    x, y = numbers(24), filled(1)
    signature = 'x: tg.Tensor[24, "f32"], y: tg.Out[1, "f32"]'
    run(f"y[:] = tg.load(x[:]).max(axis=0, keepdims={keep})", signature, tmp_path, x, y)
    assert y[0] == x.max()


@tg.kernel
def row_totals(x: tg.Tensor["M", "N", "f32"], total: tg.Out["M", "f32"], top: tg.Out["M", "f32"]):
    for m in tg.grid(tg.tiles("M", 16)):
        sums = tg.zeros((16,))
        best = tg.full((16,), -1e30)
        for n in tg.tiles("N", 8):
            t = tg.load(x[m, n])
            sums += t.sum(axis=1)
            best = tg.maximum(best, t.max(axis=1))
        total[m] = sums
        top[m] = best


@pytest.mark.parametrize("shape", [(16, 8), (19, 20), (1, 1), (5, 0), (0, 9)])
def test_reductions_in_loops_see_zeros_beyond_an_edge(shape: tuple[int, int]) -> None:
    x = numbers(*shape) - 5  # below zero, so that a zero from beyond the edge wins a maximum
    total, top = filled(shape[0]), filled(shape[0])
    row_totals.plain(x, total, top)
    assert np.allclose(total, x.sum(axis=1), rtol=1e-5)
    if shape[1] == 0:
        assert (top == np.float32(-1e30)).all()
    else:
        assert np.array_equal(top, x.max(axis=1) if shape[1] % 8 == 0 else np.zeros(shape[0], "f4"))


@tg.kernel
def online(x: tg.Tensor["M", "N", "f32"], y: tg.Out["M", "f32"]):
    for m in tg.grid(tg.tiles("M", 4)):
        top = tg.full((4, 1), -1e30)
        total = tg.zeros((4, 1))
        for n in tg.tiles("N", 8):
            t = tg.load(x[m, n])
            higher = tg.maximum(top, t.max(axis=1, keepdims=True))
            total = total * tg.exp(top - higher) + tg.exp(t - higher).sum(axis=1, keepdims=True)
            top = higher
        y[m] = (top + tg.log(total)).max(axis=-1)


@pytest.mark.parametrize("columns", [8, 16, 40])
def test_log_sum_exp_that_carries_a_column(columns: int) -> None:
    x, y = numbers(6, columns) * 20, filled(6)
    online.plain(x.astype("f4"), y)
    assert np.allclose(y, np.log(np.exp(x.astype("f8")).sum(axis=1)), rtol=1e-5)


def test_folds_of_folds_and_of_rank_three(tmp_path: Any) -> None:
    x, y, z, w = numbers(2, 6, 8), filled(8), filled(1), filled(2, 8)
    run(
        "t = tg.load(x[:, :, :])\ny[:] = t.max(axis=0).sum(axis=0)\n"
        "z[:] = t.sum(axis=2).sum(axis=1).sum(axis=0)\nw[:, :] = tg.min(t, axis=1)",
        'x: tg.Tensor[2, 6, 8, "f32"], y: tg.Out[8, "f32"], z: tg.Out[1, "f32"], w: tg.Out[2, 8, "f32"]',
        tmp_path,
        *(x, y, z, w),
    )
    assert np.array_equal(w, x.min(axis=1))
    assert np.allclose(y, x.max(axis=0).sum(axis=0), rtol=1e-6)
    assert np.allclose(z, x.sum(), rtol=1e-5)


# ------------------------------------------------------------------------------------------ broadcasting


@pytest.mark.parametrize(
    ("expression", "want"),
    [
        ("t + row", lambda t, row, col: t + row),
        ("row - t", lambda t, row, col: row - t),
        ("t * col[:, None]", lambda t, row, col: t * col[:, None]),
        ("t / row[None, :]", lambda t, row, col: t / row[None, :]),
        ("col[:, None] + row", lambda t, row, col: col[:, None] + row),
        ("tg.maximum(t.max(axis=1, keepdims=True), row)", lambda t, row, col: np.maximum(t.max(1, keepdims=True), row)),
        ("t - t.min(axis=0)", lambda t, row, col: t - t.min(axis=0)),
        ("t.T.max(axis=0)[:, None] * t", lambda t, row, col: t.max(axis=1)[:, None] * t),
        ("t - t.max(axis=1)[:, None].max(axis=0)", lambda t, row, col: t - t.max()),
        ("(t[None, :, :] + row)[:, :, :].sum(axis=0)", lambda t, row, col: t + row),
    ],
)
def test_shapes_are_matched_from_the_last_axis(expression: str, want: Callable[..., np.ndarray], tmp_path: Any) -> None:
    t, row, col, y = numbers(6, 8), numbers(8, seed=1), numbers(6, seed=2), filled(6, 8)
    run(
        f"t = tg.load(a[:, :])\nrow = tg.load(b[:])\ncol = tg.load(c[:])\ny[:, :] = {expression}",
        'a: tg.Tensor[6, 8, "f32"], b: tg.Tensor[8, "f32"], c: tg.Tensor[6, "f32"], y: tg.Out[6, 8, "f32"]',
        tmp_path,
        *(t, row, col, y),
    )
    assert np.array_equal(y, want(t, row, col))


def test_broadcasting_promotes_dtypes(tmp_path: Any) -> None:
    t, row, y = numbers(6, 8, dtype=BF16), numbers(8, seed=1), filled(6, 8)
    run(
        "y[:, :] = tg.load(a[:, :]) * tg.load(b[:])",
        'a: tg.Tensor[6, 8, "bf16"], b: tg.Tensor[8, "f32"], y: tg.Out[6, 8, "f32"]',
        tmp_path,
        *(t, row, y),
    )
    assert np.array_equal(y, t.astype("f4") * row)


# ------------------------------------------------------------------------------------------ functions


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("name", ["abs", "sqrt", "rsqrt", "exp", "exp2", "log", "log2", "tanh"])
def test_functions_equal_numpy_within_their_units(name: str, dtype: str, tmp_path: Any) -> None:
    kind = {"f32": "f4", "f16": "f2", "bf16": BF16}[dtype]
    x = np.abs(numbers(4, 64)).astype(kind)
    x[0, :4] = [0.0, np.inf, np.nan, 1.0]
    if name in ("abs", "exp", "exp2", "tanh"):
        x[1:] = -x[1:]
    y = filled(4, 64, dtype=kind)
    sizes = f'4, 64, "{dtype}"'
    run(f"y[:, :] = tg.{name}(tg.load(x[:, :]))", f"x: tg.Tensor[{sizes}], y: tg.Out[{sizes}]", tmp_path, x, y)
    exact: dict[str, Any] = {"rsqrt": lambda v: 1 / np.sqrt(v)}
    with np.errstate(divide="ignore"):
        want = exact.get(name, getattr(np, name, None))(x.astype("f8"))
    assert np.array_equal(np.isnan(y), np.isnan(want))
    same = y.astype("f8") == want
    units = {"f32": 4 * 2.0**-23, "f16": 2.0**-10, "bf16": 2.0**-7}[dtype]
    with np.errstate(invalid="ignore"):
        assert (same | np.isnan(want) | (np.abs(y.astype("f8") - want) <= units * np.abs(want))).all()


# ------------------------------------------------------------------------------------------ integer indices


@tg.kernel
def heads(
    q: tg.Tensor["H", "N", 8, "f32"],
    k: tg.Tensor["G", "N", 8, "f32"],
    o: tg.Out["H", "N", 8, "f32"],
    s: tg.Out["N", 8, "f32"],
    *,
    GROUP=2,
):
    for n in tg.grid(tg.tiles("N", 4)):
        total = tg.zeros((4, 8))
        for h in tg.range("H"):
            t = tg.load(q[h, n, :]) * tg.load(k[h // GROUP, n, :])
            total += tg.load(q[h % 2 * 2 + 1, n, :])
            o[h, n, :] = t
        s[n, :] = total


@pytest.mark.parametrize("groups", [1, 2, 3])
def test_integer_indices_compute_positions_and_read_zero_beyond(groups: int) -> None:
    q, k = numbers(4, 6, 8), numbers(groups, 6, 8, seed=1)
    o, s = filled(4, 6, 8), filled(6, 8)
    heads.plain(q, k, o, s)
    wide = np.zeros((4, 6, 8), "f4")
    for h in range(4):
        if h // 2 < groups:
            wide[h] = k[h // 2]
    assert np.array_equal(o, q * wide)
    want = np.zeros((6, 8), "f4")
    for h in range(4):
        want += q[h % 2 * 2 + 1]
    assert np.array_equal(s, want)


@tg.kernel
def shifted(x: tg.Tensor["A", 2, "f32"], y: tg.Out["B", 2, "f32"]):
    for a in tg.range("A"):
        y[a * 2 + 1, :] = tg.load(x[a, :])


@pytest.mark.parametrize("rows", [1, 2, 5, 9])
def test_writes_beyond_an_axis_are_dropped(rows: int) -> None:
    x, y = numbers(4, 2), filled(rows, 2)
    shifted.plain(x, y)
    want = filled(rows, 2)
    for a in range(4):
        if a * 2 + 1 < rows:
            want[a * 2 + 1] = x[a]
    assert np.array_equal(y, want)


@tg.kernel
def four_axes(x: tg.Tensor["A", "B", "N", "WIDTH", "f32"], y: tg.Out["B", "A", "N", "f32"], *, WIDTH=8):
    for a, b, n in tg.grid(tg.range("A"), tg.range("B"), tg.tiles("N", 4)):
        total = tg.zeros((4,))
        for w in tg.tiles("WIDTH", 4):
            total += tg.load(x[a, b, n, w]).sum(axis=1)
        y[b, a, n] = total


@pytest.mark.parametrize("width", [1, 8, 12])
def test_a_size_may_name_a_constant(width: int) -> None:
    x, y = numbers(2, 3, 6, width), filled(3, 2, 6)
    four_axes.plain(x, y, WIDTH=width)
    assert np.allclose(y, x.sum(axis=3).transpose(1, 0, 2), rtol=1e-5, atol=1e-6)
    with pytest.raises(TidegateError, match="got shape"):
        four_axes.plain(x, y, WIDTH=width + 1)


def test_one_index_name_in_two_loops_of_different_extents(tmp_path: Any) -> None:
    """A window that one loop keeps inside its tensor may leave it in the other: each load has its own bound."""
    text = (
        'acc = tg.zeros((8,))\nfor i in tg.range("A"):\n    acc += tg.load(x[i, :])\n'
        'for i in tg.range("B"):\n    acc += tg.load(x[i, :])\ny[:] = acc'
    )
    kernel = load(
        source(text, 'x: tg.Tensor["B", 8, "f32"], z: tg.Tensor["A", 8, "f32"], y: tg.Out[8, "f32"]'), tmp_path
    ).k
    compiled = kernel.compile("sm_80")
    assert compiled.check().status == "safe"
    x, z, y = numbers(2, 8), numbers(5, 8), filled(8)
    compiled.simulate(x, z, y)
    assert np.allclose(y, 2 * x.sum(axis=0))


# ------------------------------------------------------------------------------------------ how far results may differ


class Disordered(_Machine):
    """Adds in a random order, one after the other, in f32; functions are off by up to 2 units of the last place."""

    rng = np.random.default_rng(5)

    def dot(self, op: hir.Dot) -> None:
        a, b, total = (self.get(v)[0].astype("f4") for v in (op.a, op.b, op.c))
        for k in self.rng.permutation(a.shape[1]):
            total = total + np.outer(a[:, k], b[k])
        self.set(op.result, total, None)

    def map(self, op: hir.Map) -> None:
        super().map(op)
        if ELEMENTWISE[op.op].ulps and op.result.dtype.name == "f32":
            data, _ = self.get(op.result)
            self.set(op.result, data + self.rng.integers(-2, 3, data.shape).astype("f4") * np.spacing(data), None)

    def reduce(self, op: hir.Reduce) -> None:
        if op.fold != "sum":
            return super().reduce(op)
        data, count = self.get(op.source)[0].astype("f4"), op.source.shape[op.axis]
        data = np.take(data, self.rng.permutation(count), axis=op.axis)
        sums = np.add.accumulate(data, axis=op.axis, dtype="f4")
        return self.rounded(op.result, np.take(sums, [count - 1], axis=op.axis), None)


def bounded(kernel: Any, arrays: list[np.ndarray], **constants: Any) -> list[tuple[np.ndarray, np.ndarray]]:
    """(plain, bound) per output, when the disordered machine stays within it."""
    program = kernel.program(**constants)
    names = [t.name for t in program.tensors]
    bounds = rounding_bound(program, dict(zip(names, arrays, strict=True)))
    plain, other = ([a.copy() for a in arrays] for _ in range(2))
    kernel.plain(*plain, **constants)
    Disordered(program, dict(zip(names, other, strict=True)), bind_sizes(program, other)).run()
    out = []
    for tensor, mine, want in zip(program.tensors, other, plain, strict=True):
        if tensor.output:
            assert not (text := difference(mine, want, bounds[tensor.name])), f"{tensor.name} {text}"
            out.append((want.astype("f8"), bounds[tensor.name]))
    return out


@tg.kernel(warps=1)
def chains(
    x: tg.Tensor["R", 256, "f32"],
    total: tg.Out["R", 1, "f32"],
    weights: tg.Out["R", 256, "f32"],
    normal: tg.Out["R", 256, "f32"],
    quotients: tg.Out["R", 256, "f32"],
    tiny: tg.Out["R", 256, "f32"],
):
    for r in tg.grid(tg.tiles("R", 1)):
        t = tg.load(x[r, :])
        total[r, :] = t.sum(axis=1, keepdims=True)
        weights[r, :] = tg.exp2(t - t.max(axis=1, keepdims=True))
        centred = t - t.sum(axis=1, keepdims=True) * (1 / 256)
        normal[r, :] = centred * tg.rsqrt((centred * centred).sum(axis=1, keepdims=True) * (1 / 256) + 1e-5)
        v = t / (tg.abs(t) + 0.5)
        v = v / (v * v + tg.abs(t))
        quotients[r, :] = v / (tg.sqrt(tg.abs(t)) + 1.0)
        tiny[r, :] = tg.exp2(t - 140.0) * 3.0


@pytest.mark.parametrize("scale", [1, 10])
def test_other_orders_stay_within_the_bound_which_is_not_loose(scale: int) -> None:
    x = (numbers(20, 256) * scale).astype("f4")
    outputs = [np.full((20, n), np.nan, "f4") for n in (1, 256, 256, 256, 256)]
    total, weights, normal, quotients, _ = bounded(chains, [x, *outputs])
    assert (total[1] <= 256 * 2**-23 * np.abs(x.astype("f8")).sum(axis=1, keepdims=True) * 1.001).all()
    assert (weights[1] <= 6 * np.maximum(2**-23 * weights[0], 2**-149)).all()
    assert (normal[1] <= 2**-11 * (np.abs(normal[0]) + 1)).all()
    assert (quotients[1] == 0).all()  # every step is rounded correctly: all agree bit for bit


def test_what_is_rounded_to_few_bits_mostly_agrees_exactly() -> None:
    softmax, attention = example("softmax").softmax, example("attention_small").attention
    x = numbers(4, 512, dtype=BF16)
    ((y, bound),) = bounded(softmax, [x, np.full(x.shape, np.nan, BF16)], COLS=512)
    assert (bound == 0).mean() > 0.9
    assert (bound <= 2**-7 * y).all()  # one unit of bf16
    q, k, v = (numbers(1, 1, n, 16, dtype=BF16, seed=n) for n in (32, 64, 64))
    ((y, bound),) = bounded(attention, [q, k, v, np.full(q.shape, np.nan, BF16)], D=16, BM=32, BN=32)
    assert (bound == 0).mean() > 0.5
    assert (bound <= 2**-5).all()
