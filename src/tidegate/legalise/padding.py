"""Tiles whose size threads cannot share well are held with room to spare.

Threads share an axis by powers of two, so a row of 1000 elements would lie in eight threads, and one of 1408 be read
two bytes at a time. Where that leaves a thread with much more work than its part, the axis is padded: loads and stores
stop where the tile ends, and reductions fold what is in front of that. What lies behind it are numbers that nothing
looks at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from math import prod
from typing import Any

from tidegate.errors import BadSchedule, CopyAlignment, NoInstruction, OverCapacity, OverlappingWrites
from tidegate.ir import hir
from tidegate.ir.expr import Int
from tidegate.ir.layout import Coord
from tidegate.legalise.layouts import blocked, run_length
from tidegate.legalise.tensors import WIDEST

WORTH = 1.5
"""Axes are padded where a thread would have this many times the work that it has with the padded tile."""

ACCESS = 4
"""The work of an access to memory, in elements that are held and computed with."""

CHEAP = 16384
"""Bytes of shared memory that a padded tile may take in all its slots; a larger one may grow by an eighth."""

REFUSALS = (BadSchedule, CopyAlignment, NoInstruction, OverCapacity, OverlappingWrites)
"""What may be said of a padded program and not of its author's."""

Spot = tuple[int, int]
"""An axis of a value, by its id."""


def padded(program: hir.Program) -> hir.Program:
    """The program with sizes of tiles padded where that pays. Axes that a product, a part of a tile, a gather or a tile
    index depends on stay as they are."""
    axes = Axes()
    for node in hir.walk(program.body):
        axes.relate(node)
    sizes: dict[Spot, int] = {}
    for members in axes.classes():
        if axes.kept.isdisjoint(members):
            room = _room([axes.values[v] for v, _ in members], [a for _, a in members], program.warps)
            if room and all(axes.affordable(spot, room) for spot in members):
                sizes.update(dict.fromkeys(members, room))
    if not sizes:
        return program
    return replace(program, body=tuple(_Rewriter(sizes).new(node) for node in program.body))


@dataclass
class Axes:
    """Axes of tiles that have one size because ops relate them, as a forest: ``parent`` of each. ``kept``: those that
    must stay as they are. ``slots``: of tiles that go to shared memory, the number of stages."""

    values: dict[int, hir.Value] = field(default_factory=dict)
    slots: dict[int, int] = field(default_factory=dict)
    parent: dict[Spot, Spot] = field(default_factory=dict)
    kept: set[Spot] = field(default_factory=set)

    def root(self, spot: Spot) -> Spot:
        while (up := self.parent.setdefault(spot, spot)) != spot:
            self.parent[spot] = spot = self.parent[up]
        return spot

    def same(self, a: hir.Value, b: hir.Value, axes: Mapping[int, int] | None = None) -> None:
        """Axes of ``a`` are axes of ``b``; all, unless ``axes`` says which."""
        for one, other in (axes or {i: i for i in range(len(a.shape))}).items():
            self.parent[self.root((a.id, one))] = self.root((b.id, other))

    def keep(self, *values: hir.Value) -> None:
        self.kept |= {(v.id, axis) for v in values for axis in range(len(v.shape))}

    def classes(self) -> Iterator[list[Spot]]:
        """Axes of one size, of more than one element."""
        found: dict[Spot, list[Spot]] = {}
        for value in self.values.values():
            for axis, size in enumerate(value.shape):
                if size > 1:
                    found.setdefault(self.root((value.id, axis)), []).append((value.id, axis))
        yield from found.values()

    def relate(self, node: hir.Node) -> None:
        """What a node says of its tiles."""
        known = [*hir.reads(node), *hir.makes(node)]
        if isinstance(node, hir.Loop):
            known += [c.inside for c in node.carried]
        self.values.update({v.id: v for v in known})
        match node:
            case hir.Loop():
                for c in node.carried:
                    for value in (c.initial, c.yielded, c.after):
                        self.same(value, c.inside)
            case hir.Branch():
                for m in node.merged:
                    self.same(m.then, m.after)
                    self.same(m.otherwise, m.after)
            case hir.Load():
                self.window(node.window, node.result)
                if node.stages > 1 or node.to == "shared" or (node.by is not None and node.by.name != "ld"):
                    self.slots[node.result.id] = node.stages
            case hir.Store() | hir.AtomicAdd():
                self.window(node.window, node.value)
            case hir.Positions() if node.index is not None:
                self.keep(node.result)
            case hir.Map() | hir.Cast():
                for value in hir.operands(node):
                    self.same(value, node.result)
            case hir.Transpose():
                self.same(node.source, node.result, {0: 1, 1: 0})
            case hir.Reduce():
                others = {a: a for a in range(len(node.source.shape)) if a != node.axis}
                if others:
                    self.same(node.source, node.result, others)
            case hir.Spread():
                self.same(node.source, node.result, dict(enumerate(node.axes)))
            case hir.Dot() | hir.Part():
                self.keep(*hir.operands(node), *hir.makes(node))

    def affordable(self, spot: Spot, room: int) -> bool:
        """May an axis be padded as far as shared memory goes?"""
        value, size = self.values[spot[0]], self.values[spot[0]].shape[spot[1]]
        bytes_ = self.slots.get(value.id, 0) * prod(value.shape) // size * room * value.dtype.size
        return bytes_ <= CHEAP or room <= size + size // 8

    def window(self, window: hir.Window, value: hir.Value) -> None:
        """Only the whole of an axis, or a slice that stays in its place, ends at a number."""
        tile = [a for a in window.axes if a.at is None]
        moved = {i for i, a in enumerate(tile) if a.index or a.rows or not isinstance(a.start, Int | None)}
        self.kept |= {(value.id, axis) for axis in moved}
        if window.rows is not None:
            self.keep(window.rows)


def _room(values: list[hir.Value], axes: list[int], warps: int) -> int:
    """The padded size of an axis that the values share; 0: it stays as it is."""
    value, axis = max(zip(values, axes, strict=True), key=lambda pair: prod(pair[0].shape))
    size = value.shape[axis]
    run = WIDEST // min(v.dtype.size for v in values)

    def work(extent: int) -> int:
        """Of a thread, if the axis had that extent."""
        shape: Coord = (*value.shape[:axis], extent, *value.shape[axis + 1 :])
        lead = len(shape) - 1
        wide = run_length(shape, lead, warps, run)
        held = blocked(shape, warps, lead, wide).registers
        return held + ACCESS * (held // wide)

    rooms = {-(-size // unit) * unit for unit in (1 << bit for bit in range(1, size.bit_length() + 1))}
    best = min(rooms, key=lambda extent: (work(extent), extent))
    return best if best > size and work(size) >= WORTH * work(best) else 0


@dataclass(frozen=True)
class _Rewriter:
    """Makes nodes anew with padded tiles; ``sizes``: the extents of padded axes."""

    sizes: Mapping[Spot, int]

    def new(self, item: Any) -> Any:
        """An item of HIR with all tiles inside it padded."""
        if isinstance(item, hir.Value):
            extents = (self.sizes.get((item.id, axis), size) for axis, size in enumerate(item.shape))
            return replace(item, shape=tuple(extents))
        if isinstance(item, tuple):
            return tuple(map(self.new, item))
        if not is_dataclass(item) or isinstance(item, type) or type(item).__module__ != hir.__name__:
            return item
        made: Any = replace(item, **{f.name: self.new(getattr(item, f.name)) for f in fields(item)})
        if isinstance(item, hir.Reduce) and made.source.shape != item.source.shape:
            return replace(made, inside=item.source.shape[item.axis])
        if isinstance(item, (hir.Load, hir.Store, hir.AtomicAdd)):
            old, new = (i.result if isinstance(i, hir.Load) else i.value for i in (item, made))
            return replace(made, window=_ending(item.window, old.shape, new.shape))
        return made


def _ending(window: hir.Window, old: Coord, new: Coord) -> hir.Window:
    """The window of a padded tile: its axes end where they did."""
    wider = iter([a != b for a, b in zip(old, new, strict=True)])
    return replace(window, axes=tuple(replace(a, ends=a.at is None and next(wider)) for a in window.axes))
