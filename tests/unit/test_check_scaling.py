"""The checker's time grows with the number of statements, and not with a power of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from scaled import repeated
from stopwatch import least_seconds

from tidegate.check import check
from tidegate.ir import tir
from tidegate.ir.text import parse_kernel

KERNELS = Path(__file__).parents[1] / "mutants" / "kernels"


def seconds(kernel: tir.Kernel, tries: int) -> float:
    def safe() -> None:
        verdict = check(kernel)
        assert verdict.safe, verdict.text()

    return least_seconds(safe, tries)


@pytest.mark.parametrize(("name", "inside"), [("transpose_bar", False), ("tma_ring", False), ("tma_ring", True)])
def test_ten_times_the_statements_take_less_than_fifteen_times_as_long(name: str, inside: bool) -> None:
    kernel = parse_kernel((KERNELS / f"{name}.tir").read_text())
    small, large = repeated(kernel, 5, inside), repeated(kernel, 50, inside)
    seconds(small, 1)  # what is computed once, is computed here
    assert seconds(large, 2) < 15 * seconds(small, 3)
