"""What tile instructions compute, over NumPy arrays [threads, registers]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tidegate.errors import NotExecutable
from tidegate.ir import tir
from tidegate.ir.dtypes import DType
from tidegate.ir.layout import LANES, Layout, active_threads, coordinates
from tidegate.ir.products import PRODUCTS, Product, accumulator_of
from tidegate.ir.registers import folded_registers, neutral
from tidegate.ops.convert import TF32_DROPPED, convert, product, widened
from tidegate.ops.elementwise import ELEMENTWISE
from tidegate.simulate.report import statement

WGMMA_K = 16
"""k extent of one wgmma of 16-bit operands."""


def apply(op: str, args: Sequence[np.ndarray | float], types: Sequence[DType | None], dtype: DType) -> np.ndarray:
    """Elementwise ``op`` on tiles of ``types`` and numbers (None), converted into ``dtype``."""
    return convert(np.asarray(ELEMENTWISE[op].numpy(*widened(args, types, dtype))), dtype)


@dataclass(frozen=True)
class WarpMma:
    """One warp's share of a tile mma. ``a`` [m, k] and ``b`` [k, n] are positions in the warp's flattened operand
    registers; ``row`` and ``column`` [lanes, registers] say where each accumulator register lies in [m, n]."""

    product: Product
    sums: DType
    a: np.ndarray
    b: np.ndarray
    row: np.ndarray
    column: np.ndarray

    def __call__(self, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        """The accumulators c [lanes, registers] plus a @ b, one k step after the other: sums of floats are rounded to
        f32 after each."""
        left, right = (_multiplied(x)[at] for x, at in ((a.reshape(-1), self.a), (b.reshape(-1), self.b)))
        total, depth = c, self.product.k
        for k in range(0, left.shape[1], depth):
            step = product(left[:, k : k + depth], right[k : k + depth], self.sums)
            total = convert(total + step[self.row, self.column], self.sums)
        return total


def _multiplied(values: np.ndarray) -> np.ndarray:
    """Operands as tensor cores read them: of f32, the bits that tf32 has."""
    if values.dtype != np.float32:
        return values
    return (values.view(np.uint32) >> TF32_DROPPED << TF32_DROPPED).view(np.float32)


def warp_mmas(kernel: tir.Kernel, stmt: tir.Mma) -> tuple[WarpMma, ...]:
    """Per warp that holds accumulators. Raises NotExecutable when a warp lacks operand elements that it needs."""
    a, b, c, d = (kernel.layout(kernel.register(r).layout) for r in (stmt.a, stmt.b, stmt.c, stmt.d))
    types = [kernel.register(r).dtype for r in (stmt.a, stmt.b, stmt.c, stmt.d)]
    fits = a.rank == b.rank == d.rank == 2 and a.shape[1] == b.shape[0] and d.shape == (a.shape[0], b.shape[1])
    shape, sums = PRODUCTS[stmt.shape], accumulator_of(types[0])
    if not fits or a.shape[1] % shape.k or c != d:
        raise NotExecutable(stmt=statement(stmt), what=f"tiles {a.shape}, {b.shape} and {d.shape} do not fit the mma")
    if not shape.takes(types[0], types[1]) or types[2:] != [sums, sums]:
        raise NotExecutable(stmt=statement(stmt), what=f"no mma of {', '.join(map(str, types))}")
    if not a.threads == b.threads == d.threads:
        raise NotExecutable(stmt=statement(stmt), what="the operands are spread over different numbers of warps")
    return tuple(_warp_mma(stmt, w, (shape, sums), a, b, d) for w in range(d.threads // LANES))


def _warp_mma(stmt: tir.Mma, warp: int, kind: tuple[Product, DType], a: Layout, b: Layout, d: Layout) -> WarpMma:
    lanes = slice(warp * LANES, (warp + 1) * LANES)
    rows, row = np.unique(coordinates(d)[0][lanes], return_inverse=True)
    columns, column = np.unique(coordinates(d)[1][lanes], return_inverse=True)
    k = np.arange(a.shape[1])
    shape = (LANES, d.registers)
    return WarpMma(
        *kind,
        a=_positions(stmt, a, lanes, rows, k),
        b=_positions(stmt, b, lanes, k, columns),
        row=row.reshape(shape),
        column=column.reshape(shape),
    )


@dataclass(frozen=True)
class WarpWgmma:
    """One warp's share of a wgmma: ``a`` ([m, k]) and ``b`` ([k, n]) are the tile coordinates that it reads; ``row``
    and ``column`` [lanes, registers] say where each accumulator register lies in [m, n]."""

    a: tuple[np.ndarray, np.ndarray]
    b: tuple[np.ndarray, np.ndarray]
    row: np.ndarray
    column: np.ndarray

    def __call__(self, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        """The accumulators c [lanes, registers] plus a @ b, one k step after the other."""
        left = a.astype(np.float32).reshape(self.a[0].shape)
        right = b.astype(np.float32).reshape(self.b[0].shape)
        total = c
        for k in range(0, self.a[0].shape[1], WGMMA_K):
            total = total + (left[:, k : k + WGMMA_K] @ right[k : k + WGMMA_K])[self.row, self.column]
        return total


def warp_wgmmas(kernel: tir.Kernel, stmt: tir.Wgmma) -> tuple[WarpWgmma, ...]:
    """Per warp of the layout of the accumulators. Raises NotExecutable for tiles that do not fit each other."""
    register = kernel.register(stmt.d)
    d = kernel.layout(register.layout)
    a, b = (
        buffer.shape[::-1] if slot.transposed else buffer.shape
        for slot, buffer in ((slot, kernel.buffer(slot.buffer)) for slot in (stmt.a, stmt.b))
    )
    types = {kernel.buffer(slot.buffer).dtype for slot in (stmt.a, stmt.b)}
    if not (len(a) == len(b) == d.rank == 2) or a[1] != b[0] or d.shape != (a[0], b[1]):
        raise NotExecutable(stmt=statement(stmt), what=f"tiles {a}, {b} and {d.shape} do not fit the wgmma")
    if len(types) != 1 or next(iter(types)).size != 2 or register.dtype.name != "f32":
        raise NotExecutable(stmt=statement(stmt), what="wgmma multiplies f16 or bf16 into f32")
    out = []
    for warp in range(d.threads // LANES):
        lanes = slice(warp * LANES, (warp + 1) * LANES)
        rows, row = np.unique(coordinates(d)[0][lanes], return_inverse=True)
        columns, column = np.unique(coordinates(d)[1][lanes], return_inverse=True)
        k, shape = np.arange(a[1]), (LANES, d.registers)
        left, right = np.meshgrid(rows, k, indexing="ij"), np.meshgrid(k, columns, indexing="ij")
        out.append(WarpWgmma((left[0], left[1]), (right[0], right[1]), row.reshape(shape), column.reshape(shape)))
    return tuple(out)


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


FOLDS = {"sum": np.add, "max": np.maximum, "min": np.minimum}


@dataclass(frozen=True)
class WarpReduction:
    """Folds registers, then lanes. ``groups`` [result registers, n]: the registers that each result folds, in rising
    order; ``lane_bits``: the exchanges that follow. ``counts`` [threads, registers]: elements that count, None if all
    do; ``neutral`` stands for the others."""

    fold: np.ufunc
    groups: np.ndarray
    lane_bits: tuple[int, ...]
    counts: np.ndarray | None
    neutral: float | int

    def __call__(self, values: np.ndarray, threads: np.ndarray) -> np.ndarray:
        """The results [lanes, registers] of the ``threads`` of one warp, for its elements [lanes, registers]."""
        if self.counts is not None:
            values = np.where(self.counts[threads], values, values.dtype.type(self.neutral))
        total = values[:, self.groups[:, 0]]
        with np.errstate(over="ignore", invalid="ignore"):
            for column in self.groups.T[1:]:
                total = self.fold(total, values[:, column])
            for bit in self.lane_bits:
                total = self.fold(total, total[np.arange(LANES) ^ (1 << bit)])
        return total


def warp_reduction(kernel: tir.Kernel, stmt: tir.Reduce) -> WarpReduction:
    """The steps of a reduction; raises NotExecutable when the layouts do not fit it."""
    register = kernel.register(stmt.src)
    src, dst = (kernel.layout(kernel.register(r).layout) for r in (stmt.src, stmt.dst))
    idle = src.free_mask and not src.replicated
    if stmt.fold not in FOLDS or not 0 <= stmt.axis < src.rank or idle or dst != src.reduced(stmt.axis):
        raise NotExecutable(stmt=statement(stmt), what="the layouts do not fit the reduction")
    bits = tuple(b for b, basis in enumerate(src.lane) if basis[stmt.axis])
    groups = np.array(folded_registers(src, dst, stmt.axis))
    counts = coordinates(src)[stmt.axis] < stmt.below if stmt.below else None
    return WarpReduction(FOLDS[stmt.fold], groups, bits, counts, neutral(stmt.fold, register.dtype))
