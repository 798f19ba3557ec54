"""The state of the abstract machine: clocks of lane classes, sites, groups, barriers; and when two states are alike.

Time counts executed statements. ``clock[p, x, c]`` is the time up to which every thread of class x knows what the
*other* threads of class c did. Plane DATA: those accesses are visible to ordinary accesses of x. Plane PROXY: they are
before x's accesses through the async proxy as well. Plane CAUSE: they happened before, whatever is visible. Columns
after those of the lane classes stand for barriers: the slot of an mbarrier (its completed phases, and the copies that
land on it), a named barrier (its generations), the fence after the initialisation of an mbarrier.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from tidegate.check.knowledge import Spot
from tidegate.check.sites import Group, Sites
from tidegate.ir import tir

DATA, PROXY, CAUSE = 0, 1, 2

At = tuple[tuple[str, int | None], ...]
"""Loop and grid indices at a step; None where a whole range of values is replayed at once."""


@dataclass(frozen=True, eq=False)
class Log:
    """Executed steps, newest first. ``group``: the role, "" for everyone."""

    stmt: tir.Stmt
    at: At
    time: int
    before: Log | None
    skipped: int = 0
    group: str = ""


@dataclass(eq=False)
class Fault(Exception):
    """A broken rule. ``earlier`` and ``later`` are sites (``later`` None: the end of the kernel); ``bad[a, b]``: the
    pairs of lane classes (earlier, later) that nothing orders (None: any). ``group`` executes ``stmt``; ``since`` is
    the step at which the story begins if it is not the execution of ``earlier``."""

    kind: str
    stmt: tir.Stmt | None
    at: At
    earlier: int | None = None
    later: int | None = None
    bad: np.ndarray | None = None
    where: tuple[int, int] | None = None
    detail: str = ""
    remedy: str = ""
    state: State | None = field(default=None, repr=False)
    group: Group | None = None
    since: Log | None = field(default=None, repr=False)
    waiting: tuple[Log, ...] = ()
    """In a deadlock what each group waits at."""
    spot: Spot | None = field(default=None, repr=False)
    """Where an abstract run has met it."""


@dataclass(frozen=True)
class Frame:
    """The columns and rows of a kernel's state."""

    warps: int
    slots: tuple[tuple[str, int], ...]
    names: tuple[int, ...]
    barriers: tuple[tir.Mbarrier, ...]
    tracked: tuple[str, ...]
    """Registers that wgmma writes."""

    @property
    def classes(self) -> int:
        return 2 * self.warps

    @property
    def columns(self) -> int:
        return self.classes + len(self.slots) + len(self.names) + len(self.barriers)

    def slot_column(self, slot: int) -> int:
        return self.classes + slot

    def name_column(self, name: int) -> int:
        return self.classes + len(self.slots) + name

    def fence_column(self, barrier: int) -> int:
        return self.classes + len(self.slots) + len(self.names) + barrier


_ARRAYS = (
    "acc", "bar_acc", "bar_done", "bar_in", "bar_left", "bar_rel", "balance", "clock", "cluster", "completed", "counts",
    "dirty", "done", "fence", "flight", "generation", "group", "issued", "landing", "left", "pending", "phase",
    "previous", "rel", "via", "waits",
)  # fmt: skip


class State:
    """Everything that the future depends on, and for witnesses which steps led here."""

    __slots__ = (*_ARRAYS, "arrived", "cursors", "last", "log", "now", "stale", "waited")

    def __init__(self, frame: Frame, sites: Sites) -> None:
        x, c, n, w = frame.classes, frame.columns, len(sites.items), frame.warps
        slots, names = len(frame.slots), len(frame.names)

        def zeros(*shape: int) -> np.ndarray:
            return np.zeros(shape, np.int64)

        self.now = 0
        self.clock = zeros(3, x, c)
        self.fence = zeros(x)  # the class's own accesses up to this time are fenced for the async proxy
        self.issued = zeros(n)  # time of the latest execution, 0: never
        self.done = zeros(n)  # time that others must know: of a copy, that of the issuer's wait
        self.via = zeros(n) - 1  # column in which `done` counts; -1: those of the threads that executed it
        self.landing = zeros(n) - 1  # mbarrier slot on whose current phase it lands
        self.group = zeros(n, w) - 1  # per warp the number of its commit group while incomplete; else -1
        self.pending = np.zeros(n, bool)
        self.counts = zeros(3, w)  # groups closed so far, per family and warp
        # mbarriers
        self.phase, self.left = zeros(slots), zeros(slots)
        self.balance = zeros(slots, w)  # bytes expected and not yet landed, per first warp of the group
        self.completed, self.previous = zeros(slots) - 1, zeros(slots) - 1  # when the last phases completed; -1: dead
        self.acc, self.rel = zeros(slots, 3, c), zeros(slots, 3, c)  # released so far, and by the last phase
        self.waits = zeros(slots, x)  # time of the last wait of a class
        # named barriers
        self.bar_left, self.bar_done, self.generation = zeros(names), zeros(names), zeros(names)
        self.bar_acc, self.bar_rel = zeros(names, 3, c), zeros(names, 3, c)
        self.bar_in = zeros(names, w) - 1  # generation in which a warp has arrived at a bar_sync that it still waits in
        self.cluster = zeros(3, c)
        self.arrived = False  # at the barrier of the cluster
        # registers of wgmma
        self.flight = zeros(len(frame.tracked), w) - 1
        self.dirty = np.ones((len(frame.tracked), w), bool)
        self.cursors = dict.fromkeys(sites.depths, 0)  # modulo twice the depth
        self.last: dict[int, Log] = {}  # per site the step that executed it last
        self.waited: dict[tuple[int, str], Log] = {}  # per mbarrier slot and group its last wait
        self.stale: dict[tuple[int, str], Log] = {}  # ... if that passed on a phase it had waited for before
        self.log: Log | None = None

    def copy(self) -> State:
        other = State.__new__(State)
        for name in _ARRAYS:
            setattr(other, name, getattr(self, name).copy())
        other.now, other.log, other.arrived = self.now, self.log, self.arrived
        other.cursors, other.last = dict(self.cursors), dict(self.last)
        other.waited, other.stale = dict(self.waited), dict(self.stale)
        return other

    # ------------------------------------------------------------------------------------------ clocks

    def known(self, classes: slice) -> np.ndarray:
        """What some thread of these classes knows: [planes, columns]."""
        found: np.ndarray = self.clock[:, classes].max(axis=1)
        return found

    def released(self, classes: slice) -> np.ndarray:
        """What an arrival of all threads of these classes releases."""
        vector = self.known(classes)
        vector[DATA, classes] = vector[CAUSE, classes] = self.now
        vector[PROXY, classes] = np.maximum(vector[PROXY, classes], self.fence[classes])
        return vector

    def acquire(self, classes: slice, vector: np.ndarray) -> None:
        rows = self.clock[:, classes]
        np.maximum(rows, vector[:, None], out=rows)

    def join(self, classes: slice) -> None:
        """A rendezvous of all threads of these classes."""
        self.clock[:, classes] = self.released(classes)[:, None]

    def join_lanes(self, classes: slice) -> None:
        """A rendezvous of the lanes of each warp."""
        warps = (classes.stop - classes.start) // 2
        vector = self.clock[:, classes].reshape(3, warps, 2, -1).max(axis=2)
        warp = np.arange(warps)[:, None]
        own = classes.start + 2 * warp + np.arange(2)
        vector[DATA, warp, own] = vector[CAUSE, warp, own] = self.now
        vector[PROXY, warp, own] = np.maximum(vector[PROXY, warp, own], self.fence[own])
        self.clock[:, classes] = np.repeat(vector, 2, axis=1)


def steps(log: Log | None) -> Iterator[Log]:
    """The steps of a log, oldest first."""
    out = []
    while log is not None:
        out.append(log)
        log = log.before
    return reversed(out)
