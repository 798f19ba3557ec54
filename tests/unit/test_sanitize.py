# ruff: noqa: E501 (a tool's output)
"""The sanitizer's output as data, lines of the CUDA text back to the TIR, injected delays, refusals without a GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tidegate.cli.watched import render
from tidegate.emit import Delays, emit, line_table, traced
from tidegate.emit.delays import GUARD_BYTES, guarded, unowned
from tidegate.errors import BadTool, NoDriver, NoSanitizer, UnknownConstant
from tidegate.ir import tir
from tidegate.ir.text import parse_kernel, print_stmt
from tidegate.runtime import batch, sanitize
from tidegate.runtime.cache import installed
from tidegate.runtime.compile import COMPILER, cubin
from tidegate.runtime.sanitizer_text import Frame, parse, summary
from tidegate.runtime.trial_sizes import trial_arrays, trial_sizes

STAGE = """
kernel stage target sm_80 warps 4 smem 1024
dim N
param a f32 [N] in align 4
param b f32 [N] out align 4
layout own [128] reg - lane 1 2 4 8 16 warp 32 64 rep 1
layout other [128] reg - lane 4 8 16 32 64 warp 1 2 rep 1
buffer t f32 [128] stages 1 at 128 stride 512
register x f32 layout own
register y f32 layout other
body {
  for n = 0 .. cdiv(N, 128) {
    ld_global x <- a[n * 128 < N] bytes 4 line 7
    st_shared t <- x bytes 4 line 8
    ld_shared y <- t bytes 4 line 9
    sync_block #read
    st_global b[n * 128 < N] <- y bytes 4 line 10
  }
}
"""


def stage() -> tir.Kernel:
    return parse_kernel(STAGE)


# ---------------------------------------------------------------------------------------------- the tool's words

RACES = """========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at st_shared_f32(unsigned int, const float *)+0x110 in stage.cu:{header}
=========     and Read access at ld_shared_f32(float *, unsigned int)+0x140 in stage.cu:{header} [384 hazards]
=========         Device Frame: stage+0x140 in stage.cu:{read}
=========
run done
========= Warning: Race reported between Read access at stage+0x150 in stage.cu:{read}
=========     and Write access at stage+0x110 in stage.cu:{write} [12 hazards]
=========
========= RACECHECK SUMMARY: 2 hazards displayed (1 error, 1 warning)
"""

MEMORY = """========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 4 bytes
=========     at ld_global_f32_at_line_{read}(float *, const void *)+0x350 in stage.cu:{header}
=========     by thread (116,0,0) in block (0,0,0)
=========     Access to 0x7f156e800fd0 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f156e800800 of size 2,000 bytes
=========         Device Frame: stage+0x2a0 in stage.cu:{read}
=========
========= Invalid __global__ read of size 4 bytes
=========     at ld_global_f32_at_line_{read}(float *, const void *)+0x350 in stage.cu:{header}
=========     by thread (117,0,0) in block (0,0,0)
=========     Access to 0x7f156e800fd4 is out of bounds
=========     and is 5 bytes after the nearest allocation at 0x7f156e800800 of size 2,000 bytes
=========         Device Frame: stage+0x2a0 in stage.cu:{read}
=========
========= Program hit CUDA_ERROR_LAUNCH_FAILED (error 719) due to "unspecified launch failure" on CUDA API call to cuStreamSynchronize.
=========     Saved host backtrace up to driver entry point at error
=========         Host Frame: cuStreamSynchronize [0x2b8e00] in libcuda.so.1
=========
========= ERROR SUMMARY: 3 errors
"""

BARRIER = """========= COMPUTE-SANITIZER
========= Barrier error detected. Divergent thread(s) in block.
=========     at stage(const float *, float *, int)+0x2a0 in stage.cu:{write}
=========     by thread (32,0,0) in block (0,0,0)
=========
========= ERROR SUMMARY: 1 error
"""

CLEAN = """========= COMPUTE-SANITIZER
========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)
"""


def lines_of(text: str) -> dict[str, int]:
    """First line that carries the call of each instruction, and a line of the header."""
    rows = text.splitlines()
    found = {key: next(i for i, r in enumerate(rows, 1) if r.strip().startswith(call)) for key, call in CALLS.items()}
    return {**found, "header": next(i for i, r in enumerate(rows, 1) if "asm volatile" in r)}


CALLS = {"write": "st_shared_f32(at", "read": "ld_shared_f32(y"}


def test_races_have_two_sides_and_a_number() -> None:
    first, second = parse("racecheck", RACES.format(header=5, read=50, write=40))
    assert first.title == "Error: Race between write and read"
    assert first.count == 384
    assert [s.what for s in first.sites] == ["Write", "Read"]
    assert first.sites[0].frames == (Frame("st_shared_f32", 0x110, "stage.cu", 5),)
    assert first.sites[1].frames[-1] == Frame("stage", 0x140, "stage.cu", 50)
    assert first.unit == "stage"
    assert second.unit == "stage"
    assert (second.title, second.count) == ("Warning: Race between read and write", 12)
    assert summary(RACES) == 2


def test_equal_reports_of_several_threads_are_one() -> None:
    (record,) = parse("memcheck", MEMORY.format(header=5, read=50))
    assert record.title == "Invalid __global__ read of size 4 bytes"
    assert record.count == 2
    assert record.sites[0].frames == (
        Frame("ld_global_f32_at_line_50", 0x350, "stage.cu", 5),
        Frame("stage", 0x2A0, "stage.cu", 50),
    )


def test_a_barrier_error_has_a_place() -> None:
    (record,) = parse("synccheck", BARRIER.format(write=40))
    assert record.title == "Barrier error detected. Divergent thread(s) in block."
    assert record.sites[0].frames == (Frame("stage", 0x2A0, "stage.cu", 40),)


def test_a_report_without_an_end_has_no_summary() -> None:
    assert parse("racecheck", CLEAN) == []
    assert summary(CLEAN) == 0
    assert summary("========= COMPUTE-SANITIZER\n") is None


def test_findings_point_at_the_statement_and_the_line() -> None:
    kernel, text = stage(), emit(stage())
    at = lines_of(text)
    first, second = sanitize.findings(kernel, text, parse("racecheck", RACES.format(**at)))
    write, read = first.places
    assert (write.statement, write.cuda_line) == ("", at["header"])  # no frame of the kernel: said so, not guessed
    assert (read.statement, read.source_line) == ("ld_shared y <- t bytes 4 line 9", 9)
    assert [p.source_line for p in second.places] == [9, 8]
    report = sanitize.Report("stage", "some GPU", {"N": 450}, (), (), sanitize.unseen(kernel, {"N": 450}))
    assert report.clean
    run = sanitize.ToolRun("racecheck", "done", (second,))
    shown = render(sanitize.Report("stage", "some GPU", {"N": 450}, (run,), (), report.unseen), "")
    assert "Warning: Race between read and write (12 times)" in shown
    assert "write:  st_shared t <- x bytes 4 line 8" in shown
    assert "N = 450" in shown


def test_wrappers_of_a_traced_text_name_their_line() -> None:
    text = emit(stage())
    with_lines, at = traced(text), lines_of(text)
    assert f"st_shared_f32_at_line_{at['write']}(at, x);" in with_lines
    kernel_lines = with_lines.partition("\n#line ")[2].splitlines()
    first = int(kernel_lines[0])
    assert text.splitlines()[first - 1] == kernel_lines[1]
    assert len(text.splitlines()) == first + len(kernel_lines) - 2
    words = f"""========= Error: Race reported between Write access at st_shared_f32_at_line_{at["write"]}(unsigned int, const float *)+0x110 in stage.cu:5
=========     and Read access at ld_shared_f32_at_line_{at["read"]}(float *, unsigned int)+0x140 in stage.cu:6 [4 hazards]
=========     and Read access at ld_shared_f32_at_line_{at["read"]}(float *, unsigned int)+0x150 in stage.cu:6 [4 hazards]
"""
    (found,) = sanitize.findings(stage(), text, parse("racecheck", words))
    assert found.title == "Error: Race between write and read"
    assert [p.source_line for p in found.places] == [8, 9]
    assert [p.cuda_line for p in found.places] == [at["write"], at["read"]]


def test_what_the_sanitizer_cannot_see_depends_on_the_kernel() -> None:
    kernels = Path(__file__).parents[1] / "mutants" / "kernels"
    hidden, _ = sanitize.unseen(parse_kernel((kernels / "wgmma_persistent.tir").read_text()), {})
    for what in ("tensor copies", "wgmma", "proxy fences", "phase barriers"):
        assert what in hidden
    hidden, other = sanitize.unseen(stage(), {"N": 449})
    assert "read before it is written" in hidden
    assert "tensor" not in hidden
    assert "N = 449" in other


# ---------------------------------------------------------------------------------------------- lines and delays


def test_every_instruction_has_lines_in_order() -> None:
    kernel, text = stage(), emit(stage())
    table = line_table(kernel, text)
    order = list(dict.fromkeys(table[n] for n in sorted(table)))
    assert order == [s for s in tir.walk(kernel.body) if isinstance(s, tir.Instruction)]
    rows = text.splitlines()
    for number, stmt in table.items():
        if rows[number - 1].strip().startswith("//"):
            assert rows[number - 1].strip() == f"// {print_stmt(stmt)}"
    assert table[lines_of(text)["write"]].line == 8
    assert min(table) > text.splitlines().index("stage_kernel(const f32* a, f32* b, int N) {")


def test_delays_off_is_the_text_itself() -> None:
    assert emit(stage(), None) == emit(stage())
    assert "nanosleep" not in emit(stage())


def test_the_line_table_survives_delays() -> None:
    kernel, _ = guarded(stage(), 2**16)
    text = emit(kernel, Delays(1, "guard"))
    assert line_table(kernel, text)[lines_of(text)["read"]].line == 9


def test_delays_of_a_small_kernel(golden: Callable[[str, str], None]) -> None:
    kernel, guard = guarded(stage(), 2**16)
    golden("emit/delayed.cu", emit(kernel, Delays(1, guard)))


def test_delays_differ_by_seed_and_are_repeatable() -> None:
    texts = {emit(stage(), Delays(seed)) for seed in range(8)}
    assert len(texts) > 4
    assert emit(stage(), Delays(3)) == emit(stage(), Delays(3))
    chosen = [d for place in range(300) if (d := Delays(5).before(place, 4))]
    assert 60 < len(chosen) < 140
    assert all(0 < warps < 16 for warps, _ in chosen)


def test_guard_bytes_are_those_that_nothing_owns() -> None:
    kernel, guard = guarded(stage(), 2**16)
    assert kernel.smem == 1024 + GUARD_BYTES
    assert kernel.params[-1].name == guard == "guard"
    assert list(unowned(kernel)) == [(0, 128), (640, 1024 + GUARD_BYTES)]
    assert guarded(stage(), 1024) == (stage(), "")  # no room


@pytest.mark.skipif(installed(COMPILER) is None, reason=f"{COMPILER} is not installed")
def test_delayed_text_and_line_information_compile() -> None:
    kernel, guard = guarded(stage(), 2**16)
    assert cubin(emit(kernel, Delays(1, guard)), "sm_80").code
    plain, lines = cubin(emit(stage()), "sm_80"), cubin(traced(emit(stage())), "sm_80", "stage.cu")
    assert b"stage.cu" in lines.code
    assert b"stage.cu" not in plain.code
    assert plain.key != lines.key


# ---------------------------------------------------------------------------------------------- sizes, processes


def test_sizes_are_a_few_ragged_tiles() -> None:
    assert trial_sizes(stage(), {}) == {"N": 449}
    assert trial_sizes(stage(), {"N": 5}) == {"N": 5}
    arrays = trial_arrays(stage(), {"N": 449})
    assert np.isnan(arrays["b"]).all()
    assert arrays["a"].shape == (449,)
    for given in ({"Q": 1}, {"N": -1}, {"N": "x"}):
        with pytest.raises(UnknownConstant):
            trial_sizes(stage(), given)


def test_a_batch_says_what_became_of_every_job(tmp_path: Path) -> None:
    """Without a GPU every launch is refused; with a command that never ends, the batch is killed."""
    batch.store_arrays(tmp_path / "arrays.npz", trial_arrays(stage(), {"N": 4}))
    for name in ("one", "two"):
        batch.store(tmp_path, name, stage(), b"", "sm_00", tmp_path / "arrays.npz")
    outcome = batch.run_all(tmp_path, ["one", "two"])
    assert set(outcome.status) == {"one", "two"}
    assert all(s != "done" for s in outcome.status.values())
    slow = batch.run_all(tmp_path, ["one"], around=[sys.executable, "-c", "import time; time.sleep(60)"], total=0.5)
    assert slow.status["one"] != "done"


def test_changed_outputs() -> None:
    nan = np.array([np.nan, 1], np.float32)
    assert sanitize.changed({"b": nan}, {"b": nan.copy()}) == ()
    assert sanitize.changed({"b": nan}, {"b": np.array([np.nan, 2], np.float32)}) == ("b",)


# ---------------------------------------------------------------------------------------------- refusals


def run(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from tidegate.cli import main; main()", "sanitize", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env or None)


def test_the_command_refuses_with_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "stage.tir"
    path.write_text(STAGE)
    wrong = run(str(path), "--tool", "valgrind", "--json")
    assert wrong.returncode == 2
    assert json.loads(wrong.stdout)["error"]["code"] == BadTool.code
    monkeypatch.setattr(sanitize.devices, "available", lambda: None)
    with pytest.raises(NoDriver, match="no GPU"):
        sanitize.sanitize(stage(), trial_arrays(stage(), {"N": 4}))


def test_a_missing_sanitizer_is_said_with_where_it_was_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sanitize.shutil, "which", lambda name: None)
    monkeypatch.setattr(sanitize.os, "access", lambda path, mode: False)
    monkeypatch.setenv("CUDA_HOME", "/nowhere")
    with pytest.raises(NoSanitizer, match="/nowhere/bin"):
        sanitize.find_sanitizer()
