"""Arrays in, sizes out: binds what the caller gives to the parameters of a kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from tidegate.errors import WrongArrays
from tidegate.ir import tir
from tidegate.ir.dtypes import number
from tidegate.ir.expr import Sym, evaluate, symbols


def bind(
    kernel: tir.Kernel, arrays: Mapping[str, Any]
) -> tuple[dict[str, int], dict[str, np.ndarray], dict[str, float]]:
    """The sizes of the kernel, its input arrays, contiguous, and its scalar arguments.

    Every tensor that is read must be given. One that is only written may be given, or left out when other arrays tell
    its shape; of a given one only shape and dtype count. Raises WrongArrays.
    """
    known = {p.name for p in kernel.params} | {s.name for s in kernel.arguments}
    if extra := sorted(set(arrays) - known):
        _refuse(f"{extra[0]!r} is no parameter of {kernel.name}", f"the parameters are {', '.join(sorted(known))}")
    given: dict[str, np.ndarray] = {p.name: np.asarray(arrays[p.name]) for p in kernel.params if p.name in arrays}
    for param in kernel.params:
        _check_type(param, given.get(param.name))
    sizes = _sizes(kernel, given)
    for param in kernel.params:
        _check_shape(param, given.get(param.name), sizes)
    inputs: dict[str, np.ndarray] = {p.name: np.ascontiguousarray(given[p.name]) for p in kernel.params if p.input}
    return sizes, inputs, {s.name: _number(s, arrays.get(s.name)) for s in kernel.arguments}


def _number(scalar: tir.Scalar, value: Any) -> float:
    found = number(scalar.dtype, value)
    if found is None:
        _refuse(f"{scalar.name} is {scalar.dtype}, {value!r} is given", f"give {scalar.name} as a number of that type")
    return found


def shape_of(param: tir.Param, sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(evaluate(e, sizes) for e in param.shape)


def _refuse(what: str, advice: str) -> NoReturn:
    raise WrongArrays(what=what, advice=advice)


def _check_type(param: tir.Param, array: np.ndarray | None) -> None:
    if array is None:
        if param.input:
            _refuse(f"no array is given for {param.name}", f"give {param.name} as an array of {param.dtype}")
        return
    if array.dtype != param.dtype.numpy:
        _refuse(
            f"{param.name} is {param.dtype}, the array is {array.dtype}",
            f"convert it: array.astype({param.dtype.numpy.name!r})",
        )
    if array.ndim != len(param.shape):
        _refuse(f"{param.name} has {len(param.shape)} axes, the array has shape {array.shape}", "reshape the array")


def _sizes(kernel: tir.Kernel, given: Mapping[str, np.ndarray]) -> dict[str, int]:
    sizes: dict[str, int] = {d.name: d.value for d in kernel.dims if d.value is not None}
    origin: dict[str, str] = {}
    for param in kernel.params:
        if param.name not in given:
            continue
        for axis, (expr, extent) in enumerate(zip(param.shape, given[param.name].shape, strict=True)):
            if isinstance(expr, Sym) and expr.name not in sizes:
                sizes[expr.name] = int(extent)
                origin[expr.name] = f"axis {axis} of {param.name}"
    for dim in kernel.dims:
        if dim.name not in sizes:
            _refuse(f"no array tells the size {dim.name}", f"give an array that has {dim.name} as an extent of its own")
        if sizes[dim.name] % dim.multiple:
            where = f" ({origin[dim.name]})" if dim.name in origin else ""
            _refuse(
                f"{dim.name} = {sizes[dim.name]}{where} is no multiple of {dim.multiple}, which the kernel relies on",
                f"pad the arrays, or compile the kernel without that promise on {dim.name}",
            )
    return sizes


def _check_shape(param: tir.Param, array: np.ndarray | None, sizes: Mapping[str, int]) -> None:
    if missing := [s for e in param.shape for s in symbols(e) if s not in sizes]:
        _refuse(f"the shape of {param.name} names {missing[0]}, which is no size of the kernel", "declare it as a dim")
    shape = shape_of(param, sizes)
    if array is not None and array.shape != shape:
        extents = ", ".join(
            f"{e} = {s}" if str(e) != str(s) else str(s) for e, s in zip(param.shape, shape, strict=True)
        )
        _refuse(f"{param.name} must have shape [{extents}], the array has {array.shape}", "make the sizes agree")
    if len(shape) > 1 and not param.strided and (shape[-1] * param.dtype.size) % param.align:
        _refuse(
            f"rows of {param.name} are {shape[-1] * param.dtype.size} bytes long, "
            f"which is no multiple of the alignment of {param.align} that the kernel relies on",
            f"pad the last axis of {param.name}, or compile for a smaller alignment",
        )
