"""The text form by example, its errors, and docs/tir.md."""

from __future__ import annotations

import re
from dataclasses import MISSING, fields
from pathlib import Path

import numpy as np
import pytest

from tidegate.check import check
from tidegate.errors import UnreadableTir
from tidegate.ir import tir
from tidegate.ir.dtypes import BF16, DTYPES
from tidegate.ir.expr import Int, parse
from tidegate.ir.spec import verify
from tidegate.ir.text import KINDS, kinds_of, parse_kernel, print_kernel, print_stmt, template
from tidegate.ir.vocabulary import regenerate
from tidegate.simulate import simulate

DOC = Path(__file__).parents[2] / "docs" / "tir.md"

CANONICAL = """\
kernel transpose target sm_80 warps 1 smem 4096
dim M multiple 16
dim N = 64
param a f32 [M, N] in align 16
param b f32 [N, M] out align 16
grid m < cdiv(M, 32)
layout copy [32, 32] reg 0,1 0,2 lane 0,4 0,8 0,16 1,0 2,0 warp - rep 8,1
layout frag [16, 16] reg 0,1 8,0 0,8 lane 0,2 0,4 1,0 2,0 4,0 warp 0,0 rep 1,1 replicated
buffer t f32 [32, 32] stages 1 at 0 stride 4096 swizzle 3,4,3
buffer ring f32 [8, 8] stages 4 at 0 stride 256
mbarrier full stages 4 count 1 at 8192
cursor r depth 4
register x f32 layout copy
role producer warps 0 count 1 registers 40
role consumer warps 1 count 2
body {
  for n = 0 .. cdiv(N, 32) line 3 {
    cp_async t <- a[m * 32 < M, n * 32] layout copy bytes 16 line 9
    cp_commit #s0 "publishes t"
    cp_wait 0 #s1 "t: copy before \\"read\\" // not a comment"
    sync_warp "why alone" line 4
    ld_shared x <- t.T bytes 16
    ld_shared x <- ring[r]@0,16.T bytes 16
    fill x <- -inf
    map x <- add x, -1.5
    st_global b[n * 32, (m < 2) < min(M, 3)] <- x bytes 16
    bar_sync 1 warps 0,1
    wait full[r] flip 1
    if n + 1 < cdiv(N, 32) {
      in producer {
      }
    }
  }
}
"""


RING = "buffer s f16 [] stages 2 at 0 stride 8 swizzle"


def kernel_of(*lines: str) -> str:
    return "\n".join(["kernel k target sm_80 warps 1 smem 64", "buffer t f16 [4, 4] stages 1 at 0 stride 32", *lines])


def body_of(*lines: str) -> str:
    return kernel_of("body {", *lines, "}")


def test_canonical_text_reads_back() -> None:
    assert print_kernel(parse_kernel(CANONICAL)) == CANONICAL


def test_layout_of_the_text_does_not_matter() -> None:
    loose = CANONICAL.replace("  ", "\t ").replace(", ", " ,").replace("\n", "   // a remark\n\n")
    assert parse_kernel("// first\n" + loose) == parse_kernel(CANONICAL)


def test_operands() -> None:
    slot, window = tir.Slot("t", None, (0, 0)), tir.Window("a", (Int(0), parse("i + 1")), (parse("M"), None))
    (stmt,) = parse_kernel(body_of("cp_async t <- a[0 < M, i + 1] layout c bytes 4")).body
    assert stmt == tir.CpAsync(dst=slot, src=window, layout="c", bytes=4)
    (stmt,) = parse_kernel(body_of("stmatrix t[u]@2,0.T <- x")).body
    assert stmt == tir.StMatrix(tir.Slot("t", "u", (2, 0), transposed=True), "x")
    assert print_stmt(stmt) == "stmatrix t[u]@2,0.T <- x"
    assert print_stmt(tir.Sync.__subclasses__()[0](id="s", why="w", line=2)) == 'cp_commit #s "w" line 2'
    assert print_stmt(tir.For("i", Int(0), Int(3), ())) == "for i = 0 .. 3 {"


@pytest.mark.parametrize("cls", tir.INSTRUCTIONS, ids=lambda c: c.__name__)
def test_every_field_is_written(cls: type[tir.Instruction]) -> None:
    """A field that the syntax leaves out would be lost in the text."""
    parts = [p for part in template(cls) for p in (part, *part.group)]
    assert {p.field for p in parts if p.field} == {f.name for f in fields(cls)}
    required = {f.name for f in fields(cls) if f.default is MISSING}
    assert all(kinds_of(cls)[name] in KINDS for name in required)
    assert set(cls.reads) | set(cls.writes) <= required
    assert cls.__doc__
    assert not cls.__doc__.startswith(cls.__name__ + "("), "no docstring of its own"


def test_every_instruction_has_its_own_first_word() -> None:
    words = [cls.syntax.split()[0] for cls in tir.INSTRUCTIONS]
    assert len(set(words)) == len(words)
    assert not {"for", "if", "in"} & set(words)


@pytest.mark.parametrize(
    ("text", "line", "column", "what"),
    [
        ("", 1, 0, "expected 'kernel', found the end of the line"),
        ("body {\n}", 1, 0, "expected 'kernel', found 'body'"),
        ("kernel k target sm_80 warps one smem 0", 1, 28, "expected an integer, found 'one'"),
        ("kernel k target sm_80 warps 1 smem 0", 1, 36, "expected 'body {', found the end of the text"),
        (body_of("cp_wait"), 4, 7, "expected an integer, found the end of the line"),
        (body_of("cp_comit"), 4, 0, "expected a statement or '}', found 'cp_comit'"),
        (body_of("  ldmatrix x <- q"), 4, 16, "expected a buffer (declared: t), found 'q'"),
        (body_of("ldmatrix x <- t@1"), 4, 16, "expected 2 coordinates, one per axis of t"),
        (body_of("ldmatrix x <- t.S"), 4, 16, "expected 'T', found 'S'"),
        (body_of("ldmatrix x <- t t"), 4, 16, "expected the end of the line, found 't'"),
        (body_of("st_global a[1 2] <- x bytes 4"), 4, 14, "expected ',' or ']', found '2'"),
        (body_of("st_global a[1, * 2] <- x bytes 4"), 4, 15, "expected a number or a name, found '*'"),
        (body_of("if (n {"), 4, 6, "expected ')', found '{'"),
        (body_of("for n = 0 .. {"), 4, 13, "expected a number or a name, found '{'"),
        (body_of("fill x <- y"), 4, 10, "expected a number, found 'y'"),
        (body_of("map x <- add"), 4, 12, "expected a register or a number, found the end of the line"),
        (body_of("mov inf <- x"), 4, 4, "expected a name, found 'inf'"),
        (body_of('sync_warp "no end'), 4, 10, "a string does not end"),
        (body_of('sync_warp "\\q"'), 4, 10, "expected a string in double quotes with JSON escapes, found '\"\\\\q\"'"),
        (body_of("cp_wait 1234567890123456789"), 4, 8, "a number has at most 18 digits"),
        (body_of("cp_wait ?"), 4, 8, "no token begins with '?'"),
        (body_of("if 1 {", "}", "}"), 7, 0, "expected the end of the text: the body is closed"),
        (kernel_of("body {", "if 1 {"), 4, 6, "expected '}', found the end of the text"),
        (kernel_of("regster x f16 layout c"), 3, 0, "expected a declaration or 'body {', found 'regster'"),
        (kernel_of("register x f8 layout c"), 3, 11, f"expected one of the types {', '.join(DTYPES)}, found 'f8'"),
        (kernel_of("param a f16 [M] both align 2"), 3, 16, "expected 'in', 'out' or 'inout', found 'both'"),
        (kernel_of(RING + " 1"), 3, 47, "expected bits,base,shift of the swizzle"),
        (kernel_of(RING), 3, 46, "expected an integer, found the end of the line"),
    ],
)  # fmt: skip
def test_errors_say_where_and_what(text: str, line: int, column: int, what: str) -> None:
    with pytest.raises(UnreadableTir) as caught:
        parse_kernel(text, file="k.tir")
    error = caught.value
    assert error.text == what
    assert error.span is not None
    assert (error.span.file, error.span.line, error.span.column) == ("k.tir", line, column)


def test_a_misspelt_word_is_corrected() -> None:
    with pytest.raises(UnreadableTir) as caught:
        parse_kernel(body_of("cp_comit"))
    assert caught.value.next_step == "'cp_commit' instead"
    assert "4 | cp_comit\n   | ^^^^^^^^" in str(caught.value)


@pytest.mark.parametrize(
    "line",
    [
        "if " + "(" * 200 + "1" + ")" * 200 + " {",
        "if " + "(" * 295 + " {",
        "if " + "1 + " * 500 + "1 {",
        "if 1 {\n" * 500,
    ],
    ids=["parentheses", "open", "sum", "blocks"],
)
def test_endless_nesting_is_refused(line: str) -> None:
    with pytest.raises(UnreadableTir):
        parse_kernel(body_of(line))


def test_the_longest_expression_is_read_and_written() -> None:
    text = body_of("if " + "1 - (" * 70 + "1" + ")" * 70 + " {", "}")
    assert parse_kernel(print_kernel(parse_kernel(text))) == parse_kernel(text)


def test_document_is_up_to_date() -> None:
    document = DOC.read_text(encoding="utf-8")
    assert regenerate(document) == document, "run: python -m tidegate.ir.vocabulary docs/tir.md"
    assert all(f"`{cls.syntax.split()[0]}" in document for cls in tir.INSTRUCTIONS)


def test_examples_of_the_document_are_legal() -> None:
    examples = re.findall(r"```tir\n(.*?)```", DOC.read_text(encoding="utf-8"), re.DOTALL)
    assert examples
    for text in examples:
        kernel = parse_kernel(text)
        assert verify(kernel) == []
        assert parse_kernel(print_kernel(kernel)) == kernel


@pytest.mark.parametrize("completion", ["early", "late"])
def test_the_complete_example_computes_the_product(completion: str) -> None:
    (text,) = re.findall(r"```tir\n(.*?)```", DOC.read_text(encoding="utf-8"), re.DOTALL)
    kernel = parse_kernel(text)
    assert check(kernel).safe
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-8, 9, shape).astype(BF16.numpy) for shape in ((20, 40), (40, 24)))
    result = simulate(kernel, {"a": a, "b": b}, completion=completion)
    assert np.array_equal(result.outputs["c"], a.astype(np.float32) @ b.astype(np.float32))
