"""A witness of the checker, replayed in the simulator, shows the fault there."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import tidegate as tg
from tidegate import cuda
from tidegate.check import check
from tidegate.ir import tir
from tidegate.ir.text import parse_kernel
from tidegate.runtime.replay import replay, script

CORPUS = Path(__file__).parents[1] / "corpus"

FAULTS = (
    "01_stage_no_barrier",
    "02_ring_no_wait",
    "03_unequal_rings_deep_count",
    "07_sibling_loops_no_barrier",
    "08_leader_too_fast",
    "09_count_below",
)


@pytest.mark.parametrize("name", FAULTS)
def test_the_witness_shows_in_the_simulator(name: str) -> None:
    kernel = parse_kernel((CORPUS / f"{name}.tir").read_text(encoding="utf-8"))
    verdict = check(kernel)
    assert verdict.status == "unsafe"
    assert script(kernel, verdict)
    assert replay(kernel, verdict).shown


@tg.kernel(warps=2)
def segments(
    x: tg.Tensor["T", 32, "f32"], offset: tg.Tensor["S1", "i32"], count: tg.Tensor["S", "i32"], least: tg.Scalar["i32"],
    y: tg.Out["S", 32, "f32"],
):  # fmt: skip
    """Sums of rows that lie one behind another, and of those of a guarded part."""
    for s in tg.grid(tg.range("S")):
        total = tg.zeros((32,))
        low = tg.load(offset[s])
        for t in tg.tiles(tg.load(offset[s + 1]) - low, 8):
            total += tg.load(x[low + tg.begin(t) : low + tg.begin(t) + 8, :], by=cuda.cp_async(), stages=3).sum(axis=0)
        for r in tg.tiles("T", 64):
            if tg.begin(r) + least < tg.load(count[s]):
                total += tg.load(x[r, :], by=cuda.cp_async(), stages=2).sum(axis=0)
        y[s, :] = total


def test_every_witness_that_needs_numbers_shows_with_these() -> None:
    """Each sync of loops whose trips are read from rows of offsets, or guarded by numbers, some trips in."""
    kernel = segments.compile("sm_80").kernel
    syncs = [s for s in tir.walk(kernel.body) if isinstance(s, tir.Sync)]
    assert len(syncs) > 8
    for sync in syncs:
        broken = replace(kernel, body=without(kernel.body, sync))
        verdict = check(broken)
        assert verdict.status == "unsafe", verdict.text()
        assert verdict.run is not None
        shown = replay(broken, verdict)
        assert shown.shown
        assert shown.sizes == verdict.run.sizes


def without(body: tuple[tir.Stmt, ...], sync: tir.Sync) -> tuple[tir.Stmt, ...]:
    kept = (s for s in body if s != sync)
    return tuple(replace(s, body=without(s.body, sync)) if isinstance(s, (tir.For, tir.If)) else s for s in kept)


def test_the_command_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    from tidegate.cli import main

    path = str(CORPUS / "01_stage_no_barrier.tir")
    with pytest.raises(SystemExit) as left:
        main(["check", path, "--replay"])
    assert left.value.code == 1
    assert "replayed in the simulator (late completion" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["check", path, "--replay", "--json"])
    assert json.loads(capsys.readouterr().out)["replay"]["shown"]


def test_the_exit_status_tells_unsafe_from_not_proved() -> None:
    from tidegate.cli import main

    for name, status in (("01_stage", 0), ("01_stage_no_barrier", 1), ("22_unknown_order", 3)):
        with pytest.raises(SystemExit) as left:
            main(["check", str(CORPUS / f"{name}.tir")])
        assert (left.value.code or 0) == status
