"""Shared-memory addresses of a tile access: one part per thread, computed once, and constants per register.

The byte offset of an element is ``swizzle(thread part + constant)``. Where adding the constant never carries into bits
that threads set, the swizzle splits: ``swizzle(t + c) = (swizzle(t) ^ low) + high``, so that only the XOR of a few bits
remains per access, and ``high`` becomes an immediate. The identity is checked for every thread before it is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tidegate.ir.layout import Swizzle


@dataclass(frozen=True)
class Split:
    """``(swizzle(t) ^ low) + high`` per constant."""

    low: tuple[int, ...]
    high: tuple[int, ...]


def thread_values(steps: tuple[int, ...]) -> np.ndarray:
    """Sum of ``steps`` over the set bits of each thread index."""
    thread = np.arange(1 << len(steps))
    total = np.zeros(len(thread), dtype=np.int64)
    for bit, step in enumerate(steps):
        total += (thread >> bit & 1) * step
    return total


def swizzled(swizzle: Swizzle, offset: np.ndarray) -> np.ndarray:
    mask = (1 << swizzle.bits) - 1
    return offset ^ ((offset >> (swizzle.base + swizzle.shift) & mask) << swizzle.base)


@lru_cache(maxsize=512)
def split(steps: tuple[int, ...], swizzle: Swizzle, constants: tuple[int, ...]) -> Split | None:
    """The split form of ``swizzle(t + c)`` for each of ``constants``, or None where there is none."""
    threads = thread_values(steps)
    if not swizzle.bits:
        return Split((0,) * len(constants), constants)
    placed = swizzled(swizzle, threads)
    used = int(np.bitwise_or.reduce(placed))
    low, high = [], []
    for c in constants:
        inside = c % swizzle.period
        target = int(swizzled(swizzle, np.array(inside)))
        candidates = ((target & used, (target & ~used) + c - inside), (0, c))
        for lo, hi in candidates:
            if np.array_equal(swizzled(swizzle, threads + c), (placed ^ lo) + hi):
                low.append(lo)
                high.append(hi)
                break
        else:
            return None
    return Split(tuple(low), tuple(high))


def thread_expression(steps: tuple[int, ...], thread: str = "tid") -> str:
    """C++ for :func:`thread_values`: runs of bits whose steps double are read as one field."""
    terms = []
    bit = 0
    while bit < len(steps):
        step, first = steps[bit], bit
        bit += 1
        if not step:
            continue
        while bit < len(steps) and steps[bit] == step << (bit - first):
            bit += 1
        field = f"{thread} >> {first}" if first else thread
        if bit < len(steps):
            field = f"{field} & {(1 << (bit - first)) - 1}"
        if field == thread:
            terms.append(thread if step == 1 else f"{thread} * {step}")
        else:
            terms.append(f"({field})" if step == 1 else f"({field}) * {step}")
    if len(terms) == 1 and terms[0].startswith("(") and terms[0].endswith(")"):
        return terms[0][1:-1]
    return " + ".join(terms) or "0"
