"""What the author can do where nothing was proved: which loop or condition was in the way, and what may help."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tidegate.check.cases import Exhausted
from tidegate.check.linear import Atom, Index, Linear, Mod, Reader, constants, tests_of
from tidegate.check.state import Fault
from tidegate.check.survey import MAX_DISTANCE
from tidegate.ir import tir

NAMED = 2
"""Loops and conditions that one text names at most."""

Control = tir.For | tir.If


def advice(kernel: tir.Kernel, sizes: Mapping[str, int], stop: Exception) -> str:
    """What may turn 'not proved' into a verdict, given what has stopped the proof."""
    if "; try: " in str(stop):
        return ""
    known = {d.name: d.value for d in kernel.dims if d.value is not None} | dict(sizes)
    reader = Reader(known, {d.name: d.multiple for d in kernel.dims if d.name not in known})
    named, hard = _in_the_way(kernel, reader, stop)
    ways = [*_sizes(kernel, sizes), *_stages(kernel)]
    where = " and ".join(list(dict.fromkeys(map(_described, named)))[:NAMED])
    if hard:
        scalar = "" if kernel.roles else 'a scalar argument (tg.Scalar["i32"]) or '
        ways.append(f"for {where} {scalar}a guard `if` in a plain loop instead of the expression")
    elif where and not kernel.roles and isinstance(stop, Exhausted) and _far(named, reader):
        ways.append(f'a scalar argument (tg.Scalar["i32"]) instead of the constant in {where}')
    elif where:
        ways.append(f"a simpler form of {where}")
    return _joined(ways or ["loops that end by sizes, and conditions on indices and constants"])


def of_windows(kernel: tir.Kernel, sizes: Mapping[str, int]) -> str:
    """The same for accesses to global memory."""
    guard = "a guard `if` around the access that says how far its indices go"
    return _joined([*_sizes(kernel, sizes), guard, "a tensor of its own for one of the accesses"])


def _joined(ways: list[str]) -> str:
    return f"; try: {', or '.join(ways)}"


def _sizes(kernel: tir.Kernel, sizes: Mapping[str, int]) -> Iterator[str]:
    free = [d.name for d in kernel.dims if d.value is None and d.name not in sizes]
    if free:
        yield f"sizes ({', '.join(f'--set {name}=...' for name in free)})"


def _stages(kernel: tir.Kernel) -> Iterator[str]:
    deep = [b for b in kernel.buffers if b.stages > 1]
    if deep:
        lines = [_line(next((s.line for s in tir.walk(kernel.body) if _uses(s, b.name) and s.line), 0)) for b in deep]
        yield f"fewer stages for {', '.join(b.name + line for b, line in zip(deep, lines, strict=True))}"


def _uses(stmt: tir.Stmt, buffer: str) -> bool:
    return any(getattr(getattr(stmt, side, None), "buffer", None) == buffer for side in ("dst", "src"))


def _in_the_way(kernel: tir.Kernel, reader: Reader, stop: Exception) -> tuple[list[Control], bool]:
    """The loops and conditions that a text should name, and whether they have expressions that could be others."""
    found = list(_around(kernel.body, ()))
    every = list(dict.fromkeys(s for path in found for s in path))
    if isinstance(stop, Fault):
        near = list(next((path for path in found if path[-1] is stop.stmt or stop.stmt in path[-1].body), ()))
    else:
        near = [s for s in every if _heading(s) in f"{stop} "]
        if isinstance(stop, Exhausted) and (far := _far(every, reader)):
            return far, False
    hard = [s for s in near if _hard(s, reader)] or [s for s in every if _hard(s, reader)]
    return hard or near, bool(hard)


def _heading(stmt: Control) -> str:
    """How texts begin that are about it."""
    return f"the loop over {stmt.index} " if isinstance(stmt, tir.For) else f"the condition {stmt.condition} "


def _around(body: tuple[tir.Stmt, ...], path: tuple[Control, ...]) -> Iterator[tuple[Control, ...]]:
    """Every loop and condition, with those around it first."""
    for stmt in body:
        if isinstance(stmt, (tir.For, tir.If)):
            yield (*path, stmt)
            yield from _around(stmt.body, (*path, stmt))
        elif isinstance(stmt, tir.InRole):
            yield from _around(stmt.body, path)


def _forms(stmt: Control, reader: Reader) -> list[Linear]:
    if isinstance(stmt, tir.For):
        return [reader.linear(stmt.start), reader.linear(stmt.stop)]
    return [test.value for test in tests_of(reader.formula(stmt.condition))]


def _hard(stmt: Control, reader: Reader) -> bool:
    """Is there more in it than sums of sizes, indices and remainders?"""
    return any(_unlike_a_sum(form) for form in _forms(stmt, reader))


def _unlike_a_sum(form: Linear) -> bool:
    rest = [term for term, _ in form.terms if not isinstance(term, (Atom, Index))]
    return any(not isinstance(term, Mod) or _unlike_a_sum(term.value) for term in rest)


def _far(stmts: list[Control], reader: Reader) -> list[Control]:
    """Those that compare with a large constant."""
    reach = {s: max((c for form in _forms(s, reader) if form.terms for c in constants(form)), default=0) for s in stmts}
    return [s for s in stmts if reach[s] > MAX_DISTANCE]


def _described(stmt: Control) -> str:
    line = _line(next((s.line for s in (stmt, *tir.walk(stmt.body)) if s.line), 0))
    if isinstance(stmt, tir.For):
        return f"the loop over {stmt.index}{line}, from {stmt.start} to {stmt.stop}"
    return f"the condition {stmt.condition}{line}"


def _line(line: int) -> str:
    return f" (line {line})" if line else ""
