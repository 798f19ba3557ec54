"""Copies whose guards and loops depend on what is computed of indices: the fill, the copy ahead and the read agree."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from judging import without
from language import kernel_of

from tidegate.check import check
from tidegate.ir import tir


def agrees(kernel: Any, **constants: Any) -> None:
    """The plan is safe for all sizes and numbers, and each of its syncs is needed."""
    found = kernel.compile("sm_80", multiples=dict.fromkeys(kernel.dims, 1), **constants).kernel
    verdict = check(found)
    assert verdict.safe, verdict.text()
    for sync in (s for s in tir.walk(found.body) if isinstance(s, tir.Sync)):
        assert check(replace(found, body=without(found.body, sync))).status == "unsafe", sync


GUARDED = """
import tidegate as tg

@tg.kernel(warps=1)
def program(x: tg.Tensor["T", 32, "f32"], g: tg.Tensor["T", "i32"], h: tg.Tensor["T", "i32"], off: tg.Scalar["i32"],
            y: tg.Out[32, "f32"], *, S=2):
    s = tg.zeros((32,))
    for i in tg.range("T"):
        if CONDITION:
            s += tg.load(x[i, :], stages=S)
    y[:] = s
"""

READS = (
    "i", "i + 1", "i * 2", "i // 2", "(i + 3) // 4", "i % 2", "tg.size('T') - 1 - i", "5 - i", "off - i", "off + i",
    "tg.abs(i - 4)", "tg.minimum(i, 3)", "tg.maximum(i - 2, 0)", "tg.load(h[i])", "tg.load(h[i // 2])",
)  # fmt: skip

CONDITIONS = (
    "i // 2 == off", "i // 2 < off", "i % 2 == off", "(off + i) % 2 == 0", "(off - i) % 2 == 0",
    "i % tg.maximum(off, 1) == 0", "(tg.size('T') - 1 - i) // 2 > 3", "(tg.size('T') - i) // 2 > off",
    "tg.minimum(3 - i, off) > 1", "(i * 3) // 2 > 4", "tg.abs(i - off) <= 2",
    "tg.load(g[i]) != tg.load(g[tg.size('T') - 1])", "tg.load(g[i]) == tg.load(g[i + 1])",
)  # fmt: skip


@pytest.mark.parametrize("condition", [*(f"tg.load(g[{e}]) == 0" for e in READS), *CONDITIONS])
def test_guards_of_copies_ahead(condition: str) -> None:
    kernel = kernel_of(GUARDED.replace("CONDITION", condition))
    for stages in (2, 3):
        agrees(kernel, S=stages)


NESTED = """
import tidegate as tg

@tg.kernel(warps=1)
def program(x: tg.Tensor["K", 32, "f32"], y: tg.Out[32, "f32"], *, S=2):
    s = tg.zeros((32,))
    for k in tg.range("K"):
        for j in EXTENT:
            s += tg.load(x[j, :], stages=S)
    y[:] = s
"""


@pytest.mark.parametrize("extent", [
    "k", "k + 1", "k + 3", "k - 1", "k - 3", "tg.maximum(k - 3, 0)", "tg.minimum(k, 3)", "3 - k", "k % 3",
    "tg.size('K') - k", "tg.size('K') - 2 - k", "(k * 16 - 17 + 15) // 16",
])  # fmt: skip
def test_loops_that_an_index_around_limits(extent: str) -> None:
    kernel = kernel_of(NESTED.replace("EXTENT", f"tg.range({extent})"))
    for stages in (2, 3):
        agrees(kernel, S=stages)


STRIDED = """
import tidegate as tg

@tg.kernel(warps=1)
def program(x: tg.Tensor["T", 32, "f32"], w: tg.Tensor["K", 32, "f32"], y: tg.Out["T2", 32, "f32"], *, S=2, BY=2):
    for t in tg.grid(tg.range("T2")):
        s = tg.zeros((32,))
        for k in tg.range("K"):
            p = t * BY + k - 1
            if p >= 0 and p < tg.size("T"):
                s += tg.load(x[p, :], stages=S) * tg.load(w[k, :])
        y[t, :] = s
"""


@pytest.mark.parametrize("by", [1, 2, 3])
def test_guards_of_strided_windows(by: int) -> None:
    for stages in (2, 3):
        agrees(kernel_of(STRIDED), S=stages, BY=by)
