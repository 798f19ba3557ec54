"""Kernels: from the syntax tree of a function to a HIR program."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import replace
from types import EllipsisType
from typing import Any

from tidegate.errors import (
    BadCall,
    BadLoop,
    BadSignature,
    DtypeMismatch,
    NotCarried,
    OverlappingWrites,
    ShapeMismatch,
    Span,
    UnsupportedSyntax,
    WrongDirection,
)
from tidegate.ir import hir
from tidegate.ir.dtypes import DTYPES, F32, I32, DType, dtype_advice
from tidegate.ir.expr import Expr, Int, Sym, binary, factor, least, symbols
from tidegate.ir.layout import Coord
from tidegate.lang import surface
from tidegate.lang.accumulate import with_accumulators
from tidegate.lang.advice import EXPRESSIONS, GENERAL_ADVICE, STATEMENTS, on_condition, operand
from tidegate.lang.dead import without_dead_ops
from tidegate.lang.elementwise import OPERATORS, describe
from tidegate.lang.expressions import Expressions
from tidegate.lang.outputs import check_outputs
from tidegate.lang.scope import Gone, Integer, Number, Scope, TileIndex
from tidegate.lang.source import RESERVED, Signature, Source, is_name, whole


def parse(
    source: Source,
    signature: Signature,
    constants: Mapping[str, Any],
    sizes: Mapping[str, int],
    multiples: Mapping[str, int],
    strided: Mapping[str, int],
    warps: int,
    ctas_per_sm: int | None = None,
) -> hir.Program:
    """The HIR of a kernel for given constants; ``sizes`` fixes dimensions, ``multiples`` says what divides others,
    ``strided`` what divides the strides of tensors that have gaps, in elements."""
    signature = _with_constants(signature, constants)
    dims = _dimensions(signature)
    tensors = _tensors(source, signature, sizes, strided)
    scalars = tuple(hir.Scalar(name, DTYPES[kind.dtype], span) for name, kind, span in signature.scalars)
    extents: dict[str, Expr] = {d: Int(sizes[d]) if d in sizes else Sym(d) for d in dims}
    parser = _Parser(source, tensors, scalars, constants, extents)
    try:
        body = parser.kernel()
    except RecursionError:
        raise UnsupportedSyntax(
            source.header(), what="an expression of this depth", advice="split it into several assignments"
        ) from None
    program = hir.Program(
        name=source.name,
        file=source.file,
        dims=dims,
        sizes=tuple((d, sizes[d]) for d in dims if d in sizes),
        multiples=tuple((d, multiples[d]) for d in dims if d in multiples and d not in sizes),
        constants=tuple(constants.items()),
        warps=warps,
        tensors=tensors,
        grid=parser.scope.grid,
        body=without_dead_ops(with_accumulators(body)),
        span=source.span(source.tree),
        scalars=scalars,
        order=signature.order,
        ctas_per_sm=ctas_per_sm,
    )
    check_outputs(program)
    return program


def _with_constants(signature: Signature, constants: Mapping[str, Any]) -> Signature:
    """The signature with sizes that name a compile-time constant replaced by its value."""
    tensors = []
    for tensor, kind, span in signature.tensors:
        shape = []
        for size in kind.shape:
            name = str(size)
            value = whole(constants[name]) if name in constants else size
            if value is None:
                raise BadSignature(
                    span,
                    what=f"size {size!r} of {tensor} names the constant {name}={constants[name]!r}",
                    advice="give the constant a positive integer, or the dimension another name",
                )
            shape.append(value)
        tensors.append((tensor, replace(kind, shape=tuple(shape)), span))
    return replace(signature, tensors=tuple(tensors))


def _dimensions(signature: Signature) -> tuple[str, ...]:
    names: dict[str, None] = {}
    for tensor, kind, span in signature.tensors:
        for size in kind.shape:
            if not isinstance(size, str):
                continue
            if not is_name(size) or size in signature.order:
                why = "is the name of a parameter" if size in signature.order else "cannot be the name of a dimension"
                raise BadSignature(
                    span,
                    what=f"size {size!r} of {tensor} {why}",
                    advice="use an ASCII identifier that is no parameter of the kernel, no Python keyword and none of "
                    + ", ".join(sorted(RESERVED)),
                )
            names[size] = None
    return tuple(names)


def _tensors(
    source: Source, signature: Signature, sizes: Mapping[str, int], strided: Mapping[str, int]
) -> tuple[hir.Tensor, ...]:
    out = []
    for name, kind, span in signature.tensors:
        if kind.dtype not in DTYPES:
            advice = dtype_advice(kind.dtype)
            raise DtypeMismatch(span, what=f"{kind.dtype!r} of {name} is no dtype of tensors", advice=advice)
        bad = [s for s in kind.shape if isinstance(s, int) and (isinstance(s, bool) or not 0 < s < 2**31)]
        if bad:
            raise BadSignature(
                span, what=f"size {bad[0]} of {name} is no size", advice="give an integer from 1 to 2**31 - 1"
            )
        shape: tuple[Expr, ...] = tuple(
            Int(s) if isinstance(s, int) else Int(sizes[s]) if s in sizes else Sym(s) for s in kind.shape
        )
        out.append(hir.Tensor(name, DTYPES[kind.dtype], shape, kind.direction, span, strided.get(name, 0)))
    return tuple(out)


MADE_INSIDE = Gone("it is made inside a loop, which may run zero times")


def advice_on_shape(wanted: Coord, tile: hir.Value, value: ast.expr) -> str:
    """What to do about a tile that a window of another shape is to take."""
    text = ast.unparse(value)
    if tile.shape == wanted[::-1]:
        return f"write {text.removesuffix('.T')}" if text.endswith(".T") else f"transpose it: {operand(value)}.T"
    rank = len(wanted) - len(tile.shape)
    single = [axis for axis, n in enumerate(tile.shape) if n == 1]
    if rank == -1 and single and tile.shape[: single[-1]] + tile.shape[single[-1] + 1 :] == wanted:
        if isinstance(value, ast.Call) and any(k.arg == "keepdims" for k in value.keywords):
            return "drop keepdims=True"
        return f"drop keepdims=True where it was folded, or take the axis away: {operand(value)}.max(axis={single[-1]})"
    if rank >= 0 and all(n in (1, w) for n, w in zip(tile.shape, wanted[rank:], strict=True)):
        return f"a store does not repeat elements: add the tile to tg.zeros({wanted})"
    return "use tile sizes that agree"


def together(a: DType, b: DType) -> bool:
    """Do elementwise operations take tiles of these dtypes together?"""
    return a == b or (a.kind == b.kind and F32 in (a, b))


class _Parser:
    def __init__(
        self,
        source: Source,
        tensors: tuple[hir.Tensor, ...],
        scalars: tuple[hir.Scalar, ...],
        constants: Mapping[str, Any],
        dims: dict[str, Expr],
    ) -> None:
        self.source = source
        self.dims = dims
        self.scalars = frozenset(s.name for s in scalars)
        numbers = {s.name: s if s.dtype.floating else Integer(Sym(s.name)) for s in scalars}
        self.scope = Scope({**constants, **{t.name: t for t in tensors}, **numbers}, dims)
        loops = (n for n in ast.walk(source.tree) if isinstance(n, ast.For))
        indices = {n.id for loop in loops for n in ast.walk(loop.target) if isinstance(n, ast.Name)}
        self.scope.taken = {*indices, *dims, *constants, *(t.name for t in tensors), *numbers}
        self.scope.signed = {s.name for s in scalars}
        self.expressions = Expressions(source, self.scope)

    def kernel(self) -> hir.Body:
        for statement in self.source.tree.body:
            if self.scope.grid and not isinstance(statement, ast.Pass):
                raise BadLoop(
                    self.source.span(statement),
                    what="a statement behind the tg.grid loop would run once, after all CTAs",
                    advice="move it into the loop, or into a second kernel",
                )
            self.statement(statement)
        return tuple(self.scope.ops)

    def block(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            self.statement(statement)

    def statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign(targets=[target]):
                self.assign(target, node.value)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self.assign(target, value)
            case ast.AugAssign(target=ast.Name() as target):
                if type(node.op) not in OPERATORS:
                    raise UnsupportedSyntax(
                        self.source.span(node),
                        what=f"the operator in {ast.unparse(node)!r}",
                        advice="use another operator: += -= *= /= //= %= &= |= ^= <<= >>=",
                    )
                read = ast.copy_location(ast.Name(target.id, ast.Load()), target)
                result = ast.copy_location(ast.BinOp(read, node.op, node.value), node)
                self.assign(target, result)
            case ast.For():
                self.loop(node)
            case ast.If() if self.expressions.static(self.expressions.folded(node.test)):
                chosen = self.expressions.constant(node.test, None)
                self.block(node.body if chosen else node.orelse)
            case ast.If() if self.expressions.is_condition(node.test):
                self.branch(node)
            case ast.Pass() | ast.Expr(value=ast.Constant(value=str() | EllipsisType())):
                pass
            case ast.AugAssign(target=ast.Subscript() as target):
                self.update(node, target)
            case ast.Expr(value=ast.Call() as call) if self.expressions.function(call) is surface.atomic_add:
                self.atomic_add(call)
            case ast.Assign():
                raise UnsupportedSyntax(
                    self.source.span(node), what="a chained assignment", advice="write one assignment per line"
                )
            case _:
                self.unsupported(node)

    def unsupported(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            self.expressions.parse(node.value)  # what is no operation at all is refused as that
        what, advice = STATEMENTS.get(type(node), (f"a {type(node).__name__.lower()!r} statement", GENERAL_ADVICE))
        if isinstance(node, ast.Expr):
            what, advice = EXPRESSIONS.get(type(node.value), (what, advice))
        span = self.source.span(node)
        if isinstance(node, ast.If):
            span, advice = self.source.span(node.test), on_condition(node.test, self.scope.bindings) or advice
        raise UnsupportedSyntax(span, what=what, advice=advice)

    # -------------------------------------------------------------------------------------- assignment

    def assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Subscript):
            self.store(target, value)
            return
        if not isinstance(target, ast.Name):
            raise UnsupportedSyntax(
                self.source.span(target),
                what=f"the assignment target {ast.unparse(target)!r}",
                advice="assign to one name or to a window",
            )
        old = self.scope.bindings.get(target.id)
        if isinstance(old, (hir.Tensor, hir.Scalar, TileIndex)) or target.id in self.scalars:
            advice = "choose another name"
            if isinstance(old, hir.Tensor) and old.output:
                advice = f"to write it, assign to a window, {target.id}[...] = tile; else choose another name"
            raise BadCall(self.source.span(target), what=f"{target.id} names a parameter or index", advice=advice)
        result = self.expressions.parse(value, target.id)
        fixed = isinstance(old, (Integer, Number)) or target.id in self.scope.constants()
        if target.id in self.scope.outer and fixed:
            kind = "an integer" if isinstance(old, Integer) else "a compile-time value"
            kind = "a number" if isinstance(old, Number) else kind
            changes = "would change from trip to trip"
            if self.scope.inside == "branch":
                changes = "would depend on a condition"
            raise NotCarried(
                self.source.span(target),
                name=target.id,
                what=f"is {kind} from outside the {self.scope.inside}, and {changes}",
                advice="make it a tile (tg.full), or give the new value another name",
            )
        if isinstance(result, hir.Scalar):
            result = Number(self.expressions.splat(result, (1,), F32, self.source.span(value), target.id))
        elif isinstance(result, TileIndex) and result.integer:
            result = Integer(Sym(result.name))
        elif isinstance(result, (hir.Tensor, TileIndex)):
            raise UnsupportedSyntax(
                self.source.span(value), what="a second name for a tensor or tile index", advice="use the first name"
            )
        self.scope.bindings[target.id] = result

    def store(self, target: ast.Subscript, value: ast.expr) -> None:
        span = self.source.span(target)
        tensor, window = self.expressions.window(target)
        self.writable(span, tensor, window)
        tile = self.expressions.written(value, tensor, window)
        self.write(span, tensor, window, tile, value)

    def update(self, node: ast.AugAssign, target: ast.Subscript) -> None:
        """c[m, n] += t: a load, the operation and a store."""
        span = self.source.span(node)
        tensor, window = self.expressions.window(target)
        self.writable(span, tensor, window)
        if not tensor.input:
            raise WrongDirection(
                span,
                what=f"{tensor.name} is a tg.Out, which is written only, and an update reads it",
                advice=f"declare it tg.InOut, or keep the sum in a tile and assign it to {ast.unparse(target)}",
            )
        if type(node.op) not in OPERATORS:
            raise UnsupportedSyntax(
                span,
                what=f"the operator in {ast.unparse(node)!r}",
                advice="use another operator: += -= *= /= //= %= &= |= ^= <<= >>=",
            )
        old = self.scope.value(tensor.name, tensor.dtype, window.shape)
        self.scope.ops.append(hir.Load(old, window, None, 1, None, span))
        value = self.expressions.parse(node.value)
        if isinstance(value, hir.Value) and not together(old.dtype, value.dtype):
            raise DtypeMismatch(
                self.source.span(node.value),
                what=f"{tensor.name} holds {tensor.dtype}, the tile {value.name} {value.dtype}",
                advice=f"cast it: {self.expressions.casted(value, tensor.dtype)}",
            )
        new = self.expressions.compute(OPERATORS[type(node.op)], [old, value], span, "")
        assert isinstance(new, hir.Value)  # one operand is a tile
        self.write(span, tensor, window, new, node.value)

    def writable(self, span: Span, tensor: hir.Tensor, window: hir.Window) -> None:
        if not tensor.output:
            raise WrongDirection(
                span, what=f"{tensor.name} is a tg.Tensor, which is read only", advice="declare it tg.Out to write it"
            )
        for axis in window.axes:
            self.alone(span, tensor, axis)

    def write(self, span: Span, tensor: hir.Tensor, window: hir.Window, tile: hir.Value, value: ast.expr) -> None:
        self.fits(span, tensor, window, tile, value)
        self.scope.ops.append(hir.Store(window, tile, span))

    def fits(self, span: Span, tensor: hir.Tensor, window: hir.Window, tile: hir.Value, value: ast.expr) -> None:
        """Raises ShapeMismatch or DtypeMismatch unless the tile, which ``value`` makes, is of the window's kind."""
        if tile.shape != window.shape:
            raise ShapeMismatch(
                span,
                what=f"the window of {tensor.name} has shape {window.shape}, the tile {tile.name} {tile.shape}",
                advice=advice_on_shape(window.shape, tile, value),
            )
        if tile.dtype != tensor.dtype:
            raise DtypeMismatch(
                span,
                what=f"{tensor.name} holds {tensor.dtype}, the tile {tile.name} {tile.dtype}",
                advice=f'write {operand(value)}.astype("{tensor.dtype}")',
            )

    def atomic_add(self, call: ast.Call) -> None:
        """tg.atomic_add(c[rows, :], t)."""
        span = self.source.span(call)
        target, value = self.expressions.arguments(call, ("window", "tile"))
        if not isinstance(target, ast.Subscript):
            raise BadCall(span, what="tg.atomic_add takes a window such as c[m, n]", advice="index a tensor parameter")
        tensor, window = self.expressions.window(target)
        if not (tensor.input and tensor.output):
            kind = "tg.Out, which is written only" if tensor.output else "tg.Tensor, which is read only"
            raise WrongDirection(
                span, what=f"{tensor.name} is a {kind}", advice=f"declare {tensor.name} tg.InOut to add to it"
            )
        if tensor.dtype not in (F32, I32):
            raise DtypeMismatch(
                span,
                what=f"{tensor.name} holds {tensor.dtype}, and atomic additions are of f32 and i32",
                advice='declare it "f32", and cast the sums in a second kernel',
            )
        tile = self.expressions.written(value, tensor, window)
        self.fits(span, tensor, window, tile, value)
        self.scope.ops.append(hir.AtomicAdd(window, tile, span))

    def alone(self, span: Span, tensor: hir.Tensor, axis: hir.Axis) -> None:
        """Windows that are written are equal or have no element in common."""
        if axis.rows is not None:
            raise OverlappingWrites(
                span,
                what=f"rows of {tensor.name} are written that {axis.rows.name} names, and it may name one twice",
                advice="add to them by tg.atomic_add, or gather where the tile is loaded",
            )
        if axis.start is not None and factor(axis.start) % axis.size:
            raise OverlappingWrites(
                span,
                what=f"{axis.size} elements of {tensor.name} from {axis.start} on are written: no multiple of "
                f"{axis.size}, so that two such windows may overlap",
                advice="write tiles, or slices that begin at multiples of their size",
            )

    # -------------------------------------------------------------------------------------- loops

    def loop(self, node: ast.For) -> None:
        span = self.source.span(node.iter)
        if node.orelse:
            raise UnsupportedSyntax(self.source.span(node.orelse[0]), what="for ... else", advice="drop the else")
        function = self.expressions.function(node.iter) if isinstance(node.iter, ast.Call) else None
        if isinstance(node.iter, ast.Call) and function is surface.grid:
            self.grid(node, node.iter)
        elif isinstance(node.iter, ast.Call) and function in (surface.tiles, surface.range):
            if not isinstance(node.target, ast.Name):
                raise BadLoop(
                    self.source.span(node.target),
                    what=f"tg.{function.__name__} gives one index, and {ast.unparse(node.target)!r} is no single name",
                    advice=f"write: for k in tg.{function.__name__}(...):",
                )
            self.tile_loop(node, self.expressions.axis_of(node.iter, node.target.id))
        else:
            advice = "loop over tg.grid(tg.tiles(...), ...), tg.tiles(extent, size) or tg.range(extent)"
            called = ast.unparse(node.iter.func) if isinstance(node.iter, ast.Call) else ""
            if isinstance(node.iter, ast.Call) and called.rpartition(".")[2] in ("range", "static_range"):
                inner = ", ".join(map(ast.unparse, node.iter.args))
                advice = f"write tg.range({inner}), whose index is an integer of the kernel, no number of Python"
            what = f"a loop over {ast.unparse(node.iter)!r}, which is no tg.grid, tg.tiles or tg.range"
            hidden = [n.id for n in ast.walk(node.iter) if isinstance(n, ast.Name) and self.scope.dynamic(n.id)]
            if hidden and isinstance(node.iter, ast.Call):
                what += f": {hidden[0]} is {describe(self.scope.bindings[hidden[0]])} here"
            raise BadLoop(span, what=what, advice=advice)

    def grid(self, node: ast.For, call: ast.Call) -> None:
        span = self.source.span(call)
        if self.scope.outer or self.scope.grid or self.scope.ops:
            what = "tg.grid is not the first statement of the kernel, and it divides the whole kernel among CTAs"
            if self.scope.grid:
                what = "tg.grid inside tg.grid, and a kernel has one grid"
            advice = "open the kernel with its only tg.grid loop; inside it, loop over tg.tiles(...) or tg.range(...)"
            raise BadLoop(span, what=what, advice=advice)
        targets = node.target.elts if isinstance(node.target, (ast.Tuple, ast.List)) else [node.target]
        names = [t.id for t in targets if isinstance(t, ast.Name)]
        if call.keywords or len(names) != len(targets) or len(names) != len(call.args) or not names:
            raise BadLoop(
                span,
                what=f"tg.grid with {len(call.args)} axes and {len(targets)} index names",
                advice='write: for m, n in tg.grid(tg.tiles("M", BM), tg.tiles("N", BN)):',
            )
        axes = []
        for name, item in zip(names, call.args, strict=True):
            if isinstance(item, ast.Starred):
                what = "tg.grid with unpacked arguments"
                raise BadCall(self.source.span(item), what=what, advice="write each axis out")
            if not isinstance(item, ast.Call) or self.expressions.function(item) not in (surface.tiles, surface.range):
                raise BadLoop(
                    self.source.span(item),
                    what=f"tg.grid takes tg.tiles(...) and tg.range(...), not {ast.unparse(item)!r}",
                    advice=f"write tg.range({ast.unparse(item)}) for a CTA per position, or tg.tiles with a size",
                )
            index = self.expressions.axis_of(item, name)
            if index.limit is not None:
                what = "until= in tg.grid, and CTAs do not wait for one another"
                raise BadLoop(self.source.span(item), what=what, advice="limit a tg.tiles loop inside the kernel")
            if index.counted and not set(symbols(index.extent)) <= set(self.dims):
                raise BadLoop(
                    self.source.span(item),
                    what="tg.grid over a number that only the GPU knows, and the host counts the CTAs",
                    advice='name a dimension, a number, or what is computed of sizes: tg.range(tg.size("N") // 16)',
                )
            if least(index.extent) < 0:
                index = replace(index, extent=binary("max", index.extent, 0))
            self.bind_index(node, index)
            axes.append(hir.GridAxis(name, index.extent, index.size))
        self.scope.grid = tuple(axes)
        self.scope.outer = frozenset(self.scope.bindings)
        self.block(node.body)

    def bind_index(self, node: ast.For, index: TileIndex) -> None:
        name = index.name
        old = self.scope.bindings.get(name)
        if name in self.dims or (old is not None and not isinstance(old, Gone)):
            raise BadLoop(
                self.source.span(node.target), what=f"the index name {name!r} is in use", advice="choose another name"
            )
        if not is_name(name):
            raise BadLoop(
                self.source.span(node.target),
                what=f"an index cannot be named {name!r}",
                advice=f"use an ASCII identifier other than {', '.join(sorted(RESERVED))}",
            )
        self.scope.bindings[name] = index

    def tile_loop(self, node: ast.For, index: TileIndex) -> None:
        scope = self.scope
        before = dict(scope.bindings)
        self.bind_index(node, index)
        assigned = {
            n.id for s in node.body for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }
        entering = {n: v for n, v in before.items() if n in assigned and isinstance(v, hir.Value)}
        inside = {n: scope.value(n, v.dtype, v.shape) for n, v in entering.items()}
        scope.bindings.update(inside)
        outer, scope.ops = scope.ops, []
        around, scope.outer, scope.inside = (scope.outer, scope.inside), frozenset(scope.bindings), "loop"
        scope.loops += 1
        loop_id = f"L{scope.loops}"
        self.block(node.body)
        scope.outer, scope.inside = around
        body, scope.ops = scope.ops, outer
        carried = []
        for n, initial in entering.items():
            carried.append(self.carry(node, n, initial, inside[n], scope.bindings[n]))
        for n in scope.bindings:
            old = before.get(n, MADE_INSIDE)
            if isinstance(old, Gone) and scope.bindings[n] is not old:  # new here, or gone before
                scope.bindings[n] = MADE_INSIDE
        scope.bindings.update({c.after.name: c.after for c in carried})
        span = self.source.span(node)
        scope.ops.append(
            hir.Loop(loop_id, index.name, index.extent, index.size, tuple(carried), tuple(body), span, index.limit)
        )

    def carry(self, node: ast.For, name: str, initial: hir.Value, inside: hir.Value, yielded: Any) -> hir.Carried:
        if not isinstance(yielded, hir.Value) or (yielded.dtype, yielded.shape) != (initial.dtype, initial.shape):
            now = f"{yielded.dtype} {yielded.shape}" if isinstance(yielded, hir.Value) else "no tile"
            places = [n for s in node.body for n in ast.walk(s) if isinstance(n, ast.Name) and n.id == name]
            last = max((n for n in places if isinstance(n.ctx, ast.Store)), key=lambda n: (n.lineno, n.col_offset))
            raise NotCarried(
                self.source.span(last),
                [(self.source.span(node), "the loop")],
                name=name,
                what=f"enters the loop as {initial.dtype} {initial.shape} and leaves a trip as {now}",
                advice=f"{self.kept(initial, yielded)}; or use another name inside the loop",
            )
        return hir.Carried(initial, inside, yielded, self.scope.value(name, initial.dtype, initial.shape))

    def kept(self, wanted: hir.Value, found: Any) -> str:
        """How a tile keeps the dtype and the shape of another one."""
        if isinstance(found, hir.Value) and found.shape == wanted.shape:
            return f"keep the dtype: {self.expressions.casted(found, wanted.dtype)}"
        return "keep the dtype and the shape"

    # -------------------------------------------------------------------------------------- branches

    def branch(self, node: ast.If) -> None:
        """Both branches, and behind them the tiles that either assigns."""
        scope = self.scope
        condition = self.expressions.condition(node.test)
        before = dict(scope.bindings)
        outer, around = scope.ops, (scope.outer, scope.inside)
        scope.branches += 1
        branch_id = f"B{scope.branches}"
        sides: list[tuple[hir.Body, dict[str, Any]]] = []
        for body in (node.body, node.orelse):
            scope.bindings, scope.ops = dict(before), []
            scope.outer, scope.inside = frozenset(before), "branch"
            self.block(body)
            sides.append((tuple(scope.ops), scope.bindings))
        scope.ops, (scope.outer, scope.inside) = outer, around
        (then, ours), (otherwise, theirs) = sides
        scope.bindings = before
        merged = []
        for name in dict.fromkeys((*ours, *theirs)):
            a, b = ours.get(name), theirs.get(name)
            if a is b and name in before:
                continue
            if not isinstance(a, hir.Value) or not isinstance(b, hir.Value):
                why = "it is made in one branch of a condition, which may not run"
                if isinstance(a, (Integer, Number)) and isinstance(b, (Integer, Number)):
                    why = "the branches of a condition leave it as different numbers; make it a tile by tg.full"
                scope.bindings[name] = Gone(why)
            elif (a.dtype, a.shape) == (b.dtype, b.shape):
                merged.append(hir.Merged(a, b, scope.value(name, a.dtype, a.shape)))
                scope.bindings[name] = merged[-1].after
            else:
                kinds = f"{a.dtype} {a.shape} in one and {b.dtype} {b.shape} in the other"
                narrow, wide = (a, b) if b is before.get(name) or a.dtype.size < b.dtype.size else (b, a)
                advice = f"{self.kept(wide, narrow)}; or use two names"
                scope.bindings[name] = Gone(f"the branches of a condition leave it as {kinds}", advice)
        span = self.source.span(node.test)
        scope.ops.append(hir.Branch(branch_id, condition, then, otherwise, tuple(merged), span))
