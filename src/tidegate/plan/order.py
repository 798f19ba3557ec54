"""Order as a dataflow over the timeline: what is still unordered before each step, and which syncs order it.

State: for every access that someone may still have to wait for, whether it has completed (for a copy: how many groups
were committed after it, at least) and which rendezvous have happened since. Branches join, loops run to a fixed
point, slots are counted by executed uses, so the result holds for every trip count. The same walk validates a plan and
inserts what is missing.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count as count_from
from math import inf, lcm

from tidegate.analyze.depend import Dependence, Kind, joint
from tidegate.ir import legal, tir
from tidegate.ir.expr import Bin, Expr, Int, Sym, add, evaluate, less, negated, parts, substitute, symbols
from tidegate.plan.conditions import Given, connected
from tidegate.plan.facts import Facts
from tidegate.plan.pending import OPEN, Key, Pending, State, Wanted, apply, join, met, wanted
from tidegate.plan.plan import Sync
from tidegate.plan.timeline import END, Guard, Issue, Node, Repeat, Turn, When, walk

MOST_TRIPS = 64
"""Trips of a known number that are walked one by one; the states of further ones are joined."""

MOST_STATES = 16
"""Trips of an unknown number that are walked one by one before their states are joined."""

MOST_HEAD = 8
"""First trips of an unknown number whose index conditions are told apart from the others."""

MOST_RESIDUES = 6
"""Remainders of such an index that are told apart."""

MOST_FORKS = 4
"""Conditions at once of which both outcomes are walked apart; of further ones the outcomes are joined."""


@dataclass(frozen=True)
class Unmet:
    """A dependence that nothing orders at a place (None: ``source`` is a copy still in flight when the kernel ends)."""

    dependence: Dependence | None
    source: str
    place: str
    complete: bool


Turned = Mapping[str, frozenset[int]]
"""How often channels may have been used so far, modulo their depths: of those whose rings share bytes with others.
Replaced, never changed in place."""

ZERO = frozenset((0,))


class Found(Exception):
    """A dependence that nothing orders."""


@dataclass(frozen=True)
class Asking:
    """What a node asks, inner nodes included: conditions, and whether loops of an open number of trips run. ``steady``:
    of which the names stand for the same in all of it; ``sets``: names that it lets stand for something else;
    ``names``: these, and those of everything that says what it does."""

    all: tuple[Expr, ...]
    steady: tuple[Expr, ...]
    sets: frozenset[str]
    names: frozenset[str]


@dataclass
class Walk:
    """One pass over a timeline. ``zero``: the case of sizes; ``fixed``: syncs that stand; ``insert``: note what is
    missing in ``wanted``; ``demands``: place -> reads of current items that must be ready there; ``given``: what holds
    on the way, ``forks``: on so many conditions of which both outcomes are walked apart; ``first``: raise Found at the
    first dependence that nothing orders."""

    facts: Facts
    zero: Mapping[str, bool]
    fixed: Mapping[str, Sequence[Sync]]
    insert: bool = False
    demands: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    wanted: dict[str, Wanted] = field(default_factory=dict)
    unmet: dict[tuple[str, str], Unmet] = field(default_factory=dict)
    indices: dict[str, int] = field(default_factory=dict)
    given: Given = frozenset()
    forks: int = 0
    quiet: bool = False
    first: bool = False

    def __post_init__(self) -> None:
        self.by_sink: dict[str, list[Dependence]] = {}
        for d in self.facts.dependences:
            self.by_sink.setdefault(d.sink, []).append(d)
        self.loops = {loop.id: loop for loop in legal.loops(self.facts.program.body)}
        self.questions: dict[int, Asking] = {}
        self.trod: dict[Hashable, tuple[State, Turned, Given]] = {}
        self.connected: dict[tuple[int, Given], tuple[Given, tuple[str, ...]]] = {}
        crossing = {place for d in self.facts.dependences if d.slots for place in d.places}
        self.turned: Turned = {g.name: ZERO for g in self.facts.groups if crossing & set(g.rings)}

    def run(self, nodes: tuple[Node, ...]) -> None:
        state = self.block(nodes, {})
        for sync in self.fixed.get(END, ()):
            state = apply(state, sync)
        left = [k for k, p in state.items() if p.age is not None]
        if left:
            self.settle(END, state, [(k, None) for k in left])

    # -------------------------------------------------------------------------------------- structure

    def block(self, nodes: Sequence[Node], state: State) -> State:
        at = 0
        while at < len(nodes):
            node = nodes[at]
            if fork := self.fork(nodes, at):
                condition, end = fork
                state, at = self.either(condition, nodes[at:end], state), end
                continue
            for sync in self.fixed.get(node.place, ()):
                state = apply(state, sync)
            state = self.settle(node.place, state, [*self.demanded(node, state), *self.needs(node, state)])
            state, at = self.node(node, state), at + 1
        return state

    def fork(self, nodes: Sequence[Node], at: int) -> tuple[Expr, int] | None:
        """A condition of which both outcomes are walked apart from this node on, and up to where: whether a loop of an
        open number of trips runs, or what the node asks and is asked again later."""
        node = nodes[at]
        loop = self.loops.get(node.loop) if isinstance(node, Guard) else node.loop if isinstance(node, Repeat) else None
        if loop is not None and self.facts.open(self.known(loop.trips)):
            runs = less(0, loop.trips)
            if self.truth(runs) is None:
                end = next((n + 1 for n in range(at, len(nodes)) if nodes[n].place == loop.id), at + 1)
                return runs, max(end, self.reach(runs, nodes, at))
        if self.forks >= MOST_FORKS or isinstance(node, (Issue, Turn)):
            return None
        for condition in self.asking(node).steady:
            if self.truth(condition) is None and (end := self.reach(condition, nodes, at)):
                return condition, end
        return None

    def asking(self, node: Node) -> Asking:
        if id(node) not in self.questions:
            found = dict.fromkeys(e for n in walk((node,)) for e in self.question(n))
            sets = frozenset(_set_in(node))
            steady = tuple(e for e in found if not sets & self.names(e))
            names = {n for inner in walk((node,)) for e in self.deciding(inner) for n in self.facts.names(e)}
            held = {n for name in names & self.facts.held.keys() for n in self.facts.names(self.facts.held[name])}
            self.questions[id(node)] = Asking(tuple(found), steady, sets, sets.union(names, held))
        return self.questions[id(node)]

    def question(self, node: Node) -> tuple[Expr, ...]:
        if isinstance(node, When):
            return (node.condition,)
        if isinstance(node, Repeat) and self.facts.open(node.loop.trips):
            return (less(0, node.loop.trips),)
        return ()

    def deciding(self, node: Node) -> Iterator[Expr]:
        """What says whether, or how often, the body of a node runs, what is issued ahead included."""
        yield from decided_by(node)
        if isinstance(node, Guard):
            yield node.condition
            yield self.loops[node.loop].trips

    def names(self, e: Expr) -> set[str]:
        """The names in a condition that may come to stand for something else."""
        return {n for n in symbols(e) if n not in self.facts.held}

    def reach(self, condition: Expr, nodes: Sequence[Node], at: int) -> int:
        """The end of the nodes from ``at`` on that ask something which a condition decides, 0 if none does."""
        mine, end = self.names(condition), 0
        for n in range(at, len(nodes)):
            asking = self.asking(nodes[n])
            again = isinstance(nodes[n], Repeat) and condition in asking.all
            if again or (n > at and any(self.decides(condition, e) for e in asking.all)):
                end = n + 1
            if mine & asking.sets:
                break
        return end

    def decides(self, condition: Expr, other: Expr) -> bool:
        """Does the outcome of a condition say anything of another that is open?"""
        first = substitute(other, {loop.index: Int(0) for loop in self.loops.values()})
        for e in (other, first) if first != other else (other,):
            one, two = self.simple(condition), self.simple(e)
            if not set(symbols(one)) & set(symbols(two)) or self.truth(e) is not None:
                continue
            for outcome in (one, negated(one)):
                if self.facts.conditions.truth(two, self.given | {outcome}) is not None:
                    return True
        return False

    def either(self, condition: Expr, nodes: Sequence[Node], entering: State) -> State:
        """The state behind nodes, the condition holding or not."""
        before, given, found = self.turned, self.given, []
        self.forks += 1
        for outcome in (negated(condition), condition):
            self.turned, self.given = before, given | {self.simple(outcome)}
            found.append((self.block(nodes, entering), self.turned))
        self.forks -= 1
        self.given = _without(given, {name for node in nodes for name in self.asking(node).sets})
        (one, turned), (other, turned_too) = found
        self.turned = either_of(turned, turned_too)
        return join(one, other)

    def known(self, e: Expr) -> Expr:
        """The expression with the indices at their trips."""
        return substitute(e, {name: Int(at) for name, at in self.indices.items()})

    def simple(self, e: Expr) -> Expr:
        """The expression with all that is known of its names: trips, sizes that are 0, integers of one place."""
        key = e, self.values(e)
        if key not in self.facts.simple:
            zero = {name: Int(0) for name, zero in self.zero.items() if zero}
            known = {**zero, **{name: Int(at) for name, at in self.indices.items()}, **self.facts.held}
            self.facts.simple[key] = substitute(e, known)
        return self.facts.simple[key]

    def values(self, e: Expr) -> tuple[int | None, ...]:
        """What is known of the names in an expression: trips, and whether sizes are 0."""
        return tuple(self.indices.get(n, self.zero.get(n)) for n in self.facts.names(e))

    def node(self, node: Node, state: State) -> State:
        match node:
            case Issue():
                return self.issue(node, state)
            case Turn():
                return self.turn(node, state)
            case Guard() | When():
                holds = self.truth(node.condition)
                if holds is False:
                    return state
                before, given = self.turned, self.given
                self.given = given | {self.simple(node.condition)}
                inside = self.block(node.body, state)
                self.given = _without(given, self.asking(node).sets)
                if holds:
                    return inside
                self.turned = either_of(before, self.turned)
                return join(state, inside)
            case Repeat():
                self.given = _without(self.given, {node.loop.index})
                return self.repeat(node, state)

    def repeat(self, node: Repeat, entering: State) -> State:
        trips = self.known(node.loop.trips)
        if isinstance(trips, Int):
            return self.left(node, self.exactly(node, entering, trips.value))
        runs = self.truth(less(0, node.loop.trips))
        if runs is None and any(self.zero.get(n) for n in set(symbols(trips)) - self.facts.indices):
            runs = False
        turned, least, most = self.turned, max(self.least(trips), int(runs is True)), at_most(trips)
        if not most or runs is False:
            return self.left(node, entering)
        leaving = self.any_number(node, entering, max(least, 1), most)
        if not least:
            leaving, self.turned = join(entering, leaving), either_of(turned, self.turned)
        return self.left(node, leaving)

    def least(self, trips: Expr) -> int:
        """The fewest trips in this case of sizes: unless they are open, they rise with the sizes, and with the indices
        that limit them."""
        dims: dict[str, int] = {d.name: d.multiple for d in self.facts.program.dims if self.zero.get(d.name) is False}
        return 0 if self.facts.open(trips) else evaluate(trips, {n: dims.get(n, 0) for n in symbols(trips)})

    def any_number(self, node: Repeat, entering: State, least: int, most: float) -> State:
        """The state behind ``least`` (1 or more) to ``most`` trips: of every number of trips until states recur. Where
        they do not soon, what holds at the head of the body is joined to a fixed point. Trips that conditions tell from
        others are told apart: the first ones, and those of one remainder."""
        head, period = self.told_apart(node)
        ahead = any(isinstance(n, Guard) for n in node.body)
        least = min(least, MOST_TRIPS)
        seen: list[tuple[State, Turned, int]] = []
        state, given, left = entering, self.given, list[tuple[State, Turned]]()
        for at in count_from():
            self.tell(node.loop, at, head, period, given)
            now = (state, self.turned, at % period)
            if at >= most or now in seen:
                break
            settled = len(seen) == MOST_STATES
            if settled:
                self.tell(node.loop, head, head, 1, given)
                state = self.fixed_point(node, state)
            if at >= max(head, least):
                seen.append(now)
            before, turned = state, self.turned
            state = self.trip(node, state)
            if at + 1 >= least:
                left.append(self.last_trip(node, before, turned) if ahead else (state, self.turned))
            if settled:
                break
        self.indices.pop(node.loop.index, None)
        self.given = given
        leaving, self.turned = left[0]  # there are as many trips as the least, and states recur after a trip only
        for other, turned in left[1:]:
            leaving, self.turned = join(leaving, other), either_of(self.turned, turned)
        return leaving

    def last_trip(self, node: Repeat, state: State, turned: Turned) -> tuple[State, Turned]:
        """Where a trip leads behind which there is none: nothing is issued ahead in it. It comes after one that has a
        next one, so that what that wants stands in both."""
        following = self.turned
        self.turned = turned
        self.given |= {self.simple(Bin("<=", node.loop.trips, add(Sym(node.loop.index), 1)))}
        found = self.trip(node, state), self.turned
        self.turned = following
        return found

    def tell(self, loop: legal.Loop, at: int, head: int, period: int, given: Given) -> None:
        """Notes what is known in trip ``at`` of an unknown number: the index, or that it is behind the first ones."""
        if at < head:
            self.indices[loop.index] = at
            self.given = given | {self.simple(less(at, loop.trips))}
            return
        self.indices.pop(loop.index, None)
        here = {less(Sym(loop.index), loop.trips), Bin("<=", Int(head), Sym(loop.index))}
        if period > 1:
            here.add(Bin("==", Bin("%", Sym(loop.index), Int(period)), Int(at % period)))
        self.given = given | {self.simple(e) for e in here}

    def told_apart(self, node: Repeat) -> tuple[int, int]:
        """How many first trips of a loop, and by what remainder the others, conditions tell from each other."""
        index = node.loop.index
        asked = [n.condition for n in walk(node.body) if isinstance(n, When) and index in set(symbols(n.condition))]
        moduli = [p.b for e in asked for p in parts(e) if isinstance(p, Bin) and p.op == "%" and isinstance(p.b, Int)]
        numbers = [p.value for e in asked for p in parts(e) if isinstance(p, Int) and p not in moduli]
        period = lcm(*(m.value for m in moduli), 1)
        head = max((abs(n) + 1 for n in numbers), default=0)
        return min(head, MOST_HEAD), period if 0 < period <= MOST_RESIDUES else 1

    def joined(self, node: Repeat, entering: State) -> State:
        """The state behind one trip or more."""
        return self.trip(node, self.fixed_point(node, entering))

    def fixed_point(self, node: Repeat, entering: State) -> State:
        """What may hold at the head of the body, after any number of trips."""
        state, was_quiet = entering, self.quiet
        self.quiet = True
        while True:
            before = self.turned
            following = join(state, self.trip(node, state))
            self.turned = either_of(before, self.turned)
            if following == state and self.turned == before:
                break
            state = following
        self.quiet = was_quiet
        return state

    def exactly(self, node: Repeat, entering: State, count: int) -> State:
        """The state behind a known number of trips."""
        turned, state = self.turned, entering
        before = None
        while before != self.wanted:  # what a later trip wants stands in the earlier ones too
            before = dict(self.wanted)
            self.turned = turned
            state = self.trips(node, entering, count)
            self.indices.pop(node.loop.index, None)
        return state

    def trips(self, node: Repeat, state: State, count: int) -> State:
        """Trip after trip. Once states recur, whole cycles of trips that decide no guard are left out."""
        last = count - 1 - max((g.ahead for g in self.facts.groups if g.loop == node.loop.id), default=0)
        seen: list[tuple[State, Turned]] = []
        asked = any(node.loop.index in symbols(e) for n in walk(node.body) for e in decided_by(n))
        at = 0
        while at < count:
            if MOST_TRIPS < at < last:
                self.indices.pop(node.loop.index)
                state, at, seen = self.joined(node, state), last, []
            now = (state, self.turned)
            if at < last and now in seen and not asked:
                cycle = len(seen) - seen.index(now)
                at, seen = at + (last - at) // cycle * cycle, []
            seen.append(now)
            self.indices[node.loop.index] = at
            state, at = self.trip(node, state), at + 1
        return state

    def trip(self, node: Repeat, state: State) -> State:
        """The state behind a trip. Walks come to one with the same state, and the same knowledge of what it asks, again
        and again; but while syncs are inserted, what it wants may have become more."""
        if self.insert:
            return self.block(node.body, state)
        given, indices = self.regarding(node)
        others = self.given - given
        way = id(node), frozenset(state.items()), tuple(self.turned.items()), given, indices, self.forks, self.quiet
        if way not in self.trod:
            behind = self.block(node.body, state)
            self.trod[way] = behind, self.turned, self.given - others
        behind, self.turned, given = self.trod[way]
        self.given = others | given
        return behind

    def regarding(self, node: Node) -> tuple[Given, tuple[int | None, ...]]:
        """What is known of the names on which it depends what a node does."""
        key = id(node), self.given
        if key not in self.connected:
            asked = self.asking(node).names
            given = frozenset(connected(asked, self.given))
            self.connected[key] = given, tuple(sorted(asked & self.facts.indices))
        given, indices = self.connected[key]
        return given, tuple(self.indices.get(n) for n in indices)

    def truth(self, condition: Expr) -> bool | None:
        """Does the condition hold, as far as the trip, the sizes and the way here tell?"""
        key = condition, self.given, self.values(condition)
        if key not in self.facts.truths:
            self.facts.truths[key] = self.decided(condition)
        return self.facts.truths[key]

    def decided(self, condition: Expr) -> bool | None:
        known = self.simple(condition)
        if not set(symbols(known)):
            return bool(evaluate(known, {}))
        match known:
            case Bin("<", Int(at), trips) if at < self.least(trips):
                return True
        return self.facts.conditions.truth(known, self.given)

    def left(self, node: Repeat, state: State) -> State:
        """The state behind a loop: fills run ahead only for trips that come, so none waits for its reader any more. One
        that may have been issued was not then, and an older access to its slot is the last one."""
        ahead = {r for g in self.facts.groups if g.loop == node.loop.id and g.ahead for r in g.rings}
        behind: State = {}
        for key, p in state.items():
            if key[1] not in ahead or p.age is None or p.passed:
                behind[key] = p
            elif p.older is not None:
                behind[key] = Pending(None, p.older)
        return behind

    # -------------------------------------------------------------------------------------- accesses

    def key(self, node: Issue) -> Key | None:
        place = self.facts.touches.get(node.step.id)
        if place is None:
            return None
        return node.step.id, place, node.item % self.facts.depth(place)

    def issue(self, node: Issue, state: State) -> State:
        if isinstance(node.step.instr, tir.LdScalar):
            self.given = _without(self.given, {node.step.instr.scalar})
        key = self.key(node)
        if key is None:
            return state
        return {**state, key: Pending(OPEN if node.step.id in self.facts.copies else None)}

    def turn(self, node: Turn, state: State) -> State:
        if node.side == "fill":
            return state
        group = next(g for g in self.facts.groups if g.name == node.channel)
        if group.name in self.turned:
            uses = frozenset((n + 1) % group.depth for n in self.turned[group.name])
            self.turned = {**self.turned, group.name: uses}
        moved: State = {}
        for (step, ring, item), pending in state.items():
            if ring not in group.rings:
                moved[step, ring, item] = pending
            else:
                passed = pending.passed or (item == 0 and pending.age is not None)
                moved[step, ring, (item - 1) % group.depth] = replace(pending, passed=passed)
        return moved

    def needs(self, node: Node, state: State) -> list[tuple[Key, Dependence | None]]:
        """What must be ordered before a node: its own access, or, for a guard, those of its body (a sync goes outside
        the guard)."""
        if isinstance(node, Guard):
            return [need for n in self.live(node) for need in self.needs(n, state)]
        if not isinstance(node, Issue):
            return []
        key = self.key(node)
        return [] if key is None else self.conflicts(key, state)

    def live(self, node: Node) -> Iterator[Issue]:
        """What a node may issue."""
        if isinstance(node, Issue):
            yield node
        elif isinstance(node, (Guard, When)) and self.truth(node.condition) is not False:
            for inner in node.body:
                yield from self.live(inner)

    def demanded(self, node: Node, state: State) -> list[tuple[Key, Dependence | None]]:
        """What the reads that must be ready at a node need there."""
        steps = self.demands.get(node.place)
        if not steps or (isinstance(node, Guard) and self.truth(node.condition) is False):
            return []
        found: list[tuple[Key, Dependence | None]] = []
        for step in steps:
            own = self.conflicts((step, self.facts.touches[step], 0), state)
            found += [(k, d) for k, d in own if d is not None and d.kind is Kind.RAW and len(d.places) == 1]
        return found

    def conflicts(self, key: Key, state: State) -> list[tuple[Key, Dependence | None]]:
        step, place, item = key
        found: list[tuple[Key, Dependence | None]] = []
        for d in self.by_sink.get(step, ()):
            for other, pending in state.items():
                pair = self.between(d, other, place, item) if other[0] == d.source else None
                if pair and ((d.awaits and pending.age is not None) or not met(pending, pair)):
                    found.append((other, pair))
        return found

    def between(self, d: Dependence, other: Key, place: str, item: int) -> Dependence | None:
        """The dependence with the scope for these items, as far as their slots are known; None if they never meet."""
        if other[1] == place:
            return d if other[2] == item else None
        if not d.slots:
            return d
        sources, sinks = self.slots(other[1], other[2]), self.slots(place, item)
        scope = joint(s for a, b, s in d.slots if a in sources and b in sinks)
        return None if scope is None else d if scope == d.scope else replace(d, scope=scope)

    def slots(self, ring: str, item: int) -> Collection[int]:
        """The slots in which an item can lie."""
        group = self.facts.group(ring)
        if group is None:
            return (0,)
        uses = self.turned.get(group.name, range(group.depth))
        return {(n + item) % group.depth for n in uses}

    # -------------------------------------------------------------------------------------- syncs

    def settle(self, place: str, state: State, needs: list[tuple[Key, Dependence | None]]) -> State:
        """Orders what is needed: inserts syncs, or records what is unmet."""
        if not self.insert:
            if not self.quiet:
                for key, d in needs:
                    unmet = Unmet(d, key[0], place, state[key].age is None)
                    self.unmet.setdefault((d.id if d else key[0], place), unmet)
                    if self.first:
                        raise Found
            return state
        if needs:
            # What an earlier round wanted stays, so that rounds only ever add and come to an end.
            self.wanted[place] = self.wanted.get(place, Wanted()) | wanted(needs, state)
        if place in self.wanted:
            for sync in self.wanted[place].syncs(place, self.facts.program.warps):
                state = apply(state, sync)
        return state


def missing(
    nodes: tuple[Node, ...], facts: Facts, fixed: Mapping[str, Sync], demands: Mapping[str, tuple[str, ...]]
) -> list[Sync]:
    """The syncs that a timeline wants beside ``fixed`` ones, in every case of sizes."""
    found: dict[str, Wanted] = {}
    before = None
    while before != found:  # what one case wants stands in the others too
        before = dict(found)
        for case in facts.cases:
            walker = Walk(facts, case, {p: [s] for p, s in fixed.items()}, insert=True, demands=demands, wanted=found)
            walker.run(nodes)
    return [s for place, wanted in found.items() for s in wanted.syncs(place, facts.program.warps)]


def at_most(trips: Expr) -> float:
    """An upper bound of a number of trips."""
    match trips:
        case Int(value):
            return value
        case Bin("min", a, b):
            return min(at_most(a), at_most(b))
    return inf


def _set_in(node: Node) -> Iterator[str]:
    """The indices and integers that a node sets."""
    for inner in walk((node,)):
        if isinstance(inner, Repeat):
            yield inner.loop.index
        elif isinstance(inner, Issue) and isinstance(inner.step.instr, tir.LdScalar):
            yield inner.step.instr.scalar


def _without(given: Given, names: Collection[str]) -> Given:
    """What still holds once names stand for something else."""
    return frozenset(e for e in given if not any(n in names for n in symbols(e))) if given and names else given


def decided_by(node: Node) -> tuple[Expr, ...]:
    """What says whether, or how often, the body of a node runs, what is issued ahead aside."""
    match node:
        case When():
            return (node.condition,)
        case Repeat():
            return (node.loop.trips,)
    return ()


def either_of(a: Turned, b: Turned) -> Turned:
    """Uses of channels, one number or the other."""
    return {name: uses | b[name] for name, uses in a.items()}
