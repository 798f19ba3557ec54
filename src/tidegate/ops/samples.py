"""Arrays to try a kernel with, for every element type."""

from __future__ import annotations

import numpy as np

from tidegate.ir.dtypes import DType
from tidegate.ops.convert import convert

LARGEST = 100
"""Of random whole numbers, so that sums of many stay within 32 bits."""


def sample(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> np.ndarray:
    """Random numbers: standard normal floats, small whole numbers, fair masks."""
    if dtype.floating:
        return convert(rng.standard_normal(shape, np.float32), dtype)
    if dtype.integer:
        return rng.integers(-LARGEST, LARGEST, shape, endpoint=True).astype(dtype.numpy)
    return rng.integers(0, 2, shape).astype(dtype.numpy)


def unwritten(shape: tuple[int, ...], dtype: DType) -> np.ndarray:
    """What an output holds before a kernel fills it, so that what nobody writes shows: NaN, -1, or true."""
    return np.full(shape, np.nan if dtype.floating else -1, np.float32).astype(dtype.numpy)
