"""Random scheduled programs, by both producers: refused in the author's terms, or legal, safe, right and tight."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from judging import VARIANTS, judge
from strategies import RandomProgram, programs, seeded

RUNS = int(os.environ.get("TIDEGATE_RANDOM_PROGRAMS", "300"))
"""Programs; benchmarks/random_programs.py runs any number and counts what it finds."""

PARTS = 60
"""Tests that workers share: some programs take many times as long as others."""


# Shrinking such programs takes minutes and gains little: they are small, and the report names variant and statement.
@pytest.mark.timeout(300)
@pytest.mark.parametrize("part", range(PARTS))
def test_random_programs_are_refused_or_right(part: int) -> None:
    for number in range(part, RUNS, PARTS):
        check_program(seeded(number), broken=number % 4 == 0)


@settings(
    max_examples=RUNS // 12,
    derandomize=True,  # the same in every run; benchmarks/random_programs.py looks further
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
@pytest.mark.timeout(300)
@given(program=programs())
def test_programs_that_hypothesis_draws_are_refused_or_right(program: RandomProgram) -> None:
    check_program(program)


def check_program(program: RandomProgram, broken: bool = True) -> None:
    outcome = judge(program, broken=broken)
    faults = "\n".join(f"{kind}: {text}" for kind, text in outcome.faults)
    assert not outcome.faults, f"{program}\n{faults}"


def test_most_random_programs_are_accepted() -> None:
    outcomes = [judge(seeded(seed), variants=VARIANTS[:1], broken=False) for seed in range(60)]
    assert sum(o.kernels for o in outcomes) > 50, [o.refusal for o in outcomes if o.refusal]
