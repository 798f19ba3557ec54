"""Plan producers: functions from the analysed program to a plan, looked up by name.

``in_order`` issues every step at its place and waits just before each use: the smallest correct form. ``multistage``
fills each ring of S slots S-1 items ahead, waits at the head of the trip, and so needs one rendezvous per trip for
both directions. Where a ring has one slot the two agree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from tidegate.analyze.access import Access, accesses
from tidegate.analyze.depend import Dependence, dependences
from tidegate.analyze.memory import Allocation, allocate
from tidegate.errors import OrderNotProvable, UnknownProducer
from tidegate.ir import legal, tir
from tidegate.plan.facts import Facts, facts
from tidegate.plan.finish import assemble, is_copy, numbered, only_needed, touches, unordered
from tidegate.plan.order import missing
from tidegate.plan.pending import make
from tidegate.plan.pipeline import Schedule, own_steps, pipelined
from tidegate.plan.plan import AsyncPlan, Sync, SyncKind
from tidegate.plan.timeline import Guard, Issue, Node, Repeat, When, after, groups, timeline, walk
from tidegate.target.target import Target


@dataclass(frozen=True)
class Analysis:
    """A legal program with everything that planning needs to know."""

    program: legal.LegalProgram
    target: Target
    constants: tuple[tuple[str, object], ...]
    share: bool
    allocation: Allocation
    accesses: Mapping[str, Access]
    dependences: tuple[Dependence, ...]


def analyse(
    program: legal.LegalProgram, target: Target, constants: tuple[tuple[str, object], ...], share: bool = True
) -> Analysis:
    """Memory, accesses and dependences; raises OverCapacity or OrderNotProvable."""
    found = accesses(program)
    for access in found.values():
        if access.completes is tir.Completion.UNKNOWN:
            raise OrderNotProvable(
                access.step.span,
                what=f"{access.step.id} does not declare when it completes, so nothing can be ordered after it",
                advice="declare its completion in its class, or use another instruction",
            )
    allocation = allocate(program, target, share)
    return Analysis(program, target, constants, share, allocation, found, dependences(program, found, allocation))


def analyse_with(analysis: Analysis, places: Mapping[str, tuple[int, int]]) -> Analysis:
    """The same analysis for rings at given (offset, stride)."""
    moved = []
    for p in analysis.allocation.placements:
        ring, (offset, stride) = analysis.program.ring(p.ring), places[p.ring]
        moved.append(replace(p, offset=offset, stride=stride, size=stride * (ring.stages - 1) + ring.layout.bytes))
    allocation = replace(analysis.allocation, placements=tuple(moved))
    found = dependences(analysis.program, analysis.accesses, allocation)
    return replace(analysis, allocation=allocation, dependences=found)


def facts_for(analysis: Analysis, ahead: Mapping[str, int], nodes: tuple[Node, ...]) -> Facts:
    channels = groups(analysis.program, ahead)
    return facts(analysis.program, channels, analysis.dependences, touches(analysis.accesses), nodes)


def in_order(analysis: Analysis) -> AsyncPlan:
    """Nothing runs ahead; each wait and rendezvous stands just before the access that needs it."""
    return _produce(analysis, "in_order", Schedule())


def multistage(analysis: Analysis) -> AsyncPlan:
    """Rings of S slots are filled S-1 items ahead of their reader; the first fragments are read a trip early."""
    ahead = {r.name: r.stages - 1 for r in analysis.program.rings if r.staged and r.loop and r.stages > 1}
    return _produce(analysis, "multistage", pipelined(analysis.program, ahead))


PRODUCERS: dict[str, Callable[[Analysis], AsyncPlan]] = {"in_order": in_order, "multistage": multistage}


def producer(name: object, target: Target) -> Callable[[Analysis], AsyncPlan]:
    """The producer of that name, as the target binds it; raises UnknownProducer."""
    if not isinstance(name, str) or name not in PRODUCERS:
        raise UnknownProducer(name=name, known=", ".join(PRODUCERS))
    found: Callable[[Analysis], AsyncPlan] = target.resolve(PRODUCERS[name])
    return found


def _produce(analysis: Analysis, name: str, schedule: Schedule) -> AsyncPlan:
    nodes = timeline(analysis.program, schedule)
    known = facts_for(analysis, schedule.ahead, nodes)
    fixed = _regular_commits(nodes)
    syncs = [*fixed.values(), *missing(nodes, known, fixed, _demands(nodes, known, schedule))]
    ordered = _in_timeline_order(nodes, syncs)
    kept = only_needed(nodes, known, ordered)
    left = unordered(nodes, known, kept)
    if left:
        first = left[0].dependence or left[0].source
        raise OrderNotProvable(
            analysis.program.span,
            what=f"producer {name} leaves {first} unordered at {left[0].place}",
            advice="use plan='in_order', and report the kernel",
        )
    kept = numbered(nodes, known, kept)
    return assemble(
        analysis.program,
        name,
        analysis.share,
        analysis.constants,
        analysis.allocation,
        known,
        nodes,
        schedule,
        kept,
    )


def _demands(nodes: tuple[Node, ...], known: Facts, schedule: Schedule) -> dict[str, tuple[str, ...]]:
    """Place -> the reads of a trip's items that must be ready there: one wait and one rendezvous then serve all of
    them. It is the head of the body, or, with early reads, where those stand."""
    found: dict[str, tuple[str, ...]] = {}
    for repeat in (n for n in walk(nodes) if isinstance(n, Repeat)):
        rings = tuple(r for g in known.groups if g.loop == repeat.loop.id and g.ahead for r in g.rings)
        if not rings:
            continue
        early = any(s.id in schedule.early for s in own_steps(repeat.loop.body))
        places = (f"{repeat.place}.first", f"{repeat.place}.next") if early else (repeat.body[0].place,)
        found |= dict.fromkeys(places, _readers_of(repeat, known, rings))
    return found


def _in_timeline_order(nodes: tuple[Node, ...], syncs: list[Sync]) -> list[Sync]:
    order = {node.place: at for at, node in enumerate(walk(nodes))}
    return sorted(syncs, key=lambda s: order.get(s.place, len(order)))  # stable: fixed ones first at one place


def _regular_commits(nodes: tuple[Node, ...]) -> dict[str, Sync]:
    """One commit behind the fills of each turn, outside their guards, so that every path counts the same groups; and
    one behind copies that lead a body, so that the fills which run ahead are younger than they are."""
    out: dict[str, Sync] = {}
    blocks = [nodes, *(n.body for n in walk(nodes) if isinstance(n, (Repeat, When)))]
    for block in blocks:
        fills = [n for n in block if isinstance(n, Guard) and _copies(n)]
        last = {_turn(guard): guard for guard in fills}  # several channels, and rings apart, fill in one turn
        for guard in last.values():
            place = after(nodes, guard.place)
            out[place] = make(SyncKind.COPY_COMMIT, place)
        for node, following in pairwise(block):
            if fills and isinstance(node, Issue) and is_copy(node.step) and not _leads(following):
                out[following.place] = make(SyncKind.COPY_COMMIT, following.place)
    return out


def _leads(node: Node) -> bool:
    return isinstance(node, Issue) and is_copy(node.step)


def _copies(guard: Guard) -> bool:
    return any(isinstance(n, Issue) and is_copy(n.step) for n in walk(guard.body))


def _turn(guard: Guard) -> tuple[str, ...]:
    """Loop and turn of a fill: the parts of its place before the group's name."""
    return tuple(guard.place.split(".")[:2])


def _readers_of(repeat: Repeat, known: Facts, rings: tuple[str, ...]) -> tuple[str, ...]:
    """Steps inside a loop that read rings filled ahead there."""
    return tuple(
        n.step.id
        for n in walk(repeat.body)
        if isinstance(n, Issue) and known.touches.get(n.step.id) in rings and n.step.fills is None
    )
