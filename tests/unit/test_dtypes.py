"""Every element type through the whole pipeline: conversions, shared memory, products, masks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from judging import difference
from typed import (
    K_STEP,
    KINDS,
    MIXED,
    casting,
    casting_to_all,
    dot_of,
    exchanging,
    multiplying,
    numbers,
    operands,
    turning,
)

import tidegate as tg
from tidegate import cuda
from tidegate.errors import TidegateError
from tidegate.ir.dtypes import DTYPES
from tidegate.ir.products import FLOAT8
from tidegate.ops.convert import convert
from tidegate.ops.plain import rounding_bound
from tidegate.ops.samples import unwritten
from tidegate.runtime.cache import installed
from tidegate.runtime.compile import COMPILER
from tidegate.runtime.compiled import Compiled

TARGETS = ("sm_80", "sm_89", "sm_90a")
needs_nvrtc = pytest.mark.skipif(installed(COMPILER) is None, reason=f"{COMPILER} is not installed")


def agree(
    kernel: Any,
    compiled: Compiled,
    inputs: list[np.ndarray],
    completions: tuple[str, ...] = ("late",),
    **constants: Any,
) -> np.ndarray:
    """Checks, simulates and compares with the plain program; returns its output."""
    sizes = {
        str(e): n
        for t, a in zip(compiled.program.tensors, inputs, strict=False)
        for e, n in zip(t.shape, a.shape, strict=True)
    }
    (out,) = [t for t in compiled.program.tensors if t.output]
    shape = tuple(sizes[str(e)] if str(e) in sizes else int(str(e)) for e in out.shape)
    plain = unwritten(shape, out.dtype)
    kernel.plain(*inputs, plain, **constants)
    names = [t.name for t in compiled.program.tensors]
    bound = rounding_bound(compiled.program, dict(zip(names, [*inputs, plain], strict=True)), compiled.target)[out.name]
    assert compiled.check().status == "safe"
    for completion in completions:
        got = unwritten(shape, out.dtype)
        result = compiled.simulate(*inputs, got, completion=completion, seed=3)
        assert result.ok, f"{completion}: {result}"
        assert not (text := difference(got, plain, bound)), f"{completion}: {text}"
    return plain


# ---------------------------------------------------------------------------------------------- storage and casts


@pytest.mark.parametrize("source", DTYPES)
def test_casts_between_all_types(source: str) -> None:
    for target in DTYPES:
        kernel = casting(source, target)
        agree(kernel, kernel.compile("sm_80", multiples={"R": 1}), [numbers(DTYPES[source], (9, 48))])


@needs_nvrtc
@pytest.mark.parametrize("target", TARGETS)
def test_casts_compile(target: str) -> None:
    for source in DTYPES:
        assert casting_to_all(source).compile(target).cubin is not None


@pytest.mark.parametrize("producer", ["in_order", "multistage"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_tiles_of_every_type_through_shared_memory(dtype: str, producer: str) -> None:
    kernel = turning(dtype)
    for stages in range(1, 5):
        compiled = kernel.compile("sm_80", plan=producer, multiples={"R": 8, "N": 8}, STAGES=stages)
        for rows, columns in ((40, 16 * stages + 8), (8, 0), (0, 16)):
            x = (
                numbers(DTYPES[dtype], (rows, columns))
                if rows * columns
                else np.empty((rows, columns), DTYPES[dtype].numpy)
            )
            y = agree(kernel, compiled, [x], ("late", "early", "random"), STAGES=stages)
            assert np.array_equal(y, x.T, equal_nan=DTYPES[dtype].floating)


@pytest.mark.parametrize("dtype", DTYPES)
def test_odd_sizes_are_moved_element_by_element(dtype: str) -> None:
    """Rows begin at any multiple of the element, and the last piece of a row is cut."""
    kernel = turning(dtype)
    compiled = kernel.compile("sm_80", multiples={"R": 1, "N": 1})
    x = numbers(DTYPES[dtype], (33, 21))
    agree(kernel, compiled, [x])
    assert f"bytes {DTYPES[dtype].size} line" in compiled.tir


@needs_nvrtc
@pytest.mark.parametrize("dtype", DTYPES)
def test_moves_compile(dtype: str) -> None:
    for multiple in (1, 16):
        assert turning(dtype).compile("sm_80", multiples={"R": multiple, "N": multiple}).cubin is not None
    assert exchanging(dtype).compile("sm_80").cubin is not None


@pytest.mark.parametrize("dtype", DTYPES)
def test_registers_of_every_type_change_hands(dtype: str) -> None:
    kernel = exchanging(dtype)
    x = numbers(DTYPES[dtype], (32, 32))
    y = agree(kernel, kernel.compile("sm_80"), [np.ones((32, 32), DTYPES["bf16"].numpy), x])
    chosen = convert(x.astype(np.float32), DTYPES[dtype]) if DTYPES[dtype].floating else x  # what is computed saturates
    assert np.array_equal(y, chosen.T, equal_nan=DTYPES[dtype].floating)


@tg.kernel(warps=2)
def masked(x: tg.Tensor["R", 64, "f8e4m3"], keep: tg.Tensor["R", 64, "bool"], y: tg.Out["R", 64, "f8e4m3"]):
    for r in tg.grid(tg.tiles("R", 4)):
        t = tg.load(x[r, :])
        y[r, :] = tg.where(tg.load(keep[r, :]) & (t < 1.0), t * 300.0, 0.0)


def test_masks_from_memory_choose_and_8_bit_arithmetic_saturates() -> None:
    x, keep = numbers(DTYPES["f8e4m3"], (5, 64)), numbers(DTYPES["bool"], (5, 64))
    y = agree(masked, masked.compile("sm_80", multiples={"R": 1}), [x, keep])
    wide = x.astype(np.float32)
    with np.errstate(invalid="ignore"):
        wanted = np.where(keep & (wide < 1), np.clip(wide * 300, -448, 448), 0).astype(x.dtype)
    assert np.array_equal(y, wanted)


@tg.kernel(warps=1)
def counted(x: tg.Tensor["R", 32, "i64"], y: tg.Out["R", 32, "i64"]):
    for r in tg.grid(tg.tiles("R", 4)):
        t = tg.load(x[r, :])
        y[r, :] = tg.maximum(t * 3 + 5, -t)


@tg.kernel(warps=1)
def narrow(x: tg.Tensor["R", 64, "i8"], y: tg.Out["R", 64, "i8"]):
    for r in tg.grid(tg.tiles("R", 4)):
        t = tg.load(x[r, :])
        y[r, :] = tg.where(t > 0, t * 3, t - 100)


def test_integers_wrap_around_in_their_own_width() -> None:
    with np.errstate(over="ignore"):
        x = numbers(DTYPES["i64"], (5, 32))
        assert np.array_equal(
            agree(counted, counted.compile("sm_80", multiples={"R": 1}), [x]), np.maximum(x * 3 + 5, -x)
        )
        x = numbers(DTYPES["i8"], (5, 64))
        wanted = np.where(x > 0, x * np.int8(3), x - np.int8(100))
        assert np.array_equal(agree(narrow, narrow.compile("sm_80", multiples={"R": 1}), [x]), wanted)


# ---------------------------------------------------------------------------------------------- products


def compiled_product(kind: tuple[str, str, bool], turned: str, **options: Any) -> tuple[Any, Compiled]:
    dtype, sums, tf32 = kind
    kernel = multiplying(dtype, sums, turned, tf32)
    target = "sm_89" if DTYPES[dtype] in FLOAT8 else "sm_80"
    return kernel, kernel.compile(target, multiples=dict.fromkeys("MNK", 8 if dtype == "f32" else 16), **options)


def reference(dtype: str, turned: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    wide = [x.astype(np.float64) for x in (a.T if "a" in turned else a, b.T if "b" in turned else b)]
    if dtype == "f32":  # ten bits of fraction, ties away from zero
        exponents = [np.frexp(x)[1] - 11 for x in wide]
        wide = [
            np.sign(x) * np.ldexp(np.floor(np.ldexp(np.abs(x), -e) + 0.5), e)
            for x, e in zip(wide, exponents, strict=True)
        ]
    return np.asarray(wide[0] @ wide[1])


@pytest.mark.parametrize("producer", ["in_order", "multistage"])
@pytest.mark.parametrize("turned", ["", "a", "b", "ab"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k[0])
def test_products_in_every_orientation(kind: tuple[str, str, bool], turned: str, producer: str) -> None:
    dtype = DTYPES[kind[0]]
    kernel, compiled = compiled_product(kind, turned, plan=producer)
    for m, n, k in ((48, 64, 64), (16, 32, 48), (32, 16, 0), (64, 32, 16)):
        a, b = operands(dtype, turned, m, n, k)
        c = agree(kernel, compiled, [a, b], ("late", "early", "random"))
        exact = reference(kind[0], turned, a, b)
        assert np.abs(c - exact).max(initial=0) <= (0 if dtype.integer else 1e-4)


@pytest.mark.parametrize("stages", [1, 3, 4])
@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k[0])
def test_products_for_few_trips_and_all_stages(kind: tuple[str, str, bool], stages: int) -> None:
    options = {"BM": 16, "BN": 16, "BK": 32, "STAGES": stages, "warps": 1}
    kernel, compiled = compiled_product(kind, "b", **options)
    for k in (0, 16, 32, 48, 32 * stages, 32 * (2 * stages + 1) - 16):
        agree(kernel, compiled, list(operands(DTYPES[kind[0]], "b", 32, 16, k)), **options)


@pytest.mark.parametrize(
    ("m", "n", "k", "warps"), [(16, 8, 1, 1), (80, 96, 1, 4), (96, 192, 3, 8), (192, 80, 2, 4), (48, 24, 5, 2)]
)
@pytest.mark.parametrize("kind", [*KINDS, ("bf16", "f32", False)], ids=lambda k: k[0])
def test_tile_sizes_that_are_no_powers_of_two(kind: tuple[str, str, bool], m: int, n: int, k: int, warps: int) -> None:
    depth = k * K_STEP[kind[0]]
    options = {"BM": m, "BN": n, "BK": depth, "STAGES": 2, "warps": warps}
    for turned in ("b", ""):
        if n * DTYPES[kind[0]].size % 16 and not turned:
            continue  # rows of shared memory that ldmatrix or 16-byte copies cannot have
        kernel, compiled = compiled_product(kind, turned, **options)
        a, b = operands(DTYPES[kind[0]], turned, m + 16, -(-n // 16) * 16, 2 * -(-depth // 16) * 16)
        agree(kernel, compiled, [a, b], **options)


@needs_nvrtc
@pytest.mark.parametrize("turned", ["", "b"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k[0])
def test_products_compile_without_spills(kind: tuple[str, str, bool], turned: str) -> None:
    dtype, sums, tf32 = kind
    kernel = multiplying(dtype, sums, turned, tf32)
    for target in TARGETS:
        if target == "sm_80" and DTYPES[dtype] in FLOAT8:
            continue
        code = kernel.compile(target, BM=96, BN=80, BK=32).cubin
        assert code is not None
        assert code.spills == 0


@pytest.mark.parametrize("turned", ["", "a", "b", "ab"])
@pytest.mark.parametrize("kind", MIXED, ids=lambda k: k[0])
def test_products_of_both_8_bit_floats(kind: tuple[str, str], turned: str) -> None:
    kernel = multiplying(kind[0], "f32", turned, other=kind[1])
    compiled = kernel.compile("sm_89", multiples=dict.fromkeys("MNK", 16))
    for m, n, k in ((48, 64, 64), (16, 32, 48), (32, 16, 0)):
        a, b = operands(DTYPES[kind[0]], turned, m, n, k)[0], operands(DTYPES[kind[1]], turned, m, n, k)[1]
        c = agree(kernel, compiled, [a, b], ("late", "random"))
        assert np.abs(c - reference(kind[0], turned, a, b)).max(initial=0) <= 1e-4
    assert f"mma_m16n8k32_{kind[0]}_{kind[1]}(" in compiled.cuda


@needs_nvrtc
@pytest.mark.parametrize("kind", MIXED, ids=lambda k: k[0])
def test_products_of_both_8_bit_floats_compile(kind: tuple[str, str]) -> None:
    for target in TARGETS:
        if target != "sm_80":
            assert multiplying(kind[0], "f32", "b", other=kind[1]).compile(target).cubin.spills == 0


@tg.kernel(warps=2)
def chained(a: tg.Tensor[32, 64, "i8"], b: tg.Tensor[64, 32, "i8"], c: tg.Out[32, 32, "f32"]):
    """The second product's operand comes out of registers: the sums, scaled down to 8 bits."""
    small = (tg.dot(tg.load(a[:, :]), tg.load(b[:, :])).astype("f32") * 0.01).astype("i8")
    twice = tg.dot(small, small).astype("f32")
    c[:, :] = tg.dot(twice, twice, by=cuda.mma(tf32=True))


def test_sums_become_operands() -> None:
    a, b = operands(DTYPES["i8"], "", 32, 32, 64)
    c = agree(chained, chained.compile("sm_80"), [a, b])
    small = np.clip(np.trunc((a.astype("f4") @ b.astype("f4")) * np.float32(0.01)), -128, 127)
    twice = (small @ small).astype(np.float64)
    assert np.allclose(c, twice @ twice, rtol=2e-3, atol=1e-3 * np.abs(twice).max() ** 2)


def test_sums_of_8_bit_integers_wrap_around() -> None:
    a = np.full((32, 2**17 + 32), -128, np.int8)
    b = np.full((2**17 + 32, 32), -128, np.int8)
    c = np.empty((32, 32), np.int32)
    multiplying("i8", "i32").plain(a, b, c)
    assert (c == 2**14 * (2**17 + 32) - 2**32).all()


# ---------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("dtype", "sums", "by", "code", "text"),
    [
        ("f32", "f32", None, "TG303", "by=cuda.mma(tf32=True)"),
        ("i32", "i32", None, "TG303", "mma.sync multiplies tiles of f16, bf16, f8e4m3, f8e5m2, i8; t2 is i32"),
        ("f8e4m3", "f32", None, "TG303", "mma.sync multiplies f8e4m3 on sm_89 and later, the target is sm_80"),
        ("bf16", "f32", cuda.mma(tf32=True), "TG301", "tf32=True rounds f32 operands, t2 is bf16"),
        ("i8", "f32", None, "TG201", 'start it with tg.zeros((32, 32), "i32")'),
    ],
)
def test_products_that_there_are_not(dtype: str, sums: str, by: Any, code: str, text: str) -> None:
    with pytest.raises(TidegateError) as caught:
        dot_of(dtype, sums, by).compile("sm_80")
    assert caught.value.code == code
    assert text in str(caught.value)


def test_tf32_is_true_or_false() -> None:
    with pytest.raises(TidegateError, match=r"cuda\.mma\(tf32=1\)"):
        cuda.mma(tf32=1)  # type: ignore[arg-type]
