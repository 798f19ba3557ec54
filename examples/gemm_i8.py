"""A quantised product: 8-bit integers summed in i32, then scaled by row and by column.

Both operands lie along K, which is what tensor cores take: a row of ``b`` is a column of the product.
"""

import tidegate as tg
from tidegate import cuda


@tg.kernel(warps=4)
def gemm_i8(
    a: tg.Tensor["M", "K", "i8"],
    b: tg.Tensor["N", "K", "i8"],
    row_scale: tg.Tensor["M", "f32"],
    column_scale: tg.Tensor["N", "f32"],
    c: tg.Out["M", "N", "bf16"],
    *,
    BM=128,
    BN=128,
    BK=128,
    STAGES=3,
):
    for m, n in tg.grid(tg.tiles("M", BM), tg.tiles("N", BN)):
        acc = tg.zeros((BM, BN), "i32")
        for k in tg.tiles("K", BK):
            x = tg.load(a[m, k], by=cuda.cp_async(), stages=STAGES)
            y = tg.load(b[n, k], by=cuda.cp_async(), stages=STAGES)
            acc = tg.dot(x, y.T, acc, by=cuda.mma())
        scaled = acc.astype("f32") * tg.load(row_scale[m])[:, None] * tg.load(column_scale[n])
        c[m, n] = scaled.astype("bf16")
