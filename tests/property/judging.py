"""What must hold of a scheduled program with every producer: refused in the author's terms, or right."""

from __future__ import annotations

import itertools
import json
import random
import time
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from language import kernel_of
from strategies import RandomProgram

from tidegate.check import check
from tidegate.check.explore import explorer
from tidegate.check.machine import Machine
from tidegate.check.wholes import faulty
from tidegate.errors import PlanRejected, TidegateError
from tidegate.ir import legal, tir
from tidegate.ir.spec import verify
from tidegate.lower.lower import lower
from tidegate.ops.plain import rounding_bound
from tidegate.ops.samples import sample, unwritten
from tidegate.plan.file import from_json
from tidegate.plan.plan import AsyncPlan, SyncKind
from tidegate.plan.validate import validate
from tidegate.runtime.compiled import Compiled

TARGET = "sm_80"
VARIANTS = tuple(itertools.product(("in_order", "multistage"), (True, False)))
NUMBERS = (-3, 8)
"""Between these are the integers that programs read, numbers of trips among them: more trips show nothing new."""


@dataclass
class Outcome:
    """``refusal``: the coded error, if any; ``faults``: (kind, what went wrong); ``seconds`` per stage; ``kernels``:
    distinct ones that were judged, ``proved`` of them for all sizes; ``syncs`` removed, of which ``slotwise`` ones are
    needless because of the slots that rings which share bytes are in; ``plans`` broken."""

    refusal: str = ""
    faults: list[tuple[str, str]] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    kernels: int = 0
    proved: int = 0
    syncs: int = 0
    slotwise: int = 0
    plans: int = 0

    def time(self, stage: str, since: float) -> None:
        self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - since


def data(program: RandomProgram, compiled: Compiled, seed: int) -> list[np.ndarray]:
    """Random inputs and unwritten outputs. Sizes are rounded up to what the kernel was compiled for."""
    multiples = {d.name: d.multiple for d in compiled.legal.dims}
    sizes = {d.name: -(-d.size // multiples[d.name]) * multiples[d.name] for d in program.dims}
    rng = np.random.default_rng(seed)
    arrays = []
    for tensor, (_, axes, _, output) in zip(compiled.program.tensors, program.shapes, strict=True):
        shape = tuple(sizes[a] if isinstance(a, str) else a for a in axes)
        if tensor.dtype.integer and not output:
            arrays.append(rng.integers(*NUMBERS, shape).astype(tensor.dtype.numpy))
        else:
            arrays.append(unwritten(shape, tensor.dtype) if output else sample(rng, shape, tensor.dtype))
    return arrays


def judge(
    program: RandomProgram, seed: int = 0, variants: tuple[tuple[str, bool], ...] = VARIANTS, broken: bool = True
) -> Outcome:
    """Everything that must hold; every rule that does not is a fault of the outcome. ``broken``: also of the kernel and
    the plan with a sync less."""
    outcome = Outcome()
    try:
        kernel = kernel_of(program.text)
    except Exception as error:
        outcome.faults.append(("crash", f"front end: {type(error).__name__}: {error}"))
        return outcome
    seen: set[tir.Kernel] = set()
    for producer, share in variants:
        _variant(program, kernel, producer, share, seed, outcome, seen, broken)
        if outcome.refusal:
            break
    return outcome


def _variant(
    program: RandomProgram,
    kernel: Any,
    producer: str,
    share: bool,
    seed: int,
    outcome: Outcome,
    seen: set[tir.Kernel],
    broken: bool,
) -> None:
    start = time.perf_counter()
    label = f"{producer}, share={share}"
    try:
        compiled = kernel.compile(TARGET, plan=producer, share=share, warps=program.warps, **program.compile_options())
        lowered = compiled.kernel
    except TidegateError as error:
        outcome.refusal = f"{type(error).__name__}: {error}"
        return
    except Exception as error:
        outcome.faults.append(("crash", f"{label}: {type(error).__name__}: {error}"))
        return
    finally:
        outcome.time("compile", start)
    if lowered in seen:
        return
    seen.add(lowered)
    outcome.kernels += 1
    try:
        found = _legal(compiled, outcome)
        if not found:
            found = _values(program, kernel, compiled, seed, outcome)
            found += _necessary(compiled, outcome) if broken else []
        found += _saved(compiled, outcome)
        found += _rejected(compiled, seed, outcome) if broken else []
    except Exception as error:
        found = [("crash", f"{type(error).__name__}: {error}")]
    outcome.faults += [(kind, f"{label}: {text}") for kind, text in found]


def _legal(compiled: Compiled, outcome: Outcome) -> list[tuple[str, str]]:
    start = time.perf_counter()
    violations = [("illegal", str(v)) for v in verify(compiled.kernel)]
    outcome.time("verify", start)
    if violations:
        return violations
    start = time.perf_counter()
    verdict = check(compiled.kernel)
    outcome.time("check", start)
    outcome.proved += verdict.status == "safe"
    return [] if verdict.safe else [(verdict.status, verdict.text())]


def open_ended(compiled: Compiled) -> bool:
    """Whether conditions or numbers exist only when the kernel runs. There the checker may know better than the planner
    which outcomes exclude one another: a sync may be needless."""
    return bool(compiled.legal.scalars) or any(isinstance(n, legal.If) for n in legal.walk(compiled.legal.body))


def _values(
    program: RandomProgram, kernel: Any, compiled: Compiled, seed: int, outcome: Outcome
) -> list[tuple[str, str]]:
    """The simulation under every completion policy equals the plain program within its rounding bound."""
    start = time.perf_counter()
    arrays = data(program, compiled, seed)
    names = [t.name for t in compiled.program.tensors]
    with np.errstate(all="ignore"):
        bounds = rounding_bound(compiled.program, dict(zip(names, arrays, strict=True)))
    wanted = [a.copy() for a in arrays]
    fixed = {d.name: d.size for d in program.dims if d.fixed}
    kernel.plain(*wanted, warps=program.warps, **fixed)
    outcome.time("plain", start)
    found = []
    start = time.perf_counter()
    for completion in ("late", "early", "random"):
        got = [a.copy() for a in arrays]
        result = compiled.simulate(*got, completion=completion, seed=seed)
        reports = [r for r in result.reports if not r.stmt.startswith("output ")]
        if reports:
            found.append(("simulation", f"{completion}: {reports[0]}"))
        for tensor, mine, plain in zip(compiled.program.tensors, got, wanted, strict=True):
            if tensor.output and (text := difference(mine, plain, bounds[tensor.name])):
                found.append(("value", f"{completion}: {tensor.name} {text}"))
    outcome.time("simulate", start)
    return found


def difference(mine: np.ndarray, plain: np.ndarray, bound: np.ndarray) -> str:
    """Where two arrays differ by more than ``bound``; empty if nowhere."""
    a, b = mine.astype(np.float64), plain.astype(np.float64)
    with np.errstate(invalid="ignore"):
        equal = (a == b) | (np.isnan(a) & np.isnan(b)) | ~np.isfinite(bound)
        wrong = ~(equal | (np.abs(a - b) <= bound))
    if not wrong.any():
        return ""
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f"differs at {int(wrong.sum())} places, the first {at}: {a[at]} is not {b[at]} within {bound[at]}"


def without(body: tuple[tir.Stmt, ...], sync: tir.Sync) -> tuple[tir.Stmt, ...]:
    """The body without one sync."""
    out: list[tir.Stmt] = []
    for stmt in body:
        if isinstance(stmt, tir.Sync) and stmt.id == sync.id:
            continue
        out.append(replace(stmt, body=without(stmt.body, sync)) if isinstance(stmt, (tir.For, tir.If)) else stmt)
    return tuple(out)


def _necessary(compiled: Compiled, outcome: Outcome) -> list[tuple[str, str]]:
    """Each sync removed makes the checker object, unless the kernel is open-ended. Plans order rings that share bytes
    as wholes, whatever their slots: what only that makes necessary is counted."""
    start = time.perf_counter()
    kernel = compiled.kernel
    syncs = [s for s in tir.walk(kernel.body) if isinstance(s, tir.Sync)]
    outcome.syncs += len(syncs)
    found = []
    for sync in syncs:
        less = replace(kernel, body=without(kernel.body, sync))
        verdict = check(less)
        if verdict.status == "unsafe" or open_ended(compiled):
            continue
        wholes = Machine(less).catalogue.entangled
        if faulty(explorer(Machine(less, wholes=wholes), {})):
            outcome.slotwise += 1
        else:
            text = f"without {type(sync).__name__} {sync.id} ({sync.why}) the checker says {verdict.status}"
            found.append(("needless" if verdict.status == "safe" else "no witness", f"{text} {verdict.reason}"))
    outcome.time("removals", start)
    return found


def _saved(compiled: Compiled, outcome: Outcome) -> list[tuple[str, str]]:
    """A saved plan is the plan."""
    start = time.perf_counter()
    found = []
    plan = from_json(json.loads(json.dumps(compiled.plan.to_json())))
    if plan != compiled.plan:
        found.append(("plan", "the loaded plan differs from the saved one"))
    try:
        validate(plan, compiled.analysis)
        if lower(compiled.legal, plan) != compiled.kernel:
            found.append(("plan", "the loaded plan lowers to another kernel"))
    except PlanRejected as error:
        found.append(("plan", f"the producer's own plan is rejected: {error}"))
    outcome.time("saved", start)
    return found


def _rejected(compiled: Compiled, seed: int, outcome: Outcome) -> list[tuple[str, str]]:
    """The plan with a sync less, or a wait for a group less, is rejected."""
    start = time.perf_counter()
    found = []
    for text, broken in _broken(compiled.plan, random.Random(seed)):
        outcome.plans += 1
        try:
            validate(broken, compiled.analysis)
            found.append(("accepted", f"the plan {text} is accepted"))
        except PlanRejected:
            pass
    outcome.time("rejected", start)
    return found


def _broken(plan: AsyncPlan, rng: random.Random) -> list[tuple[str, AsyncPlan]]:
    out = []
    for sync in plan.syncs:
        rest = tuple(s for s in plan.syncs if s is not sync)
        out.append((f"without {sync.id} ({sync.kind.value})", replace(plan, syncs=rest)))
        if sync.kind is SyncKind.COPY_WAIT:
            more = replace(sync, count=(sync.count or 0) + 1)
            syncs = tuple(more if s is sync else s for s in plan.syncs)
            out.append((f"with {sync.id} waiting for one group less", replace(plan, syncs=syncs)))
    return out if len(out) <= 24 else rng.sample(out, 24)
