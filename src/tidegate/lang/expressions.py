"""Tile expressions: from syntax to HIR ops, with shapes and dtypes checked."""

from __future__ import annotations

import ast
import copy
import numbers
from typing import Any

from tidegate.errors import (
    BadCall,
    CompileTimeFailure,
    DtypeMismatch,
    ShapeMismatch,
    Span,
    UnknownName,
    UnsupportedSyntax,
    WrongDirection,
)
from tidegate.ir import hir
from tidegate.ir.dtypes import BOOL, DTYPES, F32, I32, DType, dtype_advice
from tidegate.ir.elementwise import OPERATIONS
from tidegate.ir.expr import Sym
from tidegate.ir.products import accumulator_of, alike
from tidegate.lang import surface
from tidegate.lang.advice import (
    ARGUMENTS,
    ELSEWHERE,
    EXPRESSIONS,
    GENERAL_EXPRESSION,
    TRANSPOSED,
    UNSUPPORTED,
    axis_of,
    instead_of,
)
from tidegate.lang.axes import Axes
from tidegate.lang.derived import FOLDS, Derived
from tidegate.lang.elementwise import COMPARISONS, OPERATORS, describe
from tidegate.lang.scope import WEAK, Gone, Integer, Number, Scope, TileIndex
from tidegate.lang.source import PACKAGE, Source, whole

ELEMENTWISE = {
    **dict.fromkeys((name for name, row in OPERATIONS.items() if row.arity == 1 and hasattr(surface, name)), ("x",)),
    **dict.fromkeys(("square", "reciprocal"), ("x",)),
    **dict.fromkeys(("maximum", "minimum", "logical_and", "logical_or", "logical_xor"), ("a", "b")),
    "pow": ("x", "n"),
    "where": ("mask", "a", "b"),
}
"""Functions of surface.py that are elementwise, with the names of their operands."""

TILE_FUNCTIONS = {
    getattr(surface, name): name
    for name in ("load", "dot", "zeros", "full", "arange", "positions", "clip", *FOLDS, *ELEMENTWISE)
}


class Expressions(Axes, Derived):
    """Parses expressions into the ops of ``scope``."""

    def __init__(self, source: Source, scope: Scope) -> None:
        self.source = source
        self.scope = scope

    # -------------------------------------------------------------------------------------- entry points

    def parse(self, node: ast.expr, name: str = "") -> Any:
        """A tile (hir.Value) or a compile-time value; ``name`` is the variable it will be bound to."""
        value = self.form(self.folded(node), name)
        if isinstance(value, hir.Value):
            self.scope.nodes[value.id] = node
        return value

    def form(self, node: ast.expr, name: str) -> Any:
        if self.static(node):
            return self.known(node)
        if not isinstance(node, ast.Name) and self.is_integer(node) and not self.is_load(node):
            return Integer(self.integer(node))
        match node:
            case ast.Name():
                return self.name(node)
            case ast.BinOp():
                return self.binary(node, name)
            case ast.UnaryOp(op=ast.USub()):
                return self.compute("neg", [self.parse(node.operand)], self.span(node), name)
            case ast.UnaryOp(op=ast.Invert()):
                return self.compute("not", [self.parse(node.operand)], self.span(node), name)
            case ast.UnaryOp(op=ast.UAdd()):
                value = self.parse(node.operand, name)
                known = isinstance(value, (hir.Value, *WEAK))
                return value if known else self.tile(node.operand, "the operand of +", name)
            case ast.Compare(ops=[op]) if type(op) in COMPARISONS:
                operands = [self.parse(node.left), self.parse(node.comparators[0])]
                return self.compute(COMPARISONS[type(op)], operands, self.span(node), name)
            case ast.IfExp() if self.static(node.test):
                return self.parse(node.body if self.constant(node.test, None) else node.orelse, name)
            case ast.Call():
                return self.call(node, name)
            case ast.Attribute():
                return self.attribute(node, name)
            case ast.Subscript():
                return self.item(node, name)
        what, advice = EXPRESSIONS.get(type(node), (f"the expression {ast.unparse(node)!r}", GENERAL_EXPRESSION))
        raise UnsupportedSyntax(self.span(node), what=what, advice=advice)

    def tile(self, node: ast.expr, what: str, name: str = "") -> hir.Value:
        """An expression that must be a tile."""
        return self.as_tile(self.parse(node, name), node, what)

    def as_tile(self, value: Any, node: ast.expr, what: str, kind: str = "a tile") -> hir.Value:
        """What ``node`` stands for, if it is a tile; raises BadCall."""
        if not isinstance(value, hir.Value):
            advice = "load a window with tg.load, or make a tile with tg.zeros or tg.full"
            if isinstance(value, WEAK):
                advice = f"make a tile of it, with the shape that is wanted: tg.full((16, 16), {ast.unparse(node)})"
            raise BadCall(
                self.span(node),
                what=f"{what} must be {kind}, {ast.unparse(node)!r} is {describe(value)}",
                advice=advice,
            )
        return value

    def written(self, node: ast.expr, tensor: hir.Tensor, window: hir.Window) -> hir.Value:
        """The tile that a window takes; a number stands for a tile of it."""
        value, span = self.parse(node), self.span(node)
        if isinstance(value, TileIndex) and value.integer:
            value = Integer(Sym(value.name))
        if isinstance(value, (*WEAK, numbers.Real)):
            return self.full(window.shape, value, tensor.dtype, span, f"the value written to {tensor.name}", "")
        return self.as_tile(value, node, f"what is written to {tensor.name}", "a tile or a number")

    def folded(self, node: ast.expr) -> ast.expr:
        """The expression with t.shape and t.dtype of tiles replaced by their values."""
        if any(isinstance(n, ast.Attribute) and n.attr in ("shape", "dtype") for n in ast.walk(node)):
            folded: ast.expr = _Fold(self.scope).visit(copy.deepcopy(node))
            return folded
        return node

    def static(self, node: ast.expr) -> bool:
        """Is this expression known at compile time?"""
        for part in ast.walk(node):
            if isinstance(part, (ast.Yield, ast.YieldFrom, ast.Await)):
                return False
            if isinstance(part, ast.Name) and self.scope.dynamic(part.id):
                return False
            if isinstance(part, ast.Call) and self.function(part) is not None:
                return False
        return True

    def function(self, node: ast.Call) -> Any:
        """The tile function that a call names, or None."""
        root: ast.expr = node.func
        while isinstance(root, ast.Attribute):
            root = root.value
        if not isinstance(root, ast.Name) or self.scope.dynamic(root.id):
            return None
        bound = self.scope.bindings
        target = bound[root.id] if root.id in bound else self.source.names.get(root.id)
        for attribute in _attributes(node.func):
            target = getattr(target, attribute, None)
        return target if callable(target) and getattr(target, "__module__", "") == surface.__name__ else None

    def is_missing(self, node: ast.expr) -> bool:
        """Is this tg.NAME, and has Tidegate no such name?"""
        if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
            return False
        module = self.source.names.get(node.value.id)
        return getattr(module, "__name__", "") == PACKAGE and not hasattr(module, node.attr)

    # -------------------------------------------------------------------------------------- forms

    def name(self, node: ast.Name) -> Any:
        bound = self.scope.bindings.get(node.id)
        if isinstance(bound, Gone):
            raise UnknownName(self.span(node), name=node.id, why=f": {bound.why}", advice=bound.advice)
        return bound

    def item(self, node: ast.Subscript, name: str) -> Any:
        """A part of a tile, or an item of a compile-time value such as t.shape[0]; refuses windows."""
        owner = self.parse(node.value)
        if isinstance(owner, hir.Tensor):
            raise UnsupportedSyntax(
                self.span(node),
                what="a window outside tg.load and assignment",
                advice=f"load it: tg.load({ast.unparse(node)})",
            )
        if isinstance(owner, hir.Value):
            return self.part(owner, node, name)
        if isinstance(owner, (TileIndex, *WEAK)):
            advice = "a tile index indexes windows" if isinstance(owner, TileIndex) else "it is one number as it is"
            raise UnsupportedSyntax(self.span(node), what=f"a part of {describe(owner)}", advice=advice)
        place = self.constant(node.slice, None)
        try:
            return owner[place]
        except Exception as error:
            raise CompileTimeFailure(
                self.span(node), expression=ast.unparse(node), exception=f"{type(error).__name__}: {error}"
            ) from None

    def attribute(self, node: ast.Attribute, name: str) -> Any:
        owner = self.parse(node.value)
        if isinstance(owner, hir.Value):
            if node.attr == "T":
                if len(owner.shape) != 2:
                    what = f".T of a tile of shape {owner.shape}"
                    raise ShapeMismatch(self.span(node), what=what, advice=f"use {TRANSPOSED}")
                result = self.scope.value(name, owner.dtype, owner.shape[::-1])
                self.scope.ops.append(hir.Transpose(result, owner, self.span(node)))
                return result
            if node.attr == "dtype":
                return owner.dtype.name
            if node.attr == "shape":
                return owner.shape
        advice = "tiles have .T, .dtype, .shape and .astype(dtype)"
        if isinstance(owner, hir.Tensor) and node.attr == "shape":
            sizes = [f"tg.size({str(s)!r})" if isinstance(s, Sym) else str(s) for s in owner.shape]
            advice = f"its sizes are {', '.join(sizes)}"
        raise UnsupportedSyntax(self.span(node), what=f"the attribute .{node.attr} of {describe(owner)}", advice=advice)

    def binary(self, node: ast.BinOp, name: str) -> Any:
        if isinstance(node.op, ast.MatMult):
            a, b = self.tile(node.left, "the left side of @"), self.tile(node.right, "the right side of @")
            return self.dot(a, b, None, None, self.span(node), name)
        operands = [self.parse(node.left), self.parse(node.right)]
        return self.compute(OPERATORS[type(node.op)], operands, self.span(node), name)

    def call(self, node: ast.Call, name: str) -> Any:
        span = self.span(node)
        if isinstance(node.func, ast.Attribute) and not self.static(node.func.value):
            owner = self.parse(node.func.value)
            if isinstance(owner, hir.Value) and node.func.attr == "astype":
                (dtype,) = self.arguments(node, ("dtype",))
                wanted = self.parse(dtype)  # another tile's .dtype counts
                kind = self.dtype(wanted, self.span(dtype))
                if kind == BOOL and owner.dtype != BOOL:
                    return self.map("not_equal", [owner, 0], span, name)
                return self.cast(owner, kind, span, name)
            if isinstance(owner, hir.Value) and node.func.attr in FOLDS:
                return self.call_fold(node.func.attr, node, owner, span, name)
            advice = f"tiles have .astype(dtype) and, with an axis, {', '.join(f'.{f}' for f in FOLDS)}"
            if isinstance(owner, WEAK):
                text = ast.unparse(node.func.value)
                advice = f"a number takes the dtype of the tile beside it; a tile of it: tg.full((1,), {text}, dtype)"
            elif node.func.attr in {*TILE_FUNCTIONS.values(), *ELSEWHERE, *UNSUPPORTED, "cumsum"}:
                advice = instead_of(node.func.attr, TILE_FUNCTIONS.values(), axis_of(node, 0))
            raise UnsupportedSyntax(span, what=f"the method .{node.func.attr} of {describe(owner)}", advice=advice)
        target = self.function(node)
        function = TILE_FUNCTIONS.get(target)
        if function is None:
            called = ast.unparse(node.func)
            what = f"{called} is no operation on tiles, and its arguments exist only on the GPU"
            if self.is_missing(node.func):
                what = f"{called} does not exist"
            advice = instead_of(called, TILE_FUNCTIONS.values(), axis_of(node, 1))
            if target is surface.atomic_add:
                what, advice = (
                    "tg.atomic_add is a statement of its own",
                    "write it on its own line: it has no value",
                )
            elif target is not None:
                what, advice = f"{called} stands outside the head of a for loop", f"write: for i in {called}(...):"
            raise BadCall(span, what=what, advice=advice)
        if function in FOLDS:
            return self.call_fold(function, node, None, span, name)
        if function in ELEMENTWISE:
            return self.call_elementwise(function, node, span, name)
        return getattr(self, f"call_{function}")(node, span, name)

    # -------------------------------------------------------------------------------------- tile functions

    def is_load(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Call) and self.function(node) is surface.load

    def element(self, node: ast.Call, window: hir.Window, span: Span, name: str) -> Integer:
        """One element of a tensor of integers."""
        schedule = [k for k in node.keywords if k.arg != "window"]
        if schedule or len(node.args) > 1:
            raise BadCall(
                self.span(schedule[0].value if schedule else node.args[1]),
                what="a schedule for an integer",
                advice="an integer is read by all threads at once: drop by=, stages= and to=",
            )
        found = self.scope.integer(name)
        self.scope.ops.append(hir.LoadScalar(found, window, span))
        return Integer(Sym(found))

    def call_load(self, node: ast.Call, span: Span, name: str) -> hir.Value | Integer | Number:
        window_node, by, stages, to = self.arguments(node, ("window",), ("by", "stages", "to"))
        if not isinstance(window_node, ast.Subscript):
            raise BadCall(span, what="tg.load takes a window such as a[m, k]", advice="index a tensor parameter")
        tensor, window = self.window(window_node)
        if not tensor.input:
            raise WrongDirection(
                span,
                what=f"{tensor.name} is a tg.Out, which is written only",
                advice="keep the tile in a variable, or declare the tensor tg.InOut",
            )
        given = self.constant(stages, 1)
        count = whole(given)
        if count is None or not 0 < count < 2**31:
            raise BadCall(
                self.span(stages) if stages else span,
                what=f"stages={given!r} is not a positive number of slots",
                advice="use stages=1 for a single slot, stages=3 to copy two trips ahead",
            )
        level = self.constant(to, None)
        if level not in (None, "shared", "registers"):
            raise BadCall(
                self.span(to), what=f"to={level!r} is no memory level", advice='use to="shared" or to="registers"'
            )
        if all(a.at is not None for a in window.axes):
            return self.element(node, window, span, name)
        number = self.is_single(window_node) and tensor.dtype.floating
        result = self.scope.value(name, tensor.dtype, window.shape)
        self.scope.ops.append(hir.Load(result, window, self.instruction(by, span), count, level, span))
        return Number(self.cast(result, F32, span, name)) if number else result

    def call_dot(self, node: ast.Call, span: Span, name: str) -> hir.Value:
        a, b, c, by = self.arguments(node, ("a", "b"), ("c", "by"))
        left, right = self.tile(a, "the first operand of tg.dot"), self.tile(b, "the second operand of tg.dot")
        start = self.tile(c, "the accumulator of tg.dot") if c and not _is_none(c) else None
        return self.dot(left, right, start, self.instruction(by, span), span, name)

    def dot(
        self, a: hir.Value, b: hir.Value, c: hir.Value | None, by: hir.Instruction | None, span: Span, name: str
    ) -> hir.Value:
        if len(a.shape) != 2 or len(b.shape) != 2 or a.shape[1] != b.shape[0]:
            why = "the inner sizes differ" if len(a.shape) == len(b.shape) == 2 else "both must have two axes"
            raise ShapeMismatch(
                span,
                what=f"tg.dot of {a.name} {a.shape} and {b.name} {b.shape}: {why}",
                advice="the operands are [M, K] and [K, N]; transpose one with .T if needed",
            )
        if not alike(a.dtype, b.dtype):
            raise DtypeMismatch(
                span,
                what=f"tg.dot of {a.name} {a.dtype} and {b.name} {b.dtype}, and only 8-bit floats mix",
                advice=f"cast one: {self.casted(b, a.dtype)}",
            )
        shape, sums = (a.shape[0], b.shape[1]), accumulator_of(a.dtype)
        if c is None:
            c = self.scope.value("", sums, shape)
            self.scope.ops.append(hir.Fill(c, 0.0, span))
        if c.shape != shape or c.dtype != sums:
            raise ShapeMismatch(
                span,
                what=f"the accumulator {c.name} is {c.dtype} {c.shape}, the product {sums} {shape}",
                advice=f'start it with tg.zeros({shape}, "{sums}")',
            )
        result = self.scope.value(name, sums, shape)
        self.scope.ops.append(hir.Dot(result, a, b, c, by, span))
        return result

    def call_zeros(self, node: ast.Call, span: Span, name: str) -> hir.Value:
        shape, dtype = self.arguments(node, ("shape",), ("dtype",))
        return self.fill(shape, 0.0, dtype, span, name)

    def call_full(self, node: ast.Call, span: Span, name: str) -> hir.Value:
        shape, value, dtype = self.arguments(node, ("shape", "value"), ("dtype",))
        number = self.parse(value)
        if isinstance(number, TileIndex) and number.integer:
            number = Integer(Sym(number.name))
        if not isinstance(number, WEAK):
            number = self.constant(value, 0.0)
        return self.fill(shape, number, dtype, span, name)

    def fill(self, shape: ast.expr, number: Any, dtype: ast.expr | None, span: Span, name: str) -> hir.Value:
        given = self.constant(shape, ())
        parts = tuple(given) if isinstance(given, (tuple, list)) else (given,)
        sizes = tuple(n for s in parts if (n := whole(s)) is not None and 0 < n < 2**31)
        if not sizes or len(sizes) != len(parts):
            raise ShapeMismatch(
                self.span(shape), what=f"{given!r} is no tile shape", advice="give positive integers, e.g. (BM, BN)"
            )
        kind = self.dtype(self.constant(dtype, "f32"), self.span(dtype) if dtype else span)
        return self.full(sizes, number, kind, span, "tg.full", name)

    def full(self, sizes: tuple[int, ...], number: Any, dtype: DType, span: Span, what: str, name: str) -> hir.Value:
        """A tile of one number."""
        if isinstance(number, WEAK):
            self.weak(number, dtype, span, what)
            return self.cast(self.splat(number, sizes, dtype, span, name), dtype, span, name)
        value = self.number(number, span, what, masks=dtype == BOOL)
        self.fits(value, dtype, span, what)
        return self.filled(value, dtype, sizes, span, name)

    def call_arange(self, node: ast.Call, span: Span, name: str) -> hir.Value:
        nodes = self.arguments(node, ("start",), ("stop", "step", "dtype"))
        start, stop, step = (
            whole(self.constant(n, default)) for n, default in zip(nodes[:3], (None, "none", 1), strict=True)
        )
        if nodes[1] is None:
            start, stop = 0, start
        count = len(range(start, stop, step)) if start is not None and stop is not None and step else 0
        if not 0 < count < 2**31 or not all(-(2**31) <= n < 2**31 for n in (start, stop, step) if n is not None):
            raise BadCall(
                span,
                what=f"{ast.unparse(node)} is no row of whole numbers",
                advice="give a count, or start, stop and step, of at least one element, known at compile time",
            )
        assert start is not None
        assert step is not None
        counts = self.counted(count, start, step, span, name)
        dtype = self.dtype(self.constant(nodes[3], "i32"), self.span(nodes[3]) if nodes[3] else span)
        if dtype == BOOL:
            raise DtypeMismatch(span, what="tg.arange of masks", advice="compare it: tg.arange(n) < 3")
        return self.cast(counts, dtype, span, name)

    def call_positions(self, node: ast.Call, span: Span, name: str) -> hir.Value:
        (item,) = self.arguments(node, ("index",))
        index = self.parse(item)
        if not isinstance(index, TileIndex) or index.integer:
            raise BadCall(
                self.span(item),
                what=f"tg.positions of {ast.unparse(item)!r}",
                advice="give the index of a tg.tiles axis",
            )
        result = self.scope.value(name, I32, (index.size,))
        self.scope.ops.append(hir.Positions(result, index.name, span))
        return result

    def call_clip(self, node: ast.Call, span: Span, name: str) -> hir.Value | Number:
        x, low, high = self.arguments(node, ("x",), ("min", "max"))
        least, most = (None if bound is None else self.parse(bound) for bound in (low, high))
        return self.compute("clip", [self.parse(x), least, most], span, name)

    def call_elementwise(self, function: str, node: ast.Call, span: Span, name: str) -> hir.Value | Number:
        args = [self.parse(a) for a in self.arguments(node, ELEMENTWISE[function])]
        return self.compute(function, args, span, name)

    def call_fold(self, fold: str, node: ast.Call, owner: hir.Value | None, span: Span, name: str) -> hir.Value:
        """x.sum(axis=1) (``owner`` is x) or tg.sum(x, axis=1)."""
        first = () if owner else ("x",)
        *source, axis_node, keep_node = self.arguments(node, (*first, "axis"), ("keepdims",))
        value = owner or self.tile(source[0], f"the operand of tg.{fold}")
        axis, keep = self.constant(axis_node, None), self.constant(keep_node, False)
        rank = len(value.shape)
        if not isinstance(axis, int) or isinstance(axis, bool) or not -rank <= axis < rank:
            raise BadCall(
                self.span(axis_node),
                what=f"axis={axis!r} of a tile of shape {value.shape}",
                advice=f"fold one axis, from {-rank} to {rank - 1}; fold the result again for another",
            )
        if not isinstance(keep, bool):
            raise BadCall(self.span(keep_node), what=f"keepdims={keep!r}", advice="use True or False")
        return self.fold(fold, value, axis % rank, keep, span, name)

    # -------------------------------------------------------------------------------------- building blocks

    def instruction(self, node: ast.expr | None, span: Span) -> hir.Instruction | None:
        by = self.constant(node, None)
        if by is not None and not isinstance(by, hir.Instruction):
            shown, advice = repr(by), "use one of tidegate.cuda, e.g. cuda.mma()"
            if by in ("cp_async", "ld", "mma", "tma", "wgmma"):
                advice = f"write by=cuda.{by}(), with: from tidegate import cuda"
            elif callable(by):
                shown, advice = getattr(by, "__name__", shown), "call it, e.g. cuda.cp_async()"
            raise BadCall(self.span(node) if node else span, what=f"by={shown} is no instruction", advice=advice)
        return by

    def constant(self, node: ast.expr | None, default: Any) -> Any:
        if node is None:
            return default
        node = self.folded(node)
        if not self.static(node):
            parts = node.elts if isinstance(node, (ast.Tuple, ast.List)) else [node]
            late = any(self.is_integer(p) and not self.static(p) for p in parts)
            advice = "use literals, keyword-only constants and module-level names"
            if late:
                advice = "sizes of tiles are no numbers of the run: use a keyword-only constant, and loop over tg.tiles"
            raise BadCall(self.span(node), what=f"{ast.unparse(node)!r} must be known at compile time", advice=advice)
        return self.known(node)

    def dtype(self, name: Any, span: Span) -> DType:
        if not isinstance(name, str) or name not in DTYPES:
            raise DtypeMismatch(span, what=f"{describe(name)} is no dtype", advice=dtype_advice(name))
        return DTYPES[name]

    def arguments(self, node: ast.Call, required: tuple[str, ...], optional: tuple[str, ...] = ()) -> list[Any]:
        """The argument expressions by name, None where absent."""
        names = (*required, *optional)
        function = ast.unparse(node.func)
        found: dict[str, ast.expr] = {}
        unpacked = [a for a in node.args if isinstance(a, ast.Starred)] + [k for k in node.keywords if not k.arg]
        if unpacked:
            raise BadCall(
                self.span(unpacked[0]), what=f"{function} with unpacked arguments", advice="write each argument out"
            )
        if len(node.args) > len(names):
            raise BadCall(
                self.span(node), what=f"{function} got too many arguments", advice=f"it takes {', '.join(names)}"
            )
        found.update(zip(names, node.args, strict=False))
        for keyword in node.keywords:
            if keyword.arg not in names or keyword.arg in found:
                advice = f"it takes {', '.join(names)}"
                if keyword.arg in ARGUMENTS and self.function(node) is surface.load:
                    advice = ARGUMENTS[keyword.arg]
                what = f"{function} has no free argument {keyword.arg!r}"
                raise BadCall(self.span(keyword), what=what, advice=advice)
            found[keyword.arg] = keyword.value
        for name in required:
            if name not in found:
                raise BadCall(
                    self.span(node),
                    what=f"{function} lacks its argument {name!r}",
                    advice=f"it takes {', '.join(names)}",
                )
        return [found.get(name) for name in names]


class _Fold(ast.NodeTransformer):
    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        owner = self.scope.bindings.get(node.value.id) if isinstance(node.value, ast.Name) else None
        if isinstance(owner, hir.Value) and node.attr in ("shape", "dtype"):
            sizes: list[ast.expr] = [ast.copy_location(ast.Constant(s), node) for s in owner.shape]
            value = ast.Tuple(sizes, ast.Load()) if node.attr == "shape" else ast.Constant(owner.dtype.name)
            return ast.copy_location(value, node)
        return self.generic_visit(node)


def _attributes(node: ast.expr) -> list[str]:
    out: list[str] = []
    while isinstance(node, ast.Attribute):
        out.insert(0, node.attr)
        node = node.value
    return out


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
