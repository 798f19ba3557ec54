"""What a call does between Python and the driver: arguments, streams, devices, threads, and what is done once only."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import fake_driver
import numpy as np
import pytest
from fake_driver import FakeDriver, Launch, Tensor, Torch

import tidegate as tg
from tidegate.errors import LaunchFailed, WrongArguments
from tidegate.ir.dtypes import DTYPES, number
from tidegate.runtime import driver, graph, variants
from tidegate.runtime.compile import Cubin
from tidegate.runtime.launch import Loaded

FACTOR = 2.0


def make() -> Any:
    """A new kernel object."""

    @tg.kernel(warps=1)
    def scaled(x: tg.Tensor["R", 32, "f32"], y: tg.Out["R", 32, "f32"], *, BY=1.0):
        for r in tg.grid(tg.tiles("R", 4)):
            y[r, :] = tg.load(x[r, :]) * (BY * FACTOR)

    return scaled


def no_compiler(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Compiled forms load without machine code; returns those that are made."""
    compile_program, made = variants.compile_program, []

    def compile_(*args: Any) -> Any:
        found = compile_program(*args)
        found.__dict__["cubin"] = SimpleNamespace(code=b"", arch="sm_90a")
        made.append(found)
        return found

    monkeypatch.setattr(variants, "compile_program", compile_)
    return made


@pytest.fixture
def one(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDriver]:
    """One GPU, whose context is current."""
    no_compiler(monkeypatch)
    fake, _ = fake_driver.install(monkeypatch)
    fake.contexts.append(100)
    yield fake
    fake_driver.uninstall()


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[FakeDriver, Torch]]:
    """Two GPUs; the first is current."""
    no_compiler(monkeypatch)
    fake, torch = fake_driver.install(monkeypatch, 2)
    fake.contexts.append(100)
    yield fake, torch
    fake_driver.uninstall()


def pair(rows: int = 8, at: int = 4096, device: int = 0) -> tuple[Tensor, Tensor]:
    return Tensor("float32", rows, 32, at=at, device=device), Tensor(
        "float32", rows, 32, at=at + (1 << 20), device=device
    )


def test_arguments_are_addresses_then_sizes(one: FakeDriver) -> None:
    kernel = make()
    for rows, at in ((8, 4096), (12, 4096), (8, 8192), (8, 4096)):
        kernel(*pair(rows, at))
        assert one.launches.pop() == Launch(0, (rows // 4, 1, 1), 32, 0, 70, [at, at + (1 << 20), rows])


def test_nothing_is_asked_or_loaded_twice(one: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = make()
    kernel(*pair())
    one.calls.clear()
    monkeypatch.setattr(variants, "describe_all", None)  # a second call must not come this way
    kernel(*pair())
    assert len(one.launches) == 2
    assert one.calls == []


def test_shapes_of_the_same_divisors_share_code(one: FakeDriver) -> None:
    kernel = make()
    for rows in (4, 12, 20, 28):
        kernel(*pair(rows))
    assert one.calls.count("cuLibraryLoadData") == 1
    kernel(*pair(rows=5))
    assert one.calls.count("cuLibraryLoadData") == 2


def test_an_empty_grid_launches_nothing(one: FakeDriver) -> None:
    kernel = make()
    for _ in range(2):
        kernel(*pair(rows=0))
    assert one.launches == []


def test_constants_and_module_values_choose_the_code(one: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = make()
    for _ in range(2):
        kernel(*pair())
        kernel(*pair(), BY=3.0)
        monkeypatch.setitem(globals(), "FACTOR", 5.0)
        kernel(*pair())
        monkeypatch.setitem(globals(), "FACTOR", 2.0)
    assert one.calls.count("cuLibraryLoadData") == 3
    with pytest.raises(tg.TidegateError, match="BY"):
        kernel(*pair(), BY=[1.0])


@pytest.mark.parametrize("values", [(0.0, -0.0), (-0.0, 0.0, 0), (1, 1.0), ((2, 0.0), (2, -0.0), (2.0, 0.0))])
def test_values_that_only_compare_equal_are_others(one: FakeDriver, values: tuple[Any, ...]) -> None:
    @tg.kernel(warps=1)
    def scaled(x: tg.Tensor["R", 32, "f32"], y: tg.Out["R", 32, "f32"], *, BY=(1,)):
        for r in tg.grid(tg.tiles("R", 4)):
            y[r, :] = tg.load(x[r, :]) * (BY[-1] if isinstance(BY, tuple) else BY)

    for _ in range(2):
        for value in values:
            scaled(*pair(), BY=value)
    assert one.calls.count("cuLibraryLoadData") == len(values)
    fresh = [make_like(scaled).compile("sm_90a", BY=value).cuda for value in values]
    assert [scaled.compile("sm_90a", BY=value).cuda for value in values] == fresh


def make_like(kernel: Any) -> Any:
    return tg.kernel(warps=1)(kernel.function)


def test_variables_of_enclosing_functions_choose_the_code(one: FakeDriver) -> None:
    by = 2.0

    @tg.kernel(warps=1)
    def scaled(x: tg.Tensor["R", 32, "f32"], y: tg.Out["R", 32, "f32"]):
        for r in tg.grid(tg.tiles("R", 4)):
            y[r, :] = tg.load(x[r, :]) * by

    scaled(*pair())
    before = scaled.compile("sm_90a").cuda
    by = 3.0
    scaled(*pair())
    assert scaled.compile("sm_90a").cuda != before
    assert one.calls.count("cuLibraryLoadData") == 2


def test_tensors_are_checked_every_time(one: FakeDriver) -> None:
    kernel = make()
    x, y = pair()
    kernel(x, y)
    for arrays, message in [
        ((x, Tensor("float16", 8, 32, at=1 << 20)), "y is f32, the array is f16"),
        ((x, Tensor("float32", 8, 16, at=1 << 20)), r"got shape \(8, 16\)"),
        ((x, Tensor("float32", 8, 32, device=-1)), "y is a tensor on the CPU"),
        ((x, np.zeros((8, 32), np.float32)), "y is on host, x on cuda:0"),
        ((x,), "1 arrays are given for 2 parameters"),
        ((x, y, y), "3 arrays are given for 2 parameters"),
        ((x, x), "y is written and shares memory with x"),
        ((x, Tensor("float32", 8, 32, at=x.at + 512)), "y is written and shares memory with x"),
    ]:
        for _ in range(2):
            with pytest.raises(WrongArguments, match=message):
                kernel(*arrays)
    assert len(one.launches) == 1


def test_tensors_are_compared_however_torch_offers_it(one: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """By guards like torch's, by guards that refuse what they are made of, by guards of another version, by none."""
    x, y = pair()
    for guards in (Guards, Refusing, dict, None):
        monkeypatch.setattr(Torch, "_dynamo", SimpleNamespace(guards=SimpleNamespace(TensorGuards=guards)))
        kernel = make()
        for rows in (8, 8, 12, 8):
            x.shape = y.shape = (rows, 32)
            kernel(x, y)
            assert one.launches.pop().words[2:] == [rows]
        with pytest.raises(WrongArguments, match="y is f32, the array is f16"):
            kernel(x, Tensor("float16", 8, 32, at=y.at))


def test_calls_in_turns_are_compared_with_the_last_one_at_their_addresses(
    one: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shapes that alternate cost no more than one; nor do tensors that torch tells apart and the kernel does not."""
    made = []

    class Counting(Guards):
        def __init__(self, *tensors: Tensor, **dynamic: Any) -> None:
            made.append(tensors)
            super().__init__(*tensors, **dynamic)

        def read(self, tensors: tuple[Tensor, ...]) -> list[Any]:
            return [*super().read(tensors), *(getattr(t, "requires_grad", False) for t in tensors)]

    guards = SimpleNamespace(guards=SimpleNamespace(TensorGuards=Counting))
    monkeypatch.setattr(Torch, "_dynamo", guards)
    kernel = make()
    turns = [pair(8, 4096), pair(12, 8192), pair(16, 16384), pair(8, 32768)]
    turns[3][0].requires_grad = True  # type: ignore[attr-defined]
    for _ in range(3):
        for tensors in turns:
            kernel(*tensors)
            assert one.launches.pop().words == [tensors[0].at, tensors[1].at, tensors[0].shape[0]]
    assert len(made) == len(turns)


class Guards:
    """Compares like torch's: tensors with those that it was made of."""

    def __init__(self, *tensors: Tensor, dynamic_dims_sizes: Any, dynamic_dims_strides: Any) -> None:
        self.known = self.read(tensors)

    def read(self, tensors: tuple[Tensor, ...]) -> list[Any]:
        return [(t.dtype, t.shape, t.index, t.strides) for t in tensors]

    def check(self, *tensors: Tensor) -> bool:
        return self.read(tensors) == self.known


class Refusing(Guards):
    """Finds that nothing is what it was made of, as torch's do of one tensor that is passed twice."""

    def check(self, *tensors: Tensor) -> bool:
        return False


def test_misaligned_tensors_get_code_of_their_own_and_loaded_kernels_refuse_them(one: FakeDriver) -> None:
    kernel = make()
    kernel(*pair())
    kernel(*pair(at=4100))
    assert one.calls.count("cuLibraryLoadData") == 2
    loaded = compiled().loaded
    loaded(*pair())
    for _ in range(2):
        with pytest.raises(WrongArguments, match="x is at address 0x1004, no multiple of 16 bytes"):
            loaded(*pair(at=4100))


def compiled(**given: Any) -> Any:
    found = make().compile(target="h200", **given)
    found.__dict__["cubin"] = SimpleNamespace(code=b"", arch="sm_90a")
    return found


def test_values_that_change_with_every_launch_come_last(one: FakeDriver) -> None:
    loaded: Loaded = compiled().loaded
    x, y = pair()
    for value in (7, 8):
        loaded._call((x, y), {}, (value, value + 1))
        assert one.launches.pop().words == [x.at, y.at, 8, value, value + 1]


MOST = float(np.finfo(np.float32).max)
NUMBERS = [
    0.1, -0.0, 5e-324, MOST, MOST * (1 + 2**-26), MOST * (1 + 2**-25), 1e39, float("inf"), float("nan"), 2, 2**24 + 1,
    2**60 + 1, -(2**31), 2**31, 10**400, np.float64(0.1), np.float16(1.5), np.int64(-3), np.array(2.5), True, "1", None,
]  # fmt: skip


@pytest.mark.parametrize("dtype", ["f32", "i32"])
def test_numbers_are_what_a_scalar_holds(one: FakeDriver, dtype: str) -> None:
    """The short way of a call agrees with what the plain program takes."""

    @tg.kernel(warps=1)
    def of_float(x: tg.Tensor["R", 32, "f32"], by: tg.Scalar["f32"], y: tg.Out["R", 32, "f32"]):
        for r in tg.grid(tg.tiles("R", 4)):
            y[r, :] = tg.load(x[r, :]) * by

    @tg.kernel(warps=1)
    def of_int(x: tg.Tensor["R", 32, "f32"], by: tg.Scalar["i32"], y: tg.Out["R", 32, "f32"]):
        for r in tg.grid(tg.tiles("R", 4)):
            y[r, :] = tg.load(x[r, :]) * by

    (x, y), scaled = pair(), of_float if dtype == "f32" else of_int
    for given in NUMBERS:
        value = number(DTYPES[dtype], given)
        if value is None:
            with pytest.raises(WrongArguments, match=f"by is {dtype}, got"):
                scaled(x, given, y)
        else:
            scaled(x, given, y)
            bits = np.array(value, DTYPES[dtype].numpy).view(np.uint32)
            assert one.launches.pop().words == [x.at, y.at, 8, bits]
    with pytest.raises(WrongArguments, match="got 2 arguments for the parameters x, by, y"):
        scaled(x, y)


def test_an_error_of_the_driver_names_the_kernel(one: FakeDriver) -> None:
    kernel = make()
    kernel(*pair())
    one.status = 700
    one.cuGetErrorName = lambda status, out: setattr(out._obj, "value", b"CUDA_ERROR_X")  # type: ignore[attr-defined]
    for _ in range(2):
        with pytest.raises(LaunchFailed, match="scaled: cuLaunchKernelEx returned CUDA_ERROR_X"):
            kernel(*pair())


def test_a_cubin_prints_in_one_line() -> None:
    log = "ptxas info    : Compiling entry function 'scaled_kernel' for 'sm_90a'"
    cubin = Cubin(b"ELF", "sm_90a", "key", log, from_cache=False)
    assert repr(cubin) == "<tidegate cubin of scaled_kernel for sm_90a, 3 bytes>"
    assert repr(Cubin(b"ELF", "sm_90a", "key", "", from_cache=False)) == "<tidegate cubin for sm_90a, 3 bytes>"


# ---------------------------------------------------------------------------------------------- graphs


@pytest.fixture
def default(one: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    """One GPU, torch on the default stream, no tool that looks on."""
    sys.modules["torch"].stream = 0  # type: ignore[attr-defined]
    for name in graph.TOOLS:
        monkeypatch.delenv(name, raising=False)
    return one


def how(fake: FakeDriver) -> list[bool]:
    """Of each launch whether it was that of a graph; forgets them."""
    found = [launch.graph for launch in fake.launches]
    fake.launches.clear()
    return found


def test_what_repeats_on_the_default_stream_becomes_a_graph(default: FakeDriver) -> None:
    kernel, turns = make(), [pair(8, 4096), pair(12, 8192), pair(8, 16384)]
    for i in range(2 * graph.FIRST):
        for x, y in turns:
            kernel(x, y)
            launch = default.launches[-1]
            assert launch.words == [x.at, y.at, x.shape[0]]
            assert launch.grid == (x.shape[0] // 4, 1, 1)
            assert launch.graph == (i >= graph.FIRST)
    how(default)
    for rows, at in ((8, 32768), (0, 4096)):  # elsewhere, and nothing
        kernel(*pair(rows, at))
    sys.modules["torch"].stream = 70  # type: ignore[attr-defined]
    kernel(*turns[0])
    assert how(default) == [False, False]


def test_graphs_are_few(default: FakeDriver) -> None:
    kernel = make()
    for _ in range(graph.FIRST + 1):
        for i in range(graph.MOST_GRAPHS + 2):
            kernel(*pair(8, 4096 * (i + 1)))
    assert sum(how(default)[-graph.MOST_GRAPHS - 2 :]) == graph.MOST_GRAPHS


def test_a_graph_that_cannot_start_is_a_launch(default: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    meanwhile: list[Callable[[], None]] = []

    def ask(out: Any) -> int:
        if meanwhile:
            meanwhile.pop()()
        return FakeDriver.cuCtxGetCurrent(default, out)

    monkeypatch.setattr(driver, "quick", lambda name: ask)
    kernel, tensors = make(), pair()
    for _ in range(graph.FIRST + 1):
        kernel(*tensors)
    assert how(default)[-1]
    for contexts in ([], [7], [7, 100]):
        default.contexts[:] = contexts
        kernel(*tensors)
        assert how(default) == [contexts[-1:] == [100]]
        assert default.contexts == (contexts or [100])  # a thread that had none keeps the device's
    meanwhile.append(lambda: kernel(*tensors))  # another thread, or a finalizer
    kernel(*tensors)
    assert how(default) == [False, True]
    default.status = 700
    with pytest.raises(LaunchFailed):
        kernel(*tensors)


@pytest.mark.parametrize("missing", ["tool", "node", "graph", "memory"])
def test_no_graph_is_made_where_it_does_harm_or_fails(
    default: FakeDriver, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    if missing == "tool":
        monkeypatch.setenv("NSYS_PROFILING_SESSION_ID", "1")
    elif missing == "node":  # a driver that is too old
        monkeypatch.delattr(FakeDriver, "cuGraphAddKernelNode_v2")
        usual = FakeDriver.__getattr__
        monkeypatch.setattr(FakeDriver, "__getattr__", lambda self, name: usual(self, name.replace("cuGraphAdd", "")))
    else:
        name = "cuGraphCreate" if missing == "graph" else "cuGraphInstantiateWithFlags"
        monkeypatch.setattr(default, name, lambda *_: 2, raising=False)
    kernel, tensors = make(), pair()
    for _ in range(graph.FIRST + 3):
        kernel(*tensors)
    assert how(default) == [False] * (graph.FIRST + 3)


# ---------------------------------------------------------------------------------------------- strides


def test_strides_are_launch_arguments_of_code_that_is_compiled_for_them(one: FakeDriver) -> None:
    kernel = make()
    kernel(*pair())
    x, y = pair()
    for stride in (64, 96, 1 << 33, 0):
        kernel(Tensor("float32", 8, 32, at=4096, strides=(stride, 1)), y)
        assert one.launches.pop().words == [4096, y.at, 8, stride]
    kernel(x, Tensor("float32", 8, 32, at=y.at, strides=(48, 1)))
    assert one.launches.pop().words == [x.at, y.at, 8, 48]
    assert one.calls.count("cuLibraryLoadData") == 3  # without strides, of x, of y
    for stride in (33, 35, 34):  # of other alignment
        kernel(Tensor("float32", 8, 32, at=4096, strides=(stride, 1)), y)
    assert one.calls.count("cuLibraryLoadData") == 5
    kernel(Tensor("float32", 1, 32, at=4096, strides=(7, 1)), Tensor("float32", 1, 32, at=y.at, strides=(9, 1)))
    assert one.launches.pop().words == [4096, y.at, 1]  # one row has no stride


def test_strides_that_no_kernel_can_work_with_are_refused_by_name(one: FakeDriver) -> None:
    kernel = make()
    x, y = pair()
    for strides, message in [
        ((1, 8), r"x has the stride 8 on axis 1 of shape \(8, 32\): accesses run along the last axis"),
        ((64, 2), r"x has the stride 2 on axis 1 of shape \(8, 32\): accesses run along the last axis"),
        ((-32, 1), r"x has the stride -32 on axis 0 of shape \(8, 32\): it runs backwards"),
    ]:
        with pytest.raises(WrongArguments, match=message):
            kernel(Tensor("float32", 8, 32, at=4096, strides=strides), y)
    for stride in (0, 16, 31):
        with pytest.raises(WrongArguments, match=f"y has the stride {stride} on axis 0 .*: elements .* share memory"):
            kernel(x, Tensor("float32", 8, 32, at=y.at, strides=(stride, 1)))
    assert one.launches == []


def test_columns_of_one_array_may_be_read_and_written(one: FakeDriver) -> None:
    kernel = make()
    left, right = (Tensor("float32", 8, 32, at=4096 + 4 * at, strides=(64, 1)) for at in (0, 32))
    kernel(left, right)
    assert one.launches.pop().words == [left.at, right.at, 8, 64, 64]
    for at in (4, 28, -28, 36):  # into the columns of the other, in the same row or the next one
        with pytest.raises(WrongArguments, match="y is written and shares memory with x"):
            kernel(left, Tensor("float32", 8, 32, at=left.at + 4 * at, strides=(64, 1)))


def test_loaded_kernels_take_the_strides_that_they_are_compiled_for(one: FakeDriver) -> None:
    wide = Tensor("float32", 8, 32, at=4096, strides=(64, 1))
    y = pair()[1]
    with pytest.raises(WrongArguments, match=r"x is not contiguous .* with strides \(64, 1\)"):
        compiled().loaded(wide, y)
    loaded = compiled(strided={"x": 8}).loaded
    loaded(wide, y)
    loaded(*pair())
    assert [launch.words[3] for launch in one.launches] == [64, 32]
    with pytest.raises(WrongArguments, match="x has the stride 34 on axis 0: 136 bytes are no multiple of 16"):
        loaded(Tensor("float32", 8, 32, at=4096, strides=(34, 1)), y)


def test_copies_of_host_arrays_are_padded_for_kernels_that_take_strides(one: FakeDriver) -> None:
    @tg.kernel(warps=1)
    def copied(x: tg.Tensor["R", "N", "f32"], y: tg.Out["R", "N", "f32"]):
        for r, n in tg.grid(tg.tiles("R", 4), tg.tiles("N", 32)):
            y[r, n] = tg.load(x[r, n])

    found = copied.compile(target="h200", strided=("x", "y"), multiples={"N": 1, "R": 1})
    found.__dict__["cubin"] = SimpleNamespace(code=b"", arch="sm_90a")
    found.loaded(np.ones((5, 7), np.float32), np.empty((5, 7), np.float32))
    assert one.launches.pop().words == [1 << 20, 1 << 20, 5, 7, 8, 8]


# ---------------------------------------------------------------------------------------------- devices, threads


def test_each_device_gets_the_kernel_loaded_and_its_own_stream(two: tuple[FakeDriver, Torch]) -> None:
    fake, torch = two
    kernel = make()
    for device in (0, 1, 0, 1):
        kernel(*pair(device=device))
        found = fake.launches.pop()
        assert (found.device, found.stream) == (device, 70 + device)
        assert fake.contexts == [100]  # as before
    torch.current, fake.contexts[:] = 1, [101]
    kernel(*pair(device=0))
    assert fake.launches.pop().device == 0
    assert fake.calls.count("cuLibraryLoadData") == 2
    with pytest.raises(WrongArguments, match="y is on cuda:1, x on cuda:0"):
        kernel(pair()[0], pair(device=1)[1])


def test_many_threads_may_make_the_first_call(one: FakeDriver) -> None:
    kernel, failures = make(), []
    start = threading.Barrier(8)

    def work(rows: int) -> None:
        start.wait()
        try:
            for i in range(50):
                kernel(*pair(rows, at=4096 * (1 + i % 3)))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(4 * (1 + i % 2),)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert one.calls.count("cuLibraryLoadData") <= 2  # one per divisor of the sizes
    assert len(one.launches) == 8 * 50
    assert all(launch.words[2] == 4 * launch.grid[0] for launch in one.launches)


# ---------------------------------------------------------------------------------------------- other arrays


class Cuda:
    """An array with __cuda_array_interface__ on device ``at >> 40``."""

    def __init__(self, rows: int, at: int, stream: int | None) -> None:
        about = {"typestr": "<f4", "shape": (rows, 32), "strides": None, "data": (at, False), "stream": stream}
        self.__cuda_array_interface__ = about
        self.shape, self.dtype = (rows, 32), "float32"


@pytest.mark.parametrize(
    ("streams", "chosen", "calls"),
    [
        ((1, 1), 0, []),
        ((9, 9), 9, []),
        ((9, 1), 9, ["cuEventRecord", "cuStreamWaitEvent"] * 2),
        ((None, None), 0, ["cuStreamSynchronize"]),
        ((None, 5), 5, ["cuStreamSynchronize"]),
    ],
)
def test_arrays_of_others_run_on_the_streams_that_they_name(
    two: tuple[FakeDriver, Torch], streams: tuple[int | None, int | None], chosen: int, calls: list[str]
) -> None:
    fake, _ = two
    kernel, memory = make(), 1 << 40
    x, y = Cuda(8, memory, streams[0]), Cuda(8, memory + 1024, streams[1])
    for _ in range(2):
        fake.calls.clear()
        kernel(x, y)
        found = fake.launches.pop()
        assert (found.device, found.stream, found.words) == (1, chosen, [memory, memory + 1024, 8])
        assert [c for c in fake.calls if c in ("cuEventRecord", "cuStreamWaitEvent", "cuStreamSynchronize")] == calls
    assert fake.contexts == [100]


def test_tensors_and_arrays_of_others_may_be_mixed(one: FakeDriver) -> None:
    kernel = make()
    kernel(Tensor("float32", 8, 32, at=4096), Cuda(8, 1 << 20, 70))
    assert one.launches.pop().words == [4096, 1 << 20, 8]
    with pytest.raises(WrongArguments, match="y is written and shares memory with x"):
        kernel(Tensor("float32", 8, 32, at=4096), Cuda(8, 4096 + 128, 70))


def test_numpy_arrays_are_copied(one: FakeDriver) -> None:
    kernel = make()
    x = np.ones((8, 32), np.float32)
    kernel(x[:, ::-1], np.empty_like(x))
    assert one.launches.pop().words == [1 << 20, 1 << 20, 8]
    assert [c for c in one.calls if "Mem" in c] == ["cuMemcpyHtoD_v2"] * 2 + ["cuMemcpyDtoH_v2"] + ["cuMemFree_v2"] * 2
    x.flags.writeable = False
    for arrays, message in [((x, x), "y is written, the array is read-only")]:
        with pytest.raises(WrongArguments, match=message):
            kernel(*arrays)


def test_the_plain_program_refuses_outputs_that_it_reads() -> None:
    kernel = make()
    x = np.ones((8, 32), np.float32)
    wide = np.ones((8, 64), np.float32)
    calls: list[Callable[..., Any]] = [kernel.plain, kernel.compile(target="h200").simulate]
    for run in calls:
        with pytest.raises(WrongArguments, match="y is written and shares memory with x"):
            run(x, x)
        run(wide[:, :32], wide[:, 32:])
        assert (wide[:, 32:] == 2).all()
    frozen = np.ones((8, 32), np.float32)
    frozen.flags.writeable = False
    with pytest.raises(WrongArguments, match=r"y is written, and its array is read-only\n.*a copy: array\.copy\(\)"):
        kernel.plain(x, frozen)
