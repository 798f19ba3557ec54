"""Correct kernels give exact numbers under every completion and interleaving; one sync less, and it shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

from tidegate.ir import tir
from tidegate.ir.text import parse_kernel, print_stmt
from tidegate.simulate import Completion, simulate

COMPLETIONS: tuple[Completion, ...] = ("late", "early", "random")
Arrays = dict[str, np.ndarray]

# Each thread reads back what it copied itself: one wait, no rendezvous.
ROW = """
kernel row target sm_80 warps 4 smem 6144
dim M
dim N multiple 4
param a f32 [M, N] in align 16
param b f32 [M, N] out align 16
grid m < cdiv(M, 4)
layout row [4, 128] reg 0,1 0,2 lane 0,4 0,8 0,16 0,32 0,64 warp 1,0 2,0 rep 1,1
buffer t f32 [4, 128] stages 3 at 0 stride 2048
cursor w depth 3
cursor r depth 3
register x f32 layout row
body {
  for p = 0 .. 2 {
    if p * 128 < N {
      cp_async t[w] <- a[m * 4 < M, p * 128 < N] layout row bytes 16 line 7
      advance w
    }
    cp_commit #first
  }
  for n = 0 .. cdiv(N, 128) {
    if (n + 2) * 128 < N {
      cp_async t[w] <- a[m * 4 < M, (n + 2) * 128 < N] layout row bytes 16 line 8
      advance w
    }
    cp_commit #next
    cp_wait 2 #landed
    ld_shared x <- t[r] bytes 16 line 9
    st_global b[m * 4 < M, n * 128 < N] <- x bytes 16 line 10
    advance r
  }
}
"""

TRANSPOSE = """
kernel transpose target sm_80 warps {warps} smem 4096
dim M multiple 4
dim N multiple 4
param a f32 [M, N] in align 16
param b f32 [N, M] out align 16
grid m < cdiv(M, 32)
layout copy [32, 32] reg 0,1 0,2 lane 0,4 0,8 0,16 1,0 2,0 warp {warp}
buffer t f32 [32, 32] stages 1 at 0 stride 4096 swizzle 3,4,3
register x f32 layout copy
body {{
  for n = 0 .. cdiv(N, 32) {{
    cp_async t <- a[m * 32 < M, n * 32 < N] layout copy bytes 16 line 9
    cp_commit #s0
    cp_wait 0 #s1
    {sync} #s2
    ld_shared x <- t.T bytes 4 line 10
    {sync} #s3
    st_global b[n * 32 < N, m * 32 < M] <- x bytes 16 line 11
  }}
}}
"""

# Warps 0 and 1 exchange halves of two rows, and so do warps 2 and 3.
PAIRS = """
kernel pairs target sm_80 warps 4 smem 1024
dim N
param a f32 [4, N] in align 4
param b f32 [4, N] out align 4
layout row [4, 64] reg 0,1 lane 0,2 0,4 0,8 0,16 0,32 warp 1,0 2,0 rep 1,1
layout half [4, 64] reg 1,0 lane 0,1 0,2 0,4 0,8 0,16 warp 0,32 2,0 rep 1,1
buffer t f32 [4, 64] stages 1 at 0 stride 1024
register x f32 layout row
register y f32 layout half
body {
  for n = 0 .. cdiv(N, 64) {
    ld_global x <- a[0, n * 64 < N] bytes 4
    map x <- mul x, 2.0
    st_shared t <- x bytes 8 line 4
    bar_sync 1 warps 0,1 #s0
    bar_sync 2 warps 2,3 #s1
    ld_shared y <- t bytes 4 line 5
    bar_sync 1 warps 0,1 #s2
    bar_sync 2 warps 2,3 #s3
    st_global b[0, n * 64 < N] <- y bytes 4
  }
}
"""

# The second buffer begins inside the first, two rows away from a thread's own element.
REUSE = """
kernel reuse target sm_80 warps 4 smem 1664
dim N multiple 4
param a f32 [16, N] in align 16
param b f32 [N, 16] out align 16
grid n < cdiv(N, 16)
layout square [16, 16] reg - lane 0,1 0,2 0,4 0,8 1,0 warp 2,0 4,0 rep 2,1
buffer t f32 [16, 16] stages 1 at 0 stride 1024
buffer u f32 [16, 16] stages 1 at 640 stride 1024
register x f32 layout square
register y f32 layout square
body {
  cp_async t <- a[0, n * 16 < N] layout square bytes 4
  cp_commit #s0
  cp_wait 0 #s1
  ld_shared x <- t bytes 4
  sync_block #s2
  st_shared u <- x bytes 4
  sync_block #s3
  ld_shared y <- u.T bytes 4
  st_global b[n * 16 < N, 0] <- y bytes 4
}
"""

GEMM = """
kernel gemm target sm_80 warps 4 smem {smem}
dim M
dim N multiple 4
dim K multiple 4
param a f16 [M, K] in align 8
param b f16 [K, N] in align 8
param c f16 [M, N] out align 4
grid m < cdiv(M, 32)
grid n < cdiv(N, 32)
layout cx [32, 16] reg 0,1 0,2 lane 0,4 0,8 1,0 2,0 4,0 warp 8,0 16,0 rep 1,1
layout cy [16, 32] reg 0,1 0,2 lane 0,4 0,8 0,16 1,0 2,0 warp 4,0 8,0 rep 1,1
layout fa [32, 16] reg 0,1 8,0 0,8 lane 0,2 0,4 1,0 2,0 4,0 warp 0,0 16,0 rep 1,1 replicated
layout fb [16, 32] reg 1,0 8,0 0,16 lane 2,0 4,0 0,1 0,2 0,4 warp 0,8 0,0 rep 1,1 replicated
layout fc [32, 32] reg 0,1 8,0 0,16 lane 0,2 0,4 1,0 2,0 4,0 warp 0,8 16,0 rep 1,1
buffer x f16 [32, 16] stages {stages} at 0 stride 1024
buffer y f16 [16, 32] stages {stages} at {y} stride 1024 swizzle 2,4,3
cursor w depth {stages}
cursor r depth {stages}
register af f16 layout fa
register bf f16 layout fb
register acc f32 layout fc
register o f16 layout fc
body {{
  fill acc <- 0.0
  for p = 0 .. {ahead} {{
    if p * 16 < K {{
      cp_async x[w] <- a[m * 32 < M, p * 16 < K] layout cx bytes 8 line 9
      cp_async y[w] <- b[p * 16 < K, n * 32 < N] layout cy bytes 8 line 10
      advance w
    }}
    cp_commit #first
  }}
  for k = 0 .. cdiv(K, 16) {{
    cp_wait {wait} #landed
    sync_block #met
    if (k + {ahead}) * 16 < K {{
      cp_async x[w] <- a[m * 32 < M, (k + {ahead}) * 16 < K] layout cx bytes 8 line 9
      cp_async y[w] <- b[(k + {ahead}) * 16 < K, n * 32 < N] layout cy bytes 8 line 10
      advance w
    }}
    cp_commit #next
    ldmatrix af <- x[r] line 11
    ldmatrix bf <- y[r] line 11
    mma m16n8k16 acc <- af, bf, acc
    advance r
  }}
  cast o <- acc
  st_global c[m * 32 < M, n * 32 < N] <- o bytes 4
}}
"""


def row() -> tir.Kernel:
    return parse_kernel(ROW)


def transpose(warps: int) -> tir.Kernel:
    warp, sync = ("- rep 8,1", "sync_warp") if warps == 1 else ("4,0 8,0 rep 2,1", "sync_block")
    return parse_kernel(TRANSPOSE.format(warps=warps, warp=warp, sync=sync))


def pairs() -> tir.Kernel:
    return parse_kernel(PAIRS)


def gemm(stages: int) -> tir.Kernel:
    return parse_kernel(
        GEMM.format(stages=stages, smem=2048 * stages, y=1024 * stages, ahead=stages - 1, wait=stages - 2)
    )


def numbers(shape: tuple[int, ...], dtype: type = np.float32) -> np.ndarray:
    """Small integers, so that every sum is exact."""
    return np.random.default_rng(7).integers(-4, 5, shape).astype(dtype)


def row_data(n: int = 700) -> tuple[Arrays, Arrays]:
    a = numbers((6, n))
    return {"a": a}, {"b": a}


def transpose_data(m: int = 36, n: int = 100) -> tuple[Arrays, Arrays]:
    a = numbers((m, n))
    return {"a": a}, {"b": np.ascontiguousarray(a.T)}


def pairs_data(n: int = 150) -> tuple[Arrays, Arrays]:
    a = numbers((4, n))
    return {"a": a}, {"b": 2 * a}


def reuse_data(n: int = 40) -> tuple[Arrays, Arrays]:
    return transpose_data(16, n)


def gemm_data(m: int = 36, n: int = 40, k: int = 84) -> tuple[Arrays, Arrays]:
    a, b = numbers((m, k), np.float16), numbers((k, n), np.float16)
    return {"a": a, "b": b}, {"c": (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float16)}


CASES: dict[str, tuple[Callable[[], tir.Kernel], Callable[[], tuple[Arrays, Arrays]]]] = {
    "row": (row, row_data),
    "transpose by one warp": (lambda: transpose(1), transpose_data),
    "transpose by four warps": (lambda: transpose(4), transpose_data),
    "pairs of warps": (pairs, pairs_data),
    "bytes used again": (lambda: parse_kernel(REUSE), reuse_data),
    "gemm, 2 stages": (lambda: gemm(2), gemm_data),
    "gemm, 4 stages": (lambda: gemm(4), gemm_data),
}


def runs(kernel: tir.Kernel, given: Arrays, expected: Arrays, seeds: int) -> Iterator[tuple[Completion, int, str]]:
    """Per completion and seed, what is wrong; empty when nothing is."""
    for completion in COMPLETIONS:
        for seed in range(seeds):
            found = simulate(kernel, given, completion=completion, seed=seed)
            wrong = [n for n, e in expected.items() if not np.array_equal(found.outputs[n], e)]
            yield completion, seed, f"{wrong} differ; {found}" if wrong or not found.ok else ""


@pytest.mark.parametrize("name", CASES)
def test_correct_kernels_are_exact_and_silent(name: str) -> None:
    make, data = CASES[name]
    for completion, seed, fault in runs(make(), *data(), seeds=5):
        assert not fault, f"{completion}, seed {seed}: {fault}"


@pytest.mark.parametrize("k", [0, 4, 16, 20, 32, 36, 48, 64, 80])
@pytest.mark.parametrize("stages", [2, 3, 4])
def test_short_loops(stages: int, k: int) -> None:
    for completion, seed, fault in runs(gemm(stages), *gemm_data(32, 12, k), seeds=1):
        assert not fault, f"{completion}, seed {seed}: {fault}"


@pytest.mark.parametrize("n", [4, 128, 132, 256, 260, 384])
def test_short_rings(n: int) -> None:
    for completion, seed, fault in runs(row(), *row_data(n), seeds=2):
        assert not fault, f"{completion}, seed {seed}: {fault}"


# ---------------------------------------------------------------------------------------------- mutants

Edit = Callable[[tir.Stmt], tuple[tir.Stmt, ...]]


def rewrite(body: tuple[tir.Stmt, ...], edit: Edit) -> tuple[tir.Stmt, ...]:
    out: list[tir.Stmt] = []
    for stmt in body:
        if isinstance(stmt, tir.For | tir.If):
            out.append(replace(stmt, body=rewrite(stmt.body, edit)))
        else:
            out.extend(edit(stmt))
    return tuple(out)


def changed(kernel: tir.Kernel, old: tir.Stmt, *new: tir.Stmt) -> tir.Kernel:
    return replace(kernel, body=rewrite(kernel.body, lambda s: new if s is old else (s,)))


def mutants(kernel: tir.Kernel) -> Iterator[tuple[str, tir.Kernel]]:
    for stmt in tir.walk(kernel.body):
        if isinstance(stmt, tir.Sync):
            yield f"without {print_stmt(stmt)}", changed(kernel, stmt)
        if isinstance(stmt, tir.CpWait):
            yield f"one group more in flight at {print_stmt(stmt)}", changed(kernel, stmt, replace(stmt, n=stmt.n + 1))
        if isinstance(stmt, tir.BarSync):
            yield f"alone at {print_stmt(stmt)}", changed(kernel, stmt, replace(stmt, warps=stmt.warps[:1]))
    rings = tuple(replace(c, depth=c.depth - 1) for c in kernel.cursors)
    if kernel.cursors:
        yield "one slot less", replace(kernel, cursors=rings)


MUTANTS = [
    pytest.param(mutant, CASES[name][1], id=f"{name}: {what}")
    for name in CASES
    for what, mutant in mutants(CASES[name][0]())
]


@pytest.mark.parametrize(("mutant", "data"), MUTANTS)
def test_every_mutant_shows(mutant: tir.Kernel, data: Callable[[], tuple[Arrays, Arrays]]) -> None:
    assert any(fault for *_, fault in runs(mutant, *data(), seeds=4))


def test_a_wait_after_the_barrier_is_too_late() -> None:
    kernel = gemm(3)
    wait = next(s for s in tir.walk(kernel.body) if isinstance(s, tir.CpWait))
    sync = next(s for s in tir.walk(kernel.body) if isinstance(s, tir.SyncBlock))
    swapped = changed(changed(kernel, wait), sync, sync, wait)
    assert any(fault for *_, fault in runs(swapped, *gemm_data(), seeds=1))


def test_an_overwrite_that_comes_too_soon_gives_wrong_numbers_when_copies_land_early() -> None:
    kernel = transpose(1)
    second = [s for s in tir.walk(kernel.body) if isinstance(s, tir.SyncWarp)][1]
    given, expected = transpose_data()
    results = [simulate(changed(kernel, second), given, completion="early", seed=s) for s in range(4)]
    assert any(not np.array_equal(r.outputs["b"], expected["b"]) for r in results)


# ---------------------------------------------------------------------------------------------- what reports say


def without(kernel: tir.Kernel, sync: str) -> tir.Kernel:
    return changed(kernel, next(s for s in tir.walk(kernel.body) if isinstance(s, tir.Sync) and s.id == sync))


def test_a_missing_wait_is_named_with_the_read_its_bytes_and_the_copy() -> None:
    given, expected = row_data()
    found = simulate(without(row(), "landed"), given)
    report = next(r for r in found.reports if r.kind == "not landed")
    assert (report.stmt, report.line) == ("ld_shared x <- t[r] bytes 16", 9)
    assert report.writer is not None
    assert report.writer.startswith("cp_async t[w] <- a[m * 4 < M, ")
    assert report.writer_line in (7, 8)
    assert (report.buffer, report.slot) == ("t", 0)
    assert report.bytes == (16 * report.thread, 16 * report.thread + 16)
    assert report.warp == report.thread // 32
    assert np.isnan(found.outputs["b"]).any()
    assert not np.isnan(expected["b"]).any()


def test_a_missing_rendezvous_is_named_with_the_write() -> None:
    found = simulate(without(transpose(4), "s2"), transpose_data()[0])
    report = next(r for r in found.reports if r.kind == "unordered read")
    assert (report.stmt, report.line) == ("ld_shared x <- t.T bytes 4", 10)
    assert (report.writer or "").startswith("cp_async t <- a")
    assert report.writer_line == 9
    assert "no rendezvous" in str(report)


def test_a_store_by_another_pair_of_warps_stays_unseen() -> None:
    kernel = pairs()
    first = next(s for s in tir.walk(kernel.body) if isinstance(s, tir.BarSync))
    found = simulate(changed(kernel, first, replace(first, warps=(2, 3))), pairs_data()[0])
    assert {r.warp for r in found.reports if r.kind == "unordered read"} <= {0, 1}
    assert not found.ok


def test_equal_seeds_give_equal_results() -> None:
    mutant, given = without(transpose(1), "s2"), transpose_data()[0]
    first, again = (simulate(mutant, given, completion="random", seed=5) for _ in range(2))
    assert first.reports == again.reports
    assert np.array_equal(first.outputs["b"], again.outputs["b"], equal_nan=True)
