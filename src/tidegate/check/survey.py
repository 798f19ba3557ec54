"""What the conditions and bounds of a kernel compare: how closely a run has to look at its sizes and indices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import inf, lcm

from tidegate.check import linear
from tidegate.check.linear import Atom, Extreme, Index, Linear, Mod, Reader, Term, Test, tests_of
from tidegate.ir import tir
from tidegate.ir.expr import Expr

MAX_DISTANCE = 64
"""Largest constant that conditions may compare an unknown trip count with."""


@dataclass(frozen=True)
class Survey:
    """``distance``: per index and atom the largest distance that something looks at; ``near``: how many first and last
    values of a loop's index are told apart; ``ends``: of loops and grid axes; ``forms``: of all bounds and conditions;
    ``tests``: those of the conditions; ``grid``: the axes; ``far``: minima and maxima that look farther are not told
    apart; ``absolute``: indices that something compares with more than constants and the end of their own loops."""

    distance: Mapping[Term, int]
    near: Mapping[str, tuple[int, int]]
    ends: Mapping[str, Linear]
    forms: tuple[Linear, ...]
    tests: tuple[Test, ...]
    grid: tuple[tir.GridAxis, ...]
    far: float
    absolute: frozenset[str]

    def edges(self, name: str) -> tuple[int, int]:
        """How many first and last values of an index are told apart: of a grid index what its distance says."""
        distance = self.distance.get(Index(name), 0)
        return self.near.get(name, (distance + 1, distance + 1))

    def most(self, name: str) -> int:
        """Trips of a loop beyond which it says nothing that there are more."""
        return 2 * (self.distance.get(Index(name), 0) + 1)

    @cached_property
    def compared(self) -> list[int]:
        """What forms are compared with."""
        return [n for form in self.forms for n in linear.constants(form, self.far)]

    @cached_property
    def used_grid(self) -> list[tir.GridAxis]:
        """The axes that control looks at."""
        found = {a for form in self.forms for a in linear.atoms(form)}
        return [axis for axis in self.grid if Index(axis.name) in found]

    @cached_property
    def atoms(self) -> list[Atom]:
        found = (a for form in self.forms for a in linear.atoms(form))
        return list(dict.fromkeys(a for a in found if isinstance(a, Atom)))

    @cached_property
    def running(self) -> frozenset[Atom]:
        """The atoms that are not 0 where there is a CTA."""
        extents = [self.ends[axis.name] for axis in self.grid]
        return frozenset(a for e in extents if e.const <= 0 for a in alone(e))

    @cached_property
    def period(self) -> int:
        """What all moduli of conditions divide."""
        return lcm(*(m for form in self.forms for m in linear.moduli(form)), 1)

    def from_the_end(self, axis: tir.GridAxis) -> bool:
        """Whether a condition may depend on how far the index is from its extent."""
        mine = [t.value for t in self.tests if t.value.coefficient(Index(axis.name))]
        return not self.ends[axis.name].terms or any(len(form.terms) > 1 for form in mine)


def survey(kernel: tir.Kernel, reader: Reader, concrete: bool) -> Survey:
    """``concrete``: whether the numbers that a run reads are known, and so the addresses of these matter."""
    far = inf if kernel.roles else MAX_DISTANCE
    ends: dict[str, Linear] = {axis.name: reader.linear(axis.extent) for axis in kernel.grid}
    forms: list[Linear] = []
    distances: dict[Term, int] = {}
    tests: list[Test] = []
    compared: list[tuple[tir.If, Test, int]] = []
    loops = [s for s in tir.walk(kernel.body) if isinstance(s, tir.For)]

    def look(terms: Iterable[tuple[Term, int]]) -> None:
        for term, distance in terms:
            distances[term] = max(distances.get(term, 0), distance)

    for stmt, around in _scoped(kernel.body, ends, reader):
        if isinstance(stmt, tir.For):
            start, end = reader.linear(stmt.start), reader.linear(stmt.stop)
            forms += [start, end]
            offset = max(abs(start.const), *(linear.constants(end, far) if end.terms else (0,)))
            look([(Index(stmt.index), abs(start.const))])
            look([*linear.reach(start, offset), *linear.reach(end, offset)])
        elif isinstance(stmt, tir.If):
            for test in tests_of(reader.formula(stmt.condition)):
                tests.append(test)
                forms.append(test.value)
                if test.value.terms:
                    distance = min(_distances(test.value, around, far))
                    look(linear.reach(test.value, distance))
                    compared.append((stmt, test, distance))
        elif isinstance(stmt, tir.LdScalar) and concrete:
            forms += [reader.linear(e) for e in stmt.src.origin]
    near: dict[str, tuple[int, int]] = {}
    for loop in loops if not kernel.roles else ():  # roles neither split at an index nor follow both outcomes
        inside = {id(s) for s in tir.walk(loop.body)}
        head, tail = _closest(loop, reader, [(test, n) for stmt, test, n in compared if id(stmt) in inside])
        most = near.get(loop.index, (0, 0))  # of another loop of this name
        near[loop.index] = max(head, most[0]), max(tail, most[1])
    for loop in loops if kernel.roles else ():
        first, sizes = reader.linear(loop.start).const, linear.atoms(reader.linear(loop.stop))
        distance = max(distances.get(term, 0) for term in (Index(loop.index), *sizes))
        head, tail = near.get(loop.index, (0, 0))
        near[loop.index] = max(distance + 1 - min(first, 0), head), max(distance + 1, tail)  # counted in trips
    # An atom that ends a loop is looked at as closely as the loop's index.
    for name, end in [*ends.items(), *((loop.index, reader.linear(loop.stop)) for loop in loops)]:
        look(linear.reach(end, distances.get(Index(name), 0)))
    ends |= {loop.index: reader.linear(loop.stop) for loop in loops}
    absolute = frozenset(_absolute(kernel, reader))
    return Survey(distances, near, ends, tuple(forms), tuple(tests), kernel.grid, far, absolute)


def _absolute(kernel: tir.Kernel, reader: Reader) -> Iterator[str]:
    """Indices of which it matters in every trip which one it is."""
    for stmt, around in _scoped(kernel.body, {}, reader):
        if isinstance(stmt, tir.For):
            start = reader.linear(stmt.start)
            yield from (*_indices(start), *_indices(reader.linear(stmt.stop)), *([stmt.index] if start.terms else ()))
        elif isinstance(stmt, tir.If):
            for test in tests_of(reader.formula(stmt.condition)):
                yield from _beside(test.value, around)


def _beside(form: Linear, ends: Mapping[str, Linear]) -> Iterator[str]:
    """Indices that a form compares with something other than constants and the ends of their own loops."""
    match form.terms:
        case ((Extreme(_, a, b), _),):
            for side in (a, b, a.plus(b, -1)):
                yield from _beside(side, ends)
        case ((_, _),):
            return
    for term, c in form.terms:
        if isinstance(term, Index) and term.name in ends:
            to_end = form.plus(linear.single(term), -c).plus(ends[term.name], c)
            if not to_end.terms:
                return
    yield from _indices(form)


def _indices(form: Linear) -> Iterator[str]:
    """The indices in a form, but for those of which it takes the remainder."""
    for term, _ in form.terms:
        if isinstance(term, Index):
            yield term.name
        elif not isinstance(term, Mod):
            for part in linear.parts_of(term):
                yield from _indices(part)


def _scoped(
    body: tuple[tir.Stmt, ...], ends: Mapping[str, Linear], reader: Reader
) -> Iterator[tuple[tir.Stmt, Mapping[str, Linear]]]:
    """All statements, and the ends of the grid axes and loops around each."""
    for stmt in body:
        yield stmt, ends
        if isinstance(stmt, tir.For):
            yield from _scoped(stmt.body, {**ends, stmt.index: reader.linear(stmt.stop)}, reader)
        elif isinstance(stmt, (tir.If, tir.InRole)):
            yield from _scoped(stmt.body, ends, reader)


def _closest(loop: tir.For, reader: Reader, tests: Iterable[tuple[Test, int]]) -> tuple[int, int]:
    """The fewest first and last values of a loop's index that have to be told apart. What a test of other values leaves
    undecided splits the run, or is explored both ways."""
    start, end = reader.linear(loop.start), reader.linear(loop.stop)
    head = tail = max(abs(start.const), abs(end.const) if end.terms else 0)
    for test, distance in tests:
        c = test.value.coefficient(Index(loop.index))
        if not c:
            continue
        rest = test.value.plus(linear.single(Index(loop.index)), -c)
        to_end = rest.plus(end, c)
        indices = to_end.terms and any(isinstance(term, Index) for term, _ in rest.terms)
        one, falls = test.op != ">=", c < 0
        from_start, from_end = (distance if form.terms else abs(form.const) for form in (rest, to_end))
        # Compared with the end, or something else; how it compares with other indices is noted.
        if (rest.terms and not indices) or (not to_end.terms and from_end < from_start):
            tail = max(tail, -(-from_end // abs(c)) + one - (falls and not one))
        if to_end.terms or (not rest.terms and from_start <= from_end):
            head = max(head, -(-from_start // abs(c)) + (falls or one))
    # What was found out ahead of the first trips is asked while they are told apart.
    return min(max(head, tail, 1), MAX_DISTANCE), min(max(tail, 0), MAX_DISTANCE)


def control_of(stmt: tir.Stmt) -> tuple[Expr, ...]:
    """The expressions on which the control of a statement depends."""
    if isinstance(stmt, tir.For):
        return stmt.start, stmt.stop
    return (stmt.condition,) if isinstance(stmt, tir.If) else ()


def alone(form: Linear) -> list[Atom]:
    """The atom that a form consists of, if it is one."""
    if form.const == 0 and len(form.terms) == 1 and form.terms[0][1] == 1 and isinstance(form.terms[0][0], Atom):
        return [form.terms[0][0]]
    return []


def _distances(form: Linear, ends: Mapping[str, Linear], far: float) -> Iterable[int]:
    """Constants that a condition compares with: of an index itself, or of its distance to the loop's end."""
    yield max(linear.constants(form, far))
    for term, c in form.terms:
        if isinstance(term, Index) and term.name in ends:
            rest = form.plus(linear.single(term), -c).plus(ends[term.name], c)
            yield max(linear.constants(rest, far))
