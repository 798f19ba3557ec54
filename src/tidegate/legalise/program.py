"""Legalisation: HIR to the legal program. Chooses instructions and layouts and makes every transfer explicit."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import gcd

from tidegate.errors import BadSchedule, CopyAlignment, OverlappingWrites, Span
from tidegate.ir import hir, legal, tir
from tidegate.ir.dtypes import F32, I32
from tidegate.ir.expr import Expr, Int, cdiv, negated, symbols
from tidegate.ir.layout import Coord, Layout
from tidegate.ir.products import Product
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
from tidegate.legalise.gathers import Gathering, Indices, owner
from tidegate.legalise.layouts import (
    SharedAccess,
    blocked,
    contiguous_run,
    mma_operand_a,
    mma_operand_b,
)
from tidegate.legalise.padding import REFUSALS, padded
from tidegate.legalise.schedule import check_dot, check_sizes, mechanism
from tidegate.legalise.tensors import WIDEST, Tensors
from tidegate.target.target import Target


def legalise(program: hir.Program, target: Target, pointer_align: int = WIDEST) -> legal.LegalProgram:
    """The legal program. ``pointer_align``: bytes known to divide every array's address.

    Raises BadSchedule, CopyAlignment or NoInstruction at the op that cannot be realised.
    """
    wider = padded(program)
    if wider is not program:
        with suppress(*REFUSALS):  # where padding is too much, tiles stay as the author sees them
            found = _Legaliser(wider, target, pointer_align).run()
            if sum(ring.layout.bytes * ring.stages for ring in found.rings) <= target.fact("smem_per_cta"):
                return found
    return _Legaliser(program, target, pointer_align).run()


@dataclass(frozen=True)
class _Place:
    """Where a tile lies in shared memory: in a ring from ``origin`` on, or its transpose does."""

    ring: str
    transposed: bool
    origin: Coord


@dataclass(frozen=True)
class Operand:
    """One side of a product: its tile, the axis along k, and the layout of its fragments of one k step."""

    value: hir.Value
    depth: int
    layout: Layout
    hint: str

    def origin(self, k: int) -> tuple[int, int]:
        return (k, 0) if self.depth == 0 else (0, k)


@dataclass
class _Legaliser(Gathering):
    """One legalisation: where every tile lives so far, and the steps built."""

    program: hir.Program
    target: Target
    pointer_align: int
    build: Builder = field(init=False)
    staged: dict[int, str] = field(default_factory=dict)
    registers: dict[int, str] = field(default_factory=dict)
    converted: dict[tuple[int, Layout], str] = field(default_factory=dict)
    scratched: dict[int, _Place] = field(default_factory=dict)
    stored: dict[str, tuple[Layout, Coord, Span]] = field(default_factory=dict)
    products: dict[int, Product] = field(default_factory=dict)

    def __post_init__(self) -> None:
        program = self.program
        indices = {a.index for a in program.grid} | {n.index for n in hir.walk(program.body) if isinstance(n, hir.Loop)}
        named = {t.name for t in program.tensors} | {s.name for s in program.scalars} | set(program.dims) | indices
        named |= {n.name for n in hir.walk(program.body) if isinstance(n, hir.LoadScalar)}
        self.build = Builder(program.warps, named)
        self.tensors = Tensors(program, self.pointer_align)
        self.align = self.tensors.align

    def run(self) -> legal.LegalProgram:
        program = self.program
        for node in hir.walk(program.body):
            if isinstance(node, hir.Dot):
                self.products[node.result.id] = check_dot(node, self.target)
        self.indices = Indices(program)
        self.mechanisms = {n.result.id: self.mechanism(n) for n in hir.walk(program.body) if isinstance(n, hir.Load)}
        in_shared = {value for value, how in self.mechanisms.items() if how != "registers"}
        self.views = staged_views(program.body, in_shared)
        self.layouts = choose(program, self.views, self.align)
        self.shared_registers = coalesce(program.body, self.layouts)
        self.indices.want(self.gather_place)
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
            scalars=(
                *(tir.Scalar(tir.Name(x.name), x.dtype, argument=True) for x in program.scalars),
                *self.build.scalars,
            ),
            ctas_per_sm=program.ctas_per_sm,
        )

    # -------------------------------------------------------------------------------------- walk

    def block(self, body: hir.Body, loop: str | None) -> None:
        for node in body:
            if isinstance(node, hir.Loop):
                self.loop(node)
                continue
            if isinstance(node, hir.Branch):
                self.branch(node, loop)
                continue
            made = hir.result(node)
            if made is None or made.id not in self.indices.idle:
                self.op(node, loop)
            if made is not None:
                self.wanted_copies(node, made)

    def op(self, node: hir.Op, loop: str | None) -> None:
        match node:
            case hir.Load() if self.mechanisms[node.result.id] == "registers":
                out = self.result(node.result)
                self.compute(node, out, [], self.rows(node, self.build.register_layout(out), None, None))
            case hir.Load():
                self.stage(node, loop)
            case hir.LoadScalar():
                self.element(node)
            case hir.Store():
                self.store(node)
            case hir.AtomicAdd():
                self.atomic_add(node)
            case hir.Fill() | hir.Splat() | hir.Positions() | hir.Map() | hir.Cast():
                layout = self.layouts[node.result.id]
                args = [self.operand(v, layout, node.span) for v in hir.operands(node)]
                self.compute(node, self.result(node.result), args)
            case hir.Transpose():
                if node.result.id not in self.views:
                    self.transpose(node)
            case hir.Part():
                if node.result.id not in self.views:
                    self.part(node)
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
        self.place_operands(node)
        self.place_rows(node)
        outer, self.build.steps = self.build.steps, []
        kept = dict(self.converted), dict(self.scratched)
        self.block(node.body, node.id)
        self.yields(node)
        self.converted, self.scratched = kept
        body, self.build.steps = self.build.steps, outer
        self.build.steps.append(legal.Loop(node.id, node.index, node.trips, tuple(body), node.span))

    def place_operands(self, loop: hir.Loop) -> None:
        """Operands of products in a loop that are made before it go to shared memory once, in front of the loop."""
        changing = {c.inside.id for c in loop.carried}
        for node in hir.walk(loop.body):
            if not isinstance(node, hir.Dot):
                continue
            for side in self.sides(node, self.accumulator_of(node)):
                value = side.value
                outside = value.id in self.registers and value.id not in changing and value.id not in self.views
                if outside and (side.depth == 0 or not self.held_fragments(side, node.a.shape[1])):
                    self.scratch(value, node.span)

    def yields(self, node: hir.Loop) -> None:
        """Moves yielded values into the carried registers."""
        self.assign([(c.yielded, c.inside) for c in node.carried], node.span)

    def branch(self, node: hir.Branch, loop: str | None) -> None:
        """Two conditions of which one holds; each ends with the moves into the registers of the merged values."""
        for m in node.merged:
            self.result(m.after)
        sides = (
            (node.id, node.condition, node.then, [(m.then, m.after) for m in node.merged]),
            (f"{node.id}.else", negated(node.condition), node.otherwise, [(m.otherwise, m.after) for m in node.merged]),
        )
        for name, condition, body, merged in sides:
            outer, self.build.steps = self.build.steps, []
            kept = dict(self.converted), dict(self.scratched)
            self.block(body, loop)
            self.assign(merged, node.span)
            self.converted, self.scratched = kept
            steps, self.build.steps = self.build.steps, outer
            if steps:
                self.build.steps.append(legal.If(name, condition, tuple(steps), node.span))

    def element(self, node: hir.LoadScalar) -> None:
        name = tir.Name(node.name)
        self.build.scalars.append(tir.Scalar(name, I32))
        self.build.step(f"lds_{name}", tir.LdScalar(name, self.tensors.window(node.window)), node.span)

    def assign(self, pairs: list[tuple[hir.Value, hir.Value]], span: Span) -> None:
        """Moves values into the registers of others: all are read before any is written."""
        moves = []
        for value, into in pairs:
            source = self.operand(value, self.layouts[into.id], span)
            if source != self.registers[into.id]:
                moves.append((self.registers[into.id], source, into))
        targets = {target for target, _, _ in moves}
        ready = []
        for target, source, into in moves:
            if source in targets:
                copy = self.build.register(f"{source}_old", into.dtype, self.layouts[into.id])
                self.move(copy, source, span)
                source = copy
            ready.append((target, source))
        for target, source in ready:
            self.move(tir.Name(target), tir.Name(source), span)

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
        key = (value.id, layout)
        if key in self.converted:
            return tir.Name(self.converted[key])
        register = self.registers[value.id]
        if self.build.register_layout(register) == layout:
            return tir.Name(register)
        self.converted[key] = self.read(self.scratch(value, span), value, layout, span)
        return tir.Name(self.converted[key])

    def scratch(self, value: hir.Value, span: Span) -> _Place:
        """Where a register tile lies in shared memory; it is written there when first asked for."""
        if value.id not in self.scratched:
            self.scratched[value.id] = self.to_scratch(value, self.registers[value.id], span)
        return self.scratched[value.id]

    def to_scratch(self, value: hir.Value, register: str, span: Span) -> _Place:
        """Writes a register tile to a scratch ring of one slot."""
        register = self.owned(tir.Name(register), value, span)
        layout = self.build.register_layout(register)
        ring = self.build.ring(f"{value.name}_s", value.dtype, value.shape, 1, None, False, span)
        bytes_ = min(contiguous_run(layout, len(value.shape) - 1) * value.dtype.size, WIDEST)
        self.build.touch(ring, SharedAccess(layout, False, bytes_))
        slot = tir.Slot(tir.Name(ring), None, (0,) * len(value.shape))
        self.build.step(f"st_{ring}", tir.StShared(slot, tir.Name(register), bytes_), span)
        return _Place(ring, False, slot.origin)

    def read_staged(self, value: hir.Value, layout: Layout, span: Span) -> tir.Name:
        key = (value.id, layout)
        if key not in self.converted:
            self.converted[key] = self.read(self.staged_place(value), value, layout, span)
        return tir.Name(self.converted[key])

    def staged_place(self, value: hir.Value) -> _Place:
        base, transposed, origin = self.views[value.id]
        return _Place(self.staged[base], transposed, origin)

    def read(
        self, place: _Place, value: hir.Value, layout: Layout, span: Span, suffix: str = "r", hint: str = "tile"
    ) -> tir.Name:
        """ld.shared into a new register tile."""
        axis = 0 if place.transposed else layout.rank - 1
        bytes_ = gcd(contiguous_run(layout, axis) * value.dtype.size, self.whole_pieces(place))
        self.build.touch(place.ring, SharedAccess(layout, place.transposed, bytes_))
        register = self.build.register(f"{value.name}_{suffix}", value.dtype, layout, hint)
        slot = tir.Slot(tir.Name(place.ring), None, place.origin, place.transposed)
        self.build.step(f"ld_{register}", tir.LdShared(register, slot, bytes_), span)
        return register

    def whole_pieces(self, place: _Place) -> int:
        """Bytes, at most 16, that divide the address of every row of a part of a ring."""
        ring = self.build.rings[place.ring]
        pitch = ring.shape[-1] if len(ring.shape) > 1 else 0
        return gcd(WIDEST, place.origin[-1] * ring.dtype.size, pitch * ring.dtype.size)

    # -------------------------------------------------------------------------------------- memory ops

    def mechanism(self, node: hir.Load) -> str:
        how = mechanism(self.program, node, self.tensors.reach(node.window))
        if node.result.id not in self.indices.idle:
            return how
        if how != "registers":
            raise BadSchedule(
                node.span,
                what=f"{node.result.name} is read as the rows of a gather alone, and those are loaded to registers",
                advice="drop by=, stages= and to=",
            )
        return how

    def stage(self, node: hir.Load, loop: str | None) -> None:
        """A load to shared memory."""
        shape = node.result.shape
        if node.stages > 1 and not loop:
            raise BadSchedule(
                node.span,
                what=f"stages={node.stages} outside a loop: the tile is filled once, and needs one slot",
                advice="drop stages=, or load the tile inside the loop that uses it",
            )
        ring = self.build.ring(node.result.name, node.result.dtype, shape, node.stages, loop, True, node.span)
        self.staged[node.result.id] = ring
        slot = tir.Slot(tir.Name(ring), None, (0,) * len(shape))
        layout, bytes_ = self.copy(node)
        self.build.touch(ring, SharedAccess(layout, False, bytes_))
        window = self.tensors.window(node.window, self.rows(node, layout, loop, ring))
        if self.mechanisms[node.result.id] == "cp_async":
            name = self.build.layout(layout, f"copy_{ring}")
            self.build.step(f"copy_{ring}", tir.CpAsync(slot, window, name, bytes_), node.span, ring)
            return
        register = self.build.register(f"{ring}_in", node.result.dtype, layout, f"copy_{ring}")
        self.build.step(f"ldg_{ring}", tir.LdGlobal(register, window, bytes_), node.span, ring)
        self.build.step(f"sts_{ring}", tir.StShared(slot, register, bytes_), node.span, ring)

    def copy(self, node: hir.Load) -> tuple[Layout, int]:
        """How threads share a load to shared memory, and the bytes of one access."""
        shape, size, align = node.result.shape, node.result.dtype.size, self.tensors.reach(node.window)
        wanted = dict(node.by.options).get("bytes", WIDEST) if node.by else WIDEST
        layout = copy_layout(shape, size, self.program.warps, min(align, wanted))
        bytes_ = min(contiguous_run(layout, len(shape) - 1) * size, align, wanted)
        asked = node.by is not None and bool(node.by.options)
        if self.mechanisms[node.result.id] == "cp_async" and (bytes_ < 4 or (asked and bytes_ < wanted)):
            return self.wider_copy(node, align, wanted if asked else 4)
        return layout, bytes_

    def wider_copy(self, node: hir.Load, align: int, need: int) -> tuple[Layout, int]:
        """A copy of pieces of ``need`` bytes, even if that leaves threads idle."""
        size, shape = node.result.dtype.size, node.result.shape
        tensor = self.program.tensor(node.window.tensor)
        if align < need:
            rows = next(map(str, tensor.shape[1:][-1:]), "its start")
            if tensor.pitch:
                rows = f"apart by multiples of {tensor.pitch}"
            why = f"its rows ({rows} elements of {size} bytes) begin at multiples of {align} bytes"
            advice = "pad that stride to a multiple of 16 bytes"
            if align < self.align[tensor.name]:
                why = f"the window begins at {node.window.axes[-1].start} of its last axis"
                advice = _beginning(node.window.axes[-1].start, max(need // size, 1))
            asked = f"at least {need}" if need == 4 else str(need)
            allowed = f"{align} bytes"
            raise CopyAlignment(node.span, need=asked, tensor=tensor.name, align=allowed, why=why, advice=advice)
        if shape[-1] * size % need:
            raise BadSchedule(
                node.span,
                what=f"cp.async of {need} bytes: a row of the tile has {shape[-1] * size} bytes",
                advice="make the tile's last size a multiple of that, or use by=cuda.ld()",
            )
        return blocked(shape, self.program.warps, len(shape) - 1, need // size), need

    def store(self, node: hir.Store) -> None:
        value, size = node.value, node.value.dtype.size
        align = self.tensors.reach(node.window)
        if node.window.tensor in self.stored and not self.program.tensor(node.window.tensor).input:
            layout = self.stored_layout(node)
        elif value.id in self.views:
            layout = store_view_layout(value.shape, size, self.program.warps, align, self.views[value.id].transposed)
        else:
            layout = self.build.register_layout(self.registers[value.id])
        window = self.tensors.window(node.window)
        self.stored.setdefault(node.window.tensor, (layout, window.fixed, node.span))
        source = self.owned(self.operand(value, layout, node.span), value, node.span)
        run = contiguous_run(layout, len(value.shape) - 1)
        step = tir.StGlobal(window, source, min(run * size, align, WIDEST))
        self.build.step(f"stg_{node.window.tensor}", step, node.span)

    def atomic_add(self, node: hir.AtomicAdd) -> None:
        layout = self.added_layout(node.value)
        source = self.owned(self.operand(node.value, layout, node.span), node.value, node.span)
        window = self.tensors.window(node.window, self.rows(node, owner(layout), None, None))
        self.build.step(f"add_{node.window.tensor}", tir.AtomicAdd(window, source), node.span)

    def added_layout(self, value: hir.Value) -> Layout:
        """How a tile that is added to a tensor is held."""
        if value.id not in self.views:
            return self.layouts[value.id]
        size = value.dtype.size
        return store_view_layout(value.shape, size, self.program.warps, size, self.views[value.id].transposed)

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
        layout = owner(self.build.register_layout(register))
        if layout == self.build.register_layout(register):
            return register
        key = (value.id, layout)
        if key not in self.converted:
            self.converted[key] = self.build.register(f"{value.name}_own", value.dtype, layout, "owned")
            self.move(tir.Name(self.converted[key]), register, span)
        return tir.Name(self.converted[key])

    def transpose(self, node: hir.Transpose) -> None:
        wanted = self.layouts[node.result.id]
        source, out = self.operand(node.source, wanted.transposed(), node.span), self.result(node.result)
        if source == out:  # a carried tile takes the place of what it was
            source = self.build.register(f"{out}_old", node.result.dtype, wanted)
            self.move(source, out, node.span)
        self.build.step(f"transpose_{out}", tir.Move(out, source, True), node.span)

    def part(self, node: hir.Part) -> None:
        """A part of a register tile: some of the registers, or what other threads left in shared memory."""
        source, layout = self.registers[node.source.id], self.layouts[node.result.id]
        try:
            renamed(layout, self.build.register_layout(source), tuple(range(layout.rank)), node.origin)
        except ValueError:
            place = replace(self.scratch(node.source, node.span), origin=node.origin)
            self.settle(node.result, self.read(place, node.result, layout, node.span), node.span)
        else:
            out = self.result(node.result)
            self.build.step(f"slice_{out}", tir.Slice(out, tir.Name(source), node.origin), node.span)

    def spread(self, node: hir.Spread) -> None:
        wanted = restricted(self.layouts[node.result.id], node.axes, node.source.shape)
        source = self.operand(node.source, wanted, node.span)
        out = self.result(node.result)
        self.build.step(f"spread_{out}", tir.Spread(out, source, node.axes), node.span)

    def reduce(self, node: hir.Reduce) -> None:
        """Folds within each warp; where several warps share the axis they exchange their parts through shared memory
        and every thread folds them again. In f32, rounded once; integers (also masks) in 32 or 64 bits."""
        value, axis, span = node.source, node.axis, node.span
        held = self.foldable(value)
        source = self.operand(value, held, span)
        folded = value.dtype.computed
        if value.dtype != folded:
            wide = self.build.register(f"{value.name}_wide", folded, held)
            self.build.step(f"cast_{wide}", tir.Cast(wide, source), span)
            source = wide
        part = self.fold(source, node, value.name, node.inside)
        layout = self.build.register_layout(part)
        if layout.shape[axis] > 1:
            parts = hir.Value(-node.result.id, f"{node.result.name}_parts", folded, layout.shape)
            place = self.to_scratch(parts, part, span)
            collected = gathered(held, layout, axis)
            part = self.fold(self.read(place, parts, collected, span), node, parts.name)
        if value.dtype != folded:
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

    def fold(self, source: tir.Name, node: hir.Reduce, hint: str, inside: int = 0) -> tir.Name:
        layout = self.build.register_layout(source).reduced(node.axis)
        out = self.build.register(f"{hint}_{node.fold}", node.source.dtype.computed, layout, "folded")
        step = tir.Reduce(out, tir.Name(node.fold), source, node.axis, inside)
        self.build.step(f"{node.fold}_{out}", step, node.span)
        return out

    def settle(self, value: hir.Value, register: tir.Name, span: Span) -> None:
        """Makes ``register`` the place of a value, or moves it to the place that the value has been given."""
        wanted = self.layouts[value.id]
        if value.id in self.shared_registers and self.build.register_layout(register) == wanted:
            self.move(self.result(value), register, span)
        else:
            self.registers[value.id] = register

    def dot(self, node: hir.Dot) -> None:
        acc, depth = self.accumulator_of(node), node.a.shape[1]
        start = self.operand(node.c, acc, node.span)
        # A register that others share has the layout of all of them.
        out = self.result(node.result, None if node.result.id in self.shared_registers else acc)
        if self.build.register_layout(out) != acc:
            self.registers[node.result.id] = out = self.build.register(node.result.name, node.result.dtype, acc, "acc")
        product = self.products[node.result.id]
        left, right = self.sides(node, acc)
        a = None if self.held_fragments(left, depth) else self.shared_operand(node.a, node.span)
        b = self.shared_operand(node.b, node.span)
        for k in range(0, depth, product.k):
            one = self.slice(left, k, node.span) if a is None else self.fragment(a, left, k, node.span)
            two = self.fragment(b, right, k, node.span)
            if node.a.dtype == F32:
                one, two = self.as_tf32(one, left, node.span), self.as_tf32(two, right, node.span)
            mma = tir.Mma(tir.Name(product.name), out, one, two, start if k == 0 else out)
            self.build.step(f"mma_{out}", mma, node.span)

    def accumulator_of(self, node: hir.Dot) -> Layout:
        """The layout of a product's result."""
        rows, columns = node.result.shape
        known = [self.accumulator(rows, columns, rows_only) for rows_only in (True, False)]
        chosen = self.layouts[node.result.id]
        return chosen if chosen in known else known[1]

    def sides(self, node: hir.Dot, acc: Layout) -> tuple[Operand, Operand]:
        """The operands as the tensor cores want them."""
        per_word = self.products[node.result.id].per_word
        left = Operand(node.a, 1, mma_operand_a(acc, per_word), "frag_a")
        return left, Operand(node.b, 0, mma_operand_b(acc, per_word), "frag_b")

    def accumulator(self, rows: int, columns: int, rows_only: bool) -> Layout:
        return accumulator(rows, columns, self.program.warps, rows_only)

    def held_fragments(self, side: Operand, depth: int) -> bool:
        """Does every thread hold, in registers, the fragments of this operand that it feeds to the tensor cores?"""
        if side.value.id in self.views:
            return False
        layout = self.build.register_layout(self.registers[side.value.id])
        try:
            for k in range(0, depth, side.layout.shape[side.depth]):
                renamed(side.layout, layout, (0, 1), side.origin(k))
        except ValueError:
            return False
        return True

    def slice(self, side: Operand, k: int, span: Span) -> tir.Name:
        """A fragment out of registers."""
        value = side.value
        register = self.build.register(f"{value.name}_f", value.dtype, side.layout, side.hint)
        part = tir.Slice(register, tir.Name(self.registers[value.id]), side.origin(k))
        self.build.step(f"slice_{register}", part, span)
        return register

    def as_tf32(self, fragment: tir.Name, side: Operand, span: Span) -> tir.Name:
        register = self.build.register(f"{side.value.name}_tf32", F32, side.layout, side.hint)
        self.build.step(f"tf32_{register}", tir.Map(register, tir.Name("tf32"), (fragment,)), span)
        return register

    def shared_operand(self, value: hir.Value, span: Span) -> _Place:
        """Where an operand lies in shared memory."""
        if value.id in self.views:
            return self.staged_place(value)
        return self.scratch(value, span)

    def fragment(self, place: _Place, side: Operand, k: int, span: Span) -> tir.Name:
        """One k step of an operand: by ldmatrix where it can make words of its elements and the part begins at 16
        bytes, else one by one."""
        origin = side.origin(k)[::-1] if place.transposed else side.origin(k)
        place = replace(place, origin=tuple(o + s for o, s in zip(place.origin, origin, strict=True)))
        words = side.value.dtype.size == 2 or (0 if place.transposed else 1) == side.depth
        if not words or self.whole_pieces(place) < WIDEST:
            return self.read(place, side.value, side.layout, span, "f", side.hint)
        self.build.touch(place.ring, SharedAccess(side.layout, place.transposed, WIDEST, blocks=True))
        register = self.build.register(f"{side.value.name}_f", side.value.dtype, side.layout, side.hint)
        slot = tir.Slot(tir.Name(place.ring), None, place.origin, place.transposed)
        self.build.step(f"ldm_{register}", tir.LdMatrix(register, slot), span)
        return register


def _beginning(start: Expr | None, multiple: int) -> str:
    """How to begin a window at a multiple of that many elements, also where a run says where it begins."""
    advice = f"begin at a multiple of {multiple} elements"
    names = [] if start is None else [str(name) for name in dict.fromkeys(symbols(start))]
    if not names:
        return advice
    return f"{advice}, which a number of the run shows as {names[0]} // {multiple} * {multiple} + ..."
