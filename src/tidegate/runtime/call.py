"""Calling a kernel object on arrays: picks the compiled form that fits them, compiling it the first time."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from math import gcd
from typing import TYPE_CHECKING, Any

from tidegate.errors import NoDriver
from tidegate.ops.plain import bind_sizes
from tidegate.runtime import device as devices
from tidegate.runtime.compiled import Compiled, compile_program

if TYPE_CHECKING:
    from tidegate.lang.kernel import Kernel

MULTIPLE_MAX = 1024
"""Sizes are told apart by the largest power of two up to this that divides them, so that edges which cannot occur
cost nothing; other sizes with the same divisors reuse the compiled kernel."""

POINTER_ALIGN = 16

_compiling = threading.Lock()


def call(kernel: Kernel, arrays: Sequence[Any], given: Mapping[str, Any]) -> None:
    """Launches on the device of ``arrays``; ``given`` are constants, ``warps`` and ``plan``."""
    misaligned = 0
    for array in arrays:
        misaligned |= _address(array)
    key = (tuple(a.shape for a in arrays if hasattr(a, "shape")), misaligned % POINTER_ALIGN, *given.items())
    compiled = kernel.launches.get(key)
    if compiled is None:
        with _compiling:
            compiled = kernel.launches[key] = _compiled(kernel, arrays, gcd(misaligned, POINTER_ALIGN), given)
    compiled(*arrays)


def _address(array: Any) -> int:
    """The device address of an array; 0 for host arrays, which are copied to aligned memory."""
    if hasattr(array, "data_ptr"):
        return int(array.data_ptr())
    interface = getattr(array, "__cuda_array_interface__", None)
    return int(interface["data"][0]) if interface else 0


def _device_index(arrays: Sequence[Any]) -> int:
    """The CUDA device that holds the arrays; device 0 for host arrays."""
    index = arrays[0].get_device() if arrays and hasattr(arrays[0], "get_device") else 0
    return max(int(index), 0)


def _compiled(kernel: Kernel, arrays: Sequence[Any], align: int, given: Mapping[str, Any]) -> Compiled:
    options = kernel.with_sizes(arrays, given)
    plan, share = options.pop("plan", None), options.pop("share", True)
    device = devices.available(_device_index(arrays))
    if device is None:
        raise NoDriver(reason="the NVIDIA driver (libcuda.so.1) is not on this machine, or it has no GPU")
    sizes = bind_sizes(kernel.program(**options), arrays)
    multiples = {d: gcd(sizes[d], MULTIPLE_MAX) or MULTIPLE_MAX for d in kernel.dims}
    key = ("compiled", device.arch, align, *multiples.items(), *options.items(), plan, share)
    if key not in kernel.launches:
        program = kernel.program(multiples, **options)
        kernel.launches[key] = compile_program(program, device.arch, plan, share, align or POINTER_ALIGN)
    found: Compiled = kernel.launches[key]
    return found
