"""Global memory: what one index is in several loops, and accesses that are not complete when they are issued."""

from __future__ import annotations

import pytest

from tidegate.check import check
from tidegate.ir.text import parse_kernel

ROWS = """
kernel k target sm_80 warps 1 smem 0
param o f32 [64, 32] out align 16
grid g < 4
layout row [1, 32] reg - lane 0,1 0,2 0,4 0,8 0,16 warp - rep 1,1
register x f32 layout row
body {
  fill x <- 1.0
  for i = 0 .. 3 {
    st_global o[g * STEP + i, 0] <- x bytes 4
  }
  for i = 3 .. 6 {
    st_global o[g * STEP + i, 0] <- x bytes 4
  }
}
"""


@pytest.mark.parametrize(("step", "status"), [(3, "unsafe"), (5, "unsafe"), (6, "safe"), (7, "safe")])
def test_loops_with_one_index_name_range_over_the_values_of_both(step: int, status: str) -> None:
    verdict = check(parse_kernel(ROWS.replace("STEP", str(step))))
    assert verdict.status == status, verdict.text()


ENGINE = """
kernel k target sm_90a warps 1 smem 1088
param a f32 [8, 32] inout align 16
param o f32 [4, 32] out align 16
layout u [4, 32] reg 1,0 2,0 lane 0,1 0,2 0,4 0,8 0,16 warp - rep 1,1
buffer t f32 [4, 32] stages 1 at 0 stride 512
buffer q f32 [4, 32] stages 1 at 512 stride 512
mbarrier full stages 1 count 1 at 1024
cursor c depth 1
register x f32 layout u
body {
  barrier_init full
  fence_barrier_init
  sync_block
  fill x <- 7.0
  st_shared t <- x bytes 4
  fence_async shared
  sync_warp
  tma_store a[0, 0] <- t
  bulk_commit
  AGAIN
  bulk_wait 0 done
}
"""
LOAD = "expect full[c] bytes 512\n tma_load q <- a[ROW, 0] bar full[c]\n wait full[c] flip 0\n"
LOAD += "ld_shared x <- q bytes 4\n st_global o[0, 0] <- x bytes 4"
STORE = "tma_store a[ROW, 0] <- t\n bulk_commit"


@pytest.mark.parametrize("again", [LOAD, STORE], ids=["load", "store"])
def test_the_tensor_engine_takes_its_time(again: str) -> None:
    """That one thread issues two of its accesses says nothing of their order, unless they have no element in common."""
    text = ENGINE.replace("AGAIN", again)
    verdict = check(parse_kernel(text.replace("ROW", "0")))
    assert verdict.status == "not proved"
    assert "tensor engine" in verdict.reason
    assert check(parse_kernel(text.replace("ROW", "4"))).safe


COPY = """
kernel k target sm_80 warps 1 smem 512
param a f32 [8, 32] inout align 16
layout u [4, 32] reg 1,0 2,0 lane 0,1 0,2 0,4 0,8 0,16 warp - rep 1,1
buffer t f32 [4, 32] stages 1 at 0 stride 512
register x f32 layout u
body {
  fill x <- 7.0
  cp_async t <- a[0, 0] layout u bytes 4
  st_global a[ROW, 0] <- x bytes 4
  cp_commit
  cp_wait 0
}
"""


def test_the_source_of_a_copy_in_flight_is_not_written() -> None:
    assert check(parse_kernel(COPY.replace("ROW", "0"))).status == "not proved"
    assert check(parse_kernel(COPY.replace("ROW", "4"))).safe
