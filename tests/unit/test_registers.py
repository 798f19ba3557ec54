"""Instructions that rename registers, and reductions: layouts, text, simulator."""

from __future__ import annotations

import numpy as np
import pytest

import tidegate as tg
from tidegate.check import check
from tidegate.emit import emit
from tidegate.ir.layout import coordinates
from tidegate.ir.registers import folded_registers, renamed
from tidegate.ir.spec import verify
from tidegate.ir.text import parse_kernel, print_kernel
from tidegate.legalise.layouts import blocked, mma_accumulator, mma_operand_a
from tidegate.simulate import simulate

CENTRED = """
kernel centred target sm_80 warps 2 smem 0
param a f32 [16, 64] in align 16
param b f32 [16, 64] out align 16
layout tile [16, 64] reg 0,1 0,2 2,0 4,0 lane 0,4 0,8 0,16 0,32 1,0 warp 8,0 rep 1,1
layout row [16, 1] reg 2,0 4,0 lane 0,0 0,0 0,0 0,0 1,0 warp 8,0 rep 1,1 replicated
register x f32 layout tile
register top f32 layout row
register wide f32 layout tile
register y f32 layout tile
body {
  ld_global x <- a[0, 0] bytes 16
  reduce top <- max x axis 1
  spread wide <- top axes 0,1
  map y <- sub x, wide
  st_global b[0, 0] <- y bytes 16
}
"""


def test_a_reduction_and_its_broadcast() -> None:
    kernel = parse_kernel(CENTRED)
    assert verify(kernel) == []
    assert parse_kernel(print_kernel(kernel)) == kernel
    assert check(kernel).status == "safe"
    a = np.random.default_rng(0).standard_normal((16, 64)).astype(np.float32)
    result = simulate(kernel, {"a": a, "b": np.empty_like(a)})
    assert result.ok
    assert np.array_equal(result.outputs["b"], a - a.max(axis=1, keepdims=True))
    text = emit(kernel)
    assert "exchange(top[i], 8)" in text
    assert text.count("exchange(top") == 4


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("reduce top <- max x axis 1", "reduce top <- max x axis 0", "reduced along axis 0"),
        ("reduce top <- max x axis 1", "reduce top <- mean x axis 1", "none of sum, max, min"),
        ("spread wide <- top axes 0,1", "spread wide <- top axes 1,1", "renaming"),
        ("spread wide <- top axes 0,1", "spread wide <- top axes 0", "renaming"),
        ("map y <- sub x, wide", "map y <- sub x, top", "different layouts"),
    ],
)
def test_what_the_layouts_do_not_allow_is_a_violation(old: str, new: str, message: str) -> None:
    found = verify(parse_kernel(CENTRED.replace(old, new)))
    assert any(message in v.message for v in found), found


@pytest.mark.parametrize("trips", [0, 1, 3])
def test_a_product_that_enters_a_loop_in_another_layout(trips: int) -> None:
    """The loop works on it together with a transposed product, whose layout is no accumulator's."""

    @tg.kernel(warps=2)
    def blended(x: tg.Tensor[16, 16, "f32"], y: tg.Out[16, 16, "f32"], *, TRIPS=1):
        t = tg.load(x[:, :])
        square = tg.zeros((16, 16))
        for _ in tg.range(TRIPS):
            square = tg.dot(t.astype("bf16"), t.astype("bf16"), square)
        product = tg.dot(t.astype("bf16"), t.astype("bf16"), t)
        for _ in tg.range(TRIPS):
            product = product * 0.5 + tg.tanh(square.T)
        y[:, :] = product

    x = np.random.default_rng(0).standard_normal((16, 16)).astype("f4")
    plain, simulated = np.empty_like(x), np.empty_like(x)
    blended.plain(x, plain, TRIPS=trips)
    compiled = blended.compile("sm_80", TRIPS=trips)
    assert verify(compiled.kernel) == []
    assert compiled.check().safe
    assert compiled.simulate(x, simulated).ok
    assert np.allclose(plain, simulated, rtol=1e-5, atol=1e-5)


def test_an_accumulator_is_the_next_products_operand_without_any_exchange() -> None:
    acc, fragment = mma_accumulator(64, 32, 4), mma_operand_a(mma_accumulator(64, 32, 4))
    rows_only = acc if not any(b[1] for b in acc.warp) else mma_accumulator(128, 8, 4)
    fragment = mma_operand_a(rows_only) if rows_only is not acc else fragment
    table = renamed(fragment, rows_only, (0, 1), (0, 0)) if rows_only.shape[1] >= 16 else ()
    for register, source in enumerate(table):
        for axis in (0, 1):
            same = coordinates(fragment)[axis][:, register] == coordinates(rows_only)[axis][:, source]
            assert same.all()


def test_reduced_layouts_hold_one_element_per_warp_that_shares_the_axis() -> None:
    layout = blocked((4, 512), 4, 1, 4)
    part = layout.reduced(1)
    assert part.shape == (4, 4)
    assert part.problems() == []
    assert layout.collapsed(1).shape == (4, 1)
    groups = folded_registers(layout, part, 1)
    assert sorted(r for g in groups for r in g) == list(range(layout.registers))


def test_renaming_refuses_what_another_thread_holds() -> None:
    a, b = blocked((8, 32), 1, 1, 4), blocked((8, 32), 1, 1, 1)
    assert renamed(a, a, (0, 1), (0, 0)) == tuple(range(a.registers))
    with pytest.raises(ValueError, match="another thread"):
        renamed(b, a, (0, 1), (0, 0))
