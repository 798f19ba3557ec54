"""What the checker accepts, refuses and says, on small kernels written by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from stopwatch import least_seconds

from tidegate.check import check
from tidegate.errors import WrongArguments
from tidegate.ir.text import parse_kernel

KERNELS = Path(__file__).parents[1] / "mutants" / "kernels"

ROW = """kernel k target sm_80 warps {warps} smem 4096
{dims}
param a f32 [{shape}] in align 16
param b f32 [{shape}] out align 16
{more}
layout {layout} {bits}
buffer t f32 [2, 128] stages 1 at 0 stride 1024
register v f32 layout {layout}
body {{
{body}
}}
"""

LAYOUTS = {
    "row": "[1, 128] reg 0,1 0,2 lane 0,4 0,8 0,16 0,32 0,64 warp - rep 1,1",
    "wide": "[2, 128] reg 0,1 0,2 lane 0,4 0,8 0,16 0,32 0,64 warp 1,0 rep 1,1",
    "copies": "[1, 128] reg 0,1 0,2 lane 0,4 0,8 0,16 0,32 0,64 warp 0,0 rep 1,1 replicated",
}


def kernel(body: str, warps: int = 1, dims: str = "dim R", shape: str = "R, 128", more: str = "", layout: str = "row"):
    bits = LAYOUTS[layout]
    text = ROW.format(body=body, warps=warps, dims=dims, shape=shape, more=more, layout=layout, bits=bits)
    return parse_kernel(text)


def stored(name: str) -> str:
    return (KERNELS / f"{name}.tir").read_text()


# ---------------------------------------------------------------------------------------------- findings


def test_a_race_names_both_accesses_and_what_would_order_them() -> None:
    text = stored("transpose4").replace("    sync_block #s1\n", "").replace("bytes 4\n", "bytes 4 line 7\n", 1)
    verdict = check(parse_kernel(text))
    (finding,) = verdict.findings
    assert finding.kind == "race"
    assert "write after read" in finding.message
    assert finding.first is not None
    assert finding.second is not None
    assert finding.first.threads != finding.second.threads
    assert finding.first.warps != finding.second.warps
    assert (finding.first.iteration, finding.second.iteration) == ((("n", 0),), (("n", 1),))
    assert finding.second.line == 7
    assert finding.second.memory == "t"
    assert finding.first.text.startswith("ld_shared v <- t.T")
    assert finding.first.low == finding.second.low
    assert "sync_block" in finding.remedy
    assert [s.note for s in verdict.timeline if s.note] == ["first", "second"]
    assert "N = 64" in verdict.scope
    assert finding.first.text in verdict.text()
    assert json.loads(json.dumps(verdict.to_json()))["findings"][0]["kind"] == "race"


def test_lanes_of_one_warp_need_a_warp_sync() -> None:
    verdict = check(parse_kernel(stored("transpose1").replace("    sync_warp #s0\n", "")))
    assert "sync_warp" in verdict.findings[0].remedy
    assert "after the cp_wait" in verdict.findings[0].remedy


def test_a_wait_count_says_how_many_groups_are_newer() -> None:
    verdict = check(parse_kernel(stored("gemm_ring3").replace("cp_wait 1", "cp_wait 2")))
    assert verdict.findings[0].kind == "incomplete copy"
    assert "cp_wait 1 or less" in verdict.findings[0].remedy


def test_an_uncommitted_copy_is_covered_by_no_wait() -> None:
    verdict = check(
        kernel("cp_async t <- a[0, 0] layout row bytes 16\ncp_wait 0\nld_shared v <- t bytes 16", dims="dim R = 4")
    )
    assert "not committed" in verdict.findings[0].message


def test_a_copy_over_bytes_of_an_own_incomplete_copy() -> None:
    copy = "cp_async t <- a[0, 0] layout row bytes 16\n"
    verdict = check(kernel(f"{copy}{copy}cp_commit\ncp_wait 0", dims="dim R = 4"))
    assert verdict.findings[0].kind == "incomplete copy"
    assert "write after write" in verdict.findings[0].message


def test_generic_accesses_before_a_copy_of_the_same_thread_are_ordered() -> None:
    body = "fill v <- 0.0\nst_shared t <- v bytes 16\nld_shared v <- t bytes 16\n"
    body += "cp_async t <- a[0, 0] layout row bytes 16\ncp_commit\ncp_wait 0"
    assert check(kernel(body, dims="dim R = 4")).safe


def test_a_copy_outstanding_at_exit() -> None:
    verdict = check(kernel("cp_async t <- a[0, 0] layout row bytes 16\ncp_commit", dims="dim R = 4"))
    assert verdict.findings[0].kind == "outstanding copy"
    assert verdict.timeline[-1].text == "end of the kernel"


def test_bytes_never_written() -> None:
    body = "fill v <- 0.0\nst_shared t <- v bytes 16\nld_shared v <- t@1,0 bytes 16"
    verdict = check(kernel(body, dims="dim R = 4"))
    assert verdict.findings[0].kind == "uninitialised"
    assert verdict.findings[0].second is not None
    assert (verdict.findings[0].second.low, verdict.findings[0].second.high) == (512, 1024)


def test_bytes_last_written_through_another_buffer() -> None:
    text = stored("shared_bytes").replace("ld_shared x <- u.T", "ld_shared x <- t.T")
    assert check(parse_kernel(text)).findings[0].kind == "overwritten"


def test_two_threads_write_the_same_bytes_in_one_statement() -> None:
    verdict = check(kernel("fill v <- 0.0\nst_shared t <- v bytes 16", warps=2, dims="dim R = 4", layout="copies"))
    assert verdict.findings[0].kind == "race"
    assert "one statement" in verdict.findings[0].message


LDMATRIX = """kernel k target sm_80 warps 1 smem 512
param a bf16 [16, 16] in align 16
layout c [16, 16] reg 0,1 0,2 0,4 lane 0,8 1,0 2,0 4,0 8,0 warp - rep 1,1
layout f [16, 16] reg 0,1 8,0 0,8 lane 0,2 0,4 1,0 2,0 4,0 warp - rep 1,1
buffer t bf16 [16, 16] stages 1 at 0 stride 512
register x bf16 layout f
body {
cp_async t <- a[0, 0] layout c bytes 16
cp_commit
cp_wait 0
SYNC
ldmatrix x <- t
}
"""


def test_ldmatrix_reads_for_every_lane_of_the_warp() -> None:
    assert check(parse_kernel(LDMATRIX.replace("SYNC", "sync_warp"))).safe
    assert check(parse_kernel(LDMATRIX.replace("SYNC\n", ""))).findings[0].kind == "race"


def test_order_is_transitive_through_named_barriers() -> None:
    layout = "layout one [1, 32] reg - lane 0,1 0,2 0,4 0,8 0,16 warp 0,0 0,0 rep 1,1\n"
    layout += "layout all [1, 32] reg - lane 0,1 0,2 0,4 0,8 0,16 warp 0,0 0,0 rep 1,1 replicated\n"
    text = f"""kernel k target sm_80 warps 4 smem 128
{layout}buffer t f32 [1, 32] stages 1 at 0 stride 128
register x f32 layout one
register y f32 layout all
body {{
fill x <- 1.0
st_shared t <- x bytes 4
bar_sync 1 warps 0,1
bar_sync 2 warps 1,2
bar_sync 3 warps 2,3
ld_shared y <- t bytes 4
}}
"""
    assert check(parse_kernel(text)).safe
    swapped = text.replace("bar_sync 1 warps 0,1\nbar_sync 2 warps 1,2", "bar_sync 2 warps 1,2\nbar_sync 1 warps 0,1")
    finding = check(parse_kernel(swapped)).findings[0]
    assert finding.second is not None
    assert finding.second.warps == (2,)


# ---------------------------------------------------------------------------------------------- trip counts


def test_trip_count_zero_counts() -> None:
    body = "for r = 0 .. R {\nfill v <- 0.0\nst_shared t <- v bytes 16\n}\nfill v <- 0.0\nld_shared v <- t bytes 16"
    verdict = check(kernel(body))
    assert verdict.findings[0].kind == "uninitialised"
    assert "R = 0" in verdict.scope
    assert check(kernel(body), {"R": 3}).safe


def test_a_fault_that_needs_many_trips() -> None:
    copy = "cp_async t <- a[0 < R, 0] layout row bytes 16\ncp_commit\n"
    body = f"for r = 0 .. R {{\ncp_wait 0\nif r % 7 == 6 {{\n{copy}}}\n}}\ncp_wait 0\n"
    assert check(kernel(body, dims="dim R multiple 1")).safe
    verdict = check(kernel(body.replace("}\ncp_wait 0\n", "}\n")))
    assert verdict.findings[0].kind == "outstanding copy"
    assert "R = 7" in verdict.scope


def test_large_known_sizes_take_no_longer() -> None:
    kernel, sizes = parse_kernel(stored("gemm_ring4")), {"M": 4096, "N": 4096, "K": 64 * 100_000}
    verdict = check(kernel, sizes)
    assert verdict.safe, verdict.text()
    assert least_seconds(lambda: check(kernel, sizes)) < 5
    assert "K = 6400000" in verdict.scope


def test_known_sizes_only_show_their_own_faults() -> None:
    text = stored("gemm_ring3").replace("if k + 2 < cdiv(K, 32)", "if k + 3 < cdiv(K, 32)")
    assert check(parse_kernel(text), {"M": 128, "N": 128, "K": 64}).safe
    assert check(parse_kernel(text), {"M": 128, "N": 128, "K": 96}).findings[0].kind == "uninitialised"


def test_a_ring_carried_through_an_outer_loop_needs_nothing_between_tiles() -> None:
    ring = stored("transpose_ring")
    body = ring[ring.index("  if 0 <") : ring.rindex("}")]
    assert check(parse_kernel(ring.replace(body, f"for i = 0 .. M {{\n{body}}}\n"))).safe


def test_sibling_loops_that_share_bytes_need_a_rendezvous_between_them() -> None:
    ring = stored("transpose_ring").replace("cursor w", "buffer u f32 [32, 32] stages 2 at 0 stride 4096\ncursor w", 1)
    ring = ring.replace("cursor r depth 2\n", "cursor r depth 2\ncursor p depth 2\ncursor q depth 2\n")
    body = ring[ring.index("  if 0 <") : ring.rindex("}")]
    second = body
    for old, new in (("t[w]", "u[p]"), ("advance w", "advance p"), ("t[r]", "u[q]"), ("advance r", "advance q")):
        second = second.replace(old, new)
    second = second.replace("st_global b[n * 32 < N, m * 32 < M] <- v bytes 4", "")
    verdict = check(parse_kernel(ring.replace(body, body + second)))
    assert verdict.findings[0].kind == "race"
    assert verdict.findings[0].second is not None
    assert verdict.findings[0].second.memory == "u[0]"
    assert check(parse_kernel(ring.replace(body, f"{body}sync_block\n{second}"))).safe


def test_what_cannot_be_decided_is_not_proved() -> None:
    copy = "cp_async t <- a[0, 0] layout row bytes 16\ncp_commit\ncp_wait 0\n"
    assert check(kernel(f"for r = 0 .. R {{\nif 2 * r < S {{\n{copy}}}\n}}", dims="dim R\ndim S")).safe
    even = copy.replace("cp_wait 0", "if (r * r + r) % 2 == 0 {\ncp_wait 0\n}")
    verdict = check(kernel(f"for r = 0 .. R {{\n{even}}}"))
    assert verdict.status == "not proved"
    assert "incomplete copy in an abstract run" in verdict.reason
    assert "try: sizes (--set R=...), or for the condition (r * r + r) % 2 == 0 a scalar argument" in verdict.reason
    far = kernel(f"for r = 0 .. R {{\nif r < 1000 {{\n{copy}}}\n}}")
    verdict = check(far)
    assert verdict.status == "not proved"
    assert "999" in verdict.reason
    scalar = 'a scalar argument (tg.Scalar["i32"]) instead of the constant in the condition r < 1000'
    assert verdict.reason.endswith(f"try: sizes (--set R=...), or {scalar}")
    for size in (500, 2000):
        assert check(far, {"R": size}).safe
    unawaited = kernel(f"for r = 0 .. R {{\nif r == 1000 {{\n{copy.replace('cp_wait 0', '')}}}\n}}")
    assert check(unawaited, {"R": 1000}).safe
    assert check(unawaited, {"R": 1001}).status == "unsafe"


def test_nothing_to_do_is_safe() -> None:
    assert check(kernel("")).safe


# ---------------------------------------------------------------------------------------------- global memory

STORE = "fill v <- 0.0\nst_global b[{}] <- v bytes 16"


def test_a_window_outside_the_tensor() -> None:
    good = kernel("for r = 0 .. R {\n" + STORE.format("r, 0") + "\n}")
    assert check(good).safe
    verdict = check(kernel("for r = 0 .. R {\n" + STORE.format("r + 1, 0") + "\n}"))
    assert verdict.findings[0].kind == "out of bounds"
    assert "R = 1" in verdict.scope
    two = "for r = 0 .. cdiv(R, 2) {\n" + STORE.format("r * 2, 0") + "\n}"
    assert check(kernel(two, warps=2, layout="wide", dims="dim R multiple 2")).safe
    assert check(kernel(two, warps=2, layout="wide")).findings[0].kind == "out of bounds"
    masked = two.replace("r * 2,", "r * 2 < R,")
    assert check(kernel(masked, warps=2, layout="wide")).safe


def test_a_bound_beyond_the_tensor_masks_nothing() -> None:
    body = "for r = 0 .. R {\n" + STORE.format("r + 1 < R + 1, 0") + "\n}"
    assert check(kernel(body)).findings[0].kind == "out of bounds"


def test_every_element_has_one_writer() -> None:
    by_cta = kernel(STORE.format("g, 0"), more="grid g < R")
    assert check(by_cta).safe
    verdict = check(kernel(STORE.format("0, 0"), more="grid g < R"))
    assert verdict.findings[0].kind == "global race"
    assert "two CTAs" in verdict.findings[0].message
    assert check(kernel("if g == 0 {\n" + STORE.format("0, 0") + "\n}", more="grid g < R")).safe
    verdict = check(kernel(STORE.format("0, 0"), warps=2, layout="copies", dims="dim R = 1"))
    assert verdict.findings[0].kind == "global race"
    assert "two threads" in verdict.findings[0].message


def test_overlapping_stores_of_one_cta_need_a_rendezvous() -> None:
    body = "for r = 0 .. 2 {\n" + STORE.format("r, 0") + "SYNC\n}"
    made = {s: kernel(body.replace("SYNC", s), warps=2, layout="wide", dims="dim R = 3") for s in ("", "\nsync_block")}
    assert check(made[""]).findings[0].kind == "global race"
    assert check(made["\nsync_block"]).safe


# ---------------------------------------------------------------------------------------------- refusals


def test_a_kernel_that_breaks_the_specification_is_malformed() -> None:
    verdict = check(kernel("st_global a[0, 0] <- v bytes 16"))
    assert verdict.status == "unsafe"
    assert verdict.findings[0].kind == "malformed"


def test_instructions_without_a_model_are_not_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    from tidegate.check import api
    from tidegate.ir import tir

    monkeypatch.setattr(api, "MODELLED", tuple(c for c in api.MODELLED if c is not tir.FenceAsync))
    verdict = check(kernel("fence_async shared", dims="dim R = 4"))
    assert verdict.status == "not proved"
    assert "fence_async" in verdict.reason
    assert "FenceAsync" in verdict.reason


@pytest.mark.parametrize("sizes", [{"Q": 1}, {"R": 3}, {"R": -4}])
def test_impossible_sizes_are_refused(sizes: dict[str, int]) -> None:
    with pytest.raises(WrongArguments, match=r"Q|R = "):
        check(kernel("fill v <- 0.0", dims="dim R multiple 4"), sizes)


# ---------------------------------------------------------------------------------------------- speed


def test_a_gemm_is_checked_for_all_trip_counts_in_half_a_second() -> None:
    kernel = parse_kernel(stored("gemm_ring4"))
    assert check(kernel).safe
    assert least_seconds(lambda: check(kernel)) < 0.5


GRID_AND_LOOP = """
kernel k target sm_80 warps 1 smem 512
dim S
param a f32 [4, 128] in align 16
param b f32 [S, 128] out align 16
grid m < cdiv(S, {tile})
layout row [1, 128] reg 0,1 0,2 lane 0,4 0,8 0,16 0,32 0,64 warp - rep 1,1
buffer t f32 [1, 128] stages 1 at 0 stride 512
register x f32 layout row
body {{
  cp_async t <- a[0, 0] layout row bytes 16
  cp_commit
  for k = 0 .. cdiv(S, 64) {{
    cp_wait 0
    ld_shared x <- t bytes 16
    st_global b[m < S, 0] <- x bytes 16
  }}
}}
"""


def test_a_loop_over_a_size_that_the_grid_ranges_over_runs() -> None:
    """Where there is a CTA, S is not 0, whatever the two tile sizes are."""
    assert check(parse_kernel(GRID_AND_LOOP.format(tile=1))).status == "safe"
    without_grid = GRID_AND_LOOP.format(tile=1).replace("grid m < cdiv(S, 1)\n", "").replace("b[m < S", "b[0 < S")
    assert check(parse_kernel(without_grid)).status == "unsafe"
