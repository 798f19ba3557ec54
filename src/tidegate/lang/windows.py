"""Windows of tensors: which part a subscript names."""

from __future__ import annotations

import ast
from functools import partial, reduce
from typing import Any, NoReturn

from tidegate.errors import BadCall, Span, UnknownName, WindowMismatch
from tidegate.ir import hir
from tidegate.ir.dtypes import ELEMENTS, I32
from tidegate.ir.expr import Expr, Int, Sym, add, binary, difference, least, mul, negated
from tidegate.lang import surface
from tidegate.lang.elementwise import Elementwise, describe
from tidegate.lang.scope import Integer, Number, TileIndex
from tidegate.lang.source import whole

ARITHMETIC: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.FloorDiv: "/",
    ast.Mod: "%",
}
"""Operators on integers."""

EXTREMES: dict[Any, str] = {surface.minimum: "min", surface.maximum: "max"}

OPERANDS: dict[Any, tuple[str, ...]] = {surface.minimum: ("a", "b"), surface.maximum: ("a", "b"), surface.abs: ("x",)}
"""Functions whose values are integers if all that they are given is."""

COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
}

EDGES = (surface.begin, surface.end)

INTEGERS = (*EDGES, surface.size)
"""Functions whose values are integers whatever they are given."""

SAME_DIMENSION = "index each axis with the tg.tiles index of the same dimension"


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
        items = items_of(node)
        if len(items) != len(tensor.shape):
            sizes = ", ".join(map(str, tensor.shape))
            raise WindowMismatch(
                self.span(node),
                what=f"{tensor.name}[{sizes}] has {len(tensor.shape)} axes, the window has {len(items)}",
                advice="give one tile index, position or slice per axis, or ':' for a fixed axis",
            )
        single = self.is_single(node)
        axes = [self.axis(tensor, number, item, single) for number, item in enumerate(items)]
        gathered = [item for item, axis in zip(items, axes, strict=True) if axis.rows is not None]
        if len(gathered) > 1:
            self.bad_axis(gathered[1], "a window with two gathered axes", "gather along one axis per window")
        return tensor, hir.Window(tensor.name, tuple(axes))

    def is_single(self, node: ast.Subscript) -> bool:
        """Does the window have a position per axis, so that it is one element?"""
        return all(map(self.is_integer, items_of(node)))

    def axis(self, tensor: hir.Tensor, number: int, item: ast.expr, single: bool) -> hir.Axis:
        """One axis of a window. ``single``: all axes have a position."""
        extent = tensor.shape[number]
        if isinstance(item, ast.Slice):
            return self.slice(tensor, number, item)
        if self.is_integer(item):
            return self.single(tensor, number, item, self.integer(item), single)
        if not isinstance(item, ast.Name) and self.of_tiles(item):
            return self.gathered(tensor, number, item, self.parse(item))
        index = self.parse(item) if isinstance(item, ast.Name) else None
        if isinstance(index, hir.Value):
            return self.gathered(tensor, number, item, index)
        if not isinstance(index, TileIndex):
            what = f"axis {number} of {tensor.name} is indexed by {ast.unparse(item)!r}, no tile index"
            self.bad_axis(item, what, self.advice_on(item))
        if index.extent != extent and not index.counted:
            what = f"axis {number} of {tensor.name} has size {extent}, the index {index.name} runs over {index.extent}"
            advice = SAME_DIMENSION
            if isinstance(index.extent, Sym) and index.limit is None:
                advice += f'; a loop over the integer tg.size("{index.extent}") may index any axis'
            self.bad_axis(item, what, advice)
        return hir.Axis(index.name, index.size, extent)

    # -------------------------------------------------------------------------------------- gathered rows

    def of_tiles(self, item: ast.expr) -> bool:
        """Does the expression compute with tiles?"""
        for part in ast.walk(item):
            if isinstance(part, ast.Name) and isinstance(self.scope.bindings.get(part.id), hir.Value):
                return True
            if isinstance(part, ast.Call) and self.function(part) not in (None, *INTEGERS):
                return True
        return False

    def gathered(self, tensor: hir.Tensor, number: int, item: ast.expr, rows: Any) -> hir.Axis:
        """An axis of which a tile of positions says what to take."""
        advice = "index with an i32 tile of one axis, e.g. rows = tg.load(index[m])"
        if not isinstance(rows, hir.Value):
            self.bad_axis(item, f"axis {number} of {tensor.name} is indexed by {describe(rows)}", advice)
        if rows.dtype != I32 or len(rows.shape) != 1:
            if rows.dtype.kind == "integer" and len(rows.shape) == 1:
                advice = f"numbers of rows are i32: write {self.casted(rows, I32)}"
            what = f"axis {number} of {tensor.name} is indexed by {describe(rows)}, {rows.dtype} {rows.shape}"
            self.bad_axis(item, what, advice)
        if number == len(tensor.shape) - 1:
            what = f"the last axis of {tensor.name} is gathered, but accesses run along it"
            self.bad_axis(item, what, "gather along another axis")
        return hir.Axis(None, rows.shape[0], tensor.shape[number], rows=rows)

    # -------------------------------------------------------------------------------------- integers

    def is_integer(self, node: ast.expr, tiles: bool = False) -> bool:
        """Is this a whole number that all threads share: numbers, tg.range indices, scalars, elements of integers, and
        + - * // % of them, tg.size, tg.begin and tg.end? ``tiles``: the number of a tile index counts."""
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
                if function in OPERANDS:
                    given = operands(node, OPERANDS[function])
                    some = bool(given) and (function not in EXTREMES or not all(map(self.static, given)))
                    return some and all(self.is_integer(a, tiles) for a in given)
                return function in INTEGERS or (function is surface.load and self.is_element(node))
        if isinstance(node, ast.Slice) or not self.static(node):
            return False
        return whole(self.known(node)) is not None

    def is_element(self, node: ast.Call) -> bool:
        """Does this tg.load name one element of a tensor of integers?"""
        window = node.args[0] if node.args else None
        if not isinstance(window, ast.Subscript) or not isinstance(window.value, ast.Name):
            return False
        tensor = self.scope.bindings.get(window.value.id)
        return isinstance(tensor, hir.Tensor) and holds_integers(tensor) and self.is_single(window)

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
                    advice = "divide by a positive number"
                    if not isinstance(b, Int):
                        advice += f", e.g. tg.maximum({ast.unparse(node.right)}, 1)"
                    raise BadCall(self.span(node), what=f"{ast.unparse(node)!r} {zero}", advice=advice)
                return self.within_32_bits(binary(op, a, b), node)
            case ast.UnaryOp() if not self.static(node):
                return self.within_32_bits(binary("-", 0, self.integer(node.operand)), node)
            case ast.Call() if not self.static(node):
                function = self.function(node)
                if function in EXTREMES:
                    return binary(EXTREMES[function], *map(self.integer, operands(node, OPERANDS[function])))
                if function is surface.abs:
                    (inner,) = map(self.integer, operands(node, OPERANDS[function]))
                    return binary("max", inner, self.within_32_bits(binary("-", 0, inner), node))
                if function in EDGES:
                    return self.edge(node)
                if function is surface.size:
                    return self.size(node)
                found = self.parse(node)
                assert isinstance(found, Integer)
                return found.expr
        value = whole(self.known(node))
        assert value is not None  # callers asked is_integer
        return self.within_32_bits(Int(value), node)

    def within_32_bits(self, value: Expr, node: ast.expr) -> Expr:
        """The expression, unless it is one number beyond 32 bits; raises BadCall."""
        if isinstance(value, Int) and not -(2**31) <= value.value < 2**31:
            advice = 'integers have 32 bits, -2**31 to 2**31 - 1; a tile has 64: tg.full((1,), n, "i64")'
            raise BadCall(self.span(node), what=f"the integer {value}", advice=advice)
        return value

    def edge(self, node: ast.Call) -> Expr:
        """The position that tg.begin(m) or tg.end(m) names."""
        (item,) = self.arguments(node, ("index",))
        index = self.parse(item)
        if not isinstance(index, TileIndex) or index.integer:
            raise BadCall(self.span(item), what=repr(ast.unparse(node)), advice="give the index of a tg.tiles axis")
        return mul(add(Sym(index.name), int(self.function(node) is surface.end)), index.size)

    def size(self, node: ast.Call) -> Expr:
        """The size that tg.size("N") names."""
        (item,) = self.arguments(node, ("dimension",))
        if isinstance(item, ast.Name) and item.id in self.scope.dims:
            raise self.bare_dimension(item, f"a dimension is named by a string: tg.size({item.id!r})")
        name = self.constant(item, None) if self.static(item) else self.parse(item)
        if not isinstance(name, str):
            raise BadCall(
                self.span(item),
                what=f"tg.size of {describe(name)}",
                advice=f"give the name of a dimension, {self.dimensions()}",
            )
        return self.dimension(name, self.span(item))

    def dimension(self, name: str, span: Span) -> Expr:
        """The size of a dimension, or the constant of that name; raises UnknownName."""
        if name in self.scope.dims:
            return self.scope.dims[name]
        size = whole(self.scope.constants().get(name))
        if size is None or not 0 <= size < 2**31:
            raise UnknownName(
                span, name=name, why=" as a dimension", advice=f"give a dimension, {self.dimensions()}, or an integer"
            )
        return Int(size)

    def dimensions(self) -> str:
        """The names of the dimensions, for advice."""
        names = ", ".join(map(repr, self.scope.dims))
        return f"one of {names}" if names else "of which this kernel names none"

    def bare_dimension(self, node: ast.Name, advice: str) -> UnknownName:
        return UnknownName(self.span(node), name=node.id, why=" as a value", advice=advice)

    def is_condition(self, node: ast.expr) -> bool:
        """Is this a comparison of integers, an integer, which holds where it is not 0, or and, or, not of such?"""
        match node:
            case ast.BoolOp():
                return all(self.static(v) or self.is_condition(v) for v in node.values)
            case ast.UnaryOp(op=ast.Not()):
                return self.is_condition(node.operand)
            case ast.Compare():
                known = all(type(op) in COMPARISONS for op in node.ops)
                return known and all(self.is_integer(n, tiles=True) for n in (node.left, *node.comparators))
        return not self.static(node) and self.is_integer(node, tiles=True)

    def condition(self, node: ast.expr) -> Expr:
        """The expression that is 1 where the condition holds; :meth:`is_condition` holds for it, or it is static."""
        if self.static(node):
            return Int(int(bool(self.known(node))))
        match node:
            case ast.BoolOp():
                some = [self.condition(v) for v in node.values]
                return reduce(partial(binary, "&&" if isinstance(node.op, ast.And) else "||"), some)
            case ast.UnaryOp(op=ast.Not()):
                return negated(self.condition(node.operand))
        if not isinstance(node, ast.Compare):
            return binary("!=", self.integer(node), 0)
        values = [self.integer(n) for n in (node.left, *node.comparators)]
        tests = [compared(op, a, b) for op, a, b in zip(node.ops, values, values[1:], strict=False)]
        return reduce(partial(binary, "&&"), tests)

    # -------------------------------------------------------------------------------------- positions

    def single(self, tensor: hir.Tensor, number: int, item: ast.expr, at: Expr, alone: bool) -> hir.Axis:
        """One position of an axis, which the tile then does not have; the last axis of an element that is no integer
        stays, with one element."""
        extent = tensor.shape[number]
        if isinstance(at, Int) and not (at.value >= 0 and (not isinstance(extent, Int) or at.value < extent.value)):
            what = f"axis {number} of {tensor.name} has size {extent}, the index is {at}"
            advice = "positions count from 0"
            if at.value < 0:
                advice += f", also the last: tg.size({str(extent)!r}) - {-at.value}" if isinstance(extent, Sym) else ""
            self.bad_axis(item, what, advice)
        if number < len(tensor.shape) - 1 or (alone and holds_integers(tensor)):
            return hir.Axis(None, 1, extent, at)
        if not alone:
            what = f"the last axis of {tensor.name} is indexed by an integer, but accesses run along it"
            last = str(at.value + 1) if isinstance(at, Int) else f"{ast.unparse(item)} + 1"
            advice = f"keep the axis, with one element: {ast.unparse(item)} : {last}; or use a tg.tiles index or ':'"
            self.bad_axis(item, what, advice)
        return hir.Axis(None, 1, extent, start=at)

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
            self.bad_axis(
                item, f"{what} of {tensor.name}, whose size {extent} is not fixed", advice_on_end(item, extent)
            )
        if item.lower is None and item.upper is None:
            assert isinstance(extent, Int)
            return hir.Axis(None, extent.value, extent)
        start = Int(0) if item.lower is None else self.position(item.lower)
        stop = extent if item.upper is None else self.position(item.upper)
        size = difference(stop, start)
        if size is None or not 0 < size < 2**31:
            what = f"the slice {ast.unparse(item)!r} has "
            what += "no fixed number of elements" if size is None else f"{size} elements"
            advice = "begin and end differ by a positive number, as in tg.begin(m) - 1 : tg.end(m) + 1"
            if size is None:
                advice += (
                    "; tiles have sizes of the text, so loop over tg.tiles(...) where a number of the run tells it"
                )
            self.bad_axis(item, what, advice)
        if isinstance(start, Int) and isinstance(extent, Int) and start.value >= extent.value:
            what = f"axis {number} of {tensor.name} has size {extent}, the slice begins at {start}"
            self.bad_axis(item, what, "positions count from 0")
        return hir.Axis(None, size, extent, start=start)

    def position(self, item: ast.expr) -> Expr:
        """Where a slice begins or ends."""
        if not self.is_integer(item):
            what = f"{ast.unparse(item)!r} is no position"
            self.bad_axis(item, what, self.advice_on(item) or "compute with tg.begin(m), tg.end(m) and integers")
        found = self.integer(item)
        if isinstance(found, Int) and found.value < 0:
            self.bad_axis(item, f"the position {found}", "positions count from 0")
        return found

    def advice_on(self, item: ast.expr) -> str:
        """What to write instead of an index that is none."""
        used = [n.id for n in ast.walk(item) if isinstance(n, ast.Name)]
        found = [b for name in used if isinstance(b := self.scope.bindings.get(name), TileIndex)]
        fraction = any(isinstance(self.scope.bindings.get(name), (Number, hir.Scalar)) for name in used)
        if fraction or any(isinstance(n, ast.Div) for n in ast.walk(item)):
            return 'positions are integers: divide by //, and declare scalars tg.Scalar["i32"]'
        if any(not index.integer for index in found):
            return "tile indices stand alone; tg.begin(m) and tg.end(m) may be computed with: a[tg.begin(m) - 1 : ...]"
        if found:
            return "integers take + - * // %, with numbers and with one another"
        return SAME_DIMENSION

    def bad_axis(self, item: ast.expr, what: str, advice: str = "") -> NoReturn:
        raise WindowMismatch(self.span(item), what=what, advice=advice or SAME_DIMENSION)


def advice_on_end(item: ast.Slice, extent: Expr) -> str:
    """What to do about a slice that ends with an axis whose size is not fixed."""
    if item.lower is not None:
        return "say where it ends: a[i : i + 8]"
    return f"fix the size by a keyword-only constant of that name, e.g. {extent}=2880; or {SAME_DIMENSION}"


def items_of(node: ast.Subscript) -> list[ast.expr]:
    """What stands between the brackets, per axis."""
    return node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]


def holds_integers(tensor: hir.Tensor) -> bool:
    """Are single elements of the tensor integers of the kernel?"""
    return tensor.dtype in ELEMENTS and not tensor.output


def compared(op: ast.cmpop, a: Expr, b: Expr) -> Expr:
    """``a op b`` with < and <= only."""
    sign = COMPARISONS[type(op)]
    return binary({">": "<", ">=": "<="}[sign], b, a) if sign in (">", ">=") else binary(sign, a, b)


def operands(node: ast.Call, names: tuple[str, ...]) -> list[ast.expr]:
    """The arguments of a call, by position and by name, in the order of its parameters; none if they do not fit."""
    given: dict[str | None, ast.expr] = {**dict(zip(names, node.args, strict=False))}
    given |= {k.arg: k.value for k in node.keywords}
    fit = given.keys() == set(names) and len(node.args) + len(node.keywords) == len(names)
    return [given[name] for name in names] if fit else []
