"""Ops whose results nothing reads."""

from __future__ import annotations

from dataclasses import replace

from tidegate.ir import hir
from tidegate.ir.expr import symbols


def without_dead_ops(body: hir.Body) -> hir.Body:
    """The body without ops whose results nothing reads (a copy that nothing reads would never be waited for)."""
    while True:
        used = {v.id for node in hir.walk(body) for v in hir.reads(node)}
        names = {n for node in hir.walk(body) for e in hir.expressions(node) for n in symbols(e)}
        kept = _prune(body, used, names)
        if kept == body:
            return body
        body = kept


def _prune(body: hir.Body, used: set[int], names: set[str]) -> hir.Body:
    out: list[hir.Node] = []
    for node in body:
        match node:
            case hir.Loop():
                carried = tuple(c for c in node.carried if c.inside.id in used or c.after.id in used)
                inner = _prune(node.body, used, names)
                if inner or carried:
                    out.append(replace(node, carried=carried, body=inner))
            case hir.Branch():
                merged = tuple(m for m in node.merged if m.after.id in used)
                then, otherwise = (_prune(side, used, names) for side in (node.then, node.otherwise))
                if then or otherwise or merged:
                    out.append(replace(node, then=then, otherwise=otherwise, merged=merged))
            case hir.LoadScalar():
                if node.name in names:
                    out.append(node)
            case _:
                if (result := hir.result(node)) is None or result.id in used:
                    out.append(node)
    return tuple(out)
