"""What the planner concludes from conditions: of each other, of sizes, and of the trips of loops."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from math import inf
from typing import Any

import pytest
from judging import without

import tidegate as tg
from tidegate import cuda
from tidegate.check import check
from tidegate.ir import tir
from tidegate.ir.expr import Bin, Expr, Int, Sym, add, binary, evaluate, mul, parse
from tidegate.plan.conditions import Conditions

RANGES = {"i": (0, inf), "j": (0, 5), "s": (-inf, inf)}


@pytest.mark.parametrize(
    ("condition", "given", "truth"),
    [
        ("i < 3", ("2 < i",), False),
        ("3 <= i", ("2 < i",), True),
        ("2 * i == 3", (), False),
        ("0 <= i", (), True),
        ("0 <= s", (), None),
        ("j < 6", (), True),
        ("i % 3 == 1", ("i % 3 == 2",), False),
        ("i % 2 == 0", ("i == 4",), True),
        ("i < s", ("s < i",), False),
        ("i + 1 < cdiv(n, 32)", ("cdiv(n, 32) <= i + 1",), False),
        ("s < i", ("i <= s || j == 7",), False),
        ("i < 3", ("j < 2",), None),
        ("i * s < 3", ("i == 0",), None),
    ],
)
def test_a_condition_is_decided_by_what_holds(condition: str, given: tuple[str, ...], truth: bool | None) -> None:
    assert Conditions(RANGES).truth(parse(condition), frozenset(map(parse, given))) is truth


def test_no_answer_is_wrong() -> None:
    """Against all values near 0; that of the others no answer is known either way is not asked."""
    rng = random.Random(0)
    conditions = Conditions(RANGES)
    points = [dict(zip("ijs", p, strict=True)) for p in itertools.product(range(20), range(6), range(-12, 20))]
    decided = 0
    for _ in range(250):
        given = frozenset(_random(rng) for _ in range(rng.randrange(4)))
        condition = _random(rng)
        truth = conditions.truth(condition, given)
        if truth is not None:
            decided += 1
            found = {bool(evaluate(condition, p)) for p in points if all(evaluate(e, p) for e in given)}
            assert found <= {truth}, (str(condition), [str(e) for e in given])
    assert decided > 40


def _random(rng: random.Random) -> Expr:
    name = Sym(rng.choice("ijs"))
    if rng.random() < 0.2:
        rest = binary("%", add(mul(name, rng.randint(1, 2)), rng.randrange(3)), rng.randint(2, 3))
        return Bin(rng.choice(("==", "!=")), rest, Int(rng.randrange(3)))
    a = add(mul(name, rng.choice((1, 1, 2, 3))), rng.randint(-2, 2))
    b = rng.choice((Int(rng.randint(-3, 7)), Sym(rng.choice("ijs")), add(mul(Sym(rng.choice("ijs")), 2), 1)))
    e = binary(rng.choice(("<", "<=", "==", "!=")), *((a, b) if rng.random() < 0.5 else (b, a)))
    return binary(rng.choice(("&&", "||")), e, _random(rng)) if rng.random() < 0.2 else e


# ------------------------------------------------------------------------------------------ plans


@tg.kernel(warps=2)
def exclusive(x: tg.Tensor["N", 16, "f32"], y: tg.Out["N", 16, "f32"]):
    """The tile is read where the first condition holds; where it does not, nothing has to be complete."""
    for m in tg.grid(tg.tiles("N", 16)):
        t = tg.load(x[m, :], by=cuda.cp_async(), to="shared")
        if m < 3:
            y[m, :] = t.T
            if m > 3:
                y[m, :] = t.T + 1.0
        if m < 1:
            y[m, :] = t.T * 2.0


@tg.kernel(warps=2)
def later_trips(x: tg.Tensor["N", 16, "f32"], y: tg.Out["N", 16, "f32"]):
    """The tile is read in every trip: by the time the condition holds, in the third, that has been waited for."""
    t = tg.load(x[0:16, :], by=cuda.cp_async(), to="shared")
    for i in tg.tiles("N", 16):
        if 2 * i > 3:
            y[i, :] = t.T + 1.0
        y[i, :] = t.T


@tg.kernel(warps=2)
def same_count(counts: tg.Tensor[4, "i32"], x: tg.Tensor[16, 16, "f32"], y: tg.Out[16, 16, "f32"]):
    """Both loops run, or none."""
    t = tg.load(x[:, :], by=cuda.cp_async(), to="shared")
    for _ in tg.range(tg.load(counts[1])):
        y[:, :] = t.T
    for _ in tg.range(tg.load(counts[1])):
        y[:, :] = t.T + 1.0


@pytest.mark.parametrize("producer", ["in_order", "multistage"])
@pytest.mark.parametrize("kernel", [exclusive, later_trips, same_count])
def test_no_sync_that_the_outcomes_of_conditions_do_not_need(kernel: Any, producer: str) -> None:
    lowered = kernel.compile(target="sm_80", plan=producer).kernel
    verdict = check(lowered)
    assert verdict.safe, verdict.text()
    for sync in (s for s in tir.walk(lowered.body) if isinstance(s, tir.Sync)):
        assert check(replace(lowered, body=without(lowered.body, sync))).status == "unsafe", sync
