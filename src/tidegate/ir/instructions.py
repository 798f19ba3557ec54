"""Control flow and the instructions of TIR that compute or move data.

An instruction class states, as class keywords, what every pass needs to know of it; one that leaves something out fails
at import.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from tidegate.ir.expr import Expr
from tidegate.ir.layout import Coord
from tidegate.ir.operands import Completion, Name, Participants, Proxy, Slot, Window


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


def registers(stmt: Stmt, how: str) -> Iterator[str]:
    """What a statement ``reads`` or ``writes`` that is no memory: names of registers, scalars, cursors. The rows of a
    window are read whichever way the window goes."""
    for name in getattr(stmt, how, ()):
        value = getattr(stmt, name)
        yield from (v for v in (value if isinstance(value, tuple) else (value,)) if isinstance(v, str))
    if how == "reads":
        yield from (v.rows.register for v in vars(stmt).values() if isinstance(v, Window) and v.rows is not None)


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
class LdScalar(Instruction, syntax="ld_scalar {scalar} <- {src}", reads=("src",), writes=("scalar",), **_GEN):
    """One element of an input, i32 or i64, to all threads: every axis of ``src`` is fixed. Out of bounds reads zero; a
    number beyond 32 bits is the nearest one of 32."""

    scalar: Name
    src: Window


@dataclass(frozen=True)
class StGlobal(Instruction, syntax="st_global {dst} <- {src} bytes {bytes}", reads=("src",), writes=("dst",), **_GEN):
    """Registers to global, ``bytes`` per access; out of bounds is not written."""

    dst: Window
    src: Name
    bytes: int


@dataclass(frozen=True)
class AtomicAdd(Instruction, syntax="atomic_add {dst} <- {src}", reads=("src",), writes=("dst",), **_GEN):
    """Adds f32 or i32 registers to global memory, element by element, each by one atomic operation that the whole GPU
    sees; in no order. Nothing is added out of bounds."""

    dst: Window
    src: Name


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
    """ldmatrix of 8x8 blocks of 32-bit words: four 8-bit, two 16-bit elements or one of 32 bits that are adjacent along
    the *buffer's* last axis. When pairs of 16-bit elements run along the other axis, the .trans form is used: the
    emitter derives it from the layout. A warp reads together, so every lane counts as reading all bytes of its warp's
    blocks."""

    dst: Name
    src: Slot


@dataclass(frozen=True)
class StMatrix(Instruction, syntax="stmatrix {dst} <- {src}", reads=("src",), writes=("dst",), **_WARP):
    """stmatrix of 8x8 blocks, as ldmatrix has them."""

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
    """d = a @ b + c by mma.sync of ``shape``, k steps in rising order. m16n8k16: f16 or bf16 into f32. m16n8k8: f32,
    whose low 13 bits are ignored (map tf32 rounds them away), into f32. m16n8k32: i8 into i32, modulo 2**32; f8e4m3 and
    f8e5m2 into f32 (sm_89 and later)."""

    shape: Name
    d: Name
    a: Name
    b: Name
    c: Name


@dataclass(frozen=True)
class Fill(Instruction, syntax="fill {dst} <- {value}", reads=(), writes=("dst",), **_REG):
    """Sets every element to ``value``, converted into the type of ``dst``."""

    dst: Name
    value: float


@dataclass(frozen=True)
class Positions(Instruction, syntax="positions {dst} <- {origin}", reads=(), writes=("dst",), **_REG):
    """i32 tile of one axis: element i is ``origin`` + i."""

    dst: Name
    origin: Expr


@dataclass(frozen=True)
class Splat(Instruction, syntax="splat {dst} <- {value}", reads=(), writes=("dst",), **_REG):
    """Sets every element to ``value``: an integer expression for i32, a scalar argument for f32."""

    dst: Name
    value: Expr


@dataclass(frozen=True)
class Map(Instruction, syntax="map {dst} <- {op} {args}", reads=("args",), writes=("dst",), **_REG):
    """Elementwise ``op`` (see tidegate.ops.elementwise) over registers of one layout and immediate numbers. Floats are
    computed in f32, integers, which wrap, and masks in 32 bits, or 64 for i64, and the result is converted as ``cast``
    does."""

    dst: Name
    op: Name
    args: tuple[Name | float, ...]


@dataclass(frozen=True)
class Cast(Instruction, syntax="cast {dst} <- {src}", reads=("src",), writes=("dst",), **_REG):
    """Conversion; same layout. To floats: to nearest even (integers by way of f32), 8-bit floats saturating. From
    floats to integers: towards zero, saturating, NaN to 0. Between integers: modulo 2**bits. To masks: is it not 0."""

    dst: Name
    src: Name


@dataclass(frozen=True)
class Move(
    Instruction,
    syntax="mov {dst} <- {src}( transposed{transposed:flag})?",
    reads=("src",),
    writes=("dst",),
    **_REG,
):
    """The same tile in another register tile, or its transpose. Every thread holds what it needs already; fewer threads
    may hold the result."""

    dst: Name
    src: Name
    transposed: bool = False


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
    syntax="reduce {dst} <- {fold} {src} axis {axis}( below {below})?",
    reads=("src",),
    writes=("dst",),
    proxy=Proxy.NONE,
    completes=Completion.RETURN,
    by=Participants.WARP,
):
    """Folds f32, i32 or i64 elements along ``axis`` by sum, max or min within each warp: registers in rising order,
    then lanes by exchanges with rising distance. Sums of integers wrap. ``dst`` has one element per warp that
    shares the axis (Layout.reduced). ``below``: only elements in front of that place along the axis count (0: all);
    a warp without any gives what changes no fold."""

    dst: Name
    fold: Name
    src: Name
    axis: int
    below: int = 0


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
