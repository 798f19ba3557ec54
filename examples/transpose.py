"""Transposes a matrix tile by tile through shared memory: rows in, columns out."""

import tidegate as tg
from tidegate import cuda


@tg.kernel(warps=4)
def transpose(a: tg.Tensor["M", "N", "f32"], b: tg.Out["N", "M", "f32"], *, BM=32, BN=32, STAGES=1):
    for m in tg.grid(tg.tiles("M", BM)):
        for n in tg.tiles("N", BN):
            t = tg.load(a[m, n], by=cuda.cp_async(), stages=STAGES)
            b[n, m] = t.T
