"""Windows of tensors: which part a subscript names."""

from __future__ import annotations

import ast
from typing import Any, NoReturn

from tidegate.errors import WindowMismatch
from tidegate.ir import hir
from tidegate.ir.dtypes import I32
from tidegate.ir.expr import Bin, Expr, Int, Sym, add, binary, difference, least, mul, parts
from tidegate.lang import surface
from tidegate.lang.elementwise import Elementwise, describe
from tidegate.lang.scope import TileIndex
from tidegate.lang.source import evaluate, whole

POSITIONS: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.FloorDiv: "/",
    ast.Mod: "%",
}
"""Operators on integer indices."""

SAME_DIMENSION = "index each axis with the tg.tiles index of the same dimension"
COUNT_FROM_0 = "use numbers below 2**31: positions count from 0"


class Windows(Elementwise):
    """Parses windows such as a[m, k], a[h // G, m, :], a[rows, tg.begin(k) - 1 : tg.end(k) + 1]; :class:`Expressions`
    builds on it."""

    def parse(self, node: ast.expr, name: str = "") -> Any:
        """A tile, tensor, index or compile-time value."""
        raise NotImplementedError

    def static(self, node: ast.expr) -> bool:
        """Is this expression known at compile time?"""
        raise NotImplementedError

    def function(self, node: ast.Call) -> Any:
        """The tile function that a call names, or None."""
        raise NotImplementedError

    def arguments(self, node: ast.Call, required: tuple[str, ...], optional: tuple[str, ...] = ()) -> list[Any]:
        """The argument expressions by name, None where absent."""
        raise NotImplementedError

    def window(self, node: ast.Subscript) -> tuple[hir.Tensor, hir.Window]:
        """A window such as a[m, k] or a[r, :]."""
        if isinstance(node.value, ast.Subscript):
            raise WindowMismatch(
                self.span(node), what="a window of a window", advice="index all axes at once, e.g. a[m, k]"
            )
        tensor = self.parse(node.value)
        if not isinstance(tensor, hir.Tensor):
            raise WindowMismatch(
                self.span(node), what=f"{ast.unparse(node.value)!r} is no tensor", advice="index a tensor parameter"
            )
        items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if len(items) != len(tensor.shape):
            sizes = ", ".join(map(str, tensor.shape))
            raise WindowMismatch(
                self.span(node),
                what=f"{tensor.name}[{sizes}] has {len(tensor.shape)} axes, the window has {len(items)}",
                advice="give one tile index, or ':' for a fixed axis, per axis",
            )
        axes = [self.axis(tensor, number, item) for number, item in enumerate(items)]
        gathered = [item for item, axis in zip(items, axes, strict=True) if axis.rows is not None]
        if len(gathered) > 1:
            self.bad_axis(gathered[1], "a window with two gathered axes", "gather along one axis per window")
        return tensor, hir.Window(tensor.name, tuple(axes))

    def axis(self, tensor: hir.Tensor, number: int, item: ast.expr) -> hir.Axis:
        extent = tensor.shape[number]
        if isinstance(item, ast.Slice):
            return self.slice(tensor, number, item)
        at = self.position(item)
        if at is not None:
            return self.single(tensor, number, item, at)
        if not isinstance(item, ast.Name) and self.of_tiles(item):
            return self.gathered(tensor, number, item, self.parse(item))
        index = self.parse(item) if isinstance(item, ast.Name) else None
        if isinstance(index, hir.Value):
            return self.gathered(tensor, number, item, index)
        if not isinstance(index, TileIndex):
            what = f"axis {number} of {tensor.name} is indexed by {ast.unparse(item)!r}, no tile index"
            self.bad_axis(item, what, self.advice_on(item))
        if index.extent != extent:
            self.bad_axis(
                item,
                f"axis {number} of {tensor.name} has size {extent}, the index {index.name} runs over {index.extent}",
            )
        return hir.Axis(index.name, index.size, extent)

    # -------------------------------------------------------------------------------------- gathered rows

    def of_tiles(self, item: ast.expr) -> bool:
        """Does the expression compute with tiles?"""
        for part in ast.walk(item):
            if isinstance(part, ast.Name) and isinstance(self.scope.bindings.get(part.id), hir.Value):
                return True
            if isinstance(part, ast.Call) and self.function(part) not in (None, surface.begin, surface.end):
                return True
        return False

    def gathered(self, tensor: hir.Tensor, number: int, item: ast.expr, rows: Any) -> hir.Axis:
        """An axis of which a tile of positions says what to take."""
        advice = "index with an i32 tile of one axis, e.g. rows = tg.load(index[m])"
        if not isinstance(rows, hir.Value):
            self.bad_axis(item, f"axis {number} of {tensor.name} is indexed by {describe(rows)}", advice)
        if rows.dtype != I32 or len(rows.shape) != 1:
            what = f"axis {number} of {tensor.name} is indexed by {describe(rows)}, {rows.dtype} {rows.shape}"
            self.bad_axis(item, what, advice)
        if number == len(tensor.shape) - 1:
            what = f"the last axis of {tensor.name} is gathered, but accesses run along it"
            self.bad_axis(item, what, "gather along another axis")
        return hir.Axis(None, rows.shape[0], tensor.shape[number], rows=rows)

    # -------------------------------------------------------------------------------------- positions

    def position(self, item: ast.expr) -> Expr | None:
        """An integer: numbers, tg.range indices, tg.begin and tg.end of tiles, and + - * // % of them; None if it is
        something else."""
        if isinstance(item, ast.Name) and isinstance(bound := self.scope.bindings.get(item.id), TileIndex):
            return Sym(bound.name) if bound.integer else None
        if isinstance(item, ast.BinOp) and type(item.op) in POSITIONS:
            a, b = self.position(item.left), self.position(item.right)
            return None if a is None or b is None else binary(POSITIONS[type(item.op)], a, b)
        if isinstance(item, ast.Call) and (function := self.function(item)) in (surface.begin, surface.end):
            (argument,) = self.arguments(item, ("index",))
            index = self.parse(argument)
            if not isinstance(index, TileIndex) or index.integer:
                self.bad_axis(argument, f"{ast.unparse(item)!r}", "give the index of a tg.tiles axis")
            return mul(add(Sym(index.name), int(function is surface.end)), index.size)
        if isinstance(item, ast.Slice) or not self.static(item):
            return None
        value = whole(evaluate(self.source, item, self.scope.constants()))
        return None if value is None else Int(value)

    def checked(self, item: ast.expr, at: Expr) -> Expr:
        """A position that counts from 0 if it is a number, and whose divisors are positive."""
        for part in parts(at):
            if isinstance(part, Int) and not (0 if part is at else -(2**31)) <= part.value < 2**31:
                self.bad_axis(item, f"{ast.unparse(item)!r} computes with {part}", COUNT_FROM_0)
            if isinstance(part, Bin) and part.op in ("/", "%") and least(part.b) < 1:
                zero = "divides by 0" if part.b == Int(0) else f"divides by {part.b}, which may be 0"
                self.bad_axis(item, f"{ast.unparse(item)!r} {zero}", "divide by a positive number")
        return at

    def single(self, tensor: hir.Tensor, number: int, item: ast.expr, at: Expr) -> hir.Axis:
        """One position of an axis, which the tile then does not have."""
        extent = tensor.shape[number]
        if number == len(tensor.shape) - 1:
            what = f"the last axis of {tensor.name} is indexed by an integer, but accesses run along it"
            self.bad_axis(item, what, "index it with ':' or a tg.tiles index; a tile of one element keeps its axis")
        if isinstance(at, Int) and not (at.value >= 0 and (not isinstance(extent, Int) or at.value < extent.value)):
            what = f"axis {number} of {tensor.name} has size {extent}, the index is {at}"
            self.bad_axis(item, what, "positions count from 0")
        return hir.Axis(None, 1, extent, self.checked(item, at))

    def slice(self, tensor: hir.Tensor, number: int, item: ast.Slice) -> hir.Axis:
        """':', or a run of a fixed number of positions."""
        extent = tensor.shape[number]
        fixed = isinstance(extent, Int)
        if item.step is not None:
            self.bad_axis(item, f"the slice {ast.unparse(item)!r} has a step", "take neighbours: a[i : i + 8]")
        if item.upper is None and not fixed:
            what = f"'{ast.unparse(item)}' takes the whole axis {number}"
            if item.lower is not None:
                what = f"'{ast.unparse(item)}' takes the rest of axis {number}"
            self.bad_axis(item, f"{what} of {tensor.name}, whose size {extent} is not fixed", self.advice_on_end(item))
        if item.lower is None and item.upper is None:
            assert isinstance(extent, Int)
            return hir.Axis(None, extent.value, extent)
        start = Int(0) if item.lower is None else self.edge(item.lower)
        stop = extent if item.upper is None else self.edge(item.upper)
        size = difference(stop, start)
        if size is None or not 0 < size < 2**31:
            what = f"the slice {ast.unparse(item)!r} has "
            what += "no fixed number of elements" if size is None else f"{size} elements"
            self.bad_axis(
                item, what, "begin and end differ by a positive number, as in tg.begin(m) - 1 : tg.end(m) + 1"
            )
        if isinstance(start, Int) and isinstance(extent, Int) and start.value >= extent.value:
            what = f"axis {number} of {tensor.name} has size {extent}, the slice begins at {start}"
            self.bad_axis(item, what, "positions count from 0")
        return hir.Axis(None, size, extent, start=start)

    def edge(self, item: ast.expr) -> Expr:
        """Where a slice begins or ends."""
        found = self.position(item)
        if found is None:
            what = f"{ast.unparse(item)!r} is no position"
            self.bad_axis(item, what, "compute with tg.begin(m), tg.end(m), indices of tg.range and numbers")
        return self.checked(item, found)

    def advice_on_end(self, item: ast.Slice) -> str:
        return SAME_DIMENSION if item.lower is None else "say where it ends: a[i : i + 8]"

    def advice_on(self, item: ast.expr) -> str:
        """What to write instead of an index that is none."""
        used = [n.id for n in ast.walk(item) if isinstance(n, ast.Name)]
        found = [b for name in used if isinstance(b := self.scope.bindings.get(name), TileIndex)]
        if any(not index.integer for index in found):
            return "tile indices stand alone; tg.begin(m) and tg.end(m) may be computed with: a[tg.begin(m) - 1 : ...]"
        if found:
            return "indices of tg.range take + - * // %, with numbers and with one another"
        return SAME_DIMENSION

    def bad_axis(self, item: ast.expr, what: str, advice: str = "") -> NoReturn:
        raise WindowMismatch(self.span(item), what=what, advice=advice or SAME_DIMENSION)
