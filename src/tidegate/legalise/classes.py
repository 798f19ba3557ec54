"""Which layout every register tile has.

Ops relate the layouts of their tiles: elementwise operands agree, a transpose flips, a reduction leaves what is held
once an axis is folded, a broadcast reads what a wider tile holds along the axes that remain. Layouts start where an
instruction dictates one (tensor core accumulators), then where memory accesses want one, widest tile first, and spread
along these relations. The first to reach a tile decides; an op that finds its operand in another layout converts it
through shared memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import NamedTuple

from tidegate.ir import hir
from tidegate.ir.layout import Coord, Layout
from tidegate.ir.registers import renamed
from tidegate.legalise.layouts import blocked, mma_accumulator, run_length, shared_out

REGISTER_BLOCK_BYTES = 16
"""Widest access of one thread."""


class View(NamedTuple):
    """A part of a staged tile from ``origin`` on (in coordinates of the tile as it lies there), or its transpose.
    ``base``: id of the load's result."""

    base: int
    transposed: bool
    origin: Coord


Views = Mapping[int, View]
"""Values that are a staged tile, or a view of one."""

Derive = Callable[[Layout], Layout | None]


def staged_views(body: hir.Body, staged: set[int]) -> dict[int, View]:
    """The views of staged tiles."""
    views: dict[int, View] = {}
    for node in hir.walk(body):
        if isinstance(node, hir.Load) and node.result.id in staged:
            views[node.result.id] = View(node.result.id, False, (0,) * len(node.result.shape))
        elif isinstance(node, hir.Transpose) and node.source.id in views:
            views[node.result.id] = views[node.source.id]._replace(transposed=not views[node.source.id].transposed)
        elif isinstance(node, hir.Part) and node.source.id in views:
            base, transposed, origin = views[node.source.id]
            step = node.origin[::-1] if transposed else node.origin
            views[node.result.id] = View(base, transposed, tuple(o + s for o, s in zip(origin, step, strict=True)))
    return views


def sliced(layout: Layout, origin: Coord, shape: Coord) -> Layout | None:
    """How the threads that hold a tile in ``layout`` hold a part of it without moving anything; None: they do not."""
    base = tuple(min(whole, part & -part) for whole, part in zip(layout.base, shape, strict=True))

    def kept(basis: Coord) -> Coord:
        return tuple(step if step < most else 0 for step, most in zip(basis, base, strict=True))

    found = Layout(
        shape,
        tuple(kept(b) for b in layout.reg if any(kept(b))),
        tuple(map(kept, layout.lane)),
        tuple(map(kept, layout.warp)),
        tuple(part // b for part, b in zip(shape, base, strict=True)),
        layout.replicated,
    )
    try:
        renamed(found, layout, tuple(range(layout.rank)), origin)
    except ValueError:
        return None
    return found


def restricted(layout: Layout, axes: Coord, shape: Coord) -> Layout:
    """What a tile of ``shape`` must be held in so that broadcasting it to a tile of ``layout`` moves nothing: axis i
    runs along axis ``axes[i]`` of the wide tile, unless it has one element."""
    kept = {a for a, size in zip(axes, shape, strict=True) if size > 1}
    for axis in range(layout.rank):
        if axis not in kept and layout.shape[axis] > 1:
            layout = layout.collapsed(axis)
    return _projected(layout, axes, shape)


def _projected(layout: Layout, axes: Coord, shape: Coord) -> Layout:
    def part(basis: Coord) -> Coord:
        return tuple(basis[a] if size > 1 else 0 for a, size in zip(axes, shape, strict=True))

    return Layout(
        shape,
        tuple(map(part, layout.reg)),
        tuple(map(part, layout.lane)),
        tuple(map(part, layout.warp)),
        tuple(layout.rep[a] if size > 1 else 1 for a, size in zip(axes, shape, strict=True)),
        layout.replicated,
    )


def _widened(axes: Coord, shape: Coord) -> Derive:
    """How the layout of a result of ``shape`` follows from its source, for a broadcast that only adds or drops axes of
    one element."""

    def derive(layout: Layout) -> Layout:
        where = {a: i for i, a in enumerate(axes) if layout.shape[i] > 1}

        def part(basis: Coord) -> Coord:
            return tuple(basis[where[a]] if a in where else 0 for a in range(len(shape)))

        return Layout(
            shape,
            tuple(map(part, layout.reg)),
            tuple(map(part, layout.lane)),
            tuple(map(part, layout.warp)),
            tuple(layout.rep[where[a]] if a in where else 1 for a in range(len(shape))),
            layout.replicated,
        )

    return derive


@dataclass
class Relations:
    """The graph: per value, its neighbours with how their layout follows. ``alike``: neighbours that share a blocked
    layout, up to a flip."""

    values: dict[int, hir.Value] = field(default_factory=dict)
    follow: dict[int, list[tuple[int, Derive]]] = field(default_factory=dict)
    alike: dict[int, list[tuple[int, bool]]] = field(default_factory=dict)
    folded: dict[int, set[int]] = field(default_factory=dict)
    runs: dict[int, dict[int, int]] = field(default_factory=dict)

    def add(self, *values: hir.Value) -> None:
        for value in values:
            self.values.setdefault(value.id, value)

    def equal(self, a: hir.Value, b: hir.Value, flip: bool = False) -> None:
        derive: Derive = Layout.transposed if flip else _same
        for one, other in ((a, b), (b, a)):
            self.follow.setdefault(one.id, []).append((other.id, derive))
            self.alike.setdefault(one.id, []).append((other.id, flip))

    def derived(self, source: hir.Value, target: hir.Value, derive: Derive) -> None:
        self.follow.setdefault(source.id, []).append((target.id, derive))

    def run(self, value: hir.Value, axis: int, elements: int) -> None:
        """A memory access of the value wants ``elements`` neighbours along ``axis`` in one thread."""
        have = self.runs.setdefault(value.id, {})
        have[axis] = min(have.get(axis, elements), max(elements, 1))


def _same(layout: Layout) -> Layout:
    return layout


def choose(program: hir.Program, views: Views, reach: Mapping[str, int]) -> dict[int, Layout]:
    """Layout of every register value (by id). ``reach``: bytes that one access to each tensor may move (windows that
    begin beside such pieces are accessed in narrower ones, in the same layout)."""
    graph = Relations()
    for node in hir.walk(program.body):
        _relate(graph, node, views, reach)
    for node in hir.walk(program.body):
        _wish_reads(graph, node, views)
    rows_only = _dots_are_folded(program, graph)
    layouts: dict[int, Layout] = {}
    for node in hir.walk(program.body):
        if isinstance(node, hir.Dot) and node.result.id not in layouts:
            rows, columns = node.result.shape
            _spread(graph, layouts, node.result.id, accumulator(rows, columns, program.warps, rows_only))
    order = sorted(graph.values.values(), key=lambda v: (-prod(v.shape), v.id))
    for value in order:
        if value.id not in layouts:
            _spread(graph, layouts, value.id, _blocked_for(graph, layouts, value, program.warps))
    return layouts


def accumulator(rows: int, columns: int, warps: int, rows_only: bool) -> Layout:
    """The accumulator layout; warps without work of their own repeat another's where rows are folded, since every
    thread must hold what it folds."""
    found = mma_accumulator(rows, columns, warps, rows_only)
    return replace(found, replicated=True) if rows_only and found.free_mask else found


def _spread(graph: Relations, layouts: dict[int, Layout], start: int, layout: Layout) -> None:
    """Gives a value its layout, and every value that follows from it and has none yet."""
    layouts[start] = layout
    queue = deque([start])
    while queue:
        value = queue.popleft()
        for other, derive in graph.follow.get(value, ()):
            if other not in layouts and (found := derive(layouts[value])) is not None:
                layouts[other] = found
                queue.append(other)


# ------------------------------------------------------------------------------------------ relations


def _relate(graph: Relations, node: hir.Node, views: Views, reach: Mapping[str, int]) -> None:
    if isinstance(node, hir.Loop):
        for c in node.carried:
            graph.add(c.initial, c.inside, c.yielded, c.after)
            for value in (c.initial, c.yielded, c.after):
                if value.id not in views:
                    graph.equal(c.inside, value)
        return
    if isinstance(node, hir.Branch):
        for m in node.merged:
            graph.add(m.then, m.otherwise, m.after)
            for value in (m.then, m.otherwise):
                if value.id not in views:
                    graph.equal(m.after, value)
        return
    if isinstance(node, hir.LoadScalar):
        return
    graph.add(*hir.operands(node))
    if isinstance(node, (hir.Load, hir.AtomicAdd)) and node.window.rows is not None:
        axes, narrow = (node.window.tile_axis,), node.window.rows.shape
        tile = node.result if isinstance(node, hir.Load) else node.value
        if tile.id not in views:
            graph.derived(tile, node.window.rows, lambda layout: restricted(layout, axes, narrow))
    if isinstance(node, hir.AtomicAdd):
        return
    if isinstance(node, hir.Store):
        if node.value.id not in views:
            graph.run(node.value, len(node.value.shape) - 1, reach[node.window.tensor] // node.value.dtype.size)
        return
    graph.add(node.result)
    match node:
        case hir.Map():
            for arg in node.args:
                if isinstance(arg, hir.Value) and arg.id not in views:
                    graph.equal(node.result, arg)
        case hir.Cast() if node.source.id not in views:
            graph.equal(node.result, node.source)
        case hir.Part() if node.source.id not in views:
            origin, shape = node.origin, node.result.shape
            graph.derived(node.source, node.result, lambda layout: sliced(layout, origin, shape))
        case hir.Transpose() if node.source.id not in views:
            graph.equal(node.result, node.source, flip=True)
        case hir.Dot():
            if node.c.id not in views:
                graph.equal(node.result, node.c)
        case hir.Load() if node.result.id not in views:
            graph.run(node.result, len(node.result.shape) - 1, reach[node.window.tensor] // node.result.dtype.size)
        case hir.Reduce():
            axis = node.axis
            graph.derived(node.source, node.result, lambda layout: layout.collapsed(axis))
            graph.folded.setdefault(node.source.id, set()).add(axis)
        case hir.Spread():
            _relate_spread(graph, node)


def _relate_spread(graph: Relations, node: hir.Spread) -> None:
    axes, narrow, wide = node.axes, node.source.shape, node.result.shape
    graph.derived(node.result, node.source, lambda layout: restricted(layout, axes, narrow))
    if prod(narrow) == prod(wide):
        graph.derived(node.source, node.result, _widened(axes, wide))


def _wish_reads(graph: Relations, node: hir.Node, views: Views) -> None:
    """Reads of staged tiles: the class of the op that reads wants runs along the buffer's last axis."""
    if isinstance(node, (hir.Map, hir.Cast)):
        readers = [(node.result, v) for v in hir.operands(node)]
    elif isinstance(node, (hir.Reduce, hir.Spread)):
        readers = [(node.source, node.source)]
    else:
        return
    for reader, value in readers:
        if value.id in views:
            axis = 0 if views[value.id].transposed and len(value.shape) == 2 else len(value.shape) - 1
            graph.run(reader, axis, REGISTER_BLOCK_BYTES // value.dtype.size)


def _component(graph: Relations, layouts: Mapping[int, Layout], start: int) -> dict[int, bool]:
    """The values that share a blocked layout with ``start``: id -> flipped."""
    found = {start: False}
    queue = deque([start])
    while queue:
        value = queue.popleft()
        for other, flip in graph.alike.get(value, ()):
            if other not in found and other not in layouts:
                found[other] = found[value] ^ flip
                queue.append(other)
    return found


def _dots_are_folded(program: hir.Program, graph: Relations) -> bool:
    """Is a row of some product folded? Then a warp should hold whole rows of all of them."""
    for node in hir.walk(program.body):
        if isinstance(node, hir.Dot):
            for value, flip in _component(graph, {}, node.result.id).items():
                if (0 if flip else 1) in graph.folded.get(value, set()):
                    return True
    return False


# ------------------------------------------------------------------------------------------ blocked layouts


def _blocked_for(graph: Relations, layouts: Mapping[int, Layout], value: hir.Value, warps: int) -> Layout:
    """A layout that suits the memory accesses and reductions of all values that will share it."""
    runs: dict[int, int] = {}
    folds: set[int] = set()
    for other, flip in sorted(_component(graph, layouts, value.id).items()):
        for axis, elements in graph.runs.get(other, {}).items():
            mine = _flipped(axis, flip, value.shape)
            runs[mine] = min(runs.get(mine, elements), elements)
        folds |= {_flipped(axis, flip, value.shape) for axis in graph.folded.get(other, ())}
    chosen = _blocked(value.shape, runs, warps, folds)
    return replace(chosen, replicated=True) if folds and chosen.free_mask else chosen


def _flipped(axis: int, flip: bool, shape: Coord) -> int:
    return len(shape) - 1 - axis if flip else axis


def _blocked(shape: Coord, runs: Mapping[int, int], warps: int, folds: Iterable[int] = ()) -> Layout:
    lead = next(iter(runs), len(shape) - 1)
    run = run_length(shape, lead, warps, runs.get(lead, 4))
    spare = tuple(sorted(folds))
    for axis, wish in runs.items():
        if axis != lead:
            share = max(shared_out(shape) // (32 * warps * run), 1)
            cross = min(run_length(shape, axis, warps, wish), 1 << (share.bit_length() - 1))
            return blocked(shape, warps, lead, run, axis, cross, spare)
    return blocked(shape, warps, lead, run, spare=spare)


def copy_layout(shape: Coord, size: int, warps: int, bytes_: int) -> Layout:
    """How threads share a copy of a tile with rows of contiguous elements: ``bytes_`` per access at most. Few wide
    pieces, which nobody waits for one by one, are better than work for every thread."""
    axis = len(shape) - 1
    run = run_length(shape, axis, warps, max(bytes_ // size, 1), idle=True)
    return blocked(shape, warps, axis, run)


def store_view_layout(shape: Coord, size: int, warps: int, bytes_: int, transposed: bool) -> Layout:
    """Registers between a staged tile and a store of it (or of its transpose) with nothing in between."""
    lead = len(shape) - 1
    runs = {lead: max(bytes_ // size, 1)}
    if transposed:
        runs[0] = REGISTER_BLOCK_BYTES // size
    return _blocked(shape, runs, warps)


def gathered(layout: Layout, part: Layout, axis: int) -> Layout:
    """Where each thread collects the parts that several warps folded along ``axis``: all of them in its registers."""
    base = layout.collapsed(axis)
    count = part.shape[axis]
    steps = tuple(
        tuple(1 << bit if a == axis else 0 for a in range(base.rank)) for bit in range(count.bit_length() - 1)
    )
    return replace(base, shape=part.shape, reg=(*steps, *base.reg))
