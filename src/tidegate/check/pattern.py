"""Which lanes of which warps touch which bytes of a slot, and how two such patterns meet.

A pattern is a table [granule, class] of 32-bit lane masks over one slot. A warp has two classes of lanes: 2 w is lane 0
of warp w, which is the one that is elected, and 2 w + 1 the others. All tables are functions of the declared layouts
alone, so they are computed once per shape and shared by all slots, iterations and kernels.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import gcd

import numpy as np

from tidegate.ir.layout import Coord, Layout, SharedLayout, active_threads, byte_offsets, coordinates

FULL_WARP = 0xFFFFFFFF


@dataclass(frozen=True)
class Shape:
    """What one statement touches in a slot: a register layout laid over a shared layout, its threads counted from warp
    ``first`` on. ``whole_warp``: every lane counts as touching all bytes of its warp (ldmatrix). Without a layout all
    bytes are touched by lane 0 of each of ``warps`` warps: an elected thread, or warps that act as a whole."""

    layout: Layout | None
    shared: SharedLayout
    origin: Coord
    transposed: bool
    whole_warp: bool
    first: int = 0
    warps: int = 1


@dataclass(frozen=True, eq=False)
class Pattern:
    """``lanes``: uint32 [granules, classes], bit l of entry (g, c) says that lane l of warp c // 2, one of class c,
    touches granule g; a granule is ``unit`` bytes, granule 0 begins at the slot's first byte."""

    unit: int
    lanes: np.ndarray

    @property
    def bytes(self) -> int:
        return self.unit * len(self.lanes)

    @property
    def touched_bytes(self) -> int:
        return int((self.lanes != 0).any(axis=1).sum()) * self.unit


@dataclass(frozen=True, eq=False)
class Meeting:
    """How two patterns meet at a given distance. ``crossing[a, b]``: some byte is touched by a thread of class a in the
    first and by *another* thread of class b in the second; ``together``: by any, the same thread included.
    ``overlap``: some byte is touched by both. ``covers``: every byte of the second is touched in the first."""

    crossing: np.ndarray
    together: np.ndarray
    overlap: bool
    covers: bool


def _buffer_coordinates(shape: Shape, layout: Layout) -> tuple[np.ndarray, ...]:
    coords = coordinates(layout)
    if shape.transposed:
        coords = tuple(reversed(coords))
    return tuple(c + o for c, o in zip(coords, shape.origin, strict=True))


@lru_cache(maxsize=1024)
def pattern(shape: Shape, warps: int) -> Pattern:
    """The table of one access of a legal kernel with ``warps`` warps: it stays in its slot, element by element."""
    layout = shape.layout
    if layout is None:
        return _whole(shape, warps)
    active = active_threads(layout)
    size = shape.shared.size
    granules = shape.shared.bytes // size
    place = byte_offsets(shape.shared, _buffer_coordinates(shape, layout))[active] // size
    who = np.arange(layout.threads)[active][:, None] + 32 * shape.first
    # A thread touches an element at most once per statement, so the sum of lane bits is their union.
    table = np.bincount(
        (place * warps + who // 32).ravel(),
        weights=np.broadcast_to(2.0 ** (who % 32), place.shape).ravel(),
        minlength=granules * warps,
    )
    lanes = table.astype(np.uint32).reshape(granules, warps)
    if shape.whole_warp:
        lanes = np.where(lanes != 0, np.uint32(FULL_WARP), np.uint32(0))
    return _coarsened(Pattern(size, _classes(lanes)))


def _whole(shape: Shape, warps: int) -> Pattern:
    lanes = np.zeros((1, warps), np.uint32)
    lanes[0, shape.first : shape.first + shape.warps] = 1
    return Pattern(shape.shared.bytes, _classes(lanes))


def _classes(lanes: np.ndarray) -> np.ndarray:
    """Lane masks per warp, divided into lane 0 and the others."""
    return np.stack((lanes & np.uint32(1), lanes & np.uint32(FULL_WARP - 1)), axis=2).reshape(len(lanes), -1)


def _coarsened(p: Pattern) -> Pattern:
    """The same table with the largest granule of 2**n elements that it allows."""
    while len(p.lanes) % 2 == 0 and np.array_equal(p.lanes[::2], p.lanes[1::2]):
        p = Pattern(p.unit * 2, np.ascontiguousarray(p.lanes[::2]))
    return p


def aligned(first: Pattern, second: Pattern, distance: int) -> tuple[int, int, np.ndarray, np.ndarray]:
    """Both tables on the bytes that they share, when slot two begins ``distance`` bytes after slot one: granule size,
    first byte relative to slot one, and the two tables."""
    low, high = max(0, distance), min(first.bytes, distance + second.bytes)
    if low >= high:
        empty = first.lanes[:0]
        return 1, 0, empty, empty
    unit = gcd(first.unit, second.unit, distance, high - low)
    a = np.repeat(first.lanes, first.unit // unit, axis=0)[low // unit : high // unit]
    b = np.repeat(second.lanes, second.unit // unit, axis=0)[(low - distance) // unit : (high - distance) // unit]
    return unit, low, a, b


def other_thread(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Per entry of two lane masks: is there a lane of a and a *different* lane of b?"""
    return (a != 0) & (b != 0) & ~((a == b) & ((a & (a - np.uint32(1))) == 0))


@lru_cache(maxsize=8192)
def meeting(first: Shape, second: Shape, distance: int, warps: int) -> Meeting:
    """How an access of shape ``second``, whose slot begins ``distance`` bytes after that of ``first``, meets it."""
    one, two = pattern(first, warps), pattern(second, warps)
    unit, _, a, b = aligned(one, two, distance)
    touched_a, touched_b = a != 0, b != 0
    together = (touched_a.T.astype(np.float32) @ touched_b.astype(np.float32)) > 0
    crossing = together.copy()
    if len(a):
        np.fill_diagonal(crossing, other_thread(a, b).any(axis=0))
    rows_b = touched_b.any(axis=1)
    both = touched_a.any(axis=1) & rows_b
    # All that the second touches lies in the shared bytes, and there under the first.
    covers = bool(both.sum() == rows_b.sum()) and int(rows_b.sum()) * unit == two.touched_bytes
    return Meeting(crossing, together, bool(both.any()), covers)


@lru_cache(maxsize=8192)
def uncovered(read: Shape, writes: tuple[tuple[Shape, int, bool], ...], warps: int) -> tuple[int, int, int] | None:
    """The first bytes of ``read`` whose last writer is wrong.

    ``writes`` are (shape, distance of its slot from the read's, through the same buffer), latest first. Returns (first
    byte in the slot, byte after the last, index of the writer or -1 for none), or None when every byte was last
    written through the read's own buffer.
    """
    table = pattern(read, warps)
    touched = np.repeat((table.lanes != 0).any(axis=1), table.unit)
    owner = np.full(len(touched), -1)
    for index in reversed(range(len(writes))):
        shape, distance, _ = writes[index]
        other = pattern(shape, warps)
        where = np.flatnonzero(np.repeat((other.lanes != 0).any(axis=1), other.unit)) + distance
        owner[where[(where >= 0) & (where < len(owner))]] = index
    same = np.array([*(s for _, _, s in writes), False])
    wrong = np.flatnonzero(touched & ~same[owner])
    if not len(wrong):
        return None
    low = int(wrong[0])
    run = wrong[: np.searchsorted(wrong - np.arange(len(wrong)), low, side="right")]
    run = run[owner[run] == owner[low]]
    return low, int(run[-1]) + 1, int(owner[low])
