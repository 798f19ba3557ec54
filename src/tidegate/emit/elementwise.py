"""Arithmetic on register tiles: computed in f32, rounded to nearest even into the destination's type."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from tidegate.emit.access import thread_coordinate
from tidegate.emit.affine import Affine
from tidegate.emit.context import Context, plus
from tidegate.errors import NotEmittable
from tidegate.ir import tir
from tidegate.ir.dtypes import DType
from tidegate.ir.elementwise import operand_dtype
from tidegate.ir.expr import Bin
from tidegate.ir.registers import folded_registers, source_registers

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
}


INTEGER: dict[str, str] = {
    "neg": "int(0u - u32({0}))",
    "add": "int(u32({0}) + u32({1}))",
    "sub": "int(u32({0}) - u32({1}))",
    "mul": "int(u32({0}) * u32({1}))",
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
undefined in C++; those of u32 wrap."""


def emit_fill(cx: Context, s: tir.Fill) -> list[str]:
    register = cx.kernel.register(s.dst)
    count = cx.layouts[register.layout].registers
    name = cx.name("register", s.dst)
    if register.dtype.size == 4:
        value = literal(s.value) if register.dtype.floating else integer_literal(s.value)
        return _loop(count, f"{name}[{{0}}] = {value};", cx)
    with np.errstate(over="ignore"):
        bits = int(np.array(s.value).astype(register.dtype.numpy).view(np.uint16))
    return _loop(_words(count), f"{name}[{{0}}] = {bits << 16 | bits:#x};", cx)


def emit_map(cx: Context, s: tir.Map) -> list[str]:
    types = [cx.kernel.register(tir.Name(a)).dtype if isinstance(a, str) else None for a in s.args]
    kind = operand_dtype(s.op, types, cx.kernel.register(s.dst).dtype).kind
    template = (INTEGER.get(s.op) if kind == "integer" else None) or OPERATIONS.get(s.op)
    if template is None:
        raise NotEmittable(what=f"map {s.dst} <- {s.op}: no such operation", advice=f"use {', '.join(OPERATIONS)}")
    return _elementwise(cx, s.dst, s.args, template, integers=kind != "float")


def emit_positions(cx: Context, s: tir.Positions) -> list[str]:
    layout, name = cx.register_layout(s.dst), cx.name("register", s.dst)
    thread = thread_coordinate(cx, layout, 0, cx.kernel.register(s.dst).layout)
    steps = np.array([c[0] for c in layout.register_origins()])
    start = plus(cx.cpp(s.origin) if not isinstance(s.origin, Bin) else f"({cx.cpp(s.origin)})", thread)
    values = {"i": np.arange(len(steps)), "j": steps}
    return cx.unrolled(values, lambda f: [f"{name}[{f['i']}] = {plus(start, str(f['j']))};"])


def emit_cast(cx: Context, s: tir.Cast) -> list[str]:
    return _elementwise(cx, s.dst, (s.src,), "{0}")


def emit_move(cx: Context, s: tir.Move | tir.Slice | tir.Spread) -> list[str]:
    """Renames registers. The compiler forwards them, so this costs nothing."""
    register = cx.kernel.register(s.dst)
    table = np.array(source_registers(cx.kernel, s))
    dst, src = cx.name("register", s.dst), cx.name("register", s.src)
    if register.dtype.size == 4:
        return cx.unrolled({"i": np.arange(len(table)), "j": table}, lambda f: [f"{dst}[{f['i']}] = {src}[{f['j']}];"])
    low, high = table[::2], np.append(table[1::2], table[-1:]) if len(table) % 2 else table[1::2]
    words = np.arange(len(low))
    if not (low % 2).any() and (high == low + 1).all():
        return cx.unrolled({"i": words, "j": low // 2}, lambda f: [f"{dst}[{f['i']}] = {src}[{f['j']}];"])

    def half(register: int) -> str:
        return f"{'high' if register % 2 else 'low'}_half({src}[{register // 2}])"

    return [f"{dst}[{i}] = pair({half(a)}, {half(b)});" for i, a, b in zip(words, low, high, strict=True)]


FOLDS = {"sum": "add", "max": "maximum", "min": "minimum"}
"""The operation that a reduction repeats."""


def emit_reduce(cx: Context, s: tir.Reduce) -> list[str]:
    layout, result = cx.register_layout(s.src), cx.register_layout(s.dst)
    groups = np.array(folded_registers(layout, result, s.axis))
    dst, src = cx.name("register", s.dst), cx.name("register", s.src)
    into = np.arange(len(groups))
    step = (OPERATIONS if cx.kernel.register(s.src).dtype.floating else INTEGER)[FOLDS[s.fold]]
    lines = cx.unrolled({"i": into, "j": groups[:, 0]}, lambda f: [f"{dst}[{f['i']}] = {src}[{f['j']}];"])

    def fold(f: Mapping[str, Affine]) -> list[str]:
        into, element = f"{dst}[{f['i']}]", f"{src}[{f['j']}]"
        return [f"{into} = {step.format(into, element)};"]

    if groups.shape[1] > 1:
        rest = groups[:, 1:]
        lines += cx.unrolled({"i": np.broadcast_to(into[:, None], rest.shape), "j": rest}, fold)
    for bit, basis in enumerate(layout.lane):
        if basis[s.axis]:
            value = step.format(f"{dst}[{{0}}]", f"exchange({dst}[{{0}}], {1 << bit})")
            lines += _loop(len(groups), f"{dst}[{{0}}] = {value};", cx)
    return lines


def _elementwise(
    cx: Context, dst: str, args: tuple[str | float, ...], template: str, integers: bool = False
) -> list[str]:
    """dst = template(args) for every register: one by one, or in pairs where 16-bit elements are packed."""
    register = cx.kernel.register(tir.Name(dst))
    count = cx.layouts[register.layout].registers
    name = cx.name("register", dst)
    types = [cx.kernel.register(tir.Name(a)).dtype if isinstance(a, str) else None for a in args]

    def value(index: str, half: int | None) -> str:
        operands = (_operand(cx, a, t, index, half, integers) for a, t in zip(args, types, strict=True))
        return template.format(*operands)

    if all(t is None or t.size == 4 for t in types) and register.dtype.size == 4:
        return _loop(count, f"{name}[{{0}}] = {value('{0}', None)};", cx)
    lines = _loop_lines(count // 2, lambda i: _pair(name, register.dtype, i, value(i, 0), value(i, 1)), cx)
    if count % 2:
        last = str(count // 2)
        lines += _pair(name, register.dtype, last, value(last, 0), "")
    return lines


def _pair(name: str, dtype: DType, index: str, low: str, high: str) -> list[str]:
    """Lines that assign elements 2 * index and 2 * index + 1 (no second one where ``high`` is empty)."""
    if dtype.size == 2:
        return [f"{name}[{index}] = to_{dtype}x2({low}, {high or '0.0f'});"]
    second = [f"{name}[2 * {index} + 1] = {high};"] if high else []
    return [f"{name}[2 * {index}] = {low};", *second]


def _operand(cx: Context, arg: str | float, dtype: DType | None, index: str, half: int | None, integers: bool) -> str:
    if not isinstance(arg, str) or dtype is None:
        text = integer_literal(float(arg)) if integers else literal(float(arg))
        return f"({text})" if text.startswith("-") else text
    name = cx.name("register", arg)
    if half is None:
        return f"{name}[{index}]"
    if dtype.size == 4:
        return f"{name}[2 * {index}{' + 1' * half}]"
    return f"from_{dtype}({('low_half', 'high_half')[half]}({name}[{index}]))"


def _words(count: int) -> int:
    return (count + 1) // 2


def _loop(count: int, line: str, cx: Context) -> list[str]:
    return _loop_lines(count, lambda i: [line.format(i)], cx)


def _loop_lines(count: int, body: Callable[[str], list[str]], cx: Context) -> list[str]:
    if not count:
        return []
    return cx.unrolled({"i": np.arange(count)}, lambda forms: body(str(forms["i"])))


def integer_literal(value: float) -> str:
    """C++ of a number of type int, which -2147483648 is not: it is a negated long."""
    return str(int(value)) if value > -(2**31) else "-2147483647 - 1"


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
