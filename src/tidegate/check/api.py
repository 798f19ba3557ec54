"""The check itself: one question after the other, and a verdict that claims no more than was shown."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice, product

from tidegate.check import given, wholes, windows
from tidegate.check.advice import advice, of_windows
from tidegate.check.cases import Exhausted
from tidegate.check.control import Undecided
from tidegate.check.explore import Explorer, explorer
from tidegate.check.machine import MODELLED, Machine
from tidegate.check.participants import misplaced
from tidegate.check.replay import TooMany, replay, small_sizes
from tidegate.check.search import MAX_RUNS, near, retold, search, shown, unsafe
from tidegate.check.sites import Statements
from tidegate.check.state import Fault
from tidegate.check.verdict import Finding, Step, Verdict
from tidegate.errors import WrongArguments
from tidegate.ir import spec, tir
from tidegate.ir.text import print_stmt

FIRST_RUNS = 6
"""Concrete runs before the proof is tried."""

SMALL_RUNS = 40
"""Concrete runs, the smallest ones, before those near a fault."""

FIRST_FAULTS = 4
"""Faults of abstract runs near which a concrete one is looked for at once."""

SEARCH_STEPS = 20_000
"""Steps of all concrete runs together, after which a proof is tried again."""

TRUST = ("war release", "cp.async operand")
"""Rules about proxy fences that a caller may switch off (docs/checking.md, "Disputed fences")."""


def check(kernel: tir.Kernel, sizes: Mapping[str, int] | None = None, trust: Collection[str] = frozenset()) -> Verdict:
    """Whether every access of ``kernel`` is ordered, complete and inside its memory, whatever the timing.

    ``sizes`` gives values to dims that are launch arguments; the verdict then holds for these alone. A dim without a
    value stands for every size that its declared factor divides, 0 included. ``trust`` switches off rules about proxy
    fences that are disputed: 'war release' (a generic read, then a tensor copy over its bytes) and 'cp.async operand'
    (a cp.async, then wgmma reads its bytes); the verdict lists the pairs that it exempts. Raises WrongArguments for
    a name that is no launch argument of the kernel, a size that is negative or breaks the declared factor, or an
    unknown rule.
    """
    sizes = dict(sizes or {})
    _validate(kernel, sizes)
    if unknown := set(trust) - set(TRUST):
        what, rules = f"there is no rule {', '.join(map(repr, unknown))} to trust", " and ".join(map(repr, TRUST))
        raise WrongArguments(kernel=kernel.name, what=what, advice=f"there are {rules}")
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
            what = f"{name} is no launch argument of the kernel"
            raise WrongArguments(kernel=kernel.name, what=what, advice=f"those are: {', '.join(free) or 'none'}")
        given: object = value
        if not isinstance(given, int) or isinstance(given, bool):
            raise WrongArguments(
                kernel=kernel.name, what=f"{name} = {value!r} is no size", advice="give a whole number"
            )
        if value < 0 or value % free[tir.Name(name)].multiple:
            what = f"{name} = {value} is not a multiple of {free[tir.Name(name)].multiple} from 0 on"
            raise WrongArguments(kernel=kernel.name, what=what, advice="give another, or none for a proof of all sizes")


def _fixed(kernel: tir.Kernel, sizes: Mapping[str, int]) -> dict[str, int]:
    """The sizes that are known."""
    return {str(d.name): d.value for d in kernel.dims if d.value is not None} | dict(sizes)


def _scope(kernel: tir.Kernel, sizes: Mapping[str, int]) -> str:
    free = [d for d in kernel.dims if d.value is None and d.name not in sizes]
    given = [f"{name} = {value}" for name, value in _fixed(kernel, sizes).items()]
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
            return (
                f"the instruction {type(stmt).__name__} is not modelled yet: {print_stmt(stmt)}; try: a plan without it"
            )
    return ""


# ---------------------------------------------------------------------------------------------- shared memory


def _ordered(machine: Machine, sizes: Mapping[str, int], scope: str) -> Verdict | None:
    """The verdict on shared memory, None when all is well."""
    explored = explorer(machine, sizes)
    if machine.kernel.scalars or any(d.value is None and d.name not in sizes for d in machine.kernel.dims):
        # Most faults show with a handful of trips, where the abstract run may take long to give up.
        early = search(machine, sizes, explored, FIRST_RUNS)
        if early is not None:
            return early
    if not explored.concrete and wholes.ordered(machine, sizes):
        return None
    reason, faults = "", 0
    try:
        for fault in explored.every_case():
            if explored.concrete:
                continue
            faults += 1
            found = search(machine, sizes, explored, SMALL_RUNS, SEARCH_STEPS) if faults == 1 else None
            found = found or (near(machine, sizes, explored, fault) if faults <= FIRST_FAULTS else None)
            found = found or (search(machine, sizes, explored, MAX_RUNS, SEARCH_STEPS) if faults == 1 else None)
            if found is not None:
                return found
    except Fault as fault:
        if explored.concrete:
            return unsafe(
                machine, retold(fault, machine, sizes), shown(_fixed(machine.kernel, sizes), {}, explored), scope
            )
        if (found := near(machine, sizes, explored, fault)) is not None:
            return found
        reason = f"{fault.kind} in an abstract run, which no concrete run with small sizes confirmed"
        reason += advice(machine.kernel, sizes, fault)
    except (Undecided, Exhausted) as stop:
        reason = f"{stop}{advice(machine.kernel, sizes, stop)}"
    if not reason or _ordered_trip_by_trip(machine, sizes):
        return None
    found = search(machine, sizes, explored, MAX_RUNS)
    return found or Verdict(machine.kernel.name, "not proved", scope, reason=reason)


def _ordered_trip_by_trip(machine: Machine, sizes: Mapping[str, int]) -> bool:
    """Whether all is well if no trip of a loop is left out: a proof where all sizes are known."""
    kernel = machine.kernel
    if kernel.scalars or any(d.value is None and d.name not in sizes for d in kernel.dims):
        return False
    try:
        for _ in explorer(machine, sizes, exact=True).every_case():
            pass  # a finer case may turn out not to have this fault
    except (Fault, Undecided, Exhausted):
        return False
    return True


# ---------------------------------------------------------------------------------------------- global memory


def _disorder(machine: Machine, sizes: Mapping[str, int], pairs: Sequence[Statements]) -> Iterator[str]:
    """What keeps pairs of accesses to global memory, which different threads of a CTA may make, from being proved to be
    ordered."""
    if not pairs:
        return
    explored = explorer(Machine(machine.kernel, machine.catalogue.trust, pairs), sizes)
    try:
        for _ in explored.every_case():
            pass  # a finer case may turn out not to have this fault
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
            shown_here = replay(machine, values, numbers)
        except (TooMany, Undecided, Exhausted, ZeroDivisionError, ValueError):
            complete = False
            continue
        if shown_here is not None:
            finding, told = shown_here
            return Verdict(kernel.name, "unsafe", told.text(_fixed(kernel, {})), (finding,), run=told)
    return (
        None
        if complete
        else Verdict(kernel.name, "not proved", scope, reason="; ".join(reasons) + of_windows(kernel, sizes))
    )
