"""The state of one legalisation: names handed out, and the steps collected so far."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from tidegate.errors import Span
from tidegate.ir import hir, legal, tir
from tidegate.ir.dtypes import DType
from tidegate.ir.layout import Coord, Layout, Swizzle
from tidegate.legalise.layouts import SharedAccess, choose_swizzle


@dataclass
class Builder:
    """Collects steps, registers, rings and layouts; every name it returns is new and valid in TIR text."""

    warps: int
    taken: set[str]
    layouts: dict[Layout, str] = field(default_factory=dict)
    registers: list[tir.Register] = field(default_factory=list)
    rings: dict[str, legal.Ring] = field(default_factory=dict)
    accesses: dict[str, list[SharedAccess]] = field(default_factory=dict)
    steps: list[legal.Node] = field(default_factory=list)
    scalars: list[tir.Scalar] = field(default_factory=list)
    step_ids: set[str] = field(default_factory=set)

    def fresh(self, hint: str) -> str:
        hint = re.sub(r"[^A-Za-z0-9_]", "_", hint)  # the author's names may be beyond ASCII
        name, number = hint, 1
        while name in self.taken or name in ("inf", "nan"):  # numbers in TIR text
            number += 1
            name = f"{hint}{number}"
        self.taken.add(name)
        return name

    def layout(self, layout: Layout, hint: str) -> tir.Name:
        if layout not in self.layouts:
            self.layouts[layout] = self.fresh(hint)
        return tir.Name(self.layouts[layout])

    def register(self, hint: str, dtype: DType, layout: Layout, layout_hint: str = "tile") -> tir.Name:
        name = tir.Name(self.fresh(hint))
        self.registers.append(tir.Register(name, dtype, self.layout(layout, layout_hint)))
        return name

    def register_layout(self, name: str) -> Layout:
        wanted = next(r.layout for r in self.registers if r.name == name)
        return next(layout for layout, n in self.layouts.items() if n == wanted)

    def ring(
        self, hint: str, dtype: DType, shape: Coord, stages: int, loop: str | None, staged: bool, span: Span
    ) -> str:
        name = self.fresh(hint)
        self.rings[name] = legal.Ring(name, dtype, shape, stages, Swizzle(), loop, staged, span)
        self.accesses[name] = []
        return name

    def touch(self, ring: str, access: SharedAccess) -> None:
        if access not in self.accesses[ring]:
            self.accesses[ring].append(access)

    def step(self, kind: str, instr: tir.Instruction, span: Span, fills: str | None = None) -> None:
        """Appends a step; its id is the kind with a number when needed."""
        step_id, number = kind, 1
        while step_id in self.step_ids:
            number += 1
            step_id = f"{kind}{number}"
        self.step_ids.add(step_id)
        self.steps.append(legal.Step(step_id, replace(instr, line=span.line), span, fills))

    def finished_rings(self) -> tuple[legal.Ring, ...]:
        """The rings with the swizzles that their accesses want."""
        return tuple(
            replace(r, swizzle=choose_swizzle(r.shape, r.dtype.size, tuple(self.accesses[r.name])))
            for r in self.rings.values()
        )


def use_counts(body: hir.Body) -> dict[int, int]:
    """How often each value is read (being carried into or out of a loop, or out of a branch, counts)."""
    counts: dict[int, int] = {}
    for node in hir.walk(body):
        for value in hir.reads(node):
            counts[value.id] = counts.get(value.id, 0) + 1
    return counts


def coalesce(body: hir.Body, layouts: Mapping[int, Layout]) -> dict[int, int]:
    """Values that may share a register with a loop-carried one: id -> id of the value ``inside`` the loop.

    The value behind the loop always may. The initial value may when the loop is its only reader. The yielded value may
    when it is made in the loop's body after the last other read of ``inside`` (its own op may read it in place). All
    of them only where their layouts agree.
    """
    counts = use_counts(body)
    shared: dict[int, int] = {}
    parents: dict[int, tuple[hir.Loop, hir.Carried]] = {}
    for loop in (n for n in hir.walk(body) if isinstance(n, hir.Loop)):
        for c in loop.carried:
            home = shared.setdefault(c.inside.id, c.inside.id)
            shared[c.after.id] = home
            if layouts[c.initial.id] == layouts[c.inside.id] and counts.get(c.initial.id) == 1:
                beside = c.initial.id not in shared and _made_beside(body, loop, c.initial.id)
                if beside and _free_at(parents.get(c.inside.id), c.initial.id):
                    shared[c.initial.id] = home
            maker = [k for n in loop.body if isinstance(n, hir.Loop) for k in n.carried if k.after.id == c.yielded.id]
            source = maker[0].inside if maker else c.yielded  # the value behind a loop lies where its inside lay
            if layouts[source.id] == layouts[c.inside.id] and _takes_over(loop, c):
                shared[c.yielded.id] = shared[source.id] = home
                parents.update({k.inside.id: (loop, c) for k in maker})
                for value in _sides_taking_over(loop, c):
                    if counts.get(value.id) == 1 and layouts[value.id] == layouts[c.inside.id]:
                        shared[value.id] = home
    return shared


def _sides_taking_over(loop: hir.Loop, carried: hir.Carried) -> Iterator[hir.Value]:
    """Values that the branch which makes the yielded value merges into it, and that may be made in the register of
    ``inside``: nothing on their side reads that later."""
    inside = carried.inside.id
    maker = loop.body[_definitions(loop.body)[carried.yielded.id]]
    if not isinstance(maker, hir.Branch):
        return
    for side, merged in (
        (maker.then, [(m.then, m) for m in maker.merged]),
        (maker.otherwise, [(m.otherwise, m) for m in maker.merged]),
    ):
        made, last = _definitions(side), max(_reads(side).get(inside, [-1]))
        for value, m in merged:
            others = [v.id for v, other in merged if other is not m]
            at = made.get(value.id, -1)
            mine = m.after.id == carried.yielded.id and inside not in others
            if mine and at >= max(last, 0) and not hir.bodies(side[at]):
                yield value


def _takes_over(loop: hir.Loop, carried: hir.Carried) -> bool:
    """May the yielded value be made in the register of ``inside``? Nothing may read ``inside`` later: no op, no other
    yield, and no inner loop but the one that makes it, which may start from it."""
    inside, yielded = carried.inside.id, carried.yielded.id
    at = _definitions(loop.body).get(yielded)
    yields = [c.yielded.id for c in loop.carried]
    if at is None or yields.count(yielded) > 1 or inside in yields:
        return False
    if max(_reads(loop.body).get(inside, [-1])) > at:
        return False
    maker = loop.body[at]
    if not isinstance(maker, hir.Loop):
        return True
    starts = [k for k in maker.carried if k.initial.id == inside]
    return _reads((maker,)).get(inside, []).count(0) == len(starts) and all(k.after.id == yielded for k in starts)


def _free_at(parent: tuple[hir.Loop, hir.Carried] | None, initial: int) -> bool:
    """Is the register of the enclosing loop's carried value free where ``initial`` is made?"""
    if parent is None:
        return True
    loop, carried = parent
    made = _definitions(loop.body)
    return initial in made and max(_reads(loop.body).get(carried.inside.id, [-1])) <= made[initial]


def _made_beside(body: hir.Body, loop: hir.Loop, value: int) -> bool:
    """Is the value made by an op in the same block as the loop, so that it is made anew each time the loop starts?"""
    if loop in body:
        return value in _definitions(body)
    return any(_made_beside(inner, loop, value) for n in body for inner in hir.bodies(n))


def _definitions(body: hir.Body) -> dict[int, int]:
    """Position in the body of the op or loop that makes each value."""
    return {value.id: at for at, node in enumerate(body) for value in hir.makes(node)}


def _reads(body: hir.Body) -> dict[int, list[int]]:
    """Positions in the body at which each value is read, inner loops included."""
    reads: dict[int, list[int]] = {}
    for at, node in enumerate(body):
        for inner in hir.walk((node,)):
            for value in hir.reads(inner):
                reads.setdefault(value.id, []).append(at)
    return reads
