"""Copies, loads and stores of tiles, global and shared."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tidegate.emit import registers
from tidegate.emit.access import (
    GlobalAccess,
    Pieces,
    SharedAccess,
    element,
    global_access,
    pieces,
    shared_access,
    slot_axis,
)
from tidegate.emit.affine import Affine
from tidegate.emit.context import Context, active, factor, guarded, scoped
from tidegate.errors import NotEmittable
from tidegate.ir import tir
from tidegate.ir.dtypes import F32, DType
from tidegate.ir.layout import Layout, byte_offsets, coordinates

Forms = Mapping[str, Affine]


def emit_cp_async(cx: Context, s: tir.CpAsync, on: str = "") -> list[str]:
    """``on``: a condition, if the copy has one; it goes into the instruction, so that the compiler may place copies
    between the statements around them, which it could not across a branch."""
    layout = cx.layouts[s.layout]
    size = cx.kernel.buffer(s.dst.buffer).dtype.size
    group = s.bytes // size
    part = pieces(layout, layout.rank - 1, group, "cp_async")
    _check_contiguous(cx, s.dst, layout, part)
    far = global_access(cx, s.src, layout, part.coords, group, s.layout)
    near = shared_access(cx, s.dst, (*layout.lane, *layout.warp), part.coords, s.layout)
    call = f"cp_async_{s.bytes}"
    plain, zfill = (f"{call}_if({on}, ", f"{call}_zfill_if({on}, ") if on else (f"{call}(", f"{call}_zfill(")

    def copy(forms: Forms) -> list[str]:
        dst, src = near.address(forms), far.pointer(forms)
        if not far.bounded:
            return [f"{plain}{dst}, {src});"]
        if far.whole or far.last not in far.bounded:
            return [f"{zfill}{dst}, {src}, {far.inside(forms)} ? {s.bytes} : 0);"]
        left = f"bytes_inside<{s.bytes}>({factor(far.left(forms))} * {size})"
        rows = far.inside(forms, far.rows)
        return [f"{zfill}{dst}, {src}, {f'{rows} ? {left} : 0' if rows else left});"]

    lines = cx.unrolled({**far.values, **near.values}, copy)
    return active(layout, scoped([*far.setup, *near.setup], lines))


def _check_contiguous(cx: Context, slot: tir.Slot, layout: Layout, part: Pieces) -> None:
    """The elements of a piece, neighbours in global memory, must be neighbours in shared memory too."""
    shared = cx.kernel.buffer(slot.buffer).layout
    axes = [c[:, part.registers] for c in coordinates(layout)]
    axes = axes[::-1] if slot.transposed else axes
    offsets = byte_offsets(shared, tuple(c + o for c, o in zip(axes, slot.origin, strict=True)))
    steps = np.arange(part.registers.shape[-1]) * shared.size
    if not np.array_equal(offsets - offsets[..., :1], np.broadcast_to(steps, offsets.shape)):
        raise NotEmittable(
            what=f"cp_async into {slot.buffer}: a piece is not contiguous in shared memory",
            advice="copy fewer bytes at a time, or swizzle with a larger base",
        )


def emit_ld_shared(cx: Context, s: tir.LdShared) -> list[str]:
    layout, dtype, part, near = _shared_side(cx, s.src, s.dst, s.bytes)

    def load(forms: Forms) -> list[str]:
        return _load(cx, s.dst, dtype, part, forms, f"ld_shared_{_suffix(dtype, s.bytes)}", near.address(forms))

    return active(layout, scoped(near.setup, cx.unrolled({**part.values, **near.values}, load)))


def emit_st_shared(cx: Context, s: tir.StShared) -> list[str]:
    layout, dtype, part, near = _shared_side(cx, s.dst, s.src, s.bytes)

    def store(forms: Forms) -> list[str]:
        return _store(cx, s.src, dtype, part, forms, f"st_shared_{_suffix(dtype, s.bytes)}", near.address(forms))

    return active(layout, scoped(near.setup, cx.unrolled({**part.values, **near.values}, store)))


def _shared_side(cx: Context, slot: tir.Slot, register: str, bytes: int) -> tuple[Layout, DType, Pieces, SharedAccess]:
    layout = cx.register_layout(register)
    dtype = cx.kernel.register(tir.Name(register)).dtype
    part = pieces(layout, slot_axis(slot, layout), bytes // dtype.size, f"access to {slot.buffer}")
    hint = str(cx.kernel.register(tir.Name(register)).layout) + "_t" * slot.transposed
    return layout, dtype, part, shared_access(cx, slot, (*layout.lane, *layout.warp), part.coords, hint)


def emit_ld_scalar(cx: Context, s: tir.LdScalar) -> list[str]:
    name, at = cx.name("size", s.scalar), element(cx, s.src)
    inside = []
    for axis, (origin, bound) in enumerate(zip(s.src.origin, s.src.bounds, strict=True)):
        if bound is not None:  # as unsigned numbers, those below 0 are large
            form = "u32({}) < u32({})" if axis in s.src.below else "{} < {}"
            inside.append(form.format(cx.cpp(origin), cx.cpp(bound)))
    return [f"{name} = {' && '.join(inside)} ? ld_scalar({at}) : 0;" if inside else f"{name} = ld_scalar({at});"]


def emit_ld_global(cx: Context, s: tir.LdGlobal) -> list[str]:
    layout, dtype, part, far = _global_side(cx, s.src, s.dst, s.bytes)
    suffix = _suffix(dtype, s.bytes)

    def load(forms: Forms) -> list[str]:
        lines = _load(cx, s.dst, dtype, part, forms, f"ld_global_{suffix}", far.pointer(forms))
        if not far.bounded:
            return lines
        if far.whole:
            return _either(far.inside(forms), lines, _zero(cx, s.dst, dtype, part, forms))
        call, single, element = f"ld_global_{_suffix(dtype, dtype.size)}", _single(part), []
        for i in range(part.registers.shape[-1]):
            one = {**forms, "r0": forms[f"r{i}"]}
            load_one = _load(cx, s.dst, dtype, single, one, call, far.pointer(forms, i))
            element += _either(far.inside(forms, None, i), load_one, _zero(cx, s.dst, dtype, single, one))
        return _either(far.inside(forms, None, part.registers.shape[-1] - 1), lines, element)

    return active(layout, scoped(far.setup, cx.unrolled({**part.values, **far.values}, load)))


def emit_st_global(cx: Context, s: tir.StGlobal) -> list[str]:
    layout, dtype, part, far = _global_side(cx, s.dst, s.src, s.bytes)

    def store(forms: Forms) -> list[str]:
        lines = _store(cx, s.src, dtype, part, forms, f"st_global_{_suffix(dtype, s.bytes)}", far.pointer(forms))
        if far.whole:
            return guarded(far.inside(forms), lines)
        call, single, element = f"st_global_{_suffix(dtype, dtype.size)}", _single(part), []
        for i in range(part.registers.shape[-1]):
            one = {**forms, "r0": forms[f"r{i}"]}
            store_one = _store(cx, s.src, dtype, single, one, call, far.pointer(forms, i))
            element += guarded(far.inside(forms, None, i), store_one)
        return _either(far.inside(forms, None, part.registers.shape[-1] - 1), lines, element)

    return active(layout, scoped(far.setup, cx.unrolled({**part.values, **far.values}, store)))


def emit_atomic_add(cx: Context, s: tir.AtomicAdd) -> list[str]:
    layout, dtype, part, far = _global_side(cx, s.dst, s.src, cx.kernel.register(s.src).dtype.size)
    name = cx.name("register", s.src)

    def add(forms: Forms) -> list[str]:
        line = f"atomic_add_{dtype}({far.pointer(forms)}, {name}[{forms['r0']}]);"
        return guarded(far.inside(forms), [line])

    return active(layout, scoped(far.setup, cx.unrolled({**part.values, **far.values}, add)))


def _global_side(
    cx: Context, window: tir.Window, register: str, bytes: int
) -> tuple[Layout, DType, Pieces, GlobalAccess]:
    layout = cx.register_layout(register)
    declared = cx.kernel.register(tir.Name(register))
    group = bytes // declared.dtype.size
    part = pieces(layout, layout.rank - 1, group, f"access to {window.tensor}")
    return layout, declared.dtype, part, global_access(cx, window, layout, part.coords, group, declared.layout)


def _either(condition: str, lines: list[str], otherwise: list[str]) -> list[str]:
    return [*guarded(condition, lines)[:-1], "} else {", *("  " + line for line in otherwise), "}"]


# ---------------------------------------------------------------------------------------------- register operands


def _suffix(dtype: DType, bytes: int) -> str:
    """The wrapper's element type and vector width."""
    if bytes < 4:
        return f"b{8 * bytes}"
    count = bytes // 4
    return ("f32" if dtype == F32 else "b32") + (f"x{count}" if count > 1 else "")


def _aligned(dtype: DType, part: Pieces) -> bool:
    """Whether each group lies in consecutive registers that fill whole words."""
    group = np.arange(part.registers.shape[-1])
    consecutive = np.array_equal(part.registers - part.registers[..., :1], np.broadcast_to(group, part.registers.shape))
    return consecutive and not len(group) % dtype.per_word and not (part.registers[..., 0] % dtype.per_word).any()


def _single(part: Pieces) -> Pieces:
    return Pieces(part.registers[..., :1], part.coords)


def _direct(cx: Context, register: str, dtype: DType, part: Pieces, forms: Forms) -> str | None:
    """C++ pointer to the registers of a group where they lie as memory has them."""
    if not _aligned(dtype, part) or dtype.kind == "mask" or dtype.size == 8:
        return None
    pointer = f"{cx.name('register', register)} + {factor(str(forms['r0'].over(dtype.per_word)))}".removesuffix(" + 0")
    return f"as_words({pointer})" if dtype.size == 4 and dtype != F32 else pointer


def _load(cx: Context, register: str, dtype: DType, part: Pieces, forms: Forms, call: str, at: str) -> list[str]:
    direct = _direct(cx, register, dtype, part, forms)
    if direct:
        return [f"{call}({direct}, {at});"]
    name = cx.name("register", register)
    group = part.registers.shape[-1]
    moves = [registers.taken(dtype, name, forms[f"r{i}"], i) for i in range(group)]
    kind = "f32" if dtype == F32 else "u32"
    return [f"{kind} v[{max(group * dtype.size // 4, 1)}];", f"{call}(v, {at});", *moves]


def _store(cx: Context, register: str, dtype: DType, part: Pieces, forms: Forms, call: str, at: str) -> list[str]:
    direct = _direct(cx, register, dtype, part, forms)
    if direct:
        return [f"{call}({at}, {direct});"]
    name = cx.name("register", register)
    words = registers.given(dtype, name, [forms[f"r{i}"] for i in range(part.registers.shape[-1])])
    kind = "f32" if dtype == F32 else "u32"
    return [f"const {kind} v[{len(words)}] = {{{', '.join(words)}}};", f"{call}({at}, v);"]


def _zero(cx: Context, register: str, dtype: DType, part: Pieces, forms: Forms) -> list[str]:
    name = cx.name("register", register)
    group = part.registers.shape[-1]
    if dtype.per_word > 1 and _aligned(dtype, part):
        first = forms["r0"].over(dtype.per_word)
        return [f"{name}[{first + i}] = 0;" for i in range(group // dtype.per_word)]
    return [registers.zeroed(dtype, name, forms[f"r{i}"]) for i in range(group)]
