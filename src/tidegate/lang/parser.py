"""Kernels: from the syntax tree of a function to a HIR program."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tidegate.errors import (
    BadCall,
    BadLoop,
    BadSignature,
    DtypeMismatch,
    NeverWritten,
    NotCarried,
    OverlappingWrites,
    ShapeMismatch,
    UnknownName,
    UnsupportedSyntax,
    WrongDirection,
)
from tidegate.ir import hir
from tidegate.ir.dtypes import DTYPES, MEMORY_DTYPES
from tidegate.ir.expr import Expr, Int, Sym, add, cdiv, mul, symbols
from tidegate.lang import surface
from tidegate.lang.expressions import OPERATORS, Expressions
from tidegate.lang.scope import Gone, Scope, TileIndex
from tidegate.lang.source import RESERVED, Signature, Source, is_name, whole


def parse(
    source: Source,
    signature: Signature,
    constants: Mapping[str, Any],
    sizes: Mapping[str, int],
    multiples: Mapping[str, int],
    warps: int,
) -> hir.Program:
    """The HIR of a kernel for given constants; ``sizes`` fixes dimensions, ``multiples`` says what divides others."""
    signature = _with_constants(signature, constants)
    dims = _dimensions(signature)
    tensors = _tensors(source, signature, sizes)
    parser = _Parser(source, tensors, constants, {d: Int(sizes[d]) if d in sizes else Sym(d) for d in dims})
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
        body=without_dead_ops(body),
        span=source.span(source.tree),
    )
    _check_outputs(program)
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
            if not is_name(size) or any(size == other for other, _, _ in signature.tensors):
                raise BadSignature(
                    span,
                    what=f"size {size!r} of {tensor} is not usable as a dimension's name",
                    advice="use an ASCII identifier that is no parameter of the kernel, no Python keyword and none of "
                    + ", ".join(sorted(RESERVED)),
                )
            names[size] = None
    return tuple(names)


def _tensors(source: Source, signature: Signature, sizes: Mapping[str, int]) -> tuple[hir.Tensor, ...]:
    out = []
    for name, kind, span in signature.tensors:
        held = [d.name for d in MEMORY_DTYPES]
        if kind.dtype not in held:
            raise DtypeMismatch(
                span, what=f"{kind.dtype!r} of {name} is no dtype of tensors", advice=f"use one of {', '.join(held)}"
            )
        bad = [s for s in kind.shape if isinstance(s, int) and (isinstance(s, bool) or not 0 < s < 2**31)]
        if bad:
            raise BadSignature(
                span, what=f"size {bad[0]} of {name} is no size", advice="give an integer from 1 to 2**31 - 1"
            )
        shape: tuple[Expr, ...] = tuple(
            Int(s) if isinstance(s, int) else Int(sizes[s]) if s in sizes else Sym(s) for s in kind.shape
        )
        out.append(hir.Tensor(name, DTYPES[kind.dtype], shape, kind.output, span))
    return tuple(out)


MADE_INSIDE = Gone("it is made inside a loop, which may run zero times")

GENERAL_ADVICE = "a kernel consists of assignments and for loops over tg.grid and tg.tiles"

STATEMENTS: dict[type[ast.stmt], tuple[str, str]] = {
    ast.If: ("an 'if' on something that exists only on the GPU", "choose elementwise with tg.where"),
    ast.While: ("a 'while' loop", "loop over tg.tiles(...)"),
    ast.Return: ("a 'return' statement", "assign to a window of a tg.Out parameter"),
    ast.Expr: ("an expression whose value is dropped", "assign the result to a name or to a window"),
    ast.AnnAssign: ("an annotation without a value", "drop it, or assign a value"),
    ast.FunctionDef: ("a nested function", "define compile-time helpers outside the kernel"),
    ast.AsyncFunctionDef: ("a nested function", "define compile-time helpers outside the kernel"),
    ast.ClassDef: ("a class", "define it outside the kernel"),
    ast.Assert: ("an 'assert' statement", "check constants outside the kernel"),
    ast.Delete: ("a 'del' statement", "let the name be: a tile's memory is freed after its last use"),
    ast.Import: ("an import", "import at the head of the module"),
    ast.ImportFrom: ("an import", "import at the head of the module"),
    ast.Break: ("a 'break' statement", "a loop always runs over all its tiles"),
    ast.Continue: ("a 'continue' statement", "a loop always runs over all its tiles"),
    ast.AsyncFor: ("an 'async for' loop", "loop over tg.tiles(...)"),
    ast.AsyncWith: ("an 'async with' statement", GENERAL_ADVICE),
}


class _Parser:
    def __init__(
        self, source: Source, tensors: tuple[hir.Tensor, ...], constants: Mapping[str, Any], dims: dict[str, Expr]
    ) -> None:
        self.source = source
        self.dims = dims
        self.constants = constants
        self.scope = Scope({**constants, **{t.name: t for t in tensors}})
        self.expressions = Expressions(source, self.scope)

    def kernel(self) -> tuple[hir.Op | hir.Loop, ...]:
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
                        advice="use += -= *= /= on tiles",
                    )
                read = ast.copy_location(ast.Name(target.id, ast.Load()), target)
                result = ast.copy_location(ast.BinOp(read, node.op, node.value), node)
                self.assign(target, result)
            case ast.For():
                self.loop(node)
            case ast.If() if self.expressions.static(self.expressions.folded(node.test)):
                chosen = self.expressions.constant(node.test, None)
                self.block(node.body if chosen else node.orelse)
            case ast.Pass() | ast.Expr(value=ast.Constant(value=str())):
                pass
            case ast.AugAssign(target=ast.Subscript() as target):
                raise UnsupportedSyntax(
                    self.source.span(node),
                    what="an update of a window",
                    advice=f"outputs are written only: keep the sum in a tile and assign it to {ast.unparse(target)}",
                )
            case ast.Assign():
                raise UnsupportedSyntax(
                    self.source.span(node), what="a chained assignment", advice="write one assignment per line"
                )
            case _:
                self.unsupported(node)

    def unsupported(self, node: ast.stmt) -> None:
        what, advice = STATEMENTS.get(type(node), (f"a {type(node).__name__.lower()!r} statement", GENERAL_ADVICE))
        raise UnsupportedSyntax(self.source.span(node), what=what, advice=advice)

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
        if isinstance(old, (hir.Tensor, TileIndex)):
            raise BadCall(
                self.source.span(target), what=f"{target.id} names a parameter or index", advice="choose another name"
            )
        result = self.expressions.parse(value, target.id)
        if target.id in self.scope.outer and target.id in self.scope.constants():
            raise NotCarried(
                self.source.span(target),
                name=target.id,
                what="is a compile-time value from outside the loop, and would change from trip to trip",
                advice="make it a tile (tg.full), or give the new value another name",
            )
        if isinstance(result, (hir.Tensor, TileIndex)):
            raise UnsupportedSyntax(
                self.source.span(value), what="a second name for a parameter or index", advice="use the first name"
            )
        self.scope.bindings[target.id] = result

    def store(self, target: ast.Subscript, value: ast.expr) -> None:
        span = self.source.span(target)
        tensor, window = self.expressions.window(target)
        if not tensor.output:
            raise WrongDirection(
                span, what=f"{tensor.name} is a tg.Tensor, which is read only", advice="declare it tg.Out to write it"
            )
        tile = self.expressions.tile(value, f"the value written to {tensor.name}")
        if tile.shape != window.shape:
            raise ShapeMismatch(
                span,
                what=f"the window of {tensor.name} has shape {window.shape}, the tile {tile.name} {tile.shape}",
                advice="use tile sizes that agree, or transpose with .T",
            )
        if tile.dtype != tensor.dtype:
            raise DtypeMismatch(
                span,
                what=f"{tensor.name} holds {tensor.dtype}, the tile {tile.name} {tile.dtype}",
                advice=f'write {ast.unparse(value)}.astype("{tensor.dtype}")',
            )
        self.scope.ops.append(hir.Store(window, tile, span))

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
                    span, what=f"tg.{function.__name__} gives one index", advice="write: for k in tg.tiles(...):"
                )
            self.tile_loop(node, self.axis(node.iter, node.target.id))
        else:
            raise BadLoop(
                span,
                what=f"a loop over {ast.unparse(node.iter)!r}",
                advice="loop over tg.grid(tg.tiles(...), ...), tg.tiles(extent, size) or tg.range(extent)",
            )

    def axis(self, call: ast.Call, name: str) -> TileIndex:
        """The index that a tg.tiles(...) or tg.range(...) call stands for."""
        if self.expressions.function(call) is surface.range:
            (extent,) = self.expressions.arguments(call, ("extent",))
            return TileIndex(name, self.extent(extent), 1, integer=True)
        extent, size, limit = self.tiles(call)
        return TileIndex(name, extent, size, limit=limit)

    def tiles(self, call: ast.Call) -> tuple[Expr, int, Expr | None]:
        """Extent, tile size and the most tiles of a tg.tiles(...) call."""
        extent_node, size_node, until = self.expressions.arguments(call, ("extent", "size"), ("until",))
        extent = self.extent(extent_node)
        given = self.expressions.constant(size_node, None)
        size = whole(given)
        if size is None or not 0 < size < 2**31:
            raise BadLoop(
                self.source.span(size_node),
                what=f"{given!r} is no tile size",
                advice="give a positive integer, the elements per tile",
            )
        return extent, size, None if until is None else cdiv(self.end(until), size)

    def end(self, node: ast.expr) -> Expr:
        """The position that until=tg.end(m) names."""
        index = None
        if isinstance(node, ast.Call) and self.expressions.function(node) is surface.end:
            (item,) = self.expressions.arguments(node, ("index",))
            index = self.expressions.parse(item)
        if not isinstance(index, TileIndex) or index.integer:
            raise BadLoop(
                self.source.span(node),
                what=f"until={ast.unparse(node)}",
                advice="give the end of an enclosing tile: until=tg.end(m)",
            )
        return mul(add(Sym(index.name), 1), index.size)

    def extent(self, node: ast.expr) -> Expr:
        """The size that tg.tiles names."""
        span, names = self.source.span(node), ", ".join(map(repr, self.dims)) or "(this kernel names none)"
        if isinstance(node, ast.Name) and node.id in self.dims:
            raise UnknownName(
                span, name=node.id, why=" as a value", advice=f"a dimension is named by a string: {node.id!r}"
            )
        value = self.expressions.constant(node, None)
        if isinstance(value, str):
            if value in self.dims:
                return self.dims[value]
            if value not in self.constants:
                raise UnknownName(
                    span, name=value, why=" as a dimension", advice=f"the dimensions are {names}; or give an integer"
                )
            value = self.constants[value]
        size = whole(value)
        if size is None or not 0 <= size < 2**31:
            raise BadLoop(
                span,
                what=f"{value!r} is no extent",
                advice=f"tg.tiles takes a dimension's name, one of {names}, or an integer",
            )
        return Int(size)

    def grid(self, node: ast.For, call: ast.Call) -> None:
        span = self.source.span(call)
        if self.scope.outer or self.scope.grid or self.scope.ops:
            raise BadLoop(
                span, what="tg.grid is not the outermost statement", advice="open the kernel with its only tg.grid loop"
            )
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
            if not isinstance(item, ast.Call) or self.expressions.function(item) not in (surface.tiles, surface.range):
                raise BadLoop(
                    self.source.span(item),
                    what="tg.grid takes tg.tiles(...) and tg.range(...)",
                    advice="name an extent and a size",
                )
            index = self.axis(item, name)
            if index.limit is not None:
                raise BadLoop(
                    self.source.span(item), what="until= in tg.grid", advice="limit a tg.tiles loop inside the kernel"
                )
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
        around, scope.outer = scope.outer, frozenset(scope.bindings)
        scope.loops += 1
        loop_id = f"L{scope.loops}"
        self.block(node.body)
        scope.outer = around
        body, scope.ops = scope.ops, outer
        carried = []
        for n, initial in entering.items():
            carried.append(self.carry(node, n, initial, inside[n], scope.bindings[n]))
        for n in scope.bindings:
            if isinstance(before.get(n, MADE_INSIDE), Gone):  # new here, or gone since an earlier loop
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
                advice="keep the dtype and the shape, or use another name inside the loop",
            )
        return hir.Carried(initial, inside, yielded, self.scope.value(name, initial.dtype, initial.shape))


def without_dead_ops(body: tuple[hir.Op | hir.Loop, ...]) -> tuple[hir.Op | hir.Loop, ...]:
    """The body without ops whose results nothing reads (a copy that nothing reads would never be waited for)."""
    while True:
        used = {v.id for node in hir.walk(body) if not isinstance(node, hir.Loop) for v in hir.operands(node)}
        for node in hir.walk(body):
            if isinstance(node, hir.Loop):
                used |= {v.id for c in node.carried for v in (c.initial, c.yielded)}
        kept = _prune(body, used)
        if kept == body:
            return body
        body = kept


def _prune(body: tuple[hir.Op | hir.Loop, ...], used: set[int]) -> tuple[hir.Op | hir.Loop, ...]:
    out: list[hir.Op | hir.Loop] = []
    for node in body:
        if isinstance(node, hir.Loop):
            carried = tuple(c for c in node.carried if c.inside.id in used or c.after.id in used)
            inner = _prune(node.body, used)
            if inner or carried:
                out.append(replace(node, carried=carried, body=inner))
        elif isinstance(node, hir.Store) or node.result.id in used:
            out.append(node)
    return tuple(out)


def _check_outputs(program: hir.Program) -> None:
    stores = [node for node in hir.walk(program.body) if isinstance(node, hir.Store)]
    for tensor in program.tensors:
        if tensor.output and not any(s.window.tensor == tensor.name for s in stores):
            raise NeverWritten(tensor.span, tensor=tensor.name)
    _same_axes(program, stores)
    for store in stores:
        indices = {a.index if a.at is None else str(a.at) for a in store.window.axes}
        for axis in program.grid:
            alone = isinstance(axis.extent, Int) and axis.extent.value <= axis.size
            if axis.index not in indices and not alone:
                computed = any(a.at is not None and axis.index in symbols(a.at) for a in store.window.axes)
                how = "only computes with the grid index {0}, so CTAs that differ in it may collide"
                how = how if computed else "does not depend on the grid index {0}, so CTAs that differ in it collide"
                raise OverlappingWrites(
                    store.span,
                    what=f"the window written to {store.window.tensor} {how.format(axis.index)}",
                    advice=f"index {store.window.tensor} with {axis.index}, or turn that grid axis into a loop inside "
                    "the kernel",
                )


def _same_axes(program: hir.Program, stores: list[hir.Store]) -> None:
    """All stores to an output put each grid index on the same axis: else one CTA writes what another does."""
    grid = {a.index for a in program.grid}
    first: dict[str, hir.Store] = {}
    for store in stores:
        other = first.setdefault(store.window.tensor, store)
        for mine, theirs in zip(store.window.axes, other.window.axes, strict=True):
            one, two = (a.index if a.at is None else str(a.at) for a in (mine, theirs))
            if one != two and {one, two} & grid:
                index = one if one in grid else two
                raise OverlappingWrites(
                    store.span,
                    [(other.span, "the other window")],
                    what=f"two windows of {store.window.tensor} have the grid index {index} in different places",
                    advice="index every window of an output with the same grid indices",
                )
