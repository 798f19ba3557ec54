"""The arrays and numbers of a call, checked against a kernel's parameters; sizes and grid follow from their shapes."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import gcd, prod
from typing import Any, NoReturn

from tidegate.errors import WrongArguments
from tidegate.ir import tir
from tidegate.ir.dtypes import DType
from tidegate.ir.expr import Sym, evaluate
from tidegate.ops.arguments import checked
from tidegate.runtime.arrays import HOST, Described, packed_strides


@dataclass(frozen=True)
class Region:
    """The ``bytes`` of an array, from ``start`` bytes behind its address on (below 0 if strides are). They lie in
    rows of ``row`` bytes, and ``pitch`` bytes divide the distance of any two rows (0: there is one row)."""

    start: int
    bytes: int
    row: int
    pitch: int


@dataclass(frozen=True)
class Binding:
    """What a launch needs beside addresses: CTAs (0: nothing to do), the launch values that follow the addresses, and
    the bytes that each array has."""

    grid: int
    values: tuple[int, ...]
    regions: tuple[Region, ...]


def bind(kernel: tir.Kernel, arrays: Sequence[Described]) -> Binding:
    """Checks number, types, places, strides, shapes, multiples, alignment, and that outputs are writable; raises
    WrongArguments."""

    def refuse(what: str, advice: str) -> NoReturn:
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
        if param.output and array.read_only:
            refuse(f"{param.name} is written, the array is read-only", "pass an array that may be written")
        _check_memory(kernel, param, array)
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
        _check_rows(kernel, param, array)
    extents = [evaluate(axis.extent, sizes) for axis in kernel.grid]
    run_time = tuple(sizes[d.name] for d in kernel.dims if d.value is None)
    strides = {p.name: memory_strides(p, a) for p, a in zip(params, arrays, strict=True)}
    pitches = tuple(strides[p.name][axis] for p, axis in kernel.pitches)
    return Binding(prod(extents), (*run_time, *pitches), tuple(map(region, params, arrays)))


def _check_memory(kernel: tir.Kernel, param: tir.Param, array: Described) -> None:
    """Raises WrongArguments where the kernel's accesses cannot be made in the array's memory."""

    def refuse(what: str, advice: str) -> NoReturn:
        raise WrongArguments(kernel=kernel.name, what=f"{param.name} {what}", advice=advice)

    if array.place != HOST and not param.strided and not array.contiguous:
        refuse(
            f"is not contiguous in row-major order: {array.shape} with strides {array.strides}",
            f"pass a contiguous copy, or compile with strided=({param.name!r},)",
        )
    if array.place != HOST:  # of arrays on the host, aligned copies are made
        check_strides(kernel.name, param.name, param.output, array)
        if array.pointer % param.align:
            refuse(
                f"is at address {array.pointer:#x}, no multiple of {param.align} bytes",
                "pass an array that does not begin inside another one's aligned block",
            )


def _check_rows(kernel: tir.Kernel, param: tir.Param, array: Described) -> None:
    """Raises WrongArguments where not every row begins as aligned as the kernel relies on."""
    strides, size = memory_strides(param, array), param.dtype.size
    for axis, stride in enumerate(strides[:-1]):
        if stride * size % param.align:
            raise WrongArguments(
                kernel=kernel.name,
                what=f"{param.name} has the stride {stride} on axis {axis}: {stride * size} bytes are no multiple of "
                f"{param.align}, on which the kernel relies",
                advice="pad the rows, or compile the kernel for a smaller multiple",
            )


def check_strides(kernel: str, name: str, output: bool, array: Described) -> None:
    """Raises WrongArguments for strides that no kernel can work with: along the last axis elements follow one another;
    no axis runs backwards; elements of an output do not share bytes, those of an input may."""
    span = 1
    axes = [(n, s, axis) for axis, (n, s) in enumerate(zip(array.shape, array.strides, strict=True)) if n > 1]
    for extent, stride, axis in sorted(axes, key=lambda a: a[1]) if 0 not in array.shape else ():
        what = advice = ""
        if axis == len(array.shape) - 1 and stride != 1:
            what, advice = "accesses run along the last axis, whose stride must be 1", "pass a contiguous copy"
        elif stride < 0:
            what, advice = "it runs backwards", "pass a copy in the order of the axis"
        elif output and stride < span:
            what, advice = "elements that the kernel writes share memory", "pass an array without overlaps"
        if what:
            what = f"{name} has the stride {stride} on axis {axis} of shape {array.shape}: {what}"
            raise WrongArguments(kernel=kernel, what=what, advice=advice)
        span += (extent - 1) * stride


def memory_strides(param: tir.Param, array: Described) -> tuple[int, ...]:
    """Strides in elements, as the kernel sees the array: of an array on the host, those of its copy, whose rows are
    padded where the kernel takes strides. An axis of one element has stride 0."""
    shape, strides = array.shape, array.strides
    if array.place == HOST:
        strides = packed_strides(padded(param, shape))
    return tuple(stride if extent > 1 else 0 for extent, stride in zip(shape, strides, strict=True))


def padded(param: tir.Param, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a copy of an array: where the kernel takes strides, rows are as long as alignment asks for."""
    unit = param.align // param.dtype.size if param.strided else 1
    return (*shape[:-1], *(-(-extent // unit) * unit for extent in shape[-1:]))


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


# ---------------------------------------------------------------------------------------------- numbers


def packed(kernel: tir.Kernel, numbers: Sequence[Any]) -> tuple[int, ...]:
    """The scalar arguments as the bits that a launch takes; raises WrongArguments."""
    if len(numbers) != len(kernel.arguments):
        names = ", ".join(s.name for s in kernel.arguments) or "none"
        what = f"{len(numbers)} numbers are given, the scalars are {names}"
        raise WrongArguments(kernel=kernel.name, what=what, advice="give one number for each")
    return tuple(bits(kernel.name, s.name, s.dtype, given) for s, given in zip(kernel.arguments, numbers, strict=True))


def bits(kernel: str, name: str, dtype: DType, given: Any) -> int:
    """The 32 bits of the number that is given for the scalar ``name``; raises WrongArguments."""
    return packer(kernel, name, dtype)(given)


def packer(kernel: str, name: str, dtype: DType) -> Callable[[Any], int]:
    """A function of the number that is given for the scalar ``name`` to its 32 bits, which raises WrongArguments.
    Python's own numbers take a short way: it runs in every call."""

    def of_float(given: Any) -> int:
        kind = type(given)
        exact = kind is int and -(2**24) <= given <= 2**24
        try:
            found: int = unpack(pack(given if exact or kind is float else checked(kernel, name, dtype, given)))[0]
        except OverflowError:
            found = unpack(pack(checked(kernel, name, dtype, given)))[0]
        return found

    def of_int(given: Any) -> int:
        if type(given) is int and -(2**31) <= given < 2**31:
            return given & 0xFFFFFFFF
        return int(checked(kernel, name, dtype, given)) & 0xFFFFFFFF

    pack, unpack = struct.Struct("<f").pack, struct.Struct("<I").unpack

    return of_int if dtype.integer else of_float


# ---------------------------------------------------------------------------------------------- bytes in common


def region(param: tir.Param, array: Described) -> Region:
    """Where the bytes of an array lie."""
    if 0 in array.shape:
        return Region(0, 0, 0, 0)
    size, row, outer = param.dtype.size, 1, []
    axes = [(n, s) for n, s in zip(array.shape, array.strides, strict=True) if n > 1]
    for extent, step in sorted(((n, abs(s)) for n, s in axes), key=lambda axis: axis[1]):
        if step == row:  # it goes on where the axes inside it end
            row *= extent
        else:
            outer.append((extent, step))
    start = sum((n - 1) * s for n, s in axes if s < 0)
    span = row + sum((extent - 1) * step for extent, step in outer)
    return Region(start * size, span * size, row * size, gcd(*(step for _, step in outer)) * size)


def share_bytes(a: int, first: Region, b: int, second: Region) -> bool:
    """May arrays at the addresses a and b have a byte in common? Rows that lie beside each other, in one larger array,
    do not."""
    a, b = a + first.start, b + second.start
    if not (a < b + second.bytes and b < a + first.bytes):
        return False
    pitch = gcd(first.pitch, second.pitch)
    apart = (b - a) % pitch if pitch else 0
    return not (pitch and apart >= first.row and apart + second.row <= pitch)


def check_apart(kernel: tir.Kernel, binding: Binding, pointers: Sequence[int]) -> None:
    """Raises WrongArguments where an output has bytes in common with another array: CTAs run in no order, and what they
    read must not change."""
    for i, param in enumerate(kernel.params):
        if not param.output:
            continue
        for j, other in enumerate(kernel.params):
            if i != j and share_bytes(pointers[i], binding.regions[i], pointers[j], binding.regions[j]):
                raise WrongArguments(
                    kernel=kernel.name,
                    what=f"{param.name} is written and shares memory with {other.name}",
                    advice=f"give an array of its own for {param.name}",
                )
