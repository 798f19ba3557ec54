"""One CTA: its registers and what each instruction does to them, for the threads that execute it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import numpy as np

from tidegate.errors import NotExecutable
from tidegate.ir import tir
from tidegate.ir.dtypes import DType
from tidegate.ir.elementwise import OPERATIONS
from tidegate.ir.layout import LANES, Coord, Layout, coordinates
from tidegate.ir.registers import row_registers, source_registers
from tidegate.ops.convert import constant, convert
from tidegate.simulate.access import (
    CELL_TYPES,
    GlobalAccess,
    SharedAccess,
    Threads,
    Tile,
    cell_bytes,
    engine_access,
    first_thread,
    global_access,
    holders,
    shared_access,
)
from tidegate.simulate.asynchronous import ASYNCHRONOUS, Accumulators, CopyGroups
from tidegate.simulate.barriers import Barriers
from tidegate.simulate.clocks import Clocks
from tidegate.simulate.compute import (
    WarpMma,
    WarpReduction,
    WarpWgmma,
    apply,
    warp_mmas,
    warp_reduction,
    warp_wgmmas,
)
from tidegate.simulate.engines import Engines
from tidegate.simulate.memory import SharedMemory
from tidegate.simulate.report import Reports, statement
from tidegate.simulate.tensors import Tensors
from tidegate.simulate.trace import Step, masked, shared_operand, window_operand

T = TypeVar("T")


class Program:
    """A kernel with the index arrays of its statements, which all CTAs share; each is made when first asked for."""

    def __init__(self, kernel: tir.Kernel, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.kernel = kernel
        self.cell = cell_bytes(kernel)
        self.strict = any(isinstance(s, (tir.TmaLoad, tir.TmaStore, tir.Wgmma)) for s in tir.walk(kernel.body))
        self._shapes = shapes
        self._made: dict[tuple[object, ...], object] = {}
        self.registers: dict[str, tir.Register] = {r.name: r for r in kernel.registers}
        self.layouts: dict[str, Layout] = {r.name: kernel.layout(r.layout) for r in kernel.registers}
        for name, layout in self.layouts.items():
            if layout.threads > kernel.threads:
                what = f"the layout of {name} needs {layout.threads} threads, the CTA has {kernel.threads}"
                raise NotExecutable(stmt=f"register {name}", what=what)

    def holders(self, name: str, step: Step) -> Threads:
        """The threads that hold elements of a register in the group that executes ``step``."""
        layout = self.layouts[name]
        base = first_thread(layout, step.warps)
        return self._once(("holders", name, base), lambda: holders(self.kernel, layout, base))

    def shared(self, step: Step) -> SharedAccess:
        stmt = step.stmt

        def make() -> SharedAccess:
            slot = shared_operand(stmt)
            assert slot is not None
            self._check_types(stmt, slot)
            if isinstance(stmt, (tir.TmaLoad, tir.TmaStore)):
                return engine_access(self.kernel, stmt, slot, self._whole(slot)[0], step.elected)
            layout = self._layout(stmt)
            return shared_access(self.kernel, stmt, slot, layout, first_thread(layout, step.warps))

        return self._once(("shared", id(stmt), step.warps.start), make)

    def window(self, step: Step) -> GlobalAccess:
        stmt = step.stmt

        def make() -> GlobalAccess:
            window = window_operand(stmt)
            assert window is not None
            param = self.kernel.param(window.tensor)
            if isinstance(stmt, (tir.StGlobal, tir.TmaStore, tir.AtomicAdd)) and not param.output:
                raise NotExecutable(stmt=statement(stmt), what=f"{window.tensor} is an input")
            shape = self._shapes[window.tensor]
            if isinstance(stmt, (tir.TmaLoad, tir.TmaStore)):
                slot = shared_operand(stmt)
                assert slot is not None
                tile, extents = self._whole(slot)
                threads = Threads(None, step.elected)
                return global_access(self.kernel, stmt, window, shape, tile, extents, threads, 1)
            assert isinstance(stmt, (tir.CpAsync, tir.LdGlobal, tir.StGlobal, tir.AtomicAdd))
            width = param.dtype.size if isinstance(stmt, tir.AtomicAdd) else stmt.bytes
            layout = self._layout(stmt).with_axes(window.fixed)
            threads = holders(self.kernel, layout, first_thread(layout, step.warps))
            tile = coordinates(layout)
            return global_access(self.kernel, stmt, window, shape, tile, layout.shape, threads, width)

        return self._once(("window", id(stmt), step.warps.start), make)

    def rows(self, stmt: tir.Instruction, window: tir.Window) -> np.ndarray:
        """Per register of the tile under a gathered window, the register that holds its row."""

        def make() -> np.ndarray:
            return np.array(row_registers(self.kernel, window, self._layout(stmt)), dtype=np.intp)

        return self._once(("rows", id(stmt)), make)

    def renamed(self, stmt: tir.Move | tir.Slice | tir.Spread) -> np.ndarray:
        """Per register of the result, the register of the source."""
        return self._once(("renamed", id(stmt)), lambda: np.array(source_registers(self.kernel, stmt), dtype=np.intp))

    def reduction(self, stmt: tir.Reduce) -> WarpReduction:
        return self._once(("reduction", id(stmt)), lambda: warp_reduction(self.kernel, stmt))

    def mma(self, stmt: tir.Mma) -> tuple[WarpMma, ...]:
        return self._once(("mma", id(stmt)), lambda: warp_mmas(self.kernel, stmt))

    def wgmma(self, stmt: tir.Wgmma) -> tuple[WarpWgmma, ...]:
        return self._once(("wgmma", id(stmt)), lambda: warp_wgmmas(self.kernel, stmt))

    def operand(self, stmt: tir.Wgmma, slot: tir.Slot, tile: Tile, key: object) -> SharedAccess:
        """The access of one warp's wgmma to a ``tile`` of an operand; ``key`` tells the warps and operands apart."""
        flat = tuple(c.reshape(1, -1) for c in tile)
        return self._once(("operand", id(stmt), key), lambda: engine_access(self.kernel, stmt, slot, flat, 0))

    def _once(self, key: tuple[object, ...], make: Callable[[], T]) -> T:
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]  # type: ignore[return-value]

    def _whole(self, slot: tir.Slot) -> tuple[Tile, Coord]:
        """The tile of a whole buffer: coordinates [1, elements] per axis, and its extents."""
        shape = self.kernel.buffer(slot.buffer).shape
        extents = shape[::-1] if slot.transposed else shape
        return tuple(c.reshape(1, -1) for c in np.indices(extents)), extents

    def _layout(self, stmt: tir.Instruction) -> Layout:
        if isinstance(stmt, tir.CpAsync):
            return self.kernel.layout(stmt.layout)
        return self.layouts[_register_operand(stmt)]

    def _check_types(self, stmt: tir.Instruction, slot: tir.Slot) -> None:
        buffer = self.kernel.buffer(slot.buffer).dtype
        window = window_operand(stmt)
        if window is not None:
            other = self.kernel.param(window.tensor).dtype
        else:
            other = self.registers[_register_operand(stmt)].dtype
        if other != buffer:
            raise NotExecutable(stmt=statement(stmt), what=f"{other} and {buffer} do not mix")


def _register_operand(stmt: tir.Instruction) -> tir.Name:
    if isinstance(stmt, (tir.StGlobal, tir.AtomicAdd, tir.StShared, tir.StMatrix)):
        return stmt.src
    assert isinstance(stmt, (tir.LdGlobal, tir.LdShared, tir.LdMatrix))
    return stmt.dst


class Cta:
    """Executes steps for sets of threads. Registers are arrays [threads, registers]; a register tile is defined for a
    thread once that thread has written it."""

    def __init__(
        self, program: Program, tensors: Tensors, memory: SharedMemory, clocks: Clocks, reports: Reports
    ) -> None:
        self.program, self.tensors, self.memory, self.clocks, self.reports = program, tensors, memory, clocks, reports
        self.barriers = Barriers(program.kernel, clocks, reports)
        self.engines = Engines(memory, self.barriers, clocks, reports)
        self.copies = CopyGroups(clocks)
        self.accumulators = Accumulators(clocks.warps)
        threads = program.kernel.threads
        kind = CELL_TYPES[program.cell]
        self._cells: dict[str, np.ndarray] = {}  # of those that cells make up: the others never meet memory
        self._values: dict[str, np.ndarray] = {}
        self._defined: dict[str, np.ndarray] = {}
        for name, register in program.registers.items():
            size = register.dtype.size
            filled = np.full((threads, program.layouts[name].registers * size), 0xFF, np.uint8)
            if size % program.cell == 0:
                self._cells[name] = filled.view(kind)
            self._values[name] = filled.view(register.dtype.numpy)
            self._defined[name] = np.zeros(threads, bool)

    def execute(self, step: Step, threads: np.ndarray) -> None:
        """A step for ``threads``, which are all the lanes of one warp or a part of them."""
        self.clocks.now += 1
        EXECUTE[type(step.stmt)](self, step, step.stmt, threads)

    # ------------------------------------------------------------------------------------------ registers

    def use(self, name: str, stmt: tir.Stmt, threads: np.ndarray) -> None:
        """Reports a read of a register that the threads have not written, or that a wgmma still works on."""
        if not len(threads):
            return
        warp = int(threads[0]) // LANES
        if self.accumulators.busy(name, warp):
            self.reports.add("register in flight", stmt, thread=int(threads[0]), buffer=name)
            return
        defined = self._defined[name][threads]
        if not defined.all():
            self.reports.add("undefined register", stmt, thread=int(threads[~defined][0]), buffer=name)

    def cells_of(self, name: str) -> np.ndarray:
        return self._cells[name]

    def values_of(self, name: str) -> np.ndarray:
        return self._values[name]

    def _written(self, name: str, stmt: tir.Stmt, threads: np.ndarray) -> None:
        self._defined[name][threads] = True
        if len(threads):
            warp = int(threads[0]) // LANES
            if self.accumulators.busy(name, warp):
                self.reports.add("register in flight", stmt, thread=int(threads[0]), buffer=name)
            self.accumulators.touch(name, warp)

    def _define(self, name: str, stmt: tir.Stmt, threads: np.ndarray, values: np.ndarray | float) -> None:
        self._values[name][threads] = values
        self._written(name, stmt, threads)

    def _define_cells(self, name: str, stmt: tir.Stmt, threads: np.ndarray, cells: np.ndarray) -> None:
        self._cells[name][threads] = cells
        self._written(name, stmt, threads)

    # ------------------------------------------------------------------------------------------ memory

    def cp_async(self, step: Step, stmt: tir.CpAsync, threads: np.ndarray) -> None:
        shared = self.program.shared(step)
        threads = shared.threads.of(threads)
        if len(threads):
            rows = self.rows(stmt.src, step, threads)
            values = self.tensors.load(step, self.program.window(step), threads, rows)
            cells = shared.cells(threads, step.slot)
            self.memory.write(step, cells, threads, values, copy=True, replicated=False)
            self.copies.issue(step, threads)

    def ld_global(self, step: Step, stmt: tir.LdGlobal, threads: np.ndarray) -> None:
        access = self.program.window(step)
        threads = access.threads.of(threads)
        if len(threads):
            rows = self.rows(stmt.src, step, threads)
            self._define_cells(stmt.dst, stmt, threads, self.tensors.load(step, access, threads, rows))

    def rows(self, window: tir.Window, step: Step, threads: np.ndarray) -> np.ndarray | None:
        """The coordinates of the threads' elements along the gathered axis of a window, if it has one."""
        if window.rows is None:
            return None
        self.use(window.rows.register, step.stmt, threads)
        return self._values[window.rows.register][threads][:, self.program.rows(step.stmt, window)].astype(np.int64)

    def st_global(self, step: Step, stmt: tir.StGlobal | tir.AtomicAdd, threads: np.ndarray) -> None:
        access = self.program.window(step)
        threads = access.threads.of(threads)
        if len(threads):
            self.use(stmt.src, stmt, threads)
            rows, add = self.rows(stmt.dst, step, threads), isinstance(stmt, tir.AtomicAdd)
            self.tensors.store(step, access, threads, self._cells[stmt.src][threads], rows, add=add)

    def ld_shared(self, step: Step, stmt: tir.LdShared, threads: np.ndarray) -> None:
        self._read_shared(step, stmt.dst, self.program.shared(step), threads, collective=False)

    def ldmatrix(self, step: Step, stmt: tir.LdMatrix, threads: np.ndarray) -> None:
        self._read_shared(step, stmt.dst, self.program.shared(step), threads, collective=True)

    def _read_shared(
        self, step: Step, dst: str, access: SharedAccess, threads: np.ndarray, *, collective: bool
    ) -> None:
        threads = access.threads.of(threads)
        if len(threads):
            cells = access.cells(threads, step.slot)
            self._define_cells(dst, step.stmt, threads, self.memory.read(step, cells, threads, collective=collective))

    def st_shared(self, step: Step, stmt: tir.StShared | tir.StMatrix, threads: np.ndarray) -> None:
        access = self.program.shared(step)
        threads = access.threads.of(threads)
        if len(threads):
            self.use(stmt.src, stmt, threads)
            cells = access.cells(threads, step.slot)
            values = self._cells[stmt.src][threads]
            self.memory.write(step, cells, threads, values, copy=False, replicated=access.replicated)

    # ------------------------------------------------------------------------------------------ arithmetic

    def mma(self, step: Step, stmt: tir.Mma, threads: np.ndarray) -> None:
        mmas = self.program.mma(stmt)
        warp = int(threads[0]) // LANES - first_thread(self.program.layouts[stmt.d], step.warps) // LANES
        if not 0 <= warp < len(mmas):
            return
        for name in (stmt.a, stmt.b, stmt.c):
            self.use(name, stmt, self.program.holders(name, step).of(threads))
        a, b, c = (self._values[name][threads] for name in (stmt.a, stmt.b, stmt.c))
        self._define(stmt.d, stmt, threads, mmas[warp](a, b, c))

    def fill(self, step: Step, stmt: tir.Fill, threads: np.ndarray) -> None:
        value = constant(stmt.value, self.program.registers[stmt.dst].dtype)
        self._define(stmt.dst, stmt, self.program.holders(stmt.dst, step).of(threads), value)

    def positions(self, step: Step, stmt: tir.Positions, threads: np.ndarray) -> None:
        threads = self.program.holders(stmt.dst, step).of(threads)
        layout = self.program.layouts[stmt.dst]
        along = coordinates(layout)[0][threads - first_thread(layout, step.warps)]
        self._define(stmt.dst, stmt, threads, step.origin[0] + along)

    def splat(self, step: Step, stmt: tir.Splat, threads: np.ndarray) -> None:
        value = step.origin[0]
        if self._values[stmt.dst].dtype == np.int32:
            value = (value + 2**31) % 2**32 - 2**31
        self._define(stmt.dst, stmt, self.program.holders(stmt.dst, step).of(threads), value)

    def ld_scalar(self, step: Step, stmt: tir.LdScalar, threads: np.ndarray) -> None:
        """Its value was read beforehand."""
        shape, element = self.tensors.shapes[stmt.src.tensor], step.origin
        if not masked(stmt.src, step) and not all(0 <= o < n for o, n in zip(element, shape, strict=True)):
            place = ", ".join(map(str, element))
            detail = f"element [{place}], the shape is {shape}"
            self.reports.add("out of bounds", stmt, thread=int(threads[0]), buffer=stmt.src.tensor, detail=detail)

    def map(self, step: Step, stmt: tir.Map, threads: np.ndarray) -> None:
        if stmt.op not in OPERATIONS or OPERATIONS[stmt.op].arity != len(stmt.args):
            raise NotExecutable(
                stmt=statement(stmt), what=f"there is no operation {stmt.op} of {len(stmt.args)} operands"
            )
        threads = self.program.holders(stmt.dst, step).of(threads)
        args: list[np.ndarray | float] = []
        types: list[DType | None] = []
        for arg in stmt.args:
            if isinstance(arg, str):
                self.use(arg, stmt, threads)
                args.append(self._values[arg][threads])
                types.append(self.program.registers[arg].dtype)
            else:
                args.append(arg)
                types.append(None)
        self._define(stmt.dst, stmt, threads, apply(stmt.op, args, types, self.program.registers[stmt.dst].dtype))

    def cast(self, step: Step, stmt: tir.Cast, threads: np.ndarray) -> None:
        threads = self.program.holders(stmt.dst, step).of(threads)
        self.use(stmt.src, stmt, threads)
        dtype = self.program.registers[stmt.dst].dtype
        self._define(stmt.dst, stmt, threads, convert(self._values[stmt.src][threads], dtype))

    def move(self, step: Step, stmt: tir.Move | tir.Slice | tir.Spread, threads: np.ndarray) -> None:
        threads = self.program.holders(stmt.dst, step).of(threads)
        self.use(stmt.src, stmt, threads)
        self._define(stmt.dst, stmt, threads, self._values[stmt.src][threads][:, self.program.renamed(stmt)])

    def reduce(self, step: Step, stmt: tir.Reduce, threads: np.ndarray) -> None:
        self.use(stmt.src, stmt, threads)
        self._define(stmt.dst, stmt, threads, self.program.reduction(stmt)(self._values[stmt.src][threads], threads))

    # ------------------------------------------------------------------------------------------ copy groups

    def cp_commit(self, step: Step, stmt: tir.CpCommit, threads: np.ndarray) -> None:
        self.copies.commit(threads)

    def cp_wait(self, step: Step, stmt: tir.CpWait, threads: np.ndarray) -> None:
        self.copies.wait(threads, stmt.n)

    def fence_async(self, step: Step, stmt: tir.FenceAsync, threads: np.ndarray) -> None:
        if stmt.space == "shared":
            self.clocks.fence(threads)

    def pass_by(self, step: Step, stmt: tir.Instruction, threads: np.ndarray) -> None:
        """A named barrier of other warps, or a number of registers."""

    def settle(self) -> None:
        """Forgets the accesses to memory that everyone knows of."""
        self.memory.settle()
        self.tensors.settle()

    def end(self) -> None:
        """The kernel has ended: nothing may be under way."""
        self.engines.end()
        self.copies.end(self.reports)


EXECUTE: dict[type, Callable[..., None]] = {
    **ASYNCHRONOUS,
    tir.StMatrix: Cta.st_shared,
    tir.FenceAsync: Cta.fence_async,
    tir.SetMaxRegisters: Cta.pass_by,
    tir.BarArrive: Cta.pass_by,
    tir.CpAsync: Cta.cp_async,
    tir.LdGlobal: Cta.ld_global,
    tir.StGlobal: Cta.st_global,
    tir.AtomicAdd: Cta.st_global,
    tir.LdShared: Cta.ld_shared,
    tir.StShared: Cta.st_shared,
    tir.LdMatrix: Cta.ldmatrix,
    tir.Mma: Cta.mma,
    tir.Fill: Cta.fill,
    tir.Map: Cta.map,
    tir.Positions: Cta.positions,
    tir.Splat: Cta.splat,
    tir.LdScalar: Cta.ld_scalar,
    tir.Cast: Cta.cast,
    tir.Move: Cta.move,
    tir.Slice: Cta.move,
    tir.Spread: Cta.move,
    tir.Reduce: Cta.reduce,
    tir.CpCommit: Cta.cp_commit,
    tir.CpWait: Cta.cp_wait,
    tir.BarSync: Cta.pass_by,
}
