"""Every broken variant of a correct kernel is found unsafe, or is as good as the original for a reason given here."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.check import check
from tidegate.check.mutate import OPERATORS, mutants
from tidegate.ir.text import parse_kernel

KERNELS = sorted((Path(__file__).parent / "kernels").glob("*.tir"))

EQUIVALENT = {
    (
        "gemm_unequal",
        "delete cp_commit #p0 at 2",
    ): "the first group joins the second, both are first waited for together",
    ("transpose_bar", "barrier 2 is 1"): "both have the same warps, one after the other",
    (
        "wgmma_persistent",
        "fence_async shared at 5.0.7 after the rendezvous",
    ): "the issuer may fence after the rendezvous",
}

STATIC = ("at the bytes of", "barrier ")
"""Mutants that the specification of TIR refuses before anything runs."""


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
        caught = verdict.status == "unsafe"
        if caught and verdict.findings[0].kind == "malformed":
            caught = any(word in what for word in STATIC)
        elif caught:
            assert verdict.timeline, verdict.text()
        if caught == ((path.stem, what) in EQUIVALENT):
            missed[what] = verdict.text()
    assert not missed, "\n".join(f"{what}\n{text}" for what, text in missed.items())


def test_every_operator_applies_somewhere() -> None:
    kernels = [parse_kernel(path.read_text()) for path in KERNELS]
    assert [operator.number for operator in OPERATORS] == list(range(1, 23))
    for operator in OPERATORS:
        assert any(True for kernel in kernels for _ in operator.apply(kernel)), operator.name


def test_no_operator_leaves_a_kernel_as_it_is() -> None:
    for path in KERNELS:
        kernel = parse_kernel(path.read_text())
        found = [what for what, _ in mutants(kernel)]
        assert all(mutant != kernel for _, mutant in mutants(kernel))
        assert found, path
