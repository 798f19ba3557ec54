# ruff: noqa: E501 (kernels and edits of them, one per line)
"""Roles, barriers with phases, engines and fences: what the checker accepts, refuses and says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from stopwatch import least_seconds

from tidegate.check import Verdict, check
from tidegate.errors import WrongArguments
from tidegate.ir.text import parse_kernel

KERNELS = Path(__file__).parents[1] / "mutants" / "kernels"


def changed(name: str, *edits: tuple[str, str]) -> str:
    text = (KERNELS / f"{name}.tir").read_text()
    for old, new in edits:
        assert old in text, old
        text = text.replace(old, new)
    return text


def verdict_of(name: str, *edits: tuple[str, str], **more) -> Verdict:  # type: ignore[no-untyped-def]
    return check(parse_kernel(changed(name, *edits)), **more)


def fault(name: str, *edits: tuple[str, str]):  # type: ignore[no-untyped-def]
    verdict = verdict_of(name, *edits)
    assert verdict.status == "unsafe", verdict.text()
    assert verdict.timeline or verdict.findings[0].kind in ("malformed", "registers"), verdict.text()
    assert json.loads(json.dumps(verdict.to_json()))["findings"][0]["kind"] == verdict.findings[0].kind
    return verdict.findings[0]


# ------------------------------------------------------------------------------------- five faults, five reports


def test_a_wrong_arrival_count_is_a_deadlock_with_its_cycle() -> None:
    found = fault(
        "tma_ring", ("count 128", "count 256"), ("arrive empty[r] by thread", "arrive empty[r] by thread line 7")
    )
    assert found.kind == "deadlock"
    assert (
        "producer (warp 4) waits at k = 4 in wait empty[w] flip 1: phase 0 of empty[0] lacks 128 of 256"
        in found.message
    )
    assert "consumer (warps 0..3) would arrive in arrive empty[r] by thread" in found.message
    assert "itself waits in wait full[r] flip 0" in found.message
    assert "a count of 128" in found.remedy
    few = fault(
        "tma_ring", ("count 128", "count 64"), ("arrive empty[r] by thread", "arrive empty[r] by thread line 7")
    )
    assert few.kind == "arrival count"
    assert few.second.line == 7
    assert few.second.iteration == (("k", 0),)
    assert (few.second.group, few.second.threads) == ("consumer", (0, 127))
    assert (few.second.low, few.second.high) == (32800, 32831)
    assert "128 threads of consumer (warps 0..3) arrive on empty[0], and phase 0 expects only 64 more" in few.message


def test_a_missing_fence_names_both_sides_and_who_may_fence() -> None:
    found = fault(
        "tma_ring",
        ("      fence_async shared\n", ""),
        ("ld_shared x <- t[r] bytes 16", "ld_shared x <- t[r] bytes 16 line 3"),
    )
    assert found.kind == "missing fence"
    assert (found.first.group, found.second.group) == ("consumer", "producer")
    assert (found.first.iteration, found.second.iteration) == ((("k", 0),), (("k", 4),))
    assert found.first.line == 3
    assert found.first.memory == found.second.memory == "t[0]"
    assert found.first.low == found.second.low
    assert "fence_async shared by every thread of consumer" in found.remedy
    assert "'war release'" in found.remedy


def test_a_phase_that_restarts_per_tile_names_the_wait_that_passes_too_early() -> None:
    restart = "for z = 0 .. (6 - cdiv(K, 64) % 6) % 6 {\n        advance r\n      }\n      wgmma_wait 0\n      if"
    found = fault("wgmma_persistent", ("wgmma_wait 0\n      if", restart), ("flip 0", "flip 0 line 5"))
    assert found.kind == "phase lead"
    assert "wait full[r] flip 0 line 5 at t = 1, k = 0 has passed at once, on a phase of full[0]" in found.message
    assert "a cursor of math that counts every use of full[0], over all tiles" in found.remedy
    assert found.second.group == "math"
    assert found.second.iteration == (("t", 1),)


def test_a_barrier_of_the_whole_cta_in_a_role() -> None:
    found = fault(
        "wgmma_persistent", ("bar_sync 1 warps 0,1,2,3\n      st_shared", "sync_block line 12\n      st_shared")
    )
    assert found.kind == "divergent barrier"
    assert found.second.line == 12
    assert found.second.group == "math"
    assert "only math (warps 0..3) reach it" in found.message
    assert "idle, producer never do" in found.message
    assert "bar_sync" in found.remedy
    assert "warps 4" in fault("wgmma_persistent", ("bar_sync 1 warps 0,1,2,3", "bar_sync 1 warps 1,2,3,4")).message


def test_outstanding_at_exit() -> None:
    store = fault("wgmma_persistent", ("    }\n    bulk_wait 0 read\n", "    }\n"))
    assert store.kind == "outstanding copy"
    assert "a store may still be in flight" in store.message
    assert "bulk_wait" in store.remedy
    assert (store.first.group, store.first.memory, store.first.low) == ("math", "c", 49152)
    verdict = verdict_of(
        "tma_ring", ("for k = 0 .. cdiv(K, 64) {\n      wait full", "for k = 1 .. cdiv(K, 64) {\n      wait full")
    )
    assert "nobody waits for it on full[" in verdict.findings[0].message
    assert verdict.timeline[-1].text == "end of the kernel"
    assert fault("wgmma_persistent", ("      wgmma_wait 0\n      if", "      if")).kind != "safe"


# ------------------------------------------------------------------------------------- rule by rule


@pytest.mark.parametrize(
    ("name", "old", "new", "kind", "message"),
    [
        ("tma_ring", "flip 1", "flip 0", "deadlock", "lacks 128 of 128 arrivals"),
        ("tma_ring", "bytes 8192\n", "bytes 16384\n", "deadlock", "8192 bytes"),
        ("tma_ring", "bytes 8192\n", "bytes 4096\n", "transaction bytes", "delivers 8192 bytes"),
        ("tma_ring", "  fence_barrier_init\n", "", "missing fence", "initialisation was not fenced"),
        ("tma_ring", "  sync_block\n", "", "barrier life", "nothing orders the initialisation"),
        ("tma_ring", "  barrier_init empty\n", "", "barrier life", "not initialised"),
        ("tma_ring", "by thread", "by role", "deadlock", "127"),
        ("tma_ring", "      wait full[r] flip 0\n", "      fill x <- 0.0\n", "incomplete copy", "nothing makes this wait"),
        ("wgmma_persistent", "          bar_sync 1 warps 0,1,2,3\n", "", "race", "math and producer"),
        ("wgmma_persistent", "        wgmma_fence\n", "", "missing fence", "wgmma_fence"),
        ("wgmma_persistent", "      wgmma_wait 0\n      if", "      wgmma_wait 1\n      if", "incomplete wgmma", "acc"),
        ("wgmma_persistent", "        wgmma_wait 1\n", "        wgmma_wait 2\n", "race", "write after read"),
        ("wgmma_persistent", "      fence_async shared\n", "", "missing fence", "read after write"),
        ("wgmma_persistent", "      bulk_wait 0 read\n      bar_sync 1 warps 0,1,2,3\n", "      bulk_wait 0 read\n", "race", "write after read"),
        ("wgmma_persistent", "      bulk_wait 0 read\n      bar_sync 1 warps 0,1,2,3\n", "      bar_sync 1 warps 0,1,2,3\n      bulk_wait 0 read\n", "race", "write after read"),
        ("wgmma_persistent", "      bulk_wait 0 read\n      bar_sync", "      bar_sync", "incomplete store", "reading"),
        ("cp_arrive_ring", "      fence_async shared\n", "", "missing fence", "read after write"),
        ("cp_arrive_ring", "count 128", "count 1", "arrival count", "expects only 1 more"),
        ("cp_arrive_ring", "      wgmma_wait 0\n      arrive empty[r] by warp\n", "      arrive empty[r] by warp\n      wgmma_wait 0\n", "race", "after the wgmma_wait"),
        ("ping_pong", "      bar_sync 1 warps 0,1\n", "", "", ""),
        ("ping_pong", "count 128", "count 96", "malformed", ""),
        ("ping_pong", "bar_arrive 1 warps 2,3 count 128\n", "bar_arrive 1 warps 2,3 count 128\n      bar_arrive 1 warps 2,3 count 128\n", "", "barrier 1"),
    ],
)  # fmt: skip
def test_rule(name: str, old: str, new: str, kind: str, message: str) -> None:
    if kind == "malformed":
        assert verdict_of(name, (old, new)).status == "unsafe"
        return
    found = fault(name, (old, new))
    assert kind in ("", found.kind), found
    assert message in str(found), found


def test_registers_of_all_roles_fit_the_register_file() -> None:
    first = ("in math {", "in math {\n    setmaxnreg 232")
    assert verdict_of("wgmma_persistent", first).safe
    found = fault(
        "wgmma_persistent",
        ("in math {", "in math {\n    setmaxnreg 256"),
        ("count 4 registers 24", "count 4 registers 224"),
    )
    assert found.kind == "registers"
    assert "of 65536" in found.message
    assert (
        "beginning of a role block"
        in fault("wgmma_persistent", ("fill acc <- 0.0", "fill acc <- 0.0\n      setmaxnreg 232")).message
    )


def test_wgmma_needs_whole_warpgroups() -> None:
    found = fault("cp_arrive_ring", ("math warps 4 count 4", "math warps 4 count 2"))
    assert found.kind == "divergent barrier"
    assert "whole warpgroups" in found.message


def test_disputed_fences_can_be_trusted_and_are_listed() -> None:
    unfenced = ("      fence_async shared\n", "")
    relaxed = verdict_of("tma_ring", unfenced, trust={"war release"})
    assert relaxed.safe
    assert relaxed.exempted == ("ld_shared x <- t[r] bytes 16  before  tma_load t[w] <- a[0, k * 64 < K] bar full[w]",)
    assert "trusting war release" in relaxed.scope
    assert "trusted without a fence" in relaxed.text()
    assert not verdict_of("tma_ring", unfenced, trust={"cp.async operand"}).safe
    assert verdict_of("cp_arrive_ring", unfenced, trust={"cp.async operand"}).safe
    assert verdict_of("tma_ring", trust={"war release"}).exempted == ()
    with pytest.raises(WrongArguments, match="war release"):
        verdict_of("tma_ring", trust={"everything"})


def test_a_persistent_gemm_is_proved_for_all_tiles_and_trips_quickly() -> None:
    verdict = verdict_of("wgmma_persistent")
    assert verdict.safe, verdict.text()
    assert "every trip count" in verdict.scope
    assert least_seconds(lambda: verdict_of("wgmma_persistent")) < 3


def test_known_sizes() -> None:
    assert verdict_of("wgmma_persistent", sizes={"T": 3, "K": 64 * 100_000}).safe
    assert verdict_of("tma_ring", ("count 128", "count 256"), sizes={"K": 256}).safe  # nobody needs a slot again
    assert not verdict_of("tma_ring", ("count 128", "count 256"), sizes={"K": 64 * 5}).safe


def test_restarts_are_found_unless_the_trips_are_a_multiple_of_two_turns() -> None:
    restart = "for z = 0 .. (8 - cdiv(K, 64) % 8) % 8 {\n        advance r\n      }\n    }\n"
    tiles = [
        ("  in producer {\n", "  in producer {\n    for i = 0 .. 2 {\n"),
        ("advance w\n    }\n", "advance w\n    }\n    }\n"),
    ]
    tiles += [
        ("  in consumer {\n", "  in consumer {\n    for i = 0 .. 2 {\n"),
        ("        advance r\n    }\n".replace("        ", "      "), "      advance r\n    }\n    }\n"),
    ]
    tiles += [("      st_global o[0, k * 64 < K] <- x bytes 16\n", "")]
    for trips in range(1, 10):
        assert verdict_of("tma_ring", *tiles, sizes={"K": 64 * trips}).safe
        again = verdict_of(
            "tma_ring",
            *tiles[:3],
            (tiles[3][0], "      advance r\n    }\n" + restart),
            tiles[4],
            sizes={"K": 64 * trips},
        )
        assert again.safe == (trips % 8 == 0), (trips, again.text())


# ------------------------------------------------------------------------------------- without roles

ONE = """kernel k target sm_90a warps 4 smem 2064
dim N
param a f32 [64, 64] in align 16
layout v [8, 32] reg 0,1 lane 0,2 0,4 0,8 0,16 1,0 warp 2,0 4,0 rep 1,1
buffer t f32 [8, 32] stages 1 at 0 stride 1024
buffer u f32 [8, 32] stages 1 at 1024 stride 1024
mbarrier b stages 1 count 1 at 2048
mbarrier e stages 1 count 4 at 2056
cursor c depth 1
register x f32 layout v
body {
  barrier_init b
  barrier_init e
  fence_barrier_init
  sync_block
  for n = 0 .. N {
    expect b[c] bytes 1024
    tma_load t <- a[0, 0] bar b[c]
    wait b[c] flip 0
    ld_shared x <- t bytes 8
    fence_async shared
    sync_block
    advance c
  }
  cluster_arrive
  cluster_wait
}
"""


def test_phases_without_roles() -> None:
    assert check(parse_kernel(ONE)).safe
    wrong = check(parse_kernel(ONE.replace("    sync_block\n    advance", "    advance")))
    assert wrong.findings[0].kind == "race"
    fence = check(parse_kernel(ONE.replace("    fence_async shared\n", "")))
    assert fence.findings[0].kind == "missing fence"
    stuck = check(parse_kernel(ONE.replace("    advance c\n", "")))
    assert stuck.status == "unsafe"
    assert check(parse_kernel(ONE.replace("  cluster_arrive\n", ""))).findings[0].kind == "deadlock"
    twice = check(parse_kernel(ONE.replace("  cluster_arrive\n", "  cluster_arrive\n  cluster_arrive\n")))
    assert twice.findings[0].kind == "arrival count"


def test_the_life_of_barriers_and_their_bytes() -> None:
    end = "  sync_block\n  barrier_invalidate e\n  sync_block\n  fill x <- 0.0\n  st_shared u <- x bytes 8\n}\n"
    text = ONE.replace("  cluster_arrive\n  cluster_wait\n}\n", end).replace("count 4 at 2056", "count 4 at 1032")
    assert check(parse_kernel(text)).safe
    early = check(
        parse_kernel(
            text.replace("  barrier_invalidate e\n  sync_block\n", "").replace(
                "}\n", "  sync_block\n  barrier_invalidate e\n}\n", 2
            )
        )
    )
    assert early.status == "unsafe"
    used = check(
        parse_kernel(
            text.replace("  sync_block\n  barrier_invalidate e\n  sync_block\n", "").replace(
                "bytes 8\n}\n", "bytes 8\n  sync_block\n  barrier_invalidate e\n}\n"
            )
        )
    )
    assert used.findings[0].kind == "barrier bytes"
    unordered = check(parse_kernel(text.replace("  barrier_invalidate e\n  sync_block\n", "  barrier_invalidate e\n")))
    assert unordered.findings[0].kind == "race"
    again = check(parse_kernel(ONE.replace("  fence_barrier_init\n", "  fence_barrier_init\n  barrier_init b\n")))
    assert again.findings[0].kind == "barrier life"


def test_a_barrier_held_up_for_some_warps_only_is_not_proved() -> None:
    late = ONE.replace(
        "  cluster_arrive\n  cluster_wait\n", "  bar_sync 1 warps 0,1\n  bar_arrive 1 warps 2,3 count 128\n"
    )
    assert check(parse_kernel(late)).status == "not proved"
    early = ONE.replace(
        "  cluster_arrive\n  cluster_wait\n", "  bar_arrive 1 warps 2,3 count 128\n  bar_sync 1 warps 0,1\n"
    )
    assert check(parse_kernel(early)).safe
