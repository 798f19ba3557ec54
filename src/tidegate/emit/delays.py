"""Delays and poison in the emitted text: the same program with other timings, to see if its numbers depend on them.

Nothing here is part of a kernel's normal text. A delayed text differs in two ways: chosen warps sleep before chosen
statements, and, with a guard, shared memory is full of NaN at the start and the bytes that no buffer owns are compared
at the end.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tidegate.ir import tir
from tidegate.ir.direction import Direction
from tidegate.ir.dtypes import F32
from tidegate.ir.expr import Int
from tidegate.ir.text import print_stmt

GUARD_BYTES = 256
"""Bytes behind the last buffer that a guarded kernel asks for and never writes."""

POISON = "0xffffffffu"
"""NaN in every floating type, and no plausible integer."""

SHARE = 3
"""One statement in so many is delayed."""

SHORTEST, LONGEST = 500, 20_000
"""Nanoseconds of a delay: from about one access of global memory to many."""


@dataclass(frozen=True)
class Delays:
    """What is injected. ``seed`` chooses statements, warps and lengths; ``guard`` names the output parameter that
    becomes 1 when guard bytes have changed ('': no poison and no guard)."""

    seed: int
    guard: str = ""

    def before(self, place: int, warps: int) -> tuple[int, int] | None:
        """Set of warps, as bits, and nanoseconds of the delay before the statement at ``place`` (in textual order), or
        None. Half of the delays hit one warp, always the same, so that it falls behind for good."""
        draw = random.Random(f"{self.seed} {place}")
        if draw.randrange(SHARE):
            return None
        slow = random.Random(self.seed).randrange(warps)
        some = draw.randrange(1, 1 << warps)
        chosen = 1 << slow if draw.random() < 0.5 else some
        return chosen, draw.randrange(SHORTEST, LONGEST)


def guarded(kernel: tir.Kernel, capacity: int) -> tuple[tir.Kernel, str]:
    """The kernel with guard bytes and a last output parameter ``[1]`` f32 for :attr:`Delays.guard`, and its name; the
    kernel itself and '' where it has no shared memory, or ``capacity`` bytes leave no room."""
    if not kernel.buffers or kernel.smem + GUARD_BYTES > capacity:
        return kernel, ""
    taken = {p.name for p in kernel.params} | {d.name for d in kernel.dims}
    name = next(n for n in ("guard", *(f"guard{i}" for i in range(len(taken) + 1))) if n not in taken)
    param = tir.Param(tir.Name(name), F32, (Int(1),), Direction.OUT, align=4)
    return replace(kernel, smem=kernel.smem + GUARD_BYTES, params=(*kernel.params, param)), name


def unowned(kernel: tir.Kernel) -> Iterator[tuple[int, int]]:
    """Ranges of bytes, in whole words, that neither a buffer nor a barrier owns."""
    owned = [(b.offset + s * b.stride, b.layout.bytes) for b in kernel.buffers for s in range(b.stages)]
    owned += [(b.offset, 8 * b.stages) for b in kernel.barriers]
    at = 0
    for start, size in (*sorted(owned), (kernel.smem, 0)):
        first, last = -(-at // 4) * 4, start // 4 * 4
        if last > first:
            yield first, last
        at = max(at, start + size)


def delay_lines(delays: Delays, place: int, stmt: tir.Stmt, warps: int) -> list[str]:
    """The sleep before a statement, if it has one."""
    found = delays.before(place, warps)
    if found is None:
        return []
    chosen, length = found
    comment = f"// delay before {print_stmt(stmt).split()[0]}"
    return [comment, f"if ({chosen:#x}u >> (threadIdx.x / 32) & 1) __nanosleep({length});"]


def poison_lines(kernel: tir.Kernel) -> list[str]:
    """Fills all shared memory, guard bytes included."""
    return [
        "// Poison: what is read before anything has written it shows.",
        *_over(0, kernel.smem, kernel.threads, f"*reinterpret_cast<u32*>(smem + i) = {POISON};"),
        "__syncthreads();",
    ]


def guard_lines(kernel: tir.Kernel, guard: str) -> list[str]:
    """Reports changed guard bytes through the parameter that C++ calls ``guard``."""
    check = f"if (*reinterpret_cast<u32*>(smem + i) != {POISON}) *{guard} = 1.0f;"
    lines = ["// Guard: bytes that nothing owns must not have changed.", "__syncthreads();"]
    for first, last in unowned(kernel):
        lines += _over(first, last, kernel.threads, check)
    return lines


def _over(first: int, last: int, threads: int, what: str) -> list[str]:
    start = f"{first} + threadIdx.x * 4" if first else "threadIdx.x * 4"
    return [f"for (u32 i = {start}; i < {last}; i += {4 * threads}) {what}"]
