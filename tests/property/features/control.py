"""Generators of control by numbers that exist at run time: scalar arguments, integers out of tensors, conditions."""

from __future__ import annotations

from language import PARTS

import tidegate as tg
from features.loops import DEEP, accumulate, shape_of, start
from features.program import FLOATS, Frame, Tile, Writer, feature

COMPARED = ("<", "<=", ">", ">=", "==", "!=")


@feature("scalars", hasattr(tg, "Scalar"))
def scalars(w: Writer) -> None:
    """Numbers that are given at each call, beside tiles, in positions and as counts of trips."""
    rows, columns = shape_of(w)
    m = w.size(rows, 2)
    shape = (rows, columns)
    factor = w.parameter("Scalar", (), "f32")
    count = w.parameter("Scalar", (), "i32", (-2, 5))
    with w.block(f'for m in tg.grid(tg.tiles("{m}", {rows})):'):
        whole = Frame(shape, (m, columns), ("m", ":"), (False, True), False)
        tile = w.load(whole, w.choose.pick(FLOATS))
        text = w.choose.pick(("{0} * {1}", "{1} - {0}", "tg.maximum({0}, {1})", "tg.where({0} > {1}, {0}, {1})"))
        total = w.bind(f'({text.format(tile.text, factor)}).astype("f32")', shape, "f32")
        if w.choose.chance(60):
            with w.block(f"for i in tg.range({count}):"):
                front = ((w.choose.pick(("i", f"{count} - i", "i + 1")), w.choose.many(1, 4)),)
                frame = Frame(shape, (m, columns), ("m", ":"), (False, True), True, front)
                accumulate(w, total, f'{w.load(frame, w.choose.pick(FLOATS), staged=True).text}.astype("f32")')
        if w.choose.chance(40) and "guards" in PARTS:
            with w.block(f"if {count} {w.choose.pick(COMPARED)} {w.choose.many(-1, 3)}:"):
                w.line(f"{total.text} = {total.text} * {factor}")
        w.store(whole, total)


@feature("numbers", hasattr(tg, "size"))
def numbers(w: Writer) -> None:
    """Sizes, elements of tensors of floats, and numbers that are computed without a tile: beside tiles of any float,
    compared, in conditions, and written."""
    rows, columns = shape_of(w)
    m, k = w.size(rows, 2), w.size(columns, 3)
    shape = (rows, columns)
    factor, count = w.parameter("Scalar", (), "f32"), w.parameter("Scalar", (), "i32", (-2, 5))
    table = w.tensor((4,), w.choose.pick(FLOATS))
    whole = [
        f'tg.size("{m}")',
        f'tg.size("{k}")',
        count,
        f'tg.minimum(tg.size("{k}"), {count} + 3)',
        f"tg.abs({count} - 2)",
    ]
    fractions = [factor, f"tg.load({table}[{w.choose.below(4)}])", f"tg.load({table}[tg.minimum({count} + 2, 3)])"]
    fractions += [f'1.0 / (tg.size("{k}") + 1)', "0.5"]
    forms = ("{0} * {1}", "{0} - {1}", "tg.maximum({0}, {1})", "{1} / (tg.abs({0}) + 1)", "tg.exp(-tg.abs({0})) + {1}")

    def number() -> str:
        one = w.choose.pick(fractions[:4])
        if w.choose.chance(40):
            return one
        two = w.choose.pick((*fractions, *whole))
        return w.choose.pick(forms).format(f"({one})", f"({two})")

    with w.block(f'for m in tg.grid(tg.tiles("{m}", {rows})):'):
        names = [w.bind(number(), (), "f32", "s").text for _ in range(w.choose.many(1, 3))]
        inner = Frame(shape, (m, k), ("m", "k"), (False, True), True)
        total = start(w, shape)
        with w.block(f"for k in tg.tiles({w.choose.pick((f'{k!r}', whole[1]))}, {columns}):"):
            tile = w.load(inner, w.choose.pick(FLOATS), staged=True)
            name = w.choose.pick(names)
            texts = ("{0} * {1}", "{1} - {0}", "tg.where({1} > 0.25, {0}, {1})", "tg.where({0} > {1}, {1}, {0})")
            text = f"({w.choose.pick(texts).format(tile.text, name)})"
            if w.choose.chance(50):
                text = f'tg.where((tg.positions(k) < tg.size("{k}"))[None, :], {text}, {w.choose.pick(names)})'
            if w.choose.chance(40):
                with w.block(f"if {w.choose.pick((f'tg.end(k) <= {whole[1]}', f'{count} and k', f'not {count}'))}:"):
                    accumulate(w, total, f'({text}).astype("f32")')
            else:
                accumulate(w, total, f'({text}).astype("f32")')
        w.store(Frame(shape, (m, columns), ("m", ":"), (False, True), False), total)


@feature("elements", hasattr(tg, "size"))
def elements(w: Writer) -> None:
    """Elements that are read and written one by one, and slices that each CTA writes, by the index of a range."""
    width, heads = w.choose.pick((8, 16, 32, 24)), w.choose.many(1, 3)
    b = w.size(1, 3, fixed=False)
    kind, held, written = (w.choose.pick(FLOATS) for _ in range(3))
    x, table = w.tensor((b, heads * width), kind), w.tensor((b, heads), held)
    y, one = w.parameter("Out", (b, heads * width), "f32"), w.parameter("Out", (b, heads), written)
    looped = w.choose.chance(40)
    head = (
        f'for b in tg.grid(tg.range("{b}")):' if looped else f'for b, h in tg.grid(tg.range("{b}"), tg.range({heads})):'
    )
    with w.block(head), w.block(f"for h in tg.range({heads}):" if looped else "if True:"):
        part = f"b, h * {width} : h * {width} + {width}"
        w.line(f"s = tg.load({table}[b, h])")
        w.line(f"t = tg.load({x}[{part}])")
        w.line(f'{y}[{part}] = ({w.choose.pick(("t * s", "t - s", "tg.where(s > 0, t, s)"))}).astype("f32")')
        total = f't.sum(axis=0).astype("{written}")'
        text = w.choose.pick(("s", "s * 2.0 + h", total, "0.5", f'h / (tg.size("{b}") + 1)'))
        w.line(f"{one}[b, h] = {text}")


@feature("loaded_integers", "counts" in PARTS)
def loaded_integers(w: Writer) -> None:
    """Trip counts and positions that stand in tensors: none, negative, beyond the tensor, one per CTA or per trip."""
    rows, columns = shape_of(w)
    batch, most = w.size(1, 3), w.choose.many(1, 5)
    shape = (rows, columns)
    with w.block(f'for b in tg.grid(tg.range("{batch}")):'):
        counts = w.tensor((batch,), "i32", (-2, most + 1))
        w.line(f"n = tg.load({counts}[b])")
        total = start(w, shape)
        out = Frame(shape, shape, (":", ":"), (True, True), False, (("b", batch),))
        way = w.choose.below(3)
        if way == 0:
            with w.block(f"for i in tg.range({w.choose.pick(('n', 'n + 1', 'n * 2', 'n // 2'))}):"):
                page = "i"
                if w.choose.chance(60):
                    table = w.tensor((batch, most), "i32", (-1, most))
                    w.line(f"page = tg.load({table}[b, i])")
                    page = w.choose.pick(("page", "page + 1"))
                frame = Frame(shape, shape, (":", ":"), (True, True), True, ((page, most),))
                for _ in range(w.choose.many(1, 2)):
                    tile = w.load(frame, w.choose.pick(FLOATS), staged=True)
                    accumulate(w, total, f'{tile.text}.astype("f32")')
        elif way == 1:
            k = w.size(columns, DEEP)
            with w.block(f"for k in tg.tiles({w.choose.pick(('n * 8', 'n * 16', 'n'))}, {columns}):"):
                frame = Frame(shape, (rows, k), (":", "k"), (True, True), True)
                tile = w.load(frame, w.choose.pick(FLOATS), staged=True)
                text = f'{tile.text}.astype("f32")'
                accumulate(w, total, f"tg.where(tg.positions(k)[None, :] < 20, {text}, 1.0)")
        else:
            frame = Frame(shape, shape, (":", ":"), (True, True), False, (("n", most),))
            accumulate(w, total, f'{w.load(frame, w.choose.pick(FLOATS)).text}.astype("f32")')
        w.store(out, total)


@feature("conditions", "guards" in PARTS)
def conditions(w: Writer) -> None:
    """Branches on indices and loaded integers, around loads of rings, stores and carried values. Few and shallow rings:
    the states that the checker follows multiply with them."""
    w.most_stages = 3
    rows, columns = shape_of(w)
    m, k = w.size(rows, 2), w.size(columns, DEEP + 1)
    shape = (rows, columns)
    with w.block(f'for m in tg.grid(tg.tiles("{m}", {rows})):'):
        whole = Frame(shape, (m, columns), ("m", ":"), (False, True), False)
        inner = Frame(shape, (m, k), ("m", "k"), (False, True), True)
        kept = [start(w, shape) for _ in range(w.choose.many(1, 2))]
        flags = w.tensor((8,), "i32", (0, 1)) if "counts" in PARTS else ""

        def condition(loaded: bool) -> str:
            terms = [f"{w.choose.pick('km')} {w.choose.pick(COMPARED)} {w.choose.many(0, 3)}", "k % 2 == 1"]
            if flags and loaded:
                at = f"tg.end(k) // {columns}"  # the number of the tile, and 1
                terms += [f"tg.load({flags}[{at} - 1]) > 0", f"tg.load({flags}[{at} - 1]) == 1 and m > 0"]
            first = w.choose.pick(terms)
            if w.choose.chance(25):
                return f"{first} {w.choose.pick(('and', 'or'))} {w.choose.pick(terms[:2])}"
            return f"not ({first})" if w.choose.chance(15) else first

        def body(depth: int) -> None:
            for _ in range(w.choose.many(1, 2 - depth)):
                tile = w.load(inner, w.choose.pick(FLOATS), staged=True)
                accumulate(w, w.choose.pick(kept), f'{tile.text}.astype("f32")')
            if w.choose.chance(25):
                w.store(inner, w.choose.pick(kept))
            if depth == 0 and w.choose.chance(15):
                with w.block(f"if {condition(loaded=False)}:"):
                    body(1)

        with w.block(f'for k in tg.tiles("{k}", {columns}):'):
            if w.choose.chance(30):
                accumulate(w, kept[0], w.load(inner, "f32", staged=True).text)
            with w.block(f"if {condition(loaded=True)}:"):
                body(0)
            if w.choose.chance(35):
                with w.block("else:"):
                    body(1)
        if w.choose.chance(30):
            with w.block(f"if m {w.choose.pick(COMPARED)} {w.choose.many(0, 1)}:"):
                accumulate(w, kept[0], w.load(whole, "f32").text)
        for tile in kept:
            w.store(whole, Tile(tile.text, shape, tile.dtype))
