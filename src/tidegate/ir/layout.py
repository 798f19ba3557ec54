"""Layouts as linear maps over bits (F2), with repetition factors for sizes that are not powers of two.

A *register layout* maps (register, lane, warp) to a tile coordinate: every bit of the three indices has a basis vector,
and a coordinate is the sum of the basis vectors of the set bits plus the origin of its repetition. A *shared layout*
maps a coordinate to a byte offset: row-major, then an XOR swizzle of address bits. Which thread touches which bytes,
the width of a transfer and bank conflicts all follow from composing the two. (Linear layouts: Zhou et al., "Linear
Layouts", 2025; fragment shapes: PTX ISA, "Matrix Fragments for mma.m16n8k16".)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

Coord = tuple[int, ...]

LANES = 32
BANKS = 32
BANK_BYTES = 4


@dataclass(frozen=True)
class Layout:
    """Where the elements of a register tile live.

    ``reg``, ``lane`` and ``warp`` give one basis vector per index bit, lowest bit first; each moves along at most one
    axis, by a power of two. A zero vector in lane or warp is a *free* bit: the threads that differ only there hold the
    same elements if ``replicated``, else only the one with the bit clear holds them. The base tile so described is
    repeated ``rep`` times along each axis; the register index is (repetition, row-major) * 2**len(reg) + (reg bits).
    """

    shape: Coord
    reg: tuple[Coord, ...]
    lane: tuple[Coord, ...]
    warp: tuple[Coord, ...]
    rep: Coord
    replicated: bool = False

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def threads(self) -> int:
        return LANES << len(self.warp)

    @property
    def registers(self) -> int:
        """Elements held per thread."""
        return prod(self.rep) << len(self.reg)

    @property
    def base(self) -> Coord:
        return tuple(s // r for s, r in zip(self.shape, self.rep, strict=True))

    @property
    def free_mask(self) -> int:
        """Bits of the thread index that do not move the coordinate."""
        bits = (*self.lane, *self.warp)
        return sum(1 << i for i, basis in enumerate(bits) if not any(basis))

    @property
    def inactive_mask(self) -> int:
        """Bits of the thread index that must be clear for a thread to hold elements at all."""
        return 0 if self.replicated else self.free_mask

    def transposed(self) -> Layout:
        """The layout of the transposed tile. Every register stays where it is when at most one axis is repeated; else
        the repetitions are numbered anew."""

        def flip(c: Coord) -> Coord:
            return c[::-1]

        return Layout(
            flip(self.shape),
            tuple(map(flip, self.reg)),
            tuple(map(flip, self.lane)),
            tuple(map(flip, self.warp)),
            flip(self.rep),
            self.replicated,
        )

    def with_axes(self, fixed: Coord) -> Layout:
        """The layout with axes of one element at the positions ``fixed`` of the result."""

        def widen(values: Coord, fill: int) -> Coord:
            out = list(values)
            for axis in sorted(fixed):
                out.insert(axis, fill)
            return tuple(out)

        if not fixed:
            return self
        return Layout(
            widen(self.shape, 1),
            tuple(widen(b, 0) for b in self.reg),
            tuple(widen(b, 0) for b in self.lane),
            tuple(widen(b, 0) for b in self.warp),
            widen(self.rep, 1),
            self.replicated,
        )

    def reduced(self, axis: int) -> Layout:
        """The layout of what is left when every warp has folded the elements that it holds along ``axis``: one element
        per warp that shares the axis, held by all its lanes."""

        def without(basis: Coord) -> Coord:
            return tuple(0 if a == axis else step for a, step in enumerate(basis))

        warp, parts = [], 1
        for basis in self.warp:
            if basis[axis]:
                warp.append(tuple(parts if a == axis else 0 for a in range(self.rank)))
                parts *= 2
            else:
                warp.append(basis)
        return Layout(
            tuple(parts if a == axis else s for a, s in enumerate(self.shape)),
            tuple(b for b in self.reg if not b[axis]),
            tuple(map(without, self.lane)),
            tuple(warp),
            tuple(1 if a == axis else r for a, r in enumerate(self.rep)),
            replicated=True,
        )

    def collapsed(self, axis: int) -> Layout:
        """The layout of a tile with one element along ``axis``, held by every thread that holds a tile of this layout
        there: what broadcasting along the axis reads."""
        part = self.reduced(axis)
        warp = tuple(tuple(0 if a == axis else step for a, step in enumerate(b)) for b in part.warp)
        return replace(part, shape=tuple(1 if a == axis else s for a, s in enumerate(part.shape)), warp=warp)

    def repetitions(self) -> Iterator[Coord]:
        """Origins of the repetitions, in register order (row-major)."""
        origins: list[Coord] = [()]
        for size, count in zip(self.base, self.rep, strict=True):
            origins = [(*o, size * i) for o in origins for i in range(count)]
        return iter(origins)

    def register_origins(self) -> list[Coord]:
        """Coordinate of each register of thread 0."""
        out = []
        for origin in self.repetitions():
            for index in range(1 << len(self.reg)):
                out.append(_combine(origin, self.reg, index))
        return out

    def problems(self) -> list[str]:
        """Why this is no valid layout; empty when it is one."""
        return list(_layout_problems(self))


def _combine(origin: Coord, bases: tuple[Coord, ...], index: int) -> Coord:
    total = list(origin)
    for bit, basis in enumerate(bases):
        if index >> bit & 1:
            for axis, step in enumerate(basis):
                total[axis] += step
    return tuple(total)


def _layout_problems(layout: Layout) -> Iterator[str]:
    rank = layout.rank
    if len(layout.lane) != 5:
        yield f"a warp has 5 lane bits, the layout gives {len(layout.lane)}"
    if len(layout.rep) != rank or any(r < 1 for r in layout.rep):
        yield f"rep {layout.rep} does not give a positive factor per axis of {layout.shape}"
        return
    if any(s % r for s, r in zip(layout.shape, layout.rep, strict=True)):
        yield f"rep {layout.rep} does not divide the shape {layout.shape}"
        return
    covered = [1] * rank
    for basis in (*layout.reg, *layout.lane, *layout.warp):
        moved = [axis for axis, step in enumerate(basis) if step]
        if len(basis) != rank or len(moved) > 1:
            yield f"basis {basis} must move along one axis of {layout.shape}"
            return
        if moved:
            step = basis[moved[0]]
            if step & (step - 1):
                yield f"basis {basis} is no power of two"
            covered[moved[0]] *= 2
    if any(not any(b) for b in layout.reg):
        yield "a register bit has a zero basis"
    if tuple(covered) != layout.base:
        yield f"the bases cover {tuple(covered)} of the base tile {layout.base}"
        return
    for axis in range(rank):
        steps = sorted(b[axis] for b in (*layout.reg, *layout.lane, *layout.warp) if b[axis])
        if steps != [1 << i for i in range(len(steps))]:
            yield f"axis {axis} is covered by steps {steps}: some coordinate has two places or none"


@lru_cache(maxsize=512)
def coordinates(layout: Layout) -> tuple[np.ndarray, ...]:
    """Per axis, an int array [threads, registers] of tile coordinates (inactive threads alias the active ones)."""
    import numpy as np

    thread = np.arange(layout.threads)
    origins = np.array(layout.register_origins()).reshape(layout.registers, layout.rank)
    bases = (*layout.lane, *layout.warp)
    out = []
    for axis in range(layout.rank):
        place = np.zeros(layout.threads, dtype=np.int64)
        for bit, basis in enumerate(bases):
            if basis[axis]:
                place += (thread >> bit & 1) * basis[axis]
        out.append(place[:, None] + origins[None, :, axis])
    return tuple(out)


@lru_cache(maxsize=512)
def active_threads(layout: Layout) -> np.ndarray:
    """Bool array [threads]: which threads hold elements."""
    import numpy as np

    return (np.arange(layout.threads) & layout.inactive_mask) == 0


@dataclass(frozen=True)
class Swizzle:
    """XOR of address bits: ``offset ^ (((offset >> (base + shift)) & (2**bits - 1)) << base)``.

    Source bits lie above target bits (shift >= bits), so the map is its own inverse and permutes every aligned block
    of 2**(bits + base + shift) bytes. bits = 0 is the identity.
    """

    bits: int = 0
    base: int = 0
    shift: int = 0

    def __call__(self, offset: int) -> int:
        return offset ^ (((offset >> (self.base + self.shift)) & ((1 << self.bits) - 1)) << self.base)

    @property
    def period(self) -> int:
        """Alignment in bytes that a buffer needs so that slot-relative and absolute swizzling agree."""
        return 1 << (self.bits + self.base + self.shift) if self.bits else 1


@dataclass(frozen=True)
class SharedLayout:
    """A tile in shared memory: row-major elements of ``size`` bytes, then ``swizzle`` on the byte offset.

    The swizzle XORs bits below 2**(base + bits) with higher ones, so a tile stays inside its own bytes when its size
    is a multiple of ``2**(base + bits)``.
    """

    shape: Coord
    size: int
    swizzle: Swizzle = Swizzle()

    @property
    def strides(self) -> Coord:
        """Byte stride per axis, before the swizzle."""
        out, step = [], self.size
        for extent in reversed(self.shape):
            out.append(step)
            step *= extent
        return tuple(reversed(out))

    @property
    def bytes(self) -> int:
        return prod(self.shape) * self.size


def byte_offsets(shared: SharedLayout, coords: tuple[np.ndarray, ...]) -> np.ndarray:
    """Byte offset of each element, for coordinates as :func:`coordinates` gives them."""
    total = sum(c * stride for c, stride in zip(coords, shared.strides, strict=True))
    s = shared.swizzle
    if not s.bits:
        return total  # type: ignore[return-value]
    return total ^ (((total >> (s.base + s.shift)) & ((1 << s.bits) - 1)) << s.base)  # type: ignore[return-value]


def bank_conflicts(addresses: Sequence[int], width: int) -> int:
    """Extra shared-memory cycles of one warp access.

    ``addresses`` are the byte addresses of the participating lanes, each reading or writing ``width`` bytes. The
    hardware serves 128 bytes a cycle: all lanes at 4 bytes or less, a half warp at 8, a quarter warp at 16; lanes of
    one such group conflict when they need different 4-byte words of one bank.
    """
    group = LANES * BANK_BYTES // max(width, BANK_BYTES)
    extra = 0
    for first in range(0, len(addresses), group):
        words = {(a + o) // BANK_BYTES for a in addresses[first : first + group] for o in range(0, width, BANK_BYTES)}
        per_bank = [0] * BANKS
        for word in words:
            per_bank[word % BANKS] += 1
        extra += max(max(per_bank) - 1, 0)
    return extra
