"""The order in which CTAs take tiles: each tile once, those with more work first."""

from __future__ import annotations

import itertools
import math
import re
from types import SimpleNamespace
from typing import Any

import pytest
from kernels import example

from tidegate.emit.context import Context
from tidegate.emit.grid import direction, grid_lines
from tidegate.ir.expr import parse
from tidegate.ir.text import parse_kernel


def test_ctas_with_more_work_come_first() -> None:
    attention = example("attention_small")
    assert "m = columns - 1 - (cta / height);" in attention.attention_causal.compile(target="h200").cuda
    assert " - 1 - " not in "".join(grid_lines(Context(attention.attention.compile(target="h200").kernel)))


GRIDS = [((5,), (0,)), ((9, 3), (1,)), ((17, 4), (0, 1)), ((2, 3, 9, 4), (0, 1, 2, 3)), ((3, 2, 5), (1,))]


@pytest.mark.parametrize(("extents", "turned"), GRIDS)
def test_every_tile_has_one_cta(extents: tuple[int, ...], turned: tuple[int, ...]) -> None:
    names = "abcd"[: len(extents)]
    loops = "".join(f"  for l{i} = 0 .. cdiv(({names[i]} + 1) * 128, 64) {{\n  }}\n" for i in turned)
    text = "kernel k target sm_80 warps 1 smem 0\n"
    text += "".join(f"grid {n} < {e}\n" for n, e in zip(names, extents, strict=True)) + "body {\n" + loops + "}\n"
    lines = (
        re.sub("//.*", "", line).replace("const int ", "").replace("int ", "")
        for line in grid_lines(Context(parse_kernel(text)))
    )
    program = re.sub(r", (?=\w+ = )", "; ", "\n".join(lines)).replace(" /= ", " //= ").replace(" / ", " // ")
    taken = []
    for cta in range(math.prod(extents)):
        space: dict[str, Any] = {"blockIdx": SimpleNamespace(x=cta), "min": min}
        exec(program, space)
        taken.append(tuple(space[n] for n in names))
    assert sorted(taken) == list(itertools.product(*map(range, extents)))
    assert taken[0] == tuple(e - 1 if i in turned else 0 for i, e in enumerate(extents))


@pytest.mark.parametrize(
    ("text", "way"),
    [("m", 1), ("n", 0), ("3 - m", -1), ("min(cdiv(n, 64), cdiv((m + 1) * 128, 64))", 1), ("m - m", None),
     ("m % 4", None), ("m * n", None), ("0 - m * 2 / 3", -1), ("max(m, 3 - m)", None)],
)  # fmt: skip
def test_direction_of_an_expression(text: str, way: int | None) -> None:
    assert direction(parse(text), "m") == way
