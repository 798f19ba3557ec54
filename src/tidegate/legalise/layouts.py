"""Choice of layouts: blocked tiles, tensor core fragments, and swizzles without bank conflicts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np

from tidegate.ir.layout import (
    Coord,
    Layout,
    SharedLayout,
    Swizzle,
    active_threads,
    bank_conflicts,
    byte_offsets,
    coordinates,
)
from tidegate.ir.products import fragment_lanes, word_steps

LANE_BITS = 5


class _Bits:
    """Hands out power-of-two steps of each axis, smallest first."""

    def __init__(self, shape: Coord) -> None:
        self.left = [(s & -s).bit_length() - 1 for s in shape]
        self.step = [1] * len(shape)

    def take(self, axis: int, count: int) -> list[Coord]:
        """Up to ``count`` basis vectors along ``axis``."""
        out = []
        for _ in range(min(count, self.left[axis])):
            out.append(tuple(self.step[axis] if a == axis else 0 for a in range(len(self.step))))
            self.step[axis] *= 2
            self.left[axis] -= 1
        return out

    def take_any(self, order: list[int], count: int) -> list[Coord]:
        """``count`` basis vectors along the axes in order; zero vectors when none are left."""
        out: list[Coord] = []
        for axis in order:
            out += self.take(axis, count - len(out))
        return out + [(0,) * len(self.step)] * (count - len(out))


def log2(n: int) -> int:
    """Exponent of a power of two."""
    return n.bit_length() - 1


def odd_part(n: int) -> int:
    return n // (n & -n)


@lru_cache(maxsize=256)
def blocked(
    shape: Coord, warps: int, axis: int, run: int, cross_axis: int = 0, cross: int = 1, spare: Coord = ()
) -> Layout:
    """Each thread holds ``run`` neighbours along ``axis`` (and ``cross`` along ``cross_axis``); lanes, then warps,
    continue along ``axis`` first, so that neighbouring threads touch neighbouring bytes. Warps leave the ``spare`` axes
    for last: those are folded, and what one warp holds folds without shared memory. What is left repeats."""
    bits = _Bits(shape)
    order = [axis, *(a for a in reversed(range(len(shape))) if a != axis)]
    reg = bits.take(axis, log2(run)) + (bits.take(cross_axis, log2(cross)) if cross > 1 else [])
    lane = bits.take_any(order, LANE_BITS)
    warp = bits.take_any(sorted(order, key=lambda a: a in spare), log2(warps))
    for a in order:
        reg += bits.take(a, bits.left[a])
    rep = tuple(odd_part(s) for s in shape)
    return Layout(shape, tuple(reg), tuple(lane), tuple(warp), rep)


def shared_out(shape: Coord) -> int:
    """Elements of a tile that threads can share: its largest powers of two. What is odd each thread has to itself."""
    return prod(s & -s for s in shape)


def run_length(shape: Coord, axis: int, warps: int, limit: int, idle: bool = False) -> int:
    """How many neighbours along ``axis`` one thread should hold: at most ``limit``, a power of two that divides the
    extent, and no more than leaves work for every thread. ``idle``: threads may go without where the tile has an odd
    part, for the sake of wider pieces."""
    extent = shape[axis] & -shape[axis]
    share = max((prod(shape) if idle else shared_out(shape)) // (32 * warps), 1)
    return min(1 << log2(max(limit, 1)), extent, 1 << log2(share))


# ------------------------------------------------------------------------------------------ mma.sync


@dataclass(frozen=True)
class MmaTiling:
    """How warps share a [M, N] accumulator: ``m`` x ``n`` warps (powers of two), the rest idle."""

    m: int
    n: int
    idle: int


@lru_cache(maxsize=64)
def mma_tiling(rows: int, columns: int, warps: int, rows_only: bool = False) -> MmaTiling:
    """The split that makes the warps read the least shared memory: minimal (M/m + N/n). ``rows_only``: the one with
    the fewest warps along a row, whatever it reads."""
    best: tuple[tuple[int, float, float], MmaTiling] | None = None
    for m in (1 << i for i in range(log2(warps) + 1)):
        for n in (1 << i for i in range(log2(warps // m) + 1)):
            if rows % (16 * m) or columns % (8 * n):
                continue
            key = (-(m * n), n if rows_only else 0, rows / m + columns / n)
            if best is None or key < best[0]:
                best = (key, MmaTiling(m, n, warps // (m * n)))
    assert best is not None  # 16 | rows and 8 | columns were checked, so m = n = 1 fits
    return best[1]


def _warp_bits(tiling: MmaTiling, along_m: list[Coord], along_n: list[Coord]) -> list[Coord]:
    return along_n + along_m + [(0, 0)] * log2(tiling.idle)


@lru_cache(maxsize=64)
def mma_accumulator(rows: int, columns: int, warps: int, rows_only: bool = False) -> Layout:
    """C and D of every product (PTX ISA, "Matrix Fragments for mma.m16n8k16"), tiled over warps and registers.

    Warps alternate every 16 columns where possible, since one ldmatrix.x4 serves 16 columns of B.
    """
    tiling = mma_tiling(rows, columns, warps, rows_only)
    bits = _Bits((rows, columns))
    reg = bits.take(1, 1)
    lane = bits.take(1, 2) + bits.take(0, 3)
    reg += bits.take(0, 1)
    if columns % (16 * tiling.n) == 0:
        reg += bits.take(1, 1)
    along_n, along_m = bits.take(1, log2(tiling.n)), bits.take(0, log2(tiling.m))
    reg += bits.take(1, bits.left[1]) + bits.take(0, bits.left[0])
    rep = (odd_part(rows), odd_part(columns))
    return Layout((rows, columns), tuple(reg), tuple(lane), tuple(_warp_bits(tiling, along_m, along_n)), rep)


@lru_cache(maxsize=64)
def mma_operand_a(acc: Layout, per_word: int = 2) -> Layout:
    """A for one k step, [M, 8 * per_word], of elements of which ``per_word`` share a register: held by every warp that
    needs it for an accumulator in layout ``acc``."""
    inner = [*word_steps(1, per_word), (8, 0), (0, 4 * per_word)]
    outer: list[Coord] = [(b[0], 0) for b in acc.reg if b[0] >= 16]
    warp = tuple((b[0], 0) for b in acc.warp)
    lane = fragment_lanes(1, per_word)
    return Layout((acc.shape[0], 8 * per_word), (*inner, *outer), lane, warp, (acc.rep[0], 1), replicated=True)


@lru_cache(maxsize=64)
def mma_operand_b(acc: Layout, per_word: int = 2) -> Layout:
    """B for one k step, [8 * per_word, N]."""
    inner = [*word_steps(0, per_word), (4 * per_word, 0)]
    outer: list[Coord] = [(0, b[1]) for b in acc.reg if b[1] >= 8]
    warp = tuple((0, b[1]) for b in acc.warp)
    lane = fragment_lanes(0, per_word)
    return Layout((8 * per_word, acc.shape[1]), (*inner, *outer), lane, warp, (1, acc.rep[1]), replicated=True)


# ------------------------------------------------------------------------------------------ shared memory


@dataclass(frozen=True)
class SharedAccess:
    """How one instruction touches a shared tile: a register layout (in register coordinates), or 8x8 blocks."""

    layout: Layout
    transposed: bool
    width: int
    blocks: bool = False


def contiguous_run(layout: Layout, axis: int) -> int:
    """How many neighbours along ``axis`` every thread holds, aligned: the longest 1, 2, 4, .. in the register bits."""
    steps = {b[axis] for b in layout.reg if b[axis]}
    run = 1
    while run in steps:
        run *= 2
    return run


@lru_cache(maxsize=256)
def _sampled(access: SharedAccess) -> list[tuple[np.ndarray, ...]]:
    """Coordinates at which the lanes of some warps begin some of the instruction's accesses."""
    if access.blocks:
        return [(np.arange(8), np.zeros(8, dtype=np.int64))]
    coords = coordinates(access.layout)
    if access.transposed:
        coords = coords[::-1]
    active = active_threads(access.layout)
    out = []
    for warp in sorted({0, access.layout.threads // 32 - 1}):
        lanes = np.arange(warp * 32, warp * 32 + 32)
        lanes = lanes[active[lanes]]
        for register in sorted({0, access.layout.registers - 1}):
            if len(lanes):
                out.append(tuple(c[lanes, register] for c in coords))
    return out


def conflicts(shared: SharedLayout, accesses: tuple[SharedAccess, ...]) -> int:
    """Extra cycles over sampled warp accesses; 0 means free of bank conflicts."""
    total = 0
    for access in accesses:
        for coords in _sampled(access):
            starts = byte_offsets(shared, coords) // access.width * access.width
            total += bank_conflicts(starts.tolist(), access.width)
    return total


@lru_cache(maxsize=256)
def choose_swizzle(shape: Coord, size: int, accesses: tuple[SharedAccess, ...]) -> Swizzle:
    """The smallest XOR swizzle with the fewest bank conflicts over all accesses of the tile.

    Pieces of the widest access stay whole, so the lowest swizzled bit is that of the width.
    """
    base = log2(max((a.width for a in accesses), default=1))
    bytes_ = prod(shape) * size
    best, fewest = Swizzle(), conflicts(SharedLayout(shape, size), accesses)
    for bits in range(1, 6):
        if fewest == 0 or base + bits > 7:
            break
        for shift in range(bits, 12):
            candidate = Swizzle(bits, base, shift)
            if bytes_ % candidate.period:
                break
            count = conflicts(SharedLayout(shape, size, candidate), accesses)
            if count < fewest:
                best, fewest = candidate, count
    return best
