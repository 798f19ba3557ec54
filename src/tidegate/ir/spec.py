"""The executable specification of legal TIR: what every kernel must keep, whoever wrote it.

:func:`verify` looks at a kernel alone: names, shapes, types, widths, alignment, capacity, and who may execute what.
Whether its accesses are ordered is another question, answered by :mod:`tidegate.check`. Buffers may share bytes; that
too is a question of order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

from tidegate.errors import IllegalTir, Span
from tidegate.ir import tir
from tidegate.ir.dtypes import F32, I32
from tidegate.ir.elementwise import OPERATIONS
from tidegate.ir.expr import Bin, Expr, Int, Sym, evaluate, least, negated, substitute, symbols
from tidegate.ir.layout import Layout
from tidegate.ir.products import PRODUCTS
from tidegate.ir.rules import FOLDS, Tables, statement_problems
from tidegate.ir.scan import scan
from tidegate.ir.text import RESERVED, SECTIONS, TEMPLATES, kinds_of, print_declaration, print_header, print_stmt

SMEM_LIMIT = 232448
"""Largest shared memory of a CTA on any target: 227 KiB (CUDA C++ Programming Guide, "Compute Capabilities")."""

MAX_ELEMENTS = 4096
"""Per thread of a layout: far more than its registers hold, of any element type."""

MAX_PERIOD_BITS = 16
"""Of a swizzle; its period aligns the slots, so it is far below the shared memory."""

# What a field of type Name refers to: a declared thing, or one of a few words.
REFERENCES = {
    "dst": "register",
    "src": "register",
    "a": "register",
    "b": "register",
    "c": "register",
    "d": "register",
    "args": "register",
    "layout": "layout",
    "barrier": "mbarrier",
    "cursor": "cursor",
    "role": "role",
    "scalar": "scalar",
}
WORDS: dict[str, Callable[[], tuple[str, ...]]] = {
    "op": lambda: tuple(OPERATIONS),
    "fold": lambda: FOLDS,
    "shape": lambda: tuple(PRODUCTS),
    "space": lambda: ("shared", "global"),
    "what": lambda: ("read", "done"),
    "per": lambda: ("thread", "warp", "role"),
}

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Violation:
    """``where`` is the line of a declaration, or index path and line of a statement; ``message`` says what is wrong."""

    where: str
    message: str

    def __str__(self) -> str:
        return f"{self.where}\n    {self.message}"


@dataclass(frozen=True)
class Placed:
    """A statement with its index path in the body, the loop indices in scope and the role that executes it."""

    stmt: tir.Stmt
    path: tuple[int, ...]
    indices: tuple[str, ...]
    role: tir.Name | None

    @cached_property
    def where(self) -> str:
        return f"body{''.join(f'[{i}]' for i in self.path)}: {print_stmt(self.stmt)}"


def verify(kernel: tir.Kernel) -> list[Violation]:
    """All violations of the first kind that has any: names, then declarations, then statements; a later kind cannot
    be judged while an earlier one is broken. Empty for a legal kernel."""
    places = list(placed(kernel.body))
    for rules in (_names, _scopes, _declarations, _statements, _registers_defined):
        if found := list(rules(kernel, places)):
            return found
    return []


def ensure(kernel: tir.Kernel, text: str = "", file: str = "<tir>") -> None:
    """Raises IllegalTir with all violations when there are any. ``text``: what the kernel was read from, so that they
    name its lines."""
    if not (found := verify(kernel)):
        return
    places = lines_of(kernel, text, file) if text else {}
    shown = []
    for violation in found:
        place = places.get(violation.where)
        where = f"{file}:{place.line}: {place.text.strip()}" if place else violation.where
        shown.append(f"  {where}\n    {violation.message}")
    rules = "1 rule" if len(found) == 1 else f"{len(found)} rules"
    raise IllegalTir(
        places.get(found[0].where), kernel=kernel.name, rules=rules, violations="\n".join(shown), found=found
    )


def lines_of(kernel: tir.Kernel, text: str, file: str) -> dict[str, Span]:
    """The line of everything that a violation may name, in the text that the kernel was read from."""
    head, *rest = scan(text, file)
    body = next(n for n, line in enumerate(rest) if line.token == "body")
    places = {print_header(kernel): head.whole}
    items = {TEMPLATES[cls].split()[0]: iter(getattr(kernel, section)) for section, cls in SECTIONS.items()}
    for line in rest[:body]:
        places.setdefault(print_declaration(next(items[line.token])), line.whole)
    statements = (line for line in rest[body + 1 :] if line.token != "}")
    return places | {p.where: line.whole for p, line in zip(placed(kernel.body), statements, strict=True)}


def placed(
    body: tuple[tir.Stmt, ...],
    path: tuple[int, ...] = (),
    indices: tuple[str, ...] = (),
    role: tir.Name | None = None,
) -> Iterator[Placed]:
    """All statements in textual order, bodies included."""
    for number, stmt in enumerate(body):
        yield Placed(stmt, (*path, number), indices, role)
        if isinstance(stmt, tir.For):
            yield from placed(stmt.body, (*path, number), (*indices, stmt.index), role)
        elif isinstance(stmt, tir.If):
            yield from placed(stmt.body, (*path, number), indices, role)
        elif isinstance(stmt, tir.InRole):
            yield from placed(stmt.body, (*path, number), indices, stmt.role)


# ---------------------------------------------------------------------------------------------- names


def _declared(kernel: tir.Kernel) -> Iterator[tuple[str, str, str]]:
    """Kind, name and line of every declaration."""
    for section, cls in SECTIONS.items():
        kind = TEMPLATES[cls].split()[0]
        for item in getattr(kernel, section):
            yield kind, item[0] if isinstance(item, tuple) else item.name, print_declaration(item)


def _names(kernel: tir.Kernel, places: list[Placed]) -> Iterator[Violation]:
    """Names are well formed and unique, and refer to things of the right kind."""
    kinds: dict[str, str] = {}
    for kind, name, where in _declared(kernel):
        if name in kinds:
            yield Violation(where, f"{name!r} is declared twice, as {kinds[name]} and as {kind}")
        kinds.setdefault(name, kind)
        yield from _well_formed(name, where)
    for name in (kernel.name, kernel.target):
        yield from _well_formed(name, print_header(kernel))
    for register in kernel.registers:
        yield from _refers(register.layout, "layout", kinds, print_declaration(register))
    for place in places:
        if isinstance(place.stmt, tir.For):
            yield from _well_formed(place.stmt.index, place.where)
            if place.stmt.index in (*place.indices, *kinds):
                yield Violation(place.where, f"the loop index {place.stmt.index!r} hides another name")
        if isinstance(place.stmt, tir.Sync) and place.stmt.id:
            yield from _well_formed(place.stmt.id, place.where)
        for name, kind in references(place.stmt):
            if kind in WORDS:
                if name not in WORDS[kind]():
                    yield Violation(place.where, f"{kind} {name!r} is none of {', '.join(WORDS[kind]())}")
            else:
                yield from _refers(name, kind, kinds, place.where)


def references(stmt: tir.Stmt) -> Iterator[tuple[str, str]]:
    """The names that a statement uses outside expressions, each with the kind of thing (or word) it must be."""
    kinds = kinds_of(type(stmt))
    for f in fields(stmt):
        value = getattr(stmt, f.name)
        if isinstance(value, tir.Slot):
            yield value.buffer, "buffer"
            if value.cursor is not None:
                yield value.cursor, "cursor"
        elif isinstance(value, tir.Window):
            yield value.tensor, "param"
            if value.rows is not None:
                yield value.rows.register, "register"
        elif kinds[f.name] in ("name", "args") and not (isinstance(stmt, tir.For) and f.name == "index"):
            kind = f.name if f.name in WORDS else REFERENCES[f.name]
            for name in value if isinstance(value, tuple) else (value,):
                if isinstance(name, str):
                    yield name, kind


def _refers(name: str, kind: str, kinds: dict[str, str], where: str) -> Iterator[Violation]:
    found = kinds.get(name)
    if found is None:
        known = ", ".join(n for n, k in kinds.items() if k == kind) or "none"
        yield Violation(where, f"no {kind} {name!r} is declared (declared: {known})")
    elif found != kind:
        yield Violation(where, f"{name!r} is a {found}, and a {kind} is needed")


def is_name(text: str) -> bool:
    """Whether TIR takes ``text`` as a name."""
    return _NAME.fullmatch(text) is not None and text not in RESERVED


def _well_formed(name: str, where: str) -> Iterator[Violation]:
    if not is_name(name):
        yield Violation(
            where, f"{name!r} is no name: letters, digits and _, no digit first, not {' or '.join(RESERVED)}"
        )


def _scopes(kernel: tir.Kernel, places: list[Placed]) -> Iterator[Violation]:
    """Expressions use names in scope, and divide by what is positive."""
    dims: dict[str, int | None] = {d.name: d.value for d in kernel.dims}
    axes: set[str] = {a.name for a in kernel.grid}
    integers = {s.name for s in kernel.scalars if s.dtype == I32}
    negative = signed(kernel)
    for param in kernel.params:
        for extent in param.shape:
            yield from _in_scope(extent, dims, set(), print_declaration(param))
    for at, axis in enumerate(kernel.grid):
        yield from _in_scope(axis.extent, dims, set(), print_declaration(axis))
        if axis.band < 1 or (axis.band > 1 and at != len(kernel.grid) - 2):
            yield Violation(print_declaration(axis), "only the axis before the last one has bands, of 1 or more rows")
    for place in places:
        for e in expressions(place.stmt):
            others = axes | integers | set(place.indices)
            if isinstance(place.stmt, tir.Splat) and isinstance(e, Sym):
                others |= {s.name for s in kernel.arguments}
            yield from _in_scope(e, dims, others, place.where, negative)
        start = place.stmt.start if isinstance(place.stmt, tir.For) else Int(0)
        if integers & set(symbols(start)) and least(start, integers) < 0:
            yield Violation(place.where, f"it begins at {start}, which is not surely 0 or more")


def signed(kernel: tir.Kernel) -> frozenset[str]:
    """Names that may stand for a negative number: integers that are given or read, and indices of loops that begin
    below 0."""
    found = {str(s.name) for s in kernel.scalars}
    for loop in (stmt for stmt in tir.walk(kernel.body) if isinstance(stmt, tir.For)):  # those around come first
        if least(loop.start, found) < 0:
            found.add(loop.index)
    return frozenset(found)


def _in_scope(
    e: Expr, dims: Mapping[str, int | None], others: set[str], where: str, negative: Container[str] = ()
) -> Iterator[Violation]:
    for name in dict.fromkeys(symbols(e)):
        if name not in dims.keys() | others:
            known = ", ".join(sorted(dims.keys() | others)) or "none"
            yield Violation(
                where,
                f"{name!r} in {e} is not in scope (sizes, and in the body grid axes, indices and integers: {known})",
            )
    sizes = {name: Int(value) for name, value in dims.items() if value is not None}
    for divisor in _divisors(e):
        if least(substitute(divisor, sizes), negative) < 1:
            yield Violation(where, f"{e} divides by {divisor}, which is not surely positive")


def _divisors(e: Expr) -> Iterator[Expr]:
    if isinstance(e, Bin):
        if e.op in ("/", "%", "cdiv"):
            yield e.b
        yield from _divisors(e.a)
        yield from _divisors(e.b)


def expressions(stmt: tir.Stmt) -> Iterator[Expr]:
    """The integer expressions that a statement evaluates itself, not those of its body."""
    for f in fields(stmt):
        value = getattr(stmt, f.name)
        if isinstance(value, Expr):
            yield value
        elif isinstance(value, tir.Window):
            yield from value.origin
            yield from (b for b in value.bounds if b is not None)


def with_names(instr: tir.Instruction, env: Mapping[str, Expr]) -> tir.Instruction:
    """The instruction with names replaced in the expressions that it evaluates, bounds aside: those name sizes only."""
    changes: dict[str, Any] = {}
    for f in fields(instr):
        operand = getattr(instr, f.name)
        if isinstance(operand, tir.Window):
            changes[f.name] = replace(operand, origin=tuple(substitute(e, env) for e in operand.origin))
        elif isinstance(operand, Expr):
            changes[f.name] = substitute(operand, env)
    return replace(instr, **changes) if env else instr


# ---------------------------------------------------------------------------------------------- declarations


def _declarations(kernel: tir.Kernel, places: list[Placed]) -> Iterator[Violation]:
    """Every declaration is possible by itself, and they fit into the shared memory together."""
    header = print_header(kernel)
    if not 1 <= kernel.warps <= 32:
        yield Violation(header, f"warps {kernel.warps} is not within 1 .. 32")
    elif kernel.warps & (kernel.warps - 1) and not kernel.roles:
        yield Violation(header, f"warps {kernel.warps} is no power of two from 1 to 32, and there are no roles")
    if not 0 <= kernel.smem <= SMEM_LIMIT:
        yield Violation(header, f"smem {kernel.smem} is not within 0 .. {SMEM_LIMIT}, the most that a CTA can have")
    for section, problems in PROBLEMS.items():
        for item in getattr(kernel, section):
            yield from (Violation(print_declaration(item), p) for p in problems(kernel, item))


def _dim_problems(kernel: tir.Kernel, dim: tir.Dim) -> Iterator[str]:
    if dim.value is not None and dim.value < 0:
        yield "a size is not negative"
    if dim.multiple < 1:
        yield "the known factor is at least 1"
    elif dim.value is not None and dim.value % dim.multiple:
        yield f"{dim.value} is no multiple of {dim.multiple}"


def _param_problems(kernel: tir.Kernel, param: tir.Param) -> Iterator[str]:
    if param.align < param.dtype.size or param.align & (param.align - 1):
        yield f"align must be a power of two of at least {param.dtype.size}, the size of {param.dtype}"
        return
    if param.strided:
        if len(param.shape) < 2:
            yield "a tensor of one axis has no stride that could be a launch argument"
        return
    fixed: dict[str, int] = {d.name: d.value for d in kernel.dims if d.value is not None and d.value > 0}
    pitch = param.dtype.size
    for axis in range(len(param.shape) - 1, 0, -1):
        if any(name not in fixed for name in symbols(param.shape[axis])):
            return  # a condition on launch arguments, tested at launch
        pitch *= evaluate(param.shape[axis], fixed)
        if pitch % param.align:
            yield f"the stride of axis {axis - 1} is {pitch} bytes, no multiple of align {param.align}"


def _scalar_problems(kernel: tir.Kernel, scalar: tir.Scalar) -> Iterator[str]:
    if scalar.dtype not in (I32, F32) or (scalar.dtype == F32 and not scalar.argument):
        yield f"a scalar is i32, or as an argument f32, not {scalar.dtype}"


def _layout_problems(kernel: tir.Kernel, item: tuple[str, Layout]) -> Iterator[str]:
    layout = item[1]
    if not layout.rank:
        yield "a tile has at least one axis"
        return
    if problems := layout.problems():
        yield from problems
        return
    warps = 1 << len(layout.warp)
    if warps > kernel.warps or (warps < kernel.warps and not kernel.roles):
        yield f"{len(layout.warp)} warp bits make {warps} warps, the kernel has {kernel.warps}"
    if layout.registers > MAX_ELEMENTS:
        yield f"each thread would hold {layout.registers} elements; {MAX_ELEMENTS} are the limit"


def _buffer_problems(kernel: tir.Kernel, buffer: tir.Buffer) -> Iterator[str]:
    if not buffer.shape or min(buffer.shape) < 1 or buffer.stages < 1 or buffer.offset < 0:
        yield "shape and stages are at least 1, and the offset at least 0"
        return
    s = buffer.swizzle
    if min(s.bits, s.base, s.shift) < 0 or s.bits + s.base + s.shift > MAX_PERIOD_BITS:
        yield f"the swizzle's numbers are at least 0 and at most {MAX_PERIOD_BITS} together"
        return
    if s.shift < s.bits:
        yield f"the swizzle's shift {s.shift} is below its bits {s.bits}: source and target bits overlap"
    size = buffer.layout.bytes
    if s.bits and size % (1 << (s.base + s.bits)):
        yield f"the swizzle moves bytes within blocks of {1 << (s.base + s.bits)}, the tile has {size}: no multiple"
    align = max(16, s.period)
    for what, value in (("offset", buffer.offset), ("stride", buffer.stride if buffer.stages > 1 else 0)):
        if value % align:
            yield f"{what} {value} is no multiple of {align}: slots are aligned to 16 bytes and the swizzle's period"
    if buffer.stride < size:
        yield f"stride {buffer.stride} is below the {size} bytes of a tile"
    elif buffer.end > kernel.smem:
        yield f"the last slot ends at byte {buffer.end}, the shared memory at {kernel.smem}"


def _mbarrier_problems(kernel: tir.Kernel, barrier: tir.Mbarrier) -> Iterator[str]:
    if barrier.stages < 1 or not 1 <= barrier.count < 1 << 20:
        yield "stages are at least 1 and the count is within 1 .. 2**20 - 1"
    if barrier.offset < 0 or barrier.offset % 8:
        yield f"an mbarrier is aligned to 8 bytes, the offset is {barrier.offset}"
    end = barrier.offset + 8 * barrier.stages
    if end > kernel.smem:
        yield f"the mbarriers end at byte {end}, the shared memory at {kernel.smem}"
    ends = any(isinstance(s, tir.BarrierInvalidate) and s.barrier == barrier.name for s in tir.walk(kernel.body))
    # The bytes of a barrier whose life ends may be data before and after it: a question of order, like buffers.
    taken = [] if ends else [(b.name, b.offset, b.end) for b in kernel.buffers]
    taken += [(b.name, b.offset, b.offset + 8 * b.stages) for b in kernel.barriers if b.name < barrier.name]
    for name, start, stop in taken:
        if start < end and barrier.offset < stop:
            yield f"the mbarriers share bytes with {name!r}"


def _cursor_problems(kernel: tir.Kernel, cursor: tir.Cursor) -> Iterator[str]:
    if cursor.depth < 1:
        yield "the depth is at least 1"


def _role_problems(kernel: tir.Kernel, role: tir.Role) -> Iterator[str]:
    if role.first < 0 or role.count < 1 or role.first + role.count > kernel.warps:
        yield f"its warps {role.first} .. {role.first + role.count - 1} are not all among the kernel's {kernel.warps}"
    if role.registers and (role.registers % 8 or not 24 <= role.registers <= 256):
        yield "registers are a multiple of 8 from 24 to 256, or 0 (PTX ISA, setmaxnreg)"
    for other in kernel.roles:
        if other.name < role.name and role.first < other.first + other.count and other.first < role.first + role.count:
            yield f"it shares warps with role {other.name!r}"


PROBLEMS: dict[str, Callable[[tir.Kernel, Any], Iterator[str]]] = {
    "dims": _dim_problems,
    "params": _param_problems,
    "scalars": _scalar_problems,
    "layouts": _layout_problems,
    "buffers": _buffer_problems,
    "barriers": _mbarrier_problems,
    "cursors": _cursor_problems,
    "roles": _role_problems,
}


# ---------------------------------------------------------------------------------------------- statements


def _statements(kernel: tir.Kernel, places: list[Placed]) -> Iterator[Violation]:
    """Operands fit each other and the instruction; who executes it is right."""
    tables = Tables.of(kernel)
    for place in places:
        yield from (Violation(place.where, p) for p in statement_problems(tables, place.stmt))
        yield from (Violation(place.where, p) for p in _participant_problems(tables, place))
    warps: dict[int, tuple[int, ...]] = {}
    for place in places:
        if isinstance(place.stmt, tir.BarSync):
            first = warps.setdefault(place.stmt.barrier, place.stmt.warps)
            if first != place.stmt.warps:
                message = (
                    f"barrier {place.stmt.barrier} is used for warps {_commas(first)} above: a barrier keeps its warps"
                )
                yield Violation(place.where, message)


def _participant_problems(tables: Tables, place: Placed) -> Iterator[str]:
    stmt = place.stmt
    yield from _group_problems(tables, place)
    if place.role is None:
        if isinstance(stmt, tir.InRole) and len(place.path) > 1:
            yield "a role block stands inside a loop or condition; it belongs at the top of the body"
        return
    role = tables.roles[place.role]
    if isinstance(stmt, tir.InRole):
        yield f"a role block stands inside that of {place.role!r}"
    if isinstance(stmt, tir.Instruction) and stmt.by in (tir.Participants.CTA, tir.Participants.CLUSTER):
        yield f"{stmt.by.value} must execute it, the warps of role {place.role!r} alone reach it"
    if isinstance(stmt, (tir.BarSync, tir.BarArrive)):
        outside = [w for w in stmt.warps if not role.first <= w < role.first + role.count]
        if outside:
            yield f"warps {_commas(tuple(outside))} do not belong to role {place.role!r} and never reach it"


def _group_problems(tables: Tables, place: Placed) -> Iterator[str]:
    """The warps that execute a statement hold all of its tiles."""
    warps = tables.roles[place.role].count if place.role else tables.kernel.warps
    names = [n for how in ("reads", "writes") for n in tir.registers(place.stmt, how) if n in tables.registers]
    layouts = {name: tables.registers[name].layout for name in names}
    if isinstance(place.stmt, tir.CpAsync):
        layouts[place.stmt.layout] = place.stmt.layout
    for name, layout in layouts.items():
        held = [bit for bit, basis in enumerate(tables.layouts[layout].warp) if any(basis)]
        if held and 1 << (held[-1] + 1) > warps:
            yield f"the layout of {name!r} needs {1 << (held[-1] + 1)} warps, {warps} execute the statement"


def _registers_defined(kernel: tir.Kernel, places: list[Placed]) -> Iterator[Violation]:
    """A register, or a scalar that is no argument, is written before it is read: earlier in the text, in the same or an
    enclosing block. A block may be skipped, so what it writes counts within it alone; what two conditions of one block
    write of which one holds, counts in that block, and what is written where ``start < stop`` holds counts in a later
    loop from start to stop too, which runs only then."""
    kinds: dict[str, str] = {r.name: "register" for r in kernel.registers}
    kinds |= {s.name: "scalar" for s in kernel.scalars if not s.argument}
    statements = {place.path: place.stmt for place in places}
    written: dict[str, list[tuple[int, ...]]] = {name: [] for name in kinds}
    conditions: dict[tuple[int, ...], Expr] = {}  # of blocks, as long as they mean what they did
    for place in places:
        if isinstance(place.stmt, tir.If):
            conditions[place.path] = place.stmt.condition
        loops = [
            (path[:-1], Bin("<", stmt.start, stmt.stop))
            for path in (place.path[:end] for end in range(1, len(place.path)))
            if isinstance(stmt := statements[path], tir.For)
        ]
        for name in (*tir.registers(place.stmt, "reads"), *(n for e in expressions(place.stmt) for n in symbols(e))):
            blocks = written.get(name)
            if blocks is None or any(block == place.path[: len(block)] for block in blocks):
                continue
            if not any((block[:-1], conditions.get(block)) in loops for block in blocks if block):
                yield Violation(
                    place.where, f"{kinds[name]} {name!r} is read, and nothing before has surely written it"
                )
        if isinstance(place.stmt, tir.LdScalar):
            conditions = {b: e for b, e in conditions.items() if place.stmt.scalar not in symbols(e)}
        for name in tir.registers(place.stmt, "writes"):
            if name in written:
                _note(written[name], place.path[:-1], conditions)


def _note(blocks: list[tuple[int, ...]], block: tuple[int, ...], conditions: Mapping[tuple[int, ...], Expr]) -> None:
    """Adds a block to those in which something is surely written, and the ones around it for which that follows."""
    blocks.append(block)
    if block in conditions:
        other = negated(conditions[block])
        if any(b[:-1] == block[:-1] and conditions.get(b) == other for b in blocks if b):
            _note(blocks, block[:-1], conditions)


def _commas(values: tuple[int, ...]) -> str:
    return ",".join(map(str, values))
