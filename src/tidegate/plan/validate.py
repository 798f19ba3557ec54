"""Validation of a plan against the program: whoever made it, nothing is lowered that leaves a dependence unordered."""

from __future__ import annotations

from dataclasses import replace

from tidegate.analyze.memory import alignment, least_bytes, lives, ring_bytes, slot_stride
from tidegate.errors import PlanRejected
from tidegate.ir import legal
from tidegate.ir.spec import is_name
from tidegate.plan.facts import Facts
from tidegate.plan.finish import buffers, channels, schedules, unordered
from tidegate.plan.order import Unmet
from tidegate.plan.pipeline import Schedule, last_product, movable, own_steps, problem
from tidegate.plan.plan import AsyncPlan, Bounds, Channel, LoopSchedule, Role, Sync, SyncKind
from tidegate.plan.producers import Analysis, analyse_with, facts_for
from tidegate.plan.timeline import END, timeline, walk

LOWERED = (SyncKind.COPY_COMMIT, SyncKind.COPY_WAIT, SyncKind.WARP, SyncKind.NAMED, SyncKind.BLOCK)


def validate(plan: AsyncPlan, analysis: Analysis) -> None:
    """Raises PlanRejected at the first thing that does not fit or is left unordered."""
    _fits(plan, analysis)
    _roles(plan)
    _grid(plan, analysis)
    _memory(plan, analysis)
    analysis = analyse_with(analysis, {b.ring: (b.offset, b.stride) for b in plan.buffers})
    schedule = Schedule.of(plan.schedule)
    _schedule(schedule, analysis)
    nodes = timeline(analysis.program, schedule)
    _syncs(plan, {n.place for n in walk(nodes)} | {END})
    facts = facts_for(analysis, schedule.ahead, nodes)
    _consequences(plan, analysis, tuple(schedules(facts, nodes, schedule)), tuple(channels(analysis.program, facts)))
    left = unordered(nodes, facts, plan.syncs, first=True)
    if left:
        raise _unordered(left[0], facts)


def _reject(what: str, advice: str) -> PlanRejected:
    return PlanRejected(what=what, advice=advice)


def _fits(plan: AsyncPlan, analysis: Analysis) -> None:
    program = analysis.program
    for name, mine, theirs in (
        ("kernel", program.name, plan.kernel),
        ("target", program.target, plan.target),
        ("number of warps", program.warps, plan.warps),
    ):
        if mine != theirs:
            raise _reject(
                f"the plan's {name} is {theirs}, the program's {mine}",
                "make a plan for this program with `tidegate plan`",
            )
    constants = {k: str(v) for k, v in analysis.constants}
    other = {k: v for k, v in plan.constants if constants.get(k) != v}
    if other or len(plan.constants) != len(constants):
        raise _reject(
            f"the plan was made for the constants {dict(plan.constants)}, the program has {constants}",
            "compile with the constants of the plan",
        )


def _roles(plan: AsyncPlan) -> None:
    if len(plan.roles) != 1 or replace(plan.roles[0], name="") != Role("", tuple(range(plan.warps)), None, ()):
        raise _reject(
            f"the plan has the roles {', '.join(r.name for r in plan.roles) or 'of nobody'}",
            f"so far there is one role: all {plan.warps} warps, every step, no budget of registers",
        )


def _grid(plan: AsyncPlan, analysis: Analysis) -> None:
    axes = [axis.name for axis in analysis.program.grid]
    if [order.index for order in plan.grid] != axes:
        raise _reject(
            f"the plan orders the axes {', '.join(o.index for o in plan.grid) or 'of no grid'}, the program has "
            f"{', '.join(axes) or 'none'}",
            "keep one entry per axis, in the order of the program",
        )
    for at, order in enumerate(plan.grid):
        if order.band < 1 or (order.band > 1 and at != len(axes) - 2):
            raise _reject(
                f"a band of {order.band} along {order.index}",
                "give the axis before the last one a band of 1 or more rows, and every other axis 1",
            )


def _memory(plan: AsyncPlan, analysis: Analysis) -> None:
    program = analysis.program
    places = {b.ring: b for b in plan.buffers}
    if set(places) != {r.name for r in program.rings} or len(plan.buffers) != len(places):
        raise _reject("the plan's buffers are not the program's", "make a new plan")
    for ring in program.rings:
        b = places[ring.name]
        unit = alignment(ring)
        if b.stages != ring.stages or b.offset < 0 or b.offset % unit or b.stride % unit:
            raise _reject(
                f"buffer {ring.name}: {b.stages} slots at {b.offset}, stride {b.stride}",
                f"it needs {ring.stages} slots, offset and stride multiples of {unit}",
            )
        if b.stride < slot_stride(ring) or b.offset + b.stride * (b.stages - 1) + ring.layout.bytes > plan.smem_bytes:
            raise _reject(
                f"buffer {ring.name} does not fit: {ring_bytes(ring)} bytes at {b.offset} of {plan.smem_bytes}",
                "use the offsets of a fresh plan",
            )
    if plan.smem_bytes < least_bytes(program, analysis.target):
        raise _reject(
            f"{plan.smem_bytes} bytes of shared memory let more than {program.ctas_per_sm} CTAs share a multiprocessor",
            "make a plan for this ctas_per_sm",
        )
    if plan.smem_bytes > analysis.target.fact("smem_per_cta"):
        raise _reject(f"the plan needs {plan.smem_bytes} bytes of shared memory", "use fewer stages")
    live = lives(program)
    for i, a in enumerate(live):
        for b2 in live[i + 1 :]:
            p, q = places[a.ring.name], places[b2.ring.name]
            if a.overlaps(b2) and p.offset < q.offset + _end(q, b2.ring) and q.offset < p.offset + _end(p, a.ring):
                raise _reject(
                    f"buffers {a.ring.name} and {b2.ring.name} share bytes while both are live", "keep them apart"
                )


def _end(buffer: object, ring: legal.Ring) -> int:
    stride = getattr(buffer, "stride", 0)
    return int(stride) * (ring.stages - 1) + ring.layout.bytes


def _schedule(schedule: Schedule, analysis: Analysis) -> None:
    rings = {r.name: r for r in analysis.program.rings}
    for name, items in schedule.ahead.items():
        ring = rings.get(name)
        if ring is None or not ring.staged or not ring.loop or not 0 <= items < max(ring.stages, 1):
            raise _reject(
                f"the schedule fills {name} {items} items ahead", "a ring of S slots can be filled at most S-1 ahead"
            )
    known: set[str] = set()
    for loop in legal.loops(analysis.program.body):
        body = list(own_steps(loop.body))
        known |= {s.id for s in body}
        if stuck := [s.id for s in body if s.id in schedule.sooner and not movable(s, loop.body)]:
            raise _reject(f"the schedule reads {stuck[0]} sooner, which no product precedes", "leave sooner empty")
        early = [s for s in body if s.id in schedule.early]
        if early and (why := problem(analysis.program, loop, early, schedule.ahead)):
            raise _reject(f"the schedule reads {early[0].id} a trip early: {why}", "leave early empty")
        _fills(loop, early, schedule, analysis.program)
    if strange := sorted((schedule.early | schedule.sooner) - known):
        raise _reject(f"the schedule moves {strange[0]!r}, which is no step of a loop", "use steps of this plan")
    if strange := sorted(r for r in schedule.fills if not schedule.ahead.get(r)):
        raise _reject(f"the schedule has a place for fills of {strange[0]!r}, which do not run ahead", "drop it")


def _fills(loop: legal.Loop, early: list[legal.Step], schedule: Schedule, program: legal.LegalProgram) -> None:
    """Fills stand before a step of their loop's body that keeps its place, and before the early reads."""
    rings = [r.name for r in program.rings if r.loop == loop.id and schedule.ahead.get(r.name)]
    kept = (n for n in loop.body if not isinstance(n, legal.If) and getattr(n, "fills", None) not in rings)
    body = [n.id for n in kept if n.id not in schedule.early]
    last = last_product(loop.body)
    if early and last:
        body = body[: body.index(last.id) + 1]
    for ring in rings:
        if ring in schedule.fills and schedule.fills[ring] not in body:
            raise _reject(
                f"the schedule fills {ring} before {schedule.fills[ring]!r}, which does not stand in {loop.id} before "
                "the early reads",
                "use places of a fresh plan",
            )


def _consequences(
    plan: AsyncPlan, analysis: Analysis, loops: tuple[LoopSchedule, ...], rings: tuple[Channel, ...]
) -> None:
    """What follows from the decisions is told as it follows: a plan speaks of the kernel that is lowered."""
    places = {p.ring: p for p in plan.buffers}
    told = [
        *((f"buffer {b.ring}", b, places[b.ring]) for b in buffers(analysis.program, analysis.allocation)),
        *((f"the schedule of {s.loop}", s, {p.loop: p for p in plan.schedule}.get(s.loop)) for s in loops),
        *((f"channel {c.name}", c, {p.name: _unexplained(p) for p in plan.channels}.get(c.name)) for c in rings),
        ("the list of loops", [s.loop for s in loops], [s.loop for s in plan.schedule]),
        ("the list of channels", [c.name for c in rings], [c.name for c in plan.channels]),
        ("bounds", Bounds(), plan.bounds),
    ]
    for what, wanted, found in told:
        if wanted != found:
            raise _reject(f"{what}: {found}", f"what the plan decides makes it {wanted}")


def _unexplained(channel: Channel) -> Channel:
    """A channel without the names of the syncs that turn it."""
    return replace(channel, full="", empty="")


def _participants(plan: AsyncPlan, sync: Sync) -> None:
    """Who takes part in a sync other than a named barrier, and its count, follow from its kind."""
    who = {SyncKind.WARP: "each warp", SyncKind.BLOCK: "all warps"}.get(sync.kind, "each thread")
    if sync.participants != who:
        raise _reject(f"sync {sync.id}, a {sync.kind.value}, is among {sync.participants!r}", f"it is among {who!r}")
    if sync.kind is not SyncKind.COPY_WAIT and sync.count is not None:
        raise _reject(f"sync {sync.id}, a {sync.kind.value}, has the count {sync.count}", "it has none")


def _syncs(plan: AsyncPlan, places: set[str]) -> None:
    groups: dict[int | None, str] = {}
    ids: set[str] = set()
    for sync in plan.syncs:
        if sync.id in ids or not is_name(sync.id):
            raise _reject(f"{sync.id!r} is no id of a sync, or that of two", "give each sync a name of its own")
        ids.add(sync.id)
        if sync.place not in places:
            raise _reject(f"sync {sync.id} stands before {sync.place!r}, which is no place", "use places of this plan")
        if sync.kind not in LOWERED:
            raise _reject(
                f"sync {sync.id} is a {sync.kind.value}, which cannot be lowered yet", "use another mechanism"
            )
        if sync.kind is SyncKind.COPY_WAIT and (sync.count is None or sync.count < 0):
            raise _reject(f"sync {sync.id} waits for all but {sync.count} groups", "give a count of 0 or more")
        if sync.phase is not None:
            raise _reject(f"sync {sync.id} has the phase {sync.phase!r}", "it belongs to no mbarrier: leave it empty")
        if sync.kind is not SyncKind.NAMED:
            _participants(plan, sync)
        else:
            named = sync.participants.removeprefix("warps ").split(",")
            legal_names = [str(w) for w in range(plan.warps)]
            if not named or any(w not in legal_names for w in named) or named != sorted(set(named), key=int):
                raise _reject(
                    f"sync {sync.id} is among {sync.participants!r}",
                    f"name warps in rising order, e.g. 'warps 0,{plan.warps - 1}'",
                )
            if sync.count not in range(1, 16) or groups.setdefault(sync.count, sync.participants) != sync.participants:
                raise _reject(
                    f"named barrier {sync.count} of sync {sync.id}", "ids are 1 to 15, one set of warps per id"
                )


def _unordered(unmet: Unmet, facts: Facts) -> PlanRejected:
    d = unmet.dependence
    spans = {s.id: s.span for s in legal.steps(facts.program.body)}
    if d is None:
        return PlanRejected(
            spans[unmet.source],
            what=f"nothing waits for {unmet.source} before the kernel ends",
            advice="add a cp.async commit behind it and a wait for its group, or let a producer make the plan",
        )
    if d.awaits and not unmet.complete:
        need = f"a cp.async commit behind {d.source} and a wait for its group"
    elif not d.scope.lanes:
        need = "a barrier over warps " + ",".join(map(str, sorted(d.scope.warps)))
    else:
        need = "a warp sync"
    return PlanRejected(
        spans[d.sink],
        [(spans[d.source], f"{d.source}, the other access")],
        what=f"{d.kind.value} of {', '.join(d.places)}: nothing orders {d.source} before {d.sink} at {unmet.place}",
        advice=f"add {need} before {unmet.place}, or let a producer make the plan",
    )
