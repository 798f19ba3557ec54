"""A checker's witness, replayed in the simulator: the fault as wrong values or as a report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import chain
from typing import Any

import numpy as np

from tidegate.check import Run, Verdict
from tidegate.ir import tir
from tidegate.ir.expr import evaluate
from tidegate.ir.spec import placed
from tidegate.ir.text import print_stmt
from tidegate.runtime.trial_sizes import trial_sizes
from tidegate.simulate import Completion, Simulation, simulate

POLICIES: tuple[Completion, ...] = ("late", "random", "early")
SEEDS = 4


@dataclass(frozen=True)
class Replay:
    """What the simulator shows of a witness: ``shown`` is its first report, or that results depend on the timing; ""
    if nothing showed in any of the runs. ``sizes`` and the policy are those of the run that showed it."""

    shown: str
    completion: str
    seed: int
    sizes: tuple[tuple[str, int], ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        if not self.shown:
            return "replayed in the simulator: nothing shows with the sizes tried"
        sizes = ", ".join(f"{n}={v}" for n, v in self.sizes)
        where = f"{self.completion} completion, seed {self.seed}{f', {sizes}' if sizes else ''}"
        return f"replayed in the simulator ({where}):\n  {self.shown}"


def script(kernel: tir.Kernel, verdict: Verdict) -> list[tuple[str, tuple[int, ...]]]:
    """The witness as the simulator takes it: who executes the statement at which path next."""
    paths: dict[tuple[str, str], tuple[int, ...]] = {}
    for place in placed(kernel.body):
        paths.setdefault((place.role or "", print_stmt(place.stmt)), place.path)
    found = ((step.group, paths.get((step.group, step.text))) for step in verdict.timeline)
    return [(group, path) for group, path in found if path is not None]


def replay(kernel: tir.Kernel, verdict: Verdict) -> Replay:
    """Runs the witness of an unsafe verdict under every policy, with what the checker chose and then with a few other
    sizes, until the fault shows."""
    steps = script(kernel, verdict)
    chosen = [] if verdict.run is None else [(dict(verdict.run.sizes), _chosen(kernel, verdict.run))]
    for sizes, arrays in chain(chosen, ((sizes, _arrays(kernel, sizes)) for sizes in _sizes(kernel))):
        usual: Simulation | None = None
        for completion in POLICIES:
            for seed in range(SEEDS):
                run = _run(kernel, sizes, arrays, completion, seed, steps)
                usual = usual or run
                where = (completion, seed, tuple(sizes.items()))
                if run.reports:
                    return Replay(str(run.reports[0]), *where)
                if not all(np.array_equal(usual.outputs[n], run.outputs[n], equal_nan=True) for n in usual.outputs):
                    return Replay("the results depend on the timing", *where)
    return Replay("", "", 0, ())


def _chosen(kernel: tir.Kernel, run: Run) -> dict[str, Any]:
    """The arguments with the integers that the checker chose; an element outside its array reads as 0 anyway."""
    arrays = _arrays(kernel, dict(run.sizes)) | dict(run.arguments)
    for tensor, place, value in run.elements:
        if all(0 <= p < n for p, n in zip(place, arrays[tensor].shape, strict=True)):
            arrays[tensor][place] = value
    return arrays


def _run(
    kernel: tir.Kernel,
    sizes: Mapping[str, int],
    arrays: Mapping[str, Any],
    completion: Completion,
    seed: int,
    steps: list[tuple[str, tuple[int, ...]]],
) -> Simulation:
    dims = tuple(replace(d, value=sizes.get(d.name, d.value)) for d in kernel.dims)
    return simulate(replace(kernel, dims=dims), arrays, completion=completion, seed=seed, script=steps)


def _sizes(kernel: tir.Kernel) -> Iterator[dict[str, int]]:
    """A few trips of every loop, then the smallest sizes that the declared multiples allow, then none."""
    usual = trial_sizes(kernel, {})
    free = {str(d.name): d.multiple for d in kernel.dims if d.value is None}
    yield usual
    if free:
        yield {**usual, **free}
        yield {**usual, **dict.fromkeys(free, 0)}


def _arrays(kernel: tir.Kernel, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Small integers, of which every sum is exact."""
    rng = np.random.default_rng(0)
    shapes = {p: tuple(evaluate(e, sizes) for e in p.shape) for p in kernel.params}
    arrays: dict[str, Any] = {p.name: rng.integers(-4, 5, shape).astype(p.dtype.numpy) for p, shape in shapes.items()}
    return arrays | {s.name: 3 for s in kernel.arguments}
