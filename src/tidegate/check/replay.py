"""Runs at given sizes, one CTA after another, with every window evaluated: the search for a run that shows a fault."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from math import lcm

import numpy as np

from tidegate.check.control import Env
from tidegate.check.explore import explorer
from tidegate.check.given import Given
from tidegate.check.knowledge import Knowledge
from tidegate.check.machine import Machine
from tidegate.check.pattern import Shape, other_thread, pattern
from tidegate.check.sites import Group
from tidegate.check.state import DATA, State
from tidegate.check.verdict import Access, Finding, Run
from tidegate.check.windows import by_engine, window_of
from tidegate.ir import expr as ex
from tidegate.ir import tir
from tidegate.ir.dtypes import I32
from tidegate.ir.layout import Coord, Layout, SharedLayout
from tidegate.ir.text import print_stmt

MAX_INSTANCES = 20_000
"""Accesses to global memory in one search."""


class TooMany(Exception):
    """The run has more accesses than a search may look at."""


@dataclass(frozen=True)
class Instance:
    """One executed access. ``low`` and ``high``: the elements that its mask leaves."""

    stmt: tir.Instruction
    tensor: str
    layout: Layout
    write: bool
    origin: Coord
    low: Coord
    high: Coord
    cta: tuple[tuple[str, int], ...]
    at: tuple[tuple[str, int], ...]
    time: int
    group: Group
    rows: int | None = None

    def access(self, threads: tuple[int, ...]) -> Access:
        action = "writes" if self.write else "reads"
        return Access(
            action,
            self.tensor,
            threads,
            self.low,
            self.high,
            self.at,
            self.stmt.line,
            print_stmt(self.stmt),
            self.group.name,
        )


@dataclass
class Replay:
    """Collects the global accesses of a kernel at concrete sizes and reports the first fault."""

    kernel: tir.Kernel
    sizes: Mapping[str, int]
    finding: Finding | None = None
    seen: dict[str, list[Instance]] = field(default_factory=dict)
    count: int = 0
    cta: tuple[tuple[str, int], ...] = ()

    def observe(self, state: State, known: Knowledge, stmt: tir.Stmt, env: Env, group: Group) -> None:
        found = window_of(self.kernel, stmt)
        if found is None or self.finding is not None:
            return
        self.count += 1
        if self.count > MAX_INSTANCES:
            raise TooMany
        values = {n: p.value.exact for n, p in env.places.items()}
        values |= {n: v.value if isinstance(v, ex.Int) else None for n, v in known.values}
        exact = {n: v for n, v in values.items() if v is not None}
        if len(exact) < len(values):
            raise TooMany
        self._look(state, stmt, found, exact, group)

    def _look(
        self,
        state: State,
        stmt: tir.Stmt,
        found: tuple[tir.Window, Layout, bool],
        values: Mapping[str, int],
        group: Group,
    ) -> None:
        assert isinstance(stmt, tir.Instruction)
        window, layout, write = found
        names = {**self.sizes, **dict(self.cta), **values}
        shape = tuple(ex.evaluate(e, names) for e in self.kernel.param(window.tensor).shape)
        origin = tuple(ex.evaluate(e, names) for e in window.origin)
        bounds = [None if b is None else ex.evaluate(b, names) for b in window.bounds]
        ends = [o + n if b is None else min(o + n, b) for o, n, b in zip(origin, layout.shape, bounds, strict=True)]
        starts = [max(o, 0) if axis in window.below else o for axis, o in enumerate(origin)]
        if window.rows is not None and (most := bounds[window.rows.axis]) is not None:
            ends[window.rows.axis] = most  # data decides which rows
        if any(o >= e for o, e in zip(starts, ends, strict=True)):
            return  # all masked
        at = tuple((n, v) for n, v in {**dict(self.cta), **values}.items())
        low, high = tuple(starts), tuple(ends)
        rows = None if window.rows is None else window.rows.axis
        me = Instance(stmt, window.tensor, layout, write, origin, low, high, self.cta, at, state.now, group, rows)
        if any(o < 0 or e > n for o, e, n in zip(low, high, shape, strict=True)):
            message = f"the window leaves {window.tensor} {list(shape)}"
            self.finding = Finding("out of bounds", message, None, me.access(()), "a bound that masks the access")
        elif self.kernel.param(window.tensor).output:
            if isinstance(stmt, tir.CpAsync):
                raise TooMany  # a read that is complete only behind a wait is not followed here
            self._meet(me, state)

    def _meet(self, me: Instance, state: State) -> None:
        others = self.seen.setdefault(me.tensor, [])
        for other in [*others, me]:
            if not _conflict(me, other):
                continue
            low = tuple(map(max, zip(me.low, other.low, strict=True)))
            high = tuple(map(min, zip(me.high, other.high, strict=True)))
            if any(a >= b for a, b in zip(low, high, strict=True)):
                continue
            if other is not me and other.cta == me.cta and (by_engine(me.stmt) or by_engine(other.stmt)):
                raise TooMany  # nor is the tensor engine
            threads = _clash(self.kernel.warps, other, me, low, high, state.clock[DATA])
            if threads is not None:
                done = "write" if me.write and other.write else "reach"
                apart = f"two CTAs {done} one element"
                needed = "one writer per element"
                if other.cta == me.cta:
                    apart = f"two threads {done} one element, unordered"
                    needed = f"a rendezvous between the {'writes' if done == 'write' else 'accesses'}, or one writer"
                self.finding = Finding(
                    "global race", apart, other.access((threads[0],)), me.access((threads[1],)), needed
                )
                return
        others.append(me)


def _conflict(a: Instance, b: Instance) -> bool:
    """Whether the order of two accesses matters where they meet."""
    both = isinstance(a.stmt, tir.AtomicAdd) and isinstance(b.stmt, tir.AtomicAdd)
    return (a.write or b.write) and not both


def _clash(
    warps: int, first: Instance, second: Instance, low: Coord, high: Coord, known: np.ndarray
) -> tuple[int, int] | None:
    """Two threads that reach one element of the box without order, or None. Along a gathered axis all rows may be the
    same one."""
    gathered = {x.rows for x in (first, second) if x.rows is not None}

    def inside(x: Instance) -> np.ndarray:
        box = tuple(
            slice(None) if axis == x.rows else slice(start - o, end - o)
            for axis, (start, end, o) in enumerate(zip(low, high, x.origin, strict=True))
        )
        found = _lanes(x.layout, warps, x.group.first)[box]
        for axis in gathered:
            found = np.bitwise_or.reduce(found, axis=axis, keepdims=True)
        return found.reshape(-1, 2 * warps)

    a, b = inside(first), inside(second)
    if first.cta != second.cta:
        return _thread(a[0]), _thread(b[0])
    for wa, wb in product(range(2 * warps), repeat=2):
        if first is not second and known[wb, wa] > first.time:
            continue
        together = other_thread(a[:, wa], b[:, wb]) if wa == wb else (a[:, wa] != 0) & (b[:, wb] != 0)
        if together.any():
            row = int(np.argmax(together))
            s = [wa // 2 * 32 + i for i in range(32) if int(a[row, wa]) >> i & 1]
            t = [wb // 2 * 32 + i for i in range(32) if int(b[row, wb]) >> i & 1]
            return next((x, y) for x in s for y in t if x != y)
    return None


def _thread(row: np.ndarray) -> int:
    which = int(np.flatnonzero(row)[0])
    return which // 2 * 32 + next(i for i in range(32) if int(row[which]) >> i & 1)


@lru_cache(maxsize=64)
def _lanes(layout: Layout, warps: int, first: int) -> np.ndarray:
    """Lane masks per element of a register tile: [*shape, lane classes]."""
    tile = Shape(layout, SharedLayout(layout.shape, 1), (0,) * layout.rank, False, False, first)
    table = pattern(tile, warps)
    return np.repeat(table.lanes, table.unit, axis=0).reshape(*layout.shape, 2 * warps)


def replay(machine: Machine, sizes: Mapping[str, int], given: Given) -> tuple[Finding, Run] | None:
    """Every CTA at these sizes and numbers: the first fault of global memory and the run that shows it, None when there
    is none. Raises TooMany (or what the machine raises)."""
    kernel = machine.kernel
    names = {d.name: d.value for d in kernel.dims if d.value is not None} | dict(sizes)
    run = Replay(kernel, names)
    for point in product(*(range(ex.evaluate(axis.extent, names)) for axis in kernel.grid)):
        where: dict[str, int] = dict(zip((axis.name for axis in kernel.grid), point, strict=True))
        run.cta = tuple(where.items())
        search = explorer(machine, names, where, run.observe, exact=True, given=given)
        for _ in search.every_case():
            pass
        if run.finding is not None:
            read = tuple((t, place, v) for (t, place), v in search.unknown.read.items())
            numbers = tuple((str(s.name), given.argument(s.name)) for s in kernel.arguments if s.dtype == I32)
            return run.finding, Run(tuple(names.items()), (), read, numbers)
        run.count += 1
        if run.count > MAX_INSTANCES:
            raise TooMany
    return None


def small_sizes(kernel: tir.Kernel, sizes: Mapping[str, int], tiles: int, ragged: bool) -> Iterator[dict[str, int]]:
    """Sizes to try, small ones first: unknown dims from 0 to ``tiles`` of the tiles that the kernel counts, and when
    ``ragged`` also a little more."""
    known = {d.name: d.value for d in kernel.dims if d.value is not None} | dict(sizes)
    free = [d for d in kernel.dims if d.name not in known]
    values = []
    for dim in free:
        step = unit(kernel, dim)
        more = [n * step + dim.multiple for n in range(tiles)] if ragged and step > dim.multiple else []
        values.append(sorted({*(n * step for n in range(tiles + 1)), *more}))
    most = [len(v) - 1 for v in values]
    for total in range(sum(most) + 1):
        for place in _shares(total, most):
            yield {**known, **{d.name: v[i] for d, v, i in zip(free, values, place, strict=True)}}


def _shares(total: int, most: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """All numbers, one per place and at most that, with this sum."""
    if not most:
        yield from [()] if total == 0 else []
        return
    for first in range(max(total - sum(most[1:]), 0), min(total, most[0]) + 1):
        yield from ((first, *rest) for rest in _shares(total - first, most[1:]))


def unit(kernel: tir.Kernel, dim: tir.Dim) -> int:
    """The smallest tile in which expressions count a dim, rounded up to its known factor; one that divides others is
    counted by ones."""
    found = []
    for e in _expressions(kernel):
        for part in _parts(e):
            if part.op in ("cdiv", "/", "%") and dim.name in ex.symbols(part.b):
                return dim.multiple
            if part.op in ("cdiv", "/") and isinstance(part.b, ex.Int) and dim.name in ex.symbols(part.a):
                found.append(part.b.value)
    return lcm(min(found, default=1), dim.multiple)


def _expressions(kernel: tir.Kernel) -> Iterator[ex.Expr]:
    for axis in kernel.grid:
        yield axis.extent
    for stmt in tir.walk(kernel.body):
        if isinstance(stmt, tir.For):
            yield stmt.start
            yield stmt.stop
        elif isinstance(stmt, tir.If):
            yield stmt.condition


def _parts(e: ex.Expr) -> Iterator[ex.Bin]:
    if isinstance(e, ex.Bin):
        yield e
        yield from _parts(e.a)
        yield from _parts(e.b)
