"""What TIR instructions work on: names, proxies, operands, and what a kernel declares."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NewType

from tidegate.ir.direction import Direction
from tidegate.ir.dtypes import DType
from tidegate.ir.expr import Expr
from tidegate.ir.layout import Coord, SharedLayout, Swizzle

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
class Rows:
    """Axis ``axis`` of a window is gathered: element i of the tile along it lies where element i of the i32 register
    tile ``register`` says, of which every thread holds what it needs."""

    axis: int
    register: Name


@dataclass(frozen=True)
class Window:
    """Part of a global tensor from ``origin`` on; where ``bounds`` gives an extent, elements at or beyond it read as
    zero and are not written, and along the axes ``below`` those before 0 as well. An axis without a bound is proved to
    be in range. The tile has no axis for the ``fixed`` ones: it lies at their origin. The axis of ``rows`` has origin
    0, and elements outside 0 .. bound-1 are treated as above."""

    tensor: Name
    origin: tuple[Expr, ...]
    bounds: tuple[Expr | None, ...]
    fixed: Coord = ()
    below: Coord = ()
    rows: Rows | None = None

    @property
    def tile_axis(self) -> int:
        """The axis of the tile along which rows are gathered."""
        assert self.rows is not None
        return self.rows.axis - sum(a < self.rows.axis for a in self.fixed)


# ---------------------------------------------------------------------------------------------- declarations


@dataclass(frozen=True)
class Dim:
    """A named size: a launch argument, or fixed when ``value`` is given. ``multiple`` is known to divide it."""

    name: Name
    value: int | None
    multiple: int = 1


@dataclass(frozen=True)
class Param:
    """A row-major global tensor. ``align`` bytes divide its address and (rank > 1) all strides but the last. It has no
    gaps, unless it is ``strided``: then all strides but the last, which is 1, are launch arguments; they are not
    negative, and no two elements of an output share bytes."""

    name: Name
    dtype: DType
    shape: tuple[Expr, ...]
    direction: Direction
    align: int
    strided: bool = False

    @property
    def output(self) -> bool:
        """Is it written?"""
        return self.direction.writes

    @property
    def input(self) -> bool:
        """Is it read?"""
        return self.direction.reads


@dataclass(frozen=True)
class Scalar:
    """A number that all threads share: with ``argument`` an i32 or f32 that the launch gives, else an i32 that
    ``ld_scalar`` sets. Expressions name the i32 ones."""

    name: Name
    dtype: DType
    argument: bool = False


@dataclass(frozen=True)
class GridAxis:
    """A CTA index: ``name`` runs over 0 .. extent-1, or back from there. The last axis varies fastest over the linear
    CTA index; but inside bands of ``band`` rows of the axis before it, CTAs go down the columns."""

    name: Name
    extent: Expr
    band: int = 1
    backwards: bool = False


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
