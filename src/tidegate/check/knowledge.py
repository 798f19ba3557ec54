"""What a run knows of numbers that nobody gave: integers read from inputs, integer arguments, undecided conditions.

An integer read from an input is a *word*: a function of its address, since inputs do not change. Its name is that
address, an expression over sizes, indices and other words, so that two reads of one address are one unknown, also when
a fill reads ahead what a later trip reads again. Facts say in which range a linear form lies; a condition that they do
not decide splits the run, and each part notes what it took. When a loop goes on to its next trip, index i becomes i - 1
in all that is known. Forgetting is always sound, and so is a wider range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import cast

from tidegate.check.control import ANY, Env, Interval, Place, exactly
from tidegate.check.limits import Limits
from tidegate.check.linear import (
    Atom,
    Extreme,
    Formula,
    Index,
    Linear,
    Opaque,
    Reader,
    Term,
    Test,
    expression,
    parts_of,
    single,
    term_expression,
    tests_of,
)
from tidegate.ir import expr as ex
from tidegate.ir import tir
from tidegate.ir.expr import hashed_once
from tidegate.ir.text import print_stmt

AHEAD = 16
"""Trips by which a read may be ahead of another of the same element."""

Outcome = tuple[bool, "Knowledge"]

Form = int
"""The number of a form without constant, its first coefficient positive."""

Place3 = tuple[Form, int, int]
"""form, sign and constant: the linear form sign * form + constant."""


@dataclass(frozen=True)
class Range:
    """An interval, without some of its numbers."""

    within: Interval
    but: frozenset[int] = frozenset()

    def __and__(self, other: Range) -> Range:
        low, high = max(self.within.low, other.within.low), min(self.within.high, other.within.high)
        but = self.but | other.but
        if not but:
            return Range(Interval(low, high))
        while low in but and low <= high:
            low += 1
        while high in but and low <= high:
            high -= 1
        return Range(Interval(low, high), frozenset(n for n in but if low < n < high))

    def moved(self, sign: int, const: int) -> Range:
        """sign * this + const."""
        low, high = (self.within.low, self.within.high) if sign > 0 else (-self.within.high, -self.within.low)
        return Range(Interval(low + const, high + const), frozenset(sign * n + const for n in self.but))

    @property
    def empty(self) -> bool:
        return self.within.low > self.within.high


@hashed_once
@dataclass(frozen=True)
class Knowledge:
    """``values``: what the scalars that instructions set hold: a number, or the name of a word. ``facts``: forms with
    the range in which each lies. Both are sorted."""

    values: tuple[tuple[str, ex.Expr], ...] = ()
    facts: tuple[tuple[Form, Range], ...] = ()

    def holds(self, name: str, value: ex.Expr) -> Knowledge:
        values = {**dict(self.values), name: value}
        return replace(self, values=tuple(sorted(values.items(), key=lambda item: item[0])))

    def joined(self, other: Knowledge) -> Knowledge:
        """With what another knows of other things."""
        if not other.values and not other.facts:
            return self
        values = tuple(sorted((*self.values, *other.values), key=lambda item: item[0]))
        return Knowledge(values, tuple(sorted((*self.facts, *other.facts), key=lambda item: item[0])))

    def fact(self, form: Form, at: Range) -> Knowledge:
        known = {**dict(self.facts), form: at}
        return replace(self, facts=tuple(sorted(known.items(), key=lambda item: item[0])))


NOTHING = Knowledge()


@dataclass(frozen=True)
class Spot:
    """Where an abstract run is: what it knows of sizes, indices and numbers."""

    env: Env
    known: Knowledge


@dataclass(frozen=True)
class Word:
    """An element of an input; ``bounds`` are those of the window that reads it."""

    tensor: str
    address: tuple[ex.Expr, ...]
    bounds: tuple[ex.Expr | None, ...]

    @property
    def name(self) -> str:
        masks = "".join(f" < {b}" for b in self.bounds if b is not None)
        return f"{self.tensor}[{', '.join(map(str, self.address))}{masks}]"


class Forms:
    """Linear forms by number: one table for all runs of a kernel, whose states are compared."""

    def __init__(self) -> None:
        self.all: list[Linear] = []
        self._numbers: dict[Linear, Form] = {}

    def number(self, key: Linear) -> Form:
        if key not in self._numbers:
            self._numbers[key] = len(self.all)
            self.all.append(key)
        return self._numbers[key]


class Numbers:
    """The words and forms of a kernel, and how knowledge of them grows. ``concrete`` gives the elements of inputs where
    a run at given numbers is replayed: then nothing is unknown. ``limits``: beyond which values are alike."""

    def __init__(
        self,
        kernel: tir.Kernel,
        reader: Reader,
        forms: Forms,
        limits: Limits,
        concrete: Callable[[str, tuple[int, ...]], int] | None,
    ) -> None:
        self.reader = reader
        self.limits = limits
        self.concrete = concrete
        self.grid = frozenset[str](axis.name for axis in kernel.grid)
        self.words: dict[str, Word] = {}
        self.read: dict[tuple[str, tuple[int, ...]], int] = {}
        """Elements that a concrete run has read."""
        self.split = False
        """Whether a condition was undecided."""
        self.counts = False
        """Whether something is noted of how many trips a loop has."""
        self._patterns = dict(_patterns(kernel.body, reader))
        self._turns = dict(_turns(kernel.body, reader))
        self._coming: dict[tuple[str, str], bool] = {}
        self._growing: dict[tuple[Form, str], bool] = {}
        self._table, self._forms = forms, forms.all
        self._asked_in = {str(loop.index): frozenset(self._forms_in(loop)) for loop in _loops(kernel.body)}
        self._memo: dict[tuple[object, ...], Place3] = {}
        self._names: dict[Form, frozenset[str]] = {}
        self._known: dict[Knowledge, frozenset[str]] = {}
        self._following: dict[tuple[str, int | None, Knowledge], Knowledge] = {}
        self._ends: dict[Form, tuple[int, int]] = {}
        self._tests: dict[int, tuple[Test, Place3]] = {}

    def limited(self, limits: Limits) -> None:
        """From here on numbers are told apart like this."""
        self.limits = limits
        self._ends.clear()
        self._following.clear()

    # ------------------------------------------------------------------------------------------ values

    def expression(self, e: ex.Expr, known: Knowledge) -> ex.Expr:
        """e with the scalars that instructions set replaced by what they hold."""
        return ex.substitute(e, dict(known.values)) if known.values else e

    def load(self, stmt: tir.LdScalar, known: Knowledge, env: Env) -> Knowledge:
        """What is known after an integer was read."""
        address = tuple(self.expression(e, known) for e in stmt.src.origin)
        if self.concrete is not None:
            return known.holds(stmt.scalar, ex.Int(self._element(stmt, address, env)))
        return known.holds(stmt.scalar, self._named(Word(stmt.src.tensor, address, stmt.src.bounds)))

    def _named(self, word: Word) -> ex.Expr:
        """The word's name, with the address in a form that equal ones have."""
        word = replace(word, address=tuple(expression(ordered(self.reader.linear(e))) for e in word.address))
        name = word.name
        self.words.setdefault(name, word)
        return ex.Sym(name)

    def _element(self, stmt: tir.LdScalar, address: tuple[ex.Expr, ...], env: Env) -> int:
        assert self.concrete is not None
        place = tuple(env.bounds(self.reader.linear(e)).exact for e in address)
        bounds = [None if b is None else env.bounds(self.reader.linear(b)).exact for b in stmt.src.bounds]
        exact = tuple(p for p in place if p is not None)
        if len(exact) < len(place):
            raise ValueError(f"the address of {print_stmt(stmt)} has no single value")
        below = (axis in stmt.src.below for axis in range(len(exact)))
        masks = zip(exact, bounds, below, strict=True)
        if any(b is not None and (p >= b or (also and p < 0)) for p, b, also in masks):
            return 0
        return self.read.setdefault((stmt.src.tensor, exact), self.concrete(stmt.src.tensor, exact))

    # ------------------------------------------------------------------------------------------ forms

    def form(self, linear: Linear) -> Place3:
        """The number of a linear form, with sign and constant; forms that differ in these alone have one number."""
        terms = ordered(linear).terms
        sign = -1 if terms and terms[0][1] < 0 else 1
        key = Linear(0, tuple((t, sign * c) for t, c in terms))
        return self._table.number(key), sign, linear.const

    def _forms_in(self, loop: tir.For) -> Iterator[Form]:
        """The forms that conditions in a loop test."""
        for stmt in tir.walk(loop.body):
            if isinstance(stmt, tir.If):
                yield from (self.form(test.value)[0] for test in tests_of(self.reader.formula(stmt.condition)))

    def _here(self, form: Form, exact: tuple[tuple[str, int], ...]) -> Place3:
        """The form with the indices that have one value replaced by it, in addresses too."""
        memo = (form, exact)
        if memo not in self._memo:
            self._memo[memo] = self.form(self._replaced(form, {n: ex.Int(v) for n, v in exact}))
        return self._memo[memo]

    def _next(self, form: Form, index: str) -> Place3:
        """The form, said with the index of the next trip."""
        memo = (form, index)
        if memo not in self._memo:
            self._memo[memo] = self.form(self._replaced(form, {index: ex.binary("-", ex.Sym(index), 1)}))
        return self._memo[memo]

    def _replaced(self, form: Form, names: Mapping[str, ex.Expr]) -> Linear:
        return self.reader.linear(self.replaced(expression(self._forms[form]), names))

    def replaced(self, e: ex.Expr, names: Mapping[str, ex.Expr]) -> ex.Expr:
        """The expression with names replaced, in addresses of words too."""
        known = dict(names)
        for name in ex.symbols(e):
            if name in self.words and name not in names:
                word = self.words[name]
                moved = tuple(self.replaced(part, names) for part in word.address)
                known[name] = self._named(replace(word, address=moved))
        return ex.substitute(e, known)

    def _of(self, form: Form) -> frozenset[str]:
        """The names in a form."""
        if form not in self._names:
            self._names[form] = frozenset(ex.symbols(expression(self._forms[form])))
        return self._names[form]

    def names(self, known: Knowledge) -> frozenset[str]:
        """The names in all that is known, those in addresses of words included."""
        if known not in self._known:
            found = frozenset[str]().union(
                *(frozenset(ex.symbols(v)) for _, v in known.values), *(self._of(form) for form, _ in known.facts)
            )
            inner = (frozenset(ex.symbols(e)) for word in self._words_of(found) for e in word.address)
            self._known[known] = found.union(*inner)
        return self._known[known]

    def parted(self, known: Knowledge, names: frozenset[str], tensors: frozenset[str]) -> tuple[Knowledge, Knowledge]:
        """What is known of the names, of what they hold, and of words of the tensors; and the rest."""
        mine = [(n, v) for n, v in known.values if n in names or self._touched(ex.symbols(v), names, tensors)]
        asked = names.union(*(frozenset(ex.symbols(v)) for _, v in mine))
        inner = tuple((f, at) for f, at in known.facts if self._touched(self._of(f), asked, tensors))
        values = tuple(item for item in known.values if item not in mine)
        rest = tuple(item for item in known.facts if item not in inner)
        return Knowledge(tuple(mine), inner), Knowledge(values, rest)

    def _touched(self, symbols: Iterable[str], names: frozenset[str], tensors: frozenset[str]) -> bool:
        return any(n in names or (n in self.words and self.words[n].tensor in tensors) for n in symbols)

    def foreign(self, linear: Linear, env: Env) -> bool:
        """Does a form depend on more than sizes and the indices around? Numbers by which a loop around ends are more:
        what is known of them stays known behind it."""
        if "around" not in env.told:
            around = (name for name, place in env.places.items() if place.left != ANY)
            env.told["around"] = frozenset((*around, *self.reader.multiples))
        return not self._of(self.form(linear)[0]) <= cast(frozenset[str], env.told["around"])

    def related(self, linear: Linear, env: Env) -> bool:
        """Does a form say more than is known of its parts: has it something unknown in it, or several indices, of which
        a later trip asks the same, or the place in the grid, which never changes?"""
        return _indices(linear) > 1 or self.foreign(linear, env) or self._somewhere(linear, env)

    def _somewhere(self, linear: Linear, env: Env) -> bool:
        """Does a form depend on where in the grid the CTA is, which has several values?"""
        names = self._of(self.form(linear)[0]) & self.grid
        return any(n in env.places and env.places[n].value.exact is None for n in names)

    # ------------------------------------------------------------------------------------------ ranges

    def interval(self, linear: Linear, known: Knowledge, env: Env) -> Interval:
        """The bounds of a form, by the environment and by facts of it; empty for a run that cannot be."""
        if not known.facts:
            return env.bounds(linear)
        form, sign, const = self.form(linear)
        return self._range(form, known, env).moved(sign, const).within

    def _range(self, form: Form, known: Knowledge, env: Env) -> Range:
        found = Range(self._bounds(form, known, env))
        if not known.facts:
            return found
        exact = tuple((n, p.value.exact) for n, p in env.places.items() if p.value.exact is not None)
        mine, sign, const = self._here(form, exact)
        for fact, at in known.facts:
            theirs, turn, shift = self._here(fact, exact)
            if mine == theirs and self._forms[mine].terms:
                found = found & at.moved(turn, -shift * turn).moved(sign, const)
        return found

    def _bounds(self, form: Form, known: Knowledge, env: Env) -> Interval:
        """Bounds by the environment, and by numbers of which alone something is known."""
        alone = {}
        for fact, at in known.facts:
            terms = self._forms[fact].terms
            if len(terms) == 1 and terms[0][1] == 1 and isinstance(terms[0][0], Index):
                name = terms[0][0].name
                if name in self._of(form) and (name in self.grid or name not in env.places):
                    alone[name] = at.within
        memo = (form, *alone.items())
        if memo not in env.memo:
            wider = env
            for name, within in alone.items():
                place = env.places.get(name, Place(ANY, ANY, None, Linear(0)))
                wider = wider.at(name, replace(place, value=place.value & within))
            env.memo[memo] = wider.bounds(self._forms[form])
        return env.memo[memo]

    # ------------------------------------------------------------------------------------------ conditions

    def outcomes(self, formula: Formula, known: Knowledge, env: Env) -> list[Outcome]:
        """The truth of a condition; both, with what each takes, where it is not decided, and neither for a run that
        cannot be."""
        if isinstance(formula, Test):
            return self._test(formula, known, env)
        stop = formula.op == "||"
        found: list[Outcome] = [(not stop, known)]
        for part in formula.parts:
            going = [k for truth, k in found if truth != stop]
            found = [o for o in found if o[0] == stop]
            for k in going:
                found += self.outcomes(part, k, env)
        return found

    def _test(self, test: Test, known: Knowledge, env: Env) -> list[Outcome]:
        if id(test) not in self._tests:
            self._tests[id(test)] = test, self.form(test.value)
        form, sign, const = self._tests[id(test)][1]
        at = self._range(form, known, env)
        sides = [(truth, part.moved(1, -const).moved(sign, 0)) for truth, part in _parts(test.op)]
        found = [(truth, part, here) for truth, part in sides if not (here := at & part).empty]
        if len(found) > 1:
            self.split = True
            return [(truth, known.fact(form, self._clamped(form, here))) for truth, _, here in found]
        asked = self._of(form) - self.reader.multiples.keys()
        if len(asked) < 2 and not asked & self.words.keys():
            return [(truth, known) for truth, _, _ in found]
        # What is clear for the first trips may not be for the others: it is noted too.
        before = dict(known.facts).get(form, Range(ANY))
        return [(truth, known.fact(form, self._clamped(form, part & before))) for truth, part, _ in found]

    def _clamped(self, form: Form, at: Range) -> Range:
        """A wider range, of which there are only so many: values that no condition tells apart are in it together."""
        if form not in self._ends:
            words = {n: self.words[n].tensor for n in self._of(form) if n in self.words}
            self._ends[form] = self.limits.of(self._forms[form], words)
        least, most = self._ends[form]
        low = -inf if at.within.low <= least else min(at.within.low, most)
        high = inf if at.within.high >= most else max(at.within.high, least)
        return Range(Interval(low, high), frozenset(n for n in at.but if least < n < most))

    def taken(self, linear: Linear, at: Interval, known: Knowledge, env: Env) -> Knowledge:
        """With the fact that a form lies in an interval, if not indices and sizes alone say that: an expression that
        the environment cannot follow is a number like any other, the same wherever it stands."""
        if not self.related(linear, env) and all(isinstance(term, (Atom, Index)) for term, _ in linear.terms):
            return known
        self.counts = True
        form, sign, const = self.form(linear)
        return known.fact(form, self._clamped(form, Range(at).moved(1, -const).moved(sign, 0)))

    # ------------------------------------------------------------------------------------------ trips

    def next(self, loop: tir.For, known: Knowledge, env: Env) -> Knowledge:
        """At the end of a trip: index i is now i - 1."""
        if not known.values and not known.facts:
            return known
        at = env.places[loop.index].value.exact if loop.index in env.places else None
        key = (loop.index, at, known)
        if key not in self._following:
            self._following[key] = self._moved(loop, known, at)
        return self._following[key]

    def _moved(self, loop: tir.For, known: Knowledge, at: int | None) -> Knowledge:
        names: dict[str, ex.Expr] = {loop.index: ex.binary("-", ex.Sym(loop.index), 1)}
        facts: dict[Form, Range] = {}
        for fact, within in known.facts:
            if self._grows(fact, loop.index):
                continue
            form, sign, const = self._next(fact, loop.index)
            facts[form] = facts.get(form, Range(ANY)) & self._clamped(form, within.moved(sign, -const * sign))
        values = tuple((n, self.replaced(v, names)) for n, v in known.values)
        moved = Knowledge(values, tuple(sorted(facts.items(), key=lambda item: item[0])))
        return self._kept(moved, lambda word: self._asked(word, loop, at))

    def _grows(self, form: Form, index: str) -> bool:
        """Would saying the form with the next index go on for ever? (An index within a term that is not linear, if no
        condition of a later trip asks for that.)"""
        memo = (form, index)
        if memo not in self._growing:
            unlike = any(index in set(ex.symbols(term_expression(t))) for t in _unlike(self._forms[form]))
            later = ({index: ex.binary("-", ex.Sym(index), trips)} for trips in range(1, AHEAD))
            asked = self._asked_in.get(index, frozenset())
            comes = unlike and any(self.form(self._replaced(form, names))[0] in asked for names in later)
            self._growing[memo] = unlike and not comes
        return self._growing[memo]

    def left(self, loop: tir.For, known: Knowledge) -> Knowledge:
        """Behind a loop: nothing names its index any more."""
        inside = tuple((f, at) for f, at in known.facts if loop.index not in self._of(f))
        keep: Callable[[Word], bool] = lambda word: all(loop.index not in set(ex.symbols(e)) for e in word.address)  # noqa: E731
        return self._kept(replace(known, facts=inside), keep)

    def _kept(self, known: Knowledge, keep: Callable[[Word], bool]) -> Knowledge:
        """Without the words that no longer matter; a scalar that holds one now holds some number."""

        def lives(names: frozenset[str]) -> bool:
            return all(keep(word) for word in self._words_of(names))

        values = tuple((n, v if lives(frozenset(ex.symbols(v))) else ex.Sym(f"?{n}")) for n, v in known.values)
        lost = {f"?{n}" for (n, v), (_, before) in zip(values, known.values, strict=True) if v != before}
        facts = tuple((f, at) for f, at in known.facts if not lost & self._of(f) and lives(self._of(f)))
        return Knowledge(values, facts)

    def _words_of(self, names: frozenset[str]) -> Iterator[Word]:
        """The words among names, and those in their addresses."""
        for name in names:
            if name in self.words:
                word = self.words[name]
                yield word
                for part in word.address:
                    yield from self._words_of(frozenset(ex.symbols(part)))

    def _asked(self, word: Word, loop: tir.For, at: int | None) -> bool:
        """Can a trip of the loop after ``at`` read this word again? Its index only rises."""
        patterns = self._patterns.get((loop.index, word.tensor), [])
        moves = any(loop.index in set(ex.symbols(e)) for e in word.address)
        if self._comes(word, loop):
            return True
        for axis, c, least in patterns:
            form = self.reader.linear(word.address[axis])
            mine = form.coefficient(Index(loop.index))
            soonest = least + c * (at + 1) if at is not None and not moves else least
            if (mine == c or (not moves and at is not None)) and form.const >= soonest:
                return True
        return not patterns and not moves

    def _comes(self, word: Word, loop: tir.For) -> bool:
        """Does a read in the loop come to this address, whatever form it has, a few trips later?"""
        known = self._turns.get((loop.index, word.tensor), frozenset())
        memo = (loop.index, word.name)
        if known and memo not in self._coming:
            later: Iterator[dict[str, ex.Expr]] = (
                {loop.index: ex.binary("-", ex.Sym(loop.index), trips)} for trips in range(AHEAD)
            )
            moved = (
                tuple(ordered(self.reader.linear(self.replaced(e, names))) for e in word.address) for names in later
            )
            self._coming[memo] = any(address in known for address in moved)
        return bool(known) and self._coming[memo]


_HOLDS, _ZERO, _OTHER = Range(Interval(0, inf)), Range(exactly(0)), Range(ANY, frozenset({0}))
_FAILS = Range(Interval(-inf, -1))


def _parts(op: str) -> tuple[tuple[bool, Range], tuple[bool, Range]]:
    """The values for which a test of them holds, and those for which it does not."""
    if op == ">=":
        return (True, _HOLDS), (False, _FAILS)
    return (op == "==", _ZERO), (op != "==", _OTHER)


def _indices(form: Linear) -> int:
    return sum(isinstance(term, Index) for term, _ in form.terms)


def _unlike(form: Linear) -> Iterator[Term]:
    """The terms in a form that are another one for each index."""
    for term, _ in form.terms:
        if isinstance(term, (Opaque, Extreme)):
            yield term
        else:
            yield from (inner for part in parts_of(term) for inner in _unlike(part))


def ordered(form: Linear) -> Linear:
    if len(form.terms) < 2:
        return form
    return Linear(form.const, tuple(sorted(form.terms, key=lambda term: str(single(term[0])))))


def _loops(body: tuple[tir.Stmt, ...]) -> Iterator[tir.For]:
    return (s for s in tir.walk(body) if isinstance(s, tir.For))


def _patterns(
    body: tuple[tir.Stmt, ...], reader: Reader
) -> Iterator[tuple[tuple[str, str], list[tuple[int, int, int]]]]:
    """Per loop index and tensor: the axes along which the loop's reads move with the index, how fast, and the least
    constant in their addresses there."""
    for loop in _loops(body):
        found: dict[str, dict[tuple[int, int], int]] = {}
        for stmt in tir.walk(loop.body):
            if isinstance(stmt, tir.LdScalar):
                for axis, origin in enumerate(stmt.src.origin):
                    form = reader.linear(origin)
                    c = form.coefficient(Index(loop.index))
                    if c > 0:
                        table = found.setdefault(stmt.src.tensor, {})
                        table[axis, c] = min(table.get((axis, c), form.const), form.const)
        for tensor, table in found.items():
            yield (loop.index, tensor), [(axis, c, least) for (axis, c), least in table.items()]


def _turns(
    body: tuple[tir.Stmt, ...], reader: Reader
) -> Iterator[tuple[tuple[str, str], frozenset[tuple[Linear, ...]]]]:
    """Per loop index and tensor: the addresses that the loop's reads have in forms which do not rise with the index:
    rounded, remainders, extremes, falling ones, and those that stay."""
    for loop in _loops(body):
        found: dict[str, set[tuple[Linear, ...]]] = {}
        for stmt in tir.walk(loop.body):
            if isinstance(stmt, tir.LdScalar):
                address = tuple(ordered(reader.linear(e)) for e in stmt.src.origin)
                moving = [form for form in address if loop.index in set(ex.symbols(expression(form)))]
                if not moving or any(form.coefficient(Index(loop.index)) <= 0 for form in moving):
                    found.setdefault(stmt.src.tensor, set()).add(address)
        for tensor, addresses in found.items():
            yield (loop.index, tensor), frozenset(addresses)
