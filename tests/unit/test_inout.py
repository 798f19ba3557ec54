"""Tensors that are read and written, and atomic additions: values, order within a CTA, no meeting of CTAs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from forms import agrees, numbers
from judging import without
from test_language_errors import load, source

import tidegate as tg
from tidegate import cuda
from tidegate.check import check
from tidegate.errors import TidegateError
from tidegate.ir import tir
from tidegate.ir.text import parse_kernel
from tidegate.ops.plain import rounding_bound
from tidegate.simulate import simulate

BF16 = ml_dtypes.bfloat16


@tg.kernel(warps=4)
def accumulate(
    a: tg.Tensor["M", "K", "bf16"], b: tg.Tensor["K", "N", "bf16"], c: tg.InOut["M", "N", "f32"], *, STAGES=2
):
    for m, n in tg.grid(tg.tiles("M", 32), tg.tiles("N", 32)):
        acc = tg.zeros((32, 32))
        for k in tg.tiles("K", 16):
            acc = tg.dot(tg.load(a[m, k], stages=STAGES), tg.load(b[k, n], stages=STAGES), acc)
        c[m, n] += acc


@tg.kernel(warps=4)
def steps(y: tg.InOut["T", "C", "f16"], *, C=32):
    """One window, again and again: each thread changes what it changed before."""
    for t in tg.grid(tg.tiles("T", 8)):
        for _ in tg.range(3):
            y[t, :] *= 2.0
            y[t, :] -= 1.0


@tg.kernel(warps=4)
def prefix(x: tg.Tensor["T", "C", "f32"], y: tg.InOut["T", "C", "f32"], *, C=32):
    """Windows that are equal or disjoint from trip to trip need no barrier."""
    for t in tg.tiles("T", 8):
        y[t, :] = tg.load(x[t, :]) + tg.load(y[tg.begin(t) - 8 : tg.end(t) - 8, :])


@tg.kernel(warps=4)
def smooth(y: tg.InOut["T", "C", "f32"], *, C=32):
    """Overlapping windows: other threads' rows are read before and after they change."""
    for t in tg.tiles("T", 8):
        y[t, :] = tg.load(y[tg.begin(t) - 3 : tg.end(t) - 3, :]) + tg.load(y[tg.begin(t) + 3 : tg.end(t) + 3, :])


@tg.kernel(warps=2)
def transposed(y: tg.InOut["B", 16, 16, "f32"]):
    for b in tg.grid(tg.range("B")):
        y[b, :, :] = tg.load(y[b, :, :]).T


@tg.kernel(warps=4)
def scatter(
    index: tg.Tensor["M", "i32"],
    x: tg.Tensor["M", "D", "f32"],
    y: tg.InOut["R", "D", "f32"],
    count: tg.InOut["R", 1, "i32"],
    total: tg.InOut["D", "f32"],
    *,
    D=64,
):
    for m in tg.grid(tg.tiles("M", 16)):
        rows = tg.load(index[m])
        t = tg.load(x[m, :], by=cuda.cp_async())
        tg.atomic_add(y[rows, :], t * 2.0)
        tg.atomic_add(y[rows, :], t)
        tg.atomic_add(count[rows, :], (rows * 0 + 1)[:, None])
        tg.atomic_add(total[:], t.sum(axis=0))


def test_an_update_adds_to_what_is_there() -> None:
    for depth in (0, 8, 40):
        a, b, c = numbers(40, depth, dtype=BF16), numbers(depth, 40, dtype=BF16), numbers(40, 40)
        (y,) = agrees(accumulate, a, b, c, multiples={"M": 8, "N": 8, "K": 8})
        assert np.allclose(y, c + a.astype("f4") @ b.astype("f4"), atol=1e-3)


def test_updates_follow_one_another() -> None:
    x = numbers(12, 32, dtype="f2")
    (y,) = agrees(steps, x, multiples={"T": 4})
    wanted = x
    for _ in range(3):
        wanted = (wanted * np.float16(2)) - np.float16(1)
    assert np.array_equal(y, wanted)
    assert not barriers(steps)


@pytest.mark.parametrize("length", [0, 4, 8, 30])
def test_windows_of_earlier_trips(length: int) -> None:
    x, y = numbers(length, 32), numbers(length, 32, seed=1)
    (got,) = agrees(prefix, x, y, multiples={"T": 1})
    blocks = [x[t : t + 8] for t in range(0, length, 8)]
    wanted = [sum((b[: len(blocks[n])] for b in blocks[: n + 1]), np.float32(0)) for n in range(len(blocks))]
    assert np.allclose(got, np.concatenate([*wanted, np.zeros((0, 32), "f4")]), atol=1e-5)
    agrees(smooth, y, multiples={"T": 1})


def barriers(kernel: Any) -> list[tir.Stmt]:
    body = tir.walk(kernel.compile("sm_80").kernel.body)
    return [s for s in body if isinstance(s, (tir.SyncBlock, tir.SyncWarp, tir.BarSync))]


def test_order_costs_a_barrier_only_where_threads_meet() -> None:
    assert not barriers(prefix)
    assert not [s for s in barriers(accumulate) if "c:" in s.why]
    assert len([s for s in barriers(smooth) if "y:" in s.why]) == 2
    assert any("y: read" in s.why for s in barriers(transposed))


@pytest.mark.parametrize("kernel", [smooth, transposed], ids=lambda k: k.name)
def test_without_its_barrier_the_order_is_lost(kernel: Any) -> None:
    """The checker shows a run, and the simulator meets the missing order whatever the timing."""
    k = kernel.compile("sm_80", multiples=dict.fromkeys(kernel.dims, 1))
    y = numbers(30, 32) if kernel is smooth else numbers(3, 16, 16)
    assert simulate(k.kernel, {"y": y}).ok
    syncs = [s for s in tir.walk(k.kernel.body) if isinstance(s, tir.SyncBlock) and "y: " in s.why]
    assert syncs
    for sync in syncs:
        broken = replace(k.kernel, body=without(k.kernel.body, sync))
        verdict = check(broken)
        assert verdict.status == "unsafe", verdict.text()
        assert verdict.findings[0].kind == "global race"
        for completion in ("late", "early", "random"):
            runs = [simulate(broken, {"y": y}, completion=completion, seed=seed) for seed in range(3)]
            kinds = {r.kind for run in runs for r in run.reports}
            assert kinds & {"unordered read", "unordered write", "overwrite"}, sync.why


def test_a_stale_value_is_what_a_thread_sees_that_does_not_know_of_a_write() -> None:
    k = transposed.compile("sm_80")
    broken = replace(k.kernel, body=tuple(s for s in k.kernel.body if not isinstance(s, tir.SyncBlock)))
    y = numbers(3, 16, 16)
    for result in [simulate(broken, {"y": y}, seed=seed) for seed in range(4)]:
        assert not result.ok
        assert np.array_equal(result.outputs["y"], y.transpose(0, 2, 1)), "each element is read as it was"


@pytest.mark.parametrize("count", [0, 16, 48])
def test_atomic_additions_commute_and_may_name_one_row_twice(count: int) -> None:
    index = np.random.default_rng(0).integers(-2, 12, count).astype("i4")
    x, y, total = numbers(count, 64), numbers(10, 64, seed=1), numbers(64, seed=2)
    got, counts, sums = agrees(
        scatter, index, x, y, np.zeros((10, 1), "i4"), total, multiples={"M": 16 if count else 1, "R": 1}
    )
    wanted = y.astype("f8")
    inside = (index >= 0) & (index < 10)
    np.add.at(wanted, index[inside], 3.0 * x[inside])
    assert np.allclose(got, wanted, atol=1e-5)
    assert np.array_equal(counts[:, 0], np.bincount(index[inside], minlength=10))
    assert np.allclose(sums, total + x.sum(axis=0), atol=1e-5)
    assert not [d for d in scatter.compile("sm_80").plan.dependences if d.places[0] in ("y", "count", "total")]


def test_the_bound_of_atomic_sums_grows_with_their_number_and_is_0_for_integers() -> None:
    index = np.zeros(48, "i4")
    arrays = {
        "index": index,
        "x": numbers(48, 64),
        "y": np.zeros((2, 64), "f4"),
        "count": np.zeros((2, 1), "i4"),
        "total": np.zeros(64, "f4"),
    }
    bounds = rounding_bound(scatter.program(), arrays)
    assert (bounds["y"][0] > 96 * 2.0**-23 * np.abs(arrays["x"]).sum(axis=0)).all()
    assert not bounds["y"][1].any()
    assert not bounds["count"].any()


# ------------------------------------------------------------------------------------------ TIR by hand

HAND = """
kernel hand target sm_80 warps 2 smem 0
dim M multiple 64
param index i32 [M] in align 16
param y f32 [M] inout align 16
param z f32 [M, 64] inout align 16
grid i < cdiv(M, 64)
layout line [64] reg - lane 1 2 4 8 16 warp 32 rep 1
layout back [64] reg - lane 2 4 8 16 32 warp 1 rep 1
layout tile [64, 64] reg 1,0 2,0 4,0 8,0 16,0 32,0 lane 0,1 0,2 0,4 0,8 0,16 warp 0,32 rep 1,1
layout rows [64] reg 1 2 4 8 16 32 lane 0 0 0 0 0 warp 0 rep 1 replicated
register t f32 layout line
register u f32 layout back
register r i32 layout rows
register s i32 layout line
register v f32 layout tile
body {
BODY
}
"""

ADD = "ld_global r <- index[0] bytes 4\nfill v <- 1.0\natomic_add z[@r < M, 0] <- v\n"
BODIES = {
    "safe: one thread reads and writes": "ld_global t <- y[i * 64] bytes 4\nst_global y[i * 64] <- t bytes 4",
    "safe: a barrier in between": "ld_global t <- y[i * 64] bytes 4\nsync_block\nfill u <- 0.0\n"
    "st_global y[i * 64] <- u bytes 4",
    "safe: additions of all CTAs": ADD,
    "safe: other elements": "ld_global t <- y[i * 64] bytes 4\nfill u <- 0.0\nst_global z[=i * 64, 0] <- u bytes 4",
    "unsafe: other threads": "ld_global t <- y[i * 64] bytes 4\nfill u <- 0.0\nst_global y[i * 64] <- u bytes 4",
    "unsafe: a warp sync is not enough": "ld_global t <- y[i * 64] bytes 4\nsync_warp\nfill u <- 0.0\n"
    "st_global y[i * 64] <- u bytes 4",
    "unsafe: another CTA's window": "ld_global t <- y[0] bytes 4\nst_global y[i * 64] <- t bytes 4",
    "unsafe: added to and written": ADD + "st_global z[i * 64, 0] <- v bytes 4",
    "unsafe: added to and read by another thread": ADD + "sync_block\nld_global v <- z[i * 64, 0] bytes 4",
}


@pytest.mark.parametrize("name", BODIES)
def test_verdicts_on_hand_written_orders(name: str) -> None:
    """And the simulator agrees with the checker."""
    kernel = parse_kernel(HAND.replace("BODY", BODIES[name]).strip())
    wanted = name.split(":")[0]
    assert (verdict := check(kernel)).status == wanted, verdict.text()
    arrays = {"index": np.arange(128, dtype="i4") % 3, "y": numbers(128), "z": numbers(128, 64)}
    reports = [r for seed in range(4) for r in simulate(kernel, arrays, completion="late", seed=seed).reports]
    assert bool(reports) == (wanted == "unsafe"), reports


def test_what_tir_refuses() -> None:
    def broken(body: str) -> str:
        return check(parse_kernel(HAND.replace("BODY", body).strip())).text()

    assert "each would add them" in broken("fill v <- 0.0\nld_global r <- index[0] bytes 4\natomic_add index[0] <- r")
    assert "rows are i32" in broken("fill v <- 0.0\nfill t <- 0.0\natomic_add z[@t < M, 0] <- v")
    assert "is not gathered" in broken("fill v <- 0.0\nfill r <- 0.0\natomic_add z[i * 64, @r < M] <- v")
    assert "does not give the rows" in broken("fill v <- 0.0\npositions s <- 0\natomic_add z[@s < M, 0] <- v")


# ------------------------------------------------------------------------------------------ refusals

PARAMETERS = (
    'i: tg.Tensor["M", "i32"], x: tg.Tensor["M", 32, "f32"], o: tg.Out["M", 32, "f32"], '
    'y: tg.InOut["M", 32, "f32"], h: tg.InOut["M", 32, "f16"]'
)
BEGIN = "for m in tg.grid(tg.tiles('M', 8)):\n    r = tg.load(i[m])\n    t = tg.load(x[m, :])\n    "
REST = "\n    o[m, :] = t\n    y[m, :] += t\n    h[m, :] = t.astype('f16')\n"
REFUSED = {
    "TG204 an update reads it": "o[m, :] += t" + REST,
    "TG204 x is a tg.Tensor": "x[m, :] += t" + REST,
    "TG101 the operator in": "y[m, :] @= t" + REST,
    "TG205 is read here and added to": "tg.atomic_add(y[m, :], t)\n    o[m, :] = tg.load(y[m, :])" + REST,
    "TG205 the window read of y does not depend on": "y[0:8, :] = tg.load(y[0:8, :])\n"
    "    o[m, :] = t\n    h[m, :] = t.astype('f16')",
    "TG206 y is a tg.InOut": "o[m, :] = tg.load(y[m, :])\n    h[m, :] = t.astype('f16')",
    "TG204 o is a tg.Out": "tg.atomic_add(o[m, :], t)" + REST,
    "TG202 atomic additions are of f32 and i32": "tg.atomic_add(h[m, :], t.astype('f16'))" + REST,
    "TG201 the window of y has shape": "tg.atomic_add(y[m, :], t[0:4, :])" + REST,
    "TG105 is a statement of its own": "t = tg.atomic_add(y[m, :], t)" + REST,
    "TG301 filled ahead of its trip": "for k in tg.range(2):\n        y[m, :] += tg.load(y[m, :], stages=2)" + REST,
    "TG301 copied asynchronously": "t = tg.load(y[m, :], by=cuda.cp_async())" + REST,
}


@pytest.mark.parametrize("expected", REFUSED)
def test_what_is_refused(expected: str, tmp_path: Any) -> None:
    code, text = expected.split(" ", 1)
    with pytest.raises(TidegateError) as caught:
        load(source(BEGIN + REFUSED[expected], PARAMETERS), tmp_path).k.compile("sm_80")
    assert caught.value.code == code, caught.value
    assert text in caught.value.text
    assert caught.value.span is not None
