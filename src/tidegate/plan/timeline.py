"""The timeline: the legal program in the order in which a schedule issues it, before any sync.

Rings that a schedule fills ahead get a prologue before their loop and a guarded fill inside it; reads that it issues
early stand before the loop and at the end of a trip, for the next one; everything else keeps its place (insert, do not
move). A fill ahead works out again what it depends on, conditions and integers, for its own trip. Producers place syncs
on this timeline and lowering walks it, so both see the same order. Every node has a ``place``, the name that syncs
refer to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from tidegate.ir import legal, tir
from tidegate.ir.expr import Bin, Expr, Int, Sym, add, less, substitute, symbols
from tidegate.ir.spec import expressions, with_names
from tidegate.plan.pipeline import Schedule, last_product, own_steps

END = "end"
"""The place behind the last node."""


@dataclass(frozen=True)
class Issue:
    """Issues ``step`` for loop index ``index`` (of ``loop``, "" outside loops). ``item`` counts from the reader's
    current item of the step's ring."""

    place: str
    step: legal.Step
    item: int
    loop: str
    index: Expr | None


@dataclass(frozen=True)
class Guard:
    """What is issued ahead for an item of ``loop``, a fill or early reads: executes ``body`` if there is the item."""

    place: str
    condition: Expr
    body: tuple[Node, ...]
    loop: str


@dataclass(frozen=True)
class When:
    """A condition of the legal program: executes ``body`` if it holds."""

    place: str
    condition: Expr
    body: tuple[Node, ...]
    line: int


@dataclass(frozen=True)
class Repeat:
    """A loop of the legal program, its body in issue order."""

    place: str
    loop: legal.Loop
    body: tuple[Node, ...]


@dataclass(frozen=True)
class Turn:
    """One more executed use of a channel: ``side`` is fill, read, or both (one cursor)."""

    place: str
    channel: str
    side: str


Node = Issue | Guard | When | Repeat | Turn


@dataclass(frozen=True)
class Group:
    """Rings of one loop that turn together, filled ``ahead`` items before they are read."""

    name: str
    loop: str
    rings: tuple[str, ...]
    depth: int
    ahead: int


def groups(program: legal.LegalProgram, ahead: Mapping[str, int]) -> tuple[Group, ...]:
    """The channels of a schedule: rings of several slots by loop, depth and distance (``ahead``, by ring)."""
    found: dict[tuple[str, int, int], list[str]] = {}
    for ring in program.rings:
        if ring.stages > 1 and ring.loop:
            found.setdefault((ring.loop, ring.stages, ahead.get(ring.name, 0)), []).append(ring.name)
    out = []
    for (loop, depth, distance), rings in found.items():
        alone = sum(key[0] == loop for key in found) == 1
        name = loop if alone else f"{loop}_{rings[0]}"
        out.append(Group(name, loop, tuple(rings), depth, distance))
    return tuple(out)


def timeline(program: legal.LegalProgram, schedule: Schedule) -> tuple[Node, ...]:
    """All nodes, loops nested, for a schedule."""
    nodes = _Builder(program, schedule).block(program.body, "", None)
    while (kept := _read(nodes, frozenset(_names(nodes)))) != nodes:
        nodes = kept
    return nodes


def _names(nodes: tuple[Node, ...]) -> Iterator[str]:
    """The names that nodes evaluate."""
    for node in walk(nodes):
        match node:
            case Issue():
                yield from (n for e in expressions(node.step.instr) for n in symbols(e))
            case Guard() | When():
                yield from symbols(node.condition)
            case Repeat():
                yield from symbols(node.loop.trips)


def _read(nodes: tuple[Node, ...], names: frozenset[str]) -> tuple[Node, ...]:
    """The nodes without integers that nothing reads, as only a fill elsewhere did, and without empty conditions."""
    out: list[Node] = []
    for node in nodes:
        if isinstance(node, (Guard, When, Repeat)):
            node = replace(node, body=_read(node.body, names))
            if isinstance(node, When) and not node.body:
                continue
        elif isinstance(node, Issue) and getattr(node.step.instr, "scalar", None) not in (None, *names):
            continue
        out.append(node)
    return tuple(out)


@dataclass
class _Builder:
    """Builds the nodes of a program for one schedule."""

    program: legal.LegalProgram
    schedule: Schedule

    def __post_init__(self) -> None:
        self.groups = groups(self.program, self.schedule.ahead)

    def block(self, body: legal.Body, loop: str, index: Expr | None) -> tuple[Node, ...]:
        out: list[Node] = []
        for node in body:
            if isinstance(node, legal.Loop):
                out += self.loop(node)
            elif isinstance(node, legal.If):
                inside = self.block(node.body, loop, index)
                if inside:
                    out.append(When(node.id, node.condition, inside, node.span.line))
            elif not self.is_ahead(node) and node.id not in self.schedule.early:
                out.append(Issue(node.id, node, 0, loop, index))
        return tuple(out)

    def is_ahead(self, step: legal.Step) -> bool:
        return step.fills is not None and self.schedule.ahead.get(step.fills, 0) > 0

    def loop(self, loop: legal.Loop) -> list[Node]:
        mine = [g for g in self.groups if g.loop == loop.id]
        early = [s for s in own_steps(loop.body) if s.id in self.schedule.early]
        body = self.body(loop, mine)
        turns = {g.name: Turn(f"{loop.id}.turn.{g.name}", g.name, "read" if g.ahead else "both") for g in mine}
        if early:
            end = last_product(loop.body)
            at = next(i for i, n in enumerate(body) if end and n.place == end.id)
            passed = [turns.pop(g.name) for g in mine if g.ahead]
            following = self.early(loop, f"{loop.id}.next", early, add(Sym(loop.index), 1))
            body[at:at] = [*passed, following]
        repeat = Repeat(loop.id, loop, (*body, *turns.values()))
        first = [self.early(loop, f"{loop.id}.first", early, Int(0))] if early else []
        return [*self.prologue(loop, mine), *first, repeat]

    def prologue(self, loop: legal.Loop, mine: list[Group]) -> list[Node]:
        depth = max((g.ahead for g in mine), default=0)
        out: list[Node] = []
        for turn in range(-depth, 0):
            for g in mine:
                item = turn + g.ahead
                if g.ahead and item >= 0:
                    out.append(self.fill(loop, g, f"{loop.id}.pro{turn + depth}.{g.name}", item, Int(item)))
        return out

    def body(self, loop: legal.Loop, mine: list[Group]) -> list[Node]:
        """The body with the fills that run ahead where the schedule has them: at its head, or before a step."""
        body = self.hastened(self.block(loop.body, loop.id, Sym(loop.index)))
        spots: dict[str, list[tuple[Group, tuple[str, ...]]]] = {}
        for g in mine:
            if g.ahead:
                for spot in dict.fromkeys(self.schedule.fills.get(r, "") for r in g.rings):
                    rings = tuple(r for r in g.rings if self.schedule.fills.get(r, "") == spot)
                    spots.setdefault(spot, []).append((g, rings))
        order = {n.place: i for i, n in enumerate(body)}
        lead = self.leading_fills(body)
        last: dict[str, int] = {}
        where = {spot: order[spot] if spot else lead for spot in spots}
        for spot, found in spots.items():
            for g, _ in found:
                last[g.name] = max(last.get(g.name, 0), where[spot])
        for spot in sorted(spots, key=lambda s: -where[s]):
            fills = []
            for g, rings in spots[spot]:
                name = g.name if rings == g.rings else f"{g.name}.{rings[0]}"
                place, ends = f"{loop.id}.ahead.{name}", where[spot] == last[g.name]
                fills.append(self.fill(loop, g, place, g.ahead, add(Sym(loop.index), g.ahead), rings, ends))
            body[where[spot] : where[spot]] = fills
        return body

    def hastened(self, nodes: tuple[Node, ...]) -> list[Node]:
        """The nodes with ``sooner`` steps before the product that precedes them."""
        out: list[Node] = []
        product = 0
        for node in nodes:
            if isinstance(node, Issue) and node.step.id in self.schedule.sooner:
                out.insert(product, node)
                product += 1
                continue
            if isinstance(node, Issue) and isinstance(node.step.instr, tir.Mma):
                product = len(out)
            out.append(node)
        return out

    def early(self, loop: legal.Loop, place: str, steps: list[legal.Step], index: Expr) -> Guard:
        """The reads of a trip's item that are issued before the trip, if there is such a trip."""
        issues = tuple(Issue(f"{place}/{s.id}", s, 0, loop.id, index) for s in steps)
        return Guard(place, less(index, loop.trips), issues, loop.id)

    def leading_fills(self, body: list[Node]) -> int:
        """How many nodes at the head of a body are fills of rings that do not run ahead.

        They go first, with the integers that they name, so that their group is older than the group of the fills that
        do run ahead.
        """
        count = 0
        for at, node in enumerate(body):
            if isinstance(node, Issue) and node.step.fills is not None:
                count = at + 1
            elif not isinstance(node, Issue) or not isinstance(node.step.instr, tir.LdScalar):
                break
        return count

    def fill(
        self,
        loop: legal.Loop,
        group: Group,
        place: str,
        item: int,
        index: Expr,
        rings: tuple[str, ...] = (),
        ends: bool = True,
    ) -> Guard:
        """The guarded fill of one item of a group, or of some of its ``rings``; ``ends``: with the turn of its cursor.
        What says whether and from where the item is copied, conditions and integers, is worked out again for it."""
        filled = frozenset(rings or group.rings)
        slice_ = _Slice(loop, filled, place, item, index, self.copies(loop, filled))
        turn = [Turn(f"{place}/turn", group.name, "fill")] if ends else []
        most = loop.trips.a if isinstance(loop.trips, Bin) and loop.trips.op == "min" else loop.trips
        never = isinstance(most, Int) and item >= most.value
        return Guard(place, Int(0) if never else less(index, loop.trips), (*slice_.nodes(loop.body), *turn), loop.id)

    def copies(self, loop: legal.Loop, rings: frozenset[str]) -> Mapping[str, tir.Name]:
        """The integers of a trip that a fill depends on, and the names of those that a fill ahead has instead."""
        names: set[str] = set()
        before = None
        while before != names:
            before = set(names)
            _needed(loop.body, rings, names, frozenset())
        mine = {s.instr.scalar for s in _of_trip(loop.body) if isinstance(s.instr, tir.LdScalar)}
        taken = names_of(self.program)
        found: dict[str, tir.Name] = {}
        for name in sorted(names & mine):
            copy = f"{name}_ahead"
            while copy in taken:
                copy += "_"
            found[name] = tir.Name(copy)
        return found


@dataclass(frozen=True)
class _Slice:
    """The part of a loop's body that fills rings, for the trip ``index``; ``copies``: its integers' names there."""

    loop: legal.Loop
    rings: frozenset[str]
    place: str
    item: int
    index: Expr
    copies: Mapping[str, tir.Name]

    def nodes(self, body: legal.Body) -> tuple[Node, ...]:
        renamed: dict[str, Expr] = {n: Sym(c) for n, c in self.copies.items()}
        out: list[Node] = []
        for node in body:
            if isinstance(node, legal.If):
                if inside := self.nodes(node.body):
                    condition = substitute(node.condition, {self.loop.index: self.index, **renamed})
                    out.append(When(f"{self.place}/{node.id}", condition, inside, node.span.line))
            elif isinstance(node, legal.Step) and (instr := self.taken(node)) is not None:
                step = replace(node, instr=with_names(instr, renamed))
                out.append(Issue(f"{self.place}/{node.id}", step, self.item, self.loop.id, self.index))
        return tuple(out)

    def taken(self, step: legal.Step) -> tir.Instruction | None:
        """The instruction of a step of this part."""
        if isinstance(step.instr, tir.LdScalar):
            copy = self.copies.get(step.instr.scalar)
            return None if copy is None else replace(step.instr, scalar=copy)
        return step.instr if step.fills in self.rings else None


def _needed(body: legal.Body, rings: frozenset[str], names: set[str], around: frozenset[str]) -> None:
    """Adds the names that the fills of rings, and the integers in ``names``, depend on."""
    for node in body:
        if isinstance(node, legal.If):
            _needed(node.body, rings, names, around | set(symbols(node.condition)))
        elif isinstance(node, legal.Step) and (
            node.fills in rings or (isinstance(node.instr, tir.LdScalar) and node.instr.scalar in names)
        ):
            names |= around | {n for e in expressions(node.instr) for n in symbols(e)}


def _of_trip(body: legal.Body) -> Iterator[legal.Step]:
    """The steps of a trip, those under conditions included, but not those of inner loops."""
    for node in body:
        if isinstance(node, legal.Step):
            yield node
        elif isinstance(node, legal.If):
            yield from _of_trip(node.body)


def names_of(program: legal.LegalProgram) -> set[str]:
    """The names that a kernel's declarations and indices have, cursors aside."""
    p = program
    declared = [d.name for group in (p.dims, p.params, p.grid, p.registers, p.scalars) for d in group]
    return {*declared, *(r.name for r in p.rings), *(n for n, _ in p.layouts), *(i.index for i in legal.loops(p.body))}


def walk(nodes: tuple[Node, ...]) -> Iterator[Node]:
    """All nodes in order."""
    for node in nodes:
        yield node
        if isinstance(node, (Guard, When, Repeat)):
            yield from walk(node.body)


def after(nodes: tuple[Node, ...], place: str) -> str:
    """The place of the node that follows the one at ``place`` in its block (END behind the last)."""
    for block in _blocks(nodes):
        for at, node in enumerate(block):
            if node.place == place:
                return block[at + 1].place if at + 1 < len(block) else END
    raise ValueError(f"no node at {place}")


def _blocks(nodes: tuple[Node, ...]) -> Iterator[tuple[Node, ...]]:
    yield nodes
    for node in nodes:
        if isinstance(node, (Guard, When, Repeat)):
            yield from _blocks(node.body)
