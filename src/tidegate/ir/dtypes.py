"""Element types: one table, looked up by name."""

from __future__ import annotations

import math
import numbers
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import numpy as np

Kind = Literal["float", "integer", "mask"]


@dataclass(frozen=True)
class DType:
    """An element type.

    ``size`` is in bytes, in memory. ``epsilon`` is the distance from 1 to the next number (2**-mantissa bits), the unit
    in which rounding bounds are stated; 0 where there are no fractions. ``finite`` is the number at which conversions
    saturate, where they do not go on to infinity.
    """

    name: str
    size: int
    kind: Kind
    epsilon: float = 0.0
    finite: float | None = None

    def __str__(self) -> str:
        return self.name

    @property
    def numpy(self) -> np.dtype:
        """The NumPy dtype (bfloat16 and the 8-bit floats come from ml_dtypes)."""
        import numpy as np

        if self.name in _ML_DTYPES:
            import ml_dtypes

            return np.dtype(getattr(ml_dtypes, _ML_DTYPES[self.name]))
        return np.dtype(_NUMPY[self.name])

    @property
    def floating(self) -> bool:
        return self.kind == "float"

    @property
    def integer(self) -> bool:
        return self.kind == "integer"

    @property
    def computed(self) -> DType:
        """The type in which elementwise operations compute: f32, or 32 bit integers, or i64."""
        if self.floating:
            return F32
        return I64 if self.size == 8 else I32

    @property
    def per_word(self) -> int:
        """Elements that share a 32-bit register, the first in the lowest bits."""
        return 1 if self.kind == "mask" else max(4 // self.size, 1)

    def words(self, elements: int) -> int:
        """32-bit registers that ``elements`` of a thread take."""
        return -(-elements // self.per_word) * max(self.size // 4, 1)


F32 = DType("f32", 4, "float", 2.0**-23)
F16 = DType("f16", 2, "float", 2.0**-10)
BF16 = DType("bf16", 2, "float", 2.0**-7)
F8E4M3 = DType("f8e4m3", 1, "float", 2.0**-3, 448.0)
F8E5M2 = DType("f8e5m2", 1, "float", 2.0**-2, 57344.0)

I8 = DType("i8", 1, "integer")
I32 = DType("i32", 4, "integer")
I64 = DType("i64", 8, "integer")

BOOL = DType("bool", 1, "mask")
"""Masks: 0 or 1, a byte in memory and 32 bits in a register."""

_NUMPY = {"f32": "f4", "f16": "f2", "i8": "i1", "i32": "i4", "i64": "i8", "bool": "?"}
_ML_DTYPES = {"bf16": "bfloat16", "f8e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2"}

ELEMENTS = (I32, I64)
"""What integers are read from, one by one; they are held in 32 bits."""

DTYPES: dict[str, DType] = {d.name: d for d in (F32, F16, BF16, F8E4M3, F8E5M2, I8, I32, I64, BOOL)}

NUMPY_NAMES: dict[str, str] = {
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "f8e4m3",
    "float8_e5m2": "f8e5m2",
    "int8": "i8",
    "int32": "i32",
    "int64": "i64",
    "bool": "bool",
}
"""The names that NumPy, ml_dtypes, torch and CuPy give to the types."""


OTHER_NAMES: dict[str, str] = {
    "float": "f32",
    "fp32": "f32",
    "half": "f16",
    "fp16": "f16",
    "int": "i32",
    "int8_t": "i8",
    "int32_t": "i32",
    "e4m3": "f8e4m3",
    "fp8e4m3": "f8e4m3",
    "e5m2": "f8e5m2",
    "fp8e5m2": "f8e5m2",
    "i1": "bool",
    "mask": "bool",
}
"""Names that authors try."""


def dtype_advice(given: Any) -> str:
    """What to write instead of ``given``, which is no dtype: the name of the NumPy type or of the Python type, or all
    names."""
    name = getattr(given, "__name__", None) or getattr(given, "name", None) or str(given).rpartition(".")[2]
    found = {**NUMPY_NAMES, **OTHER_NAMES}.get(str(name).lower())
    return f'write "{found}"' if found else f"use one of {', '.join(DTYPES)}"


def element(value: Any) -> int:
    """An element of a tensor as an integer: the nearest number of 32 bits."""
    return min(max(int(value), -(2**31)), 2**31 - 1)


def number(dtype: DType, value: Any) -> int | float | None:
    """A scalar argument as its dtype holds it, None for what is no such number: whole numbers of 32 bits for i32, real
    numbers within the range of f32, infinities and NaN for f32. An array without axes is its element."""
    import numpy as np

    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    whole: object = value
    if isinstance(whole, (bool, np.bool_)) or not isinstance(value, numbers.Real):
        return None
    if dtype == I32:
        return int(value) if isinstance(value, numbers.Integral) and -(2**31) <= int(value) < 2**31 else None
    with np.errstate(over="ignore"), suppress(OverflowError):
        found = float(np.float32(value))
        return found if math.isfinite(found) or not math.isfinite(value) else None
    return None
