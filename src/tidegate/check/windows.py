"""Global memory: windows stay inside their tensors, and no element is written by one thread and reached by another
without order.

First by argument for all sizes: linear forms and the facts that loops, grid and conditions give. Where the argument
does not close, :mod:`tidegate.check.replay` looks for a run that shows the fault; without one nothing is claimed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations_with_replacement
from math import gcd, inf

from tidegate.check.linear import (
    Atom,
    Extreme,
    Index,
    Linear,
    Mod,
    Opaque,
    Quotient,
    Reader,
    Term,
    expression,
    halfway,
    single,
)
from tidegate.check.sites import Group, everyone, groups
from tidegate.ir import expr as ex
from tidegate.ir import tir
from tidegate.ir.layout import Coord, Layout
from tidegate.ir.text import print_stmt

Ranges = Mapping[str, tuple[float, float]]


@dataclass(frozen=True)
class Use:
    """One statement that accesses a tensor. ``facts``: forms that are at least 0 where it executes; ``ranges``: per
    index in scope the first value and the one behind the last (infinite: not constant); ``pinned``: indices that
    conditions fix."""

    stmt: tir.Instruction
    window: tir.Window
    layout: Layout
    write: bool
    origin: tuple[Linear, ...]
    bounds: tuple[Linear | None, ...]
    facts: tuple[Linear, ...]
    ranges: Ranges
    pinned: frozenset[str]
    group: Group

    @property
    def extent(self) -> Coord:
        return self.layout.shape

    @property
    def engine(self) -> bool:
        return by_engine(self.stmt)


def by_engine(stmt: tir.Stmt) -> bool:
    """Whether the tensor engine makes the access, in its own time."""
    return isinstance(stmt, (tir.TmaLoad, tir.TmaStore))


def window_of(kernel: tir.Kernel, stmt: tir.Stmt) -> tuple[tir.Window, Layout, bool] | None:
    """The window of a statement, the layout over it, and whether it is written."""
    match stmt:
        case tir.CpAsync():
            return stmt.src, kernel.layout(stmt.layout).with_axes(stmt.src.fixed), False
        case tir.LdGlobal():
            return stmt.src, kernel.layout(kernel.register(stmt.dst).layout).with_axes(stmt.src.fixed), False
        case tir.LdScalar():
            return stmt.src, _one_thread((1,) * len(stmt.src.origin)), False
        case tir.StGlobal() | tir.AtomicAdd():
            return stmt.dst, kernel.layout(kernel.register(stmt.src).layout).with_axes(stmt.dst.fixed), True
        case tir.TmaLoad():
            return stmt.src, _one_thread(kernel.buffer(stmt.dst.buffer).shape), False
        case tir.TmaStore():
            return stmt.dst, _one_thread(kernel.buffer(stmt.src.buffer).shape), True
    return None


def _one_thread(shape: Coord) -> Layout:
    """All elements in the first thread."""
    zero = (0,) * len(shape)
    return Layout(shape, (), (zero,) * 5, (), shape)


def uses(kernel: tir.Kernel, reader: Reader) -> list[Use]:
    """All uses of global memory in textual order."""
    facts: list[Linear] = []
    ranges: dict[str, tuple[float, float]] = {}
    for axis in kernel.grid:
        extent = reader.linear(axis.extent)
        facts += [extent.plus(single(Index(axis.name)), -1).plus(Linear(-1)), single(Index(axis.name))]
        ranges[axis.name] = 0, inf if extent.terms else extent.const
    return list(_uses(kernel, reader, kernel.body, tuple(facts), ranges, frozenset(), everyone(kernel)))


def _uses(
    kernel: tir.Kernel,
    reader: Reader,
    body: tuple[tir.Stmt, ...],
    facts: tuple[Linear, ...],
    ranges: Ranges,
    pinned: frozenset[str],
    group: Group,
) -> Iterator[Use]:
    for stmt in body:
        # What is said of an integer holds until it is read anew.
        changed = {s.scalar for s in tir.walk((stmt,)) if isinstance(s, tir.LdScalar)}
        lasting = tuple(f for f in facts if not changed & _named(f)) if changed else facts
        if isinstance(stmt, tir.For):
            me, start, stop = single(Index(stmt.index)), reader.linear(stmt.start), reader.linear(stmt.stop)
            before_end, behind_start = stop.plus(me, -1).plus(Linear(-1)), me.plus(start, -1)
            inside = (*lasting, *(() if changed & _named(stop) else _consequences(before_end)))
            inside = (*inside, *(() if changed & _named(start) else (behind_start,)))
            range_ = (-inf if start.terms else start.const, inf if stop.terms else stop.const)
            yield from _uses(kernel, reader, stmt.body, inside, {**ranges, stmt.index: range_}, pinned, group)
        elif isinstance(stmt, tir.If):
            tests = reader.tests(stmt.condition)
            known = tuple(fact for t in tests if t.op == ">=" for fact in _consequences(t.value))
            fixed = {
                t.value.terms[0][0].name
                for t in tests
                if t.op == "==" and len(t.value.terms) == 1 and isinstance(t.value.terms[0][0], Index)
            }
            yield from _uses(kernel, reader, stmt.body, (*facts, *known), ranges, pinned | fixed, group)
        elif isinstance(stmt, tir.InRole):
            yield from _uses(kernel, reader, stmt.body, facts, ranges, pinned, groups(kernel)[stmt.role])
        elif isinstance(stmt, tir.Instruction) and (found := window_of(kernel, stmt)) is not None:
            window, layout, write = found
            origin = tuple(reader.linear(e) for e in window.origin)
            bounds = tuple(None if e is None else reader.linear(e) for e in window.bounds)
            yield Use(stmt, window, layout, write, origin, bounds, facts, ranges, pinned, group)
        facts = lasting


def _named(form: Linear) -> set[str]:
    return set(ex.symbols(expression(form)))


def _consequences(fact: Linear) -> tuple[Linear, ...]:
    """Facts without minima and maxima that follow: what is at most min(a, b) is at most a and at most b."""
    for term, c in fact.terms:
        if isinstance(term, Extreme) and (c > 0) == (term.op == "min"):
            rest = fact.plus(single(term), -c)
            return tuple(f for part in (term.a, term.b) for f in _consequences(rest.plus(part, c)))
    return (fact,)


# ---------------------------------------------------------------------------------------------- bounds


def unproved_bounds(kernel: tir.Kernel, reader: Reader, found: list[Use]) -> Iterator[str]:
    """Per axis of a window that the argument does not show to stay in its tensor: the reason."""
    for use in found:
        shape = [reader.linear(e) for e in kernel.param(use.window.tensor).shape]
        for axis, (origin, bound, size, extent) in enumerate(
            zip(use.origin, use.bounds, shape, use.extent, strict=True)
        ):
            where = f"axis {axis} of {print_stmt(use.stmt)}"
            if axis not in use.window.below and not at_least_0(origin, use.facts, reader):
                yield f"{where} is not shown to begin at 0 or later"
            end = origin.plus(Linear(extent)) if bound is None else bound
            if not at_least_0(size.plus(end, -1), use.facts, reader):
                what = "to end inside the tensor" if bound is None else "to have its bound inside the tensor"
                yield f"{where} is not shown {what}"


def at_least_0(form: Linear, facts: tuple[Linear, ...], reader: Reader, depth: int = 6) -> bool:
    """Whether ``form >= 0`` follows from ``facts``: the form less multiples of facts has no negative part. Sizes are
    never negative."""
    form = _in_tiles(form, facts, reader)
    negative = [(t, c) for t, c in form.terms if c < 0]
    upward = [(t, c) for t, c in form.terms if c > 0 and not _natural(t, facts, reader, depth)]
    if not negative and not upward and form.const >= 0:
        return True
    left = negative or upward or list(form.terms)  # the last: a constant below 0, which only facts can lift
    if depth == 0 or not left:
        return False
    term, c = left[0]
    for fact in facts:
        k = fact.coefficient(term)
        if k * c > 0 and c % k == 0 and at_least_0(form.plus(fact, -(c // k)), facts, reader, depth - 1):
            return True
    return False


def _natural(term: Term, facts: tuple[Linear, ...], reader: Reader, depth: int) -> bool:
    """Whether a term is surely 0 or more: a size, a remainder, a quotient or product of what is 0 or more."""
    match term:
        case Atom() | Mod():
            return True
        case Quotient(value, _) if depth:
            return at_least_0(value, facts, reader, depth - 1)
        case Opaque(ex.Bin("/" | "%" | "*", a, b)) if depth:
            return all(at_least_0(reader.linear(e), facts, reader, depth - 1) for e in (a, b))
        case Extreme(op, one, other) if depth:
            enough = any if op == "max" else all
            middle = halfway(term) if op == "max" else None
            surely = middle is not None and middle >= 0
            return surely or enough(at_least_0(form, facts, reader, depth - 1) for form in (one, other))
    return False


def _in_tiles(form: Linear, facts: tuple[Linear, ...], reader: Reader) -> Linear:
    """Sizes written in the tiles that the other terms or the facts count: K = 64 * cdiv(K, 64) when 64 is known to
    divide K."""
    for term, c in form.terms:
        if not isinstance(term, Atom) or not isinstance(term.value, ex.Sym):
            continue
        beside = [abs(d) // abs(c) for other, d in form.terms if other != term and d % c == 0]
        for t in (*beside, *_tiles_of(term.value, facts)):
            if t > 1 and reader.multiples.get(term.value.name, 1) % t == 0:
                tiles = reader.linear(ex.Bin("cdiv", term.value, ex.Int(t)))
                form = form.plus(single(term), -c).plus(tiles, c * t)
                break
    return form


def _tiles_of(size: ex.Sym, facts: tuple[Linear, ...]) -> Iterator[int]:
    """The tile sizes t of the terms cdiv(size, t) in the facts."""
    for fact in facts:
        for term, _ in fact.terms:
            match term:
                case Atom(ex.Bin("cdiv", a, ex.Int(t))) if a == size:
                    yield t


# ---------------------------------------------------------------------------------------------- who meets whom

Pair = tuple[Use, Use]


def conflicts(kernel: tir.Kernel, found: list[Use]) -> Iterator[Pair]:
    """Accesses to one tensor, at least one of them writing, that are not shown to have no element in common. Atomic
    additions do not conflict with one another."""
    written = [use for use in found if kernel.param(use.window.tensor).output]
    for a, b in combinations_with_replacement(written, 2):
        both = isinstance(a.stmt, tir.AtomicAdd) and isinstance(b.stmt, tir.AtomicAdd)
        if a.window.tensor == b.window.tensor and (a.write or b.write) and not both and not _disjoint(a, b):
            yield a, b


def unproved_owners(kernel: tir.Kernel, found: list[Use]) -> Iterator[str]:
    """Accesses that no order within a CTA makes right: several threads of one statement write an element, or two CTAs
    meet. The reasons."""
    axes = {axis.name for axis in kernel.grid}
    for use in found:
        if use.write and use.layout.replicated and use.layout.free_mask:
            yield f"several threads hold and write the same elements: {print_stmt(use.stmt)}"
        if use.window.rows is not None and isinstance(use.stmt, tir.StGlobal):
            yield f"several threads may write one row, if two rows are equal: {print_stmt(use.stmt)}"
    for a, b in conflicts(kernel, found):
        where = print_stmt(a.stmt) if a is b else f"{print_stmt(a.stmt)} and {print_stmt(b.stmt)}"
        if a.engine and a is b and (again := (set(a.ranges) - axes) - _determined(a, b) - _single(a, b)):
            yield f"stores of the tensor engine in different iterations of {', '.join(sorted(again))} may meet: {where}"
        elif missing := axes - _determined(a, b) - _single(a, b):
            done = "write" if a.write and b.write else "reach"
            yield f"CTAs that differ in {', '.join(sorted(missing))} may {done} one element: {where}"
        elif a is not b and (a.engine or b.engine):
            yield f"nothing is known of the order in which the tensor engine makes {where}"


def to_order(kernel: tir.Kernel, found: list[Use]) -> list[Pair]:
    """The conflicts that something has to order: different threads of a CTA may meet, or one that has not waited for
    what it copies."""
    copies = [use for use in found if isinstance(use.stmt, tir.CpAsync)]
    return [(a, b) for a, b in conflicts(kernel, found) if not _same_place(a, b) or a in copies or b in copies]


def _gathered(a: Use, b: Use, axis: int) -> bool:
    """Whether data decides where one of them reaches along an axis."""
    return any(use.window.rows is not None and use.window.rows.axis == axis for use in (a, b))


def _lattice(a: Use, b: Use, axis: int) -> tuple[int, int]:
    """All origins of both along an axis differ by multiples of the first number plus the second."""
    one, two = a.origin[axis], b.origin[axis]
    step = gcd(*(c for _, c in (*one.terms, *two.terms)))
    offset = two.const - one.const
    return step, offset % step if step else offset


def _disjoint(a: Use, b: Use) -> bool:
    """Whether no instance of a meets an instance of b."""
    if a is b:
        return False
    for axis, (m, n) in enumerate(zip(a.extent, b.extent, strict=True)):
        step, offset = _lattice(a, b, axis)
        apart = (offset >= m or -offset >= n) if step == 0 else m <= offset <= step - n
        if apart and not _gathered(a, b, axis):
            return True
    return False


def _aligned(a: Use, b: Use, axis: int) -> bool:
    """Whether instances that meet have one origin along an axis."""
    step, offset = _lattice(a, b, axis)
    widest = max(a.extent[axis], b.extent[axis])
    return offset == 0 and (step == 0 or step >= widest) and not _gathered(a, b, axis)


def _same_place(a: Use, b: Use) -> bool:
    """Whether instances that meet have one origin, so that one thread of a CTA owns each element."""
    same = a.layout == b.layout and a.group == b.group
    return same and all(_aligned(a, b, axis) for axis in range(len(a.extent)))


def _determined(a: Use, b: Use) -> set[str]:
    """Indices that have one value in all instances of a and b that meet, by mixed radix along each axis."""
    found: set[str] = set()
    for axis, (one, two) in enumerate(zip(a.origin, b.origin, strict=True)):
        if one != two or not _aligned(a, b, axis) or not all(isinstance(t, (Index, Atom)) for t, _ in one.terms):
            continue
        indices = {t.name: abs(c) for t, c in one.terms if isinstance(t, Index)}
        counts = {name: _values(a, b, name) for name in indices}
        reach = 0.0  # how far the smaller terms move the origin
        names = []
        for name, c in sorted(indices.items(), key=lambda term: (term[1], counts[term[0]])):
            if not c > reach:
                break
            names.append(name)
            reach += c * (counts[name] - 1)
        else:
            found |= set(names)
    return found


def _values(a: Use, b: Use, name: str) -> float:
    """How many values an index has in both uses together."""
    ranges = [use.ranges[name] for use in (a, b) if name in use.ranges]
    return max(last for _, last in ranges) - min(first for first, _ in ranges) if ranges else inf


def _single(a: Use, b: Use) -> set[str]:
    """Grid axes with one value: of extent 1, or fixed by a condition."""
    names = {n for n in (*a.ranges, *b.ranges) if _values(a, b, n) <= 1}
    return names | a.pinned if a is b else names
