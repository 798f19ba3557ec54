"""What a schedule may ask for: legality of by=, stages= and to=, of products, and of tile sizes."""

from __future__ import annotations

from tidegate.errors import BadSchedule, NoInstruction, OverCapacity
from tidegate.ir import hir, legal
from tidegate.ir.dtypes import F32
from tidegate.ir.layout import Layout
from tidegate.ir.products import FLOAT8, PRODUCTS, M, N, Product, product_of
from tidegate.legalise.build import Builder
from tidegate.target.target import Target

MAX_ELEMENTS = 4096
"""Elements of a tile per thread that TIR allows (tidegate.ir.spec)."""


def mechanism(program: hir.Program, load: hir.Load, align: int) -> str:
    """How a load is carried out: cp_async, ld (through registers into shared memory) or registers.

    ``align``: bytes that one access to the window may move. Raises BadSchedule.
    """
    by = load.by.name if load.by else None
    changes = program.tensor(load.window.tensor).output
    if changes and (load.stages > 1 or by == "cp_async"):
        how = "filled ahead of its trip" if load.stages > 1 else "copied asynchronously"
        raise BadSchedule(
            load.span,
            what=f"a window of the tg.InOut {load.window.tensor} is {how}, and may be written before",
            advice="drop stages= and by=: such tiles are loaded in program order",
        )
    if by not in (None, "cp_async", "ld"):
        reason = "plans with this instruction cannot be made yet" if by == "tma" else "it copies nothing"
        raise BadSchedule(
            load.span,
            what=f"tg.load by {load.by}: {reason}",
            advice="use by=cuda.cp_async() or by=cuda.ld()",
        )
    size, piece = load.result.dtype.size, dict(load.by.options).get("bytes") if load.by else None
    if piece is not None and piece < size:
        raise BadSchedule(
            load.span,
            what=f"cp.async of {piece} bytes: an element of {load.result.dtype} has {size}",
            advice=f"use cuda.cp_async(bytes={size}), or leave the size open",
        )
    wants_shared = load.to == "shared" or load.stages > 1 or feeds_dot(program, load.result)
    wants_shared = wants_shared or (load.to is None and read_in_parts(program, load.result))
    if by is None:
        row = load.result.shape[-1] * load.result.dtype.size
        copies = align >= 4 and row % 4 == 0
        by = "cp_async" if wants_shared and copies and not changes else "ld"
    if load.by and by == "cp_async" and load.to == "registers":
        raise BadSchedule(
            load.span, what='cp.async writes shared memory, to="registers" asks for registers', advice="drop to="
        )
    if by == "ld" and not wants_shared:
        return "registers"
    if load.to == "registers":
        raise BadSchedule(
            load.span,
            what='to="registers" with '
            + ("stages" if load.stages > 1 else "a tg.dot reader, which needs shared memory"),
            advice='use to="shared" or drop to=',
        )
    return by


def feeds_dot(program: hir.Program, value: hir.Value) -> bool:
    """Is the tile, its transpose or a part of it an operand of a product?"""
    same = {value.id}
    for node in hir.walk(program.body):
        if isinstance(node, (hir.Transpose, hir.Part)) and node.source.id in same:
            same.add(node.result.id)
        if isinstance(node, hir.Dot) and {node.a.id, node.b.id} & same:
            return True
    return False


def read_in_parts(program: hir.Program, value: hir.Value) -> bool:
    """Is a part of the tile read? In shared memory that costs nothing."""
    return any(isinstance(node, hir.Part) and node.source.id == value.id for node in hir.walk(program.body))


def check_dot(node: hir.Dot, target: Target) -> Product:
    """The product instruction; refuses what mma.sync does not compute. Raises BadSchedule or NoInstruction."""
    if node.by is not None and node.by.name != "mma":
        later = node.by.name == "wgmma"
        reason = "plans with this instruction cannot be made yet" if later else "it computes no product"
        raise BadSchedule(
            node.span,
            what=f"tg.dot by {node.by}: {reason}",
            advice="use by=cuda.mma()",
        )
    product = product_of(node.a.dtype)
    tf32 = node.by is not None and "tf32" in dict(node.by.options)
    if product is None or (node.a.dtype == F32 and not tf32):
        kinds = ", ".join(str(d) for p in PRODUCTS.values() for d in p.operands if d != F32)
        advice = f'cast the operands: x.astype("{"i8" if node.a.dtype.integer else "bf16"}")'
        raise NoInstruction(
            node.span,
            what=f"mma.sync multiplies tiles of {kinds}; {node.a.name} is {node.a.dtype}",
            advice=advice + (", or let them be rounded to tf32: by=cuda.mma(tf32=True)" if product else ""),
        )
    if tf32 and node.a.dtype != F32:
        raise BadSchedule(
            node.span,
            what=f"tf32=True rounds f32 operands, {node.a.name} is {node.a.dtype}",
            advice="drop tf32=",
        )
    if node.a.dtype in FLOAT8 and not target.fact("float8_mma"):
        raise NoInstruction(
            node.span,
            what=f"mma.sync multiplies {node.a.dtype} on sm_89 and later, the target is {target.name}",
            advice='cast the operands: x.astype("f16")',
        )
    (rows, depth), columns = node.a.shape, node.b.shape[1]
    wrong = [
        f"{name}={size} is no multiple of {unit} (use {-(-size // unit) * unit})"
        for name, size, unit in (("M", rows, M), ("N", columns, N), ("K", depth, product.k))
        if size % unit
    ]
    if wrong:
        raise NoInstruction(
            node.span,
            what=f"mma.sync {product.name} on [{rows}, {depth}] @ [{depth}, {columns}]",
            advice="; ".join(wrong),
        )
    return product


def check_sizes(program: hir.Program, target: Target, build: Builder) -> None:
    """Refuses tiles that no CTA can hold, before anything is computed per element."""
    capacity = target.fact("smem_per_cta")
    for ring in build.rings.values():
        if (bytes_ := ring.layout.bytes) > capacity:
            raise OverCapacity(
                ring.span,
                kernel=program.name,
                peak=bytes_ * ring.stages,
                target=target.name,
                capacity=capacity,
                table=f"  {ring.name}: one tile of {list(ring.shape)} {ring.dtype} has {bytes_} bytes",
                advice="use smaller tiles",
            )
    large = {name: layout for layout, name in build.layouts.items() if layout.registers > MAX_ELEMENTS}
    held: dict[object, Layout] = {r.name: large[r.layout] for r in build.registers if r.layout in large}
    for step in legal.steps(tuple(build.steps)):
        layout = held.get(getattr(step.instr, "dst", "")) or large.get(getattr(step.instr, "layout", ""))
        if layout is not None:
            raise NoInstruction(
                step.span,
                what=f"a tile of {list(layout.shape)} over {program.warps} warps: "
                f"{layout.registers} elements per thread, at most {MAX_ELEMENTS} are possible",
                advice="use smaller tiles, more warps, or sizes with a larger power of two in them",
            )
