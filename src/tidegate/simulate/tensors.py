"""Global memory: the kernel's tensors, who wrote them, and the faults of an access."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tidegate.ir import tir
from tidegate.simulate.access import CELL_TYPES, GlobalAccess, Place, locate, strides_of
from tidegate.simulate.arguments import shape_of
from tidegate.simulate.report import Kind, Reports, first_run
from tidegate.simulate.trace import Step

NOBODY = -1


def elements_of(param: tir.Param, shape: tuple[int, ...]) -> np.ndarray | slice:
    """Where in memory the elements are, in row-major order."""
    if not param.strided:
        return slice(0, int(np.prod(shape, dtype=np.int64)))
    axes = [np.arange(n, dtype=np.intp) * step for n, step in zip(shape, strides_of(param, shape), strict=True)]
    return sum(np.ix_(*axes), np.zeros(shape, np.intp)).reshape(-1)


class Tensors:
    """Tensors as cells [elements + 1, cells per element], in the order of memory; the last row stands for every element
    outside. Outputs start as poison."""

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
        self._cells: dict[str, np.ndarray] = {}
        self._writer: dict[str, np.ndarray] = {}
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
            else:
                cells[elements] = inputs[param.name].reshape(-1).view(kind).reshape(cells[elements].shape)
            self._cells[param.name] = cells

    def load(self, step: Step, access: GlobalAccess, threads: np.ndarray) -> np.ndarray:
        """[threads, cells per thread]: zero outside the bounds, poison outside the tensor or where nothing is
        written."""
        place = locate(access, step.origin, step.bounds, threads)
        flat = self._valid(step, access, place, threads)
        cells = self._cells[access.param.name][flat]
        if place.inside is not None:
            cells[~place.inside] = 0
        if access.param.output:
            self._check_written(step, access, flat, place.inside, threads)
        return cells.reshape(len(threads), -1)

    def store(self, step: Step, access: GlobalAccess, threads: np.ndarray, values: np.ndarray) -> None:
        name = access.param.name
        place = locate(access, step.origin, step.bounds, threads)
        flat = self._valid(step, access, place, threads)
        valid = flat < len(self._cells[name]) - 1
        at = flat[valid]
        writer = self._writer[name]
        strangers = (writer[at] != NOBODY) & (writer[at] != self._reports.cta)
        if strangers.any():
            bad = np.zeros_like(valid)
            bad[valid] = strangers
            self._report("two writers", step, access, flat, bad, threads)
        self._cells[name][at] = values.reshape(*flat.shape, -1)[valid]
        writer[at] = self._reports.cta

    def outputs(self) -> dict[str, np.ndarray]:
        """The output arrays; reports elements that nothing wrote."""
        out = {}
        for name, writer in self._writer.items():
            shape, elements = self.shapes[name], self._elements[name]
            left = np.flatnonzero(writer[elements] == NOBODY)
            if len(left):
                first = tuple(int(i) for i in np.unravel_index(left[0], shape))
                self._reports.never_written(name, len(left), first)
            cells = np.ascontiguousarray(self._cells[name][elements])
            out[name] = cells.reshape(-1).view(self._params[name].dtype.numpy).reshape(shape)
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
    ) -> None:
        row = int(np.flatnonzero(bad.any(axis=1))[0])
        size = access.param.dtype.size
        span = first_run(flat[row][bad[row]], size)
        self._reports.add(
            kind, step.stmt, thread=int(threads[row]), buffer=access.param.name, bytes=span, detail=detail
        )
