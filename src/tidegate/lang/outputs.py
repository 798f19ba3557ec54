"""The rules of tensors that are written: each is written somewhere, and no CTA touches what another one writes."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.errors import NeverWritten, OverlappingWrites
from tidegate.ir import hir
from tidegate.ir.expr import Int, symbols

Access = hir.Load | hir.Store | hir.AtomicAdd


def check_outputs(program: hir.Program) -> None:
    """Every output is written, and no CTA touches what another one writes."""
    accesses = [n for n in hir.walk(program.body) if isinstance(n, Access) and program.tensor(n.window.tensor).output]
    for tensor in program.tensors:
        mine = [a for a in accesses if a.window.tensor == tensor.name]
        if tensor.output and all(isinstance(a, hir.Load) for a in mine):
            raise NeverWritten(tensor.span, tensor=tensor.name, kind="tg.InOut" if tensor.input else "tg.Out")
        added = [a for a in mine if isinstance(a, hir.AtomicAdd)]
        for other in mine if added else ():
            if not isinstance(other, hir.AtomicAdd):
                how = "read" if isinstance(other, hir.Load) else "written"
                raise OverlappingWrites(
                    other.span,
                    [(added[0].span, "the addition")],
                    what=f"{tensor.name} is {how} here and added to by tg.atomic_add, maybe by another CTA meanwhile",
                    advice="use two tensors, or two kernels",
                )
    ordered = [a for a in accesses if not isinstance(a, hir.AtomicAdd)]
    _same_axes(program, ordered)
    for access in ordered:
        _own_window(program, access)


def _own_window(program: hir.Program, access: Access) -> None:
    """The window's place follows from the grid indices."""
    window = access.window
    indices = {a.index if a.at is None else str(a.at) for a in window.axes}
    for axis in program.grid:
        alone = isinstance(axis.extent, Int) and axis.extent.value <= axis.size
        if axis.index not in indices and not alone:
            computed = any(a.index is None and axis.index in symbols(a.origin) for a in window.axes)
            how = "only computes with the grid index {0}, so CTAs that differ in it may collide"
            how = how if computed else "does not depend on the grid index {0}, so CTAs that differ in it collide"
            done = "read" if isinstance(access, hir.Load) else "written"
            raise OverlappingWrites(
                access.span,
                what=f"the window {done} {'of' if done == 'read' else 'to'} {window.tensor} {how.format(axis.index)}",
                advice=f"index {window.tensor} with {axis.index}, or turn that grid axis into a loop inside the kernel",
            )


def _same_axes(program: hir.Program, accesses: Sequence[Access]) -> None:
    """All windows of an output put each grid index on the same axis: else one CTA writes what another does."""
    grid = {a.index for a in program.grid}
    first: dict[str, Access] = {}
    for access in accesses:
        other = first.setdefault(access.window.tensor, access)
        for mine, theirs in zip(access.window.axes, other.window.axes, strict=True):
            one, two = (a.index if a.at is None else str(a.at) for a in (mine, theirs))
            if one != two and {one, two} & grid:
                index = one if one in grid else two
                raise OverlappingWrites(
                    access.span,
                    [(other.span, "the other window")],
                    what=f"two windows of {access.window.tensor} have the grid index {index} in different places",
                    advice="index every window of an output with the same grid indices",
                )
