"""Elementwise operations on tiles: dtypes, broadcasting, axes."""

from __future__ import annotations

import ast
import math
import numbers
import reprlib
from typing import Any

from tidegate.errors import BadCall, DtypeMismatch, ShapeMismatch, Span, UnsupportedSyntax
from tidegate.ir import hir
from tidegate.ir.dtypes import BOOL, F32, I32, DType
from tidegate.ir.elementwise import OPERATIONS, number_problem
from tidegate.ir.expr import Sym
from tidegate.lang.advice import operand
from tidegate.lang.scope import WEAK, Integer, Number, Scope, TileIndex
from tidegate.lang.source import Source, evaluate, whole

COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "less",
    ast.LtE: "less_equal",
    ast.Gt: "greater",
    ast.GtE: "greater_equal",
    ast.Eq: "equal",
    ast.NotEq: "not_equal",
}

OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.FloorDiv: "floor_divide",
    ast.Mod: "remainder",
    ast.Pow: "power",
    ast.LShift: "left_shift",
    ast.RShift: "right_shift",
    ast.BitAnd: "and",
    ast.BitOr: "or",
    ast.BitXor: "xor",
}
"""``and``, ``or`` and ``xor`` are those of bits or of masks, ``power`` becomes products."""

BITS = {
    **dict.fromkeys(
        (op for op in OPERATIONS if op.startswith(("bitwise", "logical"))),
        "& | ^ ~ combine masks, e.g. (x < y) & (y < z), or the bits of integers",
    ),
    **dict.fromkeys(("left_shift", "right_shift"), "shift integers; a float is scaled by a factor: x * 2.0**3"),
}
"""Operations on bits and on truth, with what to do where they are not defined."""

F32_LIMIT = 2.0**128 - 2.0**103
"""Numbers from here on round to infinity in f32."""


class Elementwise:
    """Appends elementwise ops to the open block of ``scope``; :class:`Expressions` builds on it."""

    source: Source
    scope: Scope

    def span(self, node: ast.AST) -> Span:
        return self.source.span(node)

    def constant(self, node: ast.expr | None, default: Any) -> Any:
        """The value of a compile-time expression, ``default`` where there is none."""
        raise NotImplementedError

    def known(self, node: ast.expr) -> Any:
        """The value of an expression that is known at compile time."""
        return evaluate(self.source, node, self.scope)

    def map(self, op: str, args: list[Any], span: Span, name: str) -> hir.Value:
        """Elementwise op with NumPy's promotion: numbers, scalars and integers are weak; f16 and bf16 widen to f32,
        never to one another.

        Floats, integers and masks do not mix; integers take whole numbers only, masks True and False."""
        tiles = [a for a in args if isinstance(a, hir.Value)]
        masks = any(a.dtype == BOOL for a in (args[1:] if op == "where" else args) if isinstance(a, hir.Value))
        operands = [a if isinstance(a, (hir.Value, *WEAK)) else self.number(a, span, op, masks) for a in args]
        if not tiles:
            late = [a for a in args if isinstance(a, WEAK)]
            what, advice = f"{op} of numbers only", "give at least one tile; for numbers use Python's functions"
            if late:
                what = f"{op} of {describe(late[0])}, and of no tile"
                advice = "integers take + - * // %, tg.minimum, tg.maximum and tg.abs; "
                advice += 'a tile of one: tg.full((1,), n, "i32")'
            raise BadCall(span, what=what, advice=advice)
        shape = self.broadcast_shape(op, tiles, span)
        values = operands[1:] if op == "where" else operands
        dtype = self.common_dtype(op, values, span)
        if op == "where" and getattr(operands[0], "dtype", None) != BOOL:
            raise DtypeMismatch(
                span, what=f"the first operand of where is {describe(args[0])}, no mask", advice="compare tiles: x < y"
            )
        values = [self.splat(v, shape, dtype, span, "") if isinstance(v, WEAK) else v for v in values]
        wide = [
            self.cast(v, dtype, span, "") if isinstance(v, hir.Value) and not isinstance(a, WEAK) else v
            for v, a in zip(values, operands[len(operands) - len(values) :], strict=True)
        ]
        same: tuple[Any, ...] = tuple(
            self.broadcast(v, shape, span) if isinstance(v, hir.Value) else v
            for v in [*operands[: len(operands) - len(values)], *wide]
        )
        result = self.scope.value(name, BOOL if OPERATIONS[op].mask else dtype, shape)
        self.scope.ops.append(hir.Map(result, op, same, span))
        return result

    def common_dtype(self, op: str, values: list[Any], span: Span) -> DType:
        """The dtype that the operands are computed in."""
        dtypes = {v.dtype for v in values if isinstance(v, hir.Value)} or {F32}
        names = " and ".join(sorted(d.name for d in dtypes))
        kinds = {d.kind for d in dtypes}
        if problem := self.mixed(op, [v for v in values if isinstance(v, hir.Value)]):
            what = f"{op} of a mask" if "mask" in kinds and op not in BITS else f"{op} of {names}"
            raise DtypeMismatch(span, what=what, advice=problem)
        dtype = F32 if F32 in dtypes else next(iter(dtypes))
        integers = [v for v in values if isinstance(v, hir.Value) and v.dtype.kind == "integer"]
        fraction = (
            f", or cast first: {self.casted(integers[0])}" if integers and "float" in OPERATIONS[op].takes else ""
        )
        for number in values:
            if isinstance(number, WEAK):
                self.weak(number, dtype, span, f"{op} of {names}", fraction)
            elif not isinstance(number, hir.Value):
                self.fits(number, dtype, span, f"{op} of {names}", fraction)
        return dtype

    def mixed(self, op: str, tiles: list[hir.Value]) -> str:
        """What to do about tiles whose dtypes ``op`` does not take, or not together; empty where it does."""
        kinds = {t.dtype.kind for t in tiles}
        integers = [t for t in tiles if t.dtype.kind == "integer"]
        masks, others = [t for t in tiles if t.dtype == BOOL], [t for t in tiles if t.dtype != BOOL]
        if len(kinds) > 1 or not kinds <= OPERATIONS[op].takes:
            if masks and op not in BITS:
                return f"choose with tg.where, or cast the mask: {self.casted(masks[0])}"
            if masks and others:
                return f"compare first: ({self.text(others[0])} != 0)"
            return BITS[op] if op in BITS else f"cast first: {self.casted(integers[0])}"
        floats = {t.dtype for t in tiles if t.dtype.floating} - {F32}
        if len(floats) > 1:
            return f"cast one: {self.casted(next(t for t in tiles if t.dtype in floats))}"
        if len({t.dtype for t in integers}) > 1:
            widest = max(integers, key=lambda t: t.dtype.size).dtype
            return f"cast one: {self.casted(next(t for t in integers if t.dtype != widest), widest)}"
        return ""

    def text(self, tile: hir.Value) -> str:
        """How the author writes a tile, so that .astype(..) may follow."""
        node = self.scope.nodes.get(tile.id)
        return tile.name if node is None else operand(node)

    def casted(self, tile: hir.Value, dtype: DType = F32) -> str:
        """What the author may write for a tile in another dtype."""
        return f'{self.text(tile)}.astype("{dtype}")'

    def weak(self, number: Integer | Number | hir.Scalar, dtype: DType, span: Span, what: str, cast: str = "") -> None:
        """Raises DtypeMismatch unless a number of the run can stand beside a tile of ``dtype``."""
        fraction = isinstance(number, (hir.Scalar, Number))
        if dtype == BOOL or (fraction and not dtype.floating):
            kind = "an f32" if fraction else "no truth value"
            advice = "compare it first" if dtype == BOOL else f"make it whole by //{cast}"
            raise DtypeMismatch(span, what=f"{what} and {describe(number)}, {kind}", advice=advice)

    def fits(self, number: float, dtype: DType, span: Span, what: str, cast: str = "") -> None:
        """Raises DtypeMismatch unless a tile of ``dtype`` can hold the number."""
        if problem := number_problem(dtype, number):
            advice = "use True or False" if dtype == BOOL else f"use a whole number of {dtype}{cast}"
            raise DtypeMismatch(span, what=f"{what}: {problem}", advice=advice)

    def splat(self, value: Any, shape: tuple[int, ...], dtype: DType, span: Span, name: str) -> hir.Value:
        """A tile of a scalar or integer, in the dtype in which operations on tiles of ``dtype`` compute."""
        if isinstance(value, Number):
            return self.broadcast(value.value, shape, span)
        own, wanted = F32 if isinstance(value, hir.Scalar) else I32, dtype.computed
        result = self.scope.value(name if own == wanted else "", own, shape)
        expr = Sym(value.name) if isinstance(value, hir.Scalar) else value.expr
        self.scope.ops.append(hir.Splat(result, expr, span))
        return self.cast(result, wanted, span, name)

    def broadcast_shape(self, op: str, tiles: list[hir.Value], span: Span) -> tuple[int, ...]:
        """NumPy's rule: shapes are matched from the last axis on; sizes agree or one of them is 1."""
        rank = max(len(t.shape) for t in tiles)
        out = []
        for axis in range(-rank, 0):
            sizes = {t.shape[axis] for t in tiles if len(t.shape) >= -axis} - {1}
            if len(sizes) > 1:
                shapes = " and ".join(f"{t.name} {t.shape}" for t in tiles)
                raise ShapeMismatch(
                    span, what=f"{op} of {shapes}", advice="sizes agree, or one is 1; add an axis with t[:, None]"
                )
            out.append(sizes.pop() if sizes else 1)
        return tuple(out)

    def broadcast(self, value: hir.Value, shape: tuple[int, ...], span: Span) -> hir.Value:
        if value.shape == shape:
            return value
        missing = len(shape) - len(value.shape)
        return self.spread(value, shape, tuple(a + missing for a in range(len(value.shape))), span, "")

    def spread(
        self, value: hir.Value, shape: tuple[int, ...], axes: tuple[int, ...], span: Span, name: str
    ) -> hir.Value:
        result = self.scope.value(name, value.dtype, shape)
        self.scope.ops.append(hir.Spread(result, value, axes, span))
        return result

    def part(self, owner: hir.Value, node: ast.Subscript, name: str) -> hir.Value:
        """t[0:16, :], t[:, None] and both: a part of a tile, with axes of one element added."""
        items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        added = [isinstance(item, ast.Constant) and item.value is None for item in items]
        slices = [item for item, new in zip(items, added, strict=True) if not new]
        for item in slices:
            if not isinstance(item, ast.Slice):
                raise UnsupportedSyntax(
                    self.span(item),
                    what=f"the item {ast.unparse(item)} of {describe(owner)}",
                    advice="take a part by a slice, t[0:1, :]; t[:, None] adds an axis",
                )
        if len(slices) != len(owner.shape):
            what = f"{ast.unparse(node)} of a tile of shape {owner.shape}"
            raise ShapeMismatch(self.span(node), what=what, advice="write ':' per axis")
        spans = [self.bounds(owner, item, size) for item, size in zip(slices, owner.shape, strict=True)]
        shape = tuple(stop - start for start, stop in spans)
        value = owner
        if shape != owner.shape:
            value = self.scope.value("" if any(added) else name, owner.dtype, shape)
            origin = tuple(start for start, _ in spans)
            self.scope.ops.append(hir.Part(value, owner, origin, self.span(node)))
        if not any(added):
            return value
        left = iter(shape)
        wide = tuple(1 if new else next(left) for new in added)
        axes = tuple(axis for axis, new in enumerate(added) if not new)
        return self.spread(value, wide, axes, self.span(node), name)

    def bounds(self, owner: hir.Value, item: ast.expr, size: int) -> tuple[int, int]:
        """Begin and end of a slice of an axis, as in NumPy."""
        assert isinstance(item, ast.Slice)
        given = [self.constant(e, None) for e in (item.lower, item.upper, item.step)]
        numbers_ = [None if g is None else whole(g) for g in given]
        if any(n is None for n, g in zip(numbers_, given, strict=True) if g is not None):
            raise BadCall(self.span(item), what=f"the slice {ast.unparse(item)}", advice="use integers")
        start, stop, step = slice(numbers_[0], numbers_[1], numbers_[2] or 1).indices(size)
        if step != 1 or start >= stop:
            what = f"the slice {ast.unparse(item)} of an axis of {size} " + ("is empty" if step == 1 else "has a step")
            raise ShapeMismatch(self.span(item), what=what, advice="take one or more neighbours, e.g. t[0:16, :]")
        return start, stop

    def number(self, value: Any, span: Span, what: str, masks: bool = False) -> float:
        """A compile-time number as an operand, or True and False beside ``masks``; raises BadCall."""
        if masks and isinstance(value, bool):
            return float(value)
        if isinstance(value, TileIndex):
            raise BadCall(
                span, what=f"{what} of {describe(value)}", advice="a tile index has no value here: it indexes windows"
            )
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            raise BadCall(span, what=f"{what} of {describe(value)}", advice="operands are tiles and numbers")
        try:
            number = float(value)
        except OverflowError:
            number = F32_LIMIT
        if math.isfinite(number) and abs(number) >= F32_LIMIT:
            raise BadCall(
                span, what=f"{what} of a number beyond the range of f32", advice='use float("inf") for infinity'
            )
        return number

    def cast(self, value: hir.Value, dtype: DType, span: Span, name: str) -> hir.Value:
        if value.dtype == dtype:
            return value
        result = self.scope.value(name, dtype, value.shape)
        self.scope.ops.append(hir.Cast(result, value, span))
        return result


def describe(value: Any) -> str:
    match value:
        case hir.Value():
            return f"the tile {value.name}"
        case hir.Tensor():
            return f"the tensor {value.name} (load a window of it)"
        case TileIndex():
            return f"the tile index {value.name}"
        case hir.Scalar():
            return f"the scalar {value.name}"
        case Integer():
            return f"the integer {value.expr}"
        case Number():
            return f"the number {value.value.name}"
    name = getattr(value, "__name__", None)  # of functions, types, modules: their repr holds an address or a path
    return f"the {type(value).__name__} {name}" if isinstance(name, str) else reprlib.repr(value)
