"""Arithmetic on register tiles: computed in f32, rounded to nearest even into the destination's type."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from tidegate.emit.access import thread_coordinate
from tidegate.emit.affine import Affine
from tidegate.emit.context import Context, plus
from tidegate.emit.registers import assignment, bits, packed, value, words
from tidegate.errors import NotEmittable
from tidegate.ir import tir
from tidegate.ir.dtypes import F32, I32, I64, DType
from tidegate.ir.elementwise import operand_dtype
from tidegate.ir.layout import Layout
from tidegate.ir.registers import folded_registers, neutral, source_registers
from tidegate.ops.convert import constant

# C++ of each operation on f32 operands and on masks. The program is compiled without contraction to fma, so each
# rounds once.
OPERATIONS: dict[str, str] = {
    "neg": "-{0}",
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "floor_divide": "floor_quotient({0}, {1})",
    "remainder": "floor_remainder({0}, {1})",
    "maximum": "maximum({0}, {1})",
    "minimum": "minimum({0}, {1})",
    "less": "{0} < {1}",
    "less_equal": "{0} <= {1}",
    "greater": "{0} > {1}",
    "greater_equal": "{0} >= {1}",
    "equal": "{0} == {1}",
    "not_equal": "{0} != {1}",
    "logical_and": "{0} & {1}",
    "logical_or": "{0} | {1}",
    "logical_xor": "{0} ^ {1}",
    "logical_not": "!{0}",
    "where": "{0} ? {1} : {2}",
    "isnan": "isnan({0})",
    "isinf": "isinf({0})",
    "isfinite": "isfinite({0})",
    "abs": "fabsf({0})",
    "sign": "sign({0})",
    "floor": "floorf({0})",
    "ceil": "ceilf({0})",
    "trunc": "truncf({0})",
    "round": "rintf({0})",
    "sqrt": "__fsqrt_rn({0})",
    "rsqrt": "reciprocal_root({0})",
    "exp2": "power_of_two({0})",
    "exp": "expf({0})",
    "expm1": "expm1f({0})",
    "log2": "log2f({0})",
    "log": "logf({0})",
    "log1p": "log1pf({0})",
    "sin": "sinf({0})",
    "cos": "cosf({0})",
    "tanh": "tanhf({0})",
    "erf": "erff({0})",
    "tf32": "to_tf32({0})",
}


INTEGER: dict[str, str] = {
    "neg": "negated({0})",
    "add": "{T}({U}({0}) + {U}({1}))",
    "sub": "{T}({U}({0}) - {U}({1}))",
    "mul": "{T}({U}({0}) * {U}({1}))",
    "floor_divide": "int_floor_divide({0}, {1})",
    "remainder": "int_remainder({0}, {1})",
    "maximum": "max({0}, {1})",
    "minimum": "min({0}, {1})",
    "abs": "magnitude({0})",
    "sign": "({0} > 0) - ({0} < 0)",
    "bitwise_and": "{0} & {1}",
    "bitwise_or": "{0} | {1}",
    "bitwise_xor": "{0} ^ {1}",
    "bitwise_not": "~{0}",
    "left_shift": "shift_left({0}, {1})",
    "right_shift": "shift_right({0}, {1})",
}
"""C++ of the operations that are written differently on integers, or on them alone. Signed results that do not fit are
undefined in C++; those of the unsigned type U wrap, and T is the signed one."""

WIDTHS = {I32: {"T": "int", "U": "u32"}, I64: {"T": "i64", "U": "u64"}}
"""The types that integers are computed in."""


def emit_fill(cx: Context, s: tir.Fill) -> list[str]:
    dtype = cx.kernel.register(s.dst).dtype
    count = words(dtype, cx.register_layout(s.dst).registers)
    element = constant(s.value, dtype)
    if dtype.per_word > 1:
        pattern = int(element.view(f"u{dtype.size}"))
        text = f"{sum(pattern << 8 * dtype.size * i for i in range(dtype.per_word)):#x}"
    else:
        text = number(s.value, dtype.computed)
    return _loop(count, f"{cx.name('register', s.dst)}[{{0}}] = {text};", cx)


def emit_map(cx: Context, s: tir.Map) -> list[str]:
    types = [cx.kernel.register(tir.Name(a)).dtype if isinstance(a, str) else None for a in s.args]
    meant = operand_dtype(s.op, types, cx.kernel.register(s.dst).dtype)
    template = (INTEGER.get(s.op) if meant.integer else None) or OPERATIONS.get(s.op)
    if template is None:
        raise NotEmittable(what=f"map {s.dst} <- {s.op}: no such operation", advice=f"use {', '.join(OPERATIONS)}")
    return _elementwise(cx, s.dst, s.args, template, meant.computed)


def emit_splat(cx: Context, s: tir.Splat) -> list[str]:
    count, name = cx.register_layout(s.dst).registers, cx.name("register", s.dst)
    return _loop(count, f"{name}[{{0}}] = {cx.cpp(s.value)};", cx)


def emit_positions(cx: Context, s: tir.Positions) -> list[str]:
    layout, name = cx.register_layout(s.dst), cx.name("register", s.dst)
    thread = thread_coordinate(cx, layout, 0, cx.kernel.register(s.dst).layout)
    steps = np.array([c[0] for c in layout.register_origins()])
    start = plus(cx.cpp(s.origin), thread)
    values = {"i": np.arange(len(steps)), "j": steps}
    return cx.unrolled(values, lambda f: [f"{name}[{f['i']}] = {plus(start, str(f['j']))};"])


def emit_cast(cx: Context, s: tir.Cast) -> list[str]:
    source, target = (cx.kernel.register(r).dtype for r in (s.src, s.dst))
    if target.kind == "mask" and source.kind != "mask":
        return _elementwise(cx, s.dst, (s.src,), "{0} != 0")
    # C++ converts the other pairs as it should: integers to nearest even, and to fewer bits modulo their number.
    return _elementwise(cx, s.dst, (s.src,), f"to_{target}({{0}})" if source.floating and target.integer else "{0}")


def emit_move(cx: Context, s: tir.Move | tir.Slice | tir.Spread) -> list[str]:
    """Renames registers. The compiler forwards them, so this costs nothing."""
    dtype = cx.kernel.register(s.dst).dtype
    table = np.array(source_registers(cx.kernel, s))
    dst, src = cx.name("register", s.dst), cx.name("register", s.src)
    size = dtype.per_word
    table = np.append(table, table[-1:].repeat(-len(table) % size)).reshape(-1, size)
    first, rest = table[:, 0], table - table[:, :1]
    if not (first % size).any() and (rest == np.arange(size)).all():
        values = {"i": np.arange(len(table)), "j": first // size}
        return cx.unrolled(values, lambda f: [f"{dst}[{f['i']}] = {src}[{f['j']}];"])

    def part(register: int) -> str:
        if size == 4:
            return bits(dtype, src, str(register))
        return f"{'high' if register % 2 else 'low'}_half({src}[{register // 2}])"

    return [f"{dst}[{i}] = {packed([part(int(r)) for r in row])};" for i, row in enumerate(table)]


FOLDS = {"sum": "add", "max": "maximum", "min": "minimum"}
"""The operation that a reduction repeats."""


def emit_reduce(cx: Context, s: tir.Reduce) -> list[str]:
    layout, result = cx.register_layout(s.src), cx.register_layout(s.dst)
    groups = np.array(folded_registers(layout, result, s.axis))
    src, dst, into = cx.name("register", s.src), cx.name("register", s.dst), np.arange(len(groups))
    dtype = cx.kernel.register(s.src).dtype
    step = (OPERATIONS if dtype.floating else INTEGER)[FOLDS[s.fold]]
    types = WIDTHS.get(dtype, {})
    places = np.array([origin[s.axis] for origin in layout.register_origins()])
    thread = thread_coordinate(cx, layout, s.axis, cx.kernel.register(s.src).layout) if s.below else "0"

    def folded(columns: np.ndarray, partly: bool, first: bool) -> list[str]:
        """Some registers of each group, one after the other; the first of all begins the result."""

        def fold(f: Mapping[str, Affine]) -> list[str]:
            one, target = f"{src}[{f['j']}]", f"{dst}[{f['i']}]"
            if partly:
                one = f"{plus(thread, str(f['c']))} < {s.below} ? {one} : {number(neutral(s.fold, dtype), dtype)}"
            return [f"{target} = {one if first else step.format(target, f'({one})' if partly else one, **types)};"]

        chosen = groups[:, columns]
        values = {"i": np.broadcast_to(into[:, None], chosen.shape), "j": chosen}
        return cx.unrolled({**values, "c": places[chosen]} if partly else values, fold)

    lines: list[str] = []
    for partly, columns in _stretches(layout, s, places[groups[0]]):
        begun = 0 if lines else 1
        lines += folded(columns[:begun], partly, True) if begun else []
        lines += folded(columns[begun:], partly, False) if len(columns) > begun else []
    for bit, basis in enumerate(layout.lane):
        if basis[s.axis]:
            exchanged = step.format(f"{dst}[{{0}}]", f"exchange({dst}[{{0}}], {1 << bit})", **types)
            lines += _loop(len(groups), f"{dst}[{{0}}] = {exchanged};", cx)
    return lines


def _stretches(layout: Layout, s: tir.Reduce, places: np.ndarray) -> Iterator[tuple[bool, np.ndarray]]:
    """Which of the registers that lie at ``places`` along the axis, for thread 0, count: runs of those that do in all
    threads, and of those that do only in some (True)."""
    reach = sum(basis[s.axis] for basis in (*layout.lane, *layout.warp))
    below = s.below or layout.shape[s.axis]
    partly = places + reach >= below
    counting = np.flatnonzero(places < below)
    for some, run in itertools.groupby(counting, key=lambda column: bool(partly[column])):
        yield some, np.array(list(run))


def _elementwise(
    cx: Context, dst: str, args: tuple[str | float, ...], template: str, computed: DType = F32
) -> list[str]:
    """dst = template(args) for every element: as many at a time as share a word of any of the tiles. Numbers are
    of the type ``computed``."""
    register = cx.kernel.register(tir.Name(dst))
    dtype, count, name = register.dtype, cx.layouts[register.layout].registers, cx.name("register", dst)
    types = [cx.kernel.register(tir.Name(a)).dtype if isinstance(a, str) else None for a in args]
    together = max(t.per_word for t in (*types, dtype) if t is not None)

    def one(index: str, element: int) -> str:
        operands = (_operand(cx, a, t, index, element, together, computed) for a, t in zip(args, types, strict=True))
        return template.format(*operands, **WIDTHS.get(computed, {}))

    def lines(index: str, elements: int) -> list[str]:
        out = []
        for first in range(0, elements, dtype.per_word):
            values = [one(index, e) for e in range(first, min(first + dtype.per_word, elements))]
            out.append(assignment(dtype, name, _word(index, first, together, dtype), values))
        return out

    full, left = divmod(count, together)
    written = _loop_lines(full, lambda i: lines(i, together), cx)
    return [*written, *(lines(str(full), left) if left else [])]


def _word(index: str, element: int, together: int, dtype: DType) -> str:
    """Where a tile's array has an element of group ``index``, of ``together`` elements."""
    step, at = together // dtype.per_word, element // dtype.per_word
    if index.isdigit():
        return str(step * int(index) + at)
    return f"{index if step == 1 else f'{step} * {index}'}{f' + {at}' if at else ''}"


def _operand(
    cx: Context, arg: str | float, dtype: DType | None, index: str, element: int, together: int, computed: DType
) -> str:
    if not isinstance(arg, str) or dtype is None:
        text = number(float(arg), computed)
        return f"({text})" if text.startswith("-") else text
    word = _word(index, element, together, dtype)
    return value(dtype, cx.name("register", arg), word, element % dtype.per_word)


def _loop(count: int, line: str, cx: Context) -> list[str]:
    return _loop_lines(count, lambda i: [line.format(i)], cx)


def _loop_lines(count: int, body: Callable[[str], list[str]], cx: Context) -> list[str]:
    if not count:
        return []
    return cx.unrolled({"i": np.arange(count)}, lambda forms: body(str(forms["i"])))


def number(value: float | int, computed: DType) -> str:
    """C++ of a number of the type that an operation computes in. The smallest integer has no literal of its type."""
    if computed.floating:
        return literal(value)
    suffix = "ll" if computed == I64 else ""
    whole = int(value)
    smallest = -(2 ** (8 * computed.size - 1))
    return f"{whole}{suffix}" if whole > smallest else f"{smallest + 1}{suffix} - 1"


def literal(value: float) -> str:
    """C++ of an f32 number."""
    with np.errstate(over="ignore", under="ignore"):
        number = np.float32(value)
    if np.isnan(number):
        return "__int_as_float(0x7fc00000)"
    if np.isinf(number):
        return f"__int_as_float({0x7F800000 if number > 0 else 0xFF800000:#x})"
    text = np.format_float_scientific(number, trim="0") if number and not 1e-4 <= abs(number) < 1e7 else f"{number}"
    return f"{text}f"
