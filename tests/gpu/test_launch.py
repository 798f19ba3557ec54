"""TIR on the GPU: every instruction against NumPy, sizes that are no multiples, resource limits, streams, threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tidegate.emit import emit
from tidegate.errors import LaunchRefused, WrongArguments
from tidegate.ir.dtypes import BF16
from tidegate.ir.text import parse_kernel
from tidegate.runtime.compile import cubin
from tidegate.runtime.device import available
from tidegate.runtime.launch import Loaded

pytestmark = pytest.mark.gpu

RNG = np.random.default_rng(7)


def load(text: str) -> Loaded:
    kernel = parse_kernel(text)
    device = available()
    assert device
    return Loaded(kernel, cubin(emit(kernel), device.arch))


def random(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


TRANSPOSE = """
kernel transpose target sm_80 warps 1 smem 4096
dim M multiple 4
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
    cp_async t <- a[m * 32 < M, n * 32] layout copy bytes 16
    cp_commit #s0 "publishes t"
    cp_wait 0 #s1 "copies of the thread"
    sync_warp #s2 "copies of all lanes"
    ld_shared x <- t.T bytes 4
    st_global b[n * 32, m * 32 < M] <- x bytes 16
    sync_warp #s3 "reads before the next copy"
  }
}
"""


@pytest.mark.parametrize("m", [0, 4, 32, 36, 128, 1000])
def test_transpose(m: int) -> None:
    a, b = random(m, 64), np.full((64, m), np.nan, np.float32)
    load(TRANSPOSE)(a, b)
    assert np.array_equal(b, a.T)


def gemm(dtype: str = "bf16", stages: int = 3) -> str:
    steps = "\n".join(
        f"    ldmatrix fa <- ta[r]@0,{k}\n    ldmatrix fb <- tb[r]@{k},0\n    mma m16n8k16 acc <- fa, fb, acc"
        for k in (0, 16)
    )
    return f"""
kernel gemm target sm_80 warps 4 smem {stages * 12288}
dim M
dim N multiple 8
dim K multiple 8
param a {dtype} [M, K] in align 16
param b {dtype} [K, N] in align 16
param c {dtype} [M, N] out align 16
grid m < cdiv(M, 128)
grid n < cdiv(N, 64)
layout copy_a [128, 32] reg 0,1 0,2 0,4 lane 0,8 0,16 1,0 2,0 4,0 warp 8,0 16,0 rep 4,1
layout copy_b [32, 64] reg 0,1 0,2 0,4 lane 0,8 0,16 0,32 1,0 2,0 warp 4,0 8,0 rep 2,1
layout frag_a [128, 16] reg 0,1 8,0 0,8 32,0 64,0 lane 0,2 0,4 1,0 2,0 4,0 warp 0,0 16,0 rep 1,1 replicated
layout frag_b [16, 64] reg 1,0 8,0 0,8 0,32 lane 2,0 4,0 0,1 0,2 0,4 warp 0,16 0,0 rep 1,1 replicated
layout frag_c [128, 64] reg 0,1 8,0 0,8 0,32 32,0 64,0 lane 0,2 0,4 1,0 2,0 4,0 warp 0,16 16,0 rep 1,1
buffer ta {dtype} [128, 32] stages {stages} at 0 stride 8192 swizzle 2,4,3
buffer tb {dtype} [32, 64] stages {stages} at {stages * 8192} stride 4096 swizzle 3,4,3
cursor w depth {stages}
cursor r depth {stages}
register fa {dtype} layout frag_a
register fb {dtype} layout frag_b
register acc f32 layout frag_c
register out {dtype} layout frag_c
body {{
  fill acc <- 0.0
  for s = 0 .. {stages - 1} {{
    if s < cdiv(K, 32) {{
      cp_async ta[w] <- a[m * 128 < M, s * 32 < K] layout copy_a bytes 16
      cp_async tb[w] <- b[s * 32 < K, n * 64 < N] layout copy_b bytes 16
      advance w
    }}
    cp_commit #s0 "stage"
  }}
  for k = 0 .. cdiv(K, 32) {{
    cp_wait {stages - 2} #s1 "stage k"
    sync_block #s2 "stage k"
    if k + {stages - 1} < cdiv(K, 32) {{
      cp_async ta[w] <- a[m * 128 < M, (k + {stages - 1}) * 32 < K] layout copy_a bytes 16
      cp_async tb[w] <- b[(k + {stages - 1}) * 32 < K, n * 64 < N] layout copy_b bytes 16
      advance w
    }}
    cp_commit #s3 "next stage"
{steps}
    advance r
  }}
  cast out <- acc
  st_global c[m * 128 < M, n * 64 < N] <- out bytes 4
}}
"""


@pytest.mark.parametrize(
    ("m", "n", "k"), [(128, 64, 32), (1, 8, 8), (300, 200, 136), (1027, 520, 1000), (5, 8, 0), (0, 8, 8)]
)
@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_gemm(dtype: str, m: int, n: int, k: int) -> None:
    numpy_type = BF16.numpy if dtype == "bf16" else np.float16
    a, b, c = random(m, k, dtype=numpy_type), random(k, n, dtype=numpy_type), np.full((m, n), np.nan, numpy_type)
    load(gemm(dtype))(a, b, c)
    expected = a.astype(np.float64) @ b.astype(np.float64)
    epsilon = 2.0**-8 if dtype == "bf16" else 2.0**-11
    bound = epsilon * np.abs(expected) + 2.0**-20 * (np.abs(a.astype(float)) @ np.abs(b.astype(float))) + 1e-7
    assert (np.abs(c.astype(np.float64) - expected) <= bound).all()


def test_gemm_with_b_transposed_needs_no_trans() -> None:
    text = gemm().replace("param b bf16 [K, N]", "param b bf16 [N, K]")
    text = text.replace("b[s * 32 < K, n * 64 < N] layout copy_b", "b[n * 64 < N, s * 32 < K] layout copy_bt")
    text = text.replace(
        "b[(k + 2) * 32 < K, n * 64 < N] layout copy_b", "b[n * 64 < N, (k + 2) * 32 < K] layout copy_bt"
    )
    text = text.replace(
        "layout copy_b [32, 64] reg 0,1 0,2 0,4 lane 0,8 0,16 0,32 1,0 2,0 warp 4,0 8,0 rep 2,1",
        "layout copy_bt [64, 32] reg 0,1 0,2 0,4 lane 0,8 0,16 1,0 2,0 4,0 warp 8,0 16,0 rep 2,1",
    )
    text = text.replace(
        "buffer tb bf16 [32, 64] stages 3 at 24576 stride 4096 swizzle 3,4,3",
        "buffer tb bf16 [64, 32] stages 3 at 24576 stride 4096 swizzle 2,4,3",
    )
    text = text.replace("tb[r]@0,0", "tb[r].T").replace("tb[r]@16,0", "tb[r]@0,16.T")
    loaded = load(text)
    assert "_trans" not in emit(loaded.kernel)
    a, b, c = random(200, 96, dtype=BF16.numpy), random(72, 96, dtype=BF16.numpy), np.zeros((200, 72), BF16.numpy)
    loaded(a, b, c)
    expected = a.astype(np.float64) @ b.astype(np.float64).T
    assert np.abs(c.astype(np.float64) - expected).max() < 0.2


VECTOR = """
kernel vector target sm_80 warps 2 smem 0
dim N
param a {a} [N] in align 16
param b {b} [N] in align 16
param c {c} [N] out align 16
grid i < cdiv(N, 1024)
layout rows [1024] reg 1 2 4 8 lane 16 32 64 128 256 warp 512 rep 1
register x {a} layout rows
register y {b} layout rows
register z {c} layout rows
body {{
  ld_global x <- a[i * 1024 < N] bytes {wa}
  ld_global y <- b[i * 1024 < N] bytes {wb}
{ops}
  st_global c[i * 1024 < N] <- z bytes {wc}
}}
"""

OPERATIONS: dict[str, Callable[..., Any]] = {
    "neg x": lambda x, y: -x,
    "add x, y": lambda x, y: x + y,
    "sub x, 1.5": lambda x, y: x - np.float32(1.5),
    "mul x, y": lambda x, y: x * y,
    "div x, y": lambda x, y: x / y,
    "maximum x, y": np.maximum,
    "minimum x, -0.25": lambda x, y: np.minimum(x, np.float32(-0.25)),
}


@pytest.mark.parametrize("op", OPERATIONS)
@pytest.mark.parametrize(
    ("a", "b", "c"), [("f32", "f32", "f32"), ("bf16", "f32", "f16"), ("f16", "bf16", "f32"), ("bf16", "bf16", "bf16")]
)
@pytest.mark.parametrize("n", [1024, 1, 2047])
def test_elementwise_rounds_as_numpy(op: str, a: str, b: str, c: str, n: int) -> None:
    types = {"f32": np.dtype(np.float32), "f16": np.dtype(np.float16), "bf16": BF16.numpy}
    x, y, z = random(n, dtype=types[a]), random(n, dtype=types[b]), np.full(n, 7, types[c])
    x[0] = np.nan
    load(VECTOR.format(a=a, b=b, c=c, wa=16, wb=8, wc=4, ops=f"  map z <- {op}"))(x, y, z)
    expected = OPERATIONS[op](x.astype(np.float32), y.astype(np.float32)).astype(types[c])
    assert np.array_equal(z, expected, equal_nan=True)


@pytest.mark.parametrize("width", [2, 4, 8, 16])
def test_every_width_and_partial_pieces(width: int) -> None:
    loaded = load(VECTOR.format(a="bf16", b="f16", c="bf16", wa=width, wb=width, wc=width, ops="  mov z <- x"))
    for n in (1, 3, 1023, 1025, 4099):
        x, y, z = random(n, dtype=BF16.numpy), random(n, dtype=np.float16), np.zeros(n, BF16.numpy)
        loaded(x, y, z)
        assert np.array_equal(x, z)


SHARED = """
kernel shared target sm_80 warps 4 smem {smem}
dim M
param a {dtype} [M, 64] in align 16
param b {dtype} [M, 64] out align 16
grid m < cdiv(M, 64)
layout rows [64, 64] reg 0,1 0,2 0,4 lane 0,8 0,16 0,32 1,0 2,0 warp 4,0 8,0 rep 4,1
layout columns [64, 64] reg 1,0 2,0 4,0 lane 8,0 16,0 32,0 0,1 0,2 warp 0,4 0,8 rep 1,4
buffer t {dtype} [64, 64] stages 1 at 0 stride {bytes} swizzle {swizzle}
register x {dtype} layout rows
register y {dtype} layout columns
register z {dtype} layout columns
body {{
  ld_global x <- a[m * 64 < M, 0] bytes 16
  st_shared t <- x bytes {store}
  {sync} #s0 "t written"
  ld_shared y <- t{view} bytes {load}
  mov z <- y
  {sync} #s1 "t read"
  st_shared t <- z bytes {store2}
  {sync} #s2 "t written"
  ld_shared x <- t bytes {store}
  st_global b[m * 64 < M, 0] <- x bytes 16
}}
"""


@pytest.mark.parametrize("sync", ["sync_block", "bar_sync 3 warps 0,1,2,3"])
@pytest.mark.parametrize(
    ("dtype", "store", "load_bytes", "swizzle"),
    [("f32", 16, 4, "3,4,3"), ("bf16", 16, 2, "3,4,3"), ("bf16", 4, 2, "0,0,0"), ("f32", 8, 4, "2,3,5")],
)
def test_shared_round_trip(dtype: str, store: int, load_bytes: int, swizzle: str, sync: str) -> None:
    size = 4 if dtype == "f32" else 2
    text = SHARED.format(
        smem=4096 * size, dtype=dtype, bytes=4096 * size, swizzle=swizzle, sync=sync, store=store, load=load_bytes,
        store2=load_bytes, view="",
    )  # fmt: skip
    a = random(100, 64, dtype=np.float32 if dtype == "f32" else BF16.numpy)
    b = np.zeros_like(a)
    load(text)(a, b)
    assert np.array_equal(a, b)


def test_transposed_view_with_wide_reads() -> None:
    # y holds t.T: y[i, j] = t[j, i]; written back untransposed, b becomes the transpose of a.
    text = SHARED.format(
        smem=8192, dtype="bf16", bytes=8192, swizzle="3,4,3", sync="sync_block", store=16, load=16, store2=2, view=".T"
    )
    a = random(64, 64, dtype=BF16.numpy)
    b = np.zeros_like(a)
    load(text)(a, b)
    assert np.array_equal(a.T, b)


ODD = """
kernel odd target sm_80 warps 2 smem 16384
dim M
param a f32 [M, 48] in align 16
param b f32 [M, 48] out align 16
grid m < cdiv(M, 32)
layout rows [32, 48] reg 0,1 0,2 lane 0,4 0,8 1,0 2,0 4,0 warp 0,0 rep 4,3
layout shared [32, 48] reg 0,1 lane 0,2 0,4 0,8 1,0 2,0 warp 4,0 rep 4,3 replicated
layout half [32, 48] reg 0,1 lane 0,2 0,4 0,8 1,0 2,0 warp 0,0 rep 8,3{replicated}
buffer t f32 [32, 48] stages 2 at {at} stride 6160 swizzle {swizzle}
cursor c depth 2
register x f32 layout half
register y f32 layout shared
body {{
  for i = 0 .. 3 {{
    cp_async t[c] <- a[m * 32 < M, 0] layout rows bytes 16
    cp_commit #s0 "t"
    cp_wait 0 #s1 "copies of the thread"
    sync_block #s2 "copies of all threads"
    ld_shared x <- t[c] bytes 8
    map x <- mul x, 2.0
    sync_block #s3 "reads before writes"
    st_shared t[c] <- x bytes 4
    sync_block #s4 "writes before reads"
    ld_shared y <- t[c] bytes 8
    if i == 2 {{
      st_global b[m * 32 < M, 0] <- y bytes 8
    }}
    advance c
  }}
}}
"""


@pytest.mark.parametrize("replicated", ["", " replicated"])
@pytest.mark.parametrize("swizzle", ["0,0,0", "2,4,3", "1,4,4"])
@pytest.mark.parametrize("at", [0, 16])
def test_sizes_that_are_no_powers_of_two_and_threads_that_hold_nothing(at: int, swizzle: str, replicated: str) -> None:
    loaded = load(ODD.format(at=at, swizzle=swizzle, replicated=replicated))
    assert "(tid & 32) == 0" in emit(loaded.kernel)
    a, b = random(70, 48), np.full((70, 48), np.nan, np.float32)
    loaded(a, b)
    assert np.array_equal(b, 2 * a)


def padded(smem: int) -> str:
    return TRANSPOSE.replace("smem 4096", f"smem {smem}")


def test_shared_memory_up_to_the_limit_and_not_beyond() -> None:
    device = available()
    assert device
    a, b = random(32, 64), np.zeros((64, 32), np.float32)
    for smem in (49151, 49152, 49153, device.shared):
        b[:] = 0
        load(padded(smem))(a, b)
        assert np.array_equal(b, a.T), smem
    with pytest.raises(
        LaunchRefused, match=f"needs {device.shared + 1} bytes of shared memory, the GPU has {device.shared}"
    ):
        load(padded(device.shared + 1))(a, b)


def test_machine_code_for_another_gpu_is_refused() -> None:
    kernel = parse_kernel(TRANSPOSE)
    device = available()
    assert device
    other = "sm_120a" if device.capability[0] != 12 else "sm_90a"
    with pytest.raises(LaunchRefused, match=f"compiled for {other}, the GPU is {device.arch}"):
        Loaded(kernel, cubin(emit(kernel), other))(random(32, 64), np.zeros((64, 32), np.float32))


def test_wrong_arrays_are_refused_by_name() -> None:
    loaded = load(TRANSPOSE)
    a, b = random(32, 64), np.zeros((64, 32), np.float32)
    for arrays, message in [
        ((a,), "1 arrays are given for 2 parameters"),
        ((a, b.astype(np.float16)), "b is f32, the array is f16"),
        ((a, b[:, :16]), r"b is \[N, M\] = \(64, 32\), the array has shape \(64, 16\)"),
        ((a[:30], b[:, :30]), "M = 30 is no multiple of 4"),
        ((a, 3), "b is given a int"),
    ]:
        with pytest.raises(WrongArguments, match=message):
            loaded(*arrays)


# ---------------------------------------------------------------------------------------------- torch


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch")


def test_tensors_run_on_the_current_stream(torch: Any) -> None:
    loaded = load(TRANSPOSE)
    a = torch.randn(4096, 64, device="cuda")
    b = torch.zeros(64, 4096, device="cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        a.mul_(2)  # is done before the kernel only if that is on the same stream
        loaded(a, b)
    stream.synchronize()
    assert torch.equal(b, a.t())


def test_tensors_that_do_not_fit_are_refused(torch: Any) -> None:
    loaded = load(TRANSPOSE)
    a, b = torch.randn(32, 64, device="cuda"), torch.zeros(64, 32, device="cuda")
    flat = torch.randn(32 * 64 + 1, device="cuda")
    for arrays, message in [
        ((a.t().contiguous().t(), b), "a is not contiguous"),
        ((flat[1:].view(32, 64), b), "no multiple of 16 bytes"),
        ((a.bfloat16(), b), "a is f32, the array is bf16"),
        ((a, b.cpu()), "on the CPU"),
        ((a, np.zeros((64, 32), np.float32)), "b is on host"),
    ]:
        for _ in range(2):  # also when the shapes have been seen
            with pytest.raises(WrongArguments, match=message):
                loaded(*arrays)
        loaded(a, b)
        assert torch.equal(b, a.t())


def test_capture_into_a_graph(torch: Any) -> None:
    loaded = load(TRANSPOSE)
    a, b = torch.randn(64, 64, device="cuda"), torch.zeros(64, 64, device="cuda")
    loaded(a, b)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loaded(a, b)
    a.normal_()
    graph.replay()
    assert torch.equal(b, a.t())


def test_threads_launch_at_once(torch: Any) -> None:
    loaded = load(TRANSPOSE)
    failures: list[Any] = []

    def work(seed: int) -> None:
        try:
            a = torch.full((32 * (seed + 1), 64), float(seed), device="cuda")
            b = torch.zeros(64, 32 * (seed + 1), device="cuda")
            for _ in range(200):
                loaded(a, b)
            torch.cuda.synchronize()
            assert torch.equal(b, a.t())
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_a_launch_costs_little(torch: Any) -> None:
    import time

    loaded = load(TRANSPOSE)
    a, b = torch.randn(32, 64, device="cuda"), torch.zeros(64, 32, device="cuda")
    for _ in range(20):
        loaded(a, b)
    best = 1.0
    for _ in range(5):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(200):
            loaded(a, b)
        best = min(best, (time.perf_counter() - start) / 200)
    print(f"{best * 1e6:.2f} us per launch")
    assert best < 20e-6  # the aim is 5; machines differ
