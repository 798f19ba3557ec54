"""A linear recurrence along sequences of different lengths: state = decay * state + x, a block of steps at a time.

A block's own part is a product with a triangle of powers of the decay; what comes from the blocks before is the state
that the loop carries. How many blocks there are is read from a tensor, so short sequences cost little.
"""

import tidegate as tg
from tidegate import cuda


@tg.kernel(warps=4)
def scan_blocks(
    x: tg.Tensor["B", "T", "D", "bf16"],
    lengths: tg.Tensor["B", "i32"],
    log2_decay: tg.Scalar["f32"],
    y: tg.Out["B", "T", "D", "f32"],
    *,
    BT=32,
    BD=64,
    STAGES=3,
):
    """y[b, t] = decay * y[b, t-1] + x[b, t] for t < lengths[b]; the rest of y is not meaningful."""
    for b, d in tg.grid(tg.range("B"), tg.tiles("D", BD)):
        state = tg.zeros((1, BD))
        block_decay = tg.exp2(log2_decay * BT)
        for t in tg.tiles(tg.load(lengths[b]), BT):
            block = tg.load(x[b, t, d], by=cuda.cp_async(), stages=STAGES)
            step = tg.positions(t) - (tg.end(t) - BT)
            ago = tg.positions(t)[:, None] - tg.positions(t)[None, :]
            weights = tg.where(ago >= 0, tg.exp2(ago.astype("f32") * log2_decay), 0.0)
            since = tg.exp2((step + 1).astype("f32") * log2_decay)
            y[b, t, d] = tg.dot(weights.astype("bf16"), block) + since[:, None] * state
            left = tg.exp2((BT - 1 - step).astype("f32") * log2_decay)
            state = state * block_decay + (left[:, None] * block.astype("f32")).sum(axis=0, keepdims=True)


def inputs(kernel_name, rng, sizes):
    """Lengths from nothing to more than there is."""
    lengths = rng.integers(0, sizes["T"] + 20, sizes["B"])
    return {"lengths": lengths, "log2_decay": -0.1}
