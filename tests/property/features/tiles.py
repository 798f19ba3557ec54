"""Generators of what exchanges elements within a tile: reductions, transposes, products, and odd sizes."""

from __future__ import annotations

from collections.abc import Sequence

from features.elementwise import FUNCTIONS, NUMBERS, arithmetic_of, joint
from features.program import FLOATS, Frame, Tile, Writer, feature

FOLDS = ("sum", "max", "min")
ODD = (96, 80, 48, 24, 40, 12)
HALVES = ("bf16", "f16")


def folded(w: Writer, tile: Tile, axis: int, keep: bool, fold: str) -> Tile:
    """A reduction of an expression, in one of its two spellings."""
    given = axis - len(tile.shape) if w.choose.chance(30) else axis
    last = ", keepdims=True" if keep else ""
    text = f"({tile.text}).{fold}(axis={given}{last})"
    if w.choose.chance(40):
        text = f"tg.{fold}({tile.text}, {'axis=' if last or w.choose.chance(50) else ''}{given}{last})"
    one = len(tile.shape) == 1
    shape = tuple(1 if a == axis else s for a, s in enumerate(tile.shape) if a != axis or keep or one)
    return Tile(text, shape, tile.dtype)


def fold_and_spread(w: Writer, frame: Frame, tile: Tile) -> Tile:
    """A reduction that is used beside what it folds: a tile of the frame's shape again."""
    axis = w.choose.below(frame.rank)
    keep = frame.rank == 1 or w.choose.chance(50)
    part = folded(w, tile, axis, keep, w.choose.pick(FOLDS))
    text = part.text
    if not keep and axis > 0:
        name = w.bind(text, part.shape, part.dtype).text
        text = f"{name}[{', '.join('None' if a == axis else ':' for a in range(frame.rank))}]"
    operation = w.choose.pick(("{} - {}", "{} * ({} * 0.125)", "tg.maximum({}, {} * 0.25)", "{} / (tg.abs({}) + 1)"))
    return w.bind(operation.format(tile.text, text), frame.shape, tile.dtype)


@feature("reductions")
def reductions(w: Writer) -> None:
    reduce_in(w, (2, 16, 32, 8, 64, 24, 1, 128))


@feature("uneven_rows")
def uneven_rows(w: Writer) -> None:
    """Whole axes of sizes that threads share badly, which are held with room to spare."""
    if w.choose.chance(70):
        reduce_in(w, (1, 2, 3, 8), (300, 77, 1000, 333, 65, 130, 600))
        return
    with w.frame((2,), (1, 2, 4), last=(300, 77, 520, 130)) as frame:
        tile = w.load(frame, w.choose.pick(FLOATS), staged=True)
        w.store(frame, Tile(f"({tile.text} + 1).T", tile.shape[::-1], tile.dtype), (1, 0))
        w.store(frame, fold_and_spread(w, frame, tile))


def reduce_in(w: Writer, sides: Sequence[int], last: Sequence[int] = ()) -> None:
    with w.frame((2, 1, 2, 3), sides, last=last) as frame:
        kind = w.choose.pick(("normal", "normal", "special"))
        tile = w.load(frame, w.choose.pick(FLOATS), values=kind, staged=bool(last))
        if last:  # what lies behind a row began as zeros: make these matter
            away = w.choose.pick(("({} + 3)", "(-tg.abs({}) - 1)", "(tg.abs({}) + 1)"))
            tile = w.bind(away.format(tile.text), tile.shape, tile.dtype)
        if w.choose.chance(30):
            mask = folded(w, Tile(f"({tile.text} > 0.5)", tile.shape, "bool"), 0, True, w.choose.pick(("max", "min")))
            tile = w.bind(f"tg.where({mask.text}, {tile.text}, -1.0)", tile.shape, tile.dtype)
        for _ in range(w.choose.below(3)):
            tile = fold_and_spread(w, frame, tile)
        free = [a for a in range(frame.rank) if frame.free[a]]
        if not free or w.choose.chance(40):
            w.store(frame, fold_and_spread(w, frame, tile))
            return
        axes = list(range(frame.rank))
        part = tile
        for _ in range(2 if len(free) > 1 and frame.rank > 2 and w.choose.chance(50) else 1):
            axis = w.choose.pick([a for a in free if a in axes])
            if len(axes) == 1:
                break
            part = folded(w, part, axes.index(axis), False, w.choose.pick(FOLDS))
            axes.remove(axis)
        if part is tile:
            w.store(frame, fold_and_spread(w, frame, tile))
        else:
            w.store(frame, w.bind(part.text, part.shape, part.dtype), axes)


@feature("transposes")
def transposes(w: Writer) -> None:
    """A tile read as it is and transposed, in registers and from its ring."""
    with w.frame((2,), (16, 32, 8, 64, 24)) as frame:
        loaded = [w.load(frame, w.choose.pick(FLOATS), staged=True) for _ in range(w.choose.many(1, 2))]
        back = frame.shape[::-1]
        turned = [Tile(f"{t.text}.T", back, t.dtype) for t in loaded]
        if w.choose.chance(50):  # loaded in the other order of axes
            turned.append(w.load(frame, w.choose.pick(FLOATS), (1, 0), staged=True))
            loaded.append(Tile(f"{turned[-1].text}.T", frame.shape, turned[-1].dtype))
        if w.choose.chance(60):
            text, dtype = arithmetic_of(w, turned)
            turned.append(w.bind(text, back, dtype))
            loaded.append(Tile(f"({turned[-1].text}).T", frame.shape, dtype))
        if frame.shape[0] == frame.shape[1] and w.choose.chance(70):
            a, b = w.choose.pick(loaded), w.choose.pick(turned)
            if {a.dtype, b.dtype} != set(HALVES):
                loaded.append(w.bind(f"{a.text} - {b.text}", frame.shape, joint(a.dtype, b.dtype)))
        if w.choose.chance(30):
            loaded.append(w.bind(f"{w.choose.pick(loaded).text}.T.T", frame.shape, loaded[-1].dtype))
            loaded[-1] = Tile(f'{loaded[-1].text}.astype("f32")', frame.shape, "f32")
        for tile in loaded[-2:]:
            w.store(frame, tile)
        w.store(frame, turned[-1], (1, 0))


# ------------------------------------------------------------------------------------------ products


def side(w: Writer, unit: int, sizes: Sequence[int]) -> int:
    return w.choose.pick([s for s in sizes if s % unit == 0])


def factor(w: Writer, frame: Frame, axes: tuple[int, int], dtype: str) -> str:
    """An operand of a product with these axes of the frame: loaded straight or transposed, cast, computed."""
    turned = w.choose.chance(30)
    source = "f32" if w.choose.chance(15) else dtype
    tile = w.load(frame, source, axes[::-1] if turned else axes, staged=True)
    text = tile.text
    if w.choose.chance(15):
        number = w.choose.pick(("3", "-1", "7")) if dtype == "i8" and source == dtype else w.choose.pick(NUMBERS)
        text = f"({text} {w.choose.pick('*+')} {number})"
    if source != dtype:
        text = f'{text}.astype("{dtype}")'
    return f"{text}.T" if turned else text


def product_text(w: Writer, left: str, right: str, accumulator: str, kind: str = "") -> str:
    by = ", by=cuda.mma()" if w.choose.chance(40) else ""
    if kind == "f32":
        by = ", by=cuda.mma(tf32=True)"
    if accumulator and w.choose.chance(15):
        return f"{accumulator} + tg.dot({left}, {right}{by})"
    if not accumulator and kind != "f32" and w.choose.chance(30):
        return f"{left} @ {right}"
    return f"tg.dot({left}, {right}{f', {accumulator}' if accumulator else ''}{by})"


@feature("products")
def products(w: Writer) -> None:
    multiply(w, (16, 32, 64, 8), (16, 32, 64, 16))


def multiply(w: Writer, sides: Sequence[int], depths: Sequence[int], kind: str = "", other: str = "") -> None:
    """A product over a loop of a third dimension, into an accumulator that starts in one of several ways. ``kind``: the
    operands' dtype, f16 or bf16 if empty; ``other``: the right one's, if another."""
    rows, columns = side(w, 16, sides), side(w, 8, sides)
    depth = side(w, {"": 16, "f32": 8}.get(kind, 32), depths)
    m, n = w.size(rows), w.size(columns)
    k = w.size(depth, w.choose.pick((3, 1, 5)))
    shape = (rows, columns)
    dtype = kind or w.choose.pick(HALVES)
    total = "i32" if kind == "i8" else "f32"
    half, more = ("* 3", "+ 1") if kind == "i8" else ("* 0.5", "+ 0.25")
    with w.block(f'for m, n in tg.grid(tg.tiles("{m}", {rows}), tg.tiles("{n}", {columns})):'):
        outer = Frame(shape, (m, n), ("m", "n"), (False, False), False)
        way = w.choose.below(4)
        if way == 1:
            acc = w.load(outer, total)
        elif way == 2:
            acc = w.bind(f'tg.full({shape!r}, 2, "{total}")', shape, total)
        else:
            acc = w.bind(f'tg.zeros({shape!r}, "{total}")', shape, total)
        with w.block(f'for k in tg.tiles("{k}", {depth}):'):
            inner = Frame((rows, columns, depth), (m, n, k), ("m", "n", "k"), (False, False, True), True)
            left, right = factor(w, inner, (0, 2), dtype), factor(w, inner, (2, 1), other or dtype)
            if w.choose.chance(20):  # computed with outside the product, too
                line = w.bind(f"({right}).astype('{total}').sum(axis=0, keepdims=True)", (1, columns), total).text
                w.line(f"{acc.text} = {acc.text} {half} + {line}")
            if w.choose.chance(15):
                w.line(f"{acc.text} = {acc.text} + {product_text(w, left, right, '', kind)} {half}")
            else:
                w.line(f"{acc.text} = {product_text(w, left, right, acc.text, kind)}")
        if w.choose.chance(40):
            bias = w.load(outer, w.choose.pick(FLOATS) if total == "f32" else "i32", (1,))
            acc = w.bind(f"tg.maximum({acc.text} {more} + {bias.text}, 0)", shape, total)
        if w.choose.chance(25) and total == "f32":
            acc = fold_and_spread(w, outer, acc)
        order = w.choose.pick(((0, 1), (0, 1), (1, 0)))
        w.store(outer, acc if order == (0, 1) else Tile(f"{acc.text}.T", shape[::-1], total), order)


@feature("single_products")
def single_products(w: Writer) -> None:
    """Products outside loops, of tiles that are read elsewhere as well; one operand twice."""
    rows, inner, columns = side(w, 16, (16, 32, 64)), side(w, 16, (16, 32, 48)), side(w, 8, (16, 8, 32, 24))
    m = w.size(rows)
    dtype = w.choose.pick(HALVES)
    with w.block(f'for m in tg.grid(tg.tiles("{m}", {rows})):'):
        frame = Frame((rows, inner, columns), (m, inner, columns), ("m", ":", ":"), (False, True, True), False)
        a = w.load(frame, dtype, (0, 1), staged=True)
        b = w.load(frame, dtype, (1, 2), staged=True)
        right = b.text if w.choose.chance(60) else w.bind(f"{b.text} * 0.5", b.shape, dtype).text
        d = w.bind(product_text(w, a.text, right, ""), (rows, columns), "f32")
        w.store(frame, d, (0, 2))
        way = w.choose.below(3)
        if way == 0 and rows % 8 == 0:
            e = w.bind(f"tg.dot({a.text}, {a.text}.T)", (rows, rows), "f32")
            part = folded(w, e, 1, True, w.choose.pick(FOLDS))
            w.store(frame, w.bind(f"{d.text} + {part.text}", d.shape, "f32"), (0, 2))
        elif way == 1:
            e = w.bind(f"tg.dot({b.text}.T, {b.text})", (columns, columns), "f32") if columns % 16 == 0 else b
            part = folded(w, e, 0, False, "max")
            w.store(frame, w.bind(f"{d.text} - {part.text}", d.shape, "f32"), (0, 2))
        else:
            w.store(frame, w.bind(f"{a.text} + 1.0", a.shape, dtype), (0, 1))


@feature("chained_products")
def chained_products(w: Writer) -> None:
    """A product whose result, cast, is an operand of the next: in registers, with a running maximum or without."""
    rows, keys = side(w, 16, (16, 32, 64)), side(w, 16, (16, 32, 48))
    width, values = side(w, 16, (16, 32, 64)), side(w, 8, (16, 8, 32, 64))
    dtype = w.choose.pick(HALVES)
    m, n = w.size(rows), w.size(keys)
    online = w.choose.chance(60)
    with w.block(f'for m in tg.grid(tg.tiles("{m}", {rows})):'):
        outer = Frame((rows, width), (m, width), ("m", ":"), (False, True), False)
        q = w.load(outer, dtype, staged=True)
        w.line(f"acc = tg.zeros({(rows, values)!r})")
        if online:
            w.line(f"top = tg.full({(rows, 1)!r}, -1e30)")
            w.line(f"total = tg.zeros({(rows, 1)!r})")
        with w.block(f'for n in tg.tiles("{n}", {keys}):'):
            sizes = (rows, keys, width, values)
            inner = Frame(sizes, (m, n, width, values), ("m", "n", ":", ":"), (False, True, True, True), True)
            k = w.load(inner, dtype, (1, 2), staged=True)
            v = w.load(inner, dtype, (1, 3), staged=True)
            w.line(f"s = tg.dot({q.text}, {k.text}.T) * 0.25")
            if w.choose.chance(40):
                limit = w.choose.pick(("tg.positions(m)[:, None]", "20"))
                w.line(f"s = tg.where(tg.positions(n)[None, :] <= {limit}, s, -1e30)")
            if online:
                w.line("higher = tg.maximum(top, s.max(axis=1, keepdims=True))")
                w.line("p = tg.exp2(s - higher)")
                w.line("keep = tg.exp2(top - higher)")
                w.line("total = total * keep + p.sum(axis=1, keepdims=True)")
                w.line(f'acc = tg.dot(p.astype("{dtype}"), {v.text}, acc * keep)')
                w.line("top = higher")
            else:
                turned = w.choose.pick(FUNCTIONS).format("s")
                w.line(f'acc = tg.dot(({turned}).astype("{dtype}"), {v.text}, acc)')
        result = "acc / (total + 0.5)" if online else "acc"
        frame = Frame((rows, values), (m, values), ("m", ":"), (False, True), False)
        w.store(frame, w.bind(result, (rows, values), "f32"))


@feature("odd_sizes")
def odd_sizes(w: Writer) -> None:
    """Tile sizes that are no powers of two, in everything that moves elements between threads."""
    way = w.choose.below(3)
    if way == 0:
        reduce_in(w, ODD)
    elif way == 1:
        multiply(w, (96, 80, 48, 24), (48, 80, 96))
    else:
        with w.frame((2,), ODD, 8192) as frame:
            tile = w.load(frame, w.choose.pick(FLOATS), staged=True)
            w.store(frame, Tile(f"{tile.text}.T", tile.shape[::-1], tile.dtype), (1, 0))
            w.store(frame, fold_and_spread(w, frame, tile))
