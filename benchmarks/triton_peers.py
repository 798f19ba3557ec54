"""The same operations in Triton, tuned by its autotuner, for benchmarks/peers.py: matrix product, rows, an addition.

The product loads through tensor descriptors (TMA) and runs either one program per tile or persistent programs; the
kernels over rows keep a row in registers, one row per program or a loop over rows whose loads run ahead. Of fewer than
2**31 elements.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

GROUP = 8
"""Rows of tiles that are walked together, so that they share operands in L2."""


def _blocks(arguments: dict[str, Any]) -> None:
    """The descriptors' boxes, from the configuration that is tried."""
    m, n, k = arguments["BM"], arguments["BN"], arguments["BK"]
    for name, block in (("a", [m, k]), ("b", [k, n]), ("c", [m, n])):
        arguments[name].block_shape = block


_TILES = ((128, 256, 3, 8), (128, 256, 4, 8), (256, 128, 3, 8), (128, 128, 4, 8), (128, 128, 4, 4))
"""BM, BN, stages, warps."""

_PRODUCTS = [
    triton.Config(
        {"BM": m, "BN": n, "BK": 64, "PERSISTENT": persistent}, num_stages=stages, num_warps=warps, pre_hook=_blocks
    )
    for m, n, stages, warps in _TILES
    for persistent in (False, True)
]


@triton.autotune(configs=_PRODUCTS, key=["m", "n", "k"])
@triton.jit
def _matmul(
    a,
    b,
    c,
    m,
    n,
    k,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
    PERSISTENT: tl.constexpr,
):
    rows = tl.cdiv(m, BM)
    columns = tl.cdiv(n, BN)
    for tile in tl.range(tl.program_id(0), rows * columns, tl.num_programs(0), flatten=PERSISTENT):
        first = tile // (GROUP * columns) * GROUP
        height = tl.minimum(rows - first, GROUP)
        within = tile % (GROUP * columns)
        row = (first + within % height) * BM
        column = within // height * BN
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for i in range(tl.cdiv(k, BK)):
            acc = tl.dot(a.load([row, i * BK]), b.load([i * BK, column]), acc)
        c.store([row, column], acc.to(tl.bfloat16))


def matmul(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
    """out = a @ b, bf16. Needs a GPU with TMA (sm_90)."""
    m, k = a.shape
    n = b.shape[1]
    units = torch.cuda.get_device_properties(a.device).multi_processor_count

    def grid(meta: dict[str, Any]) -> tuple[int]:
        tiles = triton.cdiv(m, meta["BM"]) * triton.cdiv(n, meta["BN"])
        return (min(units, tiles) if meta["PERSISTENT"] else tiles,)

    box = [1, 1]  # the configuration sets it
    descriptors = [TensorDescriptor.from_tensor(t, box) for t in (a, b, out)]
    _matmul[grid](*descriptors, m, n, k, GROUP=GROUP)


# ---------------------------------------------------------------------------------------------- rows

_ROWS = [
    *(triton.Config({"PER_UNIT": 0, "AHEAD": 1}, num_warps=warps) for warps in (4, 8, 16, 32)),
    *(
        triton.Config({"PER_UNIT": programs, "AHEAD": ahead}, num_warps=warps)
        for programs, warps in ((2, 16), (4, 8), (8, 4))
        for ahead in (1, 2, 3)
    ),
]
"""PER_UNIT: programs per multiprocessor, each of which takes many rows; 0: one row per program."""


@triton.autotune(configs=_ROWS, key=["columns"])
@triton.jit
def _softmax(x, y, rows, columns, BLOCK: tl.constexpr, PER_UNIT: tl.constexpr, AHEAD: tl.constexpr):
    at = tl.arange(0, BLOCK)
    inside = at < columns
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=AHEAD):
        start = row * columns
        value = tl.load(x + start + at, mask=inside, other=-float("inf")).to(tl.float32)
        weight = tl.exp(value - tl.max(value, axis=0))
        tl.store(y + start + at, (weight / tl.sum(weight, axis=0)).to(tl.bfloat16), mask=inside)


@triton.autotune(configs=_ROWS, key=["columns"])
@triton.jit
def _rmsnorm(x, gain, y, rows, columns, eps, BLOCK: tl.constexpr, PER_UNIT: tl.constexpr, AHEAD: tl.constexpr):
    at = tl.arange(0, BLOCK)
    inside = at < columns
    scale = tl.load(gain + at, mask=inside, other=0.0).to(tl.float32)
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=AHEAD):
        start = row * columns
        value = tl.load(x + start + at, mask=inside, other=0.0).to(tl.float32)
        norm = tl.rsqrt(tl.sum(value * value, axis=0) / columns + eps)
        tl.store(y + start + at, (value * norm * scale).to(tl.bfloat16), mask=inside)


@triton.autotune(configs=_ROWS, key=["columns"])
@triton.jit
def _layernorm(x, gain, bias, y, rows, columns, eps, BLOCK: tl.constexpr, PER_UNIT: tl.constexpr, AHEAD: tl.constexpr):
    at = tl.arange(0, BLOCK)
    inside = at < columns
    scale = tl.load(gain + at, mask=inside, other=0.0).to(tl.float32)
    shift = tl.load(bias + at, mask=inside, other=0.0).to(tl.float32)
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=AHEAD):
        start = row * columns
        value = tl.load(x + start + at, mask=inside, other=0.0).to(tl.float32)
        centred = tl.where(inside, value - tl.sum(value, axis=0) / columns, 0.0)
        norm = tl.rsqrt(tl.sum(centred * centred, axis=0) / columns + eps)
        tl.store(y + start + at, (centred * norm * scale + shift).to(tl.bfloat16), mask=inside)


def _over_rows(kernel: Any, x: torch.Tensor, *rest: Any) -> None:
    rows, columns = x.shape
    units = torch.cuda.get_device_properties(x.device).multi_processor_count

    def grid(meta: dict[str, Any]) -> tuple[int]:
        return (min(rows, units * meta["PER_UNIT"]) if meta["PER_UNIT"] else rows,)

    kernel[grid](x, *rest, BLOCK=triton.next_power_of_2(columns))


def softmax(x: torch.Tensor, out: torch.Tensor) -> None:
    """Softmax of the rows of x, bf16."""
    _over_rows(_softmax, x, out, *x.shape)


def rmsnorm(x: torch.Tensor, gain: torch.Tensor, out: torch.Tensor, eps: float = 1e-6) -> None:
    """The rows of x over their root mean square, times gain, bf16."""
    _over_rows(_rmsnorm, x, gain, out, *x.shape, eps)


def layernorm(x: torch.Tensor, gain: torch.Tensor, bias: torch.Tensor, out: torch.Tensor, eps: float = 1e-5) -> None:
    """The rows of x with mean 0 and variance 1, times gain, plus bias, bf16."""
    _over_rows(_layernorm, x, gain, bias, out, *x.shape, eps)


# ---------------------------------------------------------------------------------------------- a small kernel


@triton.jit
def _add(x, y, z, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    tl.store(z + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)


def add(x: torch.Tensor, y: torch.Tensor, out: torch.Tensor) -> None:
    """out = x + y: what a call costs the host."""
    count = out.numel()
    _add[(-(-count // 128),)](x, y, out, count, BLOCK=128, num_warps=1)


@triton.jit
def _scaled(x, y, by, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    tl.store(y + at, tl.load(x + at, mask=inside) * by, mask=inside)


def scaled(x: torch.Tensor, out: torch.Tensor, by: float) -> None:
    """out = x * by, likewise."""
    count = out.numel()
    _scaled[(-(-count // 128),)](x, out, by, count, BLOCK=128, num_warps=1)
