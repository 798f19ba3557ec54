"""What random programs are made of: decisions, sizes, tiles, and the words to choose from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")

SIDES = (16, 32, 16, 48, 24, 8)
LINES = (32, 64, 96, 80, 128, 24)
DTYPES = ("f32", "bf16", "f16", "f32")
FOLDS = ("sum", "max", "min")
FUNCTIONS = (
    "tg.abs({})",
    "tg.sqrt(tg.abs({}))",
    "tg.rsqrt(tg.abs({}) + 0.5)",
    "tg.exp2(tg.minimum({}, 3.0))",
    "tg.exp(tg.minimum({}, 2.0))",
    "tg.log(tg.abs({}) + 0.5)",
    "tg.log2(tg.abs({}) + 0.5)",
    "tg.tanh({})",
    "tg.where({0} > 0.25, {0}, -0.5)",
)
"""Kept where they are defined and their values small."""
POSITIONS = ("{}", "{}", "{} // 2", "{} % 2", "{} + 1", "{} * 2 + 1", "({} + 3) // 2 % 3")
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
    """A named size with the tile that covers it; ``size`` is what a run uses; ``fixed``: given when compiling.
    ``integer``: its index comes from tg.range."""

    name: str
    tile: int
    size: int
    fixed: bool
    integer: bool = False

    @property
    def loop(self) -> str:
        return f'tg.range("{self.name}")' if self.integer else f'tg.tiles("{self.name}", {self.tile})'


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


def broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...] | None:
    """The joint shape by NumPy's rule."""
    rank = max(len(a), len(b))
    wide = [((1,) * (rank - len(s)) + s) for s in (a, b)]
    if any(x != y and 1 not in (x, y) for x, y in zip(*wide, strict=True)):
        return None
    return tuple(max(x, y) for x, y in zip(*wide, strict=True))
