"""Kernels of many sizes: loops that other indices limit, sizes with factors, and combinations of sizes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.check import check
from tidegate.ir.text import parse_kernel

RING = (Path(__file__).parents[1] / "mutants" / "kernels" / "transpose_ring.tir").read_text()
HEAD, BODY = RING[: RING.index("  if 0 <")], RING[RING.index("  if 0 <") : RING.rindex("}")]


@pytest.mark.parametrize("size", [1, 8, 32, 48, 96, 320])
@pytest.mark.parametrize("around", ["", "for i = 0 .. M {{\n{}}}\n", "for i = 0 .. 3 {{\n{}}}\n"])
def test_loops_that_a_tile_limits(size: int, around: str) -> None:
    """The limiting tile is one of the grid, or of a loop around of an unknown or a known number of trips."""
    index = "i" if around else "m"
    limit = f"min(cdiv(N, 32), cdiv(({index} + 1) * {size}, 32))"
    body = BODY.replace("cdiv(N, 32)", limit)
    body = around.format(body.replace("    st_global b[n * 32 < N, m * 32 < M] <- v bytes 4\n", "")) if around else body
    verdict = check(parse_kernel(f"{HEAD}{body}}}"))
    assert verdict.safe, verdict.text()
    for broken in ("    sync_block #s\n", "    cp_wait 0 #w\n", "  cp_commit #c0\n"):
        assert check(parse_kernel(f"{HEAD}{body}}}".replace(broken, ""))).status == "unsafe", broken


def test_only_sizes_that_the_factor_divides_occur() -> None:
    copy = "if 0 < N {\n cp_async t[w] <- a[0 < M, 0 < N] layout tile bytes 4\n }\n cp_commit\n"
    body = f"{copy}for n = 0 .. cdiv(N, 32) {{\n if n == 1 {{\n cp_wait 0\n }}\n }}\n"
    text = f"{HEAD}{body}}}"
    assert check(parse_kernel(text.replace("dim N", "dim N multiple 64"))).safe
    verdict = check(parse_kernel(text.replace("dim N", "dim N multiple 16")))
    assert verdict.status == "unsafe"
    assert "N = 32" in verdict.scope


@pytest.mark.parametrize("around", ["{}", "for i = 0 .. M {{\n{}}}\n"])
def test_many_sizes(around: str) -> None:
    """Loops over eight sizes, one after the other, go on with one ring."""
    sizes = "".join(f"dim N{number}\n" for number in range(8))
    inner = BODY.replace("    st_global b[n * 32 < N, m * 32 < M] <- v bytes 4\n", "")
    loops = [inner.replace("cdiv(N,", f"cdiv(N{number},") for number in range(8)]
    text = f"{HEAD.replace('dim M', f'{sizes}dim M', 1)}{around.format(''.join(loops))}}}"
    verdict = check(parse_kernel(text))
    assert verdict.safe, verdict.text()
    last = f"{around.format(''.join(loops[:-1]) + loops[-1].replace('    sync_block #s', ''))}}}"
    assert check(parse_kernel(f"{HEAD.replace('dim M', f'{sizes}dim M', 1)}{last}")).status == "unsafe"
