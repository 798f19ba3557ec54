"""Lowering: legal program + plan to TIR. Translates, decides nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from tidegate.errors import PlanRejected
from tidegate.ir import legal, tir
from tidegate.ir.dtypes import I32
from tidegate.ir.expr import Expr, Int, Sym
from tidegate.ir.spec import with_names
from tidegate.plan.pipeline import Schedule
from tidegate.plan.plan import AsyncPlan, Buffer, Sync, SyncKind
from tidegate.plan.timeline import END, Group, Guard, Issue, Node, Repeat, Turn, When, groups, names_of, timeline


def lower(program: legal.LegalProgram, plan: AsyncPlan) -> tir.Kernel:
    """The TIR kernel of a validated plan."""
    schedule = Schedule.of(plan.schedule)
    return _Lowering(program, plan, groups(program, schedule.ahead)).kernel(timeline(program, schedule))


@dataclass
class _Lowering:
    """One lowering: syncs by place, buffers and cursors by ring."""

    program: legal.LegalProgram
    plan: AsyncPlan
    channels: tuple[Group, ...]

    def __post_init__(self) -> None:
        self.syncs = self.plan.syncs_at()
        self.buffers: Mapping[str, Buffer] = {b.ring: b for b in self.plan.buffers}
        self.taken = names_of(self.program)
        self.copies: dict[tir.Name, tir.Scalar] = {}

    def kernel(self, nodes: tuple[Node, ...]) -> tir.Kernel:
        program = self.program
        body = [*self.block(nodes), *self.orders(END)]
        return tir.Kernel(
            name=tir.Name(program.name),
            target=tir.Name(program.target),
            warps=program.warps,
            smem=self.plan.smem_bytes,
            dims=program.dims,
            params=program.params,
            grid=tuple(
                replace(axis, band=order.band, backwards=order.backwards)
                for axis, order in zip(program.grid, self.plan.grid, strict=True)
            ),
            layouts=tuple((tir.Name(n), layout) for n, layout in program.layouts),
            buffers=tuple(self.buffer(r) for r in program.rings),
            barriers=(),
            cursors=tuple(c for g in self.channels for c in self.cursors(g)),
            registers=program.registers,
            roles=(),
            body=tuple(body),
            scalars=(*program.scalars, *self.copies.values()),
        )

    def buffer(self, ring: legal.Ring) -> tir.Buffer:
        place = self.buffers[ring.name]
        return tir.Buffer(
            tir.Name(ring.name), ring.dtype, ring.shape, ring.stages, place.offset, place.stride, ring.swizzle
        )

    # -------------------------------------------------------------------------------------- cursors

    def cursors(self, group: Group) -> list[tir.Cursor]:
        """One cursor where fills and reads keep step, else one per side."""
        names = dict.fromkeys((self.cursor_name(group, "fill"), self.cursor_name(group, "read")))
        return [tir.Cursor(n, group.depth) for n in names]

    def cursor_name(self, group: Group, side: str) -> tir.Name:
        name = f"{side}_{group.name}" if group.ahead else f"slot_{group.name}"
        while name in self.taken:
            name += "_"
        return tir.Name(name)

    def cursor(self, ring: str, writes: bool) -> tir.Name | None:
        group = next((g for g in self.channels if ring in g.rings), None)
        return self.cursor_name(group, "fill" if writes else "read") if group else None

    # -------------------------------------------------------------------------------------- nodes

    def block(self, nodes: Sequence[Node]) -> list[tir.Stmt]:
        out: list[tir.Stmt] = []
        for node in nodes:
            out += self.orders(node.place)
            out += self.node(node)
        return out

    def node(self, node: Node) -> list[tir.Stmt]:
        match node:
            case Issue():
                return [self.issue(node)]
            case Turn():
                group = next(g for g in self.channels if g.name == node.channel)
                return [tir.Advance(self.cursor_name(group, "fill" if node.side == "fill" else "read"))]
            case Guard() | When():
                if node.condition == Int(0):
                    return []
                inner, line = tuple(self.block(node.body)), node.line if isinstance(node, When) else 0
                return list(inner) if node.condition == Int(1) else [tir.If(node.condition, inner, line=line)]
            case Repeat():
                loop = node.loop
                inner = tuple(self.block(node.body))
                return [tir.For(tir.Name(loop.index), Int(0), loop.trips, inner, line=loop.span.line)]

    def issue(self, node: Issue) -> tir.Instruction:
        """The step's instruction with its slots bound to cursors and its window at the issued index."""
        instr = node.step.instr
        if isinstance(instr, tir.LdScalar) and instr.scalar not in self.taken:
            self.copies.setdefault(instr.scalar, tir.Scalar(instr.scalar, I32))
        slots: dict[str, Any] = {}
        for f in fields(instr):
            operand = getattr(instr, f.name)
            if isinstance(operand, tir.Slot):
                writes = f.name in type(instr).writes
                slots[f.name] = replace(operand, cursor=self.cursor(operand.buffer, writes))
        return replace(with_names(instr, self.at(node)), **slots)

    def at(self, node: Issue) -> Mapping[str, Expr]:
        """What the loop's index stands for in a step."""
        index = next((loop.index for loop in legal.loops(self.program.body) if loop.id == node.loop), "")
        return {} if node.index in (None, Sym(index)) else {index: node.index}

    def orders(self, place: str) -> list[tir.Stmt]:
        return [instruction(s) for s in self.syncs.get(place, ())]


def instruction(sync: Sync) -> tir.Sync:
    """The TIR instruction of a planned sync; raises PlanRejected for kinds that no producer here emits."""
    match sync.kind:
        case SyncKind.COPY_COMMIT:
            return tir.CpCommit(id=sync.id, why=sync.reason)
        case SyncKind.COPY_WAIT:
            return tir.CpWait(sync.count or 0, id=sync.id, why=sync.reason)
        case SyncKind.WARP:
            return tir.SyncWarp(id=sync.id, why=sync.reason)
        case SyncKind.NAMED:
            return tir.BarSync(sync.count or 0, sync.warps, id=sync.id, why=sync.reason)
        case SyncKind.BLOCK:
            return tir.SyncBlock(id=sync.id, why=sync.reason)
    raise PlanRejected(
        what=f"sync {sync.id} is a {sync.kind.value}, which cannot be lowered yet",
        advice="use counted waits and warp, named or block barriers",
    )
