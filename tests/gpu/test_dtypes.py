"""Every element type on the GPU: conversions at their edges, tiles in shared memory, products of every kind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from judging import difference
from typed import KINDS, MIXED, casting_to_all, exchanging, multiplying, numbers, operands, turning

from tidegate.ir.dtypes import DTYPES
from tidegate.ops.convert import convert
from tidegate.ops.plain import rounding_bound
from tidegate.ops.samples import unwritten
from tidegate.target.target import find


def same(mine: np.ndarray, wanted: np.ndarray) -> bool:
    """Equal numbers, NaN equal to NaN, zeros of equal sign."""
    if mine.dtype.kind in "biu":
        return np.array_equal(mine, wanted)
    a, b = mine.astype(np.float32), wanted.astype(np.float32)
    return np.array_equal(a, b, equal_nan=True) and bool((np.isnan(a) | (np.signbit(a) == np.signbit(b))).all())


@pytest.mark.parametrize("source", DTYPES)
def test_casts_between_all_types(gpu: Any, source: str) -> None:
    x = numbers(DTYPES[source], (72, 64))
    outs = [unwritten(x.shape, d) for d in DTYPES.values()]
    casting_to_all(source)(x, *outs)
    for out, target in zip(outs, DTYPES.values(), strict=True):
        assert same(out, convert(x, target)), target


def test_all_f32_with_short_fractions_become_8_bit_floats(gpu: Any) -> None:
    x = (np.arange(2**16, dtype=np.uint32) << 16).view(np.float32).reshape(-1, 64)
    for low in (0, 1, 0x8000):
        data = (x.view(np.uint32) | np.uint32(low)).view(np.float32)
        outs = [unwritten(x.shape, d) for d in DTYPES.values()]
        casting_to_all("f32")(data, *outs)
        for out, target in zip(outs, DTYPES.values(), strict=True):
            assert same(out, convert(data, target)), target


@pytest.mark.parametrize("dtype", DTYPES)
def test_tiles_of_every_type_through_shared_memory(gpu: Any, dtype: str) -> None:
    for rows, columns, stages in ((40, 48, 2), (33, 21, 1), (1, 1, 1), (64, 272, 4)):
        x = numbers(DTYPES[dtype], (rows, columns))
        y = unwritten((columns, rows), DTYPES[dtype])
        turning(dtype)(x, y, STAGES=stages)
        assert same(y, x.T)
    x, y = numbers(DTYPES[dtype], (32, 32)), unwritten((32, 32), DTYPES[dtype])
    plain = y.copy()
    ones = np.ones((32, 32), DTYPES["bf16"].numpy)
    exchanging(dtype)(ones, x, y)
    exchanging(dtype).plain(ones, x, plain)
    assert same(y, plain)


@pytest.mark.parametrize("turned", ["", "a", "b", "ab"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k[0])
def test_products(gpu: Any, kind: tuple[str, str, bool], turned: str) -> None:
    dtype, sums, tf32 = kind
    kernel, target = multiplying(dtype, sums, turned, tf32), find(gpu.arch)
    if dtype.startswith("f8") and not target.fact("float8_mma"):
        pytest.skip(f"{target.name} does not multiply {dtype}")
    for m, n, k, options in (
        (64, 96, 160, {}),
        (32, 32, 0, {}),
        (208, 208, 112, {"BM": 96, "BN": 80, "BK": 32, "STAGES": 3}),
        (256, 256, 512, {"BM": 128, "BN": 128, "BK": 64, "STAGES": 3}),
    ):
        a, b = operands(DTYPES[dtype], turned, m, n, k)
        c = unwritten((m, n), DTYPES[sums])
        plain = c.copy()
        kernel(a, b, c, **options)
        kernel.plain(a, b, plain, **options)
        bound = rounding_bound(kernel.program(**options), {"a": a, "b": b, "c": c}, target)["c"]
        assert not (text := difference(c, plain, bound)), f"{m} x {n} x {k}: {text}"


@pytest.mark.parametrize("turned", ["", "b"])
@pytest.mark.parametrize("kind", MIXED, ids=lambda k: k[0])
def test_products_of_both_8_bit_floats(gpu: Any, kind: tuple[str, str], turned: str) -> None:
    kernel, target = multiplying(kind[0], "f32", turned, other=kind[1]), find(gpu.arch)
    if not target.fact("float8_mma"):
        pytest.skip(f"{target.name} does not multiply {kind[0]}")
    for m, n, k in ((64, 96, 160), (32, 32, 0), (208, 208, 112)):
        a, b = operands(DTYPES[kind[0]], turned, m, n, k)[0], operands(DTYPES[kind[1]], turned, m, n, k)[1]
        c = unwritten((m, n), DTYPES["f32"])
        plain = c.copy()
        kernel(a, b, c)
        kernel.plain(a, b, plain)
        bound = rounding_bound(kernel.program(), {"a": a, "b": b, "c": c}, target)["c"]
        assert not (text := difference(c, plain, bound)), f"{m} x {n} x {k}: {text}"
