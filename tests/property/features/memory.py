"""Generators of windows and tensors beyond plain tiles: gathered rows, slices, parts, updates, atomics, strides."""

from __future__ import annotations

from dataclasses import replace

import tidegate as tg
from features.elementwise import arithmetic_of, chain
from features.loops import DEEP, accumulate, shape_of, start
from features.program import FLOATS, Frame, Tile, Writer, feature
from features.tiles import HALVES, folded

LATER = hasattr(tg, "InOut") and hasattr(tg, "atomic_add")
TYPES = ("f32", "bf16", "f16", "i32")


def rows_of(w: Writer, index: str, count: int, reach: int) -> Tile:
    """An i32 tile of one axis that names rows from -3 to ``reach`` + 3: loaded, or computed."""
    way = w.choose.below(5)
    shape = (count,)
    if way == 3:
        return w.bind(f"tg.arange({count}) * {w.choose.pick((1, 2))} - {w.choose.pick((0, 3))}", shape, "i32", "rows")
    if way == 4 and index.isalpha():
        return w.bind(f"tg.positions({index}) {w.choose.pick(('// 2', '+ 1', '% 5'))}", shape, "i32", "rows")
    axes = [w.sizes[0].name] if index.isalpha() else [w.sizes[-1].name, count]
    name = w.tensor(axes, "i32", (-3, reach + 3))
    text = f"tg.load({name}[{index}])"
    if way == 1:
        text = f"{text} {w.choose.pick(('* 2 + 1', '// 2', '- 1', '% 3'))}"
    if way == 2:
        text = f"tg.maximum({text}, {w.choose.pick((0, 2))})"
    return w.bind(text, shape, "i32", "rows")


@feature("gathers", LATER)
def gathers(w: Writer) -> None:
    """Rows by number, inside the tensor or not, of computed and of loaded numbers, ahead of their trip or not."""
    rows, columns = shape_of(w)
    m = w.size(rows, 2)
    height = w.choose.many(1, 40)
    tall = height if w.choose.chance(60) else w.size(height, 1, 1)
    dtype = w.choose.pick(TYPES)
    front = w.choose.chance(30)
    heads = f'tg.range("{w.size(1, 3, 1, fixed=True, name="H")}"), ' if front else ""
    with w.block(f'for {"h, " if front else ""}m in tg.grid({heads}tg.tiles("{m}", {rows})):'):
        lead = ((f"h{w.choose.pick(('', ' // 2'))}", w.sizes[-1].name),) if front else ()
        out_lead = (("h", w.sizes[-1].name),) if front else ()
        way = w.choose.below(3)
        if way == 0:
            index = rows_of(w, "m", rows, height)
            tile = w.load(Frame((rows, columns), (tall, columns), (index.text, ":"), (False, True), False, lead), dtype)
            out = Frame((rows, columns), (m, columns), ("m", ":"), (False, True), False, out_lead)
            w.store(out, w.bind(f"{tile.text} * 2", tile.shape, dtype))
            return
        if way == 1:  # one set of rows for all pieces of the columns
            index = rows_of(w, "m", rows, height)
            k = w.size(columns, DEEP, fixed=True)
            with w.block(f'for k in tg.tiles("{k}", {columns}):'):
                frame = Frame((rows, columns), (tall, k), (index.text, "k"), (False, True), True, lead)
                tile = w.load(frame, dtype, staged=True)
                out = Frame((rows, columns), (m, k), ("m", "k"), (False, True), True, out_lead)
                w.store(out, w.bind(f"{tile.text} + 1", tile.shape, dtype))
            return
        total = start(w, (rows, columns))
        b = w.size(1, DEEP, fixed=True, name="B")
        with w.block(f'for b in tg.range("{b}"):'):
            index = rows_of(w, "b, :", rows, height)
            frame = Frame((rows, columns), (tall, columns), (index.text, ":"), (False, True), True, lead)
            tile = w.load(frame, dtype, staged=True)
            accumulate(w, total, f'{tile.text}.astype("f32")')
        w.store(Frame((rows, columns), (m, columns), ("m", ":"), (False, True), False, out_lead), total)


@feature("slices", LATER)
def slices(w: Writer) -> None:
    """Windows that begin beside a tile, overlap, and leave the tensor on both sides."""
    rows, columns = shape_of(w)
    m = w.size(rows)
    k: str | int = w.size(columns, 2) if w.choose.chance(60) else columns
    dtype = w.choose.pick(TYPES)

    def beside(index: str, size: int) -> str:
        if index == ":":
            return ":"
        step = w.choose.pick((0, -1, 1, -3, 2, -size, size) if index == "m" or w.choose.chance(15) else (0, -size, 16))
        if w.choose.chance(30):
            return index
        begin = f"tg.begin({index}) {'-' if step < 0 else '+'} {abs(step)}" if step else f"tg.begin({index})"
        return f"{begin} : {begin} + {size}" if w.choose.chance(50) else f"{begin} : tg.end({index}) + {step}"

    with w.block(f'for m in tg.grid(tg.tiles("{m}", {rows})):'):
        whole = Frame((rows, columns), (m, k), ("m", ":" if k == columns else "k"), (False, True), k != columns)
        if k != columns:
            w.line(f'for k in tg.tiles("{k}", {columns}):')
            w.depth += 1
        tiles = []
        for _ in range(w.choose.many(1, 3)):
            index = (beside("m", rows), beside(whole.index[1], columns))
            tiles.append(w.load(Frame(whole.shape, whole.axes, index, whole.free, whole.looped), dtype, staged=True))
        if w.choose.chance(40):  # a halo, read in parts
            begin = w.choose.pick(("tg.begin(m) - 1", "tg.begin(m) - 8"))
            tall = rows + 2
            index = (f"{begin} : {begin} + {tall}", whole.index[1])
            frame = Frame((tall, columns), whole.axes, index, whole.free, whole.looped)
            halo = w.load(frame, dtype, staged=True)
            first = w.choose.many(0, 2)
            tiles.append(w.bind(f"{halo.text}[{first} : {first + rows}, :]", whole.shape, dtype))
        if w.choose.chance(40):
            trips = w.choose.many(1, 4)
            total = w.bind(f'tg.zeros({whole.shape!r}, "{dtype}")', whole.shape, dtype)
            with w.block(f"for i in tg.range({trips}):"):
                at = w.choose.pick(("i", "i * 2 - 1", "i + 3", "tg.begin(m) - i"))
                frame = Frame(whole.shape, whole.axes, (f"{at} : {at} + {rows}", whole.index[1]), whole.free, True)
                w.line(f"{total.text} = {total.text} + {w.load(frame, dtype, staged=True).text}")
            tiles.append(total)
        result = tiles[0]
        for tile in tiles[1:]:
            result = w.bind(f"{result.text} {w.choose.pick('+-')} {tile.text}", whole.shape, dtype)
        if k != columns and w.choose.chance(30):
            whole = replace(whole, index=("m", "tg.begin(k) : tg.end(k)"))
        w.store(whole, result)
    w.depth = 1


def part_of(w: Writer, size: int, unit: int = 4) -> tuple[int, int]:
    """Ends of a part of an axis, in multiples of ``unit``."""
    length = w.choose.many(1, size // unit) * unit
    first = w.choose.many(0, (size - length) // unit) * unit
    return first, first + length


def shown(part: tuple[int, int], size: int) -> str:
    first, last = part
    if part == (0, size):
        return ":"
    return f"{first or ''}:{'' if last == size else last}"


@feature("parts", LATER)
def parts(w: Writer) -> None:
    """Parts of loaded, staged and computed tiles, transposed, in sums and as operands of products."""
    rows, columns = w.choose.pick((32, 16, 48)), w.choose.pick((32, 64, 16, 48))
    m = w.size(rows, 2)
    dtype = w.choose.pick(FLOATS)
    k: str | int = w.size(columns, 3) if w.choose.chance(50) else columns
    with w.block(f'for m in tg.grid(tg.tiles("{m}", {rows})):'):
        if k != columns:
            w.line(f'for k in tg.tiles("{k}", {columns}):')
            w.depth += 1
        frame = Frame((rows, columns), (m, k), ("m", ":" if k == columns else "k"), (False, True), k != columns)
        tile = w.load(frame, dtype, staged=True)
        if w.choose.chance(40):
            tile = w.bind(f"{tile.text} * 2", tile.shape, dtype)
        unit = w.choose.pick((8, 4, 1))
        across = part_of(w, columns, unit)
        width = across[1] - across[0]
        cut = w.bind(f"{tile.text}[:, {shown(across, columns)}]", (rows, width), dtype)
        low, high = w.bind(f"{tile.text}[: {rows // 2}, :]", (rows // 2, columns), dtype), None
        high = f"{tile.text}[{rows // 2} :, :]"
        joined = w.bind(f"({low.text} - {high}).sum(axis=0, keepdims=True)", (1, columns), dtype)
        w.store(frame, w.bind(f"{tile.text} + {joined.text}", tile.shape, dtype))
        free = Frame((rows, width), (m, width), ("m", ":"), (False, True), k != columns)
        if w.choose.chance(50):
            w.store(free, Tile(f"{cut.text}.T", (width, rows), dtype), (1, 0))
        else:
            w.store(free, cut)
        if dtype in HALVES and w.choose.chance(60):
            deep = part_of(w, columns, 16)
            piece = shown(deep, columns)
            text = f"tg.dot({tile.text}[:, {piece}], {tile.text}[{shown((0, 16), rows)}, {piece}].T)"
            product = w.bind(text, (rows, 16), "f32")
            w.store(Frame((rows, 16), (m, 16), ("m", ":"), (False, True), k != columns), product)
    w.depth = 1


@feature("updates", LATER)
def updates(w: Writer) -> None:
    """Tensors that are read and written: updates in one statement, by trips, and reads of what was written."""
    rows, columns = shape_of(w)
    m, k = w.size(rows, 2), w.size(columns, 3)
    shape = (rows, columns)
    with w.block(f'for m in tg.grid(tg.tiles("{m}", {rows})):'):
        dtype = w.choose.pick(TYPES)
        whole = Frame(shape, (m, columns), ("m", ":"), (False, True), False)
        inner = Frame(shape, (m, k), ("m", "k"), (False, True), True)
        wide, narrow = w.parameter("InOut", (m, k), dtype), w.parameter("InOut", (m, columns), dtype)

        def update(window: str, text: str) -> None:
            if w.choose.chance(60):
                w.line(f"{window} {w.choose.pick(('+=', '-='))} {text}")
            else:
                w.line(f"{window} = tg.load({window}) * {w.choose.pick((0, 2))} - {text}")

        if w.choose.chance(50):
            update(f"{narrow}[m, :]", w.load(whole, dtype).text)
        for _ in range(w.choose.many(1, 2)):
            with w.block(f'for k in tg.tiles("{k}", {columns}):'):
                tile = w.load(inner, dtype, staged=True)
                for _ in range(w.choose.many(1, 2)):
                    update(w.choose.pick((f"{wide}[m, k]", f"{narrow}[m, :]")), tile.text)
                if w.choose.chance(50):
                    w.store(inner, w.bind(f"tg.load({wide}[m, k]) + {tile.text}", shape, dtype))
        if w.choose.chance(60):  # read by other threads than wrote it
            with w.block(f'for k in tg.tiles("{k}", {columns}):'):
                tile = w.bind(f"tg.load({wide}[m, k])", shape, dtype)
                w.store(inner, Tile(f"{tile.text}.T", shape[::-1], dtype), (1, 0))
        update(f"{narrow}[m, :]", w.bind(f'tg.full({shape!r}, 1, "{dtype}")', shape, dtype).text)
        with w.block(f'for k in tg.tiles("{k}", {columns}):'):
            w.line(f"{wide}[m, k] *= {w.choose.pick((2, 1))}")


@feature("atomics", LATER)
def atomics(w: Writer) -> None:
    """Additions of many CTAs and of equal rows to one element."""
    rows, columns = shape_of(w)
    m = w.size(rows)
    dtype = w.choose.pick(("f32", "i32"))
    shape = (rows, columns)
    height = w.choose.many(1, 12)
    with w.block(f'for m in tg.grid(tg.tiles("{m}", {rows})):'):
        whole = Frame(shape, (m, columns), ("m", ":"), (False, True), False)
        tile = w.load(whole, dtype)
        if w.choose.chance(50):
            index = rows_of(w, "m", rows, height)
            total = w.parameter("InOut", (height, columns), dtype)
            w.line(f"tg.atomic_add({total}[{index.text}, :], {tile.text})")
        if w.choose.chance(50):
            sums = w.parameter("InOut", (1, columns), dtype)
            w.line(f"tg.atomic_add({sums}[:, :], {folded(w, tile, 0, True, 'sum').text})")
        if w.choose.chance(40):
            k = w.size(columns, 3)
            more = w.parameter("InOut", (rows, k), dtype)
            with w.block(f'for k in tg.tiles("{k}", {columns}):'):
                part = w.load(Frame(shape, (m, k), ("m", "k"), (False, True), True), dtype, staged=True)
                w.line(f"tg.atomic_add({more}[:, k], {part.text})")
        own = w.parameter("InOut", (m, columns), dtype)
        w.line(f"tg.atomic_add({own}[m, :], {tile.text})")


@feature("strided", LATER)
def strided(w: Writer) -> None:
    """Arrays that are parts of larger ones: every second row, some of the columns."""
    chain(w, arithmetic_of)
    w.parameters = [replace(p, strided=len(p.axes) > 1 and w.choose.chance(70)) for p in w.parameters]
