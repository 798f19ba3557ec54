"""The rows of gathers: which threads need them, and which tiles are read for nothing else.

A thread holds the rows of the elements that it copies, in its own registers. So the same positions are wanted in the
layout of every gather that uses them, and by fills that run ahead for a later trip. They are cheap: instead of moving
them between threads, what makes them is done again in each such layout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tidegate.ir import hir
from tidegate.ir.layout import Layout
from tidegate.legalise.classes import restricted

Gather = hir.Load | hir.AtomicAdd

Simple = hir.Load | hir.Positions | hir.Fill | hir.Map | hir.Cast
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
            if isinstance(node, hir.Loop):
                for value in (v for c in node.carried for v in (c.initial, c.yielded)):
                    readers.setdefault(value.id, []).append(None)
            else:
                for value in hir.operands(node):
                    readers.setdefault(value.id, []).append(node)
        for id_, maker in reversed(self.makers.items()):
            if self.simple(maker) and all(self._for_rows(id_, r) for r in readers.get(id_, [None])):
                self.idle.add(id_)

    def _visit(self, body: tuple[hir.Op | hir.Loop, ...], around: tuple[str, ...]) -> None:
        for node in body:
            if isinstance(node, hir.Loop):
                for c in node.carried:
                    self.homes[c.inside.id] = (*around, node.id)
                    self.homes[c.after.id] = around
                self._visit(node.body, (*around, node.id))
            elif (result := hir.result(node)) is not None:
                self.makers[result.id] = node
                self.homes[result.id] = around

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
