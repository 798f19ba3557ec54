"""The search for a concrete run that shows a fault: small sizes and simple numbers, or what an abstract fault tells."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from tidegate.check import given
from tidegate.check.cases import Exhausted
from tidegate.check.control import Interval, Undecided
from tidegate.check.explore import MAX_STEPS, Explorer, explorer
from tidegate.check.knowledge import Spot, Word
from tidegate.check.linear import Index, Linear, expression
from tidegate.check.machine import Machine
from tidegate.check.replay import small_sizes, unit
from tidegate.check.state import Fault
from tidegate.check.stuck import deadlock
from tidegate.check.survey import control_of
from tidegate.check.verdict import Run, Verdict
from tidegate.check.witness import describe
from tidegate.ir import expr as ex
from tidegate.ir import tir
from tidegate.ir.dtypes import I32

MAX_RUNS = 300
"""Concrete runs in the search for a witness."""

MORE_WITH_NUMBERS = 2
"""So many times more, where numbers vary too."""

MAX_TILES = 24
"""Largest trip count in the search for a witness, with one unknown size."""

MORE_TRIPS = (0, 1, 2, 3, 5)
"""By so many tiles the sizes near an abstract fault are larger than it needs: it may have come by several trips. (But
not those of which it knows more than how small they may be.)"""

Trial = tuple[dict[str, int], dict[str, int], given.Given]
"""Sizes, CTA and numbers."""


def search(
    machine: Machine, sizes: Mapping[str, int], abstract: Explorer, runs: int, steps: int = MAX_STEPS
) -> Verdict | None:
    """The smallest concrete run that breaks a rule, None when none of the first ``runs`` does, or of those that take so
    many ``steps``."""
    choices = list(given.choices(machine.kernel))
    runs *= 1 if len(choices) == 1 else MORE_WITH_NUMBERS
    found = (
        (values, where, numbers)
        for values, numbers in islice(_tried(machine.kernel, sizes, choices), runs)
        for where in _corners(machine.kernel, values, abstract)
    )
    return _first(machine, found, steps)


def near(machine: Machine, sizes: Mapping[str, int], abstract: Explorer, fault: Fault) -> Verdict | None:
    """A concrete run like the abstract one that has met ``fault``: of the sizes, the CTA and the numbers that this one
    was told to have."""
    if fault.spot is None:
        return None
    return _first(machine, _runs_near(machine, sizes, abstract, fault.spot))


def _first(machine: Machine, runs: Iterable[Trial], steps: int = MAX_STEPS) -> Verdict | None:
    """The verdict on the first run that breaks a rule, before so many steps have been made."""
    for values, where, numbers in runs:
        if steps <= 0:
            return None
        run = explorer(machine, values, where, exact=True, given=numbers, most=steps)
        try:
            for _ in run.every_case():
                pass
        except Fault as fault:
            if run.unknown.split:
                continue  # some condition had no single outcome
            fault = retold(fault, machine, values, where, exact=True, numbers=numbers)
            return unsafe(machine, fault, shown=shown(values, where, run))
        except (Undecided, Exhausted, ZeroDivisionError, ValueError):
            continue
        finally:
            steps -= run.steps + run.decisions
    return None


def retold(
    fault: Fault,
    machine: Machine,
    sizes: Mapping[str, int],
    where: Mapping[str, int] | None = None,
    exact: bool = False,
    numbers: given.Given | None = None,
) -> Fault:
    """The fault of a concrete run, with the steps of this run and no other."""
    try:
        for _ in explorer(machine, sizes, where, exact=exact, shared=False, given=numbers).every_case():
            pass
    except Fault as again:
        return again
    return fault


def unsafe(machine: Machine, fault: Fault, shown: Run, scope: str = "") -> Verdict:
    """``scope``: of what the fault is one, if not of the run alone that shows it."""
    finding, timeline = (deadlock if fault.kind == "deadlock" else describe)(machine, fault)
    fixed = [str(d.name) for d in machine.kernel.dims if d.value is not None]
    return Verdict(machine.kernel.name, "unsafe", scope or shown.text(fixed), (finding,), timeline, run=shown)


def shown(sizes: Mapping[str, int], where: Mapping[str, int], run: Explorer) -> Run:
    """What a concrete run was given."""
    names = [str(s.name) for s in run.kernel.arguments if run.given is not None and s.dtype == I32]
    arguments = tuple((n, run.given.argument(n)) for n in names if run.given is not None)
    elements = tuple((tensor, place, value) for (tensor, place), value in run.unknown.read.items())
    return Run(tuple(sizes.items()), tuple(where.items()), elements, arguments)


# ---------------------------------------------------------------------------------------------- small runs


def _tried(
    kernel: tir.Kernel, sizes: Mapping[str, int], choices: Sequence[given.Numbers]
) -> Iterator[tuple[dict[str, int], given.Numbers]]:
    """Sizes and numbers, simple ones of both first."""
    runs = list(islice(_sizes(kernel, sizes), MAX_RUNS))
    pairs = ((a + b, values, numbers) for a, values in enumerate(runs) for b, numbers in enumerate(choices))
    yield from ((values, numbers) for _, values, numbers in sorted(pairs, key=lambda pair: pair[0]))


def _sizes(kernel: tir.Kernel, sizes: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """Sizes that differ in what control depends on; other sizes are one tile."""
    fixed = _unused(kernel, sizes)
    free = sum(d.value is None and d.name not in {*sizes, *fixed} for d in kernel.dims)
    tiles = MAX_TILES if free <= 1 else 10 if free == 2 else 4
    return small_sizes(kernel, {**fixed, **sizes}, tiles, ragged=False)


def _unused(kernel: tir.Kernel, sizes: Mapping[str, int]) -> dict[str, int]:
    """Values of the sizes on which no control depends."""
    used = {n for stmt in tir.walk(kernel.body) for e in control_of(stmt) for n in ex.symbols(e)}
    used |= {n for axis in kernel.grid if axis.name in used for n in ex.symbols(axis.extent)}
    masks = {n for s in tir.walk(kernel.body) if isinstance(s, tir.LdScalar)
             for b in s.src.bounds if b is not None for n in ex.symbols(b)}  # fmt: skip
    return {
        d.name: d.multiple * (MAX_TILES if d.name in masks else 1)
        for d in kernel.dims
        if d.value is None and d.name not in {*sizes, *used}
    }


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


# ---------------------------------------------------------------------------------------------- near a fault


def _runs_near(machine: Machine, sizes: Mapping[str, int], abstract: Explorer, spot: Spot) -> Iterator[Trial]:
    kernel = machine.kernel
    at = _places(machine, spot)
    known: dict[str, int] = {d.name: d.value for d in kernel.dims if d.value is not None} | dict(sizes)
    least = _least(kernel, {**_unused(kernel, sizes), **known}, spot, at)
    exact = {n for atom, size in spot.env.atoms.items() if size.exact is not None for n in ex.symbols(atom.value)}
    free = [d for d in kernel.dims if d.name not in known and d.name not in exact]
    choices = list(given.few(kernel))
    for more in MORE_TRIPS:
        values: dict[str, int] = {**least, **{d.name: least[d.name] + more * unit(kernel, d) for d in free}}
        where: dict[str, int] = {}
        for axis in kernel.grid:
            where[axis.name] = min(at.get(axis.name, 0), ex.evaluate(axis.extent, values) - 1)
        if any(at < 0 for at in where.values()):
            continue  # no CTA
        elements, arguments = _numbers(abstract, machine.forms.all, spot, {**at, **values, **where}, more)
        for numbers in choices:
            yield values, where, given.Told(elements, arguments, numbers)


def _places(machine: Machine, spot: Spot) -> dict[str, int]:
    """Where the indices may be."""
    values = {name: place.value for name, place in spot.env.places.items()}
    for number, at in spot.known.facts:
        match machine.forms.all[number].terms:
            case ((Index(name), 1),) if name in values:
                values[name] &= at.within
    return {name: _smallest(at) for name, at in values.items()}


def _smallest(at: Interval) -> int:
    """A number of an interval, 0 or what is nearest."""
    return int(at.low) if at.low > 0 else int(at.high) if at.high < 0 else 0


def _least(kernel: tir.Kernel, known: Mapping[str, int], spot: Spot, at: Mapping[str, int]) -> dict[str, int]:
    """Sizes that are large enough for what is known of them, and for the indices to be ``at`` their values."""
    values: dict[str, int] = {d.name: known.get(d.name, 0) for d in kernel.dims}
    free = {d.name: unit(kernel, d) for d in kernel.dims if d.name not in known}
    wanted = [(axis.extent, 1) for axis in kernel.grid]
    wanted += [(atom.value, int(size.low)) for atom, size in spot.env.atoms.items()]
    for name, place in spot.env.places.items():
        wanted.append((expression(place.end), at[name] + max(_smallest(place.left), 1)))
    for form, low in wanted:
        names = [n for n in free if n in set(ex.symbols(form))]
        if names and set(ex.symbols(form)) <= set(values):
            for _ in range(4 * MAX_TILES):
                if ex.evaluate(form, values) >= low:
                    break
                values |= {n: values[n] + free[n] for n in names}
    return values


def _numbers(
    abstract: Explorer, forms: Sequence[Linear], spot: Spot, values: Mapping[str, int], more: int
) -> tuple[dict[tuple[str, tuple[int, ...]], int], dict[str, int]]:
    """The elements and arguments of which a fact says something, with values that fit."""
    elements: dict[tuple[str, tuple[int, ...]], int] = {}
    arguments: dict[str, int] = {}
    for number, at in spot.known.facts:
        terms = forms[number].terms
        symbols = [s for term, _ in terms for s in ex.symbols(expression(Linear(0, ((term, 1),))))]
        if len(symbols) != 1:
            continue
        value = _solved(expression(forms[number]), symbols[0], at.within, more)
        if symbols[0] in abstract.unknown.words:
            place = _place(abstract.unknown.words[symbols[0]], values)
            if place is not None:
                elements[abstract.unknown.words[symbols[0]].tensor, place] = value
        else:
            arguments[symbols[0]] = value
    return elements, arguments


def _solved(form: ex.Expr, name: str, at: Interval, more: int) -> int:
    """A value with which a form of one name lies in an interval, if a small one does; the ``more``-th of them."""
    found = [n for n in sorted(range(-8, 256), key=abs) if at.low <= ex.evaluate(form, {name: n}) <= at.high]
    return found[min(more, len(found) - 1)] if found else 0


def _place(word: Word, names: Mapping[str, int]) -> tuple[int, ...] | None:
    """Where an element lies, if names alone say that."""
    if not all(set(ex.symbols(e)) <= names.keys() for e in word.address):
        return None
    return tuple(ex.evaluate(e, names) for e in word.address)
