"""The arrays of a call, checked against a kernel's parameters; sizes and grid follow from their shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from tidegate.errors import WrongArguments
from tidegate.ir import tir
from tidegate.ir.dtypes import NUMPY_NAMES
from tidegate.ir.expr import Sym, evaluate

HOST = "host"

TYPESTRINGS = {"<f4": "f32", "<f2": "f16", "|i1": "i8", "<i4": "i32", "<i8": "i64", "|b1": "bool"}
"""Of the array interface; types that it does not know go by the array's own dtype."""


@dataclass(frozen=True)
class Described:
    """An array, as a launch sees it. ``place``: "host", or a device such as "cuda:0". ``stream`` is the one that its
    owner asks to be ordered with, 0 for none."""

    dtype: str
    shape: tuple[int, ...]
    contiguous: bool
    pointer: int
    place: str
    stream: int = 0


@dataclass(frozen=True)
class Binding:
    """What a launch needs beside addresses: CTAs (0: nothing to do), run-time sizes in order, and the address bits that
    must be clear in every address."""

    grid: int
    sizes: tuple[int, ...]
    unaligned: int


def describe(array: Any) -> Described:
    """Any array that a kernel can be called with; raises WrongArguments for others."""
    interface = getattr(array, "__cuda_array_interface__", None) if not hasattr(array, "is_cuda") else None
    if interface is not None:
        return _describe_interface(array, interface)
    if hasattr(array, "data_ptr"):
        if not array.is_cuda:
            raise WrongArguments(
                kernel="call", what="an argument is a tensor on the CPU", advice="move it: tensor.cuda(), or pass NumPy"
            )
        name = str(array.dtype).removeprefix("torch.")
        place = str(array.device)
        return Described(
            NUMPY_NAMES.get(name, name), tuple(array.shape), array.is_contiguous(), array.data_ptr(), place
        )
    if hasattr(array, "__array_interface__"):
        name = array.dtype.name
        # A copy is made, so that strides and alignment do not matter.
        return Described(NUMPY_NAMES.get(name, name), tuple(array.shape), True, 0, HOST)
    raise WrongArguments(
        kernel="call",
        what=f"an argument is a {type(array).__name__}",
        advice="give NumPy arrays, CUDA tensors of torch, or arrays with __cuda_array_interface__",
    )


def _describe_interface(array: Any, interface: dict[str, Any]) -> Described:
    name = str(getattr(array, "dtype", interface["typestr"]))
    known = TYPESTRINGS.get(interface["typestr"])
    shape, strides = tuple(interface["shape"]), interface.get("strides")
    size = int(interface["typestr"][2:])
    packed = tuple(size * prod(shape[axis + 1 :]) for axis in range(len(shape)))
    contiguous = strides is None or tuple(strides) == packed or 0 in shape
    return Described(
        known or NUMPY_NAMES.get(name, name),
        shape,
        contiguous,
        interface["data"][0],
        "cuda:0",
        interface.get("stream") or 0,
    )


def bind(kernel: tir.Kernel, arrays: Sequence[Described]) -> Binding:
    """Checks number, types, places, strides, shapes, multiples and alignment; raises WrongArguments."""

    def refuse(what: str, advice: str) -> None:
        raise WrongArguments(kernel=kernel.name, what=what, advice=advice)

    params = kernel.params
    if len(arrays) != len(params):
        names = ", ".join(p.name for p in params)
        refuse(f"{len(arrays)} arrays are given for {len(params)} parameters", f"give one array for each of {names}")
    for param, array in zip(params, arrays, strict=True):
        if array.dtype != param.dtype.name:
            refuse(f"{param.name} is {param.dtype}, the array is {array.dtype}", f"convert it to {param.dtype}")
        if len(array.shape) != len(param.shape):
            refuse(f"{param.name} has {len(param.shape)} axes, the array has shape {array.shape}", "reshape it")
        if array.place != arrays[0].place:
            refuse(f"{param.name} is on {array.place}, {params[0].name} on {arrays[0].place}", "move it there")
        if not array.contiguous:
            refuse(f"{param.name} is not contiguous in row-major order", "pass a contiguous copy")
        if array.pointer % param.align:
            refuse(
                f"{param.name} is at address {array.pointer:#x}, no multiple of {param.align} bytes",
                "pass an array that does not begin inside another one's aligned block",
            )
    sizes = _sizes(kernel, arrays)
    for dim in kernel.dims:
        if sizes[dim.name] % dim.multiple:
            refuse(
                f"{dim.name} = {sizes[dim.name]} is no multiple of {dim.multiple}, for which the kernel is compiled",
                "compile it for these sizes",
            )
    for param, array in zip(params, arrays, strict=True):
        shape = tuple(evaluate(e, sizes) for e in param.shape)
        if array.shape != shape:
            wanted = ", ".join(map(str, param.shape))
            refuse(f"{param.name} is [{wanted}] = {shape}, the array has shape {array.shape}", "make the shapes agree")
    extents = [evaluate(axis.extent, sizes) for axis in kernel.grid]
    run_time = tuple(sizes[d.name] for d in kernel.dims if d.value is None)
    return Binding(prod(extents), run_time, max((p.align for p in params), default=1) - 1)


def _sizes(kernel: tir.Kernel, arrays: Sequence[Described]) -> dict[str, int]:
    """Every dim: fixed, or the extent of the first array axis that it is."""
    sizes = {str(d.name): d.value for d in kernel.dims if d.value is not None}
    for param, array in zip(kernel.params, arrays, strict=True):
        for extent, actual in zip(param.shape, array.shape, strict=True):
            if isinstance(extent, Sym):
                sizes.setdefault(extent.name, int(actual))
    if missing := [d.name for d in kernel.dims if d.name not in sizes]:
        raise WrongArguments(
            kernel=kernel.name,
            what=f"no array has {missing[0]} as an extent of its own",
            advice=f"compile the kernel with {missing[0]} given",
        )
    return sizes
