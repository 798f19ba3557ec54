"""The order in which CTAs take tiles: each tile once, those with more work first."""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from kernels import example

from tidegate.emit.context import Context
from tidegate.emit.grid import grid_lines
from tidegate.errors import PlanRejected
from tidegate.ir.expr import parse
from tidegate.ir.spec import verify
from tidegate.ir.text import parse_kernel
from tidegate.plan.grid import direction


def test_ctas_with_more_work_come_first() -> None:
    attention = example("attention_small")
    causal = attention.attention_causal.compile(target="h200")
    assert [a.backwards for a in causal.plan.grid] == [False, False, True]
    assert "m = columns - 1 - (cta / height);" in causal.cuda
    assert not any(a.backwards for a in attention.attention.compile(target="h200").plan.grid)


def test_the_order_of_ctas_is_a_part_of_the_plan() -> None:
    gemm = example("gemm").gemm_v2
    plan = gemm.compile(target="sm_80").plan
    rows, columns = plan.grid
    assert (rows.band, columns.band, "bands of 8 along m" in str(plan)) == (8, 1, True)
    straight = replace(plan, grid=(replace(rows, band=1), replace(columns, backwards=True)))
    other = gemm.compile(target="sm_80", plan=straight)
    assert "const int m = cta / columns, n = columns - 1 - (cta % columns);" in other.cuda
    assert other.check().safe
    for wrong in ((columns, rows), (replace(rows, band=0), columns), (rows, replace(columns, band=4)), ()):
        with pytest.raises(PlanRejected):
            gemm.compile(target="sm_80", plan=replace(plan, grid=wrong))
    broken = parse_kernel("kernel k target sm_80 warps 1 smem 0\ngrid m < 3\ngrid n < 3 band 2\nbody {\n}\n")
    assert "only the axis before the last one" in str(verify(broken)[0])


GRIDS = [((5,), (0,)), ((9, 3), (1,)), ((17, 4), (0, 1)), ((2, 3, 9, 4), (0, 1, 2, 3)), ((3, 2, 5), (1,)), ((4, 3), ())]


@pytest.mark.parametrize("band", [1, 3, 8])
@pytest.mark.parametrize(("extents", "turned"), GRIDS)
def test_every_tile_has_one_cta(extents: tuple[int, ...], turned: tuple[int, ...], band: int) -> None:
    names = "abcd"[: len(extents)]
    text = "kernel k target sm_80 warps 1 smem 0\n"
    for i, (name, extent) in enumerate(zip(names, extents, strict=True)):
        rows = f" band {band}" if i == len(extents) - 2 else ""
        text += f"grid {name} < {extent}{rows}{' backwards' if i in turned else ''}\n"
    text += "body {\n}\n"
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
