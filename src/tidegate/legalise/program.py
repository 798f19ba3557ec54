"""Legalisation: HIR to the legal program. Chooses instructions and layouts and makes every transfer explicit."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tidegate.errors import BadSchedule, CopyAlignment, NoInstruction, OverlappingWrites, Span
from tidegate.ir import hir, legal, tir
from tidegate.ir.dtypes import F32
from tidegate.ir.expr import Int, Sym, cdiv, mul
from tidegate.ir.layout import Coord, Layout
from tidegate.ir.registers import renamed
from tidegate.legalise.build import Builder, coalesce
from tidegate.legalise.classes import (
    accumulator,
    choose,
    copy_layout,
    gathered,
    restricted,
    staged_views,
    store_view_layout,
)
from tidegate.legalise.layouts import (
    SharedAccess,
    blocked,
    contiguous_run,
    mma_operand_a,
    mma_operand_b,
)
from tidegate.legalise.schedule import check_dot, check_sizes, mechanism
from tidegate.legalise.tensors import WIDEST, Tensors
from tidegate.target.target import Target

K_STEP = 16
"""k extent of one product instruction."""


def legalise(program: hir.Program, target: Target, pointer_align: int = WIDEST) -> legal.LegalProgram:
    """The legal program. ``pointer_align``: bytes known to divide every array's address.

    Raises BadSchedule, CopyAlignment or NoInstruction at the op that cannot be realised.
    """
    return _Legaliser(program, target, pointer_align).run()


@dataclass(frozen=True)
class _Staged:
    """Where a loaded tile lies: its ring."""

    ring: str


@dataclass
class _Legaliser:
    """One legalisation: where every tile lives so far, and the steps built."""

    program: hir.Program
    target: Target
    pointer_align: int
    build: Builder = field(init=False)
    staged: dict[int, _Staged] = field(default_factory=dict)
    registers: dict[int, str] = field(default_factory=dict)
    converted: dict[tuple[int, Layout], str] = field(default_factory=dict)
    stored: dict[str, tuple[Layout, Coord, Span]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        program = self.program
        indices = {a.index for a in program.grid} | {n.index for n in hir.walk(program.body) if isinstance(n, hir.Loop)}
        self.build = Builder(program.warps, {t.name for t in program.tensors} | set(program.dims) | indices)
        self.tensors = Tensors(program, self.pointer_align)
        self.align = self.tensors.align

    def run(self) -> legal.LegalProgram:
        program = self.program
        for node in hir.walk(program.body):
            if isinstance(node, hir.Dot):
                check_dot(node)
        mechanisms = {
            n.result.id: mechanism(program, n, self.align) for n in hir.walk(program.body) if isinstance(n, hir.Load)
        }
        self.mechanisms = mechanisms
        in_shared = {value for value, how in mechanisms.items() if how != "registers"}
        self.views = staged_views(program.body, in_shared)
        self.layouts = choose(program, self.views, self.align)
        self.shared_registers = coalesce(program.body, self.layouts)
        self.block(program.body, None)
        check_sizes(program, self.target, self.build)
        return legal.LegalProgram(
            name=program.name,
            file=program.file,
            target=self.target.name,
            warps=program.warps,
            dims=self.tensors.dims(),
            params=self.tensors.params(),
            grid=tuple(tir.GridAxis(tir.Name(a.index), cdiv(a.extent, a.size)) for a in program.grid),
            layouts=tuple((name, layout) for layout, name in self.build.layouts.items()),
            rings=self.build.finished_rings(),
            registers=tuple(self.build.registers),
            body=tuple(self.build.steps),
            span=program.span,
        )

    # -------------------------------------------------------------------------------------- walk

    def block(self, body: tuple[hir.Op | hir.Loop, ...], loop: str | None) -> None:
        for node in body:
            match node:
                case hir.Loop():
                    self.loop(node)
                case hir.Load():
                    self.load(node, loop)
                case hir.Store():
                    self.store(node)
                case hir.Fill():
                    out = self.result(node.result)
                    self.build.step(f"fill_{out}", tir.Fill(out, node.number), node.span)
                case hir.Positions():
                    out = self.result(node.result)
                    origin = mul(Sym(node.index), node.result.shape[0])
                    self.build.step(f"positions_{out}", tir.Positions(out, origin), node.span)
                case hir.Map():
                    self.map(node)
                case hir.Cast():
                    source = self.operand(node.source, self.layouts[node.result.id], node.span)
                    out = self.result(node.result)
                    self.build.step(f"cast_{out}", tir.Cast(out, source), node.span)
                case hir.Transpose():
                    if node.result.id not in self.views:
                        self.transpose(node)
                case hir.Reduce():
                    self.reduce(node)
                case hir.Spread():
                    self.spread(node)
                case hir.Dot():
                    self.dot(node)

    def loop(self, node: hir.Loop) -> None:
        for c in node.carried:
            initial = self.operand(c.initial, self.layouts[c.inside.id], node.span)
            self.move(self.result(c.inside), initial, node.span)
            self.registers[c.after.id] = self.registers[c.inside.id]
        if node.trips == Int(0):  # what never runs has no steps, rings or syncs
            return
        outer, self.build.steps = self.build.steps, []
        kept = dict(self.converted)
        self.block(node.body, node.id)
        self.yields(node)
        self.converted = kept
        body, self.build.steps = self.build.steps, outer
        self.build.steps.append(legal.Loop(node.id, node.index, node.trips, tuple(body), node.span))

    def yields(self, node: hir.Loop) -> None:
        """Moves yielded values into the carried registers: all are read before any is written."""
        moves = []
        for c in node.carried:
            source = self.operand(c.yielded, self.layouts[c.inside.id], node.span)
            if source != self.registers[c.inside.id]:
                moves.append((self.registers[c.inside.id], source, c))
        targets = {target for target, _, _ in moves}
        ready = []
        for target, source, c in moves:
            if source in targets:
                copy = self.build.register(f"{source}_old", c.inside.dtype, self.layouts[c.inside.id])
                self.move(copy, source, node.span)
                source = copy
            ready.append((target, source))
        for target, source in ready:
            self.move(tir.Name(target), tir.Name(source), node.span)

    def move(self, target: tir.Name, source: tir.Name, span: Span) -> None:
        if target != source:
            self.build.step(f"mov_{target}", tir.Move(target, source), span)

    # -------------------------------------------------------------------------------------- registers

    def result(self, value: hir.Value, layout: Layout | None = None) -> tir.Name:
        """The register of a value, made on first use; values that share a carried register get that one."""
        home = self.shared_registers.get(value.id, value.id)
        if home not in self.registers:
            chosen = layout or self.layouts[value.id]
            self.registers[home] = self.build.register(value.name, value.dtype, chosen)
        self.registers[value.id] = self.registers[home]
        return tir.Name(self.registers[value.id])

    def operand(self, value: hir.Value, layout: Layout, span: Span) -> tir.Name:
        """A register that holds the value in ``layout``, read or converted when it must be."""
        if value.id in self.views:
            return self.read_staged(value, layout, span)
        register = self.registers[value.id]
        if self.build.register_layout(register) == layout:
            return tir.Name(register)
        key = (value.id, layout)
        if key not in self.converted:
            ring = self.to_scratch(value, register, span)
            self.converted[key] = self.read_ring(ring, value, False, layout, span)
        return tir.Name(self.converted[key])

    def to_scratch(self, value: hir.Value, register: str, span: Span) -> str:
        """Writes a register tile to a scratch ring of one slot."""
        if not value.dtype.floating:
            raise NoInstruction(
                span,
                what=f"{value.name} ({value.dtype}) is needed by other threads than hold it, and shared memory holds "
                "no integers or masks yet",
                advice="compute it again where it is used, or cast it to f32 first",
            )
        register = self.owned(tir.Name(register), value, span)
        layout = self.build.register_layout(register)
        ring = self.build.ring(f"{value.name}_s", value.dtype, value.shape, 1, None, False, span)
        bytes_ = min(contiguous_run(layout, len(value.shape) - 1) * value.dtype.size, WIDEST)
        self.build.touch(ring, SharedAccess(layout, False, bytes_))
        slot = tir.Slot(tir.Name(ring), None, (0,) * len(value.shape))
        self.build.step(f"st_{ring}", tir.StShared(slot, tir.Name(register), bytes_), span)
        return ring

    def read_staged(self, value: hir.Value, layout: Layout, span: Span) -> tir.Name:
        base, transposed = self.views[value.id]
        key = (value.id, layout)
        if key not in self.converted:
            self.converted[key] = self.read_ring(self.staged[base].ring, value, transposed, layout, span)
        return tir.Name(self.converted[key])

    def read_ring(self, ring: str, value: hir.Value, transposed: bool, layout: Layout, span: Span) -> tir.Name:
        """ld.shared of a whole slot into a new register tile."""
        rank = len(value.shape)
        axis = 0 if transposed else rank - 1
        bytes_ = min(contiguous_run(layout, axis) * value.dtype.size, WIDEST)
        self.build.touch(ring, SharedAccess(layout, transposed, bytes_))
        register = self.build.register(f"{value.name}_r", value.dtype, layout)
        slot = tir.Slot(tir.Name(ring), None, (0,) * rank, transposed)
        self.build.step(f"ld_{register}", tir.LdShared(register, slot, bytes_), span)
        return register

    # -------------------------------------------------------------------------------------- memory ops

    def load(self, node: hir.Load, loop: str | None) -> None:
        how = self.mechanisms[node.result.id]
        window = self.tensors.window(node.window)
        align, size = self.align[node.window.tensor], node.result.dtype.size
        shape = node.result.shape
        if how == "registers":
            out = self.result(node.result)
            run = contiguous_run(self.build.register_layout(out), len(shape) - 1)
            self.build.step(f"ldg_{out}", tir.LdGlobal(out, window, min(run * size, align)), node.span)
            return
        stages = node.stages
        if stages > 1 and not loop:
            raise BadSchedule(
                node.span,
                what=f"stages={stages} outside a tg.tiles loop: the tile is filled once, and needs one slot",
                advice="drop stages=, or load the tile inside the loop that uses it",
            )
        ring = self.build.ring(node.result.name, node.result.dtype, shape, stages, loop, True, node.span)
        self.staged[node.result.id] = _Staged(ring)
        slot = tir.Slot(tir.Name(ring), None, (0,) * len(shape))
        wanted = dict(node.by.options).get("bytes", WIDEST) if node.by else WIDEST
        layout = copy_layout(shape, size, self.program.warps, min(align, wanted))
        bytes_ = min(contiguous_run(layout, len(shape) - 1) * size, align, wanted)
        self.build.touch(ring, SharedAccess(layout, False, bytes_))
        if how == "cp_async":
            if bytes_ < 4 or (node.by and node.by.options and bytes_ < wanted):
                layout, bytes_ = self.wider_copy(node, layout, align, wanted)
                self.build.accesses[ring] = [SharedAccess(layout, False, bytes_)]
            name = self.build.layout(layout, f"copy_{ring}")
            self.build.step(f"copy_{ring}", tir.CpAsync(slot, window, name, bytes_), node.span, ring)
            return
        register = self.build.register(f"{ring}_in", node.result.dtype, layout, f"copy_{ring}")
        self.build.step(f"ldg_{ring}", tir.LdGlobal(register, window, bytes_), node.span, ring)
        self.build.step(f"sts_{ring}", tir.StShared(slot, register, bytes_), node.span, ring)

    def wider_copy(self, node: hir.Load, layout: Layout, align: int, wanted: int) -> tuple[Layout, int]:
        """A copy of pieces of at least 4 bytes (or of the size asked for), even if that leaves threads idle."""
        size, shape = node.result.dtype.size, node.result.shape
        need = wanted if node.by and node.by.options else 4
        tensor = self.program.tensor(node.window.tensor)
        rows = next(map(str, tensor.shape[1:][-1:]), "its start")
        if align < need:
            raise CopyAlignment(
                node.span,
                tensor=tensor.name,
                align=f"{align} bytes",
                why=f"its rows ({rows} elements of {size} bytes) begin at multiples of {align} bytes",
            )
        if shape[-1] * size % need:
            raise BadSchedule(
                node.span,
                what=f"cp.async of {need} bytes: a row of the tile has {shape[-1] * size} bytes",
                advice="make the tile's last size a multiple of that, or use by=cuda.ld()",
            )
        return blocked(shape, self.program.warps, len(shape) - 1, need // size), need

    def store(self, node: hir.Store) -> None:
        value, size = node.value, node.value.dtype.size
        align = self.align[node.window.tensor]
        if node.window.tensor in self.stored:
            layout = self.stored_layout(node)
        elif value.id in self.views:
            layout = store_view_layout(value.shape, size, self.program.warps, align, self.views[value.id][1])
        else:
            layout = self.build.register_layout(self.registers[value.id])
        window = self.tensors.window(node.window)
        self.stored.setdefault(node.window.tensor, (layout, window.fixed, node.span))
        source = self.owned(self.operand(value, layout, node.span), value, node.span)
        run = contiguous_run(layout, len(value.shape) - 1)
        step = tir.StGlobal(window, source, min(run * size, align, WIDEST))
        self.build.step(f"stg_{node.window.tensor}", step, node.span)

    def stored_layout(self, node: hir.Store) -> Layout:
        """The layout of the earlier stores to the tensor: where windows meet, one thread writes each element."""
        layout, fixed, span = self.stored[node.window.tensor]
        if layout.shape != node.value.shape or fixed != self.tensors.window(node.window).fixed:
            raise OverlappingWrites(
                node.span,
                [(span, "the other store")],
                what=f"tiles of shapes {layout.shape} and {node.value.shape}, or along other axes, are written to "
                f"{node.window.tensor}: different threads would write one element, and nothing says which is last",
                advice="write tiles of one shape along the same axes, or to two outputs",
            )
        return layout

    # -------------------------------------------------------------------------------------- compute

    def owned(self, register: tir.Name, value: hir.Value, span: Span) -> tir.Name:
        """The tile held by the first holder of each element alone: what may be stored."""
        layout = self.build.register_layout(register)
        if not (layout.replicated and layout.free_mask):
            return register
        owner = replace(layout, replicated=False)
        key = (value.id, owner)
        if key not in self.converted:
            self.converted[key] = self.build.register(f"{value.name}_own", value.dtype, owner, "owned")
            self.move(tir.Name(self.converted[key]), register, span)
        return tir.Name(self.converted[key])

    def map(self, node: hir.Map) -> None:
        layout = self.layouts[node.result.id]
        args = tuple(self.operand(a, layout, node.span) if isinstance(a, hir.Value) else a for a in node.args)
        out = self.result(node.result)
        self.build.step(f"{node.op}_{out}", tir.Map(out, tir.Name(node.op), args), node.span)

    def transpose(self, node: hir.Transpose) -> None:
        wanted = self.layouts[node.result.id]
        source = self.operand(node.source, wanted.transposed(), node.span)
        out = self.result(node.result)
        self.build.step(f"transpose_{out}", tir.Move(out, source), node.span)

    def spread(self, node: hir.Spread) -> None:
        wanted = restricted(self.layouts[node.result.id], node.axes, node.source.shape)
        source = self.operand(node.source, wanted, node.span)
        out = self.result(node.result)
        self.build.step(f"spread_{out}", tir.Spread(out, source, node.axes), node.span)

    def reduce(self, node: hir.Reduce) -> None:
        """Folds within each warp; where several warps share the axis they exchange their parts through shared memory
        and every thread folds them again. In f32, rounded once."""
        value, axis, span = node.source, node.axis, node.span
        held = self.foldable(value)
        source = self.operand(value, held, span)
        if value.dtype != F32:
            wide = self.build.register(f"{value.name}_wide", F32, held)
            self.build.step(f"cast_{wide}", tir.Cast(wide, source), span)
            source = wide
        part = self.fold(source, node, value.name)
        layout = self.build.register_layout(part)
        if layout.shape[axis] > 1:
            parts = hir.Value(-node.result.id, f"{node.result.name}_parts", F32, layout.shape)
            ring = self.to_scratch(parts, part, span)
            collected = gathered(held, layout, axis)
            part = self.fold(self.read_ring(ring, parts, False, collected, span), node, parts.name)
        if value.dtype != F32:
            narrow = self.build.register(f"{node.result.name}_n", value.dtype, self.build.register_layout(part))
            self.build.step(f"cast_{narrow}", tir.Cast(narrow, part), span)
            part = narrow
        self.settle(node.result, part, span)

    def foldable(self, value: hir.Value) -> Layout:
        """The layout to fold a value in: where it is held, every thread holding elements."""
        layout = self.layouts[value.id]
        if value.id not in self.views:
            layout = self.build.register_layout(self.registers[value.id])
        return replace(layout, replicated=True) if layout.free_mask else layout

    def fold(self, source: tir.Name, node: hir.Reduce, hint: str) -> tir.Name:
        layout = self.build.register_layout(source).reduced(node.axis)
        out = self.build.register(f"{hint}_{node.fold}", F32, layout, "folded")
        self.build.step(f"{node.fold}_{out}", tir.Reduce(out, tir.Name(node.fold), source, node.axis), node.span)
        return out

    def settle(self, value: hir.Value, register: tir.Name, span: Span) -> None:
        """Makes ``register`` the place of a value, or moves it to the place that the value has been given."""
        wanted = self.layouts[value.id]
        if value.id in self.shared_registers and self.build.register_layout(register) == wanted:
            self.move(self.result(value), register, span)
        else:
            self.registers[value.id] = register

    def dot(self, node: hir.Dot) -> None:
        acc = self.layouts[node.result.id]
        (rows, depth), columns = node.a.shape, node.b.shape[1]
        if acc not in (self.accumulator(rows, columns, True), self.accumulator(rows, columns, False)):
            acc = self.accumulator(rows, columns, False)
        start = self.operand(node.c, acc, node.span)
        out = self.result(node.result, acc)
        if self.build.register_layout(out) != acc:
            self.registers[node.result.id] = out = self.build.register(node.result.name, F32, acc, "acc")
        held = self.held_fragments(node.a, mma_operand_a(acc), depth)
        a = None if held else self.shared_operand(node.a, node.span)
        b = self.shared_operand(node.b, node.span)
        for k in range(0, depth, K_STEP):
            if a is None:
                left = self.slice(node.a, mma_operand_a(acc), (0, k), node.span)
            else:
                left = self.fragment(a, node.a, mma_operand_a(acc), (0, k), "frag_a", node.span)
            right = self.fragment(b, node.b, mma_operand_b(acc), (k, 0), "frag_b", node.span)
            mma = tir.Mma(tir.Name("m16n8k16"), out, left, right, start if k == 0 else out)
            self.build.step(f"mma_{out}", mma, node.span)

    def accumulator(self, rows: int, columns: int, rows_only: bool) -> Layout:
        return accumulator(rows, columns, self.program.warps, rows_only)

    def held_fragments(self, value: hir.Value, fragment: Layout, depth: int) -> bool:
        """Does every thread hold, in registers, the fragments of this operand that it feeds to the tensor cores?"""
        if value.id in self.views:
            return False
        layout = self.build.register_layout(self.registers[value.id])
        try:
            for k in range(0, depth, K_STEP):
                renamed(fragment, layout, (0, 1), (0, k))
        except ValueError:
            return False
        return True

    def slice(self, value: hir.Value, fragment: Layout, origin: tuple[int, int], span: Span) -> tir.Name:
        """A fragment out of registers."""
        register = self.build.register(f"{value.name}_f", value.dtype, fragment, "frag_a")
        self.build.step(f"slice_{register}", tir.Slice(register, tir.Name(self.registers[value.id]), origin), span)
        return register

    def shared_operand(self, value: hir.Value, span: Span) -> tuple[str, bool]:
        """The ring that holds an operand, and whether the operand is the transpose of what lies there."""
        if value.id in self.views:
            base, transposed = self.views[value.id]
            return self.staged[base].ring, transposed
        return self.to_scratch(value, self.registers[value.id], span), False

    def fragment(
        self,
        place: tuple[str, bool],
        value: hir.Value,
        layout: Layout,
        origin: tuple[int, int],
        hint: str,
        span: Span,
    ) -> tir.Name:
        """ldmatrix of one k step."""
        ring, transposed = place
        self.build.touch(ring, SharedAccess(layout, transposed, WIDEST, blocks=True))
        register = self.build.register(f"{value.name}_f", value.dtype, layout, hint)
        slot = tir.Slot(tir.Name(ring), None, origin[::-1] if transposed else origin, transposed)
        self.build.step(f"ldm_{register}", tir.LdMatrix(register, slot), span)
        return register
