"""The text form of TIR: printer and parser, both driven by one template per line.

An instruction is printed and parsed by its ``syntax`` and the types of its fields, so that a new instruction class
needs no code here. The grammar of operands and declarations is the tables TEMPLATES and KINDS below; docs/tir.md
explains it. ``parse_kernel(print_kernel(k)) == k``, and printing a parsed kernel gives the canonical text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cache
from itertools import zip_longest
from typing import Any, get_type_hints

from tidegate.ir import tir
from tidegate.ir.direction import Direction
from tidegate.ir.dtypes import DTYPES, DType
from tidegate.ir.expr import FUNCTIONS, PRECEDENCE, Bin, Expr, Int, Unexpected, parse_tokens
from tidegate.ir.layout import Coord, Layout, Swizzle
from tidegate.ir.scan import Line, scan

# A template is literal text with {field} or {field:kind}, and (optional parts)?, left out while their fields have
# their default. The kind of a field follows from its type unless the template gives it.
TEMPLATES: dict[type, str] = {
    tir.Kernel: "kernel {name} target {target} warps {warps} smem {smem}",
    tir.Dim: "dim {name}( = {value})?( multiple {multiple})?",
    tir.Param: "param {name} {dtype} {shape} {direction} align {align}( strided{strided:flag})?",
    tir.Scalar: "scalar {name} {dtype}( argument{argument:flag})?",
    tir.GridAxis: "grid {name} < {extent}( band {band})?( backwards{backwards:flag})?",
    Layout: "layout {name} {shape:extents} reg {reg} lane {lane} warp {warp} rep {rep}( replicated{replicated:flag})?",
    tir.Buffer: "buffer {name} {dtype} {shape:extents} stages {stages} at {offset} stride {stride}"
    "( swizzle {swizzle})?",
    tir.Mbarrier: "mbarrier {name} stages {stages} count {count} at {offset}",
    tir.Cursor: "cursor {name} depth {depth}",
    tir.Register: "register {name} {dtype} layout {layout}",
    tir.Role: "role {name} warps {first} count {count}( registers {registers})?",
    tir.For: "for {index} = {start} .. {stop}( line {line})? {",
    tir.If: "if {condition}( line {line})? {",
    tir.InRole: "in {role}( line {line})? {",
}
SUFFIX = "( line {line})?"
SYNC_SUFFIX = "( #{id:name})?( {why})?" + SUFFIX

# Kernel field of each declaration, in canonical order.
SECTIONS: dict[str, type] = {
    "dims": tir.Dim,
    "params": tir.Param,
    "scalars": tir.Scalar,
    "grid": tir.GridAxis,
    "layouts": Layout,
    "buffers": tir.Buffer,
    "barriers": tir.Mbarrier,
    "cursors": tir.Cursor,
    "registers": tir.Register,
    "roles": tir.Role,
}
RESERVED = ("inf", "nan")
"""Numbers, so no names."""

MAX_DEPTH = 64
"""Nesting of blocks."""


def print_kernel(kernel: tir.Kernel) -> str:
    """The canonical text of a kernel, ending with a newline."""
    lines = [print_header(kernel)]
    lines += [print_declaration(item) for section in SECTIONS for item in getattr(kernel, section)]
    lines += ["body {", *print_body(kernel.body, "  "), "}"]
    return "\n".join(lines) + "\n"


def print_header(kernel: tir.Kernel) -> str:
    """The first line."""
    return _print(tir.Kernel, vars(kernel))


def print_declaration(item: Any) -> str:
    """The line of a declaration: a Dim, Param, ..., Role, or a pair of name and Layout."""
    if isinstance(item, tuple):
        name, layout = item
        return _print(Layout, {"name": name, **vars(layout)})
    return _print(type(item), vars(item))


def print_body(body: tuple[tir.Stmt, ...], indent: str = "") -> Iterator[str]:
    """The lines of a sequence of statements, bodies included."""
    for stmt in body:
        yield indent + print_stmt(stmt)
        if isinstance(stmt, (tir.For, tir.If, tir.InRole)):
            yield from print_body(stmt.body, indent + "  ")
            yield indent + "}"


def print_stmt(stmt: tir.Stmt) -> str:
    """The one line of a statement; of a loop, a condition or a role block the opening line."""
    return _print(type(stmt), vars(stmt))


def parse_kernel(text: str, file: str = "<tir>") -> tir.Kernel:
    """The kernel that ``text`` describes. Names are resolved as far as the grammar needs (the buffer of a slot);
    everything else is left to :func:`tidegate.ir.spec.verify`.

    ``file`` is the name that errors give.
    Raises UnreadableTir with line, column and what was expected.
    """
    lines = scan(text, file)
    head, *rest = lines
    head.expect("kernel")
    head.at = 0
    declared: dict[str, Any] = {section: [] for section in SECTIONS}
    values = {**_parse(tir.Kernel, head, {}), **declared}
    keywords = {TEMPLATES[cls].split()[0]: (section, cls) for section, cls in SECTIONS.items()}
    for number, line in enumerate(rest):
        if line.accept("body"):
            line.expect("{")
            line.end()
            ranks = {b.name: len(b.shape) for b in declared["buffers"]}
            tuples = {section: tuple(items) for section, items in declared.items()}
            return tir.Kernel(**{**values, **tuples}, body=_parse_body(rest[number:], ranks))
        section, cls = line.choose(keywords, "a declaration or 'body {'")
        item = _parse(cls, line, {})
        declared[section].append((item.pop("name"), Layout(**item)) if cls is Layout else cls(**item))
    raise lines[-1].error("expected 'body {', found the end of the text", len(lines[-1].tokens))


def _parse_body(lines: list[Line], ranks: dict[str, int]) -> tuple[tir.Stmt, ...]:
    """The statements after the opening line up to the closing brace of the body, which must be the last line."""
    statements = {template(cls)[0].tokens[0]: cls for cls in (tir.For, tir.If, tir.InRole, *tir.INSTRUCTIONS)}
    open_blocks: list[tuple[type, dict[str, Any]]] = []
    bodies: list[list[tir.Stmt]] = [[]]
    for number, line in enumerate(lines[1:], 1):
        if line.accept("}"):
            line.end()
            body = tuple(bodies.pop())
            if not bodies:
                if number + 1 < len(lines):
                    raise lines[number + 1].error("expected the end of the text: the body is closed", 0)
                return body
            cls, values = open_blocks.pop()
            bodies[-1].append(cls(**values, body=body))
            continue
        cls = line.choose(statements, "a statement or '}'")
        values = _parse(cls, line, ranks)
        if issubclass(cls, tir.Instruction):
            bodies[-1].append(cls(**values))
            continue
        if len(bodies) > MAX_DEPTH:
            raise line.error(f"blocks are nested more than {MAX_DEPTH} deep", 0)
        open_blocks.append((cls, values))
        bodies.append([])
    raise lines[-1].error("expected '}', found the end of the text", len(lines[-1].tokens))


# ---------------------------------------------------------------------------------------------- templates


@dataclass(frozen=True)
class Part:
    """A piece of a template: literal ``text`` (with its tokens), a ``field`` of a ``kind``, or an optional group."""

    text: str = ""
    tokens: tuple[str, ...] = ()
    field: str = ""
    kind: str = ""
    group: tuple[Part, ...] = ()


_PART = re.compile(r"\((?P<group>[^()]*)\)\?|\{(?P<field>\w+)(?::(?P<kind>\w+))?\}")


@cache
def template(cls: type) -> tuple[Part, ...]:
    """The pieces of the line of a declaration or statement class."""
    text = TEMPLATES.get(cls, "")
    if not text and issubclass(cls, tir.Instruction):
        text = cls.syntax + (SYNC_SUFFIX if issubclass(cls, tir.Sync) else SUFFIX)
    return _parts(text, get_type_hints(cls))


def _parts(text: str, hints: dict[str, Any]) -> tuple[Part, ...]:
    out: list[Part] = []
    at = 0
    for match in _PART.finditer(text):
        out += _literal(text[at : match.start()])
        if match["group"] is not None:
            out.append(Part(group=_parts(match["group"], hints)))
        else:
            out.append(Part(field=match["field"], kind=match["kind"] or _kind(hints.get(match["field"], tir.Name))))
        at = match.end()
    return (*out, *_literal(text[at:]))


def _literal(text: str) -> list[Part]:
    return [Part(text=text, tokens=tuple(scan(text)[0].tokens[:-1]))] if text else []


def _print(cls: type, values: dict[str, Any]) -> str:
    return "".join(_print_parts(template(cls), values, _defaults(cls)))


def _print_parts(parts: tuple[Part, ...], values: dict[str, Any], defaults: dict[str, Any]) -> Iterator[str]:
    for part in parts:
        if part.group:
            names = [p.field for p in part.group if p.field]
            if any(values[name] != defaults[name] for name in names):
                yield from _print_parts(part.group, values, defaults)
        elif part.field:
            yield KINDS[part.kind].show(values[part.field])
        else:
            yield part.text


def _parse(cls: type, line: Line, ranks: dict[str, int]) -> dict[str, Any]:
    """The field values of one line, which must be used up."""
    values: dict[str, Any] = {}
    _parse_parts(template(cls), line, ranks, _defaults(cls), values)
    line.end()
    return values


def _parse_parts(
    parts: tuple[Part, ...], line: Line, ranks: dict[str, int], defaults: dict[str, Any], values: dict[str, Any]
) -> None:
    for part in parts:
        if part.group:
            if _starts(part.group, line.token):
                _parse_parts(part.group, line, ranks, defaults, values)
            else:
                values.update({p.field: defaults[p.field] for p in part.group if p.field})
        elif part.field:
            values[part.field] = KINDS[part.kind].read(line, ranks)
        else:
            for token in part.tokens:
                line.expect(token)


def _starts(group: tuple[Part, ...], token: str) -> bool:
    first = next(p for p in group if p.tokens or p.field)
    return token == first.tokens[0] if first.tokens else token.startswith('"')


@cache
def _defaults(cls: type) -> dict[str, Any]:
    """What an optional part stands for when it is absent."""
    absent: dict[type, dict[str, Any]] = {tir.Buffer: {"swizzle": Swizzle()}, tir.Dim: {"value": None}}
    return {f.name: f.default for f in fields(cls) if f.default is not MISSING} | absent.get(cls, {})


# ---------------------------------------------------------------------------------------------- kinds of fields


@dataclass(frozen=True)
class Kind:
    """How the values of a type look in the text; ``grammar`` is what docs/tir.md says of it."""

    grammar: str
    show: Callable[[Any], str]
    read: Callable[[Line, dict[str, int]], Any]


def kinds_of(cls: type) -> Mapping[str, str]:
    """The kinds of the fields of a statement class; empty for a field of no kind, such as a body."""
    return _kinds_of(cls)


@cache
def _kinds_of(cls: type) -> Mapping[str, str]:
    return {name: _TYPES.get(hint, "") for name, hint in get_type_hints(cls).items()}


def _kind(hint: Any) -> str:
    if hint not in _TYPES:
        raise TypeError(f"the text form knows no way to write a {hint}")
    return _TYPES[hint]


def _read_name(line: Line, ranks: dict[str, int]) -> str:
    if not line.token.isidentifier() or line.token in RESERVED:
        raise line.expected("a name")
    return line.next()


def _read_int(line: Line, ranks: dict[str, int]) -> int:
    negative = line.accept("-")
    if not line.token.isdigit():
        raise line.expected("an integer")
    return int(line.next()) * (-1 if negative else 1)


def _read_float(line: Line, ranks: dict[str, int]) -> float:
    sign = -1.0 if line.accept("-") else 1.0
    if not (line.token[:1].isdigit() or line.token in RESERVED):
        raise line.expected("a number")
    return sign * float(line.next())


def _read_string(line: Line, ranks: dict[str, int]) -> str:
    try:
        value = json.loads(line.token)
    except ValueError:
        raise line.expected("a string in double quotes with JSON escapes") from None
    if not isinstance(value, str):
        raise line.expected("a string in double quotes")
    line.next()
    return value


def _show_string(value: str) -> str:
    return json.dumps(value, ensure_ascii=not value.isprintable())


def _read_ints(line: Line, ranks: dict[str, int]) -> Coord:
    if line.token == "-" and not line.ahead.isdigit():
        line.next()
        return ()
    out = [_read_int(line, ranks)]
    while line.token == "," and (line.ahead.isdigit() or line.ahead == "-"):  # else it separates operands
        line.next()
        out.append(_read_int(line, ranks))
    return tuple(out)


def _show_ints(value: Coord) -> str:
    return ",".join(map(str, value)) or "-"


def _read_bases(line: Line, ranks: dict[str, int]) -> tuple[Coord, ...]:
    out = [_read_ints(line, ranks)]
    while line.token.isdigit() or line.token == "-":
        out.append(_read_ints(line, ranks))
    return () if out == [()] else tuple(out)


def _show_bases(value: tuple[Coord, ...]) -> str:
    return " ".join(map(_show_ints, value)) or "-"


def _read_list(line: Line, read: Callable[[Line, dict[str, int]], Any], ranks: dict[str, int]) -> tuple[Any, ...]:
    """``[item, item]``."""
    line.expect("[")
    out: list[Any] = []
    while not line.accept("]"):
        if out:
            line.expect(",", "']'")
        out.append(read(line, ranks))
    return tuple(out)


def _show_list(show: Callable[[Any], str]) -> Callable[[Any], str]:
    return lambda value: f"[{', '.join(map(show, value))}]"


def _read_expr(line: Line, ranks: dict[str, int], level: int = 0) -> Expr:
    try:
        value, line.at = parse_tokens(line.tokens, line.at, level)
    except Unexpected as e:
        raise line.error(str(e), e.at) from None
    return value


def _read_dtype(line: Line, ranks: dict[str, int]) -> DType:
    if line.token not in DTYPES:
        raise line.expected(f"one of the types {', '.join(DTYPES)}")
    return DTYPES[line.next()]


def _read_swizzle(line: Line, ranks: dict[str, int]) -> Swizzle:
    start = line.at
    values = _read_ints(line, ranks)
    if len(values) != 3 or min(values) < 0:
        raise line.error("expected bits,base,shift of the swizzle", start)
    return Swizzle(*values)


def _read_direction(line: Line, ranks: dict[str, int]) -> Direction:
    if line.token not in [d.value for d in Direction]:
        raise line.expected("'in', 'out' or 'inout'")
    return Direction(line.next())


def _read_args(line: Line, ranks: dict[str, int]) -> tuple[str | float, ...]:
    out: list[str | float] = []
    while not out or line.accept(","):
        named = line.token.isidentifier() and line.token not in RESERVED
        if not named and line.token != "-" and not line.token[:1].isdigit() and line.token not in RESERVED:
            raise line.expected("a register or a number")
        out.append(_read_name(line, ranks) if named else _read_float(line, ranks))
    return tuple(out)


def _show_args(value: tuple[str | float, ...]) -> str:
    return ", ".join(v if isinstance(v, str) else repr(float(v)) for v in value)


def _read_slot(line: Line, ranks: dict[str, int]) -> tir.Slot:
    if line.token not in ranks:
        raise line.expected("a buffer" + (f" (declared: {', '.join(ranks)})" if ranks else " (none is declared)"))
    buffer = line.next()
    cursor = None
    if line.accept("["):
        cursor = tir.Name(_read_name(line, ranks))
        line.expect("]")
    origin: Coord = (0,) * ranks[buffer]
    if line.accept("@"):
        start = line.at
        origin = _read_ints(line, ranks)
        if len(origin) != ranks[buffer]:
            raise line.error(f"expected {ranks[buffer]} coordinates, one per axis of {buffer}", start)
    transposed = line.accept(".")
    if transposed:
        line.expect("T")
    return tir.Slot(tir.Name(buffer), cursor, origin, transposed)


def _show_slot(slot: tir.Slot) -> str:
    cursor = f"[{slot.cursor}]" if slot.cursor is not None else ""
    origin = f"@{_show_ints(slot.origin)}" if any(slot.origin) else ""
    return f"{slot.buffer}{cursor}{origin}{'.T' * slot.transposed}"


# In a window '<' separates origin and bound, so both are written with operators that bind tighter.
_BOUND_LEVEL = PRECEDENCE["<"] + 1


@dataclass(frozen=True)
class _Extent:
    """One axis of a window."""

    origin: Expr
    bound: Expr | None
    fixed: bool = False
    below: bool = False
    rows: str = ""


def _read_extent(line: Line, ranks: dict[str, int]) -> _Extent:
    if line.accept("@"):
        register = _read_name(line, ranks)
        line.expect("<")
        return _Extent(Int(0), _read_expr(line, ranks, _BOUND_LEVEL), rows=register)
    fixed = line.accept("=")
    start = line.at
    origin = _read_expr(line, ranks, _BOUND_LEVEL)
    below = line.accept("<=")
    if below and origin != Int(0):
        raise line.error("expected 0 as the lower bound of a window", start)
    origin = _read_expr(line, ranks, _BOUND_LEVEL) if below else origin
    return _Extent(origin, _read_expr(line, ranks, _BOUND_LEVEL) if line.accept("<") else None, fixed, below)


def _read_window(line: Line, ranks: dict[str, int]) -> tir.Window:
    tensor = tir.Name(_read_name(line, ranks))
    start = line.at
    axes: tuple[_Extent, ...] = _read_list(line, _read_extent, ranks)
    rows = [tir.Rows(i, tir.Name(a.rows)) for i, a in enumerate(axes) if a.rows]
    if len(rows) > 1:
        raise line.error("expected one gathered axis per window", start)
    return tir.Window(
        tensor,
        tuple(a.origin for a in axes),
        tuple(a.bound for a in axes),
        tuple(i for i, a in enumerate(axes) if a.fixed),
        tuple(i for i, a in enumerate(axes) if a.below),
        rows[0] if rows else None,
    )


def _show_window(window: tir.Window) -> str:
    def tight(e: Expr) -> str:
        loose = isinstance(e, Bin) and e.op not in FUNCTIONS and PRECEDENCE[e.op] < _BOUND_LEVEL
        return f"({e})" if loose else str(e)

    def start(axis: int, origin: Expr) -> str:
        if window.rows is not None and window.rows.axis == axis:
            return f"@{window.rows.register}"
        return "=" * (axis in window.fixed) + "0 <= " * (axis in window.below) + tight(origin)

    pairs = zip_longest(window.origin, window.bounds[: len(window.origin)])
    axes = [start(i, o) + ("" if b is None else f" < {tight(b)}") for i, (o, b) in enumerate(pairs)]
    return f"{window.tensor}[{', '.join(axes)}]"


KINDS: dict[str, Kind] = {
    "name": Kind("a letter or _, then letters, digits and _; not inf or nan", str, _read_name),
    "int": Kind("[-] digits", str, _read_int),
    "float": Kind("a decimal number, inf or nan", lambda v: repr(float(v)), _read_float),
    "string": Kind("a JSON string", _show_string, _read_string),
    "ints": Kind("int,int,...; - when empty", _show_ints, _read_ints),
    "bases": Kind("one ints per bit, lowest first; - when there are none", _show_bases, _read_bases),
    "extents": Kind("[int, ...]", _show_list(str), lambda line, r: _read_list(line, _read_int, r)),
    "expr": Kind("see Expressions", str, _read_expr),
    "exprs": Kind("[expr, ...]", _show_list(str), lambda line, r: _read_list(line, _read_expr, r)),
    "dtype": Kind(" | ".join(DTYPES), str, _read_dtype),
    "swizzle": Kind("bits,base,shift", lambda s: f"{s.bits},{s.base},{s.shift}", _read_swizzle),
    "direction": Kind(" | ".join(d.value for d in Direction), lambda v: v.value, _read_direction),
    "flag": Kind("present or not", lambda v: "", lambda line, r: True),
    "args": Kind("name or float, separated by commas", _show_args, _read_args),
    "slot": Kind(
        "buffer, [cursor] of a ring, @int,... for an origin other than 0, .T when transposed", _show_slot, _read_slot
    ),
    "window": Kind(
        "tensor[axis, ...], an axis being [=] origin, origin < bound, 0 <= origin < bound or @register < bound",
        _show_window,
        _read_window,
    ),
}

_TYPES: dict[Any, str] = {
    tir.Name: "name",
    int: "int",
    int | None: "int",
    float: "float",
    str: "string",
    Direction: "direction",
    DType: "dtype",
    Swizzle: "swizzle",
    Coord: "ints",
    tuple[Coord, ...]: "bases",
    Expr: "expr",
    tuple[Expr, ...]: "exprs",
    tuple[tir.Name | float, ...]: "args",
    tir.Slot: "slot",
    tir.Window: "window",
}
