"""Tidegate: a compiler for asynchronous GPU tile kernels, written as sequential programs over tiles."""

from __future__ import annotations

from tidegate.errors import TidegateError
from tidegate.lang.kernel import Kernel, kernel
from tidegate.lang.surface import (
    Out,
    Tensor,
    abs,
    begin,
    dot,
    end,
    exp,
    exp2,
    full,
    grid,
    load,
    log,
    log2,
    max,
    maximum,
    min,
    minimum,
    positions,
    range,
    rsqrt,
    sqrt,
    sum,
    tanh,
    tiles,
    where,
    zeros,
)

__version__ = "0.1.0"

__all__ = [
    "Kernel",
    "Out",
    "Tensor",
    "TidegateError",
    "abs",
    "begin",
    "dot",
    "end",
    "exp",
    "exp2",
    "full",
    "grid",
    "kernel",
    "load",
    "log",
    "log2",
    "max",
    "maximum",
    "min",
    "minimum",
    "positions",
    "range",
    "rsqrt",
    "sqrt",
    "sum",
    "tanh",
    "tiles",
    "where",
    "zeros",
]
