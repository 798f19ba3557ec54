"""Runs of a kernel for all trip counts at once: sets of states through loops, to a fixed point.

A loop whose trip count N is unknown is replayed exactly for small N. For larger N its iterations are the first
``head``, then any number in the middle, then the last ``tail``; conditions cannot tell middle iterations apart (they
compare with constants smaller than head and tail, or are refused), so the states that the middle can reach are a
fixed point of one iteration. A known large N skips whole cycles of states.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import product
from math import inf, lcm, prod
from typing import Protocol

from tidegate.check import control
from tidegate.check.control import (
    Atom,
    Env,
    Formula,
    Index,
    Interval,
    Linear,
    Place,
    Reader,
    Term,
    Undecided,
    exactly,
    single,
)
from tidegate.check.knowledge import Numbers
from tidegate.check.machine import Machine
from tidegate.check.sites import Group
from tidegate.check.state import At, Fault, Log, State
from tidegate.ir import tir
from tidegate.ir.dtypes import I32
from tidegate.ir.expr import Expr, Int
from tidegate.ir.text import print_stmt

MAX_STEPS = 200_000
"""Statements executed in one check."""

MAX_SPLIT_STEPS = 80_000
"""The same where runs split at what inputs hold, which takes longer per statement."""

MAX_CASES = 1024
"""Combinations of small and large values of the sizes."""

MAX_DISTANCE = 64
"""Largest constant that conditions may compare an unknown trip count with."""


class Exhausted(Exception):
    """A bound of the checker was hit; the text names it."""


@dataclass(frozen=True)
class Case:
    """One combination: atoms exact or at least a bound, grid indices with their distance to the end."""

    atoms: Mapping[Atom, Interval]
    grid: Mapping[str, Place]


class Given(Protocol):
    """The numbers of a concrete run."""

    def element(self, tensor: str, place: tuple[int, ...]) -> int:
        """An element of an input."""

    def argument(self, name: str) -> int:
        """A scalar argument."""


class Explorer:
    """Executes a kernel's body on sets of states. ``indices`` fixes grid indices; ``observe`` sees every instruction
    before it executes; ``exact``: no iteration is left out; ``given``: the numbers that a concrete run reads."""

    def __init__(
        self,
        machine: Machine,
        sizes: Mapping[str, int],
        indices: Mapping[str, int] | None = None,
        observe: Callable[[State, tir.Stmt, Env, Group], None] | None = None,
        exact: bool = False,
        given: Given | None = None,
    ) -> None:
        self.machine = machine
        self.kernel = machine.kernel
        known = {d.name: d.value for d in self.kernel.dims if d.value is not None} | dict(sizes)
        self.reader = Reader(known, {d.name: d.multiple for d in self.kernel.dims if d.name not in known})
        self.indices = dict(indices or {})
        self.observe = observe
        self.exact = exact
        self.steps = 0
        self.open = False  # whether the end of a loop was taken to be any number
        self._conditions: dict[Expr, Formula] = {}
        self.given = given
        self._survey()
        limit = 2 * max([1, *self.distance.values()]) + 2 * max([1, *self.compared])
        self.unknown = Numbers(self.kernel, self.reader, limit, given.element if given else None)

    # ------------------------------------------------------------------------------------------ cases

    def _survey(self) -> None:
        """What conditions and bounds compare: atoms, the largest distance from a loop's ends, the moduli."""
        ends: dict[str, Linear] = {axis.name: self.reader.linear(axis.extent) for axis in self.kernel.grid}
        forms: list[Linear] = []
        self.distance: dict[Term, int] = {}  # per index and atom: the largest distance that something looks at
        self.compared: list[int] = []  # numbers that forms are compared with
        tests: list[tuple[control.Test, int]] = []
        for stmt in tir.walk(self.kernel.body):
            if isinstance(stmt, tir.For):
                start, end = self.reader.linear(stmt.start), self.reader.linear(stmt.stop)
                ends[stmt.index] = end
                forms += [start, end]
                offset = max(abs(start.const), *(control.constants(end) if end.terms else (0,)))
                self._look([Index(stmt.index), *control.atoms(start), *control.atoms(end)], offset)
            elif isinstance(stmt, tir.If):
                for test in control.tests_of(self._formula(stmt.condition)):
                    forms.append(test.value)
                    distance = min(_distances(test.value, ends), default=0)
                    for term, c in test.value.terms:
                        self._look(control.atoms(single(term)), -(-distance // abs(c)))
                    tests.append((test, distance))
            elif isinstance(stmt, tir.LdScalar) and self.given is not None:
                forms += [self.reader.linear(e) for e in stmt.src.origin]
        self.near = self._closest(ends, tests) if self.kernel.scalars else {}
        # An atom that ends a loop is looked at as closely as the loop's index.
        for name, end in ends.items():
            self._look(control.atoms(end), self.distance.get(Index(name), 0))
        self.compared = [n for form in forms for n in control.constants(form)]
        found = [a for form in forms for a in control.atoms(form)]
        self.used_grid = [g for g in self.kernel.grid if Index(g.name) in found]
        self.atoms = list(dict.fromkeys(a for a in found if isinstance(a, Atom)))
        self.period = lcm(*(m for form in forms for m in control.moduli(form)), 1)

    def _closest(self, ends: Mapping[str, Linear], tests: list[tuple[control.Test, int]]) -> dict[str, tuple[int, int]]:
        """The fewest first and last values of each loop's index that have to be told apart: runs that split at what
        inputs hold are many, and what a test leaves undecided they explore both ways."""
        found: dict[str, tuple[int, int]] = {}
        for loop in (s for s in tir.walk(self.kernel.body) if isinstance(s, tir.For)):
            start, end = self.reader.linear(loop.start), ends[loop.index]
            head = tail = max(abs(start.const), *(control.constants(end) if end.terms else (0,)))
            for test, distance in tests:
                c = test.value.coefficient(Index(loop.index))
                if not c:
                    continue
                rest = test.value.plus(single(Index(loop.index)), -c)
                least, exact = -(-distance // abs(c)), int(test.op != ">=")
                if rest.terms:  # compared with the end, or with something else
                    tail = max(tail, least + exact - (1 - exact))
                if not rest.terms or rest.plus(end, c).terms:
                    head = max(head, least + exact)
            # What was found out ahead of the first trips is asked while they are told apart.
            found[loop.index] = (min(max(head, tail, 1), MAX_DISTANCE), min(max(tail, 0), MAX_DISTANCE))
        return found

    def _look(self, terms: Iterable[Term], distance: int) -> None:
        for term in terms:
            self.distance[term] = max(self.distance.get(term, 0), distance)

    def _edges(self, name: str) -> tuple[int, int]:
        """How many first and last values of an index are told apart."""
        distance = min(self.distance.get(Index(name), 0), MAX_DISTANCE)
        return self.near.get(name, (distance + 1, distance + 1))

    def everything(self) -> Case:
        """One case for all sizes and CTAs: runs split where a condition depends on them."""
        running = {t for axis in self.kernel.grid for t in _alone(self.reader.linear(axis.extent))}
        atoms = {a: Interval(int(a in running), inf) for a in self.atoms}
        grid: dict[str, Place] = {}
        for axis in self.used_grid:
            end = self.reader.linear(axis.extent)
            last = inf if end.terms else end.const
            value, left = Interval(0, last - 1), Interval(1, last)
            if axis.name in self.indices:
                value = exactly(self.indices[axis.name])
            grid[axis.name] = Place(value, left, 0 if self.period == 1 else None, end)
        return Case(atoms, grid)

    def cases(self) -> list[Case]:
        """All combinations that a check has to replay; raises :class:`Exhausted` when there are too many."""
        farthest = max((self.distance.get(a, 0) for a in self.atoms), default=0)
        if farthest > MAX_DISTANCE:
            far = f"{farthest} iterations from both ends of a loop, or compares a size with as much"
            raise Exhausted(f"a condition looks {far}; more than {MAX_DISTANCE} are not replayed")
        places = [list(self._places(axis)) for axis in self.used_grid]
        # Exact small values let conditions before a loop agree with its trip count. Without them loops still try every
        # small count, for each state: coarser, but no less sound.
        for times, more in ((2, 2) if self.kernel.scalars else (3, 2), (1, 1)):
            values = []
            for atom in self.atoms:
                small = times * self.distance.get(atom, 0) + more
                values.append([*map(exactly, range(small)), Interval(small, inf)])
            count = prod(len(v) for v in values) * prod(len(p) for p in places)
            if count <= MAX_CASES:
                break
        else:
            raise Exhausted(f"{count} combinations of unknown sizes, more than {MAX_CASES}")
        names = [axis.name for axis in self.used_grid]
        all_cases = [
            Case(dict(zip(self.atoms, some, strict=True)), dict(zip(names, where, strict=True)))
            for some in product(*values)
            for where in product(*places)
        ]
        return [case for case in all_cases if self._possible(case)]

    def _possible(self, case: Case) -> bool:
        """There is a CTA, every grid index lies inside its extent, which an atom may have fixed, and every size has a
        value that fits all that is said of it."""
        env = Env(case.atoms, case.grid, self.period)
        extents = [self.reader.linear(axis.extent) for axis in self.kernel.grid]
        running = {t: Interval(1, inf) for e in extents if e.const <= 0 for t in _alone(e) if t not in case.atoms}
        if not control.consistent({**running, **case.atoms}):
            return False
        if any(env.bounds(self.reader.linear(axis.extent)).high < 1 for axis in self.kernel.grid):
            return False
        for place in case.grid.values():
            size, value, left = env.bounds(place.end), place.value, place.left
            if size.high < value.low + left.low or size.low > value.high + left.high:
                return False
        return True

    def _places(self, axis: tir.GridAxis) -> Iterable[Place]:
        end = self.reader.linear(axis.extent)
        if axis.name in self.indices:
            at = self.indices[axis.name]
            left = Interval(1, inf) if end.terms else exactly(end.const - at)
            yield Place(exactly(at), left, at % self.period, end)
            return
        low, far = self._edges(axis.name)
        values = [*map(exactly, range(low)), Interval(low, inf)]
        lefts = [*map(exactly, range(1, far)), Interval(far, inf)] if self._from_the_end(axis) else [Interval(1, inf)]
        for value, left in product(values, lefts):
            size = Interval(value.low + left.low, value.high + left.high)
            if end.terms or size.low <= end.const <= size.high:
                residues = range(self.period) if value.exact is None else [value.exact % self.period]
                yield from (Place(value, left, residue, end) for residue in residues)

    def _from_the_end(self, axis: tir.GridAxis) -> bool:
        """Whether a condition may depend on how far the index is from its extent."""
        forms = [t.value for formula in self._conditions.values() for t in control.tests_of(formula)]
        mine = [form for form in forms if form.coefficient(Index(axis.name))]
        return not self.reader.linear(axis.extent).terms or any(len(form.terms) > 1 for form in mine)

    def run(self, case: Case) -> int:
        """Replays one case; raises Fault, Undecided or Exhausted. Returns the number of final states."""
        env = Env(case.atoms, case.grid, self.period)
        final = self._block(self.kernel.body, [self._start()], env)
        for state in final:
            self.machine.finish(state)
        return len(final)

    # ------------------------------------------------------------------------------------------ statements

    def _start(self) -> State:
        state = self.machine.start()
        if self.given is not None:
            for scalar in self.kernel.arguments:
                if scalar.dtype == I32:
                    state.knowledge = state.knowledge.holds(scalar.name, Int(self.given.argument(scalar.name)))
        return state

    def _formula(self, condition: Expr) -> Formula:
        if condition not in self._conditions:
            self._conditions[condition] = self.reader.formula(condition)
        return self._conditions[condition]

    def _future(self, state: State) -> bytes:
        """Equal for states with the same futures."""
        known = state.knowledge
        return self.machine.key(state) + (repr(known).encode() if known.values or known.facts else b"")

    def _block(self, body: tuple[tir.Stmt, ...], states: list[State], env: Env) -> list[State]:
        """Executes ``body`` on states that the caller gives away."""
        for stmt in body:
            if isinstance(stmt, tir.For):
                states = self._loop(stmt, states, env)
            elif isinstance(stmt, tir.If):
                inside, others = self._decided(stmt.condition, states, env)
                states = [*self._block(stmt.body, inside, env), *others]
            else:
                if self.observe is not None and states:
                    self.observe(states[0], stmt, env, self.machine.everyone)
                if isinstance(stmt, tir.LdScalar):
                    for state in states:
                        state.knowledge = self.unknown.load(stmt, state.knowledge, env)
                if not self.machine.sees(stmt):
                    continue
                at: At = tuple((name, place.value.exact) for name, place in env.places.items())
                self._count(len(states))
                for state in states:
                    if not self.machine.step(state, stmt, at):
                        if isinstance(stmt, tir.BarSync) and len(stmt.warps) < self.kernel.warps:
                            raise Undecided(f"{print_stmt(stmt)} holds up some warps only; all are replayed together")
                        raise Fault("deadlock", stmt, at, state=state, group=self.machine.everyone)
        return states

    def _decided(self, condition: Expr, states: list[State], env: Env) -> tuple[list[State], list[State]]:
        """The states for which a condition holds and the others; one that does not tell is both, with what each
        takes."""
        sides: dict[bool, list[State]] = {True: [], False: []}
        for state in states:
            formula = self._formula(self.unknown.expression(condition, state.knowledge))
            outcomes = self.unknown.outcomes(formula, state.knowledge, env)
            for number, (truth, known) in enumerate(outcomes):
                one = state.copy() if number < len(outcomes) - 1 else state
                one.knowledge = known
                sides[truth].append(one)
        return sides[True], sides[False]

    def _count(self, steps: int) -> None:
        self.steps += steps
        most = MAX_SPLIT_STEPS if self.unknown.split else MAX_STEPS
        if self.steps > most:
            raise Exhausted(f"more than {most} steps without reaching a fixed point")

    def _loop(self, loop: tir.For, states: list[State], env: Env) -> list[State]:
        """States with one start, end and number of trips go through the loop together."""
        alike: dict[tuple[Linear, Linear, Interval], list[State]] = {}
        for state in states:
            bounds = (self.unknown.expression(e, state.knowledge) for e in (loop.start, loop.stop))
            start, end = map(self.reader.linear, bounds)
            start = env.resolve(start)
            trips = self.unknown.interval(end.plus(start, -1), state.knowledge, env)
            if trips.low <= trips.high:
                alike.setdefault((start, end, trips), []).append(state)
        out: list[State] = []
        for (start, end, trips), some in alike.items():
            out += self._run(loop, some, env, start, end, trips)
        for state in out:
            state.knowledge = self.unknown.left(loop, state.knowledge)
        return self._distinct(out)

    def _run(
        self, loop: tir.For, states: list[State], env: Env, start: Linear, end: Linear, trips: Interval
    ) -> list[State]:
        edge = sum(self._edges(loop.index))
        if trips.exact is not None and (self.exact or trips.exact <= 2 * edge):
            return self._trips(loop, states, env, start, end, trips.exact)
        if trips.exact is not None:
            return self._skipping(loop, states, env, start, end, trips.exact)
        if start.terms:
            raise Undecided(f"the loop over {loop.index} begins at {loop.start}, which has no single value")
        out: list[State] = []
        length = end.plus(start, -1)
        for count in range(max(int(max(trips.low, 0)), 0), int(min(trips.high + 1, edge))):
            some = self._taking(length, exactly(count) if count else Interval(-inf, 0), states, env)
            out += self._trips(loop, some, env, start, end, count)
        if trips.high < 0:
            out += states
        if trips.high >= edge:
            some = self._taking(length, Interval(edge, inf), states, env) if trips.low < edge else states
            out += self._any(loop, some, env, start, end)
        return out

    def _taking(self, form: Linear, at: Interval, states: list[State], env: Env) -> list[State]:
        """Copies of the states that take a form to lie in an interval."""
        out = [state.copy() for state in states]
        for state in out:
            state.knowledge = self.unknown.taken(form, at, state.knowledge, env)
        return out

    def _distinct(self, states: list[State]) -> list[State]:
        if len(states) < 2:
            return states
        return list({self._future(s): s for s in reversed(states)}.values())

    def _body(self, loop: tir.For, states: list[State], env: Env, place: Place) -> list[State]:
        inside = env.at(loop.index, place)
        states = self._block(loop.body, states, inside)
        for state in states:
            state.knowledge = self.unknown.next(loop, state.knowledge, inside)
        return self._distinct(states)

    def _place(self, start: Linear, end: Linear, i: Interval, left: Interval) -> Place:
        """The place of iteration ``i`` of a loop."""
        first = start.const if not start.terms else None
        value = control.ANY if first is None else Interval(first + i.low, first + i.high)
        residue = value.exact % self.period if value.exact is not None else None
        return Place(value, left, residue, end)

    def _trips(
        self, loop: tir.For, states: list[State], env: Env, start: Linear, end: Linear, count: int
    ) -> list[State]:
        for i in range(count):
            states = self._body(loop, states, env, self._place(start, end, exactly(i), exactly(count - i)))
        return states

    def _skipping(
        self, loop: tir.For, states: list[State], env: Env, start: Linear, end: Linear, count: int
    ) -> list[State]:
        """A known number of iterations: middle ones run until the set of states recurs, then whole cycles are left
        out."""
        head, tail = self._edges(loop.index)
        middle = Interval(head, count - tail - 1)
        seen: dict[tuple[frozenset[bytes], int], int] = {}
        i, skipped = 0, False
        while i < count:
            if middle.low <= i <= middle.high:
                key = (frozenset(map(self._future, states)), (start.const + i) % self.period)
                before = seen.setdefault(key, i)
                if before < i and not skipped:
                    cycles = (int(middle.high) + 1 - i) // (i - before)
                    i, skipped = i + cycles * (i - before), True
                    _mark(states, loop, cycles * (i - before))
                    continue
            inner = middle.low <= i <= middle.high
            span = replace(middle) if inner else exactly(i)
            place = self._place(start, end, span, Interval(count - span.high, count - span.low))
            if inner and not start.terms:
                place = replace(place, residue=(start.const + i) % self.period)
            states = self._body(loop, states, env, place)
            i += 1
        return states

    def _any(self, loop: tir.For, states: list[State], env: Env, start: Linear, end: Linear) -> list[State]:
        """Every number of iterations from head + tail on."""
        head, tail = self._edges(loop.index)
        far = Interval(tail + 1, inf)
        for i in range(head):
            states = self._body(loop, states, env, self._place(start, end, exactly(i), far))
        middle = self._place(start, end, Interval(head, inf), far)
        # The residue of the index travels with the states, so that a condition may depend on it.
        groups = {(start.const + head) % self.period: states}
        seen: dict[int, dict[bytes, State]] = {}
        while groups:
            following: dict[int, list[State]] = {}
            for residue, some in groups.items():
                known = seen.setdefault(residue, {})
                fresh = {k: s for s in some if (k := self._future(s)) not in known}
                known.update({k: s.copy() for k, s in fresh.items()})
                if fresh:
                    place = replace(middle, residue=residue)
                    after = self._body(loop, list(fresh.values()), env, place)
                    following.setdefault((residue + 1) % self.period, []).extend(after)
            groups = following
        out: list[State] = []
        for residue, reached in seen.items():
            states = list(reached.values())
            for left in range(tail, 0, -1):
                place = self._place(start, end, Interval(head, inf), exactly(left))
                place = replace(place, residue=(residue + tail - left) % self.period)
                states = self._body(loop, states, env, place)
            out += states
        return out


def _alone(form: Linear) -> list[Atom]:
    """The atom that a form consists of, if it is one."""
    if form.const == 0 and len(form.terms) == 1 and form.terms[0][1] == 1 and isinstance(form.terms[0][0], Atom):
        return [form.terms[0][0]]
    return []


def _distances(form: Linear, ends: Mapping[str, Linear]) -> Iterable[int]:
    """Constants that a condition compares with: of an index itself, or of its distance to the loop's end."""
    yield max(control.constants(form))
    for term, c in form.terms:
        if isinstance(term, Index) and term.name in ends:
            rest = form.plus(control.single(term), -c).plus(ends[term.name], c)
            yield max(control.constants(rest))


def _mark(states: list[State], loop: tir.For, skipped: int) -> None:
    for state in states:
        if skipped:
            state.log = Log(loop, (), state.now, state.log, skipped)


def explorer(
    machine: Machine,
    sizes: Mapping[str, int],
    indices: Mapping[str, int] | None = None,
    observe: Callable[[State, tir.Stmt, Env, Group], None] | None = None,
    exact: bool = False,
    given: Given | None = None,
) -> Explorer:
    """An explorer that fits the kernel: with roles or without."""
    from tidegate.check.joint import Roles

    return (Roles if machine.kernel.roles else Explorer)(machine, sizes, indices, observe, exact, given)
