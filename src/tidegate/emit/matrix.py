"""ldmatrix and mma.sync: the fragment pattern of PTX ISA, "Matrix Fragments for mma.m16n8k16"."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tidegate.emit.access import shared_access
from tidegate.emit.affine import Affine
from tidegate.emit.context import Context, active, factor, scoped
from tidegate.errors import NotEmittable
from tidegate.ir import tir
from tidegate.ir.layout import LANES, Coord, Layout, coordinates

Forms = Mapping[str, Affine]

BLOCK = 8
"""Rows and elements per row of one matrix of ldmatrix."""


def emit_ldmatrix(cx: Context, s: tir.LdMatrix) -> list[str]:
    register = cx.kernel.register(s.dst)
    layout = cx.layouts[register.layout]
    along = _pair_axis(layout, s.dst)
    # A matrix is read in rows of the buffer's last axis. Its elements land in pairs along that axis, or, with .trans,
    # across it.
    contiguous = 0 if s.src.transposed else 1
    rows = 1 - contiguous
    _check_rows(cx, s, layout, contiguous)
    suffix = "" if along == contiguous else "_trans"
    origins = np.array(layout.register_origins())[::2]
    count = _together(origins)
    lead = origins.reshape(-1, count, 2)
    select = [tuple(int(v) for v in lead[0, i] - lead[0, 0]) for i in (1, 2) if i < count]
    lane = [_unit(rows, 1 << i) for i in range(3)] + select
    bases = (*lane, *[(0, 0)] * (5 - len(lane)), *layout.warp)
    outer = len(layout.reg) - 1 - (count.bit_length() - 1)
    shape = (*layout.rep, *(2,) * outer) if outer >= 0 else (len(lead),)
    groups = lead[:, 0, :].reshape(*shape, 2)
    near = shared_access(cx, s.src, bases, (groups[..., 0], groups[..., 1]), f"{register.layout}_rows")
    values = {"word": np.arange(len(lead)).reshape(shape) * count, **near.values}
    name = cx.name("register", s.dst)

    def load(forms: Forms) -> list[str]:
        return [f"ldmatrix_x{count}{suffix}({_at(name, forms['word'])}, {near.address(forms)});"]

    return active(layout, scoped(near.setup, cx.unrolled(values, load)))


def _unit(axis: int, step: int) -> Coord:
    return (step, 0) if axis == 0 else (0, step)


def _at(name: str, index: Affine) -> str:
    return name if index.is_zero else f"{name} + {factor(str(index))}"


def _pair_axis(layout: Layout, register: str) -> int:
    """The tile axis along which a word's two elements lie; refuses layouts that are not of 8x8 blocks."""
    for axis in (0, 1):
        lanes = (_unit(axis, 2), _unit(axis, 4), *(_unit(1 - axis, 1 << i) for i in range(3)))
        if layout.rank == 2 and layout.reg and layout.reg[0] == _unit(axis, 1) and layout.lane == lanes:
            return axis
    raise NotEmittable(
        what=f"register {register}: its layout is not made of the 8x8 blocks that ldmatrix loads",
        advice="use the fragment layouts of mma m16n8k16",
    )


def _together(origins: np.ndarray) -> int:
    """How many matrices one instruction can load: 4, 2 or 1, such that lane bits 3 and 4 choose among them."""
    for count in (4, 2):
        if len(origins) % count:
            continue
        lead = origins.reshape(-1, count, 2)
        apart = lead - lead[:, :1]
        same = (apart == apart[:1]).all()
        if same and (count == 2 or np.array_equal(apart[0, 3], apart[0, 1] + apart[0, 2])):
            return count
    return 1


def _check_rows(cx: Context, s: tir.LdMatrix, layout: Layout, contiguous: int) -> None:
    buffer = cx.kernel.buffer(s.src.buffer)
    row_bytes = buffer.shape[-1] * buffer.dtype.size
    swizzle = buffer.swizzle
    steps = [b[contiguous] for b in (*layout.reg, *layout.warp) if b[contiguous] > 1]
    aligned = not (row_bytes % 16 or buffer.offset % 16 or buffer.stride % 16 or s.src.origin[-1] % BLOCK)
    if buffer.dtype.size != 2 or not aligned or (swizzle.bits and swizzle.base < 4) or any(b % BLOCK for b in steps):
        raise NotEmittable(
            what=f"ldmatrix from {s.src.buffer}: its rows of 8 elements are not 16 aligned bytes",
            advice="use rows of a multiple of 16 bytes and a swizzle of base 4",
        )


# ---------------------------------------------------------------------------------------------- mma

M, N, K = 16, 8, 16
LANE_A = ((0, 2), (0, 4), (1, 0), (2, 0), (4, 0))
LANE_B = ((2, 0), (4, 0), (0, 1), (0, 2), (0, 4))


def emit_mma(cx: Context, s: tir.Mma) -> list[str]:
    if s.shape != "m16n8k16":
        raise NotEmittable(what=f"mma of shape {s.shape}", advice="use m16n8k16")
    a, b, d = (cx.register_layout(r) for r in (s.a, s.b, s.d))
    dtype = cx.kernel.register(s.a).dtype
    _check_fragments(cx, s, a, b, d)
    index_a, index_b, index_d = _index(a), _index(b), _index(d)
    firsts = _block_origins(d)
    steps = np.arange(0, a.shape[1], K)
    values: dict[str, np.ndarray] = {}

    def gather(name: str, table: Mapping[Coord, int], place: list[tuple[np.ndarray, np.ndarray]], halve: int) -> None:
        for i, (row, column) in enumerate(place):
            row, column = np.broadcast_arrays(row, column)
            found = [table[int(r), int(c)] // halve for r, c in zip(row.ravel(), column.ravel(), strict=True)]
            values[f"{name}{i}"] = np.array(found).reshape(row.shape)

    i, j = firsts[..., 0][None], firsts[..., 1][None]
    k = steps.reshape(-1, *[1] * (firsts.ndim - 1))
    gather("d", index_d, [(i + 0 * k, j), (i + 0 * k, j + 1), (i + 8 + 0 * k, j), (i + 8 + 0 * k, j + 1)], 1)
    gather("a", index_a, [(i, k), (i + 8, k), (i, k + 8), (i + 8, k + 8)], 2)
    gather("b", index_b, [(k, j), (k + 8, j)], 2)
    values = {name: np.broadcast_to(v, values["d0"].shape) for name, v in values.items()}
    d_name, a_name, b_name, c_name = (cx.name("register", r) for r in (s.d, s.a, s.b, s.c))

    def multiply(forms: Forms) -> list[str]:
        setup: list[str] = []
        operands = [
            _operand(setup, kind, name, [forms[f"{letter}{n}"] for n in range(count)], letter)
            for kind, name, letter, count in (("u32", a_name, "a", 4), ("u32", b_name, "b", 2))
        ]
        d_at = [forms[f"d{n}"] for n in range(4)]
        if _run(d_at):
            return [
                *setup,
                f"mma_m16n8k16_{dtype}({_at(d_name, d_at[0])}, {', '.join(operands)}, {_at(c_name, d_at[0])});",
            ]
        c_values = ", ".join(f"{c_name}[{at}]" for at in d_at)
        return [
            *setup,
            f"f32 frag_d[4] = {{{c_values}}};",
            f"mma_m16n8k16_{dtype}(frag_d, {', '.join(operands)}, frag_d);",
            *(f"{d_name}[{at}] = frag_d[{n}];" for n, at in enumerate(d_at)),
        ]

    return active(d, cx.unrolled(values, multiply))


def _run(indices: list[Affine]) -> bool:
    """Whether the registers are consecutive."""
    return all(index == indices[0] + n for n, index in enumerate(indices))


def _operand(setup: list[str], kind: str, name: str, indices: list[Affine], letter: str) -> str:
    if _run(indices):
        return _at(name, indices[0])
    setup.append(f"const {kind} frag_{letter}[] = {{{', '.join(f'{name}[{i}]' for i in indices)}}};")
    return f"frag_{letter}"


def _index(layout: Layout) -> dict[Coord, int]:
    """Register number by coordinate, thread 0."""
    return {origin: register for register, origin in enumerate(layout.register_origins())}


def _block_origins(d: Layout) -> np.ndarray:
    """Origins of the 16x8 blocks of the result that thread 0 takes part in, in register order."""
    outer = [b for b in reversed(d.reg) if b not in ((0, 1), (8, 0))]
    origins = np.array(list(d.repetitions())).reshape(*d.rep, 2)
    for basis in outer:
        origins = np.stack([origins, origins + np.array(basis)], axis=-2)
    return origins


def _check_fragments(cx: Context, s: tir.Mma, a: Layout, b: Layout, d: Layout) -> None:
    problem = ""
    if a.lane != LANE_A or d.lane != LANE_A or b.lane != LANE_B:
        problem = "the lanes do not hold the fragments of m16n8k16"
    elif not {(0, 1), (8, 0), (0, 8)} <= set(a.reg) or a.reg[0] != (0, 1):
        problem = "a thread does not hold pairs of whole a fragments"
    elif not {(1, 0), (8, 0)} <= set(b.reg) or b.reg[0] != (1, 0):
        problem = "a thread does not hold pairs of whole b fragments"
    elif not {(0, 1), (8, 0)} <= set(d.reg):
        problem = "a thread does not hold whole fragments of the result"
    elif cx.register_layout(s.c) != d:
        problem = "c and d have different layouts"
    elif (a.shape[0], b.shape[1], a.shape[1]) != (*d.shape, b.shape[0]):
        problem = f"shapes {a.shape} x {b.shape} do not give {d.shape}"
    else:
        warp = slice(None, None, LANES)
        (a_m, a_k), (b_k, b_n), (d_m, d_n) = (tuple(c[warp, 0] for c in coordinates(x)) for x in (a, b, d))
        if not (np.array_equal(a_m, d_m) and np.array_equal(b_n, d_n)) or a_k.any() or b_k.any():
            problem = "a warp does not hold the rows of a and the columns of b that its part of the result needs"
        elif not (
            a.free_mask == a.free_mask and (a.replicated or not a.free_mask) and (b.replicated or not b.free_mask)
        ):
            problem = "warps that share rows of a or columns of b do not all hold them"
    if problem:
        raise NotEmittable(what=f"mma {s.d} <- {s.a}, {s.b}, {s.c}: {problem}", advice="use the fragment layouts")
