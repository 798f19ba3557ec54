"""Broken variants of a kernel: which the checker refuses, and what becomes of those that it accepts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from tidegate.check import check
from tidegate.check.mutate import OPERATORS
from tidegate.ir import tir
from tidegate.ir.expr import Bin, Expr, Int, evaluate, symbols
from tidegate.simulate import Completion, Simulation, simulate

Outcome = Literal["caught", "equivalent", "other program", "MISSED"]
OUTCOMES: tuple[Outcome, ...] = ("caught", "equivalent", "other program", "MISSED")

COMPLETIONS: tuple[Completion, ...] = ("late", "early", "random")

TILES = (5, 0, 2)
"""How many tiles of a size the simulator tries, the other sizes being one tile."""

_WHY = re.compile(r' "(?:[^"\\]|\\.)*"')
"""What a sync protects: too much for a row of a table, as the sync's id is there."""


@dataclass(frozen=True)
class Mutant:
    """One row. ``operator`` and ``name`` are those of tidegate.check.mutate.OPERATORS, ``found`` is the kind of the
    checker's finding ("not proved" where it only refuses to agree), or what the simulator says of an accepted mutant.
    """

    operator: int
    name: str
    place: str
    verdict: Outcome
    found: str


@dataclass(frozen=True)
class Mutation:
    """All mutants of a kernel. ``original`` is the checker's verdict on the kernel itself."""

    kernel: str
    target: str
    original: str
    mutants: tuple[Mutant, ...]

    @property
    def counts(self) -> dict[str, int]:
        found = Counter(m.verdict for m in self.mutants)
        return {outcome: found[outcome] for outcome in OUTCOMES}

    @property
    def passed(self) -> bool:
        """The kernel is safe, and no broken variant of it is taken for safe."""
        return self.original == "safe" and not self.counts["MISSED"]

    def to_json(self) -> dict[str, Any]:
        return {
            "kernel": self.kernel,
            "target": self.target,
            "original": self.original,
            "mutants": [asdict(m) for m in self.mutants],
            "counts": self.counts,
        }

    def __str__(self) -> str:
        counts = ", ".join(f"{n} {outcome}" for outcome, n in self.counts.items() if n) or "no operator applies"
        head = f"{self.kernel}: {len(self.mutants)} mutants, {counts}"
        rows = [(f"{m.operator:2} {m.name}", m.place, m.verdict, m.found) for m in self.mutants]
        widths = [max((len(row[i]) for row in rows), default=0) for i in range(3)]
        if self.original != "safe":
            head += f"; the kernel itself is {self.original.upper()}, so they show nothing"
        lines = ["  ".join(text.ljust(width) for text, width in zip(row, (*widths, 0), strict=True)) for row in rows]
        return "\n".join([head, *(f"  {line}".rstrip() for line in lines)])


def mutate(kernel: tir.Kernel, seed: int = 0) -> Mutation:
    """Every mutant of ``kernel``, checked; those that the checker accepts are simulated beside the kernel itself.

    An accepted mutant is 'equivalent' when the simulator is silent and its results are those of the kernel, 'MISSED'
    when the simulator reports a fault or the results depend on the timing, and an 'other program' when they do not,
    but differ from the kernel's: such a mutant is in order and means something else, which is not the checker's
    question.
    """
    rows = tuple(
        Mutant(o.number, o.name, _WHY.sub("", what), *_judge(kernel, m, seed))
        for o in OPERATORS
        for what, m in o.apply(kernel)
    )
    return Mutation(kernel.name, kernel.target, check(kernel).status, rows)


def _judge(kernel: tir.Kernel, mutant: tir.Kernel, seed: int) -> tuple[Outcome, str]:
    verdict = check(mutant)
    if not verdict.safe:
        return "caught", verdict.findings[0].kind if verdict.findings else verdict.status
    differs = ""
    for sizes in _sizes(kernel):
        where = f" with {', '.join(f'{n}={v}' for n, v in sizes.items())}" if sizes else ""
        arrays = _arrays(kernel, sizes, seed)
        plain = _run(kernel, sizes, arrays, "late", seed)
        usual = {r.kind for r in plain.reports}  # e.g. a kernel that leaves a part of its output as it was
        runs = [_run(mutant, sizes, arrays, completion, seed) for completion in COMPLETIONS]
        if fault := next((r.kind for run in runs for r in run.reports if r.kind not in usual), ""):
            return "MISSED", f"simulator: {fault}{where}"
        if not all(_same(runs[0].outputs, run.outputs) for run in runs):
            return "MISSED", f"simulator: results depend on the timing{where}"
        if not _same(plain.outputs, runs[0].outputs):
            differs = differs or f"simulator: other results{where}"
    return ("other program", differs) if differs else ("equivalent", "simulator: the same results")


def _same(a: Mapping[str, np.ndarray], b: Mapping[str, np.ndarray]) -> bool:
    return all(np.array_equal(a[name], b[name], equal_nan=True) for name in a)


def _run(
    kernel: tir.Kernel, sizes: Mapping[str, int], arrays: Mapping[str, Any], completion: Completion, seed: int
) -> Simulation:
    """One run, with the sizes that arrays do not tell."""
    dims = tuple(replace(d, value=sizes.get(d.name, d.value)) for d in kernel.dims)
    return simulate(replace(kernel, dims=dims), arrays, completion=completion, seed=seed)


def _arrays(kernel: tir.Kernel, sizes: Mapping[str, int], seed: int) -> dict[str, Any]:
    """Small integers, of which every sum is exact."""
    known = {str(d.name): sizes[d.name] if d.value is None else d.value for d in kernel.dims}
    rng = np.random.default_rng(seed)
    shapes = {p: tuple(evaluate(e, known) for e in p.shape) for p in kernel.params}
    arrays: dict[str, Any] = {p.name: rng.integers(-4, 5, shape).astype(p.dtype.numpy) for p, shape in shapes.items()}
    return arrays | {s.name: 3 for s in kernel.arguments}


# ---------------------------------------------------------------------------------------------- sizes


def _sizes(kernel: tir.Kernel) -> Iterator[dict[str, int]]:
    """Values for the sizes that are launch arguments: one tile each, then each in turn more, or none."""
    tiles = {str(d.name): _tile(kernel, d) for d in kernel.dims if d.value is None}
    yield tiles
    for n in TILES:
        for name in tiles:
            yield {**tiles, name: n * tiles[name]}


def _tile(kernel: tir.Kernel, dim: tir.Dim) -> int:
    """The largest divisor under which the dim stands in a bound, rounded up to its known factor."""
    found = [n for e in _bounds(kernel) for n in _divisors(e, dim.name)]
    return -(-max(found, default=1) // dim.multiple) * dim.multiple


def _bounds(kernel: tir.Kernel) -> Iterator[Expr]:
    yield from (axis.extent for axis in kernel.grid)
    for stmt in tir.walk(kernel.body):
        if isinstance(stmt, tir.For):
            yield stmt.stop


def _divisors(e: Expr, name: str) -> Iterator[int]:
    if isinstance(e, Bin):
        if e.op in ("cdiv", "/") and isinstance(e.b, Int) and name in symbols(e.a):
            yield e.b.value
        yield from _divisors(e.a, name)
        yield from _divisors(e.b, name)
