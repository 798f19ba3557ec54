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


def mma(tf32: bool = False) -> Instruction:
    """Tensor core product by mma.sync: f16, bf16, f8e4m3 or f8e5m2 (sm_89 and later) operands with f32 accumulators, i8
    with i32. ``tf32``: f32 operands, each rounded to 10 bits of fraction, to nearest, ties away from zero."""
    if type(tf32) is not bool:
        raise BadCall(what=f"cuda.mma(tf32={tf32!r})", advice="use True or False")
    return Instruction("mma", (("tf32", 1),) if tf32 else ())


def tma() -> Instruction:
    """Tensor copy by the TMA engine (sm_90 and later)."""
    return Instruction("tma")


def wgmma() -> Instruction:
    """Warpgroup product (sm_90a)."""
    return Instruction("wgmma")
