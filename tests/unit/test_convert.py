"""Conversions between element types, against definitions that do not use them."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.emit.header import parts
from tidegate.ir.dtypes import BOOL, DTYPES, F8E4M3, F8E5M2, F16, F32, I8, I32, I64, NUMPY_NAMES, DType
from tidegate.ops.convert import convert, tf32
from tidegate.ops.plain import converted_error

FLOATS8 = (F8E4M3, F8E5M2)
anything = st.floats(width=32, allow_nan=True, allow_infinity=True)


def as_f32(value: float) -> np.ndarray:
    return np.array([value], np.float32)


def float8_table(dtype: DType) -> np.ndarray:
    """The finite numbers that are not negative, in rising order: their codes are their places."""
    values = np.arange(128, dtype=np.uint8).view(dtype.numpy).astype(np.float64)
    return values[: int(np.isfinite(values).sum())]


@pytest.mark.parametrize("dtype", FLOATS8, ids=str)
@given(value=anything)
def test_8_bit_floats_are_the_nearest_and_saturate(dtype: DType, value: float) -> None:
    (got,) = convert(as_f32(value), dtype)
    if np.isnan(value):
        assert np.isnan(got.astype(np.float32))
        return
    table = float8_table(dtype)
    assert table[-1] == dtype.finite
    distance = np.abs(table - min(abs(float(np.float32(value))), table[-1]))
    nearest = np.flatnonzero(distance == distance.min())
    assert got.view(np.uint8) & 0x7F == min(nearest, key=lambda code: code % 2)
    assert np.signbit(got.astype(np.float32)) == np.signbit(value)


@pytest.mark.parametrize("dtype", [I8, I32, I64], ids=str)
@given(value=anything)
def test_floats_become_integers_towards_zero_and_saturate(dtype: DType, value: float) -> None:
    ends = np.iinfo(dtype.numpy)
    exact = 0 if np.isnan(value) else int(value) if np.isfinite(value) else int(np.sign(value)) * 2**80
    assert int(convert(as_f32(value), dtype)[0]) == min(max(exact, ends.min), ends.max)


@given(value=st.integers(-(2**63), 2**63 - 1))
def test_integers_become_narrower_ones_modulo_their_bits(value: int) -> None:
    for dtype in (I8, I32):
        assert (int(convert(np.array([value]), dtype)[0]) - value) % 2 ** (8 * dtype.size) == 0


@given(value=anything)
def test_tf32_is_nearest_with_ties_away_from_zero(value: float) -> None:
    (got,) = tf32(as_f32(value))
    if not np.isfinite(value):
        assert got == value or (np.isnan(got) and np.isnan(value))
        return
    _, exponent = np.frexp(np.float64(value))
    unit = 2.0 ** max(int(exponent) - 11, -136)  # of the last of 10 bits of fraction; f32's smallest has 13 bits less
    nearest = np.sign(value) * np.floor(abs(float(value)) / unit + 0.5) * unit
    with np.errstate(over="ignore"):
        assert got == np.float32(nearest)


def test_masks_are_whether_it_is_not_zero() -> None:
    assert (
        convert(np.array([0.0, -0.0, np.nan, 1e-45, np.inf], np.float32), BOOL).tolist() == [False, False] + [True] * 3
    )
    for dtype in DTYPES.values():
        assert convert(np.array([True, False]), dtype).astype(np.float32).tolist() == [1.0, 0.0]


def test_f16_overflows_to_infinity_and_integers_go_by_way_of_f32() -> None:
    assert np.isinf(convert(as_f32(65520.0), F16)[0])
    twice = 2**24 + 2**12 + 1  # f32 drops the last bit, which then is a tie for f16's eleven
    assert float(convert(np.array([twice >> 10]), F16)[0]) == float(np.float16(np.float32(twice >> 10)))
    assert float(convert(np.array([2**53 + 1]), F32)[0]) == 2.0**53


def test_every_type_has_a_name_elsewhere() -> None:
    assert sorted(NUMPY_NAMES.values()) == sorted(DTYPES)
    assert all(NUMPY_NAMES[d.numpy.name] == d.name and d.numpy.itemsize == d.size for d in DTYPES.values())


# ---------------------------------------------------------------------------------------------- the header's own

NATIVE = """
#include <cmath>
#include <cstring>
#define __device__
#define __forceinline__ inline
#define __CUDA_ARCH__ 800
using std::fmin;
static float __uint_as_float(unsigned u) { float f; memcpy(&f, &u, 4); return f; }
static unsigned __float_as_uint(float f) { unsigned u; memcpy(&u, &f, 4); return u; }
PARTS
extern "C" void encode(const float* x, unsigned char* out, long n) {
  for (long i = 0; i < n; ++i) {
    out[2 * i] = to_f8e4m3x4(0, x[i], 1, 2) >> 8;
    out[2 * i + 1] = to_f8e5m2x4(2, 1, x[i], 0) >> 16;
  }
}
extern "C" void decode(float* out) {
  for (unsigned i = 0; i < 256; ++i) out[i] = from_f8e4m3(i << 16 | 0xaa00aaaa, 2);
}
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
def test_the_software_conversions_of_old_gpus_are_the_same(tmp_path: Path) -> None:
    """What the CUDA header does below sm_89, compiled for the CPU."""
    wanted = {"to_f8", "to_f8e4m3x4", "to_f8e5m2x4", "from_f8e4m3", "quad", "u16", "low_half", "high_half", "pair"}
    texts = [p.text for p in parts() if p.names & wanted]
    text = re.sub(r"#if __CUDA_ARCH__ >= 890.*?#else\n(.*?)#endif\n", r"\1", "\n".join(texts), flags=re.DOTALL)
    (tmp_path / "native.cc").write_text(NATIVE.replace("PARTS", text))
    command = ["g++", "-std=c++17", "-w", "-O1", "-shared", "-fPIC", "native.cc", "-o", "native.so"]
    subprocess.run(command, cwd=tmp_path, check=True)
    library = ctypes.CDLL(str(tmp_path / "native.so"))
    high = np.arange(2**16, dtype=np.uint32) << 16
    data = np.concatenate([high | low for low in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF)]).view(np.float32)
    out = np.empty((len(data), 2), np.uint8)
    library.encode(*(ctypes.c_void_p(a.ctypes.data) for a in (data, out)), ctypes.c_long(len(data)))
    for column, dtype in enumerate(FLOATS8):
        got, want = out[:, column].view(dtype.numpy).astype(np.float32), convert(data, dtype).astype(np.float32)
        assert np.array_equal(got, want, equal_nan=True)
        assert np.array_equal(np.signbit(got), np.signbit(want) & ~np.isnan(data) | np.signbit(got) & np.isnan(data))
    decoded = np.empty(256, np.float32)
    library.decode(ctypes.c_void_p(decoded.ctypes.data))
    exact = np.arange(256, dtype=np.uint8).view(F8E4M3.numpy).astype(np.float32)
    assert np.array_equal(decoded, exact, equal_nan=True)


def test_converting_twice_changes_nothing() -> None:
    rng = np.random.default_rng(0)
    for source, target in product(DTYPES.values(), repeat=2):
        data = convert(rng.standard_normal(200).astype(np.float32) * 50, source)
        once = convert(data, target)
        assert once.dtype == target.numpy
        assert np.array_equal(once, convert(once, target))


@pytest.mark.parametrize(
    ("data", "error", "dtype", "bound"),
    [
        (np.array([2**60]), 1.0, I64, 1.0),  # an error that f64 does not see beside the number
        (np.array([7]), 2.0**64, I64, 2.0**64),
        (np.array([300], np.int32), 1.0, I8, 256.0),
        (as_f32(0.9), 0.2, I32, 1.0),
        (as_f32(0.5), 0.2, I32, 0.0),
        (as_f32(447.0), 0.5, F8E4M3, 0.0),
        (as_f32(433.0), 2.0, F8E4M3, 32.0),
        (as_f32(0.1), 0.2, BOOL, 1.0),
        (as_f32(1.0), 0.2, BOOL, 0.0),
    ],
)
def test_how_far_an_error_shows_once_converted(data: np.ndarray, error: float, dtype: DType, bound: float) -> None:
    assert converted_error(data, np.array([error]), convert(data, dtype), dtype) == bound


def test_words_of_register_tiles() -> None:
    words = {"f32": 5, "f16": 3, "bf16": 3, "f8e4m3": 2, "f8e5m2": 2, "i8": 2, "i32": 5, "i64": 10, "bool": 5}
    assert {name: dtype.words(5) for name, dtype in DTYPES.items()} == words
