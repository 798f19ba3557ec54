"""``tidegate mutate``: what it breaks, what it says of it, and when it is not content."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tidegate.check import Verdict, check
from tidegate.check.mutate import OPERATORS, mutants
from tidegate.cli import main, mutation
from tidegate.ir import tir
from tidegate.ir.text import parse_kernel

EXAMPLES = Path(__file__).parents[2] / "examples"
RING = Path(__file__).parents[1] / "mutants" / "kernels" / "transpose_ring.tir"
BAR = RING.with_name("transpose_bar.tir")

# A thread reads back its own copies, so a cursor that is left behind shows in the results alone.
OWN = """
kernel own target sm_80 warps 1 smem 1024
dim R
param x f32 [R, 128] in align 16
param y f32 [R, 128] out align 16
layout row [1, 128] reg 0,1 0,2 lane 0,4 0,8 0,16 0,32 0,64 warp - rep 1,1
buffer p f32 [1, 128] stages 2 at 0 stride 512
cursor w depth 2
cursor r depth 2
register v f32 layout row
body {
  cp_async p[w] <- x[0 < R, 0] layout row bytes 16
  cp_commit
  advance w
  for r0 = 0 .. R {
    cp_async p[w] <- x[r0 + 1 < R, 0] layout row bytes 16
    cp_commit #c "row r0 + 1"
    cp_wait 0 #w
    advance w
    ld_shared v <- p[r] bytes 16
    st_global y[r0, 0] <- v bytes 16
    advance r
  }
  cp_wait 0
}
"""


@dataclass(frozen=True)
class Outcome:
    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def tidegate(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., Outcome]:
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object) -> Outcome:
        with pytest.raises(SystemExit) as stop:
            main([str(a) for a in arguments])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.out + captured.err
        return Outcome(int(stop.value.code or 0), captured.out, captured.err)

    return run


def test_every_mutant_has_a_row(tidegate: Callable[..., Outcome]) -> None:
    found = tidegate("mutate", RING, "--json")
    assert found.status == 0
    expected = list(mutants(parse_kernel(RING.read_text())))
    rows = found.json["mutants"]
    assert [row["place"] for row in rows] == [what for what, _ in expected]
    assert {row["verdict"] for row in rows} == {"caught"}
    assert {row["found"] for row in rows} >= {"race", "incomplete copy", "outstanding copy"}
    assert {row["name"] for row in rows} <= {o.name for o in OPERATORS}
    assert found.json["counts"] == {"caught": len(rows), "equivalent": 0, "other program": 0, "MISSED": 0}
    assert (found.json["kernel"], found.json["original"]) == ("transpose_ring", "safe")


def test_the_table(tidegate: Callable[..., Outcome]) -> None:
    found = tidegate("mutate", BAR)
    assert found.status == 0
    head, *rows = found.out.splitlines()
    assert head == f"transpose_bar: {len(rows)} mutants, {len(rows) - 1} caught, 1 equivalent"
    (same,) = [row for row in rows if "equivalent" in row]
    assert same.split("  ")[1].strip() == "17 merge named barriers"
    assert "barrier 2 is 1" in same


def test_python_files_and_their_settings(tidegate: Callable[..., Outcome]) -> None:
    one = tidegate("mutate", f"{EXAMPLES / 'transpose.py'}:transpose", "--json")
    assert one.status == 0
    assert one.json["kernel"] == "transpose"
    assert '"' not in one.json["mutants"][0]["place"]  # the reason of a sync is left out
    every = tidegate("mutate", EXAMPLES / "gemm.py", "--plan", "in_order", "--target", "h200", "--json")
    assert [item["kernel"] for item in every.json] == ["gemm_v0", "gemm_v1", "gemm_v2"]
    assert {item["target"] for item in every.json} == {"sm_90a"}
    assert tidegate("mutate", EXAMPLES / "gemm.py", "--set", "DEPTH=1", "--json").json["error"]["code"] == "TG107"


def test_what_is_in_order_may_be_another_program(tidegate: Callable[..., Outcome], tmp_path: Path) -> None:
    (tmp_path / "own.tir").write_text(OWN)
    found = tidegate("mutate", "own.tir", "--json")
    assert found.status == 0
    (row,) = [row for row in found.json["mutants"] if row["place"].startswith("delete advance r")]
    assert (row["verdict"], row["operator"]) == ("other program", 10)
    assert row["found"] == "simulator: other results with R=5"
    assert found.json["counts"]["other program"] >= 1


def test_a_checker_that_accepts_everything_is_found_out(
    tidegate: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mutation, "check", lambda kernel: Verdict(kernel.name, "safe", "everything"))
    found = tidegate("mutate", RING, "--json")
    assert found.status == 1
    missed = [row for row in found.json["mutants"] if row["verdict"] == "MISSED"]
    assert len(missed) > 0.8 * len(found.json["mutants"])
    assert any(row["found"].startswith("simulator: not landed") for row in missed)
    assert "MISSED" in tidegate("mutate", RING).out.splitlines()[0]


def test_what_is_not_proved_is_not_accepted(tidegate: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch) -> None:
    original = parse_kernel(RING.read_text())

    def timid(kernel: tir.Kernel) -> Verdict:
        return check(kernel) if kernel == original else Verdict(kernel.name, "not proved", "", reason="too hard")

    monkeypatch.setattr(mutation, "check", timid)
    found = tidegate("mutate", RING, "--json")
    assert found.status == 0
    assert Counter((r["verdict"], r["found"]) for r in found.json["mutants"]).keys() == {("caught", "not proved")}


def test_mutants_of_an_unsafe_kernel_show_nothing(tidegate: Callable[..., Outcome], tmp_path: Path) -> None:
    text = RING.read_text()
    (tmp_path / "bad.tir").write_text(text.replace("    sync_block #s\n", ""))
    found = tidegate("mutate", "bad.tir")
    assert found.status == 1
    assert "the kernel itself is UNSAFE" in found.out.splitlines()[0]
    (tmp_path / "illegal.tir").write_text(text.replace("buffer t f32", "buffer t bf16"))
    illegal = tidegate("mutate", "illegal.tir", "--json")
    assert (illegal.status, illegal.json["error"]["code"]) == (2, "TG602")
    missing = tidegate("mutate", "missing.py", "--json")
    assert (missing.status, missing.json["error"]["code"]) == (2, "TG851")
