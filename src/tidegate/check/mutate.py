"""Broken variants of a kernel, one fault each, to test that the checker (or a simulator) notices it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from tidegate.ir import tir
from tidegate.ir.expr import Bin, add
from tidegate.ir.text import print_stmt

Body = tuple[tir.Stmt, ...]
Edit = Callable[[tir.Stmt], Body]


def mutants(kernel: tir.Kernel) -> Iterator[tuple[str, tir.Kernel]]:
    """(what was done, kernel) for every mutation that applies. A mutant may be as good as the original where the
    original does more than it must; whoever uses them says why."""
    for rule in (_syncs, _swapped, _rings, _advances, _guards, _aliases):
        yield from rule(kernel)


def _places(body: Body, path: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], tir.Stmt]]:
    for number, stmt in enumerate(body):
        yield (*path, number), stmt
        if isinstance(stmt, (tir.For, tir.If, tir.InRole)):
            yield from _places(stmt.body, (*path, number))


def _edited(body: Body, path: tuple[int, ...], edit: Edit) -> Body:
    """The body with the statement at ``path`` replaced by what ``edit`` makes of it."""
    at, *rest = path
    stmt = body[at]
    if rest:
        assert isinstance(stmt, (tir.For, tir.If, tir.InRole))
        new: Body = (replace(stmt, body=_edited(stmt.body, tuple(rest), edit)),)
    else:
        new = edit(stmt)
    return (*body[:at], *new, *body[at + 1 :])


def _with(kernel: tir.Kernel, path: tuple[int, ...], *stmts: tir.Stmt) -> tir.Kernel:
    return replace(kernel, body=_edited(kernel.body, path, lambda _: stmts))


def _syncs(kernel: tir.Kernel) -> Iterator[tuple[str, tir.Kernel]]:
    for path, stmt in _places(kernel.body):
        name = _name(stmt, path)
        if isinstance(stmt, tir.Sync):
            yield f"delete {name}", _with(kernel, path)
        if isinstance(stmt, tir.CpWait):
            yield f"wait for one group less in {name}", _with(kernel, path, replace(stmt, n=stmt.n + 1))
        if isinstance(stmt, tir.SyncBlock) and kernel.warps > 1:
            narrow = tir.SyncWarp(id=stmt.id, why=stmt.why, line=stmt.line)
            yield f"lanes instead of warps in {name}", _with(kernel, path, narrow)
        if isinstance(stmt, tir.BarSync) and len(stmt.warps) > 1:
            for w in stmt.warps:
                some = replace(stmt, warps=tuple(x for x in stmt.warps if x != w))
                yield f"without warp {w} in {name}", _with(kernel, path, some)


def _swapped(kernel: tir.Kernel) -> Iterator[tuple[str, tir.Kernel]]:
    """A commit and the wait that follows it in one block change places."""
    places = dict(_places(kernel.body))
    for path, stmt in places.items():
        if not isinstance(stmt, tir.CpCommit):
            continue
        later = [p for p, s in places.items() if p[:-1] == path[:-1] and p > path and isinstance(s, tir.CpWait)]
        if later:
            first = _with(kernel, path, places[later[0]])
            yield f"swap {_name(stmt, path)} and {_name(places[later[0]], later[0])}", _with(first, later[0], stmt)


def _rings(kernel: tir.Kernel) -> Iterator[tuple[str, tir.Kernel]]:
    """One stage less. A ring of two becomes a single slot without cursor."""
    for buffer in kernel.buffers:
        if buffer.stages < 2:
            continue
        slots = [s for stmt in tir.walk(kernel.body) for s in _slots(stmt) if s.buffer == buffer.name]
        cursors = {s.cursor for s in slots}
        depth = buffer.stages - 1
        buffers = tuple(replace(b, stages=depth) if b is buffer else b for b in kernel.buffers)
        if depth > 1:
            less = tuple(replace(c, depth=depth) if c.name in cursors else c for c in kernel.cursors)
            yield f"{depth} stages for {buffer.name}", replace(kernel, buffers=buffers, cursors=less)
            continue
        rest = tuple(c for c in kernel.cursors if c.name not in cursors)
        body = _without_cursor(kernel.body, buffer.name, cursors)
        yield f"{depth} stages for {buffer.name}", replace(kernel, buffers=buffers, cursors=rest, body=body)


def _slots(stmt: tir.Stmt) -> list[tir.Slot]:
    return [v for v in vars(stmt).values() if isinstance(v, tir.Slot)]


def _without_cursor(body: Body, buffer: str, cursors: set[tir.Name | None]) -> Body:
    out: list[tir.Stmt] = []
    for stmt in body:
        if isinstance(stmt, tir.Advance) and stmt.cursor in cursors:
            continue
        if isinstance(stmt, (tir.For, tir.If, tir.InRole)):
            stmt = replace(stmt, body=_without_cursor(stmt.body, buffer, cursors))
        single: dict[str, Any] = {
            n: replace(v, cursor=None) for n, v in vars(stmt).items() if isinstance(v, tir.Slot) and v.buffer == buffer
        }
        out.append(replace(stmt, **single) if single else stmt)
    return tuple(out)


def _advances(kernel: tir.Kernel) -> Iterator[tuple[str, tir.Kernel]]:
    for path, stmt in _places(kernel.body):
        if isinstance(stmt, tir.Advance):
            yield f"delete {_name(stmt, path)}", _with(kernel, path)


def _guards(kernel: tir.Kernel) -> Iterator[tuple[str, tir.Kernel]]:
    """Copies that run although their guard is false, or stop one iteration early."""
    for path, stmt in _places(kernel.body):
        if not isinstance(stmt, tir.If) or not any(isinstance(s, tir.CpAsync) for s in tir.walk(stmt.body)):
            continue
        yield f"always {_name(stmt, path)}", _with(kernel, path, *stmt.body)
        if isinstance(stmt.condition, Bin) and stmt.condition.op == "<":
            bent = Bin("<", add(stmt.condition.a, 1), stmt.condition.b)
            yield f"one iteration less in {_name(stmt, path)}", _with(kernel, path, replace(stmt, condition=bent))


def _aliases(kernel: tir.Kernel) -> Iterator[tuple[str, tir.Kernel]]:
    """A buffer is moved onto another one."""
    for one in kernel.buffers:
        for two in kernel.buffers:
            if two.offset >= one.end:
                moved = tuple(replace(b, offset=one.offset) if b is two else b for b in kernel.buffers)
                yield f"{two.name} at the bytes of {one.name}", replace(kernel, buffers=moved)


def _name(stmt: tir.Stmt, path: tuple[int, ...]) -> str:
    return f"{print_stmt(stmt).rstrip(' {')} at {'.'.join(map(str, path))}"
