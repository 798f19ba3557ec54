"""CUDA text of elementwise operations: NVRTC takes it, and, run on the host, it computes what NumPy does."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tidegate.emit import emit
from tidegate.emit.elementwise import INTEGER, OPERATIONS
from tidegate.emit.header import parts
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
    tiles = {"float": "x", "integer": "i", "mask": "m"}
    lines = ["  fill i <- -2147483648.0", "  fill m <- 1.0", "  fill h <- 0.1"]
    for name, kind, _ in every():
        row, of = ROWS[name], tiles[kind]
        values = [of] * (row.arity - (name == "where"))
        args = ", ".join(["m"] * (name == "where") + values)
        lines.append(f"  map {'m' if row.mask else of} <- {name} {args}")
        if row.arity == 2:  # numbers stand on either side, also the smallest one
            number = {"float": "-0.5", "integer": "-2147483648.0", "mask": "1.0"}[kind]
            lines.append(f"  map {'m' if row.mask else of} <- {name} {number}, {of}")
        if kind == "float":
            lines.append(f"  map {'m' if row.mask else 'h'} <- {name} {args.replace('x', 'h')}")
    lines += ["  cast i <- m", "  cast x <- i"]
    made = cubin(emit(parse_kernel(text({"i": "i32", "m": "bool", "h": "f16"}, "\n".join(lines)))), arch)
    assert "warning" not in made.log
    assert made.spills == 0


@needs_nvrtc
def test_tiles_may_be_called_like_the_functions_that_work_on_them() -> None:
    called = {n for _, _, template in every() for n in re.findall(r"(\w+)\(", template)} - {"u32", "int"}
    called |= {"u32", "i32", "words", "fmodf", "copysignf", "exchange"}
    body = "\n".join(f"  map {name} <- sin x\n  map x <- add x, {name}" for name in sorted(called))
    maps = "\n".join(
        f"  map x <- {name} x{', x' * (ROWS[name].arity - 1)}"
        for name, kind, _ in every()
        if kind == "float" and not ROWS[name].mask and name != "where"
    )
    cubin(emit(parse_kernel(text(dict.fromkeys(sorted(called), "f32"), body + "\n" + maps))), "sm_80")


# ---------------------------------------------------------------------------------------------- values on the host

INTEGERS = np.array(
    [0, 1, -1, 2, -2, 3, -3, 7, 31, 32, 33, -32, 1000, 2**30, -(2**30), -(2**31), 2**31 - 1, 1 - 2**31], np.int64
).astype(np.int32)
FLOATS = np.array(
    [0.0, 1.0, 0.5, 1.5, 2.5, 3.0, 7.25, 0.1, 1e-45, 1e-38, 3e38, 1e7, 8388609, 16777217, np.inf], np.float32
)


def operands(kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Each special number with each other, then random ones."""
    rng = np.random.default_rng(0)
    special = INTEGERS if kind == "integer" else np.concatenate([FLOATS, -FLOATS, np.array([np.nan], np.float32)])
    a, b = (x.ravel() for x in np.meshgrid(special, special))
    bits = rng.integers(0, 2**32, (2, 4000), dtype=np.uint32).view(special.dtype)
    near = rng.integers(-60, 60, (2, 4000)).astype(special.dtype)
    return np.concatenate([a, bits[0], bits[0], near[0]]), np.concatenate([b, bits[1], near[1], near[1]])


@pytest.mark.skipif(HOST is None, reason="there is no C++ compiler")
def test_text_computes_what_numpy_does(tmp_path: Path) -> None:
    """Operations that are rounded correctly, bit by bit, under a sanitizer that stops at undefined behaviour. What is
    an instruction of PTX is left out."""
    ptx = {name for p in parts() for name in p.names if "asm" in p.text}
    found = [
        (name, kind, template)
        for name, kind, template in every()
        if kind != "mask" and name != "where" and not ELEMENTWISE[name].ulps
        if not {*re.findall(r"\w+", template)} & (ptx | {"__fsqrt_rn"})
    ]
    assert {"floor_divide", "remainder", "mul", "neg", "abs", "sign", "round"} <= {name for name, _, _ in found}
    used = {*re.findall(r"\w+", " ".join(template for _, _, template in found))} | {"floor_div"}
    lines = ["#include <algorithm>", "#include <cmath>", "#include <cstdio>"]
    lines += ["#define __device__", "#define __forceinline__ inline", "using namespace std;"]
    lines += [*(p.text for p in parts() if p.names & (used | {"u32"})), "int main() {"]
    sent, wanted = b"", []
    for name, kind, template in found:
        a, b = operands(kind)
        with np.errstate(all="ignore"):
            wanted.append(ELEMENTWISE[name].numpy(*(a, b)[: ROWS[name].arity]))
        sent += a.tobytes() + b.tobytes()
        of, n = ("int" if kind == "integer" else "float"), len(a)
        lines.append(f"  {{ static {of} a[{n}], b[{n}]; static {'int' if ROWS[name].mask else of} c[{n}];")
        lines.append(f"    if (fread(a, 4, {n}, stdin) + fread(b, 4, {n}, stdin) != {2 * n}) return 1;")
        lines.append(f"    for (int i = 0; i < {n}; ++i) c[i] = {template.format('a[i]', 'b[i]')};")
        lines.append(f"    fwrite(c, 4, {n}, stdout); }}")
    source, program = tmp_path / "text.cpp", tmp_path / "text"
    source.write_text("\n".join([*lines, "}"]))
    strict = ["-fsanitize=undefined", "-fno-sanitize-recover=all", "-ffp-contract=off"]
    subprocess.run([str(HOST), "-O1", *strict, "-o", program, source], check=True)
    got = subprocess.run([program], input=sent, stdout=subprocess.PIPE, check=True).stdout
    for (name, kind, _), want in zip(found, wanted, strict=True):
        mine, got = np.frombuffer(got[: want.nbytes], want.dtype), got[want.nbytes :]
        same = (mine.view(np.int32) == want.view(np.int32)) | ((mine != mine) & (want != want))
        a, b = operands(kind)
        assert same.all(), (name, kind, a[~same][:3], b[~same][:3], mine[~same][:3], want[~same][:3])
