"""The elementwise operations by name: how many operands each has, of which kinds, and what it gives.

What they compute, and how far two implementations may differ, is in :mod:`tidegate.ops.elementwise`; this table is
apart because it is read without NumPy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidegate.ir.dtypes import DType, Kind


@dataclass(frozen=True)
class Operation:
    """``takes``: the kinds of operands that it is defined on; one operation never mixes them, but for the mask that
    ``where`` chooses by. ``mask``: the result is one, whatever the operands."""

    arity: int
    takes: frozenset[Kind]
    mask: bool = False


_FLOATS: frozenset[Kind] = frozenset({"float"})
_INTEGERS: frozenset[Kind] = frozenset({"integer"})
_MASKS: frozenset[Kind] = frozenset({"mask"})
_NUMBERS = _FLOATS | _INTEGERS

COMPARISONS = ("less", "less_equal", "greater", "greater_equal", "equal", "not_equal")
FLOAT_FUNCTIONS = (
    *("floor", "ceil", "trunc", "round"),
    *("sqrt", "rsqrt", "exp2", "exp", "expm1", "log2", "log", "log1p", "sin", "cos", "tanh", "erf", "tf32"),
)

OPERATIONS: dict[str, Operation] = {
    **{name: Operation(1, _NUMBERS) for name in ("neg", "abs", "sign")},
    **{name: Operation(2, _NUMBERS) for name in ("add", "sub", "mul", "floor_divide", "remainder")},
    **{name: Operation(2, _NUMBERS) for name in ("maximum", "minimum")},
    **{name: Operation(2, _NUMBERS, mask=True) for name in COMPARISONS[:4]},
    **{name: Operation(2, _NUMBERS | _MASKS, mask=True) for name in COMPARISONS[4:]},
    "where": Operation(3, _NUMBERS | _MASKS),
    "div": Operation(2, _FLOATS),
    **{name: Operation(1, _FLOATS) for name in FLOAT_FUNCTIONS},
    **{name: Operation(1, _FLOATS, mask=True) for name in ("isnan", "isinf", "isfinite")},
    **{f"bitwise_{name}": Operation(2, _INTEGERS) for name in ("and", "or", "xor")},
    "bitwise_not": Operation(1, _INTEGERS),
    **{name: Operation(2, _INTEGERS) for name in ("left_shift", "right_shift")},
    **{f"logical_{name}": Operation(2, _MASKS, mask=True) for name in ("and", "or", "xor")},
    "logical_not": Operation(1, _MASKS, mask=True),
}


def operand_dtype(op: str, types: Sequence[DType | None], result: DType) -> DType:
    """The dtype that numbers among the operands take: that of the first tile among them, else the result's. ``types``:
    the operands' dtypes, None for a number."""
    values = types[1:] if op == "where" else types
    return next((d for d in values if d is not None), result)


def number_problem(dtype: DType, number: float) -> str | None:
    """Why a number cannot be an element of ``dtype``, None if it can (floats are rounded)."""
    if dtype.kind == "mask" and number not in (0, 1):
        return f"{number:g} is neither 0 (false) nor 1 (true)"
    if dtype.kind == "integer" and not float(number).is_integer():
        return f"{number:g} is no whole number"
    limit = 2.0 ** (8 * dtype.size - 1)
    if dtype.kind == "integer" and not -limit <= number < limit:
        return f"{number:.0f} is beyond the range of {dtype}"
    return None
