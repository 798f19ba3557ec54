"""The two sides of a tile access, shared and global: address expressions, bounds, and pieces of a few elements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd

import numpy as np

from tidegate.emit import address
from tidegate.emit.affine import Affine
from tidegate.emit.context import Context, factor, plus, times
from tidegate.errors import NotEmittable
from tidegate.ir import tir
from tidegate.ir.layout import Coord, Layout

INT_MAX = 2**31 - 1

SMEM_ALIGN = 1024
"""Alignment of the kernel's shared memory, in bytes: that of the widest swizzle."""


@dataclass(frozen=True)
class Pieces:
    """A tile's elements, grouped as one access moves them. Arrays have one axis per repetition axis and per register
    bit outside the group. ``registers`` has the register number of each element of the group as a last axis;
    ``coords`` gives per tile axis the coordinate of the first element, for thread 0."""

    registers: np.ndarray
    coords: tuple[np.ndarray, ...]

    @property
    def values(self) -> dict[str, np.ndarray]:
        """Register numbers by name: r0, r1, ..."""
        return {f"r{i}": self.registers[..., i] for i in range(self.registers.shape[-1])}


def pieces(layout: Layout, axis: int, group: int, what: str) -> Pieces:
    """Groups of ``group`` elements along tile axis ``axis``."""
    inner = []
    for step in (1 << i for i in range(group.bit_length() - 1)):
        unit = tuple(step if a == axis else 0 for a in range(layout.rank))
        if unit not in layout.reg:
            raise NotEmittable(
                what=f"{what}: a thread does not hold {group} neighbours along axis {axis} of the tile",
                advice="use narrower accesses or another register layout",
            )
        inner.append(layout.reg.index(unit))
    outer = [bit for bit in reversed(range(len(layout.reg))) if bit not in inner]
    shape = (*layout.rep, *(2 for _ in outer))
    numbers = np.arange(int(np.prod(layout.rep))).reshape(layout.rep) << len(layout.reg)
    for bit in outer:
        numbers = numbers[..., None] + (np.arange(2) << bit)
    numbers = numbers.reshape(shape)
    origins = np.array(layout.register_origins()).reshape(layout.registers, layout.rank)
    within = np.zeros(1, dtype=np.int64)
    for bit in inner:
        within = np.concatenate([within, within + (1 << bit)])
    return Pieces(numbers[..., None] + within, tuple(origins[numbers, a] for a in range(layout.rank)))


# ---------------------------------------------------------------------------------------------- shared memory


@dataclass(frozen=True)
class SharedAccess:
    """Addresses in one slot. ``values`` go through :meth:`Context.unrolled`; ``setup`` declares the local ``at``."""

    values: dict[str, np.ndarray]
    setup: list[str]
    general: str

    def address(self, forms: Mapping[str, Affine]) -> str:
        if self.general:
            return f"at + {self.general.format(forms['high'])}"
        low, high = forms["low"], forms["high"]
        if low.is_zero:
            return plus("at", str(high))
        return plus(f"(at ^ {factor(str(low))})", str(high))


def shared_access(
    cx: Context, slot: tir.Slot, bases: tuple[Coord, ...], coords: tuple[np.ndarray, ...], hint: str
) -> SharedAccess:
    """``bases``: tile coordinate per bit of the thread index; ``coords``: tile coordinates for thread 0."""
    buffer = cx.kernel.buffer(tir.Name(slot.buffer))
    strides = buffer.layout.strides
    flip = (lambda c: tuple(reversed(c))) if slot.transposed else tuple
    steps = tuple(int(np.dot(flip(b), strides)) for b in bases)
    constants = sum((c + o) * s for c, o, s in zip(flip(coords), slot.origin, strides, strict=True))
    assert isinstance(constants, np.ndarray)
    flat = tuple(int(c) for c in constants.ravel())
    split = address.split(steps, buffer.swizzle, flat)
    linear = address.thread_expression(steps)
    s = buffer.swizzle
    swizzle = f"swizzle<{s.bits}, {s.base}, {s.shift}>" if s.bits else ""
    start = plus("shared", cx.name("at", f"{slot.buffer}_at"))
    wanted = f"{slot.buffer}_{hint}"
    if split is None:
        part = cx.declare("const u32", wanted, linear)
        setup = [f"const u32 at = {plus(start, _slot(cx, slot))};"]
        return SharedAccess({"high": constants}, setup, f"{swizzle}({part} + {{}})")
    low = np.array(split.low).reshape(constants.shape)
    high = np.array(split.high).reshape(constants.shape)
    part = f"{swizzle}({linear})" if swizzle and linear != "0" else linear
    # (slot + t) ^ low is slot + (t ^ low) where the slot begins at a multiple of what low can change.
    reach = 1 << int(low.max()).bit_length()
    if gcd(buffer.offset, buffer.stride, SMEM_ALIGN) % reach:
        part = cx.declare("const u32", wanted, part)
        setup = [f"const u32 at = {plus(start, _slot(cx, slot))};"]
        return _Unaligned({"low": low, "high": high}, setup, f"(({part} ^ {{}}) + {{}})")
    first = cx.declare("const u32", wanted, plus(start, part))
    return SharedAccess({"low": low, "high": high}, [f"const u32 at = {plus(first, _slot(cx, slot))};"], "")


def _slot(cx: Context, slot: tir.Slot) -> str:
    """C++ of the distance of the cursor's slot from the first."""
    return cx.offset_name(slot.cursor, slot.buffer) if slot.cursor else "0"


@dataclass(frozen=True)
class _Unaligned(SharedAccess):
    def address(self, forms: Mapping[str, Affine]) -> str:
        return f"at + {self.general.format(factor(str(forms['low'])), forms['high'])}"


def slot_axis(slot: tir.Slot, layout: Layout) -> int:
    """The tile axis that runs along the buffer's last axis."""
    return 0 if slot.transposed else layout.rank - 1


# ---------------------------------------------------------------------------------------------- global memory


@dataclass(frozen=True)
class Gathered:
    """The gathered axis of a window: C++ of the array that holds a thread's rows, of their bound and of the stride."""

    axis: int
    rows: str
    bound: str
    stride: str

    def row(self, forms: Mapping[str, Affine]) -> str:
        return f"{self.rows}[{forms['row']}]"


@dataclass(frozen=True)
class GlobalAccess:
    """Addresses in one window. ``setup`` declares the locals ``from`` (the thread's first element) and, per bounded
    axis, ``left_<axis>`` (how far the bound lies beyond it) or, along the axes ``below``, ``at_<axis>`` (its
    position). ``below`` has C++ of the bound per axis that is bounded at 0 as well."""

    values: dict[str, np.ndarray]
    setup: list[str]
    strides: Mapping[int, str]
    bounded: tuple[int, ...]
    whole: bool
    last: int
    below: Mapping[int, str]
    gathered: Gathered | None

    def pointer(self, forms: Mapping[str, Affine], extra: int = 0) -> str:
        terms = [
            times(f"i64({forms[f'c{axis}']})" if not forms[f"c{axis}"].is_zero else "0", stride)
            for axis, stride in self.strides.items()
        ]
        if self.gathered is not None:
            terms.append(
                times(f"i64(row_inside({self.gathered.row(forms)}, {self.gathered.bound}))", self.gathered.stride)
            )
        return plus("from", *terms, str(forms["offset"] + extra))

    def inside(self, forms: Mapping[str, Affine], axes: tuple[int, ...] | None = None, extra: int = 0) -> str:
        """Condition that the element ``extra`` beyond the first is within the bounds of ``axes`` (default: all)."""
        chosen = self.bounded if axes is None else axes
        return " && ".join(self._within(forms, axis, extra) for axis in chosen)

    def _within(self, forms: Mapping[str, Affine], axis: int, extra: int) -> str:
        if self.gathered is not None and self.gathered.axis == axis:
            return f"u32({self.gathered.row(forms)}) < u32({self.gathered.bound})"
        place = forms[f"c{axis}"] + (extra if axis == self.last else 0)
        if axis in self.below:  # as unsigned numbers, those below 0 are large
            return f"u32({plus(f'at_{axis}', str(place))}) < u32({self.below[axis]})"
        return f"{place} < left_{axis}"

    def left(self, forms: Mapping[str, Affine]) -> str:
        """C++ of how many elements lie between the first one and the bound of the last axis, in 64 bits; no piece has
        elements on both sides of 0."""
        place = factor(str(forms[f"c{self.last}"]))
        if self.last not in self.below:
            return f"i64(left_{self.last}) - {place}"
        at = plus(f"at_{self.last}", place)
        return f"{at} < 0 ? 0 : i64({self.below[self.last]}) - {factor(at)}"

    @property
    def rows(self) -> tuple[int, ...]:
        """The bounded axes but the tensor's last."""
        return tuple(a for a in self.bounded if a != self.last)


def global_access(
    cx: Context, window: tir.Window, layout: Layout, coords: tuple[np.ndarray, ...], group: int, hint: str
) -> GlobalAccess:
    param = cx.kernel.param(tir.Name(window.tensor))
    rank = len(param.shape)
    layout = layout.with_axes(window.fixed)
    coords = widened(coords, window.fixed)
    if layout.rank != rank:
        raise NotEmittable(
            what=f"a tile of rank {layout.rank} does not fit the tensor {window.tensor} of rank {rank}",
            advice="give the tile one axis per axis of the tensor",
        )
    values: dict[str, np.ndarray] = {}
    thread = [thread_coordinate(cx, layout, axis, hint) for axis in range(rank)]
    strides = [_stride(cx, param, axis) for axis in range(rank)]
    gathered = None
    if window.rows is not None:
        axis, register = window.rows.axis, window.rows.register
        bound = window.bounds[axis]
        assert bound is not None  # a rule of TIR
        gathered = Gathered(axis, cx.name("register", register), cx.cpp(bound), strides[axis])
        held = {c: number for number, (c,) in enumerate(cx.register_layout(register).register_origins())}
        values["row"] = np.vectorize(held.__getitem__, otypes=[np.int64])(coords[axis])
        thread[axis] = "0"
        coords = tuple(np.zeros_like(c) if a == axis else c for a, c in enumerate(coords))
    const = "" if param.output else "const "
    pointer = cx.declare(
        f"{const}{param.dtype}*" + " const" * param.output,
        f"{window.tensor}_{hint}",
        plus(cx.name("param", window.tensor), _offset(thread, strides)),
    )
    origin = _offset([cx.cpp(o) for o in window.origin], strides)
    setup = [f"{const}{param.dtype}* const from = {plus(pointer, origin if origin == '0' else f'({origin})')};"]
    bounded = tuple(a for a, bound in enumerate(window.bounds) if bound is not None)
    below = {}
    for axis in bounded:
        bound = window.bounds[axis]
        assert bound is not None
        used = plus(cx.cpp(window.origin[axis]), thread[axis])
        if axis in window.below:
            below[axis] = cx.cpp(bound)
            setup.append(f"const int at_{axis} = {used};")
        elif gathered is None or axis != gathered.axis:
            setup.append(f"const int left_{axis} = {factor(cx.cpp(bound))} - {factor(used)};")
    values |= {f"c{a}": coords[a] for a in range(rank)}
    folded = [a for a in range(rank) if strides[a].isdigit() and int(coords[a].max()) * int(strides[a]) < INT_MAX // 2]
    values["offset"] = sum((coords[a] * int(strides[a]) for a in folded), np.zeros_like(coords[0]))
    last = window.bounds[-1]
    whole = last is None or group == 1 or not (cx.divisor(last) % group or cx.divisor(window.origin[-1]) % group)
    others = {a: strides[a] for a in range(rank) if a not in folded}
    return GlobalAccess(values, setup, others, bounded, whole, rank - 1, below, gathered)


def element(cx: Context, window: tir.Window) -> str:
    """C++ pointer to the one element at a window's origin."""
    param = cx.kernel.param(tir.Name(window.tensor))
    strides = [_stride(cx, param, axis) for axis in range(len(param.shape))]
    return plus(cx.name("param", window.tensor), _offset([cx.cpp(o) for o in window.origin], strides))


def widened(coords: tuple[np.ndarray, ...], fixed: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    """Coordinates with zeros for the axes that the tile does not have."""
    out = list(coords)
    for axis in sorted(fixed):
        out.insert(axis, np.zeros_like(coords[0]))
    return tuple(out)


def thread_coordinate(cx: Context, layout: Layout, axis: int, hint: str) -> str:
    expression = address.thread_expression(tuple(b[axis] for b in (*layout.lane, *layout.warp)))
    return expression if expression == "0" else cx.declare("const int", f"{hint}_{axis}", expression)


def _stride(cx: Context, param: tir.Param, axis: int) -> str:
    """Elements between neighbours along ``axis``: a number where the sizes are fixed, else C++ of 64 bits."""
    if param.strided and axis < len(param.shape) - 1:
        return cx.pitch(param, axis)
    known, symbolic = 1, []
    for extent in param.shape[axis + 1 :]:
        value = cx.constant(extent)
        if value is None:
            symbolic.append(factor(cx.cpp(extent)))
        else:
            known *= value
    if not symbolic:
        return str(known)
    factors = [*symbolic, *([str(known)] if known != 1 else [])]
    return factors[0] if len(factors) == 1 else " * ".join([f"i64({factors[0]})", *factors[1:]])


def _offset(coordinates: list[str], strides: list[str]) -> str:
    """C++ of a coordinate's distance in elements from the first, in 64 bits where a stride multiplies."""
    terms = []
    for coordinate, stride in zip(coordinates, strides, strict=True):
        if coordinate == "0":
            continue
        if coordinate.isdigit() and stride.isdigit():
            terms.append(str(int(coordinate) * int(stride)))
        else:
            terms.append(coordinate if stride == "1" else times(f"i64({coordinate})", stride))
    return plus(*terms)
