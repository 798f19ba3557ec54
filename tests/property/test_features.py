"""Every language feature in random programs: refused in the author's terms, or legal, safe, and equal to plain."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from features import FEATURES, FeatureProgram
from features.judge import judge, seeded, simulated
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from judging import without
from strategies import Chooser

from tidegate.ir import tir

EXAMPLES = 8
"""Programs per feature; benchmarks/feature_programs.py runs any number."""


def programs(feature: str) -> st.SearchStrategy[FeatureProgram]:
    @st.composite
    def drawn(draw: st.DrawFn) -> FeatureProgram:
        return FEATURES[feature](Chooser(lambda n: draw(st.integers(0, n - 1))))

    return drawn()


@pytest.mark.parametrize("feature", FEATURES)
def test_programs_of_a_feature_are_refused_or_right(feature: str) -> None:
    @settings(max_examples=EXAMPLES, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(programs(feature))
    def right(program: FeatureProgram) -> None:
        found = "\n".join(f"{kind}: {text}" for kind, text in judge(program).faults)
        assert not found, f"{program}\n{found}"

    right()


@pytest.mark.parametrize("feature", FEATURES)
def test_most_programs_of_a_feature_are_accepted(feature: str) -> None:
    refused = [o.refusal for seed in range(10) if (o := judge(seeded(feature, seed), run=lambda *_: [])).refusal]
    assert len(refused) < 4, "\n".join(refused)


def test_a_broken_kernel_is_found_wrong() -> None:
    """Without its barriers a ring that others read is unsafe for the checker and wrong on the simulator."""

    def broken(program: FeatureProgram, kernel: Any, compiled: Any, seed: int, outcome: Any) -> list[tuple[str, str]]:
        body = compiled.kernel.body
        for sync in [s for s in tir.walk(body) if isinstance(s, tir.SyncBlock)]:
            body = without(body, sync)
        compiled.__dict__["kernel"] = replace(compiled.kernel, body=body)
        return simulated(program, kernel, compiled, seed, outcome)

    kinds = {kind for seed in range(8) for kind, _ in judge(seeded("transposes", seed), seed, broken).faults}
    assert {"unsafe", "simulation", "value"} <= kinds
