"""CUDA text from TIR: golden texts, what NVRTC makes of them on every architecture, refusals, and the pieces."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from language import kernel_of

from tidegate.emit import EMITTERS, emit
from tidegate.emit.address import split, swizzled, thread_expression, thread_values
from tidegate.emit.affine import Affine, unrolled
from tidegate.emit.context import plus
from tidegate.emit.header import header_for, parts
from tidegate.errors import NotEmittable, NotEmitted
from tidegate.ir import tir
from tidegate.ir.layout import Swizzle
from tidegate.ir.text import parse_kernel
from tidegate.runtime.cache import installed
from tidegate.runtime.compile import ARCHS, COMPILER, cubin

needs_nvrtc = pytest.mark.skipif(installed(COMPILER) is None, reason=f"{COMPILER} is not installed")

TRANSPOSE = """
kernel transpose target sm_80 warps 1 smem 4096
dim M multiple 16
dim N = 64
param a f32 [M, N] in align 16
param b f32 [N, M] out align 16
grid m < cdiv(M, 32)
layout copy [32, 32] reg 0,1 0,2 lane 0,4 0,8 0,16 1,0 2,0 warp - rep 8,1
layout column [32, 32] reg 0,1 0,2 lane 1,0 2,0 4,0 8,0 16,0 warp - rep 1,8
buffer t f32 [32, 32] stages 1 at 0 stride 4096 swizzle 3,4,3
register x f32 layout column
body {
  for n = 0 .. cdiv(N, 32) {
    cp_async t <- a[m * 32 < M, n * 32] layout copy bytes 16 line 9
    cp_commit #s0 "publishes t"
    cp_wait 0 #s1 "t: each thread's copies before reads"
    sync_warp #s2 "t: copies of all lanes before reads"
    ld_shared x <- t.T bytes 4
    st_global b[n * 32, m * 32 < M] <- x bytes 16
    sync_warp #s3 "t: reads before the next copy"
  }
}
"""

GEMM = """
kernel gemm target sm_90a warps 8 smem 147456
dim M multiple 8
dim N multiple 8
dim K multiple 8
param a bf16 [M, K] in align 16
param b bf16 [K, N] in align 16
param c bf16 [M, N] out align 16
grid m < cdiv(M, 128) band 8
grid n < cdiv(N, 256)
layout copy_a [128, 64] reg 0,1 0,2 0,4 lane 0,8 0,16 0,32 1,0 2,0 warp 4,0 8,0 16,0 rep 4,1
layout copy_b [64, 256] reg 0,1 0,2 0,4 lane 0,8 0,16 0,32 0,64 0,128 warp 1,0 2,0 4,0 rep 8,1
layout frag_a [128, 16] reg 0,1 8,0 0,8 32,0 64,0 lane 0,2 0,4 1,0 2,0 4,0 warp 0,0 0,0 16,0 rep 1,1 replicated
layout frag_b [16, 256] reg 1,0 8,0 0,8 0,64 0,128 lane 2,0 4,0 0,1 0,2 0,4 warp 0,16 0,32 0,0 rep 1,1 replicated
layout frag_c [128, 256] reg 0,1 8,0 0,8 0,64 0,128 32,0 64,0 lane 0,2 0,4 1,0 2,0 4,0 warp 0,16 0,32 16,0 rep 1,1
buffer ta bf16 [128, 64] stages 3 at 0 stride 16384 swizzle 3,4,3
buffer tb bf16 [64, 256] stages 3 at 49152 stride 32768 swizzle 3,4,5
cursor w depth 3
cursor r depth 3
register fa bf16 layout frag_a
register fb bf16 layout frag_b
register acc f32 layout frag_c
register out bf16 layout frag_c
body {
  fill acc <- 0.0
  for s = 0 .. 2 {
    if s < cdiv(K, 64) {
      cp_async ta[w] <- a[m * 128 < M, s * 64 < K] layout copy_a bytes 16 line 12
      cp_async tb[w] <- b[s * 64 < K, n * 256 < N] layout copy_b bytes 16 line 13
      advance w
    }
    cp_commit #s0 "stage s of ta, tb"
  }
  for k = 0 .. cdiv(K, 64) line 11 {
    cp_wait 1 #s1 "ta, tb: each thread's copies of stage k before reads"
    sync_block #s2 "ta, tb: all copies of stage k before reads; reads of stage k - 1 before its slot is filled"
    if k + 2 < cdiv(K, 64) {
      cp_async ta[w] <- a[m * 128 < M, (k + 2) * 64 < K] layout copy_a bytes 16 line 12
      cp_async tb[w] <- b[(k + 2) * 64 < K, n * 256 < N] layout copy_b bytes 16 line 13
      advance w
    }
    cp_commit #s3 "stage k + 2 of ta, tb"
    ldmatrix fa <- ta[r]
    ldmatrix fb <- tb[r]
    mma m16n8k16 acc <- fa, fb, acc line 14
    ldmatrix fa <- ta[r]@0,16
    ldmatrix fb <- tb[r]@16,0
    mma m16n8k16 acc <- fa, fb, acc line 14
    ldmatrix fa <- ta[r]@0,32
    ldmatrix fb <- tb[r]@32,0
    mma m16n8k16 acc <- fa, fb, acc line 14
    ldmatrix fa <- ta[r]@0,48
    ldmatrix fb <- tb[r]@48,0
    mma m16n8k16 acc <- fa, fb, acc line 14
    advance r
  }
  cast out <- acc line 15
  st_global c[m * 128 < M, n * 256 < N] <- out bytes 4 line 15
}
"""


def one_warp(body: str, declarations: str = "", name: str = "k") -> tir.Kernel:
    """A kernel of one warp over a [32, 32] f32 tile."""
    return parse_kernel(
        f"""
kernel {name} target sm_80 warps 1 smem 8192
dim M
param a f32 [M, 32] in align 16
param b f32 [M, 32] out align 16
layout rows [32, 32] reg 0,1 0,2 lane 0,4 0,8 0,16 1,0 2,0 warp - rep 8,1
buffer t f32 [32, 32] stages 2 at 0 stride 4096
{declarations}
register x f32 layout rows
register y f32 layout rows
body {{
{body}
}}
"""
    )


# ---------------------------------------------------------------------------------------------- texts


@pytest.mark.parametrize(("name", "text"), [("transpose", TRANSPOSE), ("gemm", GEMM)])
def test_text(golden: Callable[[str, str], None], name: str, text: str) -> None:
    golden(f"emit/{name}.cu", emit(parse_kernel(text)))


@needs_nvrtc
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("text", [TRANSPOSE, GEMM], ids=["transpose", "gemm"])
def test_compiles_without_spills_for_every_arch(arch: str, text: str) -> None:
    made = cubin(emit(parse_kernel(text)), arch)
    assert made.code.startswith(b"\x7fELF")
    assert made.registers
    assert made.spills == 0
    assert "warning" not in made.log


@needs_nvrtc
def test_the_whole_header_compiles_for_every_arch() -> None:
    text = "\n\n".join(p.text for p in parts())
    for arch in ARCHS:
        assert cubin(text + '\nextern "C" __global__ void k() {}\n', arch).code


def test_the_header_is_included_as_far_as_it_is_used() -> None:
    text = header_for("// cp_async_8 in a comment is no use\nldmatrix_x4(fa, at);")
    assert "using u32" in text
    assert "ldmatrix_x4(u32* d" in text
    assert "cp_async_8" not in text
    assert "ldmatrix_x2(" not in text
    assert "from_bf16" in header_for("maximum(from_bf16(x), y)")


def test_indices_that_may_be_negative_are_divided_as_the_language_says() -> None:
    """C++ rounds towards zero, TIR down."""
    loop = (
        "for j = 0 - 3 .. 2 {{\nfor i = {} .. 3 {{\nif i / 2 == M {{\nld_global x <- a[0 < M, 0] bytes 16\n}}\n}}\n}}"
    )
    assert "floor_div(i, 2)" in emit(one_warp(loop.format("j")))
    assert "i / 2" in emit(one_warp(loop.format("max(j, 0)")))


def test_every_sync_shows_its_id_and_reason() -> None:
    text = emit(parse_kernel(TRANSPOSE))
    lines = [line.strip() for line in text.splitlines()]
    at = lines.index('// sync_warp #s2 "t: copies of all lanes before reads"')
    assert lines[at + 1] == "__syncwarp();"
    assert "line 9" in text


def test_names_that_cxx_or_the_text_needs_are_changed() -> None:
    kernel = parse_kernel(
        """
kernel float target sm_80 warps 1 smem 0
dim int
param i f32 [int, 32] in align 16
param smem f32 [int, 32] out align 16
grid tid < cdiv(int, 32)
layout rows [32, 32] reg 0,1 0,2 lane 0,4 0,8 0,16 1,0 2,0 warp - rep 8,1
register j f32 layout rows
body {
  ld_global j <- i[tid * 32 < int, 0] bytes 16
  st_global smem[tid * 32 < int, 0] <- j bytes 16
}
"""
    )
    text = emit(kernel)
    assert "float_kernel(const f32* i, f32* smem_param, int int_size)" in text
    assert "for (int h = 0;" in text


@needs_nvrtc
@pytest.mark.parametrize("value", ["0.0", "-1.5", "1e-30", "3.3e38", "inf", "nan"])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
def test_odd_numbers_of_registers_and_every_number(dtype: str, value: str) -> None:
    kernel = parse_kernel(
        f"""
kernel k target sm_80 warps 1 smem 0
dim M
param b {dtype} [M] out align 16
layout rows [96] reg - lane 1 2 4 8 16 warp - rep 3
register x {dtype} layout rows
register y f32 layout rows
body {{
  fill x <- {value}
  map y <- add x, {value}
  cast x <- y
  st_global b[0 < M] <- x bytes {4 if dtype == "f32" else 2}
}}
"""
    )
    made = cubin(emit(kernel), "sm_80")
    assert "warning" not in made.log


# ---------------------------------------------------------------------------------------------- refusals


def test_what_is_not_executable_yet_is_refused_by_name() -> None:
    kernel = one_warp(
        '  tma_load t[c] <- a[0, 0] bar full[c]\n  wait full[c] flip 0 #s0 "w"',
        "mbarrier full stages 2 count 1 at 8192\ncursor c depth 2",
    )
    with pytest.raises(NotEmitted, match="TmaLoad") as caught:
        emit(kernel)
    assert caught.value.code == "TG801"


def test_every_instruction_is_emitted_or_refused() -> None:
    refused = {c.__name__ for c in tir.INSTRUCTIONS} - {c.__name__ for c in EMITTERS}
    assert {"CpAsync", "LdMatrix", "Mma", "Map", "SyncBlock"}.isdisjoint(refused)
    assert {"TmaLoad", "Wgmma", "BarrierWait"} <= refused


def test_a_width_that_no_thread_holds_is_refused() -> None:
    with pytest.raises(NotEmittable, match="does not hold 4 neighbours"):
        emit(one_warp("  ld_shared x <- t.T bytes 16"))


def test_a_piece_that_the_swizzle_tears_apart_is_refused() -> None:
    kernel = one_warp(
        "  cp_async u <- a[0 < M, 0] layout rows bytes 16",
        "buffer u f32 [32, 32] stages 1 at 0 stride 4096 swizzle 2,2,3",
    )
    with pytest.raises(NotEmittable, match="not contiguous in shared memory"):
        emit(kernel)


def test_fragments_that_do_not_fit_are_refused() -> None:
    with pytest.raises(NotEmittable, match="a warp does not hold"):
        emit(parse_kernel(GEMM.replace("4,0 warp 0,16 0,32 16,0 rep 1,1", "4,0 warp 0,16 16,0 0,32 rep 1,1")))


def test_layouts_of_another_number_of_warps_are_refused() -> None:
    with pytest.raises(NotEmittable, match="is of 32 threads, kernel transpose has 64"):
        emit(parse_kernel(TRANSPOSE.replace("warps 1", "warps 2")))


# ---------------------------------------------------------------------------------------------- pieces


def test_unrolled_writes_loops_for_affine_constants() -> None:
    values = {"a": np.arange(8).reshape(2, 2, 2) * 4, "b": np.array([[[0, 1], [10, 11]], [[20, 21], [30, 31]]])}
    lines = unrolled(values, lambda f: [f"f({f['a']}, {f['b']});"])
    assert lines == [
        "#pragma unroll",
        "for (int i = 0; i < 4; ++i) {",
        "  #pragma unroll",
        "  for (int j = 0; j < 2; ++j)",
        "    f(8 * i + 4 * j, 10 * i + j);",
        "}",
    ]


def test_unrolled_writes_out_what_is_not_affine() -> None:
    assert unrolled({"a": np.array([3, 1, 2])}, lambda f: [f"f({f['a']});"]) == ["f(3);", "f(1);", "f(2);"]


def test_unrolled_keeps_the_names_of_one_body_from_those_of_the_next() -> None:
    lines = unrolled({"a": np.array([3, 1, 2])}, lambda f: ["u32 v[1];", f"f(v, {f['a']});"])
    assert lines[:4] == ["{", "  u32 v[1];", "  f(v, 3);", "}"]
    assert lines.count("{") == 3


@pytest.mark.parametrize(
    ("affine", "text"),
    [(Affine(0), "0"), (Affine(3, (("i", 1), ("j", 4))), "i + 4 * j + 3"), (Affine(0, (("i", 2),)), "2 * i")],
)
def test_affine_prints_as_cxx(affine: Affine, text: str) -> None:
    assert str(affine) == text


@pytest.mark.parametrize(
    "steps", [(4, 8, 16, 128, 256), (2, 4, 64, 128, 256, 0, 0, 2048), (0, 0, 0, 0, 0), (3, 6, 1, 2, 4), (1, 2, 4, 0, 0)]
)
def test_thread_expression_is_what_it_says(steps: tuple[int, ...]) -> None:
    expression = thread_expression(steps)
    values = [eval(expression, {"tid": t}) for t in range(1 << len(steps))]
    assert values == thread_values(steps).tolist()
    moved = plus("base", expression, "5")  # the precedence of these operators is the same in Python
    assert [eval(moved, {"tid": t, "base": 1000}) - 1005 for t in range(1 << len(steps))] == values


@pytest.mark.parametrize(
    "term", ["x & 3", "x >> 1", "x ^ y", "x | y", "(x & 1) | y", "f(x & 3)", "x * 2", "x - y", "0"]
)
def test_a_sum_holds_its_terms_together(term: str) -> None:
    names = {"x": 13, "y": 6, "f": lambda v: v + 1}
    assert eval(plus("x", term, "y"), names) == 13 + eval(term, names) + 6


@pytest.mark.parametrize("swizzle", [Swizzle(), Swizzle(3, 4, 3), Swizzle(2, 4, 3), Swizzle(3, 4, 5), Swizzle(1, 2, 4)])
@pytest.mark.parametrize("steps", [(16, 32, 64, 128, 256), (128, 256, 512, 1024, 16), (48, 96, 192, 384, 768)])
def test_split_addresses_are_the_swizzled_ones(swizzle: Swizzle, steps: tuple[int, ...]) -> None:
    t = thread_values(steps)
    # A register never moves along a bit that a thread moves along, where sizes are powers of two.
    constants = tuple(c for c in range(0, 8192, 16) if steps[0] == 48 or not c & int(t.max()))
    found = split(steps, swizzle, constants)
    if steps[0] == 48 and swizzle.bits:
        assert found is None
        return
    assert found
    for c, low, high in zip(constants, found.low, found.high, strict=True):
        assert np.array_equal(swizzled(swizzle, t + c), (swizzled(swizzle, t) ^ low) + high)


@needs_nvrtc
@pytest.mark.parametrize("name", ["norm", "exp", "printf", "std", "size_t", "dim3", "round", "softmax"])
def test_kernels_may_have_the_names_of_functions_of_cuda(name: str) -> None:
    text = """import tidegate as tg
@tg.kernel(warps=1)
def program(NULL: tg.Tensor["__FILE__", 32, "f32"], y: tg.Out["__FILE__", 32, "f32"]):
    for char16_t in tg.grid(tg.tiles("__FILE__", 2)):
        y[char16_t, :] = tg.load(NULL[char16_t, :])
"""
    compiled = kernel_of(text).compile("sm_80")
    assert cubin(emit(replace(compiled.kernel, name=name)), "sm_80").code


@needs_nvrtc
def test_the_least_integer_has_no_literal() -> None:
    text = """import tidegate as tg
@tg.kernel(warps=1)
def program(s: tg.Scalar["i32"], y: tg.Out[8, "i32"]):
    y[:] = tg.full((8,), tg.maximum(s, -2147483648), "i32")
"""
    assert kernel_of(text).compile("sm_80").cubin.code
