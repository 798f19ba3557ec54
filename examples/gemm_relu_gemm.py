"""Two products in one kernel: relu(a @ b) @ d. What is between them never leaves the chip.

The tensor cores leave the hidden tile spread over all warps; the second product needs whole rows of it in each, so it
goes through shared memory, once.
"""

import tidegate as tg
from tidegate import cuda


@tg.kernel(warps=8)
def gemm_relu_gemm(
    a: tg.Tensor["M", "K", "bf16"],
    b: tg.Tensor["K", "H", "bf16"],
    d: tg.Tensor["H", "N", "bf16"],
    c: tg.Out["M", "N", "bf16"],
    *,
    H=256,
    BM=64,
    BN=128,
    BK=32,
    STAGES=3,
):
    for m in tg.grid(tg.tiles("M", BM)):
        hidden = tg.zeros((BM, H))
        for k in tg.tiles("K", BK):
            x = tg.load(a[m, k], by=cuda.cp_async(), stages=STAGES)
            y = tg.load(b[k, :], by=cuda.cp_async(), stages=STAGES)
            hidden = tg.dot(x, y, hidden, by=cuda.mma())
        positive = tg.maximum(hidden, 0).astype("bf16")
        for n in tg.tiles("N", BN):
            w = tg.load(d[:, n], by=cuda.cp_async(), stages=2)
            c[m, n] = tg.dot(positive, w, by=cuda.mma()).astype("bf16")
