"""Sizes and arrays to try a TIR kernel with, where nobody gives any."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tidegate.errors import UnknownConstant
from tidegate.ir import tir
from tidegate.ir.dtypes import I32
from tidegate.ir.expr import Bin, Expr, Int, evaluate, symbols

TRIPS = 4
"""Trips of a loop over tiles, the last tile ragged: enough for a ring to come round."""


def trial_sizes(kernel: tir.Kernel, given: Mapping[str, Any]) -> dict[str, int]:
    """Every size: fixed, given, or so large that loops over tiles have a few trips and the grid a few CTAs.

    Raises UnknownConstant for a given size that is no launch argument, or breaks the declared multiple.
    """
    free = {str(d.name): d for d in kernel.dims if d.value is None}
    sizes = {str(d.name): d.value for d in kernel.dims if d.value is not None}
    for name, value in given.items():
        if name not in free:
            known = ", ".join(free) or "none"
            raise UnknownConstant(what=f"kernel {kernel.name} has no size {name!r} to give", advice=f"it has {known}")
        if not isinstance(value, int) or isinstance(value, bool) or value < 0 or value % free[name].multiple:
            raise UnknownConstant(
                what=f"{name}={value} is no size of kernel {kernel.name}",
                advice=f"give a number that {free[name].multiple} divides",
            )
        sizes[name] = value
    for name, dim in free.items():
        if name not in sizes:
            tile = max((t for e in _extents(kernel) for t in _tiles(e, name)), default=1)
            size = tile * (TRIPS - 1) + tile // 2 + 1 if tile > 1 else TRIPS + 1
            sizes[name] = -(-size // dim.multiple) * dim.multiple
    return sizes


def _extents(kernel: tir.Kernel) -> Iterator[Expr]:
    for axis in kernel.grid:
        yield axis.extent
    for stmt in tir.walk(kernel.body):
        if isinstance(stmt, tir.For):
            yield stmt.stop


def _tiles(e: Expr, name: str) -> Iterator[int]:
    """Numbers that a size is divided by."""
    if not isinstance(e, Bin):
        return
    if e.op in ("cdiv", "/") and isinstance(e.b, Int) and name in symbols(e.a):
        yield e.b.value
    yield from _tiles(e.a, name)
    yield from _tiles(e.b, name)


MOST = 64
"""Trial integers are below it, and not beyond the largest size by more than a tile."""


def trial_arrays(kernel: tir.Kernel, sizes: Mapping[str, int], seed: int = 0) -> dict[str, Any]:
    """The arguments by name: random arrays, small integers where instructions read some, numbers for scalars, and where
    nothing is read arrays in which what nobody writes shows."""
    import numpy as np

    from tidegate.ops.samples import sample, unwritten

    rng = np.random.default_rng(seed)
    most = max([4, *(min(s, MOST) for s in sizes.values())])
    counts = {s.src.tensor for s in tir.walk(kernel.body) if isinstance(s, tir.LdScalar)}
    arrays: dict[str, Any] = {}
    for param in kernel.params:
        shape = tuple(evaluate(e, sizes) for e in param.shape)
        values = sample(rng, shape, param.dtype) if param.input else unwritten(shape, param.dtype)
        arrays[str(param.name)] = rng.integers(0, most, shape).astype("i4") if param.name in counts else values
    return arrays | {str(s.name): TRIPS if s.dtype == I32 else 1.5 for s in kernel.arguments}
