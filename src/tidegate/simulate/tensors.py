"""Global memory: the kernel's tensors, who wrote them, and the faults of an access."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from tidegate.ir import tir
from tidegate.ir.expr import symbols
from tidegate.ir.spec import expressions
from tidegate.simulate.access import CELL_TYPES, GlobalAccess, Place, locate, strides_of
from tidegate.simulate.arguments import shape_of
from tidegate.simulate.clocks import Clocks
from tidegate.simulate.order import NOBODY, Order
from tidegate.simulate.report import Kind, Reports, first_run
from tidegate.simulate.trace import Step


def elements_of(param: tir.Param, shape: tuple[int, ...]) -> np.ndarray | slice:
    """Where in memory the elements are, in row-major order."""
    if not param.strided:
        return slice(0, int(np.prod(shape, dtype=np.int64)))
    axes = [np.arange(n, dtype=np.intp) * step for n, step in zip(shape, strides_of(param, shape), strict=True)]
    return sum(np.ix_(*axes), np.zeros(shape, np.intp)).reshape(-1)


class Tensors:
    """Tensors as cells [elements + 1, cells per element], in the order of memory; the last row stands for every element
    outside. Outputs start as poison, unless they are inputs too: of these every access is watched (``_orders``), and of
    an element written in the running CTA ``_before`` holds the value that threads see which do not know of that."""

    def __init__(
        self,
        kernel: tir.Kernel,
        inputs: Mapping[str, np.ndarray],
        sizes: Mapping[str, int],
        cell: int,
        reports: Reports,
    ) -> None:
        self._reports = reports
        self._params: dict[str, tir.Param] = {p.name: p for p in kernel.params}
        self.shapes: dict[str, tuple[int, ...]] = {p.name: shape_of(p, sizes) for p in kernel.params}
        self._partial = frozenset(_partial(kernel.body, frozenset(s.name for s in kernel.scalars), False))
        self._cells: dict[str, np.ndarray] = {}
        self._writer: dict[str, np.ndarray] = {}
        self._orders: dict[str, Order] = {}
        self._before: dict[str, np.ndarray] = {}
        kind = CELL_TYPES[cell]
        self._elements: dict[str, np.ndarray | slice] = {
            p.name: elements_of(p, self.shapes[p.name]) for p in kernel.params
        }
        for param in kernel.params:
            elements = self._elements[param.name]
            count = elements.stop if isinstance(elements, slice) else int(elements.max(initial=-1)) + 1
            cells = np.full((count + 1, param.dtype.size // cell), np.iinfo(kind).max, kind)
            if param.output:
                self._writer[param.name] = np.full(count + 1, NOBODY, np.int32)
            if param.input:
                cells[elements] = inputs[param.name].reshape(-1).view(kind).reshape(cells[elements].shape)
            if param.input and param.output:
                self._orders[param.name] = Order(count)
                self._before[param.name] = cells.copy()
            self._cells[param.name] = cells

    def begin(self, cta: int, clocks: Clocks, trace: list[Step]) -> None:
        """A CTA starts."""
        for order in self._orders.values():
            order.begin(cta, clocks, trace)

    def ordered(self, name: str) -> bool:
        """Whether accesses to a tensor may have to be ordered."""
        return name in self._orders

    def settle(self) -> None:
        """Forgets the accesses that everyone in the CTA knows of."""
        for order in self._orders.values():
            order.settle()

    def load(self, step: Step, access: GlobalAccess, threads: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        """[threads, cells per thread]: zero outside the bounds, poison outside the tensor or where nothing is
        written. ``rows``: see :func:`locate`."""
        place = locate(access, step.origin, step.bounds, threads, rows)
        flat = self._valid(step, access, place, threads)
        cells = self._cells[access.param.name][flat]
        if place.inside is not None:
            cells[~place.inside] = 0
        order = self._orders.get(access.param.name)
        if order is not None:
            for fault in order.read(step, flat, threads):
                self._report(fault.kind, step, access, flat, fault.bad, threads, other=fault.other)
            stale = order.stale(flat, threads)
            cells[stale] = self._before[access.param.name][flat][stale]
        elif access.param.output:
            self._check_written(step, access, flat, place.inside, threads)
        return cells.reshape(len(threads), -1)

    def store(
        self,
        step: Step,
        access: GlobalAccess,
        threads: np.ndarray,
        values: np.ndarray,
        rows: np.ndarray | None = None,
        *,
        add: bool = False,
    ) -> None:
        """Writes, or with ``add`` atomically adds, cells [threads, cells per thread]. ``rows``: see :func:`locate`."""
        name = access.param.name
        place = locate(access, step.origin, step.bounds, threads, rows)
        flat = self._valid(step, access, place, threads)
        valid = flat < len(self._cells[name]) - 1
        at = flat[valid]
        if (order := self._orders.get(name)) is not None:
            for fault in order.write(step, flat, threads, add=add):
                self._report(fault.kind, step, access, flat, fault.bad, threads, other=fault.other)
            self._before[name][at] = self._cells[name][at]
        else:
            writer = self._writer[name]
            strangers = (writer[at] != NOBODY) & (writer[at] != self._reports.cta)
            if strangers.any():
                bad = np.zeros_like(valid)
                bad[valid] = strangers
                self._report("two writers", step, access, flat, bad, threads)
        kept = values.reshape(*flat.shape, -1)[valid]
        if add:
            kind = access.param.dtype.numpy
            numbers = self._cells[name].view(kind)
            np.add.at(numbers, at, np.ascontiguousarray(kept).view(kind))
        else:
            self._cells[name][at] = kept
        self._writer[name][at] = self._reports.cta

    def outputs(self, given: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The output arrays; reports elements that nothing wrote, but where stores depend on what a run reads: they are
        those of ``given``."""
        out = {}
        for name, writer in self._writer.items():
            shape, elements = self.shapes[name], self._elements[name]
            left = np.flatnonzero(writer[elements] == NOBODY)
            incomplete = len(left) and not self._params[name].input
            if incomplete and name not in self._partial:
                self._reports.unwritten_output(name, shape, left)
            cells = np.ascontiguousarray(self._cells[name][elements])
            out[name] = cells.reshape(-1).view(self._params[name].dtype.numpy).reshape(shape)
            if out[name].dtype == bool:
                out[name] = out[name].view(np.uint8) != 0  # poison has all bits set, a bool but one
            if incomplete and name in self._partial and name in given:
                out[name].reshape(-1)[left] = given[name].reshape(-1)[left]
        return out

    def _valid(self, step: Step, access: GlobalAccess, place: Place, threads: np.ndarray) -> np.ndarray:
        """Element indices, with those out of bounds or outside the tensor sent to the last row."""
        flat = place.flat
        if place.misaligned is not None:
            self._report("misaligned", step, access, flat, place.misaligned, threads, f"width {access.width} bytes")
        if place.outside is not None:
            self._report("out of bounds", step, access, flat, place.outside, threads, f"the shape is {access.shape}")
        if place.inside is None and place.outside is None:
            return flat
        valid = np.ones(flat.shape, bool) if place.inside is None else place.inside.copy()
        if place.outside is not None:
            valid &= ~place.outside
        return np.where(valid, flat, len(self._cells[access.param.name]) - 1)

    def _check_written(
        self, step: Step, access: GlobalAccess, flat: np.ndarray, inside: np.ndarray | None, threads: np.ndarray
    ) -> None:
        writer = self._writer[access.param.name][flat]
        bad = writer == NOBODY
        if inside is not None:
            bad &= inside
        if bad.any():
            self._report("never written", step, access, flat, bad, threads)

    def _report(
        self,
        kind: Kind,
        step: Step,
        access: GlobalAccess,
        flat: np.ndarray,
        bad: np.ndarray,
        threads: np.ndarray,
        detail: str = "",
        other: tir.Stmt | None = None,
    ) -> None:
        row = int(np.flatnonzero(bad.any(axis=1))[0])
        size = access.param.dtype.size
        span = first_run(flat[row][bad[row]], size)
        self._reports.add(
            kind,
            step.stmt,
            thread=int(threads[row]),
            buffer=access.param.name,
            bytes=span,
            writer=other,
            detail=detail,
        )


def _partial(body: tuple[tir.Stmt, ...], scalars: frozenset[str], inside: bool) -> Iterator[str]:
    """The outputs of which conditions, or integers that a run reads, say what is written."""
    for stmt in body:
        decided = any(n in scalars for e in expressions(stmt) for n in symbols(e))
        if isinstance(stmt, (tir.For, tir.If, tir.InRole)):
            yield from _partial(stmt.body, scalars, inside or decided or isinstance(stmt, tir.If))
        elif isinstance(stmt, (tir.StGlobal, tir.TmaStore)) and (inside or decided):
            yield stmt.dst.tensor
