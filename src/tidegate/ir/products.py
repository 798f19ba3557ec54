"""The tensor core products that mma.sync computes: shapes, element types and fragments (PTX ISA, "Matrix Fragments for
mma.m16n8k8", "mma.m16n8k16" and "mma.m16n8k32").

All have fragments of one pattern. A word of 32 bits holds ``per_word`` neighbours along k; lane bits 0 and 1 continue
along k, lane bits 2 to 4 run along m (of a) or n (of b); a thread's further words are 8 rows down, and half of k on.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.ir.dtypes import BF16, F8E4M3, F8E5M2, F16, F32, I8, I32, DType
from tidegate.ir.layout import Coord, Layout

M, N = 16, 8
"""Rows and columns of the result of one instruction."""


@dataclass(frozen=True)
class Product:
    """One shape: ``k`` deep, of operands of one of ``operands``, both alike, or each an 8-bit float."""

    name: str
    k: int
    operands: tuple[DType, ...]

    @property
    def per_word(self) -> int:
        return self.operands[0].per_word

    def takes(self, a: DType, b: DType) -> bool:
        """Does it multiply an a of one type by a b of the other?"""
        return a in self.operands and b in self.operands and alike(a, b)


PRODUCTS: dict[str, Product] = {
    p.name: p
    for p in (
        Product("m16n8k8", 8, (F32,)),
        Product("m16n8k16", 16, (F16, BF16)),
        Product("m16n8k32", 32, (F8E4M3, F8E5M2, I8)),
    )
}

FLOAT8 = (F8E4M3, F8E5M2)
"""Operands that not every GPU multiplies."""


def product_of(dtype: DType) -> Product | None:
    """The product with operands of this type."""
    return next((p for p in PRODUCTS.values() if dtype in p.operands), None)


def alike(a: DType, b: DType) -> bool:
    """May operands of these types be multiplied? 8-bit floats mix, since tensor cores read each by its own kind."""
    return a == b or (a in FLOAT8 and b in FLOAT8)


def accumulator_of(operand: DType) -> DType:
    """The type that products of an operand type are summed in."""
    return I32 if operand.integer else F32


def along(axis: int, step: int) -> Coord:
    """The basis vector of a step along one of two axes."""
    return (step, 0) if axis == 0 else (0, step)


def fragment_lanes(axis: int, per_word: int) -> tuple[Coord, ...]:
    """The lane bits of a fragment whose words lie along ``axis``."""
    return (*(along(axis, per_word * s) for s in (1, 2)), *(along(1 - axis, s) for s in (1, 2, 4)))


def word_steps(axis: int, per_word: int) -> tuple[Coord, ...]:
    """The register bits within a word."""
    return tuple(along(axis, 1 << bit) for bit in range(per_word.bit_length() - 1))


def is_fragment(layout: Layout, axis: int, per_word: int) -> bool:
    """Whether a layout is made of 8x8 blocks of words of ``per_word`` elements along ``axis``: what ldmatrix loads and
    mma takes."""
    return layout.rank == 2 and (
        layout.lane == fragment_lanes(axis, per_word) and set(word_steps(axis, per_word)) <= set(layout.reg)
    )
