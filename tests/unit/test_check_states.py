"""Which states of a kernel are one: of rings that share bytes, of threads that never meet."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidegate.check import check, wholes
from tidegate.check.explore import explorer
from tidegate.check.machine import Machine
from tidegate.check.state import Fault
from tidegate.check.wholes import faulty
from tidegate.ir import tir
from tidegate.ir.text import parse_kernel, print_kernel


def rings(depths: tuple[int, ...], apart: bool = False, warps: int = 1) -> tir.Kernel:
    """A loop per ring, in a loop over all of them; the rings begin at one byte, or are ``apart``."""
    at = [1024 * sum(depths[:n]) * apart for n in range(len(depths))]
    buffers = [f"buffer t{n} f32 [16, 16] stages {d} at {at[n]} stride 1024" for n, d in enumerate(depths)]
    cursors = [f"cursor c{n} depth {d}" for n, d in enumerate(depths)]
    loop = (
        "for j{0} = 0 .. cdiv(N, 16) {{\n sync_block #before{0}\n"
        "cp_async t{0}[c{0}] <- a[0, 0] layout tile bytes 4\n cp_commit\n cp_wait 0 #wait{0}\n"
        "sync_block #after{0}\n ld_shared v <- t{0}[c{0}].T bytes 4\n advance c{0}\n}}\n"
    )
    lines = [
        f"kernel k target sm_80 warps {warps} smem {sum(depths) * 1024}",
        "dim M\ndim N",
        "param a f32 [16, 16] in align 16",
        f"layout tile [16, 16] reg - lane 0,1 0,2 0,4 0,8 1,0 warp {'2,0 rep 4,1' if warps == 2 else '- rep 8,1'}",
        *buffers,
        *cursors,
        "register v f32 layout tile",
        f"body {{\nfor i = 0 .. M {{\n{''.join(loop.format(n) for n in range(len(depths)))}}}\n}}",
    ]
    return parse_kernel("\n".join(lines))


def kinds(kernel: tir.Kernel, wholes: frozenset[str] = frozenset()) -> int:
    """How many states a proof tells apart."""
    machine = Machine(kernel, wholes=wholes)
    assert list(explorer(machine, {}).every_case()) == []
    return len(machine.automaton.kinds)


def every(kernel: tir.Kernel) -> frozenset[str]:
    return frozenset(b.name for b in kernel.buffers)


def test_rings_that_share_bytes_have_as_many_states_as_slots() -> None:
    depths = (3, 4, 5)
    for some in (depths, (7, 8, 9)):
        assert kinds(rings(some), every(rings(some))) <= sum(some) + len(some) + 1
    assert kinds(rings((2, 3)), every(rings((2, 3)))) < kinds(rings((2, 3))) / 4
    for kernel in (rings(depths), rings((7, 8, 9, 5))):
        verdict = check(kernel)
        assert verdict.safe, verdict.text()
        assert "every trip count" in verdict.scope


@pytest.mark.parametrize("name", ["before0", "before2", "wait1", "after1"])
def test_no_sync_of_rings_that_share_bytes_is_needless(name: str) -> None:
    kernel = rings((3, 4, 5), warps=2)
    assert check(kernel).safe

    def without(body: tuple[tir.Stmt, ...]) -> tuple[tir.Stmt, ...]:
        kept = (s for s in body if not isinstance(s, tir.Sync) or s.id != name)
        return tuple(replace(s, body=without(s.body)) if isinstance(s, tir.For) else s for s in kept)

    broken = without(kernel.body)
    assert broken != kernel.body
    assert check(replace(kernel, body=broken)).status == "unsafe"


SLOTS = """
kernel k target sm_80 warps 1 smem 2048
dim N
param a f32 [16, 16] in align 16
layout tile [16, 16] reg - lane 0,1 0,2 0,4 0,8 1,0 warp - rep 8,1
buffer ring f32 [16, 16] stages 2 at 0 stride 1024
buffer other f32 [16, 16] stages 1 at 1024 stride 1024
cursor r depth 2
register v f32 layout tile
body {
  fill v <- 0.0
  for i = 0 .. N {
    st_shared ring[r] <- v bytes 4
    st_shared other <- v bytes 4
    ld_shared v <- ring[r] bytes 4
    ADVANCE
  }
}
"""


HALF = SLOTS.replace("smem 2048", "smem 2560").replace("at 1024", "at 1536").replace("other <- v", "other@8,0 <- w")
HALF = HALF.replace("register v", "layout low [8, 16] reg - lane 0,1 0,2 0,4 0,8 1,0 warp - rep 4,1\nregister v")
HALF = HALF.replace("layout tile\nbody {", "layout tile\nregister w f32 layout low\nbody {\n  fill w <- 0.0")


def test_a_slot_that_shares_no_bytes_keeps_what_it_holds() -> None:
    """What is not in order when rings conflict as wholes is looked at slot by slot."""
    kernel = parse_kernel(SLOTS.replace("ADVANCE", ""))
    for some in (
        kernel,
        parse_kernel(HALF.replace("ADVANCE", "advance r")),
    ):  # of HALF the shared bytes are not written
        with pytest.raises(Fault, match="uninitialised"):
            list(explorer(Machine(some, wholes=every(some)), {}).every_case())
        assert check(some).safe
    verdict = check(parse_kernel(SLOTS.replace("ADVANCE", "advance r")))
    assert verdict.status == "unsafe"
    assert verdict.findings[0].kind == "overwritten"
    assert "N = 2" in verdict.scope


def test_only_the_rings_that_need_it_are_looked_at_slot_by_slot() -> None:
    """A slot that keeps what it holds, beside rings that share their bytes: these are taken as wholes still."""
    text = print_kernel(rings((2, 3)))
    text = text.replace("smem 5120", "smem 7168").replace("cursor c0", "cursor r depth 2\ncursor c0")
    slots = [line.replace("at 1024", "at 6144").replace("at 0", "at 5120") for line in SLOTS.splitlines()]
    text = text.replace("cursor r", "\n".join([*(s for s in slots if s.startswith("buffer")), "cursor r"]))
    inner = [s for s in slots if "_shared" in s]
    kernel = parse_kernel(text.replace("for j0", "\n".join(["fill v <- 0.0", *inner, "for j0"])))
    assert faulty(explorer(Machine(kernel, wholes=every(kernel)), {})) == {"ring"}
    assert faulty(explorer(Machine(kernel, wholes=frozenset({"t0", "t1"})), {})) == frozenset()
    assert wholes.ordered(Machine(kernel), {})
    assert check(kernel).safe
    assert kinds(kernel, frozenset({"t0", "t1"})) < kinds(kernel) / 4


def test_a_buffer_that_nobody_accesses_joins_no_others() -> None:
    text = print_kernel(rings((2, 3), apart=True))
    link = parse_kernel(text.replace("cursor c0", "buffer link f32 [16, 16] stages 1 at 1536 stride 1024\ncursor c0"))
    assert set(Machine(link).catalogue.parts) == {frozenset({"t0"}), frozenset({"t1"})}
    assert not Machine(link).catalogue.entangled


def test_threads_that_never_meet_do_not_keep_states_apart() -> None:
    """Only warps 0 and 1 touch shared memory, and only they meet: what the others have not seen tells nothing apart."""
    text = (
        SLOTS.replace("warps 1", "warps 8").replace("stages 2 at 0", "stages 5 at 2048").replace("depth 2", "depth 5")
    )
    text = text.replace("smem 2048", "smem 8192").replace("warp - rep 8,1", "warp 2,0 0,0 0,0 rep 4,1")
    text = text.replace("st_shared ring", "bar_sync 1 warps 0,1\n st_shared ring")
    few = parse_kernel(text.replace("ADVANCE", "advance r"))
    all_ = parse_kernel(text.replace("ADVANCE", "advance r").replace("bar_sync 1 warps 0,1", "sync_block"))
    assert check(few).safe
    assert kinds(few) <= kinds(all_) + 1  # before the first generation of the named barrier


def test_slots_that_every_trip_writes_afresh_are_not_told_apart() -> None:
    assert kinds(rings((3, 4, 5), apart=True)) == kinds(rings((7, 8, 9), apart=True))


CARRIED = """
kernel k target sm_80 warps 1 smem 2048
dim M
dim N
layout tile [16, 16] reg - lane 0,1 0,2 0,4 0,8 1,0 warp - rep 8,1
buffer t f32 [16, 16] stages 1 at 0 stride 1024
buffer other f32 [16, 16] stages 1 at OTHER stride 1024
register v f32 layout tile
body {
  fill v <- 0.0
  for j = 0 .. M {
    for i = 0 .. N {
      if FIRST < i {
        ld_shared v <- t bytes 4
      }
      st_shared t <- v bytes 4
      st_shared other <- v bytes 4
    }
  }
}
"""


@pytest.mark.parametrize(
    ("first", "other", "fault"),
    [("0", 1024, ""), ("0 - 1", 1024, "uninitialised"), ("0", 0, "overwritten"), ("0 - j", 1024, "")],
)
def test_what_a_trip_reads_of_the_one_before_is_not_forgotten(first: str, other: int, fault: str) -> None:
    verdict = check(parse_kernel(CARRIED.replace("FIRST", first).replace("OTHER", str(other))))
    assert [f.kind for f in verdict.findings] == [fault] * bool(fault), verdict.text()
    assert verdict.safe is not bool(fault)
