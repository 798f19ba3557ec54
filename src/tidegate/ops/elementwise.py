"""Elementwise operations: one row each, with the NumPy meaning and the magnitude used for rounding bounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Elementwise:
    """``numpy`` computes on float32 arrays. ``magnitude`` bounds how strongly absolute errors of the operands can show
    in the result: it maps (values, magnitudes) of the operands to the magnitude of the result."""

    name: str
    arity: int
    numpy: Callable[..., Any]
    magnitude: Callable[..., Any]


def _table() -> dict[str, Elementwise]:
    import numpy as np

    def larger(_: Any, m: Any) -> Any:
        return np.maximum(m[0], m[1])

    def total(_: Any, m: Any) -> Any:
        return m[0] + m[1]

    def product(_: Any, m: Any) -> Any:
        return m[0] * m[1]

    def quotient(v: Any, m: Any) -> Any:
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            return m[0] * m[1] / np.square(np.asarray(v[1], dtype=np.float64))

    rows = (
        Elementwise("neg", 1, np.negative, lambda v, m: m[0]),
        Elementwise("add", 2, np.add, total),
        Elementwise("sub", 2, np.subtract, total),
        Elementwise("mul", 2, np.multiply, product),
        Elementwise("div", 2, np.divide, quotient),
        Elementwise("maximum", 2, np.maximum, larger),
        Elementwise("minimum", 2, np.minimum, larger),
    )
    return {row.name: row for row in rows}


ARITY: dict[str, int] = {"neg": 1, "add": 2, "sub": 2, "mul": 2, "div": 2, "maximum": 2, "minimum": 2}
"""Names and numbers of operands, known without NumPy."""


def elementwise(name: str) -> Elementwise:
    """The row of one operation; raises KeyError for an unknown name (the language checks names beforehand)."""
    return _table()[name]
