"""The text form keeps everything: random kernels over the whole vocabulary, and text that is broken at random."""

from __future__ import annotations

import math
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.errors import UnreadableTir
from tidegate.ir import tir
from tidegate.ir.direction import Direction
from tidegate.ir.dtypes import DTYPES
from tidegate.ir.expr import FUNCTIONS, PRECEDENCE, Bin, Expr, Int, Sym
from tidegate.ir.layout import Layout, Swizzle
from tidegate.ir.spec import verify
from tidegate.ir.text import SECTIONS, kinds_of, parse_kernel, print_kernel

BUFFERS = {"t": 2, "ring": 3, "flat": 1}  # name: rank
WORDS = ("x", "acc", "min", "line", "bytes", "T", "layout", "body", "_0", "copy2")

ints = st.integers(-(10**6), 10**6)
names = st.sampled_from(WORDS)
shapes = st.lists(ints, max_size=4).map(tuple)
exprs: st.SearchStrategy[Expr] = st.recursive(
    ints.map(Int) | names.map(Sym),
    lambda inner: st.builds(Bin, st.sampled_from((*PRECEDENCE, *FUNCTIONS)), inner, inner),
    max_leaves=6,
)
numbers = st.floats(allow_nan=False)


def per_rank(n: int) -> st.SearchStrategy[tuple[int, ...]]:
    return st.lists(ints, min_size=n, max_size=n).map(tuple)


slots = st.sampled_from(sorted(BUFFERS)).flatmap(
    lambda name: st.builds(tir.Slot, st.just(name), st.none() | names, per_rank(BUFFERS[name]), st.booleans())
)


@st.composite
def _windows(draw: st.DrawFn) -> tir.Window:
    """Axes of every form; at most one is gathered."""
    axes = draw(st.lists(st.tuples(exprs, st.none() | exprs, st.booleans(), st.booleans()), max_size=3))
    rows = draw(st.none() | st.integers(0, len(axes) - 1)) if axes else None
    if rows is not None:
        axes[rows] = (Int(0), draw(exprs), False, False)
    return tir.Window(
        draw(names),
        tuple(origin for origin, *_ in axes),
        tuple(bound for _, bound, *_ in axes),
        tuple(axis for axis, (*_, fixed, _) in enumerate(axes) if fixed),
        tuple(axis for axis, (*_, below) in enumerate(axes) if below),
        None if rows is None else tir.Rows(rows, draw(names)),
    )


windows = _windows()
swizzles = st.builds(Swizzle, *[st.integers(0, 9)] * 3)
KINDS: dict[str, st.SearchStrategy[Any]] = {
    "name": names,
    "int": ints,
    "float": numbers,
    "string": st.text(),
    "ints": shapes,
    "dtype": st.sampled_from(sorted(DTYPES.values(), key=str)),
    "swizzle": swizzles,
    "direction": st.sampled_from(Direction),
    "expr": exprs,
    "exprs": st.lists(exprs, max_size=3).map(tuple),
    "args": st.lists(names | numbers, min_size=1, max_size=3).map(tuple),
    "slot": slots,
    "window": windows,
}
FLAGS: dict[type, dict[str, st.SearchStrategy[Any]]] = {
    tir.Param: {"strided": st.booleans()},
    tir.Scalar: {"argument": st.booleans()},
    tir.GridAxis: {"backwards": st.booleans()},
    tir.Move: {"transposed": st.booleans()},
}
layouts = st.integers(1, 3).flatmap(
    lambda n: st.builds(
        Layout,
        shapes,
        *[st.lists(per_rank(n), max_size=6).map(tuple)] * 3,
        shapes,
        st.booleans(),
    )
)


def built(cls: type, **given: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Instances with every field drawn by its kind."""
    kinds = kinds_of(cls)
    return st.builds(cls, **{f.name: given[f.name] if f.name in given else KINDS[kinds[f.name]] for f in fields(cls)})


def statement(cls: type[tir.Stmt]) -> st.SearchStrategy[tir.Stmt]:
    own = {"line": st.just(0) | st.integers(1, 10**4), **FLAGS.get(cls, {})}
    if issubclass(cls, tir.Sync):
        own |= {"id": st.just("") | names}
    return built(cls, **own)


def bodies(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    body = st.lists(inner, max_size=3).map(tuple)
    return st.one_of(
        built(tir.For, body=body, line=st.integers(0, 9)),
        built(tir.If, body=body, line=st.integers(0, 9)),
        built(tir.InRole, body=body, line=st.integers(0, 9)),
    )


statements = st.recursive(st.sampled_from(tir.INSTRUCTIONS).flatmap(statement), bodies, max_leaves=8)


def kernels() -> st.SearchStrategy[tir.Kernel]:
    def buffers() -> st.SearchStrategy[Any]:
        return st.tuples(*(built(tir.Buffer, name=st.just(n), shape=per_rank(r)) for n, r in BUFFERS.items()))

    def many(section: str, cls: type) -> st.SearchStrategy[Any]:
        if cls is tir.Buffer:
            return buffers()
        if cls is tir.Dim:
            return st.lists(built(cls, value=st.none() | ints), max_size=2).map(tuple)
        item = st.tuples(names, layouts) if cls is Layout else built(cls, **FLAGS.get(cls, {}))
        return st.lists(item, max_size=2).map(tuple)

    sections = {section: many(section, cls) for section, cls in SECTIONS.items()}
    body = st.lists(statements, max_size=4).map(tuple)
    return st.builds(tir.Kernel, name=names, target=names, warps=ints, smem=ints, body=body, **sections)


@given(kernels())
@settings(max_examples=150)
def test_every_kernel_reads_back(kernel: tir.Kernel) -> None:
    text = print_kernel(kernel)
    parsed = parse_kernel(text)
    assert parsed == kernel
    assert print_kernel(parsed) == text


@pytest.mark.parametrize("cls", tir.INSTRUCTIONS, ids=lambda cls: cls.__name__)
def test_every_instruction_reads_back(cls: type[tir.Instruction]) -> None:
    @given(statement(cls))
    @settings(max_examples=12)
    def check(stmt: tir.Stmt) -> None:
        buffers = tuple(
            tir.Buffer(tir.Name(n), DTYPES["f32"], (8,) * r, 1, 0, 0, Swizzle()) for n, r in BUFFERS.items()
        )
        empty = dict.fromkeys(SECTIONS, ())
        kernel = tir.Kernel(
            name=tir.Name("k"), target=tir.Name("sm_80"), warps=1, smem=0, **{**empty, "buffers": buffers}, body=(stmt,)
        )
        text = print_kernel(kernel)
        assert parse_kernel(text) == kernel
        assert print_kernel(parse_kernel(text)) == text

    check()


def test_not_a_number_is_written_and_read() -> None:
    assert math.isnan(parse_kernel("kernel k target t warps 1 smem 0\nbody {\nfill x <- nan\n}").body[0].value)


@given(kernels(), st.data())
@settings(max_examples=150)
def test_broken_text_is_refused_with_a_place(kernel: tir.Kernel, data: st.DataObject) -> None:
    """Cut, repeated or foreign text is either a kernel (which the specification can then judge) or a located error."""
    text = print_kernel(kernel)
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 12)))
    patch = data.draw(
        st.sampled_from(("", "\n", "{", "}", "[", "]", '"', "-", "1e9", "9" * 40, "@", ".T", ",", "(", "é"))
    )
    broken = text[:start] + patch * data.draw(st.integers(1, 3)) + text[end:]
    parsed = located(broken)
    if parsed is not None:
        assert parse_kernel(print_kernel(parsed)) == parsed or "nan" in broken
        verify(parsed)


EXAMPLES = re.findall(
    r"```tir\n(.*?)```", (Path(__file__).parents[2] / "docs" / "tir.md").read_text(encoding="utf-8"), re.DOTALL
)


@given(st.sampled_from(EXAMPLES), st.data())
@settings(max_examples=150)
def test_legal_text_with_words_exchanged_is_judged(text: str, data: st.DataObject) -> None:
    """Near legal kernels reach the later rules of the specification, which must judge them without failing."""
    words = re.findall(r"\w+|\W", text)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.sampled_from([i for i, w in enumerate(words) if w.isalnum()]))
        words[at] = data.draw(st.sampled_from([w for w in words if w.isdigit() == words[at].isdigit() and w.isalnum()]))
    parsed = located("".join(words))
    if parsed is not None:
        for violation in verify(parsed):
            assert violation.where
            assert violation.message


def located(text: str) -> tir.Kernel | None:
    """The kernel, or None when an error says where the text is wrong."""
    try:
        return parse_kernel(text)
    except UnreadableTir as refusal:
        error = refusal
    assert error.span is not None
    assert error.span.text == text.split("\n")[error.span.line - 1]
    assert 0 <= error.span.column <= len(error.span.text)
    return None
