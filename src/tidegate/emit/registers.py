"""How register tiles lie in C++ arrays, one form per element size.

f32, integers of 32 and 64 bits and masks (as int) have an array element each. 16-bit and 8-bit elements are packed two
or four to a u32, the first in the lowest bits. Memory always has packed bytes: what an access moves is u32 words, and
this module says how elements go in and out of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.emit.affine import Affine
from tidegate.ir.dtypes import F32, DType

Index = Affine | str


def declaration(dtype: DType, name: str, count: int) -> str:
    """The array of ``count`` elements."""
    if dtype.per_word > 1:
        return f"u32 {name}[{words(dtype, count)}];"
    kind = "f32" if dtype == F32 else "i64" if dtype.size == 8 else "int"
    return f"{kind} {name}[{count}];"


def words(dtype: DType, count: int) -> int:
    """Array elements that hold ``count`` elements."""
    return -(-count // dtype.per_word)


def value(dtype: DType, name: str, index: str, within: int) -> str:
    """The number that an element stands for: element ``within`` of the word at ``index``."""
    word = f"{name}[{index}]"
    if dtype.per_word == 2:
        return f"from_{dtype}({('low_half', 'high_half')[within]}({word}))"
    return f"from_{dtype}({word}, {within})" if dtype.per_word == 4 else word


def assignment(dtype: DType, name: str, index: str, values: Sequence[str]) -> str:
    """Assigns numbers to the elements of the word at ``index``; the last ones may be missing."""
    if dtype.per_word == 1:
        return f"{name}[{index}] = {values[0]};"
    missing = ["0.0f" if dtype.floating else "0"] * (dtype.per_word - len(values))
    return f"{name}[{index}] = to_{dtype}x{dtype.per_word}({', '.join([*values, *missing])});"


# ---------------------------------------------------------------------------------------------- bits


def bits(dtype: DType, name: str, index: Index) -> str:
    """The bits of a packed element, in the low end of a word."""
    return f"get_{_part(dtype)}({name}, {index})"


def packed(elements: Sequence[str]) -> str:
    """A word of two or four elements, given as bits."""
    return f"{'pair' if len(elements) == 2 else 'quad'}({', '.join(elements)})"


def taken(dtype: DType, name: str, index: Index, at: int) -> str:
    """Sets an element from the words ``v``, of which it is number ``at``."""
    if dtype.per_word > 1:
        return f"set_{_part(dtype)}({name}, {index}, {bits(dtype, 'v', str(at))});"
    if dtype.kind == "mask":
        return f"{name}[{index}] = get_byte(v, {at});"
    return f"{name}[{index}] = {f'join(v[{2 * at}], v[{2 * at + 1}])' if dtype.size == 8 else f'v[{at}]'};"


def given(dtype: DType, name: str, indices: Sequence[Index]) -> list[str]:
    """The words that elements make up, as memory has them."""
    if dtype.size == 8:
        return [f"{half}_word({name}[{i}])" for i in indices for half in ("low", "high")]
    if dtype.size == 4:
        return [f"{name}[{i}]" if dtype == F32 else f"u32({name}[{i}])" for i in indices]
    if dtype.size == 2:
        halves = [bits(dtype, name, i) for i in indices]
        return [packed(halves[i : i + 2]) for i in range(0, len(halves), 2)] if len(halves) > 1 else halves
    elements = [f"u32({name}[{i}])" if dtype.kind == "mask" else bits(dtype, name, i) for i in indices]
    if len(elements) == 1:
        return elements
    elements += ["0"] * (-len(elements) % 4)
    return [packed(elements[i : i + 4]) for i in range(0, len(elements), 4)]


def zeroed(dtype: DType, name: str, index: Index) -> str:
    """Sets an element to 0."""
    if dtype.per_word > 1:
        return f"set_{_part(dtype)}({name}, {index}, 0);"
    return f"{name}[{index}] = {'0.0f' if dtype == F32 else '0'};"


def _part(dtype: DType) -> str:
    return "half" if dtype.size == 2 else "byte"
