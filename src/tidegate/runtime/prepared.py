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


class Ready:
    """A launch that lacks the stream, and the values that change from call to call, which are the last of its
    arguments. ``values``: those before them, each a whole number of at most 8 bytes."""

    __slots__ = ("_pool", "_values", "configs", "current", "function", "index", "name", "parameters", "start", "stream")

    def __init__(self, prepared: Prepared, pointers: Sequence[int]) -> None:
        self.name, self.index = prepared.kernel.name, prepared.function.index
        self.start = driver.loaded().cuLaunchKernelEx if prepared.binding.grid else _start_nothing
        self.function, self.configs = prepared.function.handle, prepared.configs
        self.stream, self.current = torch_state()
        self._values = (*pointers, *prepared.binding.values)
        self._pool: list[driver.Parameters] = []
        self.parameters = driver.Parameters(self._values).reference

    def launch(self, stream: int, more: Sequence[int] = (), away: bool = True) -> None:
        """Starts the kernel on a stream of its device. ``more``: the last arguments. ``away``: another device may be
        the thread's current one."""
        if not more:
            self._start(stream, self.parameters, away)
            return
        try:
            own = self._pool.pop()
        except IndexError:
            own = driver.Parameters((*self._values, *more))
        own.words[len(self._values) :] = list(more)
        self._start(stream, own.reference, away)
        self._pool.append(own)

    def _start(self, stream: int, parameters: Any, away: bool) -> None:
        status = driver.OTHER_CONTEXT[0] if away else self.start(self.configs[stream], self.function, parameters, None)
        if status in driver.OTHER_CONTEXT:
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
