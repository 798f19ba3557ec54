"""Kernels through every way that users have: plain, plans of both producers, the checker, the simulator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from judging import difference

from tidegate.ops.plain import rounding_bound
from tidegate.plan.plan import AsyncPlan, Sync, SyncKind

PRODUCERS = ("in_order", "multistage")
COMPLETIONS = ("late", "early", "random")


def normal(*shape: int, dtype: Any = np.float32, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def unwritten(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    """An output that shows what a kernel leaves out."""
    return np.full(shape, np.nan).astype(dtype)


def agree(kernel: Any, *arrays: np.ndarray, producers: Iterable[str] = PRODUCERS, **given: Any) -> dict[str, Any]:
    """Asserts that the kernel is safe and equals its plain program, whatever completes when; for each producer the
    compiled kernel. The outputs among ``arrays`` hold the plain program's results afterwards."""
    multiples = given.pop("multiples", {name: 1 for name in kernel.dims if name not in given})
    found = {}
    start = [a.copy() for a in arrays]
    kernel.plain(*arrays, **given)
    for producer in producers:
        compiled = kernel.compile(target="sm_80", plan=producer, multiples=multiples, **given)
        verdict = vars(compiled).setdefault("verdict", None) or compiled.check()
        vars(compiled)["verdict"] = verdict  # equal requests share what was compiled, and so the proof for all sizes
        assert verdict.safe, f"{producer}: {verdict}"
        named = dict(zip((t.name for t in compiled.program.tensors), start, strict=True))
        with np.errstate(all="ignore"):
            bounds = rounding_bound(compiled.program, named)
        for completion in COMPLETIONS:
            got = [a.copy() for a in start]
            result = compiled.simulate(*got, completion=completion, seed=1)
            assert not [r for r in result.reports if not r.stmt.startswith("output ")], f"{producer}: {result}"
            for tensor, mine, plain in zip(compiled.program.tensors, got, arrays, strict=True):
                if tensor.output:
                    wrong = difference(mine, plain, bounds[tensor.name])
                    assert not wrong, f"{producer}, {completion}: {tensor.name} {wrong}"
        found[producer] = compiled
    return found


def waits(plan: AsyncPlan) -> list[int]:
    """Groups that the waits of a plan leave in flight."""
    return [s.count or 0 for s in plan.syncs if s.kind is SyncKind.COPY_WAIT]


def meetings(plan: AsyncPlan) -> list[Sync]:
    """Warp syncs, named barriers and block barriers of a plan."""
    return [s for s in plan.syncs if s.kind.rendezvous]


def changed(plan: AsyncPlan, changes: Mapping[str, Mapping[str, Any]]) -> AsyncPlan:
    """The plan with fields of some syncs (by id) replaced."""
    return replace(plan, syncs=tuple(replace(s, **changes.get(s.id, {})) for s in plan.syncs))
