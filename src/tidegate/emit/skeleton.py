"""A kernel's CUDA C++: header, signature, CTA index, declarations, body."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeGuard

from tidegate.emit.context import Context, guarded
from tidegate.emit.delays import Delays, delay_lines, guard_lines, poison_lines
from tidegate.emit.elementwise import emit_cast, emit_fill, emit_map, emit_move, emit_positions, emit_reduce, emit_splat
from tidegate.emit.grid import grid_lines
from tidegate.emit.header import header_for
from tidegate.emit.matrix import emit_ldmatrix, emit_mma
from tidegate.emit.memory import (
    emit_atomic_add,
    emit_cp_async,
    emit_ld_global,
    emit_ld_scalar,
    emit_ld_shared,
    emit_st_global,
    emit_st_shared,
)
from tidegate.emit.registers import declaration
from tidegate.emit.syncs import (
    emit_advance,
    emit_bar_sync,
    emit_cp_commit,
    emit_cp_wait,
    emit_sync_block,
    emit_sync_warp,
)
from tidegate.errors import NotEmittable, NotEmitted
from tidegate.ir import tir
from tidegate.ir.expr import negated, symbols
from tidegate.ir.text import print_stmt

EMITTERS: Mapping[type[tir.Instruction], Callable[[Context, Any], list[str]]] = {
    tir.CpAsync: emit_cp_async,
    tir.LdGlobal: emit_ld_global,
    tir.StGlobal: emit_st_global,
    tir.AtomicAdd: emit_atomic_add,
    tir.LdShared: emit_ld_shared,
    tir.StShared: emit_st_shared,
    tir.LdMatrix: emit_ldmatrix,
    tir.Mma: emit_mma,
    tir.LdScalar: emit_ld_scalar,
    tir.Fill: emit_fill,
    tir.Splat: emit_splat,
    tir.Map: emit_map,
    tir.Positions: emit_positions,
    tir.Cast: emit_cast,
    tir.Move: emit_move,
    tir.Slice: emit_move,
    tir.Spread: emit_move,
    tir.Reduce: emit_reduce,
    tir.Advance: emit_advance,
    tir.CpCommit: emit_cp_commit,
    tir.CpWait: emit_cp_wait,
    tir.SyncWarp: emit_sync_warp,
    tir.SyncBlock: emit_sync_block,
    tir.BarSync: emit_bar_sync,
}
"""One emitter per instruction; an instruction that is not here is refused."""

WIDTH = 118
"""Characters per line of the signature."""


def emit(kernel: tir.Kernel, delays: Delays | None = None) -> str:
    """CUDA C++ of a kernel, complete and without includes: ``extern "C" __global__ void <kernel name>_kernel``, which
    takes a pointer per parameter, then an int per size that is not fixed, an i64 per stride that is an argument, and
    the scalar arguments. Launch it with a one-dimensional grid of the product of the grid extents, ``kernel.threads``
    threads and ``kernel.smem`` bytes of dynamic shared memory.

    The text maps the linear CTA index to the grid axes itself (:mod:`tidegate.emit.grid`).

    ``delays`` adds sleeps, poison and guards (:mod:`tidegate.emit.delays`), for tests; without it nothing is added.

    Raises NotEmitted for instructions that are not supported yet, NotEmittable for layouts an instruction cannot have.
    """
    if kernel.roles:
        raise NotEmitted(instruction="roles", text=f"kernel {kernel.name}")
    for name, layout in kernel.layouts:
        if layout.threads != kernel.threads:
            raise NotEmittable(
                what=f"layout {name} is of {layout.threads} threads, kernel {kernel.name} has {kernel.threads}",
                advice="give every layout as many warp bits as the kernel has warps",
            )
    cx = Context(kernel, delays)
    # Names that the kernel's callers and readers know come first, so that they stay what they are.
    entry = cx.name("kernel", f"{kernel.name}_kernel")  # by itself it may be a function of CUDA, such as norm
    params = [_param(cx, p) for p in kernel.params]
    params += [f"int {cx.name('size', d.name)}" for d in kernel.dims if d.value is None]
    params += [f"i64 {cx.pitch(p, axis)}" for p, axis in kernel.pitches]
    params += [f"{s.dtype} {cx.name('size', s.name)}" for s in kernel.arguments]
    body = [*grid_lines(cx), *_top_level(cx, kernel.body)]
    if delays is not None and delays.guard:
        body = [*poison_lines(kernel), *body, *guard_lines(kernel, cx.name("param", delays.guard))]
    body = [*_declarations(cx, body), *body]
    lines = [*_signature(entry, params, kernel.threads), *("  " + line for line in body), "}"]
    text = "\n".join(lines)
    warps = "1 warp" if kernel.warps == 1 else f"{kernel.warps} warps"
    title = f"// {kernel.name} for {kernel.target}: {warps}, {kernel.smem} bytes of shared memory. Written by Tidegate."
    return f"{title}\n\n{header_for(text)}\n\n{text}\n"


def _param(cx: Context, p: tir.Param) -> str:
    return f"{'' if p.output else 'const '}{p.dtype}* {cx.name('param', p.name)}"


def _signature(entry: str, params: list[str], threads: int) -> list[str]:
    # One CTA per multiprocessor must fit; without the 1 the compiler saves registers for more, at the cost of the order
    # in which it can place loads.
    head = f'extern "C" __global__ void __launch_bounds__({threads}, 1)'
    line = f"{entry}({', '.join(params)}) {{"
    if len(line) <= WIDTH:
        return [head, line]
    lines = [f"{entry}("]
    for param in params:
        if lines[-1].startswith(" ") and len(lines[-1]) + len(param) + 2 < WIDTH:
            lines[-1] += f" {param},"
        else:
            lines.append(f"    {param},")
    return [head, *lines[:-1], f"{lines[-1].removesuffix(',')}) {{"]


# ---------------------------------------------------------------------------------------------- body


def _top_level(cx: Context, body: tuple[tir.Stmt, ...]) -> list[str]:
    """The body's statements, each after the per-thread values that it needs and that nothing before it did."""
    out = []
    for lines in _statements(cx, body):
        out += [*cx.take_declarations(), *lines]
    return out


def _statement(cx: Context, stmt: tir.Stmt, on: str = "") -> list[str]:
    place, cx.place = cx.place, cx.place + 1
    lines = _under(cx, stmt, on) if on else _plain(cx, stmt)
    if cx.delays is not None:
        return [*delay_lines(cx.delays, place, stmt, cx.kernel.warps), *lines]
    return lines


def _under(cx: Context, stmt: tir.Stmt, on: str) -> list[str]:
    """A copy or an advance under a condition that has a name."""
    if isinstance(stmt, tir.CpAsync):
        return [f"// {print_stmt(stmt)}", *emit_cp_async(cx, stmt, on)]
    head, *lines = _plain(cx, stmt)
    return [head, *guarded(on, lines)]


def _plain(cx: Context, stmt: tir.Stmt) -> list[str]:
    comment = f"  // line {stmt.line}" if stmt.line else ""
    if isinstance(stmt, tir.For):
        index, start, stop = cx.name("size", stmt.index), cx.cpp(stmt.start), cx.cpp(stmt.stop)
        end = ""
        if {s.scalar for s in tir.walk(stmt.body) if isinstance(s, tir.LdScalar)} & set(symbols(stmt.stop)):
            end, stop = f", {index}_end = {stop}", f"{index}_end"  # what the body sets does not change the trips
        head = f"for (int {index} = {start}{end}; {index} < {stop}; ++{index}) {{{comment}"
        return ["#pragma unroll 1", head, *_nested(cx, stmt.body), "}"]
    if isinstance(stmt, tir.If):
        return [f"if ({cx.cpp(stmt.condition)}) {{{comment}", *_nested(cx, stmt.body), "}"]
    emitter = EMITTERS.get(type(stmt)) if isinstance(stmt, tir.Instruction) else None
    if emitter is None:
        raise NotEmitted(instruction=type(stmt).__name__, text=print_stmt(stmt).splitlines()[0])
    return [f"// {print_stmt(stmt)}", *emitter(cx, stmt)]


def _nested(cx: Context, body: tuple[tir.Stmt, ...]) -> list[str]:
    return ["  " + line for lines in _statements(cx, body) for line in lines]


def _statements(cx: Context, body: tuple[tir.Stmt, ...]) -> Iterator[list[str]]:
    """The lines of each statement; a condition and its opposite behind it are one."""
    products = [i for i, s in enumerate(body) if isinstance(s, tir.Mma)]
    at = 0
    while at < len(body):
        stmt, following = body[at], body[at + 1] if at + 1 < len(body) else None
        if products and products[0] < at < products[-1] and _copies(stmt):
            yield _guarded_copies(cx, stmt)
        elif cx.delays is None and (other := _opposite(stmt, following)):
            yield [*_statement(cx, stmt)[:-1], "} else {", *_nested(cx, other.body), "}"]
            at += 1
        else:
            yield _statement(cx, stmt)
        at += 1


def _opposite(first: tir.Stmt, second: tir.Stmt | None) -> tir.If | None:
    """The second condition if it holds where the first does not, as nothing in between changes what it names."""
    if not isinstance(first, tir.If) or not isinstance(second, tir.If):
        return None
    set_inside = {s.scalar for s in tir.walk(first.body) if isinstance(s, tir.LdScalar)}
    opposite = second.condition == negated(first.condition) and not set_inside & set(symbols(first.condition))
    return second if opposite else None


def _copies(stmt: tir.Stmt) -> TypeGuard[tir.If]:
    return isinstance(stmt, tir.If) and all(isinstance(s, (tir.CpAsync, tir.Advance)) for s in stmt.body)


def _guarded_copies(cx: Context, stmt: tir.If) -> list[str]:
    """Copies between products: the condition goes into each, since a branch would keep the compiler from placing copies
    and products next to one another."""
    place, cx.place = cx.place, cx.place + 1
    on = cx.fresh(f"on_{place}")
    comment = f"  // line {stmt.line}" if stmt.line else ""
    head = [f"const int {on} = {cx.cpp(stmt.condition)};{comment}"]
    if cx.delays is not None:
        head = [*delay_lines(cx.delays, place, stmt, cx.kernel.warps), *head]
    return [*head, *(line for s in stmt.body for line in _statement(cx, s, on))]


# ---------------------------------------------------------------------------------------------- declarations


def _declarations(cx: Context, body: list[str]) -> list[str]:
    """What the body uses: sizes, thread indices, rings, registers."""
    used = set(re.findall(r"\w+", "\n".join(re.sub(r"//.*", "", line) for line in body)))
    k = cx.kernel
    lines = []
    sizes = [(cx.name("size", d.name), d.value) for d in k.dims if d.value is not None]
    fixed = [f"{name} = {value}" for name, value in sizes if name in used]
    if fixed:
        lines.append(f"constexpr int {', '.join(fixed)};")
    if "tid" in used:
        lines.append("const int tid = threadIdx.x;")
    if "warp" in used:
        lines.append("const int warp = threadIdx.x / 32;")
    scalars = [cx.name("size", s.name) for s in k.scalars if not s.argument]
    if scalars:
        lines.append(f"int {', '.join(scalars)};")
    lines += _buffers(cx)
    for r in k.registers:
        name, count = cx.name("register", r.name), cx.layouts[r.layout].registers
        if name in used:
            lines.append(f"{declaration(r.dtype, name, count)}  // {r.dtype} in layout {r.layout}")
    return lines


def _buffers(cx: Context) -> list[str]:
    k = cx.kernel
    if not k.buffers:
        return []
    lines = [
        "extern __shared__ __align__(1024) unsigned char smem[];",
        "const u32 shared = shared_address(smem);",
    ]
    for b in k.buffers:
        constants = [f"{cx.name('at', b.name + '_at')} = {b.offset}"]
        if b.stages > 1:
            constants.append(f"{cx.name('stride', b.name + '_stride')} = {b.stride}")
        shape = " x ".join(map(str, b.shape))
        ring = f"{b.stages} x " if b.stages > 1 else ""
        lines.append(f"constexpr u32 {', '.join(constants)};  // {ring}[{shape}] {b.dtype}{_swizzle(b)}")
    offsets = [f"{cx.offset_name(cursor, buffer)} = 0" for cursor, rings in cx.rings.items() for buffer in rings]
    return [*lines, f"u32 {', '.join(offsets)};  // the cursors' slots, from the first"] if offsets else lines


def _swizzle(b: tir.Buffer) -> str:
    s = b.swizzle
    return f", swizzle {s.bits},{s.base},{s.shift}" if s.bits else ""
