"""Hand-written kernels with roles, mbarriers, tensor copies and wgmma, with inputs and results; for tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tidegate.ir import tir
from tidegate.ir.text import parse_kernel

Arrays = dict[str, np.ndarray]

ACC = "reg 0,1 8,0 0,8 lane 0,2 0,4 1,0 2,0 4,0 warp 16,0 32,0 rep 1,1"

# One warp copies, a warpgroup multiplies; a slot is given back when the wgmma after its own has been committed.
MATMUL = f"""
kernel matmul target sm_90 warps 5 smem 8192
dim K multiple 8
param a f16 [64, K] in align 16
param b f16 [K, 16] in align 16
param c f32 [64, 16] out align 8
layout acc [64, 16] {ACC}
buffer ta f16 [64, 16] stages 3 at 0 stride 2048 swizzle 1,4,3
buffer tb f16 [16, 16] stages 3 at 6144 stride 512
mbarrier full stages 3 count 1 at 7680
mbarrier empty stages 3 count 4 at 7704
cursor w depth 3
cursor r depth 3
cursor p depth 3
register d f32 layout acc
role consumer warps 0 count 4
role producer warps 4 count 1
body {{
  barrier_init full #i0
  barrier_init empty #i1
  fence_barrier_init #i2
  sync_block #i3
  in producer {{
    for k = 0 .. cdiv(K, 16) {{
      wait empty[w] flip 1 #free
      expect full[w] bytes 2560 #expect
      tma_load ta[w] <- a[0, k * 16 < K] bar full[w] line 5
      tma_load tb[w] <- b[k * 16 < K, 0] bar full[w] line 6
      advance w
    }}
  }}
  in consumer {{
    fill d <- 0.0
    for k = 0 .. cdiv(K, 16) {{
      wait full[r] flip 0 #landed
      wgmma_fence #f
      wgmma d <- ta[r], tb[r] line 7
      wgmma_commit #m
      wgmma_wait 1 #done
      if 0 < k {{
        arrive empty[p] by warp #release
        advance p
      }}
      advance r
    }}
    wgmma_wait 0 #all
    st_global c[0, 0] <- d bytes 8
  }}
}}
"""

# Two warps read what one warp copies.
READ = """
kernel read target sm_90 warps 3 smem 1024
dim N multiple 4
param a f32 [2, N] in align 16
param b f32 [N, 2] out align 4
layout row [32, 2] reg - lane 1,0 2,0 4,0 8,0 16,0 warp 0,1 rep 1,1
buffer t f32 [2, 32] stages 2 at 0 stride 256
mbarrier full stages 2 count 1 at 512
mbarrier empty stages 2 count 1 at 528
cursor w depth 2
cursor r depth 2
register x f32 layout row
role reader warps 0 count 2
role copier warps 2 count 1
body {
  barrier_init full #i0
  barrier_init empty #i1
  fence_barrier_init #i2
  sync_block #i3
  in copier {
    for n = 0 .. cdiv(N, 32) {
      wait empty[w] flip 1 #free
      expect full[w] bytes 256 #expect
      tma_load t[w] <- a[0, n * 32 < N] bar full[w] line 5
      advance w
    }
  }
  in reader {
    for n = 0 .. cdiv(N, 32) {
      wait full[r] flip 0 #landed
      ld_shared x <- t[r].T bytes 4 line 6
      fence_async shared #fence
      bar_sync 1 warps 0,1 #group
      arrive empty[r] by role #release
      st_global b[n * 32 < N, 0] <- x bytes 4
      advance r
    }
  }
}
"""

# The same with cp.async by two warps, for the async proxy: the wgmma needs a fence.
COPY = f"""
kernel copy target sm_90 warps 8 smem 8192
dim K multiple 8
param a f16 [64, K] in align 16
param b f16 [K, 16] in align 16
param c f32 [64, 16] out align 8
layout acc [64, 16] {ACC}
layout ca [64, 16] reg 0,1 0,2 0,4 lane 0,8 1,0 2,0 4,0 8,0 warp 16,0 rep 2,1
layout cb [16, 16] reg 0,1 0,2 lane 0,4 0,8 1,0 2,0 4,0 warp 8,0 rep 1,1
buffer ta f16 [64, 16] stages 3 at 0 stride 2048 swizzle 1,4,3
buffer tb f16 [16, 16] stages 3 at 6144 stride 512
mbarrier full stages 3 count 64 at 7680
mbarrier empty stages 3 count 128 at 7704
cursor w depth 3
cursor r depth 3
register d f32 layout acc
role producer warps 0 count 2
role consumer warps 4 count 4 registers 240
body {{
  barrier_init full #i0
  barrier_init empty #i1
  sync_block #i3
  in producer {{
    for k = 0 .. cdiv(K, 16) {{
      wait empty[w] flip 1 #free
      cp_async ta[w] <- a[0, k * 16 < K] layout ca bytes 16 line 5
      cp_async tb[w] <- b[k * 16 < K, 0] layout cb bytes 8 line 6
      cp_arrive full[w] #arrive
      advance w
    }}
  }}
  in consumer {{
    setmaxnreg 240
    fill d <- 0.0
    wgmma_fence #f
    for k = 0 .. cdiv(K, 16) {{
      wait full[r] flip 0 #landed
      fence_async shared #fence
      wgmma d <- ta[r], tb[r] line 7
      wgmma_commit #m
      wgmma_wait 0 #done
      arrive empty[r] by thread #release
      advance r
    }}
    st_global c[0, 0] <- d bytes 8
  }}
}}
"""

# An epilogue: registers to a staging buffer, which tensor copies store; it is used again and again.
STORE = """
kernel store target sm_90 warps 4 smem 2048
dim N multiple 8
param a f16 [64, N] in align 16
param b f16 [64, N] out align 16
layout acc [64, 8] reg 0,1 8,0 lane 0,2 0,4 1,0 2,0 4,0 warp 16,0 32,0 rep 1,1
buffer t f16 [64, 8] stages 2 at 0 stride 1024
cursor s depth 2
register x f16 layout acc
body {
  for n = 0 .. cdiv(N, 8) {
    ld_global x <- a[0, n * 8 < N] bytes 4
    map x <- add x, 1.0
    bulk_wait 1 read #reuse
    bar_sync 1 warps 0,1,2,3 #before
    stmatrix t[s] <- x line 5
    fence_async shared #fence
    bar_sync 1 warps 0,1,2,3 #after
    tma_store b[0, n * 8 < N] <- t[s] line 6
    bulk_commit #commit
    advance s
  }
  bulk_wait 0 done #end
}
"""

# Two teams take turns at one buffer: a named barrier each, which the other one arrives at.
TURNS = """
kernel turns target sm_90 warps 4 smem 1024
dim N
param a f32 [4, N] in align 4
param b f32 [4, N] out align 4
layout pair [2, 32] reg - lane 0,1 0,2 0,4 0,8 0,16 warp 1,0 rep 1,1
layout swap [2, 32] reg - lane 1,0 0,1 0,2 0,4 0,8 warp 0,16 rep 1,1
buffer t f32 [32, 2] stages 1 at 0 stride 256
register x f32 layout pair
register y f32 layout swap
role left warps 0 count 2
role right warps 2 count 2
body {
  in left {
    for n = 0 .. cdiv(N, 32) {
      bar_sync 1 warps 0,1 #turn
      ld_global x <- a[0, n * 32 < N] bytes 4
      st_shared t.T <- x bytes 4
      bar_sync 3 warps 0,1 #stored
      ld_shared y <- t.T bytes 4
      map y <- add y, 1.0
      st_global b[0, n * 32 < N] <- y bytes 4
      bar_arrive 2 warps 0,1 count 128 #give
    }
  }
  in right {
    bar_arrive 1 warps 2,3 count 128 #first
    for n = 0 .. cdiv(N, 32) {
      bar_sync 2 warps 2,3 #turn2
      ld_global x <- a[2, n * 32 < N] bytes 4
      st_shared t.T <- x bytes 4
      bar_sync 4 warps 2,3 #stored2
      ld_shared y <- t.T bytes 4
      map y <- sub y, 1.0
      st_global b[2, n * 32 < N] <- y bytes 4
      if (n + 1) * 32 < N {
        bar_arrive 1 warps 2,3 count 128 #back
      }
    }
  }
}
"""


@dataclass(frozen=True)
class Case:
    """A kernel, and arrays with results for a number of trips through its loop."""

    text: str
    data: Callable[[int], tuple[Arrays, Arrays]]
    stages: int

    @cached_property
    def kernel(self) -> tir.Kernel:
        return parse_kernel(self.text)


def numbers(shape: tuple[int, ...], dtype: type = np.float32) -> np.ndarray:
    """Small integers, so that every sum is exact."""
    return np.random.default_rng(7).integers(-4, 5, shape).astype(dtype)


def matmul_data(trips: int) -> tuple[Arrays, Arrays]:
    k = max(16 * trips - 8, 0)
    a, b = numbers((64, k), np.float16), numbers((k, 16), np.float16)
    return {"a": a, "b": b}, {"c": a.astype(np.float32) @ b.astype(np.float32)}


def read_data(trips: int) -> tuple[Arrays, Arrays]:
    a = numbers((2, max(32 * trips - 12, 0)))
    return {"a": a}, {"b": np.ascontiguousarray(a.T)}


def store_data(trips: int) -> tuple[Arrays, Arrays]:
    a = numbers((64, 8 * trips), np.float16)
    return {"a": a}, {"b": a + np.float16(1)}


def turns_data(trips: int) -> tuple[Arrays, Arrays]:
    a = numbers((4, max(32 * trips - 5, 0)))
    return {"a": a}, {"b": a + np.array([[1], [1], [-1], [-1]], np.float32)}


CASES: dict[str, Case] = {
    "tensor copies, wgmma": Case(MATMUL, matmul_data, 3),
    "tensor copies, generic reads": Case(READ, read_data, 2),
    "cp.async, wgmma": Case(COPY, matmul_data, 3),
    "tensor stores": Case(STORE, store_data, 2),
    "turns": Case(TURNS, turns_data, 1),
}
