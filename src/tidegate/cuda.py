"""Instructions of NVIDIA GPUs, for the argument ``by=`` of tg.load and tg.dot.

``by=`` says which instruction carries a step, never what it computes. Without it the target's default is used: cp.async
where a tile goes to shared memory and is aligned enough, else ld; mma for products.
"""

from __future__ import annotations

from tidegate.errors import BadCall
from tidegate.ir.hir import Instruction
from tidegate.span import calling


def cp_async(bytes: int | None = None) -> Instruction:
    """``tg.load(a[m, k], by=cuda.cp_async(), stages=3)``: asynchronous copy from global to shared memory.

    ``bytes``: the size of its pieces, 4, 8 or 16; None for the widest that rows and addresses are aligned to. Raises
    TG105 for another size, and at compile time TG302 where the tensor is not aligned to ``bytes`` and TG301 where the
    tile does not go to shared memory.
    """
    if bytes is not None and (type(bytes) is not int or bytes not in (4, 8, 16)):
        what = f"cuda.cp_async(bytes={bytes!r}): cp.async moves 4, 8 or 16 bytes"
        raise BadCall(calling(1), what=what, advice="use 4, 8 or 16")
    return Instruction("cp_async", (("bytes", bytes),) if bytes else ())


def ld() -> Instruction:
    """``tg.load(a[m, k], by=cuda.ld())``: loads by the threads themselves, as wide as alignment allows, and for a tile
    that goes to shared memory stores behind them. Any dtype and any alignment; TG301 as ``by=`` of a product."""
    return Instruction("ld")


def mma(tf32: bool = False) -> Instruction:
    """``tg.dot(x, y, acc, by=cuda.mma())``: tensor core product of each warp, mma.sync.

    Operands are f16, bf16, f8e4m3 and f8e5m2 (sm_89 and later; the two may meet) with f32 sums, or i8 with i32 sums.
    ``tf32=True``: f32 operands, each rounded to 10 bits of fraction, to nearest, ties away from zero; ``plain`` rounds
    them too. M, N and K of the tiles are multiples of 16, 8 and 16 (8 for tf32, 32 for 8 bits). Raises TG105 for any
    other ``tf32``, and at compile time TG303 for operands or tile sizes that it does not multiply.
    """
    if type(tf32) is not bool:
        raise BadCall(calling(1), what=f"cuda.mma(tf32={tf32!r})", advice="use True or False")
    return Instruction("mma", (("tf32", 1),) if tf32 else ())


def tma() -> Instruction:
    """Tensor copy by the TMA engine (sm_90 and later): planning with it is refused for now (TG301)."""
    return Instruction("tma")


def wgmma() -> Instruction:
    """Product by a warpgroup (sm_90a): planning with it is refused for now (TG301)."""
    return Instruction("wgmma")
