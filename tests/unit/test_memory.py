"""Laws of the shared memory analysis."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
from kernels import example
from stopwatch import least_seconds

from tidegate.analyze.memory import alignment, lives
from tidegate.errors import BadCall, OverCapacity, PlanRejected, WrongOccupancy
from tidegate.runtime.compiled import Compiled


def compiled(file: str, kernel: str, **options: Any) -> Compiled:
    return getattr(example(file), kernel).compile(target="h200", **options)


KERNELS = [
    ("row_stage", "row_stage", {}),
    ("row_ring", "row_ring", {"STAGES": 3}),
    ("transpose", "transpose", {"STAGES": 2}),
    ("gemm", "gemm_v0", {}),
    ("gemm", "gemm_v2", {}),
    ("gemm", "gemm_v2", {"BM": 96, "BN": 48, "BK": 32, "STAGES": 5, "warps": 4}),
]


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize(("file", "kernel", "options"), KERNELS)
def test_live_rings_never_share_bytes(file: str, kernel: str, options: dict[str, Any], share: bool) -> None:
    k = compiled(file, kernel, share=share, **options)
    live = {life.ring.name: life for life in lives(k.legal)}
    for a, b in combinations(k.analysis.allocation.placements, 2):
        apart = a.offset + a.size <= b.offset or b.offset + b.size <= a.offset
        assert apart or (share and not live[a.ring].overlaps(live[b.ring]))


@pytest.mark.parametrize(("file", "kernel", "options"), KERNELS)
def test_every_slot_is_aligned_and_the_peak_is_exact(file: str, kernel: str, options: dict[str, Any]) -> None:
    k = compiled(file, kernel, **options)
    ends = []
    for p in k.analysis.allocation.placements:
        ring = k.legal.ring(p.ring)
        assert all((p.offset + s * p.stride) % alignment(ring) == 0 for s in range(ring.stages))
        assert p.stride >= ring.layout.bytes
        ends.append(p.offset + p.stride * (ring.stages - 1) + ring.layout.bytes)
    assert k.smem.peak == max(ends) == k.kernel.smem


def test_sequential_stages_share_offset_zero() -> None:
    k = compiled("row_stage", "row_stage")
    assert [p.offset for p in k.analysis.allocation.placements] == [0, 0]
    assert k.smem.peak == 512
    assert compiled("row_stage", "row_stage", share=False).smem.peak == 1024


def test_over_capacity_is_refused_with_the_largest_number_of_stages() -> None:
    gemm = example("gemm").gemm_v2
    with pytest.raises(OverCapacity) as caught:
        gemm.smem("h200", STAGES=5, BN=256, BK=64)
    assert caught.value.fields["peak"] == 5 * (128 * 64 + 64 * 256) * 2
    assert "stages=4 is the most that fits" in str(caught.value)
    assert gemm.smem("h200", STAGES=4, BN=256, BK=64).largest_stages == 4
    assert gemm.smem("rtx4090", STAGES=2, BN=256, BK=64).largest_stages == 2
    rows = example("row_ring").row_ring.smem("h200", STAGES=2)
    assert rows.largest_stages == rows.capacity // 512
    assert "largest number of stages that fits" in str(rows)
    assert "largest number" not in str(example("row_stage").row_stage.smem("h200"))  # it has no ring of several slots


def test_the_report_needs_no_plan_and_takes_milliseconds() -> None:
    gemm = example("gemm").gemm_v2
    assert least_seconds(lambda: gemm.smem("h200", STAGES=3, BN=256, BK=64)) < 0.05
    report = gemm.smem("h200", STAGES=3, BN=256, BK=64)
    assert {b.name: b.bytes for b in report.buffers} == {"x": 3 * 16384, "y": 3 * 32768}
    assert report.peak == sum(b.bytes for b in report.buffers)


@pytest.mark.parametrize("target", ["sm_80", "sm_89", "sm_90a"])
def test_no_more_ctas_share_a_multiprocessor_than_asked(target: str) -> None:
    softmax = example("softmax").softmax
    for ctas in range(1, 33):
        k = softmax.compile(target=target, ctas_per_sm=ctas)
        whole = k.smem.capacity + 1024
        assert k.plan.smem_bytes == k.kernel.smem == k.smem.requested
        assert whole // (k.plan.smem_bytes + 1024) <= ctas
        assert whole // (k.plan.smem_bytes - 128 + 1024) > ctas  # one granule less lets another one in
    wide = example("gemm").gemm_v2.compile(target="h200", ctas_per_sm=2)
    assert wide.plan.smem_bytes == wide.smem.peak  # needs more than that by itself


def test_a_plan_keeps_the_ctas_per_multiprocessor() -> None:
    softmax = example("softmax").softmax
    free = softmax.compile(target="h200", ctas_per_sm=None).plan
    with pytest.raises(PlanRejected, match="more than 4 CTAs share a multiprocessor"):
        softmax.compile(target="h200", ctas_per_sm=4, plan=free)


@pytest.mark.parametrize("ctas", [0, 33, -1, 2.5, "4", True])
def test_a_wrong_number_of_ctas_is_refused(ctas: Any) -> None:
    with pytest.raises(WrongOccupancy, match=f"ctas_per_sm={ctas!r} is not a number from 1 to 32"):
        example("softmax").softmax.compile(target="h200", ctas_per_sm=ctas)


def test_share_is_true_or_false() -> None:
    with pytest.raises(BadCall, match="share='no'"):
        compiled("row_stage", "row_stage", share="no")
