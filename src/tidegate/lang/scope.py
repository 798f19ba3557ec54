"""What names mean while a kernel is parsed, and the ops collected so far."""

from __future__ import annotations

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
    which takes the axis away as an integer index does in NumPy. ``limit``: the most tiles that a loop visits."""

    name: str
    extent: Expr
    size: int
    integer: bool = False
    limit: Expr | None = None


@dataclass(frozen=True)
class Gone:
    """A name that exists no more, with the reason."""

    why: str


Binding = hir.Value | TileIndex | hir.Tensor | Gone | object


@dataclass
class Scope:
    """The mutable state of one parse: bindings, the op list of the open block, the names bound before the innermost
    open loop (and before the grid), and counters for unique ids."""

    bindings: dict[str, Binding]
    ops: list[hir.Op | hir.Loop] = field(default_factory=list)
    grid: tuple[hir.GridAxis, ...] = ()
    outer: frozenset[str] = frozenset()
    values: int = 0
    loops: int = 0

    def value(self, name: str, dtype: DType, shape: Coord) -> hir.Value:
        """A new SSA value."""
        self.values += 1
        return hir.Value(self.values, name or f"t{self.values}", dtype, shape)

    def dynamic(self, name: str) -> bool:
        """Is the name bound to something that exists only when the kernel runs?"""
        return isinstance(self.bindings.get(name), (hir.Value, TileIndex, hir.Tensor, Gone))

    def constants(self) -> Mapping[str, Any]:
        """The names bound to compile-time values."""
        return {n: b for n, b in self.bindings.items() if not self.dynamic(n)}
