"""Shared memory: one timeline, lives to completion, offsets, the exact peak.

The timeline numbers every step and the entry and exit of every loop. A ring of several slots is live over its whole
loop (a schedule may fill it ahead); a single slot is live from its first write to its last read, widened to the whole
of an inner loop that touches it. Reads here complete when they return; a read that completes later would end the life
at its wait.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations

from tidegate.analyze.access import slot_of
from tidegate.errors import OverCapacity
from tidegate.ir import legal
from tidegate.target.target import Target

EXHAUSTIVE = 6
"""Up to this many rings all placement orders are tried."""

MIN_ALIGN = 16

CHEAPER_THAN_A_BARRIER = 256
"""Scratch tiles of up to this many bytes keep their bytes to themselves: sharing them would save less than the
rendezvous costs that it may need."""


CTA_RESERVED = 1024
"""Bytes of shared memory that the system keeps per CTA. A multiprocessor has as much as one CTA can have, and these
(CUDA C++ Programming Guide, "Technical Specifications per Compute Capability")."""

GRANULE = 128
"""Shared memory is handed out in multiples of this."""


@dataclass(frozen=True)
class Life:
    """A ring and the timeline positions between which its bytes hold something needed, both included."""

    ring: legal.Ring
    first: int
    last: int

    def overlaps(self, other: Life) -> bool:
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True)
class Placement:
    """Slot s of the ring lies at ``offset + s * stride``; ``size`` is the whole ring in bytes."""

    ring: str
    offset: int
    stride: int
    size: int
    first: int
    last: int


@dataclass(frozen=True)
class Allocation:
    """Where every ring lies; ``peak`` is the end of the highest one in bytes, ``requested`` what a launch asks for."""

    placements: tuple[Placement, ...]
    peak: int
    requested: int = 0

    def of(self, ring: str) -> Placement:
        return next(p for p in self.placements if p.ring == ring)


def alignment(ring: legal.Ring) -> int:
    """What a slot's address must be a multiple of: 16-byte accesses, and whole periods of the swizzle."""
    return max(MIN_ALIGN, ring.swizzle.period)


def slot_stride(ring: legal.Ring) -> int:
    """Distance of slots in bytes: the tile, rounded up so that every slot is aligned."""
    unit = alignment(ring)
    return -(-ring.layout.bytes // unit) * unit


def ring_bytes(ring: legal.Ring, stages: int | None = None) -> int:
    count = ring.stages if stages is None else stages
    return slot_stride(ring) * (count - 1) + ring.layout.bytes


def lives(program: legal.LegalProgram) -> tuple[Life, ...]:
    """The life of every ring, in order of first use."""
    touched: dict[str, list[tuple[int, tuple[str, ...]]]] = {}
    spans: dict[str, tuple[int, int]] = {}
    clock = 0

    def visit(body: legal.Body, inside: tuple[str, ...]) -> None:
        nonlocal clock
        for node in body:
            clock += 1
            if isinstance(node, legal.Step):
                shared = slot_of(node.instr)
                if shared:
                    touched.setdefault(shared[0].buffer, []).append((clock, inside))
            elif isinstance(node, legal.If):
                visit(node.body, inside)
            else:
                entry = clock
                visit(node.body, (*inside, node.id))
                clock += 1
                spans[node.id] = (entry, clock)

    visit(program.body, ())
    out = []
    for ring in program.rings:
        first, last = _extent(ring, touched[ring.name], spans)
        if not ring.staged and ring.layout.bytes <= CHEAPER_THAN_A_BARRIER:
            first, last = 0, clock
        out.append(Life(ring, first, last))
    return tuple(sorted(out, key=lambda life: life.first))


def _extent(
    ring: legal.Ring, events: Sequence[tuple[int, tuple[str, ...]]], spans: Mapping[str, tuple[int, int]]
) -> tuple[int, int]:
    home = min((inside for _, inside in events), key=len)
    points = []
    for at, inside in events:
        points.append(at)
        for loop in inside[len(home) :]:
            points.extend(spans[loop])
    if ring.stages > 1 and ring.loop:
        points.extend(spans[ring.loop])
    return min(points), max(points)


def allocate(program: legal.LegalProgram, target: Target, share: bool = True) -> Allocation:
    """Offsets for all rings. ``share=False`` keeps all bytes apart.

    Raises OverCapacity with the table of rings and the largest number of stages that fits.
    """
    found = _place(lives(program), share)
    capacity = target.fact("smem_per_cta")
    if found.peak > capacity:
        fits = largest_stages(program, capacity, share)
        advice = "use smaller tiles" if fits < 1 else f"stages={fits} is the most that fits, or use smaller tiles"
        raise OverCapacity(
            program.span,
            kernel=program.name,
            peak=found.peak,
            target=target.name,
            capacity=capacity,
            table=table(program, found),
            advice=advice,
        )
    return replace(found, requested=max(found.peak, least_bytes(program, target)))


def least_bytes(program: legal.LegalProgram, target: Target) -> int:
    """The least that a CTA has to ask for so that no more than ``ctas_per_sm`` fit on a multiprocessor."""
    if program.ctas_per_sm is None:
        return 0
    share = (target.fact("smem_per_cta") + CTA_RESERVED) // (program.ctas_per_sm + 1) - CTA_RESERVED
    return max(share // GRANULE * GRANULE + GRANULE, 0)


def table(program: legal.LegalProgram, allocation: Allocation) -> str:
    """One line per ring: bytes, slots, offset."""
    rows = []
    for p in allocation.placements:
        ring = program.ring(p.ring)
        shape = "x".join(map(str, ring.shape))
        rows.append(f"  {p.ring:<12} {shape:>9} {ring.dtype} x {ring.stages} stages = {p.size:>7} bytes at {p.offset}")
    return "\n".join(rows)


def largest_stages(program: legal.LegalProgram, capacity: int, share: bool = True) -> int:
    """The largest S such that all rings of several slots fit with S slots each (0: not even one slot each)."""
    live = lives(program)

    def fits(stages: int) -> bool:
        scaled = tuple(
            Life(_with_stages(life.ring, stages), life.first, life.last) if life.ring.stages > 1 else life
            for life in live
        )
        return _place(scaled, share).peak <= capacity

    if not any(life.ring.stages > 1 for life in live):
        return int(fits(1))
    most, too_many = 0, 1
    while fits(too_many):
        most, too_many = too_many, 2 * too_many
    while too_many - most > 1:
        middle = (most + too_many) // 2
        most, too_many = (middle, too_many) if fits(middle) else (most, middle)
    return most


def _with_stages(ring: legal.Ring, stages: int) -> legal.Ring:
    return replace(ring, stages=stages)


def _place(live: Sequence[Life], share: bool) -> Allocation:
    """First fit in several orders; the first that reaches the lower bound (bytes live at one time), else the best."""
    bound = max((sum(ring_bytes(o.ring) for o in live if o.overlaps(life)) for life in live), default=0)
    largest_first = sorted(live, key=lambda life: -ring_bytes(life.ring))
    orders = [list(live), largest_first]
    if len(live) <= EXHAUSTIVE and share:
        orders += [list(p) for p in permutations(live)]
    best: Allocation | None = None
    for order in orders:
        found = _first_fit(order, live, share)
        if best is None or found.peak < best.peak:
            best = found
        if not share or best.peak <= bound:
            break
    assert best is not None  # orders is never empty
    return best


def _first_fit(order: Sequence[Life], live: Sequence[Life], share: bool) -> Allocation:
    placed: dict[str, Placement] = {}
    for life in order:
        unit, size = alignment(life.ring), ring_bytes(life.ring)
        taken = sorted(
            (placed[o.ring.name].offset, placed[o.ring.name].offset + placed[o.ring.name].size)
            for o in live
            if o.ring.name in placed and (not share or o.overlaps(life))
        )
        offset = 0
        for start, end in taken:
            if offset + size <= start:
                break
            offset = max(offset, -(-end // unit) * unit)
        placed[life.ring.name] = Placement(life.ring.name, offset, slot_stride(life.ring), size, life.first, life.last)
    ordered = tuple(placed[life.ring.name] for life in live)
    return Allocation(ordered, max((p.offset + p.size for p in ordered), default=0))
