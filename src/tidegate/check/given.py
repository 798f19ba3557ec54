"""Numbers for concrete runs: what elements of integers and scalar arguments are, in the search for a witness."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from tidegate.ir import expr as ex
from tidegate.ir import tir
from tidegate.ir.dtypes import I32
from tidegate.ir.spec import expressions

CONSTANTS = (0, 1, 2, 3, 4, 5, 6, 8, 12, -1)
"""Multiples of what expressions count by, the same everywhere."""

RISES = (2, 3, 5, 8)
"""Multiples of that by which the elements of a tensor rise: the rows of a packed tensor begin so far apart."""

PERIODS = (2, 3, 4, 5, 6)
TRIPS = 8
"""Of loops that end by a number, where a condition changes from trip to trip."""


SALTS = 8
"""Of runs in which every number has a value of its own."""


class Given(Protocol):
    """The numbers of a concrete run."""

    def element(self, tensor: str, place: tuple[int, ...]) -> int:
        """An element of an input."""

    def argument(self, name: str) -> int:
        """A scalar argument."""


@dataclass(frozen=True)
class Numbers:
    """One choice. ``units``: per tensor and argument, what expressions count it by; ``bases``: what conditions compare
    it with. Numbers are ``count`` units, but where ``pattern`` is given those that end no loop vary: by their address
    they are on one side of their base or on the other, ``shift`` says on which. In pattern "own" all vary, from 0 units
    on or around their base; ``shift`` makes it another choice. In pattern "rising" those of a tensor rise with their
    address, by ``count`` units, and arguments are 0."""

    count: int
    units: Mapping[str, int]
    bases: Mapping[str, int]
    ends: frozenset[str]
    pattern: str = ""
    period: int = 1
    shift: int = 0

    def element(self, tensor: str, place: tuple[int, ...]) -> int:
        return self._value(tensor, place)

    def argument(self, name: str) -> int:
        return self._value(name, ())

    def _value(self, name: str, place: tuple[int, ...]) -> int:
        if self.pattern == "own":
            own = zlib.crc32(f"{self.shift} {name} {place}".encode()) >> 4
            return self.units.get(name, 1) * (own % 4) if name in self.ends else self.bases.get(name, 0) + own % 3 - 1
        if self.pattern == "rising":
            return self.units.get(name, 1) * self.count * (1 + sum(place)) if place else 0
        if not self.pattern or name in self.ends:
            return self.units.get(name, 1) * self.count
        turn = sum(place) % self.period == 0
        if self.pattern == "scattered":
            turn = zlib.crc32(f"{name} {place}".encode()) % 2 == 0
        return self.bases.get(name, 0) + self.shift + int(turn != (self.pattern == "off"))


@dataclass(frozen=True)
class Told:
    """Some numbers, and the rest by a choice."""

    elements: Mapping[tuple[str, tuple[int, ...]], int]
    arguments: Mapping[str, int]
    others: Numbers

    def element(self, tensor: str, place: tuple[int, ...]) -> int:
        told = self.elements.get((tensor, place))
        return self.others.element(tensor, place) if told is None else told

    def argument(self, name: str) -> int:
        told = self.arguments.get(name)
        return self.others.argument(name) if told is None else told


def few(kernel: tir.Kernel) -> Iterator[Numbers]:
    """A handful of choices, unlike each other."""
    found = list(choices(kernel))
    for first, count in ((0, 3), (len(CONSTANTS), 2), (len(CONSTANTS) + len(RISES), 2)):
        yield from found[first : first + count]


def choices(kernel: tir.Kernel) -> Iterator[Numbers]:
    """What to try, simple ones first; one choice where nothing is read or given."""
    if not any(s.dtype == I32 for s in kernel.scalars):
        yield Numbers(0, {}, {}, frozenset())
        return
    body = tir.walk(kernel.body)
    source = {str(s.scalar): str(s.src.tensor) for s in body if isinstance(s, tir.LdScalar)}
    bounds = (e for s in body if isinstance(s, tir.For) for e in (s.start, s.stop))
    ends = frozenset(source.get(n, n) for e in bounds for n in ex.symbols(e))
    known = (_units(body, source), _bases(body, source), ends)
    for count in CONSTANTS:
        yield Numbers(count, *known)
    for count in RISES:
        yield Numbers(count, *known, "rising")
    for salt in range(SALTS):
        yield Numbers(0, *known, "own", 1, salt)
    for period in PERIODS:
        for pattern in ("on", "off"):
            for shift in (-1, 0):
                yield Numbers(TRIPS, *known, pattern, period, shift)
    for shift in (-1, 0):
        yield Numbers(TRIPS, *known, "scattered", 1, shift)


def _units(body: list[tir.Stmt], source: Mapping[str, str]) -> dict[str, int]:
    """The smallest tile in which expressions count a number, or compare it with something."""
    found: dict[str, int] = {}
    for part in (p for stmt in body for e in expressions(stmt) for p in ex.parts(e) if isinstance(p, ex.Bin)):
        tiles = [part.b.value] if part.op in ("cdiv", "/") and isinstance(part.b, ex.Int) else []
        if part.op in ex.COMPARISONS:
            inner = (p for side in (part.a, part.b) for p in ex.parts(side) if isinstance(p, ex.Bin) and p.op == "*")
            tiles = [p.b.value for p in inner if isinstance(p.b, ex.Int) and p.b.value > 1]
        for name in (source.get(n, n) for n in ex.symbols(part)) if tiles else ():
            found[name] = min(found.get(name, tiles[0]), *tiles)
    return found


def _bases(body: list[tir.Stmt], source: Mapping[str, str]) -> dict[str, int]:
    """A constant that conditions compare a number with."""
    found: dict[str, int] = {}
    for condition in (s.condition for s in body if isinstance(s, tir.If)):
        for part in ex.parts(condition):
            match part:
                case ex.Bin(op, ex.Sym(name), ex.Int(value)) | ex.Bin(op, ex.Int(value), ex.Sym(name)):
                    if op in ex.COMPARISONS:
                        found.setdefault(source.get(name, name), value)
    return found
