"""A witness of the checker, replayed in the simulator, shows the fault there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tidegate.check import check
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
