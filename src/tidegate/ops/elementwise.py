"""Elementwise operations: one row each, with the NumPy meaning and how errors of the operands show in the result."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tidegate.ir.elementwise import COMPARISONS
from tidegate.ops.convert import tf32

Arrays = Sequence[Any]

UNKNOWN = 2.0**64
"""Error of an integer whose bits an error of an operand may change in any way: it exceeds every difference of two."""


@dataclass(frozen=True)
class Elementwise:
    """``numpy`` computes on float32 arrays, and on int32 (for i64, int64) arrays for integers and masks. ``error``
    bounds the absolute error of the result before rounding, given float64 values of the operands and bounds on their
    absolute errors.
    ``ulps``: how far two correct implementations may differ for equal operands, in units of the last place of f32 (0:
    rounded correctly everywhere). The meaning here is off by less than 1, the CUDA functions by at most 2, sinf and
    cosf over the full range of f32 (CUDA C++ Programming Guide, "Mathematical Functions", single precision, without
    -use_fast_math; their own fused operations are explicit, so compiling without contraction changes nothing)."""

    numpy: Callable[..., Any]
    error: Callable[[Arrays, Arrays], Any]
    ulps: int = 0


# ------------------------------------------------------------------------------------------ meanings


def _wide(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Computed in float64 and rounded: off by less than one unit of the last place of f32."""
    return lambda x: np.asarray(function(x.astype(np.float64))).astype(np.float32)


def _rsqrt(x: Any) -> Any:
    return 1.0 / np.sqrt(x)


_erf = np.vectorize(math.erf, otypes=[np.float64])


def _mask(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: function(*args).astype(np.int32)


# ------------------------------------------------------------------------------------------ errors


def _same(_: Arrays, e: Arrays) -> Any:
    return e[0]


def _sum(_: Arrays, e: Arrays) -> Any:
    return e[0] + e[1]


def _product(v: Arrays, e: Arrays) -> Any:
    return np.abs(v[0]) * e[1] + np.abs(v[1]) * e[0] + e[0] * e[1]


def _quotient(v: Arrays, e: Arrays) -> Any:
    margin = np.maximum(np.abs(v[1]) - e[1], np.finfo(np.float64).tiny)
    return np.where(e[0] + e[1] == 0, 0.0, (e[0] + np.abs(v[0] / v[1]) * e[1]) / margin)


def _larger(_: Arrays, e: Arrays) -> Any:
    return np.maximum(e[0], e[1])


def _steepest(slope: Callable[[Any], Any]) -> Callable[[Arrays, Arrays], Any]:
    """Error of a function of one operand: its steepest slope within the operand's error, times that error."""

    def error(v: Arrays, e: Arrays) -> Any:
        return np.where(e[0] == 0, 0.0, np.maximum(slope(v[0] - e[0]), slope(v[0] + e[0])) * e[0])

    return error


def _rising(function: Callable[[Any], Any]) -> Callable[[Arrays, Arrays], Any]:
    """Error of a function that never falls: between its values at the ends of what the operand may be."""

    def error(v: Arrays, e: Arrays) -> Any:
        low, here, high = (function(x) for x in (v[0] - e[0], v[0], v[0] + e[0]))
        return np.where(e[0] == 0, 0.0, np.maximum(high - here, here - low))

    return error


def _floored(v: Arrays, e: Arrays) -> Any:
    """A quotient rounded down: that of the exact one, and 1 more, since the rounding may cross a whole number."""
    return np.where(e[0] + e[1] == 0, 0.0, _quotient(v, e) + 1.0)


def _left_over(v: Arrays, e: Arrays) -> Any:
    """A remainder: what the operands' errors shift it by, or all of the divisor where the quotient may change."""
    q = np.floor(v[0] / v[1])
    shift = e[0] + np.abs(q) * e[1]
    rest = v[0] - q * v[1]
    crosses = (np.abs(rest) <= shift) | (np.abs(rest) + shift >= np.abs(v[1]) - e[1])
    return np.where(e[0] + e[1] == 0, 0.0, np.where(crosses, np.abs(v[1]) + e[1] + shift, shift))


def _inverse(x: Any) -> Any:
    return np.where(x > 0, 1.0 / np.maximum(x, np.finfo(np.float64).tiny), np.inf)


def _compared(v: Arrays, e: Arrays) -> Any:
    """1 where the errors of the operands leave the outcome open."""
    return np.where((e[0] + e[1] > 0) & (np.abs(v[0] - v[1]) <= e[0] + e[1]), 1.0, 0.0)


def _classified(v: Arrays, e: Arrays) -> Any:
    """1 where the error of the operand leaves open whether it is finite."""
    return np.where((e[0] == 0) | (np.abs(v[0]) + e[0] < np.finfo(np.float32).max), 0.0, 1.0)


def _chosen(v: Arrays, e: Arrays) -> Any:
    return np.where(e[0] > 0, np.maximum(e[1], e[2]) + np.abs(v[1] - v[2]), np.where(v[0] != 0, e[1], e[2]))


def _rounded_apart(v: Arrays, e: Arrays) -> Any:
    return np.where(e[0] > 0, e[0] + 2.0**-10 * (np.abs(v[0]) + e[0]), 0.0)


def _bits(_: Arrays, e: Arrays) -> Any:
    return np.where(sum(e) > 0, UNKNOWN, 0.0)


ELEMENTWISE: dict[str, Elementwise] = {
    "neg": Elementwise(np.negative, _same),
    "add": Elementwise(np.add, _sum),
    "sub": Elementwise(np.subtract, _sum),
    "mul": Elementwise(np.multiply, _product),
    "div": Elementwise(np.divide, _quotient),
    "floor_divide": Elementwise(np.floor_divide, _floored),
    "remainder": Elementwise(np.remainder, _left_over),
    "maximum": Elementwise(np.maximum, _larger),
    "minimum": Elementwise(np.minimum, _larger),
    **{name: Elementwise(_mask(getattr(np, name)), _compared) for name in COMPARISONS},
    **{f"logical_{name}": Elementwise(_mask(getattr(np, f"logical_{name}")), _larger) for name in ("and", "or", "xor")},
    "logical_not": Elementwise(_mask(np.logical_not), _same),
    **{f"bitwise_{name}": Elementwise(getattr(np, f"bitwise_{name}"), _bits) for name in ("and", "or", "xor")},
    "bitwise_not": Elementwise(np.invert, _same),
    "left_shift": Elementwise(np.left_shift, _bits),
    "right_shift": Elementwise(np.right_shift, _bits),
    "where": Elementwise(lambda c, a, b: np.where(c != 0, a, b), _chosen),
    "isnan": Elementwise(_mask(np.isnan), _classified),
    "isinf": Elementwise(_mask(np.isinf), _classified),
    "isfinite": Elementwise(_mask(np.isfinite), _classified),
    "abs": Elementwise(np.abs, _same),
    "sign": Elementwise(np.sign, _rising(np.sign)),
    "floor": Elementwise(np.floor, _rising(np.floor)),
    "ceil": Elementwise(np.ceil, _rising(np.ceil)),
    "trunc": Elementwise(np.trunc, _rising(np.trunc)),
    "round": Elementwise(np.rint, _rising(np.rint)),
    "sqrt": Elementwise(np.sqrt, _steepest(lambda x: 0.5 * np.sqrt(_inverse(x)))),
    "rsqrt": Elementwise(_wide(_rsqrt), _steepest(lambda x: 0.5 * _inverse(x) ** 1.5), ulps=4),
    "exp2": Elementwise(_wide(np.exp2), _steepest(lambda x: np.log(2.0) * np.exp2(x)), ulps=4),
    "exp": Elementwise(_wide(np.exp), _steepest(np.exp), ulps=4),
    "expm1": Elementwise(_wide(np.expm1), _steepest(np.exp), ulps=4),
    "log2": Elementwise(_wide(np.log2), _steepest(lambda x: _inverse(x) / np.log(2.0)), ulps=4),
    "log": Elementwise(_wide(np.log), _steepest(_inverse), ulps=4),
    "log1p": Elementwise(_wide(np.log1p), _steepest(lambda x: _inverse(1.0 + x)), ulps=4),
    "sin": Elementwise(_wide(np.sin), _steepest(lambda _: 1.0), ulps=4),
    "cos": Elementwise(_wide(np.cos), _steepest(lambda _: 1.0), ulps=4),
    "tanh": Elementwise(_wide(np.tanh), _steepest(lambda _: 1.0), ulps=4),
    "erf": Elementwise(_wide(_erf), _steepest(lambda _: 2.0 / math.sqrt(math.pi)), ulps=4),
    "tf32": Elementwise(tf32, _rounded_apart),
}
"""The rows of tidegate.ir.elementwise.OPERATIONS."""
