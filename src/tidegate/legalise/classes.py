"""Which register tiles share a layout, and which layout that is.

Elementwise ops, casts, accumulators and loop-carried values tie tiles together (a transpose ties them with a flip).
A class that holds a tensor core accumulator takes its fragment layout; any other takes a blocked layout that suits its
memory accesses. An op that finds its operand in another layout converts it through shared memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

from tidegate.ir import hir
from tidegate.ir.layout import Layout
from tidegate.legalise.layouts import blocked, mma_accumulator, run_length

REGISTER_BLOCK_BYTES = 16
"""Widest access of one thread."""


@dataclass
class Classes:
    """Union-find over value ids; each link carries the parity of transposes."""

    parent: dict[int, tuple[int, int]] = field(default_factory=dict)
    anchors: dict[int, tuple[tuple[int, int], int]] = field(default_factory=dict)
    touches: dict[int, list[tuple[int, int, bool]]] = field(default_factory=dict)

    def find(self, value: int) -> tuple[int, int]:
        """Representative, and whether value is its transpose."""
        up, flip = self.parent.get(value, (value, 0))
        if up == value:
            return value, 0
        root, rest = self.find(up)
        self.parent[value] = (root, flip ^ rest)
        return self.parent[value]

    def union(self, a: hir.Value, b: hir.Value, flip: int = 0) -> None:
        """Ties two values; a tie that contradicts an earlier one is dropped (it becomes a conversion)."""
        (ra, fa), (rb, fb) = self.find(a.id), self.find(b.id)
        if ra != rb:
            self.parent[rb] = (ra, fa ^ fb ^ flip)


def staged_views(body: tuple[hir.Op | hir.Loop, ...], staged: set[int]) -> dict[int, tuple[int, bool]]:
    """Values that are a staged tile or a transpose of one: id -> (id of the load's result, transposed)."""
    views: dict[int, tuple[int, bool]] = {v: (v, False) for v in staged}
    for node in hir.walk(body):
        if isinstance(node, hir.Transpose) and node.source.id in views:
            base, flipped = views[node.source.id]
            views[node.result.id] = (base, not flipped)
    return views


def choose(
    program: hir.Program,
    views: Mapping[int, tuple[int, bool]],
    reach: Mapping[str, int],
) -> dict[int, Layout]:
    """Layout of every register value (by id). ``reach``: bytes that one access to each tensor may move."""
    classes = Classes()
    shapes: dict[int, tuple[int, ...]] = {}
    sizes: dict[int, int] = {}
    for node in hir.walk(program.body):
        _tie(node, views, classes)
        if not isinstance(node, hir.Loop):
            for value in (*hir.operands(node), *(() if isinstance(node, hir.Store) else (node.result,))):
                shapes[value.id] = value.shape
                sizes[value.id] = max(sizes.get(value.id, 0), value.dtype.size)
        else:
            for c in node.carried:
                for value in (c.initial, c.inside, c.yielded, c.after):
                    shapes[value.id], sizes[value.id] = value.shape, value.dtype.size
    wishes = _wishes(program, views, classes, reach)
    layouts: dict[int, Layout] = {}
    for value, shape in shapes.items():
        root, flip = classes.find(value)
        if root not in layouts:
            root_shape = shape[::-1] if flip else shape
            if root in wishes.anchors:
                anchored = mma_accumulator(*wishes.anchors[root], program.warps)
                layouts[root] = anchored.transposed() if wishes.flipped[root] else anchored
            else:
                layouts[root] = _blocked_for(root_shape, wishes.runs.get(root, {}), program.warps)
    return {v: layouts[r].transposed() if f else layouts[r] for v in shapes for r, f in [classes.find(v)]}


def _tie(node: hir.Op | hir.Loop, views: Mapping[int, tuple[int, bool]], classes: Classes) -> None:
    def free(value: hir.Value) -> bool:
        return value.id not in views

    match node:
        case hir.Map():
            for arg in node.args:
                if isinstance(arg, hir.Value) and free(arg):
                    classes.union(node.result, arg)
        case hir.Cast() if free(node.source):
            classes.union(node.result, node.source)
        case hir.Transpose() if free(node.source):
            classes.union(node.result, node.source, 1)
        case hir.Dot() if free(node.c):
            classes.union(node.result, node.c)
        case hir.Loop():
            for c in node.carried:
                for value in (c.initial, c.yielded, c.after):
                    if free(value):
                        classes.union(c.inside, value)


@dataclass
class _Wishes:
    """Per class: the accumulator shape that anchors it, and the run in elements that its memory accesses want along
    each axis (stores first: their axis leads)."""

    anchors: dict[int, tuple[int, int]] = field(default_factory=dict)
    flipped: dict[int, int] = field(default_factory=dict)
    runs: dict[int, dict[int, int]] = field(default_factory=dict)

    def run(self, root: int, axis: int, elements: int) -> None:
        have = self.runs.setdefault(root, {})
        have[axis] = min(have.get(axis, elements), elements)


def _wishes(
    program: hir.Program, views: Mapping[int, tuple[int, bool]], classes: Classes, reach: Mapping[str, int]
) -> _Wishes:
    wishes = _Wishes()
    nodes = list(hir.walk(program.body))
    for node in nodes:
        if isinstance(node, hir.Dot):
            root, flip = classes.find(node.result.id)
            if root not in wishes.anchors:
                wishes.anchors[root] = (node.result.shape[0], node.result.shape[1])
                wishes.flipped[root] = flip
        if isinstance(node, hir.Store) and node.value.id not in views:
            _wish(wishes, classes, node.value, False, reach[node.window.tensor])
    for node in nodes:
        if isinstance(node, hir.Load) and node.result.id not in views:
            _wish(wishes, classes, node.result, False, reach[node.window.tensor])
        if isinstance(node, (hir.Map, hir.Cast)):
            for value in hir.operands(node):
                if value.id in views:
                    root, flip = classes.find(node.result.id)
                    axis = _last(value.shape, bool(flip) ^ views[value.id][1])
                    wishes.run(root, axis, REGISTER_BLOCK_BYTES // value.dtype.size)
    return wishes


def _wish(wishes: _Wishes, classes: Classes, value: hir.Value, view: bool, bytes_: int) -> None:
    root, flip = classes.find(value.id)
    wishes.run(root, _last(value.shape, bool(flip) ^ view), max(bytes_ // value.dtype.size, 1))


def _last(shape: tuple[int, ...], flipped: bool) -> int:
    """The axis, in the representative's coordinates, along which memory is contiguous."""
    return 0 if flipped and len(shape) == 2 else len(shape) - 1


def _blocked_for(shape: tuple[int, ...], runs: Mapping[int, int], warps: int) -> Layout:
    lead = next(iter(runs), len(shape) - 1)
    run = run_length(shape, lead, warps, runs.get(lead, 4))
    for axis, wish in runs.items():
        if axis != lead:
            share = max(prod(shape) // (32 * warps * run), 1)
            cross = min(run_length(shape, axis, warps, wish), 1 << (share.bit_length() - 1))
            return blocked(shape, warps, lead, run, axis, cross)
    return blocked(shape, warps, lead, run)


def copy_layout(shape: tuple[int, ...], size: int, warps: int, bytes_: int) -> Layout:
    """How threads share a copy of a tile with rows of contiguous elements: ``bytes_`` per access at most."""
    axis = len(shape) - 1
    run = run_length(shape, axis, warps, max(bytes_ // size, 1))
    return blocked(shape, warps, axis, run)


def store_view_layout(shape: tuple[int, ...], size: int, warps: int, bytes_: int, transposed: bool) -> Layout:
    """Registers between a staged tile and a store of it (or of its transpose) with nothing in between."""
    lead = len(shape) - 1
    runs = {lead: max(bytes_ // size, 1)}
    if transposed:
        runs[0] = REGISTER_BLOCK_BYTES // size
    return _blocked_for(shape, runs, warps)
