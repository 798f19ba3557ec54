"""Launches on arrays that are not torch tensors: CuPy's, JAX's, NumPy's."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from tidegate.runtime import driver
from tidegate.runtime.arguments import check_apart, padded
from tidegate.runtime.arrays import HOST, Described
from tidegate.runtime.prepared import Prepared, Ready


def run(prepared: Prepared, arrays: Sequence[Any], described: Sequence[Described], more: Sequence[int] = ()) -> None:
    """Launches on arrays of any kind. ``more``: launch values that follow all others."""
    pointers = [d.pointer for d in described]
    if described and described[0].place != HOST:
        on_streams(prepared.at(pointers), [d.stream for d in described], more)
        return
    check_apart(prepared.kernel, prepared.binding, pointers)
    if prepared.binding.grid:
        with driver.current(prepared.function.index):
            with_copies(prepared, arrays, more)


def on_streams(ready: Ready, streams: Sequence[int | None], more: Sequence[int]) -> None:
    """Launches on the first stream that an array names, in order with the others; where an array names none, waits for
    the end: nothing else tells its owner when that is."""
    named = list(dict.fromkeys(s for s in streams if s is not None)) or [0]
    chosen, others = named[0], named[1:]
    with driver.current(ready.index):
        for other in others:
            driver.follow(ready.name, chosen, other)
        ready.launch(chosen, more)
        for other in others:
            driver.follow(ready.name, other, chosen)
        if None in streams:
            driver.synchronize(ready.name, chosen)


def with_copies(prepared: Prepared, arrays: Sequence[Any], more: Sequence[int]) -> None:
    """Copies NumPy arrays to the current device, launches, and copies the outputs back."""
    import numpy as np

    name = prepared.kernel.name
    held: list[ctypes.c_uint64] = []
    try:
        for param, array in zip(prepared.kernel.params, arrays, strict=True):
            host = np.zeros(padded(param, array.shape), array.dtype)
            host[..., : array.shape[-1]] = array
            held.append(driver.allocate(name, host.nbytes))
            driver.to_device(name, held[-1], host.ctypes.data, host.nbytes)
        Ready(prepared, [memory.value for memory in held]).launch(0, more)
        driver.synchronize(name)
        for param, array, memory in zip(prepared.kernel.params, arrays, held, strict=True):
            if param.output:
                host = np.empty(padded(param, array.shape), array.dtype)
                driver.to_host(name, host.ctypes.data, memory, host.nbytes)
                array[...] = host[..., : array.shape[-1]]
    finally:
        for memory in held:
            driver.free(memory)
