"""A ring of two stages: the next row is on its way while this one is used."""

import tidegate as tg
from tidegate import cuda


@tg.kernel(warps=1)
def row_ring(x: tg.Tensor["R", 128, "f32"], y: tg.Out["R", 128, "f32"], *, STAGES=2):
    for r in tg.tiles("R", 1):
        row = tg.load(x[r, :], by=cuda.cp_async(), stages=STAGES)
        y[r, :] = row * 2.0
