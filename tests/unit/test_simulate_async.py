"""Roles, mbarriers, tensor copies and wgmma: correct kernels are exact whatever happens when; what is bent, shows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from simulated import CASES, Case, numbers

from tidegate.ir import tir
from tidegate.ir.spec import placed, verify
from tidegate.ir.text import parse_kernel, print_stmt
from tidegate.simulate import Completion, PoisonReport, simulate

COMPLETIONS: tuple[Completion, ...] = ("late", "early", "random")


def faults(kernel: tir.Kernel, case: Case, trips: int, seeds: int) -> Iterator[str]:
    """What is wrong, per completion and seed; empty strings when nothing is."""
    given, expected = case.data(trips)
    for completion in COMPLETIONS:
        for seed in range(seeds):
            found = simulate(kernel, given, completion=completion, seed=seed)
            wrong = [n for n, e in expected.items() if not np.array_equal(found.outputs[n], e)]
            yield f"{wrong} differ; {found}" if wrong or not found.ok else ""


@pytest.mark.parametrize("name", CASES)
def test_the_kernels_keep_the_rules(name: str) -> None:
    assert not verify(CASES[name].kernel)


@pytest.mark.parametrize("trips", ["0", "1", "S - 1", "S", "2 S + 1"])
@pytest.mark.parametrize("name", CASES)
def test_correct_kernels_are_exact_and_silent(name: str, trips: str) -> None:
    case = CASES[name]
    count = {"0": 0, "1": 1, "S - 1": case.stages - 1, "S": case.stages, "2 S + 1": 2 * case.stages + 1}[trips]
    for fault in faults(case.kernel, case, count, seeds=4):
        assert not fault, fault


# ---------------------------------------------------------------------------------------------- mutants


def rewrite(body: tuple[tir.Stmt, ...], old: tir.Stmt, new: tuple[tir.Stmt, ...]) -> tuple[tir.Stmt, ...]:
    out: list[tir.Stmt] = []
    for stmt in body:
        if stmt is old:
            out.extend(new)
        elif isinstance(stmt, tir.For | tir.If | tir.InRole):
            out.append(replace(stmt, body=rewrite(stmt.body, old, new)))
        else:
            out.append(stmt)
    return tuple(out)


def changed(kernel: tir.Kernel, old: tir.Stmt, *new: tir.Stmt) -> tir.Kernel:
    return replace(kernel, body=rewrite(kernel.body, old, new))


def bent(stmt: tir.Stmt) -> Iterator[tir.Stmt]:
    """The same sync with another number or participant."""
    if isinstance(stmt, tir.WgmmaWait | tir.BulkWait | tir.CpWait):
        yield replace(stmt, n=stmt.n + 1)
    if isinstance(stmt, tir.BarrierExpect):
        yield from (replace(stmt, bytes=stmt.bytes + change) for change in (-16, 16, -stmt.bytes // 2))
    if isinstance(stmt, tir.BarrierWait):
        yield replace(stmt, flip=1 - stmt.flip)
    if isinstance(stmt, tir.BarrierArrive):
        yield from (replace(stmt, per=tir.Name(per)) for per in ("thread", "warp", "role") if per != stmt.per)
    if isinstance(stmt, tir.BarSync):
        yield replace(stmt, warps=stmt.warps[:1])
    if isinstance(stmt, tir.BarArrive):
        yield replace(stmt, count=stmt.count - 32)


def mutants(kernel: tir.Kernel) -> Iterator[tuple[str, tir.Kernel]]:
    for stmt in tir.walk(kernel.body):
        if isinstance(stmt, tir.Sync) and not isinstance(stmt, tir.SetMaxRegisters):
            yield f"without {print_stmt(stmt)}", changed(kernel, stmt)
            for other in bent(stmt):
                yield f"{print_stmt(other)} for {print_stmt(stmt)}", changed(kernel, stmt, other)
    for b in kernel.barriers:
        for count in {b.count + 1, max(b.count - 1, 1), 2 * b.count} - {b.count}:
            rings = tuple(replace(x, count=count) if x is b else x for x in kernel.barriers)
            yield f"{b.name} with count {count}", replace(kernel, barriers=rings)


MUTANTS = [
    pytest.param(mutant, case, id=f"{name}: {what}")
    for name, case in CASES.items()
    for what, mutant in mutants(case.kernel)
]


@pytest.mark.parametrize(("mutant", "case"), MUTANTS)
def test_every_mutant_shows(mutant: tir.Kernel, case: Case) -> None:
    assert any(faults(mutant, case, 2 * case.stages + 1, seeds=4))


# ---------------------------------------------------------------------------------------------- wrong order


def sync(kernel: tir.Kernel, name: str) -> tir.Stmt:
    return next(s for s in tir.walk(kernel.body) if isinstance(s, tir.Sync) and s.id == name)


def of_type(kernel: tir.Kernel, kind: type[tir.Stmt]) -> tir.Stmt:
    return next(s for s in tir.walk(kernel.body) if isinstance(s, kind))


def moved(kernel: tir.Kernel, what: tir.Stmt, before: tir.Stmt) -> tir.Kernel:
    return changed(changed(kernel, what), before, what, before)


WRONG_ORDER = {
    "release before the wait": ("cp.async, wgmma", "release", "done"),
    "release before the reads": ("tensor copies, generic reads", "release", tir.LdShared),
    "release before the group meets": ("tensor copies, generic reads", "release", "group"),
    "fence before the reads": ("tensor copies, generic reads", "fence", tir.LdShared),
    "read before the wait": ("tensor copies, generic reads", tir.LdShared, "landed"),
    "fence before the wait": ("cp.async, wgmma", "fence", "landed"),
    "fence after the wgmma": ("cp.async, wgmma", tir.Wgmma, "fence"),
    "commit before the wgmma": ("cp.async, wgmma", "m", tir.Wgmma),
    "arrival before the copies": ("cp.async, wgmma", "arrive", tir.CpAsync),
    "copy before the wait": ("tensor copies, wgmma", tir.TmaLoad, "free"),
    "copy before the expectation": ("tensor copies, wgmma", tir.TmaLoad, "expect"),
    "store before the barrier": ("tensor stores", tir.TmaStore, "after"),
    "commit before the store": ("tensor stores", "commit", tir.TmaStore),
    "wait after the barrier": ("tensor stores", "before", "reuse"),
    "turn given before the reads": ("turns", "give", tir.LdShared),
}


@pytest.mark.parametrize("what", WRONG_ORDER)
def test_wrong_order_shows(what: str) -> None:
    name, first, second = WRONG_ORDER[what]
    case = CASES[name]
    kernel = case.kernel
    pair = [sync(kernel, x) if isinstance(x, str) else of_type(kernel, x) for x in (first, second)]
    assert any(faults(moved(kernel, *pair), case, 2 * case.stages + 1, seeds=4))


def test_the_issuing_thread_may_fence_after_the_barrier() -> None:
    case = CASES["tensor stores"]
    kernel = moved(case.kernel, sync(case.kernel, "after"), sync(case.kernel, "fence"))
    for fault in faults(kernel, case, 5, seeds=4):
        assert not fault, fault


# ---------------------------------------------------------------------------------------------- what reports say


def reports(name: str, *without: str, completion: Completion = "late", seeds: int = 4) -> dict[str, PoisonReport]:
    """The first report of each kind, for a kernel without some syncs."""
    case = CASES[name]
    kernel = case.kernel
    for each in without:
        kernel = changed(kernel, sync(kernel, each))
    found: dict[str, PoisonReport] = {}
    for seed in range(seeds):
        result = simulate(kernel, case.data(2 * case.stages + 1)[0], completion=completion, seed=seed)
        for report in result.reports:
            found.setdefault(report.kind, report)
    return found


def test_a_deadlock_names_the_barrier_its_phase_and_what_is_missing() -> None:
    case = CASES["tensor copies, wgmma"]
    found = simulate(changed(case.kernel, sync(case.kernel, "release")), case.data(7)[0])
    report = next(r for r in found.reports if r.kind == "deadlock" and r.stmt == "wait empty[w] flip 1 #free")
    assert report.detail.startswith("warps 4 wait for phase 1; 0 phases of empty[0] have completed")
    assert "the next lacks 4 of 4 arrivals: 0, 1, 2, 3 wait at wait full[r] flip 0 #landed" in report.detail


def test_a_deadlock_for_missing_bytes_says_how_many() -> None:
    case = CASES["tensor copies, generic reads"]
    kernel = changed(case.kernel, of_type(case.kernel, tir.TmaLoad))
    found = simulate(kernel, case.data(1)[0])
    assert "the next lacks 256 bytes" in next(r for r in found.reports if r.kind == "deadlock").detail


def test_an_unfenced_read_is_told_from_an_unordered_one() -> None:
    found = reports("tensor copies, generic reads", "fence")["unfenced"]
    assert found.stmt.startswith("tma_load t[w]")
    assert found.writer == "ld_shared x <- t[r].T bytes 4"
    assert "overwrite" in reports("tensor copies, generic reads", "group")


def test_an_unfenced_store_stays_unseen_by_the_engine() -> None:
    case = CASES["tensor stores"]
    kernel = changed(case.kernel, sync(case.kernel, "fence"))
    given, expected = case.data(1)
    found = simulate(kernel, given)
    (report,) = {r for r in found.reports if r.kind == "unfenced"}
    assert (report.stmt.split()[0], report.writer, report.line, report.writer_line) == (
        "tma_store", "stmatrix t[s] <- x", 6, 5,
    )  # fmt: skip
    assert not np.array_equal(found.outputs["b"], expected["b"])


def test_too_few_bytes_let_a_reader_pass_before_the_copy_has_landed() -> None:
    case = CASES["tensor copies, wgmma"]
    expect = sync(case.kernel, "expect")
    assert isinstance(expect, tir.BarrierExpect)
    kernel = changed(case.kernel, expect, replace(expect, bytes=512))
    given, expected = case.data(1)
    results = [simulate(kernel, given, seed=s) for s in range(4)]
    assert any(not np.array_equal(r.outputs["c"], expected["c"]) for r in results)
    assert {"not landed", "unexpected bytes"} <= {r.kind for result in results for r in result.reports}


@pytest.mark.parametrize(
    ("name", "without", "kind"),
    [
        ("tensor copies, wgmma", "i0", "uninitialised barrier"),
        ("tensor copies, wgmma", "i2", "uninitialised barrier"),
        ("tensor copies, wgmma", "i3", "uninitialised barrier"),
        ("tensor copies, wgmma", "f", "unfenced register"),
        ("tensor copies, wgmma", "all", "register in flight"),
        ("tensor copies, wgmma", "all", "outstanding"),
        ("tensor copies, wgmma", "done", "overwrite"),
        ("cp.async, wgmma", "fence", "unfenced"),
        ("tensor stores", "reuse", "overwrite"),
        ("tensor stores", "end", "outstanding"),
    ],
)
def test_kinds_of_reports(name: str, without: str, kind: str) -> None:
    assert kind in reports(name, without)


def test_a_wait_of_the_wrong_parity_takes_one_phase_for_another() -> None:
    case = CASES["tensor copies, generic reads"]
    kernel = changed(case.kernel, sync(case.kernel, "free"))
    kinds = {r.kind for s in range(8) for r in simulate(kernel, case.data(9)[0], seed=s, completion="early").reports}
    assert "phase lead" in kinds or "deadlock" in kinds
    assert "overwrite" in kinds or "unordered write" in kinds


# ---------------------------------------------------------------------------------------------- the life of a barrier

LIFE = """
kernel life target sm_90 warps 2 smem 256
param a f32 [1, 64] in align 4
param b f32 [1, 64] out align 4
layout row [1, 64] reg - lane 0,1 0,2 0,4 0,8 0,16 warp 0,32 rep 1,1
layout back [1, 64] reg - lane 0,2 0,4 0,8 0,16 0,32 warp 0,1 rep 1,1
buffer t f32 [1, 64] stages 1 at 0 stride 256
mbarrier m stages 1 count 64 at 8
cursor c depth 1
register x f32 layout row
register y f32 layout back
body {
  barrier_init m #init
  sync_block #started
  arrive m[c] by thread #arrive
  wait m[c] flip 0 #wait
  sync_block #passed
  barrier_invalidate m #end
  sync_block #over
  ld_global x <- a[0, 0] bytes 4
  st_shared t <- x bytes 4
  cluster_arrive #there
  cluster_wait #all
  ld_shared y <- t bytes 4
  st_global b[0, 0] <- y bytes 4
}
"""
LIFE_CASE = Case(LIFE, lambda trips: ({"a": numbers((1, 64))}, {"b": numbers((1, 64))}), 1)


def test_bytes_of_a_barrier_may_be_data_after_its_life() -> None:
    kernel = LIFE_CASE.kernel
    assert not verify(kernel)
    for fault in faults(kernel, LIFE_CASE, 1, seeds=4):
        assert not fault, fault


@pytest.mark.parametrize("name", ["init", "started", "arrive", "passed", "over", "there", "all"])
def test_the_life_of_a_barrier_is_watched(name: str) -> None:
    kernel = LIFE_CASE.kernel
    assert any(faults(changed(kernel, sync(kernel, name)), LIFE_CASE, 1, seeds=4))


def test_data_over_a_living_barrier_is_reported() -> None:
    kernel = LIFE_CASE.kernel
    assert any(faults(changed(kernel, sync(kernel, "end")), LIFE_CASE, 1, seeds=4))


# ---------------------------------------------------------------------------------------------- scripts


def paths(kernel: tir.Kernel) -> dict[str, tuple[int, ...]]:
    """The index path of each sync, by its name."""
    return {p.stmt.id: p.path for p in placed(kernel.body) if isinstance(p.stmt, tir.Sync)}


def test_a_script_is_tried_first() -> None:
    """Without its turns, one team overtakes the other only in some runs; the script makes it happen in every one."""
    case = CASES["turns"]
    kernel = case.kernel
    path = paths(kernel)
    script = [("left", path["turn"]), ([2, 3], path["turn2"]), ("right", path["stored2"])]
    mutant = changed(changed(kernel, sync(kernel, "turn")), sync(kernel, "give"), sync(kernel, "turn"))
    given, expected = case.data(3)
    found = simulate(kernel, given, script=[(who, at) for who, at in script])
    assert found.ok, str(found)
    assert np.array_equal(found.outputs["b"], expected["b"])
    assert not simulate(mutant, given, script=script).ok


@pytest.mark.parametrize("seed", range(6))
def test_a_script_chooses_who_goes_first(seed: int) -> None:
    kernel = parse_kernel(ORDER)
    store, load = ((*p.path,) for p in placed(kernel.body) if isinstance(p.stmt, tir.StShared | tir.LdShared))
    given = {"a": np.ones((1, 32), np.float32)}
    first = simulate(kernel, given, completion="early", seed=seed, script=[("writer", store), ("reader", load)])
    assert (first.outputs["b"] == 1).all()
    last = simulate(kernel, given, completion="early", seed=seed, script=[([1], load)])
    assert np.isnan(last.outputs["b"]).all()
    assert not first.ok
    assert not last.ok


ORDER = """
kernel order target sm_90 warps 2 smem 128
param a f32 [1, 32] in align 4
param b f32 [1, 32] out align 4
layout row [1, 32] reg - lane 0,1 0,2 0,4 0,8 0,16 warp - rep 1,1
buffer t f32 [1, 32] stages 1 at 0 stride 128
register x f32 layout row
role writer warps 0 count 1
role reader warps 1 count 1
body {
  in writer {
    ld_global x <- a[0, 0] bytes 4
    st_shared t <- x bytes 4
  }
  in reader {
    ld_shared x <- t bytes 4
    st_global b[0, 0] <- x bytes 4
  }
}
"""
