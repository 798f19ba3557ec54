"""Rows by number: sums of table rows and their gradient, and a product whose rows come from anywhere and go back there.

Numbers come in blocks, padded with -1: a row that does not exist reads as zero, and nothing is added to it.
"""

import tidegate as tg
from tidegate import cuda


@tg.kernel(warps=4)
def bag(
    index: tg.Tensor["B", "N", "BL", "i32"],
    table: tg.Tensor["R", "D", "f32"],
    y: tg.Out["B", "D", "f32"],
    *,
    BL=32,
    D=128,
    STAGES=3,
):
    """y[b] = sum of table[i] for i in index[b]. Copies run ahead, and with them the loads of the numbers."""
    for b in tg.grid(tg.range("B")):
        total = tg.zeros((D,))
        for n in tg.range("N"):
            rows = tg.load(index[b, n, :])
            total += tg.load(table[rows, :], by=cuda.cp_async(), stages=STAGES).sum(axis=0)
        y[b, :] = total


@tg.kernel(warps=4)
def bag_gradient(
    index: tg.Tensor["B", "N", "BL", "i32"],
    dy: tg.Tensor["B", "D", "f32"],
    dtable: tg.InOut["R", "D", "f32"],
    *,
    BL=32,
    D=128,
):
    """dtable[i] += dy[b] for i in index[b]: several lines may name one row."""
    for b, n in tg.grid(tg.range("B"), tg.range("N")):
        rows = tg.load(index[b, n, :])
        tg.atomic_add(dtable[rows, :], tg.zeros((BL, D)) + tg.load(dy[b, :]))


@tg.kernel(warps=4)
def expert(
    tokens: tg.Tensor["G", "BM", "i32"],
    x: tg.Tensor["T", "K", "bf16"],
    w: tg.Tensor["K", "N", "bf16"],
    y: tg.InOut["T", "N", "f32"],
    *,
    BM=64,
    BN=64,
    BK=32,
    STAGES=3,
):
    """y[t] += x[t] @ w for the tokens that one expert of a mixture gets."""
    for g, n in tg.grid(tg.range("G"), tg.tiles("N", BN)):
        rows = tg.load(tokens[g, :])
        acc = tg.zeros((BM, BN))
        for k in tg.tiles("K", BK):
            a = tg.load(x[rows, k], by=cuda.cp_async(), stages=STAGES)
            b = tg.load(w[k, n], by=cuda.cp_async(), stages=STAGES)
            acc = tg.dot(a, b, acc)
        tg.atomic_add(y[rows, n], acc)


def inputs(kernel, rng, sizes):
    """Row numbers for `tidegate run`, some of them none."""
    if kernel == "expert":
        return {"tokens": rng.integers(-1, sizes["T"], (sizes["G"], 64))}
    return {"index": rng.integers(-1, sizes["R"], (sizes["B"], sizes["N"], 32))}
