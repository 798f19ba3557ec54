"""Root-mean-square normalisation of the rows of a matrix, scaled by a vector."""

import tidegate as tg


@tg.kernel(warps=8, ctas_per_sm=4)  # few rows at a time: their bytes lie close together in memory
def rmsnorm(
    x: tg.Tensor["R", "COLS", "bf16"],
    gain: tg.Tensor["COLS", "bf16"],
    y: tg.Out["R", "COLS", "bf16"],
    *,
    COLS=8192,
    EPS=1e-6,
):
    for r in tg.grid(tg.tiles("R", 1)):
        row = tg.load(x[r, :]).astype("f32")
        scaled = tg.load(gain[:]).astype("f32")  # on its way while the row is folded
        scale = tg.rsqrt((row * row).sum(axis=1, keepdims=True) * (1.0 / COLS) + EPS)
        y[r, :] = (row * scale * scaled).astype("bf16")
