"""A matrix product in three steps: synchronous loads, asynchronous copies, a ring of stages."""

import tidegate as tg
from tidegate import cuda


@tg.kernel(warps=8)
def gemm_v0(
    a: tg.Tensor["M", "K", "bf16"],
    b: tg.Tensor["K", "N", "bf16"],
    c: tg.Out["M", "N", "bf16"],
    *,
    BM=128,
    BN=128,
    BK=32,
):
    """No asynchronous copies: the threads load, store to shared memory, and wait for one another."""
    for m, n in tg.grid(tg.tiles("M", BM), tg.tiles("N", BN)):
        acc = tg.zeros((BM, BN), "f32")
        for k in tg.tiles("K", BK):
            x = tg.load(a[m, k], by=cuda.ld())
            y = tg.load(b[k, n], by=cuda.ld())
            acc = tg.dot(x, y, acc, by=cuda.mma())
        c[m, n] = acc.astype("bf16")


@tg.kernel(warps=8)
def gemm_v1(
    a: tg.Tensor["M", "K", "bf16"],
    b: tg.Tensor["K", "N", "bf16"],
    c: tg.Out["M", "N", "bf16"],
    *,
    BM=128,
    BN=128,
    BK=32,
):
    """cp.async with one stage: the copy needs no registers, but nothing overlaps yet."""
    for m, n in tg.grid(tg.tiles("M", BM), tg.tiles("N", BN)):
        acc = tg.zeros((BM, BN), "f32")
        for k in tg.tiles("K", BK):
            x = tg.load(a[m, k], by=cuda.cp_async())
            y = tg.load(b[k, n], by=cuda.cp_async())
            acc = tg.dot(x, y, acc, by=cuda.mma())
        c[m, n] = acc.astype("bf16")


@tg.kernel(warps=8)
def gemm_v2(
    a: tg.Tensor["M", "K", "bf16"],
    b: tg.Tensor["K", "N", "bf16"],
    c: tg.Out["M", "N", "bf16"],
    *,
    BM=128,
    BN=256,
    BK=32,
    STAGES=4,
):
    """A ring: copies run STAGES - 1 trips ahead of the tensor cores, with one barrier per trip, and the first fragments
    of a trip are read at the end of the one before."""
    for m, n in tg.grid(tg.tiles("M", BM), tg.tiles("N", BN)):
        acc = tg.zeros((BM, BN), "f32")
        for k in tg.tiles("K", BK):
            x = tg.load(a[m, k], by=cuda.cp_async(), stages=STAGES)
            y = tg.load(b[k, n], by=cuda.cp_async(), stages=STAGES)
            acc = tg.dot(x, y, acc, by=cuda.mma())
        c[m, n] = acc.astype("bf16")
