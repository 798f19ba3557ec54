"""What the emitters share: the kernel, C++ names, and values computed once per thread."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from math import gcd

from tidegate.emit.affine import LOOP_NAMES, Body, Values, unrolled
from tidegate.emit.delays import Delays
from tidegate.emit.header import header_names
from tidegate.ir import tir
from tidegate.ir.expr import Expr, Int, Sym, least
from tidegate.ir.layout import Layout
from tidegate.ir.spec import signed

# Words of C++ and CUDA, then those that the emitted text itself uses.
RESERVED = frozenset(
    re.findall(
        r"\w+",
        """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char class compl const constexpr
    const_cast continue decltype default delete do double dynamic_cast else enum explicit export extern false float
    for friend goto if inline int long mutable namespace new noexcept not not_eq nullptr operator or or_eq private
    protected public register reinterpret_cast return short signed sizeof static static_assert static_cast struct
    switch template this thread_local throw true try typedef typeid typename union unsigned using virtual void
    volatile wchar_t while xor xor_eq threadIdx blockIdx blockDim gridDim warpSize smem shared tid warp cta outer band
    height tall from at v main min max isnan isinf isfinite fabsf floorf ceilf truncf rintf expf expm1f logf log2f
    log1pf sinf cosf tanhf erff fmodf copysignf ld_scalar char8_t char16_t char32_t NULL
    """,
    )
)

LOCAL = re.compile(r"(left|at)_\d+|frag_[abd]")
"""Names of locals that the emitters write."""


@dataclass
class Context:
    """State of one emission. ``declare`` puts a value that depends on the thread alone in front of the outermost
    statement that needs it, and gives equal values one name."""

    kernel: tir.Kernel
    delays: Delays | None = None
    place: int = 0
    """Statements written so far, which is what places delays."""
    _names: dict[tuple[str, str], str] = field(default_factory=dict)
    _taken: set[str] = field(default_factory=set)
    _hoisted: dict[tuple[str, str], str] = field(default_factory=dict)
    _pending: list[str] = field(default_factory=list)

    def name(self, kind: str, name: str) -> str:
        """The C++ name of the kernel's ``kind`` (size, param, register, buffer, cursor ...) called ``name``."""
        key = (kind, name)
        if key not in self._names:
            self._names[key] = self.fresh(name, f"_{kind}")
        return self._names[key]

    def pitch(self, param: tir.Param, axis: int) -> str:
        """The C++ name of the launch argument that is a tensor's stride along an axis."""
        return self.name(f"pitch {axis}", f"{param.name}_pitch{axis if len(param.shape) > 2 else ''}")

    def fresh(self, wanted: str, suffix: str = "_") -> str:
        """A C++ identifier that nothing else has, ``wanted`` if it can be."""
        name = f"v{wanted}" if wanted.startswith("__") else wanted  # those are the compiler's own
        while name in self._taken or name in RESERVED or name in header_names() or LOCAL.fullmatch(name):
            name += suffix
        self._taken.add(name)
        return name

    def declare(self, type_: str, wanted: str, value: str) -> str:
        """The name of a constant per thread with this value."""
        key = (type_, value)
        if key not in self._hoisted:
            self._hoisted[key] = self.fresh(wanted)
            self._pending.append(f"{type_} {self._hoisted[key]} = {value};")
        return self._hoisted[key]

    def take_declarations(self) -> list[str]:
        """What was declared since the last call."""
        taken, self._pending = self._pending, []
        return taken

    def unrolled(self, values: Values, body: Body) -> list[str]:
        """:func:`tidegate.emit.affine.unrolled` with loop variables that hide no name of the kernel."""
        return unrolled(values, body, self.loop_names)

    @cached_property
    def loop_names(self) -> str:
        k = self.kernel
        taken = {d.name for d in k.dims} | {a.name for a in k.grid} | {p.name for p in k.params}
        taken |= {s.index for s in tir.walk(k.body) if isinstance(s, tir.For)}
        taken |= {s.name for s in k.scalars} | {r.name for r in k.registers} | {b.name for b in k.buffers}
        return "".join(n for n in LOOP_NAMES if n not in taken)

    @cached_property
    def layouts(self) -> dict[str, Layout]:
        return {str(name): layout for name, layout in self.kernel.layouts}

    @cached_property
    def rings(self) -> dict[str, list[str]]:
        """Per cursor, the buffers of several slots that it moves through."""
        found: dict[str, list[str]] = {str(c.name): [] for c in self.kernel.cursors}
        several = {b.name for b in self.kernel.buffers if b.stages > 1}
        slots = [v for stmt in tir.walk(self.kernel.body) for v in vars(stmt).values() if isinstance(v, tir.Slot)]
        for slot in slots:
            if slot.cursor and slot.buffer in several and slot.buffer not in found[slot.cursor]:
                found[slot.cursor].append(slot.buffer)
        return found

    def offset_name(self, cursor: str, buffer: str) -> str:
        """C++ of the distance in bytes of the cursor's slot of ``buffer`` from the first.

        A running offset, so that it stays in a uniform register that loads take as it is.
        """
        return self.name(f"offset {cursor}", f"{buffer}_{cursor}") if buffer in self.rings[cursor] else "0"

    def register_layout(self, name: str) -> Layout:
        return self.layouts[self.kernel.register(tir.Name(name)).layout]

    # ------------------------------------------------------------------------------------------ size expressions

    @cached_property
    def signed(self) -> frozenset[str]:
        """Names of integers that may be negative."""
        return signed(self.kernel)

    @cached_property
    def fixed(self) -> dict[str, int]:
        return {str(d.name): d.value for d in self.kernel.dims if d.value is not None}

    def constant(self, e: Expr) -> int | None:
        """The value of an expression that the sizes fix."""
        if isinstance(e, Int):
            return e.value
        if isinstance(e, Sym):
            return self.fixed.get(e.name)
        return None

    def divisor(self, e: Expr) -> int:
        """A number known to divide e (0: e is zero)."""
        if isinstance(e, Int):
            return e.value
        if isinstance(e, Sym):
            dim = next((d for d in self.kernel.dims if d.name == e.name), None)
            return 1 if dim is None else dim.multiple if dim.value is None else dim.value
        a, b = self.divisor(e.a), self.divisor(e.b)
        if e.op == "*":
            return a * b
        return gcd(a, b) if e.op in ("+", "-", "min", "max") else 1

    def cpp(self, e: Expr) -> str:
        """C++ of an integer expression; operands of the languages' common operators keep their precedence."""
        return _Printer(self).show(e)[0]


ATOM = 9
LEVELS = {"||": -1, "&&": 0, "==": 1, "!=": 1, "<": 2, "<=": 2, "+": 3, "-": 3, "*": 4, "/": 4, "%": 4}


@dataclass(frozen=True)
class _Printer:
    cx: Context

    def show(self, e: Expr) -> tuple[str, int]:
        if isinstance(e, Int):
            if e.value <= -(2**31):  # has no literal of its type
                return f"({e.value + 1} - 1)", ATOM
            return (str(e.value), ATOM if e.value >= 0 else 5)
        if isinstance(e, Sym):
            return self.cx.name("size", e.name), ATOM
        (a, la), (b, lb) = self.show(e.a), self.show(e.b)
        if e.op in ("min", "max"):
            return f"{e.op}({a}, {b})", ATOM
        known = least(e.a, self.cx.signed) >= 0 and least(e.b, self.cx.signed) >= 0
        if e.op == "cdiv":
            return (f"ceil_div({a}, {b})" if known else f"-floor_div(-({a}), {b})"), (ATOM if known else 5)
        if e.op in ("/", "%") and not known:
            return f"floor_{'div' if e.op == '/' else 'mod'}({a}, {b})", ATOM
        level = LEVELS[e.op]
        left = f"({a})" if la < level else a
        right = f"({b})" if lb <= level else b
        return f"{left} {e.op} {right}", level


def plus(*terms: str) -> str:
    """The sum of C++ terms, zeros left out."""
    return " + ".join(_summand(t) for t in terms if t and t != "0") or "0"


def _summand(e: str) -> str:
    """e, in parentheses where one of its own operators binds less than +."""
    outer, depth = [], 0
    for c in e:
        depth -= c == ")"
        if not depth:
            outer.append(c)
        depth += c == "("
    return f"({e})" if LOOSER.search("".join(outer)) else e


LOOSER = re.compile(r" (<<|>>|[<>=!]=|&&|\|\||[&^|<>?:]) ")
"""Operators of C++ that bind less than +, as this package writes them: between spaces."""


def times(a: str, b: str) -> str:
    """The product of two C++ operands."""
    if "0" in (a, b):
        return "0"
    if "1" in (a, b):
        return b if a == "1" else a
    return f"{factor(a)} * {factor(b)}"


def factor(e: str) -> str:
    """e, in parentheses unless it is a name, a number or a call."""
    if re.fullmatch(r"[\w.]+", e):
        return e
    call = re.match(r"\w+\(", e)
    return e if call and _closes(e, call.end()) == len(e) else f"({e})"


def _closes(e: str, start: int) -> int:
    """The end of the parenthesis that opens before ``start``."""
    depth, at = 1, start
    while depth and at < len(e):
        depth += {"(": 1, ")": -1}.get(e[at], 0)
        at += 1
    return at


def guarded(condition: str, lines: Iterable[str]) -> list[str]:
    """``lines`` under ``if (condition)``; an empty condition holds always."""
    lines = list(lines)
    if not condition:
        return lines
    if lines[0] == "{":  # the scope of the condition will do
        lines = [line.removeprefix("  ") for line in lines[1:-1]]
    return [f"if ({condition}) {{", *("  " + line for line in lines), "}"]


def scoped(setup: list[str], lines: list[str]) -> list[str]:
    """``setup``, which declares locals, and ``lines`` in a scope of their own."""
    return ["{", *("  " + line for line in (*setup, *lines)), "}"] if setup else lines


def active(layout: Layout, lines: list[str]) -> list[str]:
    """``lines`` for the threads that hold elements."""
    return guarded(f"(tid & {layout.inactive_mask}) == 0" if layout.inactive_mask else "", lines)


Emitter = Callable[[Context, tir.Stmt], list[str]]
