"""Sums of a product and a tile are products with an accumulator."""

from __future__ import annotations

import numpy as np
import pytest
from language import kernel_of

from tidegate.ir import hir
from tidegate.ir.dtypes import DTYPES

TEXT = """import tidegate as tg
@tg.kernel(warps=2)
def program(a: tg.Tensor[32, "K", "{dtype}"], b: tg.Tensor["K", 32, "{dtype}"], c: tg.Out[32, 32, "{sums}"]):
    acc = tg.full((32, 32), 3, "{sums}")
    for k in tg.tiles("K", 32):
        x = tg.load(a[:, k])
        y = tg.load(b[k, :])
        {line}
    c[:, :] = acc
"""


@pytest.mark.parametrize(
    ("line", "sums"),
    [
        ("acc += tg.dot(x, y)", 0),
        ("acc = tg.dot(x, y) + acc", 0),
        ("acc = acc * 2 + x @ y", 0),
        ("acc = tg.dot(x, y) + tg.dot(x, y) + acc", 1),  # the products take each other first
        ("acc = tg.dot(x, y, acc)", 0),
        ("acc -= tg.dot(x, y)", 0),
        ("p = tg.dot(x, y)\n        acc += p\n        acc = acc + p", 2),
        ("acc = tg.dot(x, y, acc) + acc", 1),
    ],
)
@pytest.mark.parametrize(("dtype", "sort"), [("bf16", "f32"), ("i8", "i32")])
def test_sums_of_products(line: str, sums: int, dtype: str, sort: str) -> None:
    kernel = kernel_of(TEXT.format(line=line, dtype=dtype, sums=sort))
    program = kernel.program()
    added = [n for n in hir.walk(program.body) if isinstance(n, hir.Map) and n.op == "add"]
    assert len(added) == sums
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, shape).astype(DTYPES[dtype].numpy) for shape in ((32, 64), (64, 32)))
    wanted, found = (np.zeros((32, 32), DTYPES[sort].numpy) for _ in range(2))
    kernel.plain(a, b, wanted)
    assert kernel.compile(target="sm_80", K=64).simulate(a, b, found).ok
    assert np.array_equal(wanted, found)  # whole numbers: exact in any order
