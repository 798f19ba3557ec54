# ruff: noqa: E501 (one row per rule)
"""The legality of TIR: legal kernels pass, and each rule refuses the smallest change that breaks it."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from tidegate.errors import IllegalTir
from tidegate.ir import tir
from tidegate.ir.spec import REFERENCES, WORDS, ensure, lines_of, placed, references, verify
from tidegate.ir.text import kinds_of, parse_kernel, print_kernel

GEMM = re.search(
    r"```tir\n(.*?)```", (Path(__file__).parents[2] / "docs" / "tir.md").read_text(encoding="utf-8"), re.DOTALL
)[1]  # type: ignore[index]

TRANSPOSE = """\
kernel transpose target sm_80 warps 1 smem 8192
dim M multiple 4
dim N = 64 multiple 32
param a f32 [M, N] in align 16
param b f32 [N, M] out align 16
grid m < cdiv(M, 32)
layout copy [32, 32] reg 0,1 0,2 lane 0,4 0,8 0,16 1,0 2,0 warp - rep 8,1
layout pocy [32, 32] reg 1,0 2,0 lane 4,0 8,0 16,0 0,1 0,2 warp - rep 1,8
layout half [16, 16] reg 0,1 0,2 lane 0,4 0,8 1,0 2,0 4,0 warp - rep 2,1
layout both [32, 32] reg 0,1 0,2 lane 0,4 0,8 1,0 2,0 4,0 warp - rep 4,2
layout htob [32, 32] reg 1,0 2,0 lane 4,0 8,0 0,1 0,2 0,4 warp - rep 2,4
buffer t f32 [32, 32] stages 1 at 0 stride 4096 swizzle 3,4,3
register x f32 layout copy
register y f32 layout pocy
register h f32 layout half
register z f16 layout copy
register p f32 layout both
register q f32 layout htob
body {
  for n = 0 .. N / 32 {
    cp_async t <- a[m * 32 < M, n * 32] layout copy bytes 16
    cp_commit #s0 "publishes t"
    cp_wait 0 #s1 "t: copy before read"
    sync_warp #s2 "t: all lanes' copies before reads"
    ld_shared x <- t.T bytes 4
    mov y <- x transposed
    cast z <- x
    map x <- mul x, 2.0
    ld_shared h <- t@16,16 bytes 16
    st_global b[n * 32, m * 32 < M] <- x bytes 16
    sync_warp #s3 "t: reads before the next copy"
  }
}
"""

# Eight warps as 2 (m) x 4 (n) on a 128 x 256 tile; A and B are replicated over the warps that need them.
WIDE = """\
kernel wide target sm_80 warps 8 smem 12288
dim K = 16
param o f32 [128, 256] out align 8
layout fa [128, 16] reg 0,1 8,0 0,8 32,0 64,0 lane 0,2 0,4 1,0 2,0 4,0 warp 0,0 0,0 16,0 rep 1,1 replicated
layout fb [16, 256] reg 1,0 8,0 0,8 0,64 0,128 lane 2,0 4,0 0,1 0,2 0,4 warp 0,16 0,32 0,0 rep 1,1 replicated
layout fc [128, 256] reg 0,1 8,0 0,8 0,64 0,128 32,0 64,0 lane 0,2 0,4 1,0 2,0 4,0 warp 0,16 0,32 16,0 rep 1,1
buffer ta bf16 [128, 16] stages 1 at 0 stride 4096 swizzle 1,4,3
buffer tb bf16 [16, 256] stages 1 at 4096 stride 8192 swizzle 3,4,5
register ra bf16 layout fa
register rb bf16 layout fb
register acc f32 layout fc
body {
  fill acc <- 0.0
  ldmatrix ra <- ta
  ldmatrix rb <- tb
  mma m16n8k16 acc <- ra, rb, acc
  st_global o[0, 0] <- acc bytes 8
}
"""

ROLES = """\
kernel roles target sm_90a warps 8 smem 33024
param a bf16 [64, 64] in align 16
param o bf16 [64, 64] out align 16
layout fd [64, 64] reg 0,1 8,0 0,8 0,16 0,32 lane 0,2 0,4 1,0 2,0 4,0 warp 16,0 32,0 0,0 rep 1,1
buffer ring bf16 [64, 64] stages 4 at 0 stride 8192 swizzle 3,4,3
mbarrier full stages 4 count 1 at 32768
mbarrier empty stages 4 count 128 at 32800
cursor u depth 4
register d f32 layout fd
role consumer warps 0 count 4 registers 232
role producer warps 4 count 4 registers 40
body {
  barrier_init full
  barrier_init empty
  fence_barrier_init
  sync_block
  in producer {
    setmaxnreg 40
    wait empty[u] flip 1
    expect full[u] bytes 8192
    tma_load ring[u] <- a[0, 0] bar full[u]
    bar_arrive 2 warps 4,5,6,7 count 256
  }
  in consumer {
    fill d <- 0.0
    wait full[u] flip 0
    wgmma_fence
    wgmma d <- ring[u], ring[u].T
    wgmma_commit
    wgmma_wait 0
    arrive empty[u] by thread
    fence_async shared
    tma_store o[0, 0] <- ring[u]
    bulk_commit
    bulk_wait 0 read
    bar_sync 2 warps 0,1,2,3
  }
  cluster_arrive
  cluster_wait
  barrier_invalidate full
}
"""

KERNELS = {"gemm": GEMM, "transpose": TRANSPOSE, "wide": WIDE, "roles": ROLES}


@pytest.mark.parametrize(
    ("start", "divisor", "legal"),
    [("j", "i + 1", False), ("j + 2", "i + 1", False), ("max(j, 0)", "i + 1", True), ("j", "max(i, 0 - i) + 1", True),
     ("0", "(i + 4) / 4", True), ("0", "cdiv(i + 1, N)", True), ("0", "i", False)],
)  # fmt: skip
def test_divisors_are_surely_positive(start: str, divisor: str, legal: bool) -> None:
    """An index that begins at one that may be negative may be negative itself."""
    loops = f"for j = 0 - 3 .. 2 {{\nfor i = {start} .. 3 {{\nif 7 / ({divisor}) < 9 {{\n}}\n}}\n}}\n"
    text = KERNELS["transpose"].replace("body {\n", "body {\n" + loops)
    assert (verify(parse_kernel(text)) == []) == legal


@pytest.mark.parametrize("name", KERNELS)
def test_legal(name: str) -> None:
    assert verify(parse_kernel(KERNELS[name])) == []
    ensure(parse_kernel(KERNELS[name]))


# kernel, text, its replacement, part of the message
BROKEN = [
    # names
    ("transpose", "register x f32", "register t f32", "'t' is declared twice, as buffer and as register"),
    ("transpose", "for n =", "for m =", "the loop index 'm' hides another name"),
    ("transpose", "mov y <- x", "mov y <- w", "no register 'w' is declared (declared: x, y, h, z, p, q)"),
    ("transpose", "mov y <- x", "mov y <- t", "'t' is a buffer, and a register is needed"),
    ("transpose", "a[m * 32 < M, n * 32]", "t[m * 32 < M, n * 32]", "'t' is a buffer, and a param is needed"),
    ("transpose", "layout copy bytes", "layout x bytes", "'x' is a register, and a layout is needed"),
    ("transpose", "f16 layout copy", "f16 layout opy", "no layout 'opy' is declared"),
    ("transpose", "map x <- mul", "map x <- pow", "op 'pow' is none of neg, abs"),
    ("roles", "in producer", "in procuder", "no role 'procuder' is declared"),
    ("roles", "fence_async shared", "fence_async local", "space 'local' is none of shared, global"),
    ("roles", "wait full[u]", "wait u[u]", "'u' is a cursor, and a mbarrier is needed"),
    # scopes
    ("transpose", "param b f32 [N, M]", "param b f32 [N, m]", "'m' in m is not in scope"),
    ("transpose", "N / 32", "n", "'n' in n is not in scope"),
    ("transpose", "n * 32]", "k * 32]", "'k' in k * 32 is not in scope (sizes, and in the body grid axes, indices and integers: M, N, m, n)"),
    ("transpose", "N / 32", "N / m", "N / m divides by m, which is not surely positive"),
    ("transpose", "N / 32", "N / M", "N / M divides by M, which is not surely positive"),
    ("transpose", "N / 32", "M / min(N, 7 * N)", None),
    ("transpose", "N / 32", "N % (M - M)", "which is not surely positive"),
    ("transpose", "N / 32", "cdiv(N, 0)", "cdiv(N, 0) divides by 0"),
    # declarations
    ("transpose", "warps 1", "warps 3", "warps 3 is no power of two"),
    ("transpose", "warps 1", "warps 2", "0 warp bits make 1 warps, the kernel has 2"),
    ("transpose", "smem 8192", "smem 232449", "smem 232449 is not within 0 .. 232448"),
    ("transpose", "smem 8192", "smem 4095", "the last slot ends at byte 4096, the shared memory at 4095"),
    ("transpose", "dim N = 64", "dim N = -64", "a size is not negative"),
    ("transpose", "dim N = 64 multiple 32\nparam a f32 [M, N]", "dim N = 0\nparam a f32 [M, 8 / N]", "8 / N divides by N, which is not surely positive"),
    ("transpose", "dim N = 64", "dim N = 40", "40 is no multiple of 32"),
    ("transpose", "dim M multiple 4", "dim M multiple 0", "the known factor is at least 1"),
    ("transpose", "in align 16", "in align 2", "align must be a power of two of at least 4"),
    ("transpose", "in align 16", "in align 512", "the stride of axis 0 is 256 bytes, no multiple of align 512"),
    ("transpose", "rep 8,1\nlayout pocy", "rep 4,1\nlayout pocy", "the bases cover (4, 32) of the base tile (8, 32)"),
    ("transpose", "reg 0,1 0,2 lane 0,4 0,8 0,16 1,0 2,0 warp - rep 8,1", "reg 0,1 0,2 lane 0,4 0,8 0,16 1,0 2,2 warp - rep 8,1", "must move along one axis"),
    ("transpose", "stride 4096", "stride 4095", "stride 4095 is below the 4096 bytes of a tile"),
    ("transpose", "at 0 stride", "at 512 stride", "offset 512 is no multiple of 1024"),
    ("transpose", "swizzle 3,4,3", "swizzle 3,4,2", "source and target bits overlap"),
    ("transpose", "swizzle 3,4,3", "swizzle 3,4,20", "at most 16 together"),
    ("transpose", "f32 [32, 32] stages 1", "f32 [33, 33] stages 1", "blocks of 128, the tile has 4356: no multiple"),
    ("transpose", "stages 1", "stages 0", "shape and stages are at least 1"),
    ("gemm", "stages 2 at 0 stride 512", "stages 2 at 0 stride 520", "stride 520 is no multiple of 256"),
    ("gemm", "cursor use_at depth 2", "cursor use_at depth 0", "the depth is at least 1"),
    ("roles", "at 32768", "at 32772", "an mbarrier is aligned to 8 bytes"),
    ("roles", "at 32800", "at 32736", "the mbarriers share bytes with 'ring'"),
    ("roles", "at 32768", "at 32760", None),
    ("roles", "at 32768", "at 32776", "the mbarriers share bytes with 'empty'"),
    ("roles", "at 32800", "at 33000", "the mbarriers end at byte 33032, the shared memory at 33024"),
    ("roles", "stages 4 count 1", "stages 4 count 0", "the count is within 1"),
    ("roles", "warps 4 count 4", "warps 4 count 5", "are not all among the kernel's 8"),
    ("roles", "warps 4 count 4", "warps 3 count 4", "it shares warps with role 'consumer'"),
    ("roles", "registers 40", "registers 44", "registers are a multiple of 8"),
    # slots and windows
    ("transpose", "t@16,16", "t@17,16", "a tile [16, 16] from [17, 16] on leaves 't' [32, 32]"),
    ("transpose", "t@16,16", "t@16,20.T", "a tile [16, 16], transposed, from [16, 20] on leaves 't'"),
    ("transpose", "layout copy bytes", "layout half bytes", None),
    ("transpose", "b[n * 32, m * 32 < M]", "b[n * 32]", "a tile [32, 32] at 1 coordinates does not have the rank 2 of 'b'"),
    ("transpose", "b[n * 32, m", "b[48, m", "element 79 of axis 0 of 'b' is touched without a bound, it has 64 elements"),
    ("transpose", "b[n * 32, m", "b[n * 32 < 65, m", "the bound 65 of axis 0 is beyond the 64 elements"),
    ("transpose", "b[n * 32, m", "b[-1, m", "axis 0 of 'b' starts at -1"),
    ("transpose", "buffer t f32 [32, 32] stages 1 at 0 stride 4096", "buffer t f16 [32, 32] stages 1 at 0 stride 4096", "'a' holds f32, the other side f16"),
    ("transpose", "st_global b[n * 32, m * 32 < M] <- x", "st_global b[n * 32, m * 32 < M] <- z", "'b' holds f32, the other side f16"),
    ("transpose", "ld_shared h", "ld_shared z", "'t' holds f32, the other side f16"),
    ("gemm", "ldmatrix ra <- ta[use_at]", "ldmatrix ra <- ta", "'ta' is a ring of 2 stages and needs a cursor"),
    ("gemm", "cursor use_at depth 2", "cursor use_at depth 3", "cursor 'use_at' has depth 3, 'ta' has 2 stages"),
    ("gemm", "stages 2 at 0", "stages 1 at 0", "'ta' has one stage and takes no cursor"),
    # widths
    ("transpose", "layout copy bytes 16", "layout copy bytes 12", "an access of 12 bytes is not possible here; 4, 8, 16 are"),
    ("transpose", "layout copy bytes 16", "layout copy bytes 2", "an access of 2 bytes is not possible here; 4, 8, 16 are"),
    ("transpose", "<- x bytes 16", "<- x bytes 32", "an access of 32 bytes is not possible here"),
    ("transpose", "t.T bytes 4", "t.T bytes 8", "8 bytes are 2 neighbours along axis 0 of the tile"),
    ("gemm", "acc bytes 8", "acc bytes 16", "16 bytes are 4 neighbours along axis 1 of the tile, and the layout gives a thread no register step of 2"),
    ("transpose", "in align 16", "in align 8", "'a' is aligned to 8 bytes, the access needs 16"),
    ("transpose", "m * 32 < M, n * 32]", "m * 32 < M, n * 2]", "the origin n * 2 is known to be a multiple of 8 bytes, the access needs 16"),
    ("transpose", "m * 32 < M, n * 32]", "m * 32 < M, n + 4 * M]", "the origin n + 4 * M is known to be a multiple of 4 bytes"),
    ("transpose", "m * 32 < M, n * 32]", "m * 32 < M, N - n * M]", None),
    ("transpose", "swizzle 3,4,3", "swizzle 3,3,3", "the swizzle of 't' moves pieces of 8 bytes, the access has 16"),
    ("transpose", "[32, 32] stages 1 at 0 stride 4096 swizzle 3,4,3", "[32, 33] stages 1 at 0 stride 4224", "the row pitch of 't' is 132 bytes"),
    ("transpose", "[32, 32] stages 1 at 0 stride 4096 swizzle 3,4,3\nregister", "[32, 36] stages 1 at 0 stride 4608\nregister", None),
    ("transpose", "t@16,16", "t@16,15", "the origin along the last axis of 't' is 60 bytes"),
    # directions and registers
    ("transpose", "<- a[", "<- b[", "'b' is an output and is read"),
    ("transpose", "st_global b", "st_global a", "'a' is an input and is written"),
    ("transpose", "mov y <- x transposed", "mov x <- y transposed", "register 'y' is read, and nothing before has surely written it"),
    ("transpose", "ld_shared x <- t.T bytes 4", "if n < 1 {\nld_shared x <- t.T bytes 4\n}", "register 'x' is read"),
    ("gemm", "fill acc <- 0.0", "", "register 'acc' is read"),
    ("transpose", "cast z <- x", "cast z <- h", "'h' and 'z' have different layouts"),
    ("transpose", "mul x, 2.0", "mul x, h", "'h' and 'x' have different layouts"),
    ("transpose", "mul x, 2.0", "neg x, 2.0", "neg takes 1 operands, 2 are given"),
    ("transpose", "mov y <- x transposed", "mov z <- x", "hold different dtypes"),
    ("transpose", "mov y <- x transposed", "mov h <- x", "cannot be made of 'x' by renaming registers"),
    # matrices
    ("gemm", "mma m16n8k16", "mma m16n8k4", "shape 'm16n8k4' is none of m16n8k8, m16n8k16, m16n8k32"),
    ("gemm", "register rb bf16", "register rb f16", "'tb' holds bf16, the other side f16"),
    ("gemm", "register acc f32", "register acc bf16", "c and d are f32, here bf16 and bf16"),
    ("gemm", "ra, rb, acc", "rb, ra, acc", "the layouts of a, b are not made of m16n8k16 fragments"),
    ("gemm", "register ra bf16 layout frag_a", "register ra bf16 layout copy", "the layout of 'ra' is not made of 8x8 fragments"),
    ("gemm", "ldmatrix ra <- ta[use_at]", "ldmatrix ra <- ta[use_at]@8,0", "leaves 'ta' [16, 16]"),
    ("gemm", "swizzle 1,4,3\nbuffer", "swizzle 1,3,3\nbuffer", "moves pieces of 8 bytes"),
    ("wide", "4,0 warp 0,0 0,0 16,0 rep 1,1 replicated", "4,0 warp 0,0 0,0 16,0 rep 1,1", "some warps hold nothing of a"),
    ("wide", "reg 0,1 8,0 0,8 32,0 64,0 lane 0,2 0,4 1,0 2,0 4,0 warp 0,0 0,0 16,0", "reg 0,1 8,0 0,8 16,0 64,0 lane 0,2 0,4 1,0 2,0 4,0 warp 0,0 0,0 32,0", "warp bit 2 moves d by [16, 0], but a by [32, 0]"),
    ("wide", "reg 0,1 8,0 0,8 32,0 64,0 lane 0,2 0,4 1,0 2,0 4,0 warp 0,0 0,0 16,0", "reg 0,1 16,0 0,8 32,0 64,0 lane 0,2 0,4 1,0 2,0 4,0 warp 0,0 0,0 8,0", "a thread lacks the second half of a fragment along m"),
    ("wide", "reg 0,1 8,0 0,8 32,0 64,0 lane 0,2 0,4 1,0 2,0 4,0 warp 0,0 0,0 16,0 rep 1,1", "reg 0,1 8,0 0,8 lane 0,2 0,4 1,0 2,0 4,0 warp 0,0 0,0 16,0 rep 4,1", None),
    ("wide", "register ra bf16 layout fa", "register ra i64 layout fa", "its elements have 8, 16 or 32 bits, 'ra' holds i64"),
    ("roles", "wgmma d <- ring[u], ring[u].T", "wgmma d <- ring[u]@8,0, ring[u].T", "works on the whole slot"),
    ("roles", "register d f32", "register d f16", "d is f32, here bf16, bf16 and f16"),
    ("roles", "param a bf16 [64, 64] in align 16", "param a bf16 [64, 64] in align 8", "a tensor copy needs 'a' aligned to 16 bytes"),
    # syncs
    ("transpose", "cp_wait 0", "cp_wait -1", "a number of groups is at least 0, not -1"),
    ("transpose", "sync_warp #s2", "bar_sync 16 warps 0 #s2", "named barriers are 1 .. 15, not 16"),
    ("transpose", "sync_warp #s2", "bar_sync 0 warps 0 #s2", "named barriers are 1 .. 15, not 0"),
    ("transpose", "sync_warp #s2", "bar_sync 1 warps 0,1 #s2", "warps are one or more of 0 .. 0, in rising order"),
    ("transpose", "sync_warp #s2", "bar_sync 1 warps - #s2", "warps are one or more of 0 .. 0"),
    ("wide", "ldmatrix ra", "bar_sync 1 warps 1,0\nldmatrix ra", "in rising order"),
    ("wide", "ldmatrix ra", "bar_sync 1 warps 0,1\nbar_sync 1 warps 0,2\nldmatrix ra", "barrier 1 is used for warps 0,1 above"),
    ("roles", "bar_sync 2 warps 0,1,2,3", "sync_block", "all threads of the CTA must execute it"),
    ("roles", "bar_sync 2 warps 0,1,2,3", "cluster_wait", "all threads of the cluster must execute it"),
    ("roles", "bar_sync 2 warps 0,1,2,3", "bar_sync 2 warps 3,4", "warps 4 do not belong to role 'consumer'"),
    ("roles", "bar_sync 2 warps 0,1,2,3", "in producer {\n}", "a role block stands inside that of 'consumer'"),
    ("roles", "count 256", "count 250", "count 250 is no number of whole warps from 4 to 8"),
    ("roles", "cursor u depth 4", "cursor u depth 3", "cursor 'u' has depth 3, 'empty' has 4 stages"),
    ("roles", "empty[u] by thread", "empty[u] by lane", "per 'lane' is none of thread, warp, role"),
    ("roles", "warp 16,0 32,0 0,0 rep", "warp 16,0 0,0 32,0 rep", "the layout of 'd' needs 8 warps, 4 execute the statement"),
    ("roles", "warp 16,0 32,0 0,0 rep", "warp 16,0 32,0 rep", None),
    ("roles", "in consumer {", "if 1 {\nin consumer {\n}\n}\nin consumer {", "a role block stands inside a loop or condition"),
    ("roles", "flip 0", "flip 2", "flip is 0 or 1, not 2"),
    ("roles", "bytes 8192", "bytes 1048576", "the transaction count is within"),
    ("roles", "setmaxnreg 40", "setmaxnreg 20", "registers are a multiple of 8 from 24 to 256, not 20"),
    ("roles", "bulk_wait 0 read", "bulk_wait 0 half", "what 'half' is none of read, done"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "old", "new", "message"), BROKEN, ids=range(len(BROKEN)))
def test_broken(name: str, old: str, new: str, message: str | None) -> None:
    """A message of None: the change is legal."""
    text = KERNELS[name]
    assert old in text
    found = verify(parse_kernel(text.replace(old, new)))
    if message is None:
        assert found == []
    else:
        assert any(message in v.message for v in found), found


ELEMENTWISE = """
kernel k target sm_80 warps 1 smem 0
layout row [1, 32] reg - lane 0,1 0,2 0,4 0,8 0,16 warp - rep 1,1
layout one [1, 1] reg - lane 0,0 0,0 0,0 0,0 0,0 warp - rep 1,1 replicated
register x f32 layout row
register h f16 layout row
register i i32 layout row
register m bool layout row
register s f32 layout one
register t i32 layout one
body {
  fill x <- 0.5
  fill h <- 0.5
  fill i <- -2147483648.0
  fill m <- 1.0
  LINE
}
"""
LINES = {
    "map x <- where m, x, 2.5": None,
    "map i <- where m, 1.0, 2.0": None,
    "map m <- logical_xor m, 1.0": None,
    "map m <- equal m, m": None,
    "map x <- add h, x": None,
    "reduce t <- sum i axis 1": None,
    "map x <- sin i": "sin mixes floats and integers",
    "map i <- sqrt i": "sqrt is not defined on integers",
    "map x <- left_shift x, 1.0": "left_shift is not defined on floats",
    "map m <- less m, m": "less is not defined on masks",
    "map m <- bitwise_not m": "bitwise_not is not defined on masks",
    "map i <- add i, m": "add mixes integers and masks",
    "map i <- isnan x": "isnan does not make i32",
    "map m <- less 1.0, 0.0": "less of numbers only",
    "map i <- add i, 0.5": "0.5 is no whole number",
    "map i <- add i, nan": "nan is no whole number",
    "map i <- add i, 2147483648.0": "2147483648 is beyond the range of i32",
    "map m <- logical_and m, 2.0": "2 is neither 0 (false) nor 1 (true)",
    "map x <- where i, x, x": "where takes a mask",
    "fill i <- 1e30": "is beyond the range of i32",
    "fill m <- 0.5": "0.5 is neither 0 (false) nor 1 (true)",
    "reduce s <- sum i axis 1": "a reduction folds f32, i32 or i64 into the same, not i32 into f32",
    "reduce t <- max m axis 1": "not bool into i32",
}


@pytest.mark.parametrize("line", LINES)
def test_kinds_of_operands(line: str) -> None:
    found = verify(parse_kernel(ELEMENTWISE.replace("LINE", line)))
    message = LINES[line]
    assert [message in v.message for v in found] == [True] if message else found == [], found


def test_every_declared_name_is_well_formed() -> None:
    kernel = parse_kernel(TRANSPOSE)
    for name in ("a b", "", "1x", "nan", "x-y", "é"):
        dims = (tir.Dim(tir.Name(name), None), *kernel.dims)
        assert any("is no name" in v.message for v in verify(tir.Kernel(**{**vars(kernel), "dims": dims})))


def test_violations_say_where() -> None:
    (found,) = verify(parse_kernel(TRANSPOSE.replace("t.T bytes 4", "t.T bytes 8")))
    assert found.where == "body[0][4]: ld_shared x <- t.T bytes 8"
    (found,) = verify(parse_kernel(TRANSPOSE.replace("stride 4096", "stride 16")))
    assert found.where == "buffer t f32 [32, 32] stages 1 at 0 stride 16 swizzle 3,4,3"
    (found,) = verify(parse_kernel(TRANSPOSE.replace("smem 8192", "smem -1").replace("buffer t f32", "buffer t f32")))[
        :1
    ]
    assert found.where == "kernel transpose target sm_80 warps 1 smem -1"


def test_ensure_names_every_violation() -> None:
    text = TRANSPOSE.replace("t.T bytes 4", "t.T bytes 8").replace("cp_wait 0", "cp_wait -1")
    with pytest.raises(IllegalTir) as caught:
        ensure(parse_kernel(text))
    report = str(caught.value)
    assert "TG602" in report
    assert "breaks 2 rules" in report
    assert "body[0][2]: cp_wait -1" in report
    assert "no register step of 1" in report


def test_violations_name_the_lines_of_the_text() -> None:
    text = "// a comment\n\n" + TRANSPOSE.replace("t.T bytes 4", "t.T  bytes 8 // wide").replace(
        "cp_wait 0", "cp_wait -1"
    )
    with pytest.raises(IllegalTir) as caught:
        ensure(parse_kernel(text), text, "k.tir")
    numbers = [n for n, line in enumerate(text.splitlines(), 1) if "cp_wait -1" in line or "bytes 8" in line]
    assert [f"k.tir:{n}: " in caught.value.text for n in numbers] == [True, True]
    assert caught.value.span is not None
    assert (caught.value.span.file, caught.value.span.line) == ("k.tir", numbers[0])
    wrong = TRANSPOSE.replace("stride 4096", "stride 16")
    with pytest.raises(IllegalTir) as caught:
        ensure(parse_kernel(wrong), wrong, "k.tir")
    assert caught.value.span is not None
    assert caught.value.span.text.startswith("buffer t f32")
    assert "breaks 1 rule of TIR" in caught.value.text


@pytest.mark.parametrize("name", KERNELS)
def test_every_line_of_a_text_is_found(name: str) -> None:
    kernel = parse_kernel(KERNELS[name])
    printed = print_kernel(kernel)
    found = lines_of(kernel, printed, "k.tir")
    rows = printed.splitlines()
    assert all(where.endswith(rows[span.line - 1].strip()) for where, span in found.items())
    assert {span.line for span in found.values()} == {
        n for n, r in enumerate(rows, 1) if r.strip() not in ("}", "body {")
    }


def test_buffers_may_share_bytes() -> None:
    text = TRANSPOSE.replace("register x f32", "buffer s f32 [32, 32] stages 1 at 0 stride 4096\nregister x f32")
    assert verify(parse_kernel(text)) == []


def test_two_loops_may_use_one_index() -> None:
    loop = "  for n = 0 .. 2 {\n  }\n"
    assert verify(parse_kernel(TRANSPOSE.replace("body {\n", "body {\n" + loop))) == []


@pytest.mark.parametrize("cls", tir.INSTRUCTIONS, ids=lambda c: c.__name__)
def test_every_name_of_an_instruction_has_a_kind(cls: type[tir.Instruction]) -> None:
    """A new instruction must say what its names refer to, or its names would go unchecked."""
    for f in fields(cls):
        if kinds_of(cls)[f.name] in ("name", "args"):
            assert f.name in REFERENCES or f.name in WORDS


def test_references_and_places() -> None:
    kernel = parse_kernel(ROLES)
    assert list(references(tir.InRole(tir.Name("r"), ()))) == [("r", "role")]
    (load,) = [p for p in placed(kernel.body) if isinstance(p.stmt, tir.TmaLoad)]
    assert list(references(load.stmt)) == [
        ("ring", "buffer"), ("u", "cursor"), ("a", "param"), ("full", "mbarrier"), ("u", "cursor"),
    ]  # fmt: skip
    assert (load.path, load.role) == ((4, 3), "producer")
