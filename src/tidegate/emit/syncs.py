"""Syncs and cursors: each of a kernel's waits and barriers is one visible line, with its reason as the comment."""

from __future__ import annotations

from tidegate.emit.context import Context, guarded
from tidegate.ir import tir


def emit_cp_commit(cx: Context, s: tir.CpCommit) -> list[str]:
    return ["cp_async_commit();"]


def emit_cp_wait(cx: Context, s: tir.CpWait) -> list[str]:
    return [f"cp_async_wait<{s.n}>();"]


def emit_sync_warp(cx: Context, s: tir.SyncWarp) -> list[str]:
    return ["__syncwarp();"]


def emit_sync_block(cx: Context, s: tir.SyncBlock) -> list[str]:
    return ["__syncthreads();"]


def emit_bar_sync(cx: Context, s: tir.BarSync) -> list[str]:
    warps = sorted(set(s.warps))
    call = [f"bar_sync({s.barrier}, {32 * len(warps)});"]
    return call if warps == list(range(cx.kernel.warps)) else guarded(_among(warps, cx.kernel.warps), call)


def _among(warps: list[int], total: int) -> str:
    """Condition that the thread's warp is one of ``warps``."""
    first, last = warps[0], warps[-1]
    if len(warps) == 1:
        return f"warp == {first}"
    if warps == list(range(first, last + 1)):
        terms = [f"warp >= {first}"] * (first > 0) + [f"warp <= {last}"] * (last < total - 1)
        return " && ".join(terms)
    return f"{sum(1 << w for w in warps):#x} >> warp & 1"


def emit_advance(cx: Context, s: tir.Advance) -> list[str]:
    lines = []
    for buffer in cx.rings[s.cursor]:
        offset, stride = cx.offset_name(s.cursor, buffer), cx.name("stride", f"{buffer}_stride")
        last = next(c.depth for c in cx.kernel.cursors if c.name == s.cursor) - 1
        lines.append(f"{offset} = {offset} == {last} * {stride} ? 0 : {offset} + {stride};")
    return lines
