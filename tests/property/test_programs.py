"""Random scheduled programs, by both producers: refused in the author's terms, or legal, safe, right and tight."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, event, given, settings
from judging import VARIANTS, judge
from strategies import RandomProgram, programs, seeded

RUNS = int(os.environ.get("TIDEGATE_RANDOM_PROGRAMS", "220"))
"""Programs per test; benchmarks/random_programs.py runs any number and counts what it finds."""


# Shrinking such programs takes minutes and gains little: they are small, and the report names variant and statement.
@settings(
    max_examples=RUNS, phases=(Phase.explicit, Phase.reuse, Phase.generate), suppress_health_check=list(HealthCheck)
)
@given(programs())
def test_random_programs_are_refused_or_right(program: RandomProgram) -> None:
    outcome = judge(program, variants=VARIANTS)
    event(outcome.refusal.split(":")[0] or "accepted")
    faults = "\n".join(f"{kind}: {text}" for kind, text in outcome.faults)
    assert not outcome.faults, f"{program}\n{faults}"


def test_most_random_programs_are_accepted() -> None:
    refused = [o.refusal for seed in range(60) if (o := judge(seeded(seed), variants=())).refusal]
    assert len(refused) < 10, refused
