"""`tidegate sanitize` on a GPU: a race is found where it is written, and a correct kernel is clean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tidegate.errors import NoSanitizer
from tidegate.ir import tir
from tidegate.ir.text import parse_kernel
from tidegate.runtime.sanitize import find_sanitizer, sanitize
from tidegate.runtime.trial_sizes import trial_arrays, trial_sizes

KERNELS = Path(__file__).parents[1] / "mutants" / "kernels"


def transpose(*edits: tuple[str, str]) -> tir.Kernel:
    text = (KERNELS / "transpose4.tir").read_text()
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    return parse_kernel(text)


def report(kernel: tir.Kernel, tools: tuple[str, ...], delays: int = 0) -> Any:
    try:
        find_sanitizer()
    except NoSanitizer as error:
        pytest.skip(error.text)
    return sanitize(kernel, trial_arrays(kernel, trial_sizes(kernel, {})), tools, delays)


def test_a_correct_kernel_is_clean(gpu: Any) -> None:
    found = report(transpose(), ("memcheck", "racecheck", "synccheck"), 3)
    assert found.clean, found


def test_a_race_is_reported_at_its_statements(gpu: Any) -> None:
    kernel = transpose()
    racy = tir.Kernel(**{**vars(kernel), "body": without_barriers(kernel.body)})
    found = report(racy, ("racecheck",))
    assert not found.clean
    places = [p.statement for f in found.tools[0].findings for p in f.places]
    assert any(p.startswith("ld_shared") for p in places), found


def without_barriers(body: tuple[tir.Stmt, ...]) -> tuple[tir.Stmt, ...]:
    from dataclasses import replace

    return tuple(
        replace(s, body=without_barriers(s.body)) if isinstance(s, (tir.For, tir.If)) else s
        for s in body
        if not isinstance(s, (tir.SyncBlock, tir.BarSync))
    )
