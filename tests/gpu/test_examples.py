"""Every example on the GPU equals its plain program within the stated rounding bound."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cases import Case, cases, inputs, load
from watch import launch

from tidegate.errors import CopyAlignment
from tidegate.ops.plain import rounding_bound


def to_torch(array: np.ndarray) -> Any:
    torch = pytest.importorskip("torch")
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16).cuda()
    return torch.from_numpy(array).cuda()


def to_numpy(tensor: Any, dtype: np.dtype) -> np.ndarray:
    if dtype.name == "bfloat16":
        import torch

        return tensor.view(torch.int16).cpu().numpy().view(dtype)
    return tensor.cpu().numpy()


@pytest.mark.parametrize("case", list(cases()), ids=str)
def test_example_equals_plain(gpu: Any, case: Case) -> None:
    kernel = getattr(load(case.file), case.kernel)
    options = dict(case.options)
    constants = {k: v for k, v in options.items() if k != "plan"}
    program = kernel.program(**constants)
    arrays = inputs(program, dict(case.sizes))
    tensors = [to_torch(arrays[t.name].copy()) for t in program.tensors]
    try:
        launch(kernel, *tensors, **options)
    except CopyAlignment:
        assert any(size % 2 for _, size in case.sizes)
        assert case.kernel != "gemm_v0"
        return
    plain = {name: array.copy() for name, array in arrays.items()}
    kernel.plain(*plain.values(), **constants)
    bounds = rounding_bound(program, arrays)
    for tensor, parameter in zip(tensors, program.tensors, strict=True):
        if parameter.output:
            got = to_numpy(tensor, parameter.dtype.numpy).astype(np.float64)
            want = plain[parameter.name].astype(np.float64)
            assert np.all(np.abs(got - want) <= bounds[parameter.name]), f"{parameter.name} differs"


def test_numpy_arrays_are_copied_to_the_gpu_and_back(gpu: Any) -> None:
    kernel = load("row_ring").row_ring
    x = np.random.default_rng(1).standard_normal((7, 128)).astype(np.float32)
    y = np.empty_like(x)
    kernel(x, y)
    assert np.array_equal(y, x * 2)


def test_a_second_call_with_new_sizes_reuses_the_compiled_kernel(gpu: Any) -> None:
    kernel = load("row_ring").row_ring
    before = {id(v) for v in kernel.launches.values()}
    for rows in (3, 5, 7):
        x = np.ones((rows, 128), np.float32)
        y = np.empty_like(x)
        kernel(x, y)
        assert np.array_equal(y, 2 * x)
    assert len({id(v) for v in kernel.launches.values()} - before) <= 1
