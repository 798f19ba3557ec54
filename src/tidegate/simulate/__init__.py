"""The adversarial CPU machine: executes TIR with asynchrony that is as unkind as the rules allow.

:func:`simulate` runs every CTA of a kernel over NumPy arrays. A missing wait, barrier or warp sync shows as a wrong
number or as a report that names the access, its bytes and the copy or store that it meets. It tries one interleaving
per (completion, seed); tidegate.check decides for all of them.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from itertools import product
from numbers import Integral
from typing import Any, get_args

import numpy as np

from tidegate.errors import WrongArguments
from tidegate.ir import tir
from tidegate.ir.dtypes import I32
from tidegate.ir.dtypes import element as held
from tidegate.ir.expr import evaluate
from tidegate.simulate.access import cell_bytes
from tidegate.simulate.arguments import bind
from tidegate.simulate.clocks import Clocks
from tidegate.simulate.machine import Cta, Program
from tidegate.simulate.memory import Completion, SharedMemory
from tidegate.simulate.report import MAX_REPORTS, PoisonReport, Reports, Simulation
from tidegate.simulate.scheduler import Scheduler, ScriptStep
from tidegate.simulate.tensors import Tensors
from tidegate.simulate.trace import expand, resolve

__all__ = ["MAX_REPORTS", "Completion", "PoisonReport", "ScriptStep", "Simulation", "simulate"]


def simulate(
    kernel: tir.Kernel,
    arrays: Mapping[str, Any],
    *,
    completion: Completion = "late",
    seed: int = 0,
    script: Sequence[ScriptStep] | None = None,
) -> Simulation:
    """Runs ``kernel`` on ``arrays`` (by parameter name) and returns new output arrays with the faults met on the way.

    Sizes come from the shapes of the arrays; outputs may be left out when other arrays tell their shape. bf16 arrays
    have the NumPy dtype ml_dtypes.bfloat16; scalar arguments are numbers. ``completion`` says when asynchronous copies
    land and stores become visible, and when asynchronous reads happen: as 'late' as the rules allow, as 'early' as
    possible, or at 'random' moments. ``seed`` selects the
    interleaving of CTAs, warps and lanes; equal arguments give equal results.

    ``script`` makes every CTA begin with a given interleaving, such as the witness of a check: a list of pairs (who,
    path). In turn, those warps run on until they have executed the statement at that index path of the body once more,
    or cannot go on. Who is the name of a role, '' for the warps without one, or a sequence of warps. What the script
    leaves open is chosen by ``seed``.

    ``kernel`` keeps the rules of tidegate.ir.spec. Those that this machine does not stand on (a barrier's participants
    and counts, the depth of a cursor, the threads of a role) may be broken: then it shows what happens.

    Raises WrongArguments for an unknown policy or a seed below 0, WrongArrays for arrays that do not fit, NotExecutable
    for TIR without a meaning. A deadlock is a report, never a hang.
    """
    if completion not in get_args(Completion):
        what = f"completion={completion!r} is no policy"
        raise WrongArguments(kernel=kernel.name, what=what, advice=f"use one of {', '.join(get_args(Completion))}")
    number: object = seed
    if isinstance(number, bool) or not isinstance(number, Integral) or number < 0:
        what = f"seed={seed!r} is no whole number from 0 on"
        raise WrongArguments(kernel=kernel.name, what=what, advice="use seed=0, 1, 2, ...")
    seed = int(seed)
    resolve(kernel)
    sizes, inputs, numbers = bind(kernel, arrays)
    reports = Reports()

    def element(tensor: str, place: tuple[int, ...]) -> int:
        array = inputs.get(tensor)
        inside = array is not None and all(0 <= p < n for p, n in zip(place, array.shape, strict=True))
        return held(array[place]) if inside and array is not None else 0

    extents = [range(evaluate(axis.extent, sizes)) for axis in kernel.grid]
    indices = list(enumerate(product(*extents)))
    random.Random(seed).shuffle(indices)
    with np.errstate(all="ignore"):
        tensors = Tensors(kernel, inputs, sizes, cell_bytes(kernel), reports)
        program = Program(kernel, tensors.shapes)
        integers: dict[str, int] = {s.name: int(numbers[s.name]) for s in kernel.arguments if s.dtype == I32}
        for cta, index in indices:
            reports.cta = cta
            rng = random.Random(f"{seed} {cta}")
            axes: dict[str, int] = dict(zip((a.name for a in kernel.grid), index, strict=True))
            groups, steps = expand(kernel, {**sizes, **integers, **axes}, numbers, element)
            clocks = Clocks(kernel.warps, sum(b.stages for b in kernel.barriers))
            tensors.begin(cta, clocks, steps)
            memory = SharedMemory(kernel.smem, program.cell, completion, rng, reports, steps, clocks, program.strict)
            Scheduler(Cta(program, tensors, memory, clocks, reports), groups, rng, script or ()).run()
        outputs = tensors.outputs({p.name: np.asarray(arrays[p.name]) for p in kernel.params if p.name in arrays})
    return Simulation(outputs, reports.first(), completion, seed, reports.distinct)
