"""HIR: the author's program as SSA over tiles. Value semantics, structured loops, the schedule as annotations.

    program := name, sizes, parameters, constants, grid axes, body
    body    := (op | loop | branch)*
    op      := Load | LoadScalar | Store | AtomicAdd | Fill | Splat | Positions | Dot | Map | Cast | Transpose | Reduce
               | Part | Spread
    loop    := index over cdiv(extent, size) tiles, carried values (initial, inside, yielded, after), body
    branch  := condition, two bodies, merged values (then, otherwise, after)

Integers (sizes, indices, scalar arguments, integers read from tensors) are names in expressions.

Every op carries the span of the expression that made it. What an op means is defined by tidegate.ops.plain, how it is
carried out by tidegate.legalise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tidegate.errors import Span
from tidegate.ir.direction import Direction
from tidegate.ir.dtypes import DType
from tidegate.ir.expr import Expr, Int, Sym, binary, cdiv, mul
from tidegate.ir.layout import Coord


@dataclass(frozen=True)
class Value:
    """One tile. ``name`` is the author's variable where there is one."""

    id: int
    name: str
    dtype: DType
    shape: Coord


@dataclass(frozen=True)
class Instruction:
    """What ``by=`` names: an instruction of the target with its options."""

    name: str
    options: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{k}={v}' for k, v in self.options)})"


@dataclass(frozen=True)
class Tensor:
    """A parameter: row-major, rank 1 or more; sizes are expressions over named dimensions. ``pitch``: 0 for a tensor
    without gaps; else all strides but the last are launch arguments, which ``pitch`` elements divide."""

    name: str
    dtype: DType
    shape: tuple[Expr, ...]
    direction: Direction
    span: Span
    pitch: int = 0

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
    """A parameter that is a number: an i32, which expressions name, or an f32, which :class:`Splat` does."""

    name: str
    dtype: DType
    span: Span


@dataclass(frozen=True)
class Axis:
    """One axis of a window: ``size`` elements from ``index * size`` on, of an axis of ``extent``; index None: all.

    Instead of an index, ``at``: the single element at that position, and the tile has no such axis; ``start``: from
    that position on, which may be negative; ``rows``: the elements at the positions that this i32 tile holds. Positions
    outside the axis read as zero and are not written. ``ends``: the tile is wider than its axis.
    """

    index: str | None
    size: int
    extent: Expr
    at: Expr | None = None
    start: Expr | None = None
    rows: Value | None = None
    ends: bool = False

    @property
    def origin(self) -> Expr:
        """The position of the first element (of a gathered axis 0)."""
        if self.index is not None:
            return mul(Sym(self.index), self.size)
        return self.at or self.start or Int(0)


@dataclass(frozen=True)
class Window:
    """Part of a tensor, one :class:`Axis` per axis."""

    tensor: str
    axes: tuple[Axis, ...]

    @property
    def shape(self) -> Coord:
        return tuple(a.size for a in self.axes if a.at is None)

    @property
    def rows(self) -> Value | None:
        """The tile of positions of the gathered axis, if there is one."""
        return next((a.rows for a in self.axes if a.rows is not None), None)

    @property
    def tile_axis(self) -> int:
        """The axis of the tile along which it is gathered."""
        gathered = next(i for i, a in enumerate(self.axes) if a.rows is not None)
        return gathered - sum(a.at is not None for a in self.axes[:gathered])


@dataclass(frozen=True)
class Load:
    """``by`` None: the target's default; ``to`` None: where the reader's instruction wants it."""

    result: Value
    window: Window
    by: Instruction | None
    stages: int
    to: str | None
    span: Span


@dataclass(frozen=True)
class LoadScalar:
    """Makes the integer ``name`` the element at a window of positions; 0 where that is outside the tensor."""

    name: str
    window: Window
    span: Span


@dataclass(frozen=True)
class Store:
    """Writes a tile to a window; elements beyond the tensor are dropped."""

    window: Window
    value: Value
    span: Span


@dataclass(frozen=True)
class AtomicAdd:
    """Adds a tile to a window, in no order with other additions; elements beyond the tensor are dropped."""

    window: Window
    value: Value
    span: Span


@dataclass(frozen=True)
class Fill:
    """A tile of one number."""

    result: Value
    number: float
    span: Span


@dataclass(frozen=True)
class Splat:
    """A tile of one number that is not known at compile time: an integer expression, or an f32 argument."""

    result: Value
    value: Expr
    span: Span


@dataclass(frozen=True)
class Positions:
    """The i32 tile of the positions that a tile index covers: ``index * size`` + 0, 1, ..; without one 0, 1, .."""

    result: Value
    index: str | None
    span: Span


@dataclass(frozen=True)
class Dot:
    """result = a @ b + c, accumulated in the dtype of c."""

    result: Value
    a: Value
    b: Value
    c: Value
    by: Instruction | None
    span: Span


@dataclass(frozen=True)
class Map:
    """Elementwise; operands are tiles of one shape and dtype, or numbers."""

    result: Value
    op: str
    args: tuple[Value | float, ...]
    span: Span


@dataclass(frozen=True)
class Cast:
    """Conversion (tidegate.ops.convert)."""

    result: Value
    source: Value
    span: Span


@dataclass(frozen=True)
class Transpose:
    """The tile with its two axes exchanged."""

    result: Value
    source: Value
    span: Span


@dataclass(frozen=True)
class Reduce:
    """Folds ``axis`` by sum, max or min; the axis stays, with one element. Floats are accumulated in f32 and rounded
    once; integers in 32 bits, or 64 for i64, whose sums wrap; masks have max and min (any and all). ``inside``: only so
    many elements along the axis count (0: all)."""

    result: Value
    fold: str
    source: Value
    axis: int
    span: Span
    inside: int = 0


@dataclass(frozen=True)
class Part:
    """The part of a tile from ``origin`` on, of the result's shape."""

    result: Value
    source: Value
    origin: Coord
    span: Span


@dataclass(frozen=True)
class Spread:
    """Broadcast: axis i of ``source`` runs along axis ``axes[i]`` of the result, or is repeated where it has one
    element."""

    result: Value
    source: Value
    axes: Coord
    span: Span


@dataclass(frozen=True)
class Carried:
    """A loop-carried value: ``inside`` is ``initial`` in the first trip, then the last trip's ``yielded``; ``after``
    is the value behind the loop."""

    initial: Value
    inside: Value
    yielded: Value
    after: Value


@dataclass(frozen=True)
class Loop:
    """``index`` runs over 0 .. cdiv(extent, size)-1, and over ``limit`` tiles at most (which is never 0).

    ``id`` is unique in the program.
    """

    id: str
    index: str
    extent: Expr
    size: int
    carried: tuple[Carried, ...]
    body: Body
    span: Span
    limit: Expr | None = None

    @property
    def trips(self) -> Expr:
        count = cdiv(self.extent, self.size)
        few = isinstance(count, Int) and count.value <= 1  # no limit ends before the first tile
        return count if self.limit is None or few else binary("min", count, self.limit)


@dataclass(frozen=True)
class Merged:
    """A value behind a branch: ``then`` where the condition held, else ``otherwise``."""

    then: Value
    otherwise: Value
    after: Value


@dataclass(frozen=True)
class Branch:
    """``then`` if the uniform condition is not 0, else ``otherwise``. ``id`` is unique in the program."""

    id: str
    condition: Expr
    then: Body
    otherwise: Body
    merged: tuple[Merged, ...]
    span: Span


Makers = Load | Fill | Splat | Positions | Dot | Map | Cast | Transpose | Reduce | Part | Spread
"""Ops that make a tile."""

Op = Makers | LoadScalar | Store | AtomicAdd
Node = Op | Loop | Branch
Body = tuple[Node, ...]


@dataclass(frozen=True)
class GridAxis:
    """CTAs along one dimension: ``index`` runs over its tiles of ``size``."""

    index: str
    extent: Expr
    size: int


@dataclass(frozen=True)
class Program:
    """``dims`` are the named sizes in order of appearance; ``sizes`` the ones that are fixed; ``multiples`` what is
    known to divide the others."""

    name: str
    file: str
    dims: tuple[str, ...]
    sizes: tuple[tuple[str, int], ...]
    multiples: tuple[tuple[str, int], ...]
    constants: tuple[tuple[str, object], ...]
    warps: int
    tensors: tuple[Tensor, ...]
    grid: tuple[GridAxis, ...]
    body: Body
    span: Span
    scalars: tuple[Scalar, ...] = ()
    order: tuple[str, ...] = ()
    """All positional parameters, tensors and scalars."""
    ctas_per_sm: int | None = None
    """The most CTAs that share a multiprocessor; None: as many as fit."""

    def tensor(self, name: str) -> Tensor:
        return next(t for t in self.tensors if t.name == name)


def operands(op: Op) -> tuple[Value, ...]:
    """The tiles that an op reads."""
    match op:
        case Load():
            return () if op.window.rows is None else (op.window.rows,)
        case Store() | AtomicAdd():
            return (op.value,) if op.window.rows is None else (op.value, op.window.rows)
        case Dot():
            return (op.a, op.b, op.c)
        case Map():
            return tuple(a for a in op.args if isinstance(a, Value))
        case Cast() | Transpose() | Reduce() | Part() | Spread():
            return (op.source,)
        case _:
            return ()


def result(op: Op) -> Value | None:
    """The tile that an op makes, if it makes one."""
    return None if isinstance(op, (LoadScalar, Store, AtomicAdd)) else op.result


def bodies(node: Node) -> tuple[Body, ...]:
    """The bodies that stand inside a node."""
    match node:
        case Loop():
            return (node.body,)
        case Branch():
            return node.then, node.otherwise
    return ()


def walk(body: Body) -> Iterator[Node]:
    """All ops, loops and branches in textual order."""
    for node in body:
        yield node
        for inner in bodies(node):
            yield from walk(inner)


def of_trip(body: Body) -> Iterator[Op]:
    """The ops of a body, those of branches included, but not those of loops."""
    for node in body:
        match node:
            case Branch():
                yield from of_trip(node.then)
                yield from of_trip(node.otherwise)
            case Loop():
                pass
            case _:
                yield node


def reads(node: Node) -> tuple[Value, ...]:
    """The tiles that a node reads itself, what loops and branches carry included; not those that its bodies read."""
    match node:
        case Loop():
            return tuple(v for c in node.carried for v in (c.initial, c.yielded))
        case Branch():
            return tuple(v for m in node.merged for v in (m.then, m.otherwise))
    return operands(node)


def makes(node: Node) -> tuple[Value, ...]:
    """The tiles that exist behind a node because of it."""
    match node:
        case Loop():
            return tuple(c.after for c in node.carried)
        case Branch():
            return tuple(m.after for m in node.merged)
    made = result(node)
    return () if made is None else (made,)


def expressions(node: Node) -> tuple[Expr, ...]:
    """The integer expressions that a node evaluates itself."""
    match node:
        case Loop():
            return (node.extent,) if node.limit is None else (node.extent, node.limit)
        case Branch():
            return (node.condition,)
        case Splat():
            return (node.value,)
        case Load() | LoadScalar() | Store() | AtomicAdd():
            return tuple(e for a in node.window.axes if (e := a.at or a.start) is not None)
    return ()
