"""A program that exercises one language feature, and the writer that generators make it with."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from strategies import Chooser

from tidegate.ir.dtypes import DTYPES

FLOATS = ("f32", "bf16", "f16")
SIDES = (16, 32, 8, 24, 48, 64, 4)
"""Tile sizes that cost little to simulate."""

WARPS = (1, 4, 2, 8, 16)


@dataclass(frozen=True)
class Size:
    """A named dimension. ``multiple``: what the kernel may rely on; None: the size is given when compiling."""

    name: str
    value: int
    multiple: int | None


@dataclass(frozen=True)
class Parameter:
    """An argument in order. ``kind``: Tensor, Out, InOut or Scalar. ``values``: "normal" (small numbers), "special"
    (with infinities, NaN, zeros of both signs, tiny and huge numbers), or the inclusive range of integers. ``strided``:
    the array is a part of a larger one."""

    name: str
    kind: str
    axes: tuple[str | int, ...]
    dtype: str
    values: str | tuple[int, int] = "normal"
    strided: bool = False

    @property
    def written(self) -> bool:
        return self.kind in ("Out", "InOut")

    def __str__(self) -> str:
        axes = ", ".join([*(f'"{a}"' if isinstance(a, str) else str(a) for a in self.axes), f'"{self.dtype}"'])
        return f"{self.name}: tg.{self.kind}[{axes}]"

    def make(self, sizes: dict[str, int], rng: np.random.Generator, unwritten: int) -> Any:
        """The argument: a NumPy array, or a number for a scalar. Outputs hold NaN, or ``unwritten``."""
        shape = tuple(sizes[a] if isinstance(a, str) else a for a in self.axes)
        if not self.strided:
            return self.filled(shape, rng, unwritten)
        *outer, last = shape  # every second row, and columns from the 16th on of some more
        whole = self.filled((*[2 * n + 1 for n in outer[:1]], *outer[1:], last + 32), rng, unwritten)
        rows = (slice(0, 2 * outer[0], 2),) if outer else ()
        return whole[(*rows, ..., slice(16, 16 + last))]

    def filled(self, shape: tuple[int, ...], rng: np.random.Generator, unwritten: int) -> Any:
        kind = DTYPES[self.dtype]
        if self.kind == "Out":
            return np.full(shape, np.nan if kind.floating else unwritten).astype(kind.numpy)
        if isinstance(self.values, tuple):
            found = rng.integers(*self.values, size=shape, endpoint=True)
        elif kind.floating:
            found = rng.standard_normal(shape)
            if self.values == "special":
                found = np.where(rng.random(shape) < 0.3, rng.choice(SPECIAL, size=shape), found)
        else:
            low, high = (0, 1) if kind.kind == "mask" else (-100, 100)
            found = rng.integers(low, high, size=shape, endpoint=True)
            if self.values == "special" and kind.integer:
                ends = np.iinfo(kind.numpy)
                special = np.array([ends.min, ends.max, ends.min + 1, -1, 0, 1, 31, 32], np.int64)
                found = np.where(rng.random(shape) < 0.3, rng.choice(special, size=shape), found)
        if self.kind == "Scalar":
            return float(found) if kind.floating else int(found)
        with np.errstate(over="ignore"):
            return found.astype(kind.numpy)


SPECIAL = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-40, -1e-40, 3e38, 1.0, -1.0, 0.5, 65504.0, 65520.0, 448.0])


@dataclass(frozen=True)
class FeatureProgram:
    """``text`` defines the kernel ``program``; everything else is what it is compiled for and called with."""

    text: str
    parameters: tuple[Parameter, ...]
    sizes: tuple[Size, ...]
    warps: int
    producer: str
    share: bool
    target: str
    constants: tuple[tuple[str, Any], ...] = ()

    @property
    def fixed(self) -> dict[str, Any]:
        """Constants and the sizes that are given, for every entry point."""
        return {**dict(self.constants), **{s.name: s.value for s in self.sizes if s.multiple is None}}

    @property
    def options(self) -> dict[str, Any]:
        """What compile takes beside the target."""
        multiples = {s.name: s.multiple for s in self.sizes if s.multiple is not None}
        how = {"warps": self.warps, "plan": self.producer, "share": self.share}
        sizes = {s.name: s.value for s in self.sizes}
        last = {p.name: p.axes[-1] for p in self.parameters if p.strided}
        strided = {n: math.gcd(sizes[a] if isinstance(a, str) else a, 16) for n, a in last.items()}
        return {**self.fixed, "multiples": multiples, **how, **({"strided": strided} if strided else {})}

    def arguments(self, seed: int | str, unwritten: int = 85) -> list[Any]:
        """Arrays and numbers for a call, in order; the same for equal seeds, but for what outputs of integers and masks
        hold."""
        rng = np.random.default_rng([ord(c) for c in str(seed)])
        sizes = {s.name: s.value for s in self.sizes}
        return [p.make(sizes, rng, unwritten) for p in self.parameters]

    def __str__(self) -> str:
        known = [f"multiple of {s.multiple}" if s.multiple is not None else "fixed" for s in self.sizes]
        sizes = ", ".join(f"{s.name}={s.value} ({how})" for s, how in zip(self.sizes, known, strict=True))
        more = "".join(f", {n}={v!r}" for n, v in self.constants)
        return f"{self.text}\n# {self.target}, {self.warps} warps, {self.producer}, share={self.share}, {sizes}{more}"


Generator = Callable[[Chooser], FeatureProgram]

FEATURES: dict[str, Generator] = {}
"""A generator per language feature; features that are not there (yet) have none."""


def feature(name: str, when: bool = True) -> Callable[[Callable[[Writer], None]], Callable[[Writer], None]]:
    """Registers a function that writes a program's body as the generator of a feature."""

    def register(body: Callable[[Writer], None]) -> Callable[[Writer], None]:
        def generate(choose: Chooser) -> FeatureProgram:
            writer = Writer(choose)
            body(writer)
            return writer.program()

        if when:
            FEATURES[name] = generate
        return body

    return register


@dataclass(frozen=True)
class Tile:
    """A tile by its text: a name, or an expression that binds tighter than an operator."""

    text: str
    shape: tuple[int, ...]
    dtype: str


@dataclass
class Frame:
    """Loops around a body. Per axis of a tile: its size, the tensor's size, its index; ``free``: no grid index."""

    shape: tuple[int, ...]
    axes: tuple[str | int, ...]
    index: tuple[str, ...]
    free: tuple[bool, ...]
    looped: bool
    front: tuple[tuple[str, str | int], ...] = ()

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def grid(self) -> tuple[int, ...]:
        """The axes that a store must keep."""
        return tuple(a for a in range(self.rank) if not self.free[a])


@dataclass
class Writer:
    """Writes one kernel. Small decisions come first, so that Hypothesis shrinks towards plain programs."""

    choose: Chooser
    lines: list[str] = field(default_factory=list)
    before: list[str] = field(default_factory=list)
    parameters: list[Parameter] = field(default_factory=list)
    sizes: list[Size] = field(default_factory=list)
    constants: dict[str, Any] = field(default_factory=dict)
    given: dict[str, Any] = field(default_factory=dict)
    warps: int = 0
    targets: tuple[str, ...] = ("sm_80", "sm_80", "sm_89", "sm_90a")
    most_stages: int = 4
    numbers: int = 0
    depth: int = 1

    # ------------------------------------------------------------------------------------------ text

    def fresh(self, prefix: str) -> str:
        self.numbers += 1
        return f"{prefix}{self.numbers}"

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def bind(self, text: str, shape: tuple[int, ...], dtype: str, prefix: str = "t") -> Tile:
        """A statement that names a tile."""
        name = self.fresh(prefix)
        self.line(f"{name} = {text}")
        return Tile(name, shape, dtype)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """``with writer.block("for k in ...:"):``"""
        self.line(head)
        self.depth += 1
        before = len(self.lines)
        yield
        if len(self.lines) == before:
            self.line("pass")
        self.depth -= 1

    # ------------------------------------------------------------------------------------------ sizes and tensors

    def size(self, tile: int, most: int = 3, least: int = 0, fixed: bool | None = None, name: str = "N") -> str:
        """A dimension for tiles of ``tile``: whole tiles, ragged, less than one, none; ``most`` and ``least`` trips."""
        trips = 0 if least == 0 and self.choose.chance(8) else self.choose.many(max(least, 1), most)
        cut = self.choose.below(tile) if trips and self.choose.chance(50) else 0
        value = trips * tile - cut
        divisors = [m for m in (16, 8, 4, 2, 1) if value % m == 0]
        free = sum(s.multiple is not None for s in self.sizes)  # more cases than two sizes make are beyond the proof
        given = self.choose.chance(30) if fixed is None else fixed
        multiple = None if given or free > 1 else self.choose.pick(divisors)
        made = Size(self.fresh(name), value, multiple)
        self.sizes.append(made)
        return made.name

    def value(self, axis: str | int) -> int:
        """The size of a tensor's axis."""
        return axis if isinstance(axis, int) else next(s.value for s in self.sizes if s.name == axis)

    def known(self, axis: str | int) -> int:
        """What divides it when compiled."""
        if isinstance(axis, int):
            return axis
        found = next(s for s in self.sizes if s.name == axis)
        return found.value if found.multiple is None else found.multiple

    def parameter(
        self, kind: str, axes: Sequence[str | int], dtype: str, values: str | tuple[int, int] = "normal"
    ) -> str:
        name = self.fresh({"Tensor": "a", "Out": "out", "InOut": "io", "Scalar": "s"}[kind])
        self.parameters.append(Parameter(name, kind, tuple(axes), dtype, values))
        return name

    def tensor(self, axes: Sequence[str | int], dtype: str, values: str | tuple[int, int] = "normal") -> str:
        return self.parameter("Tensor", axes, dtype, values)

    # ------------------------------------------------------------------------------------------ loads and stores

    def schedule(self, axes: Sequence[str | int], shape: Sequence[int], dtype: str, looped: bool, staged: bool) -> str:
        """by=, stages= and to= of a load: mostly what the instruction can do, now and then what it cannot."""
        item = DTYPES[dtype].size
        row = math.gcd(shape[-1] * item, 16)
        aligned = math.gcd(row, self.known(axes[-1]) * item) if len(axes) > 1 or len(shape) == 1 else row
        stages = self.choose.many(1, self.most_stages) if looped and (staged or self.choose.chance(40)) else 1
        ways = ["", "by=cuda.ld()"]
        if aligned >= 4:
            pieces = [b for b in (4, 8, 16) if aligned % b == 0 and b >= item]
            ways += ["by=cuda.cp_async()", *(f"by=cuda.cp_async(bytes={b})" for b in pieces)]
        elif self.choose.chance(8):
            ways += ["by=cuda.cp_async()"]
        by = self.choose.pick(ways)
        to = ""
        if stages == 1 and "cp_async" not in by and self.choose.chance(30):
            to = 'to="shared"' if staged or self.choose.chance(60) else 'to="registers"'
        parts = [p for p in (by, f"stages={stages}" if stages > 1 else "", to) if p]
        return "".join(f", {p}" for p in parts)

    def load(
        self, frame: Frame, dtype: str, axes: Sequence[int] | None = None, staged: bool = False, values: Any = "normal"
    ) -> Tile:
        """A new tensor and a load of its window under the frame; ``axes``: in this order, all by default."""
        order = range(frame.rank) if axes is None else axes
        shape = tuple(frame.shape[a] for a in order)
        sizes = [*(size for _, size in frame.front), *(frame.axes[a] for a in order)]
        index = [*(i for i, _ in frame.front), *(frame.index[a] for a in order)]
        name = self.tensor(sizes, dtype, values)
        text = f"tg.load({name}[{', '.join(index)}]{self.schedule(sizes, shape, dtype, frame.looped, staged)})"
        return self.bind(text, shape, dtype)

    def store(self, frame: Frame, tile: Tile, axes: Sequence[int] | None = None, exact: bool = False) -> None:
        """A new output of the window under the frame's ``axes``; sometimes in another dtype, unless ``exact``."""
        order = range(frame.rank) if axes is None else axes
        dtype, text = tile.dtype, tile.text
        if not exact and self.choose.chance(25) and DTYPES[dtype].floating:
            dtype = self.choose.pick(FLOATS)
            text = f'({text}).astype("{dtype}")'
        sizes = [*(size for _, size in frame.front), *(frame.axes[a] for a in order)]
        index = [*(i for i, _ in frame.front), *(frame.index[a] for a in order)]
        name = self.parameter("Out", sizes, dtype)
        self.line(f"{name}[{', '.join(index)}] = {text}")

    # ------------------------------------------------------------------------------------------ loops around

    @contextmanager
    def frame(
        self,
        ranks: Sequence[int] = (2, 1, 2, 3),
        sides: Sequence[int] = SIDES,
        elements: int = 2048,
        last: Sequence[int] = (),
    ) -> Iterator[Frame]:
        """Grid and loops for tiles of a drawn rank: each axis is a grid axis, a loop, or whole. ``last``: sizes of the
        last axis, which then is whole."""
        rank = self.choose.pick(ranks)
        shape, left = [], elements
        for _ in range(rank):
            shape.append(self.choose.pick([s for s in sides if s <= left] or [1]))
            left //= shape[-1]
        ways = [self.choose.pick(("grid", "loop", "whole")) for _ in shape]
        if last:
            shape[-1], ways[-1] = self.choose.pick(last), "whole"
        axes: list[str | int] = []
        trips = 6  # of all axes together: more cost time and show nothing new
        for side, way in zip(shape, ways, strict=True):
            axes.append(side if way == "whole" else self.size(side, min(3, trips)))
            trips //= max(-(-self.value(axes[-1]) // side), 1)
        names = [":" if w == "whole" else f"{'mnpq'[a]}" for a, w in enumerate(ways)]
        frame = Frame(tuple(shape), tuple(axes), tuple(names), tuple(w != "grid" for w in ways), "loop" in ways)
        heads = [(a, f'tg.tiles("{axes[a]}", {shape[a]})') for a in range(rank) if ways[a] == "grid"]
        self.depth = 1
        if heads:
            self.line(f"for {', '.join(names[a] for a, _ in heads)} in tg.grid({', '.join(t for _, t in heads)}):")
            self.depth += 1
        for a in range(rank):
            if ways[a] == "loop":
                self.line(f'for {names[a]} in tg.tiles("{axes[a]}", {shape[a]}):')
                self.depth += 1
        yield frame
        self.depth = 1

    # ------------------------------------------------------------------------------------------ the program

    def program(self) -> FeatureProgram:
        warps = self.warps or self.choose.pick(WARPS)
        used = {a for p in self.parameters for a in p.axes}
        text = "\n".join(self.lines)
        for size in self.sizes:
            if size.name not in used:  # no tensor tells it: the extent is a number
                text = text.replace(f'"{size.name}"', str(size.value))
        ordered = [*(p for p in self.parameters if not p.written), *(p for p in self.parameters if p.written)]
        given = ["*", *(f"{n}={v!r}" for n, v in self.constants.items())] if self.constants else []
        head = f"@tg.kernel(warps={warps})\ndef program({', '.join([*map(str, ordered), *given])}):"
        start = ["import numpy as np", "import tidegate as tg", "from tidegate import cuda", *self.before, "", ""]
        return FeatureProgram(
            text="\n".join([*start, head, text, ""]),
            parameters=tuple(ordered),
            sizes=tuple(s for s in self.sizes if s.name in used),
            warps=warps,
            producer=self.choose.pick(("multistage", "in_order")),
            share=not self.choose.chance(20),
            target=self.choose.pick(self.targets),
            constants=tuple(self.given.items()),
        )
