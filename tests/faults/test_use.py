"""Faults of use: compile time and caching, diagnostics, launches, and what numbers become."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from agreement import agree, normal, unwritten
from stopwatch import least_seconds

import tidegate as tg
from tidegate import cuda
from tidegate.errors import NoInstruction, NoSource, OverCapacity, TidegateError

F16 = np.float16

# ------------------------------------------------------------------------------------------ 20 compile time


@tg.kernel(warps=4)
def scaled(x: tg.Tensor["R", 32, "f32"], y: tg.Out["R", 32, "f32"], *, BY=2.0, S=2):
    for r in tg.tiles("R", 8):
        t = tg.load(x[r, :], by=cuda.cp_async(), stages=S)
        y[r, :] = t * BY


def test_20_no_cache_on_one_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One way to a compiled kernel does not ask the cache, and every start pays in full.

    There is one cache, by content, and a hit says so; an equal request shares even what has been made of it."""
    monkeypatch.setenv("TIDEGATE_CACHE_DIR", str(tmp_path))
    first = scaled.compile(target="sm_80", BY=2.5)
    assert scaled.compile(target="sm_80", BY=2.5) is first
    assert not first.cubin.from_cache
    scaled.compiled.clear()
    assert scaled.compile(target="sm_80", BY=2.5).cubin.from_cache
    assert not scaled.compile(target="sm_80", BY=3.5).cubin.from_cache


def test_20_candidates_that_cannot_fit_are_compiled_first() -> None:
    """The size of shared memory is known after a long compilation only.

    It is a function of the legal program, asked for or refused in milliseconds."""

    def refused() -> None:
        with pytest.raises(OverCapacity):
            scaled.compile(target="sm_80", S=4000)

    assert least_seconds(refused) < 0.1
    assert least_seconds(lambda: scaled.smem("sm_80", S=100)) < 0.1
    report = scaled.smem("sm_80", S=100)
    assert report.peak == 100 * 1024


@tg.kernel(warps=8)
def large(a: tg.Tensor["M", "K", "f16"], b: tg.Tensor["K", "N", "f16"], c: tg.Out["M", "N", "f32"]):
    for m, n in tg.grid(tg.tiles("M", 128), tg.tiles("N", 128)):
        acc = tg.zeros((128, 128))
        for k in tg.tiles("K", 32):
            acc = tg.dot(tg.load(a[m, k], stages=4), tg.load(b[k, n], stages=4), acc)
        c[m, n] = acc


def test_20_compile_time_has_a_budget() -> None:
    """An analysis gets slower by an order of magnitude and nobody notices.

    From source to CUDA text a large product takes a fraction of a second."""

    def emitted() -> None:
        large.compiled.clear()  # an equal request would be answered from memory
        assert large.compile(target="sm_80", plan="multistage").cuda

    assert least_seconds(emitted) < 2


# ------------------------------------------------------------------------------------------ 21 diagnostics


@tg.kernel(warps=2)
def wrong_sizes(a: tg.Tensor[20, 9, "f16"], b: tg.Tensor[9, 7, "f16"], c: tg.Out[20, 7, "f32"]):
    c[:, :] = tg.dot(tg.load(a[:, :]), tg.load(b[:, :]))


def test_21_one_rule_at_a_time() -> None:
    """Each corrected size brings up the next rule that is broken.

    One report names every size and the nearest legal one, under the line of the product."""
    with pytest.raises(NoInstruction) as caught:
        wrong_sizes.compile(target="sm_80")
    text = str(caught.value)
    assert all(f"{name} is no multiple of {unit}" in text for name, unit in (("M=20", 16), ("N=7", 8), ("K=9", 16)))
    assert "tg.dot(tg.load(a[:, :]), tg.load(b[:, :]))" in text
    assert "^" in text


def test_21_no_source_file() -> None:
    """A kernel that was made by exec, or typed at a prompt, ends the interpreter or dies of an OSError.

    It raises an ordinary, coded exception that says what to do."""
    space: dict[str, Any] = {"tg": tg}
    exec("@tg.kernel\ndef k(y: tg.Out[4, 'f32']):\n    y[:] = tg.zeros((4,))", space)
    with pytest.raises(NoSource, match="source"):
        space["k"].compile(target="sm_80")


def test_21_missing_run_time_library() -> None:
    """A library that is not there is noticed long afterwards, as an unknown function.

    Without the compiler wheel, planning, checking and simulation work; compiling names what to install."""
    program = """
        import sys
        sys.modules["cuda"] = None
        sys.modules["nvidia"] = None
        sys.path.insert(0, {here!r})
        from test_use import scaled
        k = scaled.compile(target="sm_80")
        assert k.check().safe
        try:
            k.cubin
        except Exception as error:
            print(type(error).__name__, error.code, "pip install" in str(error))
    """
    text = textwrap.dedent(program).format(here=str(Path(__file__).parent))
    env_free = [sys.executable, "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{text}"]
    done = subprocess.run(
        env_free, capture_output=True, text=True, check=False, env={"TIDEGATE_CACHE_DIR": "/nonexistent"}
    )
    assert done.stdout.strip() == "NoCompiler TG811 True", done.stderr


def test_21_a_refusal_is_coded_wherever_it_comes_from() -> None:
    """Assertions and back-end codes reach the user.

    Wrong constants, schedules and warps are errors of the catalogue."""
    for given in ({"S": 0}, {"S": "two"}, {"BY": "x"}, {"warps": 3}, {"NO": 1}, {"R": -1}, {"plan": "none"}):
        with pytest.raises(TidegateError) as caught:
            scaled.compile(target="sm_80", **given)
        assert caught.value.code.startswith("TG")
        assert caught.value.code != "TG899"
        assert caught.value.next_step


# ------------------------------------------------------------------------------------------ numbers


@tg.kernel(warps=4)
def extremes(x: tg.Tensor["R", "C", "f16"], y: tg.Out["R", "f32"], z: tg.Out["R", "f16"], *, C=40):
    for r in tg.grid(tg.tiles("R", 8)):
        t = tg.load(x[r, :])
        y[r] = t.max(axis=1).astype("f32")
        z[r] = t.sum(axis=1)


def test_numbers_of_a_reduction() -> None:
    """The identity of a fold, or zeros beyond an edge, win over what is there; NaN gets lost; a sum is rounded often.

    Largest elements of negative rows, NaN and infinities are NumPy's; a sum of 4096 ones and a half is exact in f32."""
    x = -np.abs(normal(11, 40, dtype=F16)) - F16(1)
    x[1, 3], x[2, 5], x[3, :] = np.nan, -np.inf, -np.inf
    y, z = unwritten(11), unwritten(11, dtype=F16)
    agree(extremes, x, y, z, multiples={"R": 1}, C=40)
    assert np.array_equal(y, x.max(axis=1).astype(np.float32), equal_nan=True)
    ones = np.full((8, 4096), 1, F16)
    ones[:, 0] = F16(0.5)
    many = unwritten(8, dtype=F16)
    extremes.plain(ones, unwritten(8), many, C=4096)
    assert (many == F16(4096)).all()


@tg.kernel(warps=2)
def masked_tail(x: tg.Tensor["R", "N", "f32"], y: tg.Out["R", "f32"], *, MASK=True):
    for r in tg.grid(tg.tiles("R", 8)):
        top = tg.full((8, 1), -1e30)
        for n in tg.tiles("N", 32):
            t = tg.load(x[r, n], by=cuda.cp_async(), stages=2)
            if MASK:
                t = tg.where(tg.positions(n) < 37, t, -1e30)
            top = tg.maximum(top, t.max(axis=1, keepdims=True))
        y[r] = top.sum(axis=1)


@pytest.mark.parametrize("mask", [True, False])
def test_numbers_beyond_an_edge(mask: bool) -> None:
    """What lies beyond an edge is left from an earlier copy, or counts although the mask says no.

    It is zero, written by the copy itself, in registers and in shared memory; masks by position leave it out."""
    x = -np.abs(normal(9, 37)) - 1
    y = unwritten(9)
    agree(masked_tail, x, y, MASK=mask)
    assert np.array_equal(y, x.max(axis=1) if mask else np.zeros(9))
