"""The NVIDIA driver's C functions, called directly: nothing to install, and a launch costs microseconds."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint64, c_void_p
from functools import cache

from tidegate.errors import LaunchFailed, NoDriver

# CUresult: no current context, or another device's
OTHER_CONTEXT = (201, 400)

# CUfunction_attribute
MAX_THREADS_PER_BLOCK = 0
SHARED_SIZE_BYTES = 1
NUM_REGS = 4
MAX_DYNAMIC_SHARED_SIZE_BYTES = 8


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
def _primary_context(index: int) -> c_void_p:
    """The context that torch and other libraries use too; held until the process ends."""
    context = c_void_p()
    status = loaded().cuDevicePrimaryCtxRetain(byref(context), index)
    if status:
        raise NoDriver(reason=f"device {index} cannot be used: its context cannot be made (status {status})")
    return context


@contextmanager
def current(index: int) -> Iterator[None]:
    """The device's primary context is the thread's current one inside, and what was before it afterwards."""
    driver = loaded()
    status = driver.cuCtxPushCurrent_v2(_primary_context(index))
    if status:
        raise NoDriver(reason=f"device {index} cannot be used: its context cannot be set (status {status})")
    try:
        yield
    finally:
        driver.cuCtxPopCurrent_v2(byref(c_void_p()))


def load(kernel: str, code: bytes) -> c_void_p:
    """The only function of a cubin, in the current context; it stays loaded until the process ends."""
    driver = loaded()
    module, entry, function = c_void_p(), c_void_p(), c_void_p()
    check(kernel, "cuLibraryLoadData", driver.cuLibraryLoadData(byref(module), code, None, None, 0, None, None, 0))
    check(kernel, "cuLibraryEnumerateKernels", driver.cuLibraryEnumerateKernels(byref(entry), 1, module))
    check(kernel, "cuKernelGetFunction", driver.cuKernelGetFunction(byref(function), entry))
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


def synchronize(kernel: str) -> None:
    """Waits for the default stream; an error of the kernel shows here."""
    check(kernel, "running it", loaded().cuStreamSynchronize(None))
