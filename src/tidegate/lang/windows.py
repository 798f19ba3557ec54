"""Windows of tensors: which part a subscript names."""

from __future__ import annotations

import ast
from typing import Any, NoReturn

from tidegate.errors import WindowMismatch
from tidegate.ir import hir
from tidegate.ir.expr import Bin, Expr, Int, Sym, binary, parts
from tidegate.lang.elementwise import Elementwise
from tidegate.lang.scope import TileIndex
from tidegate.lang.source import evaluate, whole

POSITIONS: dict[type[ast.operator], str] = {ast.Add: "+", ast.Mult: "*", ast.FloorDiv: "/", ast.Mod: "%"}
"""Operators on integer indices; none of them leaves the non-negative numbers."""

SAME_DIMENSION = "index each axis with the tg.tiles index of the same dimension"


class Windows(Elementwise):
    """Parses windows such as a[m, k], a[h // G, m, :]; :class:`Expressions` builds on it."""

    def parse(self, node: ast.expr, name: str = "") -> Any:
        """A tile, tensor, index or compile-time value."""
        raise NotImplementedError

    def static(self, node: ast.expr) -> bool:
        """Is this expression known at compile time?"""
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
        return tensor, hir.Window(tensor.name, tuple(axes))

    def axis(self, tensor: hir.Tensor, number: int, item: ast.expr) -> hir.Axis:
        extent = tensor.shape[number]
        if isinstance(item, ast.Slice) and not (item.lower or item.upper or item.step):
            if not isinstance(extent, Int):
                self.bad_axis(
                    item, f"':' takes the whole axis {number} of {tensor.name}, whose size {extent} is not fixed"
                )
            return hir.Axis(None, extent.value, extent)
        at = self.position(item)
        if at is not None:
            return self.single(tensor, number, item, at)
        index = self.parse(item) if isinstance(item, ast.Name) else None
        if not isinstance(index, TileIndex):
            what = f"axis {number} of {tensor.name} is indexed by {ast.unparse(item)!r}, no tile index"
            self.bad_axis(item, what, self.advice_on(item))
        if index.extent != extent:
            self.bad_axis(
                item,
                f"axis {number} of {tensor.name} has size {extent}, the index {index.name} runs over {index.extent}",
            )
        return hir.Axis(index.name, index.size, extent)

    def position(self, item: ast.expr) -> Expr | None:
        """An integer index: numbers, tg.range indices, and + * // % of them; None if it is something else."""
        if isinstance(item, ast.Name) and isinstance(bound := self.scope.bindings.get(item.id), TileIndex):
            return Sym(bound.name) if bound.integer else None
        if isinstance(item, ast.BinOp) and type(item.op) in POSITIONS:
            a, b = self.position(item.left), self.position(item.right)
            return None if a is None or b is None else binary(POSITIONS[type(item.op)], a, b)
        if isinstance(item, ast.Slice) or not self.static(item):
            return None
        value = whole(evaluate(self.source, item, self.scope.constants()))
        return None if value is None else Int(value)

    def single(self, tensor: hir.Tensor, number: int, item: ast.expr, at: Expr) -> hir.Axis:
        """One position of an axis, which the tile then does not have."""
        extent = tensor.shape[number]
        if number == len(tensor.shape) - 1:
            what = f"the last axis of {tensor.name} is indexed by an integer, but accesses run along it"
            self.bad_axis(item, what, "index it with ':' or a tg.tiles index; a tile of one element keeps its axis")
        if isinstance(at, Int) and not (at.value >= 0 and (not isinstance(extent, Int) or at.value < extent.value)):
            what = f"axis {number} of {tensor.name} has size {extent}, the index is {at}"
            self.bad_axis(item, what, "positions count from 0")
        for part in parts(at):
            if isinstance(part, Int) and not 0 <= part.value < 2**31:
                what = f"{ast.unparse(item)!r} computes with {part}"
                self.bad_axis(item, what, "use numbers from 0 to 2**31 - 1: positions count from 0")
            if isinstance(part, Bin) and part.op in ("/", "%") and least(part.b) < 1:
                zero = "divides by 0" if part.b == Int(0) else f"divides by {part.b}, which may be 0"
                self.bad_axis(item, f"{ast.unparse(item)!r} {zero}", "divide by a positive number")
        return hir.Axis(None, 1, extent, at)

    def advice_on(self, item: ast.expr) -> str:
        """What to write instead of an index that is none."""
        used = [n.id for n in ast.walk(item) if isinstance(n, ast.Name)]
        found = [b for name in used if isinstance(b := self.scope.bindings.get(name), TileIndex)]
        if any(not index.integer for index in found):
            return "tile indices stand alone; an index of tg.range may be computed with"
        if found:
            return "indices of tg.range take + * // %, with numbers and with one another"
        return SAME_DIMENSION

    def bad_axis(self, item: ast.expr, what: str, advice: str = "") -> NoReturn:
        raise WindowMismatch(self.span(item), what=what, advice=advice or SAME_DIMENSION)


def least(e: Expr) -> int:
    """A number that a position never goes below, indices being 0 or more."""
    if isinstance(e, Int):
        return e.value
    if isinstance(e, Bin) and e.op in ("+", "*"):
        a, b = least(e.a), least(e.b)
        return a + b if e.op == "+" else a * b
    return 0
