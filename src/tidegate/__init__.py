"""Tidegate: a compiler for asynchronous GPU tile kernels, written as sequential programs over tiles."""

from __future__ import annotations

from tidegate.errors import TidegateError
from tidegate.lang.kernel import Kernel, kernel
from tidegate.lang.surface import Out, Tensor, dot, full, grid, load, maximum, minimum, tiles, zeros

__version__ = "0.1.0"

__all__ = [
    "Kernel",
    "Out",
    "Tensor",
    "TidegateError",
    "dot",
    "full",
    "grid",
    "kernel",
    "load",
    "maximum",
    "minimum",
    "tiles",
    "zeros",
]
