"""Generators of control: loops that carry values, nest and follow one another; limits, positions, rings."""

from __future__ import annotations

from collections.abc import Sequence

from features.elementwise import arithmetic_of, joint
from features.program import FLOATS, SIDES, Frame, Tile, Writer, feature
from features.tiles import folded

DEEP = 5
"""Trips that fill rings of four slots and more."""


def accumulate(w: Writer, target: Tile, text: str) -> None:
    """Updates a carried tile so that its values stay small."""
    way = w.choose.pick(("{0} * 0.5 + {1}", "tg.maximum({0}, {1})", "{0} + {1}", "{0} - {1} * 0.5", "{1}"))
    value = way.format(target.text, f"({text})")
    w.line(f'{target.text} = ({value}).astype("{target.dtype}")')


def start(w: Writer, shape: tuple[int, ...], frame: Frame | None = None) -> Tile:
    """A tile that a loop will carry."""
    if frame is not None and w.choose.chance(30):
        return w.load(frame, w.choose.pick(FLOATS))
    dtype = w.choose.pick(("f32", "f32", "bf16", "f16"))
    if w.choose.chance(40):
        return w.bind(f'tg.full({shape!r}, {w.choose.pick(("1.0", "-2", "0.5"))}, "{dtype}")', shape, dtype)
    return w.bind(f'tg.zeros({shape!r}, "{dtype}")', shape, dtype)


def shape_of(w: Writer) -> tuple[int, int]:
    return w.choose.pick((16, 8, 32, 24)), w.choose.pick((32, 16, 64, 8))


@feature("carried")
def carried(w: Writer) -> None:
    """Several values carried by one loop: sums, what the last trip saw, and values that change places."""
    rows, columns = shape_of(w)
    m, k = w.size(rows), w.size(columns, DEEP)
    with w.block(f'for m in tg.grid(tg.tiles("{m}", {rows})):'):
        shape = (rows, columns)
        whole = Frame(shape, (m, columns), ("m", ":"), (False, True), False)
        kept = [start(w, shape, whole) for _ in range(w.choose.many(1, 3))]
        with w.block(f'for k in tg.tiles("{k}", {columns}):'):
            inner = Frame(shape, (m, k), ("m", "k"), (False, True), True)
            for _ in range(w.choose.many(1, 2)):
                tile = w.load(inner, w.choose.pick(FLOATS), staged=True)
                accumulate(w, w.choose.pick(kept), f'{tile.text}.astype("f32")')
            alike = [t for t in kept[1:] if t.dtype == kept[0].dtype]
            if alike and w.choose.chance(60):
                w.line(f"old = {kept[0].text}")
                w.line(f"{kept[0].text} = {alike[0].text}")
                w.line(f"{alike[0].text} = old")
            if w.choose.chance(30):
                w.store(inner, w.choose.pick(kept))
            if w.choose.chance(30):
                part = folded(w, kept[-1], w.choose.below(2), True, "max")
                w.line(f'{kept[0].text} = {kept[0].text} + (({part.text}) * 0.5).astype("{kept[0].dtype}")')
        for tile in kept:
            w.store(whole, tile)


def nest(w: Writer, frame: Frame, kept: Sequence[Tile], depth: int) -> None:
    """A loop over pieces of the columns, perhaps with another inside, and statements before and after it."""
    shape = frame.shape
    k = w.size(shape[1], (DEEP, 2, 2)[depth], fixed=None if depth == 0 else True)
    index = "ijk"[depth]
    with w.block(f'for {index} in tg.tiles("{k}", {shape[1]}):'):
        inner = Frame(shape, (frame.axes[0], k), (frame.index[0], index), frame.free, True)
        for step in range(2):
            if w.choose.chance(60):
                tile = w.load(inner, w.choose.pick(FLOATS), staged=True)
                accumulate(w, w.choose.pick(kept), f'{tile.text}.astype("f32")')
            if step == 0 and depth < 2 and (depth == 0 or w.choose.chance(40)):
                own = start(w, shape) if w.choose.chance(60) else None
                nest(w, inner, [*kept, own] if own else kept, depth + 1)
                if own:
                    accumulate(w, kept[0], f'{own.text}.astype("f32")')
        if w.choose.chance(30):
            w.store(inner, w.choose.pick(kept))


@feature("nested_loops")
def nested_loops(w: Writer) -> None:
    shape = shape_of(w)
    m = w.size(shape[0], 2)
    with w.block(f'for m in tg.grid(tg.tiles("{m}", {shape[0]})):'):
        frame = Frame(shape, (m, shape[1]), ("m", ":"), (False, True), False)
        kept = [start(w, shape) for _ in range(w.choose.many(1, 2))]
        nest(w, frame, kept, 0)
        for tile in kept:
            w.store(frame, tile)


@feature("sibling_loops")
def sibling_loops(w: Writer) -> None:
    """Loops one after the other over the same tensor, with rings of their own; a tile that is used behind its loop."""
    rows, columns = shape_of(w)
    m, k = w.size(rows, 2), w.size(columns, DEEP)
    shape = (rows, columns)
    with w.block(f'for m in tg.grid(tg.tiles("{m}", {rows})):'):
        whole = Frame(shape, (m, columns), ("m", ":"), (False, True), False)
        inner = Frame(shape, (m, k), ("m", "k"), (False, True), True)
        dtype = w.choose.pick(FLOATS)
        name = w.tensor((m, k), dtype)
        total, last = start(w, shape), w.bind(f'tg.zeros({shape!r}, "{dtype}")', shape, dtype)
        for _ in range(w.choose.many(2, 3)):
            if w.choose.chance(20):
                k = w.size(columns, 2, fixed=True)
                name = w.tensor((m, k), dtype)
            with w.block(f'for k in tg.tiles("{k}", {columns}):'):
                how = w.schedule((m, k), shape, dtype, True, True)
                tile = w.bind(f"tg.load({name}[m, k]{how})", shape, dtype)
                if w.choose.chance(40):
                    w.line(f"{last.text} = {tile.text}")
                accumulate(w, total, f'{tile.text}.astype("f32")')
                if w.choose.chance(25):
                    w.store(Frame(shape, (m, k), inner.index, inner.free, True), total)
            if w.choose.chance(30):
                accumulate(w, total, f'{w.load(whole, w.choose.pick(FLOATS)).text}.astype("f32")')
        w.store(whole, total)
        w.store(whole, last)


@feature("until")
def until(w: Writer) -> None:
    """Loops that end with an enclosing tile: of the grid or of a loop, with tiles of other sizes."""
    rows, columns = w.choose.pick((16, 32, 8, 24)), w.choose.pick((16, 32, 8, 24, 64))
    m = w.size(rows)
    other = m if w.choose.chance(60) else w.size(columns, DEEP)
    outer = f'tg.tiles("{m}", {rows})'
    with w.block(f"for m in tg.grid({outer}):" if w.choose.chance(65) else f"for m in {outer}:"):
        shape = (rows, columns)
        whole = Frame(shape, (m, columns), ("m", ":"), (False, True), False)
        total = start(w, shape)
        with w.block(f'for k in tg.tiles("{other}", {columns}, until=tg.end(m)):'):
            inner = Frame(shape, (m, other), ("m", "k"), (False, True), True)
            tile = w.load(inner, w.choose.pick(FLOATS), staged=True)
            text = f'{tile.text}.astype("f32")'
            if w.choose.chance(60):
                text = f"tg.where(tg.positions(k)[None, :] <= tg.positions(m)[:, None], {text}, 0.0)"
            accumulate(w, total, text)
            if w.choose.chance(40):
                w.store(inner, total)
        if w.choose.chance(30):
            with w.block(f'for k in tg.tiles("{other}", {columns}):'):
                inner = Frame(shape, (m, other), ("m", "k"), (False, True), True)
                accumulate(w, total, f'{w.load(inner, w.choose.pick(FLOATS), staged=True).text}.astype("f32")')
        w.store(whole, total)


POSITIONS = ("{}", "{} // 2", "{} % 2", "{} + 1", "{} * 2 + 1", "({} + 3) // 2 % 3", "{} * {}")


@feature("ranges")
def ranges(w: Writer) -> None:
    """Positions one by one, in the grid and in loops, and what is computed with them, inside the tensor or not."""
    heads, rows, columns = w.size(1, 4), w.choose.pick((8, 16, 4, 24)), w.choose.pick((16, 32, 8, 64))
    m = w.size(rows, 2)
    shape = (rows, columns)

    def front(index: Sequence[str]) -> tuple[tuple[str, str | int], ...]:
        at = w.choose.pick(POSITIONS).format(*[w.choose.pick(index)] * 2)
        if len(index) > 1 and w.choose.chance(40):
            at = f"{at} + {w.choose.pick(index)}"
        return ((at, heads if w.choose.chance(50) else w.choose.many(1, 4)),)

    with w.block(f'for h, m in tg.grid(tg.range("{heads}"), tg.tiles("{m}", {rows})):'):
        total = start(w, shape)
        frame = Frame(shape, (m, columns), ("m", ":"), (False, True), False, front(["h"]))
        accumulate(w, total, f'{w.load(frame, w.choose.pick(FLOATS)).text}.astype("f32")')
        if w.choose.chance(70):
            more = w.size(1, 4, fixed=True)
            with w.block(f'for g in tg.range("{more}"):'):
                for _ in range(w.choose.many(1, 2)):
                    two = front(["g", "h"])
                    if w.choose.chance(30):
                        two = (*two, (str(w.choose.below(3)), 3))
                    inner = Frame(shape, frame.axes, frame.index, frame.free, True, two)
                    tile = w.load(inner, w.choose.pick(FLOATS), staged=True)
                    accumulate(w, total, f'{tile.text}.astype("f32")')
                if w.choose.chance(40):
                    out = Frame(shape, frame.axes, frame.index, frame.free, True, (("h", heads), ("g", more)))
                    w.store(out, total)
        w.store(Frame(shape, frame.axes, frame.index, frame.free, False, (("h", heads),)), total)


@feature("digits")
def digits(w: Writer) -> None:
    """Places in tensors of which an index of the grid and one of a loop are the digits, as positions and as slices."""
    rows, columns = w.choose.pick((8, 16, 4, 24)), w.choose.pick((16, 32, 8, 64))
    m, heads, more = w.size(rows, 2), w.choose.many(1, 4), w.choose.many(1, 3)
    shape = (rows, columns)

    def frame() -> Frame:
        place = f"h * {more} + g" if w.choose.chance(60) else f"g * {heads} + h"
        count = max(heads * more - w.choose.below(2), 1)
        if w.choose.chance(50):
            return Frame(shape, (m, columns), ("m", ":"), (False, True), True, ((place, count),))
        at = f"({place}) * {columns}"
        return Frame(shape, (m, count * columns), ("m", f"{at} : {at} + {columns}"), (False, False), True)

    with w.block(f'for h, m in tg.grid(tg.range({heads}), tg.tiles("{m}", {rows})):'):
        total = start(w, shape)
        with w.block(f"for g in tg.range({more}):"):
            tile = w.load(frame(), w.choose.pick(FLOATS), staged=True)
            accumulate(w, total, f'{tile.text}.astype("f32")')
            w.store(frame(), tile if w.choose.chance(50) else total)
            if w.choose.chance(30):
                w.store(frame(), total)


@feature("rings")
def rings(w: Writer) -> None:
    """Several staged tiles of one loop with unequal rings, copied in different ways and read in different ones."""
    rows, columns = shape_of(w)
    m, k = w.size(rows, 2), w.size(columns, 7)
    shape = (rows, columns)
    with w.block(f'for m in tg.grid(tg.tiles("{m}", {rows})):'):
        whole = Frame(shape, (m, columns), ("m", ":"), (False, True), False)
        inner = Frame(shape, (m, k), ("m", "k"), (False, True), True)
        total = w.bind(f"tg.zeros({shape!r})", shape, "f32")
        turned = w.bind(f"tg.zeros({shape[::-1]!r})", shape[::-1], "f32")
        with w.block(f'for k in tg.tiles("{k}", {columns}):'):
            tiles = []
            for _ in range(w.choose.many(1, 4)):
                tiles.append(w.load(inner, w.choose.pick(FLOATS), staged=True))
                if w.choose.chance(40):
                    accumulate(w, total, f'{tiles[-1].text}.astype("f32")')
            for tile in tiles:
                if w.choose.chance(40):
                    accumulate(w, turned, f'{tile.text}.T.astype("f32")')
            same = [Tile(f'{t.text}.astype("f32")', shape, "f32") for t in tiles]
            accumulate(w, total, arithmetic_of(w, same)[0])
        w.store(whole, w.bind(f"{total.text} + {turned.text}.T", shape, joint("f32", "f32")))


@feature("windows")
def windows(w: Writer) -> None:
    """Tensors of rank 1 to 4: tiles, whole axes, fixed sizes, in any order of axes and with tiles of one element."""
    with w.frame((4, 3, 2, 1, 4), (8, 4, 16, 2, 1, 3, 32, 5), 1024) as frame:
        order = list(range(frame.rank))
        if frame.rank == 2 and w.choose.chance(50):
            order = [1, 0]
        tile = w.load(frame, w.choose.pick(FLOATS), order)
        text = f"{tile.text}.T" if order == [1, 0] else tile.text
        result = w.bind(f"{text} * 2 - 1", frame.shape, tile.dtype)
        w.store(frame, result)


@feature("several_outputs")
def several_outputs(w: Writer) -> None:
    """Outputs at several depths, of one tile and of several, one of them written more than once."""
    rows, columns = shape_of(w)
    m, k = w.size(rows), w.size(columns, DEEP)
    shape = (rows, columns)
    with w.block(f'for m in tg.grid(tg.tiles("{m}", {rows})):'):
        whole = Frame(shape, (m, columns), ("m", ":"), (False, True), False)
        inner = Frame(shape, (m, k), ("m", "k"), (False, True), True)
        a = w.load(whole, w.choose.pick(FLOATS))
        again = w.parameter("Out", (m, columns), a.dtype)
        w.line(f"{again}[m, :] = {a.text}")
        w.store(whole, a)
        with w.block(f'for k in tg.tiles("{k}", {columns}):'):
            tile = w.load(inner, w.choose.pick(FLOATS), staged=True)
            for _ in range(w.choose.many(1, 3)):
                w.store(inner, w.bind(arithmetic_of(w, [tile])[0], shape, tile.dtype))
            if w.choose.chance(50):
                w.line(f'{again}[m, :] = ({a.text} + {tile.text}.astype("f32")).astype("{a.dtype}")')
        if w.choose.chance(50):
            w.line(f"{again}[m, :] = {a.text} * 2")


@feature("grids")
def grids(w: Writer) -> None:
    """Grids of one to four axes, tiles and positions, in any order; kernels without a grid."""
    rank = w.choose.pick((2, 1, 3, 4))
    heads: list[str] = []
    front: list[tuple[str, str | int]] = []
    shape, axes, index = [], [], []
    for a in range(rank):
        tile = w.choose.pick([s for s in (*SIDES, 1) if s <= 512 >> 3 * a])
        if a < rank - 1 and w.choose.chance(35):
            size = w.size(1, 3)
            front.append(("hijk"[a], size))
            heads.append(f'tg.range("{size}")')
        else:
            size = w.size(tile)
            shape.append(tile)
            axes.append(size)
            index.append("mnpq"[a])
            heads.append(f'tg.tiles("{size}", {tile})')
    names = [n for n, _ in front]
    order = [*names, *index]
    ways = {**dict(zip(names, [h for h in heads if "range" in h], strict=True))}
    ways |= dict(zip(index, [h for h in heads if "tiles" in h], strict=True))
    if w.choose.chance(50):
        order.reverse()
    with w.block(f"for {', '.join(order)} in tg.grid({', '.join(ways[n] for n in order)}):"):
        frame = Frame(tuple(shape), tuple(axes), tuple(index), (False,) * len(shape), False, tuple(front))
        tile = w.load(frame, w.choose.pick(FLOATS))
        if front and w.choose.chance(50):  # without the positions: read by several CTAs
            other = w.load(Frame(frame.shape, frame.axes, frame.index, frame.free, False), tile.dtype)
            tile = w.bind(f"{tile.text} + {other.text}", frame.shape, tile.dtype)
        w.store(frame, tile)
