"""Constants that follow a pattern, written as loops.

An instruction on a register tile becomes many machine instructions whose constants (register numbers, offsets) are
known. Where they are affine in the bits of the register index, a nest of unrolled loops says the same in three lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import gcd

import numpy as np

LOOP_NAMES = "ijhqrstuvw"


@dataclass(frozen=True)
class Affine:
    """``constant + sum(stride * loop variable)``; prints as C++."""

    constant: int
    strides: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        terms = [var if stride == 1 else f"{stride} * {var}" for var, stride in self.strides]
        if self.constant or not terms:
            terms.append(str(self.constant))
        return " + ".join(terms)

    def __add__(self, more: int) -> Affine:
        return Affine(self.constant + more, self.strides)

    def __mul__(self, factor: int) -> Affine:
        return Affine(self.constant * factor, tuple((var, stride * factor) for var, stride in self.strides))

    @property
    def divisor(self) -> int:
        """Divides every value (0 for the constant zero)."""
        return gcd(self.constant, *(stride for _, stride in self.strides))

    @property
    def is_zero(self) -> bool:
        return not self.constant and not self.strides

    def over(self, number: int) -> Affine:
        """The quotient; ``number`` must divide ``divisor``."""
        return Affine(self.constant // number, tuple((var, stride // number) for var, stride in self.strides))


Values = Mapping[str, np.ndarray]
Body = Callable[[Mapping[str, Affine]], list[str]]


def unrolled(values: Values, body: Body, loop_names: str = LOOP_NAMES) -> list[str]:
    """C++ lines that execute ``body`` for every element of the arrays in ``values`` (all of one shape), in row-major
    order: as unrolled loops where every array is affine in the indices, else written out along the first axis."""
    shape = next(iter(values.values())).shape
    if any(extent > 2 and not extent & (extent - 1) for extent in shape):
        # XOR constants are affine in the bits of an index, not in the index. Loops are joined again below.
        bits = tuple(e for extent in shape for e in _bits(extent))
        return unrolled({name: array.reshape(bits) for name, array in values.items()}, body, loop_names)
    strides = {name: _strides(array) for name, array in values.items()}
    if any(s is None for s in strides.values()):
        out: list[str] = []
        for index in range(shape[0]):
            lines = unrolled({name: array[index] for name, array in values.items()}, body, loop_names)
            last = next(iter(values.values()))[index].size == 1
            out += _apart(lines) if last else lines
        return out
    loops = list(_merged(shape, {name: s for name, s in strides.items() if s is not None}))
    names = loop_names[: len(loops)]
    forms = {
        name: Affine(
            int(array.flat[0]),
            tuple((var, steps[name]) for var, (_, steps) in zip(names, loops, strict=True) if steps[name]),
        )
        for name, array in values.items()
    }
    lines = body(forms)
    for var, (extent, _) in zip(reversed(names), reversed(loops), strict=True):
        braced = len(lines) > 1
        lines = [
            "#pragma unroll",
            f"for (int {var} = 0; {var} < {extent}; ++{var})" + " {" * braced,
            *("  " + line for line in lines),
            *["}"] * braced,
        ]
    return lines


def _apart(lines: list[str]) -> list[str]:
    """Lines that may declare locals, in a scope of their own."""
    if len(lines) == 1 or lines[0].startswith(("{", "if")):
        return lines
    return ["{", *("  " + line for line in lines), "}"]


def _bits(extent: int) -> tuple[int, ...]:
    return (2,) * (extent.bit_length() - 1) if extent > 1 and not extent & (extent - 1) else (extent,)


def _strides(array: np.ndarray) -> tuple[int, ...] | None:
    """Strides of an array that is affine in its indices, else None."""
    first = array.flat[0]
    strides = []
    expected = np.full((1,) * array.ndim, first)
    for axis, extent in enumerate(array.shape):
        index = tuple(int(a == axis) for a in range(array.ndim))
        stride = int(array[index] - first) if extent > 1 else 0
        strides.append(stride)
        expected = expected + (np.arange(extent) * stride).reshape([-1 if a == axis else 1 for a in range(array.ndim)])
    return tuple(strides) if np.array_equal(expected, array) else None


def _merged(shape: tuple[int, ...], strides: Mapping[str, tuple[int, ...]]) -> Iterator[tuple[int, Mapping[str, int]]]:
    """(extent, strides) per loop: axes of one element dropped, neighbours joined where they run on."""
    loop: tuple[int, dict[str, int]] | None = None
    for axis, extent in enumerate(shape):
        if extent == 1:
            continue
        steps = {name: s[axis] for name, s in strides.items()}
        if loop and all(loop[1][name] == extent * step for name, step in steps.items()):
            loop = (loop[0] * extent, steps)
            continue
        if loop:
            yield loop
        loop = (extent, steps)
    if loop:
        yield loop
