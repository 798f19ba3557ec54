"""Order as a dataflow over the timeline: what is still unordered before each step, and which syncs order it.

State: for every access that someone may still have to wait for, whether it has completed (for a copy: how many groups
were committed after it, at least) and which rendezvous have happened since. Branches join, loops run to a fixed
point, slots are counted by executed uses, so the result holds for every trip count. The same walk validates a plan and
inserts what is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from tidegate.analyze.depend import Dependence, Kind
from tidegate.ir import legal, tir
from tidegate.ir.expr import Int
from tidegate.plan.plan import Sync, SyncKind
from tidegate.plan.timeline import END, Group, Guard, Issue, Node, Repeat, Turn, walk

OPEN = -1
"""Age of a copy whose group is not committed yet."""

OLDEST = 64
"""Ages saturate here; a wait for more groups than this is never needed."""

Key = tuple[str, str, int]
"""Step, ring, and item modulo the ring's depth, counted from the reader's current item."""


@dataclass(frozen=True)
class Pending:
    """An access that later ones may conflict with. ``age``: groups committed since (None: complete); ``passed``: its
    reader has gone on to the next item."""

    age: int | None
    met: frozenset[str | tuple[int, ...]] = frozenset()
    passed: bool = False


State = dict[Key, Pending]


@dataclass(frozen=True)
class Unmet:
    """A dependence that nothing orders at a place (None: ``source`` is a copy still in flight when the kernel ends)."""

    dependence: Dependence | None
    source: str
    place: str
    complete: bool


@dataclass(frozen=True)
class Facts:
    """What the walk needs to know of the program."""

    program: legal.LegalProgram
    groups: tuple[Group, ...]
    dependences: tuple[Dependence, ...]
    touches: Mapping[str, str]
    copies: frozenset[str]

    def depth(self, ring: str) -> int:
        return next((g.depth for g in self.groups if ring in g.rings), 1)


def facts(
    program: legal.LegalProgram,
    groups: tuple[Group, ...],
    dependences: tuple[Dependence, ...],
    touches: Mapping[str, str],
) -> Facts:
    """``touches``: step -> ring or tensor that it accesses."""
    copies = frozenset(s.id for s in legal.steps(program.body) if type(s.instr).completes is tir.Completion.COPY_GROUP)
    return Facts(program, groups, dependences, touches, copies)


@dataclass
class Walk:
    """One pass over a timeline. ``fixed``: syncs that stand; ``insert``: add what is missing to ``added``;
    ``demands``: steps that must be ready at the head of a loop's body (loop -> steps)."""

    facts: Facts
    fixed: Mapping[str, Sequence[Sync]]
    insert: bool = False
    demands: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    added: dict[str, list[Sync]] = field(default_factory=dict)
    wanted: dict[str, Wanted] = field(default_factory=dict)
    unmet: dict[tuple[str, str], Unmet] = field(default_factory=dict)
    quiet: bool = False

    def __post_init__(self) -> None:
        self.by_sink: dict[str, list[Dependence]] = {}
        for d in self.facts.dependences:
            self.by_sink.setdefault(d.sink, []).append(d)

    def run(self, nodes: tuple[Node, ...]) -> None:
        state = self.block(nodes, {})
        for sync in self.fixed.get(END, ()):
            state = apply(state, sync)
        left = [k for k, p in state.items() if p.age is not None]
        if left:
            self.settle(END, state, [(k, None) for k in left])

    # -------------------------------------------------------------------------------------- structure

    def block(self, nodes: Sequence[Node], state: State, head: tuple[str, ...] = ()) -> State:
        for at, node in enumerate(nodes):
            for sync in self.fixed.get(node.place, ()):
                state = apply(state, sync)
            needs = self.needs(node, state)
            if at == 0 and head:
                needs = [*self.head_needs(head, state), *needs]
            state = self.settle(node.place, state, needs)
            state = self.node(node, state)
        return state

    def node(self, node: Node, state: State) -> State:
        match node:
            case Issue():
                return self.issue(node, state)
            case Turn():
                return self.turn(node, state)
            case Guard():
                if node.condition == Int(0):
                    return state
                inside = self.block(node.body, state)
                return inside if node.condition == Int(1) else join(state, inside)
            case Repeat():
                return self.repeat(node, state)

    def repeat(self, node: Repeat, entering: State) -> State:
        """Joins the states at the head of the body over all trips: a known number of them, or to a fixed point."""
        trips = node.loop.trips
        if trips == Int(0):
            return entering
        head = self.demands.get(node.loop.id, ())
        state, was_quiet = entering, self.quiet
        self.quiet = True
        rounds = trips.value - 1 if isinstance(trips, Int) else inf
        while rounds > 0:
            joined = join(state, self.block(node.body, state, head))
            if joined == state:
                break
            state, rounds = joined, rounds - 1
        self.quiet = was_quiet
        leaving = self.block(node.body, state, head)
        return self.left(node, leaving if isinstance(trips, Int) else join(entering, leaving))

    def left(self, node: Repeat, state: State) -> State:
        """The state behind a loop: fills run ahead only for trips that come, so none waits for its reader any more."""
        ahead = {r for g in self.facts.groups if g.loop == node.loop.id and g.ahead for r in g.rings}
        return {k: p for k, p in state.items() if k[1] not in ahead or p.age is None or p.passed}

    # -------------------------------------------------------------------------------------- accesses

    def key(self, node: Issue) -> Key | None:
        place = self.facts.touches.get(node.step.id)
        if place is None:
            return None
        return node.step.id, place, node.item % self.facts.depth(place)

    def issue(self, node: Issue, state: State) -> State:
        key = self.key(node)
        if key is None:
            return state
        return {**state, key: Pending(OPEN if node.step.id in self.facts.copies else None)}

    def turn(self, node: Turn, state: State) -> State:
        if node.side == "fill":
            return state
        group = next(g for g in self.facts.groups if g.name == node.channel)
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
            if node.condition == Int(0):
                return []
            return [need for inner in node.body for need in self.needs(inner, state)]
        if not isinstance(node, Issue):
            return []
        key = self.key(node)
        return [] if key is None else self.conflicts(key, state)

    def head_needs(self, steps: Iterable[str], state: State) -> list[tuple[Key, Dependence | None]]:
        """What the reads of a loop's current item need at the head of its body."""
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
                if other[0] != d.source or (other[1] == place and other[2] != item):
                    continue
                if (d.awaits and pending.age is not None) or not _met(pending, d):
                    found.append((other, d))
        return found

    # -------------------------------------------------------------------------------------- syncs

    def settle(self, place: str, state: State, needs: list[tuple[Key, Dependence | None]]) -> State:
        """Orders what is needed: inserts syncs, or records what is unmet."""
        if not self.insert:
            if not self.quiet:
                for key, d in needs:
                    unmet = Unmet(d, key[0], place, state[key].age is None)
                    self.unmet.setdefault((d.id if d else key[0], place), unmet)
            return state
        if needs:
            # What an earlier round wanted stays, so that rounds only ever add and come to an end.
            self.wanted[place] = self.wanted.get(place, Wanted()) | wanted(needs, state)
            self.added[place] = self.wanted[place].syncs(place, self.facts.program.warps)
        for sync in self.added.get(place, ()):
            state = apply(state, sync)
        return state


@dataclass(frozen=True)
class Wanted:
    """What has to stand at one place: a commit, a wait that leaves ``count`` groups (None: no wait), a rendezvous of
    the lanes of each warp, and one of the ``crossing`` warps."""

    commit: bool = False
    count: int | None = None
    lanes: bool = False
    crossing: frozenset[int] = frozenset()

    def __or__(self, other: Wanted) -> Wanted:
        counts = [c for c in (self.count, other.count) if c is not None]
        return Wanted(
            self.commit or other.commit,
            min(counts, default=None),
            self.lanes or other.lanes,
            self.crossing | other.crossing,
        )

    def syncs(self, place: str, warps: int) -> list[Sync]:
        """The fewest syncs that do it: commit, one wait, one rendezvous."""
        out: list[Sync] = []
        if self.commit:
            out.append(make(SyncKind.COPY_COMMIT, place))
        if self.count is not None:
            out.append(make(SyncKind.COPY_WAIT, place, count=self.count))
        # Lanes of further warps take part in a rendezvous of warps as well.
        crossing = frozenset(range(warps)) if self.lanes and self.crossing else self.crossing
        if len(crossing) == warps > 1:
            out.append(make(SyncKind.BLOCK, place, "all warps"))
        elif len(crossing) > 1:
            out.append(make(SyncKind.NAMED, place, "warps " + ",".join(map(str, sorted(crossing)))))
        elif self.lanes:
            out.append(make(SyncKind.WARP, place, "each warp"))
        return out


def wanted(needs: list[tuple[Key, Dependence | None]], state: State) -> Wanted:
    """What orders all needs at one place."""
    ages = [age for k, d in needs if (age := state[k].age) is not None and (d is None or d.awaits)]
    commit = OPEN in ages
    scopes = [d.scope for k, d in needs if d is not None and not _met(state[k], d)]
    return Wanted(
        commit,
        min(ages) + commit if ages else None,
        any(s.lanes for s in scopes),
        frozenset[int]().union(*(s.warps for s in scopes)),
    )


def make(kind: SyncKind, place: str, participants: str = "each thread", count: int | None = None) -> Sync:
    """A sync whose id, protected pairs and reason are filled in when the plan is finished."""
    return Sync("", kind, place, participants, count, None, (), None, "")


def _met(pending: Pending, dependence: Dependence) -> bool:
    """Has a rendezvous since the access covered the threads of both sides?"""
    scope = dependence.scope
    if scope.private:
        return True
    if scope.warps:
        return any(isinstance(m, tuple) and scope.warps <= set(m) for m in pending.met)
    return "warp" in pending.met


def apply(state: State, sync: Sync) -> State:
    """The state after a sync."""
    match sync.kind:
        case SyncKind.COPY_COMMIT:
            return {k: p if p.age is None else replace(p, age=min(p.age + 1, OLDEST)) for k, p in state.items()}
        case SyncKind.COPY_WAIT:
            limit = sync.count or 0
            return {
                k: replace(p, age=None, met=frozenset()) if p.age is not None and p.age >= limit else p
                for k, p in state.items()
            }
        case SyncKind.BLOCK:
            return {k: p for k, p in state.items() if p.age is not None}
        case SyncKind.WARP | SyncKind.NAMED:
            mark = "warp" if sync.kind is SyncKind.WARP else sync.warps
            return {k: p if p.age is not None else replace(p, met=p.met | {mark}) for k, p in state.items()}
    return state


def join(a: State, b: State) -> State:
    """Either state may hold: what is pending in one is pending, with the least that both promise."""
    out = dict(a)
    for key, other in b.items():
        mine = out.get(key)
        if mine is None:
            out[key] = other
            continue
        ages = [p.age for p in (mine, other) if p.age is not None]
        out[key] = Pending(min(ages) if ages else None, mine.met & other.met, mine.passed or other.passed)
    return out


def readers_of(nodes: tuple[Node, ...], facts_: Facts, rings: tuple[str, ...], loop: str) -> tuple[str, ...]:
    """Steps inside a loop that read rings filled ahead there."""
    repeat = next(n for n in walk(nodes) if isinstance(n, Repeat) and n.loop.id == loop)
    return tuple(
        n.step.id
        for n in walk(repeat.body)
        if isinstance(n, Issue) and facts_.touches.get(n.step.id) in rings and n.step.fills is None
    )
