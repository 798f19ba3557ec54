"""What can be known of a launch without a GPU: arguments, grids, limits, and the answers where there is no driver."""

from __future__ import annotations

from types import SimpleNamespace

import fake_driver
import numpy as np
import pytest
from fake_driver import Tensor
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import LaunchFailed, LaunchRefused, NoDriver, WrongArguments
from tidegate.ir import tir
from tidegate.ir.dtypes import BF16, DTYPES, F32
from tidegate.ir.text import parse_kernel
from tidegate.runtime import driver
from tidegate.runtime.arguments import Region, bind, region, share_bytes
from tidegate.runtime.arrays import Described, describe_all, packed_strides
from tidegate.runtime.compile import Cubin
from tidegate.runtime.device import Device, available
from tidegate.runtime.launch import Loaded, refuse_over_limit

KERNEL = parse_kernel(
    """
kernel k target sm_80 warps 8 smem 65536
dim M multiple 4
dim N = 64
dim K
param a bf16 [M, K] in align 8
param b f32 [N, K * 2] out align 8
grid m < cdiv(M, 32)
grid n < cdiv(K, 10)
body {
}
"""
)

H200 = Device(0, "NVIDIA H200", (9, 0), 132, 232448, 233472, 65536, 1024)


def array(dtype: str, *shape: int, **changes: object) -> Described:
    strides = packed_strides(shape)
    return Described(
        **{"dtype": dtype, "shape": shape, "strides": strides, "pointer": 256, "place": "cuda:0", **changes}
    )  # type: ignore[arg-type]


def test_sizes_and_grid_follow_from_the_shapes() -> None:
    found = bind(KERNEL, [array("bf16", 100, 20), array("f32", 64, 40)])
    assert (found.grid, found.values) == (4 * 2, (100, 20))
    assert found.regions == (Region(0, 100 * 20 * 2, 100 * 20 * 2, 0), Region(0, 64 * 40 * 4, 64 * 40 * 4, 0))
    assert bind(KERNEL, [array("bf16", 0, 20), array("f32", 64, 40)]).grid == 0


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ([array("bf16", 4, 4)], "1 arrays are given for 2 parameters"),
        ([array("f16", 4, 4), array("f32", 64, 8)], "a is bf16, the array is f16"),
        ([array("bf16", 4, 4, 4), array("f32", 64, 8)], "a has 2 axes"),
        ([array("bf16", 6, 4), array("f32", 64, 8)], "M = 6 is no multiple of 4"),
        ([array("bf16", 4, 4), array("f32", 64, 9)], r"b is \[N, K \* 2\] = \(64, 8\), the array has shape \(64, 9\)"),
        ([array("bf16", 4, 4), array("f32", 63, 8)], r"has shape \(63, 8\)"),
        ([array("bf16", 4, 4, pointer=260), array("f32", 64, 8)], "no multiple of 8 bytes"),
        ([array("bf16", 4, 4), array("f32", 64, 8, strides=(16, 1))], "b is not contiguous"),
        ([array("bf16", 4, 4), array("f32", 64, 8, read_only=True)], "b is written, the array is read-only"),
        ([array("bf16", 4, 6), array("f32", 64, 12)], "a has the stride 6 on axis 0: 12 bytes are no multiple of 8"),
        ([array("bf16", 4, 4), array("f32", 64, 8, place="host")], "b is on host, a on cuda:0"),
    ],
)
def test_arrays_that_do_not_fit_are_refused_by_name(arrays: list[Described], message: str) -> None:
    with pytest.raises(WrongArguments, match=message):
        bind(KERNEL, arrays)


def describe(*arrays: object) -> list[Described]:
    return describe_all("k", [f"p{i}" for i in range(len(arrays))], arrays)


class Cuda:
    """An array that speaks __cuda_array_interface__."""

    def __init__(self, typestr: str = "<V2", **changes: object) -> None:
        self.dtype = "bfloat16"
        about = {"typestr": typestr, "shape": (4, 8), "strides": (32, 2), "data": (1 << 40, False), "stream": 7}
        self.__cuda_array_interface__ = {**about, **changes}


class Dlpack:
    """An array that speaks DLPack alone, on CUDA device 1: its capsule is NumPy's."""

    def __init__(self, array: np.ndarray, versioned: bool, device: int = 2) -> None:
        self.array, self.versioned, self.device = array, versioned, device
        self.asked: list[object] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, 1

    def __dlpack__(self, **asked: object) -> object:
        if "max_version" in asked and not self.versioned:
            raise TypeError("unexpected argument max_version")
        self.asked.append(asked["stream"])
        return self.array.__dlpack__(max_version=(1, 0) if self.versioned else None)


def test_arrays_are_described(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_driver.install(monkeypatch, devices=2)
    host = np.zeros((2, 3), BF16.numpy)
    host.flags.writeable = False
    assert describe(host) == [Described("bf16", (2, 3), (3, 1), host.ctypes.data, "host", True)]
    assert describe(Cuda()) == [Described("bf16", (4, 8), (16, 1), 1 << 40, "cuda:1", False, 7)]
    assert describe(Cuda("<f4", strides=None, stream=1, data=(0, True))) == [
        Described("f32", (4, 8), (8, 1), 0, "cuda:0", True, 0)
    ]
    assert describe(Tensor("bfloat16", 2, 3, at=64, device=1)) == [
        Described("bf16", (2, 3), (3, 1), 64, "cuda:1", False, 71)
    ]
    for dtype in DTYPES.values():
        found = describe(np.zeros((2, 3), dtype.numpy))[0], describe(Tensor(dtype.numpy.name, 2, 3))[0]
        assert {d.dtype for d in found} == {dtype.name}
    for typestr, name in (("|i1", "i8"), ("<i4", "i32"), ("<i8", "i64"), ("|b1", "bool"), ("<f2", "f16")):
        assert describe(Cuda(typestr, strides=None))[0].dtype == name
    coded = Cuda("|V1", strides=None)
    coded.dtype = "float8_e5m2"
    assert describe(coded)[0].dtype == "f8e5m2"
    fake_driver.uninstall()


@pytest.mark.parametrize("versioned", [False, True])
def test_dlpack_arrays_are_described_and_handed_over_to_the_stream_of_the_others(
    monkeypatch: pytest.MonkeyPatch, versioned: bool
) -> None:
    fake_driver.install(monkeypatch)
    memory = np.arange(48, dtype=np.float32).reshape(6, 8)
    alone, beside = Dlpack(memory[:, 2:5], versioned), Dlpack(memory, versioned)
    locked = not versioned  # before version 1.0 of the protocol an owner cannot say
    assert describe(alone) == [Described("f32", (6, 3), (8, 1), memory.ctypes.data + 8, "cuda:1", locked)]
    found = describe(beside, Cuda())
    assert found[0] == Described("f32", (6, 8), (8, 1), memory.ctypes.data, "cuda:1", locked)
    assert (alone.asked, beside.asked) == ([1], [7])
    beside.__cuda_array_interface__ = Cuda(stream=None, data=(memory.ctypes.data, True)).__cuda_array_interface__  # type: ignore[attr-defined]
    assert describe(beside) == [Described("f32", (6, 8), (8, 1), memory.ctypes.data, "cuda:1", True)]
    if versioned:
        memory.flags.writeable = False
        assert describe(Dlpack(memory, versioned))[0].read_only
    fake_driver.uninstall()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([1, 2], "p0 is given a list"),
        (Tensor("float32", 4, device=-1), "p0 is a tensor on the CPU"),
        (Tensor("float32", 4, at=0), "p0 is a Tensor without memory of its own"),
        (Cuda(mask=Cuda()), "p0 is a masked array"),
        (Cuda(strides=(33, 2)), r"p0 has strides of \(33, 2\) bytes"),
        (Dlpack(np.zeros(3), True, device=1), "p0 is an array that is not on a CUDA device"),
    ],
)
def test_what_is_no_array_on_a_gpu_or_the_host_is_refused(
    monkeypatch: pytest.MonkeyPatch, given: object, message: str
) -> None:
    with pytest.raises(WrongArguments, match=message):
        describe(given)


# ---------------------------------------------------------------------------------------------- bytes in common

F32_PARAM = tir.Param(tir.Name("x"), F32, (), False, 4)


def test_views_of_one_array_share_bytes_only_where_they_do() -> None:
    def shared(a: np.ndarray, b: np.ndarray) -> bool:
        first, second = describe(a, b)
        return share_bytes(first.pointer, region(F32_PARAM, first), second.pointer, region(F32_PARAM, second))

    x = np.zeros((6, 8), np.float32)
    assert shared(x, x)
    assert shared(x[:4], x[3:])
    assert shared(x[:, :5], x[:, 4:])
    assert shared(x[::2], x[::-1])
    assert not shared(x[:3], x[3:])
    assert not shared(x[:, :4], x[:, 4:])
    assert not shared(x[:, 4:], x[1:, :4])
    assert not shared(x[::2], x[1::2])
    assert not shared(x[:0], x)


views = st.tuples(
    st.integers(0, 40), st.lists(st.tuples(st.integers(1, 4), st.integers(-12, 12)), min_size=1, max_size=3)
)


@given(views, views)
def test_arrays_that_have_a_byte_in_common_are_never_taken_to_be_apart(
    a: tuple[int, list[tuple[int, int]]], b: tuple[int, list[tuple[int, int]]]
) -> None:
    elements, pointers, regions = [], [], []
    for at, axes in (a, b):
        offsets = {0}
        for extent, stride in axes:
            offsets = {o + i * stride for o in offsets for i in range(extent)}
        elements.append({at + o for o in offsets})
        pointers.append(4 * at)
        shape, strides = tuple(n for n, _ in axes), tuple(s for _, s in axes)
        regions.append(region(F32_PARAM, array("f32", *shape, strides=strides)))
    if elements[0] & elements[1]:
        assert share_bytes(pointers[0], regions[0], pointers[1], regions[1])


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


def test_a_failing_driver_call_names_the_kernel_and_the_drivers_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def says(text: bytes) -> object:
        return lambda status, out: setattr(out._obj, "value", text)

    fake = SimpleNamespace(cuGetErrorName=says(b"CUDA_ERROR_X"), cuGetErrorString=says(b"it broke"))
    monkeypatch.setattr(driver, "loaded", lambda: fake)
    driver.check("k", "cuLaunchKernel", 0)
    with pytest.raises(LaunchFailed, match=r"k: cuLaunchKernel returned CUDA_ERROR_X \(it broke\)"):
        driver.check("k", "cuLaunchKernel", 700)
