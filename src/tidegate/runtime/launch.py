"""Loads a compiled kernel and launches it on torch tensors, CuPy and JAX arrays, or NumPy arrays."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from typing import Any

from tidegate.errors import LaunchRefused, NoDriver
from tidegate.ir import tir
from tidegate.runtime import driver
from tidegate.runtime.arguments import bind, packed
from tidegate.runtime.arrays import Described, describe_all
from tidegate.runtime.call import caller
from tidegate.runtime.compile import Cubin
from tidegate.runtime.device import Device, available
from tidegate.runtime.graph import Graphs
from tidegate.runtime.prepared import Prepared

SHARED_DEFAULT = 49152
"""Bytes of shared memory, dynamic and static together, that a CTA may have without opting in."""

GRID_MAX = 2**31 - 1


class Loaded:
    """A kernel on the device: call it with one array per parameter, in order, and the numbers of its scalar arguments
    as ``scalars``. Sizes follow from the arrays' shapes.

    torch tensors are used where they are, on torch's current stream of their device; arrays with
    __cuda_array_interface__ on the stream that they name. The call returns before the kernel has run. For arrays that
    name no stream (JAX, DLPack) it returns when the kernel is done. NumPy arrays are copied to the first device;
    outputs are copied back, and the call returns when that is done. Safe to call from several threads.

    Raises WrongArguments when arrays or numbers do not fit, NoDriver, LaunchRefused and LaunchFailed.
    """

    def __init__(self, kernel: tir.Kernel, cubin: Cubin) -> None:
        self.kernel = kernel
        self.cubin = cubin
        self._functions: dict[int, driver.Function] = {}
        self._graphs = Graphs()
        self._lock = threading.Lock()
        self._call = caller(len(self.kernel.params), self._describe, lambda arrays, given: self.prepare(arrays))

    def __call__(self, *arrays: Any, scalars: Sequence[Any] = ()) -> None:
        self._call(arrays, {}, packed(self.kernel, scalars) if scalars or self.kernel.arguments else ())

    def _describe(self, arrays: Sequence[Any]) -> list[Described]:
        return describe_all(self.kernel.name, [p.name for p in self.kernel.params], arrays)

    def prepare(self, arrays: Sequence[Described]) -> Prepared:
        """Checks the arrays, and loads the kernel on their device."""
        binding = bind(self.kernel, arrays)
        if binding.grid > GRID_MAX:
            raise LaunchRefused(
                kernel=self.kernel.name,
                device=self.cubin.arch,
                what=f"{binding.grid} CTAs, a grid has at most {GRID_MAX}",
                advice="use larger tiles",
            )
        function = self.function(arrays[0].device if arrays else 0)
        return Prepared(self.kernel, function, binding, driver.Configs(function, binding.grid), self._graphs)

    # ------------------------------------------------------------------------------------------ loading

    def function(self, index: int) -> driver.Function:
        """The kernel on device ``index``: loaded once."""
        with self._lock:
            if index not in self._functions:
                handle = self._load(index)
                self._functions[index] = driver.Function(handle, index, self.kernel.threads, self.kernel.smem)
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
        with driver.current(index), driver.capture_allowed():
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
