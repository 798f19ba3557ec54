"""The plan: every decision about asynchrony, as one immutable object.

What is ordered by what, where, with how many participants and which counts, and why. Plans are made by producers,
printed, saved, compared, and validated against the dependences before anything is lowered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any


class SyncKind(Enum):
    """The whole vocabulary of ordering, by the three kinds of completion, plus proxy fences."""

    COPY_COMMIT = "cp.async commit"
    COPY_WAIT = "cp.async wait"
    BULK_COMMIT = "bulk commit"
    BULK_WAIT = "bulk wait"
    WGMMA_COMMIT = "wgmma commit"
    WGMMA_WAIT = "wgmma wait"
    PHASE_ARRIVE = "mbarrier arrive"
    PHASE_EXPECT = "mbarrier expect"
    PHASE_COPY_ARRIVE = "mbarrier arrive by cp.async"
    PHASE_WAIT = "mbarrier wait"
    WARP = "warp sync"
    NAMED = "named barrier"
    NAMED_ARRIVE = "named barrier arrive"
    BLOCK = "block barrier"
    CLUSTER = "cluster barrier"
    FENCE_ASYNC = "async proxy fence"
    FENCE_INIT = "mbarrier init fence"

    @property
    def counted(self) -> bool:
        """Does it speak about a queue of groups?"""
        return self.value.split()[0] in ("cp.async", "bulk", "wgmma")

    @property
    def rendezvous(self) -> bool:
        return self in (SyncKind.WARP, SyncKind.NAMED, SyncKind.BLOCK, SyncKind.CLUSTER)


@dataclass(frozen=True)
class Sync:
    """One sync. ``place``: the timeline node before which it stands; several at one place act in listed order.

    ``participants``: "each thread", "each warp", "all warps" or "warps 0,1". ``count``: groups that may stay
    incomplete (waits), barrier id (named), else None. ``phase``: the parity formula of phase barriers. ``protects``:
    ids of the dependences that are unordered without it. ``cost``: predicted cycles, None where no figure is known.
    """

    id: str
    kind: SyncKind
    place: str
    participants: str
    count: int | None
    phase: str | None
    protects: tuple[str, ...]
    cost: int | None
    reason: str

    @property
    def warps(self) -> tuple[int, ...]:
        """The warps of a named barrier."""
        return tuple(int(w) for w in self.participants.removeprefix("warps ").split(","))


@dataclass(frozen=True)
class Buffer:
    """Where a ring lies, and between which timeline positions it is live."""

    ring: str
    offset: int
    stride: int
    stages: int
    bytes: int
    first: int
    last: int


@dataclass(frozen=True)
class Role:
    """A set of warps with its own copy of the loop nest; ``steps`` empty: all of them."""

    name: str
    warps: tuple[int, ...]
    registers: int | None
    steps: tuple[str, ...]


@dataclass(frozen=True)
class Channel:
    """Rings that turn together: ``depth`` slots, filled ``ahead`` items before they are read.

    ``slot_rule`` is in words; ``full`` and ``empty`` name what tells the reader and the writer to go on; ``arrivals``
    are the counts of phase barriers (empty where none are used).
    """

    name: str
    loop: str
    rings: tuple[str, ...]
    depth: int
    ahead: int
    slot_rule: str
    full: str
    empty: str
    bytes_per_phase: int
    arrivals: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Slotting:
    """Where one step of a loop stands in the pipeline: it works on the item ``stage`` trips after its issue loop."""

    step: str
    stage: int
    slot: int


@dataclass(frozen=True)
class LoopSchedule:
    """``ahead``: rings filled ahead of the loop's trip and by how many items. ``early``: steps that read the next
    trip's item at the end of a trip. ``sooner``: steps that stand before the product that precedes them. ``fills``:
    ring and the step before which its fill stands (not listed: at the head of the body). ``interval``: predicted
    initiation interval in cycles, None until a timing model has been asked."""

    loop: str
    interval: int | None
    prologue: int
    ahead: tuple[tuple[str, int], ...]
    early: tuple[str, ...]
    sooner: tuple[str, ...]
    fills: tuple[tuple[str, str], ...]
    steps: tuple[Slotting, ...]


@dataclass(frozen=True)
class AxisOrder:
    """How CTAs go along an axis of the grid. The last axis is the fastest; but inside bands of ``band`` rows of the
    axis before it (1 for every other axis), CTAs go down the columns. ``backwards``: from the last index to 0."""

    index: str
    band: int
    backwards: bool


@dataclass(frozen=True)
class Bounds:
    """Lower bounds on the initiation interval in cycles and what limits it; None where not computed."""

    resource: int | None = None
    recurrence: int | None = None
    latency: int | None = None
    limits: str | None = None


@dataclass(frozen=True)
class ProtectedPair:
    """A dependence as the plan names it, with the author's lines."""

    id: str
    kind: str
    source: str
    sink: str
    places: tuple[str, ...]
    distance: int | None
    scope: str
    source_line: int
    sink_line: int


@dataclass(frozen=True)
class AsyncPlan:
    """All decisions for one kernel on one target; the fields are explained in docs/plan.md."""

    kernel: str
    target: str
    producer: str
    warps: int
    constants: tuple[tuple[str, str], ...]
    grid: tuple[AxisOrder, ...]
    smem_bytes: int
    share: bool
    buffers: tuple[Buffer, ...]
    roles: tuple[Role, ...]
    channels: tuple[Channel, ...]
    dependences: tuple[ProtectedPair, ...]
    syncs: tuple[Sync, ...]
    schedule: tuple[LoopSchedule, ...]
    bounds: Bounds

    def __str__(self) -> str:
        from tidegate.plan.text import render

        return render(self)

    def to_json(self) -> dict[str, Any]:
        """Plain data; :func:`tidegate.plan.file.from_json` reads it back."""
        from tidegate.plan.file import to_json

        return to_json(self)

    def save(self, path: str) -> None:
        """Writes the plan as JSON."""
        from tidegate.plan.file import save

        save(self, path)

    def syncs_at(self) -> Mapping[str, tuple[Sync, ...]]:
        """Syncs by place, in order."""
        found: dict[str, tuple[Sync, ...]] = {}
        for sync in self.syncs:
            found[sync.place] = (*found.get(sync.place, ()), sync)
        return found
