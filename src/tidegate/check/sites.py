"""What touches shared memory, and global memory where it has to be ordered: the sites of a kernel, and which of them
meet.

A *site* is one shape of access to one slot by one group of warps. Only its latest execution matters: an earlier one
comes before it, and it was itself checked against the earlier ones (docs/checking.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np

from tidegate.check.pattern import Meeting, Shape, meeting
from tidegate.ir import tir
from tidegate.ir.layout import Layout, SharedLayout

COPY, BULK, WGMMA = 0, 1, 2
"""Families of groups that a thread commits and waits for; each has its own counter."""

Statements = tuple[tir.Instruction, tir.Instruction]

Key = tuple[tir.Slot, str, str, int]
"""Slot, register or layout, kind, first warp of the group."""


@dataclass(frozen=True)
class Group:
    """The warps that execute a statement: those of a role, or all (then without a name)."""

    name: str
    first: int
    count: int

    @property
    def leader(self) -> int:
        """The class of the elected thread."""
        return 2 * self.first

    @cached_property
    def classes(self) -> slice:
        return slice(2 * self.first, 2 * (self.first + self.count))

    @cached_property
    def warps(self) -> slice:
        return slice(self.first, self.first + self.count)

    def __str__(self) -> str:
        last = self.first + self.count - 1
        span = f"warp {self.first}" if self.count == 1 else f"warps {self.first}..{last}"
        return f"{self.name} ({span})" if self.name else "everyone"


@dataclass(frozen=True)
class Site:
    """``base`` is the slot's first byte. ``kind``: read, write, copy (cp.async), load and store (tensor copies),
    operand (of wgmma), barrier (its life begins or ends). Of global memory, where ``buffer`` is a tensor and ``slot``
    tells sites apart: global read, global copy (the source of a cp.async), global write."""

    buffer: str
    slot: int
    base: int
    shape: Shape
    kind: str

    @property
    def write(self) -> bool:
        return self.kind in ("write", "copy", "load", "barrier", "global write")

    @property
    def on_tensor(self) -> bool:
        return self.kind.startswith("global")

    @property
    def family(self) -> int:
        """The kind of group that completes it; -1: complete on return, or by a barrier."""
        return {"copy": COPY, "global copy": COPY, "store": BULK, "operand": WGMMA}.get(self.kind, -1)

    @property
    def asynchronous(self) -> bool:
        """Whether it goes through the async proxy."""
        return self.kind in ("load", "store", "operand")


@dataclass(frozen=True, eq=False)
class Rivals:
    """Sites whose bytes conflict with one site, and per such site the pairs of lane classes (of the one site, of the
    rival) that meet in different threads, and in any."""

    numbers: np.ndarray
    crossing: np.ndarray
    together: np.ndarray
    generic: np.ndarray  # rivals that need a proxy fence before this site
    trusted: np.ndarray  # of these, those that a switch exempts


class Sites:
    """All sites of a kernel, numbered. ``pairs``: statements that access global memory and may meet in different
    threads; ``tensors`` gives the site of each (by the id of the statement). ``wholes``: where two of these buffers
    share bytes, every slot of one conflicts with every slot of the other, and a write to one leaves nothing of the
    other."""

    def __init__(
        self,
        kernel: tir.Kernel,
        trust: frozenset[str],
        pairs: Sequence[Statements] = (),
        wholes: frozenset[str] = frozenset(),
    ) -> None:
        self.kernel = kernel
        self.trust = trust
        self.wholes = wholes
        self.buffers: dict[str, tir.Buffer] = {b.name: b for b in kernel.buffers}
        self.depths = {c.name: c.depth for c in kernel.cursors}
        self.items: list[Site] = []
        self.numbers: dict[Site, int] = {}
        self.of: dict[Key, tuple[int, ...]] = {}
        self._rivals: dict[int, Rivals] = {}
        self._sharing: dict[tuple[str, str], bool] = {}
        self._wholes: dict[tuple[str, Shape, str, Shape], Meeting] = {}
        for stmt, group in placed(kernel):
            for key in accesses(stmt, group):
                self._declare(key, group)
        for barrier in kernel.barriers:
            self._barrier(barrier)
        self.tensors: dict[int, int] = {}
        for pair in pairs:
            for stmt in pair:
                self._tensor(stmt)
        self._meeting = {(self.tensors[id(a)], self.tensors[id(b)]) for a, b in pairs}
        self.family = np.array([site.family for site in self.items], np.int64)

    @cached_property
    def parts(self) -> tuple[frozenset[str], ...]:
        """The buffers that are accessed, in parts of which none shares bytes with another."""
        found: list[frozenset[str]] = []
        for buffer in dict.fromkeys(slot.buffer for slot, *_ in self.of):
            mine = [part for part in found if any(self.share(buffer, other) for other in part)]
            found = [part for part in found if part not in mine] + [frozenset({buffer}).union(*mine)]
        return tuple(found)

    @property
    def entangled(self) -> frozenset[str]:
        """The buffers in parts in which a buffer of several slots shares bytes with another."""
        rings = {name for name, buffer in self.buffers.items() if buffer.stages > 1}
        return frozenset[str]().union(*(part for part in self.parts if len(part) > 1 and part & rings))

    def _declare(self, key: Key, group: Group) -> None:
        if key in self.of:
            return
        slot, tile, kind, _ = key
        buffer = self.buffers[slot.buffer]
        shape = self._shape(slot, tile, kind, group)
        count = self.depths[slot.cursor] if slot.cursor is not None else 1
        self.of[key] = tuple(
            self._number(Site(buffer.name, s, buffer.offset + s * buffer.stride, shape, kind)) for s in range(count)
        )

    def _shape(self, slot: tir.Slot, tile: str, kind: str, group: Group) -> Shape:
        shared = self.buffers[slot.buffer].layout
        if kind in ("load", "store", "operand"):
            warps = group.count if kind == "operand" else 1
            return Shape(None, shared, slot.origin, False, False, group.first, warps)
        name = tile.removesuffix("*")
        layout = self.kernel.layout(tir.Name(name)) if kind == "copy" else self._layout(name)
        return Shape(layout, shared, slot.origin, slot.transposed, tile.endswith("*"), group.first)

    def _layout(self, register: str) -> Layout:
        return self.kernel.layout(self.kernel.register(tir.Name(register)).layout)

    def _barrier(self, barrier: tir.Mbarrier) -> None:
        """The bytes of a barrier as a site, where they are those of a buffer too."""
        end = barrier.offset + 8 * barrier.stages
        if any(b.offset < end and barrier.offset < b.end for b in self.kernel.buffers):
            shape = Shape(None, SharedLayout((8 * barrier.stages,), 1), (0,), False, False)
            self._number(Site(barrier.name, 0, barrier.offset, shape, "barrier"))

    def _tensor(self, stmt: tir.Instruction) -> None:
        window, writes = next(
            (v, how == "writes")
            for how in ("reads", "writes")
            for name in getattr(stmt, how)
            if isinstance(v := getattr(stmt, name), tir.Window)
        )
        kind = "global write" if writes else "global copy" if isinstance(stmt, tir.CpAsync) else "global read"
        shape = Shape(None, SharedLayout((1,), 1), (0,), False, False)
        if id(stmt) not in self.tensors:
            self.tensors[id(stmt)] = self._number(Site(window.tensor, len(self.tensors), 0, shape, kind))

    def _number(self, site: Site) -> int:
        if site not in self.numbers:
            self.numbers[site] = len(self.items)
            self.items.append(site)
        return self.numbers[site]

    def meet(self, first: int, second: int) -> Meeting:
        a, b = self.items[first], self.items[second]
        if a.on_tensor:
            met = bool({(first, second), (second, first)} & self._meeting)
            every = np.full((2 * self.kernel.warps,) * 2, met or first == second)
            return Meeting(every & met, every, met, covers=False)
        if not self.as_wholes(a, b):
            return meeting(a.shape, b.shape, b.base - a.base, self.kernel.warps)
        key = (a.buffer, a.shape, b.buffer, b.shape)
        if key not in self._wholes:
            pairs = product(self._slots(a.buffer), self._slots(b.buffer))
            found = [meeting(a.shape, b.shape, to - at, self.kernel.warps) for at, to in pairs]
            crossing, together = ([getattr(m, which) for m in found] for which in ("crossing", "together"))
            # Every write counts as one of all bytes, also where its threads reach others: reads have to see it so too.
            self._wholes[key] = Meeting(np.any(crossing, axis=0), np.any(together, axis=0), overlap=True, covers=True)
        return self._wholes[key]

    def _slots(self, buffer: str) -> list[int]:
        """Where the slots of a buffer begin."""
        b = self.buffers[buffer]
        return [b.offset + slot * b.stride for slot in range(b.stages)]

    def share(self, one: str, other: str) -> bool:
        """Whether two buffers have bytes in common."""
        if (one, other) not in self._sharing:
            sizes = self.buffers[one].layout.bytes, self.buffers[other].layout.bytes
            pairs = product(self._slots(one), self._slots(other))
            self._sharing[one, other] = any(to < at + sizes[0] and at < to + sizes[1] for at, to in pairs)
        return self._sharing[one, other]

    def as_wholes(self, a: Site, b: Site) -> bool:
        """Whether it does not matter which slots two sites are of."""
        return a.buffer != b.buffer and a.buffer in self.wholes and b.buffer in self.wholes

    def near(self, a: Site, b: Site) -> bool:
        """Whether two sites may conflict: their slots share bytes, or they are of one tensor."""
        if a.on_tensor or b.on_tensor:
            return a.on_tensor and b.on_tensor and a.buffer == b.buffer
        if self.as_wholes(a, b):
            return self.share(a.buffer, b.buffer)
        return b.base < a.base + a.shape.shared.bytes and a.base < b.base + b.shape.shared.bytes

    def rivals(self, site: int) -> Rivals:
        if site not in self._rivals:
            self._rivals[site] = self._find_rivals(site)
        return self._rivals[site]

    def _find_rivals(self, site: int) -> Rivals:
        me = self.items[site]
        found = [
            (other, met)
            for other, it in enumerate(self.items)
            if self.near(me, it) and (me.write or it.write) and (met := self.meet(other, site)).overlap
        ]
        classes = 2 * self.kernel.warps
        fenced = [me.asynchronous and not self.items[n].asynchronous for n, _ in found]
        return Rivals(
            np.array([n for n, _ in found], int),
            np.array([met.crossing.T for _, met in found], bool).reshape(len(found), classes, classes),
            np.array([met.together.T for _, met in found], bool).reshape(len(found), classes, classes),
            np.array(fenced, bool),
            np.array([f and self._trusted(self.items[n], me) for f, (n, _) in zip(fenced, found, strict=True)], bool),
        )

    def _trusted(self, old: Site, new: Site) -> bool:
        """The exemptions of async-proxy fences that a caller may ask for (docs/checking.md, "Disputed fences")."""
        if "war release" in self.trust and old.kind == "read" and new.kind == "load":
            return True
        return "cp.async operand" in self.trust and old.kind == "copy" and new.kind == "operand"


def accesses(stmt: tir.Stmt, group: Group) -> list[Key]:
    """The sites that a statement touches, as keys; a register's name with * stands for whole warps."""
    first = group.first
    match stmt:
        case tir.CpAsync():
            return [(stmt.dst, stmt.layout, "copy", first)]
        case tir.StShared():
            return [(stmt.dst, stmt.src, "write", first)]
        case tir.StMatrix():
            return [(stmt.dst, stmt.src, "write", first)]
        case tir.LdShared():
            return [(stmt.src, stmt.dst, "read", first)]
        case tir.LdMatrix():
            return [(stmt.src, f"{stmt.dst}*", "read", first)]
        case tir.TmaLoad():
            return [(stmt.dst, "", "load", first)]
        case tir.TmaStore():
            return [(stmt.src, "", "store", first)]
        case tir.Wgmma():
            return [(_plain(stmt.a), "", "operand", first), (_plain(stmt.b), "", "operand", first)]
    return []


def _plain(slot: tir.Slot) -> tir.Slot:
    """The whole slot: how an engine views it does not change its bytes."""
    return tir.Slot(slot.buffer, slot.cursor, slot.origin)


def everyone(kernel: tir.Kernel) -> Group:
    return Group("", 0, kernel.warps)


def groups(kernel: tir.Kernel) -> dict[str, Group]:
    """The groups of a kernel by the name of their role; "" is everyone."""
    return {"": everyone(kernel), **{r.name: Group(r.name, r.first, r.count) for r in kernel.roles}}


def placed(kernel: tir.Kernel) -> Iterator[tuple[tir.Stmt, Group]]:
    """All statements with the warps that execute them."""
    table = groups(kernel)

    def walk(body: tuple[tir.Stmt, ...], group: Group) -> Iterator[tuple[tir.Stmt, Group]]:
        for stmt in body:
            yield stmt, group
            if isinstance(stmt, tir.InRole):
                yield from walk(stmt.body, table[stmt.role])
            elif isinstance(stmt, (tir.For, tir.If)):
                yield from walk(stmt.body, group)

    return walk(kernel.body, table[""])
