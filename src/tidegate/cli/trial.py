"""One kernel, tried: checked, simulated against the plain program, and run on the GPU where there is one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from math import prod
from typing import Any

import numpy as np

from tidegate.cli.files import describe, place_of
from tidegate.cli.lengths import PARTS, lengths, loops, moved, offsets, read_from, rising, stages
from tidegate.cli.options import scalars_of
from tidegate.errors import BadInputs, NoCompiler, TidegateError
from tidegate.ir import hir
from tidegate.ir.dtypes import I32
from tidegate.ir.expr import Expr, Sym, evaluate, symbols
from tidegate.ops import plain
from tidegate.ops.samples import sample, unwritten
from tidegate.runtime import device as devices
from tidegate.runtime.compiled import Compiled

COMPLETIONS = ("late", "early", "random")
MOST_BYTES = 2**32
"""All arrays of a trial together: beyond this neither the plain program nor the simulator would ever end."""

Progress = Callable[[str], AbstractContextManager[None]]


def trial(compiled: Compiled, own: Any, settings: Mapping[str, Any], seed: int, progress: Progress) -> dict[str, Any]:
    """Everything that was found out, as plain data. ``own``: the file's ``inputs``; ``settings``: what --set gives, of
    which scalars count."""
    name = compiled.name
    sizes = default_sizes(compiled)
    inputs = draw(compiled, own, sizes, settings, seed)
    sizes = sizes_of(compiled, inputs, sizes)
    arrays = {**inputs, **outputs(compiled, sizes)}
    compiled.fits(tuple(arrays[n] for n in compiled.program.order))
    with progress(f"{name}: plain program"):
        wanted = copied(arrays)
        trips = plain.run(compiled.program, [wanted[n] for n in compiled.program.order])
        bounds = plain.rounding_bound(compiled.program, arrays, compiled.target)
    with progress(f"{name}: check"):
        verdict = compiled.check()
    runs = []
    for completion in COMPLETIONS:
        with progress(f"{name}: simulation, completion {completion}"):
            runs.append(simulated(compiled, arrays, wanted, bounds, completion, seed))
    with progress(f"{name}: compile"):
        built = compile_cuda(compiled)
    with progress(f"{name}: GPU"):
        gpu = on_gpu(compiled, arrays, wanted, bounds) if built else None
    return {
        **head(compiled),
        "sizes": sizes,
        "scalars": plain.split(compiled.program, [arrays[n] for n in compiled.program.order])[1],
        "seed": seed,
        "verdict": verdict.status,
        "scope": verdict.scope,
        "findings": [str(f) for f in verdict.findings],
        "not_proved_because": verdict.reason or None,
        "matches_plain": all(r["ok"] and r["matches"] for r in runs),
        "max_rel_error": max(r["max_rel_error"] for r in runs),
        "simulations": runs,
        "short_loops": short_loops(compiled.program, trips),
        "smem_bytes": compiled.plan.smem_bytes,
        "smem_capacity": compiled.smem.capacity,
        "code": code_of(compiled) if built else None,
        "gpu": gpu,
        "syncs": [sync_row(s) for s in compiled.plan.syncs],
        "timings": timings(compiled, built),
    }


def short_loops(program: hir.Program, trips: Mapping[str, int]) -> list[dict[str, int]]:
    """The loops that never had a second trip, by line, although sizes or numbers of the run say how many they have: a
    trial shows nothing about what one trip leaves to the next."""
    fixed = {name for name, _ in program.sizes}
    told = [loop for loop in loops(program) if set(map(str, symbols(loop.trips))) - fixed]
    return [{"line": n.span.line, "trips": trips.get(n.id, 0)} for n in told if trips.get(n.id, 0) < 2]


def copied(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {n: a.copy() if isinstance(a, np.ndarray) else a for n, a in arguments.items()}


def agreed(result: Mapping[str, Any]) -> bool:
    """Safe, and equal to the plain program wherever it ran."""
    gpu = result["gpu"]
    return result["verdict"] == "safe" and result["matches_plain"] and (gpu is None or gpu["matches"])


def head(compiled: Compiled) -> dict[str, Any]:
    return {
        "kernel": compiled.name,
        "file": compiled.program.file,
        "line": compiled.program.span.line,
        "target": compiled.target.name,
        "plan": compiled.plan.producer,
        "warps": compiled.program.warps,
        "constants": {n: v if isinstance(v, (int, float, str)) else str(v) for n, v in compiled.program.constants},
    }


def sync_row(sync: Any) -> dict[str, Any]:
    return {
        "id": sync.id,
        "kind": sync.kind.value,
        "place": sync.place,
        "participants": sync.participants,
        "count_or_phase": sync.phase if sync.count is None else sync.count,
        "protects": list(sync.protects),
        "reason": sync.reason,
    }


def timings(compiled: Compiled, built: bool) -> dict[str, float | None]:
    """Milliseconds per stage; legalisation counts as analysis, lowering as emission."""
    spent = compiled.timings.spent
    rows = {
        "parse": ("parse",),
        "analyse": ("legalise", "analyse"),
        "plan": ("plan",),
        "emit": ("lower", "emit"),
        "compile": ("compile",),
    }
    found: dict[str, float | None] = {
        row: round(sum(spent.get(part, 0.0) for part in parts), 3) for row, parts in rows.items()
    }
    return found if built else {**found, "compile": None}


# ---------------------------------------------------------------------------------------------- sizes and arrays


def default_sizes(compiled: Compiled) -> dict[str, int]:
    """Sizes that show the edges: each run-time dimension is a little more than its tile (in a loop over a ring of S
    stages, than S tiles), and no multiple of the tile where what the kernel relies on allows that."""
    sizes = dict(compiled.program.sizes)
    uses = list(_uses(compiled.program))
    for dim in compiled.legal.dims:
        if dim.name in sizes:
            continue
        mine = [(tile, tiles) for extent, tile, tiles in uses if dim.name in symbols(extent)]
        tile, tiles = max(mine, key=lambda u: u[0] * u[1], default=(1, 1))
        unit = dim.multiple
        size = -(-(tile * tiles + max(tile // 8, 1)) // unit) * unit
        if size % tile == 0 and tile > unit:
            size += unit
        sizes[dim.name] = size
    return {d: sizes[d] for d in compiled.program.dims}


def _uses(program: hir.Program) -> Iterator[tuple[Expr, int, int]]:
    """Extent, tile size and the least number of full tiles, of every grid axis and loop, and of what numbers reach."""
    for axis in program.grid:
        yield axis.extent, axis.size, 1
    delimited = rising(program)
    for node in loops(program):
        loads = [op for op in hir.walk(node.body) if isinstance(op, hir.Load)]
        yield node.extent, node.size, stages(node)
        for part in (a for op in loads for a in op.window.axes if a.index == node.index):
            yield part.extent, part.size, stages(node)  # where the extent is a number that is read
        for extent in moved(program, node):
            yield extent, node.size, (stages(node) + 1) * (PARTS if delimited else 1)
    for tensor in program.tensors:
        if tensor.name in delimited:
            yield tensor.shape[-1], 1, PARTS


def draw(
    compiled: Compiled, own: Any, sizes: Mapping[str, int], settings: Mapping[str, Any], seed: int
) -> dict[str, Any]:
    """What is read, by name: the file's own, or standard normal numbers (small ones where they are whole); scalars
    that ``settings`` has are as given there."""
    rng = np.random.default_rng(seed)
    given = _own(compiled, own, rng, dict(sizes)) if own is not None else {}
    given |= scalars_of({s.name: s.dtype for s in compiled.program.scalars}, settings)
    wanted = [t for t in compiled.program.tensors if t.input]
    names = [*(t.name for t in wanted), *(s.name for s in compiled.program.scalars)]
    if extra := sorted(set(given) - set(names)):
        raise _bad(compiled, f"inputs gives {extra[0]!r}", f"the inputs are {', '.join(names)}")
    counts, ends, delimiting = read_from(compiled.program).values(), lengths(compiled.program), rising(compiled.program)
    most = max([3, *sizes.values()])
    for tensor in wanted:
        if tensor.name not in given:
            shape = _shape(compiled, tensor, sizes)
            if tensor.name in delimiting:
                given[tensor.name] = offsets(rng, shape, ends[tensor.name], most).astype(tensor.dtype.numpy)
            elif tensor.name in counts:  # lengths, counts, indices: from nothing to a little beyond the sizes
                drawn = rng.integers(0, max(most, ends.get(tensor.name, 0)) + 2, shape).astype(tensor.dtype.numpy)
                drawn.reshape(-1)[:1] = ends.get(tensor.name, drawn.reshape(-1)[:1])
                given[tensor.name] = drawn
            else:
                given[tensor.name] = sample(rng, shape, tensor.dtype)
    for scalar in compiled.program.scalars:
        if scalar.name not in given:
            given[scalar.name] = float(rng.standard_normal()) if scalar.dtype.floating else int(rng.integers(1, 6))
            if scalar.name in ends and scalar.dtype == I32:
                given[scalar.name] += ends[scalar.name]
    _bounded(compiled, sum(a.nbytes for a in given.values() if isinstance(a, np.ndarray)))
    return {n: given[n] for n in names}


def _own(compiled: Compiled, own: Any, rng: np.random.Generator, sizes: dict[str, int]) -> dict[str, Any]:
    """What the file's ``inputs`` gives for this kernel, in the parameters' dtypes."""
    advice = "inputs is a dict, or a function (kernel_name, rng, sizes), of arrays by parameter name"
    try:
        found = own(compiled.name, rng, sizes) if callable(own) else own
    except TidegateError:
        raise
    except Exception as error:
        raise BadInputs(
            place_of(error, compiled.program.file),
            kernel=compiled.name,
            what=f"inputs raised {describe(error)}",
            advice=advice,
        ) from None
    if found is None:
        return {}
    if not isinstance(found, Mapping):
        raise _bad(compiled, f"inputs gives an object of type {type(found).__name__}", advice)
    dtypes = {t.name: t.dtype.numpy for t in compiled.program.tensors}
    scalars = {s.name for s in compiled.program.scalars}
    arrays: dict[str, Any] = {}
    for name, value in found.items():
        if name in scalars:
            arrays[str(name)] = value
            continue
        try:
            arrays[str(name)] = np.asarray(value).astype(dtypes.get(name, np.float32))
        except (TypeError, ValueError) as error:
            raise _bad(compiled, f"inputs gives something for {name!r} that is no array ({error})", advice) from None
    return arrays


def sizes_of(compiled: Compiled, inputs: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, int]:
    """The sizes that the inputs have; where they tell nothing, the defaults."""
    found = dict(sizes)
    for tensor in compiled.program.tensors:
        array = inputs.get(tensor.name)
        if array is not None and array.ndim == len(tensor.shape):
            found |= {e.name: int(n) for e, n in zip(tensor.shape, array.shape, strict=True) if isinstance(e, Sym)}
    return found


def outputs(compiled: Compiled, sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
    """Arrays that are only written, in which what nobody writes shows."""
    found = {}
    for tensor in compiled.program.tensors:
        if not tensor.input:
            found[tensor.name] = unwritten(_shape(compiled, tensor, sizes), tensor.dtype)
    return found


def _shape(compiled: Compiled, tensor: hir.Tensor, sizes: Mapping[str, int]) -> tuple[int, ...]:
    shape = tuple(evaluate(e, sizes) for e in tensor.shape)
    _bounded(compiled, prod(shape) * tensor.dtype.size)
    return shape


def _bounded(compiled: Compiled, size: int) -> None:
    if size > MOST_BYTES:
        raise _bad(
            compiled, f"the arrays would hold {size} bytes, more than a trial takes", "give smaller sizes by --set"
        )


def _bad(compiled: Compiled, what: str, advice: str) -> BadInputs:
    return BadInputs(kernel=compiled.name, what=what, advice=advice)


# ---------------------------------------------------------------------------------------------- comparison


def compare(got: np.ndarray, wanted: np.ndarray, bound: np.ndarray) -> tuple[bool, float]:
    """Whether every element is within its rounding bound (bit equal where that is 0; NaN equals NaN), and the largest
    relative error.

    Errors are relative to the element or, for elements below that, to the root mean square of ``wanted``; an element
    that is not finite on one side only counts as the largest float.
    """
    bits = np.dtype(f"u{wanted.itemsize}")
    same = (got.view(bits) == wanted.view(bits)) | (np.isnan(got) & np.isnan(wanted))
    if same.all():
        return True, 0.0
    a, b = got.astype(np.float64), wanted.astype(np.float64)
    with np.errstate(all="ignore"):
        difference = np.where(same, 0.0, np.abs(a - b))
        matches = bool((same | ((bound > 0) & (difference <= bound))).all())
        finite = np.abs(b[np.isfinite(b)])
        typical = float(np.sqrt(np.mean(finite**2))) if finite.size else 0.0
        scale = np.maximum(np.abs(b), max(typical, sys.float_info.min))
        relative = np.where(same, 0.0, np.nan_to_num(difference / scale, nan=np.inf))
    return matches, min(float(relative.max()), sys.float_info.max)


def _compare_all(
    got: Mapping[str, np.ndarray], wanted: Mapping[str, np.ndarray], bounds: Mapping[str, np.ndarray]
) -> tuple[bool, float]:
    found = [compare(got[name], wanted[name], bounds[name]) for name in bounds]
    return all(f[0] for f in found), max((f[1] for f in found), default=0.0)


def simulated(
    compiled: Compiled,
    arrays: Mapping[str, Any],
    wanted: Mapping[str, np.ndarray],
    bounds: Mapping[str, np.ndarray],
    completion: str,
    seed: int,
) -> dict[str, Any]:
    """One simulation, compared."""
    got = copied(arrays)
    result = compiled.simulate(*(got[n] for n in compiled.program.order), completion=completion, seed=seed)
    matches, error = _compare_all(got, wanted, bounds)
    return {
        "completion": completion,
        "ok": result.ok,
        "matches": matches,
        "max_rel_error": error,
        "faults": [str(r) for r in result.reports],
        "unwritten": [r.buffer for r in result.reports if r.kind == "unwritten output"],
    }


# ---------------------------------------------------------------------------------------------- GPU


def compile_cuda(compiled: Compiled) -> bool:
    """Whether there is machine code; the text is made in any case."""
    assert compiled.cuda is not None
    try:
        return compiled.cubin is not None
    except NoCompiler:
        return False


SPILLED = "spilled bytes go through memory and are slow: use smaller tiles or more warps"


def code_of(compiled: Compiled) -> dict[str, Any]:
    """What the machine code takes, per thread."""
    spills = compiled.cubin.spills
    return {"registers": compiled.cubin.registers, "spill_bytes": spills, "warning": SPILLED if spills else None}


def on_gpu(
    compiled: Compiled,
    arrays: Mapping[str, Any],
    wanted: Mapping[str, np.ndarray],
    bounds: Mapping[str, np.ndarray],
) -> dict[str, Any] | None:
    """Runs it on this machine's GPU; None where there is none that runs this code."""
    import time

    device = devices.available()
    if device is None or not device.runs(compiled.target.arch):
        return None
    got = copied(arrays)
    ordered = [got[n] for n in compiled.program.order]
    compiled(*(copied(got)[n] for n in compiled.program.order))  # loads the code
    start = time.perf_counter()
    compiled(*ordered)
    spent = (time.perf_counter() - start) * 1e3
    matches, error = _compare_all(got, wanted, bounds)
    return {
        "name": device.name,
        "arch": device.arch,
        "matches": matches,
        "max_rel_error": error,
        "call_ms": round(spent, 3),  # with the copies to and from the device
        "registers": compiled.cubin.registers,
        "spill_bytes": compiled.cubin.spills,
    }
