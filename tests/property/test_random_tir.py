"""Random hand-written TIR: what a simulation shows to be wrong is never called safe."""

from __future__ import annotations

import os
from collections import Counter

import pytest
from generators import GENERATORS
from random_tir_judge import judge

RUNS = int(os.environ.get("TIDEGATE_RANDOM_TIR", "80"))
"""Programs per generator; benchmarks/random_tir.py runs any number and counts what it finds."""


@pytest.mark.parametrize("maker", GENERATORS)
def test_no_program_with_a_fault_is_called_safe(maker: str) -> None:
    seen: Counter[str] = Counter()
    for seed in range(5000, 5000 + RUNS):
        found = judge(maker, seed)
        assert not found.wrong, f"seed {seed}: {found.fault}\n{found.text}"
        seen[found.status] += 1
        seen["fault"] += bool(found.fault)
    assert seen["safe"]
    assert seen["fault"], "the simulator has seen no fault at all"
