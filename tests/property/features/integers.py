"""Generators of element types: integers and their bits, masks and folds, narrow floats, conversions, all in memory."""

from __future__ import annotations

from collections.abc import Sequence

import tidegate as tg
from features.elementwise import COMPARISONS, chain
from features.program import DTYPES, Frame, Tile, Writer, feature
from features.tiles import FOLDS, folded, multiply

INTEGERS = ("i32", "i8", "i64")
NARROW = ("f8e4m3", "f8e5m2")
ALL = ("f32", "i32", "f16", "i8", "bf16", "bool", "f8e4m3", "i64", "f8e5m2")
MODERN = hasattr(tg, "argmax") and "i8" in DTYPES and hasattr(tg, "arange")

NUMBERS = {"i8": ("1", "-3", "7", "127", "-128", "0"), "i32": ("1", "-3", "7", "65537", "-2147483648", "0")}
NUMBERS["i64"] = (*NUMBERS["i32"], "2**31 - 1")


def whole_number_of(w: Writer, tiles: Sequence[Tile]) -> tuple[str, str]:
    """An operation on integer tiles of one shape."""
    a, b = (tiles[-1 - w.choose.below(len(tiles))] for _ in range(2))
    right = b.text if b.dtype == a.dtype else f'{b.text}.astype("{a.dtype}")'
    if w.choose.chance(40):
        right = w.choose.pick(NUMBERS[a.dtype])
    way = w.choose.below(9)
    if way < 3:
        return f"{a.text} {w.choose.pick(('+', '-', '*', '//', '%', '&', '|', '^'))} {right}", a.dtype
    if way == 3:
        return f"{a.text} {w.choose.pick(('<<', '>>'))} {w.choose.pick(('1', '7', '31', '40', right))}", a.dtype
    if way == 4:
        return w.choose.pick(("-{}", "~{}", "tg.abs({})", "tg.sign({})", "{} ** 3", "tg.square({})")).format(
            a.text
        ), a.dtype
    if way == 5:
        return f"tg.{w.choose.pick(('maximum', 'minimum'))}({a.text}, {right})", a.dtype
    if way == 6:
        mask = f"{a.text} {w.choose.pick(COMPARISONS)} {right}"
        if w.choose.chance(40):
            mask = f"({mask}) {w.choose.pick('&|^')} ({a.text} > 3)"
        return f"tg.where({mask}, {a.text}, {right})", a.dtype
    if way == 7:
        return f"tg.clip({a.text}, {w.choose.pick(('-5', '0'))}, {w.choose.pick(('100', '9'))})", a.dtype
    dtype = w.choose.pick(INTEGERS)
    return f'{a.text}.astype("{dtype}")', dtype


@feature("integers", MODERN)
def integers(w: Writer) -> None:
    """Arithmetic, bits and shifts, with the ends of the range and divisors of 0."""
    chain(w, whole_number_of, w.choose.pick(("special", "normal")), INTEGERS)


@feature("arange", MODERN)
def arange(w: Writer) -> None:
    """Numbers along an axis, of any start, step and type, in arithmetic and masks."""
    with w.frame((2, 1, 3)) as frame:
        a = w.choose.below(frame.rank)
        length, first, step = frame.shape[a], w.choose.pick((0, -5, 3)), w.choose.pick((1, 2, -3))
        dtype = w.choose.pick(("i32", "f32", "i64", "f16", "i8"))
        text = f'tg.arange({first}, {first + step * length}, {step}, dtype="{dtype}")'
        if (first, step, dtype) == (0, 1, "i32"):
            text = w.choose.pick((f"tg.arange({length})", text))
        line = w.bind(text, (length,), dtype)
        shown = f"{line.text}[{', '.join(':' if b == a else 'None' for b in range(frame.rank))}]"
        if frame.rank == 1:
            shown = line.text
        tile = w.load(frame, w.choose.pick(("f32", "i32", "bf16")))
        wide = f'{shown}.astype("{tile.dtype}")'
        way = w.choose.pick(("{t} + {n}", "tg.where({n} > 3, {t}, {n})", "tg.maximum({t}, {n}) * {n}", "{n} - {t}"))
        w.store(frame, w.bind(way.format(t=tile.text, n=wide), frame.shape, tile.dtype))


@feature("integer_reductions", MODERN)
def integer_reductions(w: Writer) -> None:
    """Sums that wrap, extremes, counts of masks, any and all, by axis, with several warps."""
    with w.frame((2, 1, 2, 3), (2, 16, 32, 8, 64, 24, 1, 128)) as frame:
        tile = w.load(frame, w.choose.pick((*INTEGERS, "bool")), values=w.choose.pick(("special", "normal")))
        free = [a for a in range(frame.rank) if frame.free[a]]
        axis = w.choose.pick(free or range(frame.rank))
        keep = axis not in free or frame.rank == 1 or w.choose.chance(30)
        folds = ("sum", "any", "all") if tile.dtype == "bool" else (*FOLDS, "sum", "any", "all")
        source = tile
        if w.choose.chance(30) and tile.dtype != "bool":
            source, folds = Tile(f"({tile.text} > 3)", tile.shape, "bool"), ("sum", "any", "all")
        fold = w.choose.pick(folds)
        part = folded(w, source, axis, keep, fold)
        dtype = (
            "bool"
            if fold in ("any", "all")
            else "i32"
            if fold == "sum" and source.dtype in ("i8", "bool")
            else source.dtype
        )
        part = w.bind(part.text, part.shape, dtype)
        finish(w, frame, tile, part, axis, keep)


def finish(w: Writer, frame: Frame, tile: Tile, part: Tile, axis: int, keep: bool) -> None:
    """Stores a folded tile, or spreads it beside what it folds where a grid axis must stay."""
    if not keep:
        w.store(frame, part, [a for a in range(frame.rank) if a != axis])
        return
    full = f'tg.zeros({frame.shape!r}, "i32") + {part.text}.astype("i32")'
    if part.dtype in ("i64", "f32", "f16", "bf16"):
        full = f'tg.zeros({frame.shape!r}, "{part.dtype}") + {part.text}'
    w.store(frame, w.bind(full, frame.shape, part.dtype if "i32" not in full else "i32"))
    if tile.dtype == part.dtype and tile.dtype != "bool":
        w.store(frame, w.bind(f"tg.where({tile.text} == {part.text}, {tile.text}, 0)", frame.shape, tile.dtype))


@feature("arg_reductions", MODERN)
def arg_reductions(w: Writer) -> None:
    """Where the largest and smallest elements are, with ties and NaN; means."""
    with w.frame((2, 1, 2, 3), (2, 16, 32, 8, 64, 24, 1, 128)) as frame:
        dtype = w.choose.pick(("f32", "i32", "bf16", "f16", "i8", "i64", "f8e4m3"))
        values = w.choose.pick(((-2, 2), "special", "normal"))
        tile = w.load(frame, dtype, values=values)
        free = [a for a in range(frame.rank) if frame.free[a]]
        axis = w.choose.pick(free or range(frame.rank))
        keep = axis not in free or frame.rank == 1 or w.choose.chance(30)
        mean = DTYPES[dtype].floating and dtype not in NARROW and w.choose.chance(30)
        part = folded(w, tile, axis, keep, "mean" if mean else w.choose.pick(("argmax", "argmin")))
        part = w.bind(part.text, part.shape, dtype if mean else "i32")
        finish(w, frame, tile, part, axis, keep)


# ------------------------------------------------------------------------------------------ all types


@feature("element_types", MODERN)
def element_types(w: Writer) -> None:
    """Tiles of every type through registers and shared memory, transposed or not, without arithmetic."""
    dtype = w.choose.pick(ALL)
    with w.frame((2, 1, 3, 2)) as frame:
        tile = w.load(frame, dtype, values=w.choose.pick(("normal", "special")), staged=w.choose.chance(60))
        if frame.rank == 2 and w.choose.chance(60):
            w.store(frame, Tile(f"{tile.text}.T", tile.shape[::-1], dtype), (1, 0), exact=True)
        w.store(frame, tile, exact=True)


@feature("conversions", MODERN)
def conversions(w: Writer) -> None:
    """Casts from any type to any other, one after the other."""
    with w.frame() as frame:
        tile = w.load(frame, w.choose.pick(ALL), values=w.choose.pick(("special", "normal")))
        for _ in range(w.choose.many(1, 3)):
            dtype = w.choose.pick(ALL)
            tile = w.bind(f'{tile.text}.astype("{dtype}")', tile.shape, dtype)
            if DTYPES[dtype].floating and dtype not in NARROW and w.choose.chance(40):
                tile = w.bind(f"{tile.text} * {w.choose.pick(('100', '0.3', '-3e4'))}", tile.shape, dtype)
        w.store(frame, tile, exact=True)


@feature("narrow_floats", MODERN)
def narrow_floats(w: Writer) -> None:
    """Arithmetic on 8-bit floats, alone and beside f32: computed in f32, saturated."""

    def of(w: Writer, tiles: Sequence[Tile]) -> tuple[str, str]:
        a, b = (tiles[-1 - w.choose.below(len(tiles))] for _ in range(2))
        if {a.dtype, b.dtype} == set(NARROW):
            b = Tile(f'{b.text}.astype("{a.dtype}")', b.shape, a.dtype)
        joint = a.dtype if a.dtype == b.dtype else "f32"
        way = w.choose.below(5)
        if way == 0:
            return f"{a.text} {w.choose.pick('+-*')} {b.text}", joint
        if way == 1:
            return f"{a.text} {w.choose.pick('*+/')} {w.choose.pick(('3', '0.5', '100.0'))}", a.dtype
        if way == 2:
            return f"tg.where({a.text} > {b.text}, {a.text}, {b.text})", joint
        if way == 3:
            return w.choose.pick(("-{}", "tg.abs({})", "tg.maximum({}, 0.5)", "tg.floor({})")).format(a.text), a.dtype
        other = w.choose.pick((*NARROW, "f32"))
        return f'{a.text}.astype("{other}")', other

    chain(w, of, w.choose.pick(("special", "normal")), (*NARROW, "f32"))


@feature("more_functions", MODERN)
def more_functions(w: Writer) -> None:
    """Rounding, floor division and remainders, powers, and the functions that came later."""
    small = "tg.clip({}, -20, 20)"
    functions = [
        *(f"tg.{n}({{0}})" for n in ("floor", "ceil", "trunc", "round", "sign", "square")),
        *(f"tg.{n}({small.format('{0}')})" for n in ("sin", "cos", "expm1", "erf", "tanh")),
        *("tg.log1p(tg.abs({0}))", "tg.reciprocal(tg.abs({0}) + 0.5)", "{0} ** 3", "tg.pow({0}, 2)"),
        *("(tg.abs({0}) + 0.5) ** -2", "{0} // 0.75", "{0} % 0.75", "{0} // -2", "0.5 % (tg.abs({0}) + 1)"),
        *("tg.clip({0}, -0.5, 0.5)", "tg.clip({0}, max=0.25)", "tg.where(tg.isfinite({0}), {0}, 0.0)"),
        *("tg.where(tg.isnan({0}) | tg.isinf({0}), 1.0, {0})", "tg.where(tg.logical_xor({0} > 0, {0}), {0}, 2.0)"),
    ]

    def of(w: Writer, tiles: Sequence[Tile]) -> tuple[str, str]:
        a = tiles[-1 - w.choose.below(len(tiles))]
        return w.choose.pick(functions).format(a.text), a.dtype

    chain(w, of, w.choose.pick(("normal", "normal", "special")))


@feature("kinds_of_products", MODERN)
def kinds_of_products(w: Writer) -> None:
    """Products of f32 rounded to tf32, of i8 and of 8-bit floats, operands as they lie or transposed."""
    kind = w.choose.pick(("f32", "i8", "f8e4m3", "f8e5m2"))
    other = kind
    if kind in NARROW:
        w.targets = ("sm_89", "sm_90a")
        other = w.choose.pick((kind, *NARROW))
    multiply(w, (16, 32, 64, 8, 48), (32, 64, 96) if kind != "f32" else (16, 32, 8, 24), kind, other)
