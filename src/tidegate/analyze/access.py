"""The access relation: which threads touch which bytes of shared memory, per step.

Exact, computed from the layouts: for every granule of a tile, the warps that touch it and, when it is only one, the
thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tidegate.ir import legal, tir
from tidegate.ir.layout import Coord, Layout, SharedLayout, active_threads, byte_offsets, coordinates

NOBODY, SEVERAL = -1, -2


@dataclass(frozen=True, eq=False)
class Touch:
    """Per granule of one slot: ``warps`` a bit mask, ``thread`` the only thread, or NOBODY or SEVERAL."""

    warps: np.ndarray
    thread: np.ndarray


@dataclass(frozen=True, eq=False)
class Access:
    """One step's access. ``place`` is a ring, or a tensor that the program writes (then ``touch`` is None: accesses of
    one layout to equal windows alone are known to be thread-private)."""

    step: legal.Step
    place: str
    writes: bool
    completes: tir.Completion
    proxy: tir.Proxy
    touch: Touch | None


def slot_of(instr: tir.Instruction) -> tuple[tir.Slot, bool] | None:
    """The shared slot that an instruction touches, and whether it writes it."""
    for names, writes in ((type(instr).reads, False), (type(instr).writes, True)):
        for name in names:
            operand = getattr(instr, name)
            if isinstance(operand, tir.Slot):
                return operand, writes
    return None


def window_of(instr: tir.Instruction) -> tuple[tir.Window, bool] | None:
    """The window of global memory that an instruction touches, and whether it writes it."""
    for names, writes in ((type(instr).reads, False), (type(instr).writes, True)):
        for name in names:
            operand = getattr(instr, name)
            if isinstance(operand, tir.Window):
                return operand, writes
    return None


def width_of(instr: tir.Instruction) -> int:
    """Bytes per access of an instruction that touches shared memory."""
    return int(getattr(instr, "bytes", 16))


def layout_of(program: legal.LegalProgram, instr: tir.Instruction) -> Layout:
    """The register layout (or thread map) with which an instruction accesses memory."""
    if isinstance(instr, tir.CpAsync):
        return program.layout(instr.layout)
    for name in (*type(instr).reads, *type(instr).writes):
        operand = getattr(instr, name)
        if isinstance(operand, str):
            return program.layout(program.register(operand).layout)
    raise TypeError(f"{type(instr).__name__} has no register tile")


def granule(program: legal.LegalProgram) -> int:
    """Bytes of the finest access to shared memory in the program."""
    widths = [width_of(s.instr) for s in legal.steps(program.body) if slot_of(s.instr)]
    return min(widths, default=16)


def accesses(program: legal.LegalProgram) -> Mapping[str, Access]:
    """The access of every step that touches shared memory or a tensor that is written, by step id."""
    unit = granule(program)
    written = {p.name for p in program.params if p.output}
    found: dict[str, Access] = {}
    for step in legal.steps(program.body):
        kind = type(step.instr)
        shared = slot_of(step.instr)
        if shared:
            slot, writes = shared
            layout = layout_of(program, step.instr)
            collective = kind.by is tir.Participants.WARP
            ring = program.ring(slot.buffer)
            touch = _touch(layout, ring.layout, slot.origin, slot.transposed, unit, collective)
            found[step.id] = Access(step, slot.buffer, writes, kind.completes, kind.proxy, touch)
        elif (window := window_of(step.instr)) and window[0].tensor in written:
            found[step.id] = Access(step, window[0].tensor, window[1], kind.completes, kind.proxy, None)
    return found


@lru_cache(maxsize=256)
def _touch(layout: Layout, shared: SharedLayout, origin: Coord, transposed: bool, unit: int, collective: bool) -> Touch:
    """``collective``: a warp reads together, so every lane counts as reading all that its warp reads."""
    coords = coordinates(layout)
    if transposed:
        coords = coords[::-1]
    coords = tuple(c + o for c, o in zip(coords, origin, strict=True))
    each = max(shared.size // unit, 1)  # an element may be several granules
    cells = (byte_offsets(shared, coords) // unit)[..., None] + np.arange(each)
    threads = np.broadcast_to(np.arange(layout.threads)[:, None, None], cells.shape)
    active = active_threads(layout)
    cells, threads = cells[active].ravel(), threads[active].ravel()
    size = -(-shared.bytes // unit)
    warps = np.zeros(size, dtype=np.int64)
    np.bitwise_or.at(warps, cells, np.int64(1) << (threads // 32))
    low = np.full(size, layout.threads, dtype=np.int64)
    high = np.full(size, NOBODY, dtype=np.int64)
    np.minimum.at(low, cells, threads)
    np.maximum.at(high, cells, threads)
    thread = np.where(low == high, low, np.where(high == NOBODY, NOBODY, SEVERAL))
    if collective:
        thread = np.where(thread == NOBODY, NOBODY, SEVERAL)
    return Touch(warps, thread)
