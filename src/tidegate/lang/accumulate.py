"""Products that are added to a tile take it as their accumulator."""

from __future__ import annotations

import collections
from collections.abc import Mapping
from dataclasses import replace

from tidegate.ir import hir


def with_accumulators(body: hir.Body) -> hir.Body:
    """``acc + tg.dot(x, y)`` as ``tg.dot(x, y, acc)``: a second accumulator and an addition per element less. The
    product must be read by that sum alone, and in the same block."""
    nodes = list(hir.walk(body))
    uses = collections.Counter(value.id for node in nodes for value in hir.reads(node))
    zeros = {node.result.id for node in nodes if isinstance(node, hir.Fill) and node.number == 0}
    alone = {
        node.result.id: node
        for node in nodes
        if isinstance(node, hir.Dot) and node.c.id in zeros and uses[node.result.id] == 1
    }
    return _block(body, alone) if alone else body


def _block(body: hir.Body, alone: Mapping[int, hir.Dot]) -> hir.Body:
    out: list[hir.Node] = []
    for node in body:
        match node:
            case hir.Loop():
                out.append(replace(node, body=_block(node.body, alone)))
            case hir.Branch():
                then, otherwise = (_block(side, alone) for side in hir.bodies(node))
                out.append(replace(node, then=then, otherwise=otherwise))
            case hir.Map(op="add", args=(hir.Value() as a, hir.Value() as b)):
                product = next((alone[v.id] for v in (b, a) if v.id in alone and alone[v.id] in out), None)
                if product is None:
                    out.append(node)
                    continue
                out.remove(product)
                out.append(replace(product, result=node.result, c=a if product.result == b else b))
            case _:
                out.append(node)
    return tuple(out)
