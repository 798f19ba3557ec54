"""The instructions of TIR that only order: commits, waits, barriers and fences."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidegate.ir.instructions import Instruction
from tidegate.ir.operands import Completion, Name, Participants, Proxy


@dataclass(frozen=True)
class Sync(Instruction, abstract=True):
    """Base of everything that only orders. ``id`` names the sync in the plan, ``why`` says what it protects."""

    id: str = field(default="", kw_only=True)
    why: str = field(default="", kw_only=True)


_SYNC_THREAD = {
    "reads": (),
    "writes": (),
    "proxy": Proxy.NONE,
    "completes": Completion.RETURN,
    "by": Participants.THREAD,
}
_SYNC_WARP = {**_SYNC_THREAD, "by": Participants.WARP}
_SYNC_GROUP = {**_SYNC_THREAD, "by": Participants.WARPGROUP}
_SYNC_ROLE = {**_SYNC_THREAD, "by": Participants.ROLE}
_SYNC_ONE = {**_SYNC_THREAD, "by": Participants.ELECTED}
_SYNC_CTA = {**_SYNC_THREAD, "by": Participants.CTA}
_SYNC_CLUSTER = {**_SYNC_THREAD, "by": Participants.CLUSTER}


@dataclass(frozen=True)
class CpCommit(Sync, syntax="cp_commit", **_SYNC_THREAD):
    """Closes each thread's cp.async group (an empty group counts)."""


@dataclass(frozen=True)
class CpWait(Sync, syntax="cp_wait {n}", **_SYNC_THREAD):
    """Each thread waits until at most its ``n`` newest groups are incomplete; completion is known to that thread."""

    n: int


@dataclass(frozen=True)
class CpArrive(Sync, syntax="cp_arrive {barrier}[{cursor}]", **_SYNC_THREAD):
    """cp.async.mbarrier.arrive.noinc: arrives when the thread's earlier copies have landed."""

    barrier: Name
    cursor: Name


@dataclass(frozen=True)
class SyncWarp(Sync, syntax="sync_warp", **_SYNC_WARP):
    """Rendezvous and memory order among the lanes of each warp."""


@dataclass(frozen=True)
class BarSync(Sync, syntax="bar_sync {barrier} warps {warps}", **_SYNC_ROLE):
    """Named barrier 1..15 among exactly ``warps``; other warps pass by."""

    barrier: int
    warps: tuple[int, ...]


@dataclass(frozen=True)
class BarArrive(Sync, syntax="bar_arrive {barrier} warps {warps} count {count}", **_SYNC_ROLE):
    """Arrives without blocking; ``count`` threads arrive or sync in all."""

    barrier: int
    warps: tuple[int, ...]
    count: int


@dataclass(frozen=True)
class SyncBlock(Sync, syntax="sync_block", **_SYNC_CTA):
    """Rendezvous and memory order among all threads of the CTA."""


@dataclass(frozen=True)
class ClusterArrive(Sync, syntax="cluster_arrive", **_SYNC_CLUSTER):
    """Arrives at the cluster's barrier without blocking (release)."""


@dataclass(frozen=True)
class ClusterWait(Sync, syntax="cluster_wait", **_SYNC_CLUSTER):
    """Waits until all threads of the cluster have arrived (acquire)."""


@dataclass(frozen=True)
class FenceAsync(Sync, syntax="fence_async {space}", **_SYNC_THREAD):
    """fence.proxy.async for ``space`` shared or global: generic accesses before, async ones after."""

    space: Name


@dataclass(frozen=True)
class FenceBarrierInit(Sync, syntax="fence_barrier_init", **_SYNC_ONE):
    """fence.mbarrier_init: initialised mbarriers become visible to the cluster and the async proxy."""


@dataclass(frozen=True)
class BarrierInit(Sync, syntax="barrier_init {barrier}", **_SYNC_ONE):
    """Initialises every slot with its declared count."""

    barrier: Name


@dataclass(frozen=True)
class BarrierArrive(Sync, syntax="arrive {barrier}[{cursor}] by {per}", **_SYNC_THREAD):
    """Arrives on the barrier's slot (release): once by each thread, by lane 0 of each warp, or by one elected thread of
    the role, as ``per`` (thread, warp, role) says. It releases what the arriving thread knows, no more."""

    barrier: Name
    cursor: Name
    per: Name


@dataclass(frozen=True)
class BarrierExpect(Sync, syntax="expect {barrier}[{cursor}] bytes {bytes}", **_SYNC_ONE):
    """arrive.expect_tx: adds ``bytes`` to the phase, then arrives once."""

    barrier: Name
    cursor: Name
    bytes: int


@dataclass(frozen=True)
class BarrierWait(Sync, syntax="wait {barrier}[{cursor}] flip {flip}", **_SYNC_THREAD):
    """Waits for the phase of the cursor's parity xor ``flip`` (1 for a producer on fresh empty slots)."""

    barrier: Name
    cursor: Name
    flip: int


@dataclass(frozen=True)
class BarrierInvalidate(Sync, syntax="barrier_invalidate {barrier}", **_SYNC_ONE):
    """Ends the life of every slot; its bytes may be used for other things afterwards."""

    barrier: Name


@dataclass(frozen=True)
class BulkCommit(Sync, syntax="bulk_commit", **_SYNC_ONE):
    """Closes the thread's group of bulk copies."""


@dataclass(frozen=True)
class BulkWait(Sync, syntax="bulk_wait {n} {what}", **_SYNC_ONE):
    """``what`` is read (sources may be reused) or done (writes performed as well)."""

    n: int
    what: Name


@dataclass(frozen=True)
class WgmmaFence(Sync, syntax="wgmma_fence", **_SYNC_GROUP):
    """Orders register and shared accesses before wgmma against those of wgmma."""


@dataclass(frozen=True)
class WgmmaCommit(Sync, syntax="wgmma_commit", **_SYNC_GROUP):
    """Closes the warpgroup's group of wgmma."""


@dataclass(frozen=True)
class WgmmaWait(Sync, syntax="wgmma_wait {n}", **_SYNC_GROUP):
    """Waits until at most the ``n`` newest groups are incomplete."""

    n: int


@dataclass(frozen=True)
class SetMaxRegisters(Sync, syntax="setmaxnreg {registers}", **_SYNC_GROUP):
    """Changes the number of registers per thread of the warpgroup."""

    registers: int
