"""Generators of the elementwise features: arithmetic, functions, masks, promotion, broadcasting, compile time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from strategies import broadcast

from features.program import FLOATS, Frame, Tile, Writer, feature

NUMBERS = ("1.0", "0.5", "2", "-1.5", "0.1", "3", "-0.25", "0")
FUNCTIONS = (
    "tg.abs({})",
    "tg.sqrt(tg.abs({}))",
    "tg.rsqrt(tg.abs({}) + 0.5)",
    "tg.exp2(tg.minimum({}, 3.0))",
    "tg.exp(tg.minimum({}, 2.0))",
    "tg.log(tg.abs({}) + 0.5)",
    "tg.log2(tg.abs({}) + 0.25)",
    "tg.tanh({})",
)
"""Kept where they are defined and their values small."""
COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")


def joint(a: str, b: str) -> str:
    """The dtype of f32, f16 and bf16 operands together."""
    return a if a == b else "f32"


def operand(w: Writer, tiles: Sequence[Tile]) -> Tile:
    """One of the tiles, mostly a young one; for f16 beside bf16 see :func:`pair`."""
    return tiles[-1 - w.choose.below(len(tiles))]


def pair(w: Writer, tiles: Sequence[Tile]) -> tuple[Tile, Tile]:
    """Two tiles that may be computed with each other."""
    a, b = operand(w, tiles), operand(w, tiles)
    if {a.dtype, b.dtype} == {"f16", "bf16"}:
        b = Tile(f'{b.text}.astype("{a.dtype}")', b.shape, a.dtype)
    return a, b


def arithmetic_of(w: Writer, tiles: Sequence[Tile]) -> tuple[str, str]:
    """(text, dtype) of an arithmetic operation on tiles of one shape."""
    a, b = pair(w, tiles)
    way = w.choose.below(8)
    if way == 0:
        return f"{a.text} + {b.text}", joint(a.dtype, b.dtype)
    if way == 1:
        return f"{a.text} {w.choose.pick('*+-')} {w.choose.pick(NUMBERS)}", a.dtype
    if way == 2:
        return f"{w.choose.pick(NUMBERS)} {w.choose.pick('-+*')} {a.text}", a.dtype
    if way == 3:
        return f"-{a.text}", a.dtype
    if way == 4:
        divisor = w.choose.pick((b.text, f"(tg.abs({b.text}) + 0.5)", "3.0"))
        return f"{a.text} / {divisor}", a.dtype if divisor == "3.0" else joint(a.dtype, b.dtype)
    if way == 5:
        return f"{w.choose.pick(('1', '2.5'))} / (tg.abs({a.text}) + 1)", a.dtype
    operator = w.choose.pick("-*+")
    if way == 6:
        return f"({a.text} {operator} {b.text}) * 0.5", joint(a.dtype, b.dtype)
    return f"{a.text} {operator} {b.text}", joint(a.dtype, b.dtype)


def function_of(w: Writer, tiles: Sequence[Tile]) -> tuple[str, str]:
    if w.choose.chance(30):
        a, b = pair(w, tiles)
        other = w.choose.pick((b.text, w.choose.pick(NUMBERS)))
        dtype = joint(a.dtype, b.dtype) if other == b.text else a.dtype
        return f"tg.{w.choose.pick(('maximum', 'minimum'))}({a.text}, {other})", dtype
    a = operand(w, tiles)
    return w.choose.pick(FUNCTIONS).format(a.text), a.dtype


def mask_of(w: Writer, tiles: Sequence[Tile], depth: int = 0) -> str:
    """A mask over floating tiles of one shape."""
    if depth < 2 and w.choose.chance(35):
        one, two = mask_of(w, tiles, depth + 1), mask_of(w, tiles, depth + 1)
        return w.choose.pick((f"(({one}) & ({two}))", f"(({one}) | ({two}))", f"~({one})"))
    a, b = pair(w, tiles)
    right = w.choose.pick((b.text, w.choose.pick(NUMBERS)))
    if w.choose.chance(10):
        return f"({a.text} > 0).astype({w.choose.pick(FLOATS)!r}).astype('bool')"
    if w.choose.chance(10):
        one, two = f"({a.text} > 0).astype({a.dtype!r})", f"({b.text} < 0.5).astype({a.dtype!r})"
        return f"{one} {w.choose.pick(('>', '<=', '=='))} {two}"
    return f"{a.text} {w.choose.pick(COMPARISONS)} {right}"


def where_of(w: Writer, tiles: Sequence[Tile]) -> tuple[str, str]:
    a, b = pair(w, tiles)
    mask = mask_of(w, tiles)
    way = w.choose.below(4)
    if way == 0:
        return f"tg.where({mask}, {a.text}, {w.choose.pick(NUMBERS)})", a.dtype
    if way == 1:
        return f"tg.where({mask}, {w.choose.pick(NUMBERS)}, {a.text})", a.dtype
    return f"tg.where({mask}, {a.text}, {b.text})", joint(a.dtype, b.dtype)


def chain(
    w: Writer,
    of: Callable[[Writer, Sequence[Tile]], tuple[str, str]],
    values: str = "normal",
    dtypes: Sequence[str] = FLOATS,
) -> None:
    """Loads, some operations and stores of the results, all of one shape."""
    with w.frame() as frame:
        loaded = [w.load(frame, w.choose.pick(dtypes), values=values) for _ in range(w.choose.many(1, 3))]
        tiles = list(loaded)
        for _ in range(w.choose.many(1, 4)):
            text, dtype = of(w, tiles)
            tiles.append(w.bind(text, frame.shape, dtype))
        for tile in tiles[len(loaded) :][-1 - w.choose.below(2) :]:
            w.store(frame, tile)


@feature("arithmetic")
def arithmetic(w: Writer) -> None:
    chain(w, arithmetic_of, w.choose.pick(("normal", "normal", "special")))


@feature("functions")
def functions(w: Writer) -> None:
    chain(w, function_of, w.choose.pick(("normal", "normal", "special")))


@feature("masks")
def masks(w: Writer) -> None:
    chain(w, where_of, w.choose.pick(("normal", "special")))


@feature("positions")
def positions(w: Writer) -> None:
    """Masks by the position of an element: triangles, bands, single columns."""
    with w.frame((2, 1, 2)) as frame:
        tile = w.load(frame, w.choose.pick(FLOATS))
        known = [a for a in range(frame.rank) if frame.index[a] != ":"]
        terms = []
        for a in known:
            name = w.bind(f"tg.positions({frame.index[a]})", (frame.shape[a],), "i32", "at").text
            terms.append(f"{name}[:, None]" if frame.rank == 2 and a == 0 else name)
        if not terms:
            w.store(frame, w.bind(f"{tile.text} * 2", tile.shape, tile.dtype))
            return
        limit = w.choose.pick((0, 1, 7, 16, 33))
        first = w.choose.pick(terms)
        mask = f"{first} {w.choose.pick(COMPARISONS)} {limit}"
        if len(terms) == 2 and w.choose.chance(60):
            mask = f"{terms[0]} {w.choose.pick(COMPARISONS)} {terms[1]} {w.choose.pick(('+', '-', '* 2 -'))} {limit}"
        if w.choose.chance(30):
            mask = f"({mask}) & (tg.maximum({first}, 3) > 2)"
        tile = w.bind(f"tg.where({mask}, {tile.text}, {w.choose.pick(NUMBERS)})", tile.shape, tile.dtype)
        if w.choose.chance(30):
            tile = w.bind(f'{tile.text} + {first}.astype("f32")', tile.shape, "f32")
        w.store(frame, tile)


@feature("promotion")
def promotion(w: Writer) -> None:
    """Weak numbers, casts one after the other, mixed dtypes."""

    def of(w: Writer, tiles: Sequence[Tile]) -> tuple[str, str]:
        a = operand(w, tiles)
        way = w.choose.below(5)
        if way == 0:
            number = w.choose.pick(("0.1", "1 / 3", "65504", "-1e-3", "np.float32(0.7)", "np.float64(1) / 7", "2**12"))
            return f"{a.text} {w.choose.pick('*+-')} {number}", a.dtype
        if way == 1:
            dtype = w.choose.pick(FLOATS)
            return f'{a.text}.astype("{dtype}")', dtype
        if way == 2:
            one, two = w.choose.pick(FLOATS), w.choose.pick(FLOATS)
            return f'{a.text}.astype("{one}").astype("{two}")', two
        if way == 3:
            b = operand(w, tiles)
            dtype = w.choose.pick((b.text + ".dtype", f'"{b.dtype}"'))
            return f"{a.text}.astype({dtype}) + {b.text}", b.dtype
        return arithmetic_of(w, tiles)

    chain(w, of, w.choose.pick(("normal", "special")))


@feature("broadcasting")
def broadcasting(w: Writer) -> None:
    """Tiles of fewer axes, axes of one element, new axes; sums of rows with columns."""
    with w.frame((2, 3, 2)) as frame:
        tiles = [part_of(w, frame) for _ in range(w.choose.many(2, 4))]
        a = tiles[0]
        for b in tiles[1:]:
            shape = broadcast(a.shape, b.shape)
            assert shape is not None
            text, other = b.text, b.dtype
            if {a.dtype, other} == {"f16", "bf16"}:
                text, other = f'{text}.astype("{a.dtype}")', a.dtype
            a = w.bind(f"{a.text} {w.choose.pick('+-*')} {text}", shape, joint(a.dtype, other))
        if a.shape != frame.shape:
            full = Tile(f'tg.full({frame.shape!r}, 1.0, "{a.dtype}")', frame.shape, a.dtype)
            way = w.choose.pick(("{a} + {full}", "{full} * {a}", "tg.where({a} > 0, {a}, {full})"))
            a = w.bind(way.format(a=a.text, full=full.text), frame.shape, a.dtype)
        w.store(frame, a)


def part_of(w: Writer, frame: Frame) -> Tile:
    """A loaded tile with some of the frame's axes, shaped so that it broadcasts to all of them."""
    axes = [a for a in range(frame.rank) if w.choose.chance(60)] or [w.choose.below(frame.rank)]
    tile = w.load(frame, w.choose.pick(FLOATS), axes)
    first = 0 if w.choose.chance(50) else axes[0]
    items = [":" if a in axes else "None" for a in range(first, frame.rank)]
    shape = tuple(frame.shape[a] if a in axes else 1 for a in range(first, frame.rank))
    text = tile.text if "None" not in items else f"{tile.text}[{', '.join(items)}]"
    return Tile(text, shape, tile.dtype)


@feature("compile_time")
def compile_time(w: Writer) -> None:
    """Constants, branches and expressions that are decided when the kernel is compiled."""
    w.constants |= {"FLAG": w.choose.chance(50), "SCALE": w.choose.pick((2, 0.5, -1)), "WAY": w.choose.pick(("a", "b"))}
    w.before += ["", "", "def half(x):", "    return x / 2", "", "", "TABLE = (1.0, 0.25, 3)"]
    if w.choose.chance(50):
        w.given["FLAG"] = not w.constants["FLAG"]
    with w.frame() as frame:
        tile = w.load(frame, w.choose.pick(FLOATS))
        number = w.choose.pick(("SCALE", "half(SCALE)", "TABLE[1]", "half(3)", "len(TABLE)", "SCALE if FLAG else 4"))
        tile = w.bind(f"{tile.text} * ({number})", tile.shape, tile.dtype)
        name = w.bind(f"{tile.text} + 0", tile.shape, tile.dtype).text
        with w.block(w.choose.pick(("if FLAG:", "if not FLAG and WAY == 'a':", f"if {name}.shape[0] > 16:"))):
            w.line(f"{name} = {name} + {w.choose.pick(NUMBERS)}")
            if w.choose.chance(50):
                w.line(f"factor = {w.choose.pick(('SCALE + 1', 'TABLE[0]', 'half(half(8))'))}")
                w.line(f"{name} = {name} * factor")
        if w.choose.chance(60):
            with w.block(f"elif {w.choose.pick(('WAY == chr(97)', 'SCALE > 1', f'{name}.dtype == str(1)'))}:"):
                w.line(f"{name} = -{name}")
        with w.block("else:"):
            text = f"{name} * {w.choose.pick(NUMBERS)} if {w.choose.pick(('FLAG', 'SCALE < 1'))} else {name} - 1"
            w.line(f"{name} = {text}")
        w.store(frame, Tile(name, tile.shape, tile.dtype))
