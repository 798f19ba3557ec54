"""Layer normalisation of the rows of a matrix, with gain and bias. The row stays in registers between the two sums."""

import tidegate as tg


@tg.kernel(warps=4)
def layernorm(
    x: tg.Tensor["R", "COLS", "bf16"],
    gain: tg.Tensor["COLS", "bf16"],
    bias: tg.Tensor["COLS", "bf16"],
    y: tg.Out["R", "COLS", "bf16"],
    *,
    COLS=8192,
    EPS=1e-5,
):
    for r in tg.grid(tg.tiles("R", 1)):
        row = tg.load(x[r, :]).astype("f32")
        mean = row.sum(axis=1, keepdims=True) * (1.0 / COLS)
        scaled = tg.load(gain[:]).astype("f32")  # on its way while the squares are folded
        centred = row - mean
        scale = tg.rsqrt((centred * centred).sum(axis=1, keepdims=True) * (1.0 / COLS) + EPS)
        y[r, :] = (centred * scale * scaled + tg.load(bias[:]).astype("f32")).astype("bf16")
