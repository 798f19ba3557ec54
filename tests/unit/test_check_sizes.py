"""Kernels of many sizes: loops that other indices limit, sizes with factors, and combinations of sizes."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernels import example

from tidegate.check import check
from tidegate.errors import WrongArguments
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


@pytest.mark.parametrize("end", [
    "m + 1 - max(m * 32 - 100, 0) / 32",
    "m + 1 - max(m * 32 - 4096, 0) / 32",
    "m + 1 - max(m - 128, 0)",
    "max(m * 32 - 100, 0) / 32",
    "min(m + 1, 128)",
    "cdiv(N, 32) - max(m * 32 - 100, 0) / 32",
    "m * m - m - 1",
    "m / 2 - m / 3",
])  # fmt: skip
def test_ends_that_no_rule_covers_are_numbers(end: str) -> None:
    """A fill, its loop and what the loop reads ahead agree on the number of trips, whatever it is."""
    body = BODY.replace("cdiv(N, 32)", f"({end})")
    for sizes in ({}, {"M": 512, "N": 512}):
        verdict = check(parse_kernel(f"{HEAD}{body}}}"), sizes)
        assert verdict.safe, verdict.text()
    for broken in ("    sync_block #s\n", "    cp_wait 0 #w\n", "  cp_commit #c0\n"):
        verdict = check(parse_kernel(f"{HEAD}{body}}}".replace(broken, "")))
        assert verdict.status == "unsafe", (broken, verdict.text())
    less = body.replace(f"if 0 < ({end})", f"if 1 < ({end})")
    assert less != body
    assert check(parse_kernel(f"{HEAD}{less}}}")).status == "unsafe"


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


NOWHERE = """
kernel k target sm_80 warps 2 smem 1024
dim N
layout tile [8, 32] reg - lane 0,1 0,2 0,4 0,8 0,16 warp 1,0 rep 4,1
layout other [8, 32] reg - lane 1,0 2,0 4,0 0,1 0,2 warp 0,4 rep 1,4
buffer t f32 [8, 32] stages 1 at 0 stride 1024
register v f32 layout tile
register w f32 layout other
grid h < 3
grid m < N
body {
  fill v <- 0.0
  if m < h && h % 2 == 0 {
    if h % 3 == REST {
      st_shared t <- v bytes 4
      ld_shared w <- t bytes 4
    }
  }
}
"""


@pytest.mark.parametrize(("rest", "status"), [(0, "safe"), (1, "safe"), (2, "unsafe")])
def test_a_fixed_extent_and_remainders_tell_where_a_cta_is(rest: int, status: str) -> None:
    assert check(parse_kernel(NOWHERE.replace("REST", str(rest)))).status == status


FEW = """
kernel k target sm_80 warps 2 smem 3072
dim MDIM
param a f32 [8, 32] in align 16
layout tile [8, 32] reg - lane 0,1 0,2 0,4 0,8 0,16 warp 1,0 rep 4,1
layout other [8, 32] reg - lane 1,0 2,0 4,0 0,1 0,2 warp 0,4 rep 1,4
buffer t f32 [8, 32] stages 3 at 0 stride 1024
cursor c depth 3
cursor d depth 3
register v f32 layout tile
register w f32 layout other
grid m < M
body {
  fill v <- 0.0
  advance d
  advance d
  st_shared t[d] <- v bytes 4
  sync_block
  ld_shared w <- t[d] bytes 4
  for i = 0 .. END {
    BODY
    advance c
  }
}
"""

TWO_TRIPS = "st_shared t[c] <- v bytes 4"
"""In order unless a third trip writes the slot that others still read."""

AWAITED_LATER = "sync_block\ncp_async t[c] <- a[0, 0] layout tile bytes 4\nif i != 0 {\ncp_commit\ncp_wait 0\n}"
"""In order unless there is one trip alone."""


@pytest.mark.parametrize(
    ("body", "end", "dim", "status"),
    [
        (TWO_TRIPS, "min(2, cdiv((m + 1) * 16, 128))", "M", "safe"),
        (TWO_TRIPS, "min(3, cdiv((m + 1) * 16, 128))", "M", "unsafe"),
        (AWAITED_LATER, "M", "M multiple 8", "safe"),
        (AWAITED_LATER, "M", "M", "unsafe"),
    ],
)
def test_how_many_trips_there_surely_are(body: str, end: str, dim: str, status: str) -> None:
    text = FEW.replace("END", end).replace("BODY", body).replace("MDIM", dim)
    assert check(parse_kernel(text)).status == status


def test_loops_of_one_name_are_told_apart_as_each_of_them_needs() -> None:
    kernel = parse_kernel(f"{HEAD}{BODY.replace('cdiv(N, 32)', '3')}  for n = 0 .. 1 {{\n    advance w\n  }}\n}}")
    assert check(kernel).safe


def test_a_part_of_a_range_is_no_run() -> None:
    """Trip 20 writes what trip 25 reads: a run that begins in the middle does not exist."""
    body = "for i = 0 .. 90 {\nif max(i - 20, 20 - i) == 0 {\nst_shared t[d] <- v bytes 4\nsync_block\n}\n"
    body += "if max(i - 25, 25 - i) == 0 {\nld_shared w <- t[d] bytes 4\n}\n}\n"
    text = FEW.replace("  for i = 0 .. END {\n    BODY\n    advance c\n  }\n", body).replace("MDIM", "M")
    text = text.replace(
        "  advance d\n  advance d\n  st_shared t[d] <- v bytes 4\n  sync_block\n  ld_shared w <- t[d] bytes 4\n", ""
    )
    assert check(parse_kernel(text.replace("grid m < M\n", "").replace("dim M\n", ""))).safe


def test_a_compiled_kernel_is_checked_for_given_sizes() -> None:
    compiled = example("row_ring").row_ring.compile("sm_80")
    verdict = compiled.check(sizes={"R": 64})
    assert verdict.safe
    assert "R = 64" in verdict.scope
    with pytest.raises(WrongArguments, match="no launch argument"):
        compiled.check({"other": 5})
