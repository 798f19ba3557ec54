"""Which tile a CTA takes: the linear CTA index, taken apart into the indices of the grid."""

from __future__ import annotations

from tidegate.emit.context import Context, factor


def grid_lines(cx: Context) -> list[str]:
    """C++ that declares the grid's indices. It is a bijection for every grid, and no number in it is larger than that
    of the CTAs."""
    axes = cx.kernel.grid
    names = [cx.name("size", a.name) for a in axes]
    if not axes:
        return []
    extents = [factor(cx.cpp(a.extent)) for a in axes]

    def at(axis: int, extent: str, place: str) -> str:
        return f"{names[axis]} = {f'{extent} - 1 - {factor(place)}' if axes[axis].backwards else place}"

    backwards = any(a.backwards for a in axes)
    heading = ["// Index by index from the end where later tiles are more work."] if backwards else []
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
    band = axes[-2].band
    if band == 1:
        row, column = at(-2, rows, f"cta / {columns}"), at(-1, columns, f"cta % {columns}")
        return [*heading, *lines, f"const int {row}, {column};"]
    row, column = at(-2, rows, "band + cta % height"), at(-1, columns, "cta / height")
    return [
        f"// CTAs go down the columns of bands of {band} rows: those that run together share operands in L2.",
        *heading,
        *lines,
        f"const int tall = min({band}, {rows}), band = cta / (tall * {columns}) * tall;",
        f"const int height = min(tall, {rows} - band);",
        f"cta %= tall * {columns};",
        f"const int {row}, {column};",
    ]
