"""Numbers for concrete runs: what elements of integers and scalar arguments are, in the search for a witness."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tidegate.ir import expr as ex
from tidegate.ir import tir
from tidegate.ir.dtypes import I32
from tidegate.ir.spec import expressions

CONSTANTS = (0, 1, 2, 3, 4, 5, 6, 8, 12, -1)
"""Multiples of what expressions count by, the same everywhere."""

PATTERNS = ("rising", "odd", "even", "thirds", "mixed", "scattered")
"""Others: by the sum of the address."""


@dataclass(frozen=True)
class Numbers:
    """One choice: a constant, or a pattern. ``units``: per tensor and argument, what expressions count it by."""

    choice: int | str
    units: Mapping[str, int]

    def element(self, tensor: str, place: tuple[int, ...]) -> int:
        return self.units.get(tensor, 1) * self._count(tensor, place)

    def argument(self, name: str) -> int:
        return self.units.get(name, 1) * self._count(name, ())

    def _count(self, name: str, place: tuple[int, ...]) -> int:
        total = sum(place)
        match self.choice:
            case "rising":
                return total
            case "odd" | "even":
                return (total + (self.choice == "even")) % 2
            case "thirds":
                return int(total % 3 == 0)
            case "mixed":
                return (5 * total + 2) % 7
            case "scattered":
                return zlib.crc32(f"{name} {place}".encode()) % 6
        return int(self.choice)


def choices(kernel: tir.Kernel) -> Iterator[Numbers]:
    """What to try, simple ones first; one choice where nothing is read or given."""
    if not any(s.dtype == I32 for s in kernel.scalars):
        yield Numbers(0, {})
        return
    units = _units(kernel)
    for choice in (*CONSTANTS, *PATTERNS):
        yield Numbers(choice, units)


def _units(kernel: tir.Kernel) -> dict[str, int]:
    """The smallest tile in which expressions count a number."""
    body = tir.walk(kernel.body)
    source = {str(s.scalar): str(s.src.tensor) for s in body if isinstance(s, tir.LdScalar)}
    found: dict[str, int] = {}
    for part in (p for stmt in body for e in expressions(stmt) for p in ex.parts(e)):
        if isinstance(part, ex.Bin) and part.op in ("cdiv", "/") and isinstance(part.b, ex.Int):
            for name in ex.symbols(part.a):
                name = source.get(name, name)
                found[name] = min(found.get(name, part.b.value), part.b.value)
    return found
