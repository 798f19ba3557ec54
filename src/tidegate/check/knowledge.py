"""What a run knows of numbers that nobody gave: integers read from inputs, integer arguments, undecided conditions.

An integer read from an input is a *word*: a function of its address, since inputs do not change. Its name is that
address, an expression over sizes, indices and other words, so that two reads of one address are one unknown, also when
a fill reads ahead what a later trip reads again. Facts say in which interval a linear form lies; a condition that they
do not decide splits the run, and each part notes what it took. When a loop goes on to its next trip, index i becomes
i - 1 in all that is known. Forgetting is always sound, and so is a wider interval.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf

from tidegate.check.control import (
    Atom,
    Env,
    Extreme,
    Formula,
    Index,
    Interval,
    Linear,
    Mod,
    Opaque,
    Reader,
    Test,
    exactly,
    single,
)
from tidegate.ir import expr as ex
from tidegate.ir import tir
from tidegate.ir.text import print_stmt

Outcome = tuple[bool, "Knowledge"]


@dataclass(frozen=True)
class Knowledge:
    """``values``: what the scalars that instructions set hold: a number, or the name of a word. ``facts``: forms (those
    of :meth:`Numbers.normal`) with the interval in which each lies."""

    values: tuple[tuple[str, ex.Expr], ...] = ()
    facts: tuple[tuple[Linear, Interval], ...] = ()

    def holds(self, name: str, value: ex.Expr) -> Knowledge:
        return replace(self, values=tuple(sorted({**dict(self.values), name: value}.items())))

    def fact(self, form: Linear, interval: Interval) -> Knowledge:
        known = {**dict(self.facts), form: interval}
        return replace(self, facts=tuple(sorted(known.items(), key=lambda item: str(item[0]))))


NOTHING = Knowledge()


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


class Numbers:
    """The words of a kernel, and how knowledge of them grows. ``concrete`` gives the elements of inputs where a run at
    given numbers is replayed: then nothing is unknown. ``limit``: conditions compare forms with smaller numbers."""

    def __init__(
        self, kernel: tir.Kernel, reader: Reader, limit: int, concrete: Callable[[str, tuple[int, ...]], int] | None
    ) -> None:
        self.reader = reader
        self.limit = limit
        self.concrete = concrete
        self.words: dict[str, Word] = {}
        self.read: dict[tuple[str, tuple[int, ...]], int] = {}
        """Elements that a concrete run has read."""
        self.split = False
        """Whether a condition was undecided."""
        self._patterns = dict(_patterns(kernel.body, reader))
        self._rewritten: dict[tuple[Linear, tuple[tuple[str, ex.Expr], ...]], Linear] = {}

    # ------------------------------------------------------------------------------------------ values

    def expression(self, e: ex.Expr, known: Knowledge) -> ex.Expr:
        """e with the scalars that instructions set replaced by what they hold."""
        return ex.substitute(e, dict(known.values)) if known.values else e

    def load(self, stmt: tir.LdScalar, known: Knowledge, env: Env) -> Knowledge:
        """What is known after an integer was read."""
        address = tuple(self.expression(e, known) for e in stmt.src.origin)
        if self.concrete is not None:
            return known.holds(stmt.scalar, ex.Int(self._element(stmt, address, env)))
        canonical = tuple(expression(ordered(self.reader.linear(e))) for e in address)
        word = Word(stmt.src.tensor, canonical, stmt.src.bounds)
        self.words[word.name] = word
        return known.holds(stmt.scalar, ex.Sym(word.name))

    def _element(self, stmt: tir.LdScalar, address: tuple[ex.Expr, ...], env: Env) -> int:
        assert self.concrete is not None
        place = tuple(env.bounds(self.reader.linear(e)).exact for e in address)
        bounds = [None if b is None else env.bounds(self.reader.linear(b)).exact for b in stmt.src.bounds]
        exact = tuple(p for p in place if p is not None)
        if len(exact) < len(place):
            raise ValueError(f"the address of {print_stmt(stmt)} has no single value")
        if any(b is not None and p >= b for p, b in zip(exact, bounds, strict=True)):
            return 0
        return self.read.setdefault((stmt.src.tensor, exact), self.concrete(stmt.src.tensor, exact))

    def interval(self, form: Linear, known: Knowledge, env: Env) -> Interval:
        """The bounds of a form, by the environment and by facts of it."""
        found = env.bounds(form)
        if found.exact is not None or not known.facts:
            return found
        mine = self._here(form, env)
        for fact, at in known.facts:
            theirs = self._here(fact, env)
            for sign in (1, -1):
                gap = mine.plus(theirs, -sign)  # form - sign * fact, for the indices at hand
                if mine.terms and not gap.terms:
                    found = found & scaled(at, sign, gap.const)
        return found

    def normal(self, form: Linear) -> tuple[Linear, int, int]:
        """(key, sign, constant) with form = sign * key + constant; forms that differ in these alone have one key."""
        key = ordered(Linear(0, form.terms))
        sign = -1 if key.terms and key.terms[0][1] < 0 else 1
        return key.times(sign), sign, form.const

    def _here(self, form: Linear, env: Env) -> Linear:
        """The form with the indices that have one value replaced by it, in addresses too."""
        exact = {n: p.value.exact for n, p in env.places.items()}
        return self.rewritten(form, {n: ex.Int(v) for n, v in exact.items() if v is not None})

    def rewritten(self, form: Linear, names: Mapping[str, ex.Expr]) -> Linear:
        """The form with names replaced, in addresses of words too."""
        memo = (form, tuple(sorted(names.items())))
        if memo not in self._rewritten:
            self._rewritten[memo] = ordered(self.reader.linear(self.replaced(expression(form), names)))
        return self._rewritten[memo]

    def replaced(self, e: ex.Expr, names: Mapping[str, ex.Expr]) -> ex.Expr:
        known = {n: self._word(n, names) for n in ex.symbols(e) if n in self.words}
        return ex.substitute(e, {**names, **known})

    def _word(self, name: str, names: Mapping[str, ex.Expr]) -> ex.Expr:
        word = self.words[name]
        moved = tuple(expression(ordered(self.reader.linear(self.replaced(e, names)))) for e in word.address)
        if moved != word.address:
            word = replace(word, address=moved)
            self.words[word.name] = word
        return ex.Sym(word.name)

    # ------------------------------------------------------------------------------------------ conditions

    def outcomes(self, formula: Formula, known: Knowledge, env: Env) -> list[Outcome]:
        """The truth of a condition; both, with what each takes, where it is not decided."""
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
        at = self.interval(test.value, known, env)
        key, sign, const = self.normal(test.value)
        found: list[Outcome] = []
        for truth, part in _parts(test.op):
            if (here := at & part).low <= here.high:
                found.append((truth, known.fact(key, self._clamped(scaled(here.plus(-const), sign, 0)))))
        if len({truth for truth, _ in found}) < 2:
            return [(found[0][0], known)] if found else []
        self.split = True
        return found

    def _clamped(self, at: Interval) -> Interval:
        """A wider interval, of which there are only so many."""
        low = -inf if at.low < -self.limit else min(at.low, self.limit)
        high = inf if at.high > self.limit else max(at.high, -self.limit)
        return Interval(low, high)

    def taken(self, form: Linear, at: Interval, known: Knowledge, env: Env) -> Knowledge:
        """With the fact that a form lies in an interval, if it depends on what inputs hold."""
        if all(n in env.places or n in self.reader.multiples for n in ex.symbols(expression(form))):
            return known
        key, sign, const = self.normal(form)
        return known.fact(key, self._clamped(scaled(at.plus(-const), sign, 0)))

    # ------------------------------------------------------------------------------------------ trips

    def next(self, loop: tir.For, known: Knowledge, env: Env) -> Knowledge:
        """At the end of a trip: index i is now i - 1."""
        if not known.values and not known.facts:
            return known
        names: dict[str, ex.Expr] = {loop.index: ex.binary("-", ex.Sym(loop.index), 1)}
        moved = Knowledge(tuple((n, self.replaced(v, names)) for n, v in known.values))
        for fact, at in known.facts:
            if any(isinstance(t, (Opaque, Extreme)) and _names_index(t, loop.index) for t, _ in fact.terms):
                continue
            key, sign, const = self.normal(self.rewritten(fact, names))
            if key.terms:
                moved = moved.fact(key, self._clamped(scaled(at.plus(-const), sign, 0)))
        return self._kept(moved, lambda words: all(self._asked(w, loop, env) for w in words))

    def left(self, loop: tir.For, known: Knowledge) -> Knowledge:
        """Behind a loop: nothing names its index any more."""
        inside = tuple((f, at) for f, at in known.facts if loop.index not in set(ex.symbols(expression(f))))
        return self._kept(
            replace(known, facts=inside),
            lambda words: all(loop.index not in set(ex.symbols(e)) for w in words for e in w.address),
        )

    def _kept(self, known: Knowledge, keep: Callable[[list[Word]], bool]) -> Knowledge:
        """Without the words that no longer matter; a scalar that holds one now holds some number."""
        values = {n: v if keep(self._words_of(v)) else ex.Sym(f"?{n}") for n, v in known.values}
        lost = {f"?{n}" for n, v in known.values if values[n] != v}
        facts = tuple(
            (f, at)
            for f, at in known.facts
            if keep(self._words_of(expression(f))) and not lost & set(ex.symbols(expression(f)))
        )
        return Knowledge(tuple(values.items()), facts)

    def _words_of(self, e: ex.Expr) -> list[Word]:
        """The words in an expression, and those in their addresses."""
        found = []
        for name in ex.symbols(e):
            if name in self.words:
                word = self.words[name]
                found += [word, *(w for part in word.address for w in self._words_of(part))]
        return found

    def _asked(self, word: Word, loop: tir.For, env: Env) -> bool:
        """Can a trip of the loop from now on read this word again? Its index only rises."""
        patterns = self._patterns.get((loop.index, word.tensor), [])
        at = env.places[loop.index].value.exact if loop.index in env.places else None
        for axis, c, least in patterns:
            form = self.reader.linear(word.address[axis])
            mine = form.coefficient(Index(loop.index))
            soonest = least + c * (at + 1) if at is not None and mine == 0 else least
            if (mine == c or (mine == 0 and at is not None)) and form.const >= soonest:
                return True
        return not patterns


def _parts(op: str) -> Iterator[tuple[bool, Interval]]:
    """The values for which a test of them holds, and those for which it does not."""
    if op == ">=":
        yield True, Interval(0, inf)
        yield False, Interval(-inf, -1)
        return
    yield op == "==", exactly(0)
    yield op != "==", Interval(1, inf)
    yield op != "==", Interval(-inf, -1)


def scaled(at: Interval, sign: int, const: int) -> Interval:
    """sign * at + const."""
    return (at if sign > 0 else Interval(-at.high, -at.low)).plus(const)


def ordered(form: Linear) -> Linear:
    return Linear(form.const, tuple(sorted(form.terms, key=lambda term: str(single(term[0])))))


def expression(form: Linear) -> ex.Expr:
    """The form as an expression, which reads as the same form."""
    total: ex.Expr = ex.Int(0)
    for term, c in form.terms:
        match term:
            case Index(name):
                part: ex.Expr = ex.Sym(name)
            case Atom(value) | Opaque(value):
                part = value
            case Extreme(op, a, b):
                part = ex.binary(op, expression(a), expression(b))
            case Mod(value, modulus):
                part = ex.binary("%", expression(value), modulus)
        total = ex.add(total, ex.mul(part, c)) if c > 0 else ex.binary("-", total, ex.mul(part, -c))
    return ex.add(total, form.const)


def _names_index(term: Opaque | Extreme, index: str) -> bool:
    return index in set(ex.symbols(expression(single(term))))


def _patterns(
    body: tuple[tir.Stmt, ...], reader: Reader
) -> Iterator[tuple[tuple[str, str], list[tuple[int, int, int]]]]:
    """Per loop index and tensor: the axes along which the loop's reads move with the index, how fast, and the least
    constant in their addresses there."""
    for loop in (s for s in tir.walk(body) if isinstance(s, tir.For)):
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
