"""What loops and grids run over: dimensions, numbers and integers, in tiles or one by one."""

from __future__ import annotations

import ast

from tidegate.errors import BadCall, BadLoop
from tidegate.ir import hir
from tidegate.ir.expr import Expr, Int, cdiv
from tidegate.lang import surface
from tidegate.lang.elementwise import describe
from tidegate.lang.scope import Number, TileIndex
from tidegate.lang.source import whole
from tidegate.lang.windows import Windows


class Axes(Windows):
    """Parses tg.tiles(...) and tg.range(...); :class:`Expressions` builds on it."""

    def axis_of(self, call: ast.Call, name: str) -> TileIndex:
        """The index that a tg.tiles(...) or tg.range(...) call stands for."""
        if self.function(call) is surface.range:
            if len(call.args) > 1:
                what = f"{ast.unparse(call)!r} has {len(call.args)} arguments, and tg.range counts from 0 to its extent"
                raise BadCall(self.span(call), what=what, advice="give one extent, and add the start to the index")
            (node,) = self.arguments(call, ("extent",))
            return TileIndex(name, *self.extent(node), size=1, integer=True)
        extent_node, size_node, until = self.arguments(call, ("extent", "size"), ("until",))
        extent, counted = self.extent(extent_node)
        given = self.constant(size_node, None)
        size = whole(given)
        if size is None or not 0 < size < 2**31:
            raise BadLoop(
                self.span(size_node),
                what=f"{given!r} is no tile size: tiles have a whole number of elements, 1 or more",
                advice="give a positive integer that is known at compile time",
            )
        limit = None if until is None else cdiv(self.limit(until), size)
        return TileIndex(name, extent, counted, size, limit=limit)

    def limit(self, node: ast.expr) -> Expr:
        """The position that until=tg.end(m) names."""
        if not isinstance(node, ast.Call) or self.function(node) is not surface.end:
            raise BadLoop(
                self.span(node),
                what=f"until={ast.unparse(node)}, and a loop ends with a tile: tg.end(m)",
                advice="give the end of an enclosing tile: until=tg.end(m)",
            )
        return self.edge(node)

    def extent(self, node: ast.expr) -> tuple[Expr, bool]:
        """What tg.tiles and tg.range run over, and whether that is no named dimension but an integer."""
        if not self.static(node):
            if self.is_integer(node, tiles=True):
                return self.integer(node), True
            value = self.parse(node)  # a name that exists no more says why
            advice = f"give a dimension's name, {self.dimensions()}, or an integer, such as tg.load(lengths[b])"
            if isinstance(value, (Number, hir.Scalar)):
                advice = f"integers are divided by //; {advice}"
            what = f"a loop over {describe(value)}, and loops run over whole numbers"
            raise BadLoop(self.span(node), what=what, advice=advice)
        if isinstance(node, ast.Name) and node.id in self.scope.dims:
            raise self.bare_dimension(node, f"a dimension is named by a string: {node.id!r}")
        value = self.constant(node, None)
        if isinstance(value, str):
            return self.dimension(value, self.span(node)), False
        size = whole(value)
        if size is None or not 0 <= size < 2**31:
            raise BadLoop(
                self.span(node),
                what=f"{value!r} is no extent: loops run over a whole number of elements, 0 or more",
                advice=f"give a dimension's name, {self.dimensions()}, or an integer",
            )
        return Int(size), False
