"""Kernels whose control depends on numbers that are read: proofs, and runs that show what is missing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from judging import without

import tidegate as tg
from tidegate import cuda
from tidegate.check import check
from tidegate.check.explore import explorer
from tidegate.check.machine import Machine
from tidegate.ir import tir


@tg.kernel(warps=1)
def two_counts(
    n: tg.Tensor[4, "i32"], m: tg.Tensor[4, "i32"], x: tg.Tensor[24, 24, "f32"], y: tg.Out[24, 24, "f32"]
):  # fmt: skip
    """Whether the last read needs its own wait depends on the inner count being 0 where the outer one is not."""
    for _i in tg.range(tg.load(n[2])):
        t = tg.load(x[:, :], by=cuda.cp_async())
        for _j in tg.range(tg.load(m[2])):
            y[:, :] = t.T
        y[:, :] = t.T + 1.0


@tg.kernel(warps=2)
def far_away(x: tg.Tensor["N", 16, "f32"], z: tg.Tensor["K", 16, "f32"], y: tg.Out["N", 16, "f32"]):
    """Faults show in the sixth CTA, and in the sixth trip there."""
    for m in tg.grid(tg.tiles("N", 16)):
        t = tg.load(x[m, :], by=cuda.cp_async(), to="shared")
        if m > 4:
            for k in tg.tiles("K", 16):
                if k + 1 > 5:
                    u = tg.load(z[k, :], by=cuda.cp_async())
                    y[m, :] = t.T + u.T
        else:
            y[m, :] = t.T


@tg.kernel(warps=2)
def diagonal(n: tg.Tensor["M", "i32"], x: tg.Tensor["K", 16, "f32"], y: tg.Out["M", "N", "f32"]):
    """Rings under a condition on the trip and the CTA, in a loop that ends by a number."""
    for h, m in tg.grid(tg.range("M"), tg.tiles("N", 16)):
        for _i in tg.range(tg.load(n[h])):
            for k in tg.tiles("K", 16):
                if 2 * k == m:
                    t = tg.load(x[k, :], by=cuda.cp_async(), stages=2)
                    y[h, m] = tg.sum(t, axis=1)
                u = tg.load(x[k, :], by=cuda.cp_async(), stages=3)
                y[h, m] = tg.max(u.T, axis=1)


@tg.kernel(warps=1)
def one_count(n: tg.Tensor[4, "i32"], x: tg.Tensor[16, 16, "f32"], y: tg.Out[16, 16, "f32"]):
    """Both loops have the same number of trips, but the ring asks for more of it than the loop around."""
    for _i in tg.range(tg.load(n[1])):
        for _j in tg.range(tg.load(n[1])):
            t = tg.load(x[:, :], by=cuda.cp_async(), stages=5)
            y[:, :] = t.T


@tg.kernel(warps=1)
def sixteen(n: tg.Tensor[4, "i32"], x: tg.Tensor[16, 16, "f32"], y: tg.Out[16, 16, "f32"]):
    """The inner loop has a known number of trips, and the last of them fills nothing."""
    for _i in tg.range(tg.load(n[1])):
        for _j in tg.range(16):
            t = tg.load(x[:, :], by=cuda.cp_async(), stages=2)
            y[:, :] = t.T


@tg.kernel(warps=2)
def never_read(
    x: tg.Tensor[16, 16, "f32"], y: tg.Out["N", 16, 16, "f32"], z: tg.Out["K", "f32"], w: tg.Tensor["M", "f32"]
):
    """A ring is written again unread where one size is 0, another is not small, and a third does not matter."""
    total = tg.zeros((16,))
    for m in tg.tiles("M", 16):
        total = total + tg.load(w[m])
    for k in tg.tiles("K", 16):
        t = tg.load(x[:, :], by=cuda.cp_async(), stages=5)
        z[k] = total
        for n in tg.range("N"):
            y[n, :, :] = t


@pytest.mark.parametrize("producer", ["in_order", "multistage"])
@pytest.mark.parametrize("kernel", [two_counts, far_away, diagonal, one_count, sixteen, never_read])
def test_proved_with_every_sync_and_shown_to_be_wrong_without_any(kernel: Any, producer: str) -> None:
    lowered = kernel.compile(target="sm_80", plan=producer).kernel
    verdict = check(lowered)
    assert verdict.safe, verdict.text()
    for sync in (s for s in tir.walk(lowered.body) if isinstance(s, tir.Sync)):
        assert check(replace(lowered, body=without(lowered.body, sync))).status == "unsafe", sync


def test_a_trip_is_worked_out_once_for_all_places_that_its_control_does_not_ask_for() -> None:
    """The loops inside ask for none of the indices around them."""
    lowered = diagonal.compile(target="sm_80", plan="multistage").kernel
    run = explorer(Machine(lowered), {})
    assert not list(run.every_case())
    assert run.steps < 12_000
