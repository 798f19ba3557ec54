"""Operations that are others put together: powers, clip, logic of any tile, folds of masks, argmax, means."""

from __future__ import annotations

from typing import Any

from tidegate.errors import BadCall, DtypeMismatch, Span
from tidegate.ir import hir
from tidegate.ir.dtypes import BOOL, F32, I32, DType
from tidegate.ir.elementwise import OPERATIONS
from tidegate.ir.expr import Sym
from tidegate.lang.elementwise import COMPARISONS, Elementwise, describe
from tidegate.lang.scope import WEAK, Integer, Number, TileIndex
from tidegate.lang.source import whole

LARGEST_POWER = 1024

OF_FRACTIONS = frozenset({"reciprocal", *(name for name, row in OPERATIONS.items() if row.takes == {"float"})})
"""Operations that integers, too, take as numbers with a fraction."""

FOLDS = ("sum", "max", "min", "mean", "any", "all", "argmax", "argmin")
"""Functions and methods that take an axis away."""


class Derived(Elementwise):
    """Appends the ops that a derived operation stands for; :class:`Expressions` builds on it."""

    # -------------------------------------------------------------------------------------- elementwise

    def compute(self, op: str, args: list[Any], span: Span, name: str) -> hir.Value | Number:
        """``op`` of tiles and numbers; where there is no tile, of numbers of the run: a number with a fraction, or a
        mask of one element."""
        args = [Integer(Sym(a.name)) if isinstance(a, TileIndex) and a.integer else a for a in args]
        late = any(isinstance(a, WEAK) for a in args)
        if not late or any(isinstance(a, hir.Value) for a in args):
            return self.combine(op, args, span, name)
        dtype = F32
        if all(isinstance(a, Integer) or a is None or whole(a) is not None for a in args) and op not in OF_FRACTIONS:
            if op not in COMPARISONS.values():
                return self.combine(op, args, span, name)
            dtype = I32
        single = [self.splat(a, (1,), dtype, span, "") if isinstance(a, WEAK) else a for a in args]
        result = self.combine(op, single, span, name)
        return result if result.dtype == BOOL else Number(result)

    def combine(self, op: str, args: list[Any], span: Span, name: str) -> hir.Value:
        """``op``, where ``and``, ``or``, ``xor`` and ``not`` are those of masks if a tile is one, else of bits."""
        match op:
            case "power" | "pow":
                return self.power(args[0], args[1], span, name)
            case "square" | "reciprocal":
                return self.power(args[0], 2 if op == "square" else -1, span, name)
            case "clip":
                return self.clip(args[0], args[1], args[2], span, name)
            case "floor" | "ceil" | "trunc" | "round":
                return self.whole(op, args[0], span, name)
            case "logical_and" | "logical_or" | "logical_xor" | "logical_not":
                return self.logical(op, args, span, name)
            case "and" | "or" | "xor" | "not":
                masks = any(isinstance(a, hir.Value) and a.dtype == BOOL for a in args)
                op = f"logical_{op}" if masks else f"bitwise_{op}"
        return self.map(op, args, span, name)

    def whole(self, op: str, x: Any, span: Span, name: str) -> hir.Value:
        """floor, ceil, trunc, round: integers have no fraction."""
        integer = isinstance(x, hir.Value) and x.dtype.kind == "integer"
        return x if integer else self.map(op, [x], span, name)

    def logical(self, op: str, args: list[Any], span: Span, name: str) -> hir.Value:
        """NumPy's logical functions: an element of another dtype is true where it is not 0."""
        masks = [self.truth(a, span) if isinstance(a, hir.Value) else a for a in args]
        return self.map(op, masks, span, name)

    def truth(self, value: hir.Value, span: Span) -> hir.Value:
        return value if value.dtype == BOOL else self.map("not_equal", [value, 0], span, "")

    def clip(self, x: Any, low: Any, high: Any, span: Span, name: str) -> hir.Value:
        """minimum(maximum(x, low), high); None leaves a side open."""
        if low is None and high is None:
            raise BadCall(span, what="clip without a bound", advice="give min, max or both")
        if low is None:
            return self.map("minimum", [x, high], span, name)
        bounded = self.map("maximum", [x, low], span, "" if high is not None else name)
        return bounded if high is None else self.map("minimum", [bounded, high], span, name)

    def power(self, base: Any, exponent: Any, span: Span, name: str) -> hir.Value:
        """``base ** n`` by products, in f32 or 32 bits: x ** 5 is x * (x * x) * (x * x), and x ** -n is 1 / x ** n."""
        n = whole(int(exponent) if isinstance(exponent, float) and exponent.is_integer() else exponent)
        if n is None or abs(n) > LARGEST_POWER or not isinstance(base, hir.Value):
            what = f"{describe(base)} to the power of {describe(exponent)}"
            if isinstance(base, Integer):
                raise BadCall(span, what=what, advice="write the product, n * n, or make it a tile: tg.full((1,), n)")
            advice = f"the exponent is a whole number known at compile time, from -{LARGEST_POWER} to {LARGEST_POWER}; "
            raise BadCall(span, what=what, advice=advice + "else use tg.sqrt, or tg.exp2(tg.log2(x) * y)")
        if base.dtype == BOOL or (n < 0 and not base.dtype.floating):
            advice = (
                f"cast the mask: {self.casted(base)}"
                if base.dtype == BOOL
                else f"1 / x**{-n} is a fraction: {self.casted(base)} ** {n}"
            )
            raise DtypeMismatch(span, what=f"{base.name} {base.dtype} to the power of {n}", advice=advice)
        if n == 0:
            return self.filled(1.0, base.dtype, base.shape, span, name)
        narrow = base.dtype.floating and n not in (2, -1)  # one operation rounds once anyway
        square = self.cast(base, F32, span, "") if narrow else base
        product, left = None, abs(n)
        while left:
            if left % 2:
                product = square if product is None else self.map("mul", [product, square], span, "")
            left //= 2
            square = self.map("mul", [square, square], span, "") if left else square
        assert product is not None
        if n < 0:
            product = self.map("div", [1.0, product], span, "")
        return self.cast(product, base.dtype, span, name)

    def filled(self, number: float, dtype: DType, shape: tuple[int, ...], span: Span, name: str) -> hir.Value:
        result = self.scope.value(name, dtype, shape)
        self.scope.ops.append(hir.Fill(result, number, span))
        return result

    def counted(self, size: int, start: int, step: int, span: Span, name: str) -> hir.Value:
        """The i32 tile start, start + step, .. of ``size`` elements."""
        counts = self.scope.value(name if (start, step) == (0, 1) else "", I32, (size,))
        self.scope.ops.append(hir.Positions(counts, None, span))
        if step != 1:
            counts = self.map("mul", [counts, step], span, "" if start else name)
        return self.map("add", [counts, start], span, name) if start else counts

    # -------------------------------------------------------------------------------------- folds

    def fold(self, fold: str, value: hir.Value, axis: int, keep: bool, span: Span, name: str) -> hir.Value:
        """One of FOLDS along ``axis``, which stays, with one element, if ``keep``."""
        inner = name if keep else ""
        if fold in ("argmax", "argmin"):
            folded = self.place(fold, value, axis, span, inner)
        elif fold == "mean":
            folded = self.mean(value, axis, span, inner)
        else:
            if fold in ("any", "all"):
                fold, value = ("max" if fold == "any" else "min"), self.truth(value, span)
            elif fold == "sum" and not value.dtype.floating:
                value = self.cast(value, value.dtype.computed, span, "")
            folded = self.reduced(fold, value, axis, span, inner)
        rank = len(value.shape)
        if keep or rank == 1:
            return folded
        axes = tuple(a - (a > axis) if a != axis else 0 for a in range(rank))
        return self.spread(folded, value.shape[:axis] + value.shape[axis + 1 :], axes, span, name)

    def reduced(self, fold: str, value: hir.Value, axis: int, span: Span, name: str = "") -> hir.Value:
        kept = tuple(1 if a == axis else size for a, size in enumerate(value.shape))
        result = self.scope.value(name, value.dtype, kept)
        self.scope.ops.append(hir.Reduce(result, fold, value, axis, span))
        return result

    def mean(self, value: hir.Value, axis: int, span: Span, name: str) -> hir.Value:
        """The sum in f32, divided and then rounded once."""
        if not value.dtype.floating:
            raise DtypeMismatch(
                span, what=f"mean of {value.name} {value.dtype}", advice=f"cast first: {self.casted(value)}"
            )
        total = self.reduced("sum", self.cast(value, F32, span, ""), axis, span)
        quotient = self.map("div", [total, value.shape[axis]], span, name if value.dtype == F32 else "")
        return self.cast(quotient, value.dtype, span, name)

    def place(self, fold: str, value: hir.Value, axis: int, span: Span, name: str) -> hir.Value:
        """argmax and argmin: the least position of an element that is the extreme one, or NaN."""
        value = self.cast(value, I32, span, "") if value.dtype == BOOL else value
        size, shape = value.shape[axis], value.shape
        extreme = self.reduced(fold.removeprefix("arg"), value, axis, span)
        hits = self.map("equal", [value, extreme], span, "")
        if value.dtype.floating:  # the extreme element is NaN if any is, and equals nothing then
            hits = self.map("logical_or", [hits, self.map("isnan", [value], span, "")], span, "")
        positions = self.spread(self.counted(size, 0, 1, span, ""), shape, (axis,), span, "")
        return self.reduced("min", self.map("where", [hits, positions, size], span, ""), axis, span, name)
