"""What is known of the tensors: alignment, divisors of sizes, and windows with the bounds that they need."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import gcd, lcm

from tidegate.ir import hir, tir
from tidegate.ir.expr import Expr, Int, Sym, binary, factor, least

DEFAULT_MULTIPLE = 16
"""What is taken to divide a size that is not given (checked when the kernel is called)."""

WIDEST = 16
"""Bytes of the widest access."""


@dataclass
class Tensors:
    """``pointer_align``: bytes known to divide every array's address. ``align``: bytes, at most 16, that divide the
    address of every row of a tensor. ``relied_on`` collects what must divide a size for the program to be right."""

    program: hir.Program
    pointer_align: int
    relied_on: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        program = self.program
        ranges: list[hir.GridAxis | hir.Loop] = [n for n in hir.walk(program.body) if isinstance(n, hir.Loop)]
        seen: dict[str, set[tuple[Expr, int]]] = {}
        for r in [*program.grid, *ranges]:
            seen.setdefault(r.index, set()).add((r.extent, r.size))
        self.ranges = {index: {extent for extent, _ in found} for index, found in seen.items()}
        self.signed = {s.name for s in program.scalars}
        self.signed |= {n.name for n in hir.walk(program.body) if isinstance(n, hir.LoadScalar)}
        self.extents = {  # of indices that run over one extent wherever their name is used
            index: extent for index, found in seen.items() for extent, size in found if len(found) == size == 1
        }
        windows = [n.window for n in hir.walk(program.body) if isinstance(n, (hir.Load, hir.Store, hir.AtomicAdd))]
        self.in_tiles = {w.tensor for w in windows}
        self.multiples = {d: dict(program.multiples).get(d, DEFAULT_MULTIPLE) for d in program.dims}
        self.multiples.update(dict(program.sizes))
        self.align = {t.name: self.tensor_align(t) for t in program.tensors}

    def dims(self) -> tuple[tir.Dim, ...]:
        sizes = dict(self.program.sizes)
        return tuple(tir.Dim(tir.Name(d), sizes.get(d), self.relied_on.get(d, 1)) for d in self.program.dims)

    def params(self) -> tuple[tir.Param, ...]:
        tensors = self.program.tensors
        return tuple(
            tir.Param(tir.Name(t.name), t.dtype, t.shape, t.direction, self.align[t.name], t.pitch > 0) for t in tensors
        )

    def divisor(self, extent: Expr) -> int:
        """The largest number known to divide a size (0 divides nothing but is divided by all)."""
        if isinstance(extent, Int):
            return extent.value
        assert isinstance(extent, Sym)  # tensor sizes are names or numbers
        return self.multiples[extent.name]

    def tensor_align(self, tensor: hir.Tensor) -> int:
        """Bytes, at most 16, that divide the address of every row of a tensor."""
        align, size = gcd(self.pointer_align, WIDEST), tensor.dtype.size
        if tensor.name not in self.in_tiles:
            return size
        if tensor.pitch:
            return max(gcd(align, size * tensor.pitch), size)
        for extent in tensor.shape[1:][-1:]:  # what divides one row divides what precedes any other
            align = gcd(align, size * self.divisor(extent))
            self.rely(extent, gcd(self.divisor(extent), max(align // size, 1)))
        return max(align, size)

    def rely(self, extent: Expr, multiple: int) -> None:
        """Notes that the program is right only for sizes that ``multiple`` divides."""
        if isinstance(extent, Sym):
            self.relied_on[extent.name] = lcm(self.relied_on.get(extent.name, 1), multiple)

    def reach(self, window: hir.Window) -> int:
        """Bytes that one access to a window may move: at most 16, of which its rows' addresses are multiples."""
        size = self.program.tensor(window.tensor).dtype.size
        start = window.axes[-1].start
        return self.align[window.tensor] if start is None else gcd(self.align[window.tensor], factor(start) * size)

    def window(self, window: hir.Window, rows: tir.Name | None = None) -> tir.Window:
        """Origins in elements; a bound wherever the last tile may reach beyond the tensor. ``rows``: the register of a
        gathered axis."""
        bounds = tuple(self.bound(a) for a in window.axes)
        fixed = tuple(i for i, a in enumerate(window.axes) if a.at is not None)
        below = tuple(i for i, a in enumerate(window.axes) if least(a.origin, self.signed) < 0)
        gathered = [tir.Rows(i, rows) for i, a in enumerate(window.axes) if a.rows is not None and rows is not None]
        origin = tuple(a.origin for a in window.axes)
        return tir.Window(tir.Name(window.tensor), origin, bounds, fixed, below, gathered[0] if gathered else None)

    def bound(self, axis: hir.Axis) -> Expr | None:
        if axis.rows is not None:
            return axis.extent
        if axis.at is not None:
            return None if self.within(axis.at, axis.extent) else axis.extent
        if axis.start is not None:
            stop = Int(axis.start.value + axis.size) if isinstance(axis.start, Int) else None
            fits = stop is not None and self.within(Int(stop.value - 1), axis.extent)
            if axis.ends and stop is not None:
                return stop if fits else binary("min", stop, axis.extent)
            return None if fits else axis.extent
        if axis.index is None:
            return axis.extent if axis.ends else None
        if self.divisor(axis.extent) % axis.size or self.beyond(axis.index, axis.extent):
            return axis.extent
        self.rely(axis.extent, axis.size)
        return None

    def beyond(self, index: str, extent: Expr) -> bool:
        """May tiles of the index lie beyond the axis? It runs over that axis, or over a number; other axes are those of
        other loops whose index has the name."""
        for other in self.ranges[index] - {extent}:
            shorter = isinstance(other, Int) and isinstance(extent, Int) and other.value <= extent.value
            if str(other) not in self.program.dims and not shorter:
                return True
        return False

    def within(self, at: Expr, extent: Expr) -> bool:
        """Is a single position surely inside its axis?"""
        if isinstance(at, Int):
            return isinstance(extent, Int) and at.value < extent.value
        return isinstance(at, Sym) and self.extents.get(at.name) == extent
