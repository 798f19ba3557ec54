"""Broken variants of a kernel, one fault each, to test that the checker (or a simulator) notices it.

OPERATORS is a table of numbered operators: each yields (what was done, kernel) for every place where it applies. A
mutant may be as good as the original where the original does more than it must; whoever uses them says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations

from tidegate.check import rewrite as rw
from tidegate.check.rewrite import Body, Path
from tidegate.ir import tir
from tidegate.ir.expr import Bin, Expr, Int, Sym, add

Mutants = Iterator[tuple[str, tir.Kernel]]

GUARDED = (tir.CpAsync, tir.BarrierArrive, tir.BarrierExpect, tir.TmaLoad, tir.CpArrive)


ORDERS = (
    tir.CpWait, tir.BulkWait, tir.WgmmaWait, tir.BarrierWait, tir.SyncBlock, tir.BarSync, tir.SyncWarp, tir.FenceAsync,
    tir.WgmmaFence,
)  # fmt: skip
"""What an access may rely on that stands right before it."""


@dataclass(frozen=True)
class Operator:
    number: int
    name: str
    apply: Callable[[tir.Kernel], Mutants]


def mutants(kernel: tir.Kernel, numbers: tuple[int, ...] = ()) -> Mutants:
    """(what was done, kernel) for every operator (or those of ``numbers``) and place."""
    for operator in OPERATORS:
        if not numbers or operator.number in numbers:
            yield from operator.apply(kernel)


def delete_sync(kernel: tir.Kernel) -> Mutants:
    for path, stmt in rw.places(kernel.body):
        if isinstance(stmt, tir.Sync) and not isinstance(stmt, tir.SetMaxRegisters):
            yield f"delete {rw.name(stmt, path)}", rw.put(kernel, path)


def narrow_barrier(kernel: tir.Kernel) -> Mutants:
    for path, stmt in rw.places(kernel.body):
        what = rw.name(stmt, path)
        if isinstance(stmt, tir.SyncBlock) and kernel.warps > 1:
            yield f"lanes instead of warps in {what}", rw.put(kernel, path, _lanes(stmt))
        if isinstance(stmt, tir.BarSync) and len(stmt.warps) > 1:
            same = [p for p, s in rw.places(kernel.body) if isinstance(s, tir.BarSync) and s.barrier == stmt.barrier]
            if len(same) > 1 or any(isinstance(s, tir.BarArrive) for s in tir.walk(kernel.body)):
                yield f"lanes instead of warps in {what}", rw.put(kernel, path, _lanes(stmt))
                continue
            for w in stmt.warps:
                some = replace(stmt, warps=tuple(x for x in stmt.warps if x != w))
                yield f"without warp {w} in {what}", rw.put(kernel, path, some)


def _lanes(stmt: tir.Sync) -> tir.SyncWarp:
    return tir.SyncWarp(id=stmt.id, why=stmt.why, line=stmt.line)


def move_barrier(kernel: tir.Kernel) -> Mutants:
    """A rendezvous that stands in a loop or condition is moved behind it."""
    for path, stmt in rw.places(kernel.body):
        inside = rw.at(kernel.body, path[:-1]) if len(path) > 1 else None
        if isinstance(stmt, (tir.SyncBlock, tir.BarSync, tir.SyncWarp)) and isinstance(inside, (tir.For, tir.If)):
            without = rw.put(kernel, path)
            yield f"move {rw.name(stmt, path)} out of its block", rw.insert_after(without, path[:-1], stmt)


def wait_less(kernel: tir.Kernel) -> Mutants:
    for path, stmt in rw.places(kernel.body):
        if isinstance(stmt, (tir.CpWait, tir.BulkWait, tir.WgmmaWait)):
            yield f"wait for one group less in {rw.name(stmt, path)}", rw.put(kernel, path, replace(stmt, n=stmt.n + 1))


def swap_commit_and_wait(kernel: tir.Kernel) -> Mutants:
    """A commit and the wait that follows it in one block change places."""
    pairs = (
        (tir.CpCommit, tir.CpWait), (tir.BulkCommit, tir.BulkWait), (tir.WgmmaCommit, tir.WgmmaWait),
    )  # fmt: skip
    found = dict(rw.places(kernel.body))
    for path, stmt in found.items():
        wait = next((w for commit, w in pairs if isinstance(stmt, commit)), None)
        later = [p for p, s in found.items() if wait and isinstance(s, wait) and p[:-1] == path[:-1] and p > path]
        if later:
            yield (
                f"swap {rw.name(stmt, path)} and {rw.name(found[later[0]], later[0])}",
                rw.put(rw.put(kernel, path, found[later[0]]), later[0], stmt),
            )


def wait_by_others(kernel: tir.Kernel) -> Mutants:
    """The wait for groups of copies is executed by another role than the one that issued them."""
    for path, stmt in rw.places(kernel.body):
        block = rw.at(kernel.body, path[:1])
        if not isinstance(stmt, (tir.CpWait, tir.BulkWait, tir.WgmmaWait)) or not isinstance(block, tir.InRole):
            continue
        for number, other in enumerate(kernel.body):
            if isinstance(other, tir.InRole) and other.role != block.role:
                moved = rw.insert_after(kernel, (number, len(other.body) - 1), stmt)
                yield f"{rw.name(stmt, path)} by {other.role}", rw.put(moved, path)


def fewer_stages(kernel: tir.Kernel) -> Mutants:
    """A ring has one slot less. Where its cursors count phases too, all its slots become one and the phases stay."""
    for buffer in kernel.buffers:
        if buffer.stages < 2:
            continue
        depth = buffer.stages - 1
        cursors = {s.cursor for stmt in tir.walk(kernel.body) for s in rw.slots(stmt) if s.buffer == buffer.name}
        used = {getattr(s, "cursor", None) for s in tir.walk(kernel.body) if hasattr(s, "barrier")}
        if cursors & used:  # the cursors count phases too: the slots themselves move together
            yield f"{depth} stages for {buffer.name}", rw.one_slot(kernel, buffer)
        else:
            yield f"{depth} stages for {buffer.name}", rw.shorter(kernel, buffer, cursors)


def exchange_parity(kernel: tir.Kernel) -> Mutants:
    """A wait asks for the other parity."""
    for path, stmt in rw.places(kernel.body):
        if isinstance(stmt, tir.BarrierWait):
            yield f"other parity in {rw.name(stmt, path)}", rw.put(kernel, path, replace(stmt, flip=1 - stmt.flip))


def restart_per_tile(kernel: tir.Kernel) -> Mutants:
    """After an inner loop, its cursors count on to a multiple of two turns, as if they began anew with each tile."""
    for path, stmt in rw.places(kernel.body):
        outer = rw.at(kernel.body, path[:-1]) if len(path) > 1 else None
        if not isinstance(stmt, tir.For) or not isinstance(outer, tir.For):
            continue
        depths = {c.name: c.depth for c in kernel.cursors}
        for cursor in dict.fromkeys(s.cursor for s in tir.walk(stmt.body) if isinstance(s, tir.Advance)):
            turns = 2 * depths[cursor]
            trips = Bin("-", stmt.stop, stmt.start) if stmt.start != Int(0) else stmt.stop
            rest: Expr = Bin("%", Bin("-", Int(turns), Bin("%", trips, Int(turns))), Int(turns))
            again = tir.For(tir.Name("restart"), Int(0), rest, (tir.Advance(cursor),))
            yield f"restart {cursor} after {rw.name(stmt, path)}", rw.insert_after(kernel, path, again)


def omit_advance(kernel: tir.Kernel) -> Mutants:
    for path, stmt in rw.places(kernel.body):
        if isinstance(stmt, tir.Advance):
            yield f"delete {rw.name(stmt, path)}", rw.put(kernel, path)


def wrong_counts(kernel: tir.Kernel) -> Mutants:
    for number, barrier in enumerate(kernel.barriers):
        for count in (barrier.count - 1, barrier.count + 1):
            if count:
                changed = (*kernel.barriers[:number], replace(barrier, count=count), *kernel.barriers[number + 1 :])
                yield f"count {count} for {barrier.name}", replace(kernel, barriers=changed)
    for path, stmt in rw.places(kernel.body):
        if isinstance(stmt, tir.BarrierExpect):
            for size in (stmt.bytes // 2, stmt.bytes * 2):
                yield f"{size} bytes in {rw.name(stmt, path)}", rw.put(kernel, path, replace(stmt, bytes=size))
        if isinstance(stmt, tir.BarArrive) and stmt.count + 32 <= kernel.threads:
            more = replace(stmt, count=stmt.count + 32)
            yield f"32 threads more in {rw.name(stmt, path)}", rw.put(kernel, path, more)


def elected_alone(kernel: tir.Kernel) -> Mutants:
    """An elected arrival, commit or store loses the rendezvous of its group before it."""
    for path, stmt in rw.places(kernel.body):
        elected = isinstance(stmt, (tir.TmaStore, tir.BarrierExpect)) or (
            isinstance(stmt, tir.BarrierArrive) and stmt.per != "thread"
        )
        before = (*path[:-1], path[-1] - 1)
        if elected and path[-1] and isinstance(rw.at(kernel.body, before), (tir.BarSync, tir.SyncWarp)):
            yield f"no rendezvous before {rw.name(stmt, path)}", rw.put(kernel, before)


def early_release(kernel: tir.Kernel) -> Mutants:
    """A release moves in front of the wait for the reads, or of the read itself."""
    kinds = (tir.WgmmaWait, tir.BulkWait, tir.LdShared, tir.LdMatrix)
    for path, stmt in rw.places(kernel.body):
        if not isinstance(stmt, (tir.BarrierArrive, tir.BarArrive)):
            continue
        for n in range(path[-1] - 1, -1, -1):
            before = (*path[:-1], n)
            if isinstance(rw.at(kernel.body, before), kinds):
                moved = rw.insert_before(rw.put(kernel, path), before, stmt)
                yield f"{rw.name(stmt, path)} before {rw.name(rw.at(kernel.body, before), before)}", moved
                break


def wait_after_barrier(kernel: tir.Kernel) -> Mutants:
    """A wait and the rendezvous right after it change places."""
    waits = (tir.CpWait, tir.BulkWait, tir.WgmmaWait, tir.BarrierWait)
    for path, stmt in rw.places(kernel.body):
        after = (*path[:-1], path[-1] + 1)
        other = rw.at(kernel.body, after)
        if isinstance(stmt, waits) and isinstance(other, (tir.SyncBlock, tir.BarSync, tir.SyncWarp)):
            yield f"{rw.name(stmt, path)} after the rendezvous", rw.put(rw.put(kernel, path, other), after, stmt)


def misplace_fence(kernel: tir.Kernel) -> Mutants:
    """A fence is deleted, moved behind the rendezvous, or to the end of its block."""
    barriers = (tir.SyncBlock, tir.BarSync, tir.SyncWarp, tir.BarrierArrive, tir.BarArrive)
    for path, stmt in rw.places(kernel.body):
        if not isinstance(stmt, (tir.FenceAsync, tir.FenceBarrierInit, tir.WgmmaFence)):
            continue
        yield f"drop {rw.name(stmt, path)}", rw.put(kernel, path)
        after = (*path[:-1], path[-1] + 1)
        other = rw.at(kernel.body, after)
        if isinstance(other, barriers):
            yield f"{rw.name(stmt, path)} after the rendezvous", rw.put(rw.put(kernel, path, other), after, stmt)
        if other is not None:
            end = (*path[:-1], rw.size(kernel.body, path[:-1]) - 1)
            yield f"{rw.name(stmt, path)} at the end of its block", rw.put(rw.insert_after(kernel, end, stmt), path)


def one_slot_again(kernel: tir.Kernel) -> Mutants:
    """A single-slot barrier, or a rendezvous used once per iteration, is used back to back."""
    for path, stmt in rw.places(kernel.body):
        if isinstance(stmt, (tir.BarrierArrive, tir.BarArrive, tir.CpArrive)):
            yield f"twice {rw.name(stmt, path)}", rw.put(kernel, path, stmt, stmt)


def merge_ids(kernel: tir.Kernel) -> Mutants:
    """Two named barriers become one."""
    body = tir.walk(kernel.body)
    ids = sorted({s.barrier for s in body if isinstance(s, (tir.BarSync, tir.BarArrive))})
    for one, two in combinations(ids, 2):

        def edit(stmt: tir.Stmt, one: int = one, two: int = two) -> Body:
            if isinstance(stmt, (tir.BarSync, tir.BarArrive)) and stmt.barrier == two:
                return (replace(stmt, barrier=one),)
            return (stmt,)

        yield f"barrier {two} is {one}", replace(kernel, body=rw.mapped(kernel.body, edit))


def block_in_role(kernel: tir.Kernel) -> Mutants:
    for path, stmt in rw.places(kernel.body):
        if isinstance(stmt, tir.BarSync) and isinstance(rw.at(kernel.body, path[:1]), tir.InRole):
            block = tir.SyncBlock(id=stmt.id, why=stmt.why, line=stmt.line)
            yield f"the whole CTA in {rw.name(stmt, path)}", rw.put(kernel, path, block)


def share_bytes(kernel: tir.Kernel) -> Mutants:
    """A buffer is moved onto another one, or onto an mbarrier."""
    for one in kernel.buffers:
        for two in kernel.buffers:
            if two.offset >= one.end:
                yield f"{two.name} at the bytes of {one.name}", rw.at_offset(kernel, two, one.offset)
        for barrier in kernel.barriers:
            end = barrier.offset + 8 * barrier.stages
            if end <= one.offset or barrier.offset >= one.end:
                moved = tuple(replace(b, offset=one.offset) if b is barrier else b for b in kernel.barriers)
                yield f"{barrier.name} at the bytes of {one.name}", replace(kernel, barriers=moved)


def end_at_issue(kernel: tir.Kernel) -> Mutants:
    """An asynchronous operation is not waited for: every wait of its kind in one block is deleted."""
    kinds = ((tir.CpAsync, tir.CpWait), (tir.TmaStore, tir.BulkWait), (tir.Wgmma, tir.WgmmaWait))
    for issue, wait in kinds:
        if any(isinstance(s, issue) for s in tir.walk(kernel.body)):
            changed = rw.without(kernel.body, wait)
            if changed != kernel.body:
                yield f"no {wait.__name__} at all", replace(kernel, body=changed)


def hoist_load(kernel: tir.Kernel) -> Mutants:
    """A read of shared memory moves in front of the wait or rendezvous before it."""
    for path, stmt in rw.places(kernel.body):
        if not isinstance(stmt, (tir.LdShared, tir.LdMatrix, tir.Wgmma, tir.TmaStore)):
            continue
        before: Path = (*path[:-1], path[-1] - 1)
        if path[-1] and isinstance(rw.at(kernel.body, before), ORDERS):
            previous = rw.at(kernel.body, before)
            assert previous is not None
            yield (
                f"{rw.name(stmt, path)} before {rw.name(previous, before)}",
                rw.put(rw.put(kernel, path, previous), before, stmt),
            )


def skip_arrival(kernel: tir.Kernel) -> Mutants:
    """Guards are dropped or stop one iteration early, or an arrival of a producer gets one of its own."""
    for path, stmt in rw.places(kernel.body):
        if isinstance(stmt, tir.If) and any(isinstance(s, GUARDED) for s in tir.walk(stmt.body)):
            yield f"always {rw.name(stmt, path)}", rw.put(kernel, path, *stmt.body)
            if isinstance(stmt.condition, Bin) and stmt.condition.op == "<":
                bent = Bin("<", add(stmt.condition.a, 1), stmt.condition.b)
                yield (
                    f"one iteration less in {rw.name(stmt, path)}",
                    rw.put(kernel, path, replace(stmt, condition=bent)),
                )
        loop = rw.at(kernel.body, path[:-1]) if len(path) > 1 else None
        if isinstance(stmt, (tir.BarrierArrive, tir.BarrierExpect, tir.CpArrive)) and isinstance(loop, tir.For):
            guard = tir.If(Bin("<", loop.start, Sym(loop.index)), (stmt,))
            yield f"not in the first iteration: {rw.name(stmt, path)}", rw.put(kernel, path, guard)


OPERATORS: tuple[Operator, ...] = (
    Operator(1, "delete a sync", delete_sync),
    Operator(2, "narrow a barrier", narrow_barrier),
    Operator(3, "move a barrier out of its block", move_barrier),
    Operator(4, "wait for one group less", wait_less),
    Operator(5, "swap commit and wait", swap_commit_and_wait),
    Operator(6, "wait by others than the issuer", wait_by_others),
    Operator(7, "one stage less", fewer_stages),
    Operator(8, "exchange parities", exchange_parity),
    Operator(9, "restart slot and phase per tile", restart_per_tile),
    Operator(10, "omit an advance", omit_advance),
    Operator(11, "wrong count or bytes", wrong_counts),
    Operator(12, "elected arrival without a rendezvous", elected_alone),
    Operator(13, "release before the read completes", early_release),
    Operator(14, "wait after the barrier", wait_after_barrier),
    Operator(15, "drop or misplace a fence", misplace_fence),
    Operator(16, "one slot back to back", one_slot_again),
    Operator(17, "merge named barriers", merge_ids),
    Operator(18, "block barrier in a role", block_in_role),
    Operator(19, "share bytes", share_bytes),
    Operator(20, "end a life at issue", end_at_issue),
    Operator(21, "hoist a load", hoist_load),
    Operator(22, "skip an arrival under a guard", skip_arrival),
)
"""The mutations that a checker of asynchronous kernels must catch, by number."""
