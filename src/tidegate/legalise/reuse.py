"""Which accesses touch their bytes once in a launch, so that caches need not keep them."""

from __future__ import annotations

import collections
from collections.abc import Iterator

from tidegate.ir import hir
from tidegate.ir.expr import Sym

Access = hir.Load | hir.LoadScalar | hir.Store | hir.AtomicAdd


def touched_once(program: hir.Program) -> frozenset[hir.Load | hir.Store]:
    """The loads and stores that are the only access to their tensor, with windows that never meet: every index that
    runs around them, of the grid and of loops, has an axis of the window to itself."""
    accesses = list(_accesses(program.body, frozenset(a.index for a in program.grid)))
    count = collections.Counter(access.window.tensor for access, _ in accesses)
    return frozenset(
        access
        for access, running in accesses
        if isinstance(access, (hir.Load, hir.Store))
        and count[access.window.tensor] == 1
        and running <= _own(access.window)
    )


def _accesses(body: hir.Body, running: frozenset[str]) -> Iterator[tuple[Access, frozenset[str]]]:
    """Every access, with the indices that run around it."""
    for node in body:
        inside = running | {node.index} if isinstance(node, hir.Loop) else running
        for inner in hir.bodies(node):
            yield from _accesses(inner, inside)
        if isinstance(node, Access):
            yield node, running


def _own(window: hir.Window) -> set[str]:
    """Indices that alone place an axis of the window; of a gather none, since rows may repeat."""
    if any(a.rows is not None for a in window.axes):
        return set()
    single = {a.at.name for a in window.axes if isinstance(a.at, Sym)}
    return single | {a.index for a in window.axes if a.index is not None}
