"""Faults of order: barriers that are missing, misplaced or too many, and programs that come out in another order."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from agreement import agree, changed, meetings, normal, unwritten
from language import kernel_of

import tidegate as tg
from tidegate import cuda
from tidegate.check import check
from tidegate.errors import BadCall, BadSchedule, OverlappingWrites, PlanRejected
from tidegate.ir import tir
from tidegate.plan.plan import SyncKind

# ------------------------------------------------------------------------------------------ 1 missing barriers


@tg.kernel(warps=2)
def halo(x: tg.Tensor["M", "N", "f32"], f: tg.Out["N", "f32"]):
    for m, n in tg.grid(tg.tiles("M", 4), tg.tiles("N", 32)):
        f[n] = tg.load(x[m, n]).sum(axis=0)


@tg.kernel(warps=2)
def running(x: tg.Tensor["M", "N", "f32"], f: tg.Out["N", "f32"]):
    for n in tg.grid(tg.tiles("N", 32)):
        total = tg.zeros((32,))
        for m in tg.tiles("M", 4):
            total += tg.load(x[m, n]).sum(axis=0)
            f[n] = total


@tg.kernel(warps=2)
def halo_updates(x: tg.Tensor["M", 32, "f32"], f: tg.InOut["M", 32, "f32"]):
    for m in tg.grid(tg.tiles("M", 4)):
        f[tg.begin(m) - 1 : tg.end(m) + 1, :] += tg.load(x[tg.begin(m) - 1 : tg.end(m) + 1, :])


def test_1_shared_accumulator_with_halos() -> None:
    """Tiles of one grid add to cells that several of them own, and cells are counted twice.

    An output is indexed by every grid index, or refused; inside a CTA stores of one window keep their order."""
    for kernel in (halo, halo_updates):
        with pytest.raises(OverlappingWrites):
            kernel.compile(target="sm_80")
    agree(running, normal(11, 70), unwritten(70))


@tg.kernel(warps=2)
def odd_group(a: tg.Tensor["M", "N", "f32"], b: tg.Out["N", "M", "f32"], *, BM=6, BN=8):
    for m in tg.grid(tg.tiles("M", BM)):
        for n in tg.tiles("N", BN):
            t = tg.load(a[m, n], by=cuda.cp_async(bytes=4))
            b[n, m] = t.T


@pytest.mark.parametrize(("rows", "kinds"), [(4, {"warp sync"}), (6, {"warp sync"}), (24, {"block barrier"})])
def test_1_partial_group_that_is_no_warp_multiple(rows: int, kinds: set[str]) -> None:
    """48 of 64 threads write a tile that others read; no barrier counts 48 threads, and so none is emitted.

    A tile of 48 elements lies on 16 threads, three times: a layout takes a power of two of them. A meeting takes whole
    warps, and stands outside every guard."""
    compiled = agree(odd_group, normal(13, 24), unwritten(24, 13), BM=rows, multiples={"M": 1, "N": 4})["in_order"]
    found = meetings(compiled.plan)
    assert {s.kind.value for s in found} == kinds
    assert len(found) == 2  # before the read, and before the next copy
    guards = [g for g in tir.walk(compiled.kernel.body) if isinstance(g, tir.If)]
    assert not [s for g in guards for s in tir.walk(g.body) if isinstance(s, tir.SyncBlock | tir.SyncWarp)]


@tg.kernel(warps=16)
def few_writers(a: tg.Tensor[32, "f32"], x: tg.Tensor["M", 32, "f32"], y: tg.Out["M", 32, "f32"]):
    for m in tg.grid(tg.tiles("M", 64)):
        t = tg.load(a[:], by=cuda.cp_async(bytes=4))
        y[m, :] = tg.load(x[m, :]) + t


def test_1_few_writers_many_readers() -> None:
    """One warp of sixteen fills a tile that all read: the barrier holds too few threads, or stands in the guard.

    Writers and readers together take part: one barrier of the whole block, on every thread's way."""
    compiled = agree(few_writers, normal(32), normal(70, 32), unwritten(70, 32))["multistage"]
    assert [(s.kind, s.participants) for s in meetings(compiled.plan)] == [(SyncKind.BLOCK, "all warps")]
    assert any(isinstance(s, tir.SyncBlock) for s in compiled.kernel.body)


@pytest.mark.parametrize("sync", ["first barrier", "second barrier"])
def test_1_barrier_removed_without_a_proof(sync: str) -> None:
    """A barrier goes, or moves, and nobody looks again at the accesses that it ordered, those of the next trip too.

    A plan is validated against recomputed dependences, and the checker knows no plan: both refuse."""
    plan = odd_group.compile(target="sm_80").plan
    gone = meetings(plan)[0 if sync == "first barrier" else 1]
    with pytest.raises(PlanRejected, match="nothing orders"):
        odd_group.compile(target="sm_80", plan=replace(plan, syncs=tuple(s for s in plan.syncs if s is not gone)))
    kernel = odd_group.compile(target="sm_80").kernel
    assert check(replace(kernel, body=without(kernel.body, gone.id))).status == "unsafe"


def without(body: tuple[tir.Stmt, ...], sync: str) -> tuple[tir.Stmt, ...]:
    kept = [s for s in body if not (isinstance(s, tir.Sync) and s.id == sync)]
    return tuple(replace(s, body=without(s.body, sync)) if isinstance(s, tir.For | tir.If) else s for s in kept)


# ------------------------------------------------------------------------------------------ 4 reordering


@tg.kernel(warps=2)
def consume_then_copy(a: tg.Tensor["K", 32, "f32"], first: tg.Tensor[8, 32, "f32"], c: tg.Out[8, 32, "f32"], *, S=1):
    acc = tg.zeros((8, 32))
    t = tg.load(first[:, :])
    for k in tg.tiles("K", 8):
        acc = acc * 0.5 + t
        t = tg.load(a[k, :], by=cuda.cp_async(), stages=S)
    c[:, :] = acc


@tg.kernel(warps=2)
def copy_then_consume(a: tg.Tensor["K", 32, "f32"], first: tg.Tensor[8, 32, "f32"], c: tg.Out[8, 32, "f32"], *, S=1):
    acc = tg.zeros((8, 32))
    t = tg.load(first[:, :])
    for k in tg.tiles("K", 8):
        u = tg.load(a[k, :], by=cuda.cp_async(), stages=S)
        acc = acc * 0.5 + t
        t = u
    c[:, :] = acc


@pytest.mark.parametrize("stages", [1, 2, 3])
def test_4_consume_then_copy(stages: int) -> None:
    """A tile is consumed and then copied again; the copy is taken for a producer and hoisted above the read.

    Tiles are values: the last trip's is carried, in whichever order the two statements stand."""
    for trips in (0, 1, 8):
        a, first = normal(8 * trips, 32), normal(8, 32, seed=1)
        c, d = unwritten(8, 32), unwritten(8, 32)
        agree(consume_then_copy, a, first, c, S=stages)
        agree(copy_then_consume, a, first, d, S=stages)
        assert np.array_equal(c, d)


@tg.kernel(warps=2)
def updated(x: tg.Tensor["K", 32, "f32"], c: tg.InOut[32, 8, "f32"], y: tg.Out["K", 32, "f32"]):
    for k in tg.tiles("K", 8):
        t = tg.load(x[k, :], by=cuda.cp_async(), stages=3)
        c[:, :] += t.T
        y[k, :] = tg.load(c[:, :]).T - t
        c[:, :] *= 0.5


@tg.kernel(warps=2)
def updated_ahead(c: tg.InOut["K", 32, "f32"]):
    for k in tg.tiles("K", 8):
        t = tg.load(c[k, :], by=cuda.cp_async(), stages=2)
        c[k, :] = t + 1.0


def test_4_read_modify_write() -> None:
    """An update is a read and a write; taken for a write alone, loads are moved across it.

    What a kernel writes is read in the order of the text, and is not copied ahead."""
    c = normal(32, 8, seed=2)
    agree(updated, normal(36, 32), c, unwritten(36, 32))
    with pytest.raises(BadSchedule, match="may be written before"):
        updated_ahead.compile(target="sm_80")


def opaque(*_: Any) -> None:
    """A function of unknown effect."""


@tg.kernel
def calls_out(a: tg.Tensor["K", 32, "f32"], c: tg.Out["K", 32, "f32"]):
    for k in tg.tiles("K", 8):
        t = opaque(tg.load(a[k, :], stages=2))
        c[k, :] = t


def test_4_opaque_wait_in_the_body() -> None:
    """A statement of unknown effect stands in a loop whose copies are moved across it.

    The language has none: what is no declared operation on tiles is refused."""
    with pytest.raises(BadCall):
        calls_out.compile(target="sm_80")


LINES = (
    "x = tg.load(a[m, k], stages=2)",
    "y = tg.load(b[k, :], by=cuda.cp_async(), stages=3)",
    "total = total + x.T",
    "acc = tg.dot(x, y, acc)",
    "rows = rows + y.astype('f32').sum(axis=0)",
)
LATER = ((0, 2), (0, 3), (1, 3), (1, 4))
"""The second line needs the first."""
ORDERS = [o for o in itertools.permutations(range(5)) if all(o.index(a) < o.index(b) for a, b in LATER)]


def text(order: tuple[int, ...]) -> str:
    """A kernel whose loop has the lines in that order."""
    return (
        "import tidegate as tg\nfrom tidegate import cuda\n\n@tg.kernel(warps=2)\n"
        "def program(a: tg.Tensor['M', 'K', 'f16'], b: tg.Tensor['K', 32, 'f16'], c: tg.Out['M', 32, 'f32'],\n"
        "            d: tg.Out[16, 'M', 'f16'], e: tg.Out['M', 32, 'f32']):\n"
        "    for m in tg.grid(tg.tiles('M', 32)):\n"
        "        acc = tg.zeros((32, 32))\n"
        "        total = tg.zeros((16, 32), 'f16')\n"
        "        rows = tg.zeros((32,))\n"
        "        for k in tg.tiles('K', 16):\n"
        + "".join(f"            {LINES[i]}\n" for i in order)
        + "        c[m, :] = acc\n        d[:, m] = total\n        e[m, :] = acc * 0.0 + rows\n"
    )


@pytest.mark.parametrize("order", ORDERS[:: len(ORDERS) // 3], ids=str)
def test_4_line_order(order: tuple[int, ...]) -> None:
    """Two lines that have nothing to do with each other change places, and so does the answer.

    Every order of the lines that keeps definitions before uses computes the same bits."""
    arrays = [normal(40, 52, dtype=np.float16), normal(52, 32, dtype=np.float16)]
    arrays += [unwritten(40, 32), unwritten(16, 40, dtype=np.float16), unwritten(40, 32)]
    agree(kernel_of(text(order)), *arrays, producers=["multistage"], multiples={"M": 8, "K": 4})
    results = []
    for lines in (tuple(range(5)), order):
        got = [a.copy() for a in arrays[:2]] + [np.full_like(a, 7) for a in arrays[2:]]
        compiled = kernel_of(text(lines)).compile(target="sm_80", multiples={"M": 8, "K": 4})
        assert compiled.simulate(*got, completion="random", seed=3).ok
        results.append(got[2:])
    assert all(np.array_equal(one, two) for one, two in zip(*results, strict=True))


# ------------------------------------------------------------------------------------------ 13 released too early


def test_13_barrier_before_wait() -> None:
    """The block meets first and each thread waits for its copies afterwards: others then read what is not there.

    Exchanging the two, or moving the wait behind, is refused as a plan and unsafe as TIR."""
    compiled = odd_group.compile(target="sm_80")
    plan = compiled.plan
    wait = next(s for s in plan.syncs if s.kind is SyncKind.COPY_WAIT)
    meeting = next(s for s in meetings(plan) if s.place == wait.place)
    swapped = tuple({wait: meeting, meeting: wait}.get(s, s) for s in plan.syncs)
    with pytest.raises(PlanRejected, match="nothing orders"):
        odd_group.compile(target="sm_80", plan=replace(plan, syncs=swapped))
    with pytest.raises(PlanRejected, match="nothing orders"):
        odd_group.compile(target="sm_80", plan=changed(plan, {wait.id: {"place": "end"}}))


@tg.kernel(warps=4)
def half_read(a: tg.Tensor["M", 64, "f32"], b: tg.Out["M", "f32"]):
    for m in tg.tiles("M", 32):
        t = tg.load(a[m, :], by=cuda.cp_async(), stages=2)
        b[m] = tg.where(tg.positions(m)[:, None] < 16, 0.0, t).max(axis=1)


def test_13_unused_lanes() -> None:
    """Threads that do not need what they read do not wait for it either, and say too early that they are done.

    Waits and meetings do not depend on values: every thread executes all of them."""
    agree(half_read, normal(100, 64), unwritten(100))


# ------------------------------------------------------------------------------------------ 19 too many syncs


@tg.kernel(warps=4)
def ping_pong(a: tg.Tensor["M", 128, "f32"], b: tg.Out["M", 128, "f32"], *, S=2):
    for m in tg.tiles("M", 8):
        t = tg.load(a[m, :], by=cuda.cp_async(), stages=S)
        b[m, :] = t * 2.0


@pytest.mark.parametrize("stages", [1, 2, 3])
def test_19_distinct_slots_and_own_bytes(stages: int) -> None:
    """A ring whose slots are written and read by the same threads gets barriers all the same.

    Bytes and threads decide: commits and waits are enough, and no meeting is emitted."""
    compiled = agree(ping_pong, normal(37, 128), unwritten(37, 128), S=stages)
    assert not any(meetings(c.plan) for c in compiled.values())


@pytest.mark.parametrize(("stages", "most"), [(1, 2), (2, 1), (3, 1), (4, 1)])
def test_19_one_meeting_per_trip(stages: int, most: int) -> None:
    """Barriers are added per access and never counted; each costs time on every trip.

    A ring needs one meeting per trip for both directions, and removing any sync leaves something unordered."""

    compiled = agree(turned, normal(40, 64), unwritten(64, 40), S=stages, multiples={"M": 4, "N": 4})["multistage"]
    assert len(meetings(compiled.plan)) == most
    for sync in compiled.plan.syncs:
        rest = replace(compiled.plan, syncs=tuple(s for s in compiled.plan.syncs if s is not sync))
        with pytest.raises(PlanRejected):
            turned.compile(target="sm_80", plan=rest, S=stages, multiples={"M": 4, "N": 4})


@tg.kernel(warps=4)
def turned(a: tg.Tensor["M", "N", "f32"], b: tg.Out["N", "M", "f32"], *, S=2):
    for m in tg.grid(tg.tiles("M", 32)):
        for n in tg.tiles("N", 16):
            t = tg.load(a[m, n], by=cuda.cp_async(), stages=S)
            b[n, m] = t.T
