"""The rules of tensors that are written: each is written somewhere, and no CTA touches what another one writes."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.errors import NeverWritten, OverlappingWrites
from tidegate.ir import hir
from tidegate.ir.expr import Int, Sym, linear, symbols

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


def _place(axis: hir.Axis) -> tuple[str, int]:
    """What places a window along an axis: an index, and how far apart its windows begin; or a position that is no index
    alone. Windows of one index have no element in common where its values differ."""
    if axis.index is not None:
        return axis.index, axis.size
    if axis.at is not None or axis.start is not None:
        base, terms = linear(axis.origin)
        name, step = next(iter(terms.items()), (None, 0))
        if len(terms) == 1 and isinstance(name, Sym) and base >= 0 and base + axis.size <= step:
            return name.name, step
    return ("" if axis.at is None else str(axis.at)), 1


def _own_window(program: hir.Program, access: Access) -> None:
    """The window's place follows from the grid indices."""
    window = access.window
    indices = {_place(a)[0] for a in window.axes}
    for axis in program.grid:
        alone = isinstance(axis.extent, Int) and axis.extent.value <= axis.size
        if axis.index in indices or alone:
            continue
        computed = any(a.index is None and axis.index in symbols(a.origin) for a in window.axes)
        how = f"does not depend on the grid index {axis.index}, so CTAs that differ in it collide"
        advice = f"index {window.tensor} with {axis.index}"
        if computed:
            how = f"only computes with the grid index {axis.index}, so CTAs that differ in it may collide"
            advice += " itself, or by slices that move by their size, i * 16 : i * 16 + 16"
        done = "read" if isinstance(access, hir.Load) else "written"
        advice += ", or turn that grid axis into a loop inside the kernel"
        if program.tensor(window.tensor).input:
            advice += ", or add to it by tg.atomic_add"
        raise OverlappingWrites(
            access.span,
            what=f"the window {done} {'of' if done == 'read' else 'to'} {window.tensor} {how}",
            advice=advice,
        )


def _same_axes(program: hir.Program, accesses: Sequence[Access]) -> None:
    """All windows of an output put each grid index on the same axis: else one CTA writes what another does."""
    grid = {a.index for a in program.grid}
    first: dict[str, Access] = {}
    for access in accesses:
        other = first.setdefault(access.window.tensor, access)
        for mine, theirs in zip(access.window.axes, other.window.axes, strict=True):
            one, two = _place(mine), _place(theirs)
            if one != two and {one[0], two[0]} & grid:
                index = one[0] if one[0] in grid else two[0]
                raise OverlappingWrites(
                    access.span,
                    [(other.span, "the other window")],
                    what=f"two windows of {access.window.tensor} have the grid index {index} in different places",
                    advice="index every window of an output with the same grid indices",
                )
