"""Random hand-written TIR, judged by the checker and by runs of the simulator, which know nothing of each other."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal

from generators import GENERATORS

from tidegate.check import check
from tidegate.ir import tir
from tidegate.ir.text import parse_kernel
from tidegate.runtime.trial_sizes import trial_arrays
from tidegate.simulate import simulate

COMPLETIONS: tuple[Literal["late", "early", "random"], ...] = ("late", "early", "random")
SIZES = ((1, 1), (2, 1), (4, 2), (7, 2))
"""N and M, where the program has them."""


@dataclass(frozen=True)
class Judgement:
    """``status`` and ``kind`` are the checker's; ``fault`` is what a simulation met, '' for none. Seconds of both."""

    text: str
    status: str
    kind: str
    fault: str
    check_s: float
    simulate_s: float

    @property
    def wrong(self) -> bool:
        """Called safe, and a run shows that it is not."""
        return self.status == "safe" and bool(self.fault)


def judge(maker: str, seed: int, runs: int = 1) -> Judgement:
    """The program of ``GENERATORS[maker]`` and ``seed``, each size simulated ``runs`` times per completion policy."""
    text = GENERATORS[maker](seed)
    kernel = parse_kernel(text)
    start = time.perf_counter()
    verdict = check(kernel)
    middle = time.perf_counter()
    kind = verdict.findings[0].kind if verdict.findings else ""
    fault = "" if kind == "malformed" else simulated(text, runs)
    return Judgement(text, verdict.status, kind, fault, middle - start, time.perf_counter() - middle)


def simulated(text: str, runs: int) -> str:
    """The first fault that a simulation meets, with its circumstances; '' for none."""
    kernel = parse_kernel(text)
    names = [d.name for d in kernel.dims if d.value is None]
    sizes = dict.fromkeys(tuple(v for v, _ in zip(size, names, strict=False)) for size in SIZES)
    for values, completion, seed in product(sizes, COMPLETIONS, range(runs)):
        given = dict(zip(names, values, strict=True))
        fixed = _fixed(kernel, given)
        result = simulate(fixed, trial_arrays(fixed, given), completion=completion, seed=seed)
        if not result.ok:
            return f"{result.reports[0]} at {given}, {completion}, seed {seed}"
    return ""


def _fixed(kernel: tir.Kernel, given: Mapping[str, int]) -> tir.Kernel:
    """Sizes given, since no array tells them; without the outputs that nothing writes, which would be reported."""
    written = {s.dst.tensor for s in tir.walk(kernel.body) if isinstance(s, (tir.StGlobal, tir.TmaStore))}
    params = tuple(p for p in kernel.params if not p.output or p.name in written)
    dims = tuple(replace(d, value=given.get(d.name, d.value)) for d in kernel.dims)
    return replace(kernel, params=params, dims=dims)
