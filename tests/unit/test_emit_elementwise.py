"""CUDA text of elementwise operations: NVRTC takes it, and, run on the host, it computes what NumPy does."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tidegate.emit import emit
from tidegate.emit.elementwise import INTEGER, OPERATIONS, WIDTHS
from tidegate.emit.header import parts
from tidegate.ir.dtypes import I32, I64
from tidegate.ir.elementwise import OPERATIONS as ROWS
from tidegate.ir.text import parse_kernel
from tidegate.ops.elementwise import ELEMENTWISE
from tidegate.runtime.cache import installed
from tidegate.runtime.compile import COMPILER, cubin

needs_nvrtc = pytest.mark.skipif(installed(COMPILER) is None, reason=f"{COMPILER} is not installed")
HOST = shutil.which("c++")


def every() -> Iterator[tuple[str, str, str]]:
    """Name, kind of operands and C++ of each operation on each kind that it is defined on."""
    for name, row in ROWS.items():
        for kind in sorted(row.takes):
            template = (INTEGER.get(name) if kind == "integer" else None) or OPERATIONS.get(name)
            assert template is not None, f"{name} of {kind}s has no C++"
            yield name, kind, template


def text(names: dict[str, str], body: str) -> str:
    """A kernel with a tile of one element per thread of each dtype in ``names``."""
    registers = "\n".join(f"register {name} {dtype} layout row" for name, dtype in names.items())
    return f"""
kernel k target sm_80 warps 1 smem 0
param a f32 [32] in align 4
param b f32 [32] out align 4
layout row [32] reg - lane 1 2 4 8 16 warp - rep 1
register x f32 layout row
{registers}
body {{
  ld_global x <- a[0] bytes 4
{body}
  st_global b[0] <- x bytes 4
}}
"""


def test_the_tables_have_the_same_operations() -> None:
    assert ROWS.keys() == ELEMENTWISE.keys()
    assert {name for name, _, _ in every()} == ROWS.keys()


@needs_nvrtc
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_every_operation_compiles(arch: str) -> None:
    dtypes = {"h": "f16", "i": "i32", "l": "i64", "c": "i8", "m": "bool"}
    numbers = {"x": -0.5, "h": 0.1, "i": -(2.0**31), "l": -(2.0**63), "c": -128.0, "m": 1.0}  # also the smallest ones
    lines = [f"  fill {name} <- {numbers[name]}" for name in dtypes]
    for name, kind, _ in every():
        for of in {"float": "xh", "integer": "ilc", "mask": "m"}[kind]:
            row, result = ROWS[name], "m" if ROWS[name].mask else of
            args = ", ".join(["m"] * (name == "where") + [of] * (row.arity - (name == "where")))
            lines.append(f"  map {result} <- {name} {args}")
            if row.arity == 2:
                lines.append(f"  map {result} <- {name} {numbers[of]}, {of}")
    for name in "hmlci":
        lines += [f"  cast i <- {name}", "  cast h <- i", "  map x <- add x, h"]
    made = cubin(emit(parse_kernel(text(dtypes, "\n".join(lines)))), arch)
    assert "warning" not in made.log
    assert made.spills == 0


@needs_nvrtc
def test_tiles_may_be_called_like_the_functions_that_work_on_them() -> None:
    called = {n for _, _, template in every() for n in re.findall(r"(\w+)\(", template)} - {"T", "U"}
    called |= {"u32", "i32", "u64", "fmodf", "copysignf", "exchange"}
    body = "\n".join(f"  map {name} <- sin x\n  map x <- add x, {name}" for name in sorted(called))
    maps = "\n".join(
        f"  map x <- {name} x{', x' * (ROWS[name].arity - 1)}"
        for name, kind, _ in every()
        if kind == "float" and not ROWS[name].mask and name != "where"
    )
    cubin(emit(parse_kernel(text(dict.fromkeys(sorted(called), "f32"), body + "\n" + maps))), "sm_80")


# ---------------------------------------------------------------------------------------------- values on the host

FLOATS = np.array(
    [0.0, 1.0, 0.5, 1.5, 2.5, 3.0, 7.25, 0.1, 1e-45, 1e-38, 3e38, 1e7, 8388609, 16777217, np.inf], np.float32
)
TYPES = {np.float32: "float", np.int32: "int", np.int64: "long long"}


def operands(dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    """Each special number with each other, then random ones."""
    rng = np.random.default_rng(0)
    if dtype is np.float32:
        special = np.concatenate([FLOATS, -FLOATS, np.array([np.nan], np.float32)])
    else:
        ends = np.iinfo(dtype)
        near = [0, 1, 2, 3, 7, 31, 32, 33, 63, 64, 1000]
        special = np.array([*near, *(-n for n in near), ends.min, ends.min + 1, ends.max, ends.max // 2], dtype)
    a, b = (x.ravel() for x in np.meshgrid(special, special))
    bits = rng.integers(0, 2**32, (2, 4000, special.itemsize // 4), dtype=np.uint32).view(dtype)[..., 0]
    small = rng.integers(-60, 60, (2, 4000)).astype(dtype)
    return np.concatenate([a, bits[0], bits[0], small[0]]), np.concatenate([b, bits[1], small[1], small[1]])


@pytest.mark.skipif(HOST is None, reason="there is no C++ compiler")
def test_text_computes_what_numpy_does(tmp_path: Path) -> None:
    """Operations that are rounded correctly, bit by bit, under a sanitizer that stops at undefined behaviour. What is
    an instruction of PTX is left out."""
    ptx = {name for p in parts() for name in p.names if "asm" in p.text} | {"__fsqrt_rn"}
    found = [
        (name, template, dtype)
        for name, kind, template in every()
        if kind != "mask" and name != "where" and not ELEMENTWISE[name].ulps
        if not {*re.findall(r"\w+", template)} & ptx
        for dtype in ([np.float32] if kind == "float" else [np.int32, np.int64])
    ]
    assert {"floor_divide", "remainder", "mul", "neg", "abs", "sign", "round"} <= {name for name, _, _ in found}
    used = {*re.findall(r"\w+", " ".join(template for _, template, _ in found))} | {"negated", "u32", "u64"}
    lines = ["#include <algorithm>", "#include <cmath>", "#include <cstdio>"]
    lines += ["#define __device__", "#define __forceinline__ inline", "using namespace std;"]
    lines += [*(p.text for p in parts() if p.names & used), "int main() {"]
    sent, wanted = b"", []
    for name, template, dtype in found:
        a, b = operands(dtype)
        with np.errstate(all="ignore"):
            wanted.append(ELEMENTWISE[name].numpy(*(a, b)[: ROWS[name].arity]))
        sent += a.tobytes() + b.tobytes()
        of, n, size = TYPES[dtype], len(a), a.itemsize
        text = template.format("a[i]", "b[i]", **WIDTHS[I64 if dtype is np.int64 else I32])
        lines.append(f"  {{ static {of} a[{n}], b[{n}]; static {'int' if ROWS[name].mask else of} c[{n}];")
        lines.append(f"    if (fread(a, {size}, {n}, stdin) + fread(b, {size}, {n}, stdin) != {2 * n}) return 1;")
        lines.append(f"    for (int i = 0; i < {n}; ++i) c[i] = {text};")
        lines.append(f"    fwrite(c, sizeof c[0], {n}, stdout); }}")
    source, program = tmp_path / "text.cpp", tmp_path / "text"
    source.write_text("\n".join([*lines, "}"]))
    strict = ["-fsanitize=undefined", "-fno-sanitize-recover=all", "-ffp-contract=off"]
    subprocess.run([str(HOST), "-O1", *strict, "-o", program, source], check=True)
    got = subprocess.run([program], input=sent, stdout=subprocess.PIPE, check=True).stdout
    for (name, _, dtype), want in zip(found, wanted, strict=True):
        mine, got = np.frombuffer(got[: want.nbytes], want.dtype), got[want.nbytes :]
        bits = np.dtype(f"i{want.itemsize}")
        same = (mine.view(bits) == want.view(bits)) | ((mine != mine) & (want != want))
        a, b = operands(dtype)
        assert same.all(), (name, dtype, a[~same][:3], b[~same][:3], mine[~same][:3], want[~same][:3])
