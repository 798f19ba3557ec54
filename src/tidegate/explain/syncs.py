"""Why each sync of a plan is there: where it stands, what it protects, and what could happen without it."""

from __future__ import annotations

import linecache
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tidegate.ir import legal, tir
from tidegate.ir.text import print_stmt
from tidegate.plan.plan import AsyncPlan, ProtectedPair, Sync
from tidegate.plan.timeline import END


@dataclass(frozen=True)
class Line:
    """A line of the author's file."""

    number: int
    text: str


@dataclass(frozen=True)
class Protected:
    """Dependences of one kind between two lines: ``source`` must come before ``sink``. ``distance``: in trips of the
    loop (None: no fixed one); ``scope``: the threads between which order is needed."""

    ids: tuple[str, ...]
    kind: str
    places: tuple[str, ...]
    source: Line
    sink: Line
    distance: int | None
    scope: str
    without: str


@dataclass(frozen=True)
class SyncExplanation:
    """One sync in words. ``place`` is the plan's name of where it stands, ``where`` the same in words."""

    id: str
    mechanism: str
    place: str
    where: str
    participants: str
    count: int | None
    phase: str | None
    cost: int | None
    reason: str
    protects: tuple[Protected, ...]


@dataclass(frozen=True)
class Explanation:
    kernel: str
    target: str
    plan: str
    file: str
    syncs: tuple[SyncExplanation, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def explanation(plan: AsyncPlan, program: legal.LegalProgram) -> Explanation:
    """Every sync of a plan for ``program``."""
    words = _Words(program)
    pairs = {d.id: d for d in plan.dependences}
    return Explanation(
        plan.kernel, plan.target, plan.producer, program.file, tuple(_sync(s, pairs, words) for s in plan.syncs)
    )


def render(explained: Explanation) -> str:
    """The explanation as text."""
    count = len(explained.syncs)
    lines = [
        f"{explained.kernel} ({explained.file}): {count} sync{'s' * (count != 1)}, "
        f"plan {explained.plan} for {explained.target}"
    ]
    for sync in explained.syncs:
        lines += ["", *_sync_lines(sync)]
    if not explained.syncs:
        lines.append("  program order of each thread is enough")
    return "\n".join(lines)


def _sync_lines(sync: SyncExplanation) -> Iterator[str]:
    number = "" if sync.count is None else f" {sync.count}"
    yield f"{sync.id}: {sync.mechanism}{number}"
    yield f"  where         {sync.where}"
    yield f"  participants  {sync.participants}"
    if sync.count is not None:
        yield f"  count         {_count(sync)}"
    if sync.phase is not None:
        yield f"  phase         {sync.phase}"
    if sync.cost is not None:
        yield f"  cost          {sync.cost} cycles"
    yield "  protects"
    for item in sync.protects:
        what = f"{item.kind}{_distance(item)}, order per {item.scope}"
        yield f"    {', '.join(item.places)}: {_MEANING[item.kind]} ({what})"
        shown = dict.fromkeys((item.source, item.sink))
        for line in shown:
            yield f"      line {line.number}: {line.text}"
    if not sync.protects:
        yield "    nothing"
    yield "  without it"
    for item in sync.protects:
        yield f"    {item.without}"


_MEANING = {"RAW": "written before read", "WAR": "read before written again", "WAW": "written before written again"}


def _count(sync: SyncExplanation) -> str:
    if sync.mechanism == "named barrier":
        return f"barrier {sync.count}"
    return f"all but the newest {sync.count} groups must have landed" if sync.count else "all groups must have landed"


def _distance(item: Protected) -> str:
    return f", {item.distance} trips apart" if item.distance else ""


def _sync(sync: Sync, pairs: Mapping[str, ProtectedPair], words: _Words) -> SyncExplanation:
    return SyncExplanation(
        sync.id,
        sync.kind.value,
        sync.place,
        words.where(sync.place),
        sync.participants,
        sync.count,
        sync.phase,
        sync.cost,
        sync.reason,
        tuple(_protected([pairs[i] for i in sync.protects if i in pairs], words, sync.kind.rendezvous)),
    )


def _protected(pairs: list[ProtectedPair], words: _Words, rendezvous: bool) -> Iterator[Protected]:
    """Pairs that differ in the step or buffer alone, told together."""
    found: dict[tuple[object, ...], list[ProtectedPair]] = {}
    for pair in pairs:
        key = (pair.kind, pair.source_line, pair.sink_line, pair.distance, pair.scope, words.is_copy(pair.source))
        found.setdefault(key, []).append(pair)
    for group in found.values():
        first = group[0]
        places = tuple(dict.fromkeys(p for pair in group for p in pair.places))
        yield Protected(
            tuple(p.id for p in group),
            first.kind,
            places,
            words.line(first.source_line),
            words.line(first.sink_line),
            first.distance,
            first.scope,
            _without(first, " and ".join(places), words.is_copy(first.source), rendezvous),
        )


def _without(pair: ProtectedPair, places: str, copy: bool, rendezvous: bool) -> str:
    """What could happen, for one kind of dependence; a rendezvous is about the work of other threads."""
    source, sink = pair.source_line, pair.sink_line
    match pair.kind:
        case "RAW" if copy and rendezvous:
            return f"line {sink} could read {places} where the copies of other threads of line {source} have not landed"
        case "RAW" if copy:
            return f"line {sink} could read {places} before the copy of line {source} has landed"
        case "RAW":
            return f"line {sink} could read {places} before other threads have written it at line {source}"
        case "WAR":
            return f"line {sink} could overwrite {places} while other threads still read it at line {source}"
        case _ if copy:
            later = (
                f"the one {pair.distance} trips later" if source == sink and pair.distance else f"that of line {sink}"
            )
            return f"the copy of line {source} could land in {places} after {later}"
        case _:
            return f"line {sink} could write {places} before the earlier write of line {source}"


class _Words:
    """Places and lines of a program in words."""

    def __init__(self, program: legal.LegalProgram) -> None:
        self.file = program.file
        self.steps = {s.id: s for s in legal.steps(program.body)}
        self.loops = {loop.id: loop for loop in legal.loops(program.body)}
        self.conditions = {n.id: n for n in legal.walk(program.body) if isinstance(n, legal.If)}

    def line(self, number: int) -> Line:
        return Line(number, linecache.getline(self.file, number).strip())

    def is_copy(self, step: str) -> bool:
        found = self.steps.get(step)
        return found is not None and type(found.instr).completes is tir.Completion.COPY_GROUP

    def where(self, place: str) -> str:
        """Where a place of the timeline is."""
        if place == END:
            return "at the end of the kernel"
        if step := self.steps.get(place):
            return f"before {print_stmt(step.instr).split()[0]} ({place}) of line {step.span.line}"
        if loop := self.loops.get(place):
            return f"before the loop of line {loop.span.line}"
        if condition := self.conditions.get(place):
            return f"before the condition of line {condition.span.line}"
        head, slash, rest = place.partition("/")
        if slash:
            return f"{self.where(head)}, {'behind its last copy' if rest == 'turn' else self.where(rest)}"
        name, _, part = place.partition(".")
        if name not in self.loops:
            return f"before {place}"
        line = self.loops[name].span.line
        if part.startswith("pro"):
            fill = int(part.removeprefix("pro").partition(".")[0])
            return f"before the loop of line {line}, before fill {fill} of its prologue"
        if part.startswith("ahead"):
            return f"in the loop of line {line}, before the fill that runs ahead"
        if part == "first":
            return f"before the loop of line {line}, before the reads of its first trip"
        if part == "next":
            return f"at the end of each trip of the loop of line {line}, before the reads of the next"
        return f"at the end of each trip of the loop of line {line}"
