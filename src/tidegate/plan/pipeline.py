"""The software pipeline of a loop: what a schedule issues before its own place.

Fills of rings run ahead by whole items. Where products follow one another in a body and registers allow, fragments are
read one product sooner than they are needed, and those of the first product early: at the end of the trip before,
behind the only wait and barrier of the trip and before the last product. So the tensor cores have work while reads and
barrier take their time. The fills then stand between products instead of in front of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidegate.analyze.access import slot_of
from tidegate.analyze.pressure import peak, tiles
from tidegate.ir import legal, tir

if TYPE_CHECKING:
    from tidegate.plan.plan import LoopSchedule

SPARE = 208
"""Words of register tiles at one time up to which the compiler has room for fragments that live across a barrier; with
more it spills."""


@dataclass(frozen=True)
class Schedule:
    """``ahead``: ring -> how many items ahead of its reader it is filled. ``early``: steps whose reads of the next
    trip's item stand at the end of a trip. ``sooner``: steps that stand before the product that precedes them.
    ``fills``: ring -> the step of the body before which its fill stands (not listed: at the head)."""

    ahead: Mapping[str, int] = field(default_factory=dict)
    early: frozenset[str] = frozenset()
    sooner: frozenset[str] = frozenset()
    fills: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def of(loops: Sequence[LoopSchedule]) -> Schedule:
        """The schedule that a plan holds."""
        return Schedule(
            {ring: items for loop in loops for ring, items in loop.ahead},
            frozenset(step for loop in loops for step in loop.early),
            frozenset(step for loop in loops for step in loop.sooner),
            {ring: step for loop in loops for ring, step in loop.fills},
        )


def pipelined(program: legal.LegalProgram, ahead: Mapping[str, int]) -> Schedule:
    """The schedule with reads issued early in every loop that allows it: no product and no tile of the loop under a
    condition, for one."""
    early: list[str] = []
    sooner: list[str] = []
    fills: dict[str, str] = {}
    for loop in legal.loops(program.body):
        rings = [r.name for r in program.rings if r.loop == loop.id and ahead.get(r.name)]
        steps = list(own_steps(loop.body))
        products = [i for i, s in enumerate(steps) if isinstance(s.instr, tir.Mma)]
        guarded = [s for n in legal.walk(loop.body) if isinstance(n, legal.If) for s in legal.steps((n,))]
        whole = not any(isinstance(s.instr, tir.Mma) or s.fills in rings or reads(s, rings) for s in guarded)
        if not rings or not whole or len(products) < 2 or peak(program, loop) > SPARE:
            continue
        first = steps[products[0]].instr
        operands = {getattr(first, name) for name in type(first).reads}
        found = [s for s in steps[: products[0]] if reads(s, rings) and getattr(s.instr, "dst", None) in operands]
        if not found or problem(program, loop, found, ahead):
            continue
        early += [s.id for s in found]
        sooner += [s.id for s in steps[products[0] :] if movable(s, loop.body)]
        for number, ring in enumerate(rings):
            fills[ring] = steps[products[min(number + 1, len(products) - 1)]].id
    return Schedule(ahead, frozenset(early), frozenset(sooner), fills)


def movable(step: legal.Step, body: legal.Body) -> bool:
    """May the step stand before the product that precedes it? It is a matrix read into registers of its own, with only
    products and such reads between."""
    if not isinstance(step.instr, tir.LdMatrix):
        return False
    for before in reversed(body[: body.index(step)]):
        if not isinstance(before, legal.Step):
            return False
        if not isinstance(before.instr, tir.LdMatrix):
            return isinstance(before.instr, tir.Mma) and step.instr.dst not in registers(before.instr)
    return False


def problem(
    program: legal.LegalProgram, loop: legal.Loop, early: Sequence[legal.Step], ahead: Mapping[str, int]
) -> str:
    """Why reads of a loop's body cannot be issued a trip early; empty if they can.

    Early reads stand before the last product of the body, behind all reads of the trip's own items, and their
    registers must be free there.
    """
    steps = list(own_steps(loop.body))
    rings = [r.name for r in program.rings if r.loop == loop.id and ahead.get(r.name)]
    if any(not isinstance(s.instr, (tir.LdMatrix, tir.LdShared)) or not reads(s, rings) for s in early):
        return "only reads of tiles that are filled ahead in their loop can be issued early"
    last = last_product(loop.body)
    if last is None:
        return "nothing is computed behind the early reads"
    end = steps.index(last)
    if any(s not in steps or steps.index(s) > end for s in legal.steps(loop.body) if reads(s, rings)):
        return "a tile of the loop is read in an inner loop, under a condition, or behind the last product"
    for step in early:
        name = getattr(step.instr, "dst", "")
        users = [s for s in legal.steps(program.body) if s is not step and name in registers(s.instr)]
        if any(s not in steps or not steps.index(step) < steps.index(s) < end for s in users):
            return f"{name} is used where the early read would overwrite it"
    return ""


def last_product(body: legal.Body) -> legal.Step | None:
    """The last product of a body outside inner loops and conditions: early reads stand before it."""
    products = [s for s in own_steps(body) if isinstance(s.instr, tir.Mma)]
    return products[-1] if products else None


def reads(step: legal.Step, rings: Sequence[str]) -> bool:
    """Does the step read one of the rings?"""
    found = slot_of(step.instr)
    return found is not None and not found[1] and found[0].buffer in rings


def registers(instr: tir.Instruction) -> set[str]:
    """The register tiles that an instruction reads or writes."""
    return {*tiles(instr, "reads"), *tiles(instr, "writes")}


def own_steps(body: legal.Body) -> Iterator[legal.Step]:
    """The steps of a body outside inner loops and conditions."""
    return (node for node in body if isinstance(node, legal.Step))
