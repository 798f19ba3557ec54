"""Kernels with schedules that the examples do not have."""

import tidegate as tg
from tidegate import cuda


@tg.kernel(warps=4)
def unequal(a: tg.Tensor["M", "K", "bf16"], b: tg.Tensor["K", "N", "bf16"], c: tg.Out["M", "N", "f32"]):
    for m, n in tg.grid(tg.tiles("M", 64), tg.tiles("N", 64)):
        acc = tg.zeros((64, 64))
        for k in tg.tiles("K", 32):
            x = tg.load(a[m, k], by=cuda.cp_async(), stages=4)
            y = tg.load(b[k, n], by=cuda.cp_async(), stages=2)
            acc = tg.dot(x, y, acc)
        c[m, n] = acc


@tg.kernel(warps=4)
def mixed(a: tg.Tensor["M", "K", "bf16"], b: tg.Tensor["K", "N", "bf16"], c: tg.Out["M", "N", "f32"]):
    for m, n in tg.grid(tg.tiles("M", 64), tg.tiles("N", 64)):
        acc = tg.zeros((64, 64))
        for k in tg.tiles("K", 32):
            x = tg.load(a[m, k], by=cuda.cp_async())
            y = tg.load(b[k, n], by=cuda.cp_async(), stages=3)
            acc = tg.dot(x, y, acc)
        c[m, n] = acc


@tg.kernel(warps=4)
def narrow(a: tg.Tensor["M", 8, "f32"], b: tg.Out[8, "M", "f32"]):
    """A tile of 64 elements: two of the four warps have work."""
    for m in tg.tiles("M", 8):
        t = tg.load(a[m, :], by=cuda.cp_async(bytes=4))
        b[:, m] = t.T


@tg.kernel(warps=4)
def siblings(a: tg.Tensor["M", "N", "f32"], b: tg.Out["N", "M", "f32"], c: tg.Out["N", "M", "f32"]):
    """Two loops whose tiles share bytes, copied with different thread maps."""
    for m in tg.tiles("M", 32):
        for n in tg.tiles("N", 32):
            t = tg.load(a[m, n], by=cuda.cp_async(), stages=2)
            b[n, m] = t.T
    for m2 in tg.tiles("M", 32):
        for n2 in tg.tiles("N", 32):
            u = tg.load(a[m2, n2], by=cuda.cp_async(bytes=4), stages=2)
            c[n2, m2] = u.T + 1.0


@tg.kernel(warps=8)
def two_widths(
    a: tg.Tensor[32, "M", "f16"], b: tg.Tensor["M", 32, "f32"], c: tg.Out["M", 32, "f16"], d: tg.Out[32, "M", "f32"]
):
    """Tiles of 2 and of 4 bytes per element that share bytes."""
    for m in tg.grid(tg.tiles("M", 8)):
        t = tg.load(a[:, m], by=cuda.cp_async())
        c[m, :] = t.T
        u = tg.load(b[m, :], by=cuda.cp_async())
        d[:, m] = u.T


@tg.kernel(warps=4)
def unread(a: tg.Tensor["N", 128, "f32"], b: tg.Out[128, "N", "f32"]):
    """A ring that is filled and never read."""
    for k in tg.tiles("N", 1):
        t = tg.load(a[k, :], by=cuda.cp_async(), stages=3)
        for _i in tg.tiles(0, 32):
            b[:, k] = t.T


@tg.kernel(warps=2)
def rings_in_turn(
    a: tg.Tensor[16, 8, "f32"], b: tg.Tensor["N", 8, "bf16"], c: tg.Out[16, 8, "f32"], d: tg.Out[8, "N", "bf16"]
):
    """Two loops with rings in the same bytes: the first slot of the second is free when it is filled first."""
    acc = tg.zeros((8, 8))
    for k in tg.tiles(16, 8):
        acc = acc + acc.max(axis=0)
        t = tg.load(a[k, :], by=cuda.ld(), stages=2)
        c[k, :] = t.T + acc
    for i in tg.tiles("N", 8):
        u = tg.load(b[i, :], by=cuda.cp_async(), stages=5)
        d[:, i] = u.T


@tg.kernel(warps=2)
def two_trips(a: tg.Tensor["M", 24, "f16"], b: tg.Out["M", 24, "f16"]):
    """At most two trips fill a ring of three slots, and nothing reads it."""
    for m in tg.grid(tg.tiles("M", 16)):
        for _i in tg.tiles(32, 16, until=tg.end(m)):
            t = tg.load(a[m, :], by=cuda.cp_async(), stages=3)
            for _j in tg.tiles(0, 24):
                b[m, :] = t
