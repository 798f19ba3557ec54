"""Edits of a kernel by the index path of a statement: the tools of :mod:`tidegate.check.mutate`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from tidegate.ir import tir
from tidegate.ir.text import print_stmt

Body = tuple[tir.Stmt, ...]
Path = tuple[int, ...]
Edit = Callable[[tir.Stmt], Body]

BLOCKS = (tir.For, tir.If, tir.InRole)


def places(body: Body, path: Path = ()) -> Iterator[tuple[Path, tir.Stmt]]:
    """All statements with their index paths, in textual order."""
    for number, stmt in enumerate(body):
        yield (*path, number), stmt
        if isinstance(stmt, BLOCKS):
            yield from places(stmt.body, (*path, number))


def at(body: Body, path: Path) -> tir.Stmt | None:
    """The statement at a path, None when there is none."""
    stmt: tir.Stmt | None = None
    for number in path:
        if not 0 <= number < len(body):
            return None
        stmt = body[number]
        body = stmt.body if isinstance(stmt, BLOCKS) else ()
    return stmt


def size(body: Body, path: Path) -> int:
    """The number of statements in the block at a path; of the body itself for the empty path."""
    block = at(body, path)
    return len(block.body) if isinstance(block, BLOCKS) else len(body)


def edited(body: Body, path: Path, edit: Edit) -> Body:
    """The body with the statement at ``path`` replaced by what ``edit`` makes of it."""
    number, *rest = path
    stmt = body[number]
    if rest:
        assert isinstance(stmt, BLOCKS)
        new: Body = (replace(stmt, body=edited(stmt.body, tuple(rest), edit)),)
    else:
        new = edit(stmt)
    return (*body[:number], *new, *body[number + 1 :])


def put(kernel: tir.Kernel, path: Path, *stmts: tir.Stmt) -> tir.Kernel:
    """The statement at ``path`` replaced by ``stmts``."""
    return replace(kernel, body=edited(kernel.body, path, lambda _: stmts))


def insert_after(kernel: tir.Kernel, path: Path, stmt: tir.Stmt) -> tir.Kernel:
    return replace(kernel, body=edited(kernel.body, path, lambda old: (old, stmt)))


def insert_before(kernel: tir.Kernel, path: Path, stmt: tir.Stmt) -> tir.Kernel:
    return replace(kernel, body=edited(kernel.body, path, lambda old: (stmt, old)))


def mapped(body: Body, edit: Edit) -> Body:
    """Every statement replaced by what ``edit`` makes of it, blocks from inside."""
    out: list[tir.Stmt] = []
    for stmt in body:
        out.extend(edit(replace(stmt, body=mapped(stmt.body, edit)) if isinstance(stmt, BLOCKS) else stmt))
    return tuple(out)


def without(body: Body, kind: type[tir.Stmt]) -> Body:
    """The body without statements of one kind."""
    return mapped(body, lambda stmt: () if isinstance(stmt, kind) else (stmt,))


def slots(stmt: tir.Stmt) -> list[tir.Slot]:
    return [v for v in vars(stmt).values() if isinstance(v, tir.Slot)]


def at_offset(kernel: tir.Kernel, buffer: tir.Buffer, offset: int) -> tir.Kernel:
    return replace(kernel, buffers=tuple(replace(b, offset=offset) if b is buffer else b for b in kernel.buffers))


def one_slot(kernel: tir.Kernel, buffer: tir.Buffer) -> tir.Kernel:
    """All slots of a ring are its first one; barriers and cursors stay as they are."""
    single = tuple(replace(b, stages=1) if b is buffer else b for b in kernel.buffers)
    return replace(kernel, buffers=single, body=_single(kernel.body, buffer.name))


def _single(body: Body, buffer: str) -> Body:
    def edit(stmt: tir.Stmt) -> Body:
        changed: dict[str, Any] = {
            n: replace(v, cursor=None) for n, v in vars(stmt).items() if isinstance(v, tir.Slot) and v.buffer == buffer
        }
        return (replace(stmt, **changed) if changed else stmt,)

    return mapped(body, edit)


def shorter(kernel: tir.Kernel, buffer: tir.Buffer, cursors: set[tir.Name | None]) -> tir.Kernel:
    """One stage less. A ring of two becomes a single slot without cursor."""
    depth = buffer.stages - 1
    buffers = tuple(replace(b, stages=depth) if b is buffer else b for b in kernel.buffers)
    if depth > 1:
        less = tuple(replace(c, depth=depth) if c.name in cursors else c for c in kernel.cursors)
        return replace(kernel, buffers=buffers, cursors=less)
    rest = tuple(c for c in kernel.cursors if c.name not in cursors)
    body = mapped(kernel.body, lambda s: () if isinstance(s, tir.Advance) and s.cursor in cursors else (s,))
    return replace(kernel, buffers=buffers, cursors=rest, body=_single(body, buffer.name))


def name(stmt: tir.Stmt | None, path: Path) -> str:
    assert stmt is not None
    return f"{print_stmt(stmt).rstrip(' {')} at {'.'.join(map(str, path))}"
