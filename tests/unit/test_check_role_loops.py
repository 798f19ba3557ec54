"""Loops of kernels with roles: which of their trips are alike, for every number of trips."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tidegate.check import check
from tidegate.ir.text import parse_kernel


@pytest.mark.parametrize("condition", ["n / 8 < 1", "n * n < 50", "max(n, 9) % 4 == 1", "(n + 3) / 12 == n / 12"])
def test_roles_look_at_single_trips_in_the_middle_of_a_loop(condition: str) -> None:
    """A copy is not awaited from some trip on: trips that differ only in their number are not one there."""
    ring = (Path(__file__).parents[1] / "corpus" / "08_ring.tir").read_text()
    wait = "      wait full[r] flip 0\n"
    kernel = parse_kernel(ring.replace(wait, f"      if {condition} {{\n{wait}      }}\n"))
    for sizes in ({}, {"N": 128 * 30}, {"N": 128 * 200}):
        assert not check(kernel, sizes).safe


HANDSHAKE = """
kernel k target sm_90a warps 5 smem 1056
param a f32 [200, 128] in align 16
param o f32 [200, 128] out align 4
layout own [1, 128] reg - lane 0,1 0,2 0,4 0,8 0,16 warp 0,32 0,64 rep 1,1
buffer t f32 [1, 128] stages 2 at 0 stride 512
mbarrier full stages 2 count 1 at 1024
mbarrier empty stages 2 count 4 at 1040
cursor w depth 2
cursor r depth 2
register x f32 layout own
role reader warps 0 count 4
role copier warps 4 count 1
body {
  barrier_init full
  barrier_init empty
  fence_barrier_init
  sync_block
  in copier {
    for n = 0 .. 200 {
      wait empty[w] flip 1
      expect full[w] bytes 512
      tma_load t[w] <- a[n, 0] bar full[w]
      advance w
    }
  }
  in reader {
    for n = 0 .. 200 {
      wait full[r] flip 0
      ld_shared x <- t[r] bytes 4
      fence_async shared
      sync_warp
      if CONDITION {
      arrive empty[r] by warp
      }
      st_global o[n, 0] <- x bytes 4
      advance r
    }
  }
}
"""


@pytest.mark.parametrize("condition", ["n != 100", "n != 66", "max(n, 150) != 155", "max(n - 50, 50 - n) != 1"])
def test_roles_that_skip_one_release_far_from_both_ends_deadlock(condition: str) -> None:
    assert check(parse_kernel(HANDSHAKE.replace("CONDITION", "0 <= n"))).safe
    assert check(parse_kernel(HANDSHAKE.replace("CONDITION", condition))).status == "unsafe"


def of_any_size(text: str) -> str:
    return text.replace("200", "N").replace("param a", "dim N\ndim M\nparam a", 1)


@pytest.mark.parametrize("far", [40])
def test_roles_tell_far_trips_apart_for_every_size(far: int) -> None:
    always = of_any_size(HANDSHAKE.replace("CONDITION", "0 <= n"))
    store = "      st_global o[n, 0] <- x bytes 4\n"
    assert store in always
    assert check(parse_kernel(always.replace(store, f"      if n < {far} {{\n{store}      }}\n"))).safe
    assert check(parse_kernel(of_any_size(HANDSHAKE.replace("CONDITION", f"n != {far}")))).status == "unsafe"


@pytest.mark.parametrize("times", [2, 3])
@pytest.mark.parametrize("text", [HANDSHAKE.replace("param a", "dim M\nparam a", 1), of_any_size(HANDSHAKE)])
def test_roles_with_several_loops_of_one_end(text: str, times: int) -> None:
    """In conditional parts too each of them is a loop of its own, whoever is ahead."""
    text = text.replace("CONDITION", "0 <= n")
    for loop in re.findall("    for n.*?\n    }\n", text, re.DOTALL):
        text = text.replace(loop, f"    if 0 < M {{\n{loop}    }}\n" * times)
    assert check(parse_kernel(text)).safe


@pytest.mark.parametrize(("copies", "reads"), [(300, 100), (100, 300), (300, 300)])
@pytest.mark.parametrize("end", ["(i + 1) / 2", "i", "i % 2"])
def test_roles_whose_long_loops_end_elsewhere_deadlock(end: str, copies: int, reads: int) -> None:
    """Nothing is left out of two loops together that are not as long as one another."""
    text = HANDSHAKE.replace("CONDITION", "0 <= n").replace("[200, 128]", "[400, 128]")
    copier, reader = re.findall("    for n.*?\n    }\n", text, re.DOTALL)
    for loop, length in ((copier, copies), (reader, reads)):
        longer = loop.replace(".. 200", f".. {end} + {length}")
        text = text.replace(loop, f"    for i = 1 .. 2 {{\n{longer}    }}\n")
    assert check(parse_kernel(text)).safe == (copies == reads)


COPY = "wait empty[w] flip 1\nexpect full[w] bytes 512\ntma_load t[w] <- a[0, 0] bar full[w]\nadvance w\n"
READ = "wait full[r] flip 0\nld_shared x <- t[r] bytes 4\nfence_async shared\nsync_warp\n"
READ += "arrive empty[r] by warp\nadvance r\n"
LOOK = "ld_shared x <- u[z] bytes 4\nadvance z\n"
"""Reads the next slot of another ring."""


def two_roles(copier: str, reader: str, hole: int | None = None, slots: int = 2, others: int = 5) -> str:
    """Roles with a ring of some slots between them; the reader has another, of which it does not write one."""
    bars = 512 * (slots + others)
    fills = "".join(
        "advance z\n" if slot == hole else "st_shared u[z] <- x bytes 4\nadvance z\n" for slot in range(others)
    )
    return f"""
kernel k target sm_90a warps 5 smem {bars + 16 * slots}
dim N
dim M
param a f32 [64, 128] in align 16
layout own [1, 128] reg - lane 0,1 0,2 0,4 0,8 0,16 warp 0,32 0,64 rep 1,1
buffer t f32 [1, 128] stages {slots} at 0 stride 512
buffer u f32 [1, 128] stages {others} at {512 * slots} stride 512
mbarrier full stages {slots} count 1 at {bars}
mbarrier empty stages {slots} count 4 at {bars + 8 * slots}
cursor w depth {slots}
cursor z depth {others}
cursor r depth {slots}
register x f32 layout own
role reader warps 0 count 4
role copier warps 4 count 1
body {{
barrier_init full
barrier_init empty
fence_barrier_init
sync_block
in copier {{
{copier}}}
in reader {{
fill x <- 0.0
{fills}{reader}}}
}}
"""


@pytest.mark.parametrize(("length", "hole"), [(113, 0), (113, 6), (112, 3), (117, None)])
def test_what_recurs_in_another_trip_of_the_loop_around_is_no_cycle(length: int, hole: int | None) -> None:
    """One slot is never written. A long inner loop leaves out cycles; in which trip around it the slot is reached, its
    length decides."""
    nest = f"for m = 0 .. N {{{{\nfor n = 0 .. {length} {{{{\n{{}}}}}}\n{{}}}}}}\n"
    copier, reader = nest.format(COPY, ""), nest.format(READ, "ld_shared x <- u[r] bytes 4\n")
    verdict = check(parse_kernel(two_roles(copier, reader, hole, 7, 7)))
    trips = next((m for m in range(1, 8) if length * m % 7 == hole), None)
    assert verdict.status == ("safe" if trips is None else "unsafe"), verdict.text()


def test_roles_count_trips_from_a_start_below_zero() -> None:
    text = (
        HANDSHAKE.replace("n = 0 ..", "n = 0 - 5 ..")
        .replace("a[n, 0]", "a[n + 5, 0]")
        .replace("o[n, 0]", "o[n + 5, 0]")
    )
    text = text.replace("[200, 128]", "[205, 128]")
    assert check(parse_kernel(text.replace("CONDITION", "0 - 5 <= n"))).safe
    verdict = check(parse_kernel(text.replace("CONDITION", "n != 30")))
    assert [f.kind for f in verdict.findings] == ["deadlock"]


@pytest.mark.parametrize(
    ("outer", "inner", "condition"),
    [
        ("i = 0 .. N", "j = 0 .. M", "j == i"),
        ("i = 0 .. N", "j = 0 .. 110", "j == i + 3"),
        ("i = 0 .. 8", "j = 0 .. 300", "j == 20 * i"),
        ("i = 0 .. 12", "j = 0 .. N", "j == 5 * i + 2 || j + 30 * i == 0"),
        ("i = 0 .. N", "j = 0 .. 3", "20 * j + 10 == i"),
        ("i = 0 .. 10", "j = 0 - 20 * i .. 200", "j == 0"),
        ("i = 0 - 50 .. 0 - 40", "j = i .. 200", "j == 0"),
    ],
)
def test_indices_that_are_compared_with_others_are_not_alike_in_all_trips(
    outer: str, inner: str, condition: str
) -> None:
    nest = f"for {outer} {{{{\nfor {inner} {{{{\n{{}}}}}}\n}}}}\n"
    for hole in (3, 4):
        looks = f"{READ}if {condition} {{\n{LOOK}}}\n"
        assert not check(parse_kernel(two_roles(nest.format(COPY), nest.format(looks), hole))).safe
    verdict = check(parse_kernel(two_roles(nest.format(COPY), nest.format(looks))))
    assert verdict.safe or "with more than constants and the end of its own loop" in verdict.reason


@pytest.mark.parametrize(
    ("outer", "inner", "trips"),
    [
        ("N", "0 .. i", lambda i: i),
        ("110", "0 .. i", lambda i: i),
        ("N", "i .. 90", lambda i: max(90 - i, 0)),
        ("110", "i .. 120", lambda i: 120 - i),
        ("N", "0 .. max(i - 8, 0)", lambda i: max(i - 8, 0)),
    ],
)
def test_trips_of_an_inner_loop_that_change_are_counted(outer: str, inner: str, trips: Callable[[int], int]) -> None:
    """The reader moves on in its other ring by another number of slots each time."""
    move = f"for j = {inner} {{\nadvance z\n}}\nld_shared x <- u[z] bytes 4\n"
    copier, reader = f"for i = 0 .. {outer} {{\n{COPY}}}\n", f"for i = 0 .. {outer} {{\n{move}{READ}}}\n"
    reached = {sum(map(trips, range(i + 1))) % 5 for i in range(60)}
    for hole in range(5):
        verdict = check(parse_kernel(two_roles(copier, reader, hole)))
        assert not (verdict.safe and hole in reached)
        assert verdict.safe or hole in reached or outer == "N"


@pytest.mark.parametrize("end", ["300", "N + 3"])
def test_loops_in_sibling_loops_are_others(end: str) -> None:
    loop = "for {} = 0 .. 1 {{\nfor j = {} .. {} {{\n{}}}\n}}\n"
    copier = loop.format("p", 0, end, COPY) + loop.format("q", 0, end, COPY)
    reader = loop.format("p", 0, end, READ) + 3 * READ + loop.format("q", 3, end, READ)
    assert check(parse_kernel(two_roles(copier, reader))).safe
    less = reader[: reader.rindex("arrive empty")] + reader[reader.rindex("advance r") :]
    assert check(parse_kernel(two_roles(copier, less))).status == "unsafe"
