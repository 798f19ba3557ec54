"""Which cells each thread touches, per instruction, as index arrays.

A *cell* is the unit of the memory model: 1, 2 or 4 bytes, the largest that divides every element and address of the
kernel. Values travel as unsigned cells and are seen as numbers only where something is computed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd
from typing import Any

import numpy as np

from tidegate.errors import NotExecutable
from tidegate.ir import tir
from tidegate.ir.layout import LANES, Coord, Layout, active_threads, byte_offsets, coordinates
from tidegate.simulate.report import statement

Tile = tuple[np.ndarray, ...]
"""Coordinates per axis, [threads, elements]."""

CELL_TYPES: dict[int, np.dtype[Any]] = {1: np.dtype(np.uint8), 2: np.dtype(np.uint16), 4: np.dtype(np.uint32)}


def cell_bytes(kernel: tir.Kernel) -> int:
    """The largest of 1, 2, 4 that divides every element size in memory, buffer address and swizzle unit."""
    unit = 4
    for param in kernel.params:
        unit = gcd(unit, param.dtype.size)
    for b in kernel.buffers:
        unit = gcd(unit, b.dtype.size, b.offset, b.stride, 1 << b.swizzle.base if b.swizzle.bits else 4)
    return unit


@dataclass(frozen=True)
class Threads:
    """Which threads of the CTA hold elements of a layout; None stands for all of them. ``base`` is the thread of the
    CTA that is thread 0 of the layout."""

    active: np.ndarray | None
    base: int = 0

    def of(self, threads: np.ndarray) -> np.ndarray:
        return threads if self.active is None else threads[self.active[threads]]


def first_thread(layout: Layout, warps: range) -> int:
    """The thread of the CTA that is thread 0 of a layout, for the group of ``warps``: the first of a role, unless the
    layout is spread over more threads than the role has."""
    return warps.start * LANES if layout.threads <= len(warps) * LANES else 0


def holders(kernel: tir.Kernel, layout: Layout, base: int) -> Threads:
    active = np.zeros(max(kernel.threads, base + layout.threads), dtype=bool)
    active[base : base + layout.threads] = active_threads(layout)
    return Threads(None if active.all() else active, base)


@dataclass(frozen=True)
class SharedAccess:
    """``first`` [threads, registers]: cell of each element in slot 0. ``span``: half-open cell range in slot 0.
    ``replicated``: several threads hold one element and would write the same value."""

    buffer: tir.Buffer
    threads: Threads
    first: np.ndarray
    per_element: int
    stride: int
    span: tuple[int, int]
    replicated: bool

    def cells(self, threads: np.ndarray, slot: int) -> np.ndarray:
        """[len(threads), cells per thread], in register order."""
        first = self.first[threads - self.threads.base] + slot * self.stride
        if self.per_element == 1:
            return first
        return (first[:, :, None] + np.arange(self.per_element)).reshape(len(threads), -1)


def shared_access(kernel: tir.Kernel, stmt: tir.Instruction, slot: tir.Slot, layout: Layout, base: int) -> SharedAccess:
    """The access of a register tile. Raises NotExecutable when it leaves the buffer or shared memory."""
    replicated = layout.replicated and bool(layout.free_mask)
    return tile_access(kernel, stmt, slot, coordinates(layout), holders(kernel, layout, base), replicated)


def engine_access(kernel: tir.Kernel, stmt: tir.Instruction, slot: tir.Slot, tile: Tile, thread: int) -> SharedAccess:
    """The access of an engine that works for ``thread``."""
    return tile_access(kernel, stmt, slot, tile, Threads(None, thread), False)


def tile_access(
    kernel: tir.Kernel, stmt: tir.Instruction, slot: tir.Slot, tile: Tile, threads: Threads, replicated: bool
) -> SharedAccess:
    """Raises NotExecutable when the access leaves the buffer or shared memory."""
    buffer = kernel.buffer(slot.buffer)
    if len(tile) != len(buffer.shape) or len(tile) != len(slot.origin):
        raise _broken(stmt, f"{len(tile)} axes meet the {len(buffer.shape)} axes of {buffer.name}")
    place = tuple(c + o for c, o in zip(tile[::-1] if slot.transposed else tile, slot.origin, strict=True))
    for axis, (c, extent) in enumerate(zip(place, buffer.shape, strict=True)):
        if c.min() < 0 or c.max() >= extent:
            raise _broken(stmt, f"axis {axis} of {buffer.name} has extent {extent}, the access reaches {c.max()}")
    offsets = byte_offsets(buffer.layout, place) + buffer.offset
    cell = cell_bytes(kernel)
    last = int(offsets.max()) + buffer.dtype.size + (buffer.stages - 1) * buffer.stride
    if last > kernel.smem:
        raise _broken(stmt, f"{buffer.name} reaches byte {last} of {kernel.smem} bytes of shared memory")
    first = np.ascontiguousarray(offsets // cell).astype(np.intp)
    return SharedAccess(
        buffer=buffer,
        threads=threads,
        first=first,
        per_element=buffer.dtype.size // cell,
        stride=buffer.stride // cell,
        span=(int(first.min()), int(first.max()) + buffer.dtype.size // cell),
        replicated=replicated,
    )


@dataclass(frozen=True)
class GlobalAccess:
    """``tile``: coordinates per axis [threads, registers], 0 along a gathered axis ``rows`` (None: no such axis);
    ``flat``: their element offset in memory; ``below``: the axes that are bounded at 0. ``width`` is the bytes of one
    access."""

    param: tir.Param
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    extents: tuple[int, ...]
    threads: Threads
    tile: Tile
    flat: np.ndarray
    width: int
    below: Coord = ()
    rows: int | None = None


@dataclass(frozen=True)
class Place:
    """Elements of one executed access: ``flat`` indices [threads, registers]. ``inside`` (None: all) are those within
    the window's bounds, ``outside`` (None: none) those of them that lie outside the tensor, ``misaligned`` (None:
    none) those whose vector starts at a wrong address."""

    flat: np.ndarray
    inside: np.ndarray | None
    outside: np.ndarray | None
    misaligned: np.ndarray | None


def global_access(
    kernel: tir.Kernel,
    stmt: tir.Instruction,
    window: tir.Window,
    shape: tuple[int, ...],
    tile: Tile,
    extents: Coord,
    threads: Threads,
    width: int,
) -> GlobalAccess:
    """The access of a ``tile`` of ``extents`` in a tensor of ``shape``, in vectors of ``width`` bytes."""
    param = kernel.param(window.tensor)
    if not len(tile) == len(shape) == len(window.origin) == len(window.bounds):
        raise _broken(stmt, f"{len(tile)} axes meet the {len(shape)} axes of {param.name}")
    strides = strides_of(param, shape)
    rows = None if window.rows is None else window.rows.axis
    if rows is not None:
        tile = tuple(np.zeros_like(c) if axis == rows else c for axis, c in enumerate(tile))
    flat = sum((c * s for c, s in zip(tile, strides, strict=True)), np.zeros_like(tile[0]))
    return GlobalAccess(param, shape, strides, extents, threads, tile, flat, width, window.below, rows)


def strides_of(param: tir.Param, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides in elements. With those of a strided tensor no row follows another directly, nor begins at a better
    aligned address than is promised."""
    strides, unit = [1], param.align // param.dtype.size
    for extent in reversed(shape[1:]):
        step = strides[-1] * extent
        strides.append((step // unit + 1 | 1) * unit if param.strided else step)
    return tuple(reversed(strides))


def locate(
    access: GlobalAccess,
    origin: tuple[int, ...],
    bounds: tuple[int | None, ...],
    threads: np.ndarray,
    gathered: np.ndarray | None = None,
) -> Place:
    """Where the elements of ``threads`` lie when the window starts at ``origin``; ``gathered`` [threads, registers]:
    their coordinates along a gathered axis."""
    rows = threads - access.threads.base
    base = sum(o * s for o, s in zip(origin, access.strides, strict=True))
    flat = access.flat[rows] + base
    inside: np.ndarray | None = None
    outside: np.ndarray | None = None
    for axis, (start, bound, extent) in enumerate(zip(origin, bounds, access.shape, strict=True)):
        stop = start + access.extents[axis]
        if axis == access.rows:
            assert gathered is not None
            assert bound is not None
            within = (gathered >= 0) & (gathered < bound)
            inside = within if inside is None else inside & within
            flat = flat + np.where(within, gathered, 0) * access.strides[axis]
            continue
        if start < 0 and axis in access.below:
            within = access.tile[axis][rows] + start >= 0
            inside = within if inside is None else inside & within
        if bound is not None and stop > bound:
            within = access.tile[axis][rows] + start < bound
            inside = within if inside is None else inside & within
        if start < 0 or min(stop, stop if bound is None else bound) > extent:
            at = access.tile[axis][rows] + start
            beyond = (at < 0) | (at >= extent)
            outside = beyond if outside is None else outside | beyond
    if outside is not None and inside is not None:
        outside &= inside
    place = Place(flat, inside, outside if outside is not None and outside.any() else None, None)
    return replace(place, misaligned=_misaligned(access, base, place, rows))


def _misaligned(access: GlobalAccess, base: int, place: Place, index: np.ndarray) -> np.ndarray | None:
    size, width = access.param.dtype.size, access.width
    rows = any(
        s * size % width
        for axis, (s, extent) in enumerate(zip(access.strides[:-1], access.extents[:-1], strict=True))
        if extent > 1 or axis == access.rows
    )
    promised = access.param.align % width == 0 or width <= size
    if width <= size or (promised and not rows and base * size % width == 0):
        return None
    start = place.flat - access.tile[-1][index] % (width // size)
    bad = start * size % width != 0 if promised else np.ones_like(start, dtype=bool)
    if place.inside is not None:
        bad &= place.inside
    return bad if bad.any() else None


def _broken(stmt: tir.Stmt, what: str) -> NotExecutable:
    return NotExecutable(stmt=statement(stmt), what=what)
