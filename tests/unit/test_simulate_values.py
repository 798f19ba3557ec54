"""What the simulator computes, what it refuses, and the faults that have nothing to do with order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tidegate.errors import NotExecutable, WrongArguments, WrongArrays
from tidegate.ir import tir
from tidegate.ir.dtypes import DTYPES
from tidegate.ir.text import parse_kernel
from tidegate.simulate import Completion, Simulation, simulate

ROW = "layout row [1, 32] reg - lane 0,1 0,2 0,4 0,8 0,16 warp - rep 1,1"


def kernel(body: str, *declarations: str, warps: int = 1, smem: int = 1024, dtype: str = "f32") -> tir.Kernel:
    """A kernel from a [M, N] to b [M, N], with a register x of one row."""
    lines = [
        f"kernel k target sm_80 warps {warps} smem {smem}",
        "dim M",
        "dim N",
        f"param a {dtype} [M, N] in align 2",
        f"param b {dtype} [M, N] out align 2",
        *[d for d in declarations if d.startswith("grid")],
        ROW.replace("warp -", "warp " + " ".join(["0,0"] * (warps.bit_length() - 1)) if warps > 1 else "warp -"),
        *[d for d in declarations if d.startswith("layout")],
        *[d for d in declarations if d.startswith(("buffer", "mbarrier"))],
        *[d for d in declarations if d.startswith("cursor")],
        f"register x {dtype} layout row",
        *[d for d in declarations if d.startswith("register")],
        *[d for d in declarations if d.startswith("role")],
        "body {",
        body,
        "}",
    ]
    return parse_kernel("\n".join(lines))


def run(k: tir.Kernel, a: np.ndarray, completion: Completion = "late", seed: int = 0) -> Simulation:
    return simulate(k, {"a": a}, completion=completion, seed=seed)


def row(n: int = 32, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(3).normal(size=(1, n)).astype(dtype)


def kinds(found: Simulation) -> set[str]:
    return {r.kind for r in found.reports}


# ---------------------------------------------------------------------------------------------- numbers

BINARY = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
}


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("op", BINARY)
def test_map_computes_in_f32_and_rounds(op: str, dtype: str) -> None:
    kind = DTYPES[dtype].numpy
    a = row(dtype=kind)
    found = run(
        kernel(
            f"ld_global x <- a[0, 0] bytes 2\nmap y <- neg x\nmap x <- {op} x, 1.7\nmap x <- {op} y, x\n"
            "st_global b[0, 0] <- x bytes 2",
            f"register y {dtype} layout row",
            dtype=dtype,
        ),
        a,
    )
    wide = BINARY[op](a.astype(np.float32), np.float32(1.7)).astype(kind)
    expected = BINARY[op]((-a).astype(np.float32), wide.astype(np.float32)).astype(kind)
    assert found.ok, str(found)
    assert found.outputs["b"].dtype == kind
    assert np.array_equal(found.outputs["b"], expected)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_cast_rounds_to_nearest_even(dtype: str) -> None:
    a = row()
    a[0, :3] = 1 + 2.0**-9, 1 + 3 * 2.0**-9, 1e30
    body = "ld_global x <- a[0, 0] bytes 4\ncast y <- x\ncast x <- y\nst_global b[0, 0] <- x bytes 4"
    found = run(kernel(body, f"register y {dtype} layout row"), a)
    with np.errstate(over="ignore"):
        expected = a.astype(DTYPES[dtype].numpy).astype(np.float32)
    assert np.array_equal(found.outputs["b"], expected)


def test_move_relabels_the_transposed_tile() -> None:
    body = "ld_global x <- a[0, 0] bytes 4\nmov y <- x transposed\nst_global b[0, 0] <- y bytes 4"
    column = "layout column [32, 1] reg - lane 1,0 2,0 4,0 8,0 16,0 warp - rep 1,1"
    k = kernel(body, column, "register y f32 layout column")
    k = replace(k, params=(k.params[0], replace(k.params[1], shape=tuple(reversed(k.params[1].shape)))))
    a = row()
    found = run(k, a)
    assert found.ok, str(found)
    assert np.array_equal(found.outputs["b"], a.T)


def test_mma_adds_steps_of_16_in_rising_order() -> None:
    k = parse_kernel("""
kernel mma target sm_80 warps 1 smem 0
param a bf16 [16, 48] in align 2
param b bf16 [48, 8] in align 2
param c f32 [16, 8] out align 4
layout fa [16, 48] reg 0,1 8,0 0,8 lane 0,2 0,4 1,0 2,0 4,0 warp - rep 1,3
layout fb [48, 8] reg 1,0 8,0 lane 2,0 4,0 0,1 0,2 0,4 warp - rep 3,1
layout fc [16, 8] reg 0,1 8,0 lane 0,2 0,4 1,0 2,0 4,0 warp - rep 1,1
register x bf16 layout fa
register y bf16 layout fb
register z f32 layout fc
body {
  ld_global x <- a[0, 0] bytes 4
  ld_global y <- b[0, 0] bytes 2
  fill z <- 1.5
  mma m16n8k16 z <- x, y, z
  st_global c[0, 0] <- z bytes 8
}
""")
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=s).astype(ml_dtypes.bfloat16) for s in ((16, 48), (48, 8)))
    a[:, 16:32] *= 1e4
    k = replace(k, params=tuple(replace(p, align=8) if p.name == "c" else p for p in k.params))
    found = simulate(k, {"a": a, "b": b})
    total = np.full((16, 8), 1.5, np.float32)
    for step in (slice(0, 16), slice(16, 32), slice(32, 48)):
        total = total + a.astype(np.float32)[:, step] @ b.astype(np.float32)[step]
    np.testing.assert_allclose(found.outputs["c"], total, rtol=1e-6)


@pytest.mark.parametrize("n", [1, 31, 32, 33, 70])
def test_bounds_read_zero_and_mask_writes(n: int) -> None:
    body = """
      ld_global x <- a[m, n * 32 < N] bytes 4
      map x <- add x, 1.0
      st_global b[m, n * 32 < N] <- x bytes 4"""
    a = np.arange(3 * n, dtype=np.float32).reshape(3, n)
    found = run(kernel(body, "grid m < M", "grid n < cdiv(N, 32)"), a)
    assert found.ok, str(found)
    assert np.array_equal(found.outputs["b"], a + 1)


def test_a_copy_writes_zeros_beyond_its_bounds() -> None:
    body = """
      cp_async t <- a[0, 8 < 20] layout row bytes 4
      cp_commit
      cp_wait 0
      ld_shared x <- t bytes 4
      st_global b[0, 0] <- x bytes 4"""
    a = row(40)
    found = run(kernel(body, "buffer t f32 [1, 32] stages 1 at 0 stride 128"), a)
    assert np.array_equal(found.outputs["b"][0, :32], np.where(np.arange(8, 40) < 20, a[0, 8:40], 0))


@pytest.mark.parametrize("completion", ["late", "early", "random"])
def test_replicas_may_store_the_same_value(completion: Completion) -> None:
    body = """
      ld_global x <- a[0, 0] bytes 4
      st_shared t <- x bytes 4
      ld_shared y <- t bytes 4
      st_global b[0, 0] <- y bytes 4"""
    both = "layout both [1, 32] reg - lane 0,1 0,2 0,4 0,8 0,16 warp 0,0 rep 1,1 replicated"
    k = kernel(body, both, "buffer t f32 [1, 32] stages 1 at 0 stride 128", "register y f32 layout both", warps=2)
    k = replace(k, registers=tuple(replace(r, layout=tir.Name("both")) for r in k.registers))
    a = row()
    for seed in range(4):
        found = run(k, a, completion, seed)
        assert found.ok, str(found)
        assert np.array_equal(found.outputs["b"], a)


def test_inputs_stay_and_given_outputs_are_not_touched() -> None:
    a, b = row(), np.zeros((1, 32), np.float32)
    before = a.copy()
    body = "ld_global x <- a[0, 0] bytes 4\nmap x <- neg x\nst_global b[0, 0] <- x bytes 4"
    found = simulate(kernel(body), {"a": a, "b": b})
    assert np.array_equal(a, before)
    assert not b.any()
    assert np.array_equal(found.outputs["b"], -a)


# ---------------------------------------------------------------------------------------------- faults


def test_an_output_that_is_not_written_is_poison_and_reported() -> None:
    found = run(kernel("fill x <- 2.0\nst_global b[0, 0 < 5] <- x bytes 4"), row())
    assert np.isnan(found.outputs["b"][0, 5:]).all()
    (report,) = found.reports
    assert (report.kind, report.buffer) == ("unwritten output", "b")
    assert str(report) == "unwritten output: 27 of the 32 elements of b are never written: b[0, 5:32]"


def test_an_undefined_register_is_reported_and_poison() -> None:
    found = run(kernel("map x <- add x, 1.0\nst_global b[0, 0] <- x bytes 4"), row())
    assert kinds(found) == {"undefined register"}
    assert np.isnan(found.outputs["b"]).all()


def test_shared_memory_starts_as_poison() -> None:
    body = "ld_shared x <- t bytes 4 line 3\nst_global b[0, 0] <- x bytes 4"
    found = run(kernel(body, "buffer t f32 [1, 32] stages 1 at 64 stride 128"), row())
    (report,) = found.reports
    assert (report.kind, report.line, report.buffer, report.bytes) == ("never written", 3, "t", (64, 68))
    assert np.isnan(found.outputs["b"]).all()


@pytest.mark.parametrize(("place", "span"), [("0, 8", (128, 132)), ("1, 0", (128, 132)), ("0, 8 < 99", (128, 132))])
def test_access_outside_the_tensor_is_reported(place: str, span: tuple[int, int]) -> None:
    found = run(kernel(f"ld_global x <- a[{place}] bytes 4\nst_global b[0, 0] <- x bytes 4"), row())
    (report,) = found.reports
    assert (report.kind, report.buffer, report.bytes) == ("out of bounds", "a", span)
    assert np.isnan(found.outputs["b"]).any()


def test_a_store_outside_the_tensor_changes_nothing() -> None:
    found = run(kernel("fill x <- 1.0\nst_global b[0, 0] <- x bytes 4\nst_global b[0, 4] <- x bytes 4"), row())
    assert kinds(found) == {"out of bounds"}
    assert (found.outputs["b"] == 1).all()


def test_a_vector_at_an_odd_address_is_reported() -> None:
    wide = "layout wide [1, 64] reg 0,1 lane 0,2 0,4 0,8 0,16 0,32 warp - rep 1,1"
    k = kernel("ld_global y <- a[0, 1 < N] bytes 8\nst_global b[0, 0] <- y bytes 4", wide, "register y f32 layout wide")
    k = replace(k, params=(replace(k.params[0], align=8), k.params[1]))
    assert kinds(run(k, row(64))) == {"misaligned"}


def test_two_ctas_that_write_one_element_are_reported() -> None:
    found = run(kernel("fill x <- 1.0\nst_global b[0, 0] <- x bytes 4", "grid m < 2"), row())
    (report,) = found.reports
    assert (report.kind, report.buffer) == ("two writers", "b")


def exchange(first: str, second: str) -> tir.Kernel:
    body = f"fill x <- 1.0\nst_global b[0, 0] <- x bytes 4\nbar_sync 1 warps {first}\nbar_sync 1 warps {second}"
    return kernel(body, warps=4)


def test_a_barrier_with_two_sets_of_participants_is_reported() -> None:
    found = [run(exchange("0,1", "1,2"), row(), seed=s) for s in range(6)]
    assert any("barrier mismatch" in kinds(f) for f in found)


def test_a_deadlock_is_reported_and_ends() -> None:
    k = kernel("sync_block #all\nbar_sync 3 warps 1,7 #never", warps=2)
    found = run(k, row())
    report = next(r for r in found.reports if r.kind == "deadlock")
    assert report.stmt == "bar_sync 3 warps 1,7 #never"
    assert report.warp == 1
    assert "warps 1 wait for 7: 0 have ended" in report.detail


def test_distinct_faults_are_counted_beyond_those_kept() -> None:
    registers = [f"register r{i} f32 layout row" for i in range(25)]
    body = "\n".join(f"mov x <- r{i}" for i in range(25)) + "\nst_global b[0, 0] <- x bytes 4"
    found = run(kernel(body, *registers), row())
    assert (len(found.reports), found.distinct) == (20, 25)
    assert "and 5 more" in str(found)


# ---------------------------------------------------------------------------------------------- refusals

COPY = "ld_global x <- a[0, 0] bytes 4\nst_global b[0, 0] <- x bytes 4"


@pytest.mark.parametrize(
    ("arrays", "part"),
    [
        ({}, "no array is given for a"),
        ({"a": row(), "q": row()}, "'q' is no parameter"),
        ({"a": row().astype(np.float64)}, "a is f32, the array is float64"),
        ({"a": row()[0]}, "a has 2 axes"),
        ({"a": row(), "b": row(31)}, "b must have shape [M = 1, N = 32]"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(arrays: dict[str, np.ndarray], part: str) -> None:
    with pytest.raises(WrongArrays) as error:
        simulate(kernel(COPY), arrays)
    assert part in str(error.value)


def test_sizes_must_keep_what_the_kernel_relies_on() -> None:
    k = kernel(COPY)
    with pytest.raises(WrongArrays, match="no multiple of 64"):
        run(replace(k, dims=(k.dims[0], replace(k.dims[1], multiple=64))), row())
    with pytest.raises(WrongArrays, match="N = 16"):
        run(replace(k, dims=(k.dims[0], replace(k.dims[1], value=16))), row())
    with pytest.raises(WrongArrays, match="no array tells the size Q"):
        run(replace(k, dims=(*k.dims, tir.Dim(tir.Name("Q"), None))), row())
    with pytest.raises(WrongArrays, match="alignment of 16"):
        run(replace(k, params=(replace(k.params[0], align=16), k.params[1])), row(31))


@pytest.mark.parametrize(
    ("body", "part"),
    [
        ("mov y <- x", "no register 'y' is declared"),
        ("wait full[c] flip 0", "no mbarrier 'full' is declared"),
        ("advance d", "no cursor 'd' is declared"),
        ("ld_global x <- q[0, 0] bytes 4", "no param 'q' is declared"),
        ("cp_async t <- a[0, 0] layout wide bytes 4", "no layout 'wide' is declared"),
        ("in producer {\ncp_commit\n}", "no role 'producer' is declared"),
        ("fence_async local", "space 'local' is none of shared, global"),
    ],
)
def test_unknown_names_are_refused(body: str, part: str) -> None:
    k = kernel(f"if N < 0 {{\n{body}\n}}", "buffer t f32 [1, 32] stages 1 at 0 stride 128", "cursor c depth 1")
    with pytest.raises(NotExecutable) as error:
        run(k, row())
    assert part in str(error.value)
    assert "TG713" in str(error.value)


@pytest.mark.parametrize(
    ("body", "part"),
    [
        ("ld_shared x <- t@0,1 bytes 4", "axis 1 of t has extent 32, the access reaches 32"),
        ("ld_global x <- a[M / (M - 1), 0] bytes 4", "divides by zero"),
        ("ld_global x <- a[q, 0] bytes 4", "q has no value"),
        ("st_global a[0, 0] <- x bytes 4", "a is an input"),
        ("ld_shared h <- t bytes 2", "f16 and f32 do not mix"),
        ("map x <- frobnicate x", "no operation frobnicate"),
        ("ld_shared x <- t[c] bytes 4\nadvance c\nld_shared x <- t[c] bytes 4", "t has 1 slots, not slot 1"),
        ("mma m16n8k16 x <- h, h, x", "do not fit the mma"),
    ],
)
def test_meaningless_tir_is_refused(body: str, part: str) -> None:
    k = kernel(body, "buffer t f32 [1, 32] stages 1 at 0 stride 128", "cursor c depth 2", "register h f16 layout row")
    with pytest.raises(NotExecutable) as error:
        run(k, row())
    assert part in str(error.value)


def test_an_unknown_completion_is_refused() -> None:
    with pytest.raises(WrongArguments, match="'sometimes'"):
        simulate(kernel(COPY), {"a": row()}, completion="sometimes")  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", ["x", -1, 0.5, True])
def test_a_seed_that_is_no_whole_number_from_0_on_is_refused(seed: object) -> None:
    with pytest.raises(WrongArguments, match=f"seed={seed!r}"):
        simulate(kernel(COPY), {"a": row()}, seed=seed)  # type: ignore[arg-type]
