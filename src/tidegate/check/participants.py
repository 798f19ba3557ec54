"""Who must execute an instruction together: what can be judged without running the kernel.

Barriers that other warps never reach, wgmma by less than a warpgroup, and the ledger of registers.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidegate.check.machine import WARPGROUP
from tidegate.check.sites import Group, groups, placed
from tidegate.check.verdict import Access, Finding, Step
from tidegate.ir import tir
from tidegate.ir.text import print_stmt

REGISTER_FILE = 65_536
"""32-bit registers of a multiprocessor (CUDA C++ Programming Guide, "Compute Capabilities")."""

LANES = 32


def misplaced(kernel: tir.Kernel) -> tuple[Finding, tuple[Step, ...]] | None:
    """The first instruction that the wrong threads execute, and the way to it."""
    for stmt, group in placed(kernel):
        for message, remedy in (*_barrier(kernel, stmt, group), *_warpgroup(stmt, group)):
            finding = Finding("divergent barrier", message, None, _access(stmt, group), remedy)
            way = tuple(Step(print_stmt(s), (), s.line, group=group.name) for s in _path(kernel.body, stmt))
            return finding, (*way[:-1], Step(print_stmt(stmt), (), stmt.line, "fault", group=group.name))
    for message, remedy, stmt, group in _registers(kernel):
        return Finding("registers", message, None, _access(stmt, group), remedy), ()
    return None


def _access(stmt: tir.Stmt, group: Group) -> Access:
    threads = (LANES * group.first, LANES * (group.first + group.count) - 1)
    return Access("executes", "", threads, 0, 0, (), stmt.line, print_stmt(stmt), group.name)


def _path(body: tuple[tir.Stmt, ...], wanted: tir.Stmt) -> tuple[tir.Stmt, ...]:
    """The blocks around a statement, outermost first, and the statement."""
    for stmt in body:
        if stmt is wanted:
            return (stmt,)
        if isinstance(stmt, (tir.For, tir.If, tir.InRole)) and (inside := _path(stmt.body, wanted)):
            return (stmt, *inside)
    return ()


def _barrier(kernel: tir.Kernel, stmt: tir.Stmt, group: Group) -> Iterator[tuple[str, str]]:
    if not group.name or not isinstance(stmt, tir.Instruction):
        return
    inside = range(group.first, group.first + group.count)
    others = ", ".join(str(r.name) for r in kernel.roles if r.name != group.name) or "the other warps"
    ranks = ",".join(map(str, inside))
    if stmt.by in (tir.Participants.CTA, tir.Participants.CLUSTER):
        yield (
            f"{stmt.by.value} must come to this barrier, and only {group} reach it: {others} never do, so it waits for"
            " ever",
            f"bar_sync with a number of its own among warps {ranks}, or the barrier outside the role",
        )
    if isinstance(stmt, tir.BarArrive):
        same = {s.count for s in tir.walk(kernel.body) if isinstance(s, tir.BarArrive) and s.barrier == stmt.barrier}
        if len(same) > 1:
            counts = " and ".join(map(str, sorted(same)))
            yield f"barrier {stmt.barrier} is said to have {counts} threads", "one count for all uses of a barrier"
    if isinstance(stmt, (tir.BarSync, tir.BarArrive)) and (out := [w for w in stmt.warps if w not in inside]):
        yield (
            f"warps {', '.join(map(str, out))} are named and do not belong to {group}, so they never come",
            f"warps {ranks} only",
        )


def _warpgroup(stmt: tir.Stmt, group: Group) -> Iterator[tuple[str, str]]:
    needs = isinstance(stmt, tir.Instruction) and stmt.by == tir.Participants.WARPGROUP
    if needs and (group.first % WARPGROUP or group.count % WARPGROUP):
        yield (
            f"whole warpgroups must execute it, and {group} are none",
            "a role of four warps, or a multiple, that begins at a multiple of four",
        )


def _registers(kernel: tir.Kernel) -> Iterator[tuple[str, str, tir.Stmt, Group]]:
    """The registers of all warpgroups together fit the register file, and change where a role begins."""
    table = groups(kernel)
    found: dict[str, tir.SetMaxRegisters] = {}
    last: tuple[tir.SetMaxRegisters, Group] | None = None
    for stmt, group in placed(kernel):
        if isinstance(stmt, tir.SetMaxRegisters):
            block = next((s for s in kernel.body if isinstance(s, tir.InRole) and stmt in s.body), None)
            if block is None or group.name in found:
                why = "setmaxnreg stands once, at the beginning of a role block"
                yield why, "one setmaxnreg per role, outside loops and conditions", stmt, group
            found[group.name] = stmt
            last = (stmt, group)
    if last is None:
        return
    share = min(REGISTER_FILE // (LANES * kernel.warps) // 8 * 8, 255)
    declared = {r.name: r.registers or share for r in kernel.roles}
    each = {n: found[n].registers if n in found else declared[n] for n in declared}
    in_roles = sum(r.count for r in kernel.roles)
    total = sum(each[r.name] * r.count for r in kernel.roles) + share * (kernel.warps - in_roles)
    if total * LANES > REGISTER_FILE:
        parts = " + ".join(f"{table[n].count * LANES} * {each[n]} ({n})" for n in each)
        message = (
            f"the roles ask for {parts} = {total * LANES} registers of {REGISTER_FILE}: an increase waits for ever"
        )
        yield message, "smaller numbers: the sum over all threads is at most the register file", *last
