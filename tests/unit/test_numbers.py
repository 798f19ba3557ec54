"""Numbers that a run tells: sizes of dimensions, and numbers with a fraction that are computed without a tile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from test_language_errors import load, source

import tidegate as tg
from tidegate import cuda
from tidegate.errors import TidegateError


@tg.kernel(warps=2)
def statistics(
    x: tg.Tensor["R", "N", "f32"], mean: tg.Out["R", "f32"], top: tg.Out["R", "f32"], whole: tg.Out["R", "N", "f32"]
):
    """A size in a loop's extent, a mask, a condition, a position and a quotient."""
    for r in tg.grid(tg.tiles("R", 4)):
        total = tg.zeros((4,))
        largest = tg.full((4,), -1e30)
        for n in tg.tiles(tg.size("N"), 8):
            t = tg.load(x[r, n], by=cuda.cp_async(), stages=2)
            total += t.sum(axis=1)
            largest = tg.maximum(largest, tg.where(tg.positions(n) < tg.size("N"), t, -1e30).max(axis=1))
            if tg.end(n) <= tg.size("N"):
                whole[r, n] = t
        mean[r] = total / tg.size("N")
        top[r] = largest


@pytest.mark.parametrize("shape", [(5, 20), (4, 8), (0, 4), (3, 1), (2, 0)])
@pytest.mark.parametrize("fixed", [False, True])
def test_a_size_is_an_integer(shape: tuple[int, int], fixed: bool) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype("f4") - 5
    outputs = [np.zeros(shape[0], "f4"), np.zeros(shape[0], "f4"), np.zeros(shape, "f4")]
    simulated = [a.copy() for a in outputs]
    statistics.plain(x, *outputs, **({"N": shape[1]} if fixed else {}))
    compiled = statistics.compile("sm_80", multiples={"R": 1, "N": 1}, **({"N": shape[1]} if fixed else {}))
    assert compiled.simulate(x, *simulated).ok
    for a, b in zip(outputs, simulated, strict=True):
        assert np.allclose(a, b, rtol=1e-5, equal_nan=True)
    if shape[1]:
        assert np.allclose(outputs[0], x.mean(axis=1), rtol=1e-5)
        assert np.array_equal(outputs[1], x.max(axis=1))
        assert np.array_equal(outputs[2][:, : shape[1] // 8 * 8], x[:, : shape[1] // 8 * 8])


@tg.kernel(warps=1)
def scaled(x: tg.Tensor["R", "N", "bf16"], s: tg.Scalar["f32"], n: tg.Scalar["i32"], y: tg.Out["R", "N", "bf16"]):
    inverse = 1.0 / tg.size("N")
    factor = tg.clip(s, 0, 1) * 2.0 - n / 3 + tg.exp(-s) ** 2 + +s
    for r in tg.tiles("R", 4):
        for h in tg.range(tg.size("N") // 16):
            t = tg.load(x[r, h * 16 : h * 16 + 16])
            y[r, h * 16 : h * 16 + 16] = tg.where(s > 0.5, t * inverse, t * factor) + tg.full(
                (4, 16), factor, "bf16"
            ) * (h * 0.5)


@pytest.mark.parametrize("s", [0.25, 0.75])
def test_numbers_with_a_fraction_are_weak(s: float) -> None:
    x = np.random.default_rng(0).standard_normal((8, 32)).astype(ml_dtypes.bfloat16)
    y, z = np.zeros((2, 8, 32), ml_dtypes.bfloat16)
    scaled.plain(x, s, 4, y)
    compiled = scaled.compile("sm_80")
    assert compiled.simulate(x, s, 4, z).ok
    assert compiled.check().safe
    assert np.array_equal(y, z)
    factor = 2 * s - 4 / 3 + np.exp(-s) ** 2 + s
    wide = x.astype("f4")
    wanted = (wide / 32 if s > 0.5 else wide * factor) + np.array([0, 0.5]).repeat(16) * factor
    assert np.allclose(y.astype("f4"), wanted, rtol=0.02, atol=0.02)


SIGNATURE = (
    'a: tg.Tensor["M", "K", "f32"], s: tg.Scalar["f32"], n: tg.Scalar["i32"], b: tg.Out["M", "K", "f32"], *, B=16'
)
OPEN = 'for m, k in tg.grid(tg.tiles("M", B), tg.tiles("K", B)):\n    t = tg.load(a[m, k])\n'

REFUSED = {
    "t = t * K": ("TG102", "K", "write its size as tg.size('K')"),
    't = t * tg.size("L")': ("TG102", '"L"', "one of 'M', 'K'"),
    "t = t * tg.size(K)": ("TG102", "K", "tg.size('K')"),
    "t = t * tg.size(m)": ("TG105", "m", "name of a dimension"),
    "t = t * tg.size(3)": ("TG105", "3", "name of a dimension"),
    't = t * (n // tg.size("K"))': ("TG105", "n // tg.size('K')", "tg.maximum"),
    "t = t * tt": ("TG102", "tt", "did you mean 't'"),
    "x = s * 2\nif m > 1:\n    x = s * 3\nt = t * x": ("TG108", "x", "tg.full"),
    "t = (tg.positions(m) * (s * 2.0))[:, None] + t": ("TG202", "tg.positions(m) * (s * 2.0)", "astype"),
    "t = t * s.astype('f16')": ("TG101", "s.astype('f16')", "tg.full((1,), s, dtype)"),
    "t = t * (s * 2)[0]": ("TG101", "(s * 2)[0]", "one number"),
    'if tg.size("K") / 2 > n:\n    t = -t': ("TG101", 'tg.size("K") / 2 > n', "divide by //"),
    "if n in (1, 2):\n    t = -t": ("TG101", "n in (1, 2)", "and, or, not"),
    "if tg.load(a[0, 0]) > 0:\n    t = -t": ("TG101", "tg.load(a[0, 0]) > 0", "tg.where"),
    "t = tg.positions(m)[:, None] * s + t": ("TG202", "tg.positions(m)[:, None] * s", "make it whole by //"),
    'for q in tg.range(tg.size("K") / 2):\n    t = -t': ("TG106", 'tg.size("K") / 2', "divided by //"),
    "t = t + tg.load(a[n / 2, k])": ("TG203", "n / 2", "divide by //"),
    't = t + tg.load(a[0 : tg.size("M"), k])': ("TG203", '0 : tg.size("M")', "loop over tg.tiles"),
    "t = t.sum(axis=n)": ("TG105", "n", "keyword-only constant"),
    "t = t * n**2": ("TG105", "n**2", "n * n"),
    "t = t * (n & 3)": ("TG105", "n & 3", 'tg.full((1,), n, "i32")'),
    't = tg.zeros((tg.size("K"),))': ("TG105", '(tg.size("K"),)', "compile time"),
}


@pytest.mark.parametrize("statement", REFUSED)
def test_what_is_refused(statement: str, tmp_path: Path) -> None:
    code, under, advice = REFUSED[statement]
    body = OPEN + "".join(f"    {line}\n" for line in statement.splitlines()) + "    b[m, k] = t\n"
    kernel: Any = load(source(body, SIGNATURE), tmp_path).k
    with pytest.raises(TidegateError) as caught:
        kernel.compile("sm_80")
    error = caught.value
    assert error.code == code, error
    assert error.span is not None
    assert error.span.text[error.span.column : error.span.end_column].replace("'", '"') == under.replace("'", '"')
    assert advice in f"{error.text} {error.next_step}", error


# ------------------------------------------------------------------------------------------ elements and numbers


@tg.kernel(warps=1)
def elements(
    scale: tg.Tensor["B", 3, "f16"],
    count: tg.Tensor["B", "i32"],
    x: tg.Tensor["B", 16, "bf16"],
    flag: tg.Scalar["i32"],
    y: tg.Out["B", 16, "bf16"],
    last: tg.Out["B", "f32"],
    seen: tg.InOut["B", 2, "i32"],
    total: tg.InOut[1, "f32"],
):
    """One element read, written, updated and added to, of floats and of integers."""
    for b in tg.grid(tg.range("B")):
        s = tg.load(scale[b, 1])
        row = b
        if flag:
            y[b, :] = tg.load(x[row, :]) * s
        else:
            y[b, :] = 0
        last[b] = tg.load(x[b, :]).astype("f32").max(axis=0) + s
        seen[b, 0] = tg.load(count[b]) + 1
        seen[b, 1] += tg.load(seen[b, 1]) * 2
        tg.atomic_add(total[0], s)


@pytest.mark.parametrize("flag", [0, 2])
def test_one_element_is_a_number_and_takes_a_number(flag: int) -> None:
    rng = np.random.default_rng(0)
    scale, count = rng.standard_normal((5, 3)).astype("f2"), rng.integers(0, 9, 5).astype("i4")
    x = rng.standard_normal((5, 16)).astype(ml_dtypes.bfloat16)

    def outputs() -> list[np.ndarray]:
        seen = np.arange(10, dtype="i4").reshape(5, 2)
        return [np.ones((5, 16), ml_dtypes.bfloat16), np.zeros(5, "f4"), seen, np.ones(1, "f4")]

    plain, simulated = outputs(), outputs()
    elements.plain(scale, count, x, flag, *plain)
    compiled = elements.compile("sm_80")
    assert compiled.simulate(scale, count, x, flag, *simulated).ok
    assert compiled.check().safe
    for a, b in zip(plain, simulated, strict=True):
        assert np.allclose(a.astype("f4"), b.astype("f4"), rtol=1e-6)
    wide, factor = x.astype("f4"), scale[:, 1:2].astype("f4")
    wanted = (wide * factor).astype(ml_dtypes.bfloat16) if flag else 0 * wide
    assert np.array_equal(plain[0].astype("f4"), wanted.astype("f4"))
    assert np.array_equal(plain[1], wide.max(axis=1) + factor[:, 0])
    assert np.array_equal(plain[2], np.stack([count + 1, np.arange(1, 10, 2) * 3], axis=1))
    assert np.allclose(plain[3], 1 + factor.sum())


@tg.kernel(warps=1)
def slices(x: tg.Tensor["R", "N", "f32"], y: tg.InOut["R", "N", "f32"], z: tg.InOut["R", "N", "f32"]):
    """CTAs, as many as a computed number, that write a slice or an element each."""
    for r, h in tg.grid(tg.tiles("R", 4), tg.range(tg.size("N") // 16 - 1)):
        first = tg.load(x[r, h * 16 : h * 16 + 8])
        y[r, h * 16 : h * 16 + 8] = tg.load(x[r, h * 16 + 8 : h * 16 + 16])
        y[r, h * 16 + 8 : h * 16 + 16] = first
        z[r, h : h + 1] = first.sum(axis=1, keepdims=True)


@tg.kernel(warps=1)
def first_rows(x: tg.Tensor["R", 32, "f32"], y: tg.InOut["R", 32, "f32"]):
    for r in tg.grid(tg.tiles("R", 4)):
        y[tg.begin(r), :] = tg.load(x[r, :]).sum(axis=0)


def test_ctas_may_write_the_first_row_of_their_tile() -> None:
    x = np.random.default_rng(0).standard_normal((12, 32)).astype("f4")
    y, z = np.zeros((2, 12, 32), "f4")
    first_rows.plain(x, y)
    assert first_rows.compile("sm_80", multiples={"R": 1}).simulate(x, z).ok
    assert np.allclose(y[::4], x.reshape(3, 4, 32).sum(axis=1), rtol=1e-5, atol=1e-6)
    assert np.allclose(z, y, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("width", [0, 8, 32, 80])
def test_ctas_may_write_slices_that_move_by_their_size(width: int) -> None:
    x = np.random.default_rng(0).standard_normal((6, width)).astype("f4")
    y, z, simulated, also = np.zeros((4, 6, width), "f4")
    slices.plain(x, y, z)
    compiled = slices.compile("sm_80", multiples={"R": 1, "N": 8})
    assert compiled.simulate(x, simulated, also).ok
    assert compiled.check().safe
    wanted, some = np.zeros((6, width), "f4"), max(width // 16 - 1, 0)
    wanted[:, : some * 16] = x[:, : some * 16].reshape(6, some, 2, 8)[:, :, ::-1].reshape(6, -1)
    assert np.array_equal(y, wanted)
    assert np.array_equal(simulated, wanted)
    sums = x[:, : some * 16].reshape(6, some, 2, 8)[:, :, 0].sum(axis=-1)
    assert np.allclose(z[:, :some], sums, rtol=1e-5)
    assert np.allclose(also, z, rtol=1e-5)


@tg.kernel(warps=1)
def twice(x: tg.Tensor["N", 16, "f32"], y: tg.InOut["N", 16, "f32"], z: tg.InOut["N", 16, "f32"]):
    """Tiles of a grid and of a loop that lie beyond the tensor."""
    for n in tg.grid(tg.tiles(tg.size("N") * 2, 8)):
        y[n, :] = tg.load(x[n, :])
        for k in tg.tiles(tg.size("N") * 2 - 8, 8):
            if k == n:
                z[n, :] = tg.load(x[k, :])


@pytest.mark.parametrize("given", [{}, {"N": 16}])
def test_tiles_beyond_the_tensor_are_masked(given: dict[str, int]) -> None:
    x = np.random.default_rng(0).standard_normal((16, 16)).astype("f4")
    y, z = np.zeros((2, 16, 16), "f4")
    compiled = twice.compile("sm_80", **given)
    assert compiled.check().status != "unsafe"
    assert compiled.simulate(x, y, z).ok
    assert np.array_equal(y, x)
    assert np.array_equal(z, x)


@tg.kernel(warps=1)
def crossed(x: tg.Tensor["M", "K", "f32"], y: tg.Out["M", "N", "f32"], sums: tg.Out["M", "f32"]):
    """An axis of size K, indexed by the tiles of N: what lies beyond K is zero."""
    for m in tg.grid(tg.tiles("M", 4)):
        total = tg.zeros((4,))
        for n in tg.tiles(tg.size("N"), 8):
            t = tg.load(x[m, n], by=cuda.cp_async(), stages=3)
            total += t.sum(axis=1)
            y[m, n] = t
        sums[m] = total


@pytest.mark.parametrize(("k", "n"), [(20, 33), (33, 20), (16, 16), (0, 9), (8, 0)])
def test_a_loop_over_a_size_indexes_any_axis(k: int, n: int) -> None:
    x = np.random.default_rng(0).standard_normal((6, k)).astype("f4")
    wanted = np.zeros((6, n), "f4")
    wanted[:, : min(k, n)] = x[:, : min(k, n)]
    compiled = crossed.compile("sm_80", multiples={"M": 1, "K": 1, "N": 1})
    for run in (crossed.plain, compiled.simulate):
        y, sums = np.full((6, n), np.nan, "f4"), np.full(6, np.nan, "f4")
        run(x, y, sums)
        assert np.array_equal(y, wanted)
        assert np.allclose(sums, x[:, : -(-n // 8) * 8].sum(axis=1), atol=1e-5)  # the last tile is read as x has it
    assert compiled.check().safe
