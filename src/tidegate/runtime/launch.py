"""Loads a compiled kernel and launches it on torch tensors, arrays with __cuda_array_interface__, or NumPy arrays."""

from __future__ import annotations

import ctypes
import functools
import sys
import threading
from collections.abc import Sequence
from typing import Any

from tidegate.errors import LaunchRefused, NoDriver
from tidegate.ir import tir
from tidegate.runtime import driver
from tidegate.runtime.arguments import Binding, Described, bind, describe, packed
from tidegate.runtime.compile import Cubin
from tidegate.runtime.device import Device, available

SHARED_DEFAULT = 49152
"""Bytes of shared memory, dynamic and static together, that a CTA may have without opting in."""

GRID_MAX = 2**31 - 1
MOST_BINDINGS = 1024


class Loaded:
    """A kernel on the device: call it with one array per parameter, in order, and the numbers of its scalar arguments
    as ``scalars``. Sizes follow from the arrays' shapes.

    torch tensors and arrays with __cuda_array_interface__ are used where they are, on the caller's current stream (the
    call returns before the kernel has run). NumPy arrays are copied to the device; outputs are copied back, and the
    call returns when that is done. Safe to call from several threads.

    Raises WrongArguments when arrays do not fit, NoDriver, LaunchRefused and LaunchFailed.
    """

    def __init__(self, kernel: tir.Kernel, cubin: Cubin) -> None:
        self.kernel = kernel
        self.cubin = cubin
        self._functions: dict[int, Any] = {}
        self._bindings: dict[tuple[Any, ...], Binding] = {}
        self._lock = threading.Lock()
        self._local = threading.local()

    def __call__(self, *arrays: Any, scalars: Sequence[Any] = ()) -> None:
        torch = sys.modules.get("torch")
        values = packed(self.kernel, scalars)
        if torch is not None and arrays and isinstance(arrays[0], torch.Tensor):
            self._on_tensors(torch, arrays, values)
        elif arrays and hasattr(arrays[0], "__cuda_array_interface__"):
            self._on_device_arrays(arrays, values)
        else:
            self._on_numpy(arrays, values)

    # ------------------------------------------------------------------------------------------ kinds of arrays

    def _on_tensors(self, torch: Any, arrays: Sequence[Any], scalars: tuple[int, ...]) -> None:
        key: list[Any] = []
        pointers, bits, index = [], 0, arrays[0].get_device()
        try:
            for a in arrays:
                pointer = a.data_ptr()
                pointers.append(pointer)
                bits |= pointer
                key += (a.dtype, a.shape, a.is_contiguous(), a.get_device())
        except AttributeError:  # not all are tensors: bind says so
            key = []
        binding = self._bindings.get(tuple(key))
        if binding is None or bits & binding.unaligned:
            binding = self._bind(tuple(key), [describe(a) for a in arrays])
        if binding.grid:
            self.launch(binding.grid, (*pointers, *binding.sizes, *scalars), current_stream(index), index)

    def _on_device_arrays(self, arrays: Sequence[Any], scalars: tuple[int, ...]) -> None:
        described = [describe(a) for a in arrays]
        binding = self._bind((), described)
        stream = next((d.stream for d in described if d.stream), 0)
        if binding.grid:
            self.launch(binding.grid, [*(d.pointer for d in described), *binding.sizes, *scalars], stream, 0)

    def _on_numpy(self, arrays: Sequence[Any], scalars: tuple[int, ...]) -> None:
        described = [describe(a) for a in arrays]
        binding = self._bind((), described)
        if binding.grid:
            with driver.current(0):
                self._with_copies(arrays, binding, scalars)

    def _with_copies(self, arrays: Sequence[Any], binding: Binding, scalars: tuple[int, ...]) -> None:
        import numpy as np

        name = self.kernel.name
        held: list[ctypes.c_uint64] = []
        try:
            for array in arrays:
                host = np.ascontiguousarray(array)
                held.append(driver.allocate(name, host.nbytes))
                driver.to_device(name, held[-1], host.ctypes.data, host.nbytes)
            self.launch(binding.grid, [*(memory.value for memory in held), *binding.sizes, *scalars], 0, 0)
            driver.synchronize(name)
            for param, array, memory in zip(self.kernel.params, arrays, held, strict=True):
                if param.output:
                    host = np.empty(array.shape, array.dtype)
                    driver.to_host(name, host.ctypes.data, memory, host.nbytes)
                    array[...] = host
        finally:
            for memory in held:
                driver.free(memory)

    def _bind(self, key: tuple[Any, ...], described: list[Described]) -> Binding:
        binding = bind(self.kernel, described)
        if binding.grid > GRID_MAX:
            raise LaunchRefused(
                kernel=self.kernel.name,
                device=self.cubin.arch,
                what=f"{binding.grid} CTAs, a grid has at most {GRID_MAX}",
                advice="use larger tiles",
            )
        if key:
            if len(self._bindings) >= MOST_BINDINGS:
                self._bindings.clear()
            self._bindings[key] = binding
        return binding

    def binding(self, arrays: Sequence[Any]) -> Binding:
        """Checks arrays and says what launching on them takes; raises WrongArguments."""
        return self._bind((), [describe(a) for a in arrays])

    # ------------------------------------------------------------------------------------------ launching

    def launch(self, grid: int, values: Sequence[int], stream: int, index: int) -> None:
        """Starts ``grid`` CTAs. ``values``: a device address per parameter, then the run-time sizes, then the
        bits of the scalar arguments; nothing is checked. ``stream`` is a CUstream as a number, of device ``index``."""
        try:
            start, threads, smem = self._functions[index]
            slots, address, _ = self._local.slots
        except (KeyError, AttributeError):
            start, threads, smem = self._function(index)
            slots, address, _ = self._local.slots = self._slots()
        # An argument of 32 bits is the low half of its 8-byte slot.
        slots[:] = values
        status = start(grid, 1, 1, threads, 1, 1, smem, ctypes.c_void_p(stream), address, None)
        if status:
            if status in driver.OTHER_CONTEXT:  # a thread that has not used this device yet
                with driver.current(index):
                    status = start(grid, 1, 1, threads, 1, 1, smem, ctypes.c_void_p(stream), address, None)
            driver.check(self.kernel.name, "cuLaunchKernel", status)

    def _slots(self) -> tuple[Any, ctypes.c_void_p, Any]:
        """A thread's argument values, and the address of the array of their addresses, which must stay alive."""
        count = len(self.kernel.params) + sum(d.value is None for d in self.kernel.dims)
        count += len(self.kernel.arguments)
        slots = (ctypes.c_uint64 * count)()
        first = ctypes.addressof(slots)
        pointers = (ctypes.c_void_p * count)(*(first + 8 * i for i in range(count)))
        return slots, ctypes.c_void_p(ctypes.addressof(pointers)), pointers

    def _function(self, index: int) -> tuple[Any, int, int]:
        """What starts the kernel on device ``index``, its threads and bytes of shared memory: loaded once."""
        with self._lock:
            if index not in self._functions:
                start = functools.partial(driver.loaded().cuLaunchKernel, self._load(index))
                self._functions[index] = (start, self.kernel.threads, self.kernel.smem)
            return self._functions[index]

    def _load(self, index: int) -> ctypes.c_void_p:
        """The function, its limits checked and its shared memory opted in."""
        driver.loaded()
        device = available(index)
        if device is None:
            raise NoDriver(reason=f"the NVIDIA driver has no device {index}")
        name, smem = self.kernel.name, self.kernel.smem
        if not device.runs(self.cubin.arch):
            raise LaunchRefused(
                kernel=name,
                device=device.name,
                what=f"compiled for {self.cubin.arch}, the GPU is {device.arch}",
                advice=f"compile it for {device.arch}",
            )
        with driver.current(index):
            function = driver.load(name, self.cubin.code)
            static = driver.attribute(name, function, driver.SHARED_SIZE_BYTES)
            registers = driver.attribute(name, function, driver.NUM_REGS)
            threads = driver.attribute(name, function, driver.MAX_THREADS_PER_BLOCK)
            refuse_over_limit(self.kernel, device, static, registers, threads)
            # Once, at load, and to all that the kernel ever uses: a later change could hit a launch of another thread.
            if smem + static > SHARED_DEFAULT:
                driver.set_attribute(name, function, driver.MAX_DYNAMIC_SHARED_SIZE_BYTES, smem)
        return function


def refuse_over_limit(kernel: tir.Kernel, device: Device, static: int, registers: int, threads: int) -> None:
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


def current_stream(index: int) -> int:
    """torch's current stream on the device, as a number."""
    torch = sys.modules["torch"]
    raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    return raw(index) if raw else int(torch.cuda.current_stream(index).cuda_stream)
