"""A stand-in for the NVIDIA driver and for torch: it launches nothing, and remembers what it was asked to launch."""

from __future__ import annotations

import ctypes
import sys
import threading
from dataclasses import dataclass, field
from math import prod
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from tidegate.runtime import driver, launch, variants
from tidegate.runtime.arrays import packed_strides
from tidegate.runtime.device import Device, available

INVALID_CONTEXT, INVALID_HANDLE = 201, 400


@dataclass
class Launch:
    """One launch, as the driver got it."""

    device: int
    grid: tuple[int, ...]
    threads: int
    smem: int
    stream: int
    words: list[int]
    graph: bool = False


@dataclass
class FakeDriver:
    """Functions of libcuda, as far as launches need them; contexts are numbers from 100 on, one per device, and
    functions are their context plus 1000 times the number of the load."""

    devices: int = 1
    launches: list[Launch] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    status: int = 0
    copies: list[int] = field(default_factory=list)
    graphs: dict[int, Launch] = field(default_factory=dict)
    thread: threading.local = field(default_factory=threading.local)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu"):
            raise AttributeError(name)

        def succeed(*_: Any) -> int:
            self.calls.append(name)
            return 0

        return succeed

    # ------------------------------------------------------------------------------------------ contexts

    @property
    def contexts(self) -> list[int]:
        if not hasattr(self.thread, "contexts"):
            self.thread.contexts = []
        return self.thread.contexts

    def cuDevicePrimaryCtxRetain(self, out: Any, index: int) -> int:
        out._obj.value = 100 + index
        return 0

    def cuCtxGetCurrent(self, out: Any) -> int:
        out._obj.value = self.contexts[-1] if self.contexts else None
        return 0

    def cuCtxSetCurrent(self, context: Any) -> int:
        self.contexts[-1:] = [context.value]
        return 0

    def cuCtxPushCurrent_v2(self, context: Any) -> int:
        self.contexts.append(context.value)
        return 0

    def cuCtxPopCurrent_v2(self, out: Any) -> int:
        self.contexts.pop()
        return 0

    def cuDeviceGetCount(self, out: Any) -> int:
        out._obj.value = self.devices
        return 0

    def cuPointerGetAttribute(self, out: Any, which: int, pointer: Any) -> int:
        out._obj.value = pointer.value >> 40
        return 0

    # ------------------------------------------------------------------------------------------ kernels

    def cuLibraryLoadData(self, out: Any, *_: Any) -> int:
        self.calls.append("cuLibraryLoadData")
        out._obj.value = self.calls.count("cuLibraryLoadData") * 1000
        return 0

    def cuLibraryEnumerateKernels(self, out: Any, count: int, library: Any) -> int:
        out._obj.value = library.value
        return 0

    def cuKernelGetFunction(self, out: Any, kernel: Any) -> int:
        out._obj.value = kernel.value + self.contexts[-1]
        return 0

    def cuFuncGetAttribute(self, out: Any, which: int, function: Any) -> int:
        out._obj.value = 1024 if which == driver.MAX_THREADS_PER_BLOCK else 0
        return 0

    def cuLaunchKernelEx(self, config: Any, function: Any, parameters: Any, extra: Any) -> int:
        if not self.contexts:
            return INVALID_CONTEXT
        if self.contexts[-1] != function.value % 1000:
            return INVALID_HANDLE
        c, pointers = config._obj, parameters._obj
        words = [ctypes.c_uint64.from_address(p).value for p in pointers]
        self.launches.append(
            Launch(function.value % 100, tuple(c.grid), c.block[0], c.smem, c.stream or 0, words),
        )
        return self.status

    # ------------------------------------------------------------------------------------------ graphs

    def cuGraphAddKernelNode_v2(self, place: Any, graph: Any, after: Any, count: Any, node: Any) -> int:
        n = node._obj
        known = next(launch for launch in self.launches if launch.device == n.function % 100)
        pointers = (ctypes.c_void_p * len(known.words)).from_address(n.parameters)
        words = [ctypes.c_uint64.from_address(p).value for p in pointers]
        self.graphs[len(self.graphs) + 1] = Launch(n.function % 100, (*n.grid,), n.block[0], n.smem, 0, words, True)
        return 0

    def cuGraphInstantiateWithFlags(self, out: Any, graph: Any, flags: Any) -> int:
        out._obj.value = len(self.graphs)
        return 0

    def cuGraphLaunch(self, graph: Any, stream: Any) -> int:
        launch = self.graphs[graph.value]
        assert self.contexts[-1:] == [100 + launch.device], "the driver crashes"
        if not self.status:
            self.launches.append(launch)
        return self.status

    def cuMemAlloc_v2(self, out: Any, size: Any) -> int:
        out._obj.value = 1 << 20
        return 0


class Tensor:
    """What a launch reads of a torch tensor."""

    def __init__(self, dtype: str, *shape: int, at: int = 4096, device: int = 0, strides: Any = None) -> None:
        self.dtype, self.shape, self.at, self.index = f"torch.{dtype}", shape, at, device
        packed = packed_strides(shape)
        self.strides = packed if strides is None else strides
        self.contiguous = self.strides == packed

    @property
    def is_cuda(self) -> bool:
        return self.index >= 0

    @property
    def device(self) -> str:
        return f"cuda:{self.index}" if self.is_cuda else "cpu"

    def data_ptr(self) -> int:
        return self.at

    def numel(self) -> int:
        return prod(self.shape)

    def is_contiguous(self) -> bool:
        return self.contiguous

    def stride(self) -> tuple[int, ...]:
        return self.strides

    def get_device(self) -> int:
        return self.index


@dataclass
class Torch:
    """torch, with a current device and a stream per device: 70 on the first, 71 on the second."""

    current: int = 0
    stream: int = 70
    _dynamo: ClassVar[Any] = None
    """What it offers for comparing tensors."""

    @property
    def _C(self) -> Any:
        return SimpleNamespace(
            _cuda_getCurrentRawStream=lambda index: self.stream and self.stream + index,
            _cuda_getDevice=lambda: self.current,
            _dynamo=self._dynamo,
        )

    @property
    def cuda(self) -> Any:
        return SimpleNamespace(
            current_stream=lambda index: SimpleNamespace(cuda_stream=70 + index), current_device=lambda: self.current
        )


def install(monkeypatch: pytest.MonkeyPatch, devices: int = 1) -> tuple[FakeDriver, Torch]:
    """The package sees ``devices`` GPUs like an H200, and torch."""
    fake, torch = FakeDriver(devices), Torch()
    driver.device_count.cache_clear()
    driver.primary_context.cache_clear()
    monkeypatch.setattr(driver, "library", lambda: fake)
    monkeypatch.setattr(driver, "loaded", lambda: fake)
    monkeypatch.setattr(driver, "quick", lambda name: getattr(fake, name))
    monkeypatch.setitem(sys.modules, "torch", torch)  # type: ignore[arg-type]

    def device(index: int = 0) -> Device | None:
        return Device(index, "H200", (9, 0), 132, 232448, 233472, 65536, 1024) if index < devices else None

    monkeypatch.setattr(launch, "available", device)
    monkeypatch.setattr(variants.devices, "available", device)
    return fake, torch


def uninstall() -> None:
    """Forgets what was learnt from the stand-in."""
    driver.device_count.cache_clear()
    driver.primary_context.cache_clear()
    available.cache_clear()
