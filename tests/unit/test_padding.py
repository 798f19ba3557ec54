"""Rows of any size keep all threads busy: whole axes are padded where threads would share them badly."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from kernels import example
from language import kernel_of

from tidegate.errors import TidegateError
from tidegate.ir import tir
from tidegate.ir.dtypes import DTYPES
from tidegate.ir.spec import verify

FOLDED = """import tidegate as tg
@tg.kernel(warps=4)
def program(x: tg.Tensor["R", "C", "{dtype}"], y: tg.Out["R", 1, "{out}"], *, C=300):
    for r in tg.grid(tg.tiles("R", 1)):
        y[r, :] = {fold}
"""


def largest(kernel: tir.Kernel) -> int:
    """Elements of the largest tile in a thread."""
    layouts = dict(kernel.layouts)
    return max(layouts[r.layout].registers for r in kernel.registers)


@pytest.mark.parametrize("columns", [1, 2, 7, 100, 300, 1000, 1001, 2880, 5000, 8192, 11008, 13824, 50257])
def test_rows_of_any_size_are_shared_by_all_threads(columns: int) -> None:
    for name in ("softmax", "rmsnorm", "layernorm"):
        kernel = getattr(example(name), name)
        k = kernel.compile(target="h200", COLS=columns, warps=32 if columns > 20000 else 8)
        threads = k.kernel.threads
        assert largest(k.kernel) <= max(2.5 * columns / threads, 32)  # 32 parts of as many warps


@pytest.mark.parametrize("columns", [77, 300, 1001])
@pytest.mark.parametrize(
    ("fold", "dtype", "out"),
    [
        ("(tg.load(x[r, :]) + 2).sum(axis=1, keepdims=True)", "f32", "f32"),
        ("(-tg.abs(tg.load(x[r, :])) - 2).max(axis=1, keepdims=True)", "f32", "f32"),
        ("(tg.abs(tg.load(x[r, :])) + 2).min(axis=1, keepdims=True)", "bf16", "bf16"),
        ("(tg.load(x[r, :]) + 2).mean(axis=1, keepdims=True)", "f32", "f32"),
        ("(tg.load(x[r, :]) + 2).sum(axis=1, keepdims=True)", "i32", "i32"),
        ("(tg.load(x[r, :]) + 2).sum(axis=1, keepdims=True)", "i64", "i64"),
        ("tg.minimum(tg.load(x[r, :]), -2).max(axis=1, keepdims=True)", "i64", "i64"),
        ("tg.maximum(tg.load(x[r, :]), 2).min(axis=1, keepdims=True)", "i32", "i32"),
        ("(tg.load(x[r, :]) < -100).any(axis=1, keepdims=True)", "f32", "bool"),
        ("(tg.load(x[r, :]) - 1000 < 0).all(axis=1, keepdims=True)", "f32", "bool"),
        ("(-tg.abs(tg.load(x[r, :])) - 2).argmax(axis=1, keepdims=True).astype('i32')", "f32", "i32"),
        ("tg.load(x[r, :], stages=1, to='shared').max(axis=1, keepdims=True)", "f32", "f32"),
    ],
)
def test_what_lies_behind_a_row_is_not_folded(fold: str, dtype: str, out: str, columns: int) -> None:
    kernel = kernel_of(FOLDED.format(fold=fold, dtype=dtype, out=out))
    numbers: Any = np.random.default_rng(columns).integers(-50, -3, (3, columns))
    x = numbers.astype(DTYPES[dtype].numpy)
    kind = bool if out == "bool" else x.dtype if out == dtype else np.int32
    wanted, found = (np.zeros((3, 1), kind) for _ in range(2))
    k = kernel.compile(target="sm_80", C=columns)
    assert any(isinstance(s, tir.Reduce) and s.below == columns for s in tir.walk(k.kernel.body))
    kernel.plain(x, wanted, C=columns)
    assert k.simulate(x, found).ok
    assert np.allclose(found.astype("f8"), wanted.astype("f8"), rtol=1e-5)
    assert k.check().status == "safe"


def test_axes_that_place_something_keep_their_size() -> None:
    text = """import tidegate as tg
@tg.kernel(warps=4)
def program(x: tg.Tensor["R", 300, "f32"], y: tg.Out["R", 100, "f32"]):
    for r in tg.grid(tg.tiles("R", 1)):
        y[r, :] = tg.load(x[r, :])[:, 100:200]
"""
    k = kernel_of(text).compile(target="sm_80")
    assert {layout.shape for _, layout in k.kernel.layouts} <= {(1, 300), (1, 100)}


@pytest.mark.parametrize("shape", [(10, 256), (6, 512), (12, 192), (3, 1024), (96, 80)])
def test_all_threads_share_tiles_with_an_odd_part(shape: tuple[int, int]) -> None:
    text = f"""import tidegate as tg
@tg.kernel(warps=8)
def program(x: tg.Tensor["M", "N", "bf16"], y: tg.Out["M", "N", "bf16"]):
    for m, n in tg.grid(tg.tiles("M", {shape[0]}), tg.tiles("N", {shape[1]})):
        y[m, n] = tg.load(x[m, n]) * 2
"""
    k = kernel_of(text).compile(target="sm_80")
    assert largest(k.kernel) == shape[0] * shape[1] // 256


def test_slices_at_a_fixed_place_are_padded() -> None:
    text = """import tidegate as tg
@tg.kernel(warps=8)
def program(x: tg.Tensor["T", 2816, "bf16"], y: tg.Out["T", 1408, "bf16"]):
    for t in tg.grid(tg.range("T")):
        y[t, :] = tg.load(x[t, 0:1408]) * tg.load(x[t, 1408:2816]) + 1
"""
    k = kernel_of(text).compile(target="sm_80")
    loads = [s for s in tir.walk(k.kernel.body) if isinstance(s, tir.LdGlobal)]
    assert [s.bytes for s in loads] == [16, 16]
    assert [str(s.src.bounds[-1]) for s in loads] == ["1408", "2816"]


def test_what_fits_only_without_padding_is_not_padded() -> None:
    text = """import tidegate as tg
from tidegate import cuda
@tg.kernel(warps=8)
def program(x: tg.Tensor["R", 876, "f32"], y: tg.Out[876, "f32"]):
    s = tg.zeros((876,), "f32")
    for i in tg.tiles("R", 16):
        s += tg.load(x[i, :], stages=4, by=cuda.ld()).max(axis=0)
    y[:] = s
"""
    k = kernel_of(text).compile(target="h200")
    assert k.smem.peak <= k.smem.capacity


def test_refusals_name_the_shapes_of_the_author() -> None:
    text = """import tidegate as tg
@tg.kernel(warps=1)
def program(x: tg.Tensor[257, 1000, "f32"], y: tg.Out[257, 1000, "f32"]):
    y[:, :] = tg.load(x[:, :]) + 1
"""
    with pytest.raises(TidegateError, match=r"\[257, 1000\]"):
        kernel_of(text).compile(target="h200").kernel  # noqa: B018


@pytest.mark.parametrize("side", [3, 5, 33])
@pytest.mark.parametrize("body", ["t.T", "t.T - t", "(t * 2).T + t"])
def test_square_tiles_of_odd_sides_are_transposed(side: int, body: str) -> None:
    text = f"""import tidegate as tg
@tg.kernel(warps=4)
def program(a: tg.Tensor["R", "C", "f32"], b: tg.Out["C", "R", "f32"], c: tg.Out["C", "R", "f32"]):
    for m, n in tg.grid(tg.tiles("R", {side}), tg.tiles("C", {side})):
        t = tg.load(a[m, n])
        b[n, m] = {body}
        for i in tg.range(3):
            t = t.T
        c[n, m] = t
"""
    kernel = kernel_of(text)
    a = np.arange(4 * side**2, dtype="f4").reshape(2 * side, 2 * side)
    wanted, found = ([np.zeros_like(a) for _ in range(2)] for _ in range(2))
    kernel.plain(a, *wanted)
    assert kernel.compile("sm_80", multiples={"R": 1, "C": 1}).simulate(a, *found).ok
    assert all(np.array_equal(w, f) for w, f in zip(wanted, found, strict=True))


@pytest.mark.parametrize("below", [-1, 1025])
def test_a_reduction_below_a_place_that_is_not_there_is_no_legal_tir(below: int) -> None:
    kernel = example("softmax").softmax.compile(target="h200", COLS=1000).kernel
    bent = tuple(replace(s, below=below) if isinstance(s, tir.Reduce) and s.below else s for s in kernel.body)
    assert not verify(kernel)
    assert any("axis 1 of" in str(v) for v in verify(replace(kernel, body=bent)))
