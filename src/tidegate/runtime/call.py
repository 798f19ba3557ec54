"""Calling a kernel object on arrays: picks the compiled form that fits them, compiling it the first time."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING, Any

from tidegate.errors import NoDriver
from tidegate.ops.plain import bind_sizes
from tidegate.runtime import device as devices
from tidegate.runtime.arguments import packed
from tidegate.runtime.compiled import Compiled, compile_program
from tidegate.runtime.launch import Loaded, current_stream

if TYPE_CHECKING:
    from tidegate.lang.kernel import Kernel

MULTIPLE_MAX = 1024
"""Sizes are told apart by the largest power of two up to this that divides them, so that edges which cannot occur
cost nothing; other sizes with the same divisors reuse the compiled kernel."""

POINTER_ALIGN = 16

_compiling = threading.Lock()


@dataclass(frozen=True)
class Prepared:
    """What a call with the same kind of arrays needs but their addresses."""

    loaded: Loaded
    grid: int
    sizes: tuple[int, ...]
    device: int


def call(kernel: Kernel, arguments: Sequence[Any], given: Mapping[str, Any]) -> None:
    """Launches on the device of the arrays among ``arguments``; ``given`` are constants, ``warps`` and ``plan``.

    torch tensors take a short way: one look-up by their dtypes, shapes, devices and alignment, then the launch.
    """
    arrays, numbers = kernel.split(arguments) if kernel.signature.scalars else (arguments, ())
    key: list[Any] = [kernel.captured(), *given.items()]
    pointers, bits = [], 0
    try:
        for a in arrays:
            pointer = a.data_ptr()
            pointers.append(pointer)
            bits |= pointer
            key += (a.dtype, a.shape, a.is_contiguous(), a.get_device())
    except AttributeError:
        _compiled_for(kernel, arrays, given).loaded(*arrays, scalars=numbers)
        return
    key.append(bits % POINTER_ALIGN)
    found = kernel.prepared.get(tuple(key))
    if found is None:
        loaded = _compiled_for(kernel, arrays, given).loaded
        binding = loaded.binding(arrays)
        found = kernel.prepared[tuple(key)] = Prepared(loaded, binding.grid, binding.sizes, _device_index(arrays))
    if found.grid:
        scalars = packed(found.loaded.kernel, numbers) if numbers else ()
        found.loaded.launch(found.grid, (*pointers, *found.sizes, *scalars), current_stream(found.device), found.device)


def _compiled_for(kernel: Kernel, arrays: Sequence[Any], given: Mapping[str, Any]) -> Compiled:
    """The compiled form that fits the arrays, made on first use."""
    misaligned = 0
    for array in arrays:
        misaligned |= _address(array)
    shapes = tuple(getattr(a, "shape", None) for a in arrays)
    key = (shapes, misaligned % POINTER_ALIGN, _device_index(arrays), kernel.captured(), *given.items())
    with _compiling:
        if key not in kernel.launches:
            kernel.launches[key] = _compiled(kernel, arrays, gcd(misaligned, POINTER_ALIGN), given)
        found: Compiled = kernel.launches[key]
    return found


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
    key = ("compiled", device.arch, align, kernel.captured(), *multiples.items(), *options.items(), plan, share)
    if key not in kernel.launches:
        program = kernel.program(multiples, **options)
        kernel.launches[key] = compile_program(program, device.arch, plan, share, align or POINTER_ALIGN)
    found: Compiled = kernel.launches[key]
    return found
