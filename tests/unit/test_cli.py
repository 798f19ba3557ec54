"""The command line: every command, its JSON, its exit status, and what it says to wrong input."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stopwatch import least_seconds_of_process

from tidegate.cli import main
from tidegate.cli.trial import compare
from tidegate.ops import plain
from tidegate.plan import producers
from tidegate.plan.plan import SyncKind
from tidegate.runtime.compile import Cubin
from tidegate.runtime.compiled import Compiled
from tidegate.runtime.device import Device

EXAMPLES = Path(__file__).parents[2] / "examples"
KERNELS = """
import tidegate as tg
from tidegate import cuda


@tg.kernel(warps=1)
def double(x: tg.Tensor["R", 128, "f32"], y: tg.Out["R", 128, "f32"], *, STAGES=2, FACTOR=2.0):
    for r in tg.tiles("R", 1):
        row = tg.load(x[r, :], by=cuda.cp_async(), stages=STAGES)
        y[r, :] = row * FACTOR


@tg.kernel(warps=1)
def copy(x: tg.Tensor[4, 128, "f32"], y: tg.Out[4, 128, "f32"]):
    for r in tg.tiles(4, 1):
        y[r, :] = tg.load(x[r, :], by=cuda.cp_async())
"""
RAGGED = """
import tidegate as tg


@tg.kernel(warps=1)
def one(x: tg.Tensor["N", "f32"], y: tg.Out["N", "f32"]):
    for n in tg.grid(tg.tiles("N", 32)):
        y[n] = tg.load(x[n]) * 2


@tg.kernel(warps=1)
def two(x: tg.Tensor["K", "N", "f32"], y: tg.Out["K", "N", "f32"]):
    for k, n in tg.grid(tg.tiles("K", 4), tg.tiles("N", 32)):
        y[k, n] = tg.load(x[k, n]) * 2
"""
SCALED = """
import tidegate as tg


@tg.kernel(warps=1)
def scaled(x: tg.Tensor[32, "f32"], alpha: tg.Scalar["f32"], shift: tg.Scalar["i32"], y: tg.Out[32, "f32"]):
    y[:] = tg.load(x[:]) * alpha + shift
"""


@dataclass(frozen=True)
class Outcome:
    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        return self.json["error"]


@pytest.fixture
def tidegate(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., Outcome]:
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.setenv("TIDEGATE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kernels.py").write_text(KERNELS)
    (tmp_path / "scaled.py").write_text(SCALED)

    def run(*arguments: str) -> Outcome:
        with pytest.raises(SystemExit) as stop:
            main(arguments)
        captured = capsys.readouterr()
        assert "Traceback" not in captured.out + captured.err
        return Outcome(int(stop.value.code or 0), captured.out, captured.err)

    return run


@pytest.fixture
def file(tmp_path: Path) -> Callable[[str, str], str]:
    def write(name: str, text: str) -> str:
        (tmp_path / name).write_text(text)
        return name

    return write


# ---------------------------------------------------------------------------------------------- what it does


def test_run_says_everything_about_each_kernel(tidegate: Callable[..., Outcome]) -> None:
    found = tidegate("run", "kernels.py", "--json")
    assert found.status == 0
    double, copy = found.json
    assert (double["kernel"], copy["kernel"]) == ("double", "copy")
    assert double["verdict"] == "safe"
    assert double["matches_plain"] is True
    assert double["max_rel_error"] == 0.0
    assert double["smem_bytes"] == 1024
    assert double["plan"] == "multistage"
    assert double["sizes"] == {"R": 3}
    assert copy["sizes"] == {}
    assert [r["completion"] for r in double["simulations"]] == ["late", "early", "random"]
    assert {"id", "kind", "participants", "count_or_phase", "protects", "reason"} <= set(double["syncs"][0])
    assert set(double["timings"]) == {"parse", "analyse", "plan", "emit", "compile"}


def test_run_prints_a_page(tidegate: Callable[..., Outcome]) -> None:
    found = tidegate("run", "kernels.py:copy", "--seed", "7")
    assert found.status == 0
    lines = found.out.splitlines()
    assert lines[0].startswith("copy (kernels.py:")
    assert any("SAFE" in line for line in lines)
    assert sum("agrees with the plain program" in line for line in lines) == 3
    assert len(lines) < 50
    assert "\x1b" not in found.out
    assert found.err == ""


def test_products_are_compared_within_the_rounding_bound(tidegate: Callable[..., Outcome]) -> None:
    found = tidegate("run", f"{EXAMPLES / 'gemm.py'}:gemm_v1", "--json", "--set", "K=80", "--target", "h200")
    assert found.status == 0
    (gemm,) = found.json
    assert gemm["sizes"] == {"M": 144, "K": 80, "N": 144}
    assert gemm["matches_plain"]
    assert 0 <= gemm["max_rel_error"] < 0.02


def test_a_plan_without_its_waits_fails_everywhere(
    tidegate: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    def careless(analysis: producers.Analysis) -> Any:
        plan = producers.in_order(analysis)
        return replace(plan, syncs=tuple(s for s in plan.syncs if s.kind is not SyncKind.COPY_WAIT))

    monkeypatch.setitem(producers.PRODUCERS, "careless", careless)
    found = tidegate("run", "kernels.py:double", "--plan", "careless", "--json")
    assert found.status == 1
    assert found.json[0]["verdict"] == "unsafe"
    assert found.json[0]["matches_plain"] is False
    page = tidegate("run", "kernels.py:double", "--plan", "careless")
    assert page.status == 1
    assert "UNSAFE" in page.out
    assert "MISMATCH" in page.out
    assert tidegate("check", "kernels.py:double", "--plan", "careless").status == 1


def test_the_gpu_is_compared_too(tidegate: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch) -> None:
    """With the plain program, and then with nonsense, in the place of the machine."""
    gpu = Device(0, "Some GPU", (8, 0), 108, 166912, 167936, 65536, 1024)
    monkeypatch.setattr("tidegate.runtime.device.available", lambda index=0: gpu)
    monkeypatch.setattr("tidegate.cli.trial.compile_cuda", lambda compiled: True)
    monkeypatch.setattr(Compiled, "cubin", Cubin(b"", "sm_80", "", "Used 20 registers", True))
    monkeypatch.setattr(Compiled, "__call__", lambda self, *arrays: plain.run(self.program, arrays))
    good = tidegate("run", "kernels.py:double", "--json")
    assert good.status == 0
    assert good.json[0]["gpu"]["matches"]
    assert good.json[0]["gpu"]["name"] == "Some GPU"
    assert good.json[0]["gpu"]["registers"] == 20
    assert good.json[0]["code"] == {"registers": 20, "spill_bytes": 0, "warning": None}
    monkeypatch.setattr(Compiled, "__call__", lambda self, *arrays: arrays[1].fill(3))
    bad = tidegate("run", "kernels.py:double")
    assert bad.status == 1
    assert "Some GPU: MISMATCH" in bad.out
    other = tidegate("run", "kernels.py:double", "--target", "h200", "--json")  # another machine's code
    assert (other.status, other.json[0]["gpu"]) == (0, None)


def test_what_the_code_takes_is_said_without_a_gpu(
    tidegate: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.cli.trial.compile_cuda", lambda compiled: True)
    log = "Used 255 registers, 48 bytes spill stores"
    monkeypatch.setattr(Compiled, "cubin", Cubin(b"", "sm_80", "", log, True))
    page = " ".join(tidegate("run", "kernels.py:double").out.split())
    assert "code 255 registers per thread, 48 bytes spilled; WARNING: spilled bytes" in page
    assert "use smaller tiles or more warps" in page
    (found,) = tidegate("run", "kernels.py:double", "--json").json
    assert (found["code"]["registers"], found["code"]["spill_bytes"]) == (255, 48)
    monkeypatch.setattr("tidegate.cli.trial.compile_cuda", lambda compiled: False)  # no NVRTC
    (found,) = tidegate("run", "kernels.py:double", "--json").json
    assert found["code"] is None


@pytest.mark.parametrize("command", ["plan", "explain", "tir", "cuda", "smem", "check"])
def test_every_command_prints_text_and_json(tidegate: Callable[..., Outcome], command: str) -> None:
    text = tidegate(command, "kernels.py:double", "--set", "STAGES=3")
    assert text.status == 0
    assert "double" in text.out
    one = tidegate(command, "kernels.py:double", "--json")
    assert one.status == 0
    assert one.json["kernel"] == "double"
    every = tidegate(command, "kernels.py", "--json")
    assert [item["kernel"] for item in every.json] == ["double", "copy"]


def test_a_printed_plan_loads(tidegate: Callable[..., Outcome], file: Callable[[str, str], str]) -> None:
    one = file(
        "one.json", tidegate("plan", "kernels.py:double", "--plan", "in_order", "--target", "h200", "--json").out
    )
    again = tidegate("run", "kernels.py:double", "--plan", one, "--json")
    assert again.status == 0
    assert again.json[0]["plan"] == "in_order"
    assert again.json[0]["target"] == "sm_90a"
    both = file("both.json", tidegate("plan", "kernels.py", "--json").out)
    assert tidegate("check", "kernels.py", "--plan", both).status == 0
    assert [run["kernel"] for run in tidegate("run", "kernels.py", "--plan", one, "--json").json] == ["double"]
    assert [memory["kernel"] for memory in tidegate("smem", "kernels.py", "--plan", one, "--json").json] == ["double"]
    other = tidegate("check", "kernels.py:double", "--plan", one, "--set", "STAGES=4", "--json")
    assert (other.status, other.error["code"]) == (2, "TG501")


def test_tir_files(tidegate: Callable[..., Outcome], file: Callable[[str, str], str]) -> None:
    text = tidegate("tir", "kernels.py:double").out
    good = file("good.tir", text)
    assert tidegate("check", good).status == 0
    assert tidegate("tir", good).out == text
    assert "__global__" in tidegate("cuda", good).out
    bad = file("bad.tir", "\n".join(line for line in text.splitlines() if "cp_wait" not in line))
    found = tidegate("check", bad, "--json")
    assert (found.status, found.json["status"]) == (1, "unsafe")
    sized = tidegate("check", good, "--set", "R=5")
    assert sized.status == 0
    assert "R = 5" in sized.out
    for arguments, code in (
        (["check", good, "--set", "R=-1"], "TG701"),
        (["check", good, "--set", "R=x"], "TG701"),
        (["check", good, "--set", "Q=1"], "TG701"),
        (["cuda", good, "--set", "R=5"], "TG855"),
        (["check", file("target.tir", text.replace("sm_80", "banana"))], "TG304"),
    ):
        found = tidegate(*arguments, "--json")
        assert found.status == 2
        assert json.loads(found.out)["error"]["code"] == code
    illegal = file("illegal.tir", text.replace("buffer row f32", "buffer row bf16"))
    refused = tidegate("check", illegal, "--json").error
    assert (refused["code"], refused["where"]["file"]) == ("TG602", illegal)
    assert f"{illegal}:{refused['where']['line']}: " in refused["message"]


def test_the_case_of_a_target_does_not_matter(tidegate: Callable[..., Outcome]) -> None:
    upper, lower = (tidegate("tir", "kernels.py", "--target", name) for name in ("SM_80", "sm_80"))
    assert upper.out == lower.out


def test_settings_reach_the_kernels_that_have_them(tidegate: Callable[..., Outcome]) -> None:
    found = tidegate(
        "run", "kernels.py", "--set", "STAGES=3", "--set", "FACTOR=0.5", "--set", "R=9", "--set", "warps=2", "--json"
    )
    assert found.status == 0
    double, copy = found.json
    assert double["constants"] == {"STAGES": 3, "FACTOR": 0.5}
    assert double["sizes"] == {"R": 9}
    assert (double["warps"], copy["warps"]) == (2, 2)


@pytest.mark.parametrize("command", ["run", "plan", "explain", "tir", "cuda", "smem", "check"])
def test_what_divides_a_size_may_be_set(
    tidegate: Callable[..., Outcome], file: Callable[[str, str], str], command: str
) -> None:
    """Each kernel takes the dimensions that it has."""
    name = file("ragged.py", RAGGED)
    found = tidegate(command, name, "--set", "multiples=N:1, K:8", "--json")
    assert found.status == 0
    if command == "run":
        assert [run["sizes"]["N"] for run in found.json] == [36, 36]
    if command == "tir":
        assert all("dim N\n" in item["text"] for item in found.json)  # and no multiple


@pytest.mark.parametrize("command", ["run", "plan", "explain", "tir", "cuda", "smem", "check"])
def test_the_value_of_a_scalar_may_be_set(tidegate: Callable[..., Outcome], command: str) -> None:
    words = (command, "scaled.py", "--set", "alpha=0.25", "--set", "shift=-3")
    found = tidegate(*words, "--json")
    assert found.status == 0
    if command == "run":
        assert found.json[0]["scalars"] == {"alpha": 0.25, "shift": -3}
        assert "alpha=0.25, shift=-3" in tidegate(*words).out


def test_inputs_of_the_file(tidegate: Callable[..., Outcome], file: Callable[[str, str], str]) -> None:
    own = """
def inputs(kernel_name, rng, sizes):
    return {"x": rng.uniform(size=(7, 128))} if kernel_name == "double" else None
"""
    found = tidegate("run", file("own.py", KERNELS + own), "--json")
    assert found.status == 0
    assert found.json[0]["sizes"] == {"R": 7}
    fixed = "\nimport numpy\ninputs = {'x': numpy.full((4, 128), numpy.nan)}\n"
    assert tidegate("run", file("fixed.py", KERNELS + fixed)).status == 0


@pytest.mark.parametrize(
    ("inputs", "code"),
    [
        ("{'z': [1.0]}", "TG856"),
        ("3", "TG856"),
        ("{'x': 'text'}", "TG856"),
        ("{'x': [[1.0, 2.0]]}", "TG701"),
        ("lambda: {}", "TG856"),
        ("lambda kernel_name, rng, sizes: 1 / 0", "TG856"),
    ],
)
def test_wrong_inputs(
    tidegate: Callable[..., Outcome], file: Callable[[str, str], str], inputs: str, code: str
) -> None:
    found = tidegate("run", file("own.py", f"{KERNELS}\ninputs = {inputs}\n"), "--json")
    assert (found.status, found.error["code"]) == (2, code)


def test_errors(tidegate: Callable[..., Outcome]) -> None:
    every = tidegate("errors")
    assert every.status == 0
    assert "TG401  shared memory exceeded" in every.out.splitlines()
    one = tidegate("errors", "tg401", "--json")
    assert one.json["name"] == "OverCapacity"
    assert "{kernel} needs {peak} bytes" in tidegate("errors", "TG401").out
    assert tidegate("errors", "OverCapacity").out == tidegate("errors", "401").out
    missing = tidegate("errors", "TG402x")
    assert missing.status == 2
    assert "TG402" in missing.err


def test_the_version_comes_at_once(tidegate: Callable[..., Outcome]) -> None:
    assert tidegate("--version").out.startswith("tidegate ")
    start = ["-c", "from tidegate.cli import main; main()", "--version"]
    assert least_seconds_of_process(start) < 1  # 0.06 s where nothing else runs


# ---------------------------------------------------------------------------------------------- what it refuses


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["run", "missing.py"], "TG851"),
        (["run", "."], "TG851"),
        (["run", ""], "TG851"),
        (["run", ":double"], "TG851"),
        (["run", "kernels.py\0"], "TG851"),
        (["run", "missing.tir"], "TG851"),
        (["check", "plan.json"], "TG851"),
        (["check", "missing.tir"], "TG851"),
        (["run", "kernels.py:nothing"], "TG854"),
        (["run", "kernels.py:"], "TG854"),
        (["run", "kernels.py", "--set", "STAGES"], "TG855"),
        (["run", "kernels.py", "--set", "=3"], "TG855"),
        (["run", "kernels.py", "--set", "STAGES="], "TG855"),
        (["run", "kernels.py", "--set", "STAGES=" + "9" * 5000], "TG855"),
        (["run", "kernels.py", "--set", "R=5", "--set", "R=6"], "TG855"),
        (["run", "scaled.py", "--set", "alpha=1e400"], "TG855"),
        (["run", "kernels.py", "--set", "DEPTH=3"], "TG107"),
        (["run", "kernels.py", "--set", "multiples=8"], "TG855"),
        (["run", "kernels.py", "--set", "multiples=R:"], "TG855"),
        (["run", "kernels.py", "--set", "multiples=R:x"], "TG855"),
        (["run", "kernels.py", "--set", "multiples=R:8,"], "TG855"),
        (["run", "kernels.py", "--set", "multiples=STAGES:8"], "TG107"),
        (["smem", "kernels.py:copy", "--set", "multiples=R:8"], "TG107"),
        (["run", "kernels.py", "--set", "multiples=R:0"], "TG107"),
        (["run", "kernels.py:copy", "--set", "STAGES=3"], "TG107"),
        (["run", "kernels.py", "--set", "STAGES=many"], "TG105"),
        (["run", "kernels.py", "--set", "STAGES=0.5"], "TG105"),
        (["run", "kernels.py", "--set", "R=-1"], "TG107"),
        (["run", "kernels.py", "--set", "R=2000000000"], "TG856"),
        (["run", "kernels.py", "--set", "warps=3"], "TG306"),
        (["run", "kernels.py", "--set", "STAGES=100000"], "TG401"),
        (["smem", "kernels.py", "--set", "STAGES=100000"], "TG401"),
        (["run", "kernels.py", "--target", "pdp11"], "TG304"),
        (["smem", "kernels.py", "--target", ""], "TG304"),
        (["smem", "kernels.py", "--target", "sm80"], "TG304"),
        (["run", "scaled.py", "--set", "alpha=abc"], "TG855"),
        (["check", "scaled.py", "--set", "shift=0.5"], "TG855"),
        (["smem", "scaled.py:scaled", "--set", "alpha=1e39"], "TG855"),
        (["run", "kernels.py", "--plan", "best"], "TG305"),
        (["run", "kernels.py", "--plan", ""], "TG305"),
        (["run", "kernels.py", "--plan", "missing.json"], "TG502"),
        (["run", "kernels.py", "--plan", "kernels.py"], "TG502"),
        (["errors", "TG999"], "TG857"),
        (["errors", ""], "TG857"),
    ],
)
def test_refusals(tidegate: Callable[..., Outcome], arguments: list[str], code: str) -> None:
    found = tidegate(*arguments, "--json")
    assert (found.status, found.error["code"], found.err) == (2, code, "")
    text = tidegate(*arguments)
    assert text.status == 2
    assert text.err.startswith(f"error[{code}]")
    assert "\n  try: " in text.err


@pytest.mark.parametrize(
    ("text", "code", "line"),
    [
        ("x = (1\n", "TG852", 1),
        ("import os\n\n\ndef f():\n    return 1 / 0\n\n\nf()\n", "TG852", 5),
        ("import missing_module\n", "TG852", 1),
        ("import sys\nsys.exit(0)\n", "TG852", 2),
        ("x = 1\n", "TG853", None),
        ("", "TG853", None),
        ("\0", "TG852", None),
        ("import tidegate as tg\nA = tg.Tensor[1.5]\n", "TG104", 2),
    ],
)
def test_python_files_that_do_not_load(
    tidegate: Callable[..., Outcome], file: Callable[[str, str], str], text: str, code: str, line: int | None
) -> None:
    found = tidegate("run", file("bad.py", text), "--json")
    assert (found.status, found.error["code"]) == (2, code)
    assert (found.error["where"] or {}).get("line") == line


@pytest.mark.parametrize("text", ["", "kernel", "\0\1\2", "garbage\n" * 3])
def test_tir_files_that_do_not_read(
    tidegate: Callable[..., Outcome], file: Callable[[str, str], str], text: str
) -> None:
    found = tidegate("check", file("bad.tir", text), "--json")
    assert (found.status, found.error["code"]) == (2, "TG601")


def test_files_of_bytes(tidegate: Callable[..., Outcome], tmp_path: Path) -> None:
    for name, code in (("bytes.py", "TG852"), ("bytes.tir", "TG851"), ("bytes.json", "TG502")):
        (tmp_path / name).write_bytes(b"\xff\xfe\x80garbage")
        arguments = ["kernels.py", "--plan", name] if name.endswith(".json") else [name]
        found = tidegate("check", *arguments, "--json")
        assert (found.status, found.error["code"]) == (2, code)


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["run"], ["run", "kernels.py", "--fast"], ["run", "kernels.py", "--seed", "x"]]
)
def test_wrong_usage(tidegate: Callable[..., Outcome], arguments: list[str]) -> None:
    assert tidegate(*arguments).status == 2


def test_what_a_file_prints_is_kept_out_of_the_output(
    tidegate: Callable[..., Outcome], file: Callable[[str, str], str]
) -> None:
    found = tidegate("plan", file("loud.py", KERNELS + "\nprint('hello')\n"), "--json")
    assert len(found.json) == 2
    assert found.err == "hello\n"


@pytest.mark.parametrize(
    ("command", "status"),
    [
        ("errors > /dev/full", 2),
        ("errors TG0 --json > /dev/full", 2),
        ("--help > /dev/full", 2),
        ("--version > /dev/full", 2),
        ("errors >&-", 0),
    ],
)
def test_output_that_cannot_be_written_is_a_report(command: str, status: int) -> None:
    tidegate = f"{sys.executable} -c 'from tidegate.cli import main; main()'"
    found = subprocess.run(f"{tidegate} {command}", shell=True, capture_output=True, text=True)
    assert (found.returncode, "TG851" in found.stderr) == (status, status == 2)
    assert "Traceback" not in found.stderr


def test_interrupts_are_quiet(tidegate: Callable[..., Outcome], file: Callable[[str, str], str]) -> None:
    assert tidegate("run", file("stop.py", "raise KeyboardInterrupt\n")) == Outcome(130, "", "")


def test_an_error_in_tidegate_is_a_report(tidegate: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(analysis: producers.Analysis) -> Any:
        raise RuntimeError("oops")

    monkeypatch.setitem(producers.PRODUCERS, "broken", broken)
    found = tidegate("plan", "kernels.py", "--plan", "broken", "--json")
    assert (found.status, found.error["code"]) == (2, "TG899")
    assert "oops" in found.error["message"]


# ---------------------------------------------------------------------------------------------- comparison


@pytest.mark.parametrize(
    ("got", "wanted", "bound", "matches", "error"),
    [
        ([1.0, np.nan], [1.0, np.nan], 0.0, True, 0.0),
        ([1.0], [1.0 + 2**-23], 0.0, False, 2.0**-23),
        ([1.0], [1.0 + 2**-23], 2.0**-20, True, 2.0**-23),
        ([0.0], [-0.0], 0.0, False, 0.0),
        ([np.nan], [1.0], 1e9, False, sys.float_info.max),
        ([1.0], [np.nan], 1e9, False, sys.float_info.max),
        ([np.inf], [np.inf], 0.0, True, 0.0),
        ([1.0, 1e-6], [1.0, 0.0], 1e-3, True, 1.4e-6),
        ([], [], 0.0, True, 0.0),
    ],
)
def test_compare(got: list[float], wanted: list[float], bound: float, matches: bool, error: float) -> None:
    a, b = np.array(got, np.float32), np.array(wanted, np.float32)
    same, worst = compare(a, b, np.full(b.shape, bound))
    assert same is matches
    assert worst == pytest.approx(error, rel=0.05)


def test_the_package_runs_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "tidegate", "errors", "TG101"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("TG101")


NUMBERS = """
import tidegate as tg
from tidegate import cuda


@tg.kernel(warps=1)
def parts(x: tg.Tensor["T", 16, "f32"], off: tg.Tensor["E", "i32"], y: tg.Out["S", 16, "f32"], *, STAGES=3):
    for s in tg.grid(tg.range("S")):
        lo = tg.load(off[s])
        hi = tg.load(off[s + 1])
        acc = tg.zeros((16,))
        for t in tg.tiles(hi - lo, 8):
            p = lo + tg.begin(t)
            rows = tg.load(x[p : p + 8, :], by=cuda.cp_async(), stages=STAGES)
            acc += tg.where((tg.positions(t) < hi - lo)[:, None], rows, 0.0).sum(axis=0)
        y[s, :] = acc


@tg.kernel(warps=1)
def first(x: tg.Tensor["T", 16, "f32"], n: tg.Scalar["i32"], y: tg.Out[16, "f32"], *, STAGES=3):
    for _ in tg.grid(tg.range(1)):
        acc = tg.zeros((16,))
        for t in tg.tiles(n, 8):
            p = tg.begin(t)
            acc += tg.load(x[p : p + 8, :], by=cuda.cp_async(), stages=STAGES).sum(axis=0)
        y[:] = acc
"""


def test_numbers_that_end_loops_make_rings_come_round(
    tidegate: Callable[..., Outcome], file: Callable[[str, str], str]
) -> None:
    """Drawn, a loop has more trips than its ring stages, and the tensor has rows for them."""
    results = tidegate("run", file("ragged.py", NUMBERS), "--json").json
    assert [(r["short_loops"], r["sizes"]["T"] > 32) for r in results] == [([], True), ([], True)]
    assert results[1]["scalars"]["n"] > 3 * 8
    short = tidegate("run", "ragged.py:first", "--set", "n=8").out
    assert "the loop of line 23 had at most 1 trip" in short
