"""What a kernel can be called with, described alike: torch tensors, CuPy and JAX arrays, NumPy arrays.

No library is imported for it: a tensor is known by ``data_ptr``, the others by the protocols that they speak,
``__cuda_array_interface__`` (numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html), ``__dlpack__``
(dmlc.github.io/dlpack) and ``__array_interface__``.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NoReturn

from tidegate.errors import WrongArguments
from tidegate.ir.dtypes import NUMPY_NAMES

HOST = "host"

LEGACY_STREAM = 1
"""CU_STREAM_LEGACY: the protocols' word for the default stream, which the driver and torch also call 0."""


@dataclass(frozen=True)
class Described:
    """An array, as a launch sees it. ``dtype``: Tidegate's name of it, or the library's where it has none. ``strides``
    in elements. ``place``: "host", or a device such as "cuda:0". ``stream``: the one on which its owner works now;
    None where the owner names none."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    pointer: int
    place: str
    read_only: bool = False
    stream: int | None = None

    @property
    def device(self) -> int:
        """Index of the CUDA device; 0 for the host, whose arrays are copied to the first one."""
        return int(self.place.removeprefix("cuda:")) if self.place != HOST else 0

    @property
    def contiguous(self) -> bool:
        """Row-major without gaps; axes of one element have no stride that counts."""
        packed = packed_strides(self.shape)
        return 0 in self.shape or all(
            n == 1 or s == p for n, s, p in zip(self.shape, self.strides, packed, strict=True)
        )


def packed_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides in elements of a row-major array without gaps."""
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))


def describe_all(kernel: str, names: Sequence[str], arrays: Sequence[Any]) -> list[Described]:
    """The arrays of a call, for the parameters ``names`` of ``kernel``; raises WrongArguments for what is no array of a
    kind that a kernel can take."""
    if len(arrays) != len(names):
        raise WrongArguments(
            kernel=kernel,
            what=f"{len(arrays)} arrays are given for {len(names)} parameters",
            advice=f"give one array for each of {', '.join(names)}",
        )
    found: dict[int, Described] = {}
    for i, (name, array) in enumerate(zip(names, arrays, strict=True)):
        described = _describe(kernel, name, array)
        if described is not None:
            found[i] = described
    # Arrays that speak DLPack alone are handed over to the stream that the others are on.
    stream = next((d.stream for d in found.values() if d.stream is not None), 0)
    for i, (name, array) in enumerate(zip(names, arrays, strict=True)):
        if i not in found:
            found[i] = _from_dlpack(kernel, name, array, stream)
    return [found[i] for i in range(len(arrays))]


def _refuse(kernel: str, what: str, advice: str) -> NoReturn:
    raise WrongArguments(kernel=kernel, what=what, advice=advice)


def _describe(kernel: str, name: str, array: Any) -> Described | None:
    """None for an array that has to be asked through DLPack."""
    if hasattr(array, "data_ptr") and hasattr(array, "is_cuda"):
        return _from_torch(kernel, name, array)
    exports = hasattr(array, "__dlpack__") and hasattr(array, "__dlpack_device__")
    interface = getattr(array, "__cuda_array_interface__", None)
    # Of an array whose interface names no stream, only DLPack says when it is ready.
    if interface is not None and not (exports and interface.get("stream") is None):
        return _from_cuda_interface(kernel, name, array, interface)
    if hasattr(array, "__array_interface__"):
        return _from_numpy(array)
    if exports:
        return None
    _refuse(
        kernel,
        f"{name} is given a {type(array).__name__}",
        "give NumPy arrays, CUDA tensors of torch, or arrays with __cuda_array_interface__ or __dlpack__",
    )


def _from_torch(kernel: str, name: str, tensor: Any) -> Described:
    if not tensor.is_cuda:
        place = str(tensor.device).partition(":")[0]
        on = "the CPU" if place == "cpu" else f"the device {place!r}"
        _refuse(kernel, f"{name} is a tensor on {on}", "move it: tensor.cuda(), or pass NumPy arrays")
    try:
        pointer, strides = tensor.data_ptr(), tuple(tensor.stride())
    except RuntimeError as error:  # sparse, nested, or a tensor without memory
        _refuse(kernel, f"{name} is a tensor without strides: {str(error).splitlines()[0]}", "give a dense tensor")
    if not pointer and tensor.numel():
        _refuse(kernel, f"{name} is a {type(tensor).__name__} without memory of its own", "give a dense tensor")
    dtype = str(tensor.dtype).removeprefix("torch.")
    place = f"cuda:{tensor.get_device()}"
    stream = torch_stream(tensor.get_device())
    return Described(NUMPY_NAMES.get(dtype, dtype), tuple(tensor.shape), strides, pointer, place, stream=stream)


def torch_stream(index: int) -> int:
    """torch's current stream on a device."""
    return int(sys.modules["torch"].cuda.current_stream(index).cuda_stream)


def _from_numpy(array: Any) -> Described:
    dtype, size = array.dtype.name, array.dtype.itemsize
    strides = tuple(step // size for step in array.strides) if size else ()
    interface = array.__array_interface__
    return Described(
        NUMPY_NAMES.get(dtype, dtype), tuple(array.shape), strides, interface["data"][0], HOST, interface["data"][1]
    )


def _from_cuda_interface(kernel: str, name: str, array: Any, interface: dict[str, Any]) -> Described:
    import numpy as np

    kind = np.dtype(interface["typestr"])
    dtype = str(getattr(array, "dtype", kind)) if kind.kind == "V" else kind.name  # of bfloat16 and 8 bit floats
    if interface.get("mask") is not None:
        _refuse(kernel, f"{name} is a masked array", "fill the masked elements")
    shape, strides = tuple(interface["shape"]), interface.get("strides")
    if strides is not None and any(step % kind.itemsize for step in strides):
        _refuse(kernel, f"{name} has strides of {tuple(strides)} bytes, no whole elements", "pass a copy")
    pointer, read_only = interface["data"]
    stream = interface.get("stream")
    return Described(
        NUMPY_NAMES.get(dtype, dtype),
        shape,
        packed_strides(shape) if strides is None else tuple(step // kind.itemsize for step in strides),
        pointer,
        f"cuda:{_device_of(pointer)}",
        bool(read_only),
        0 if stream == LEGACY_STREAM else stream,
    )


def _device_of(pointer: int) -> int:
    """The device that memory is on; the first for no memory at all."""
    from tidegate.runtime import driver

    return driver.device_of(pointer) if pointer else 0


# ---------------------------------------------------------------------------------------------- DLPack

CUDA, CUDA_MANAGED = 2, 13
READ_ONLY = 1
VERSION = (1, 0)

_DLPACK_TYPES = {
    (2, 32): "f32", (2, 16): "f16", (4, 16): "bf16", (10, 8): "f8e4m3", (12, 8): "f8e5m2", (0, 8): "i8",
    (0, 32): "i32", (0, 64): "i64", (6, 8): "bool",
}  # fmt: skip
"""By DLDataTypeCode and bits."""


class _Tensor(ctypes.Structure):
    """DLTensor of dlpack.h."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Versioned(ctypes.Structure):
    """DLManagedTensorVersioned of dlpack.h."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


def _from_dlpack(kernel: str, name: str, array: Any, stream: int) -> Described:
    device, index = array.__dlpack_device__()
    if int(device) not in (CUDA, CUDA_MANAGED):
        _refuse(kernel, f"{name} is an array that is not on a CUDA device", "move it there, or pass NumPy arrays")
    capsule = _export(kernel, name, array, stream or LEGACY_STREAM)
    tensor, read_only = _tensor_of(capsule)
    read_only |= getattr(array, "__cuda_array_interface__", {}).get("data", (0, False))[1]
    shape = tuple(tensor.shape[: tensor.ndim])
    strides = tuple(tensor.strides[: tensor.ndim]) if tensor.strides else packed_strides(shape)
    known = _DLPACK_TYPES.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    dtype = known or str(getattr(array, "dtype", f"DLPack type {tensor.code} of {tensor.bits} bits"))
    pointer = (tensor.data or 0) + tensor.byte_offset
    return Described(dtype, shape, strides, pointer, f"cuda:{int(index)}", read_only)


def _export(kernel: str, name: str, array: Any, stream: int) -> Any:
    """The array's capsule, its memory ready for what runs on ``stream``."""
    try:
        try:
            return array.__dlpack__(stream=stream, max_version=VERSION)
        except TypeError:  # it knows the protocol from before version 1.0
            return array.__dlpack__(stream=stream)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        said = str(error).splitlines()[:1] or [type(error).__name__]
        _refuse(kernel, f"{name} cannot be shared: {said[0]}", "pass an array that lies on one device")


def _tensor_of(capsule: Any) -> tuple[_Tensor, bool]:
    """The DLTensor in a capsule, valid as long as the capsule lives, and whether it is read-only: it is taken to be so
    where its owner cannot say."""
    pointer_of, is_valid = ctypes.pythonapi.PyCapsule_GetPointer, ctypes.pythonapi.PyCapsule_IsValid
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    is_valid.argtypes = (ctypes.py_object, ctypes.c_char_p)
    if is_valid(capsule, b"dltensor_versioned"):
        versioned = _Versioned.from_address(pointer_of(capsule, b"dltensor_versioned"))
        return versioned.tensor, bool(versioned.flags & READ_ONLY)
    return _Tensor.from_address(pointer_of(capsule, b"dltensor")), True
