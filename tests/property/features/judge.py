"""What must hold of a program of a feature: refused in the author's terms, or legal, safe, and equal to plain."""

from __future__ import annotations

import random
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from judging import difference
from language import kernel_of
from strategies import Chooser

from features.program import FEATURES, FeatureProgram
from tidegate.check import check
from tidegate.errors import InternalError, TidegateError
from tidegate.ir.spec import verify
from tidegate.ops.plain import rounding_bound

COMPLETIONS = ("late", "early", "random")


@dataclass
class Judgement:
    """``refusal``: the coded error, if any; ``unproved``: why the checker could decide for some sizes only; ``faults``:
    (kind, what went wrong); ``seconds`` per stage."""

    refusal: str = ""
    unproved: str = ""
    faults: list[tuple[str, str]] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    def timed(self, stage: str, work: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        try:
            return work()
        finally:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - start


def seeded(feature: str, seed: int) -> FeatureProgram:
    """The program of a seed."""
    return FEATURES[feature](Chooser(random.Random(f"{feature} {seed}").randrange))


def judge(program: FeatureProgram, seed: int = 0, run: Callable[..., list[tuple[str, str]]] | None = None) -> Judgement:
    """Everything that must hold. ``run``: what to do with the compiled kernel, :func:`simulated` by default."""
    outcome = Judgement()
    try:
        kernel = outcome.timed("front end", lambda: kernel_of(program.text))
        compiled = outcome.timed("compile", lambda: kernel.compile(program.target, **program.options))
        outcome.timed("compile", lambda: compiled.kernel)
    except InternalError as error:
        outcome.faults.append(("crash", str(error)))
        return outcome
    except TidegateError as error:
        outcome.refusal = f"{error.code} {type(error).__name__}: {error}"
        return outcome
    except Exception:
        outcome.faults.append(("crash", traceback.format_exc(limit=-3)))
        return outcome
    try:
        outcome.faults += (run or simulated)(program, kernel, compiled, seed, outcome)
    except Exception:
        outcome.faults.append(("crash", traceback.format_exc(limit=-3)))
    return outcome


def simulated(
    program: FeatureProgram, kernel: Any, compiled: Any, seed: int, outcome: Judgement
) -> list[tuple[str, str]]:
    """Faults of the TIR: by its rules, by the checker, and on the simulator under every completion policy."""
    violations = outcome.timed("verify", lambda: verify(compiled.kernel))
    if violations:
        return [("illegal", str(v)) for v in violations]
    outcome.timed("emit", lambda: compiled.cuda)
    found = outcome.timed("check", lambda: unsafe(program, compiled.kernel, outcome))
    wanted, bounds = outcome.timed("plain", lambda: expected(program, kernel, compiled, seed))
    left = outcome.timed("plain", lambda: untouched(program, kernel, seed, wanted))
    for completion in COMPLETIONS:
        got = program.arguments(seed)
        result = outcome.timed("simulate", lambda: compiled.simulate(*got, completion=completion, seed=seed))  # noqa: B023
        reports = [r for r in result.reports if not r.stmt.startswith("output ")]
        found += [("simulation", f"{completion}: {r}") for r in reports[:1]]
        for at, where in left.items():  # the simulator poisons them
            got[at][where] = wanted[at][where]
        found += [("value", f"{completion}: {text}") for text in differences(program, got, wanted, bounds)]
    return found


def unsafe(program: FeatureProgram, kernel: Any, outcome: Judgement) -> list[tuple[str, str]]:
    """The checker's objection, if any. What it cannot prove for all sizes it is asked for those of the run."""
    verdict = check(kernel)
    if verdict.status == "not proved":
        outcome.unproved = verdict.reason
        verdict = check(kernel, {s.name: s.value for s in program.sizes if s.multiple is not None})
    return [("unsafe", verdict.text())] if verdict.status == "unsafe" else []


def expected(program: FeatureProgram, kernel: Any, compiled: Any, seed: int) -> tuple[list[Any], dict[str, np.ndarray]]:
    """Arguments of a call after the plain program, and bounds on the difference per output."""
    named = {p.name: a for p, a in zip(program.parameters, program.arguments(seed), strict=True)}
    with np.errstate(all="ignore"):
        bounds = rounding_bound(compiled.program, named, compiled.target)
    wanted = program.arguments(seed)
    kernel.plain(*wanted, warps=program.warps, **program.fixed)
    return wanted, bounds


def untouched(program: FeatureProgram, kernel: Any, seed: int, wanted: Sequence[Any]) -> dict[int, np.ndarray]:
    """Per output of integers or masks the elements that no program writes."""
    outputs = [i for i, p in enumerate(program.parameters) if p.kind == "Out" and wanted[i].dtype.kind in "ib"]
    if not outputs:
        return {}
    other = program.arguments(seed, unwritten=0)
    kernel.plain(*other, warps=program.warps, **program.fixed)
    return {i: np.asarray(wanted[i] != other[i]) for i in outputs}


def differences(
    program: FeatureProgram, got: Sequence[Any], wanted: Sequence[Any], bounds: dict[str, np.ndarray]
) -> list[str]:
    """Per output, where it is further from plain than its bound."""
    found = []
    for parameter, mine, plain in zip(program.parameters, got, wanted, strict=True):
        if not parameter.written:
            continue
        bound = bounds[parameter.name]
        if plain.dtype.kind in "ib" and not bound.any():  # exact, also where float64 is not
            wrong = np.argwhere(mine != plain)
            text = f"differs at {len(wrong)} places, the first {wrong[0]}" if len(wrong) else ""
        else:
            text = difference(mine, plain, bound)
        found += [f"{parameter.name} {text}"] if text else []
    return found
