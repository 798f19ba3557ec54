"""What a trip of a loop makes of a node: worked out once for all places that the control inside cannot tell apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from tidegate.check.automaton import Node
from tidegate.check.control import Atom, Env, Formula, Place, Reader, expression, tests_of
from tidegate.check.knowledge import Knowledge, Numbers
from tidegate.ir import expr as ex
from tidegate.ir import tir

Trip = tuple[list[Node], tuple[Atom, ...]]
"""Where a trip leads, and the sizes that it told apart."""

Table = dict[Node, Trip]


@dataclass(frozen=True)
class Asked:
    """What control inside a loop depends on: the names in bounds and addresses, conditions with their names, names that
    stand for something else in the course of a trip, and tensors whose elements are read."""

    places: frozenset[str]
    conditions: tuple[tuple[Formula, frozenset[str]], ...]
    changed: frozenset[str]
    tensors: frozenset[str]

    @property
    def names(self) -> frozenset[str]:
        return self.places.union(self.changed, *(names for _, names in self.conditions))


class Memory:
    """Trips by loop, by what its body and the knowledge of a node can see of sizes and indices, and by node."""

    def __init__(self, reader: Reader, unknown: Numbers) -> None:
        self.reader = reader
        self.unknown = unknown
        self._tables: dict[tuple[object, ...], Table] = {}
        self._loops: dict[int, tuple[tir.For, Asked]] = {}
        self._frames: dict[tuple[int, Knowledge], tuple[Knowledge, Knowledge]] = {}
        self._ends: dict[int, tuple[Place, frozenset[str]]] = {}

    def table(self, loop: tir.For, known: Knowledge, env: Env) -> Table:
        """What is known of nodes that know so much: where one trip leads them, the index of the loop being where
        ``env`` has it, or where the loop leads them, if it has no place there."""
        at = (id(loop), known)
        found = env.told.get(at)
        if found is None:
            found = env.told[at] = self._table(loop, known, env)
        return cast(Table, found)

    def _table(self, loop: tir.For, known: Knowledge, env: Env) -> Table:
        asked = self._asked(loop)
        names, truths = set(asked.places | self.unknown.names(known)), list[bool]()
        if known.values or known.facts:
            names.add(loop.index)  # what is forgotten at the end of the trip depends on it
        changed = asked.changed if loop.index in env.places else asked.changed | {loop.index}
        for formula, mine in asked.conditions:
            truth = None if mine & changed or self._noted(formula, env) else env.decided(formula)
            if truth is None:
                names |= mine
            else:
                truths.append(truth)
        todo = list(names)
        while todo:
            place = env.places.get(todo.pop())
            more = self._end(place) - names if place is not None else frozenset[str]()
            names |= more
            todo += more
        places = tuple((name, place) for name, place in env.places.items() if name in names)
        atoms = tuple((a, at) for a, at in env.atoms.items() if names.intersection(ex.symbols(a.value)))
        key = (id(loop), loop.index in env.places, tuple(truths), places, atoms, tuple(env.ends.items()))
        return self._tables.setdefault(key, {})

    def _noted(self, formula: Formula, env: Env) -> bool:
        """Is the outcome of a condition noted, even where it is clear?"""
        return any(self.unknown.related(test.value, env) for test in tests_of(formula))

    def frame(self, loop: tir.For, known: Knowledge) -> tuple[Knowledge, Knowledge]:
        """What is known in two parts: what the loop may ask for or change, and the rest, the same behind it."""
        key = (id(loop), known)
        if key not in self._frames:
            asked = self._asked(loop)
            self._frames[key] = self.unknown.parted(known, asked.names | {loop.index}, asked.tensors)
        return self._frames[key]

    def _asked(self, loop: tir.For) -> Asked:
        if id(loop) not in self._loops:  # with the loop, so that its id stays its own
            places, tensors, changed = {n for e in control(loop) for n in ex.symbols(e)}, set[str](), set[str]()
            conditions = []
            for stmt in tir.walk(loop.body):
                mine = frozenset(n for e in control(stmt) for n in ex.symbols(e))
                if isinstance(stmt, tir.If):
                    conditions.append((self.reader.formula(stmt.condition), mine))
                    continue
                places |= mine
                if isinstance(stmt, tir.For):
                    changed.add(stmt.index)
                elif isinstance(stmt, tir.LdScalar):
                    changed.add(stmt.scalar)
                    tensors.add(stmt.src.tensor)
            found = Asked(frozenset(places), tuple(conditions), frozenset(changed), frozenset(tensors))
            self._loops[id(loop)] = loop, found
        return self._loops[id(loop)][1]

    def _end(self, place: Place) -> frozenset[str]:
        """The names in the end of a loop."""
        if id(place) not in self._ends:
            self._ends[id(place)] = place, frozenset(ex.symbols(expression(place.end)))
        return self._ends[id(place)][1]


def control(stmt: tir.Stmt) -> tuple[ex.Expr, ...]:
    """The expressions of a statement on which control may depend."""
    match stmt:
        case tir.For():
            return stmt.start, stmt.stop
        case tir.If():
            return (stmt.condition,)
        case tir.LdScalar():
            return (*stmt.src.origin, *(b for b in stmt.src.bounds if b is not None))
    return ()
