"""One CTA: its registers and what each instruction does to them, for the threads that execute it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import numpy as np

from tidegate.errors import NotExecutable
from tidegate.ir import tir
from tidegate.ir.layout import LANES, Layout
from tidegate.ops.elementwise import ELEMENTWISE
from tidegate.simulate.access import (
    CELL_TYPES,
    GlobalAccess,
    SharedAccess,
    Threads,
    cell_bytes,
    global_access,
    holders,
    shared_access,
)
from tidegate.simulate.compute import WarpMma, apply, warp_mmas
from tidegate.simulate.memory import SharedMemory
from tidegate.simulate.report import Reports, statement
from tidegate.simulate.tensors import Tensors
from tidegate.simulate.trace import Step, shared_operand, window_operand

T = TypeVar("T")


class Program:
    """A kernel with the index arrays of its statements, which all CTAs share; each is made when first asked for."""

    def __init__(self, kernel: tir.Kernel, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.kernel = kernel
        self.cell = cell_bytes(kernel)
        self._shapes = shapes
        self._made: dict[tuple[str, int], object] = {}
        self.registers: dict[str, tir.Register] = {r.name: r for r in kernel.registers}
        self.layouts: dict[str, Layout] = {r.name: kernel.layout(r.layout) for r in kernel.registers}
        self.holders: dict[str, Threads] = {name: holders(kernel, layout) for name, layout in self.layouts.items()}
        for name, layout in self.layouts.items():
            if layout.threads > kernel.threads:
                what = f"the layout of {name} needs {layout.threads} threads, the CTA has {kernel.threads}"
                raise NotExecutable(stmt=f"register {name}", what=what)

    def shared(self, stmt: tir.Instruction) -> SharedAccess:
        def make() -> SharedAccess:
            slot = shared_operand(stmt)
            assert slot is not None
            self._check_types(stmt, slot)
            return shared_access(self.kernel, stmt, slot, self._layout(stmt))

        return self._once("shared", stmt, make)

    def window(self, stmt: tir.CpAsync | tir.LdGlobal | tir.StGlobal) -> GlobalAccess:
        def make() -> GlobalAccess:
            window = window_operand(stmt)
            assert window is not None
            if isinstance(stmt, tir.StGlobal) and not self.kernel.param(window.tensor).output:
                raise NotExecutable(stmt=statement(stmt), what=f"{window.tensor} is an input")
            shape = self._shapes[window.tensor]
            return global_access(self.kernel, stmt, window, self._layout(stmt), shape, stmt.bytes)

        return self._once("window", stmt, make)

    def mma(self, stmt: tir.Mma) -> tuple[WarpMma, ...]:
        return self._once("mma", stmt, lambda: warp_mmas(self.kernel, stmt))

    def _once(self, what: str, stmt: tir.Stmt, make: Callable[[], T]) -> T:
        key = (what, id(stmt))
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]  # type: ignore[return-value]

    def _layout(self, stmt: tir.Instruction) -> Layout:
        if isinstance(stmt, tir.CpAsync):
            return self.kernel.layout(stmt.layout)
        return self.layouts[_register_operand(stmt)]

    def _check_types(self, stmt: tir.Instruction, slot: tir.Slot) -> None:
        buffer = self.kernel.buffer(slot.buffer).dtype
        if isinstance(stmt, tir.CpAsync):
            other = self.kernel.param(stmt.src.tensor).dtype
        else:
            other = self.registers[_register_operand(stmt)].dtype
        if other != buffer:
            raise NotExecutable(stmt=statement(stmt), what=f"{other} and {buffer} do not mix")


def _register_operand(stmt: tir.Instruction) -> tir.Name:
    if isinstance(stmt, (tir.StGlobal, tir.StShared)):
        return stmt.src
    assert isinstance(stmt, (tir.LdGlobal, tir.LdShared, tir.LdMatrix))
    return stmt.dst


class Cta:
    """Executes steps for sets of threads. Registers are arrays [threads, registers]; a register tile is defined for a
    thread once that thread has written it."""

    def __init__(
        self, program: Program, tensors: Tensors, memory: SharedMemory, trace: list[Step], reports: Reports
    ) -> None:
        self.program, self.tensors, self.memory, self.trace, self.reports = program, tensors, memory, trace, reports
        threads = program.kernel.threads
        kind = CELL_TYPES[program.cell]
        self._cells: dict[str, np.ndarray] = {}
        self._values: dict[str, np.ndarray] = {}
        self._defined: dict[str, np.ndarray] = {}
        for name, register in program.registers.items():
            width = program.layouts[name].registers * register.dtype.size // program.cell
            self._cells[name] = np.full((threads, width), np.iinfo(kind).max, kind)
            self._values[name] = self._cells[name].view(register.dtype.numpy)
            self._defined[name] = np.zeros(threads, bool)

    def execute(self, position: int, threads: np.ndarray) -> None:
        """The step at ``position`` for ``threads``, which are all the lanes of one warp or a part of them."""
        step = self.trace[position]
        EXECUTE[type(step.stmt)](self, position, step, step.stmt, threads)

    # ------------------------------------------------------------------------------------------ registers

    def _use(self, name: str, stmt: tir.Stmt, threads: np.ndarray) -> None:
        """Reports a read of a register that the threads have not written."""
        defined = self._defined[name][threads]
        if not defined.all():
            self.reports.add("undefined register", stmt, thread=int(threads[~defined][0]), buffer=name)

    def _holders(self, name: str) -> Threads:
        return self.program.holders[name]

    def _define(self, name: str, threads: np.ndarray, values: np.ndarray | float) -> None:
        self._values[name][threads] = values
        self._defined[name][threads] = True

    def _define_cells(self, name: str, threads: np.ndarray, cells: np.ndarray) -> None:
        self._cells[name][threads] = cells
        self._defined[name][threads] = True

    # ------------------------------------------------------------------------------------------ memory

    def cp_async(self, position: int, step: Step, stmt: tir.CpAsync, threads: np.ndarray) -> None:
        shared = self.program.shared(stmt)
        threads = shared.threads.of(threads)
        if len(threads):
            values = self.tensors.load(step, self.program.window(stmt), threads)
            cells = shared.cells(threads, step.slot)
            self.memory.write(position, cells, threads, values, copy=True, replicated=False)

    def ld_global(self, position: int, step: Step, stmt: tir.LdGlobal, threads: np.ndarray) -> None:
        access = self.program.window(stmt)
        threads = access.threads.of(threads)
        if len(threads):
            self._define_cells(stmt.dst, threads, self.tensors.load(step, access, threads))

    def st_global(self, position: int, step: Step, stmt: tir.StGlobal, threads: np.ndarray) -> None:
        access = self.program.window(stmt)
        threads = access.threads.of(threads)
        if len(threads):
            self._use(stmt.src, stmt, threads)
            self.tensors.store(step, access, threads, self._cells[stmt.src][threads])

    def ld_shared(self, position: int, step: Step, stmt: tir.LdShared, threads: np.ndarray) -> None:
        self._read_shared(step, stmt.dst, self.program.shared(stmt), threads, collective=False)

    def ldmatrix(self, position: int, step: Step, stmt: tir.LdMatrix, threads: np.ndarray) -> None:
        self._read_shared(step, stmt.dst, self.program.shared(stmt), threads, collective=True)

    def _read_shared(
        self, step: Step, dst: str, access: SharedAccess, threads: np.ndarray, *, collective: bool
    ) -> None:
        threads = access.threads.of(threads)
        if len(threads):
            cells = access.cells(threads, step.slot)
            self._define_cells(dst, threads, self.memory.read(step, cells, threads, collective=collective))

    def st_shared(self, position: int, step: Step, stmt: tir.StShared, threads: np.ndarray) -> None:
        access = self.program.shared(stmt)
        threads = access.threads.of(threads)
        if len(threads):
            self._use(stmt.src, stmt, threads)
            cells = access.cells(threads, step.slot)
            values = self._cells[stmt.src][threads]
            self.memory.write(position, cells, threads, values, copy=False, replicated=access.replicated)

    # ------------------------------------------------------------------------------------------ arithmetic

    def mma(self, position: int, step: Step, stmt: tir.Mma, threads: np.ndarray) -> None:
        warp = int(threads[0]) // LANES
        mmas = self.program.mma(stmt)
        if warp >= len(mmas):
            return
        for name in (stmt.a, stmt.b, stmt.c):
            self._use(name, stmt, self._holders(name).of(threads))
        a, b, c = (self._values[name][threads] for name in (stmt.a, stmt.b, stmt.c))
        self._define(stmt.d, threads, mmas[warp](a, b, c))

    def fill(self, position: int, step: Step, stmt: tir.Fill, threads: np.ndarray) -> None:
        self._define(stmt.dst, self._holders(stmt.dst).of(threads), stmt.value)

    def map(self, position: int, step: Step, stmt: tir.Map, threads: np.ndarray) -> None:
        if stmt.op not in ELEMENTWISE or ELEMENTWISE[stmt.op].arity != len(stmt.args):
            raise NotExecutable(
                stmt=statement(stmt), what=f"there is no operation {stmt.op} of {len(stmt.args)} operands"
            )
        threads = self._holders(stmt.dst).of(threads)
        args: list[np.ndarray | float] = []
        for arg in stmt.args:
            if isinstance(arg, str):
                self._use(arg, stmt, threads)
                args.append(self._values[arg][threads])
            else:
                args.append(arg)
        self._define(stmt.dst, threads, apply(stmt.op, args, self._values[stmt.dst].dtype))

    def cast(self, position: int, step: Step, stmt: tir.Cast, threads: np.ndarray) -> None:
        threads = self._holders(stmt.dst).of(threads)
        self._use(stmt.src, stmt, threads)
        self._define(stmt.dst, threads, self._values[stmt.src][threads].astype(self._values[stmt.dst].dtype))

    def move(self, position: int, step: Step, stmt: tir.Move, threads: np.ndarray) -> None:
        threads = self._holders(stmt.dst).of(threads)
        self._use(stmt.src, stmt, threads)
        self._define_cells(stmt.dst, threads, self._cells[stmt.src][threads])

    # ------------------------------------------------------------------------------------------ copy groups

    def cp_commit(self, position: int, step: Step, stmt: tir.CpCommit, threads: np.ndarray) -> None:
        self.memory.commit(threads)

    def cp_wait(self, position: int, step: Step, stmt: tir.CpWait, threads: np.ndarray) -> None:
        self.memory.wait(threads, stmt.n)

    def pass_by(self, position: int, step: Step, stmt: tir.Instruction, threads: np.ndarray) -> None:
        """A named barrier of other warps."""


EXECUTE: dict[type, Callable[..., None]] = {
    tir.CpAsync: Cta.cp_async,
    tir.LdGlobal: Cta.ld_global,
    tir.StGlobal: Cta.st_global,
    tir.LdShared: Cta.ld_shared,
    tir.StShared: Cta.st_shared,
    tir.LdMatrix: Cta.ldmatrix,
    tir.Mma: Cta.mma,
    tir.Fill: Cta.fill,
    tir.Map: Cta.map,
    tir.Cast: Cta.cast,
    tir.Move: Cta.move,
    tir.CpCommit: Cta.cp_commit,
    tir.CpWait: Cta.cp_wait,
    tir.BarSync: Cta.pass_by,
}
