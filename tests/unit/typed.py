"""Kernels of every element type, and numbers at which conversions differ."""

# No postponed annotations: those of a factory's kernels are its arguments.

from typing import Any

import numpy as np

import tidegate as tg
from tidegate import cuda
from tidegate.ir.dtypes import DType
from tidegate.ops.samples import sample

SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 0.5, 1.5, 2.5, -1.5, 1 + 2.0**-11, 1 + 3 * 2.0**-11]
SPECIAL += [s * x for x in (447.0, 448.0, 464.0, 465.0, 57344.0, 61440.0, 61441.0, 65520.0, 1e6) for s in (1, -1)]
SPECIAL += [s * x for x in (127.5, 128.0, 128.5, 129.0, 2.0**31 - 128, 2.0**31, 2.0**63, 3e38) for s in (1, -1)]
SPECIAL += [2.0**e * f for e in (-6, -9, -10, -14, -16, -17, -24, -140) for f in (1.0, 1.01, 1.5)]

WHOLE = [0, 1, -1, 127, 128, -128, -129, 255, 2**24 + 1, 2**31 - 1, -(2**31), 2**31, 2**53 + 1, 2**63 - 1, -(2**63)]


def numbers(dtype: DType, shape: tuple[int, int], seed: int = 0) -> np.ndarray:
    """Random numbers that begin with those at which conversions differ."""
    data = sample(np.random.default_rng(seed), shape, dtype)
    if dtype.floating:
        with np.errstate(over="ignore"):
            special = np.array(SPECIAL, np.float32).astype(dtype.numpy)
    elif dtype.integer:
        special = np.array(WHOLE, np.int64).astype(dtype.numpy)
    else:
        return data
    data.reshape(-1)[: len(special)] = special[: data.size]
    return data


def casting(source: str, target: str) -> Any:
    @tg.kernel(warps=2)
    def cast(x: tg.Tensor["R", "N", source], y: tg.Out["R", "N", target], *, BR=8, BN=32):
        for r, n in tg.grid(tg.tiles("R", BR), tg.tiles("N", BN)):
            y[r, n] = tg.load(x[r, n]).astype(target)

    return cast


def casting_to_all(source: str) -> Any:
    """The outputs are in the order of DTYPES."""

    @tg.kernel(warps=2)
    def casts(
        x: tg.Tensor["R", 64, source],
        y0: tg.Out["R", 64, "f32"],
        y1: tg.Out["R", 64, "f16"],
        y2: tg.Out["R", 64, "bf16"],
        y3: tg.Out["R", 64, "f8e4m3"],
        y4: tg.Out["R", 64, "f8e5m2"],
        y5: tg.Out["R", 64, "i8"],
        y6: tg.Out["R", 64, "i32"],
        y7: tg.Out["R", 64, "i64"],
        y8: tg.Out["R", 64, "bool"],
    ):
        for r in tg.grid(tg.tiles("R", 8)):
            t = tg.load(x[r, :])
            y0[r, :] = t.astype("f32")
            y1[r, :] = t.astype("f16")
            y2[r, :] = t.astype("bf16")
            y3[r, :] = t.astype("f8e4m3")
            y4[r, :] = t.astype("f8e5m2")
            y5[r, :] = t.astype("i8")
            y6[r, :] = t.astype("i32")
            y7[r, :] = t.astype("i64")
            y8[r, :] = t.astype("bool")

    return casts


def turning(dtype: str) -> Any:
    """Bytes go through shared memory: written along rows, read along columns."""

    @tg.kernel(warps=2)
    def turn(x: tg.Tensor["R", "N", dtype], y: tg.Out["N", "R", dtype], *, BR=32, BN=16, STAGES=2):
        for r in tg.grid(tg.tiles("R", BR)):
            for n in tg.tiles("N", BN):
                t = tg.load(x[r, n], stages=STAGES, to="shared")
                y[n, r] = t.T

    return turn


def exchanging(dtype: str) -> Any:
    """Registers that other threads need: a product's accumulators, cast, and stored transposed."""

    @tg.kernel(warps=2)
    def exchange(a: tg.Tensor[32, 32, "bf16"], x: tg.Tensor[32, 32, dtype], y: tg.Out[32, 32, dtype]):
        t = tg.load(a[:, :])
        mask = tg.dot(t, t) > 0.0
        held = tg.load(x[:, :], to="registers")
        y[:, :] = tg.where(mask, held, held).T

    return exchange


def multiplying(dtype: str, sums: str, turned: str = "", tf32: bool = False, other: str = "") -> Any:
    """A product in tiles; ``turned`` names the operands that lie across k, ``other`` is the dtype of b if not a's."""
    other = other or dtype
    instruction = cuda.mma(tf32=tf32)
    shape_a, shape_b = ("K", "M") if "a" in turned else ("M", "K"), ("N", "K") if "b" in turned else ("K", "N")

    @tg.kernel(warps=4)
    def multiply(
        a: tg.Tensor[shape_a[0], shape_a[1], dtype],
        b: tg.Tensor[shape_b[0], shape_b[1], other],
        c: tg.Out["M", "N", sums],
        *,
        BM=32,
        BN=32,
        BK=32,
        STAGES=2,
    ):
        for m, n in tg.grid(tg.tiles("M", BM), tg.tiles("N", BN)):
            acc = tg.zeros((BM, BN), sums)
            for k in tg.tiles("K", BK):
                if "a" in turned:
                    x = tg.load(a[k, m], stages=STAGES).T
                else:
                    x = tg.load(a[m, k], stages=STAGES)
                if "b" in turned:
                    y = tg.load(b[n, k], stages=STAGES).T
                else:
                    y = tg.load(b[k, n], stages=STAGES)
                acc = tg.dot(x, y, acc, by=instruction)
            c[m, n] = acc

    return multiply


def dot_of(dtype: str, sums: str, by: Any = None) -> Any:
    @tg.kernel(warps=1)
    def dot(a: tg.Tensor[32, 32, dtype], b: tg.Tensor[32, 32, dtype], c: tg.Out[32, 32, sums]):
        acc = tg.zeros((32, 32), sums)
        c[:, :] = tg.dot(tg.load(a[:, :]), tg.load(b[:, :]), acc, by=by)

    return dot


def operands(dtype: DType, turned: str, m: int, n: int, k: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return (
        sample(rng, (k, m) if "a" in turned else (m, k), dtype),
        sample(rng, (n, k) if "b" in turned else (k, n), dtype),
    )


KINDS = [("f8e4m3", "f32", False), ("f8e5m2", "f32", False), ("i8", "i32", False), ("f32", "f32", True)]
"""Operand type, sums, tf32."""

MIXED = [("f8e4m3", "f8e5m2"), ("f8e5m2", "f8e4m3")]
"""Types of a and b that differ, summed in f32."""

K_STEP = {"f8e4m3": 32, "f8e5m2": 32, "i8": 32, "f32": 8, "bf16": 16}
