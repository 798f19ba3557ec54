"""Calling kernels on the GPU: streams, capture into graphs, threads, several devices, arrays of other libraries."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from cases import load

import tidegate as tg
from tidegate.errors import WrongArguments
from tidegate.runtime import driver, graph

pytestmark = pytest.mark.gpu


def make() -> Any:
    """A new kernel object: y = 2 x."""

    @tg.kernel(warps=1)
    def twice(x: tg.Tensor["R", 32, "f32"], y: tg.Out["R", 32, "f32"]):
        for r in tg.grid(tg.tiles("R", 4)):
            y[r, :] = tg.load(x[r, :]) * 2

    return twice


def make_bf16() -> Any:
    """The same in bf16."""

    @tg.kernel(warps=1)
    def twice(x: tg.Tensor["R", 32, "bf16"], y: tg.Out["R", 32, "bf16"]):
        for r in tg.grid(tg.tiles("R", 4)):
            y[r, :] = tg.load(x[r, :]) * 2

    return twice


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch")


def in_threads(count: int, work: Callable[[int], None]) -> None:
    """Runs ``work(i)`` in threads that start together, and raises what one of them raised."""
    failures: list[BaseException] = []
    start = threading.Barrier(count)

    def run(i: int) -> None:
        start.wait()
        try:
            work(i)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


# ---------------------------------------------------------------------------------------------- streams and graphs


def test_a_call_runs_on_the_stream_that_is_current_then(torch: Any) -> None:
    kernel = make()
    x, y = torch.ones(4096, 32, device="cuda"), torch.zeros(4096, 32, device="cuda")
    for value in (1.0, 2.0, 3.0):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            torch.cuda._sleep(50_000_000)
            x.fill_(value)  # is done before the kernel only if that is on the same stream
            kernel(x, y)
        stream.synchronize()
        assert torch.equal(y, x * 2)
        assert float(y[0, 0]) == 2 * value


def test_a_tensor_that_changes_in_place_is_seen(torch: Any) -> None:
    """Shape, dtype, strides and address of one tensor object, in both modes of autograd, and one tensor twice."""
    kernel, second = make(), torch.ones(64, 32, device="cuda")
    x, y = torch.full((64, 32), 3.0, device="cuda"), torch.zeros(64, 32, device="cuda")
    for mode in (torch.enable_grad, torch.inference_mode, torch.no_grad):
        with mode():
            for rows in (64, 64, 32, 0, 64):
                y.zero_()
                kernel(x[:rows], y[:rows])
                assert float(y[:rows].sum()) == float(y.sum()) == 6.0 * 32 * rows
    x.data = second
    kernel(x, y)
    assert float(y.min()) == float(y.max()) == 2
    x.data = torch.arange(64 * 64, device="cuda", dtype=torch.float32).view(64, 64)[:, :32]
    kernel(x, y)
    assert torch.equal(y, x * 2)
    before = y.data_ptr()
    y.data = y.view(torch.int32)
    assert y.data_ptr() == before
    with pytest.raises(WrongArguments, match="y is f32"):
        kernel(x, y)
    y.data = y.view(torch.float32).view(32, 64)
    with pytest.raises(WrongArguments, match="shape"):
        kernel(x, y)
    for _ in range(2):
        with pytest.raises(WrongArguments, match="shares memory"):
            kernel(second, second)


@pytest.mark.parametrize("warm", [True, False])
def test_calls_are_captured_into_a_graph_the_first_call_too(torch: Any, warm: bool) -> None:
    kernel = make()
    x, y, z = (torch.zeros(64, 32, device="cuda") for _ in range(3))
    if warm:
        kernel(x, y)
    captured_calls = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured_calls):
        kernel(x, y)
        kernel(y, z)
    for value in (1.0, 5.0):
        x.fill_(value)
        captured_calls.replay()
        torch.cuda.synchronize()
        assert float(z.min()) == float(z.max()) == 4 * value
    x.fill_(7.0)
    kernel(x, y)  # and outside of it afterwards
    assert float(y.max()) == 14


def test_a_first_call_while_another_thread_captures(torch: Any) -> None:
    inside, done = threading.Event(), threading.Event()
    failures: list[BaseException] = []

    def other() -> None:
        try:
            inside.wait(60)
            with torch.cuda.stream(stream):
                make()(x, y)
        except BaseException as error:
            failures.append(error)
        finally:
            done.set()

    x, y, captured = (torch.zeros(64, 32, device="cuda") for _ in range(3))
    stream, kernel = torch.cuda.Stream(), make()
    kernel(x, captured)
    thread = threading.Thread(target=other)
    thread.start()
    captured_calls = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured_calls):
        inside.set()
        done.wait(60)
        kernel(x, captured)
    thread.join()
    assert not failures
    x.fill_(3.0)
    captured_calls.replay()
    torch.cuda.synchronize()
    assert float(captured.min()) == 6


# ---------------------------------------------------------------------------------------------- repeated calls


def test_calls_that_repeat_keep_their_place_in_the_stream(torch: Any) -> None:
    """They are graphs in the end, of shapes in turns: after what wrote their input, before what reads their output, and
    ordered with other streams that wait for the default one."""
    kernel, seen = make(), []
    turns = [(torch.empty(rows, 32, device="cuda"), torch.empty(rows, 32, device="cuda")) for rows in (64, 61, 256)]
    blocking = torch.cuda.ExternalStream(legacy_blocking())
    for i in range(3 * graph.FIRST):
        for x, y in turns:
            with torch.cuda.stream(blocking if i % 3 == 2 else torch.cuda.default_stream()):
                torch.cuda._sleep(10_000)
                x.fill_(float(i))
            kernel(x, y)
            with torch.cuda.stream(blocking if i % 3 == 1 else torch.cuda.default_stream()):
                seen.append((y.clone(), 2.0 * i))
    torch.cuda.synchronize()
    assert all(float(y.min()) == float(y.max()) == value for y, value in seen)


def legacy_blocking() -> int:
    """A stream that the default stream waits for, and the other way round."""
    stream = ctypes.c_void_p()
    driver.check("test", "cuStreamCreate", driver.loaded().cuStreamCreate(ctypes.byref(stream), 0))
    return stream.value or 0


def test_calls_that_repeat_with_more_shared_memory_than_usual(torch: Any) -> None:
    kernel = load("gemm").gemm_v2
    a, b = (torch.randn(256, 512, device="cuda").bfloat16() for _ in range(2))
    b = b.T.contiguous()
    c = torch.empty(256, 256, device="cuda", dtype=torch.bfloat16)
    kernel(a, b, c)
    first = c.clone()
    for _ in range(2 * graph.FIRST):
        c.zero_()
        kernel(a, b, c)
        assert torch.equal(c, first)


def test_calls_that_repeat_while_another_stream_is_captured(torch: Any) -> None:
    kernel = make()
    x, y, z = (torch.ones(64, 32, device="cuda") for _ in range(3))
    kernel(x, y)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        z.add_(1)
        with torch.cuda.stream(torch.cuda.default_stream()):
            for _ in range(2 * graph.FIRST):
                kernel(x, y)
        kernel(z, y)
    captured.replay()
    torch.cuda.synchronize()
    assert float(z.min()) == 2
    assert float(y.min()) == float(y.max()) == 4


def repeated(torch: Any) -> tuple[Any, Any, Any]:
    """A kernel that has been called often with the same tensors, and these: the output is zero again."""
    kernel = make()
    x, y = torch.ones(64, 32, device="cuda"), torch.zeros(64, 32, device="cuda")
    for _ in range(2 * graph.FIRST):
        kernel(x, y)
    y.zero_()
    torch.cuda.synchronize()
    return kernel, x, y


def test_calls_that_repeat_in_another_context(torch: Any) -> None:
    """A thread whose current context is not the one that the tensors are in."""
    kernel, x, y = repeated(torch)
    found, context = driver.loaded(), ctypes.c_void_p()
    driver.check("test", "cuCtxCreate", found.cuCtxCreate_v2(ctypes.byref(context), 0, 0))
    try:
        kernel(x, y)
    finally:
        found.cuCtxDestroy_v2(context)
    torch.cuda.synchronize()
    assert torch.equal(y, x * 2)


# ---------------------------------------------------------------------------------------------- threads


def test_many_threads_make_the_first_call_and_go_on(torch: Any) -> None:
    kernel = make()

    def work(seed: int) -> None:
        rows = 32 * (1 + seed % 4) + seed % 3
        x = torch.full((rows, 32), float(seed), device="cuda")
        outputs = [torch.zeros(rows, 32, device="cuda") for _ in range(3)]
        for i in range(300):
            kernel(x, outputs[i % 3])
        torch.cuda.synchronize()
        assert all(torch.equal(y, x * 2) for y in outputs)

    in_threads(8, work)


def test_a_thread_that_has_not_used_the_gpu_launches(torch: Any) -> None:
    kernel, x, y = repeated(torch)

    def work(_: int) -> None:
        for _ in range(3):
            kernel(x, y)

    in_threads(1, work)
    torch.cuda.synchronize()
    assert torch.equal(y, x * 2)


# ---------------------------------------------------------------------------------------------- several devices


@pytest.fixture
def two(torch: Any) -> Any:
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU only")
    return torch


def test_a_kernel_runs_on_the_device_that_holds_its_tensors(two: Any) -> None:
    kernel = make()
    for current in (0, 1, 0):
        with two.cuda.device(current):
            for device in (1, 0, 1):
                for stream in (two.cuda.default_stream(device), two.cuda.Stream(device)):
                    with two.cuda.device(device), two.cuda.stream(stream):
                        x = two.full((64, 32), 1.0 + device, device=f"cuda:{device}")
                        y = two.zeros(64, 32, device=f"cuda:{device}")
                    stream.synchronize()
                    for _ in range(3):
                        kernel(x, y)
                    two.cuda.synchronize(device)
                    assert two.equal(y, x * 2)
                    assert two.cuda.current_device() == current


def test_tensors_of_two_devices_are_refused(two: Any) -> None:
    kernel = make()
    x, y = two.ones(64, 32, device="cuda:0"), two.zeros(64, 32, device="cuda:1")
    for _ in range(2):
        with pytest.raises(WrongArguments, match="y is on cuda:1, x on cuda:0"):
            kernel(x, y)


def test_threads_on_two_devices(two: Any) -> None:
    kernel = make()

    def work(seed: int) -> None:
        device = f"cuda:{seed % 2}"
        x = two.full((64 + seed, 32), float(seed), device=device)
        y = two.zeros(64 + seed, 32, device=device)
        for _ in range(100):
            kernel(x, y)
        two.cuda.synchronize(device)
        assert two.equal(y, x * 2)

    in_threads(8, work)


def test_arrays_of_others_run_on_their_device(two: Any) -> None:
    cupy = pytest.importorskip("cupy")
    kernel = make()
    with cupy.cuda.Device(1):
        x, y = cupy.ones((64, 32), np.float32), cupy.zeros((64, 32), np.float32)
    kernel(x, y)
    with cupy.cuda.Device(1):
        cupy.cuda.runtime.deviceSynchronize()
        assert float(y.min()) == float(y.max()) == 2


# ---------------------------------------------------------------------------------------------- strides


def test_views_with_gaps_are_read_and_written(torch: Any) -> None:
    kernel = make()
    wide = torch.randn(300, 96, device="cuda")
    out = torch.zeros(300, 80, device="cuda")
    columns = (wide[:, :32], wide[:, 1:33], wide[:, 2:34])
    for x in (*columns, wide[::3, 64:], wide[7:8, 4:36], wide[:1, :32].expand(50, 32)):
        for y in (out[: len(x), 16:48], out[: len(x), 3:35], torch.zeros(len(x), 32, device="cuda")):
            for _ in range(2):
                out.zero_()
                kernel(x, y)
                assert torch.equal(y, x * 2)
                if y.stride(0) == 80:  # and nothing beside it
                    y.zero_()
                    assert not out.any()
    rows = wide.as_strided((200, 32), (16, 1))  # windows that overlap, read
    kernel(rows, out[:200, :32])
    assert torch.equal(out[:200, :32], rows * 2)
    kernel(wide[:, :32], wide[:, 32:64])  # columns of one array
    assert torch.equal(wide[:, 32:64], wide[:, :32] * 2)


def test_strides_that_no_kernel_can_work_with_are_refused_by_name(torch: Any) -> None:
    kernel = make()
    x, y = torch.ones(64, 32, device="cuda"), torch.zeros(64, 32, device="cuda")
    for arrays, message in [
        ((torch.ones(32, 64, device="cuda").t(), y), "x has the stride 64 on axis 1"),
        ((torch.ones(64, 64, device="cuda")[:, ::2], y), "x has the stride 2 on axis 1"),
        ((x, y[:1].expand(64, 32)), "y has the stride 0 on axis 0"),
        ((x, torch.zeros(4096, device="cuda").as_strided((64, 32), (16, 1))), "y has the stride 16 on axis 0"),
        ((x[:, :32], x.as_strided((64, 32), (32, 1))), "y is written and shares memory with x"),
    ]:
        with pytest.raises(WrongArguments, match=message):
            kernel(*arrays)


def test_attention_takes_heads_as_they_lie_in_a_projection(torch: Any) -> None:
    """[batch, length, heads, width] seen as [batch, heads, length, width]: no copy."""
    kernel = load("attention_small").attention
    qkv = torch.randn(2, 200, 3, 4, 64, device="cuda").bfloat16()
    q, k, v = (qkv[:, :, i].transpose(1, 2) for i in range(3))
    out = torch.zeros(2, 200, 4, 64, device="cuda", dtype=torch.bfloat16)
    packed = torch.zeros(2, 4, 200, 64, device="cuda", dtype=torch.bfloat16)
    keys = 192
    kernel(q, k[:, :, :keys], v[:, :, :keys], out.transpose(1, 2))
    kernel(q.contiguous(), k[:, :, :keys].contiguous(), v[:, :, :keys].contiguous(), packed)
    assert torch.equal(out.transpose(1, 2), packed)


def test_products_of_views(torch: Any) -> None:
    kernel = load("gemm").gemm_v2
    a = torch.randn(300, 512, device="cuda").bfloat16()
    b = torch.randn(200, 512, device="cuda").bfloat16()
    c = torch.zeros(300, 512, device="cuda", dtype=torch.bfloat16)
    packed = torch.zeros(300, 256, device="cuda", dtype=torch.bfloat16)
    for at in (0, 8, 4):  # 16 and 8 bytes of alignment
        x, y = a[:, at : at + 200], b[:, at : at + 256]
        kernel(x, y, c[:, at : at + 256])
        kernel(x.contiguous(), y.contiguous(), packed)
        assert torch.equal(c[:, at : at + 256], packed)


# ---------------------------------------------------------------------------------------------- what is refused


def test_what_does_not_fit_is_refused_before_and_after_a_call_that_does(torch: Any) -> None:
    kernel = make()
    x, y = torch.ones(64, 32, device="cuda"), torch.zeros(64, 32, device="cuda")
    for _ in range(2):
        for arrays, message in [
            ((x,), "1 arrays are given for 2 parameters"),
            ((x, y, y), "3 arrays are given for 2 parameters"),
            ((x.half(), y), "x (is|holds) f32"),
            ((x, y[:, :16]), r"\(64, 16\)"),
            ((x[:32], y), r"\(64, 32\)|\(32, 32\)"),
            ((x, y.cpu()), "y is a tensor on the CPU"),
            ((x, np.zeros((64, 32), np.float32)), "y is on host, x on cuda:0"),
            ((x, x), "y is written and shares memory with x"),
            ((x[:32], x[16:48]), "y is written and shares memory with x"),
            ((x.to_sparse(), y), "x is a tensor without strides"),
            ((x, [1.0]), "y is given a list"),
        ]:
            with pytest.raises(WrongArguments, match=message):
                kernel(*arrays)
        kernel(x, y)
        kernel(x[:32], x[32:])
        assert torch.equal(y[:32], x[32:])
        x.fill_(1.0)


# ---------------------------------------------------------------------------------------------- other libraries


def test_cupy_arrays_run_on_cupys_stream() -> None:
    cupy = pytest.importorskip("cupy")
    kernel = make()
    for stream in (cupy.cuda.Stream.null, cupy.cuda.Stream(non_blocking=True)):
        with stream:
            x = cupy.arange(64 * 32, dtype=np.float32).reshape(64, 32)
            y = cupy.zeros_like(x)
            for _ in range(2):
                x += 1
                kernel(x, y)
            z = y + 0
        stream.synchronize()
        assert np.array_equal(cupy.asnumpy(z), 2 * cupy.asnumpy(x))
    with pytest.raises(WrongArguments, match="y is written and shares memory with x"):
        kernel(x, x)


def test_torch_and_cupy_arrays_may_be_mixed(torch: Any) -> None:
    cupy = pytest.importorskip("cupy")
    kernel = make()
    x, y = torch.ones(64, 32, device="cuda"), cupy.zeros((64, 32), np.float32)
    kernel(x, y)
    assert float(y.min()) == 2


def test_jax_arrays_are_read(torch: Any) -> None:
    """JAX arrays cannot be written, so that the output is another library's. bf16 comes through DLPack."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    jax = pytest.importorskip("jax")
    try:
        device = jax.devices("cuda")[0]
    except RuntimeError:
        pytest.skip("JAX sees no GPU")
    values = np.arange(64 * 32).reshape(64, 32) % 64
    for kernel, dtype, mine in (
        (make(), np.float32, torch.float32),
        (make_bf16(), ml_dtypes.bfloat16, torch.bfloat16),
    ):
        x = jax.device_put(values.astype(dtype), device)
        y = torch.zeros(64, 32, dtype=mine, device="cuda")
        for _ in range(2):
            kernel(x, y)
        assert np.array_equal(y.float().cpu().numpy(), 2.0 * values)
