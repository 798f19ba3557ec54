"""The rules of tensors that are written: each is written somewhere, and no CTA touches what another one writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

from tidegate.errors import NeverWritten, OverlappingWrites
from tidegate.ir import hir
from tidegate.ir.dtypes import F32, I32
from tidegate.ir.expr import Int, Sym, cdiv, linear, symbols

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


Digits = tuple[tuple[str, int], ...]
"""What places a window along an axis: indices, and how far apart windows begin that differ by one of them; or a
position that no indices determine."""


def _counts(program: hir.Program) -> dict[str, float]:
    """How many values each index has at most."""
    extents = [(axis.index, cdiv(axis.extent, axis.size)) for axis in program.grid]
    extents += [(n.index, cdiv(n.extent, n.size)) for n in hir.walk(program.body) if isinstance(n, hir.Loop)]
    found: dict[str, float] = {}
    for name, count in extents:
        found[name] = max(found.get(name, 0), count.value if isinstance(count, Int) else inf)
    return found


def _place(axis: hir.Axis, counts: Mapping[str, float]) -> Digits:
    """Windows with the same digits have no element in common unless all digits agree (mixed radix): each moves the
    window farther than it is wide and all smaller ones move it."""
    if axis.index is not None:
        return ((axis.index, axis.size),)
    if axis.at is not None or axis.start is not None:
        base, terms = linear(axis.origin)
        names = [(name.name, step) for name, step in terms.items() if isinstance(name, Sym)]
        digits = sorted((step, counts.get(name, inf), name) for name, step in names)
        reach: float = base + axis.size if base >= 0 and len(digits) == len(terms) else inf
        for step, count, _ in digits:
            if reach > step:
                break
            reach += step * (count - 1)
        else:
            if digits:
                return tuple((name, step) for step, _, name in digits)
    return (("" if axis.at is None else str(axis.at), 1),)


def _own_window(program: hir.Program, access: Access) -> None:
    """The window's place follows from the grid indices."""
    window, counts = access.window, _counts(program)
    indices = {name for a in window.axes for name, _ in _place(a, counts)}
    for axis in program.grid:
        alone = isinstance(axis.extent, Int) and axis.extent.value <= axis.size
        if axis.index in indices or alone:
            continue
        computed = any(a.index is None and axis.index in symbols(a.origin) for a in window.axes)
        how = f"does not depend on the grid index {axis.index}, so CTAs that differ in it collide"
        advice = f"index {window.tensor} with {axis.index}"
        if computed:
            how = f"only computes with the grid index {axis.index}, so CTAs that differ in it may collide"
            advice += (
                " itself, by slices that move by their size, i * 16 : i * 16 + 16, or by i * 8 + j with 8 values of j"
            )
        done = "read" if isinstance(access, hir.Load) else "written"
        advice += ", or turn that grid axis into a loop inside the kernel"
        if program.tensor(window.tensor).input:
            advice += ", or add to it by tg.atomic_add"
        elif isinstance(access, hir.Store) and program.tensor(window.tensor).dtype in (F32, I32):
            advice += (
                f", or make {window.tensor} a tg.InOut that begins as zeros, to which tg.atomic_add adds the parts"
            )
        raise OverlappingWrites(
            access.span,
            what=f"the window {done} {'of' if done == 'read' else 'to'} {window.tensor} {how}",
            advice=advice,
        )


def _same_axes(program: hir.Program, accesses: Sequence[Access]) -> None:
    """All windows of an output put each grid index on the same axis: else one CTA writes what another does."""
    grid, counts = {a.index for a in program.grid}, _counts(program)
    first: dict[str, Access] = {}
    for access in accesses:
        other = first.setdefault(access.window.tensor, access)
        for mine, theirs in zip(access.window.axes, other.window.axes, strict=True):
            one, two = _place(mine, counts), _place(theirs, counts)
            shared = [name for name, _ in (*one, *two) if name in grid]
            if one != two and shared:
                index = shared[0]
                raise OverlappingWrites(
                    access.span,
                    [(other.span, "the other window")],
                    what=f"two windows of {access.window.tensor} have the grid index {index} in different places",
                    advice="index every window of an output with the same grid indices",
                )
