"""Calling a kernel object on arrays: picks the compiled form that fits them, compiling it the first time."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from math import gcd
from typing import TYPE_CHECKING, Any

from tidegate.errors import NoDriver
from tidegate.ir.dtypes import DTYPES
from tidegate.lang.values import keys_of
from tidegate.ops.arguments import split
from tidegate.ops.plain import bind_sizes
from tidegate.runtime import device as devices
from tidegate.runtime.arguments import check_strides, packer
from tidegate.runtime.arrays import HOST, Described, describe_all
from tidegate.runtime.call import POINTER_ALIGN, Call, caller, remember
from tidegate.runtime.compiled import Compiled, compile_program
from tidegate.runtime.prepared import Prepared

if TYPE_CHECKING:
    from tidegate.lang.kernel import Kernel

MULTIPLE_MAX = 1024
"""Sizes are told apart by the largest power of two up to this that divides them, so that edges which cannot occur
cost nothing; other sizes with the same divisors reuse the compiled kernel."""

_compiling = threading.Lock()


def caller_of(kernel: Kernel) -> Call:
    """A function that launches ``kernel`` on arrays and numbers, on the arrays' device, with constants, ``warps`` and
    ``plan``."""

    def describe(arrays: Sequence[Any]) -> list[Described]:
        return describe_all(kernel.name, [name for name, _, _ in kernel.signature.tensors], arrays)

    def prepare(arrays: Sequence[Described], given: Mapping[str, Any]) -> Prepared:
        return compiled_for(kernel, arrays, given).loaded.prepare(arrays)

    launch = caller(len(kernel.signature.tensors), describe, prepare, kernel.captured if kernel.captured() else None)

    def with_numbers(arguments: Sequence[Any], given: Mapping[str, Any]) -> None:
        if len(arguments) != len(order):
            split(kernel.name, order, kernel.scalars, arguments)  # tells what is wrong
        launch([arguments[i] for i in tensors], given, [pack(arguments[i]) for i, pack in scalars])

    order = kernel.signature.order
    scalars = [(order.index(name), packer(kernel.name, name, dtype)) for name, dtype in kernel.scalars.items()]
    tensors = [i for i, name in enumerate(order) if name not in kernel.scalars]
    return with_numbers if scalars else launch


def compiled_for(kernel: Kernel, arrays: Sequence[Described], given: Mapping[str, Any]) -> Compiled:
    """The compiled form that fits the arrays, made on first use."""
    misaligned = 0
    for array in arrays:
        if array.place != HOST:  # arrays on the host are copied to aligned memory
            misaligned |= array.pointer
    strided = _strided(kernel, arrays, given)
    index = arrays[0].device if arrays else 0
    shapes = tuple(a.shape for a in arrays)
    captured = kernel.captured()
    fit = (shapes, misaligned % POINTER_ALIGN, strided, index, captured, *keys_of(given))
    with _compiling:
        found: Compiled | None = kernel.fitting.get(fit)
        return found or remember(kernel.fitting, fit, _compiled(kernel, arrays, misaligned, strided, index, given))


def _strided(kernel: Kernel, arrays: Sequence[Described], given: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
    """The tensors with gaps, and what divides their strides, as far as it matters: in elements, up to the widest
    access. Raises WrongArguments for strides that no kernel can work with."""
    asked = kernel.strided(given.get("strided", ()))
    found = []
    for (name, kind, _), array in zip(kernel.signature.tensors, arrays, strict=True):
        if array.place != HOST and len(array.shape) == len(kind.shape) and not array.contiguous:
            check_strides(kernel.name, name, kind.direction.writes, array)
            outer = (s for n, s in zip(array.shape[:-1], array.strides, strict=False) if n > 1)
            found.append((name, gcd(POINTER_ALIGN // DTYPES[kind.dtype].size, *outer)))
        elif name in asked:
            found.append((name, asked[name]))
    return tuple(found)


def _compiled(
    kernel: Kernel,
    arrays: Sequence[Described],
    misaligned: int,
    strided: tuple[tuple[str, int], ...],
    index: int,
    given: Mapping[str, Any],
) -> Compiled:
    options = {**kernel.with_sizes(arrays, given), "strided": strided}
    plan, share = options.pop("plan", None), options.pop("share", True)
    device = devices.available(index)
    if device is None:
        raise NoDriver(reason=f"the NVIDIA driver (libcuda.so.1) is not on this machine, or it has no device {index}")
    sizes = bind_sizes(kernel.program(**options), arrays)
    align = gcd(misaligned, POINTER_ALIGN)
    multiples = {d: gcd(sizes[d], MULTIPLE_MAX) or MULTIPLE_MAX for d in kernel.dims}
    key = (device.arch, align, kernel.captured(), *multiples.items(), *keys_of(options), plan, share)
    if key not in kernel.launches:
        program = kernel.program(multiples, **options)
        kernel.launches[key] = compile_program(program, device.arch, plan, share, align)
    found: Compiled = kernel.launches[key]
    return found
