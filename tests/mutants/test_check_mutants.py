"""Every broken variant of a correct kernel is found unsafe, or is as good as the original for a reason given here."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.check import check
from tidegate.check.mutate import mutants
from tidegate.ir.text import parse_kernel

KERNELS = sorted((Path(__file__).parent / "kernels").glob("*.tir"))

EQUIVALENT = {
    (
        "gemm_unequal",
        "delete cp_commit #p0 at 2",
    ): "the first group joins the second, and both are first waited for together",
}


@pytest.mark.parametrize("path", KERNELS, ids=lambda p: p.stem)
def test_the_kernel_is_safe_for_every_size(path: Path) -> None:
    verdict = check(parse_kernel(path.read_text()))
    assert verdict.safe, verdict.text()
    assert "every trip count" in verdict.scope


@pytest.mark.parametrize("path", KERNELS, ids=lambda p: p.stem)
def test_every_mutant_is_caught(path: Path) -> None:
    missed = {}
    for what, kernel in mutants(parse_kernel(path.read_text())):
        verdict = check(kernel)
        caught = verdict.status == "unsafe" and verdict.findings[0].kind != "malformed"
        assert not caught or verdict.timeline, verdict.text()
        if caught == ((path.stem, what) in EQUIVALENT):
            missed[what] = verdict.text()
    assert not missed, "\n".join(f"{what}\n{text}" for what, text in missed.items())


def test_mutations_cover_every_kind_of_sync() -> None:
    done = {what for path in KERNELS for what, _ in mutants(parse_kernel(path.read_text()))}
    for word in (
        "cp_commit",
        "cp_wait",
        "sync_warp",
        "sync_block",
        "bar_sync",
        "advance",
        "swap",
        "stages",
        "always",
        "bytes of",
    ):
        assert any(word in what for what in done), word
