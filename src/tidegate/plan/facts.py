"""What a walk over a timeline needs to know of a program: channels, dependences, sizes, and what names can be."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from math import inf

from tidegate.analyze.depend import Dependence
from tidegate.ir import legal, tir
from tidegate.ir.expr import Bin, Expr, Int, Sym, evaluate, parts, symbols
from tidegate.plan.conditions import Conditions, Given
from tidegate.plan.timeline import Group, Issue, Node, walk

MOST_SPLITS = 3
"""Sizes that are taken to be 0 or not, each in its own walk; of further ones nothing is known."""

RISING = ("+", "*", "/", "cdiv", "min", "max")
"""Operators of numbers from 0 on whose result falls with no operand but a divisor."""


Values = tuple[int | None, ...]
"""What is known of some names."""


@dataclass(frozen=True)
class Facts:
    """What the walk needs to know of the program. ``cases``: per size that loops depend on, whether it is 0; every
    run falls into one of them. ``held``: integers that are read from one place all the time, by names of places. The
    last fields keep what walks have worked out: they ask the same over and over."""

    program: legal.LegalProgram
    groups: tuple[Group, ...]
    dependences: tuple[Dependence, ...]
    touches: Mapping[str, str]
    copies: frozenset[str]
    cases: tuple[Mapping[str, bool], ...]
    indices: frozenset[str]
    scalars: frozenset[str]
    conditions: Conditions
    held: Mapping[str, Expr]
    simple: dict[tuple[Expr, Values], Expr] = field(default_factory=dict, compare=False, repr=False)
    truths: dict[tuple[Expr, Given, Values], bool | None] = field(default_factory=dict, compare=False, repr=False)
    _names: dict[Expr, tuple[str, ...]] = field(default_factory=dict, compare=False, repr=False)

    def names(self, e: Expr) -> tuple[str, ...]:
        if e not in self._names:
            self._names[e] = tuple(dict.fromkeys(symbols(e)))
        return self._names[e]

    def group(self, ring: str) -> Group | None:
        return next((g for g in self.groups if ring in g.rings), None)

    def open(self, trips: Expr) -> bool:
        """Can the number of trips be 0 for other reasons than that a size is 0?"""
        names = set(symbols(trips))
        if names & self.scalars or any(isinstance(p, Bin) and p.op not in RISING for p in parts(trips)):
            return True
        return bool(names) and evaluate(trips, {n: 0 if n in self.indices else 2**20 for n in names}) < 1

    def depth(self, ring: str) -> int:
        group = self.group(ring)
        return group.depth if group else 1


def facts(
    program: legal.LegalProgram,
    groups: tuple[Group, ...],
    dependences: tuple[Dependence, ...],
    touches: Mapping[str, str],
    nodes: Iterable[Node] = (),
) -> Facts:
    """``touches``: step -> ring or tensor that it accesses. ``nodes``: the timeline."""
    copies = frozenset(s.id for s in legal.steps(program.body) if type(s.instr).completes is tir.Completion.COPY_GROUP)
    indices = frozenset(a.name for a in program.grid) | {loop.index for loop in legal.loops(program.body)}
    scalars = frozenset(s.name for s in program.scalars)
    held = dict(_held(program, nodes))
    conditions = Conditions(_ranges(program, scalars | {str(e) for e in held.values()}))
    known = Facts(program, groups, dependences, touches, copies, (), indices, scalars, conditions, held)
    return replace(known, cases=_cases(program, known))


def _ranges(program: legal.LegalProgram, signed: Collection[str]) -> dict[str, tuple[float, float]]:
    """What values names have: sizes and indices count from 0."""
    found: dict[str, tuple[float, float]] = {d.name: (0, inf) for d in program.dims}
    found |= {loop.index: (0, inf) for loop in legal.loops(program.body)}
    for axis in program.grid:
        found[axis.name] = (0, axis.extent.value - 1 if isinstance(axis.extent, Int) else inf)
    return found | dict.fromkeys(signed, (-inf, inf))


def _held(program: legal.LegalProgram, nodes: Iterable[Node]) -> Iterator[tuple[str, Expr]]:
    """Inputs do not change, so what is read from one place of them is one number all the time."""
    still = {d.name for d in program.dims} | {axis.name for axis in program.grid}
    inputs = {p.name for p in program.params if not p.output}
    places: dict[str, set[str]] = {}
    for node in walk(tuple(nodes)):
        if isinstance(node, Issue) and isinstance(instr := node.step.instr, tir.LdScalar):
            place = (*instr.src.origin, *(b for b in instr.src.bounds if b is not None))
            fixed = instr.src.tensor in inputs and all(n in still for e in place for n in symbols(e))
            text = f"{instr.src.tensor}[{', '.join(map(str, instr.src.origin))}]" if fixed else ""
            places.setdefault(instr.scalar, set()).add(text)
    for name, found in places.items():
        if len(found) == 1 and found != {""}:
            yield name, Sym(found.pop())


def _cases(program: legal.LegalProgram, facts: Facts) -> tuple[Mapping[str, bool], ...]:
    """Loops over one size run zero times together, and never where a grid over that size has a CTA."""
    closed = [loop.trips for loop in legal.loops(program.body) if not facts.open(loop.trips)]
    used = dict.fromkeys(n for trips in closed for n in symbols(trips))
    loops = [n for n in used if n not in facts.indices]  # a limit by an index is never 0
    run = {n for axis in program.grid for n in symbols(axis.extent)}
    free = [n for n in loops if n not in run][:MOST_SPLITS]
    known = dict.fromkeys(run, False)
    return tuple({**known, **dict(zip(free, some, strict=True))} for some in product((False, True), repeat=len(free)))
