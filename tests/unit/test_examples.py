"""The examples over both producers, all stages, ragged sizes, few trips and every completion policy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from judging import difference, without
from kernels import example

import tidegate as tg
from tidegate import cuda
from tidegate.check import check
from tidegate.ir import tir
from tidegate.ops.plain import rounding_bound
from tidegate.ops.samples import sample, unwritten
from tidegate.runtime.cache import installed
from tidegate.runtime.compile import COMPILER
from tidegate.runtime.compiled import Compiled

PRODUCERS = ("in_order", "multistage")
SMALL_GEMM = {"BM": 32, "BN": 32, "BK": 16, "warps": 4}


@dataclass(frozen=True)
class Case:
    """``sizes``: dims of one run; ``loop``: (dim, tile) whose trips vary over 0 .. 2S+1, the last one ragged."""

    file: str
    kernel: str
    options: dict[str, Any]
    sizes: dict[str, int]
    loop: tuple[str, int] | None = None

    def __str__(self) -> str:
        shown = ("STAGES", "warps", "COLS")
        return "-".join([self.kernel, *(f"{k}={v}" for k, v in self.options.items() if k in shown)])

    def runs(self) -> Iterator[dict[str, int]]:
        if self.loop is None:
            yield self.sizes
            return
        dim, tile = self.loop
        for trips in range(2 * self.options.get("STAGES", 1) + 2):
            yield {**self.sizes, dim: max(trips * tile - (8 if trips % 2 and tile > 8 else 0), 0)}


def cases() -> Iterator[Case]:
    yield Case("row_stage", "row_stage", {}, {})
    for stages in range(1, 6):
        yield Case("row_ring", "row_ring", {"STAGES": stages}, {}, ("R", 1))
        for warps in (1, 4):
            options = {"STAGES": stages, "warps": warps, "BM": 16, "BN": 16}
            yield Case("transpose", "transpose", options, {"M": 24}, ("N", 16))
        yield Case("gemm", "gemm_v2", {"STAGES": stages, **SMALL_GEMM}, {"M": 40, "N": 32}, ("K", 16))
        narrow = {"STAGES": stages, **SMALL_GEMM, "BK": 32}
        for kernel in ("gemm_fp8", "gemm_i8"):
            yield Case(kernel, kernel, narrow, {"M": 40, "N": 32}, ("K", 32))
        fused = {"STAGES": stages, "H": 32, "BM": 32, "BN": 16, "BK": 16, "warps": 4}
        yield Case("gemm_relu_gemm", "gemm_relu_gemm", fused, {"M": 40, "N": 24}, ("K", 16))
    for kernel in ("gemm_v0", "gemm_v1"):
        yield Case("gemm", kernel, SMALL_GEMM, {"M": 40, "N": 48}, ("K", 16))
    for columns, warps in ((64, 1), (80, 4), (512, 8)):  # a row in part of a warp, in idle warps, across warps
        for kernel in ("softmax", "rmsnorm", "layernorm"):
            yield Case(kernel, kernel, {"COLS": columns, "warps": warps}, {"R": 3})
    for stages in range(1, 4):
        attention = {"STAGES": stages, "D": 16, "GROUP": 2, "BM": 32, "BN": 16, "warps": 2}
        yield Case("attention_small", "attention", attention, {"B": 1, "H": 2, "HK": 1, "S": 24}, ("T", 16))
        yield Case("stencil", "causal_conv", {"STAGES": stages, "BT": 16, "BC": 16}, {"T": 40, "C": 24}, ("K", 1))
        options = {"STAGES": stages, "D": 32, "BL": 8}
        yield Case("gather_rows", "bag", options, {"B": 3, "R": 24}, ("N", 1))
        options = {"STAGES": stages, "BM": 16, "BN": 16, "BK": 16}
        yield Case("gather_rows", "expert", options, {"G": 3, "T": 24, "N": 24}, ("K", 16))
    yield Case("gather_rows", "bag_gradient", {"D": 32, "BL": 8}, {"B": 3, "N": 2, "R": 24})
    fused = {"H": 32, "BM": 32, "BN": 16, "BK": 16, "warps": 4}
    yield Case("gemm_relu_gemm", "gemm_relu_gemm", fused, {"M": 40, "K": 24}, ("N", 16))
    yield Case("stencil", "jacobi", {"BH": 8, "BW": 16}, {"H": 24, "W": 24})
    wide = {**attention, "D": 32, "warps": 8, "STAGES": 1}
    yield Case("attention_small", "attention", wide, {"B": 1, "H": 2, "HK": 1, "S": 24}, ("T", 16))
    for stages in range(1, 5):  # one sequence for each number of trips from 0 to 2S + 1
        sequences = {"B": 2 * stages + 2, "T": 16 * (2 * stages + 1), "D": 24}
        yield Case("scan_blocks", "scan_blocks", {"STAGES": stages, "BT": 16, "BD": 16, "warps": 2}, sequences)
        options = {"STAGES": stages, "D": 16, "PAGE": 16, "warps": 2}
        pages = {"B": 2 * stages + 2, "HK": 2, "G": 8, "P": 5, "N": 2 * stages + 1}
        yield Case("sparse_decode", "sparse_decode", options, pages)


def integers(case: Case, name: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray | None:
    """Lengths of 0, 1, 2, ... blocks, every other one ragged; pages that are there, left out and out of range. None for
    other tensors."""
    if name == "lengths":
        tile = case.options.get("BT", case.options.get("PAGE", 1))
        return np.array([max(tile * b - (5 if b % 2 else 0), 0) for b in range(*shape)])
    return rng.integers(-1, case.sizes["P"] + 1, shape) if name == "table" and "P" in case.sizes else None


CASES = tuple(cases())


def compiled(case: Case, producer: str, **more: Any) -> Compiled:
    kernel = getattr(example(case.file), case.kernel)
    multiples = dict.fromkeys(kernel.dims, 8)
    target = getattr(example(case.file), "target", "sm_80")
    return kernel.compile(target, plan=producer, multiples=multiples, **{**case.options, **more})


def arguments_for(case: Case, k: Compiled, sizes: dict[str, int]) -> dict[str, Any]:
    """The arguments by name, in order."""
    known, rng = {**dict(k.program.sizes), **sizes}, np.random.default_rng(0)
    found: dict[str, Any] = {s.name: -0.25 for s in k.program.scalars}
    for t in k.program.tensors:
        shape = tuple(known[str(e)] if str(e) in known else int(str(e)) for e in t.shape)
        counts = integers(case, t.name, shape, rng)
        drawn = sample(rng, shape, t.dtype) if counts is None else counts.astype(t.dtype.numpy)
        found[t.name] = drawn if t.input else unwritten(shape, t.dtype)
    return {name: found[name] for name in k.program.order}


def copies(arguments: dict[str, Any]) -> list[Any]:
    return [a.copy() if isinstance(a, np.ndarray) else a for a in arguments.values()]


def assert_equals_plain(case: Case, k: Compiled, sizes: dict[str, int]) -> None:
    arguments = arguments_for(case, k, sizes)
    bounds = rounding_bound(k.program, arguments, k.target)
    wanted = copies(arguments)
    getattr(example(case.file), case.kernel).plain(*wanted, **case.options)
    for completion in ("late", "early", "random"):
        got = copies(arguments)
        result = k.simulate(*got, completion=completion, seed=1)
        assert result.ok, f"{sizes}: {result}"
        for name, mine, plain in zip(arguments, got, wanted, strict=True):
            if name in bounds:
                assert not (text := difference(mine, plain, bounds[name])), f"{sizes} {completion}: {text}"


@pytest.mark.parametrize("producer", PRODUCERS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_simulation_equals_plain_for_few_and_ragged_trips(case: Case, producer: str) -> None:
    k = compiled(case, producer)
    for sizes in case.runs():
        assert_equals_plain(case, k, sizes)


@pytest.mark.parametrize("producer", PRODUCERS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_plans_are_safe_and_every_sync_is_necessary(case: Case, producer: str) -> None:
    k = compiled(case, producer)
    assert (verdict := k.check()).status == "safe", verdict.text()
    for sync in syncs(k):
        broken = check(replace(k.kernel, body=without(k.kernel.body, sync)))
        assert broken.status == "unsafe", f"{sync.id} ({sync.why}): {broken.text()}"
        assert broken.findings


@pytest.mark.parametrize("kernel", ["gemm_v0", "gemm_v1", "gemm_v2"])
def test_gemm_at_its_own_tile_sizes(kernel: str) -> None:
    case = Case("gemm", kernel, {}, {"M": 144, "N": 272, "K": 208})
    k = compiled(case, "multistage")
    assert k.check().status == "safe"
    assert_equals_plain(case, k, case.sizes)


# ---------------------------------------------------------------------------------------------- which syncs


def syncs(k: Compiled, kind: type[tir.Stmt] = tir.Sync) -> list[Any]:
    return [s for s in tir.walk(k.kernel.body) if isinstance(s, kind)]


def in_loop(k: Compiled, kind: type[tir.Stmt]) -> int:
    """How many syncs of a kind the body of the innermost loops holds."""
    loops = [s for s in tir.walk(k.kernel.body) if isinstance(s, tir.For)]
    return sum(isinstance(s, kind) for loop in loops for s in loop.body)


RENDEZVOUS = (tir.SyncWarp, tir.BarSync, tir.SyncBlock)


@pytest.mark.parametrize("producer", PRODUCERS)
def test_row_stage_needs_a_commit_and_a_wait_per_loop_and_no_rendezvous(producer: str) -> None:
    k = compiled(Case("row_stage", "row_stage", {}, {}), producer)
    loops = [s for s in k.kernel.body if isinstance(s, tir.For)]
    assert [[type(s) for s in loop.body if isinstance(s, tir.Sync)] for loop in loops] == [
        [tir.CpCommit, tir.CpWait]
    ] * 2
    assert len(syncs(k)) == 4
    assert k.smem.peak == 512


@pytest.mark.parametrize("producer", PRODUCERS)
@pytest.mark.parametrize(("warps", "kind"), [(1, tir.SyncWarp), (4, tir.SyncBlock)])
def test_transpose_with_one_stage_orders_the_read_and_the_reuse(
    producer: str, warps: int, kind: type[tir.Sync]
) -> None:
    k = compiled(Case("transpose", "transpose", {"warps": warps}, {}), producer)
    assert [type(s) for s in syncs(k) if isinstance(s, RENDEZVOUS)] == [kind, kind]
    assert sorted("read" in s.why.split("written again")[0].split("written")[0] for s in syncs(k, kind)) == [
        False,
        True,
    ]


@pytest.mark.parametrize(("warps", "kind"), [(1, tir.SyncWarp), (4, tir.SyncBlock)])
def test_transpose_with_two_stages_needs_one_rendezvous_per_trip(warps: int, kind: type[tir.Sync]) -> None:
    k = compiled(Case("transpose", "transpose", {"warps": warps, "STAGES": 2}, {}), "multistage")
    assert [type(s) for s in syncs(k) if isinstance(s, RENDEZVOUS)] == [kind]
    assert in_loop(k, kind) == 1


@pytest.mark.parametrize("stages", [2, 3, 4])
def test_a_ringed_gemm_has_one_block_barrier_per_trip(stages: int) -> None:
    k = compiled(Case("gemm", "gemm_v2", {**SMALL_GEMM, "STAGES": stages}, {}), "multistage")
    assert [type(s) for s in syncs(k) if isinstance(s, RENDEZVOUS)] == [tir.SyncBlock]
    assert in_loop(k, tir.SyncBlock) == 1


@tg.kernel(warps=4)
def siblings(
    a: tg.Tensor["M", 32, "f32"], b: tg.Out[32, "M", "f32"], c: tg.Tensor["N", 64, "f32"], d: tg.Out["N", 64, "f32"]
):
    for m in tg.tiles("M", 32):
        t = tg.load(a[m, :], by=cuda.cp_async())
        b[:, m] = t.T
    for n in tg.tiles("N", 16):
        u = tg.load(c[n, :], by=cuda.cp_async())
        d[n, :] = u * 2.0


@pytest.mark.parametrize("producer", PRODUCERS)
def test_the_sync_that_sharing_of_bytes_costs_is_in_the_plan_and_goes_with_it(producer: str) -> None:
    shared, apart = (siblings.compile("sm_80", plan=producer, share=share) for share in (True, False))
    assert shared.smem.peak == 4096 < apart.smem.peak == 8192
    assert len(syncs(shared, tir.SyncBlock)) == len(syncs(apart, tir.SyncBlock)) + 1
    between = [d for d in shared.plan.dependences if set(d.places) == {"t", "u"}]
    assert between
    assert not [d for d in apart.plan.dependences if len(d.places) > 1]
    for k in (shared, apart):
        assert k.check().status == "safe"
        assert all(check(replace(k.kernel, body=without(k.kernel.body, s))).status == "unsafe" for s in syncs(k))


@pytest.mark.skipif(installed(COMPILER) is None, reason=f"{COMPILER} is not installed")
@pytest.mark.parametrize(("file", "kernel"), sorted({(c.file, c.kernel) for c in CASES}))
def test_at_its_own_tile_sizes_no_example_spills(file: str, kernel: str) -> None:
    compiled = getattr(example(file), kernel).compile("sm_90a")
    assert compiled.cubin.spills == 0, f"{compiled.cubin.registers} registers"
