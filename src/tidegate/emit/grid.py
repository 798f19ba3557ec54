"""Which tile a CTA takes: the linear CTA index, taken apart into the indices of the grid."""

from __future__ import annotations

from tidegate.emit.context import Context, factor
from tidegate.ir import tir
from tidegate.ir.expr import Expr, Int, Sym, symbols

BAND = 8
"""Rows of CTAs that are walked together, column by column."""


def grid_lines(cx: Context) -> list[str]:
    """C++ that declares the grid's indices: the last axis is the fastest, except that the last two are walked in bands
    of BAND rows, column by column. An index with which a CTA's work grows runs backwards: the GPU starts CTAs in order,
    and those that take long should not be the last ones. It is a bijection for every grid, and no number in it is
    larger than that of the CTAs.
    """
    axes = cx.kernel.grid
    names = [cx.name("size", a.name) for a in axes]
    if not axes:
        return []
    extents = [factor(cx.cpp(a.extent)) for a in axes]
    turned = [works_more(cx.kernel, a.name) for a in axes]

    def at(axis: int, extent: str, place: str) -> str:
        return f"{names[axis]} = {f'{extent} - 1 - {factor(place)}' if turned[axis] else place}"

    heading = ["// Index by index from the end where later tiles are more work."] if any(turned) else []
    if len(axes) == 1:
        return [*heading, f"const int {at(0, extents[0], 'blockIdx.x')};"]
    rows, columns = cx.fresh("rows"), cx.fresh("columns")
    sizes = ", ".join(f"{name} = {cx.cpp(a.extent)}" for name, a in zip((rows, columns), axes[-2:], strict=True))
    lines = [f"const int {sizes};", "int cta = blockIdx.x;"]
    if len(axes) > 2:
        lines += [f"int outer = cta / ({rows} * {columns});", f"cta %= {rows} * {columns};"]
        for axis in range(len(axes) - 3, 0, -1):
            place = f"outer % {extents[axis]}"
            lines += [f"const int {at(axis, extents[axis], place)};", f"outer /= {extents[axis]};"]
        lines.append(f"const int {at(0, extents[0], 'outer')};")
    row, column = at(-2, rows, "band + cta % height"), at(-1, columns, "cta / height")
    return [
        f"// CTAs go down the columns of bands of {BAND} rows: those that run together share operands in L2.",
        *heading,
        *lines,
        f"const int tall = min({BAND}, {rows}), band = cta / (tall * {columns}) * tall;",
        f"const int height = min(tall, {rows} - band);",
        f"cta %= tall * {columns};",
        f"const int {row}, {column};",
    ]


def works_more(kernel: tir.Kernel, index: str) -> bool:
    """Do loops of the kernel make more trips, and none fewer, as a grid index grows?"""
    stops = [s.stop for s in tir.walk(kernel.body) if isinstance(s, tir.For) and index in symbols(s.stop)]
    return bool(stops) and all(direction(stop, index) == 1 for stop in stops)


def direction(e: Expr, name: str) -> int | None:
    """1 if e never falls as the name grows, -1 if it never rises, 0 if it does not depend on it; None if unknown."""
    if isinstance(e, Int):
        return 0
    if isinstance(e, Sym):
        return int(e.name == name)
    a, b = direction(e.a, name), direction(e.b, name)
    if a == b == 0:
        return 0
    if a is None or b is None:
        return None
    if e.op in ("*", "/", "cdiv"):
        scale = e.b if isinstance(e.b, Int) else e.a if isinstance(e.a, Int) and e.op == "*" else Int(0)
        return (a or b) if scale.value > 0 else None
    found = {d for d in (a, -b if e.op == "-" else b) if d}
    return found.pop() if e.op in ("+", "-", "min", "max") and len(found) == 1 else None
