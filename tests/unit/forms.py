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
    kernel: Kernel, *arrays: np.ndarray, target: str = "sm_80", compile_text: bool = True, **options: Any
) -> list[np.ndarray]:
    """What the plain program writes, once every plan has been shown to be safe and to give the same."""
    constants = {name: value for name, value in options.items() if name != "multiples"}
    wanted = [a.copy() for a in arrays]
    kernel.plain(*wanted, **constants)
    for producer in PRODUCERS:
        k = kernel.compile(target, plan=producer, **options)
        assert (verdict := k.check()).status == "safe", verdict.text()
        if compile_text:
            assert k.cubin
        tensors = k.program.tensors
        bounds = rounding_bound(k.program, {t.name: a for t, a in zip(tensors, arrays, strict=True)})
        for completion in ("late", "early", "random"):
            got = [a.copy() for a in arrays]
            result = k.simulate(*got, completion=completion, seed=1)
            assert result.ok, f"{producer} {completion}: {result}"
            for tensor, mine, plain in zip(tensors, got, wanted, strict=True):
                if tensor.output:
                    assert not (text := difference(mine, plain, bounds[tensor.name])), f"{producer}: {text}"
    return [a for t, a in zip(k.program.tensors, wanted, strict=True) if t.output]
