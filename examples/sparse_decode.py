"""Decode attention over a block table: one new query per sequence, keys and values in pages that lie anywhere.

How long a sequence is and where its pages are is read from tensors; a page below 0 is left out (evicted, or masked by a
block-sparse pattern). Query heads that share a key head are the rows of one product. Pages are copied ahead: the copy
of a later page looks up its own table entry, and asks whether there is one.
"""

import tidegate as tg
from tidegate import cuda

LOG2_E = 1.4426950408889634
PAGE_SIZE = 64


@tg.kernel(warps=4)
def sparse_decode(
    q: tg.Tensor["B", "HK", "G", "D", "bf16"],
    k: tg.Tensor["P", "HK", "PAGE", "D", "bf16"],
    v: tg.Tensor["P", "HK", "PAGE", "D", "bf16"],
    table: tg.Tensor["B", "N", "i32"],
    lengths: tg.Tensor["B", "i32"],
    o: tg.Out["B", "HK", "G", "D", "bf16"],
    *,
    D=128,
    PAGE=PAGE_SIZE,
    STAGES=2,
):
    """G query heads per key head; sequence b has lengths[b] keys, those of tile j in page table[b, j]."""
    for b, h, g in tg.grid(tg.range("B"), tg.range("HK"), tg.tiles("G", 16)):
        queries = tg.load(q[b, h, g, :], by=cuda.cp_async())
        length = tg.load(lengths[b])
        acc = tg.zeros((16, D))
        top = tg.full((16, 1), -1e30)
        total = tg.zeros((16, 1))
        for j in tg.tiles(length, PAGE):
            page = tg.load(table[b, tg.end(j) // PAGE - 1])
            if page >= 0:
                keys = tg.load(k[page, h, :, :], by=cuda.cp_async(), stages=STAGES)
                values = tg.load(v[page, h, :, :], by=cuda.cp_async(), stages=STAGES)
                seen = tg.positions(j)[None, :] < length
                scores = tg.where(seen, tg.dot(queries, keys.T) * (LOG2_E / D**0.5), -1e30)
                higher = tg.maximum(top, scores.max(axis=1, keepdims=True))
                weights = tg.exp2(scores - higher)
                keep = tg.exp2(top - higher)
                total = total * keep + weights.sum(axis=1, keepdims=True)
                acc = tg.dot(weights.astype("bf16"), values, acc * keep)
                top = higher
        o[b, h, g, :] = tg.where(total > 0.0, acc / total, 0.0).astype("bf16")


def inputs(kernel_name, rng, sizes):
    """Pages in any order, one in four left out; lengths from nothing to all that the table holds."""
    b, n, pages = sizes["B"], sizes["N"], sizes["P"]
    table = rng.integers(0, max(pages, 1), (b, n))
    table[rng.random((b, n)) < 0.25] = -1
    return {"table": table, "lengths": rng.integers(0, n * PAGE_SIZE + 1, b)}
