"""Integers, bits and masks: operators, functions and reductions against NumPy, as plain program and simulated."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from judging import difference
from test_language_errors import load, source

import tidegate as tg
from tidegate.ir import hir
from tidegate.ops.plain import rounding_bound

I32 = np.iinfo(np.int32)
EDGES = np.array([0, 1, -1, 2, -2, 3, -7, 31, 32, 33, -32, 1000, 2**30, I32.min, I32.min + 1, I32.max], np.int32)


KINDS = {"f32": "f4", "f16": "f2", "bf16": ml_dtypes.bfloat16, "i8": "i1", "i32": "i4", "i64": "i8"}


def table(expressions: list[str], dtype: str, folder: Path) -> Any:
    """A kernel with a plane of the output per expression of the tiles p and q."""
    body = ['for r in tg.grid(tg.tiles("R", 8)):', "    p = tg.load(left[r, :])", "    q = tg.load(right[r, :])"]
    body += [f"    y[{at}, r, :] = {expression}" for at, expression in enumerate(expressions)]
    of = f'tg.Tensor["R", 16, "{dtype}"]'
    signature = f'left: {of}, right: {of}, y: tg.Out[{len(expressions)}, "R", 16, "{dtype}"]'
    return load(source("\n".join(body), signature), folder).k


def elementwise(expression: str, folder: Path, dtype: str = "i32") -> Any:
    """A kernel that computes an expression of the tiles p and q."""
    body = f"""
        for r in tg.grid(tg.tiles("R", 8)):
            p = tg.load(left[r, :])
            q = tg.load(right[r, :])
            y[r, :] = {expression}
    """
    of = f'["R", 16, "{dtype}"]'
    return load(source(body, f"left: tg.Tensor{of}, right: tg.Tensor{of}, y: tg.Out{of}"), folder).k


def agreed(kernel: Any, *arrays: np.ndarray, **options: Any) -> list[np.ndarray]:
    """The outputs of the plain program, when the compiled kernel is proved and simulates to them within its bound."""
    program = kernel.program()
    multiples = dict.fromkeys(program.dims, 1)
    plain = [a.copy() for a in arrays]
    kernel.plain(*plain)
    names = [t.name for t in program.tensors]
    bounds = rounding_bound(program, dict(zip(names, arrays, strict=True)))
    for plan in ("in_order", "multistage"):
        made = kernel.compile("sm_80", plan=plan, multiples=multiples, **options)
        assert made.check().status == "safe"
        for completion in ("late", "early"):
            found = [a.copy() for a in arrays]
            assert made.simulate(*found, completion=completion).ok
            for tensor, mine, want in zip(program.tensors, found, plain, strict=True):
                assert not tensor.output or not difference(mine, want, bounds[tensor.name]), (plan, completion)
    return [p for p, t in zip(plain, program.tensors, strict=True) if t.output]


def every_pair(dtype: str = "i32") -> tuple[np.ndarray, np.ndarray]:
    """Each edge with each other one; of other widths than 32 bits, their ends instead of those of 32 bits."""
    ends = np.iinfo(KINDS[dtype])
    here = {I32.min: ends.min, I32.min + 1: ends.min + 1, I32.max: ends.max, 1000: 100, 2**30: ends.max // 2 + 1}
    edges = EDGES if dtype == "i32" else np.array([here.get(e, e) for e in EDGES.tolist()], KINDS[dtype])
    p, q = np.meshgrid(edges, edges, indexing="ij")
    return np.ascontiguousarray(p), np.ascontiguousarray(q)


def wrapped(exact: Any, dtype: np.dtype) -> np.ndarray:
    """Whole numbers of any size, reduced to the bits of ``dtype``."""
    bits = 8 * dtype.itemsize
    low = np.vectorize(lambda n: (int(n) + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1), otypes=[np.int64])
    return low(exact).astype(dtype)


def exactly(function: Callable[[int, int], int]) -> Callable[..., np.ndarray]:
    """NumPy-free meaning: Python's integers, then the bits that there are."""
    return lambda p, q: wrapped(np.frompyfunc(function, 2, 1)(p.astype(object), q.astype(object)), p.dtype)


INTEGER: dict[str, Callable[..., Any]] = {
    "p + q": exactly(lambda p, q: p + q),
    "p - q": exactly(lambda p, q: p - q),
    "p * q": exactly(lambda p, q: p * q),
    "-p": exactly(lambda p, q: -p),
    "+p": exactly(lambda p, q: p),
    "p // q": exactly(lambda p, q: p // q if q else 0),
    "p % q": exactly(lambda p, q: p % q if q else 0),
    "p // 7": exactly(lambda p, q: p // 7),
    "p % -7": exactly(lambda p, q: p % -7),
    "100 // q": exactly(lambda p, q: 100 // q if q else 0),
    "p << q": exactly(lambda p, q: p << q if 0 <= q < 64 else 0),
    "p >> q": exactly(lambda p, q: p >> q if q >= 0 else -(p < 0)),
    "p << 3": exactly(lambda p, q: p << 3),
    "p & q": exactly(lambda p, q: p & q),
    "p | q": exactly(lambda p, q: p | q),
    "p ^ q": exactly(lambda p, q: p ^ q),
    "~p": exactly(lambda p, q: ~p),
    "p & 0x7fffffff": exactly(lambda p, q: p & 0x7FFFFFFF),
    "p ** 3": exactly(lambda p, q: p**3),
    "p ** 0": exactly(lambda p, q: 1),
    "tg.pow(p, 13)": exactly(lambda p, q: p**13),
    "tg.square(p)": exactly(lambda p, q: p * p),
    "tg.abs(p)": exactly(lambda p, q: abs(p)),
    "tg.sign(p)": exactly(lambda p, q: (p > 0) - (p < 0)),
    "tg.maximum(p, q)": exactly(max),
    "tg.minimum(p, -2147483648)": exactly(lambda p, q: min(p, I32.min)),
    "tg.clip(p, -7, 31)": exactly(lambda p, q: min(max(p, -7), 31)),
    "tg.clip(p, max=q)": exactly(min),
    "tg.clip(p, min=None, max=3)": exactly(lambda p, q: min(p, 3)),
    "tg.floor(p) + tg.round(q)": exactly(lambda p, q: p + q),
    "tg.where((p < q) ^ (p == 0), p, -1)": exactly(lambda p, q: p if (p < q) != (p == 0) else -1),
    'tg.logical_xor(p, q).astype("i32")': exactly(lambda p, q: bool(p) != bool(q)),
    'tg.logical_and(p, q < 5).astype("i32")': exactly(lambda p, q: bool(p) and q < 5),
    'tg.logical_or(tg.logical_not(p), False).astype("i32")': exactly(lambda p, q: not p),
    '((p < q) == (q < 0)).astype("i32")': exactly(lambda p, q: (p < q) == (q < 0)),
    '(~(p < q) & True).astype("i32")': exactly(lambda p, q: not p < q),
}


@pytest.mark.parametrize("expression", INTEGER)
def test_operators_of_integers(expression: str, tmp_path: Path) -> None:
    p, q = every_pair()
    (y,) = agreed(elementwise(expression, tmp_path), p, q, np.full_like(p, 77))
    assert np.array_equal(y, INTEGER[expression](p, q))


@pytest.mark.parametrize("dtype", ["i8", "i64"])
def test_operators_of_other_widths(dtype: str, tmp_path: Path) -> None:
    """i8 is computed in 32 bits of which 8 are kept, i64 in 64."""
    beyond = ("2147483648", "0x7fffffff") if dtype == "i8" else ()
    expressions = [e.replace("i32", dtype) for e in INTEGER if not any(n in e for n in beyond)]
    p, q = every_pair(dtype)
    y = np.full((len(expressions), *p.shape), 77, p.dtype)
    (y,) = agreed(table(expressions, dtype, tmp_path), p, q, y)
    for expression, found in zip(expressions, y, strict=True):
        assert np.array_equal(found, INTEGER[expression.replace(dtype, "i32")](p, q)), expression


@pytest.mark.parametrize("expression", ["p // q", "p % q", "p << q", "p >> q", "p ** 5", "tg.abs(p)", "tg.sign(p)"])
def test_integers_mean_what_numpy_says(expression: str, tmp_path: Path) -> None:
    """Also where mathematics says nothing: divisions by 0, shifts by more than there are bits, overflow."""
    p, q = every_pair()
    y = np.full_like(p, 77)
    elementwise(expression, tmp_path).plain(p, q, y)
    with np.errstate(all="ignore"):
        assert np.array_equal(y, eval(expression, {"p": p, "q": q, "tg": np}))


@pytest.mark.parametrize("statement", ["//= 3", "%= 5", "<<= 2", ">>= 1", "&= 12", "|= 5", "^= -1", "**= 2", "+= q"])
def test_augmented_assignments(statement: str, tmp_path: Path) -> None:
    body = f"""
        for r in tg.grid(tg.tiles("R", 8)):
            t = tg.load(left[r, :])
            u = tg.load(right[r, :])
            t {statement.replace("q", "u")}
            y[r, :] = t
    """
    of = '["R", 16, "i32"]'
    text = source(body, f"left: tg.Tensor{of}, right: tg.Tensor{of}, y: tg.Out{of}")
    p, q = every_pair()
    y = np.full_like(p, 77)
    load(text, tmp_path).k.plain(p, q, y)
    space = {"t": p.copy(), "q": q}
    exec(f"t {statement}", space)
    assert np.array_equal(y, space["t"])


# ------------------------------------------------------------------------------------------ floats

NUMBERS = np.array(
    [
        0.0,
        -0.0,
        0.5,
        -0.5,
        1.5,
        2.5,
        -2.5,
        0.49999997,
        3.0,
        -7.25,
        1e-45,
        1e-30,
        8388609.0,
        16777218.0,
        3e38,
        0.3,
        np.inf,
        -np.inf,
        np.nan,
        -1e-40,
        1e22,
        -123456.79,
        1.0,
        100.0,
    ],
    np.float32,
)
FLOAT: dict[str, Callable[..., Any]] = {
    "p // q": np.floor_divide,
    "p % q": np.remainder,
    "p % 1.0": lambda p, q: np.remainder(p, np.float32(1)),
    "tg.floor(p)": lambda p, q: np.floor(p),
    "tg.ceil(p)": lambda p, q: np.ceil(p),
    "tg.trunc(p)": lambda p, q: np.trunc(p),
    "tg.round(p)": lambda p, q: np.round(p),
    "tg.sign(p)": lambda p, q: np.sign(p),
    "tg.reciprocal(p)": lambda p, q: np.reciprocal(p),
    "tg.square(p)": lambda p, q: np.square(p),
    "tg.clip(p, q, 3)": lambda p, q: np.minimum(np.maximum(p, q), np.float32(3)),
    "tg.clip(p, min=-0.5)": lambda p, q: np.clip(p, np.float32(-0.5), None),
    "p ** 0": lambda p, q: np.ones_like(p),
    "p ** 1": lambda p, q: p,
    "p ** 3": lambda p, q: p * (p * p),
    "p ** 6.0": lambda p, q: (p * p) * ((p * p) * (p * p)),
    "p ** -2": lambda p, q: 1 / (p * p),
    'tg.isnan(p / q).astype("f32")': lambda p, q: np.isnan(p / q),
    'tg.isinf(p / q).astype("f32")': lambda p, q: np.isinf(p / q),
    'tg.isfinite(p / q).astype("f32")': lambda p, q: np.isfinite(p / q),
    'tg.logical_or(p, q).astype("f32")': np.logical_or,
    "tg.where(tg.logical_and(p, q), p, 0.0)": lambda p, q: np.where(np.logical_and(p, q), p, np.float32(0)),
}


@pytest.mark.parametrize("expression", FLOAT)
def test_functions_of_floats_that_round_once(expression: str, tmp_path: Path) -> None:
    p, q = (np.ascontiguousarray(x).reshape(-1, 16) for x in np.meshgrid(NUMBERS, NUMBERS, indexing="ij"))
    (y,) = agreed(elementwise(expression, tmp_path, "f32"), p, q, np.full_like(p, 77))
    with np.errstate(all="ignore"):
        want = np.asarray(FLOAT[expression](p, q), np.float32)
    assert np.array_equal(y.view(np.int32), want.view(np.int32)) or np.array_equal(y, want, equal_nan=True)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("power", [2, 3, -1, -3])
def test_powers_of_half_the_width_round_once(dtype: str, power: int, tmp_path: Path) -> None:
    kind = KINDS[dtype]
    p = (np.random.default_rng(0).standard_normal((8, 16)) + 2).astype(kind)
    (y,) = agreed(elementwise(f"p ** {power}", tmp_path, dtype), p, p, np.zeros_like(p))
    wide = p.astype("f4")
    positive = wide * wide if abs(power) == 2 else wide if abs(power) == 1 else wide * (wide * wide)
    assert np.array_equal(y, (positive if power > 0 else 1 / positive).astype(kind))


LARGE = 10.0 ** np.linspace(-30, 38, 512)


@pytest.mark.parametrize("name", ["sin", "cos", "expm1", "log1p", "erf", "exp", "log", "tanh"])
def test_functions_are_within_one_unit_however_large_the_operand(name: str, tmp_path: Path) -> None:
    signs = [1] if name.startswith("log") else [1, -1]
    x = np.concatenate([s * LARGE for s in signs]).astype("f4").reshape(-1, 16)
    y = np.zeros_like(x)
    elementwise(f"tg.{name}(p)", tmp_path, "f32").plain(x, x, y)
    want = np.array([_limited(getattr(math, name), float(v)) for v in x.ravel()]).reshape(x.shape)
    with np.errstate(over="ignore"):
        nearest = want.astype("f4")
    finite = np.isfinite(nearest)
    assert (np.abs(y[finite].astype("f8") - want[finite]) <= np.spacing(np.abs(nearest[finite]))).all()
    assert np.array_equal(y[~finite], nearest[~finite])


def _limited(function: Callable[[float], float], x: float) -> float:
    try:
        return function(x)
    except OverflowError:
        return math.inf


# ------------------------------------------------------------------------------------------ tiles of numbers


@pytest.mark.parametrize(
    ("expression", "want"),
    [
        ("tg.arange(12)", np.arange(12)),
        ("tg.arange(3, 15)", np.arange(3, 15)),
        ("tg.arange(-5, 31, 3)", np.arange(-5, 31, 3)),
        ("tg.arange(11, -1, -1)", np.arange(11, -1, -1)),
        ("tg.arange(0, stop=24, step=N)", np.arange(0, 24, 2)),
        ("tg.full((12,), -2147483648, 'i32')", np.full(12, I32.min)),
        ("tg.zeros(12, 'i32')", np.zeros(12)),
        ("tg.full(12, True, 'bool').astype('i32')", np.ones(12)),
        ("(tg.zeros(12, 'bool') ^ (tg.arange(12) < 4)).astype('i32')", np.arange(12) < 4),
    ],
)
def test_tiles_of_numbers(expression: str, want: np.ndarray, tmp_path: Path) -> None:
    kernel = load(source(f"y[:] = {expression}", 'y: tg.Out[12, "i32"], *, N=2'), tmp_path).k
    (y,) = agreed(kernel, np.full(12, 77, "i4"))
    assert np.array_equal(y, want)


def test_arange_of_another_dtype(tmp_path: Path) -> None:
    kernel = load(source("y[:] = tg.arange(1, 9, dtype='f16') / 8", 'y: tg.Out[8, "f16"]'), tmp_path).k
    (y,) = agreed(kernel, np.zeros(8, "f2"))
    assert np.array_equal(y, np.arange(1, 9) / 8)


# ------------------------------------------------------------------------------------------ reductions

FOLDS: dict[str, Callable[..., np.ndarray]] = {
    "sum": lambda x, **how: np.sum(x, dtype=np.int32, **how),
    **{name: getattr(np, name) for name in ("max", "min", "any", "all", "argmax", "argmin")},
}


@pytest.mark.parametrize("warps", [1, 4])
@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("fold", FOLDS)
def test_folds_of_integers(fold: str, axis: int, keep: bool, warps: int, tmp_path: Path) -> None:
    """Within a warp, and across the warps through shared memory."""
    shape = [(1, 64), (8, 1)][axis] if keep else [(64,), (8,)][axis]
    sizes, colons = ", ".join(map(str, shape)), ", ".join(":" * len(shape))
    body = f"t = tg.load(x[:, :])\ny[{colons}] = t.{fold}(axis={axis}, keepdims={keep}).astype('i32')"
    text = source(body, f'x: tg.Tensor[8, 64, "i32"], y: tg.Out[{sizes}, "i32"]', f"@tg.kernel(warps={warps})")
    rng = np.random.default_rng(1)
    x = rng.choice(EDGES, (8, 64))
    x[2], x[:, 3] = 0, 5
    (y,) = agreed(load(text, tmp_path).k, x, np.full(shape, 77, "i4"))
    assert np.array_equal(y, FOLDS[fold](x, axis=axis, keepdims=keep))


@pytest.mark.parametrize("dtype", ["i8", "i64"])
@pytest.mark.parametrize("fold", FOLDS)
def test_folds_of_other_widths(fold: str, dtype: str, tmp_path: Path) -> None:
    """Sums of i8 are i32, as are positions; i64 keeps its 64 bits on the way through shared memory."""
    given = {"sum": "i32" if dtype == "i8" else dtype, "max": dtype, "min": dtype, "any": "bool", "all": "bool"}
    result = given.get(fold, "i32")
    text = source(
        f"t = tg.load(x[:, :])\ny[:] = t.{fold}(axis=0)\nz[:] = t.{fold}(axis=1)",
        f'x: tg.Tensor[8, 64, "{dtype}"], y: tg.Out[64, "{result}"], z: tg.Out[8, "{result}"]',
        "@tg.kernel(warps=4)",
    )
    x = np.random.default_rng(1).choice(every_pair(dtype)[0][:, 0], (8, 64))
    x[2], x[:, 3] = 0, 5
    kind = bool if result == "bool" else KINDS[result]
    y, z = agreed(load(text, tmp_path).k, x, np.zeros(64, kind), np.zeros(8, kind))
    for found, axis in ((y, 0), (z, 1)):
        want = np.sum(x, axis=axis, dtype=kind) if fold == "sum" else getattr(np, fold)(x, axis=axis)
        assert np.array_equal(found, want)


@pytest.mark.parametrize("dtype", ["f32", "bf16", "bool"])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("fold", ["argmax", "argmin"])
def test_places_of_extremes_are_the_first_and_nan_wins(fold: str, axis: int, dtype: str, tmp_path: Path) -> None:
    x = np.random.default_rng(2).integers(-3, 4, (16, 16)).astype("f4")
    x[1, 3], x[1, 9], x[5, 9] = np.nan, np.nan, np.inf
    x[7], x[8, :2], x[9, 15] = -np.inf, (-0.0, 0.0), -np.inf
    held = "bf16" if dtype == "bf16" else "f32"
    x = x.astype(ml_dtypes.bfloat16) if dtype == "bf16" else x
    tile = "tg.load(x[:, :])" + (" > 0" if dtype == "bool" else "")
    text = source(f"t = {tile}\ny[:] = tg.{fold}(t, {axis})", f'x: tg.Tensor[16, 16, "{held}"], y: tg.Out[16, "i32"]')
    (y,) = agreed(load(text, tmp_path).k, x, np.full(16, 77, "i4"))
    wide = x.astype("f4")
    assert np.array_equal(y, getattr(np, fold)(wide > 0 if dtype == "bool" else wide, axis=axis))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("fold", ["any", "all", "sum", "max"])
def test_folds_of_masks(fold: str, axis: int, tmp_path: Path) -> None:
    x = np.random.default_rng(3).integers(0, 2, (16, 32)).astype("f4")
    x[3], x[:, 4], x[5], x[:, 6] = 0, 0, 1, 1
    size = (32, 16)[axis]
    text = source(
        f"y[:] = tg.{fold}(tg.load(x[:, :]) != 0, {axis}).astype('i32')",
        f'x: tg.Tensor[16, 32, "f32"], y: tg.Out[{size}, "i32"]',
    )
    (y,) = agreed(load(text, tmp_path).k, x, np.full(size, 77, "i4"))
    assert np.array_equal(y, getattr(np, fold)(x != 0, axis=axis))


@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_a_mean_is_divided_in_f32_and_rounded_once(dtype: str, tmp_path: Path) -> None:
    kind = KINDS[dtype]
    x = np.full((4, 256), 1000.5, kind)  # the sum is beyond f16
    of = f'x: tg.Tensor[4, 256, "{dtype}"], y: tg.Out[4, "{dtype}"]'
    (y,) = agreed(load(source("y[:] = tg.load(x[:, :]).mean(axis=1)", of), tmp_path).k, x, np.zeros(4, kind))
    assert np.array_equal(y, x[:, 0])


@tg.kernel(warps=4)
def histogram(
    x: tg.Tensor["N", "f32"],
    counts: tg.Out[16, "i32"],
    last: tg.Out[16, "i32"],
    *,
    STAGES=2,
):
    """How many numbers fall into each bin, and the last position of one."""
    total = tg.zeros((16,), "i32")
    place = tg.full((16,), -1, "i32")
    for n in tg.tiles("N", 64):
        at = tg.positions(n)
        bins = tg.clip(tg.load(x[n], to="shared", stages=STAGES) * 16, 0, 15)
        hit = (tg.floor(bins)[None, :] == tg.arange(16, dtype="f32")[:, None]) & (at < 1000)
        total += hit.sum(axis=1)
        place = tg.maximum(place, tg.where(hit, at, -1).max(axis=1))
    counts[:] = total
    last[:] = place


@pytest.mark.parametrize("stages", [1, 2, 4])
@pytest.mark.parametrize("size", [0, 64, 128, 448])
def test_integers_carried_by_loops(size: int, stages: int) -> None:
    x = np.random.default_rng(4).random(size).astype("f4")
    want = np.minimum((x * 16).astype(int), 15)
    arrays = (x, np.full(16, 77, "i4"), np.full(16, 77, "i4"))
    plain = [a.copy() for a in arrays]
    histogram.plain(*plain, STAGES=stages)
    assert np.array_equal(plain[1], np.bincount(want, minlength=16))
    assert np.array_equal(plain[2], [max(np.flatnonzero(want == b), default=-1) for b in range(16)])
    for plan in ("in_order", "multistage"):
        made = histogram.compile("sm_80", plan=plan, STAGES=stages)
        assert made.check().status == "safe"
        for completion in ("late", "early", "random"):
            found = [a.copy() for a in arrays]
            assert made.simulate(*found, completion=completion).ok
            assert np.array_equal(found[1], plain[1])
            assert np.array_equal(found[2], plain[2])


# ------------------------------------------------------------------------------------------ how far results may differ


def bound_of(expression: str, folder: Path, x: np.ndarray, result: str = "f32") -> np.ndarray:
    """The bound of a function of a product of matrices, which is off by about 2**-20."""
    body = f"t = tg.dot(tg.load(x[:, :]), tg.load(x[:, :]))\ny[:, :] = {expression}"
    program = load(source(body, f'x: tg.Tensor[16, 16, "f32"], y: tg.Out[16, 16, "{result}"]'), folder).k.program()
    outputs = np.zeros((16, 16), {"f32": "f4", "i32": "i4"}[result])
    return rounding_bound(program, {"x": x, "y": outputs})["y"]


def test_a_step_is_open_only_where_the_error_crosses_it(tmp_path: Path) -> None:
    x = np.zeros((16, 16), "f4")
    x[:, 0], x[0] = np.arange(16), 1.0  # the product holds whole numbers in column 0 and halves elsewhere
    x[0, 1:] = 0.5
    bound = bound_of("tg.floor(t)", tmp_path, x)
    assert (bound[2:, 0] >= 1).all()
    assert (bound[3::2, 1:] == 0).all()
    assert (bound_of("tg.isfinite(t).astype('f32')", tmp_path, x) == 0).all()
    assert (bound_of("t % 1024.0", tmp_path, x)[3::2, 1:] < 1e-3).all()


def test_bits_of_uncertain_integers_are_unknown(tmp_path: Path) -> None:
    x = np.eye(16, dtype="f4")
    mask = "(t > 1).astype('i32')"  # open on the diagonal, where the sum may not be 1 exactly
    for expression, least, most in (
        ("& 1", 2**31, 2**32),
        ("<< 3", 2**31, 2**32),
        ("+ 5", 1, 1),
        ("+ 2147483647", 2**31, 2**32),
    ):
        bound = bound_of(f"{mask} {expression}", tmp_path, x, "i32")
        assert ((np.diag(bound) >= least) & (np.diag(bound) <= most)).all()
        assert bound[0, 1] == 0
    assert (bound_of("(tg.arange(16)[:, None] ^ tg.arange(16)) * 3", tmp_path, x, "i32") == 0).all()


def test_one_power_is_one_product_per_bit(tmp_path: Path) -> None:
    text = source("y[:] = tg.load(x[:]) ** 1024", 'x: tg.Tensor[8, "f32"], y: tg.Out[8, "f32"]')
    ops = [n for n in load(text, tmp_path).k.program().body if isinstance(n, hir.Map)]
    assert [n.op for n in ops] == ["mul"] * 10
