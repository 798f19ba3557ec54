"""Integers read from tensors, scalar arguments and conditions: values, plans, verdicts, and broken programs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from judging import difference, without

import tidegate as tg
from tidegate import cuda
from tidegate.check import check
from tidegate.errors import TidegateError
from tidegate.ir import tir
from tidegate.ir.dtypes import F32, I32
from tidegate.ir.text import parse_kernel, print_kernel
from tidegate.ops.arguments import split
from tidegate.ops.plain import rounding_bound
from tidegate.runtime.arguments import packed
from tidegate.runtime.compiled import Compiled

PRODUCERS = ("in_order", "multistage")


@tg.kernel(warps=2)
def flagged(
    x: tg.Tensor["B", "T", 32, "f32"], flags: tg.Tensor["B", "N", "i32"], y: tg.Out["B", 32, "f32"], *, STAGES=2
):
    """A guarded copy, whose guard each fill evaluates for its own trip."""
    for b in tg.grid(tg.range("B")):
        acc = tg.zeros((32,))
        for t in tg.tiles("T", 8):
            if tg.load(flags[b, tg.end(t) // 8 - 1]) != 0:
                tile = tg.load(x[b, t, :], by=cuda.cp_async(), stages=STAGES)
                acc += tile.sum(axis=0)
            else:
                acc = acc * 0.5
        y[b, :] = acc


def flagged_numpy(x: np.ndarray, flags: np.ndarray, y: np.ndarray) -> None:
    for b in range(len(x)):
        acc = np.zeros(32, "f4")
        for t in range(-(-x.shape[1] // 8)):
            flag = flags[b, t] if t < flags.shape[1] else 0
            acc = acc + x[b, 8 * t : 8 * t + 8].sum(0) if flag else acc * np.float32(0.5)
        y[b] = acc


@tg.kernel(warps=2)
def paged(
    x: tg.Tensor["P", 8, 32, "f32"],
    table: tg.Tensor["B", "N", "i32"],
    count: tg.Tensor["B", "i32"],
    y: tg.Out["B", 8, 32, "f32"],
    *,
    STAGES=2,
):
    """A loop of a number of trips that is read, over pages whose numbers are read."""
    for b in tg.grid(tg.range("B")):
        acc = tg.zeros((8, 32))
        for j in tg.range(tg.load(count[b])):
            page = tg.load(table[b, j])
            acc += tg.load(x[page, :, :], by=cuda.cp_async(), stages=STAGES)
        y[b, :, :] = acc


def paged_numpy(x: np.ndarray, table: np.ndarray, count: np.ndarray, y: np.ndarray) -> None:
    for b in range(len(y)):
        y[b] = 0
        for j in range(count[b]):
            page = table[b, j] if j < table.shape[1] else 0
            if 0 <= page < len(x):
                y[b] += x[page]


@tg.kernel(warps=1)
def triangle(x: tg.Tensor["T", 16, "f32"], lower: tg.Scalar["i32"], y: tg.Out["T", 16, "f32"], *, STAGES=2):
    """Conditions of a loop's index, a grid index and an argument; two rings that turn together."""
    for m in tg.grid(tg.tiles("T", 8)):
        acc = tg.zeros((8, 16))
        for n in tg.tiles("T", 8):
            if lower <= n <= m:
                acc += tg.load(x[n, :], by=cuda.cp_async(), stages=STAGES)
            elif n == m + 1 or n < lower:
                acc -= tg.load(x[n, :], by=cuda.cp_async(), stages=STAGES)
        if m != 1:
            y[m, :] = acc
        else:
            y[m, :] = acc * 2.0


def triangle_numpy(x: np.ndarray, lower: int, y: np.ndarray) -> None:
    count = -(-len(x) // 8)
    tiles = np.zeros((count, 8, 16), "f4")
    tiles.reshape(-1, 16)[: len(x)] = x
    for m in range(count):
        acc = np.zeros((8, 16), "f4")
        for n in range(count):
            acc += tiles[n] * (1 if lower <= n <= m else -1 if n == m + 1 or n < lower else 0)
        y[8 * m : 8 * m + 8] = (acc * (2 if m == 1 else 1))[: len(y) - 8 * m]


@tg.kernel(warps=2)
def nested(
    x: tg.Tensor["B", "N", 8, 32, "f32"], count: tg.Tensor["B", "i32"], y: tg.Out["C", 8, 32, "f32"], *, STAGES=2
):
    """Loops of a number of trips inside another loop, values exchanged in a branch, a condition of a remainder."""
    for c in tg.grid(tg.range("C")):
        p = tg.zeros((8, 32))
        q = tg.full((8, 32), 1.0)
        for b in tg.range("B"):
            n = tg.load(count[b])
            if n > 1:
                h = p
                p = q
                q = h
            for j in tg.range(n - 1):
                t = tg.load(x[b, j, :, :], by=cuda.cp_async(), stages=STAGES)
                if j % 2 == c:
                    p += t
        y[c, :, :] = p - q


def nested_numpy(x: np.ndarray, count: np.ndarray, y: np.ndarray) -> None:
    for c in range(len(y)):
        p, q = np.zeros((8, 32), "f4"), np.ones((8, 32), "f4")
        for b in range(len(x)):
            if count[b] > 1:
                p, q = q, p
            for j in range(c, count[b] - 1, 2):
                p = p + (x[b, j] if j < x.shape[1] else 0)
        y[c] = p - q


@tg.kernel(warps=1)
def scattered(
    x: tg.Tensor["N", 16, "f32"], row: tg.Tensor["B", "i32"], alpha: tg.Scalar["f32"], shift: tg.Scalar["i32"],
    y: tg.Out["B", "N", 16, "f32"],
):  # fmt: skip
    """Positions that are read, also of stores; rows that nothing writes; scalars beside tiles."""
    for b in tg.grid(tg.range("B")):
        at = tg.minimum(tg.load(row[b]), shift) - 1
        if at != 2:
            y[b, tg.load(row[b]), :] = tg.load(x[at, :]) * alpha + at


def scattered_numpy(x: np.ndarray, row: np.ndarray, alpha: float, shift: int, y: np.ndarray) -> None:
    for b, r in enumerate(row):
        at = min(r, shift) - 1
        if at != 2 and 0 <= r < len(x):
            inside = x[at] if 0 <= at < len(x) else np.zeros(16, "f4")
            y[b, r] = inside * np.float32(alpha) + np.float32(at)


@tg.kernel(warps=2)
def both(x: tg.Tensor["T", 16, "f16"], n: tg.Scalar["i32"], y: tg.Out["T", 16, "f16"]):
    """Each branch makes the tile that is used behind them; one of shared memory, one of registers."""
    for t in tg.tiles("T", 16):
        if t % 2 == 0:
            tile = tg.load(x[t, :], by=cuda.cp_async(), to="shared").T
        else:
            tile = tg.load(x[t, :]) * n
        y[t, :] = tile + tg.full((16, 16), n, "f16")


def both_numpy(x: np.ndarray, n: int, y: np.ndarray) -> None:
    for t in range(0, len(x), 16):
        tile = np.zeros((16, 16), "f2")
        part = x[t : t + 16]
        tile[: len(part)] = part
        used = tile.T if t % 32 == 0 else (tile.astype("f4") * n).astype("f2")
        y[t : t + 16] = (used.astype("f4") + np.float32(n)).astype("f2")[: len(part)]


@tg.kernel(warps=1)
def banded(x: tg.Tensor["T", 16, "f32"], at: tg.Scalar["i32"], y: tg.Out["T", 16, "f32"], *, STAGES=1):
    """Conditions on a distance: of an absolute value, one that is a factor, and one in a divisor."""
    total = tg.zeros((8, 16))
    for t in tg.tiles("T", 8):
        if tg.abs(t - at) < 2:
            total = total + tg.load(x[t, :], by=cuda.cp_async(), stages=STAGES) * tg.abs(at)
        if tg.abs(x=t - at) == tg.minimum(b=1, a=tg.abs(at) + 1):
            total = total + tg.load(x[t, :], by=cuda.cp_async(), stages=STAGES) * (99 // (tg.abs(at) + 1))
        y[t, :] = total


def banded_numpy(x: np.ndarray, at: int, y: np.ndarray) -> None:
    total = np.zeros((8, 16), "f4")
    for t in range(0, len(x), 8):
        part = x[t : t + 8]
        if abs(t // 8 - at) < 2:
            total[: len(part)] += part * np.float32(abs(at))
        if abs(t // 8 - at) == 1:
            total[: len(part)] += part * np.float32(99 // (abs(at) + 1))
        y[t : t + 8] = total[: len(part)]


@dataclass(frozen=True)
class Case:
    """Arguments of several runs, without the last, which is the output of ``shape``."""

    kernel: Any
    numpy: Callable[..., None]
    arguments: Callable[[np.random.Generator], Iterator[tuple[Any, ...]]]
    shape: Callable[..., tuple[int, ...]]
    multiples: dict[str, int] = field(default_factory=dict)
    staged: bool = True

    def __str__(self) -> str:
        return str(self.kernel.name)

    def compile(self, producer: str, stages: int) -> Compiled:
        options: dict[str, Any] = {"STAGES": stages} if self.staged else {}
        multiples = {**dict.fromkeys(self.kernel.dims, 1), **self.multiples}
        found: Compiled = self.kernel.compile("sm_80", plan=producer, multiples=multiples, **options)
        return found


def f4(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype("f4")


def of_flags(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    for steps in (0, 1, 7, 8, 20, 60):
        yield f4(rng, 3, steps, 32), rng.integers(-1, 2, (3, max(steps // 8, 1))).astype("i4")


def of_pages(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    counts = np.array([0, 1, 2, 3, 4, 7, 9, -3], "i4")
    yield f4(rng, 4, 8, 32), rng.integers(-1, 6, (8, 8)).astype("i4"), counts


def of_steps(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    for steps, lower in ((0, 0), (5, 1), (30, -2), (44, 2), (44, 9)):
        yield f4(rng, steps, 16), lower


def of_counts(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    for counts in ([], [0, 3, 6, -2, 5], [1, 2, 8]):
        yield f4(rng, len(counts), 6, 8, 32), np.array(counts, "i4")


def of_rows(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    yield f4(rng, 5, 16), np.array([-7, 0, 1, 3, 4, 5, 2**31 - 1], "i4"), -1.5, 4


def of_halves(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    for steps in (0, 16, 40):
        yield rng.standard_normal((steps, 16)).astype("f2"), 3


def of_bands(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    for steps, at in ((0, 0), (8, 0), (40, 1), (44, -1), (48, 3), (48, 9)):
        yield f4(rng, steps, 16), at


CASES = (
    Case(flagged, flagged_numpy, of_flags, lambda x, flags: (len(x), 32)),
    Case(paged, paged_numpy, of_pages, lambda x, table, count: (len(count), 8, 32)),
    Case(triangle, triangle_numpy, of_steps, lambda x, lower: x.shape),
    Case(nested, nested_numpy, of_counts, lambda x, count: (2, 8, 32)),
    Case(scattered, scattered_numpy, of_rows, lambda x, row, a, s: (len(row), *x.shape), staged=False),
    Case(both, both_numpy, of_halves, lambda x, n: x.shape, {"T": 8}, staged=False),
    Case(banded, banded_numpy, of_bands, lambda x, at: x.shape),
)


def variants() -> Iterator[Any]:
    for case in CASES:
        for stages in range(1, 5) if case.staged else (1,):
            for producer in PRODUCERS:
                yield pytest.param(case, producer, stages, id=f"{case}-{stages}-{producer}")


@pytest.mark.parametrize(("case", "producer", "stages"), list(variants()))
def test_values(case: Case, producer: str, stages: int) -> None:
    k = case.compile(producer, stages)
    for given in case.arguments(np.random.default_rng(1)):
        kind = k.program.tensors[-1].dtype.numpy
        wanted, plain = (np.full(case.shape(*given), 7, kind) for _ in range(2))
        case.numpy(*given, wanted)
        case.kernel.plain(*given, plain, **({"STAGES": stages} if case.staged else {}))
        names = dict(zip(k.program.order, (*given, plain), strict=True))
        bound = rounding_bound(k.program, names)[k.program.order[-1]]
        assert np.allclose(plain, wanted, rtol=1e-5, atol=1e-5)
        for completion in ("late", "early", "random"):
            got = np.full_like(plain, 7)
            result = k.simulate(*given, got, completion=completion, seed=3)
            assert result.ok, result
            assert not (text := difference(got, plain, bound)), f"{completion}: {text}"


@pytest.mark.parametrize(("case", "producer", "stages"), [v for v in variants() if v.values[2] < 3])
def test_plans_are_safe_and_every_sync_is_necessary(case: Case, producer: str, stages: int) -> None:
    k = case.compile(producer, stages)
    assert (verdict := k.check()).status == "safe", verdict.text()
    assert parse_kernel(print_kernel(k.kernel)) == k.kernel
    for sync in (s for s in tir.walk(k.kernel.body) if isinstance(s, tir.Sync)):
        broken = check(replace(k.kernel, body=without(k.kernel.body, sync)))
        assert broken.status == "unsafe", f"{sync.id} ({sync.why}): {broken.text()}"


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_text_compiles(case: Case) -> None:
    for arch in ("sm_80", "sm_90a"):
        k = case.kernel.compile(arch)
        assert k.cubin.spills == 0


# ---------------------------------------------------------------------------------------------- what a fill knows


def text_of(case: Case, stages: int = 3) -> str:
    return case.compile("multistage", stages).tir


def test_a_fill_works_out_guard_and_integers_of_its_own_trip() -> None:
    text = text_of(CASES[0])
    assert "ld_scalar n_ahead <- flags[=b, =t + 2 < N]" in text
    assert re.search(r"if n_ahead != 0 .*\{\n +cp_async", text)
    paged_text = text_of(CASES[1])
    assert "ld_scalar page_ahead <- table[=b, =j + 2 < N]" in paged_text
    assert "ld_scalar page <-" not in paged_text  # nothing but the copies asks


@pytest.mark.parametrize(
    ("case", "old", "new"),
    [
        (0, "if n_ahead != 0", "if n_ahead < 0"),  # not filled, and read
        (0, "if n != 0", "if n == 0"),
        (0, "=t + 2 < N", "=t + 1 < N"),  # another trip's guard
        (0, "      }\n      advance fill_L1\n", "      advance fill_L1\n      }\n"),  # the turn depends on the guard
        (1, "for j = 0 .. n", "for j = 0 .. n + 1"),
        (1, "if j + 2 < n", "if j + 2 <= n"),
        (2, "lower <= n && n <= m", "lower <= n && n <= m + 1"),
        (2, "if n + 2 == m + 1 || n + 2 < lower", "if n + 2 == m + 1 && n + 2 < lower"),
    ],
)
def test_fills_and_reads_that_disagree_are_unsafe(case: int, old: str, new: str) -> None:
    text = text_of(CASES[case])
    assert old in text
    verdict = check(parse_kernel(text.replace(old, new)))
    assert verdict.status == "unsafe", verdict.text()
    assert " = " in verdict.scope


def test_two_reads_of_one_element_are_one_unknown() -> None:
    text = text_of(CASES[0])
    again = "    ld_scalar n <- flags[=b, =t < N] line"
    assert again in text
    verdict = check(parse_kernel(text.replace(again, "    ld_scalar n <- flags[=b, =t + 1 < N] line")))
    assert verdict.status == "unsafe"
    assert re.search(r"flags\[0, \d\] = ", verdict.scope)


# ---------------------------------------------------------------------------------------------- arguments


def test_arguments_are_checked_and_given_in_order() -> None:
    x, y = np.ones((16, 16), "f2"), np.empty((16, 16), "f2")
    k = CASES[-1].compile("in_order", 1)
    for wrong in (1.5, True, 2**31, "3", None, np.float32(2)):
        for run in (both.plain, k.simulate, k):
            with pytest.raises(TidegateError) as error:
                run(x, wrong, y)
            assert error.value.code == "TG701"
    with pytest.raises(TidegateError):
        both.plain(x, y)
    both.plain(x, np.int64(3), y)
    assert (y == 4).all()


@pytest.mark.parametrize("value", [np.float32(0.5), np.float64(0.5), np.array(0.5, "f4"), np.array(0.5), 0.5])
@pytest.mark.parametrize("count", [2, np.int64(2), np.array(2, "i4"), np.array(2)])
def test_arrays_without_axes_are_numbers(value: Any, count: Any) -> None:
    assert split("k", ("s", "n"), {"s": F32, "n": I32}, (value, count))[1] == {"s": 0.5, "n": 2}


@pytest.mark.parametrize("given", [np.array([2]), np.array(2.5), np.array(True), np.array(2**31), None, "2"])
def test_other_arrays_are_no_numbers(given: Any) -> None:
    with pytest.raises(TidegateError) as error:
        split("k", ("n",), {"n": I32}, (given,))
    assert error.value.code == "TG701"


def test_launch_arguments_are_the_bits_of_the_numbers() -> None:
    kernel = scattered.compile("sm_80").kernel
    assert packed(kernel, (-1.5, -2)) == (0xBFC00000, 0xFFFFFFFE)
    assert packed(kernel, (float("inf"), 7)) == (0x7F800000, 7)
    for wrong in ((1e39, 1), (1.0, 1.0), (1.0,), (1.0, 1, 2)):
        with pytest.raises(TidegateError):
            packed(kernel, wrong)


def test_an_f32_scalar_takes_the_dtype_of_the_tile() -> None:
    @tg.kernel(warps=1)
    def scaled(x: tg.Tensor["T", 16, "f16"], alpha: tg.Scalar["f32"], y: tg.Out["T", 16, "f16"]):
        for t in tg.tiles("T", 8):
            tile = tg.load(x[t, :])
            y[t, :] = tg.where(tile > alpha, tile * alpha, alpha)

    x = np.random.default_rng(0).standard_normal((8, 16)).astype("f2")
    y, z = np.empty((2, 8, 16), "f2")
    scaled.plain(x, 0.1, y)
    assert scaled.compile("sm_80").simulate(x, 0.1, z).ok
    tenth = np.float32(0.1)
    wanted = np.where(x.astype("f4") > tenth, (x.astype("f4") * tenth).astype("f2"), tenth.astype("f2"))
    assert np.array_equal(y, wanted)
    assert np.array_equal(z, wanted)
    with pytest.raises(TidegateError) as error:
        scaled.plain(x, 1e39, y)
    assert error.value.code == "TG701"


@tg.kernel(warps=1)
def products(
    x: tg.Tensor["T", 16, "f32"], n: tg.Scalar["i32"], y: tg.Out["T", 16, "f32"], z: tg.Out[1, "i32"], *, WHERE="none"
):
    for t in tg.tiles("T", 8):
        y[t, :] = tg.load(x[t, :])
    z[0] = tg.full((1,), n, "i32") * n * n
    if WHERE == "position":
        z[0] = tg.load(x[n * n, :]).sum(axis=0).astype("i32")
    elif WHERE == "condition":
        if n * n > 10:
            z[0] = 1
    elif WHERE == "guarded":
        if n < 100 and n * n > 10:
            z[0] = 1
    elif WHERE == "trips":
        for _i in tg.range(n * n - 2147000000):
            z[0] = 1
    elif WHERE == "splat":
        z[0] = n * n


@pytest.mark.parametrize("how", ["plain", "simulate"])
@pytest.mark.parametrize("where", ["none", "guarded", "condition", "trips", "splat", "position"])
def test_integers_beyond_32_bits_are_refused_and_tiles_wrap(how: str, where: str) -> None:
    x, y, z = np.ones((8, 16), "f4"), np.empty((8, 16), "f4"), np.zeros(1, "i4")
    run = products.plain if how == "plain" else products.compile("sm_80", WHERE=where).simulate
    given = {"WHERE": where} if how == "plain" else {}
    run(x, 3, y, z, **given)
    if where in ("none", "guarded"):
        run(x, 46341, y, z, **given)
        assert z[0] == np.array(46341**3 % 2**32, "u4").view("i4")
        return
    with pytest.raises(TidegateError) as error:
        run(x, 46341, y, z, **given)
    assert error.value.code == "TG714"
    assert "n * n" in error.value.text
    assert "2147488281 where n = 46341" in error.value.text
    assert how == "simulate" or "n * n" in str(error.value.span and error.value.span.text)


def test_sequences_of_all_lengths_with_sixteen_bit_tiles() -> None:
    from kernels import example

    scan = example("scan_blocks").scan_blocks
    rng, lengths = np.random.default_rng(0), np.array([0, 1, 31, 32, 70, 200], "i4")
    x = rng.standard_normal((6, 100, 16)).astype(ml_dtypes.bfloat16)
    y = np.zeros((6, 100, 16), "f4")
    scan.plain(x, lengths, -0.5, y, BD=16)
    state = np.zeros((6, 16))
    for t in range(100):
        state = state * 2.0**-0.5 + x[:, t].astype("f8")
        inside = lengths > t
        assert np.allclose(y[inside, t], state[inside], rtol=0.02, atol=0.05)


@tg.kernel(warps=1)
def long_rows(x: tg.Tensor["N", 16, "f32"], row: tg.Tensor["B", "i64"], y: tg.Out["B", 16, "f32"]):
    for b in tg.grid(tg.range("B")):
        r = tg.load(row[b])
        if r < 2**31 - 1:
            y[b, :] = tg.load(x[r, :]) + 1.0


def test_elements_of_64_bits_are_held_in_32() -> None:
    x = np.arange(80, dtype="f4").reshape(5, 16)
    row = np.array([3, 2**32 + 1, -(2**40), -1, 5], "i8")
    wanted = np.full((5, 16), 7, "f4")
    wanted[[0, 2, 3, 4]] = [x[3] + 1, *[np.ones(16)] * 3]
    y, z = (np.full((5, 16), 7, "f4") for _ in range(2))
    long_rows.plain(x, row, y)
    k = long_rows.compile("sm_80", multiples={"N": 1, "B": 1})
    assert k.simulate(x, row, z).ok
    assert k.check().safe
    assert k.cubin.spills == 0
    assert np.array_equal(y, wanted)
    assert np.array_equal(z, wanted)


# ---------------------------------------------------------------------------------------------- text and rules

RULES = """kernel k target sm_80 warps 1 smem 0
dim N
param t i32 [N, N] in align 4
param y f32 [N] out align 4
scalar a f32 argument
scalar i i32 argument
scalar n i32
scalar m i32
layout tile [32] reg - lane 1 2 4 8 16 warp - rep 1
register r f32 layout tile
register q i32 layout tile
body {{
{}
}}
"""


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("ld_scalar n <- t[=0 < N, =i < N]\nsplat q <- n + i", ""),
        ("splat r <- a", ""),
        ("if i < 3 || !i {\n}", None),
        (
            "if i < 3 {\nld_scalar n <- t[=0 < N, =0 < N]\n}\nif 3 <= i {\nld_scalar n <- t[=0 < N, =1 < N]\n}\n"
            "splat q <- n",
            "",
        ),
        ("if i < 3 {\nld_scalar n <- t[=0 < N, =0 < N]\n}\nsplat q <- n", "nothing before has surely written it"),
        ("splat q <- n", "nothing before has surely written it"),
        ("ld_scalar n <- t[=m < N, =0 < N]", "nothing before has surely written it"),
        ("ld_scalar i <- t[=0 < N, =0 < N]", "is no i32 that instructions set"),
        ("ld_scalar n <- t[=0 < N, 0]", "every axis of the window is fixed"),
        ("ld_scalar n <- y[=0 < N]", "is an output and is read"),
        ("splat r <- i", "is f32, i i32"),
        ("splat q <- a", "is i32, a f32"),
        ("splat q <- a + 1", "is not in scope"),
        ("for k = i .. N {\n}", "not surely 0 or more"),
        ("for k = 0 .. 4 / i {\n}", "not surely positive"),
    ],
)
def test_rules(body: str, problem: str | None) -> None:
    from tidegate.ir.spec import verify

    if problem is None:
        with pytest.raises(TidegateError):
            parse_kernel(RULES.format(body))
        return
    kernel = parse_kernel(RULES.format(body))
    assert parse_kernel(print_kernel(kernel)) == kernel
    found = [v.message for v in verify(kernel)]
    assert problem in "\n".join(found) if problem else not found, found
