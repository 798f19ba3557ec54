"""Element types: one table, looked up by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import numpy as np

Kind = Literal["float", "integer", "mask"]


@dataclass(frozen=True)
class DType:
    """An element type.

    ``size`` is in bytes. ``epsilon`` is the distance from 1 to the next number (2**-mantissa bits), the unit in which
    rounding bounds are stated.
    """

    name: str
    size: int
    epsilon: float

    def __str__(self) -> str:
        return self.name

    @property
    def numpy(self) -> np.dtype:
        """The NumPy dtype (bfloat16 comes from ml_dtypes)."""
        import numpy as np

        if self.name == "bf16":
            import ml_dtypes

            return np.dtype(ml_dtypes.bfloat16)
        return np.dtype({"f32": np.float32, "f16": np.float16, "i32": np.int32, "bool": np.int32}[self.name])

    @property
    def kind(self) -> Kind:
        return "mask" if self == BOOL else "integer" if self == I32 else "float"

    @property
    def floating(self) -> bool:
        return self.kind == "float"


F32 = DType("f32", 4, 2.0**-23)
F16 = DType("f16", 2, 2.0**-10)
BF16 = DType("bf16", 2, 2.0**-7)

I32 = DType("i32", 4, 0.0)
BOOL = DType("bool", 4, 0.0)
"""Masks. A register holds 0 or 1 in 32 bits; there are no masks in memory."""

DTYPES: dict[str, DType] = {d.name: d for d in (F32, F16, BF16, I32, BOOL)}
MEMORY_DTYPES = (F32, F16, BF16, I32)
"""What tensors and staged tiles can hold."""
