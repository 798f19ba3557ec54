"""Arguments of a program as torch tensors on the GPU, strides and all, and back."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any

import numpy as np

TORCH = importlib.util.find_spec("torch") is not None


def to_torch(array: np.ndarray) -> Any:
    """The array on the GPU with its strides. Bytes go over: torch and NumPy share no name for some types."""
    import torch

    whole = array if array.base is None else array.base
    item = array.itemsize
    kind = getattr(torch, array.dtype.name)
    tensor = torch.from_numpy(whole.view(f"i{item}")).cuda().view(kind)
    first = (array.ctypes.data - whole.ctypes.data) // item if array.size else 0
    return torch.as_strided(tensor, array.shape, [s // item for s in array.strides], first)


def to_numpy(tensor: Any, like: np.ndarray) -> np.ndarray:
    import torch

    words = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[like.itemsize]
    found: np.ndarray = tensor.contiguous().view(words).cpu().numpy().view(like.dtype)
    return found


def call_on_tensors(call: Any, arguments: Sequence[Any]) -> list[Any]:
    """Calls with torch tensors in place of arrays and waits; what the arguments hold afterwards."""
    import torch

    tensors = [to_torch(a) if isinstance(a, np.ndarray) else a for a in arguments]
    call(*tensors)
    torch.cuda.synchronize()
    return [to_numpy(t, a) if isinstance(a, np.ndarray) else a for t, a in zip(tensors, arguments, strict=True)]
