"""A product of 8-bit floats with f32 accumulators. Needs sm_89 or later.

Both operands lie along K, which is what tensor cores take: a row of ``b`` is a column of the product.
"""

import tidegate as tg
from tidegate import cuda

target = "sm_89"  # for the command line tool, where there is no GPU


@tg.kernel(warps=8)
def gemm_fp8(
    a: tg.Tensor["M", "K", "f8e4m3"],
    b: tg.Tensor["N", "K", "f8e4m3"],
    c: tg.Out["M", "N", "bf16"],
    *,
    BM=128,
    BN=128,
    BK=64,
    STAGES=4,
):
    for m, n in tg.grid(tg.tiles("M", BM), tg.tiles("N", BN)):
        acc = tg.zeros((BM, BN), "f32")
        for k in tg.tiles("K", BK):
            x = tg.load(a[m, k], by=cuda.cp_async(), stages=STAGES)
            y = tg.load(b[n, k], by=cuda.cp_async(), stages=STAGES)
            acc = tg.dot(x, y.T, acc, by=cuda.mma())
        c[m, n] = acc.astype("bf16")
