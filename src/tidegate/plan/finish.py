"""From syncs on a timeline to a finished plan: what is not needed goes, the rest gets ids, pairs and reasons."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from tidegate.analyze.access import Access
from tidegate.analyze.depend import Dependence, Kind, Scope
from tidegate.analyze.memory import Allocation
from tidegate.ir import legal, tir
from tidegate.plan.facts import Facts
from tidegate.plan.grid import grid_order
from tidegate.plan.order import Found, Unmet, Walk
from tidegate.plan.pending import OLDEST
from tidegate.plan.pipeline import Schedule
from tidegate.plan.plan import (
    AsyncPlan,
    Bounds,
    Buffer,
    Channel,
    LoopSchedule,
    ProtectedPair,
    Role,
    Slotting,
    Sync,
    SyncKind,
)
from tidegate.plan.timeline import END, Issue, Node, Repeat, walk


def by_place(syncs: Iterable[Sync]) -> dict[str, list[Sync]]:
    found: dict[str, list[Sync]] = {}
    for sync in syncs:
        found.setdefault(sync.place, []).append(sync)
    return found


def unordered(nodes: tuple[Node, ...], facts: Facts, syncs: Iterable[Sync], first: bool = False) -> tuple[Unmet, ...]:
    """The dependences that these syncs leave unordered, or the ``first`` of them."""
    found: dict[tuple[str, str], Unmet] = {}
    for case in facts.cases:
        check = Walk(facts, case, by_place(syncs), first=first)
        try:
            check.run(nodes)
        except Found:
            return tuple(check.unmet.values())
        found |= check.unmet
    return tuple(found.values())


def only_needed(nodes: tuple[Node, ...], facts: Facts, syncs: Sequence[Sync]) -> tuple[Sync, ...]:
    """Drops every sync without which everything is still ordered, lets every wait leave as many groups as may be, and
    notes what each sync protects."""
    kept = list(syncs)
    for sync in sorted(syncs, key=lambda s: s.kind is SyncKind.COPY_COMMIT):
        rest = [s for s in kept if s is not sync]
        if not unordered(nodes, facts, rest, first=True):
            kept = rest
    for at, sync in enumerate(kept):
        if sync.kind is SyncKind.COPY_WAIT:
            kept[at] = _loosest(nodes, facts, kept, at)
    out = []
    for sync in kept:
        broken = unordered(nodes, facts, [s for s in kept if s is not sync])
        pairs = {u.dependence.id for u in broken if u.dependence}
        out.append(replace(sync, protects=tuple(sorted(pairs, key=lambda i: int(i[1:])))))
    return tuple(out)


def _loosest(nodes: tuple[Node, ...], facts: Facts, syncs: Sequence[Sync], at: int) -> Sync:
    """The wait at an index with the largest count that still orders everything."""
    best = syncs[at]
    while (best.count or 0) < OLDEST:
        looser = replace(best, count=(best.count or 0) + 1)
        if unordered(nodes, facts, [*syncs[:at], looser, *syncs[at + 1 :]], first=True):
            break
        best = looser
    return best


def numbered(nodes: tuple[Node, ...], facts: Facts, syncs: Sequence[Sync]) -> tuple[Sync, ...]:
    """Ids in timeline order, ids of named barriers, and reasons in words."""
    order = {place: at for at, place in enumerate([*(n.place for n in walk(nodes)), END])}
    pairs = {d.id: d for d in facts.dependences}
    lines = {s.id: s.span.line for s in legal.steps(facts.program.body)}
    barriers: dict[str, int] = {}
    out = []
    for number, sync in enumerate(sorted(syncs, key=lambda s: order[s.place])):
        count = sync.count
        if sync.kind is SyncKind.NAMED:
            count = barriers.setdefault(sync.participants, len(barriers) + 1)
        why = reason([pairs[i] for i in sync.protects], lines)
        out.append(replace(sync, id=f"s{number}", count=count, reason=why))
    return tuple(out)


def reason(protected: Sequence[Dependence], lines: Mapping[str, int]) -> str:
    """What a sync protects, one clause per kind; what another clause implies is left out."""
    told: set[str] = set()
    parts = []
    for kind, clause in (
        (Kind.RAW, "{places}: written ({sources}) before read ({sinks})"),
        (Kind.WAR, "{places}: read ({sources}) before written again ({sinks})"),
        (Kind.WAW, "{places}: written ({sources}) before written again ({sinks})"),
    ):
        mine = [d for d in protected if d.kind is kind and (kind is not Kind.WAW or d.places[0] not in told)]
        told.update(d.places[0] for d in mine)
        if mine:
            parts.append(
                clause.format(
                    places=", ".join(dict.fromkeys(d.places[0] for d in mine)),
                    sources=_lines(lines[d.source] for d in mine),
                    sinks=_lines(lines[d.sink] for d in mine),
                )
            )
    return "; ".join(parts) or "no copy is on its way when the kernel ends"


def _lines(numbers: Iterable[int]) -> str:
    unique = sorted(set(numbers))
    return f"line{'s' if len(unique) > 1 else ''} {', '.join(map(str, unique))}"


def scope_text(scope: Scope, warps: int) -> str:
    if scope.private:
        return "thread"
    if scope.lanes:
        return "warp"
    return "block" if len(scope.warps) == warps else "warps " + ",".join(map(str, sorted(scope.warps)))


def assemble(
    program: legal.LegalProgram,
    producer: str,
    share: bool,
    constants: tuple[tuple[str, object], ...],
    allocation: Allocation,
    facts: Facts,
    nodes: tuple[Node, ...],
    schedule: Schedule,
    syncs: tuple[Sync, ...],
) -> AsyncPlan:
    """The plan object."""
    lines = {s.id: s.span.line for s in legal.steps(program.body)}
    used = {i for s in syncs for i in s.protects}
    return AsyncPlan(
        kernel=program.name,
        target=program.target,
        producer=producer,
        warps=program.warps,
        constants=tuple((k, str(v)) for k, v in constants),
        grid=grid_order(program),
        smem_bytes=allocation.requested,
        share=share,
        buffers=buffers(program, allocation),
        roles=(Role("everyone", tuple(range(program.warps)), None, ()),),
        channels=tuple(_explained(channel, facts, syncs) for channel in channels(program, facts)),
        dependences=tuple(
            ProtectedPair(
                d.id,
                d.kind.value,
                d.source,
                d.sink,
                d.places,
                d.distance,
                scope_text(d.scope, program.warps),
                lines[d.source],
                lines[d.sink],
            )
            for d in facts.dependences
            if d.id in used
        ),
        syncs=syncs,
        schedule=tuple(schedules(facts, nodes, schedule)),
        bounds=Bounds(),
    )


def buffers(program: legal.LegalProgram, allocation: Allocation) -> tuple[Buffer, ...]:
    """The rings as they are placed."""
    return tuple(
        Buffer(p.ring, p.offset, p.stride, program.ring(p.ring).stages, p.size, p.first, p.last)
        for p in allocation.placements
    )


def channels(program: legal.LegalProgram, facts: Facts) -> Iterable[Channel]:
    """The channels of a schedule, without the names of the syncs that turn them."""
    for group in facts.groups:
        payload = sum(program.ring(r).layout.bytes for r in group.rings)
        rule = f"executed fills mod {group.depth}"
        yield Channel(group.name, group.loop, group.rings, group.depth, group.ahead, rule, "", "", payload, ())


def _explained(channel: Channel, facts: Facts, syncs: tuple[Sync, ...]) -> Channel:
    pairs = {d.id: d for d in facts.dependences}
    full, empty = (_mechanism(syncs, pairs, channel.rings, kind) for kind in (Kind.RAW, Kind.WAR))
    return replace(channel, full=full, empty=empty)


def _mechanism(syncs: tuple[Sync, ...], pairs: Mapping[str, Dependence], rings: tuple[str, ...], kind: Kind) -> str:
    """Which syncs tell one side of a ring to go on."""
    found = [
        f"{s.kind.value} {s.id}"
        for s in syncs
        if any(pairs[i].kind is kind and pairs[i].places[0] in rings for i in s.protects)
    ]
    return ", ".join(found) or "program order of each thread"


def schedules(facts: Facts, nodes: tuple[Node, ...], schedule: Schedule) -> Iterable[LoopSchedule]:
    """What a schedule makes of each loop."""
    for node in walk(nodes):
        if not isinstance(node, Repeat):
            continue
        mine = [g for g in facts.groups if g.loop == node.loop.id]
        ahead = {r: g.ahead for g in mine for r in g.rings}
        deepest = max(ahead.values(), default=0)
        steps = []
        for slot, inner in enumerate(n for n in walk(node.body) if isinstance(n, Issue) and n.loop == node.loop.id):
            early = inner.step.id in schedule.early
            steps.append(Slotting(inner.step.id, deepest - inner.item - early, slot))
        yield LoopSchedule(
            loop=node.loop.id,
            interval=None,
            prologue=deepest,
            ahead=tuple((r, a) for r, a in ahead.items() if a),
            early=tuple(s.step for s in steps if s.step in schedule.early),
            sooner=tuple(s.step for s in steps if s.step in schedule.sooner),
            fills=tuple((r, schedule.fills[r]) for r in ahead if r in schedule.fills),
            steps=tuple(steps),
        )


def touches(accesses: Mapping[str, Access]) -> dict[str, str]:
    """Step -> what it accesses."""
    return {step: access.place for step, access in accesses.items()}


def is_copy(step: legal.Step) -> bool:
    return type(step.instr).completes is tir.Completion.COPY_GROUP
