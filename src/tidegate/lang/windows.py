"""Windows of tensors: which part a subscript names."""

from __future__ import annotations

import ast
from functools import reduce
from typing import Any, NoReturn

from tidegate.errors import BadCall, BadLoop, WindowMismatch
from tidegate.ir import hir
from tidegate.ir.dtypes import I32
from tidegate.ir.expr import Expr, Int, Sym, add, binary, both, either, least, mul, negated
from tidegate.lang import surface
from tidegate.lang.elementwise import Elementwise
from tidegate.lang.scope import Integer, TileIndex
from tidegate.lang.source import evaluate, whole

ARITHMETIC: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.FloorDiv: "/",
    ast.Mod: "%",
}
"""Operators on integers."""

EXTREMES = {surface.minimum: "min", surface.maximum: "max"}

COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
}

SAME_DIMENSION = "index each axis with the tg.tiles index of the same dimension"


class Windows(Elementwise):
    """Parses windows such as a[m, k], a[h // G, m, :]; :class:`Expressions` builds on it."""

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
        element = tensor.dtype == I32 and not tensor.output and all(map(self.is_integer, items))
        axes = [self.axis(tensor, number, item, element) for number, item in enumerate(items)]
        return tensor, hir.Window(tensor.name, tuple(axes))

    def axis(self, tensor: hir.Tensor, number: int, item: ast.expr, element: bool) -> hir.Axis:
        extent = tensor.shape[number]
        if isinstance(item, ast.Slice) and not (item.lower or item.upper or item.step):
            if not isinstance(extent, Int):
                self.bad_axis(
                    item, f"':' takes the whole axis {number} of {tensor.name}, whose size {extent} is not fixed"
                )
            return hir.Axis(None, extent.value, extent)
        if self.is_integer(item):
            return self.single(tensor, number, item, self.integer(item), element)
        index = self.parse(item) if isinstance(item, ast.Name) else None
        if not isinstance(index, TileIndex):
            what = f"axis {number} of {tensor.name} is indexed by {ast.unparse(item)!r}, no tile index"
            self.bad_axis(item, what, self.advice_on(item))
        if index.extent != extent and not index.counted:
            self.bad_axis(
                item,
                f"axis {number} of {tensor.name} has size {extent}, the index {index.name} runs over {index.extent}",
            )
        return hir.Axis(index.name, index.size, extent)

    def is_integer(self, node: ast.expr, tiles: bool = False) -> bool:
        """Is this a whole number that all threads share: numbers, tg.range indices, scalars, elements of integers, and
        + - * // % of them? ``tiles``: the number of a tile index counts."""
        match node:
            case ast.Name() if self.scope.dynamic(node.id):
                bound = self.scope.bindings[node.id]
                return isinstance(bound, Integer) or (isinstance(bound, TileIndex) and (bound.integer or tiles))
            case ast.BinOp() if type(node.op) in ARITHMETIC and not self.static(node):
                return self.is_integer(node.left, tiles) and self.is_integer(node.right, tiles)
            case ast.UnaryOp(op=ast.USub()) if not self.static(node):
                return self.is_integer(node.operand, tiles)
            case ast.Call() if not self.static(node):
                function = self.function(node)
                if function in EXTREMES:
                    some = len(node.args) == 2 and not all(map(self.static, node.args))
                    return some and all(self.is_integer(a, tiles) for a in node.args)
                return function is surface.end or (function is surface.load and self.is_element(node))
        if isinstance(node, ast.Slice) or not self.static(node):
            return False
        return whole(evaluate(self.source, node, self.scope.constants())) is not None

    def is_element(self, node: ast.Call) -> bool:
        """Does this tg.load name one element of a tensor of integers?"""
        window = node.args[0] if node.args else None
        if not isinstance(window, ast.Subscript) or not isinstance(window.value, ast.Name):
            return False
        tensor = self.scope.bindings.get(window.value.id)
        items = window.slice.elts if isinstance(window.slice, ast.Tuple) else [window.slice]
        return isinstance(tensor, hir.Tensor) and tensor.dtype == I32 and all(map(self.is_integer, items))

    def integer(self, node: ast.expr) -> Expr:
        """The value of what :meth:`is_integer` holds for; raises BadCall for a divisor that may be 0."""
        match node:
            case ast.Name() if self.scope.dynamic(node.id):
                bound = self.scope.bindings[node.id]
                return bound.expr if isinstance(bound, Integer) else Sym(node.id)
            case ast.BinOp() if not self.static(node):
                op = ARITHMETIC[type(node.op)]
                a, b = self.integer(node.left), self.integer(node.right)
                if op in ("/", "%") and least(b, self.scope.signed) < 1:
                    zero = "divides by 0" if b == Int(0) else f"divides by {b}, which may be 0 or less"
                    raise BadCall(
                        self.span(node), what=f"{ast.unparse(node)!r} {zero}", advice="divide by a positive number"
                    )
                return binary(op, a, b)
            case ast.UnaryOp() if not self.static(node):
                return binary("-", 0, self.integer(node.operand))
            case ast.Call() if not self.static(node):
                function = self.function(node)
                if function in EXTREMES:
                    return binary(EXTREMES[function], *map(self.integer, node.args))
                found = self.end(node) if function is surface.end else self.parse(node)
                return found.expr if isinstance(found, Integer) else found
        value = whole(evaluate(self.source, node, self.scope.constants()))
        assert value is not None  # callers asked is_integer
        if not -(2**31) <= value < 2**31:
            raise BadCall(
                self.span(node), what=f"the integer {value}", advice="integers have 32 bits: -2**31 to 2**31 - 1"
            )
        return Int(value)

    def end(self, node: ast.expr) -> Expr:
        """The position that tg.end(m) names."""
        index = None
        if isinstance(node, ast.Call) and self.function(node) is surface.end:
            (item,) = self.arguments(node, ("index",))
            index = self.parse(item)
        if not isinstance(index, TileIndex) or index.integer:
            raise BadLoop(
                self.span(node), what=ast.unparse(node), advice="give the end of an enclosing tile: tg.end(m)"
            )
        return mul(add(Sym(index.name), 1), index.size)

    def is_condition(self, node: ast.expr) -> bool:
        """Is this a comparison of integers, or and, or, not of such?"""
        match node:
            case ast.BoolOp():
                return all(self.static(v) or self.is_condition(v) for v in node.values)
            case ast.UnaryOp(op=ast.Not()):
                return self.is_condition(node.operand)
            case ast.Compare():
                known = all(type(op) in COMPARISONS for op in node.ops)
                return known and all(self.is_integer(n, tiles=True) for n in (node.left, *node.comparators))
        return False

    def condition(self, node: ast.expr) -> Expr:
        """The expression that is 1 where the condition holds; :meth:`is_condition` holds for it, or it is static."""
        if self.static(node):
            return Int(int(bool(evaluate(self.source, node, self.scope.constants()))))
        match node:
            case ast.BoolOp():
                some = [self.condition(v) for v in node.values]
                return reduce(both if isinstance(node.op, ast.And) else either, some)
            case ast.UnaryOp():
                return negated(self.condition(node.operand))
        assert isinstance(node, ast.Compare)  # callers asked is_condition
        values = [self.integer(n) for n in (node.left, *node.comparators)]
        return reduce(both, [compared(op, a, b) for op, a, b in zip(node.ops, values, values[1:], strict=False)])

    def single(self, tensor: hir.Tensor, number: int, item: ast.expr, at: Expr, element: bool) -> hir.Axis:
        """One position of an axis, which the tile then does not have. ``element``: so it is on all axes."""
        extent = tensor.shape[number]
        if number == len(tensor.shape) - 1 and not element:
            what = f"the last axis of {tensor.name} is indexed by an integer, but accesses run along it"
            self.bad_axis(item, what, "index it with ':' or a tg.tiles index; a tile of one element keeps its axis")
        if isinstance(at, Int) and not (at.value >= 0 and (not isinstance(extent, Int) or at.value < extent.value)):
            what = f"axis {number} of {tensor.name} has size {extent}, the index is {at}"
            self.bad_axis(item, what, "positions count from 0")
        return hir.Axis(None, 1, extent, at)

    def advice_on(self, item: ast.expr) -> str:
        """What to write instead of an index that is none."""
        used = [n.id for n in ast.walk(item) if isinstance(n, ast.Name)]
        found = [b for name in used if isinstance(b := self.scope.bindings.get(name), TileIndex)]
        if any(not index.integer for index in found):
            return "tile indices stand alone; an index of tg.range may be computed with"
        if found:
            return "integers take + - * // %, with numbers and with one another"
        return SAME_DIMENSION

    def bad_axis(self, item: ast.expr, what: str, advice: str = "") -> NoReturn:
        raise WindowMismatch(self.span(item), what=what, advice=advice or SAME_DIMENSION)


def compared(op: ast.cmpop, a: Expr, b: Expr) -> Expr:
    """``a op b`` with < and <= only."""
    sign = COMPARISONS[type(op)]
    return binary({">": "<", ">=": "<="}[sign], b, a) if sign in (">", ">=") else binary(sign, a, b)
