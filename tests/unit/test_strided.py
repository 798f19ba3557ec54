"""Tensors with gaps between their rows: the variant of a kernel that takes strides as launch arguments."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from cases import inputs, load

import tidegate as tg
from tidegate.emit import emit
from tidegate.ir.spec import verify
from tidegate.ir.text import parse_kernel, print_kernel
from tidegate.ops.plain import rounding_bound
from tidegate.runtime import cache
from tidegate.runtime.compile import COMPILER, cubin
from tidegate.simulate import simulate

PROGRAMS: list[tuple[str, str, dict[str, int], dict[str, Any]]] = [
    ("row_ring", "row_ring", {"R": 5}, {}),
    ("transpose", "transpose", {"M": 36, "N": 68}, {"STAGES": 2}),
    ("transpose", "transpose", {"M": 0, "N": 4}, {}),
    ("gemm", "gemm_v2", {"M": 33, "N": 40, "K": 72}, {"BM": 32, "BN": 32, "BK": 32, "STAGES": 3, "warps": 2}),
    ("gemm", "gemm_v0", {"M": 17, "N": 9, "K": 5}, {"BM": 16, "BN": 16, "BK": 16, "warps": 2}),
    ("layernorm", "layernorm", {"R": 3}, {"COLS": 96, "warps": 1}),
    (
        "attention_small",
        "attention",
        {"B": 2, "H": 2, "S": 20, "HK": 1, "T": 32},
        {"GROUP": 2, "D": 32, "BM": 16, "BN": 16, "warps": 1},
    ),
    ("gather_rows", "bag", {"B": 2, "N": 3, "R": 5}, {"BL": 8, "D": 32, "STAGES": 2, "warps": 1}),
    ("gather_rows", "bag_gradient", {"B": 2, "N": 2, "R": 5}, {"BL": 8, "D": 32, "warps": 1}),
]


def compiled(file: str, name: str, options: dict[str, Any], multiple: int, **given: Any) -> Any:
    """The example with every tensor of two or more axes strided."""
    kernel = getattr(load(file), name)
    program = kernel.program(**options)
    strided = {t.name: multiple for t in program.tensors if len(t.shape) > 1}
    return kernel.compile(target="sm_80", strided=strided, **options, **given)


@pytest.mark.parametrize(("file", "name", "sizes", "options"), PROGRAMS)
@pytest.mark.parametrize("plan", ["in_order", "multistage"])
def test_examples_with_strides_are_safe_and_right(
    file: str, name: str, sizes: dict[str, int], options: dict[str, Any], plan: str
) -> None:
    odd = name in ("gemm_v0", "row_ring")
    k = compiled(file, name, options, 1 if odd else 8, plan=plan, multiples=dict.fromkeys(sizes, 1))
    assert verify(k.kernel) == []
    assert parse_kernel(print_kernel(k.kernel)) == k.kernel
    assert k.check().status == "safe"
    arrays = inputs(k.program, sizes)
    plain = {n: a.copy() for n, a in arrays.items()}
    getattr(load(file), name).plain(*plain.values(), **options)
    bounds = rounding_bound(k.program, arrays)
    for completion in ("late", "early", "random"):
        result = simulate(k.kernel, arrays, completion=completion)
        assert result.ok, result.reports
        for tensor in k.program.tensors:
            if tensor.output:
                difference = result.outputs[tensor.name].astype("f8") - plain[tensor.name].astype("f8")
                assert (np.abs(difference) <= bounds[tensor.name]).all()


@pytest.mark.skipif(cache.installed(COMPILER) is None, reason=f"{COMPILER} is not installed")
@pytest.mark.parametrize(("file", "name", "sizes", "options"), PROGRAMS)
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_their_cuda_text_compiles_and_has_an_argument_per_stride(
    file: str, name: str, sizes: dict[str, int], options: dict[str, Any], arch: str
) -> None:
    k = compiled(file, name, options, 8)
    text = emit(k.kernel)
    head = text[text.index('extern "C"') :].split("{")[0]
    assert head.count("i64 ") == sum(len(p.shape) - 1 for p in k.kernel.params)
    assert cubin(text, arch).code


def test_strides_of_higher_ranks_are_one_argument_per_axis(golden: Any) -> None:
    @tg.kernel(warps=1)
    def heads(x: tg.Tensor["B", "H", "N", 16, "f16"], y: tg.Out["B", "H", "N", 16, "f16"]):
        for b, h, n in tg.grid(tg.range("B"), tg.range("H"), tg.tiles("N", 8)):
            y[b, h, n, :] = tg.load(x[b, h, n, :]) * 2

    text = heads.compile(target="sm_80", strided=("x",)).cuda
    golden("heads_strided.cu.txt", re.sub(r" line \d+", "", text[text.index('extern "C"') :]))


def test_alignment_follows_from_what_divides_the_strides() -> None:
    kernel = load("gemm").gemm_v2
    for multiple, align in ((16, 16), (8, 16), (12, 8), (2, 4)):
        k = kernel.compile(target="sm_80", strided={"a": multiple, "b": 16})
        assert [p.align for p in k.kernel.params] == [align, 16, 16]
        assert [p.strided for p in k.kernel.params] == [True, True, False]
    # Without gaps, 8 must divide K and N for that; with strides, sizes may be any.
    k = kernel.compile(target="sm_80", strided=("a", "b", "c"), multiples={"K": 1, "N": 1, "M": 1})
    assert {d.multiple for d in k.kernel.dims} == {1}
    assert all(p.align == 16 for p in k.kernel.params)
    with pytest.raises(tg.TidegateError, match=r"its rows .apart by multiples of 1 elements"):
        kernel.compile(target="sm_80", strided={"a": 1})


def test_what_cannot_be_strided_is_refused() -> None:
    kernel = load("layernorm").layernorm
    for strided, message in [
        (("z",), "has no tensor 'z'"),
        ("x,z", "has no tensor 'z'"),
        (("gain",), "gain has one axis"),
        ({"x": 0}, "x=0 is not a size"),
        (7, "strided=7 is no list"),
    ]:
        with pytest.raises(tg.TidegateError, match=message):
            kernel.compile(target="sm_80", strided=strided)


def test_hand_written_tir_is_held_to_the_rules_of_strides() -> None:
    text = """
kernel k target sm_80 warps 1 smem 0
dim M
param a f32 [M] in align 16 strided
param b f32 [M, 3] out align 16 strided
body {
}
"""
    found = [str(v) for v in verify(parse_kernel(text))]
    assert len(found) == 1
    assert "a tensor of one axis has no stride" in found[0]
    assert verify(parse_kernel(text.replace("[M] in", "[M, 5] in"))) == []
