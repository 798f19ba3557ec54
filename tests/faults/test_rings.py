"""Faults of counting: wait counts, ring depths, trip counts, skipped work, loops that follow one another, restarts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from agreement import agree, changed, normal, unwritten, waits

import tidegate as tg
from tidegate import cuda
from tidegate.check import check
from tidegate.errors import PlanRejected
from tidegate.ir import tir
from tidegate.ir.text import parse_kernel
from tidegate.plan.plan import SyncKind

F16 = np.float16

# ------------------------------------------------------------------------------------------ 2 wait counts


@tg.kernel(warps=2)
def unread(a: tg.Tensor["M", 32, "f32"], b: tg.Out["M", 32, "f32"]):
    for m in tg.tiles("M", 8):
        t = tg.load(a[m, :], by=cuda.cp_async(), stages=3)
        u = t + 1.0  # noqa: F841
        b[m, :] = tg.full((8, 32), 4.0)


def test_2_exit_before_completion() -> None:
    """A kernel returns while a copy that nobody waits for is still in flight.

    A copy that nothing reads is not issued; and a kernel whose last copies are not waited for is unsafe."""
    compiled = agree(unread, normal(20, 32), unwritten(20, 32))["multistage"]
    assert "cp_async" not in compiled.tir
    ring = turned.compile(target="sm_80", S=3, multiples={"M": 4, "N": 4})
    ahead = ring.tir.replace("if n + 2 < cdiv(N, 16)", "if n + 2 < cdiv(N, 16) + 1")
    assert ahead != ring.tir
    assert check(parse_kernel(ahead)).status == "unsafe"


@tg.kernel(warps=2)
def three_producers(
    a: tg.Tensor["M", "K", "f32"],
    b: tg.Tensor["M", "K", "f32"],
    c: tg.Tensor["M", "K", "f32"],
    out: tg.Out["K", "M", "f32"],
    *,
    S=(3, 3, 3),
):
    for m in tg.grid(tg.tiles("M", 16)):
        for k in tg.tiles("K", 16):
            x = tg.load(a[m, k], by=cuda.cp_async(), stages=S[0])
            first = x.T * 2.0
            y = tg.load(b[m, k], by=cuda.cp_async(), stages=S[1])
            second = first - y.T
            z = tg.load(c[m, k], by=cuda.cp_async(), stages=S[2])
            out[k, m] = second + z.T


@pytest.mark.parametrize("stages", [(3, 3, 3), (2, 4, 3), (1, 3, 2), (4, 1, 1)])
def test_2_three_producers_per_iteration(stages: tuple[int, int, int]) -> None:
    """A wait counts stages where groups are meant: with three copies per trip it waits for too much or too little.

    Counts follow from the groups that were committed since the one that is needed; one more and the plan is refused."""
    arrays = [normal(20, 72, seed=i) for i in range(3)] + [unwritten(72, 20)]
    given = {"S": stages, "multiples": {"M": 4, "K": 4}}
    for compiled in agree(three_producers, *arrays, **given).values():
        for sync in compiled.plan.syncs:
            if sync.kind is SyncKind.COPY_WAIT:
                more = changed(compiled.plan, {sync.id: {"count": (sync.count or 0) + 1}})
                with pytest.raises(PlanRejected, match="nothing orders"):
                    three_producers.compile(target="sm_80", plan=more, **given)


def test_2_prologue_off_by_one_with_unequal_rings() -> None:
    """The prologue of a shallow ring beside a deep one is waited for one group too late; equal depths hide it.

    The shallow ring decides the count, on every way to the wait; the TIR with one more is unsafe for some size."""
    given = {"S": (2, 4, 4), "multiples": {"M": 4, "K": 4}}
    compiled = three_producers.compile(target="sm_80", plan="multistage", **given)
    (count,) = waits(compiled.plan)
    assert count < 2 * 3
    bent = compiled.tir.replace(f"cp_wait {count} ", f"cp_wait {count + 1} ")
    assert bent != compiled.tir
    assert check(parse_kernel(bent)).status == "unsafe"


# ------------------------------------------------------------------------------------------ 3 depth of rings


@tg.kernel(warps=4)
def turned(a: tg.Tensor["M", "N", "f32"], b: tg.Out["N", "M", "f32"], *, S=2, BY=cuda.cp_async()):  # noqa: B008
    for m in tg.grid(tg.tiles("M", 16)):
        for n in tg.tiles("N", 16):
            t = tg.load(a[m, n], by=BY, stages=S)
            b[n, m] = t.T


@pytest.mark.parametrize("by", [cuda.cp_async(), cuda.ld()], ids=str)
@pytest.mark.parametrize("stages", [1, 2, 4])
def test_3_same_schedule_two_copy_kinds(stages: int, by: object) -> None:
    """A depth that is enough for a copy that completes on return is used for one that completes later.

    Fills run at most S - 1 items ahead, whatever copies; a plan that asks for S is refused."""
    given = {"S": stages, "BY": by, "multiples": {"M": 4, "N": 4}}
    plan = agree(turned, normal(20, 84), unwritten(84, 20), **given)["multistage"].plan
    deeper = replace(plan.schedule[0], ahead=(("t", stages),))
    with pytest.raises(PlanRejected):
        turned.compile(target="sm_80", plan=replace(plan, schedule=(deeper,)), **given)


@tg.kernel(warps=2)
def late_use(p: tg.Tensor["N", 32, "f32"], q: tg.Tensor["N", 32, "f32"], out: tg.Out["N", 32, "f32"], *, S=2):
    for i in tg.tiles("N", 1):
        index = tg.load(p[i, :], by=cuda.cp_async(bytes=4), stages=S)
        other = tg.load(q[i, :], by=cuda.cp_async(bytes=4), stages=S)
        scaled = other * 0.0
        out[i, :] = tg.where(index > 2.0, index + 1.0 + scaled, -1.0)


@pytest.mark.parametrize("stages", [1, 2, 3])
def test_3_use_in_a_conditional_store(stages: int) -> None:
    """A value is used late in the trip, behind the next load into its slot: outputs skip values.

    A slot lives to its last read of the trip; a fill that comes earlier is unordered with it."""
    p = np.repeat(np.arange(17, dtype=np.float32)[:, None], 32, axis=1)
    out = unwritten(17, 32)
    agree(late_use, p, normal(17, 32), out, S=stages)
    assert np.array_equal(out[:, 0], [-1, -1, -1, *range(4, 18)])


@tg.kernel(warps=2)
def two_products(
    a: tg.Tensor["M", "K", "f16"],
    b: tg.Tensor["K", 16, "f16"],
    c: tg.Out["M", 16, "f32"],
    d: tg.Out[16, "M", "f32"],
    *,
    S=2,
):
    for m in tg.grid(tg.tiles("M", 16)):
        one = tg.zeros((16, 16))
        two = tg.zeros((16, 16))
        for k in tg.tiles("K", 16):
            x = tg.load(a[m, k], by=cuda.cp_async(), stages=S)
            y = tg.load(b[k, :], by=cuda.cp_async(), stages=S)
            one = tg.dot(x, y, one)
            two = tg.dot(y.T, x.T, two)
            one = one + x
        c[m, :] = one
        d[:, m] = two


@pytest.mark.parametrize("stages", [1, 2, 3])
def test_3_one_load_two_products(stages: int) -> None:
    """A tile feeds two products, and its slot is given back after the first.

    All readers of a slot count: two products, one of them transposed, and a sum."""
    arrays = [normal(24, 80, dtype=F16), normal(80, 16, dtype=F16), unwritten(24, 16), unwritten(16, 24)]
    agree(two_products, *arrays, S=stages, multiples={"M": 4, "K": 16})


# ------------------------------------------------------------------------------------------ 5 trip counts


@pytest.mark.parametrize("stages", [1, 2, 3, 4])
def test_5_short_loop_deep_pipeline(stages: int) -> None:
    """With fewer trips than slots the ramp down begins before the first trip.

    Every fill is guarded by its own item; 0 to 2S + 1 trips, and ragged ones, equal plain."""
    for trips in range(2 * stages + 2):
        columns = max(16 * trips - 3 * (trips % 2), 0)
        agree(
            turned,
            normal(9, columns),
            unwritten(columns, 9),
            producers=["multistage"],
            S=stages,
            multiples={"M": 1, "N": 1},
        )


def test_5_wrong_predicate_in_the_ramp_down() -> None:
    """One predicate serves fills of different distance, so that the last trips fill too much or too little.

    Each ring has its own guard; to fill an item less is found to read what was never written."""
    compiled = three_producers.compile(target="sm_80", S=(2, 4, 1), multiples={"M": 4, "K": 4})
    guards = [str(s.condition) for s in tir.walk(compiled.kernel.body) if isinstance(s, tir.If)]
    assert {"k + 1 < cdiv(K, 16)", "k + 3 < cdiv(K, 16)"} <= set(guards)
    bent = compiled.tir.replace("if k + 3 < cdiv(K, 16)", "if k + 4 < cdiv(K, 16)")
    assert check(parse_kernel(bent)).status == "unsafe"


@pytest.mark.parametrize("size", [0, 1, 16])
def test_5_single_iteration(size: int) -> None:
    """A loop of one trip folds away with half of its handshake; a loop of none leaves the other half.

    Sizes that are known when compiling, and make none or one trip, are ordinary sizes."""
    agree(turned, normal(20, size), unwritten(size, 20), S=3, N=size, multiples={"M": 1})


@tg.kernel(warps=2)
def counted(counts: tg.Tensor["B", "i32"], x: tg.Tensor["N", 8, 32, "f32"], y: tg.Out["B", 32, 8, "f32"], *, S=2):
    for b in tg.grid(tg.range("B")):
        acc = tg.full((32, 8), 1.0)
        for i in tg.range(tg.load(counts[b])):
            t = tg.load(x[i, :, :], by=cuda.cp_async(), stages=S)
            acc = acc * 0.5 + t.T
        y[b, :, :] = acc


@pytest.mark.parametrize("stages", [1, 2, 4])
def test_5_dynamic_bounds(stages: int) -> None:
    """A trip count that is read at run time is negative, or 0, or not what the prologue was made for.

    Counts below one run no trip, others as many as they say, beyond the tensor on zeros; all are proved at once."""
    counts = np.array([0, 1, 2, 3, 7, -5, -(2**31), 9], np.int32)
    agree(counted, counts, normal(7, 8, 32), unwritten(8, 32, 8), S=stages)


# ------------------------------------------------------------------------------------------ 6 conditional stages


@tg.kernel(warps=2)
def below(x: tg.Tensor["N", "N", "f32"], y: tg.Out["N", 16, "f32"], *, S=2):
    for m in tg.grid(tg.tiles("N", 32)):
        acc = tg.zeros((32, 16))
        for n in tg.tiles("N", 16, until=tg.end(m)):
            t = tg.load(x[n, m], by=cuda.cp_async(), stages=S)
            acc = acc * 0.5 + t.T
        y[m, :] = acc


@pytest.mark.parametrize("stages", [3, 4])
def test_6_commit_in_the_guard(stages: int) -> None:
    """A skipped fill skips its commit too, and every count behind it is wrong.

    The commit stands outside: a turn without a fill commits an empty group. Put inside, it is unsafe."""
    size = 16 * stages + 4
    compiled = agree(below, normal(size, size), unwritten(size, 16), S=stages, multiples={"N": 4})["multistage"]
    for guard in (s for s in tir.walk(compiled.kernel.body) if isinstance(s, tir.If)):
        assert not any(isinstance(s, tir.CpCommit) for s in tir.walk(guard.body))
    kernel = compiled.kernel
    assert check(replace(kernel, body=commits_guarded(kernel.body))).status == "unsafe"


def commits_guarded(body: tuple[tir.Stmt, ...]) -> tuple[tir.Stmt, ...]:
    """Each commit that follows a guard goes into it."""
    out: list[tir.Stmt] = []
    for stmt in body:
        if isinstance(stmt, tir.For):
            stmt = replace(stmt, body=commits_guarded(stmt.body))
        if isinstance(stmt, tir.CpCommit) and out and isinstance(out[-1], tir.If):
            out[-1] = replace(out[-1], body=(*out[-1].body, stmt))
        else:
            out.append(stmt)
    return tuple(out)


@tg.kernel(warps=2)
def block_sparse(
    mask: tg.Tensor["T", "i32"],
    a: tg.Tensor["M", "K", "f16"],
    b: tg.Tensor["K", 16, "f16"],
    c: tg.Out["M", 16, "f32"],
    *,
    S=1,
):
    for m in tg.grid(tg.tiles("M", 16)):
        acc = tg.zeros((16, 16))
        for k in tg.tiles("K", 16):
            if tg.load(mask[tg.begin(k) // 16]) > 0:
                x = tg.load(a[m, k], by=cuda.cp_async(), stages=S)
                y = tg.load(b[k, :], by=cuda.cp_async(), stages=S)
                acc = tg.dot(x, y, acc)
        c[m, :] = acc


@pytest.mark.parametrize("stages", [1, 2, 3])
@pytest.mark.parametrize("mask", ["0000000", "1111111", "0101010", "1100101", "0000001"])
def test_6_block_sparse_product(mask: str, stages: int) -> None:
    """Copies and products under a condition: one side of the ring runs where the other was skipped.

    Both sides evaluate the same condition for the same trip, and cursors turn with every trip."""
    used = np.array([int(c) for c in mask], np.int32)
    a, b, c = normal(24, 112, dtype=F16), normal(112, 16, dtype=F16), unwritten(24, 16)
    agree(block_sparse, used, a, b, c, S=stages, multiples={"T": 1, "M": 8, "K": 16})


@tg.kernel(warps=2)
def between(
    starts: tg.Tensor["Q", "i32"],
    ends: tg.Tensor["Q", "i32"],
    x: tg.Tensor["N", 32, "f32"],
    y: tg.Out["Q", 32, 8, "f32"],
    *,
    S=2,
):
    for q in tg.grid(tg.range("Q")):
        first = tg.load(starts[q])
        last = tg.load(ends[q])
        acc = tg.zeros((32, 8))
        for n in tg.tiles("N", 8):
            if first <= n and n < last:
                t = tg.load(x[n, :], by=cuda.cp_async(), stages=S)
                acc = acc * 0.5 + t.T
        y[q, :, :] = acc


@pytest.mark.parametrize("stages", [1, 2])
def test_6_guard_loaded_from_memory(stages: int) -> None:
    """A condition that is loaded from memory is known to one role only, or ends in an internal error.

    Integers are loaded by all threads, and again where a fill that runs ahead needs them."""
    starts = np.array([0, 2, 5, 3, -4, 0], np.int32)
    ends = np.array([6, 4, 9, 3, 2, 0], np.int32)
    agree(between, starts, ends, normal(41, 32), unwritten(6, 32, 8), S=stages)


@tg.kernel(warps=2)
def skipped_loops(use: tg.Tensor["T", "i32"], a: tg.Tensor["M", "K", "f32"], c: tg.Out[16, "M", "f32"], *, S=2):
    for m in tg.tiles("M", 16):
        acc = tg.zeros((16, 16))
        if tg.load(use[tg.begin(m) // 16]) > 0:
            for k in tg.tiles("K", 16):
                t = tg.load(a[m, k], by=cuda.cp_async(), stages=S)
                acc = acc * 0.5 + t.T
        c[:, m] = acc


@pytest.mark.parametrize("use", ["0000", "1111", "0110", "1001"])
@pytest.mark.parametrize("trips", [0, 1, 3])
def test_6_slot_advances_without_a_use(use: str, trips: int) -> None:
    """A count of uses is computed from the outer loop, and goes on although the inner loop was skipped.

    Cursors count what was executed, wherever it was skipped."""
    arrays = [np.array([int(u) for u in use], np.int32), normal(64, 16 * trips), unwritten(16, 64)]
    agree(skipped_loops, *arrays, producers=["multistage"], S=3, multiples={"T": 1, "M": 16, "K": 16})


# ------------------------------------------------------------------------------------------ 7 loops in a row


@tg.kernel(warps=2)
def siblings(a: tg.Tensor["M", "K", "f16"], b: tg.Tensor["K", 16, "f16"], c: tg.Out["M", 16, "f32"], *, S=3, T=3):
    for m in tg.grid(tg.tiles("M", 16)):
        acc = tg.zeros((16, 16))
        for k in tg.tiles("K", 16):
            x = tg.load(a[m, k], by=cuda.cp_async(), stages=S)
            y = tg.load(b[k, :], by=cuda.cp_async(), stages=S)
            acc = tg.dot(x, y, acc)
        for k in tg.tiles("K", 16):
            x = tg.load(a[m, k], by=cuda.cp_async(), stages=T)
            y = tg.load(b[k, :], by=cuda.cp_async(), stages=T)
            acc = tg.dot(x, y, acc * 0.5)
        c[m, :] = acc


@pytest.mark.parametrize(("first", "second"), [(3, 3), (4, 2), (1, 3)])
@pytest.mark.parametrize("trips", [0, 1, 2, 5])
def test_7_two_sibling_loops_same_tiles(first: int, second: int, trips: int) -> None:
    """A loop inherits the ring state of the loop before it, since the tiles have one name.

    A ring belongs to a load in a loop, and a loop has no copy in flight when the next one fills the same bytes."""
    arrays = [normal(16, 16 * trips, dtype=F16), normal(16 * trips, 16, dtype=F16), unwritten(16, 16)]
    agree(siblings, *arrays, producers=["multistage"], S=first, T=second, multiples={"M": 16, "K": 16})


@tg.kernel(warps=2)
def after_the_loop(a: tg.Tensor["K", 32, "f32"], c: tg.Out[32, 16, "f32"], *, S=3):
    last = tg.full((16, 32), -1.0)
    for k in tg.tiles("K", 16):
        t = tg.load(a[k, :], by=cuda.cp_async(), stages=S)
        last = t
    c[:, :] = last.T


@pytest.mark.parametrize("trips", [0, 1, 2, 3, 4])
def test_7_tile_read_after_the_loop(trips: int) -> None:
    """What is read behind the loop is the whole ring, or the slot after the last.

    It is the value of the last trip, and without trips what it was before."""
    c = unwritten(32, 16)
    a = normal(16 * trips, 32)
    agree(after_the_loop, a, c)
    assert np.array_equal(c, a[-16:].T if trips else np.full((32, 16), -1.0))


def test_7_two_kernels_in_one_module() -> None:
    """The second kernel of a module takes over barriers, slots or memory of the first.

    Nothing is kept between kernels: plans are the same in both orders, and as a kernel alone has them."""
    given = {"S": 3, "multiples": {"M": 16, "K": 16}}
    turned.compiled.clear()
    siblings.compiled.clear()
    first = siblings.compile(target="sm_80", **given)
    turned.compile(target="sm_80")
    siblings.compiled.clear()
    turned.compiled.clear()
    other = turned.compile(target="sm_80")
    again = siblings.compile(target="sm_80", **given)
    assert first is not again
    assert (first.plan, first.tir, first.cuda) == (again.plan, again.tir, again.cuda)
    assert other.smem.peak == turned.compile(target="sm_80").smem.peak


# ------------------------------------------------------------------------------------------ 11 persistent kernels


@tg.kernel(warps=2)
def persistent(a: tg.Tensor["M", "K", "f32"], c: tg.Out[16, "M", "f32"], *, S=2):
    for m in tg.tiles("M", 16):
        acc = tg.zeros((16, 16))
        for k in tg.tiles("K", 16):
            t = tg.load(a[m, k], by=cuda.cp_async(), stages=S)
            acc = acc * 0.5 + t.T
        c[:, m] = acc


@pytest.mark.parametrize("stages", [2, 3])
@pytest.mark.parametrize("tiles", [1, 3])
def test_11_restarted_per_tile(stages: int, tiles: int) -> None:
    """Slot and count begin anew with each tile of an outer loop: right for one tile, or for trips that fill the ring.

    A cursor counts executed fills and reads, over all tiles."""
    for trips in (0, 1, stages, 2 * stages + 1):
        arrays = [normal(16 * tiles, 16 * trips), unwritten(16, 16 * tiles)]
        agree(persistent, *arrays, producers=["multistage"], S=stages, multiples={"M": 16, "K": 16})


@tg.kernel(warps=1)
def covered(a: tg.Tensor["H", "M", "N", "f32"], c: tg.Out["M", "H", "N", "f32"]):
    for n, h, m in tg.grid(tg.tiles("N", 8), tg.range("H"), tg.tiles("M", 4)):
        c[m, h, n] = tg.load(a[h, m, n])


@pytest.mark.parametrize("sizes", [(1, 1, 1), (3, 9, 17), (2, 4, 8), (3, 5, 0), (0, 4, 8)])
def test_11_work_is_covered_once(sizes: tuple[int, int, int]) -> None:
    """The mapping of CTAs to tiles drops a remainder, or gives a tile twice.

    Every element has one writer: none is left, and the simulator and the checker report two."""
    h, m, n = sizes
    c = unwritten(m, h, n)
    a = normal(h, m, n)
    agree(covered, a, c)
    assert np.array_equal(c, a.transpose(1, 0, 2))
