"""Random scheduled programs: the text of a ``@tg.kernel`` function, and sizes to run it with.

A program is written by one function that asks a :class:`Chooser` for every decision, so Hypothesis can shrink it and a
seeded generator can make thousands.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from hypothesis import strategies as st

T = TypeVar("T")

SIDES = (16, 32, 16, 48, 24, 8)
LINES = (32, 64, 96, 80, 128, 24)
DTYPES = ("f32", "bf16", "f16", "f32")
ODD_NAMES = ("line", "body", "copy_x", "frag_a", "fill_L1", "read_L1", "end", "stages", "float", "min")


@dataclass
class Chooser:
    """Decisions from ``below(n)``, a number in 0 .. n-1; small numbers make small programs."""

    below: Callable[[int], int]

    def pick(self, items: Sequence[T]) -> T:
        return items[self.below(len(items))]

    def chance(self, percent: int) -> bool:
        return self.below(100) >= 100 - percent

    def many(self, low: int, high: int) -> int:
        return low + self.below(high - low + 1)


@dataclass(frozen=True)
class Dim:
    """A named size with the tile that covers it; ``size`` is what a run uses; ``fixed``: given when compiling."""

    name: str
    tile: int
    size: int
    fixed: bool


@dataclass(frozen=True)
class Tile:
    """A tile variable in scope."""

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class RandomProgram:
    """``text`` defines ``program``; ``shapes`` are the arrays in order (sizes by name or number, dtype, is it an
    output)."""

    text: str
    warps: int
    dims: tuple[Dim, ...]
    shapes: tuple[tuple[str, tuple[str | int, ...], str, bool], ...]
    multiple: int

    def compile_options(self) -> dict[str, Any]:
        return {
            **{d.name: d.size for d in self.dims if d.fixed},
            "multiples": {d.name: self.multiple for d in self.dims if not d.fixed},
        }

    def __str__(self) -> str:
        sizes = ", ".join(f"{d.name}={d.size}{' fixed' if d.fixed else ''}" for d in self.dims)
        return f"{self.text}\n# sizes {sizes}; multiples of {self.multiple}"


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

    def dim(self, tile: int, trips: int, fixed: bool) -> Dim:
        # Cases multiply with the sizes that are not given: the checker proves little beyond two.
        fixed = fixed or sum(not d.fixed for d in self.dims) > 1
        ragged = self.choose.many(0, tile - 1) if trips and self.choose.chance(50) else 0
        size = max(trips * tile - ragged, 0)
        if not fixed:
            size = -(-size // self.multiple) * self.multiple
        made = Dim(self.fresh("N"), tile, size, fixed)
        self.dims.append(made)
        return made

    def trips(self, depth: int) -> int:
        return self.choose.many(0, (7, 3, 2)[min(depth, 2)])

    # ------------------------------------------------------------------------------------------ tensors

    def axis(self, size: int, scope: Sequence[tuple[str, Dim]]) -> tuple[str, str | int]:
        """(index text, size of the tensor's axis) for a window of ``size`` along one axis."""
        options = [(index, d.name) for index, d in scope if d.tile == size]
        if not options or self.choose.chance(25):
            return ":", size
        return options[-1 - self.choose.below(len(options))]

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
        kind = self.choose.below(10)
        if kind < 6:
            return self.choose.pick(self.sides), self.choose.pick(self.sides)
        return (self.line,) if kind < 8 else (1, self.line)

    # ------------------------------------------------------------------------------------------ statements

    def load(self, depth: int, scope: list[tuple[str, Dim]], tiles: list[Tile], shape: tuple[int, ...] | None) -> None:
        shape = shape or self.shape()
        dtype = self.choose.pick(DTYPES)
        axes = [self.axis(s, scope) for s in shape]
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
        kind = self.choose.below(8)
        if kind == 0:
            other = self.choose.pick(("f32", "bf16", "f16"))
            return f'({left}).astype("{other}")', Tile("", shape, other)
        if kind == 1:
            return f"-({left})", Tile("", shape, dtype)
        if kind in (2, 3):
            return f"{left} {self.choose.pick(('* 0.5', '+ 1.0', '- 0.25', '* -1.5', '/ 2.0'))}", Tile("", shape, dtype)
        right, other = self.value(tiles, shape, None)
        if {dtype, other} == {"f16", "bf16"}:
            right, other = f'{right}.astype("{dtype}")', dtype
        joint = "f32" if "f32" in (dtype, other) else dtype
        if kind == 7:
            return f"tg.{self.choose.pick(('maximum', 'minimum'))}({left}, {right})", Tile("", shape, joint)
        return f"{left} {self.choose.pick(('+', '-', '+', '*'))} {right}", Tile("", shape, joint)

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
        indices = [(i, d) for i, d in scope if d in self.grid]

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
        out = self.tensor([a for _, a in axes], dtype, True)
        self.write(depth, f"{out}[{', '.join(i for i, _ in axes)}] = {text}")
        return True

    def loop(self, depth: int, scope: list[tuple[str, Dim]], tiles: list[Tile]) -> None:
        self.loops += 1
        tile = self.choose.pick((*self.sides, *self.sides, 1, self.line))
        seen = [d for d in self.dims if d.tile == tile and d not in self.grid and d not in [x for _, x in scope]]
        if seen and self.choose.chance(40):
            d = self.choose.pick(seen)
        else:
            d = self.dim(tile, self.trips(len(scope)), self.choose.chance(20))
        index = self.choose.pick(("i", "j", "k"))
        if index in {i for i, _ in scope}:
            index = self.fresh("i")
        self.write(depth, f'for {index} in tg.tiles("{d.name}", {tile}):')
        self.block(depth + 1, [*scope, (index, d)], list(tiles), list(tiles))

    def block(self, depth: int, scope: list[tuple[str, Dim]], tiles: list[Tile], outer: list[Tile]) -> None:
        """Statements of one block; ``outer``: variables of enclosing blocks, which a loop carries when assigned."""
        inside = len(scope) - len(self.grid)
        stored = False
        for _ in range(self.choose.many(2, 6 if inside else 5)):
            if self.budget <= 0:
                break
            self.budget -= 1
            kind = self.choose.below(20)
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
            elif inside < 3 and self.loops < 4:
                if self.choose.chance(60):
                    shape = self.choose.pick(tiles).shape
                    name = self.fresh("acc")
                    self.write(depth, f"{name} = tg.zeros({shape!r})")
                    self.bind(tiles, Tile(name, shape, "f32"))
                self.loop(depth, scope, tiles)
        if not stored and not self.store(depth, scope, tiles):
            self.final_store(depth, scope, tiles)

    def final_store(self, depth: int, scope: list[tuple[str, Dim]], tiles: list[Tile]) -> None:
        """A store that fits the grid, of a tile made for it."""
        sides = [d.tile for d in self.grid]
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
            self.grid = tuple(dims)
            names = ["m", "n"][:count]
            tiles = ", ".join(f'tg.tiles("{d.name}", {d.tile})' for d in dims)
            self.write(1, f"for {', '.join(names)} in tg.grid({tiles}):")
            depth, scope = 2, list(zip(names, dims, strict=True))
        self.block(depth, scope, [], [])
        parts = []
        for name, axes, dtype, output in self.tensors:
            sizes = ", ".join(f'"{a}"' if isinstance(a, str) else str(a) for a in axes)
            parts.append(f'{name}: tg.{"Out" if output else "Tensor"}[{sizes}, "{dtype}"]')
        head = f"@tg.kernel(warps={warps})\ndef program({', '.join(parts)}):"
        text = "import tidegate as tg\nfrom tidegate import cuda\n\n\n" + "\n".join([head, *self.lines[1:]]) + "\n"
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
