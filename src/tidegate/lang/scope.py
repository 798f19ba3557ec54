"""What names mean while a kernel is parsed, and the ops collected so far."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tidegate.ir import hir
from tidegate.ir.dtypes import DType
from tidegate.ir.expr import Expr
from tidegate.ir.layout import Coord


@dataclass(frozen=True)
class TileIndex:
    """A loop or grid index: element range ``index * size`` .. of an axis of ``extent``; or, ``integer``, one position,
    which takes the axis away as an integer index does in NumPy. ``limit``: the most tiles that a loop visits;
    ``counted``: the extent is no named dimension but an integer, so that the index may stand on any axis."""

    name: str
    extent: Expr
    counted: bool
    size: int
    integer: bool = False
    limit: Expr | None = None


@dataclass(frozen=True)
class Integer:
    """A whole number that all threads share and that exists only on the GPU."""

    expr: Expr


@dataclass(frozen=True)
class Number:
    """A number with a fraction that the kernel computes: a tile of one f32 element, which beside another tile takes
    that tile's dtype as a number of the text does."""

    value: hir.Value


@dataclass(frozen=True)
class Gone:
    """A name that exists no more, with the reason and what to do about it."""

    why: str
    advice: str = "give it a value before"


Binding = hir.Value | TileIndex | Integer | Number | hir.Tensor | hir.Scalar | Gone | object
DYNAMIC = (hir.Value, TileIndex, Integer, Number, hir.Tensor, hir.Scalar, Gone)

WEAK = (Integer, Number, hir.Scalar)
"""Numbers that are not known at compile time."""


@dataclass
class Scope:
    """The mutable state of one parse: bindings, the sizes of dimensions, the op list of the open block, the names bound
    before the innermost open block (a loop, a branch, the grid) and what that is, counters for unique ids, names that
    integers must not take, names of integers that may be negative, and by a tile's id what the author wrote for it."""

    bindings: dict[str, Binding]
    dims: Mapping[str, Expr]
    ops: list[hir.Node] = field(default_factory=list)
    grid: tuple[hir.GridAxis, ...] = ()
    outer: frozenset[str] = frozenset()
    inside: str = "loop"
    values: int = 0
    loops: int = 0
    branches: int = 0
    taken: set[str] = field(default_factory=set)
    signed: set[str] = field(default_factory=set)
    nodes: dict[int, ast.expr] = field(default_factory=dict)

    def value(self, name: str, dtype: DType, shape: Coord) -> hir.Value:
        """A new SSA value."""
        self.values += 1
        return hir.Value(self.values, name or f"t{self.values}", dtype, shape)

    def integer(self, name: str) -> str:
        """A name for a new integer, like the author's where that is free."""
        wanted = re.sub(r"[^A-Za-z0-9_]", "_", name) or "n"
        found, number = wanted, 1
        while found in self.taken:
            number += 1
            found = f"{wanted}{number}"
        self.taken.add(found)
        self.signed.add(found)
        return found

    def dynamic(self, name: str) -> bool:
        """Is the name bound to something that exists only when the kernel runs?"""
        return isinstance(self.bindings.get(name), DYNAMIC)

    def constants(self) -> Mapping[str, Any]:
        """The names bound to compile-time values."""
        return {n: b for n, b in self.bindings.items() if not self.dynamic(n)}
