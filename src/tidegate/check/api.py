"""The check itself: one question after the other, and a verdict that claims no more than was shown."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice, product

from tidegate.check import given, windows
from tidegate.check.control import Undecided
from tidegate.check.explore import Exhausted, Explorer, explorer
from tidegate.check.machine import MODELLED, Machine
from tidegate.check.participants import misplaced
from tidegate.check.replay import TooMany, replay, small_sizes
from tidegate.check.sites import Statements
from tidegate.check.state import Fault
from tidegate.check.stuck import deadlock
from tidegate.check.verdict import Finding, Step, Verdict
from tidegate.check.witness import describe
from tidegate.ir import expr as ex
from tidegate.ir import spec, tir
from tidegate.ir.dtypes import I32
from tidegate.ir.text import print_stmt

MAX_RUNS = 300
"""Concrete runs in the search for a witness."""

FIRST_RUNS = 6
"""Concrete runs before the proof is tried."""

MORE_WITH_NUMBERS = 2
"""So many times more of both, where numbers vary too."""

MAX_TILES = 24
"""Largest trip count in the search for a witness, with one unknown size."""


TRUST = ("war release", "cp.async operand")
"""Rules about proxy fences that a caller may switch off (docs/checking.md, "Disputed fences")."""


def check(kernel: tir.Kernel, sizes: Mapping[str, int] | None = None, trust: Collection[str] = frozenset()) -> Verdict:
    """Whether every access of ``kernel`` is ordered, complete and inside its memory, whatever the timing.

    ``sizes`` gives values to dims that are launch arguments; the verdict then holds for these alone. A dim without a
    value stands for every size that its declared factor divides, 0 included. ``trust`` switches off rules about proxy
    fences that are disputed: 'war release' (a generic read, then a tensor copy over its bytes) and 'cp.async operand'
    (a cp.async, then wgmma reads its bytes); the verdict lists the pairs that it exempts. Raises ValueError for a name
    that is no launch argument of the kernel, a size that is negative or breaks the declared factor, or an unknown rule.
    """
    sizes = dict(sizes or {})
    _validate(kernel, sizes)
    if unknown := set(trust) - set(TRUST):
        raise ValueError(f"there is no rule {', '.join(map(repr, unknown))} to trust; there are {', '.join(TRUST)}")
    scope = _scope(kernel, sizes) + (f", trusting {', '.join(sorted(trust))}" if trust else "")
    if wrong := _misplaced(kernel):
        finding, way = wrong
        return Verdict(kernel.name, "unsafe", scope, (finding,), way)
    if violations := spec.verify(kernel):
        found = tuple(Finding("malformed", f"{v.where}: {v.message}") for v in violations)
        return Verdict(kernel.name, "unsafe", scope, found)
    if reason := _unsupported(kernel):
        return Verdict(kernel.name, "not proved", scope, reason=reason)
    machine = Machine(kernel, frozenset(trust))
    verdict = _ordered(machine, sizes, scope) or _global(machine, sizes, scope) or Verdict(kernel.name, "safe", scope)
    return replace(verdict, exempted=tuple(machine.exempted))


def _misplaced(kernel: tir.Kernel) -> tuple[Finding, tuple[Step, ...]] | None:
    """What the wrong threads execute, if the roles are those of the kernel at all."""
    roles = {r.name: r for r in kernel.roles}
    inside = all(r.first >= 0 and r.count > 0 and r.first + r.count <= kernel.warps for r in kernel.roles)
    known = all(s.role in roles for s in tir.walk(kernel.body) if isinstance(s, tir.InRole))
    return misplaced(kernel) if inside and known else None


def _validate(kernel: tir.Kernel, sizes: Mapping[str, int]) -> None:
    free = {d.name: d for d in kernel.dims if d.value is None}
    for name, value in sizes.items():
        if name not in free:
            raise ValueError(f"{name} is no launch argument of {kernel.name}; those are: {', '.join(free) or 'none'}")
        if value < 0 or value % free[tir.Name(name)].multiple:
            raise ValueError(f"{name} = {value} is not a multiple of {free[tir.Name(name)].multiple} from 0 on")


def _scope(kernel: tir.Kernel, sizes: Mapping[str, int]) -> str:
    free = [d for d in kernel.dims if d.value is None and d.name not in sizes]
    given = [f"{name} = {value}" for name, value in sizes.items()]
    known = f" with {', '.join(given)}" if given else ""
    numbers = [f"every number {s.name}" for s in kernel.arguments]
    if any(isinstance(s, tir.LdScalar) for s in tir.walk(kernel.body)):
        numbers.append("every integer that it reads")
    more = "".join(f", {n}" for n in numbers)
    if not free:
        return f"every CTA{known or ', all sizes fixed'}{more}"
    names = ", ".join(f"{d.name} (a multiple of {d.multiple})" if d.multiple > 1 else d.name for d in free)
    return f"every CTA, every size {names} from 0 on{more} and so every trip count{known}"


def _unsupported(kernel: tir.Kernel) -> str:
    for stmt in tir.walk(kernel.body):
        if not isinstance(stmt, MODELLED):
            return f"the instruction {type(stmt).__name__} is not modelled yet: {print_stmt(stmt)}"
    return ""


# ---------------------------------------------------------------------------------------------- shared memory


def _ordered(machine: Machine, sizes: Mapping[str, int], scope: str) -> Verdict | None:
    """The verdict on shared memory, None when all is well."""
    explored = explorer(machine, sizes)
    if machine.kernel.scalars or any(d.value is None and d.name not in sizes for d in machine.kernel.dims):
        # Most faults show with a handful of trips, where the abstract run may take long to give up.
        early = _search(machine, sizes, explored, FIRST_RUNS)
        if early is not None:
            return early
    reason, searched = "", False
    try:
        for _ in explored.every_case():
            if explored.concrete:
                continue
            if not searched and (found := _search(machine, sizes, explored, MAX_RUNS)) is not None:
                return found
            searched = True
    except Fault as fault:
        if explored.concrete:
            return _unsafe(machine, _retold(fault, machine, sizes), scope)
        reason = f"{fault.kind} in an abstract run, which no concrete run with small sizes confirmed"
    except (Undecided, Exhausted) as stop:
        reason = str(stop)
    if not reason:
        return None
    found = None if searched else _search(machine, sizes, explored, MAX_RUNS)
    return found or Verdict(machine.kernel.name, "not proved", scope, reason=reason)


def _retold(
    fault: Fault,
    machine: Machine,
    sizes: Mapping[str, int],
    where: Mapping[str, int] | None = None,
    exact: bool = False,
    numbers: given.Numbers | None = None,
) -> Fault:
    """The fault of a concrete run, with the steps of this run and no other."""
    try:
        for _ in explorer(machine, sizes, where, exact=exact, shared=False, given=numbers).every_case():
            pass
    except Fault as again:
        return again
    return fault


def _unsafe(machine: Machine, fault: Fault, scope: str) -> Verdict:
    finding, timeline = (deadlock if fault.kind == "deadlock" else describe)(machine, fault)
    return Verdict(machine.kernel.name, "unsafe", scope, (finding,), timeline)


def _search(machine: Machine, sizes: Mapping[str, int], abstract: Explorer, runs: int) -> Verdict | None:
    """The smallest concrete run that breaks a rule, None when none of the first ``runs`` does."""
    choices = list(given.choices(machine.kernel))
    runs *= 1 if len(choices) == 1 else MORE_WITH_NUMBERS
    for values, numbers in islice(_tried(machine.kernel, sizes, choices), runs):
        for where in _corners(machine.kernel, values, abstract):
            run = explorer(machine, values, where, exact=True, given=numbers)
            try:
                for _ in run.every_case():
                    pass
            except Fault as fault:
                fault = _retold(fault, machine, values, where, exact=True, numbers=numbers)
                return _unsafe(machine, fault, _place(machine.kernel, values, where, _told(run)))
            except (Undecided, Exhausted, ZeroDivisionError, ValueError):
                continue
    return None


def _tried(
    kernel: tir.Kernel, sizes: Mapping[str, int], choices: Sequence[given.Numbers]
) -> Iterator[tuple[dict[str, int], given.Numbers]]:
    """Sizes and numbers, simple ones of both first."""
    runs = list(islice(_runs(kernel, sizes), MAX_RUNS))
    pairs = ((a + b, values, numbers) for a, values in enumerate(runs) for b, numbers in enumerate(choices))
    yield from ((values, numbers) for _, values, numbers in sorted(pairs, key=lambda pair: pair[0]))


def _told(run: Explorer) -> Iterator[str]:
    """The numbers of a concrete run."""
    for scalar in run.kernel.arguments:
        if run.given is not None and scalar.dtype == I32:
            yield f"{scalar.name} = {run.given.argument(scalar.name)}"
    for (tensor, place), value in run.unknown.read.items():
        yield f"{tensor}[{', '.join(map(str, place))}] = {value}"


def _runs(kernel: tir.Kernel, sizes: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """Sizes that differ in what control depends on; other sizes are one tile."""
    used = {n for stmt in tir.walk(kernel.body) for e in _control(stmt) for n in ex.symbols(e)}
    used |= {n for axis in kernel.grid if axis.name in used for n in ex.symbols(axis.extent)}
    masks = {n for s in tir.walk(kernel.body) if isinstance(s, tir.LdScalar)
             for b in s.src.bounds if b is not None for n in ex.symbols(b)}  # fmt: skip
    fixed: dict[str, int] = {
        d.name: d.multiple * (MAX_TILES if d.name in masks else 1)
        for d in kernel.dims
        if d.value is None and d.name not in {*sizes, *used}
    }
    free = sum(d.value is None and d.name in used and d.name not in sizes for d in kernel.dims)
    tiles = MAX_TILES if free <= 1 else 10 if free == 2 else 4
    return small_sizes(kernel, {**fixed, **sizes}, tiles, ragged=False)


def _control(stmt: tir.Stmt) -> tuple[ex.Expr, ...]:
    if isinstance(stmt, tir.For):
        return stmt.start, stmt.stop
    return (stmt.condition,) if isinstance(stmt, tir.If) else ()


def _corners(kernel: tir.Kernel, values: Mapping[str, int], abstract: Explorer) -> Iterator[dict[str, int]]:
    """First and last CTA along the axes that conditions look at, 0 along the others."""
    used = {axis.name for axis in abstract.survey.used_grid}
    extents = [(axis.name, ex.evaluate(axis.extent, values)) for axis in kernel.grid]
    corners: list[dict[str, int]] = [{}]
    for name, extent in extents:
        if extent < 1:
            return  # no CTA at all
        options = sorted({0, 1, extent - 1} & set(range(extent))) if name in used else [0]
        corners = [{**corner, name: value} for corner in corners for value in options]
    yield from corners


def _place(kernel: tir.Kernel, values: Mapping[str, int], where: Mapping[str, int], numbers: Iterable[str] = ()) -> str:
    free = {d.name for d in kernel.dims if d.value is None}
    parts = [f"{n} = {v}" for n, v in values.items() if n in free] + [f"CTA {n} = {v}" for n, v in where.items()]
    parts += numbers
    return f"shown by a run with {', '.join(parts)}" if parts else "shown by a run"


# ---------------------------------------------------------------------------------------------- global memory


def _disorder(machine: Machine, sizes: Mapping[str, int], pairs: Sequence[Statements]) -> Iterator[str]:
    """What keeps pairs of accesses to global memory, which different threads of a CTA may make, from being proved to be
    ordered."""
    if not pairs:
        return
    explored = explorer(Machine(machine.kernel, machine.catalogue.trust, pairs), sizes)
    try:
        for case in explored.cases():
            explored.run(case)
    except Fault as fault:
        earlier = fault.state.last.get(fault.earlier) if fault.state is not None and fault.earlier is not None else None
        what = "an earlier access" if earlier is None else print_stmt(earlier.stmt)
        yield f"{what} is not shown to come before {print_stmt(fault.stmt) if fault.stmt else 'the end'}"
    except (Undecided, Exhausted) as stop:
        yield str(stop)


def _global(machine: Machine, sizes: Mapping[str, int], scope: str) -> Verdict | None:
    """The verdict on global memory, None when all is well."""
    kernel = machine.kernel
    reader = Explorer(machine, sizes).reader
    found = windows.uses(kernel, reader)
    reasons = [
        *windows.unproved_bounds(kernel, reader, found),
        *windows.unproved_owners(kernel, found),
        *_disorder(machine, sizes, [(a.stmt, b.stmt) for a, b in windows.to_order(kernel, found)]),
    ]
    if not reasons:
        return None
    complete = not kernel.scalars and not any(d.value is None and d.name not in sizes for d in kernel.dims)
    tried = product(islice(small_sizes(kernel, sizes, 3, ragged=True), MAX_RUNS), given.choices(kernel))
    for values, numbers in islice(tried, MAX_RUNS):
        try:
            finding, told = replay(machine, values, numbers)
        except (TooMany, Undecided, Exhausted, ZeroDivisionError, ValueError):
            complete = False
            continue
        if finding is not None:
            return Verdict(kernel.name, "unsafe", _place(kernel, values, {}, told), (finding,))
    return None if complete else Verdict(kernel.name, "not proved", scope, reason="; ".join(reasons))
