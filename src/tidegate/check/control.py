"""Integers that may be unknown: what a loop bound or a condition is when sizes are not given.

Expressions become linear forms over *terms*. A term is a loop or grid index, or an *atom*: a size, or a function of
sizes alone such as cdiv(K, 64). In an environment every atom is either one exact value or "at least B", every index an
interval of its value and of its distance to the loop's end. A comparison is decided when both sides' difference has a
sign on the whole interval; what stays undecided raises :class:`Undecided`, never a guess.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from math import gcd, inf
from typing import TypeVar

from tidegate.ir import expr as ex

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


T = TypeVar("T")


def hashed_once(cls: type[T]) -> type[T]:
    """A frozen dataclass that works out its hash once: terms and forms are deep, and are looked up all the time."""
    deep: Callable[[T], int] = cls.__hash__

    def __hash__(self: T) -> int:
        found: int | None = self.__dict__.get("_hash")
        if found is None:
            found = self.__dict__["_hash"] = deep(self)
        return found

    cls.__hash__ = __hash__  # type: ignore[method-assign,assignment]
    return cls


@dataclass(frozen=True)
class Index:
    """A loop or grid index."""

    name: str


@hashed_once
@dataclass(frozen=True)
class Atom:
    """An expression over sizes alone that is not linear, or a size."""

    value: ex.Expr


@hashed_once
@dataclass(frozen=True)
class Extreme:
    """min or max of two linear forms."""

    op: str
    a: Linear
    b: Linear


@hashed_once
@dataclass(frozen=True)
class Mod:
    value: Linear
    modulus: int


@hashed_once
@dataclass(frozen=True)
class Quotient:
    """``floor(value / divisor)`` of a form that holds indices."""

    value: Linear
    divisor: int


@hashed_once
@dataclass(frozen=True)
class Opaque:
    """Something that no rule here covers; its value is known only when all its names have exact values."""

    value: ex.Expr


Term = Index | Atom | Extreme | Mod | Quotient | Opaque


@hashed_once
@dataclass(frozen=True)
class Linear:
    """``const + sum(coefficient * term)``; terms are distinct, coefficients not 0."""

    const: int
    terms: tuple[tuple[Term, int], ...] = ()

    def plus(self, other: Linear, factor: int = 1) -> Linear:
        total = dict(self.terms)
        for term, c in other.terms:
            total[term] = total.get(term, 0) + factor * c
        return Linear(self.const + factor * other.const, tuple((t, c) for t, c in total.items() if c))

    def times(self, factor: int) -> Linear:
        return Linear(0).plus(self, factor)

    def coefficient(self, term: Term) -> int:
        return next((c for t, c in self.terms if t == term), 0)

    def __str__(self) -> str:
        parts = [f"{c}*{_name(t)}" if c != 1 else _name(t) for t, c in self.terms]
        return " + ".join([*parts, *([str(self.const)] if self.const or not parts else [])])


def _name(term: Term) -> str:
    match term:
        case Index(name):
            return name
        case Atom(value):
            return str(value)
        case Extreme(op, a, b):
            return f"{op}({a}, {b})"
        case Mod(value, modulus):
            return f"({value}) % {modulus}"
        case Quotient(value, divisor):
            return f"({value}) / {divisor}"
        case Opaque(value):
            return str(value)


@dataclass(frozen=True)
class Test:
    """``value >= 0``, or ``== 0``, or ``!= 0``."""

    op: str
    value: Linear


@dataclass(frozen=True)
class Combined:
    """All of the parts (``&&``), or one of them at least (``||``)."""

    op: str
    parts: tuple[Formula, ...]


Formula = Test | Combined


def tests_of(formula: Formula) -> Iterator[Test]:
    """All tests in a condition."""
    if isinstance(formula, Test):
        yield formula
    else:
        for part in formula.parts:
            yield from tests_of(part)


def single(term: Term) -> Linear:
    return Linear(0, ((term, 1),))


class Reader:
    """Turns expressions into linear forms and tests. ``sizes``: the known dims; ``multiples``: of the unknown ones;
    every other name is an index."""

    def __init__(self, sizes: Mapping[str, int], multiples: Mapping[str, int]) -> None:
        self.sizes = sizes
        self.multiples = multiples

    def linear(self, e: ex.Expr) -> Linear:
        if isinstance(e, ex.Int):
            return Linear(e.value)
        if isinstance(e, ex.Sym):
            if e.name in self.sizes:
                return Linear(self.sizes[e.name])
            return single(Atom(e) if e.name in self.multiples else Index(e.name))
        a, b = self.linear(e.a), self.linear(e.b)
        if not a.terms and not b.terms and not (e.op in ("/", "%", "cdiv") and b.const == 0):
            return Linear(ex.EVALUATE[e.op](a.const, b.const))
        rules: dict[str, Callable[[Linear, Linear], Linear | None]] = {
            "+": lambda a, b: a.plus(b),
            "-": lambda a, b: a.plus(b, -1),
            "*": self._product,
            "/": lambda a, b: self._quotient(a, b, "/"),
            "cdiv": lambda a, b: self._quotient(a, b, "cdiv"),
            "%": self._remainder,
            "min": lambda a, b: single(Extreme("min", a, b)),
            "max": lambda a, b: single(Extreme("max", a, b)),
        }
        found = rules[e.op](a, b) if e.op in rules else None
        if found is not None:
            return found
        e = ex.substitute(e, {n: ex.Int(v) for n, v in self.sizes.items()})
        return single(Atom(e) if self._is_size(e) else Opaque(e))

    def step(self, atom: Atom) -> int:
        """What divides all values of an atom: the known factor of a size, and what it makes of tiles."""
        e = atom.value
        if isinstance(e, ex.Bin) and e.op == "cdiv" and isinstance(e.a, ex.Sym) and isinstance(e.b, ex.Int):
            factor = self.multiples.get(e.a.name, 1)
            return factor // e.b.value if factor % e.b.value == 0 else 1
        return self.multiples.get(e.name, 1) if isinstance(e, ex.Sym) else 1

    def _is_size(self, e: ex.Expr) -> bool:
        """Whether e is a function of sizes alone and, as sizes are, never negative."""
        if isinstance(e, ex.Int):
            return e.value >= 0
        if isinstance(e, ex.Sym):
            return e.name in self.multiples
        return e.op != "-" and self._is_size(e.a) and self._is_size(e.b)

    def _product(self, a: Linear, b: Linear) -> Linear | None:
        if not a.terms:
            return b.times(a.const)
        return a.times(b.const) if not b.terms else None

    def _quotient(self, a: Linear, b: Linear, op: str) -> Linear | None:
        """Splits off what the divisor divides, so that cdiv(K + 64, 64) is cdiv(K, 64) + 1."""
        t = b.const
        if b.terms or t <= 0:
            return None
        whole = Linear(a.const // t, tuple((term, c // t) for term, c in a.terms if c % t == 0))
        rest = Linear(a.const % t, tuple((term, c) for term, c in a.terms if c % t))
        if not rest.terms:
            return whole.plus(Linear(int(op == "cdiv" and rest.const > 0)))
        if not all(isinstance(term, (Atom, Index)) for term, _ in rest.terms):
            return None
        if not all(isinstance(term, Atom) and c > 0 for term, c in rest.terms):
            value = rest.plus(Linear(t - 1)) if op == "cdiv" else rest
            return whole.plus(Linear(value.const // t)).plus(single(Quotient(Linear(value.const % t, value.terms), t)))
        if self._divides(t, rest):
            op = "cdiv"  # both are exact: one name for them
        return whole.plus(single(Atom(ex.Bin(op, _expression(rest), ex.Int(t)))))

    def _divides(self, t: int, form: Linear) -> bool:
        def known(term: Term) -> int:
            return self.multiples[term.value.name] if isinstance(term, Atom) and isinstance(term.value, ex.Sym) else 1

        return form.const % t == 0 and all(c * known(term) % t == 0 for term, c in form.terms)

    def _remainder(self, a: Linear, b: Linear) -> Linear | None:
        if b.terms or b.const <= 0:
            return None
        rest = Linear(a.const % b.const, tuple((term, c) for term, c in a.terms if c % b.const))
        if self._divides(b.const, rest):
            return Linear(0)
        return single(Mod(rest, b.const))

    def tests(self, e: ex.Expr) -> list[Test]:
        """Tests that surely hold where a condition does."""
        if isinstance(e, ex.Bin) and e.op == "&&":
            return [*self.tests(e.a), *self.tests(e.b)]
        formula = self.formula(e)
        return [formula] if isinstance(formula, Test) else []

    def formula(self, e: ex.Expr) -> Formula:
        """A condition."""
        if isinstance(e, ex.Bin) and e.op in ("&&", "||"):
            return Combined(e.op, (self.formula(e.a), self.formula(e.b)))
        if isinstance(e, ex.Bin) and e.op in ("<", "<=", "==", "!="):
            a, b = self.linear(e.a), self.linear(e.b)
            if e.op in ("==", "!="):
                return Test(e.op, a.plus(b, -1))
            return Test(">=", self._tightened(b.plus(a, -1).plus(Linear(-int(e.op == "<")))))
        return Test("!=", self.linear(e))

    def _tightened(self, d: Linear) -> Linear:
        """``K - t*x - 1 >= 0`` says ``x < cdiv(K, t)``: the form in which it meets the loop bound."""
        sizes = [(t, c) for t, c in d.terms if isinstance(t, Atom) and isinstance(t.value, ex.Sym)]
        others = [c for t, c in d.terms if (t, c) not in sizes]
        if len(sizes) != 1 or sizes[0][1] != 1 or not others:
            return d
        t = reduce(gcd, others, (d.const + 1))
        if t < 2:
            return d
        rest = Linear((d.const + 1) // t, tuple((term, c // t) for term, c in d.terms if (term, c) not in sizes))
        tiles = self._quotient(single(sizes[0][0]), Linear(t), "cdiv")
        return d if tiles is None else tiles.plus(rest).plus(Linear(-1))


def _expression(form: Linear) -> ex.Expr:
    total: ex.Expr = ex.Int(form.const)
    for term, c in sorted(form.terms, key=lambda tc: _name(tc[0])):
        assert isinstance(term, Atom)
        total = ex.add(total, ex.mul(term.value, c))
    return total


def expression(form: Linear) -> ex.Expr:
    """The form as an expression, which reads as the same form."""
    total: ex.Expr = ex.Int(0)
    for term, c in form.terms:
        part = term_expression(term)
        total = ex.add(total, ex.mul(part, c)) if c > 0 else ex.binary("-", total, ex.mul(part, -c))
    return ex.add(total, form.const)


def term_expression(term: Term) -> ex.Expr:
    match term:
        case Index(name):
            return ex.Sym(name)
        case Atom(value) | Opaque(value):
            return value
        case Extreme(op, a, b):
            return ex.binary(op, expression(a), expression(b))
        case Mod(value, modulus):
            return ex.binary("%", expression(value), modulus)
        case Quotient(value, divisor):
            return ex.binary("/", expression(value), divisor)


def atoms(form: Linear) -> Iterator[Atom | Index]:
    """Atoms and indices of a form, inner ones included."""
    for term, _ in form.terms:
        if isinstance(term, (Atom, Index)):
            yield term
        elif isinstance(term, Extreme):
            yield from atoms(term.a)
            yield from atoms(term.b)
        elif isinstance(term, (Mod, Quotient)):
            yield from atoms(term.value)


def reach(form: Linear, distance: int) -> Iterator[tuple[Atom | Index, int]]:
    """Per atom and index of a form how far it has to be told apart, so that the form is up to ``distance``. An index in
    a quotient is told apart where it turns out to matter."""
    for term, c in form.terms:
        if isinstance(term, Index):
            yield term, -(-distance // abs(c))
        elif isinstance(term, Quotient):
            yield from ((inner, 0 if isinstance(inner, Index) else distance) for inner in atoms(term.value))
        elif isinstance(term, Extreme):
            yield from reach(term.a, distance)
            yield from reach(term.b, distance)
        else:
            yield from ((inner, distance) for inner in atoms(single(term)))


def constants(form: Linear) -> Iterator[int]:
    yield abs(form.const)
    for term, _ in form.terms:
        if isinstance(term, Extreme):
            yield from constants(term.a)
            yield from constants(term.b)
            yield from constants(term.a.plus(term.b, -1))


def moduli(form: Linear) -> Iterator[int]:
    for term, _ in form.terms:
        if isinstance(term, Mod):
            yield term.modulus
            yield from moduli(term.value)
        elif isinstance(term, Extreme):
            yield from moduli(term.a)
            yield from moduli(term.b)


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
        """The environment in which a form has one of these values, if it is a single term."""
        if len(form.terms) != 1 or form.terms[0][1] != 1:
            return self
        term, at = form.terms[0][0], Interval(value.low - form.const, value.high - form.const)
        if isinstance(term, Atom):
            return replace(self, atoms={**self.atoms, term: self.atoms.get(term, Interval(0, inf)) & at})
        if isinstance(term, Index):
            place = self.places.get(term.name, Place(ANY, ANY, None, Linear(0)))
            if place.left != ANY:
                return self  # the index of another loop
            return self.at(term.name, replace(place, value=place.value & at))  # a number that nobody gave
        return replace(self, ends={**self.ends, term: at})

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
                return Interval(pick(x.low, y.low), pick(x.high, y.high))
            case Opaque(value):
                return self._evaluated(value)

    def _evaluated(self, e: ex.Expr) -> Interval:
        names = {n: self._interval_of(Index(n) if n in self.places else Atom(ex.Sym(n))).exact for n in ex.symbols(e)}
        exact = {n: v for n, v in names.items() if v is not None}
        if len(exact) < len(names):
            return ANY
        try:
            return exactly(ex.evaluate(e, exact))
        except ZeroDivisionError:
            return ANY

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
