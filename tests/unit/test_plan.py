"""Plans: what producers decide, saving and loading, and validation of what is loaded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import scheduled
from kernels import example
from language import kernel_of

import tidegate as tg
from tidegate import cuda
from tidegate.check import check
from tidegate.check.rewrite import mapped
from tidegate.errors import OrderNotProvable, PlanFormat, PlanRejected
from tidegate.ir import tir
from tidegate.plan import producers
from tidegate.plan.file import from_json, load
from tidegate.plan.plan import AsyncPlan, Bounds, Sync, SyncKind


def plan_of(file: str, kernel: str, **options: Any) -> AsyncPlan:
    return getattr(example(file), kernel).compile(target="h200", **options).plan


def kinds(plan: AsyncPlan) -> list[str]:
    return [s.kind.value for s in plan.syncs]


def test_thread_private_staging_needs_one_commit_and_one_wait_per_loop() -> None:
    plan = plan_of("row_stage", "row_stage")
    assert kinds(plan) == ["cp.async commit", "cp.async wait"] * 2


@pytest.mark.parametrize(("warps", "kind"), [(1, "warp sync"), (4, "block barrier")])
@pytest.mark.parametrize("producer", ["in_order", "multistage"])
def test_transpose_syncs_the_smallest_group(warps: int, kind: str, producer: str) -> None:
    single = plan_of("transpose", "transpose", warps=warps, plan=producer)
    assert kinds(single).count(kind) == 2
    assert sum(s.kind.rendezvous for s in single.syncs) == 2
    ring = plan_of("transpose", "transpose", warps=warps, plan=producer, STAGES=2)
    assert [s.kind.value for s in ring.syncs if s.kind.rendezvous] == [kind]


@pytest.mark.parametrize("stages", [2, 3, 4])
def test_a_ring_needs_one_barrier_per_trip_and_waits_for_all_but_the_newest_groups(stages: int) -> None:
    plan = plan_of("gemm", "gemm_v2", STAGES=stages)
    for place in ("L1.first", "L1.next"):  # before the loop, and in each trip before the last product
        there = [s for s in plan.syncs if s.place == place and s.kind is not SyncKind.COPY_COMMIT]
        assert [s.kind for s in there] == [SyncKind.COPY_WAIT, SyncKind.BLOCK]
        assert there[0].count == stages - 2
    assert sum(s.kind.rendezvous for s in plan.syncs) == 2
    assert sum(s.kind is SyncKind.COPY_COMMIT for s in plan.syncs) == stages
    assert plan.schedule[0].ahead == (("x", stages - 1), ("y", stages - 1))


def test_unequal_rings_wait_for_the_shallow_one() -> None:
    plan = scheduled.unequal.compile(target="h200").plan
    assert {s.count for s in plan.syncs if s.kind is SyncKind.COPY_WAIT} == {0}
    assert [(c.depth, c.ahead) for c in plan.channels] == [(4, 3), (2, 1)]


def test_an_in_order_copy_beside_a_ring_does_not_drain_it() -> None:
    plan = scheduled.mixed.compile(target="h200").plan
    waits = sorted(s.count for s in plan.syncs if s.kind is SyncKind.COPY_WAIT and s.count is not None)
    assert waits[-1] >= 1


def test_a_subset_of_warps_gets_a_named_barrier() -> None:
    plan = scheduled.narrow.compile(target="h200", warps=4).plan
    named = [s for s in plan.syncs if s.kind is SyncKind.NAMED]
    assert named
    assert all(s.participants == "warps 0,1" and s.count == 1 for s in named)
    assert SyncKind.BLOCK not in [s.kind for s in plan.syncs]


def test_sharing_bytes_costs_a_sync_that_the_plan_shows() -> None:
    shared = scheduled.siblings.compile(target="h200")
    apart = scheduled.siblings.compile(target="h200", share=False)
    assert shared.smem.peak < apart.smem.peak
    crossing = {d.id for d in shared.plan.dependences if len(d.places) == 2}
    assert any(crossing & set(s.protects) for s in shared.plan.syncs)
    assert not any(len(d.places) == 2 for d in apart.plan.dependences)
    assert len(apart.plan.syncs) == len(shared.plan.syncs) - 1


@pytest.mark.parametrize("producer", ["in_order", "multistage"])
def test_elements_wider_than_the_narrowest_access_are_met_in_all_their_bytes(producer: str) -> None:
    verdict = scheduled.two_widths.compile(target="sm_80", plan=producer, multiples={"M": 2}).check()
    assert verdict.safe, verdict.text()


@pytest.mark.parametrize("producer", ["in_order", "multistage"])
@pytest.mark.parametrize("kernel", [scheduled.unread, scheduled.rings_in_turn, scheduled.two_trips])
def test_no_sync_that_the_possible_trips_do_not_need(kernel: Any, producer: str) -> None:
    """Sizes are multiples of 16, so some loops have no single trip; others have two at most, or a ring begins anew."""
    lowered = kernel.compile(target="sm_80", plan=producer).kernel
    assert check(lowered).safe
    for sync in (s for s in tir.walk(lowered.body) if isinstance(s, tir.Sync)):
        body = mapped(lowered.body, lambda s: () if isinstance(s, tir.Sync) and s.id == sync.id else (s,))  # noqa: B023
        assert check(replace(lowered, body=body)).status == "unsafe", sync


# ------------------------------------------------------------------------------------------ files


@pytest.mark.parametrize("producer", ["in_order", "multistage"])
def test_saved_plans_load_and_lower_to_the_same_program(tmp_path: Path, producer: str) -> None:
    kernel = example("gemm").gemm_v2
    first = kernel.compile(target="h200", plan=producer)
    path = tmp_path / "plan.json"
    first.plan.save(str(path))
    assert load(str(path)) == first.plan
    again = kernel.compile(target="h200", plan=str(path))
    assert again.kernel == first.kernel


def test_every_sync_is_missed_when_it_is_removed() -> None:
    kernel = example("gemm").gemm_v2
    plan = kernel.compile(target="h200").plan
    for sync in plan.syncs:
        broken = replace(plan, syncs=tuple(s for s in plan.syncs if s is not sync))
        with pytest.raises(PlanRejected, match="nothing orders"):
            kernel.compile(target="h200", plan=broken)


def test_a_fill_that_may_not_have_come_hides_no_older_one() -> None:
    """In trips of which it is open whether they fill ahead, the slot holds the new copy or the old one, which the last
    trips no longer order: what takes the slot's bytes behind the loop waits for the old one."""

    @tg.kernel(warps=4)
    def early_only(x: tg.Tensor["N", 16, "f32"], w: tg.Tensor[16, 16, "f32"], y: tg.Out["N", 16, "f32"]):
        for m in tg.grid(tg.tiles("N", 16)):
            t = tg.load(x[m, :])
            for j in tg.tiles(16, 1, until=tg.end(m)):
                row = tg.load(w[:, :], by=cuda.cp_async(), stages=4)
                if j + 1 <= 3:
                    t = row + t.T
            y[m, :] = t.T + t

    compiled = early_only.compile("sm_80")
    assert compiled.check().safe
    for sync in compiled.plan.syncs:
        less = replace(compiled.plan, syncs=tuple(s for s in compiled.plan.syncs if s is not sync))
        with pytest.raises(PlanRejected):
            early_only.compile("sm_80", plan=less)


def bent(plan: AsyncPlan, number: int, **changes: Any) -> AsyncPlan:
    syncs: list[Sync] = list(plan.syncs)
    syncs[number] = replace(syncs[number], **changes)
    return replace(plan, syncs=tuple(syncs))


def test_bent_plans_are_rejected() -> None:
    kernel = example("gemm").gemm_v2
    plan = kernel.compile(target="h200").plan
    wait = next(i for i, s in enumerate(plan.syncs) if s.kind is SyncKind.COPY_WAIT)
    block = next(i for i, s in enumerate(plan.syncs) if s.kind is SyncKind.BLOCK)
    buffers = plan.buffers
    for broken in (
        bent(plan, wait, count=3),
        bent(plan, wait, count=-1),
        bent(plan, wait, place="nowhere"),
        bent(plan, wait, id=plan.syncs[block].id),
        bent(plan, wait, id="no name"),
        bent(plan, block, kind=SyncKind.WARP),
        bent(plan, block, kind=SyncKind.NAMED, participants="warps 0,1", count=1),
        bent(plan, block, kind=SyncKind.NAMED, participants="warps 0,9", count=1),
        bent(plan, block, kind=SyncKind.CLUSTER),
        replace(plan, buffers=(buffers[0], replace(buffers[1], offset=0))),
        replace(plan, buffers=(buffers[0], replace(buffers[1], offset=32772))),
        replace(plan, buffers=buffers[:1]),
        replace(plan, schedule=(replace(plan.schedule[0], ahead=(("x", 4), ("y", 3))),)),
        replace(plan, schedule=(replace(plan.schedule[0], early=("ldm_x_f2",)),)),
        replace(plan, schedule=(replace(plan.schedule[0], early=("stg_c",)),)),
        replace(plan, schedule=(replace(plan.schedule[0], sooner=("ldm_x_f",)),)),
        replace(plan, schedule=(replace(plan.schedule[0], fills=(("x", "stg_c"),)),)),
        replace(plan, schedule=(replace(plan.schedule[0], fills=(("z", "mma_acc2"),)),)),
        replace(plan, schedule=(replace(plan.schedule[0], fills=(("x", "ldm_x_f"),)),)),
        replace(plan, warps=16),
        replace(plan, target="sm_80"),
        bent(plan, block, participants="warps 0,9"),
        bent(plan, block, participants="each warp"),
        bent(plan, block, count=5),
        bent(plan, wait, participants="banana"),
        bent(plan, wait, phase="parity 0"),
        replace(plan, roles=()),
        replace(plan, roles=(replace(plan.roles[0], warps=(0, 1)),)),
        replace(plan, roles=(*plan.roles, replace(plan.roles[0], name="other"))),
        replace(plan, roles=(replace(plan.roles[0], steps=("ldm_x_f",)),)),
        replace(plan, schedule=(replace(plan.schedule[0], prologue=7),)),
        replace(plan, schedule=(replace(plan.schedule[0], interval=7),)),
        replace(plan, schedule=()),
        replace(plan, channels=()),
        replace(plan, channels=(replace(plan.channels[0], depth=9),)),
        replace(plan, buffers=(replace(buffers[0], bytes=1), buffers[1])),
        replace(plan, buffers=(replace(buffers[0], first=0, last=0), buffers[1])),
        replace(plan, bounds=Bounds(resource=1)),
    ):
        with pytest.raises(PlanRejected):
            kernel.compile(target="h200", plan=broken)


def test_unreadable_plans_say_which_field(tmp_path: Path) -> None:
    data = plan_of("row_ring", "row_ring").to_json()
    assert from_json(data) == plan_of("row_ring", "row_ring")
    for change in (
        {"format": 1},
        {"warps": "one"},
        {"syncs": [{"id": "s0"}]},
        {"buffers": 7},
        {"extra": 1},
    ):
        with pytest.raises(PlanFormat):
            from_json({**data, **change})
    bad = tmp_path / "plan.json"
    bad.write_text("{")
    with pytest.raises(PlanFormat):
        load(str(bad))
    with pytest.raises(PlanFormat, match=r"missing\.json: No such file"):
        load(str(tmp_path / "missing.json"))


@pytest.mark.parametrize("producer", ["in_order", "multistage"])
def test_a_producer_that_forgets_a_sync_is_refused_by_its_own_last_step(
    producer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producers, "missing", lambda *_: ())
    monkeypatch.setattr(example("transpose").transpose, "compiled", {})
    with pytest.raises(OrderNotProvable, match=rf"producer {producer} leaves .* unordered"):
        plan_of("transpose", "transpose", plan=producer)


def test_an_access_that_does_not_say_when_it_completes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    known = producers.accesses

    def undeclared(program: Any) -> Any:
        return {name: replace(a, completes=tir.Completion.UNKNOWN) for name, a in known(program).items()}

    monkeypatch.setattr(producers, "accesses", undeclared)
    monkeypatch.setattr(example("row_stage").row_stage, "compiled", {})
    with pytest.raises(OrderNotProvable, match="does not declare when it completes"):
        plan_of("row_stage", "row_stage")


def test_a_ring_that_a_plan_spreads_out_meets_what_lies_there() -> None:
    text = """import tidegate as tg
from tidegate import cuda
@tg.kernel(warps=4)
def program(a: tg.Tensor["M", "K", "f32"], b: tg.Tensor["M", "K", "f32"], c: tg.Out["M", 1, "f32"]):
    for m in tg.grid(tg.tiles("M", 16)):
        s = tg.zeros((16,))
        for k in tg.tiles("K", 8):
            s += tg.load(a[m, k], by=cuda.cp_async(), stages=2).sum(axis=1)
        for j in tg.tiles("K", 8):
            s += tg.load(b[m, j], by=cuda.ld(), stages=2).sum(axis=1)
        c[m, :] = s[:, None]
"""
    kernel = kernel_of(text)
    data = kernel.compile("sm_80", share=False).plan.to_json()
    first, second = data["buffers"][:2]
    assert first["offset"] + 2 * first["stride"] == second["offset"]
    for stride in (first["stride"] + 128, first["stride"] + 256):
        bent = {**data, "buffers": [{**first, "stride": stride}, *data["buffers"][1:]]}
        with pytest.raises(PlanRejected):
            kernel.compile("sm_80", share=False, plan=from_json(bent))
