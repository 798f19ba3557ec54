"""Plan and TIR text of the examples: a change here is a change for users, to be read before it is committed."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidegate.ir.text import parse_kernel

EXAMPLES = Path(__file__).parents[2] / "examples"
GEMM = {"BM": 128, "BN": 256, "BK": 64, "STAGES": 4, "warps": 8}  # pinned: the defaults follow measurements

CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "row_stage": ("row_stage", "row_stage", {}),
    "row_ring": ("row_ring", "row_ring", {}),
    "transpose.in_order": ("transpose", "transpose", {"STAGES": 3, "plan": "in_order"}),
    "transpose.multistage": ("transpose", "transpose", {"STAGES": 3, "plan": "multistage"}),
    "gemm_v2": ("gemm", "gemm_v2", GEMM),
    "gemm_i8": ("gemm_i8", "gemm_i8", {"BM": 64, "BN": 64, "BK": 32, "STAGES": 2, "warps": 4}),
}


def example(file: str, kernel: str) -> Any:
    spec = importlib.util.spec_from_file_location(file, EXAMPLES / f"{file}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, kernel)


@pytest.mark.parametrize("name", CASES)
def test_plan_and_tir_of_the_examples(name: str, golden: Callable[[str, str], None]) -> None:
    file, kernel, options = CASES[name]
    compiled = example(file, kernel).compile(target="sm_90", **options)
    golden(f"{name}.plan.txt", str(compiled.plan))
    golden(f"{name}.tir", compiled.tir)
    assert parse_kernel(compiled.tir) == compiled.kernel
