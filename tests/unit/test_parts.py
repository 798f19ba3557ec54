"""Parts of tiles by constant slices: of registers, of staged tiles without a copy, of their transposes, in products."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from forms import agrees, numbers
from test_language_errors import load, source

import tidegate as tg
from tidegate import cuda
from tidegate.errors import TidegateError
from tidegate.ir import tir

BF16 = ml_dtypes.bfloat16


def empty(*shape: int) -> np.ndarray:
    return np.full(shape, np.nan, "f4")


@tg.kernel(warps=4)
def parts(
    x: tg.Tensor["R", 64, "f32"],
    y: tg.Out["R", 32, "f32"],
    z: tg.Out["R", 32, "f32"],
    w: tg.Out[16, "R", "f32"],
    *,
    TO=None,
):
    for r in tg.grid(tg.tiles("R", 16)):
        t = tg.load(x[r, :], to=TO)
        y[r, :] = t[:, 0:32] + t[:, 32:]
        z[r, 0:16] = (t * 2.0)[:, 5:21]
        z[r, 16:32] = t[0:8, 3:7].max(axis=0)[0:1, None].max(axis=1, keepdims=True) + t[:, -16:]
        w[:, r] = t.T[16:32, :]


@tg.kernel(warps=4)
def products(
    a: tg.Tensor["M", "K", "bf16"],
    b: tg.Tensor["K", "N", "bf16"],
    y: tg.Out["M", "N", "f32"],
    *,
    STAGES=3,
    FROM=0,
):
    for m, n in tg.grid(tg.tiles("M", 32), tg.tiles("N", 32)):
        acc = tg.zeros((32, 32))
        for k in tg.tiles("K", 48):
            s = tg.load(a[m, k], by=cuda.cp_async(), stages=STAGES)
            t = tg.load(b[k, n], by=cuda.cp_async(), stages=STAGES)
            acc = tg.dot(s[:, FROM : FROM + 32], t[FROM : FROM + 32, :], acc)
            acc = tg.dot(s[:, 0:16], t[32:, :], acc)
        y[m, n] = acc


@tg.kernel(warps=2)
def gram(a: tg.Tensor["K", "M", "f16"], y: tg.Out["M", "M", "f32"], *, STAGES=2, FROM=4):
    for m, n in tg.grid(tg.tiles("M", 32), tg.tiles("M", 16)):
        acc = tg.zeros((32, 16))
        for k in tg.tiles("K", 40):
            s = tg.load(a[k, m], stages=STAGES)
            t = tg.load(a[k, n], stages=STAGES)
            acc = tg.dot(s.T[:, FROM : FROM + 16], t[FROM : FROM + 16, :], acc)
        y[m, n] = acc


@pytest.mark.parametrize("to", ["registers", "shared"])
def test_parts_of_registers_and_of_staged_tiles(to: str) -> None:
    x = numbers(24, 64)
    y, z, w = agrees(parts, x, empty(24, 32), empty(24, 32), empty(16, 24), TO=to, multiples={"R": 8})
    assert np.array_equal(y, x[:, :32] + x[:, 32:])
    assert np.array_equal(z[:, :16], x[:, 5:21] * 2)
    tops = [x[r : r + 8, 3:7].max(axis=0)[0] for r in (0, 16)]
    assert np.array_equal(z[:, 16:], np.repeat(tops, (16, 8))[:, None].astype("f4") + x[:, -16:])
    assert np.array_equal(w, x.T[16:32])


def test_a_tile_that_is_read_in_parts_is_staged_and_not_copied_again() -> None:
    kernel = parts.compile("sm_80").kernel
    stored = {s.dst.buffer for s in tir.walk(kernel.body) if isinstance(s, tir.StShared)}
    copied = {s.dst.buffer for s in tir.walk(kernel.body) if isinstance(s, tir.CpAsync)}
    reads = {s.src.origin for s in tir.walk(kernel.body) if isinstance(s, tir.LdShared) and s.src.buffer in copied}
    assert copied == {"t"}
    assert "t_s" not in stored
    assert {(0, 0), (0, 32), (0, 3), (0, 48), (0, 16)} <= reads


def test_a_part_that_every_thread_holds_is_only_renamed() -> None:
    kernel = parts.compile("sm_80", TO="registers", warps=1).kernel
    assert any(isinstance(s, tir.Slice) for s in tir.walk(kernel.body))


@pytest.mark.parametrize("start", [0, 16, 8, 3])
def test_parts_as_operands_of_products(start: int) -> None:
    """Where a part does not begin at 16 bytes, ldmatrix cannot read it, and plain loads do."""
    a, b = numbers(40, 96, dtype=BF16), numbers(96, 40, dtype=BF16)
    (y,) = agrees(products, a, b, empty(40, 40), FROM=start, multiples={"M": 8, "N": 8, "K": 8})
    wide_a, wide_b = a.astype("f4"), b.astype("f4")
    wanted = sum(
        wide_a[:, k + start : k + start + 32] @ wide_b[k + start : k + start + 32]
        + wide_a[:, k : k + 16] @ wide_b[k + 32 : k + 48]
        for k in (0, 48)
    )
    assert np.allclose(y, wanted, rtol=1e-3, atol=1e-3)
    kinds = {type(s) for s in tir.walk(products.compile("sm_80", FROM=start).kernel.body)}
    assert (tir.LdShared in kinds) == (start % 8 != 0)
    assert tir.StShared not in kinds


@pytest.mark.parametrize("stages", [1, 2, 3])
def test_parts_of_transposed_tiles(stages: int) -> None:
    for length in (0, 40, 72):
        a = numbers(length, 40, dtype="f2")
        (y,) = agrees(gram, a, empty(40, 40), STAGES=stages, multiples={"M": 8, "K": 8})
        wide = a.astype("f4")
        wanted = sum((p.T @ p for p in (wide[k + 4 : k + 20] for k in range(0, length, 40))), np.zeros((40, 40)))
        assert np.allclose(y, wanted, rtol=1e-3, atol=1e-3)


@tg.kernel(warps=4)
def odd_parts(x: tg.Tensor["R", 16, "bf16"], y: tg.Out["R", 12, "bf16"], z: tg.Out["R", 16, "bf16"]):
    for r in tg.grid(tg.tiles("R", 16)):
        t = tg.load(x[r, :], by=cuda.cp_async(bytes=16))
        z[r, :] = t + (t[:8, :] - t[8:, :]).sum(axis=0, keepdims=True)
        y[r, :] = t[:, 4:]


def test_parts_of_odd_sizes() -> None:
    """Their registers follow no pattern, so that each access is written out, in a scope of its own."""
    x = numbers(24, 16, dtype=BF16)
    y, _ = agrees(odd_parts, x, *(np.full((24, n), np.nan, BF16) for n in (12, 16)), multiples={"R": 4})
    assert np.array_equal(y.astype("f4"), x[:, 4:].astype("f4"))


REFUSED = {
    "TG201 is empty": "t[8:8, :]",
    "TG201 has a step": "t[0:8:2, :]",
    "TG201 of a tile of shape (16, 64)": "t[0:8]",
    "TG101 the item 0 of the tile t": "t[0, :]",
    "TG105 the slice 0:1.5": "t[0:1.5, :]",
    "TG105 must be known at compile time": "t[0:r, :]",
}


@pytest.mark.parametrize("expected", REFUSED)
def test_what_is_refused(expected: str, tmp_path: Any) -> None:
    code, text = expected.split(" ", 1)
    body = f'for r in tg.grid(tg.tiles("R", 16)):\n    t = tg.load(x[r, :])\n    y[r, :] = {REFUSED[expected]}'
    with pytest.raises(TidegateError) as caught:
        load(source(body, 'x: tg.Tensor["R", 64, "f32"], y: tg.Out["R", 64, "f32"]'), tmp_path).k.program()
    assert caught.value.code == code
    assert text in caught.value.text
