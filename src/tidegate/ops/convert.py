"""Conversions between element types, as the plain program, the simulator and the emitted code all have them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tidegate.ir.dtypes import F32, DType

TF32_DROPPED = 13
"""Low bits of an f32 number that tf32 does not have: it keeps 10 bits of fraction (PTX ISA, "Alternate floating-point
data formats")."""


def convert(data: np.ndarray, dtype: DType) -> np.ndarray:
    """Numbers of any element type, or of float64, in another.

    To floats: rounded to nearest even. The 8-bit floats saturate: what lies beyond, infinity too, becomes the largest
    finite number (PTX ISA, cvt with .satfinite); f16 and bf16 overflow to infinity. Integers go to the narrow floats
    through f32. From floats to integers: towards zero, saturating, NaN to 0. From integers to integers: modulo 2**bits.
    To masks: whether it is not 0 (NaN is not).
    """
    if data.dtype == dtype.numpy:
        return data
    if dtype.kind == "mask":
        return np.asarray(data != 0)
    with np.errstate(over="ignore", invalid="ignore"):
        if dtype.integer:
            return data.astype(dtype.numpy) if data.dtype.kind in "biu" else _whole(data, dtype)
        wide = data if data.dtype == np.float64 else data.astype(np.float32)
        if dtype.finite is not None:
            wide = np.clip(wide, -dtype.finite, dtype.finite)
        return np.asarray(wide).astype(dtype.numpy)


def _whole(data: np.ndarray, dtype: DType) -> np.ndarray:
    """Floats to integers. The ends of i64 are no floats, so what reaches them is replaced and not clipped."""
    wide = np.trunc(data.astype(np.float64))
    ends = np.iinfo(dtype.numpy)
    beyond = 2.0 ** (ends.bits - 1)
    inside = np.where(np.abs(wide) < beyond, wide, 0.0).astype(dtype.numpy)
    ended = np.where(wide >= beyond, ends.max, np.where(wide <= -beyond, ends.min, inside))
    return np.asarray(ended.astype(dtype.numpy))


def constant(value: float, dtype: DType) -> np.ndarray:
    """A number as one element."""
    return convert(np.array(value, np.float64), dtype)


def tf32(data: np.ndarray) -> np.ndarray:
    """f32 numbers rounded to those of tf32: to nearest, ties away from zero (PTX ISA, cvt.rna.tf32.f32)."""
    bits = np.ascontiguousarray(data, np.float32).view(np.uint32)
    with np.errstate(over="ignore"):
        rounded = (bits + np.uint32(1 << TF32_DROPPED - 1)) >> TF32_DROPPED << TF32_DROPPED
    return np.where(np.isnan(data), data, rounded.astype(np.uint32).view(np.float32)).reshape(np.shape(data))


def widened(
    args: Sequence[np.ndarray | float], types: Sequence[DType | None], result: DType
) -> list[np.ndarray | np.generic]:
    """The operands of an elementwise operation in the types in which it computes. ``types``: None for a number, which
    takes the type of the tiles that it meets."""
    met = next((t for t in reversed(types) if t is not None and t.kind != "mask"), result).computed
    return [
        met.numpy.type(a) if t is None else np.asarray(a).astype(t.computed.numpy)
        for a, t in zip(args, types, strict=True)
    ]


def product(a: np.ndarray, b: np.ndarray, accumulator: DType) -> np.ndarray:
    """a @ b of narrow numbers, in f32, or exactly in 64 bits for integers."""
    if accumulator == F32:
        return np.asarray(a.astype(np.float32) @ b.astype(np.float32))
    # Sums of products of 8 bit numbers are exact in f64, and so far faster than NumPy's integer product.
    return np.asarray((a.astype(np.float64) @ b.astype(np.float64)).astype(np.int64))
