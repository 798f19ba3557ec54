"""What tile instructions compute, over NumPy arrays [threads, registers]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tidegate.errors import NotExecutable
from tidegate.ir import tir
from tidegate.ir.layout import LANES, Layout, active_threads, coordinates
from tidegate.ops.elementwise import ELEMENTWISE
from tidegate.simulate.report import statement

MMA_K = 16
"""k extent of one mma.m16n8k16; sums of longer tiles are rounded to f32 after each such step."""


def apply(op: str, args: Sequence[np.ndarray | float], dtype: np.dtype) -> np.ndarray:
    """Elementwise ``op`` in f32, rounded to nearest even into ``dtype``."""
    wide = [a.astype(np.float32) if isinstance(a, np.ndarray) else np.float32(a) for a in args]
    return np.asarray(ELEMENTWISE[op].numpy(*wide)).astype(dtype)


@dataclass(frozen=True)
class WarpMma:
    """One warp's share of a tile mma. ``a`` [m, k] and ``b`` [k, n] are positions in the warp's flattened operand
    registers; ``row`` and ``column`` [lanes, registers] say where each accumulator register lies in [m, n]."""

    a: np.ndarray
    b: np.ndarray
    row: np.ndarray
    column: np.ndarray

    def __call__(self, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        """The accumulators c [lanes, registers] plus a @ b, one k step after the other."""
        left = a.reshape(-1).astype(np.float32)[self.a]
        right = b.reshape(-1).astype(np.float32)[self.b]
        total = c
        for k in range(0, left.shape[1], MMA_K):
            total = total + (left[:, k : k + MMA_K] @ right[k : k + MMA_K])[self.row, self.column]
        return total


def warp_mmas(kernel: tir.Kernel, stmt: tir.Mma) -> tuple[WarpMma, ...]:
    """Per warp that holds accumulators. Raises NotExecutable when a warp lacks operand elements that it needs."""
    a, b, c, d = (kernel.layout(kernel.register(r).layout) for r in (stmt.a, stmt.b, stmt.c, stmt.d))
    types = [kernel.register(r).dtype for r in (stmt.a, stmt.b, stmt.c, stmt.d)]
    fits = a.rank == b.rank == d.rank == 2 and a.shape[1] == b.shape[0] and d.shape == (a.shape[0], b.shape[1])
    if stmt.shape != "m16n8k16" or not fits or a.shape[1] % MMA_K or c != d:
        raise NotExecutable(stmt=statement(stmt), what=f"tiles {a.shape}, {b.shape} and {d.shape} do not fit the mma")
    if types[0] != types[1] or types[0].size != 2 or types[2].name != "f32" or types[3].name != "f32":
        raise NotExecutable(stmt=statement(stmt), what=f"no mma of {', '.join(map(str, types))}")
    if not a.threads == b.threads == d.threads:
        raise NotExecutable(stmt=statement(stmt), what="the operands are spread over different numbers of warps")
    return tuple(_warp_mma(stmt, w, a, b, d) for w in range(d.threads // LANES))


def _warp_mma(stmt: tir.Mma, warp: int, a: Layout, b: Layout, d: Layout) -> WarpMma:
    lanes = slice(warp * LANES, (warp + 1) * LANES)
    rows, row = np.unique(coordinates(d)[0][lanes], return_inverse=True)
    columns, column = np.unique(coordinates(d)[1][lanes], return_inverse=True)
    k = np.arange(a.shape[1])
    shape = (LANES, d.registers)
    return WarpMma(
        a=_positions(stmt, a, lanes, rows, k),
        b=_positions(stmt, b, lanes, k, columns),
        row=row.reshape(shape),
        column=column.reshape(shape),
    )


def _positions(stmt: tir.Mma, layout: Layout, lanes: slice, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """[rows, columns]: index into the warp's flattened registers of a register that holds each element."""
    table = np.full(layout.shape, -1, dtype=np.intp)
    active = active_threads(layout)[lanes]
    r, c = (x[lanes][active] for x in coordinates(layout))
    table[r, c] = np.arange(LANES * layout.registers).reshape(LANES, -1)[active]
    found = table[np.ix_(rows, columns)]
    if (found < 0).any():
        raise NotExecutable(stmt=statement(stmt), what="a warp does not hold the operand elements of its accumulators")
    return found
