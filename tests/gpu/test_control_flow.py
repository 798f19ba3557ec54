"""Kernels with integers, scalars and conditions on the GPU equal their plain programs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_control import CASES, Case, both, long_rows, scattered
from test_examples import to_numpy, to_torch
from watch import launch

from tidegate.ops.plain import rounding_bound


@pytest.mark.parametrize("producer", ["in_order", "multistage"])
@pytest.mark.parametrize("stages", [1, 2, 3])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_equals_plain(gpu: Any, case: Case, stages: int, producer: str) -> None:
    options: dict[str, Any] = {"STAGES": stages} if case.staged else {}
    program = case.kernel.program(**options)
    for given in case.arguments(np.random.default_rng(2)):
        wanted = np.full(case.shape(*given), 7, program.tensors[-1].dtype.numpy)
        got = to_torch(wanted.copy())
        case.kernel.plain(*given, wanted, **options)
        bound = rounding_bound(program, dict(zip(program.order, (*given, wanted), strict=True)))[program.order[-1]]
        arguments = [to_torch(a) if isinstance(a, np.ndarray) else a for a in given]
        launch(case.kernel, *arguments, got, plan=producer, **options)
        found = to_numpy(got, wanted.dtype).astype("f8")
        assert (np.abs(found - wanted.astype("f8")) <= bound).all()


def test_another_number_needs_no_other_kernel(gpu: Any) -> None:
    x = np.arange(64, dtype="f2").reshape(4, 16)
    for n in (3, -2, 5):
        y, wanted = np.empty_like(x), np.empty_like(x)
        both(x, n, y)
        both.plain(x, n, wanted)
        assert np.array_equal(y, wanted)
    compiled = {id(v) for v in both.launches.values()}
    tensor, out = to_torch(x), to_torch(np.empty_like(x))
    both(tensor, 9, out)
    both(tensor, 10, out)
    assert len({id(v) for v in both.launches.values()} - compiled) <= 1
    both.plain(x, 10, wanted)
    assert np.array_equal(to_numpy(out, wanted.dtype), wanted)


def test_elements_of_64_bits(gpu: Any) -> None:
    x, row = np.arange(80, dtype="f4").reshape(5, 16), np.array([3, 2**32 + 1, -(2**40), -1, 5], "i8")
    y, wanted = (np.full((5, 16), 7, "f4") for _ in range(2))
    long_rows(x, row, y)
    long_rows.plain(x, row, wanted)
    assert np.array_equal(y, wanted)


def test_floats_of_python_and_numpy(gpu: Any) -> None:
    x, row = np.ones((5, 16), "f4"), np.array([4, 1], "i4")
    for alpha in (0.1, np.float32(0.1), np.float64(0.1)):
        y, wanted = (np.zeros((2, 5, 16), "f4") for _ in range(2))
        scattered(x, row, alpha, 9, y)
        scattered.plain(x, row, alpha, 9, wanted)
        assert np.array_equal(y, wanted)
