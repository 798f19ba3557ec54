"""TIR: the explicit program of one CTA. Every byte, thread, copy, wait and barrier is written out; nothing is implied.

A kernel declares its sizes, parameters, layouts, shared buffers, barriers, cursors, registers and roles; its body is a
sequence of statements. An instruction works on whole tiles: its register layout says what each thread does, so the
text stays short while the access of every thread is exact. All control flow is uniform over the CTA (or the role).

Each instruction class states, as class keywords, what every pass needs to know of it: which fields it reads and
writes, through which proxy, and how it completes. A class that leaves one out fails at import. ``syntax`` is its line
in the text form (see :mod:`tidegate.ir.text`; docs/tir.md lists the grammar).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar, NewType

from tidegate.ir.dtypes import DType
from tidegate.ir.expr import Expr
from tidegate.ir.layout import Coord, Layout, SharedLayout, Swizzle

Name = NewType("Name", str)


class Proxy(Enum):
    """The path by which an access reaches memory (PTX ISA, "Proxies"). NONE touches registers only."""

    NONE = "none"
    GENERIC = "generic"
    ASYNC = "async"
    TENSORMAP = "tensormap"


class Completion(Enum):
    """When the effects of an instruction are known to have happened."""

    RETURN = "on return"
    COPY_GROUP = "member of a cp.async group of the issuing thread"
    BULK_GROUP = "member of a bulk group of the issuing thread"
    WGMMA_GROUP = "member of a wgmma group of the issuing warpgroup"
    TRANSACTION = "transaction bytes on an mbarrier"
    UNKNOWN = "unknown"


class Participants(Enum):
    """Who must execute an instruction together."""

    THREAD = "each thread by itself"
    WARP = "all lanes of a warp, converged"
    WARPGROUP = "four warps, converged"
    ELECTED = "one elected thread"
    ROLE = "all warps that are named, or of the role"
    CTA = "all threads of the CTA"
    CLUSTER = "all threads of the cluster"


# ---------------------------------------------------------------------------------------------- operands


@dataclass(frozen=True)
class Slot:
    """Part of a shared buffer: the slot that ``cursor`` points at (None: the only one), from ``origin`` on.

    The extent is that of the register tile or layout on the other side. ``transposed``: the register tile is the
    transposed view of the buffer, coordinate (i, j) of the tile lying at (j, i) of the buffer; ``origin`` is in buffer
    coordinates.
    """

    buffer: Name
    cursor: Name | None
    origin: Coord
    transposed: bool = False


@dataclass(frozen=True)
class Window:
    """Part of a global tensor from ``origin`` on; where ``bounds`` gives an extent, elements at or beyond it read as
    zero and are not written. An axis without a bound is proved to be in range. The tile has no axis for the ``fixed``
    ones: it lies at their origin."""

    tensor: Name
    origin: tuple[Expr, ...]
    bounds: tuple[Expr | None, ...]
    fixed: Coord = ()


# ---------------------------------------------------------------------------------------------- declarations


@dataclass(frozen=True)
class Dim:
    """A named size: a launch argument, or fixed when ``value`` is given. ``multiple`` is known to divide it."""

    name: Name
    value: int | None
    multiple: int = 1


@dataclass(frozen=True)
class Param:
    """A row-major global tensor. ``align`` bytes divide its address and (rank > 1) all strides but the last."""

    name: Name
    dtype: DType
    shape: tuple[Expr, ...]
    output: bool
    align: int


@dataclass(frozen=True)
class GridAxis:
    """A CTA index: ``name`` runs over 0 .. extent-1. The last axis varies fastest over the linear CTA index."""

    name: Name
    extent: Expr


@dataclass(frozen=True)
class Buffer:
    """A ring of ``stages`` slots of one tile in shared memory; slot s begins at ``offset + s * stride`` bytes."""

    name: Name
    dtype: DType
    shape: Coord
    stages: int
    offset: int
    stride: int
    swizzle: Swizzle

    @property
    def layout(self) -> SharedLayout:
        return SharedLayout(self.shape, self.dtype.size, self.swizzle)

    @property
    def end(self) -> int:
        """First byte after the last slot."""
        return self.offset + (self.stages - 1) * self.stride + self.layout.bytes


@dataclass(frozen=True)
class Mbarrier:
    """A ring of ``stages`` mbarriers of 8 bytes from ``offset`` on, each expecting ``count`` arrivals per phase."""

    name: Name
    stages: int
    count: int
    offset: int


@dataclass(frozen=True)
class Cursor:
    """A counter u of executed uses, from 0: slot = u mod depth, parity = (u div depth) mod 2."""

    name: Name
    depth: int


@dataclass(frozen=True)
class Register:
    """A register tile: mutable, undefined until written. In a role block the threads of its layout count from the
    role's first warp; threads of the role beyond those of the layout hold nothing."""

    name: Name
    dtype: DType
    layout: Name


@dataclass(frozen=True)
class Role:
    """``count`` warps from ``first`` on; ``registers`` per thread, 0 for the launch default."""

    name: Name
    first: int
    count: int
    registers: int = 0


# ---------------------------------------------------------------------------------------------- statements


@dataclass(frozen=True)
class Stmt:
    """Base of all statements; ``line`` is the author's source line (0: none)."""

    line: int = field(default=0, kw_only=True)


@dataclass(frozen=True)
class For(Stmt):
    """Executes ``body`` for index = start .. stop-1 (not at all when stop <= start)."""

    index: Name
    start: Expr
    stop: Expr
    body: tuple[Stmt, ...]


@dataclass(frozen=True)
class If(Stmt):
    """Executes ``body`` when the uniform condition is not 0."""

    condition: Expr
    body: tuple[Stmt, ...]


@dataclass(frozen=True)
class InRole(Stmt):
    """``body`` is executed by the warps of ``role`` only."""

    role: Name
    body: tuple[Stmt, ...]


_REQUIRED = ("reads", "writes", "proxy", "completes", "by")


@dataclass(frozen=True)
class Instruction(Stmt):
    """Base of all instructions; see the module's docstring for the class keywords."""

    syntax: ClassVar[str] = ""
    reads: ClassVar[tuple[str, ...]] = ()
    writes: ClassVar[tuple[str, ...]] = ()
    proxy: ClassVar[Proxy] = Proxy.NONE
    completes: ClassVar[Completion] = Completion.UNKNOWN
    by: ClassVar[Participants] = Participants.THREAD

    def __init_subclass__(cls, *, abstract: bool = False, **effects: object) -> None:
        super().__init_subclass__()
        if abstract:
            return
        missing = [name for name in (*_REQUIRED, "syntax") if name not in effects]
        if missing:
            raise TypeError(f"instruction {cls.__name__} does not declare {', '.join(missing)}")
        for name, value in effects.items():
            setattr(cls, name, value)


_REG = {"proxy": Proxy.NONE, "completes": Completion.RETURN, "by": Participants.THREAD}
_GEN = {"proxy": Proxy.GENERIC, "completes": Completion.RETURN, "by": Participants.THREAD}
_WARP = {"proxy": Proxy.GENERIC, "completes": Completion.RETURN, "by": Participants.WARP}


@dataclass(frozen=True)
class CpAsync(
    Instruction,
    syntax="cp_async {dst} <- {src} layout {layout} bytes {bytes}",
    reads=("src",),
    writes=("dst",),
    proxy=Proxy.GENERIC,
    completes=Completion.COPY_GROUP,
    by=Participants.THREAD,
):
    """cp.async: each active thread of ``layout`` copies its elements in pieces of 4, 8 or 16 ``bytes``; elements
    outside the window's bounds are written as zero."""

    dst: Slot
    src: Window
    layout: Name
    bytes: int


@dataclass(frozen=True)
class LdGlobal(Instruction, syntax="ld_global {dst} <- {src} bytes {bytes}", reads=("src",), writes=("dst",), **_GEN):
    """Global to registers, ``bytes`` per access; out of bounds reads zero."""

    dst: Name
    src: Window
    bytes: int


@dataclass(frozen=True)
class StGlobal(Instruction, syntax="st_global {dst} <- {src} bytes {bytes}", reads=("src",), writes=("dst",), **_GEN):
    """Registers to global, ``bytes`` per access; out of bounds is not written."""

    dst: Window
    src: Name
    bytes: int


@dataclass(frozen=True)
class LdShared(Instruction, syntax="ld_shared {dst} <- {src} bytes {bytes}", reads=("src",), writes=("dst",), **_GEN):
    """Shared to registers, ``bytes`` per access along the buffer's last axis."""

    dst: Name
    src: Slot
    bytes: int


@dataclass(frozen=True)
class StShared(Instruction, syntax="st_shared {dst} <- {src} bytes {bytes}", reads=("src",), writes=("dst",), **_GEN):
    """Registers to shared, ``bytes`` per access along the buffer's last axis."""

    dst: Slot
    src: Name
    bytes: int


@dataclass(frozen=True)
class LdMatrix(Instruction, syntax="ldmatrix {dst} <- {src}", reads=("src",), writes=("dst",), **_WARP):
    """ldmatrix of 8x8 blocks of 16-bit elements. Pairs of adjacent elements along the *buffer's* last axis land in one
    32-bit register, or, when the register pairs run along the other axis, the .trans form is used: the emitter derives
    it from the layout. A warp reads together, so every lane counts as reading all bytes of its warp's blocks."""

    dst: Name
    src: Slot


@dataclass(frozen=True)
class StMatrix(Instruction, syntax="stmatrix {dst} <- {src}", reads=("src",), writes=("dst",), **_WARP):
    """stmatrix of 8x8 blocks of 16-bit elements."""

    dst: Slot
    src: Name


@dataclass(frozen=True)
class Mma(
    Instruction,
    syntax="mma {shape} {d} <- {a}, {b}, {c}",
    reads=("a", "b", "c"),
    writes=("d",),
    proxy=Proxy.NONE,
    completes=Completion.RETURN,
    by=Participants.WARP,
):
    """d = a @ b + c by mma.sync of ``shape`` (only m16n8k16), k steps in rising order."""

    shape: Name
    d: Name
    a: Name
    b: Name
    c: Name


@dataclass(frozen=True)
class Fill(Instruction, syntax="fill {dst} <- {value}", reads=(), writes=("dst",), **_REG):
    """Sets every element to ``value``, rounded to nearest even into the type of ``dst``."""

    dst: Name
    value: float


@dataclass(frozen=True)
class Positions(Instruction, syntax="positions {dst} <- {origin}", reads=(), writes=("dst",), **_REG):
    """i32 tile of one axis: element i is ``origin`` + i."""

    dst: Name
    origin: Expr


@dataclass(frozen=True)
class Map(Instruction, syntax="map {dst} <- {op} {args}", reads=("args",), writes=("dst",), **_REG):
    """Elementwise ``op`` (see tidegate.ops.elementwise) over registers of one layout and immediate numbers. Floats are
    computed in f32 and rounded to nearest even into the type of ``dst``, integers and masks in 32 bits."""

    dst: Name
    op: Name
    args: tuple[Name | float, ...]


@dataclass(frozen=True)
class Cast(Instruction, syntax="cast {dst} <- {src}", reads=("src",), writes=("dst",), **_REG):
    """Conversion, round to nearest even; same layout."""

    dst: Name
    src: Name


@dataclass(frozen=True)
class Move(Instruction, syntax="mov {dst} <- {src}", reads=("src",), writes=("dst",), **_REG):
    """The same tile in another register tile, or its transpose if the layouts say so (``dst``'s is the transpose of
    ``src``'s). Every thread holds what it needs already; fewer threads may hold the result."""

    dst: Name
    src: Name


@dataclass(frozen=True)
class Slice(Instruction, syntax="slice {dst} <- {src} at {origin}", reads=("src",), writes=("dst",), **_REG):
    """The part of a register tile from ``origin`` on; every thread holds what it needs of it already."""

    dst: Name
    src: Name
    origin: Coord


@dataclass(frozen=True)
class Spread(Instruction, syntax="spread {dst} <- {src} axes {axes}", reads=("src",), writes=("dst",), **_REG):
    """Broadcast: axis i of ``src`` runs along axis ``axes[i]`` of ``dst``, or is repeated where ``src`` has one element
    along it. Every thread holds what it needs already."""

    dst: Name
    src: Name
    axes: Coord


@dataclass(frozen=True)
class Reduce(
    Instruction,
    syntax="reduce {dst} <- {fold} {src} axis {axis}",
    reads=("src",),
    writes=("dst",),
    proxy=Proxy.NONE,
    completes=Completion.RETURN,
    by=Participants.WARP,
):
    """Folds f32 elements along ``axis`` by sum, max or min within each warp: registers in rising order, then lanes by
    exchanges with rising distance. ``dst`` has one element per warp that shares the axis (Layout.reduced)."""

    dst: Name
    fold: Name
    src: Name
    axis: int


@dataclass(frozen=True)
class Advance(Instruction, syntax="advance {cursor}", reads=(), writes=("cursor",), **_REG):
    """One more executed use: moves the cursor to the next slot."""

    cursor: Name


# Tensor copies, wgmma and phase barriers: the rest of the vocabulary of tidegate.plan.


@dataclass(frozen=True)
class TmaLoad(
    Instruction,
    syntax="tma_load {dst} <- {src} bar {barrier}[{cursor}]",
    reads=("src",),
    writes=("dst",),
    proxy=Proxy.ASYNC,
    completes=Completion.TRANSACTION,
    by=Participants.ELECTED,
):
    """Tensor copy global to shared; its bytes count on the barrier's slot."""

    dst: Slot
    src: Window
    barrier: Name
    cursor: Name


@dataclass(frozen=True)
class TmaStore(
    Instruction,
    syntax="tma_store {dst} <- {src}",
    reads=("src",),
    writes=("dst",),
    proxy=Proxy.ASYNC,
    completes=Completion.BULK_GROUP,
    by=Participants.ELECTED,
):
    """Tensor copy shared to global; source read and global write complete separately."""

    dst: Window
    src: Slot


@dataclass(frozen=True)
class Wgmma(
    Instruction,
    syntax="wgmma {d} <- {a}, {b}",
    reads=("a", "b", "d"),
    writes=("d",),
    proxy=Proxy.ASYNC,
    completes=Completion.WGMMA_GROUP,
    by=Participants.WARPGROUP,
):
    """d += a @ b, asynchronous; a and b are read from shared memory until the group has completed."""

    d: Name
    a: Slot
    b: Slot


# ---------------------------------------------------------------------------------------------- syncs


@dataclass(frozen=True)
class Sync(Instruction, abstract=True):
    """Base of everything that only orders. ``id`` names the sync in the plan, ``why`` says what it protects."""

    id: str = field(default="", kw_only=True)
    why: str = field(default="", kw_only=True)


_SYNC_THREAD = {
    "reads": (),
    "writes": (),
    "proxy": Proxy.NONE,
    "completes": Completion.RETURN,
    "by": Participants.THREAD,
}
_SYNC_WARP = {**_SYNC_THREAD, "by": Participants.WARP}
_SYNC_GROUP = {**_SYNC_THREAD, "by": Participants.WARPGROUP}
_SYNC_ROLE = {**_SYNC_THREAD, "by": Participants.ROLE}
_SYNC_ONE = {**_SYNC_THREAD, "by": Participants.ELECTED}
_SYNC_CTA = {**_SYNC_THREAD, "by": Participants.CTA}
_SYNC_CLUSTER = {**_SYNC_THREAD, "by": Participants.CLUSTER}


@dataclass(frozen=True)
class CpCommit(Sync, syntax="cp_commit", **_SYNC_THREAD):
    """Closes each thread's cp.async group (an empty group counts)."""


@dataclass(frozen=True)
class CpWait(Sync, syntax="cp_wait {n}", **_SYNC_THREAD):
    """Each thread waits until at most its ``n`` newest groups are incomplete; completion is known to that thread."""

    n: int


@dataclass(frozen=True)
class CpArrive(Sync, syntax="cp_arrive {barrier}[{cursor}]", **_SYNC_THREAD):
    """cp.async.mbarrier.arrive.noinc: arrives when the thread's earlier copies have landed."""

    barrier: Name
    cursor: Name


@dataclass(frozen=True)
class SyncWarp(Sync, syntax="sync_warp", **_SYNC_WARP):
    """Rendezvous and memory order among the lanes of each warp."""


@dataclass(frozen=True)
class BarSync(Sync, syntax="bar_sync {barrier} warps {warps}", **_SYNC_ROLE):
    """Named barrier 1..15 among exactly ``warps``; other warps pass by."""

    barrier: int
    warps: tuple[int, ...]


@dataclass(frozen=True)
class BarArrive(Sync, syntax="bar_arrive {barrier} warps {warps} count {count}", **_SYNC_ROLE):
    """Arrives without blocking; ``count`` threads arrive or sync in all."""

    barrier: int
    warps: tuple[int, ...]
    count: int


@dataclass(frozen=True)
class SyncBlock(Sync, syntax="sync_block", **_SYNC_CTA):
    """Rendezvous and memory order among all threads of the CTA."""


@dataclass(frozen=True)
class ClusterArrive(Sync, syntax="cluster_arrive", **_SYNC_CLUSTER):
    """Arrives at the cluster's barrier without blocking (release)."""


@dataclass(frozen=True)
class ClusterWait(Sync, syntax="cluster_wait", **_SYNC_CLUSTER):
    """Waits until all threads of the cluster have arrived (acquire)."""


@dataclass(frozen=True)
class FenceAsync(Sync, syntax="fence_async {space}", **_SYNC_THREAD):
    """fence.proxy.async for ``space`` shared or global: generic accesses before, async ones after."""

    space: Name


@dataclass(frozen=True)
class FenceBarrierInit(Sync, syntax="fence_barrier_init", **_SYNC_ONE):
    """fence.mbarrier_init: initialised mbarriers become visible to the cluster and the async proxy."""


@dataclass(frozen=True)
class BarrierInit(Sync, syntax="barrier_init {barrier}", **_SYNC_ONE):
    """Initialises every slot with its declared count."""

    barrier: Name


@dataclass(frozen=True)
class BarrierArrive(Sync, syntax="arrive {barrier}[{cursor}] by {per}", **_SYNC_THREAD):
    """Arrives on the barrier's slot (release): once by each thread, by lane 0 of each warp, or by one elected thread of
    the role, as ``per`` (thread, warp, role) says. It releases what the arriving thread knows, no more."""

    barrier: Name
    cursor: Name
    per: Name


@dataclass(frozen=True)
class BarrierExpect(Sync, syntax="expect {barrier}[{cursor}] bytes {bytes}", **_SYNC_ONE):
    """arrive.expect_tx: adds ``bytes`` to the phase, then arrives once."""

    barrier: Name
    cursor: Name
    bytes: int


@dataclass(frozen=True)
class BarrierWait(Sync, syntax="wait {barrier}[{cursor}] flip {flip}", **_SYNC_THREAD):
    """Waits for the phase of the cursor's parity xor ``flip`` (1 for a producer on fresh empty slots)."""

    barrier: Name
    cursor: Name
    flip: int


@dataclass(frozen=True)
class BarrierInvalidate(Sync, syntax="barrier_invalidate {barrier}", **_SYNC_ONE):
    """Ends the life of every slot; its bytes may be used for other things afterwards."""

    barrier: Name


@dataclass(frozen=True)
class BulkCommit(Sync, syntax="bulk_commit", **_SYNC_ONE):
    """Closes the thread's group of bulk copies."""


@dataclass(frozen=True)
class BulkWait(Sync, syntax="bulk_wait {n} {what}", **_SYNC_ONE):
    """``what`` is read (sources may be reused) or done (writes performed as well)."""

    n: int
    what: Name


@dataclass(frozen=True)
class WgmmaFence(Sync, syntax="wgmma_fence", **_SYNC_GROUP):
    """Orders register and shared accesses before wgmma against those of wgmma."""


@dataclass(frozen=True)
class WgmmaCommit(Sync, syntax="wgmma_commit", **_SYNC_GROUP):
    """Closes the warpgroup's group of wgmma."""


@dataclass(frozen=True)
class WgmmaWait(Sync, syntax="wgmma_wait {n}", **_SYNC_GROUP):
    """Waits until at most the ``n`` newest groups are incomplete."""

    n: int


@dataclass(frozen=True)
class SetMaxRegisters(Sync, syntax="setmaxnreg {registers}", **_SYNC_GROUP):
    """Changes the number of registers per thread of the warpgroup."""

    registers: int


# ---------------------------------------------------------------------------------------------- kernel


@dataclass(frozen=True)
class Kernel:
    """One kernel. ``target`` is a name known to tidegate.target; ``smem`` is the dynamic shared memory in bytes."""

    name: Name
    target: Name
    warps: int
    smem: int
    dims: tuple[Dim, ...]
    params: tuple[Param, ...]
    grid: tuple[GridAxis, ...]
    layouts: tuple[tuple[Name, Layout], ...]
    buffers: tuple[Buffer, ...]
    barriers: tuple[Mbarrier, ...]
    cursors: tuple[Cursor, ...]
    registers: tuple[Register, ...]
    roles: tuple[Role, ...]
    body: tuple[Stmt, ...]

    @property
    def threads(self) -> int:
        return self.warps * 32

    def layout(self, name: Name) -> Layout:
        return dict(self.layouts)[name]

    def buffer(self, name: Name) -> Buffer:
        return next(b for b in self.buffers if b.name == name)

    def register(self, name: Name) -> Register:
        return next(r for r in self.registers if r.name == name)

    def param(self, name: Name) -> Param:
        return next(p for p in self.params if p.name == name)


def walk(body: tuple[Stmt, ...]) -> list[Stmt]:
    """All statements in textual order, bodies included."""
    out: list[Stmt] = []
    for stmt in body:
        out.append(stmt)
        if isinstance(stmt, (For, If, InRole)):
            out.extend(walk(stmt.body))
    return out


def _all(cls: type[Instruction]) -> list[type[Instruction]]:
    out = []
    for sub in cls.__subclasses__():
        if sub.syntax:
            out.append(sub)
        out.extend(_all(sub))
    return out


INSTRUCTIONS: tuple[type[Instruction], ...] = tuple(_all(Instruction))
"""Every instruction class, the whole vocabulary."""
