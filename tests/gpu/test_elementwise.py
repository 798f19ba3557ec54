"""Elementwise operations and reductions on the GPU, over special numbers and all magnitudes: what the plain program
says, bit for bit where it says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_examples import to_numpy, to_torch
from test_language_errors import load, source
from test_language_integers import EDGES, FLOAT, FOLDS, INTEGER, NUMBERS, every_pair, histogram, table
from watch import launch

from tidegate.ops.elementwise import ELEMENTWISE
from tidegate.ops.plain import rounding_bound

pytestmark = pytest.mark.gpu

ROUNDED = sorted(name for name, row in ELEMENTWISE.items() if row.ulps)


def compare(kernel: Any, *arrays: np.ndarray, **options: Any) -> None:
    """The outputs are within the rounding bound of the plain program's, and the same NaN, infinities and zeros."""
    program = kernel.program()
    tensors = [to_torch(a.copy()) for a in arrays]
    launch(kernel, *tensors, **options)
    plain = [a.copy() for a in arrays]
    kernel.plain(*plain)
    bounds = rounding_bound(program, dict(zip((t.name for t in program.tensors), arrays, strict=True)))
    for parameter, tensor, wanted in zip(program.tensors, tensors, plain, strict=True):
        if parameter.output:
            found = to_numpy(tensor, wanted.dtype)
            with np.errstate(invalid="ignore"):  # signalling NaN among the bits
                a, b, bound = found.astype("f8"), wanted.astype("f8"), bounds[parameter.name]
                same = (a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= bound)
            wrong = [(tuple(at), found[tuple(at)], wanted[tuple(at)]) for at in np.argwhere(~same)[:5]]
            assert not wrong, f"{parameter.name}: {int((~same).sum())} differ, such as {wrong}"


@pytest.mark.parametrize("dtype", ["i8", "i32", "i64"])
def test_operators_of_integers(gpu: Any, dtype: str, tmp_path: Path) -> None:
    beyond = ("2147483648", "0x7fffffff") if dtype == "i8" else ()
    expressions = [e.replace("i32", dtype) for e in INTEGER if not any(n in e for n in beyond)]
    p, q = every_pair(dtype)
    bits = np.random.default_rng(0).integers(0, 256, (2, 4096, 16 * p.itemsize), dtype=np.uint8).view(p.dtype)
    p, q = np.concatenate([p, bits[0]]), np.concatenate([q, bits[1]])
    compare(table(expressions, dtype, tmp_path), p, q, np.zeros((len(expressions), *p.shape), p.dtype))


def test_exact_functions_of_floats(gpu: Any, tmp_path: Path) -> None:
    p, q = (np.ascontiguousarray(x).reshape(-1, 16) for x in np.meshgrid(NUMBERS, NUMBERS, indexing="ij"))
    bits = np.random.default_rng(0).integers(0, 2**32, (2, 4096, 16), dtype=np.uint32).view(p.dtype)
    p, q = np.concatenate([p, bits[0]]), np.concatenate([q, bits[1]])
    compare(table(list(FLOAT), "f32", tmp_path), p, q, np.zeros((len(FLOAT), *p.shape), p.dtype))


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_functions_of_all_magnitudes_are_within_their_units(gpu: Any, dtype: str, tmp_path: Path) -> None:
    """Every exponent and sign, of f16 and bf16 every number; sin and cos reduce large operands exactly."""
    kernel = table([f"tg.{name}(p)" for name in ROUNDED], dtype, tmp_path)
    kind = next(t.dtype.numpy for t in kernel.program().tensors)
    if dtype == "f32":
        x = np.random.default_rng(1).integers(0, 2**32, 1 << 18, dtype=np.uint32).view(kind)
        x[: len(NUMBERS)] = NUMBERS
    else:
        x = np.arange(1 << 16, dtype=np.uint16).view(kind)
    x = x.reshape(-1, 16)
    compare(kernel, x, x, np.zeros((len(ROUNDED), *x.shape), kind))


@pytest.mark.parametrize("warps", [1, 4])
@pytest.mark.parametrize("dtype", ["i32", "f32"])
def test_folds(gpu: Any, dtype: str, warps: int, tmp_path: Path) -> None:
    """Along both axes, within warps and across them."""
    folds = [f for f in FOLDS if dtype == "i32" or f != "sum"]
    body = ["t = tg.load(x[:, :])"]
    body += [f"rows[{n}, :] = t.{fold}(axis=1).astype('{dtype}')" for n, fold in enumerate(folds)]
    body += [f"columns[{n}, :] = t.{fold}(axis=0).astype('{dtype}')" for n, fold in enumerate(folds)]
    outputs = ", ".join(f'{name}: tg.Out[{len(folds)}, {n}, "{dtype}"]' for name, n in (("rows", 16), ("columns", 64)))
    text = source("\n".join(body), f'x: tg.Tensor[16, 64, "{dtype}"], {outputs}', f"@tg.kernel(warps={warps})")
    x = np.random.default_rng(2).choice(EDGES, (16, 64)).astype({"i32": "i4", "f32": "f4"}[dtype])
    x[2], x[:, 3], x[4, :2] = 0, 5, -1
    if dtype == "f32":
        x[5, 7], x[5, 9], x[6, 1], x[7] = np.nan, np.nan, -np.inf, np.inf
    compare(load(text, tmp_path).k, x, np.zeros((len(folds), 16), x.dtype), np.zeros((len(folds), 64), x.dtype))


@pytest.mark.parametrize("plan", ["in_order", "multistage"])
@pytest.mark.parametrize("size", [0, 64, 448, 16000])
def test_integers_carried_by_loops(gpu: Any, size: int, plan: str) -> None:
    x = np.random.default_rng(3).random(size).astype("f4")
    compare(histogram, x, np.zeros(16, "i4"), np.zeros(16, "i4"), plan=plan)
