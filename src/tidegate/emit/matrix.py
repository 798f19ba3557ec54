"""ldmatrix and mma.sync: the fragment pattern of :mod:`tidegate.ir.products`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tidegate.emit.access import shared_access
from tidegate.emit.affine import Affine
from tidegate.emit.context import Context, active, factor, scoped
from tidegate.errors import NotEmittable
from tidegate.ir import tir
from tidegate.ir.dtypes import F32, DType
from tidegate.ir.layout import LANES, Coord, Layout, coordinates
from tidegate.ir.products import FLOAT8, PRODUCTS, Product, along, is_fragment, word_steps
from tidegate.target.target import find

Forms = Mapping[str, Affine]

ROW_BYTES = 16
"""Of a row of one of ldmatrix's matrices of 8 rows."""


def emit_ldmatrix(cx: Context, s: tir.LdMatrix) -> list[str]:
    register = cx.kernel.register(s.dst)
    layout = cx.layouts[register.layout]
    per_word = register.dtype.per_word
    # A matrix is read in rows of the buffer's last axis. Its elements land in words along that axis, or, with .trans,
    # in pairs across it.
    contiguous = 0 if s.src.transposed else 1
    axis = _word_axis(layout, s.dst, per_word, contiguous)
    rows = 1 - contiguous
    _check_rows(cx, s, layout, contiguous)
    suffix = "" if axis == contiguous else "_trans"
    if register.dtype == F32:
        suffix += "_f32"
    origins = np.array(layout.register_origins())[::per_word]
    count = _together(origins)
    lead = origins.reshape(-1, count, 2)
    select = [tuple(int(v) for v in lead[0, i] - lead[0, 0]) for i in (1, 2) if i < count]
    lane = [along(rows, 1 << i) for i in range(3)] + select
    bases = (*lane, *[(0, 0)] * (5 - len(lane)), *layout.warp)
    outer = len(layout.reg) - (per_word.bit_length() - 1) - (count.bit_length() - 1)
    shape = (*layout.rep, *(2,) * outer) if outer >= 0 else (len(lead),)
    groups = lead[:, 0, :].reshape(*shape, 2)
    near = shared_access(cx, s.src, bases, (groups[..., 0], groups[..., 1]), f"{register.layout}_rows")
    values = {"word": np.arange(len(lead)).reshape(shape) * count, **near.values}
    name = cx.name("register", s.dst)

    def load(forms: Forms) -> list[str]:
        return [f"ldmatrix_x{count}{suffix}({_at(name, forms['word'])}, {near.address(forms)});"]

    return active(layout, scoped(near.setup, cx.unrolled(values, load)))


def _at(name: str, index: Affine) -> str:
    return name if index.is_zero else f"{name} + {factor(str(index))}"


def _word_axis(layout: Layout, register: str, per_word: int, contiguous: int) -> int:
    """The tile axis along which a word's elements lie; refuses layouts that are not of 8x8 blocks."""
    for axis in (0, 1) if per_word == 2 else (contiguous,):
        steps = word_steps(axis, per_word)
        if is_fragment(layout, axis, per_word) and layout.reg[: len(steps)] == steps:
            return axis
    raise NotEmittable(
        what=f"register {register}: its layout is not made of the 8x8 blocks that ldmatrix loads",
        advice="use the fragment layouts of mma",
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
    size = buffer.dtype.size
    row_bytes = buffer.shape[-1] * size
    swizzle = buffer.swizzle
    steps = [size * b[contiguous] for b in (*layout.reg, *layout.warp) if b[contiguous] >= buffer.dtype.per_word]
    aligned = not any(n % ROW_BYTES for n in (row_bytes, buffer.offset, buffer.stride, s.src.origin[-1] * size, *steps))
    if not aligned or (swizzle.bits and swizzle.base < 4):
        raise NotEmittable(
            what=f"ldmatrix from {s.src.buffer}: its rows of {ROW_BYTES // size} elements are not 16 aligned bytes",
            advice="use rows of a multiple of 16 bytes and a swizzle of base 4",
        )


# ---------------------------------------------------------------------------------------------- mma


def emit_mma(cx: Context, s: tir.Mma) -> list[str]:
    product, dtype, other = PRODUCTS[s.shape], cx.kernel.register(s.a).dtype, cx.kernel.register(s.b).dtype
    a, b, d = (cx.register_layout(r) for r in (s.a, s.b, s.d))
    _check_fragments(cx, s, product, a, b, d)
    _check_target(cx, s, dtype)
    words = product.per_word
    index_a, index_b, index_d = _index(a), _index(b), _index(d)
    firsts = _block_origins(d)
    steps = np.arange(0, a.shape[1], product.k)
    values: dict[str, np.ndarray] = {}

    def gather(
        name: str, table: Mapping[Coord, int], place: list[tuple[np.ndarray, np.ndarray]], per_word: int
    ) -> None:
        for i, (row, column) in enumerate(place):
            row, column = np.broadcast_arrays(row, column)
            found = [table[int(r), int(c)] // per_word for r, c in zip(row.ravel(), column.ravel(), strict=True)]
            values[f"{name}{i}"] = np.array(found).reshape(row.shape)

    i, j = firsts[..., 0][None], firsts[..., 1][None]
    k = steps.reshape(-1, *[1] * (firsts.ndim - 1))
    half = product.k // 2
    gather("d", index_d, [(i + 0 * k, j), (i + 0 * k, j + 1), (i + 8 + 0 * k, j), (i + 8 + 0 * k, j + 1)], 1)
    gather("a", index_a, [(i, k), (i + 8, k), (i, k + half), (i + 8, k + half)], words)
    gather("b", index_b, [(k, j), (k + half, j)], words)
    values = {name: np.broadcast_to(v, values["d0"].shape) for name, v in values.items()}
    d_name, a_name, b_name, c_name = (cx.name("register", r) for r in (s.d, s.a, s.b, s.c))
    call = f"mma_{s.shape}_{'tf32' if dtype == F32 else dtype}{'' if other == dtype else f'_{other}'}"
    kind, sums = "f32" if dtype == F32 else "u32", "int" if dtype.integer else "f32"

    def multiply(forms: Forms) -> list[str]:
        setup: list[str] = []
        operands = [
            _operand(setup, kind, name, [forms[f"{letter}{n}"] for n in range(count)], letter)
            for name, letter, count in ((a_name, "a", 4), (b_name, "b", 2))
        ]
        d_at = [forms[f"d{n}"] for n in range(4)]
        if _run(d_at):
            return [*setup, f"{call}({_at(d_name, d_at[0])}, {', '.join(operands)}, {_at(c_name, d_at[0])});"]
        c_values = ", ".join(f"{c_name}[{at}]" for at in d_at)
        return [
            *setup,
            f"{sums} frag_d[4] = {{{c_values}}};",
            f"{call}(frag_d, {', '.join(operands)}, frag_d);",
            *(f"{d_name}[{at}] = frag_d[{n}];" for n, at in enumerate(d_at)),
        ]

    return active(d, cx.unrolled(values, multiply))


def _check_target(cx: Context, s: tir.Mma, dtype: DType) -> None:
    if dtype in FLOAT8 and not find(cx.kernel.target).fact("float8_mma"):
        raise NotEmittable(
            what=f"mma {s.d} <- {s.a}, {s.b}, {s.c}: {cx.kernel.target} does not multiply {dtype}",
            advice="use sm_89 or later, or cast the operands to f16",
        )


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


def _check_fragments(cx: Context, s: tir.Mma, product: Product, a: Layout, b: Layout, d: Layout) -> None:
    problem, words = "", product.per_word
    if not (is_fragment(a, 1, words) and is_fragment(b, 0, words) and is_fragment(d, 1, 2)):
        problem = f"the threads do not hold the fragments of {s.shape}"
    elif not {(8, 0), (0, product.k // 2)} <= set(a.reg) or a.reg[: len(word_steps(1, words))] != word_steps(1, words):
        problem = "a thread does not hold words of whole a fragments"
    elif (product.k // 2, 0) not in b.reg or b.reg[: len(word_steps(0, words))] != word_steps(0, words):
        problem = "a thread does not hold words of whole b fragments"
    elif (8, 0) not in d.reg:
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
