"""Attention forward on mma.sync: softmax(q k^T * scale) v with grouped query heads, never leaving the chip.

Scores stay in the registers where the tensor cores left them: a row belongs to one warp, so its maximum and sum need no
shared memory, and the weights are the next product's operand as they are.
"""

import tidegate as tg
from tidegate import cuda

LOG2_E = 1.4426950408889634


@tg.kernel(warps=4)
def attention(
    q: tg.Tensor["B", "H", "S", "D", "bf16"],
    k: tg.Tensor["B", "HK", "T", "D", "bf16"],
    v: tg.Tensor["B", "HK", "T", "D", "bf16"],
    o: tg.Out["B", "H", "S", "D", "bf16"],
    *,
    D=128,
    GROUP=1,
    BM=128,
    BN=64,
    STAGES=2,
):
    """Every query sees all keys. GROUP query heads share one key and value head (H = GROUP * HK); BN divides T."""
    for b, h, m in tg.grid(tg.range("B"), tg.range("H"), tg.tiles("S", BM)):
        queries = tg.load(q[b, h, m, :], by=cuda.cp_async())
        acc = tg.zeros((BM, D))
        top = tg.full((BM, 1), -1e30)
        total = tg.zeros((BM, 1))
        for n in tg.tiles("T", BN):
            keys = tg.load(k[b, h // GROUP, n, :], by=cuda.cp_async(), stages=STAGES)
            values = tg.load(v[b, h // GROUP, n, :], by=cuda.cp_async(), stages=STAGES)
            scores = tg.dot(queries, keys.T) * (LOG2_E / D**0.5)
            higher = tg.maximum(top, scores.max(axis=1, keepdims=True))
            weights = tg.exp2(scores - higher)
            keep = tg.exp2(top - higher)
            total = total * keep + weights.sum(axis=1, keepdims=True)
            acc = tg.dot(weights.astype("bf16"), values, acc * keep)
            top = higher
        o[b, h, m, :] = (acc / total).astype("bf16")


@tg.kernel(warps=4)
def attention_causal(
    q: tg.Tensor["B", "H", "S", "D", "bf16"],
    k: tg.Tensor["B", "HK", "S", "D", "bf16"],
    v: tg.Tensor["B", "HK", "S", "D", "bf16"],
    o: tg.Out["B", "H", "S", "D", "bf16"],
    *,
    D=128,
    GROUP=1,
    BM=128,
    BN=64,
    STAGES=2,
):
    """Query i sees keys 0 to i. Keys beyond S are masked too, so any S will do."""
    for b, h, m in tg.grid(tg.range("B"), tg.range("H"), tg.tiles("S", BM)):
        queries = tg.load(q[b, h, m, :], by=cuda.cp_async())
        acc = tg.zeros((BM, D))
        top = tg.full((BM, 1), -1e30)
        total = tg.zeros((BM, 1))
        for n in tg.tiles("S", BN, until=tg.end(m)):
            keys = tg.load(k[b, h // GROUP, n, :], by=cuda.cp_async(), stages=STAGES)
            values = tg.load(v[b, h // GROUP, n, :], by=cuda.cp_async(), stages=STAGES)
            scores = tg.dot(queries, keys.T) * (LOG2_E / D**0.5)
            if tg.end(n) > tg.begin(m):  # the other tiles are seen whole
                seen = tg.positions(n)[None, :] <= tg.positions(m)[:, None]
                scores = tg.where(seen, scores, -1e30)
            higher = tg.maximum(top, scores.max(axis=1, keepdims=True))
            weights = tg.exp2(scores - higher)
            keep = tg.exp2(top - higher)
            total = total * keep + weights.sum(axis=1, keepdims=True)
            acc = tg.dot(weights.astype("bf16"), values, acc * keep)
            top = higher
        o[b, h, m, :] = (acc / total).astype("bf16")
