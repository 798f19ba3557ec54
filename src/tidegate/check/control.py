"""Integers that may be unknown: what a loop bound or a condition is when sizes are not given.

In an environment every atom (:mod:`tidegate.check.linear`) is either one exact value or "at least B", every index an
interval of its value and of its distance to the loop's end. A comparison is decided when both sides' difference has a
sign on the whole interval; what stays undecided raises :class:`Undecided`, never a guess.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from tidegate.check.linear import (
    Atom,
    Extreme,
    Formula,
    Index,
    Linear,
    Mod,
    Opaque,
    Quotient,
    Term,
    Test,
    atoms,
    halfway,
    single,
)
from tidegate.ir import expr as ex
from tidegate.ir.expr import hashed_once

Bound = float  # an int, or +-inf


FARTHEST = 16
"""Conditions on an index are decided from 2**15 on, or by its distance to the loop's end."""


class Undecided(Exception):
    """A bound or a condition has no single value in the environment; the text names it. ``atoms``: of what more would
    have to be known; ``tests``: those that are not decided."""

    def __init__(self, text: str, atoms: tuple[Atom, ...] = (), tests: tuple[Test, ...] = ()) -> None:
        super().__init__(text)
        self.atoms = atoms
        self.tests = tests


@dataclass(frozen=True)
class Interval:
    low: Bound
    high: Bound

    @property
    def exact(self) -> int | None:
        return int(self.low) if self.low == self.high else None

    def __and__(self, other: Interval) -> Interval:
        return Interval(max(self.low, other.low), min(self.high, other.high))

    def __str__(self) -> str:
        if self.exact is not None:
            return str(self.exact)
        return f">= {int(self.low)}" if self.high == inf > -self.low else f"{self.low}..{self.high}"


ANY = Interval(-inf, inf)


def exactly(value: int) -> Interval:
    return Interval(value, value)


@hashed_once
@dataclass(frozen=True)
class Place:
    """Where an index stands: its value, how many values are left (this one included, ``end - value``), its residue
    modulo the period of the kernel's conditions (None: unknown), and the loop's end."""

    value: Interval
    left: Interval
    residue: int | None
    end: Linear


def consistent(known: Mapping[Atom, Interval], multiples: Mapping[str, int]) -> bool:
    """Is there a value of every size, one that its known factor divides, for which all its tile counts lie in their
    intervals? (cdiv(S, a) = x says that S is above (x - 1) * a and at most x * a.)"""
    ranges: dict[str, Interval] = {}
    for atom, at in known.items():
        size, low, high = _range(atom.value, at)
        old = ranges.get(size, Interval(0, inf))
        ranges[size] = Interval(max(old.low, low), min(old.high, high))
    return all(r.high == inf or r.high - r.high % multiples.get(size, 1) >= r.low for size, r in ranges.items())


def _range(e: ex.Expr, at: Interval) -> tuple[str, float, float]:
    """A size and the values it may have, given the interval of an expression of it; for other forms, anything."""
    if isinstance(e, ex.Sym):
        return e.name, at.low, at.high
    if isinstance(e, ex.Bin) and isinstance(e.a, ex.Sym) and isinstance(e.b, ex.Int) and e.b.value > 0:
        if e.op == "cdiv":
            return e.a.name, (at.low - 1) * e.b.value + 1 if at.low > 0 else 0, at.high * e.b.value
        if e.op == "/":
            return e.a.name, at.low * e.b.value, at.high * e.b.value + e.b.value - 1
    return "", 0, inf


def _evaluated(op: str, a: int | None, b: int | None) -> Interval:
    if a is None or b is None:
        return ANY
    try:
        return exactly(int(ex.EVALUATE[op](a, b)))
    except ZeroDivisionError:
        return ANY


def takes(form: Linear) -> bool:
    """Is a form a single term, whose value an environment may know?"""
    return len(form.terms) == 1 and form.terms[0][1] == 1


@dataclass(frozen=True)
class Env:
    """Atoms and indices at one point of the run. ``period``: the modulus of residues. ``ends``: other terms at which
    loops around end, as far as their values are known. ``memo``: bounds worked out; ``inside``: the environments that
    know one index more, each once; ``told``: what others have worked out in it."""

    atoms: Mapping[Atom, Interval]
    places: Mapping[str, Place]
    period: int = 1
    ends: Mapping[Term, Interval] = field(default_factory=dict)
    memo: dict[tuple[object, ...], Interval] = field(default_factory=dict, init=False, compare=False, repr=False)
    inside: dict[tuple[str, Place], Env] = field(default_factory=dict, init=False, compare=False, repr=False)
    told: dict[object, object] = field(default_factory=dict, init=False, compare=False, repr=False)

    def at(self, name: str, place: Place) -> Env:
        key = (name, place)
        found = self.inside.get(key)
        if found is None:
            found = self.inside[key] = Env(self.atoms, {**self.places, name: place}, self.period, self.ends)
        return found

    def taking(self, form: Linear, value: Interval) -> Env:
        """The environment in which a form has one of these values, if it is a single term, or the distance of an index
        to the end of its loop."""
        if not takes(form):
            return self._nearing(form, value)
        term, at = form.terms[0][0], Interval(value.low - form.const, value.high - form.const)
        if isinstance(term, Atom):
            return replace(self, atoms={**self.atoms, term: self.atoms.get(term, Interval(0, inf)) & at})
        if isinstance(term, Index):
            place = self.places.get(term.name, Place(ANY, ANY, None, Linear(0)))
            return self.at(term.name, replace(place, value=place.value & at))
        return replace(self, ends={**self.ends, term: at})

    def _nearing(self, form: Linear, value: Interval) -> Env:
        for term, c in form.terms:
            if isinstance(term, Index) and term.name in self.places and c == -1:
                place = self.places[term.name]
                beyond = form.plus(single(term)).plus(place.end, -1)
                if not beyond.terms and place.left != ANY:
                    at = Interval(value.low - beyond.const, value.high - beyond.const)
                    return self.at(term.name, replace(place, left=place.left & at))
        return self

    def resolve(self, form: Linear) -> Linear:
        """The form with everything that has one value replaced by it, and decided min / max by their result."""
        total = Linear(form.const)
        for term, c in form.terms:
            total = total.plus(self._resolved(term), c)
        return total

    def _resolved(self, term: Term) -> Linear:
        if term in self.ends:
            exact = self.ends[term].exact
            return single(term) if exact is None else Linear(exact)
        if isinstance(term, Extreme):
            a, b = self.resolve(term.a), self.resolve(term.b)
            ahead = self.interval(b.plus(a, -1))
            if ahead.low >= 0 or ahead.high <= 0:
                return a if (ahead.low >= 0) == (term.op == "min") else b
            return single(Extreme(term.op, a, b))
        exact = self._interval_of(term).exact
        return single(term) if exact is None else Linear(exact)

    def _interval_of(self, term: Term) -> Interval:
        found = self._computed(term)
        return found & self.ends[term] if term in self.ends else found

    def _computed(self, term: Term) -> Interval:
        match term:
            case Atom():
                return self.atoms.get(term, Interval(0, inf))
            case Index(name):
                return self.places[name].value if name in self.places else ANY
            case Mod(value, modulus):
                rest = self._residue(value, modulus)
                return Interval(0, modulus - 1) if rest is None else exactly(rest)
            case Quotient(value, divisor):
                x = self.bounds(value)
                return Interval(*(v // divisor if abs(v) < inf else v for v in (x.low, x.high)))
            case Extreme(op, a, b):
                x, y = self.interval(self.resolve(a)), self.interval(self.resolve(b))
                pick = min if op == "min" else max
                found = Interval(pick(x.low, y.low), pick(x.high, y.high))
                middle = halfway(term)
                if middle is None:
                    return found
                return found & (Interval(middle, inf) if op == "max" else Interval(-inf, middle))
            case Opaque(value, (a, b)):
                return _evaluated(value.op, self.bounds(a).exact, self.bounds(b).exact)

    def _residue(self, form: Linear, modulus: int) -> int | None:
        form = self.resolve(form)
        total = form.const
        for term, c in form.terms:
            if c % modulus == 0:
                continue
            place = self.places.get(term.name) if isinstance(term, Index) else None
            if place is None or place.residue is None or self.period % modulus:
                return None
            total += c * place.residue
        return total % modulus

    def interval(self, form: Linear, depth: int = 3) -> Interval:
        """Bounds of a resolved form. An index may be read as itself or as (loop end - values left)."""
        key = (form, depth)
        if key not in self.memo:
            self.memo[key] = self._interval(form, depth)
        return self.memo[key]

    def _interval(self, form: Linear, depth: int) -> Interval:
        low = high = float(form.const)
        for term, c in form.terms:
            x = self._interval_of(term)
            low += c * x.low if c > 0 else c * x.high
            high += c * x.high if c > 0 else c * x.low
        found = Interval(low, high)
        if depth == 0:
            return found
        for term, c in form.terms:
            place = self.places.get(term.name) if isinstance(term, Index) else None
            if place is None or place.left == ANY:
                continue
            rest = form.plus(single(term), -c).plus(self.resolve(place.end), c)
            inner = self.interval(rest, depth - 1)
            lower, upper = sorted((-c * place.left.low, -c * place.left.high))
            found = found & Interval(inner.low + lower, inner.high + upper)
        return found

    def bounds(self, form: Linear) -> Interval:
        return self.interval(self.resolve(form))

    def holds(self, test: Test) -> bool | None:
        """The truth of a test, None when the environment does not decide it."""
        x = self.bounds(test.value)
        if test.op == ">=":
            return True if x.low >= 0 else False if x.high < 0 else None
        if x.low > 0 or x.high < 0:
            return test.op == "!="
        return (test.op == "==") if x.exact == 0 else None

    def decided(self, formula: Formula) -> bool | None:
        """The truth of a condition, None when the environment does not decide it."""
        if isinstance(formula, Test):
            return self.holds(formula)
        truths = [self.decided(part) for part in formula.parts]
        if (formula.op == "||") in truths:
            return formula.op == "||"
        return None if None in truths else formula.op == "&&"

    def undecided(self, tests: Sequence[Test], text: str) -> Undecided:
        """That the condition of this text is not decided, because of some tests."""
        known = ", ".join(f"{a.value} {x if x.exact is None else f'= {x}'}" for a, x in self.atoms.items())
        reason = f"the condition {text} is not decided{f' for {known}' if known else ''}"
        return Undecided(reason, self.open(*(t.value for t in tests)), tuple(tests))

    @property
    def possible(self) -> bool:
        """Whether every index can be where it is, as its loop ends."""
        ends = ((place, self.bounds(place.end)) for place in self.places.values() if place.left != ANY)
        return all(place.value.low + place.left.low <= end.high for place, end in ends)

    def narrowed(self, test: Test) -> list[Env]:
        """The environment in two parts, an index being smaller or larger, so that a test is decided in one of them or
        soon; empty if no index decides it."""
        for term in atoms(test.value):
            if not isinstance(term, Index) or term.name not in self.places:
                continue
            name, place = term.name, self.places[term.name]
            edge = self._edge(test, name, place)
            if edge is not None:
                parts = (Interval(place.value.low, edge - 1), Interval(edge, place.value.high))
                return [self.at(name, p) for part in parts if (p := self._within(place, part)) is not None]
        return []

    def _edge(self, test: Test, name: str, place: Place) -> int | None:
        """The value of an index from which on a test is decided, or else the middle of its values."""
        low, high = place.value.low, place.value.high
        if low in (high, -inf):
            return None

        def decided(more: int) -> bool:
            return self.at(name, replace(place, value=Interval(low + more, high))).holds(test) is not None

        far = next((2**n for n in range(FARTHEST) if low + 2**n <= high and decided(2**n)), None)
        if far is not None:
            return int(low) + bisect_left(range(far), True, key=decided)
        return None if high == inf else int(low + high + 1) // 2

    def _within(self, place: Place, value: Interval) -> Place | None:
        """The place with fewer values; None when its residue excludes them."""
        if value.exact is None or place.residue is None or value.exact % self.period == place.residue:
            return replace(place, value=value)
        return None

    def open(self, *forms: Linear) -> tuple[Atom, ...]:
        """The atoms with several values on which forms depend, by themselves and as the ends of loops."""
        found: dict[Atom, None] = {}
        for form in forms:
            for term in atoms(form):
                if isinstance(term, Atom):
                    found[term] = None
                elif term.name in self.places:
                    found |= dict.fromkeys(a for a in atoms(self.places[term.name].end) if isinstance(a, Atom))
        return tuple(a for a in found if a in self.atoms and self.atoms[a].exact is None)
