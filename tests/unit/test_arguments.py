"""What can be known of a launch without a GPU: arguments, grids, limits, and the answers where there is no driver."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from tidegate.errors import LaunchFailed, LaunchRefused, NoDriver, WrongArguments
from tidegate.ir import tir
from tidegate.ir.dtypes import BF16, DTYPES
from tidegate.ir.text import parse_kernel
from tidegate.runtime import driver
from tidegate.runtime.arguments import Binding, Described, bind, describe
from tidegate.runtime.compile import Cubin
from tidegate.runtime.device import Device, available
from tidegate.runtime.launch import Loaded, refuse_over_limit

KERNEL = parse_kernel(
    """
kernel k target sm_80 warps 8 smem 65536
dim M multiple 4
dim N = 64
dim K
param a bf16 [M, K] in align 16
param b f32 [N, K * 2] out align 8
grid m < cdiv(M, 32)
grid n < cdiv(K, 10)
body {
}
"""
)

H200 = Device(0, "NVIDIA H200", (9, 0), 132, 232448, 233472, 65536, 1024)


def array(dtype: str, *shape: int, **changes: object) -> Described:
    return Described(
        **{"dtype": dtype, "shape": shape, "contiguous": True, "pointer": 256, "place": "cuda:0", **changes}
    )  # type: ignore[arg-type]


def test_sizes_and_grid_follow_from_the_shapes() -> None:
    assert bind(KERNEL, [array("bf16", 100, 21), array("f32", 64, 42)]) == Binding(4 * 3, (100, 21), 15)
    assert bind(KERNEL, [array("bf16", 0, 21), array("f32", 64, 42)]).grid == 0


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ([array("bf16", 4, 4)], "1 arrays are given for 2 parameters"),
        ([array("f16", 4, 4), array("f32", 64, 8)], "a is bf16, the array is f16"),
        ([array("bf16", 4, 4, 4), array("f32", 64, 8)], "a has 2 axes"),
        ([array("bf16", 6, 4), array("f32", 64, 8)], "M = 6 is no multiple of 4"),
        ([array("bf16", 4, 4), array("f32", 64, 9)], r"b is \[N, K \* 2\] = \(64, 8\), the array has shape \(64, 9\)"),
        ([array("bf16", 4, 4), array("f32", 63, 8)], r"has shape \(63, 8\)"),
        ([array("bf16", 4, 4, pointer=264), array("f32", 64, 8)], "no multiple of 16 bytes"),
        ([array("bf16", 4, 4), array("f32", 64, 8, contiguous=False)], "b is not contiguous"),
        ([array("bf16", 4, 4), array("f32", 64, 8, place="host")], "b is on host, a on cuda:0"),
    ],
)
def test_arrays_that_do_not_fit_are_refused_by_name(arrays: list[Described], message: str) -> None:
    with pytest.raises(WrongArguments, match=message):
        bind(KERNEL, arrays)


def test_arrays_are_described() -> None:
    assert describe(np.zeros((2, 3), BF16.numpy)) == Described("bf16", (2, 3), True, 0, "host")

    class OnDevice:
        def __init__(self) -> None:
            self.dtype = "bfloat16"
            self.__cuda_array_interface__ = {
                "typestr": "<V2",
                "shape": (4, 8),
                "strides": (32, 2),
                "data": (512, False),
                "stream": 7,
            }

    assert describe(OnDevice()) == Described("bf16", (4, 8), False, 512, "cuda:0", 7)
    for dtype in DTYPES.values():
        assert describe(np.zeros((2, 3), dtype.numpy)).dtype == dtype.name
    for typestr, name in (("|i1", "i8"), ("<i4", "i32"), ("<i8", "i64"), ("|b1", "bool"), ("<f2", "f16")):
        interface = {"typestr": typestr, "shape": (4,), "data": (512, False)}
        assert describe(SimpleNamespace(__cuda_array_interface__=interface)).dtype == name
    coded = {"typestr": "|V1", "shape": (4,), "data": (512, False)}
    assert describe(SimpleNamespace(dtype="float8_e5m2", __cuda_array_interface__=coded)).dtype == "f8e5m2"

    class OfTorch:
        is_cuda, dtype, shape, device = True, "torch.float8_e4m3fn", (4,), "cuda:0"

        def is_contiguous(self) -> bool:
            return True

        def data_ptr(self) -> int:
            return 512

    assert describe(OfTorch()) == Described("f8e4m3", (4,), True, 512, "cuda:0")
    with pytest.raises(WrongArguments, match="an argument is a list"):
        describe([1, 2])


def test_what_a_cta_needs_beyond_the_gpu_is_refused_with_numbers() -> None:
    def kernel(**changes: int) -> tir.Kernel:
        return tir.Kernel(**{**vars(KERNEL), **changes})

    refuse_over_limit(kernel(smem=232448), H200, 0, 255, 1024)
    for changes, static, registers, message in [
        ({"smem": 232449}, 0, 32, "232449 bytes of shared memory, the GPU has 232448"),
        ({"smem": 232448}, 16, 32, r"232464 bytes of shared memory \(232448 dynamic \+ 16 static\)"),
        ({"warps": 64}, 0, 32, "2048 threads, at most 1024"),
        ({"warps": 16}, 0, 168, "512 threads x 168 registers = 86016, the GPU has 65536"),
    ]:
        with pytest.raises(LaunchRefused, match=message):
            refuse_over_limit(kernel(**changes), H200, static, registers, 1024)


@pytest.mark.parametrize(
    ("arch", "runs"), [("sm_90a", True), ("sm_90", True), ("sm_80", False), ("sm_100a", False), ("sm_120a", False)]
)
def test_which_machine_code_a_gpu_runs(arch: str, runs: bool) -> None:
    assert H200.runs(arch) is runs
    assert H200.arch == "sm_90a"


def test_ada_runs_ampere_code() -> None:
    ada = Device(0, "L4", (8, 9), 58, 101376, 102400, 65536, 1024)
    assert [ada.runs(a) for a in ("sm_80", "sm_86", "sm_89", "sm_90")] == [True, True, True, False]
    assert ada.arch == "sm_89"


def test_without_a_driver_the_answer_is_none_and_a_call_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: str) -> None:
        raise OSError("libcuda.so.1: cannot open shared object file")

    driver.library.cache_clear()
    available.cache_clear()
    monkeypatch.setattr(driver.ctypes, "CDLL", missing)
    try:
        assert available() is None
        a, b = np.zeros((4, 4), BF16.numpy), np.zeros((64, 8), np.float32)
        with pytest.raises(NoDriver, match=r"libcuda\.so\.1"):
            Loaded(KERNEL, Cubin(b"", "sm_80", "", "", False))(a, b)
    finally:
        driver.library.cache_clear()
        available.cache_clear()


def test_tensors_are_bound_once_per_shape_and_checked_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    class Tensor:
        def __init__(self, dtype: str, *shape: int, at: int = 4096, device: int = 1) -> None:
            self.dtype, self.shape, self.at, self.device = f"torch.{dtype}", shape, at, f"cuda:{device}"
            self.is_cuda = True
            self.contiguous = True

        def data_ptr(self) -> int:
            return self.at

        def is_contiguous(self) -> bool:
            return self.contiguous

        def get_device(self) -> int:
            return int(self.device[-1])

    class Torch:
        class _C:
            @staticmethod
            def _cuda_getCurrentRawStream(index: int) -> int:
                return 70 + index

    torch = Torch()
    torch.Tensor = Tensor  # type: ignore[attr-defined]
    monkeypatch.setitem(__import__("sys").modules, "torch", torch)  # type: ignore[arg-type]
    loaded = Loaded(KERNEL, Cubin(b"", "sm_80", "", "", False))
    launches: list[tuple[object, ...]] = []
    monkeypatch.setattr(loaded, "launch", lambda *args: launches.append(args))
    a, b = Tensor("bfloat16", 40, 21, at=4096), Tensor("float32", 64, 42, at=8192)
    for _ in range(2):
        loaded(a, b)
    assert launches == [(6, (4096, 8192, 40, 21), 71, 1)] * 2
    for wrong, message in [
        (Tensor("bfloat16", 40, 21, at=4100), "no multiple of 16"),
        (Tensor("float32", 40, 21), "a is bf16, the array is f32"),
        (Tensor("bfloat16", 42, 21), "M = 42 is no multiple of 4"),
        (Tensor("bfloat16", 40, 21, device=0), "b is on cuda:1, a on cuda:0"),
    ]:
        for _ in range(2):
            with pytest.raises(WrongArguments, match=message):
                loaded(wrong, b)
    with pytest.raises(WrongArguments, match="b is on host"):
        loaded(a, np.zeros((64, 42), np.float32))
    assert len(launches) == 2


def test_a_failing_driver_call_names_the_kernel_and_the_drivers_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def says(text: bytes) -> object:
        return lambda status, out: setattr(out._obj, "value", text)

    fake = SimpleNamespace(cuGetErrorName=says(b"CUDA_ERROR_X"), cuGetErrorString=says(b"it broke"))
    monkeypatch.setattr(driver, "loaded", lambda: fake)
    driver.check("k", "cuLaunchKernel", 0)
    with pytest.raises(LaunchFailed, match=r"k: cuLaunchKernel returned CUDA_ERROR_X \(it broke\)"):
        driver.check("k", "cuLaunchKernel", 700)
