"""Loads a compiled kernel and launches it on torch tensors, arrays with __cuda_array_interface__, or NumPy arrays."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Sequence
from functools import cache
from typing import Any

from tidegate.errors import LaunchFailed, LaunchRefused, NoDriver
from tidegate.ir import tir
from tidegate.runtime import device as devices
from tidegate.runtime.arguments import Binding, bind, describe
from tidegate.runtime.compile import Cubin

SHARED_DEFAULT = 49152
"""Bytes of shared memory, dynamic and static together, that a CTA may have without opting in."""

GRID_MAX = 2**31 - 1
MOST_BINDINGS = 1024
INVALID_CONTEXT = 201


class Loaded:
    """A kernel on the device: call it with one array per parameter, in order. Sizes follow from the arrays' shapes.

    torch tensors and arrays with __cuda_array_interface__ are used where they are, on the caller's current stream (the
    call returns before the kernel has run). NumPy arrays are copied to the device; outputs are copied back, and the
    call returns when that is done. Safe to call from several threads.

    Raises WrongArguments when arrays do not fit, NoDriver, LaunchRefused and LaunchFailed.
    """

    def __init__(self, kernel: tir.Kernel, cubin: Cubin) -> None:
        self.kernel = kernel
        self.cubin = cubin
        self._functions: dict[int, Any] = {}
        self._bindings: dict[Any, Binding] = {}
        self._lock = threading.Lock()
        self._local = threading.local()

    def __call__(self, *arrays: Any) -> None:
        torch = sys.modules.get("torch")
        if torch is not None and arrays and isinstance(arrays[0], torch.Tensor) and arrays[0].is_cuda:
            return self._on_tensors(torch, arrays)
        if arrays and hasattr(arrays[0], "__cuda_array_interface__"):
            return self._on_device_arrays(arrays)
        return self._on_numpy(arrays)

    # ------------------------------------------------------------------------------------------ kinds of arrays

    def _on_tensors(self, torch: Any, arrays: Sequence[Any]) -> None:
        index = arrays[0].get_device()
        try:
            key = tuple([(a.dtype, a.shape, a.is_contiguous(), a.get_device()) for a in arrays])
            pointers = [a.data_ptr() for a in arrays]
        except AttributeError:  # not all are tensors: bind says so
            key, pointers = None, []
        binding = self._bindings.get(key)
        if binding is None or any(p & binding.unaligned for p in pointers):
            binding = self._bind(key, [describe(a) for a in arrays])
        if binding.grid:
            self.launch(binding.grid, (*pointers, *binding.sizes), _current_stream(torch, index), index)

    def _on_device_arrays(self, arrays: Sequence[Any]) -> None:
        described = [describe(a) for a in arrays]
        binding = self._bind(None, described)
        stream = next((d.stream for d in described if d.stream), 0)
        if binding.grid:
            self.launch(binding.grid, [*(d.pointer for d in described), *binding.sizes], stream, 0)

    def _on_numpy(self, arrays: Sequence[Any]) -> None:
        import numpy as np

        described = [describe(a) for a in arrays]
        binding = self._bind(None, described)
        if not binding.grid:
            return
        driver = _driver()
        _make_current(0)
        held: list[Any] = []
        try:
            for array in arrays:
                host = np.ascontiguousarray(array)
                held.append(self._must("cuMemAlloc", driver.cuMemAlloc(max(host.nbytes, 1))))
                if host.nbytes:
                    self._must("cuMemcpyHtoD", driver.cuMemcpyHtoD(held[-1], host.ctypes.data, host.nbytes))
            self.launch(binding.grid, [*(int(h) for h in held), *binding.sizes], 0, 0)
            self._must(f"running {self.kernel.name}", driver.cuStreamSynchronize(0))
            for param, array, memory in zip(self.kernel.params, arrays, held, strict=True):
                if param.output and array.nbytes:
                    host = np.empty(array.shape, array.dtype)
                    self._must("cuMemcpyDtoH", driver.cuMemcpyDtoH(host.ctypes.data, memory, host.nbytes))
                    array[...] = host
        finally:
            for memory in held:
                driver.cuMemFree(memory)

    def _must(self, call: str, result: tuple[Any, ...]) -> Any:
        return _check(self.kernel, call, result)

    def _bind(self, key: Any, described: list[Any]) -> Binding:
        binding = bind(self.kernel, described)
        if binding.grid > GRID_MAX:
            raise LaunchRefused(
                kernel=self.kernel.name,
                device=self.cubin.arch,
                what=f"{binding.grid} CTAs, a grid has at most {GRID_MAX}",
                advice="use larger tiles",
            )
        if key is not None:
            if len(self._bindings) >= MOST_BINDINGS:
                self._bindings.clear()
            self._bindings[key] = binding
        return binding

    # ------------------------------------------------------------------------------------------ launching

    def launch(self, grid: int, values: Sequence[int], stream: int, index: int) -> None:
        """Starts ``grid`` CTAs. ``values``: a device address per parameter, then the run-time sizes; nothing is
        checked. ``stream`` is a CUstream as a number, of device ``index``."""
        function = self._functions.get(index) or self._function(index)
        try:
            slots, address = self._local.slots
        except AttributeError:
            slots, address = self._local.slots = self._slots()
        # An int32 argument is the low half of its 8-byte slot.
        slots[:] = values
        k = self.kernel
        launch = _driver().cuLaunchKernel
        (status,) = launch(function, grid, 1, 1, k.threads, 1, 1, k.smem, stream, address, 0)
        if status == INVALID_CONTEXT:  # a thread that has not used the device yet
            _make_current(index)
            (status,) = launch(function, grid, 1, 1, k.threads, 1, 1, k.smem, stream, address, 0)
        if status:
            raise _failed(k, "cuLaunchKernel", status)

    def _slots(self) -> tuple[Any, int]:
        """This thread's argument values, and the address of the array of their addresses."""
        count = len(self.kernel.params) + sum(d.value is None for d in self.kernel.dims)
        slots = (ctypes.c_uint64 * count)()
        first = ctypes.addressof(slots)
        pointers = (ctypes.c_void_p * count)(*(first + 8 * i for i in range(count)))
        self._local.keep = pointers
        return slots, ctypes.addressof(pointers)

    def _function(self, index: int) -> Any:
        """The function on device ``index``: loaded once, limits checked, shared memory opted in."""
        with self._lock:
            if index not in self._functions:
                self._functions[index] = self._load(index)
            return self._functions[index]

    def _load(self, index: int) -> Any:
        driver = _driver()
        device = devices.available(index)
        if device is None:
            raise NoDriver(reason=f"the NVIDIA driver has no device {index}")
        if not device.runs(self.cubin.arch):
            raise LaunchRefused(
                kernel=self.kernel.name,
                device=device.name,
                what=f"compiled for {self.cubin.arch}, the GPU is {device.arch}",
                advice=f"compile it for {device.arch}",
            )
        _make_current(index)
        library = self._must("cuLibraryLoadData", driver.cuLibraryLoadData(self.cubin.code, [], [], 0, [], [], 0))
        (entry,) = self._must("cuLibraryEnumerateKernels", driver.cuLibraryEnumerateKernels(1, library))
        function = self._must("cuKernelGetFunction", driver.cuKernelGetFunction(entry))
        attribute = driver.CUfunction_attribute

        def query(name: str) -> int:
            which = getattr(attribute, f"CU_FUNC_ATTRIBUTE_{name}")
            return int(self._must("cuFuncGetAttribute", driver.cuFuncGetAttribute(which, function)))

        static = query("SHARED_SIZE_BYTES")
        refuse_over_limit(self.kernel, device, static, query("NUM_REGS"), query("MAX_THREADS_PER_BLOCK"))
        # Once, at load, and to all that the kernel ever uses: a later change could hit a launch of another thread.
        if self.kernel.smem + static > SHARED_DEFAULT:
            which = attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self._must("cuFuncSetAttribute", driver.cuFuncSetAttribute(function, which, self.kernel.smem))
        return function


def refuse_over_limit(kernel: tir.Kernel, device: devices.Device, static: int, registers: int, threads: int) -> None:
    """Raises LaunchRefused, with the numbers, when a CTA cannot run on the device. ``threads``: the most that the
    compiled kernel allows."""

    def refuse(what: str, advice: str) -> None:
        raise LaunchRefused(kernel=kernel.name, device=device.name, what=what, advice=advice)

    if kernel.smem + static > device.shared:
        parts = f" ({kernel.smem} dynamic + {static} static)" if static else ""
        refuse(
            f"a CTA needs {kernel.smem + static} bytes of shared memory{parts}, the GPU has {device.shared}",
            "use fewer stages or smaller tiles",
        )
    if kernel.threads > min(device.threads, threads):
        refuse(f"a CTA has {kernel.threads} threads, at most {min(device.threads, threads)} can run", "use fewer warps")
    if kernel.threads * registers > device.registers:
        refuse(
            f"a CTA needs {kernel.threads} threads x {registers} registers = {kernel.threads * registers}, "
            f"the GPU has {device.registers}",
            "use fewer warps or smaller register tiles",
        )


# ---------------------------------------------------------------------------------------------- driver


@cache
def _driver() -> Any:
    """The driver bindings."""
    if devices.available() is None:
        raise NoDriver(reason="the NVIDIA driver (libcuda.so.1) is not on this machine, or it has no GPU")
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise NoDriver(reason=f"the package cuda-bindings is not installed ({error})") from error
    return driver


def _check(kernel: tir.Kernel, call: str, result: tuple[Any, ...]) -> Any:
    """What the driver call returned; raises LaunchFailed."""
    if result[0]:
        raise _failed(kernel, call, result[0])
    return result[1] if len(result) == 2 else result[1:]


def _failed(kernel: tir.Kernel, call: str, status: Any) -> LaunchFailed:
    _, text = _driver().cuGetErrorString(status)
    reason = f"{getattr(status, 'name', status)} ({text.decode() if text else 'no description'})"
    advice = "an error of an earlier kernel on this device may show here: run with CUDA_LAUNCH_BLOCKING=1"
    return LaunchFailed(kernel=kernel.name, call=call, status=reason, advice=advice)


@cache
def _context(index: int) -> Any:
    """The primary context of the device, which torch and other libraries use too; held until the process ends."""
    driver = _driver()
    status, context = driver.cuDevicePrimaryCtxRetain(index)
    if status:
        raise NoDriver(reason=f"the context of device {index} cannot be made: {status}")
    return context


def _make_current(index: int) -> None:
    (status,) = _driver().cuCtxSetCurrent(_context(index))
    if status:
        raise NoDriver(reason=f"the context of device {index} cannot be used: {status}")


def _current_stream(torch: Any, index: int) -> int:
    """torch's current stream on the device, as a number."""
    raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    return raw(index) if raw else int(torch.cuda.current_stream(index).cuda_stream)
