"""Random programs of every language feature on the GPU equal their plain programs."""

from __future__ import annotations

import os
from typing import Any

import pytest
from features import FEATURES
from features.judge import Judgement, seeded
from features.workers import Job, judge_all

SEEDS = 8
"""Per feature; benchmarks/feature_programs.py --gpu runs any number."""


@pytest.mark.timeout(900)
def test_programs_of_every_feature_equal_plain_on_the_gpu(gpu: Any) -> None:
    found: list[str] = []

    def report(job: Job, outcome: Judgement) -> None:
        found.extend(f"{job}: {kind}: {text}\n{seeded(*job)}" for kind, text in outcome.faults)

    jobs = [(feature, seed) for feature in FEATURES for seed in range(SEEDS)]
    judge_all(jobs, True, min(os.cpu_count() or 1, 8), report)
    assert not found, "\n".join(found[:5])
