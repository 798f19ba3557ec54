"""What conditions say of each other: which cannot hold together, and which follow.

All is by proof, so "not known" is always a right answer: conditions on one name are looked at for so many values that
all further ones are like some of these; those on several names by their bounds, and by the range of one linear form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import inf, lcm, prod

from tidegate.ir.expr import COMPARISONS, Bin, Expr, Int, Sym, evaluate, least, linear, negated, symbols

MOST_CASES = 32
"""Ways in which conditions with ``||`` may hold together that are looked at."""

MOST_VALUES = 512
"""Values of one name that are looked at."""

ROUNDS = 4
"""So often bounds are tightened by each other."""

Given = frozenset[Expr]
"""Conditions that hold."""

Form = tuple[tuple[Expr, int], ...]
"""Terms with factors, the first factor positive, without constant."""


@dataclass(frozen=True)
class Range:
    """The numbers from ``low`` to ``high`` but for some."""

    low: float = -inf
    high: float = inf
    but: frozenset[int] = frozenset()

    def __and__(self, other: Range) -> Range:
        low, high, but = max(self.low, other.low), min(self.high, other.high), self.but | other.but
        while low in but and low <= high:
            low += 1
        while high in but and low <= high:
            high -= 1
        return Range(low, high, but)

    @property
    def empty(self) -> bool:
        return self.low > self.high


@dataclass(frozen=True)
class Comparison:
    """``op`` (``>=``, ``==`` or ``!=``) of a sum of terms with factors and a constant, and 0; ``whole``: as written."""

    op: str
    terms: Mapping[Expr, int]
    const: int
    whole: Expr

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(symbols(self.whole))

    @cached_property
    def at(self) -> tuple[Form, Range]:
        """The form, and where it lies."""
        terms = sorted(self.terms.items(), key=lambda item: str(item[0]))
        sign = 1 if terms[0][1] > 0 else -1
        form = tuple((t, sign * c) for t, c in terms)
        zero = -sign * self.const
        if self.op == "==":
            return form, Range(zero, zero)
        if self.op == "!=":
            return form, Range(but=frozenset((zero,)))
        return form, Range(low=zero) if sign > 0 else Range(high=zero)


class Conditions:
    """Answers for names of which ``ranges`` gives the smallest and largest values; others may be any number."""

    def __init__(self, ranges: Mapping[str, tuple[float, float]]) -> None:
        self.ranges = ranges
        self._known: dict[tuple[Expr, Given], bool | None] = {}
        self._excluded: dict[tuple[Expr, ...], bool] = {}
        self._ways: dict[Expr, list[list[Comparison]]] = {}
        self._single: dict[tuple[str, tuple[Expr, ...]], Range] = {}

    def truth(self, condition: Expr, given: Given) -> bool | None:
        """The truth of a condition where others hold, None where these do not say."""
        if isinstance(condition, Int):
            return bool(condition.value)
        key = (condition, given)
        if key not in self._known:
            around = sorted(connected(symbols(condition), given), key=str)
            if self.excluded((condition, *around)):
                self._known[key] = False
            else:
                self._known[key] = True if self.excluded((negated(condition), *around)) else None
        return self._known[key]

    def excluded(self, conditions: Iterable[Expr]) -> bool:
        """Can these conditions not hold together?"""
        key = tuple(conditions)
        if key not in self._excluded:
            self._excluded[key] = all(self._impossible(case) for case in self._cases(key))
        return self._excluded[key]

    def _cases(self, conditions: tuple[Expr, ...]) -> Iterator[list[Comparison]]:
        """The ways in which all conditions can hold; those with more ways than are looked at are left out."""
        self._ways |= {e: list(_ways(e)) for e in conditions if e not in self._ways}
        ways = [self._ways[e] for e in conditions]
        while prod(len(w) for w in ways) > MOST_CASES:
            ways.remove(max(ways, key=len))
        yield from ([c for way in chosen for c in way] for chosen in product(*ways))

    def _impossible(self, case: list[Comparison]) -> bool:
        if any(not c.terms and not _holds(c.op, c.const) for c in case):
            return True
        bounds: dict[Expr, Range] = {}
        for name in sorted(frozenset[str]().union(*(c.names for c in case))):
            mine = [c for c in case if c.names == {name}]
            key = name, tuple(c.whole for c in mine)
            if key not in self._single:
                self._single[key] = self._values(mine, name)
            found = self._single[key]
            if found.empty:
                return True
            bounds[Sym(name)] = found
        forms: dict[Form, Range] = {}
        for c in case:
            if c.terms and (len(c.names) > 1 or _reach(c, *c.names) is None):
                form, at = c.at
                forms[form] = forms.get(form, Range()) & at
        return any(at.empty for at in forms.values()) or self._clash(forms, bounds)

    def _values(self, comparisons: list[Comparison], name: str) -> Range:
        """The values that one name may have by itself."""
        low, high = self.ranges.get(name, (-inf, inf))
        tests = [(c.whole, reach) for c in comparisons if (reach := _reach(c, name)) is not None]
        if not tests:
            return Range(low, high)
        edge, period = max(reach[0] for _, reach in tests), lcm(*(reach[1] for _, reach in tests))
        first = low if low > -inf else -edge - period
        last = min(high, max(edge, first) + period)
        if last - first > MOST_VALUES:
            return Range(low, high)
        fit = [n for n in range(int(first), int(last) + 1) if all(evaluate(e, {name: n}) for e, _ in tests)]
        if not fit:
            return Range(1, 0)
        below = low > -inf or fit[0] > -edge
        above = fit[-1] < edge or last == high
        return Range(fit[0] if below else low, fit[-1] if above else high)

    def _clash(self, forms: Mapping[Form, Range], bounds: dict[Expr, Range]) -> bool:
        """Do the ranges of forms contradict those of their terms?"""
        for _ in range(ROUNDS):
            before = dict(bounds)
            for form, at in forms.items():
                for term, _ in form:
                    if term not in bounds:
                        bounds[term] = self._term(term)
                low = sum(min(c * bounds[t].low, c * bounds[t].high) for t, c in form)
                high = sum(max(c * bounds[t].low, c * bounds[t].high) for t, c in form)
                if (at & Range(low, high)).empty:
                    return True
                for term, c in form:
                    bounds[term] &= _left(form, at, term, c, bounds)
                    if bounds[term].empty:
                        return True
            if bounds == before:
                return False
        return False

    def _term(self, term: Expr) -> Range:
        """The range of a term that is no name."""
        signed = {n for n in symbols(term) if self.ranges.get(n, (-inf, inf))[0] < 0}
        if isinstance(term, Bin) and term.op == "%" and isinstance(term.b, Int) and term.b.value > 0:
            return Range(0, term.b.value - 1)
        return Range(low=least(term, signed))


def _left(form: Form, at: Range, term: Expr, factor: int, bounds: Mapping[Expr, Range]) -> Range:
    """What the range of a form leaves to one of its terms."""
    rest = [(t, c) for t, c in form if t != term]
    low = at.low - sum(max(c * bounds[t].low, c * bounds[t].high) for t, c in rest)
    high = at.high - sum(min(c * bounds[t].low, c * bounds[t].high) for t, c in rest)
    if factor < 0:
        low, high, factor = -high, -low, -factor
    return Range(-(-low // factor) if abs(low) < inf else -inf, high // factor if abs(high) < inf else inf)


def _holds(op: str, value: int) -> bool:
    return value >= 0 if op == ">=" else (value == 0) == (op == "==")


def connected(names: Iterable[str], given: Given) -> list[Expr]:
    """The conditions that say something of names, directly or by others."""
    names, left, found = set(names), list(given), list[Expr]()
    while more := [e for e in left if names & set(symbols(e))]:
        found += more
        left = [e for e in left if e not in more]
        names |= {n for e in more for n in symbols(e)}
    return found


def _ways(e: Expr) -> Iterator[list[Comparison]]:
    if isinstance(e, Bin) and e.op == "&&":
        yield from ([*a, *b] for a in _ways(e.a) for b in _ways(e.b))
    elif isinstance(e, Bin) and e.op == "||":
        yield from _ways(e.a)
        yield from _ways(e.b)
    else:
        yield [_comparison(e)]


_SIDES: dict[str, Callable[[Bin], tuple[Expr, Expr, int]]] = {
    "<": lambda e: (e.b, e.a, -1),
    "<=": lambda e: (e.b, e.a, 0),
    "==": lambda e: (e.a, e.b, 0),
    "!=": lambda e: (e.a, e.b, 0),
}


def _comparison(e: Expr) -> Comparison:
    op, a, b, more = "!=", e, e, 0
    if isinstance(e, Bin) and e.op in COMPARISONS:
        a, b, more = _SIDES[e.op](e)
        op = e.op if e.op in ("==", "!=") else ">="
        (base, terms), (other, less) = linear(a), linear(b)
    else:
        (base, terms), (other, less) = linear(e), (0, {})
    total = {t: terms.get(t, 0) - less.get(t, 0) for t in {**terms, **less}}
    return Comparison(op, {t: c for t, c in total.items() if c}, base - other + more, e)


def _reach(c: Comparison, name: str) -> tuple[int, int] | None:
    """From which distance to 0 on the truth of a comparison of one name repeats, and how often; None: not known."""
    if len(c.terms) != 1:
        return None
    ((term, factor),) = c.terms.items()
    if term == Sym(name):
        return abs(c.const) // abs(factor) + 2, 1
    match term:
        case Bin("%", inner, Int(modulus)) if modulus > 0 and linear(inner)[1].keys() == {Sym(name)}:
            return 0, modulus
    return None
