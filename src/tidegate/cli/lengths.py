"""Numbers that end the loops of a trial, so large that rings come round."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tidegate.ir import hir
from tidegate.ir.expr import Bin, Expr, Int, Sym, symbols

PARTS = 4
"""How many parts of a trial's tensor offsets delimit."""


def stages(loop: hir.Loop) -> int:
    """The stages of the deepest ring that is filled in a loop."""
    return max([1, *(op.stages for op in hir.walk(loop.body) if isinstance(op, hir.Load))])


def loops(program: hir.Program) -> Iterator[hir.Loop]:
    return (node for node in hir.walk(program.body) if isinstance(node, hir.Loop))


def read_from(program: hir.Program) -> dict[str, str]:
    """Of each integer that is read, the tensor."""
    return {n.name: n.window.tensor for n in hir.walk(program.body) if isinstance(n, hir.LoadScalar)}


def lengths(program: hir.Program) -> dict[str, int]:
    """By scalar or tensor: how large a number that ends loops is when they have a trip more than their rings stages."""
    tensors, given = read_from(program), {s.name for s in program.scalars}
    found: dict[str, int] = {}
    for loop in loops(program):
        for name, scale in _ends(loop.extent):
            if name in given or name in tensors:
                source = tensors.get(name, name)
                found[source] = max(found.get(source, 0), loop.size * (stages(loop) + 1) * scale)
    return found


def rising(program: hir.Program) -> frozenset[str]:
    """Tensors of offsets: the difference of two elements ends a loop."""
    tensors = read_from(program)
    found: set[str] = set()
    for loop in loops(program):
        ends = {name for name, _ in _ends(loop.extent)}
        begins = {tensors[name] for name in tensors.keys() & set(symbols(loop.extent)) - ends}
        found |= {tensors[name] for name in ends & tensors.keys()} & begins
    return frozenset(found)


def moved(program: hir.Program, loop: hir.Loop) -> Iterator[Expr]:
    """The sizes of the axes along which a loop that numbers end moves its slices."""
    numbers = read_from(program).keys() | {s.name for s in program.scalars}
    if numbers.isdisjoint(symbols(loop.extent)):
        return
    for op in hir.walk(loop.body):
        if isinstance(op, hir.Load):
            yield from (a.extent for a in op.window.axes if a.start is not None and loop.index in symbols(a.start))


def offsets(rng: np.random.Generator, shape: tuple[int, ...], length: int, most: int) -> np.ndarray:
    """Rising numbers up to ``most``; the first part is a little longer than ``length``, others are of any length."""
    steps = rng.integers(0, 2 * length, shape)
    steps[..., :1], steps[..., 1:2] = 0, length + 1
    return np.minimum(steps.cumsum(axis=-1), most)


def _ends(extent: Expr) -> Iterator[tuple[str, int]]:
    """The names that an extent grows with, and what each is divided by."""
    if isinstance(extent, Sym):
        yield extent.name, 1
    elif isinstance(extent, Bin):
        yield from ((n, s * _divisor(extent)) for n, s in _ends(extent.a))
        if extent.op not in ("-", "/", "cdiv", "%"):
            yield from _ends(extent.b)


def _divisor(e: Bin) -> int:
    return e.b.value if e.op in ("/", "cdiv") and isinstance(e.b, Int) else 1
