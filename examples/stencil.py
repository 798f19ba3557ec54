"""Windows that overlap: neighbours of a tile are tiles at an offset, and outside the tensor there is zero."""

import tidegate as tg
from tidegate import cuda


@tg.kernel(warps=4)
def jacobi(x: tg.Tensor["H", "W", "f32"], y: tg.Out["H", "W", "f32"], *, BH=16, BW=64):
    """The mean of the four neighbours."""
    for i, j in tg.grid(tg.tiles("H", BH), tg.tiles("W", BW)):
        north = tg.load(x[tg.begin(i) - 1 : tg.end(i) - 1, j])
        south = tg.load(x[tg.begin(i) + 1 : tg.end(i) + 1, j])
        west = tg.load(x[i, tg.begin(j) - 1 : tg.end(j) - 1])
        east = tg.load(x[i, tg.begin(j) + 1 : tg.end(j) + 1])
        y[i, j] = 0.25 * (north + south + west + east)


@tg.kernel(warps=4)
def causal_conv(
    x: tg.Tensor["T", "C", "f32"],
    w: tg.Tensor["K", "C", "f32"],
    y: tg.Out["T", "C", "f32"],
    *,
    BT=64,
    BC=64,
    STAGES=2,
):
    """y[t] = sum of w[k] * x[t - k], channel by channel; before the first row there is zero."""
    for t, c in tg.grid(tg.tiles("T", BT), tg.tiles("C", BC)):
        total = tg.zeros((BT, BC))
        for k in tg.range("K"):
            rows = tg.load(x[tg.begin(t) - k : tg.end(t) - k, c], by=cuda.cp_async(), stages=STAGES)
            total += rows * tg.load(w[k, c])
        y[t, c] = total
