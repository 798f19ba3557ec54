"""Accesses that touch their bytes once in a launch are marked, and no others."""

from __future__ import annotations

import pytest
from language import kernel_of

from tidegate.ir import tir

HEAD = """import tidegate as tg
@tg.kernel(warps=1)
def program(x: tg.Tensor["M", "N", "f32"], y: tg.Out["M", "N", "f32"]):
"""
GRID = HEAD + '    for m, n in tg.grid(tg.tiles("M", 16), tg.tiles("N", 16)):\n'


@pytest.mark.parametrize(
    ("text", "once"),
    [
        (GRID + "        y[m, n] = tg.load(x[m, n]) * 2.0\n", "xy"),
        (GRID + "        y[m, n] = tg.load(x[m, n]) + tg.load(x[m, n]) * 2.0\n", "y"),
        (GRID + "        y[m, n] = tg.load(x[m, tg.begin(n) + 1 : tg.begin(n) + 17])\n", "y"),
        (
            HEAD + '    for m in tg.grid(tg.tiles("M", 16)):\n        for n in tg.tiles("N", 16):\n'
            "            y[m, n] = tg.load(x[m, n])\n",
            "xy",
        ),
        (
            GRID + '        acc = tg.zeros((16, 16))\n        for k in tg.range("N"):\n'
            "            acc += tg.load(x[m, n])\n        y[m, n] = acc\n",
            "y",
        ),
        (
            HEAD + '    for h, n in tg.grid(tg.range("M"), tg.tiles("N", 16)):\n        y[h, n] = tg.load(x[h, n])\n',
            "xy",
        ),
    ],
)
def test_what_is_touched_once(text: str, once: str) -> None:
    kernel = kernel_of(text).compile(target="sm_80").kernel
    found = {
        (s.src if isinstance(s, tir.LdGlobal) else s.dst).tensor
        for s in tir.walk(kernel.body)
        if isinstance(s, (tir.LdGlobal, tir.StGlobal)) and s.once
    }
    assert found == set(once)
