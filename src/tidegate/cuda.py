"""Instructions of NVIDIA GPUs, for ``by=``."""

from __future__ import annotations

from tidegate.errors import BadCall
from tidegate.ir.hir import Instruction


def cp_async(bytes: int | None = None) -> Instruction:
    """Asynchronous copy global to shared in pieces of 4, 8 or 16 ``bytes`` (default: the widest that is aligned)."""
    if bytes is not None and (type(bytes) is not int or bytes not in (4, 8, 16)):
        raise BadCall(what=f"cuda.cp_async(bytes={bytes!r}): cp.async moves 4, 8 or 16 bytes", advice="use 4, 8 or 16")
    return Instruction("cp_async", (("bytes", bytes),) if bytes else ())


def ld() -> Instruction:
    """Vectorised loads (and, for a tile that goes to shared memory, stores) by the threads themselves."""
    return Instruction("ld")


def mma() -> Instruction:
    """Tensor core product by mma.sync m16n8k16: f16 or bf16 operands, f32 accumulator."""
    return Instruction("mma")


def tma() -> Instruction:
    """Tensor copy by the TMA engine (sm_90 and later)."""
    return Instruction("tma")


def wgmma() -> Instruction:
    """Warpgroup product (sm_90a)."""
    return Instruction("wgmma")
