"""Kernels of any length: a safe kernel's work, repeated."""

from __future__ import annotations

from dataclasses import replace

from tidegate.check.rewrite import mapped
from tidegate.ir import tir

Body = tuple[tir.Stmt, ...]


def repeated(kernel: tir.Kernel, times: int, inside: bool = False) -> tir.Kernel:
    """The kernel with its work ``times`` times; cursors go on where they are, as those of both sides of a ring do."""
    outputs = [p for p in kernel.params if p.output]
    more = tuple(replace(p, name=numbered(p.name, n)) for n in range(1, times) for p in outputs)
    if inside:
        body = innermost(kernel.body, times)
    elif kernel.roles:
        body = tuple(replace(s, body=copies(s.body, times)) if isinstance(s, tir.InRole) else s for s in kernel.body)
    else:
        body = copies((*kernel.body, tir.SyncBlock()), times)
    return replace(kernel, params=(*kernel.params, *more), body=body)


def numbered(name: str, number: int) -> tir.Name:
    return tir.Name(f"{name}_{number}" if number else name)


def copies(body: Body, times: int) -> Body:
    """The statements ``times`` times, each time with outputs of its own."""

    def to(number: int, stmt: tir.Stmt) -> Body:
        if isinstance(stmt, (tir.StGlobal, tir.TmaStore)):
            return (replace(stmt, dst=replace(stmt.dst, tensor=numbered(stmt.dst.tensor, number))),)
        return (stmt,)

    return tuple(s for number in range(times) for s in mapped(body, lambda stmt, n=number: to(n, stmt)))


def innermost(body: Body, times: int) -> Body:
    """The bodies of the innermost loops ``times`` times."""
    out: list[tir.Stmt] = []
    for stmt in body:
        if isinstance(stmt, tir.For) and not any(isinstance(s, tir.For) for s in tir.walk(stmt.body)):
            out.append(replace(stmt, body=copies(stmt.body, times)))
        elif isinstance(stmt, (tir.For, tir.If, tir.InRole)):
            out.append(replace(stmt, body=innermost(stmt.body, times)))
        else:
            out.append(stmt)
    return tuple(out)
