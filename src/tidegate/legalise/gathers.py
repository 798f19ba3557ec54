"""The rows of gathers: which threads need them, and which tiles are read for nothing else.

A thread holds the rows of the elements that it copies, in its own registers. So the same positions are wanted in the
layout of every gather that uses them, and by fills that run ahead for a later trip. They are cheap: instead of moving
them between threads, what makes them is done again in each such layout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from tidegate.errors import BadSchedule, Span
from tidegate.ir import hir, tir
from tidegate.ir.expr import Int, Sym, mul
from tidegate.ir.layout import Layout
from tidegate.legalise.build import Builder
from tidegate.legalise.classes import restricted
from tidegate.legalise.layouts import contiguous_run
from tidegate.legalise.tensors import WIDEST, Tensors

Gather = hir.Load | hir.AtomicAdd

Simple = hir.Load | hir.Positions | hir.Fill | hir.Splat | hir.Map | hir.Cast
"""What can be done again: no result depends on when, or on what other threads hold."""


def rows_layout(window: hir.Window, tile: Layout) -> Layout:
    """How rows are held for a tile in a layout: every thread has those of its elements."""
    assert window.rows is not None
    return restricted(tile, (window.tile_axis,), window.rows.shape)


@dataclass
class Indices:
    """``makers``: the op that makes a value; ``homes``: the loops around the place where it is made; ``idle``: values
    that gathers alone read; ``wanted``: the layouts in which a value is needed where it is made, or further inside."""

    program: hir.Program
    makers: dict[int, hir.Op] = field(default_factory=dict)
    homes: dict[int, tuple[str, ...]] = field(default_factory=dict)
    idle: set[int] = field(default_factory=set)
    wanted: dict[int, list[Layout]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._visit(self.program.body, ())
        readers: dict[int, list[hir.Op | None]] = {}
        for node in hir.walk(self.program.body):
            reader = None if isinstance(node, (hir.Loop, hir.Branch)) else node
            for value in hir.reads(node):
                readers.setdefault(value.id, []).append(reader)
        for id_, maker in reversed(self.makers.items()):
            if self.simple(maker) and all(self._for_rows(id_, r) for r in readers.get(id_, [None])):
                self.idle.add(id_)

    def _visit(self, body: hir.Body, around: tuple[str, ...]) -> None:
        for node in body:
            self.homes.update((value.id, around) for value in hir.makes(node))
            match node:
                case hir.Loop():
                    self.homes.update((c.inside.id, (*around, node.id)) for c in node.carried)
                    self._visit(node.body, (*around, node.id))
                case hir.Branch():
                    self._visit(node.then, around)
                    self._visit(node.otherwise, around)
                case _ if (result := hir.result(node)) is not None:
                    self.makers[result.id] = node

    def _for_rows(self, value: int, reader: hir.Op | None) -> bool:
        """Does an op read the value for the rows of a gather alone?"""
        if isinstance(reader, Gather):
            others = [v for v in hir.operands(reader) if v is not reader.window.rows]
            return all(v.id != value for v in others)
        result = None if reader is None else hir.result(reader)
        return result is not None and result.id in self.idle

    def simple(self, op: hir.Op | None) -> bool:
        if isinstance(op, hir.Load):
            return op.window.rows is None and not self.program.tensor(op.window.tensor).output
        return isinstance(op, Simple)

    def gathers(self) -> Iterator[Gather]:
        return (n for n in hir.walk(self.program.body) if isinstance(n, Gather) and n.window.rows is not None)

    def want(self, place: Callable[[Gather], tuple[Layout, str | None]]) -> None:
        """Fills ``wanted``. ``place``: the layout of a gather's tile, and the loop whose fills it is part of."""
        for gather in self.gathers():
            layout, loop = place(gather)
            assert gather.window.rows is not None
            self._want(gather.window.rows, rows_layout(gather.window, layout), loop)

    def _want(self, value: hir.Value, layout: Layout, loop: str | None) -> None:
        maker = self.makers.get(value.id)
        if maker is None or not self.simple(maker):
            return
        if not self.made_in(value, loop):
            found = self.wanted.setdefault(value.id, [])
            if layout in found:
                return
            found.append(layout)
            loop = None
        for operand in hir.operands(maker):
            self._want(operand, layout, loop)

    def made_in(self, value: hir.Value, loop: str | None) -> bool:
        return loop is not None and loop in self.homes[value.id]

    def obstacle(self, value: hir.Value, loop: str | None) -> hir.Value | None:
        """What a fill of ``loop`` would need and cannot make itself; None: it can make the value."""
        if not self.made_in(value, loop):
            return None
        maker = self.makers.get(value.id)
        if maker is None or not self.simple(maker):
            return value
        found = (self.obstacle(v, loop) for v in hir.operands(maker))
        return next((v for v in found if v is not None), None)

    def entering(self, value: hir.Value, loop: str | None) -> Iterator[hir.Value]:
        """What a fill of ``loop`` that makes the value needs from in front of the loop."""
        if not self.made_in(value, loop):
            yield value
        elif self.simple(maker := self.makers.get(value.id)) and maker is not None:
            for operand in hir.operands(maker):
                yield from self.entering(operand, loop)


def owner(layout: Layout) -> Layout:
    """The layout in which only the first holder of each element holds it."""
    return replace(layout, replicated=False) if layout.free_mask else layout


class Gathering:
    """The part of legalisation that makes rows, and with them what they are made of; the legaliser builds on it."""

    build: Builder
    tensors: Tensors
    indices: Indices
    mechanisms: Mapping[int, str]
    layouts: dict[int, Layout]
    registers: dict[int, str]
    shared_registers: dict[int, int]
    converted: dict[tuple[int, Layout], str]

    def operand(self, value: hir.Value, layout: Layout, span: Span) -> tir.Name:
        """A register that holds a value in a layout."""
        raise NotImplementedError

    def copy(self, node: hir.Load) -> tuple[Layout, int]:
        """How threads share a load to shared memory, and the bytes of one access."""
        raise NotImplementedError

    def added_layout(self, value: hir.Value) -> Layout:
        """How a tile that is added to a tensor is held."""
        raise NotImplementedError

    def wanted_copies(self, node: hir.Op, made: hir.Value) -> None:
        """Makes a value in the layouts in which gathers want it."""
        for layout in self.indices.wanted.get(made.id, ()):
            if made.id in self.indices.idle or self.build.register_layout(self.registers[made.id]) != layout:
                self.converted[made.id, layout] = self.remade(node, layout, None, None)

    def place_rows(self, loop: hir.Loop) -> None:
        """What fills of a loop need from in front of it they find there, in their layouts: they may run ahead."""
        for node in hir.of_trip(loop.body):
            if isinstance(node, hir.Load) and node.window.rows and self.mechanisms[node.result.id] != "registers":
                layout = rows_layout(node.window, self.copy(node)[0])
                for value in self.indices.entering(node.window.rows, loop.id):
                    self.operand(value, layout, node.span)

    def gather_place(self, node: Gather) -> tuple[Layout, str | None]:
        """The layout of a gather's tile, and the loop whose fills it is part of."""
        if isinstance(node, hir.AtomicAdd):
            return owner(self.added_layout(node.value)), None
        if self.mechanisms[node.result.id] == "registers":
            home = self.shared_registers.get(node.result.id, node.result.id)
            return self.layouts[home], None
        return self.copy(node)[0], next(iter(self.indices.homes[node.result.id][-1:]), None)

    def rows(self, node: Gather, tile: Layout, loop: str | None, ring: str | None) -> tir.Name | None:
        """The register with the rows that each thread needs for ``tile``; None: the window is not gathered."""
        rows = node.window.rows
        if rows is None:
            return None
        layout = rows_layout(node.window, tile)
        if ring is None or not self.indices.made_in(rows, loop):
            return self.operand(rows, layout, node.span)
        obstacle = self.indices.obstacle(rows, loop)
        if obstacle is None:
            return self.filled(rows, layout, loop, ring, node.span)
        assert isinstance(node, hir.Load)  # what fills a ring
        if node.stages == 1:
            return self.operand(rows, layout, node.span)
        raise BadSchedule(
            node.span,
            what=f"{node.result.name} is copied ahead of its trip, and its rows depend on {obstacle.name}, which is "
            "not known then",
            advice="drop stages=, or make the rows of loads, positions and elementwise operations",
        )

    def filled(self, value: hir.Value, layout: Layout, loop: str | None, ring: str, span: Span) -> tir.Name:
        """A part of the rows of a gather, computed where its ring is filled, for the trip that is filled."""
        if not self.indices.made_in(value, loop):
            return self.operand(value, layout, span)
        return self.remade(self.indices.makers[value.id], layout, loop, ring)

    def remade(self, node: hir.Op, layout: Layout, loop: str | None, ring: str | None) -> tir.Name:
        """What an op makes, once more in a layout."""
        value = hir.result(node)
        assert value is not None  # only ops with results are done again
        args = [
            self.operand(v, layout, node.span) if ring is None else self.filled(v, layout, loop, ring, node.span)
            for v in hir.operands(node)
        ]
        out = self.build.register(value.name, value.dtype, layout, "rows")
        self.compute(node, out, args, fills=ring)
        return out

    def compute(
        self,
        node: hir.Op,
        out: tir.Name,
        args: list[tir.Name],
        rows: tir.Name | None = None,
        fills: str | None = None,
    ) -> None:
        """The step of an op that makes registers out of registers ``args`` of the same layout."""
        match node:
            case hir.Load():
                layout = self.build.register_layout(out)
                bytes_ = min(contiguous_run(layout, layout.rank - 1) * node.result.dtype.size, WIDEST)
                window = self.tensors.window(node.window, rows)
                load = tir.LdGlobal(out, window, min(bytes_, self.tensors.reach(node.window)))
                self.build.step(f"ldg_{out}", load, node.span, fills)
            case hir.Fill():
                self.build.step(f"fill_{out}", tir.Fill(out, node.number), node.span, fills)
            case hir.Splat():
                self.build.step(f"splat_{out}", tir.Splat(out, node.value), node.span, fills)
            case hir.Positions():
                origin = mul(Sym(node.index), node.result.shape[0]) if node.index else Int(0)
                self.build.step(f"positions_{out}", tir.Positions(out, origin), node.span, fills)
            case hir.Map():
                left = iter(args)
                operands = tuple(next(left) if isinstance(a, hir.Value) else a for a in node.args)
                self.build.step(f"{node.op}_{out}", tir.Map(out, tir.Name(node.op), operands), node.span, fills)
            case hir.Cast():
                self.build.step(f"cast_{out}", tir.Cast(out, args[0]), node.span, fills)
            case _:
                raise TypeError(f"{type(node).__name__} is no op on registers of one layout")
