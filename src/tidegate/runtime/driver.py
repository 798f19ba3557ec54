"""The NVIDIA driver's C functions, called directly: nothing to install, and a launch costs microseconds."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from dataclasses import dataclass
from functools import cache
from typing import Any

from tidegate.errors import LaunchFailed, NoDriver

# CUfunction_attribute
MAX_THREADS_PER_BLOCK = 0
SHARED_SIZE_BYTES = 1
NUM_REGS = 4
MAX_DYNAMIC_SHARED_SIZE_BYTES = 8

POINTER_DEVICE_ORDINAL = 9  # of CUpointer_attribute
CAPTURE_RELAXED = 2  # of CUstreamCaptureMode
EVENT_DISABLE_TIMING = 2  # of CUevent_flags

MOST_STREAMS = 256
"""Streams that are remembered per kernel and grid."""


@cache
def library() -> ctypes.CDLL | None:
    """The driver library, initialised; None where there is none or it finds no GPU."""
    try:
        found = ctypes.CDLL("libcuda.so.1")
        return None if found.cuInit(0) else found
    except (OSError, AttributeError):
        return None


def loaded() -> ctypes.CDLL:
    """The driver library; raises NoDriver."""
    found = library()
    if found is None:
        raise NoDriver(reason="the NVIDIA driver (libcuda.so.1) is not on this machine, or it finds no GPU")
    return found


def quick(name: str) -> Any:
    """A function of the driver that never waits: it is called without giving up Python's lock."""
    return getattr(ctypes.PyDLL("libcuda.so.1"), name)


def check(kernel: str, call: str, status: int) -> None:
    """Raises LaunchFailed, naming the kernel and the driver's own words, unless the status is 0."""
    if not status:
        return
    name, text = c_char_p(), c_char_p()
    loaded().cuGetErrorName(status, byref(name))
    loaded().cuGetErrorString(status, byref(text))
    words = f"{(name.value or b'?').decode()} ({(text.value or b'unknown').decode()})"
    advice = "an error of an earlier kernel on this device may show here: run with CUDA_LAUNCH_BLOCKING=1"
    raise LaunchFailed(kernel=kernel, call=call, status=words, advice=advice)


@cache
def primary_context(index: int) -> c_void_p:
    """The context that torch and other libraries use too; held until the process ends."""
    context = c_void_p()
    status = loaded().cuDevicePrimaryCtxRetain(byref(context), index)
    if status:
        raise NoDriver(reason=f"device {index} cannot be used: its context cannot be made (status {status})")
    return context


@contextmanager
def current(index: int) -> Iterator[None]:
    """The device's primary context is the thread's current one inside, and what was before it afterwards. A thread
    that had none keeps it, as with CUDA's own runtime."""
    driver, wanted, before = loaded(), primary_context(index), c_void_p()
    driver.cuCtxGetCurrent(byref(before))
    if before.value == wanted.value:
        yield
        return
    status = driver.cuCtxPushCurrent_v2(wanted) if before.value else driver.cuCtxSetCurrent(wanted)
    if status:
        raise NoDriver(reason=f"device {index} cannot be used: its context cannot be set (status {status})")
    try:
        yield
    finally:
        if before.value:
            driver.cuCtxPopCurrent_v2(byref(c_void_p()))


@contextmanager
def capture_allowed() -> Iterator[None]:
    """Inside, this thread may load code while a stream is being captured into a graph, by itself or by others: loading
    is not part of what is captured."""
    mode = c_int(CAPTURE_RELAXED)
    loaded().cuThreadExchangeStreamCaptureMode(byref(mode))
    try:
        yield
    finally:
        loaded().cuThreadExchangeStreamCaptureMode(byref(mode))


@cache
def device_count() -> int:
    """CUDA devices that this process sees."""
    count, driver = c_int(), library()
    return 0 if driver is None or driver.cuDeviceGetCount(byref(count)) else count.value


def device_of(pointer: int) -> int:
    """The device that has the memory at an address."""
    index = c_int()
    status = loaded().cuPointerGetAttribute(byref(index), POINTER_DEVICE_ORDINAL, c_uint64(pointer))
    check("call", "cuPointerGetAttribute", status)
    return index.value


# ---------------------------------------------------------------------------------------------- kernels


@dataclass(frozen=True)
class Function:
    """A kernel on device ``index``; a CTA has ``threads`` threads and ``smem`` bytes of dynamic shared memory."""

    handle: c_void_p
    index: int
    threads: int
    smem: int


class _Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", c_uint * 3),
        ("block", c_uint * 3),
        ("smem", c_uint),
        ("stream", c_void_p),
        ("attributes", c_void_p),
        ("attribute_count", c_uint),
    )


class Configs(dict[int, Any]):
    """Launch configurations of ``grid`` CTAs, as arguments of cuLaunchKernelEx, by stream."""

    def __init__(self, function: Function, grid: int) -> None:
        self.function, self.grid = function, grid

    def __missing__(self, stream: int) -> Any:
        if len(self) >= MOST_STREAMS:
            self.clear()
        f = self.function
        config = _Config((c_uint * 3)(self.grid, 1, 1), (c_uint * 3)(f.threads, 1, 1), f.smem, stream, None, 0)
        self[stream] = made = byref(config)
        return made


class Parameters:
    """The arguments of a launch: ``words``, 8 bytes each, of which an argument of fewer is the low part, and
    ``reference`` to the array of their addresses."""

    def __init__(self, values: Sequence[int]) -> None:
        count = len(values)
        self.words = (c_uint64 * count)(*values)
        first = ctypes.addressof(self.words)
        pointers = (c_void_p * count)(*(first + 8 * i for i in range(count)))
        pointers.words = self.words  # type: ignore[attr-defined]
        self.reference = byref(pointers)


def load(kernel: str, code: bytes) -> c_void_p:
    """The only function of a cubin, in the current context; it stays loaded until the process ends."""
    driver = loaded()
    module, entry, function = c_void_p(), c_void_p(), c_void_p()
    check(kernel, "cuLibraryLoadData", driver.cuLibraryLoadData(byref(module), code, None, None, 0, None, None, 0))
    check(kernel, "cuLibraryEnumerateKernels", driver.cuLibraryEnumerateKernels(byref(entry), 1, module))
    check(kernel, "cuKernelGetFunction", driver.cuKernelGetFunction(byref(function), entry))
    if hasattr(driver, "cuFuncLoad"):  # else the first launch may do it, which a capture does not allow
        check(kernel, "cuFuncLoad", driver.cuFuncLoad(function))
    return function


def attribute(kernel: str, function: c_void_p, which: int) -> int:
    value = c_int()
    check(kernel, "cuFuncGetAttribute", loaded().cuFuncGetAttribute(byref(value), which, function))
    return value.value


def set_attribute(kernel: str, function: c_void_p, which: int, value: int) -> None:
    check(kernel, "cuFuncSetAttribute", loaded().cuFuncSetAttribute(function, which, value))


# ---------------------------------------------------------------------------------------------- memory


def allocate(kernel: str, size: int) -> c_uint64:
    """Device memory of at least one byte."""
    memory = c_uint64()
    check(kernel, "cuMemAlloc", loaded().cuMemAlloc_v2(byref(memory), c_size_t(max(size, 1))))
    return memory


def free(memory: c_uint64) -> None:
    loaded().cuMemFree_v2(memory)


def to_device(kernel: str, memory: c_uint64, host: int, size: int) -> None:
    if size:
        check(kernel, "cuMemcpyHtoD", loaded().cuMemcpyHtoD_v2(memory, c_void_p(host), c_size_t(size)))


def to_host(kernel: str, host: int, memory: c_uint64, size: int) -> None:
    if size:
        check(kernel, "cuMemcpyDtoH", loaded().cuMemcpyDtoH_v2(c_void_p(host), memory, c_size_t(size)))


def synchronize(kernel: str, stream: int = 0) -> None:
    """Waits for the stream; an error of the kernel shows here."""
    check(kernel, "running it", loaded().cuStreamSynchronize(c_void_p(stream)))


def follow(kernel: str, stream: int, other: int) -> None:
    """What comes on ``stream`` from now on waits for what is on ``other`` now."""
    driver, event = loaded(), c_void_p()
    check(kernel, "cuEventCreate", driver.cuEventCreate(byref(event), EVENT_DISABLE_TIMING))
    try:
        check(kernel, "cuEventRecord", driver.cuEventRecord(event, c_void_p(other)))
        check(kernel, "cuStreamWaitEvent", driver.cuStreamWaitEvent(c_void_p(stream), event, 0))
    finally:
        driver.cuEventDestroy_v2(event)
