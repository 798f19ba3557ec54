"""Shared layouts of the examples have no bank conflicts, for every access of every warp."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernels import example
from typed import KINDS, multiplying

from tidegate.analyze.access import layout_of, slot_of, width_of
from tidegate.ir import legal, tir
from tidegate.ir.layout import active_threads, bank_conflicts, byte_offsets, coordinates

CASES = [
    ("transpose", "transpose", {"warps": 1}),
    ("transpose", "transpose", {"warps": 4, "STAGES": 2}),
    ("transpose", "transpose", {"BM": 64, "BN": 32}),
    ("gemm", "gemm_v0", {}),
    ("gemm", "gemm_v1", {}),
    ("gemm", "gemm_v2", {}),
    ("gemm", "gemm_v2", {"BM": 128, "BN": 256, "BK": 32, "warps": 8}),
    ("gemm", "gemm_v2", {"BM": 64, "BN": 64, "BK": 128, "STAGES": 2}),
    ("attention_small", "attention", {"D": 64}),
    ("attention_small", "attention", {"D": 128}),
    ("row_ring", "row_ring", {}),
    ("gemm_fp8", "gemm_fp8", {}),
    ("gemm_fp8", "gemm_fp8", {"BK": 128, "STAGES": 3}),
    ("gemm_i8", "gemm_i8", {}),
    ("gemm_i8", "gemm_i8", {"BN": 256, "BK": 32, "warps": 8}),
]


def extra_cycles(program: legal.LegalProgram, step: legal.Step) -> int:
    """Cycles beyond the fewest, over all warps and registers of one step."""
    found = slot_of(step.instr)
    assert found is not None
    slot, _ = found
    shared = program.ring(slot.buffer).layout
    if isinstance(step.instr, tir.LdMatrix):
        rows, columns = np.arange(0, shared.shape[0], 8), np.arange(0, shared.shape[1], 16 // shared.size)
        blocks = [byte_offsets(shared, (r + np.arange(8), np.full(8, c))) for r in rows for c in columns]
        return sum(bank_conflicts(b.tolist(), 16) for b in blocks)
    layout = layout_of(program, step.instr)
    coords = coordinates(layout)
    coords = coords[::-1] if slot.transposed else coords
    starts = byte_offsets(shared, tuple(c + o for c, o in zip(coords, slot.origin, strict=True)))
    width = width_of(step.instr)
    pieces = starts // width * width
    lanes = np.arange(layout.threads).reshape(-1, 32)
    active = active_threads(layout)
    return sum(
        bank_conflicts(pieces[warp[active[warp]], register].tolist(), width)
        for warp in lanes
        for register in range(layout.registers)
    )


@pytest.mark.parametrize(("file", "kernel", "options"), CASES)
def test_no_access_conflicts(file: str, kernel: str, options: dict[str, Any]) -> None:
    assert conflicting(getattr(example(file), kernel).compile(target="h200", **options).legal) == {}


@pytest.mark.parametrize("turned", ["", "a", "b", "ab"])
@pytest.mark.parametrize(("dtype", "sums", "tf32"), KINDS)
def test_no_operand_conflicts(dtype: str, sums: str, tf32: bool, turned: str) -> None:
    """Whichever way an operand lies, and also where it is read element by element."""
    kernel = multiplying(dtype, sums, turned, tf32)
    for size in (64, 128):
        assert conflicting(kernel.compile("h200", BM=size, BN=128, BK=64).legal) == {}


def conflicting(program: legal.LegalProgram) -> dict[str, int]:
    """The extra cycles of each step that has any."""
    steps = [s for s in legal.steps(program.body) if slot_of(s.instr)]
    assert steps
    return {s.id: extra for s in steps if (extra := extra_cycles(program, s))}
