"""Elementwise operations: one row each, with the NumPy meaning and how errors of the operands show in the result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Arrays = Sequence[Any]


@dataclass(frozen=True)
class Elementwise:
    """``numpy`` computes on float32 arrays. ``error`` bounds the absolute error of the result before rounding, given
    float64 values of the operands and bounds on their absolute errors."""

    name: str
    arity: int
    numpy: Callable[..., Any]
    error: Callable[[Arrays, Arrays], Any]


def _sum(_: Arrays, e: Arrays) -> Any:
    return e[0] + e[1]


def _product(v: Arrays, e: Arrays) -> Any:
    return np.abs(v[0]) * e[1] + np.abs(v[1]) * e[0] + e[0] * e[1]


def _quotient(v: Arrays, e: Arrays) -> Any:
    margin = np.maximum(np.abs(v[1]) - e[1], np.finfo(np.float64).tiny)
    return np.where(e[0] + e[1] == 0, 0.0, (e[0] + np.abs(v[0] / v[1]) * e[1]) / margin)


def _larger(_: Arrays, e: Arrays) -> Any:
    return np.maximum(e[0], e[1])


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
    )
}
