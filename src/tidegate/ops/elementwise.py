"""Elementwise operations: one row each, with the NumPy meaning and how errors of the operands show in the result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tidegate.ops.convert import tf32

Arrays = Sequence[Any]


@dataclass(frozen=True)
class Elementwise:
    """``numpy`` computes on float32 arrays, and on int32 (for i64, int64) arrays for integers and masks. ``error``
    bounds the absolute error of the result before rounding, given float64 values of the operands and bounds on their
    absolute errors.
    ``ulps``: how far two correct implementations may differ for equal operands, in units of the last place of f32 (0:
    rounded correctly everywhere)."""

    name: str
    arity: int
    numpy: Callable[..., Any]
    error: Callable[[Arrays, Arrays], Any]
    ulps: int = 0


def _sum(_: Arrays, e: Arrays) -> Any:
    return e[0] + e[1]


def _product(v: Arrays, e: Arrays) -> Any:
    return np.abs(v[0]) * e[1] + np.abs(v[1]) * e[0] + e[0] * e[1]


def _quotient(v: Arrays, e: Arrays) -> Any:
    margin = np.maximum(np.abs(v[1]) - e[1], np.finfo(np.float64).tiny)
    return np.where(e[0] + e[1] == 0, 0.0, (e[0] + np.abs(v[0] / v[1]) * e[1]) / margin)


def _larger(_: Arrays, e: Arrays) -> Any:
    return np.maximum(e[0], e[1])


def _rsqrt(x: Any) -> Any:
    return (1.0 / np.sqrt(x.astype(np.float64))).astype(np.float32)


def _steepest(slope: Callable[[Any], Any]) -> Callable[[Arrays, Arrays], Any]:
    """Error of a function of one operand: its steepest slope within the operand's error, times that error."""

    def error(v: Arrays, e: Arrays) -> Any:
        return np.where(e[0] == 0, 0.0, np.maximum(slope(v[0] - e[0]), slope(v[0] + e[0])) * e[0])

    return error


def _inverse(x: Any) -> Any:
    return np.where(x > 0, 1.0 / np.maximum(x, np.finfo(np.float64).tiny), np.inf)


def _compared(v: Arrays, e: Arrays) -> Any:
    """1 where the errors of the operands leave the outcome open."""
    return np.where((e[0] + e[1] > 0) & (np.abs(v[0] - v[1]) <= e[0] + e[1]), 1.0, 0.0)


def _chosen(v: Arrays, e: Arrays) -> Any:
    return np.where(e[0] > 0, np.maximum(e[1], e[2]) + np.abs(v[1] - v[2]), np.where(v[0] != 0, e[1], e[2]))


def _rounded_apart(v: Arrays, e: Arrays) -> Any:
    return np.where(e[0] > 0, e[0] + 2.0**-10 * (np.abs(v[0]) + e[0]), 0.0)


def _mask(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: function(*args).astype(np.int32)


COMPARISONS = ("less", "less_equal", "greater", "greater_equal", "equal", "not_equal")
"""Operands of one dtype, a mask as result."""

LOGIC = ("logical_and", "logical_or", "logical_not")
"""Masks to a mask."""

ELEMENTWISE: dict[str, Elementwise] = {
    row.name: row
    for row in (
        Elementwise("neg", 1, np.negative, lambda _, e: e[0]),
        Elementwise("add", 2, np.add, _sum),
        Elementwise("sub", 2, np.subtract, _sum),
        Elementwise("mul", 2, np.multiply, _product),
        Elementwise("div", 2, np.divide, _quotient),
        Elementwise("maximum", 2, np.maximum, _larger),
        Elementwise("minimum", 2, np.minimum, _larger),
        *(Elementwise(name, 2, _mask(getattr(np, name)), _compared) for name in COMPARISONS),
        *(Elementwise(name, 2, _mask(getattr(np, name)), _larger) for name in LOGIC[:2]),
        Elementwise("logical_not", 1, _mask(np.logical_not), lambda _, e: e[0]),
        Elementwise("where", 3, lambda c, a, b: np.where(c != 0, a, b), _chosen),
        Elementwise("abs", 1, np.abs, lambda _, e: e[0]),
        Elementwise("sqrt", 1, np.sqrt, _steepest(lambda x: 0.5 * np.sqrt(_inverse(x)))),
        Elementwise("rsqrt", 1, _rsqrt, _steepest(lambda x: 0.5 * _inverse(x) ** 1.5), ulps=4),
        Elementwise("exp2", 1, np.exp2, _steepest(lambda x: np.log(2.0) * np.exp2(x)), ulps=4),
        Elementwise("exp", 1, np.exp, _steepest(np.exp), ulps=4),
        Elementwise("log2", 1, np.log2, _steepest(lambda x: _inverse(x) / np.log(2.0)), ulps=4),
        Elementwise("log", 1, np.log, _steepest(_inverse), ulps=4),
        Elementwise("tanh", 1, np.tanh, _steepest(lambda _: 1.0), ulps=4),
        Elementwise("tf32", 1, tf32, _rounded_apart),
    )
}
