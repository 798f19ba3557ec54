"""The timeline: the legal program in the order in which a schedule issues it, before any sync.

Rings that a schedule fills ahead get a prologue before their loop and a guarded fill inside it; everything else keeps
its place (insert, do not move). Producers place syncs on this timeline and lowering walks it, so both see the same
order. Every node has a ``place``, the name that syncs refer to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from tidegate.ir import legal, tir
from tidegate.ir.expr import Bin, Expr, Int, Sym, add, less, substitute, symbols
from tidegate.ir.spec import expressions

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
    """The fill of an item of ``loop`` ahead of its reader: executes ``body`` if the item is one of the loop's."""

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
    nodes = _Builder(program, ahead).block(program.body, "", None)
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
    """Builds the nodes of a program for one choice of what runs ahead."""

    program: legal.LegalProgram
    ahead: Ahead

    def __post_init__(self) -> None:
        self.groups = groups(self.program, self.ahead)

    def block(self, body: legal.Body, loop: str, index: Expr | None) -> tuple[Node, ...]:
        out: list[Node] = []
        for node in body:
            if isinstance(node, legal.Loop):
                out += self.loop(node)
            elif isinstance(node, legal.If):
                inside = self.block(node.body, loop, index)
                if inside:
                    out.append(When(node.id, node.condition, inside, node.span.line))
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

    def fill(self, loop: legal.Loop, group: Group, place: str, item: int, index: Expr) -> Guard:
        """The guarded fill of one item of a group, with the turn of its cursor. What says whether and from where the
        item is copied, conditions and integers, is worked out again for that item."""
        slice_ = _Slice(loop, group, place, item, index, self.copies(loop, group))
        turn = Turn(f"{place}/turn", group.name, "fill")
        most = loop.trips.a if isinstance(loop.trips, Bin) and loop.trips.op == "min" else loop.trips
        never = isinstance(most, Int) and item >= most.value
        body = (*slice_.nodes(loop.body), turn)
        return Guard(place, Int(0) if never else less(index, loop.trips), body, loop.id)

    def copies(self, loop: legal.Loop, group: Group) -> Mapping[str, tir.Name]:
        """The integers of a trip that a fill depends on, and the names of those that a fill ahead has instead."""
        names: set[str] = set()
        while True:
            before = set(names)
            _needed(loop.body, group, names, frozenset())
            if names == before:
                break
        mine = {s.instr.scalar for s in _own_steps(loop.body) if isinstance(s.instr, tir.LdScalar)}
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
    """The part of a loop's body that fills a group, for the trip ``index``; ``copies``: its integers' names there."""

    loop: legal.Loop
    group: Group
    place: str
    item: int
    index: Expr
    copies: Mapping[str, tir.Name]

    def nodes(self, body: legal.Body) -> tuple[Node, ...]:
        out: list[Node] = []
        for node in body:
            if isinstance(node, legal.If):
                inside = self.nodes(node.body)
                if inside:
                    renamed: dict[str, Expr] = {n: Sym(c) for n, c in self.copies.items()}
                    condition = substitute(node.condition, {self.loop.index: self.index, **renamed})
                    out.append(When(f"{self.place}/{node.id}", condition, inside, node.span.line))
            elif isinstance(node, legal.Step) and self.takes(node):
                step = replace(node, instr=self.renamed(node.instr))
                out.append(Issue(f"{self.place}/{node.id}", step, self.item, self.loop.id, self.index))
        return tuple(out)

    def takes(self, step: legal.Step) -> bool:
        return step.fills in self.group.rings or (
            isinstance(step.instr, tir.LdScalar) and step.instr.scalar in self.copies
        )

    def renamed(self, instr: tir.Instruction) -> tir.Instruction:
        known: dict[str, Expr] = {n: Sym(c) for n, c in self.copies.items()}
        changes: dict[str, Any] = {}
        for f in fields(instr):
            operand = getattr(instr, f.name)
            if isinstance(operand, tir.Window):
                origin = tuple(substitute(e, known) for e in operand.origin)
                changes[f.name] = replace(operand, origin=origin)
        if isinstance(instr, tir.LdScalar):
            changes["scalar"] = self.copies[instr.scalar]
        return replace(instr, **changes) if known else instr


def _needed(body: legal.Body, group: Group, names: set[str], around: frozenset[str]) -> None:
    """Adds the names that the fills of a group, and the integers in ``names``, depend on."""
    for node in body:
        if isinstance(node, legal.If):
            _needed(node.body, group, names, around | set(symbols(node.condition)))
        elif isinstance(node, legal.Step) and (
            node.fills in group.rings or (isinstance(node.instr, tir.LdScalar) and node.instr.scalar in names)
        ):
            names |= around | {n for e in expressions(node.instr) for n in symbols(e)}


def _own_steps(body: legal.Body) -> Iterator[legal.Step]:
    """The steps of a trip, those under conditions included, but not those of inner loops."""
    for node in body:
        if isinstance(node, legal.Step):
            yield node
        elif isinstance(node, legal.If):
            yield from _own_steps(node.body)


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
