"""What an author writes with: parameter types, loops and tile operations.

Inside a kernel these names are read by the parser, never executed; called elsewhere they say so. Their signatures and
docstrings are the language reference.
"""

from __future__ import annotations

import builtins
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

from tidegate.errors import BadCall, BadSignature
from tidegate.ir.direction import Direction
from tidegate.ir.dtypes import NUMPY_NAMES
from tidegate.span import calling


@dataclass(frozen=True)
class TensorType:
    """A row-major global tensor: sizes (names of run-time dimensions or fixed integers) and a dtype name."""

    shape: tuple[str | int, ...]
    dtype: str
    direction: Direction


class Annotation:
    """What the annotation of a positional parameter begins with. ``example`` is a whole one."""

    example: ClassVar[str]

    def __new__(cls, *items: Any, **named: Any) -> Any:
        what = f"tg.{cls.__name__} is called, and takes what describes the parameter in brackets"
        raise BadSignature(calling(1), what=what, advice=f"write {cls.example}")


class _TensorAnnotation(Annotation):
    direction: ClassVar[Direction]

    def __class_getitem__(cls, items: Any) -> TensorType:
        parts = items if isinstance(items, tuple) else (items,)
        *shape, dtype = parts or (None,)
        sizes = builtins.all(isinstance(s, (str, int)) for s in shape)
        if not shape or not isinstance(dtype, str) or not sizes:
            what = f"tg.{cls.__name__}[...] takes the sizes and then the dtype, not {items!r}"
            if sizes and shape and getattr(dtype, "__name__", "") in NUMPY_NAMES:
                what = f"the dtype of tg.{cls.__name__}[...] is a string, not {dtype!r}"
            elif not shape and isinstance(dtype, str):
                what = f"tg.{cls.__name__}[{dtype!r}] has one item, and takes one or more sizes and then the dtype"
            advice = f'write {cls.example} or tg.{cls.__name__}[8, 128, "f32"]'
            raise BadSignature(calling(1), what=what, advice=advice)
        return TensorType(tuple(shape), dtype, cls.direction)


class Tensor(_TensorAnnotation):
    """``x: tg.Tensor["M", "K", "bf16"]``: an input array, read only.

    The sizes come first, one per axis: the name of a dimension, whose size each call tells (equal names are equal
    sizes), the name of a keyword-only constant, or a positive integer. The last item is the dtype: "f32", "f16",
    "bf16", "f8e4m3", "f8e5m2", "i8", "i32", "i64" or "bool". Raises TG104 for anything else, TG202 for another dtype.
    """

    direction = Direction.IN
    example = 'tg.Tensor["M", "K", "bf16"]'


class Out(_TensorAnnotation):
    """``y: tg.Out["M", "N", "bf16"]``: an output array, written only; the caller passes the array to fill.

    Sizes and dtype are those of :class:`Tensor`. Elements that no statement writes keep their value. Each CTA writes
    windows of its own: they are indexed by all grid indices (TG205), and some statement writes it (TG206).
    """

    direction = Direction.OUT
    example = 'tg.Out["M", "N", "bf16"]'


class InOut(_TensorAnnotation):
    """``c: tg.InOut["M", "N", "f32"]``: an array that is read and written in place, or added to by tg.atomic_add.

    Sizes and dtype are those of :class:`Tensor`. Windows that are loaded, assigned or updated (``c[m, n] += t``) are
    indexed by all grid indices, so that no CTA reads what another one writes (TG205). Windows of atomic additions may
    overlap; a tensor that is added to is neither loaded nor assigned in that kernel.
    """

    direction = Direction.INOUT
    example = 'tg.InOut["M", "N", "f32"]'


@dataclass(frozen=True)
class ScalarType:
    """A number that is given at each call."""

    dtype: str


class Scalar(Annotation):
    """``alpha: tg.Scalar["f32"]``, ``n: tg.Scalar["i32"]``: a number that is given at each call, among the arrays.

    Nothing is compiled again when it changes (a keyword-only constant is part of what is compiled). An i32 is an
    integer of the kernel: it may count the trips of a loop, index a window, stand in a condition or beside a tile. An
    f32 stands beside a tile, whose dtype it takes, and makes other numbers: ``1.0 / alpha``. Calls take Python and
    NumPy numbers and arrays without axes; TG701 for one of the wrong kind or beyond the dtype's range, TG104 for
    another dtype.
    """

    example = 'tg.Scalar["f32"]'

    def __class_getitem__(cls, dtype: Any) -> ScalarType:
        if dtype not in ("f32", "i32"):
            raise BadSignature(
                calling(1),
                what=f"tg.Scalar[...] takes one of the dtypes 'f32' and 'i32', not {dtype!r}",
                advice='write tg.Scalar["f32"] or tg.Scalar["i32"]',
            )
        return ScalarType(dtype)


def _kernel_only(name: str) -> NoReturn:
    raise BadCall(
        calling(2),
        what=f"tg.{name} was called outside a kernel",
        advice="use it inside a function decorated with @tg.kernel; kernel.plain(...) runs one on NumPy arrays",
    )


def grid(*tiles: Any) -> Any:
    """``for m, n in tg.grid(tg.tiles("M", BM), tg.tiles("N", BN)):`` one CTA per combination, in any order.

    Axes are tg.tiles and tg.range over dimensions, numbers and what is computed of sizes. Outermost and at most
    once; without it the kernel is one CTA. Raises TG106 where it stands elsewhere, or over a number that only the
    GPU knows.
    """
    _kernel_only("grid")


def tiles(extent: str | int | Any, size: int, until: Any = None) -> Any:
    """``for k in tg.tiles("K", BK):`` the tiles of ``size`` elements that cover a dimension, in order.

    ``extent``: a dimension's name, a number or, in a loop, any integer, in elements; ``size``: elements per tile,
    known at compile time. The index names tiles in windows, ``a[m, k]``; in conditions it is the tile's number. The
    last tile may reach beyond the extent: its reads give zero there and its writes are dropped.

    ``until=tg.end(m)``: only those tiles that begin before the end of the tile ``m`` (causal attention). Raises
    TG106 for what is no extent or size, TG102 for an unknown dimension.
    """
    _kernel_only("tiles")


def begin(index: Any) -> Any:
    """The first position that a tg.tiles index covers, an integer: ``x[tg.begin(m) - 1 : tg.end(m) + 1, :]``.

    Counted in elements along the dimension. Raises TG105 for what is no tg.tiles index.
    """
    _kernel_only("begin")


def end(index: Any) -> Any:
    """The position behind the last one that a tg.tiles index covers, an integer; also for ``until=``.

    Counted in elements along the dimension; beyond its end for a last tile that reaches beyond. Raises TG105 for
    what is no tg.tiles index.
    """
    _kernel_only("end")


def size(dimension: str) -> Any:
    """The size of a dimension, an integer: ``tg.positions(n) < tg.size("N")``, ``x.sum(axis=1) / tg.size("N")``.

    Raises TG102 for a name that no tensor of the kernel has.
    """
    _kernel_only("size")


def range(extent: str | int | Any) -> Any:
    """``for h in tg.range("H"):`` the positions of a dimension, one by one in order; also as an axis of tg.grid.

    ``extent``: a dimension's name, a number or, in a loop, any integer; it counts from 0. The index is an integer:
    ``a[h, m, :]`` has no axis for it, and it may be computed with: ``k[h // GROUP, j, :]``. Raises TG106 for what
    is no extent, TG102 for an unknown dimension.
    """
    _kernel_only("range")


def load(window: Any, *, by: Any = None, stages: int = 1, to: str | None = None) -> Any:
    """The tile under ``window``, e.g. ``tg.load(a[m, k], by=cuda.cp_async(), stages=3)``.

    It has the tensor's dtype, and an axis per item of the window that is no single position; elements outside the
    tensor are 0. A window of one element, ``tg.load(counts[b])``, is an integer, or of floats a number.

    ``by``: the instruction that carries it (default: the target's). ``stages``: slots of its ring in shared memory,
    so that copies can run stages - 1 trips ahead. ``to``: "shared" or "registers" (default: where its reader wants
    it). Raises TG203 for a window that does not fit the tensor, TG204 for a tg.Out, TG301 or TG302 for a schedule
    that is not possible.
    """
    _kernel_only("load")


def atomic_add(window: Any, tile: Any) -> None:
    """Adds ``tile``, or a number, to a window of a tg.InOut, e.g. ``tg.atomic_add(c[rows, :], t)``: a statement.

    f32 and i32. Windows of several CTAs, and rows of one, may overlap. Additions happen one by one and in no order,
    so that sums of f32 may differ from run to run in the last places. Raises TG204 for a tensor that is no
    tg.InOut, TG202 for another dtype, TG205 where the tensor is also loaded or assigned.
    """
    _kernel_only("atomic_add")


def dot(a: Any, b: Any, c: Any = None, *, by: Any = None) -> Any:
    """``a @ b + c`` for a [M, K], b [K, N] and c [M, N] (None: zeros), a tile [M, N].

    a and b have one dtype, or are each 8-bit floats; c and the result are f32, in which it is accumulated, or i32
    for i8. ``by``: cuda.mma(). Raises TG201 for shapes or sums that do not fit, TG202 for dtypes, TG303 where no
    instruction of the target multiplies them (``plain`` takes all).
    """
    _kernel_only("dot")


def zeros(shape: tuple[int, ...], dtype: str = "f32") -> Any:
    """A tile of zeros of ``shape``, positive numbers known at compile time.

    Raises TG201 for another shape, TG202 for an unknown dtype.
    """
    _kernel_only("zeros")


def full(shape: tuple[int, ...], value: float, dtype: str = "f32") -> Any:
    """A tile of one number, of any dtype; of ``"bool"`` True or False.

    ``shape``: positive numbers known at compile time; ``value``: a number of the text or of the run. Raises TG201
    for another shape, TG202 for a value that the dtype cannot hold, TG105 for what is no number.
    """
    _kernel_only("full")


def arange(start: int, stop: int | None = None, step: int = 1, dtype: str = "i32") -> Any:
    """The whole numbers 0 .. start - 1, or start, start + step, .. below stop: a tile of one axis.

    All known at compile time, at least one element. Raises TG105 for others; tg.positions(m) gives those of a tile.
    """
    _kernel_only("arange")


def abs(x: Any) -> Any:
    """Elementwise absolute value; of the smallest integer itself.

    x: a tile of floats or integers; the result has its dtype and shape. TG202 for a mask.
    """
    _kernel_only("abs")


def sign(x: Any) -> Any:
    """Elementwise -1, 0 or 1; NaN of NaN.

    x: a tile of floats or integers; the result has its dtype and shape. TG202 for a mask.
    """
    _kernel_only("sign")


def floor(x: Any) -> Any:
    """Elementwise largest whole number not above x.

    x: a tile of floats or integers; the result has its dtype and shape. TG202 for a mask.
    """
    _kernel_only("floor")


def ceil(x: Any) -> Any:
    """Elementwise smallest whole number not below x.

    x: a tile of floats or integers; the result has its dtype and shape. TG202 for a mask.
    """
    _kernel_only("ceil")


def trunc(x: Any) -> Any:
    """Elementwise x without its fraction.

    x: a tile of floats or integers; the result has its dtype and shape. TG202 for a mask.
    """
    _kernel_only("trunc")


def round(x: Any) -> Any:
    """Elementwise nearest whole number, the even one of two.

    x: a tile of floats or integers; the result has its dtype and shape. TG202 for a mask.
    """
    _kernel_only("round")


def square(x: Any) -> Any:
    """Elementwise square, x * x.

    x: a tile of floats or integers; the result has its dtype and shape. TG202 for a mask.
    """
    _kernel_only("square")


def reciprocal(x: Any) -> Any:
    """Elementwise 1 / x of floats, correctly rounded.

    x: a tile of floats, or a number; the result has its dtype and shape. TG202 for integers and masks.
    """
    _kernel_only("reciprocal")


def sqrt(x: Any) -> Any:
    """Elementwise square root, correctly rounded.

    x: a tile of floats, or a number; the result has its dtype and shape. TG202 for integers and masks.
    """
    _kernel_only("sqrt")


def rsqrt(x: Any) -> Any:
    """Elementwise 1 / sqrt(x), within 4 units of the last place of f32.

    x: a tile of floats, or a number; the result has its dtype and shape. TG202 for integers and masks.
    """
    _kernel_only("rsqrt")


def exp(x: Any) -> Any:
    """Elementwise e**x, within 4 units of the last place of f32.

    x: a tile of floats, or a number; the result has its dtype and shape. TG202 for integers and masks.
    """
    _kernel_only("exp")


def expm1(x: Any) -> Any:
    """Elementwise e**x - 1, within 4 units of the last place of f32 also near 0.

    x: a tile of floats, or a number; the result has its dtype and shape. TG202 for integers and masks.
    """
    _kernel_only("expm1")


def exp2(x: Any) -> Any:
    """Elementwise 2**x, within 4 units of the last place of f32: one instruction.

    x: a tile of floats, or a number; the result has its dtype and shape. TG202 for integers and masks.
    """
    _kernel_only("exp2")


def log(x: Any) -> Any:
    """Elementwise natural logarithm, within 4 units of the last place of f32.

    x: a tile of floats, or a number; the result has its dtype and shape. TG202 for integers and masks.
    """
    _kernel_only("log")


def log1p(x: Any) -> Any:
    """Elementwise log(1 + x), within 4 units of the last place of f32 also near 0.

    x: a tile of floats, or a number; the result has its dtype and shape. TG202 for integers and masks.
    """
    _kernel_only("log1p")


def log2(x: Any) -> Any:
    """Elementwise base-2 logarithm, within 4 units of the last place of f32.

    x: a tile of floats, or a number; the result has its dtype and shape. TG202 for integers and masks.
    """
    _kernel_only("log2")


def sin(x: Any) -> Any:
    """Elementwise sine of radians, within 4 units of the last place of f32 however large x is.

    x: a tile of floats, or a number; the result has its dtype and shape. TG202 for integers and masks.
    """
    _kernel_only("sin")


def cos(x: Any) -> Any:
    """Elementwise cosine of radians, within 4 units of the last place of f32 however large x is.

    x: a tile of floats, or a number; the result has its dtype and shape. TG202 for integers and masks.
    """
    _kernel_only("cos")


def tanh(x: Any) -> Any:
    """Elementwise hyperbolic tangent, within 4 units of the last place of f32.

    x: a tile of floats, or a number; the result has its dtype and shape. TG202 for integers and masks.
    """
    _kernel_only("tanh")


def erf(x: Any) -> Any:
    """Elementwise error function, within 4 units of the last place of f32.

    x: a tile of floats, or a number; the result has its dtype and shape. TG202 for integers and masks.
    """
    _kernel_only("erf")


def isnan(x: Any) -> Any:
    """The mask of elements that are NaN.

    x: a tile of floats; the result is a mask of its shape. TG202 for integers and masks.
    """
    _kernel_only("isnan")


def isinf(x: Any) -> Any:
    """The mask of elements that are infinite.

    x: a tile of floats; the result is a mask of its shape. TG202 for integers and masks.
    """
    _kernel_only("isinf")


def isfinite(x: Any) -> Any:
    """The mask of elements that are neither NaN nor infinite.

    x: a tile of floats; the result is a mask of its shape. TG202 for integers and masks.
    """
    _kernel_only("isfinite")


def logical_not(x: Any) -> Any:
    """The mask of elements that are 0 (false).

    x: any tile; the result has its shape. TG105 for what is no tile.
    """
    _kernel_only("logical_not")


def logical_and(a: Any, b: Any) -> Any:
    """The mask of elements of which both are not 0.

    Any tiles, whose shapes broadcast; the result is a mask. TG201 where they do not.
    """
    _kernel_only("logical_and")


def logical_or(a: Any, b: Any) -> Any:
    """The mask of elements of which at least one is not 0.

    Any tiles, whose shapes broadcast; the result is a mask. TG201 where they do not.
    """
    _kernel_only("logical_or")


def logical_xor(a: Any, b: Any) -> Any:
    """The mask of elements of which just one is not 0.

    Any tiles, whose shapes broadcast; the result is a mask. TG201 where they do not.
    """
    _kernel_only("logical_xor")


def pow(x: Any, n: int) -> Any:
    """Elementwise x**n by products, in f32 or in 32 bits; also ``x**n``.

    x: a tile of floats or integers, n: a whole number known at compile time, -1024 to 1024, not negative for
    integers. The result has x's dtype and shape. TG105 for another n, TG202 for a mask or an integer to a negative
    power.
    """
    _kernel_only("pow")


def clip(x: Any, min: Any = None, max: Any = None) -> Any:
    """Elementwise ``minimum(maximum(x, min), max)``; a bound of None is none.

    Tiles or numbers, as for tg.maximum; the promoted dtype and joint shape. TG105 without a bound, TG201 and TG202
    for operands that do not fit.
    """
    _kernel_only("clip")


def sum(x: Any, axis: int, keepdims: bool = False) -> Any:
    """Sum along an axis; also ``x.sum(axis=...)``.

    Of floats accumulated in f32 and rounded once into the tile's dtype, of integers in 32 bits or 64 for i64 (it
    wraps), of i8 as i32, of masks the i32 count. ``axis``, known at compile time, counts from the end if negative;
    it is gone from the result, or has one element with ``keepdims`` or where it was the only axis. TG105 for
    another axis or None.
    """
    _kernel_only("sum")


def mean(x: Any, axis: int, keepdims: bool = False) -> Any:
    """Sum along an axis over the number of elements, in f32 and rounded once into the tile's dtype; also
    ``x.mean(axis=...)``.

    Floats. ``axis``, known at compile time, counts from the end if negative; it is gone from the result, or has one
    element with ``keepdims`` or where it was the only axis. TG105 for another axis or None, TG202 for integers and
    masks.
    """
    _kernel_only("mean")


def max(x: Any, axis: int, keepdims: bool = False) -> Any:
    """Largest element along an axis; NaN if any is NaN. Also ``x.max(axis=...)``.

    In the tile's dtype. ``axis``, known at compile time, counts from the end if negative; it is gone from the
    result, or has one element with ``keepdims`` or where it was the only axis. TG105 for another axis or None. Of
    two tiles: tg.maximum.
    """
    _kernel_only("max")


def min(x: Any, axis: int, keepdims: bool = False) -> Any:
    """Smallest element along an axis; NaN if any is NaN. Also ``x.min(axis=...)``.

    In the tile's dtype. ``axis``, known at compile time, counts from the end if negative; it is gone from the
    result, or has one element with ``keepdims`` or where it was the only axis. TG105 for another axis or None. Of
    two tiles: tg.minimum.
    """
    _kernel_only("min")


def argmax(x: Any, axis: int, keepdims: bool = False) -> Any:
    """Position of the largest element along an axis, i32; also ``x.argmax(axis=...)``.

    The first of equal ones; the first NaN if any is NaN. ``axis``, known at compile time, counts from the end if
    negative; it is gone from the result, or has one element with ``keepdims`` or where it was the only axis. TG105
    for another axis or None.
    """
    _kernel_only("argmax")


def argmin(x: Any, axis: int, keepdims: bool = False) -> Any:
    """Position of the smallest element along an axis, i32; also ``x.argmin(axis=...)``.

    The first of equal ones; the first NaN if any is NaN. ``axis``, known at compile time, counts from the end if
    negative; it is gone from the result, or has one element with ``keepdims`` or where it was the only axis. TG105
    for another axis or None.
    """
    _kernel_only("argmin")


def any(x: Any, axis: int, keepdims: bool = False) -> Any:
    """The mask of whether some element along an axis is not 0. Also ``x.any(axis=...)``.

    ``axis``, known at compile time, counts from the end if negative; it is gone from the result, or has one element
    with ``keepdims`` or where it was the only axis. TG105 for another axis or None.
    """
    _kernel_only("any")


def all(x: Any, axis: int, keepdims: bool = False) -> Any:
    """The mask of whether no element along an axis is 0. Also ``x.all(axis=...)``.

    ``axis``, known at compile time, counts from the end if negative; it is gone from the result, or has one element
    with ``keepdims`` or where it was the only axis. TG105 for another axis or None.
    """
    _kernel_only("all")


def where(mask: Any, a: Any, b: Any) -> Any:
    """``a`` where the mask is true, else ``b``; masks come from comparisons, ``& | ^ ~`` combine them.

    Shapes broadcast; a and b are tiles or numbers of one kind, promoted as by operators. TG202 for a mask that is
    none or kinds that mix, TG201 for shapes that do not fit.
    """
    _kernel_only("where")


def positions(index: Any) -> Any:
    """The positions that a tg.tiles index covers along its dimension: an i32 tile of one axis.

    Counted in elements; beyond the end of the dimension too, where ``tg.positions(n) < tg.size("N")`` is false.
    Raises TG105 for what is no tg.tiles index.
    """
    _kernel_only("positions")


def maximum(a: Any, b: Any) -> Any:
    """Elementwise maximum; NaN if either is NaN. Of two integers, an integer.

    Tiles or numbers of one kind; the promoted dtype and joint shape. TG202 for dtypes that mix, TG201 for shapes
    that do not fit.
    """
    _kernel_only("maximum")


def minimum(a: Any, b: Any) -> Any:
    """Elementwise minimum; NaN if either is NaN. Of two integers, an integer.

    Tiles or numbers of one kind; the promoted dtype and joint shape. TG202 for dtypes that mix, TG201 for shapes
    that do not fit.
    """
    _kernel_only("minimum")
