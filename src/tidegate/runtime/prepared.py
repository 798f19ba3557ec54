"""A launch that has been checked and packed, as far as it can be before the addresses and the stream are known."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tidegate.ir import tir
from tidegate.runtime import driver
from tidegate.runtime.arguments import Binding, check_apart
from tidegate.runtime.arrays import torch_stream
from tidegate.runtime.graph import FIRST, Graph, Graphs


class Ready:
    """A launch that lacks the stream, and the values that change from call to call, which are the last of its
    arguments. ``values``: those before them, each a whole number of at most 8 bytes."""

    __slots__ = (
        "_graph", "_launches", "_pool", "_prepared", "_values",
        "configs", "current", "function", "index", "name", "parameters", "start", "stream",
    )  # fmt: skip

    def __init__(self, prepared: Prepared, pointers: Sequence[int]) -> None:
        self.name, self.index = prepared.kernel.name, prepared.function.index
        self.start = driver.loaded().cuLaunchKernelEx if prepared.binding.grid else _start_nothing
        self.function, self.configs = prepared.function.handle, prepared.configs
        self.stream, self.current = torch_state()
        self._values = (*pointers, *prepared.binding.values)
        self._pool: list[driver.Parameters] = []
        self.parameters = driver.Parameters(self._values).reference
        self._prepared, self._launches = prepared, 0
        self._graph: Graph | None = None

    def launch(self, stream: int, more: Sequence[int] = (), away: bool = True) -> None:
        """Starts the kernel on a stream of its device. ``more``: the last arguments. ``away``: another device may be
        the thread's current one."""
        pool, at = self._pool, len(self._values)
        try:
            own = pool.pop()
        except IndexError:
            own = driver.Parameters((*self._values, *more))
        for value in more:
            own.words[at] = value
            at += 1
        if away or self.start(self.configs[stream], self.function, own.reference, None):
            self._start(stream, own.reference)
        pool.append(own)

    def again(self) -> bool:
        """Starts the kernel on the default stream by a graph; False if it has not been started."""
        if self._graph is not None:
            return self._graph.launch()
        self._launches += 1
        if self._launches == FIRST and self._prepared.binding.grid:
            function, grid = self._prepared.function, self._prepared.binding.grid
            self._graph = self._prepared.graphs.make(function, grid, self.parameters)
        return False

    def _start(self, stream: int, parameters: Any) -> None:
        """Starts the kernel where its device is the current one: the thread may have another one, or none. What is
        wrong besides shows again."""
        with driver.current(self.index):
            status = self.start(self.configs[stream], self.function, parameters, None)
        driver.check(self.name, "cuLaunchKernelEx", status)


@dataclass(frozen=True)
class Prepared:
    """A launch that lacks the addresses too."""

    kernel: tir.Kernel
    function: driver.Function
    binding: Binding
    configs: driver.Configs
    graphs: Graphs

    def at(self, pointers: Sequence[int]) -> Ready:
        """Raises WrongArguments where an output shares memory with another array."""
        check_apart(self.kernel, self.binding, pointers)
        return Ready(self, pointers)


def torch_state() -> tuple[Callable[[int], int], Callable[[], int] | None]:
    """Functions that tell torch's current stream on a device, and its current device: None where there is only one."""
    torch = sys.modules.get("torch")
    if torch is None:
        return _no_stream, None
    several = driver.device_count() > 1
    stream = getattr(torch._C, "_cuda_getCurrentRawStream", None) or torch_stream
    return stream, getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device) if several else None


def _no_stream(index: int) -> int:
    return 0


def _start_nothing(config: Any, function: Any, parameters: Any, extra: Any) -> int:
    """Starts a grid without CTAs."""
    return 0
