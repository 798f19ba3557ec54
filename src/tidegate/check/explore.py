"""Runs of a kernel for all trip counts at once: sets of states through loops, to a fixed point.

A loop whose trip count N is unknown is replayed exactly for small N. For larger N its iterations are the first
``head``, then any number in the middle, then the last ``tail``; conditions cannot tell middle iterations apart (they
compare with constants smaller than head and tail, or are refused), so the states that the middle can reach are a
fixed point of one iteration. A known large N skips whole cycles of states.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import replace
from itertools import count as count_from
from math import inf
from typing import cast

from tidegate.check import control, linear
from tidegate.check.afresh import Afresh
from tidegate.check.automaton import Node, Part, Straight, distinct
from tidegate.check.cases import MAX_CASES, Case, Cases, Exhausted
from tidegate.check.control import Env, Interval, Place, Undecided, exactly
from tidegate.check.given import Given
from tidegate.check.knowledge import NOTHING, Knowledge, Numbers, Outcome, Spot
from tidegate.check.limits import Limits
from tidegate.check.linear import Atom, Formula, Index, Linear, Reader, tests_of
from tidegate.check.machine import Machine
from tidegate.check.memory import Memory, Table, Trip
from tidegate.check.sites import Group
from tidegate.check.state import At, Fault, Log, State
from tidegate.check.survey import MAX_DISTANCE, alone, control_of, survey
from tidegate.ir import tir
from tidegate.ir.dtypes import I32
from tidegate.ir.expr import Expr, Int

MAX_STEPS = 400_000
"""Statements executed and conditions decided in one exploration."""

LOOK_UPS = 16
"""So many trips that are known already take the time of a statement."""

CASE_STEPS = 1_500
"""Statements executed in one case before some size is looked at more closely."""

FEW_TRIPS = 8
"""So many trips more than are told apart are replayed one by one where a loop has no more."""

SLOW_CASES = 16
"""So many are looked at more closely because of that."""


class Slow(Exception):
    """A case takes many steps."""


Observer = Callable[[State, Knowledge, tir.Stmt, Env, Group], None]


class Explorer:
    """Executes a kernel's body on sets of states. ``indices`` fixes grid indices; ``observe`` sees every instruction
    before it executes; ``exact``: no iteration is left out; ``shared``: what other runs have found out is used, and the
    steps shown with a fault may be theirs; ``given``: the numbers that a concrete run reads; ``most``: steps."""

    def __init__(
        self,
        machine: Machine,
        sizes: Mapping[str, int],
        indices: Mapping[str, int] | None = None,
        observe: Observer | None = None,
        exact: bool = False,
        shared: bool = True,
        given: Given | None = None,
        most: int = MAX_STEPS,
    ) -> None:
        self.machine = machine
        self.automaton = machine.automaton
        self.kernel = machine.kernel
        known = {d.name: d.value for d in self.kernel.dims if d.value is not None} | dict(sizes)
        ends = [s.stop for s in tir.walk(self.kernel.body) if isinstance(s, tir.For)]
        unknown = {str(d.name): d.multiple for d in self.kernel.dims if d.name not in known}
        asked = [e for s in tir.walk(self.kernel.body) for e in control_of(s)]
        names = [s.index for s in tir.walk(self.kernel.body) if isinstance(s, tir.For)]
        names += [axis.name for axis in self.kernel.grid]
        self.reader = Reader(known, unknown, ends, [*asked, *(axis.extent for axis in self.kernel.grid)], names)
        self.indices = dict(indices or {})
        self.observe = observe
        self.exact = exact
        self.shared = shared and observe is None  # who observes looks at times, which states of one key need not share
        self.steps = 0
        self.decisions = 0  # conditions, each for what is known when it is asked
        self.limit = self.most = most
        self.depth = 0  # of the loops around
        self.mixed: dict[Atom, None] = {}  # sizes that were told apart anew in each iteration of a loop
        self.narrowed = False  # whether an index was taken to be in a part of its range
        self.open = False  # whether the end of a loop was taken to be any number
        self.given = given
        self._conditions: dict[Expr, Formula] = {}
        self._later: dict[int, tuple[tuple[Part, ...], tuple[frozenset[Atom | Index], ...]]] = {}
        self.survey = survey(self.kernel, self.reader, self.given is not None)
        self.period = self.survey.period
        self.cases = Cases(self.kernel, self.reader, self.survey, self.indices, inf if exact else MAX_DISTANCE)
        limit = 2 * max([1, *self.survey.distance.values()]) + 2 * max([1, *self.survey.compared])
        self.counted = exact
        """Whether it is remembered how many trips loops have had that end by numbers."""
        limits = Limits(self.kernel, self.reader, self.survey, limit, self.counted)
        self.unknown = Numbers(self.kernel, self.reader, machine.forms, limits, given.element if given else None)
        self.memory = Memory(self.reader, self.unknown)
        self.afresh = None if exact or not self.shared else Afresh(self.kernel, machine.catalogue)

    # ------------------------------------------------------------------------------------------ cases

    @property
    def concrete(self) -> bool:
        """Whether every run of the kernel is like the one that is replayed."""
        unknown = self.survey.atoms or self.survey.used_grid or self.open or self.kernel.scalars or self.unknown.split
        return not unknown and not self.narrowed

    def every_case(self) -> Iterator[Fault]:
        """Replays all sizes and CTAs, in as few cases as will do: one that shows a fault, or takes long, is split in
        two, some size being known better. Yields the faults that a finer case may turn out not to have; raises Fault,
        Undecided or Exhausted if splitting does not help."""
        work = [(case, False) for case in self.cases.start()]
        slow = 0
        for count in count_from(1):
            if not work:
                return
            case, patient = work.pop()
            try:
                self._run(case, patient or slow > SLOW_CASES)
            except (Fault, Slow, Undecided) as stop:
                slow += isinstance(stop, Slow)
                spared = isinstance(stop, Fault) and self._spares(stop)
                if isinstance(stop, Fault) and not spared:
                    yield stop
                if spared or (not isinstance(stop, Slow) and self._counts()):
                    work = [(case, False) for case in self.cases.start()]
                    continue
                finer = [] if isinstance(stop, Slow) else self.cases.closer(case)
                if not finer and not isinstance(stop, Undecided):
                    candidates = [*self.mixed, *(case.atoms if isinstance(stop, Fault) else ())]
                    finer = [replace(case, atoms=known) for known in self.cases.split(case.atoms, candidates)]
                if not finer and not isinstance(stop, Slow):
                    raise
                if count + len(work) > MAX_CASES:
                    raise Exhausted(f"more than {MAX_CASES} combinations of unknown sizes") from stop
                work += [(c, False) for c in finer if self.cases.possible(c)] if finer else [(case, True)]

    def _run(self, case: Case, patient: bool) -> None:
        """Replays a case; raises Slow if it takes long, unless ``patient``."""
        hurry = not patient and bool(case.atoms)
        self.limit, self.depth, self.mixed = self.steps + CASE_STEPS if hurry else self.most, 0, {}
        self.run(case)

    def _spares(self, fault: Fault) -> bool:
        """From here on what a faulty read may have missed is not forgotten; whether that is news."""
        if self.afresh is None or not self.afresh.spare(fault):
            return False
        self.memory = Memory(self.reader, self.unknown)
        return True

    def _counts(self) -> bool:
        """From here on it is remembered how many trips loops have had; whether that is news."""
        if self.counted or not (self.kernel.scalars or self.unknown.counts):
            return False
        self.counted = True
        self.unknown.limited(Limits(self.kernel, self.reader, self.survey, self.unknown.limits.most, True))
        self.memory = Memory(self.reader, self.unknown)
        return True

    def run(self, case: Case) -> int:
        """Replays one case; raises Fault, Undecided or Exhausted. Returns the number of final states."""
        env = Env(case.atoms, case.grid, self.period)
        final = self._block(self.kernel.body, [self._initial()], env)
        for node in final:
            try:
                self.machine.finish(node.state)
            except Fault as fault:
                fault.spot = Spot(env, node.known)
                raise
        return len(final)

    # ------------------------------------------------------------------------------------------ statements

    def _initial(self) -> Node:
        known = NOTHING
        if self.given is not None:
            for scalar in self.kernel.arguments:
                if scalar.dtype == I32:
                    known = known.holds(scalar.name, Int(self.given.argument(scalar.name)))
        return self.automaton.kind(self.machine.start(), self.shared).node(known)

    def _formula(self, condition: Expr) -> Formula:
        if condition not in self._conditions:
            self._conditions[condition] = self.reader.formula(condition)
        return self._conditions[condition]

    def _block(self, body: tuple[tir.Stmt, ...], nodes: list[Node], env: Env) -> list[Node]:
        """Where a block leads. What a part of it needs to know of sizes is told apart from there on, while later parts
        look at these sizes too."""
        flows = [(env, nodes)]
        parts = self.automaton.parts(body)
        for part, later in zip(parts, self._looked_at(parts), strict=True):
            work, told = flows, dict[tuple[object, ...], tuple[Env, list[Node]]]()
            while work:
                here, nodes = work.pop()
                try:
                    nodes = self._part(part, nodes, here)
                except Undecided as stop:
                    finer = self._finer(here, stop)
                    if not finer:
                        raise
                    work += [(more, nodes) for more in finer]
                    continue
                key, known = self._remembered(env, here, later)
                told[key] = (known, distinct([*told[key][1], *nodes]) if key in told else nodes)
            flows = list(told.values())
        return flows[0][1] if len(flows) == 1 else distinct([node for _, nodes in flows for node in nodes])

    def _remembered(self, env: Env, here: Env, later: frozenset[Atom | Index]) -> tuple[tuple[object, ...], Env]:
        """What is known more than at the head of a block, of what is looked at ``later``: as a key, and as a whole."""
        if here is env:
            return (), env
        ends = {a for n, place in here.places.items() if Index(n) in later for a in linear.atoms(place.end)}
        sizes = tuple((a, at) for a, at in here.atoms.items() if (a in later or a in ends) and at != env.atoms[a])
        places = tuple((n, at) for n, at in here.places.items() if Index(n) in later and at != env.places[n])
        if not sizes and not places:
            return (), env
        return (sizes, places), replace(env, atoms={**env.atoms, **dict(sizes)}, places={**env.places, **dict(places)})

    def _finer(self, env: Env, stop: Undecided) -> list[Env]:
        """The environment in parts, of which each knows more of what was not decided."""
        known = self.cases.split(env.atoms, stop.atoms)
        if known and self.depth:
            self.mixed |= {a: None for a in stop.atoms if any(more[a] != env.atoms[a] for more in known)}
        if known:
            parts = [replace(env, atoms=more) for more in known]
            return [part for part in parts if part.possible] or parts
        parts = next(filter(None, map(env.narrowed, stop.tests)), [])
        self.narrowed = self.narrowed or bool(parts)
        return parts

    def _part(self, part: Part, nodes: list[Node], env: Env) -> list[Node]:
        if isinstance(part, tir.For):
            return self._loop(part, nodes, env)
        if isinstance(part, tir.If):
            inside, others = self._decided(part.condition, nodes, env)
            return distinct([*self._block(part.body, inside, env), *others]) if inside else others
        if isinstance(part, tir.LdScalar):
            return distinct([self._read(part, node, env) for node in nodes])
        return distinct([self._straight(part, node, env) for node in nodes])

    def _read(self, stmt: tir.LdScalar, node: Node, env: Env) -> Node:
        """Where reading an integer leads: the machine has nothing to see in it."""
        self._count(1)
        if self.observe is not None:
            self.observe(node.state, node.known, stmt, env, self.machine.everyone)
        return node.knowing(self.unknown.load(stmt, node.known, env))

    def _decided(self, condition: Expr, nodes: list[Node], env: Env) -> tuple[list[Node], list[Node]]:
        """The nodes for which a condition holds and the others; one that does not tell is both, with what each
        takes."""
        sides: dict[bool, list[Node]] = {True: [], False: []}
        for node in nodes:
            key = (id(condition), node.known)
            if key not in env.told:
                self.decisions += 1
                env.told[key] = self._outcomes(condition, node.known, env)
            for truth, known in cast(list[Outcome], env.told[key]):
                sides[truth].append(node.knowing(known))
        return sides[True], sides[False]

    def _outcomes(self, condition: Expr, known: Knowledge, env: Env) -> list[Outcome]:
        """The truth of a condition, both where nothing decides it. Sizes and indices are told apart as far as that
        decides: then Undecided is raised."""
        formula = self._formula(self.unknown.expression(condition, known))
        own = [t for t in tests_of(formula) if not self.unknown.related(t.value, env)]
        truth = env.decided(formula)
        if truth is None:
            stop = env.undecided([t for t in own if env.holds(t) is None], str(condition))
            if self._finer(env, stop):
                raise stop
        elif len(own) == len(list(tests_of(formula))):
            return [(truth, known)]
        return self.unknown.outcomes(formula, known, env)

    def _looked_at(self, parts: tuple[Part, ...]) -> tuple[frozenset[Atom | Index], ...]:
        """Per part of a block the sizes and indices on which the control of later ones depends."""
        if id(parts) not in self._later:  # with the parts, so that their id stays their own
            found: list[frozenset[Atom | Index]] = []
            later: frozenset[Atom | Index] = frozenset()
            for part in reversed(parts):
                found.append(later)
                later |= self._sizes(part)
            self._later[id(parts)] = parts, tuple(reversed(found))
        return self._later[id(parts)][1]

    def _sizes(self, part: Part | tir.Stmt) -> frozenset[Atom | Index]:
        forms: list[Linear] = []
        if isinstance(part, tir.For):
            forms = [self.reader.linear(part.start), self.reader.linear(part.stop)]
        elif isinstance(part, tir.If):
            forms = [test.value for test in tests_of(self._formula(part.condition))]
        inner = part.body if isinstance(part, (tir.For, tir.If)) else ()
        mine = frozenset(a for form in forms for a in linear.atoms(form))
        return mine.union(*(self._sizes(stmt) for stmt in inner))

    def _straight(self, part: Straight, node: Node, env: Env) -> Node:
        if self.shared and part in node.kind.after:
            self._count(1)
            return node.kind.after[part].node(node.known)
        at: At = tuple((name, place.value.exact) for name, place in env.places.items())
        observe, everyone = self.observe, self.machine.everyone
        watch = None if observe is None else lambda state, stmt: observe(state, node.known, stmt, env, everyone)
        try:
            behind, steps = self.automaton.execute(node, part, at, watch, self.shared)
        except Fault as fault:
            fault.spot = Spot(env, node.known)
            raise
        self._count(steps)
        return behind

    def _count(self, steps: int) -> None:
        self.steps += steps
        if self.steps + self.decisions > self.most:
            raise Exhausted(f"more than {self.most} steps without reaching a fixed point")
        if self.steps > self.limit:
            raise Slow

    def _loop(self, loop: tir.For, nodes: list[Node], env: Env) -> list[Node]:
        """What a loop neither asks for nor changes stays outside: nodes that differ in that alone are one inside."""
        if self.exact or not self.shared:
            return self._inside(loop, nodes, env)
        out: list[Node] = []
        for node in self._afresh(loop, nodes):
            inner, outer = self.memory.frame(loop, node.known)
            here = node.knowing(inner)
            table = self.memory.table(loop, inner, env)
            if here not in table:
                table[here] = self._recorded(self._inside, loop, here, env)
            behind, mixed = table[here]
            out += [node.knowing(node.known.joined(outer)) for node in behind]
            self.mixed |= dict.fromkeys(mixed)
        return distinct(out)

    def _inside(self, loop: tir.For, nodes: list[Node], env: Env) -> list[Node]:
        """Nodes with one start, end and number of trips go through the loop together."""
        alike: dict[tuple[Linear, Linear, Interval], list[Node]] = {}
        for node in nodes:
            known = node.known
            start, end = (self.reader.linear(self.unknown.expression(e, known)) for e in (loop.start, loop.stop))
            start = env.resolve(start)
            trips = self.unknown.interval(end.plus(start, -1), known, env)
            if trips.low <= trips.high:
                alike.setdefault((start, end, trips), []).append(node)
        out: list[Node] = []
        for (start, end, trips), some in alike.items():
            out += self._through(loop, some, env, start, end, trips)
        return distinct([node.knowing(self.unknown.left(loop, node.known)) for node in out])

    def _through(
        self, loop: tir.For, nodes: list[Node], env: Env, start: Linear, end: Linear, trips: Interval
    ) -> list[Node]:
        edge = sum(self.survey.edges(loop.index))
        if trips.exact is not None and (self.exact or trips.exact <= edge + FEW_TRIPS):
            return self._trips(loop, nodes, env, start, end, trips.exact)
        if trips.exact is not None:
            return self._skipping(loop, nodes, env, start, end, trips.exact)
        if start.terms:
            reason = f"the loop over {loop.index} begins at {loop.start}, which has no single value"
            raise Undecided(reason, env.open(start))
        out = list(nodes) if trips.high < 0 else []
        # Of a form that is no single term it would not be noted how many there are.
        few = trips.high < edge or (trips.high <= edge + FEW_TRIPS and control.takes(end))
        for count in range(int(max(trips.low, 0)), int(trips.high) + 1 if few else edge):
            if self._occurs(end, start.const + count, env):
                at = exactly(count) if count else Interval(-inf, 0)
                some, inner = self._taking(start, end, at, nodes, env)
                out += self._trips(loop, some, inner, start, end, count)
        if not few:
            some, inner = self._taking(start, end, Interval(edge, inf), nodes, env)
            sure = min(int(trips.low), self.survey.most(loop.index)) if trips.low > edge else edge
            out += self._any(loop, some, inner, start, end, sure - edge)
        return out

    def _taking(
        self, start: Linear, end: Linear, trips: Interval, nodes: list[Node], env: Env
    ) -> tuple[list[Node], Env]:
        """What is known once a loop is taken to have so many trips."""
        length = end.plus(start, -1)
        some = [n.knowing(self.unknown.taken(length, trips, n.known, env)) for n in nodes]
        inner = env.taking(end, Interval(start.const + trips.low, start.const + trips.high))
        self.narrowed = self.narrowed or inner.places is not env.places
        return some, inner

    def _occurs(self, form: Linear, value: int, env: Env) -> bool:
        """Whether some size gives a form this value, if it is a single size or number of tiles."""
        known = {atom: exactly(value) for atom in alone(form)}
        return value <= 0 or control.consistent({**env.atoms, **known}, self.reader.multiples)

    def _body(self, loop: tir.For, nodes: list[Node], env: Env, place: Place) -> list[Node]:
        inside = env.at(loop.index, place)
        if self.exact or not self.shared:
            self._count(1)
            return self._trip(loop, nodes, inside)
        out: list[Node] = []
        tables: dict[Knowledge, Table] = {}
        for node in nodes:
            table = tables.get(node.known)
            if table is None:
                table = tables[node.known] = self.memory.table(loop, node.known, inside)
            if node not in table:
                table[node] = self._recorded(self._trip, loop, node, inside)
            behind, mixed = table[node]
            out += behind
            if mixed:
                self.mixed |= dict.fromkeys(mixed)
        self._count(1 + len(nodes) // LOOK_UPS)
        return distinct(out)

    def _recorded(
        self, follow: Callable[[tir.For, list[Node], Env], list[Node]], loop: tir.For, node: Node, env: Env
    ) -> Trip:
        """Where something leads, and the sizes that it told apart."""
        before, self.mixed = self.mixed, {}
        try:
            return follow(loop, [node], env), tuple(self.mixed)
        finally:
            self.mixed = {**before, **self.mixed}

    def _trip(self, loop: tir.For, nodes: list[Node], inside: Env) -> list[Node]:
        self.depth += 1
        try:
            nodes = self._block(loop.body, nodes, inside)
        finally:
            self.depth -= 1
        return self._afresh(loop, [n.knowing(self.unknown.next(loop, n.known, inside)) for n in nodes])

    def _afresh(self, loop: tir.For, nodes: list[Node]) -> list[Node]:
        """The nodes without what they wrote to buffers that the next trip writes afresh."""
        if self.afresh is None:
            return distinct(nodes)
        states = [(node, self.afresh.forget(loop, node.state)) for node in nodes]
        return distinct([n if s is None else self.automaton.kind(s).node(n.known) for n, s in states])

    def _place(self, start: Linear, end: Linear, i: Interval, left: Interval) -> Place:
        """The place of iteration ``i`` of a loop."""
        first = start.const if not start.terms else None
        value = control.ANY if first is None else Interval(first + i.low, first + i.high)
        residue = value.exact % self.period if value.exact is not None else None
        return Place(value, left, residue, end)

    def _trips(self, loop: tir.For, nodes: list[Node], env: Env, start: Linear, end: Linear, count: int) -> list[Node]:
        for i in range(count):
            nodes = self._body(loop, nodes, env, self._place(start, end, exactly(i), exactly(count - i)))
        return nodes

    def _skipping(
        self, loop: tir.For, nodes: list[Node], env: Env, start: Linear, end: Linear, count: int
    ) -> list[Node]:
        """A known number of iterations: middle ones run until the set of states recurs, then whole cycles are left
        out."""
        head, tail = self.survey.edges(loop.index)
        middle = Interval(head, count - tail - 1)
        seen: dict[tuple[frozenset[Hashable], int], int] = {}
        i, skipped = 0, False
        while i < count:
            if middle.low <= i <= middle.high:
                key = (frozenset(node.key for node in nodes), (start.const + i) % self.period)
                before = seen.setdefault(key, i)
                if before < i and not skipped:
                    cycles = (int(middle.high) + 1 - i) // (i - before)
                    i, skipped = i + cycles * (i - before), True
                    if not self.shared:
                        nodes = [self._marked(node, loop, cycles * (i - before)) for node in nodes]
                    continue
            inner = middle.low <= i <= middle.high
            span = replace(middle) if inner else exactly(i)
            place = self._place(start, end, span, Interval(count - span.high, count - span.low))
            if inner and not start.terms:
                place = replace(place, residue=(start.const + i) % self.period)
            nodes = self._body(loop, nodes, env, place)
            i += 1
        return nodes

    def _marked(self, node: Node, loop: tir.For, skipped: int) -> Node:
        """The node with a note in its log of iterations that were left out."""
        state = node.state.copy()
        state.log = Log(loop, (), state.now, state.log, skipped) if skipped else state.log
        return self.automaton.kind(state, shared=False).node(node.known)

    def _any(self, loop: tir.For, nodes: list[Node], env: Env, start: Linear, end: Linear, sure: int) -> list[Node]:
        """Every number of iterations from head + ``sure`` + tail on."""
        head, tail = self.survey.edges(loop.index)
        far = Interval(tail + 1, inf)
        for i in range(head):
            nodes = self._body(loop, nodes, env, self._place(start, end, exactly(i), far))
        middle = self._place(start, end, Interval(head, inf), far)
        # The residue of the index travels with the states, so that a condition may depend on it.
        for i in range(head, head + sure):
            place = replace(middle, residue=(start.const + i) % self.period)
            nodes = self._body(loop, nodes, env, place)
        groups = {(start.const + head + sure) % self.period: nodes}
        seen: dict[int, dict[Hashable, Node]] = {}
        while groups:
            following: dict[int, list[Node]] = {}
            for residue, some in groups.items():
                known = seen.setdefault(residue, {})
                fresh = {node.key: node for node in some if node.key not in known}
                known |= fresh
                if fresh:
                    place = replace(middle, residue=residue)
                    after = self._body(loop, list(fresh.values()), env, place)
                    following.setdefault((residue + 1) % self.period, []).extend(after)
            groups = following
        out: list[Node] = []
        for residue, reached in seen.items():
            nodes = list(reached.values())
            for left in range(tail, 0, -1):
                place = self._place(start, end, Interval(head, inf), exactly(left))
                place = replace(place, residue=(residue + tail - left) % self.period)
                nodes = self._body(loop, nodes, env, place)
            out += nodes
        return out


def explorer(
    machine: Machine,
    sizes: Mapping[str, int],
    indices: Mapping[str, int] | None = None,
    observe: Observer | None = None,
    exact: bool = False,
    shared: bool = True,
    given: Given | None = None,
    most: int = MAX_STEPS,
) -> Explorer:
    """An explorer that fits the kernel: with roles or without."""
    from tidegate.check.joint import Roles

    return (Roles if machine.kernel.roles else Explorer)(machine, sizes, indices, observe, exact, shared, given, most)
