"""Expressions: text, folding, evaluation."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tidegate.ir.expr import (
    FUNCTIONS,
    PRECEDENCE,
    Bin,
    Expr,
    Int,
    Sym,
    add,
    binary,
    cdiv,
    evaluate,
    least,
    less,
    mul,
    parse,
    substitute,
    symbols,
)

OPS = (*PRECEDENCE, *FUNCTIONS)
ENV = {"M": 7, "n": 3, "min": -2}

atoms = st.integers(-20, 20).map(Int) | st.sampled_from(sorted(ENV)).map(Sym)
exprs: st.SearchStrategy[Expr] = st.recursive(
    atoms, lambda inner: st.builds(Bin, st.sampled_from(OPS), inner, inner), max_leaves=8
)


def value(e: Expr, env: dict[str, int]) -> int | None:
    """The value, or None where a divisor is zero."""
    try:
        return evaluate(e, env)
    except ZeroDivisionError:
        return None


@given(exprs)
def test_text_reads_back(e: Expr) -> None:
    assert parse(str(e)) == e


@given(exprs)
def test_folding_keeps_the_value(e: Expr) -> None:
    expected = value(e, ENV)
    assume(expected is not None)
    folded = substitute(e, {name: Int(number) for name, number in ENV.items()})
    assert list(symbols(folded)) == []
    assert evaluate(folded, {}) == expected


@given(st.sampled_from(OPS), exprs, exprs)
def test_neutral_elements_keep_the_value(op: str, a: Expr, b: Expr) -> None:
    expected = value(Bin(op, a, b), ENV)
    assume(expected is not None)
    assert evaluate(binary(op, a, b), ENV) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("10 - 3 - 2", 5),
        ("7 / 2", 3),
        ("-7 / 2", -4),
        ("-7 % 4", 1),
        ("cdiv(7, 2)", 4),
        ("cdiv(-7, 2)", -3),
        ("min(M, n) + max(M, n)", 10),
        ("n < M && M <= 7", 1),
        ("n == 4", 0),
        ("n != 4", 1),
        ("2 && 4", 1),
        ("n - -1", 4),
    ],
)
def test_values(text: str, expected: int) -> None:
    assert evaluate(parse(text), ENV) == expected


@pytest.mark.parametrize(
    ("e", "text"),
    [
        (add(Sym("i"), 0), "i"),
        (mul(Sym("i"), 32), "i * 32"),
        (mul(add(Sym("i"), 1), 32), "(i + 1) * 32"),
        (mul(Sym("i"), 0), "0"),
        (cdiv(Sym("M"), 1), "M"),
        (cdiv(64, 32), "2"),
        (less(add(Sym("k"), 1), cdiv(Sym("K"), 16)), "k + 1 < cdiv(K, 16)"),
        (Bin("-", Sym("a"), Bin("-", Sym("b"), Sym("c"))), "a - (b - c)"),
        (Bin("/", Int(1), Int(0)), "1 / 0"),
    ],
)
def test_printed(e: Expr, text: str) -> None:
    assert str(e) == text


@given(exprs, st.lists(st.integers(0, 30), min_size=2, max_size=2), st.integers(-30, 30))
def test_nothing_is_less_than_the_least(e: Expr, natural: list[int], signed: int) -> None:
    found = value(e, {"M": natural[0], "n": natural[1], "min": signed})
    assert found is None or least(e, {"min"}) <= found


@pytest.mark.parametrize(
    ("text", "expected"),
    [("max(n - 5, 5 - n) + 1", 1), ("max(M - n, n - M)", 0), ("max(n - 3, 8 - n)", 3), ("cdiv(n + 1, 64)", 1)],
)
def test_the_least_is_close(text: str, expected: int) -> None:
    assert least(parse(text), {"n"} if "max" in text else ()) == expected


def test_division_by_zero_is_not_folded() -> None:
    assert binary("/", 1, 0) == Bin("/", Int(1), Int(0))
    assert binary("%", 1, 0) == Bin("%", Int(1), Int(0))


def test_symbols_in_order() -> None:
    assert list(symbols(parse("b * (a + b) < cdiv(c, 2)"))) == ["b", "a", "b", "c"]


@pytest.mark.parametrize(
    "text", ["", "1 +", "(1", "1)", "a b", "cdiv(1)", "cdiv(1, 2", "* 2", "a $ b", "- a", "min(,)"]
)
def test_bad_text(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|unexpected|cannot read"):
        parse(text)
