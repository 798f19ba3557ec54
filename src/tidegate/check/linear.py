"""Linear forms over *terms*: how expressions of sizes and indices are read.

A term is a loop or grid index, or an *atom*: a size, or a function of sizes alone such as cdiv(K, 64). Expressions that
name the same number should read as the same form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from math import gcd, inf

from tidegate.ir import expr as ex
from tidegate.ir.expr import hashed_once

MOST_ROUNDED = 48
"""The largest constant that a quotient is compared with by what it divides."""


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
    """``floor(value / divisor)`` of a form that is not a sum of sizes."""

    value: Linear
    divisor: int


@hashed_once
@dataclass(frozen=True)
class Opaque:
    """Something that no rule here covers; its value is known only when the forms ``inner`` that it combines have exact
    values."""

    value: ex.Bin
    inner: tuple[Linear, Linear] = field(compare=False, repr=False)


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


def _surely(formula: Formula) -> Iterator[Test]:
    if isinstance(formula, Test):
        yield formula
    elif formula.op == "&&":
        for part in formula.parts:
            yield from _surely(part)


def single(term: Term) -> Linear:
    return Linear(0, ((term, 1),))


class Reader:
    """Turns expressions into linear forms and tests. ``sizes``: the known dims; ``multiples``: of the unknown ones;
    every other name is an index. ``ends``: of loops; an extreme in one of them is a number of trips, known as a
    whole. ``control``: all expressions on which control depends; numbers of tiles are looked at if they are in it.
    ``indices``: of loops and the grid, which mean the same in every expression."""

    def __init__(
        self,
        sizes: Mapping[str, int],
        multiples: Mapping[str, int],
        ends: Iterable[ex.Expr] = (),
        control: Iterable[ex.Expr] = (),
        indices: Iterable[str] = (),
    ) -> None:
        self.sizes = sizes
        self.multiples = multiples
        self.indices = frozenset(indices)
        self.whole = {term for end in ends for term, _ in self.linear(end).terms}
        numbers = {p for e in control for p in ex.parts(e) if isinstance(p, ex.Bin) and p.op in ("/", "cdiv")}
        self.tiles = {term for e in numbers for term, _ in self.linear(e).terms} if multiples else set()

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
        if not isinstance(e, ex.Bin):
            return self.linear(e)
        return single(Atom(e) if self._is_size(e) else Opaque(e, (a, b)))

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
        if not all(isinstance(term, Atom) and c > 0 for term, c in rest.terms):
            value = rest.plus(Linear(t - 1)) if op == "cdiv" else rest
            return whole.plus(Linear(value.const // t)).plus(single(Quotient(Linear(value.const % t, value.terms), t)))
        if self._divides(t, rest):
            op = "cdiv"  # both are exact: one name for them
        if op == "/" and rest.const == t - 1:
            op, rest = "cdiv", Linear(0, rest.terms)
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
        return list(_surely(self.formula(e)))

    def formula(self, e: ex.Expr) -> Formula:
        """A condition."""
        if isinstance(e, ex.Bin) and e.op in ("&&", "||"):
            return Combined(e.op, (self.formula(e.a), self.formula(e.b)))
        if isinstance(e, ex.Bin) and e.op in ("<", "<=", "==", "!="):
            a, b = self.linear(e.a), self.linear(e.b)
            if e.op in ("==", "!="):
                return self._zero(e.op, a.plus(b, -1))
            return self._at_least_zero(b.plus(a, -1).plus(Linear(-int(e.op == "<"))))
        return Test("!=", self.linear(e))

    def _zero(self, op: str, d: Linear) -> Formula:
        """``d == 0`` or ``d != 0``; of what is tested by its sides, that it is no less and no more, or is either."""
        if not any(self._is_absolute(term) for term, _ in d.terms) and self._rounded(d) is None:
            return Test(op, d)
        beyond = Linear(-int(op == "!="))
        sides = tuple(self._at_least_zero(d.times(sign).plus(beyond)) for sign in (1, -1))
        return Combined("&&" if op == "==" else "||", sides)

    def _at_least_zero(self, d: Linear) -> Formula:
        """``d >= 0``. What is said of an absolute value is said of its sides: ``max(x, -x) < 2`` of x; what is said of
        a quotient, of what is divided: ``x / 4 < 2`` of x."""
        for term, c in d.terms:
            if self._is_absolute(term):
                assert isinstance(term, Extreme)
                rest = d.plus(single(term), -c)
                sides = tuple(self._at_least_zero(rest.plus(side, c)) for side in (term.a, term.b))
                return Combined("||" if c > 0 else "&&", sides)
        whole = self._rounded(d)
        return Test(">=", self._tightened(d)) if whole is None else self._at_least_zero(whole)

    def _rounded(self, d: Linear) -> Linear | None:
        """A form without the quotient in d, which is 0 or more where d is: ``floor(x / t)`` is n or more where x is
        n * t or more. None where d has other terms, or the numbers become large, which are looked at less closely, or
        the quotient is a number of trips."""
        match d.terms:
            case ((Quotient(value, t) as term, c),) if abs(c) == 1 and self._is_plain(term):
                found = Linear(t * d.const + (t - 1 if c < 0 else 0)).plus(value, c)
                return found if abs(found.const) <= MOST_ROUNDED else None
        return None

    def _is_plain(self, term: Quotient) -> bool:
        """Whether a quotient is of sizes and indices, and no number of trips."""
        names = {a.name for a in atoms(term.value) if isinstance(a, Index)}
        return term not in self.whole and names <= self.indices

    def _is_absolute(self, term: Term) -> bool:
        """Whether a term is ``max(x, -x)`` and is taken apart: a number of trips is not."""
        return isinstance(term, Extreme) and term.op == "max" and term.b == term.a.times(-1) and term not in self.whole

    def _tightened(self, d: Linear) -> Linear:
        """``K - t*x - 1 >= 0`` says ``x < cdiv(K, t)``: the form in which it meets a bound of a loop."""
        sizes = [(t, c) for t, c in d.terms if isinstance(t, Atom) and isinstance(t.value, ex.Sym)]
        others = [c for t, c in d.terms if (t, c) not in sizes]
        if len(sizes) != 1 or sizes[0][1] != 1 or not others:
            return d
        t = reduce(gcd, others, (d.const + 1))
        if t < 2:
            return d
        rest = Linear((d.const + 1) // t, tuple((term, c // t) for term, c in d.terms if (term, c) not in sizes))
        tiles = self._quotient(single(sizes[0][0]), Linear(t), "cdiv")
        if tiles is None or not any(term in self.tiles for term, _ in tiles.terms):
            return d
        return tiles.plus(rest).plus(Linear(-1))


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


def halfway(term: Extreme) -> int | None:
    """What a maximum of two forms is at least, a minimum at most, where their sum is known: 0 for ``max(x, -x)``."""
    both = term.a.plus(term.b)
    if both.terms:
        return None
    return -(-both.const // 2) if term.op == "max" else both.const // 2


def parts_of(term: Term) -> tuple[Linear, ...]:
    """The forms of which a term is made."""
    match term:
        case Extreme(_, a, b) | Opaque(_, (a, b)):
            return a, b
        case Mod(value, _) | Quotient(value, _):
            return (value,)
    return ()


def atoms(form: Linear) -> Iterator[Atom | Index]:
    """Atoms and indices of a form, inner ones included."""
    for term, _ in form.terms:
        if isinstance(term, (Atom, Index)):
            yield term
        else:
            for inner in parts_of(term):
                yield from atoms(inner)


def reach(form: Linear, distance: int) -> Iterator[tuple[Atom | Index, int]]:
    """Per atom and index of a form how far it has to be told apart, so that the form is up to ``distance``. An index in
    a quotient is told apart where it turns out to matter."""
    for term, c in form.terms:
        if isinstance(term, Index):
            yield term, -(-distance // abs(c))
        elif isinstance(term, Quotient):
            yield from ((inner, 0 if isinstance(inner, Index) else distance) for inner in atoms(term.value))
        elif isinstance(term, Opaque):
            yield from ((inner, 0) for inner in atoms(single(term)))
        elif isinstance(term, Extreme):
            yield from reach(term.a, distance)
            yield from reach(term.b, distance)
        else:
            yield from ((inner, distance) for inner in atoms(single(term)))


def constants(form: Linear, most: float = inf) -> Iterator[int]:
    """The constants that a form adds and compares with; none of a minimum or maximum with one above ``most``, which
    then is a number like any other where its sides are not far apart."""
    yield abs(form.const)
    for term, _ in form.terms:
        if isinstance(term, Extreme):
            found = [c for side in (term.a, term.b, term.a.plus(term.b, -1)) for c in constants(side, most)]
            yield from found if max(found) <= most else ()


def moduli(form: Linear) -> Iterator[int]:
    for term, _ in form.terms:
        if isinstance(term, Mod):
            yield term.modulus
            yield from moduli(term.value)
        elif isinstance(term, Extreme):
            yield from moduli(term.a)
            yield from moduli(term.b)
