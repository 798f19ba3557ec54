"""The examples with sizes that matter: large, ragged, and loops shorter than their rings."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

EXAMPLES = Path(__file__).parents[2] / "examples"


@dataclass(frozen=True)
class Case:
    """One run: example file, kernel, sizes of the named dimensions, and constants or a plan."""

    file: str
    kernel: str
    sizes: tuple[tuple[str, int], ...]
    options: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        parts = [f"{k}={v}" for k, v in (*self.sizes, *self.options)]
        return "-".join([self.kernel, *parts])


def load(file: str) -> Any:
    """An example as a module."""
    path = EXAMPLES / f"{file}.py"
    spec = importlib.util.spec_from_file_location(file, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules.setdefault(file, importlib.util.module_from_spec(spec))
    if not hasattr(module, "__file__") or not hasattr(module, "tg"):
        spec.loader.exec_module(module)
    return module


def gemm(kernel: str, m: int, n: int, k: int, **options: Any) -> Case:
    return Case("gemm", kernel, (("M", m), ("N", n), ("K", k)), tuple(options.items()))


def narrow(kernel: str, m: int, n: int, k: int, **options: Any) -> Case:
    return Case(kernel, kernel, (("M", m), ("N", n), ("K", k)), tuple(options.items()))


def cases() -> Iterator[Case]:
    """All runs."""
    for kernel in ("gemm_fp8", "gemm_i8"):
        yield narrow(kernel, 1024, 1536, 2048)
        yield narrow(kernel, 1000, 776, 528)
        yield narrow(kernel, 128, 256, 0)
        yield narrow(kernel, 256, 256, 128, plan="in_order")
        yield narrow(kernel, 192, 160, 480, BM=96, BN=80, BK=96, STAGES=2)
        for trips in (1, 2, 3, 5):
            yield narrow(kernel, 136, 264, 64 * trips - 16, BK=64, STAGES=3)
    for m, n, k in ((512, 1024, 768), (200, 136, 264), (64, 128, 0), (70, 0, 64), (64, 256, 32), (65, 264, 40)):
        for stages in (1, 2, 3):
            yield Case("gemm_relu_gemm", "gemm_relu_gemm", (("M", m), ("N", n), ("K", k)), (("STAGES", stages),))
    yield Case("row_stage", "row_stage", ())
    yield Case("row_stage", "row_stage", (), (("warps", 4),))
    for rows in (0, 1, 2, 5, 4000):
        for plan in ("in_order", "multistage"):
            yield Case("row_ring", "row_ring", (("R", rows),), (("plan", plan), ("STAGES", 3)))
    for m, n in ((2048, 4096), (36, 100), (33, 65), (1, 1), (32, 0)):
        for warps in (1, 4):
            for stages in (1, 2, 3):
                if (m * n) % 2 == 0 or stages == 1:
                    yield Case("transpose", "transpose", (("M", m), ("N", n)), (("warps", warps), ("STAGES", stages)))
    for kernel in ("gemm_v0", "gemm_v1", "gemm_v2"):
        yield gemm(kernel, 1024, 1536, 2048)
        yield gemm(kernel, 1000, 776, 520)
        yield gemm(kernel, 129, 264, 72)
        yield gemm(kernel, 130, 136, 8)
        yield gemm(kernel, 128, 256, 0)
        yield gemm(kernel, 256, 256, 128, plan="in_order")
    yield gemm("gemm_v0", 131, 67, 35)
    for stages in (2, 3, 4):
        for trips in (1, 2, 3, 5):
            yield gemm("gemm_v2", 136, 264, 64 * trips - 8, STAGES=stages)
    for rows in (0, 3, 64):
        for columns, warps in ((1024, 8), (96, 1), (520, 4), (64, 4)):
            for name in ("softmax", "rmsnorm", "layernorm"):
                yield Case(name, name, (("R", rows),), (("COLS", columns), ("warps", warps)))
    for queries, keys in ((256, 256), (70, 128), (1, 64), (130, 192)):
        sizes = (("B", 2), ("H", 4), ("S", queries), ("HK", 2), ("T", keys))
        for width, warps in ((64, 4), (128, 4), (128, 8)):
            causal = tuple((n, s) for n, s in sizes if n != "T")
            yield Case("attention_small", "attention_causal", causal, (("GROUP", 2), ("D", width), ("warps", warps)))
            yield Case("attention_small", "attention", sizes, (("GROUP", 2), ("D", width), ("warps", warps)))
    for h, w in ((512, 1024), (33, 72), (1, 4), (0, 8)):
        yield Case("stencil", "jacobi", (("H", h), ("W", w)))
    for lines, blocks, rows in ((64, 4, 1000), (3, 1, 80), (5, 0, 8), (2, 7, 0)):
        for plan in ("in_order", "multistage"):
            yield Case("gather_rows", "bag", (("B", lines), ("N", blocks), ("R", rows)), (("plan", plan),))
        yield Case("gather_rows", "bag_gradient", (("B", lines), ("N", blocks), ("R", rows)))
    for blocks, tokens, n, k in ((8, 300, 256, 512), (3, 80, 136, 72), (1, 64, 64, 0), (2, 50, 72, 40)):
        for stages in (1, 2, 4):
            sizes = (("G", blocks), ("T", tokens), ("N", n), ("K", k))
            yield Case("gather_rows", "expert", sizes, (("STAGES", stages),))
    for rows, taps in ((1000, 4), (70, 1), (3, 5), (64, 0)):
        for stages in (1, 2, 3):
            yield Case("stencil", "causal_conv", (("T", rows), ("C", 136), ("K", taps)), (("STAGES", stages),))
    yield gemm("gemm_v2", 192, 96, 160, BM=96, BN=48, BK=32, STAGES=3, warps=4)
    yield gemm("gemm_v2", 192, 96, 160, BM=16, BN=8, BK=16, STAGES=5, warps=8)
    for plan in ("in_order", "multistage"):
        for stages in (1, 2, 4):
            more = (("plan", plan), ("STAGES", stages))
            for steps, width in ((1000, 128), (70, 40), (0, 64)):
                yield Case("scan_blocks", "scan_blocks", (("B", 9), ("T", steps), ("D", width)), more)
            for heads, width in ((16, 128), (5, 64)):
                sizes = (("B", 9), ("HK", 2), ("G", heads), ("P", 20), ("N", 8))
                yield Case("sparse_decode", "sparse_decode", sizes, (*more, ("D", width)))


def inputs(program: Any, sizes: dict[str, int], seed: int = 0) -> dict[str, Any]:
    """Random arguments by parameter name, in order; in outputs that are only written an element that is left unwritten
    shows."""
    from tidegate.ir.expr import evaluate
    from tidegate.ops.samples import sample, unwritten

    rng = np.random.default_rng(seed)
    out = {}
    for tensor in program.tensors:
        shape = tuple(evaluate(e, sizes) for e in tensor.shape)
        out[tensor.name] = sample(rng, shape, tensor.dtype) if tensor.input else unwritten(shape, tensor.dtype)
        if tensor.name == "lengths":
            out[tensor.name] = lengths(*shape).astype(np.int32)
        if tensor.name == "table" and "P" in sizes:
            out[tensor.name] = rng.integers(-1, sizes["P"] + 1, shape).astype(np.int32)
    out.update({s.name: -0.1 for s in program.scalars})
    return {name: out[name] for name in program.order}


def lengths(count: int) -> np.ndarray:
    """0, 1, a block, a few blocks and a ragged one, more than there is."""
    return np.array([0, 1, 32, 64, 65, 200, 447, 512, 5000])[:count]
