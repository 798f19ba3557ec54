"""Instructions that only rename registers: which register of the source each register of the result is.

Move, Slice and Spread take no data from another thread, nor does a gathered window take a row from one. Whether that is
so follows from the two layouts: the element that a register of ``dst`` stands for must lie in some register of ``src``
of the same thread, the same for all threads.
"""

from __future__ import annotations

import math
from functools import lru_cache

from tidegate.ir import tir
from tidegate.ir.dtypes import DType
from tidegate.ir.layout import Coord, Layout, active_threads, coordinates


def source_registers(kernel: tir.Kernel, stmt: tir.Move | tir.Slice | tir.Spread) -> tuple[int, ...]:
    """Per register of the result, the register of the source; raises ValueError with the reason if there is none."""
    dst, src = (kernel.layout(kernel.register(r).layout) for r in (stmt.dst, stmt.src))
    return renamed(dst, src, *_form(dst, src, stmt))


def _form(dst: Layout, src: Layout, stmt: tir.Move | tir.Slice | tir.Spread) -> tuple[tuple[int | None, ...], Coord]:
    """Per axis of ``src``, the axis of ``dst`` that it follows (None: it stays at the origin), and the origin."""
    if isinstance(stmt, tir.Slice):
        if len(stmt.origin) != src.rank or dst.rank != src.rank:
            raise ValueError("origin, source and result have one number of axes")
        return tuple(range(src.rank)), stmt.origin
    if isinstance(stmt, tir.Move):
        axes = tuple(range(src.rank))
        if (dst.shape[::-1] if stmt.transposed else dst.shape) != src.shape:
            raise ValueError("the shapes differ")
        return axes[::-1] if stmt.transposed else axes, (0,) * src.rank
    if len(stmt.axes) != src.rank or any(not 0 <= a < dst.rank for a in stmt.axes):
        raise ValueError(f"axes {stmt.axes} do not name an axis of the result per axis of the source")
    return tuple(None if size == 1 else a for size, a in zip(src.shape, stmt.axes, strict=True)), (0,) * src.rank


def row_registers(kernel: tir.Kernel, window: tir.Window, layout: Layout) -> tuple[int, ...]:
    """Per register of a tile in ``layout`` under a gathered window, the register that holds its row; raises ValueError
    with the reason if another thread holds it."""
    assert window.rows is not None
    index = kernel.layout(kernel.register(window.rows.register).layout)
    if index.rank != 1 or index.shape[0] != layout.shape[window.tile_axis]:
        raise ValueError(f"one row per element of axis {window.tile_axis} is needed, not {list(index.shape)}")
    return renamed(layout, index, (window.tile_axis,), (0,))


@lru_cache(maxsize=512)
def renamed(dst: Layout, src: Layout, axes: tuple[int | None, ...], origin: Coord) -> tuple[int, ...]:
    """The table for coordinate axis a of ``src`` = origin[a] + coordinate axes[a] of ``dst``; raises ValueError."""
    import numpy as np

    if dst.threads != src.threads:
        raise ValueError("the layouts are of different numbers of threads")
    have, want = coordinates(src), coordinates(dst)
    zero = np.zeros((dst.threads, dst.registers), dtype=np.int64)
    needed = [o + (zero if a is None else want[a]) for o, a in zip(origin, axes, strict=True)]
    holders = active_threads(dst)
    if not active_threads(src)[holders].all():
        raise ValueError("some threads hold elements of the result and none of the source")
    first = int(holders.argmax())
    where = {tuple(int(h[first, r]) for h in have): r for r in range(src.registers)}
    table = []
    for register in range(dst.registers):
        found = where.get(tuple(int(n[first, register]) for n in needed))
        if found is None or any(
            (n[holders, register] != h[holders, found]).any() for n, h in zip(needed, have, strict=True)
        ):
            raise ValueError("a thread would need elements that another thread holds")
        table.append(found)
    return tuple(table)


def neutral(fold: str, dtype: DType) -> float | int:
    """The number that changes no fold of numbers of f32, i32 or i64 by sum, max or min."""
    if dtype.floating:
        return {"sum": -0.0, "max": -math.inf, "min": math.inf}[fold]
    most = 2 ** (8 * dtype.size - 1)
    return {"sum": 0, "max": -most, "min": most - 1}[fold]


def folded_registers(src: Layout, dst: Layout, axis: int) -> list[list[int]]:
    """Per register of a reduction along ``axis``, the registers of the source that it folds, in rising order."""
    groups: dict[Coord, list[int]] = {}
    for register, origin in enumerate(src.register_origins()):
        groups.setdefault(tuple(0 if a == axis else c for a, c in enumerate(origin)), []).append(register)
    return [groups[origin] for origin in dst.register_origins()]
