"""Random scheduled programs: the text of a ``@tg.kernel`` function, and sizes to run it with.

A program is written by one function that asks a :class:`Chooser` for every decision, so Hypothesis can shrink it and a
seeded generator can make thousands.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hypothesis import strategies as st
from language import HEAD, PARTS
from pieces import (
    DTYPES,
    FOLDS,
    FUNCTIONS,
    LINES,
    ODD_NAMES,
    POSITIONS,
    SIDES,
    Chooser,
    Dim,
    RandomProgram,
    Tile,
    broadcast,
)


@dataclass
class _Writer:
    choose: Chooser
    lines: list[str] = field(default_factory=list)
    dims: list[Dim] = field(default_factory=list)
    tensors: list[tuple[str, tuple[str | int, ...], str, bool]] = field(default_factory=list)
    grid: tuple[Dim, ...] = ()
    numbers: int = 0
    multiple: int = 1
    sides: tuple[int, ...] = ()
    line: int = 32
    budget: int = 12
    loops: int = 0

    def fresh(self, prefix: str) -> str:
        self.numbers += 1
        return f"{prefix}{self.numbers}"

    def write(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    # ------------------------------------------------------------------------------------------ sizes

    def dim(self, tile: int, trips: int, fixed: bool, integer: bool = False) -> Dim:
        fixed = fixed or sum(not d.fixed for d in self.dims) > 4
        ragged = self.choose.many(0, tile - 1) if trips and self.choose.chance(50) else 0
        size = max(trips * tile - ragged, 0)
        if not fixed:
            size = -(-size // self.multiple) * self.multiple
        made = Dim(self.fresh("N"), tile, size, fixed, integer)
        self.dims.append(made)
        return made

    def trips(self, depth: int) -> int:
        return self.choose.many(0, (7, 3, 2)[min(depth, 2)])

    # ------------------------------------------------------------------------------------------ tensors

    def axis(self, size: int, scope: Sequence[tuple[str, Dim]]) -> tuple[str, str | int]:
        """(index text, size of the tensor's axis) for a window of ``size`` along one axis."""
        options = [(index, d.name) for index, d in scope if d.tile == size and not d.integer]
        if not options or self.choose.chance(25):
            return ":", size
        return options[-1 - self.choose.below(len(options))]

    def gathered(self, axis: tuple[str, str | int]) -> tuple[str, str | int]:
        """Rows whose numbers a tensor holds; the axis is that of the numbers."""
        rows = self.tensor([axis[1]], "i32", False)
        more = self.choose.pick(("", "", " + 1", " * 2", " // 2"))
        return f"tg.load({rows}[{axis[0]}]){more}", self.choose.many(1, 20)

    def moved(self, axis: tuple[str, str | int], scope: Sequence[tuple[str, Dim]]) -> tuple[str, str | int]:
        """A tile's window moved by a few elements."""
        if axis[0] not in {index for index, d in scope if not d.integer}:
            return axis
        by = self.choose.pick((" - 1", " + 1", " - 8", " + 4", ""))
        return f"tg.begin({axis[0]}){by} : tg.end({axis[0]}){by}", axis[1]

    def positions(self, scope: Sequence[tuple[str, Dim]]) -> list[tuple[str, str | int]]:
        """Axes that the tile does not have: integer indices, some of them beyond the tensor."""
        indices = [(i, d) for i, d in scope if d.integer]
        if not self.choose.chance(50 if indices else 8):
            return []
        out: list[tuple[str, str | int]] = []
        for _ in range(self.choose.many(1, 2)):
            if indices and self.choose.chance(80):
                index, d = self.choose.pick(indices)
                size: str | int = d.name if d.name and self.choose.chance(60) else self.choose.many(1, 3)
                out.append((self.choose.pick(POSITIONS).format(index), size))
            else:
                length = self.choose.many(1, 3)
                out.append((str(self.choose.below(length)), length))
        return out

    def tensor(self, axes: Sequence[str | int], dtype: str, output: bool) -> str:
        """A parameter of that shape, often one that is there already."""
        same = [n for n, s, d, o in self.tensors if (s, d, o) == (tuple(axes), dtype, output)]
        if same and self.choose.chance(40):
            return self.choose.pick(same)
        name = self.fresh("out" if output else "a")
        self.tensors.append((name, tuple(axes), dtype, output))
        return name

    def shape(self) -> tuple[int, ...]:
        if self.grid:
            return tuple(self.choose.pick(self.sides) for _ in range(2))
        kind = self.choose.below(14)
        if kind < 6:
            return self.choose.pick(self.sides), self.choose.pick(self.sides)
        if kind < 10:
            return (self.line,) if kind < 8 else (1, self.line)
        if kind < 12:
            return (self.choose.pick(self.sides),)
        return (2, self.choose.pick(self.sides), 8) if kind < 13 else (self.choose.pick(self.sides), 1)

    # ------------------------------------------------------------------------------------------ statements

    def load(self, depth: int, scope: list[tuple[str, Dim]], tiles: list[Tile], shape: tuple[int, ...] | None) -> None:
        shape = shape or self.shape()
        dtype = self.choose.pick(DTYPES)
        axes = [self.axis(s, scope) for s in shape]
        if "gathers" in PARTS and len(shape) == 2 and self.choose.chance(12):
            axes[0] = self.gathered(axes[0])
        elif "slices" in PARTS:
            axes = [self.moved(axis, scope) if self.choose.chance(8) else axis for axis in axes]
        for position in self.positions(scope):
            axes.insert(self.choose.below(len(axes)), position)
        name = self.name(tiles)
        by = self.choose.pick(("by=cuda.cp_async()", "by=cuda.cp_async()", "by=cuda.ld()", ""))
        in_loop = len(scope) > len(self.grid)
        stages = self.choose.pick((1, 2, 3, 4, 5, 1, 2, 3)) if in_loop else 1
        to = self.choose.pick(("", "", "", "", 'to="shared"', 'to="registers"'))
        if to.endswith('registers"') and (stages > 1 or "cp_async" in by):
            to = ""
        extra = [e for e in (by, f"stages={stages}" if stages > 1 else "", to) if e]
        tensor = self.tensor([a for _, a in axes], dtype, False)
        window = f"{tensor}[{', '.join(i for i, _ in axes)}]"
        self.write(depth, f"{name} = tg.load({', '.join([window, *extra])})")
        self.bind(tiles, Tile(name, shape, dtype))

    def name(self, tiles: list[Tile]) -> str:
        odd = [n for n in ODD_NAMES if n not in {t.name for t in tiles}]
        return self.choose.pick(odd) if odd and self.choose.chance(6) else self.fresh("t")

    def bind(self, tiles: list[Tile], tile: Tile) -> None:
        tiles[:] = [t for t in tiles if t.name != tile.name] + [tile]

    def some(self, tiles: list[Tile], wanted: Callable[[Tile], bool] = lambda _: True) -> Tile | None:
        """A tile, mostly a young one."""
        found = [t for t in tiles if wanted(t)]
        return found[-1 - min(self.choose.below(len(found)), self.choose.below(len(found)))] if found else None

    def value(self, tiles: list[Tile], shape: tuple[int, ...], dtype: str | None) -> tuple[str, str]:
        """(text, dtype) of an operand of that shape."""
        found = self.some(tiles, lambda t: t.shape == shape)
        turned = self.some(tiles, lambda t: len(t.shape) == 2 and t.shape[::-1] == shape)
        if turned and (not found or self.choose.chance(30)):
            text, kind = f"{turned.name}.T", turned.dtype
            if self.choose.chance(10) and shape[0] == shape[1]:
                text = f"{turned.name}.T.T"
        elif found:
            text, kind = found.name, found.dtype
        else:
            kind = dtype or "f32"
            text = f'tg.full({shape!r}, 0.5, "{kind}")'
        if dtype and kind != dtype:
            return f'{text}.astype("{dtype}")', dtype
        return text, kind

    def expression(self, tiles: list[Tile]) -> tuple[str, Tile]:
        """An elementwise expression over tiles; the result's name is empty."""
        first = self.some(tiles)
        assert first is not None
        shape = first.shape[::-1] if self.choose.chance(25) and len(first.shape) == 2 else first.shape
        left, dtype = self.value(tiles, shape, None)
        kind = self.choose.below(10)
        if kind in (8, 9):
            return self.choose.pick(FUNCTIONS).format(left), Tile("", shape, dtype)
        if kind == 0:
            other = self.choose.pick(("f32", "bf16", "f16"))
            return f'({left}).astype("{other}")', Tile("", shape, other)
        if kind == 1:
            return f"-({left})", Tile("", shape, dtype)
        if kind in (2, 3):
            return f"{left} {self.choose.pick(('* 0.5', '+ 1.0', '- 0.25', '* -1.5', '/ 2.0'))}", Tile("", shape, dtype)
        right, other, shape = self.partner(tiles, shape)
        if {dtype, other} == {"f16", "bf16"}:
            right, other = f'{right}.astype("{dtype}")', dtype
        joint = "f32" if "f32" in (dtype, other) else dtype
        if kind == 7:
            return f"tg.{self.choose.pick(('maximum', 'minimum'))}({left}, {right})", Tile("", shape, joint)
        if self.choose.chance(15):
            return f"{left} / (tg.abs({right}) + 0.5)", Tile("", shape, joint)
        return f"{left} {self.choose.pick(('+', '-', '+', '*'))} {right}", Tile("", shape, joint)

    def partner(self, tiles: list[Tile], shape: tuple[int, ...]) -> tuple[str, str, tuple[int, ...]]:
        """(text, dtype, shape of the result) of an operand that broadcasts with one of ``shape``."""
        found = self.some(tiles, lambda t: t.shape != shape and broadcast(t.shape, shape) is not None)
        column = self.some(tiles, lambda t: len(t.shape) == 1 and len(shape) == 2 and t.shape[0] == shape[0])
        if column and self.choose.chance(50):
            return f"{column.name}[:, None]", column.dtype, shape
        if found and self.choose.chance(60):
            joint = broadcast(found.shape, shape)
            assert joint is not None
            text = found.name
            if len(found.shape) == 1 and len(shape) == 2 and self.choose.chance(40):
                text = f"{text}[None, :]"
            return text, found.dtype, joint
        text, dtype = self.value(tiles, shape, None)
        return text, dtype, shape

    def reduce(self, depth: int, tiles: list[Tile], outer: list[Tile]) -> None:
        """A reduction, sometimes of a reduction or of an expression."""
        if self.choose.chance(50):
            first = self.some(tiles, lambda t: len(t.shape) > 1)
            first = first or self.some(tiles)
            assert first is not None
            text, tile = first.name, first
            if len(tile.shape) == 2 and self.choose.chance(25):
                text, tile = f"{text}.T", Tile("", tile.shape[::-1], tile.dtype)
        else:
            text, tile = self.expression(tiles)
        shape = tile.shape
        for _ in range(2 if self.choose.chance(15) else 1):
            axis = self.choose.below(len(shape))
            keep = self.choose.chance(50)
            fold = self.choose.pick(FOLDS)
            given = axis - len(shape) if self.choose.chance(30) else axis
            last = ", keepdims=True" if keep else ""
            method = f"({text}).{fold}(axis={given}{last})"
            text = method if self.choose.chance(50) else f"tg.{fold}({text}, axis={given}{last})"
            if keep or len(shape) == 1:
                shape = tuple(1 if a == axis else s for a, s in enumerate(shape))
            else:
                shape = shape[:axis] + shape[axis + 1 :]
            if fold == "sum":
                text = f"{text} * 0.125"
        target = self.some(outer, lambda t: t.shape == shape)
        if target and self.choose.chance(60):
            op = self.choose.pick(("{} * 0.5 + {}", "tg.maximum({}, {})"))
            self.write(depth, f"{target.name} = {op.format(target.name, f'({text})')}".rstrip())
            self.lines[-1] = self.lines[-1].replace("= ", "= (", 1) + f').astype("{target.dtype}")'
            self.bind(tiles, target)
            return
        name = self.name(tiles)
        self.write(depth, f"{name} = {text}")
        self.bind(tiles, Tile(name, shape, tile.dtype))

    def online(self, depth: int, scope: list[tuple[str, Dim]], tiles: list[Tile]) -> None:
        """A softmax that runs over the tiles of a loop, carrying its maximum, its sum and perhaps a product."""
        self.loops += 1
        rows, columns = self.choose.pick(self.sides), self.choose.pick(self.sides)
        product = rows % 16 == 0 and columns % 16 == 0 and self.choose.chance(60)
        across = 0 if self.choose.chance(30) and not product else 1
        shape = (rows, columns)
        kept = tuple(1 if a == across else s for a, s in enumerate(shape))
        top, total, acc, s, w, keep, higher = (self.fresh(n) for n in ("top", "sum", "acc", "s", "w", "keep", "high"))
        d = self.dim(shape[across], self.trips(len(scope)), self.choose.chance(40))
        index = self.fresh("j")
        self.write(depth, f"{top} = tg.full({kept}, -1e30)")
        self.write(depth, f"{total} = tg.zeros({kept})")
        queries = None
        if product:
            self.write(depth, f"{acc} = tg.zeros({shape})")
            if self.choose.chance(70):
                self.load(depth, scope, tiles, (rows, columns))
                queries = tiles[-1]
        self.write(depth, f"for {index} in {self.limited(d, scope)}:")
        inner, inside = list(tiles), [*scope, (index, d)]
        self.load(depth + 1, inside, inner, (columns, columns) if queries else shape)
        read = inner[-1]
        scores = f'{read.name}.astype("f32")'
        if queries:
            left = f'{queries.name}.astype("bf16")' if queries.dtype == "f32" else queries.name
            kind = "bf16" if queries.dtype == "f32" else queries.dtype
            right = read.name if read.dtype == kind else f'{read.name}.astype("{kind}")'
            scores = f"tg.dot({left}, {right}.T) * 0.25"
        self.write(depth + 1, f"{s} = {scores}")
        self.write(depth + 1, f"{higher} = tg.maximum({top}, {s}.max(axis={across}, keepdims=True))")
        self.write(depth + 1, f"{w} = tg.exp2({s} - {higher})")
        self.write(depth + 1, f"{keep} = tg.exp2({top} - {higher})")
        self.write(depth + 1, f"{total} = {total} * {keep} + tg.sum({w}, {across}, keepdims=True)")
        if product:
            self.load(depth + 1, inside, inner, (columns, columns))
            values = inner[-1]
            kind = "bf16" if values.dtype == "f32" else values.dtype
            right = values.name if values.dtype == kind else f'{values.name}.astype("{kind}")'
            self.write(depth + 1, f'{acc} = tg.dot({w}.astype("{kind}"), {right}, {acc} * {keep})')
        self.write(depth + 1, f"{top} = {higher}")
        result = self.fresh("soft")
        self.write(depth, f"{result} = {acc if product else top} / ({total} + 0.5)")
        self.bind(tiles, Tile(result, shape if product else kept, "f32"))

    def compute(self, depth: int, tiles: list[Tile], outer: list[Tile]) -> None:
        text, result = self.expression(tiles)
        target = self.some(outer, lambda t: t.shape == result.shape) if self.choose.chance(60) else None
        if target is None:
            name = self.name(tiles)
            self.write(depth, f"{name} = {text}")
            self.bind(tiles, Tile(name, result.shape, result.dtype))
            return
        if self.choose.chance(60):  # an accumulation: keep the values small, their number may be large
            op = self.choose.pick(("tg.maximum({}, {})", "{} * 0.5 + {}", "{} - {}", "{}.T + {}"))
            if ".T" in op and (len(target.shape) != 2 or target.shape[0] != target.shape[1]):
                op = "{} + {}"
            text = op.format(target.name, f'({text}).astype("{target.dtype}")')
        else:
            text = f'({text}).astype("{target.dtype}")'
        self.write(depth, f"{target.name} = {text}")
        self.bind(tiles, target)

    def swap(self, depth: int, tiles: list[Tile], outer: list[Tile]) -> None:
        """Exchanges two carried values through a temporary."""
        one = self.some(outer)
        two = self.some(outer, lambda t: one is not None and t.shape == one.shape and t.dtype == one.dtype)
        if one is None or two is None or one == two:
            return
        old = self.fresh("old")
        text, _ = self.value(tiles, one.shape, one.dtype)
        self.write(depth, f"{old} = {one.name}")
        self.write(depth, f"{one.name} = {two.name if self.choose.chance(50) else text}")
        self.write(depth, f"{two.name} = {old}")
        self.bind(tiles, one)
        self.bind(tiles, two)

    def dot(self, depth: int, scope: list[tuple[str, Dim]], tiles: list[Tile], outer: list[Tile]) -> None:
        def square(t: Tile) -> bool:
            return len(t.shape) == 2 and all(s % 16 == 0 for s in t.shape)

        if not any(square(t) for t in tiles):
            self.load(depth, scope, tiles, None)
        a = self.some(tiles, square)
        if a is None:
            return
        dtype = a.dtype if a.dtype != "f32" else "bf16"
        left = a.name if a.dtype == dtype else f'{a.name}.astype("{dtype}")'
        rows, depth_k = a.shape
        if self.choose.chance(25):
            left, rows, depth_k = f"{left}.T", depth_k, rows
        b = self.some(tiles, lambda t: square(t) and t.shape[0] == depth_k)
        columns = b.shape[1] if b else self.choose.pick(self.sides)
        right, _ = self.value(tiles, (depth_k, columns), dtype)
        target = self.some(outer, lambda t: t.shape == (rows, columns) and t.dtype == "f32")
        if target is not None:
            self.write(depth, f"{target.name} = tg.dot({left}, {right}, {target.name})")
            self.bind(tiles, target)
            return
        name = self.fresh("d")
        accumulator = self.some(tiles, lambda t: t.shape == (rows, columns) and t.dtype == "f32")
        last = f", {accumulator.name}" if accumulator and self.choose.chance(50) else ""
        by = ", by=cuda.mma()" if self.choose.chance(50) else ""
        self.write(depth, f"{name} = tg.dot({left}, {right}{last}{by})")
        self.bind(tiles, Tile(name, (rows, columns), "f32"))

    def store(self, depth: int, scope: list[tuple[str, Dim]], tiles: list[Tile]) -> bool:
        indices = [(i, d) for i, d in scope if d in self.grid and not d.integer]

        def fits(t: Tile) -> bool:
            left = list(t.shape)
            for _, d in indices:
                if d.tile not in left:
                    return False
                left.remove(d.tile)
            return True

        tile = self.some(tiles, fits)
        if tile is None:
            return False
        axes: list[tuple[str, str | int]] = [(":", 0)] * len(tile.shape)
        left = list(range(len(tile.shape)))
        for index, d in indices:
            at = next(i for i in left if tile.shape[i] == d.tile)
            left.remove(at)
            axes[at] = (index, d.name)
        inner = [(i, d) for i, d in scope if d not in self.grid]
        for at in left:
            axes[at] = self.axis(tile.shape[at], inner)
        text = tile.name
        dtype = tile.dtype
        if self.choose.chance(30):
            dtype = self.choose.pick(("f32", "bf16", "f16"))
            text = f'{tile.name}.astype("{dtype}")'
        if len(tile.shape) == 2 and self.choose.chance(35):
            axes = axes[::-1]
            text = f"{text}.T"
        front: list[tuple[str, str | int]] = [(i, d.name) for i, d in scope if d in self.grid and d.integer]
        if not self.grid and self.choose.chance(60):
            front = self.positions(scope)
        axes = [*front, *axes]
        out = self.tensor([a for _, a in axes], dtype, True)
        self.write(depth, f"{out}[{', '.join(i for i, _ in axes)}] = {text}")
        return True

    def loop(self, depth: int, scope: list[tuple[str, Dim]], tiles: list[Tile]) -> None:
        self.loops += 1
        if "counts" in PARTS and self.choose.chance(15):
            self.counted(depth, scope, tiles)
            return
        tile = self.choose.pick((*self.sides, *self.sides, 1, self.line))
        integer = self.choose.chance(25)
        tile = 1 if integer else tile
        used = [*self.grid, *(d for _, d in scope)]
        seen = [d for d in self.dims if (d.tile, d.integer) == (tile, integer) and d not in used]
        if seen and self.choose.chance(40):
            d = self.choose.pick(seen)
        else:
            d = self.dim(tile, self.trips(len(scope)), self.choose.chance(60 if integer else 20), integer)
        index = self.choose.pick(("i", "j", "k"))
        if index in {i for i, _ in scope}:
            index = self.fresh("i")
        self.write(depth, f"for {index} in {self.limited(d, scope)}:")
        self.block(depth + 1, [*scope, (index, d)], list(tiles), list(tiles))

    def counted(self, depth: int, scope: list[tuple[str, Dim]], tiles: list[Tile]) -> None:
        """A loop whose number of trips is read from a tensor."""
        count, index = self.fresh("n"), self.fresh("i")
        around = [(i, d) for i, d in scope if d.integer and d.name]
        place, size = (
            self.choose.pick(around) if around and self.choose.chance(50) else (str(self.choose.below(4)), None)
        )
        counts = self.tensor([4 if size is None else size.name], "i32", False)
        self.write(depth, f"{count} = tg.load({counts}[{place}])")
        self.write(depth, f"for {index} in tg.range({count}):")
        self.block(depth + 1, [*scope, (index, Dim("", 1, 0, False, True))], list(tiles), list(tiles))

    def limited(self, d: Dim, scope: list[tuple[str, Dim]]) -> str:
        """The tiles of a loop: all of them, or those before the end of an enclosing tile."""
        around = [index for index, other in scope if not other.integer]
        if not around or d.integer or not self.choose.chance(15):
            return d.loop
        return f"{d.loop[:-1]}, until=tg.end({self.choose.pick(around)}))"

    def block(self, depth: int, scope: list[tuple[str, Dim]], tiles: list[Tile], outer: list[Tile]) -> None:
        """Statements of one block; ``outer``: variables of enclosing blocks, which a loop carries when assigned."""
        inside = len(scope) - len(self.grid)
        stored = False
        for _ in range(self.choose.many(2, 6 if inside else 5)):
            if self.budget <= 0:
                break
            self.budget -= 1
            kind = self.choose.below(27 + 3 * ("guards" in PARTS))
            if not tiles or kind < 5:
                self.load(depth, scope, tiles, None)
            elif kind < 9:
                self.compute(depth, tiles, outer)
            elif kind < 10:
                self.swap(depth, tiles, outer)
            elif kind < 13:
                self.dot(depth, scope, tiles, outer)
            elif kind < 15:
                stored |= self.store(depth, scope, tiles)
            elif kind < 19:
                self.reduce(depth, tiles, outer)
            elif kind < 20 and inside < 2 and self.loops < 4 and not depth > 3:
                self.online(depth, scope, tiles)
            elif kind > 26 and depth < 6:
                self.guard(depth, scope, tiles)
            elif inside < 3 and self.loops < 4:
                if self.choose.chance(60):
                    shape = self.choose.pick(tiles).shape
                    name = self.fresh("acc")
                    self.write(depth, f"{name} = tg.zeros({shape!r})")
                    self.bind(tiles, Tile(name, shape, "f32"))
                self.loop(depth, scope, tiles)
        if not stored and not self.store(depth, scope, tiles):
            self.final_store(depth, scope, tiles)

    def guard(self, depth: int, scope: list[tuple[str, Dim]], tiles: list[Tile]) -> None:
        """Statements where a condition on indices holds, sometimes others where it does not."""
        if not scope:
            return
        parts = [self.condition(scope) for _ in range(1 + self.choose.chance(25))]
        self.write(depth, f"if {' and '.join(parts)}:")
        self.block(depth + 1, scope, list(tiles), list(tiles))
        if self.choose.chance(30):
            self.write(depth, "else:")
            self.block(depth + 1, scope, list(tiles), list(tiles))

    def condition(self, scope: list[tuple[str, Dim]]) -> str:
        index = self.choose.pick(scope)[0]
        if self.choose.chance(20):
            return f"{index} % {self.choose.many(2, 3)} == {self.choose.below(2)}"
        left = self.choose.pick((index, index, f"{index} + 1", f"2 * {index}"))
        right = self.choose.pick(scope)[0] if self.choose.chance(20) else str(self.choose.below(5))
        return f"{left} {self.choose.pick(('<', '<=', '>', '>=', '==', '!='))} {right}"

    def final_store(self, depth: int, scope: list[tuple[str, Dim]], tiles: list[Tile]) -> None:
        """A store that fits the grid, of a tile made for it."""
        sides = [d.tile for d in self.grid if not d.integer]
        shape = tuple([*sides, *self.sides][:2]) if sides else (self.line,)
        self.load(depth, scope, tiles, shape)
        self.store(depth, scope, tiles)

    def program(self) -> RandomProgram:
        warps = self.choose.pick((1, 2, 4, 1, 2, 8))
        self.sides = tuple(dict.fromkeys(self.choose.pick(SIDES) for _ in range(2)))
        self.line = self.choose.pick(LINES)
        self.multiple = self.choose.pick((8, 4, 1, 2, 16))
        self.budget = self.choose.many(4, 14)
        self.write(0, "HEAD")
        depth, scope = 1, []
        if self.choose.chance(40):
            count = self.choose.many(1, 2)
            dims = [self.dim(self.choose.pick(self.sides), self.choose.many(1, 2), False) for _ in range(count)]
            names = ["m", "n"][:count]
            if self.choose.chance(30):
                dims.insert(0, self.dim(1, self.choose.many(1, 3), self.choose.chance(60), True))
                names.insert(0, "h")
            self.grid = tuple(dims)
            tiles = ", ".join(d.loop for d in dims)
            self.write(1, f"for {', '.join(names)} in tg.grid({tiles}):")
            depth, scope = 2, list(zip(names, dims, strict=True))
        self.block(depth, scope, [], [])
        parts = []
        for name, axes, dtype, output in self.tensors:
            sizes = ", ".join(f'"{a}"' if isinstance(a, str) else str(a) for a in axes)
            parts.append(f'{name}: tg.{"Out" if output else "Tensor"}[{sizes}, "{dtype}"]')
        head = f"@tg.kernel(warps={warps})\ndef program({', '.join(parts)}):"
        text = HEAD + "\n".join([head, *self.lines[1:]]) + "\n"
        used = {a for _, axes, _, _ in self.tensors for a in axes}
        dims_used = tuple(d for d in self.dims if d.name in used)
        for d in self.dims:
            if d.name not in used:  # a loop whose index nothing uses: its extent is a number
                text = text.replace(f'"{d.name}"', str(d.size))
        return RandomProgram(text, warps, dims_used, tuple(self.tensors), self.multiple)


def write_program(choose: Chooser) -> RandomProgram:
    return _Writer(choose).program()


def seeded(seed: int | str) -> RandomProgram:
    """The program of a seed."""
    rng = random.Random(seed)
    return write_program(Chooser(rng.randrange))


@st.composite
def programs(draw: st.DrawFn) -> RandomProgram:
    """Random programs for Hypothesis."""
    return write_program(Chooser(lambda n: draw(st.integers(0, n - 1))))
