"""What each instruction asks of its operands: part of :mod:`tidegate.ir.spec`, one function per form of instruction.

A rule yields messages. It may rely on resolved names and on declarations that are possible by themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import gcd
from typing import Any

from tidegate.ir import tir
from tidegate.ir.dtypes import BF16, BOOL, ELEMENTS, F16, F32, I32, I64, DType
from tidegate.ir.elementwise import OPERATIONS, number_problem, operand_dtype
from tidegate.ir.expr import Bin, Expr, Int, Sym
from tidegate.ir.layout import Coord, Layout
from tidegate.ir.products import FLOAT8, PRODUCTS, M, N, accumulator_of, is_fragment
from tidegate.ir.registers import row_registers, source_registers

FOLDS = ("sum", "max", "min")

WIDTHS = (1, 2, 4, 8, 16)
"""Bytes of an access."""

NAMED_BARRIERS = 15
"""Barrier 0 is that of __syncthreads."""


@dataclass(frozen=True)
class Tables:
    """The declarations of a kernel by name."""

    kernel: tir.Kernel
    dims: Mapping[str, tir.Dim]
    params: Mapping[str, tir.Param]
    layouts: Mapping[str, Layout]
    buffers: Mapping[str, tir.Buffer]
    barriers: Mapping[str, tir.Mbarrier]
    cursors: Mapping[str, tir.Cursor]
    registers: Mapping[str, tir.Register]
    roles: Mapping[str, tir.Role]
    scalars: Mapping[str, tir.Scalar]

    @staticmethod
    def of(kernel: tir.Kernel) -> Tables:
        def by_name(items: tuple[Any, ...]) -> dict[str, Any]:
            return {item.name: item for item in items}

        return Tables(
            kernel,
            by_name(kernel.dims),
            by_name(kernel.params),
            dict(kernel.layouts),
            by_name(kernel.buffers),
            by_name(kernel.barriers),
            by_name(kernel.cursors),
            by_name(kernel.registers),
            by_name(kernel.roles),
            by_name(kernel.scalars),
        )

    def register(self, name: str) -> tuple[DType, Layout]:
        register = self.registers[name]
        return register.dtype, self.layouts[register.layout]


def statement_problems(t: Tables, stmt: tir.Stmt) -> Iterator[str]:
    """All that is wrong with the operands of one statement; its body is not looked at."""
    yield from _directions(t, stmt)
    if hasattr(stmt, "barrier") and hasattr(stmt, "cursor"):
        barrier, cursor = t.barriers[stmt.barrier], t.cursors[stmt.cursor]
        if cursor.depth != barrier.stages:
            yield f"cursor {cursor.name!r} has depth {cursor.depth}, {barrier.name!r} has {barrier.stages} stages"
    rule = RULES.get(type(stmt))
    if rule:
        yield from rule(t, stmt)


def _directions(t: Tables, stmt: tir.Stmt) -> Iterator[str]:
    for name in getattr(stmt, "reads", ()):
        value = getattr(stmt, name)
        if isinstance(value, tir.Window) and not t.params[value.tensor].input:
            yield f"{value.tensor!r} is an output and is read"
    for name in getattr(stmt, "writes", ()):
        value = getattr(stmt, name)
        if isinstance(value, tir.Window) and not t.params[value.tensor].output:
            yield f"{value.tensor!r} is an input and is written"


# ---------------------------------------------------------------------------------------------- operands


def slot_problems(t: Tables, slot: tir.Slot, tile: Coord, dtype: DType) -> Iterator[str]:
    """The tile lies in the buffer, its type is the buffer's, and a ring has a cursor of its depth."""
    buffer = t.buffers[slot.buffer]
    if buffer.dtype != dtype:
        yield f"{buffer.name!r} holds {buffer.dtype}, the other side {dtype}"
    if slot.cursor is None and buffer.stages != 1:
        yield f"{buffer.name!r} is a ring of {buffer.stages} stages and needs a cursor"
    elif slot.cursor is not None and buffer.stages == 1:
        yield f"{buffer.name!r} has one stage and takes no cursor"
    elif slot.cursor is not None and t.cursors[slot.cursor].depth != buffer.stages:
        depth = t.cursors[slot.cursor].depth
        yield f"cursor {slot.cursor!r} has depth {depth}, {buffer.name!r} has {buffer.stages} stages"
    extent = tile[::-1] if slot.transposed else tile
    if not len(slot.origin) == len(extent) == len(buffer.shape):
        place = f"tile {show(tile)} from {show(slot.origin)} on"
        yield f"a {place} does not have the rank of {buffer.name!r} {show(buffer.shape)}"
    elif any(o < 0 or o + e > s for o, e, s in zip(slot.origin, extent, buffer.shape, strict=True)):
        flipped = ", transposed," if slot.transposed else ""
        yield f"a tile {show(tile)}{flipped} from {show(slot.origin)} on leaves {buffer.name!r} {show(buffer.shape)}"


def window_problems(t: Tables, window: tir.Window, tile: Coord, dtype: DType, along_last: bool = True) -> Iterator[str]:
    """The tile has the tensor's rank and type, and constant origins are not out of range. ``along_last``: the access
    runs along the last axis."""
    param = t.params[window.tensor]
    if param.dtype != dtype:
        yield f"{param.name!r} holds {param.dtype}, the other side {dtype}"
    rank = len(param.shape)
    if not len(window.origin) == len(window.bounds) == len(tile) + len(window.fixed) == rank:
        yield f"a tile {show(tile)} at {len(window.origin)} coordinates does not have the rank {rank} of {param.name!r}"
        return
    if along_last and rank - 1 in window.fixed:
        yield f"the last axis of {param.name!r} is fixed, but accesses run along it"
        return
    for axis in window.fixed:
        tile = (*tile[:axis], 1, *tile[axis:])
    for axis, (origin, bound, extent) in enumerate(zip(window.origin, window.bounds, param.shape, strict=True)):
        size = constant(t, extent)
        start, stop = constant(t, origin), constant(t, bound)
        if axis in window.below and bound is None:
            yield f"axis {axis} of {param.name!r} is bounded below and not above"
        if start is not None and start < 0 and axis not in window.below:
            yield f"axis {axis} of {param.name!r} starts at {start}"
        elif size is None:
            continue
        elif stop is not None and stop > size:
            yield f"the bound {stop} of axis {axis} is beyond the {size} elements of {param.name!r}"
        elif bound is None and start is not None and start + tile[axis] > size:
            last = start + tile[axis] - 1
            yield f"element {last} of axis {axis} of {param.name!r} is touched without a bound, it has {size} elements"


def row_problems(t: Tables, window: tir.Window, layout: Layout) -> Iterator[str]:
    """The rows of a gathered window are i32, and every thread holds those of its elements."""
    if window.rows is None:
        return
    dtype, axis = t.register(window.rows.register)[0], window.rows.axis
    if axis in (*window.fixed, len(window.origin) - 1):
        yield f"axis {axis} of {window.tensor!r} is fixed or the last one, and is not gathered"
    elif window.bounds[axis] is None:
        yield f"the gathered axis {axis} of {window.tensor!r} has no bound"
    elif dtype != I32:
        yield f"rows are i32, {window.rows.register!r} holds {dtype}"
    else:
        try:
            row_registers(t.kernel, window, layout)
        except ValueError as error:
            yield f"{window.rows.register!r} does not give the rows of {window.tensor!r}: {error}"


def constant(t: Tables, e: Expr | None) -> int | None:
    """The value of an integer or of a fixed size."""
    if isinstance(e, Int):
        return e.value
    return t.dims[e.name].value if isinstance(e, Sym) and e.name in t.dims else None


def known_factor(t: Tables, e: Expr) -> int:
    """A number that divides e whatever the indices and launch arguments are; 0 when e is 0."""
    match e:
        case Int(value):
            return abs(value)
        case Sym(name):
            dim = t.dims.get(name)
            return 1 if dim is None else dim.value or dim.multiple
        case Bin("*", a, b):
            return known_factor(t, a) * known_factor(t, b)
        case Bin("+" | "-" | "min" | "max", a, b):
            return gcd(known_factor(t, a), known_factor(t, b))
        case Bin("%", a, b):
            return gcd(known_factor(t, a), known_factor(t, b))
    return 1


def width_problems(t: Tables, layout: Layout, memory: tir.Slot | tir.Window, width: int, least: int) -> Iterator[str]:
    """Accesses of ``width`` bytes: a possible size, contiguous in the memory, and aligned there."""
    slot = isinstance(memory, tir.Slot)
    dtype = t.buffers[memory.buffer].dtype if isinstance(memory, tir.Slot) else t.params[memory.tensor].dtype
    least = max(least, dtype.size)
    if width not in WIDTHS or width < least:
        possible = ", ".join(str(w) for w in WIDTHS if w >= least)
        yield f"an access of {width} bytes is not possible here; {possible} are"
        return
    axis = 0 if isinstance(memory, tir.Slot) and memory.transposed else layout.rank - 1
    steps = {basis[axis] for basis in layout.reg}
    step = 1
    while step * dtype.size < width:
        if step not in steps:
            yield (
                f"{width} bytes are {width // dtype.size} neighbours along axis {axis} of the tile,"
                f" and the layout gives a thread no register step of {step} along it"
            )
            return
        step *= 2
    yield from slot_alignment(t, memory, width) if slot else _window_alignment(t, memory, width)


def slot_alignment(t: Tables, slot: Any, width: int) -> Iterator[str]:
    """Pieces of ``width`` bytes along the buffer's last axis are aligned and stay together under the swizzle."""
    buffer = t.buffers[slot.buffer]
    pitch = buffer.shape[-1] * buffer.dtype.size
    for what, value in (
        ("offset", buffer.offset),
        ("stride", buffer.stride if buffer.stages > 1 else 0),
        ("row pitch", pitch if len(buffer.shape) > 1 else 0),
        ("origin along the last axis", slot.origin[-1] * buffer.dtype.size if slot.origin else 0),
    ):
        if value % width:
            yield f"the {what} of {buffer.name!r} is {value} bytes, no multiple of the access of {width}"
    if buffer.swizzle.bits and 1 << buffer.swizzle.base < width:
        yield f"the swizzle of {buffer.name!r} moves pieces of {1 << buffer.swizzle.base} bytes, the access has {width}"


def _window_alignment(t: Tables, window: Any, width: int) -> Iterator[str]:
    param = t.params[window.tensor]
    if param.align % width:
        yield f"{param.name!r} is aligned to {param.align} bytes, the access needs {width}"
    if window.origin and (factor := known_factor(t, window.origin[-1]) * param.dtype.size) % width:
        yield f"the origin {window.origin[-1]} is known to be a multiple of {factor} bytes, the access needs {width}"


def show(shape: Coord) -> str:
    return f"[{', '.join(map(str, shape))}]"


# ---------------------------------------------------------------------------------------------- copies


def _cp_async(t: Tables, s: tir.CpAsync) -> Iterator[str]:
    layout, dtype = t.layouts[s.layout], t.buffers[s.dst.buffer].dtype
    problems = [*slot_problems(t, s.dst, layout.shape, dtype), *window_problems(t, s.src, layout.shape, dtype)]
    problems = problems or list(row_problems(t, s.src, layout))
    yield from problems or dict.fromkeys(
        (*width_problems(t, layout, s.dst, s.bytes, 4), *width_problems(t, layout, s.src, s.bytes, 4))
    )


def _to_register(t: Tables, s: tir.LdGlobal | tir.LdShared) -> Iterator[str]:
    yield from _register_and_memory(t, s.dst, s.src, s.bytes)


def _ld_scalar(t: Tables, s: tir.LdScalar) -> Iterator[str]:
    scalar, window = t.scalars[s.scalar], s.src
    if scalar.argument or scalar.dtype != I32:
        yield f"{s.scalar!r} is no i32 that instructions set"
    if t.params[window.tensor].output:
        yield f"integers are read from what nothing writes, {window.tensor!r} is an output"
    if window.fixed != tuple(range(len(window.origin))):
        yield "an integer is one element: every axis of the window is fixed"
    else:
        held = t.params[window.tensor].dtype
        yield from window_problems(t, window, (), held if held in ELEMENTS else scalar.dtype, along_last=False)


def _from_register(t: Tables, s: tir.StGlobal | tir.StShared) -> Iterator[str]:
    yield from _register_and_memory(t, s.src, s.dst, s.bytes)


def _register_and_memory(t: Tables, register: str, memory: tir.Slot | tir.Window, width: int) -> Iterator[str]:
    dtype, layout = t.register(register)
    if isinstance(memory, tir.Slot):
        problems = list(slot_problems(t, memory, layout.shape, dtype))
    else:
        problems = [*window_problems(t, memory, layout.shape, dtype)] or [*row_problems(t, memory, layout)]
    yield from problems or width_problems(t, layout, memory, width, 1)


def _atomic_add(t: Tables, s: tir.AtomicAdd) -> Iterator[str]:
    dtype, layout = t.register(s.src)
    yield from [*window_problems(t, s.dst, layout.shape, dtype)] or row_problems(t, s.dst, layout)
    if dtype not in (F32, I32):
        yield f"an atomic addition is one of f32 or i32, {s.src!r} holds {dtype}"
    if not t.params[s.dst.tensor].input:
        yield f"{s.dst.tensor!r} is an output, and what is added to is read"
    if layout.replicated and layout.free_mask:
        yield f"several threads hold the same elements of {s.src!r}, and each would add them"


def _tensor_copy(t: Tables, s: tir.TmaLoad | tir.TmaStore) -> Iterator[str]:
    slot, window = (s.dst, s.src) if isinstance(s, tir.TmaLoad) else (s.src, s.dst)
    yield from _whole(t, slot)
    buffer = t.buffers[slot.buffer]
    yield from slot_problems(t, slot, buffer.shape, buffer.dtype)
    yield from window_problems(t, window, buffer.shape, buffer.dtype)
    if window.rows is not None:
        yield "a tensor copy gathers no rows"
    if t.params[window.tensor].align < 16:
        yield f"a tensor copy needs {window.tensor!r} aligned to 16 bytes"
    size = buffer.dtype.size
    if buffer.shape[-1] * size % 16:
        yield f"the rows of {buffer.name!r} are {buffer.shape[-1] * size} bytes, a tensor copy moves multiples of 16"
    if window.origin and known_factor(t, window.origin[-1]) * size % 16:
        yield f"a tensor copy starts at a multiple of 16 bytes, {window.origin[-1]} of {window.tensor!r} may not"


def _whole(t: Tables, slot: tir.Slot) -> Iterator[str]:
    if any(slot.origin):
        yield f"the instruction works on the whole slot, {slot.buffer!r} is given from {show(slot.origin)} on"
    if slot.transposed and len(t.buffers[slot.buffer].shape) != 2:
        yield f"only a tile of two axes can be transposed, {slot.buffer!r} has {len(t.buffers[slot.buffer].shape)}"


# ---------------------------------------------------------------------------------------------- matrices


def _matrix_load(t: Tables, s: tir.LdMatrix) -> Iterator[str]:
    yield from _matrix(t, s.dst, s.src)


def _matrix_store(t: Tables, s: tir.StMatrix) -> Iterator[str]:
    yield from _matrix(t, s.src, s.dst)


def _matrix(t: Tables, register: str, slot: tir.Slot) -> Iterator[str]:
    """8x8 blocks of 32-bit words in memory rows of 16 aligned bytes, the fragment pattern in the registers; across the
    rows only 16-bit elements can be gathered into words (.trans)."""
    dtype, layout = t.register(register)
    if dtype.kind == "mask" or dtype.size > 4:
        yield f"its elements have 8, 16 or 32 bits, {register!r} holds {dtype}"
        return
    contiguous = 0 if slot.transposed else 1
    axes = (0, 1) if dtype.size == 2 else (contiguous,)
    if problems := list(slot_problems(t, slot, layout.shape, dtype)):
        yield from problems
    elif not any(is_fragment(layout, axis, dtype.per_word) for axis in axes):
        yield f"the layout of {register!r} is not made of 8x8 fragments"
    else:
        yield from slot_alignment(t, slot, 16)


def _mma(t: Tables, s: tir.Mma) -> Iterator[str]:
    """Every warp holds the rows of A and the columns of B that its part of D needs, over all of K."""
    (a_type, a), (b_type, b), (c_type, c), (d_type, d) = (t.register(name) for name in (s.a, s.b, s.c, s.d))
    product = PRODUCTS[s.shape]
    if not product.takes(a_type, b_type):
        kinds = " or ".join(f"both {dtype}" for dtype in product.operands)
        kinds += " or two 8-bit floats" if FLOAT8[0] in product.operands else ""
        yield f"a and b are {kinds}, here {a_type} and {b_type}"
        return
    sums = accumulator_of(a_type)
    if c_type != sums or d_type != sums:
        yield f"c and d are {sums}, here {c_type} and {d_type}"
    if c != d:
        yield "c and d have one layout"
    if not (a.rank == b.rank == d.rank == 2):
        yield "a, b, c and d have two axes"
        return
    (m, k), (k2, n) = a.shape, b.shape
    if k != k2 or d.shape != (m, n) or m % M or n % N or k % product.k:
        yield (
            f"a {show(a.shape)} @ b {show(b.shape)} does not give d {show(d.shape)} in steps of "
            f"{M} x {N} x {product.k} (m x n x k)"
        )
        return
    words = product.per_word
    fragments = [("a", a, 1, words), ("b", b, 0, words), ("d", d, 1, 2)]
    if wrong := [name for name, layout, axis, per_word in fragments if not is_fragment(layout, axis, per_word)]:
        yield f"the layouts of {', '.join(wrong)} are not made of {s.shape} fragments"
        return
    yield from _mma_agreement(a, b, d)


def _mma_agreement(a: Layout, b: Layout, d: Layout) -> Iterator[str]:
    for name, layout in (("a", a), ("b", b)):  # a warp that holds nothing of d computes nothing
        if layout.free_mask and not layout.replicated:
            yield f"some warps hold nothing of {name}: its layout must be replicated"
    for bit, (wa, wb, wd) in enumerate(zip(a.warp, b.warp, d.warp, strict=True)):
        if wa != (wd[0], 0) or wb != (0, wd[1]):
            yield f"warp bit {bit} moves d by {show(wd)}, but a by {show(wa)} and b by {show(wb)}"
    # What the lanes and warps do not place, the registers of each thread hold: along n and k, that fits by the above.
    if any(wa[0] == 8 for wa in a.warp):
        yield "a thread lacks the second half of a fragment along m: the warps divide it"


def _wgmma(t: Tables, s: tir.Wgmma) -> Iterator[str]:
    dtype, d = t.register(s.d)
    a, b = t.buffers[s.a.buffer], t.buffers[s.b.buffer]
    for slot in (s.a, s.b):
        yield from _whole(t, slot)
        yield from slot_problems(
            t, tir.Slot(slot.buffer, slot.cursor, slot.origin), t.buffers[slot.buffer].shape, a.dtype
        )
    if a.dtype not in (F16, BF16) or dtype != F32:
        yield f"a and b are both f16 or both bf16 and d is f32, here {a.dtype}, {b.dtype} and {dtype}"
    if not (len(a.shape) == len(b.shape) == d.rank == 2):
        yield "a, b and d have two axes"
        return
    m, k = a.shape[::-1] if s.a.transposed else a.shape
    k2, n = b.shape[::-1] if s.b.transposed else b.shape
    if k != k2 or d.shape != (m, n):
        yield f"a {show((m, k))} @ b {show((k2, n))} does not give d {show(d.shape)}"


# ---------------------------------------------------------------------------------------------- registers


def _map(t: Tables, s: tir.Map) -> Iterator[str]:
    arity = OPERATIONS[s.op].arity
    if len(s.args) != arity:
        yield f"{s.op} takes {arity} operands, {len(s.args)} are given"
    for name in s.args:
        if isinstance(name, str) and t.register(name)[1] != t.register(s.dst)[1]:
            yield f"{name!r} and {s.dst!r} have different layouts"
    yield from _map_types(t, s)


def _map_types(t: Tables, s: tir.Map) -> Iterator[str]:
    """Operands, and a result that is no mask by nature, are of one kind that the operation knows; where chooses by a
    mask."""
    row, dst = OPERATIONS[s.op], t.register(s.dst)[0]
    types = [t.register(a)[0] if isinstance(a, str) else None for a in s.args]
    values = types[1:] if s.op == "where" else types
    if s.op == "where" and types and types[0] not in (None, BOOL):
        yield "where takes a mask"
    if row.mask and dst != BOOL:
        yield f"{s.op} does not make {dst}"
    if row.mask and not any(types):
        yield f"{s.op} of numbers only"
    kinds = {d.kind for d in values if d is not None} | (set() if row.mask else {dst.kind})
    if len(kinds) > 1:
        yield f"{s.op} mixes {' and '.join(f'{k}s' for k in sorted(kinds))}"
    elif not kinds <= row.takes:
        yield f"{s.op} is not defined on {next(iter(kinds))}s"
    numbers = [a for a in s.args[len(types) - len(values) :] if not isinstance(a, str)]
    yield from (p for n in numbers if (p := number_problem(operand_dtype(s.op, types, dst), n)))


def _fill(t: Tables, s: tir.Fill) -> Iterator[str]:
    if problem := number_problem(t.register(s.dst)[0], s.value):
        yield problem


def _splat(t: Tables, s: tir.Splat) -> Iterator[str]:
    dtype, named = t.register(s.dst)[0], s.value.name if isinstance(s.value, Sym) else ""
    number = t.scalars[named].dtype if named in t.scalars else I32
    if dtype != number:
        yield f"{s.dst!r} is {dtype}, {s.value} {number}"


def _positions(t: Tables, s: tir.Positions) -> Iterator[str]:
    dtype, layout = t.register(s.dst)
    if dtype != I32 or layout.rank != 1:
        yield f"positions are an i32 tile of one axis, {s.dst!r} is {dtype} {show(layout.shape)}"


def _cast(t: Tables, s: tir.Cast) -> Iterator[str]:
    if t.register(s.src)[1] != t.register(s.dst)[1]:
        yield f"{s.src!r} and {s.dst!r} have different layouts"


def _renaming(t: Tables, s: tir.Move | tir.Slice | tir.Spread) -> Iterator[str]:
    if t.register(s.src)[0] != t.register(s.dst)[0]:
        yield f"{s.src!r} and {s.dst!r} hold different dtypes"
    try:
        source_registers(t.kernel, s)
    except ValueError as error:
        yield f"{s.dst!r} cannot be made of {s.src!r} by renaming registers: {error}"


def _reduce(t: Tables, s: tir.Reduce) -> Iterator[str]:
    (src_type, src), (dst_type, dst) = t.register(s.src), t.register(s.dst)
    if src_type not in (F32, I32, I64) or dst_type != src_type:
        yield f"a reduction folds f32, i32 or i64 into the same, not {src_type} into {dst_type}"
    if not 0 <= s.axis < src.rank:
        yield f"{s.src!r} has no axis {s.axis}"
    elif not 0 <= s.below <= src.shape[s.axis]:
        yield f"axis {s.axis} of {s.src!r} has {src.shape[s.axis]} elements, not {s.below}"
    elif src.free_mask and not src.replicated:
        yield f"some threads hold nothing of {s.src!r}: its layout must be replicated"
    elif dst != src.reduced(s.axis):
        yield f"the layout of {s.dst!r} is not that of {s.src!r} reduced along axis {s.axis}"


# ---------------------------------------------------------------------------------------------- syncs


def _bar(t: Tables, s: tir.BarSync | tir.BarArrive) -> Iterator[str]:
    if not 1 <= s.barrier <= NAMED_BARRIERS:
        yield f"named barriers are 1 .. {NAMED_BARRIERS}, not {s.barrier}"
    if not s.warps or list(s.warps) != sorted(set(s.warps)) or s.warps[0] < 0 or s.warps[-1] >= t.kernel.warps:
        yield f"warps are one or more of 0 .. {t.kernel.warps - 1}, in rising order"
    if isinstance(s, tir.BarArrive) and (s.count % 32 or not 32 * len(s.warps) <= s.count <= t.kernel.threads):
        yield f"count {s.count} is no number of whole warps from {len(s.warps)} to {t.kernel.warps}"


def _pending(t: Tables, s: tir.CpWait | tir.BulkWait | tir.WgmmaWait) -> Iterator[str]:
    if s.n < 0:
        yield f"a number of groups is at least 0, not {s.n}"


def _expect(t: Tables, s: tir.BarrierExpect) -> Iterator[str]:
    if not 0 <= s.bytes < 1 << 20:
        yield f"the transaction count is within 0 .. 2**20 - 1, not {s.bytes}"


def _wait(t: Tables, s: tir.BarrierWait) -> Iterator[str]:
    if s.flip not in (0, 1):
        yield f"flip is 0 or 1, not {s.flip}"


def _set_registers(t: Tables, s: tir.SetMaxRegisters) -> Iterator[str]:
    if s.registers % 8 or not 24 <= s.registers <= 256:
        yield f"registers are a multiple of 8 from 24 to 256, not {s.registers}"


RULES: Mapping[type[tir.Stmt], Callable[[Tables, Any], Iterator[str]]] = {
    tir.CpAsync: _cp_async,
    tir.LdGlobal: _to_register,
    tir.LdShared: _to_register,
    tir.LdScalar: _ld_scalar,
    tir.StGlobal: _from_register,
    tir.AtomicAdd: _atomic_add,
    tir.StShared: _from_register,
    tir.TmaLoad: _tensor_copy,
    tir.TmaStore: _tensor_copy,
    tir.LdMatrix: _matrix_load,
    tir.StMatrix: _matrix_store,
    tir.Mma: _mma,
    tir.Wgmma: _wgmma,
    tir.Fill: _fill,
    tir.Map: _map,
    tir.Positions: _positions,
    tir.Splat: _splat,
    tir.Cast: _cast,
    tir.Move: _renaming,
    tir.Slice: _renaming,
    tir.Spread: _renaming,
    tir.Reduce: _reduce,
    tir.BarSync: _bar,
    tir.BarArrive: _bar,
    tir.CpWait: _pending,
    tir.BulkWait: _pending,
    tir.WgmmaWait: _pending,
    tir.BarrierExpect: _expect,
    tir.BarrierWait: _wait,
    tir.SetMaxRegisters: _set_registers,
}
