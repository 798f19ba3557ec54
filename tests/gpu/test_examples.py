"""Every example on the GPU equals its plain program within the stated rounding bound."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cases import Case, cases, inputs, load
from watch import launch

import tidegate as tg
from tidegate.errors import CopyAlignment
from tidegate.ops.plain import rounding_bound
from tidegate.target.target import find

OF_ML_DTYPES = ("bfloat16", "float8_e4m3fn", "float8_e5m2")


def to_torch(array: np.ndarray) -> Any:
    """The array on the GPU; NumPy and torch share no name for some types, so their bytes go over."""
    torch = pytest.importorskip("torch")
    if array.dtype.name in OF_ML_DTYPES:
        return torch.from_numpy(array.view(f"i{array.itemsize}")).view(getattr(torch, array.dtype.name)).cuda()
    return torch.from_numpy(array).cuda()


def to_numpy(tensor: Any, dtype: np.dtype) -> np.ndarray:
    if dtype.name in OF_ML_DTYPES:
        import torch

        return tensor.view({1: torch.int8, 2: torch.int16}[dtype.itemsize]).cpu().numpy().view(dtype)
    return tensor.cpu().numpy()


@pytest.mark.parametrize("case", list(cases()), ids=str)
def test_example_equals_plain(gpu: Any, case: Case) -> None:
    kernel = getattr(load(case.file), case.kernel)
    if case.kernel == "gemm_fp8" and not find(gpu.arch).fact("float8_mma"):
        pytest.skip(f"{gpu.arch} does not multiply 8-bit floats")
    options = dict(case.options)
    constants = {k: v for k, v in options.items() if k != "plan"}
    program = kernel.program(**constants)
    arrays = inputs(program, dict(case.sizes))
    tensors = [to_torch(a.copy()) if isinstance(a, np.ndarray) else a for a in arrays.values()]
    try:
        launch(kernel, *tensors, **options)
    except CopyAlignment:
        assert any(size % 2 for _, size in case.sizes)
        assert case.kernel != "gemm_v0"
        return
    plain = {name: a.copy() if isinstance(a, np.ndarray) else a for name, a in arrays.items()}
    kernel.plain(*plain.values(), **constants)
    bounds = rounding_bound(program, arrays, find(gpu.arch))
    for name, tensor in zip(arrays, tensors, strict=True):
        if name in bounds:
            got = to_numpy(tensor, plain[name].dtype).astype(np.float64)
            want = plain[name].astype(np.float64)
            same = (np.isnan(got) & np.isnan(want)) | (np.abs(got - want) <= bounds[name])
            assert np.all(same), f"{name} differs"


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


FACTOR = 2.0


def test_a_changed_module_constant_is_seen_by_the_next_call(gpu: Any) -> None:
    torch = pytest.importorskip("torch")
    x = torch.ones(4, 32, device="cuda")
    y = torch.empty_like(x)
    for factor in (2.0, 3.0, 2.0):
        globals()["FACTOR"] = factor
        launch(scaled, x, y)
        assert torch.equal(y, x * factor)


def test_misaligned_tensors_get_a_kernel_of_their_own(gpu: Any) -> None:
    torch = pytest.importorskip("torch")
    storage = torch.arange(4 * 32 + 1, device="cuda", dtype=torch.float32)
    y = torch.empty(4, 32, device="cuda")
    for start in (0, 1, 0):
        x = storage[start : start + 128].view(4, 32)
        launch(scaled, x, y)
        assert torch.equal(y, x * FACTOR)


@tg.kernel(warps=1)
def scaled(x: tg.Tensor["R", 32, "f32"], y: tg.Out["R", 32, "f32"]):
    for r in tg.grid(tg.tiles("R", 4)):
        y[r, :] = tg.load(x[r, :]) * FACTOR
