"""Softmax of the rows of a matrix. A row lies in the registers of one CTA; its maximum and sum cross warps."""

import tidegate as tg

LOG2_E = 1.4426950408889634


@tg.kernel(warps=8, ctas_per_sm=4)  # few rows at a time: their bytes lie close together in memory
def softmax(x: tg.Tensor["R", "COLS", "bf16"], y: tg.Out["R", "COLS", "bf16"], *, COLS=8192):
    for r in tg.grid(tg.tiles("R", 1)):
        row = tg.load(x[r, :]).astype("f32") * LOG2_E
        weights = tg.exp2(row - row.max(axis=1, keepdims=True))
        y[r, :] = (weights * (1.0 / weights.sum(axis=1, keepdims=True))).astype("bf16")
