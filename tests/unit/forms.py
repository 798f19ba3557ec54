"""One kernel through all of its forms: plain program, plan, checker, simulator, CUDA text and machine code."""

from __future__ import annotations

from typing import Any

import numpy as np
from judging import difference

from tidegate.lang.kernel import Kernel
from tidegate.ops.plain import rounding_bound

PRODUCERS = ("in_order", "multistage")


def numbers(*shape: int, dtype: Any = "f4", seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def agrees(
    kernel: Kernel, *arguments: Any, target: str = "sm_80", compile_text: bool = True, **options: Any
) -> list[np.ndarray]:
    """What the plain program writes, once every plan has been shown to be safe and to give the same. ``arguments``:
    arrays, and numbers for scalars."""
    constants = {name: value for name, value in options.items() if name != "multiples"}
    wanted = _copies(arguments)
    kernel.plain(*wanted, **constants)
    for producer in PRODUCERS:
        k = kernel.compile(target, plan=producer, **options)
        assert (verdict := k.check()).status == "safe", verdict.text()
        if compile_text:
            assert k.cubin
        names = k.program.order
        bounds = rounding_bound(k.program, dict(zip(names, arguments, strict=True)))
        for completion in ("late", "early", "random"):
            got = _copies(arguments)
            result = k.simulate(*got, completion=completion, seed=1)
            assert result.ok, f"{producer} {completion}: {result}"
            for name, mine, plain in zip(names, got, wanted, strict=True):
                if name in bounds:
                    assert not (text := difference(mine, plain, bounds[name])), f"{producer}: {text}"
    return [a for name, a in zip(names, wanted, strict=True) if name in bounds]


def _copies(arguments: tuple[Any, ...]) -> list[Any]:
    return [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]
