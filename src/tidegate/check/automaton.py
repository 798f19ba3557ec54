"""The states of one kernel as an automaton: what straight statements make of a state is worked out once per kind.

States with one key have the same future, so they are one *kind*, whatever run has led to them: other trip counts, other
sizes, other CTAs. A kind remembers where each straight piece of the kernel leads. The steps in the log of a state are
those of the run that came first; a run whose steps are shown is replayed with ``shared=False``. A *node* is a kind with
what a run knows of numbers, on which control depends and no straight statement.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING

from tidegate.check.control import Undecided
from tidegate.check.knowledge import NOTHING, Knowledge
from tidegate.check.state import At, Fault, State
from tidegate.ir import tir
from tidegate.ir.text import print_stmt

if TYPE_CHECKING:
    from tidegate.check.machine import Machine

Observer = Callable[[State, tir.Stmt], None]


@dataclass(frozen=True, eq=False)
class Straight:
    """Statements without control between them, and those of them that the machine has to see."""

    stmts: tuple[tir.Stmt, ...]
    effective: tuple[tir.Stmt, ...]


Part = Straight | tir.For | tir.If | tir.LdScalar


CONTROL = (tir.For, tir.If, tir.LdScalar)
"""What depends on more than the state: on sizes and indices, and on what is known of numbers."""


class Kind:
    """A state that nobody changes any more. ``shared``: it is the only one with its key."""

    def __init__(self, machine: Machine, state: State, shared: bool) -> None:
        self.machine = machine
        self.state = state
        self.shared = shared
        self.after: dict[Straight, Kind] = {}
        self._nodes: dict[Knowledge, Node] = {}

    @cached_property
    def key(self) -> bytes:
        return self.machine.key(self.state)

    def node(self, known: Knowledge) -> Node:
        """The run that is here and knows so much: always the same node."""
        found = self._nodes.get(known)
        if found is None:
            found = self._nodes[known] = Node(self, known)
        return found


@dataclass(frozen=True, eq=False)
class Node:
    """Where a run is."""

    kind: Kind
    known: Knowledge = NOTHING

    @property
    def state(self) -> State:
        return self.kind.state

    @property
    def key(self) -> Hashable:
        """Equal for nodes with the same future."""
        return self if self.kind.shared else (self.kind.key, self.known)

    def knowing(self, known: Knowledge) -> Node:
        """The node with other knowledge."""
        return self if known is self.known else self.kind.node(known)


class Automaton:
    """Kinds by key, and the steps between them."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.kinds: dict[bytes, Kind] = {}
        self._parts: dict[int, tuple[tuple[tir.Stmt, ...], tuple[Part, ...]]] = {}

    def kind(self, state: State, shared: bool = True) -> Kind:
        """The kind of a state that the caller gives away; ``shared=False``: one of its own."""
        kind = Kind(self.machine, state, shared)
        return self.kinds.setdefault(kind.key, kind) if shared else kind

    def parts(self, body: tuple[tir.Stmt, ...]) -> tuple[Part, ...]:
        """A block in straight pieces and control."""
        if id(body) not in self._parts:  # with the body, so that its id stays its own
            self._parts[id(body)] = (body, tuple(self._split(body)))
        return self._parts[id(body)][1]

    def execute(self, node: Node, part: Straight, at: At, observe: Observer | None, shared: bool) -> tuple[Node, int]:
        """The node behind a straight piece, and how many statements were executed."""
        machine = self.machine
        state = node.state.copy()
        for stmt in part.effective if observe is None else part.stmts:
            if observe is not None:
                observe(state, stmt)
            if not machine.step(state, stmt, at):
                if isinstance(stmt, tir.BarSync) and len(stmt.warps) < machine.kernel.warps:
                    raise Undecided(f"{print_stmt(stmt)} holds up some warps only; all are replayed together")
                raise Fault("deadlock", stmt, at, state=state, group=machine.everyone)
        behind = self.kind(state, shared)
        if shared:
            node.kind.after[part] = behind
        return behind.node(node.known), len(part.effective) + 1

    def _split(self, body: tuple[tir.Stmt, ...]) -> Iterator[Part]:
        for control, run in groupby(body, lambda stmt: isinstance(stmt, CONTROL)):
            stmts = tuple(run)
            if not control:
                yield Straight(stmts, tuple(s for s in stmts if self.machine.sees(s)))
            else:
                yield from (s for s in stmts if isinstance(s, CONTROL))


def distinct(nodes: list[Node]) -> list[Node]:
    """One node of every key."""
    return list({node.key: node for node in reversed(nodes)}.values()) if len(nodes) > 1 else nodes
