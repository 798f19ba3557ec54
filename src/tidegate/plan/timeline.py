"""The timeline: the legal program in the order in which a schedule issues it, before any sync.

Rings that a schedule fills ahead get a prologue before their loop and a guarded fill inside it; everything else keeps
its place (insert, do not move). Producers place syncs on this timeline and lowering walks it, so both see the same
order. Every node has a ``place``, the name that syncs refer to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tidegate.ir import legal
from tidegate.ir.expr import Bin, Expr, Int, Sym, add, less

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
    """Executes ``body`` if the uniform condition holds."""

    place: str
    condition: Expr
    body: tuple[Node, ...]


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


Node = Issue | Guard | Repeat | Turn


@dataclass(frozen=True)
class Group:
    """Rings of one loop that turn together, filled ``ahead`` items before they are read."""

    name: str
    loop: str
    rings: tuple[str, ...]
    depth: int
    ahead: int


Ahead = Mapping[str, int]
"""Ring -> how many items ahead of the reader it is filled."""


def groups(program: legal.LegalProgram, ahead: Ahead) -> tuple[Group, ...]:
    """The channels of a schedule: rings of several slots by loop, depth and distance."""
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


def timeline(program: legal.LegalProgram, ahead: Ahead) -> tuple[Node, ...]:
    """All nodes, loops nested, for fills that run ``ahead``."""
    return _Builder(program, ahead).block(program.body, "", None)


@dataclass
class _Builder:
    """Builds the nodes of a program for one choice of what runs ahead."""

    program: legal.LegalProgram
    ahead: Ahead

    def __post_init__(self) -> None:
        self.groups = groups(self.program, self.ahead)

    def block(self, body: tuple[legal.Step | legal.Loop, ...], loop: str, index: Expr | None) -> tuple[Node, ...]:
        out: list[Node] = []
        for node in body:
            if isinstance(node, legal.Loop):
                out += self.loop(node)
            elif not self.is_ahead(node):
                out.append(Issue(node.id, node, 0, loop, index))
        return tuple(out)

    def is_ahead(self, step: legal.Step) -> bool:
        return step.fills is not None and self.ahead.get(step.fills, 0) > 0

    def loop(self, loop: legal.Loop) -> list[Node]:
        mine = [g for g in self.groups if g.loop == loop.id]
        running = [g for g in mine if g.ahead > 0]
        depth = max((g.ahead for g in running), default=0)
        out: list[Node] = []
        for turn in range(-depth, 0):
            for g in running:
                item = turn + g.ahead
                if item >= 0:
                    out.append(self.fill(loop, g, f"{loop.id}.pro{turn + depth}.{g.name}", item, Int(item)))
        body = list(self.block(loop.body, loop.id, Sym(loop.index)))
        lead = self.leading_fills(body)
        fills = [
            self.fill(loop, g, f"{loop.id}.ahead.{g.name}", g.ahead, add(Sym(loop.index), g.ahead)) for g in running
        ]
        body[lead:lead] = fills
        for g in mine:
            body.append(Turn(f"{loop.id}.turn.{g.name}", g.name, "read" if g.ahead else "both"))
        out.append(Repeat(loop.id, loop, tuple(body)))
        return out

    def leading_fills(self, body: list[Node]) -> int:
        """How many nodes at the head of a body are fills of rings that do not run ahead.

        They go first, so that their group is older than the group of the fills that do run ahead.
        """
        count = 0
        while count < len(body):
            node = body[count]
            if not isinstance(node, Issue) or node.step.fills is None:
                break
            count += 1
        return count

    def fill(self, loop: legal.Loop, group: Group, place: str, item: int, index: Expr) -> Guard:
        """The guarded fill of one item of a group, with the turn of its cursor."""
        issues = [
            Issue(f"{place}/{step.id}", step, item, loop.id, index)
            for step in _own_steps(loop.body)
            if step.fills in group.rings
        ]
        turn = Turn(f"{place}/turn", group.name, "fill")
        most = loop.trips.a if isinstance(loop.trips, Bin) and loop.trips.op == "min" else loop.trips
        never = isinstance(most, Int) and item >= most.value
        return Guard(place, Int(0) if never else less(index, loop.trips), (*issues, turn))


def _own_steps(body: tuple[legal.Step | legal.Loop, ...]) -> Iterator[legal.Step]:
    return (node for node in body if isinstance(node, legal.Step))


def walk(nodes: tuple[Node, ...]) -> Iterator[Node]:
    """All nodes in order."""
    for node in nodes:
        yield node
        if isinstance(node, (Guard, Repeat)):
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
        if isinstance(node, (Guard, Repeat)):
            yield from _blocks(node.body)
