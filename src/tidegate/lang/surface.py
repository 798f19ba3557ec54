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

    Outermost and at most once; without it the kernel is one CTA.
    """
    _kernel_only("grid")


def tiles(extent: str | int | Any, size: int, until: Any = None) -> Any:
    """``for k in tg.tiles("K", BK):`` the tiles of ``size`` elements that cover a dimension, in order.

    ``until=tg.end(m)``: only those that begin before the end of the tile ``m`` (causal attention).

    ``extent`` is a dimension's name, a number or, in a loop, any integer. The last tile may reach beyond: its reads
    give zero there and its writes are dropped.
    """
    _kernel_only("tiles")


def begin(index: Any) -> Any:
    """The first position that a tg.tiles index covers, an integer: ``x[tg.begin(m) - 1 : tg.end(m) + 1, :]``."""
    _kernel_only("begin")


def end(index: Any) -> Any:
    """The position behind the last one that a tg.tiles index covers, an integer; also for ``until=``."""
    _kernel_only("end")


def size(dimension: str) -> Any:
    """The size of a dimension, an integer: ``tg.positions(n) < tg.size("N")``, ``x.sum(axis=1) / tg.size("N")``.

    Raises TG102 for a name that no tensor of the kernel has.
    """
    _kernel_only("size")


def range(extent: str | int | Any) -> Any:
    """``for h in tg.range("H"):`` the positions of a dimension, in order; also as an axis of tg.grid.

    The index is an integer: ``a[h, m, :]`` has no axis for it, and it may be computed with: ``k[h // GROUP, j, :]``.
    """
    _kernel_only("range")


def load(window: Any, *, by: Any = None, stages: int = 1, to: str | None = None) -> Any:
    """The tile under ``window``, e.g. ``tg.load(a[m, k], by=cuda.cp_async(), stages=3)``.

    ``by``: the instruction that carries it (default: the target's). ``stages``: slots of its ring in shared memory, so
    that copies can run stages - 1 trips ahead. ``to``: "shared" or "registers" (default: where its reader wants it).
    An element of integers, ``tg.load(counts[b])``, is an integer.
    """
    _kernel_only("load")


def atomic_add(window: Any, tile: Any) -> None:
    """Adds ``tile`` to a window of a tg.InOut, e.g. ``tg.atomic_add(c[rows, :], t)``: a statement.

    Windows of several CTAs, and rows of one, may overlap. Additions happen one by one and in no order, so that sums of
    f32 may differ from run to run in the last places. f32 and i32.
    """
    _kernel_only("atomic_add")


def dot(a: Any, b: Any, c: Any = None, *, by: Any = None) -> Any:
    """``a @ b + c`` for a [M, K], b [K, N], c [M, N]; accumulated and returned in c's dtype: f32, or i32 for i8."""
    _kernel_only("dot")


def zeros(shape: tuple[int, ...], dtype: str = "f32") -> Any:
    """A tile of zeros."""
    _kernel_only("zeros")


def full(shape: tuple[int, ...], value: float, dtype: str = "f32") -> Any:
    """A tile of one number, of any dtype; of ``"bool"`` True or False."""
    _kernel_only("full")


def arange(start: int, stop: int | None = None, step: int = 1, dtype: str = "i32") -> Any:
    """The whole numbers 0 .. start - 1, or start, start + step, .. below stop: a tile of one axis, all known at compile
    time.
    """
    _kernel_only("arange")


def abs(x: Any) -> Any:
    """Elementwise absolute value; of the smallest integer itself."""
    _kernel_only("abs")


def sign(x: Any) -> Any:
    """Elementwise -1, 0 or 1; NaN of NaN."""
    _kernel_only("sign")


def floor(x: Any) -> Any:
    """Elementwise largest whole number not above x."""
    _kernel_only("floor")


def ceil(x: Any) -> Any:
    """Elementwise smallest whole number not below x."""
    _kernel_only("ceil")


def trunc(x: Any) -> Any:
    """Elementwise x without its fraction."""
    _kernel_only("trunc")


def round(x: Any) -> Any:
    """Elementwise nearest whole number, the even one of two."""
    _kernel_only("round")


def square(x: Any) -> Any:
    """Elementwise x * x."""
    _kernel_only("square")


def reciprocal(x: Any) -> Any:
    """Elementwise 1 / x of floats, correctly rounded."""
    _kernel_only("reciprocal")


def sqrt(x: Any) -> Any:
    """Elementwise square root, correctly rounded."""
    _kernel_only("sqrt")


def rsqrt(x: Any) -> Any:
    """Elementwise 1 / sqrt(x), within 4 units of the last place of f32."""
    _kernel_only("rsqrt")


def exp(x: Any) -> Any:
    """Elementwise e**x, within 4 units of the last place of f32."""
    _kernel_only("exp")


def expm1(x: Any) -> Any:
    """Elementwise e**x - 1, within 4 units of the last place of f32 also near 0."""
    _kernel_only("expm1")


def exp2(x: Any) -> Any:
    """Elementwise 2**x, within 4 units of the last place of f32: one instruction."""
    _kernel_only("exp2")


def log(x: Any) -> Any:
    """Elementwise natural logarithm, within 4 units of the last place of f32."""
    _kernel_only("log")


def log1p(x: Any) -> Any:
    """Elementwise log(1 + x), within 4 units of the last place of f32 also near 0."""
    _kernel_only("log1p")


def log2(x: Any) -> Any:
    """Elementwise base-2 logarithm, within 4 units of the last place of f32."""
    _kernel_only("log2")


def sin(x: Any) -> Any:
    """Elementwise sine of radians, within 4 units of the last place of f32 however large x is."""
    _kernel_only("sin")


def cos(x: Any) -> Any:
    """Elementwise cosine of radians, within 4 units of the last place of f32 however large x is."""
    _kernel_only("cos")


def tanh(x: Any) -> Any:
    """Elementwise hyperbolic tangent, within 4 units of the last place of f32."""
    _kernel_only("tanh")


def erf(x: Any) -> Any:
    """Elementwise error function, within 4 units of the last place of f32."""
    _kernel_only("erf")


def isnan(x: Any) -> Any:
    """The mask of elements that are NaN."""
    _kernel_only("isnan")


def isinf(x: Any) -> Any:
    """The mask of elements that are infinite."""
    _kernel_only("isinf")


def isfinite(x: Any) -> Any:
    """The mask of elements that are neither NaN nor infinite."""
    _kernel_only("isfinite")


def logical_not(x: Any) -> Any:
    """The mask of elements that are 0 (false)."""
    _kernel_only("logical_not")


def logical_and(a: Any, b: Any) -> Any:
    """The mask of elements of which both are not 0."""
    _kernel_only("logical_and")


def logical_or(a: Any, b: Any) -> Any:
    """The mask of elements of which at least one is not 0."""
    _kernel_only("logical_or")


def logical_xor(a: Any, b: Any) -> Any:
    """The mask of elements of which just one is not 0."""
    _kernel_only("logical_xor")


def pow(x: Any, n: int) -> Any:
    """Elementwise x**n for a whole number n known at compile time, by products in f32 or in 32 bits; also ``x**n``."""
    _kernel_only("pow")


def clip(x: Any, min: Any = None, max: Any = None) -> Any:
    """Elementwise ``minimum(maximum(x, min), max)``; a bound of None is none."""
    _kernel_only("clip")


def sum(x: Any, axis: int, keepdims: bool = False) -> Any:
    """Sum along an axis: of floats accumulated in f32 and rounded once into the tile's dtype, of integers in 32 bits
    (it wraps), of masks the i32 count. Also ``x.sum(axis=...)``.
    """
    _kernel_only("sum")


def mean(x: Any, axis: int, keepdims: bool = False) -> Any:
    """Sum along an axis over the number of elements, in f32 and rounded once. Also ``x.mean(axis=...)``."""
    _kernel_only("mean")


def max(x: Any, axis: int, keepdims: bool = False) -> Any:
    """Largest element along an axis; NaN if any is NaN. Also ``x.max(axis=...)``."""
    _kernel_only("max")


def min(x: Any, axis: int, keepdims: bool = False) -> Any:
    """Smallest element along an axis; NaN if any is NaN. Also ``x.min(axis=...)``."""
    _kernel_only("min")


def argmax(x: Any, axis: int, keepdims: bool = False) -> Any:
    """Position (i32) of the largest element along an axis, the first of equal ones; the first NaN if any is NaN. Also
    ``x.argmax(axis=...)``.
    """
    _kernel_only("argmax")


def argmin(x: Any, axis: int, keepdims: bool = False) -> Any:
    """Position (i32) of the smallest element along an axis, the first of equal ones; the first NaN if any is NaN. Also
    ``x.argmin(axis=...)``.
    """
    _kernel_only("argmin")


def any(x: Any, axis: int, keepdims: bool = False) -> Any:
    """The mask of whether some element along an axis is not 0. Also ``x.any(axis=...)``."""
    _kernel_only("any")


def all(x: Any, axis: int, keepdims: bool = False) -> Any:
    """The mask of whether no element along an axis is 0. Also ``x.all(axis=...)``."""
    _kernel_only("all")


def where(mask: Any, a: Any, b: Any) -> Any:
    """``a`` where the mask is true, else ``b``; masks come from comparisons, ``& | ^ ~`` combine them."""
    _kernel_only("where")


def positions(index: Any) -> Any:
    """The positions that a tg.tiles index covers along its dimension: an i32 tile of one axis."""
    _kernel_only("positions")


def maximum(a: Any, b: Any) -> Any:
    """Elementwise maximum; NaN if either is NaN."""
    _kernel_only("maximum")


def minimum(a: Any, b: Any) -> Any:
    """Elementwise minimum; NaN if either is NaN."""
    _kernel_only("minimum")
