"""What a simulation says: the outputs, and one report per distinct fault that it met."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Literal

import numpy as np

from tidegate.ir import text, tir

Kind = Literal[
    "never written",
    "unwritten output",
    "not landed",
    "unordered read",
    "unordered write",
    "undefined register",
    "out of bounds",
    "misaligned",
    "two writers",
    "two CTAs",
    "overwrite",
    "unfenced",
    "register in flight",
    "unfenced register",
    "uninitialised barrier",
    "barrier in use",
    "too many arrivals",
    "unexpected bytes",
    "phase lead",
    "outstanding",
    "barrier mismatch",
    "deadlock",
]

MEANING: dict[Kind, str] = {
    "never written": "reads bytes that nothing has written",
    "unwritten output": "has elements that nothing writes",
    "not landed": "meets a copy that has not landed",
    "unordered read": "reads bytes that another thread has written, with no rendezvous in between",
    "unordered write": "writes bytes that another thread has written, with no rendezvous in between",
    "undefined register": "reads a register that is not written yet",
    "out of bounds": "reaches outside the tensor",
    "misaligned": "accesses an address that is no multiple of the access width",
    "two writers": "writes an element that another CTA has written",
    "two CTAs": "reaches an element that another CTA reaches, and one of them writes",
    "overwrite": "writes bytes that may not have been read yet",
    "unfenced": "reaches bytes by the async proxy after a generic access, with no fence_async in between",
    "register in flight": "uses the accumulator of a wgmma that no wgmma_wait has covered",
    "unfenced register": "uses an accumulator with no wgmma_fence since it was written",
    "uninitialised barrier": "uses an mbarrier that is not initialised, or not known to be",
    "barrier in use": "touches an mbarrier that may still be in use",
    "too many arrivals": "arrives more often than the phase's count",
    "unexpected bytes": "copies bytes that the barrier's phase does not expect yet",
    "phase lead": "takes a phase for another one of the same parity",
    "outstanding": "may still be under way when the kernel ends",
    "barrier mismatch": "arrives at a barrier with other participants than the warps that wait there",
    "deadlock": "waits for what never comes",
}

MAX_REPORTS = 20


@dataclass(frozen=True)
class PoisonReport:
    """One fault, with the first access that showed it.

    ``stmt`` and ``line`` are the access and the author's source line (0: none). ``warp`` and ``thread`` count within
    the CTA (-1: no single one). ``buffer`` names a shared buffer, tensor or register; ``slot`` is its ring slot or
    None. ``bytes`` is the first contiguous range, half open, that the thread touched wrongly: addresses in shared
    memory, or offsets into the tensor. ``writer`` and ``writer_line`` name the access on the other
    side, where there is one: a copy or store, or for 'overwrite' the read. ``detail`` says more in words. An 'unwritten
    output' is no access: ``stmt`` and ``buffer`` name the tensor, ``detail`` the elements.
    """

    kind: Kind
    stmt: str
    line: int
    cta: int
    warp: int = -1
    thread: int = -1
    buffer: str = ""
    slot: int | None = None
    bytes: tuple[int, int] | None = None
    writer: str | None = None
    writer_line: int = 0
    detail: str = ""

    def __str__(self) -> str:
        if self.kind == "unwritten output":
            return f"{self.kind}: {self.detail}"
        place = f" (line {self.line})" if self.line else ""
        who = f", thread {self.thread} of warp {self.warp}" if self.thread >= 0 else ""
        parts = [f"{self.kind}: {self.stmt}{place} {MEANING[self.kind]} [CTA {self.cta}{who}]"]
        if self.buffer:
            slot = f"[{self.slot}]" if self.slot is not None else ""
            span = f", bytes {self.bytes[0]}..{self.bytes[1] - 1}" if self.bytes else ""
            parts.append(f"{self.buffer}{slot}{span}")
        if self.writer:
            place = f" (line {self.writer_line})" if self.writer_line else ""
            relation = {"overwrite": "read by", "unfenced": "accessed by"}.get(self.kind, "written by")
            parts.append(f"{relation} {self.writer}{place}")
        if self.detail:
            parts.append(self.detail)
        return "; ".join(parts)


@dataclass(frozen=True, eq=False)
class Simulation:
    """``outputs``: one new array per output parameter; elements that nothing wrote are NaN. ``reports``: the first
    distinct faults. ``distinct`` counts them all; ``ok`` means there were none."""

    outputs: Mapping[str, np.ndarray]
    reports: tuple[PoisonReport, ...]
    completion: str
    seed: int
    distinct: int = 0

    @property
    def ok(self) -> bool:
        return not self.distinct

    def __str__(self) -> str:
        head = f"simulated with completion={self.completion!r}, seed={self.seed}: "
        if self.ok:
            return head + "no faults"
        lines = [head + f"{self.distinct} distinct faults", *(f"  {r}" for r in self.reports)]
        if self.distinct > len(self.reports):
            lines.append(f"  and {self.distinct - len(self.reports)} more")
        return "\n".join(lines)


class Reports:
    """Collects reports; the same fault of the same two statements counts once."""

    def __init__(self) -> None:
        self.cta = 0
        self._seen: set[object] = set()
        self._found: list[PoisonReport] = []

    def add(
        self,
        kind: Kind,
        stmt: tir.Stmt,
        *,
        thread: int = -1,
        buffer: str = "",
        slot: int | None = None,
        bytes: tuple[int, int] | None = None,
        writer: tir.Stmt | None = None,
        detail: str = "",
        instance: object = None,
    ) -> None:
        key = (kind, id(stmt), buffer, id(writer) if writer else None, instance)
        if key in self._seen:
            return
        self._seen.add(key)
        if len(self._found) >= MAX_REPORTS:
            return
        self._found.append(
            PoisonReport(
                kind=kind,
                stmt=statement(stmt),
                line=stmt.line,
                cta=self.cta,
                warp=thread // 32 if thread >= 0 else -1,
                thread=thread,
                buffer=buffer,
                slot=slot,
                bytes=bytes,
                writer=statement(writer) if writer else None,
                writer_line=writer.line if writer else 0,
                detail=detail,
            )
        )

    def unwritten_output(self, tensor: str, shape: tuple[int, ...], left: np.ndarray) -> None:
        """An output of which no statement wrote the elements ``left``, flat indices in rising order."""
        self._seen.add(("unwritten output", tensor))
        if len(self._found) < MAX_REPORTS:
            detail = unwritten(tensor, shape, left)
            self._found.append(PoisonReport("unwritten output", f"output {tensor}", 0, 0, buffer=tensor, detail=detail))

    @property
    def distinct(self) -> int:
        return len(self._seen)

    def first(self) -> tuple[PoisonReport, ...]:
        return tuple(self._found)


def unwritten(tensor: str, shape: tuple[int, ...], left: np.ndarray) -> str:
    """Which elements are never written, by their bounding box: ``left`` are flat indices."""
    places = np.unravel_index(left, shape)
    ends = [(int(p.min()), int(p.max()) + 1) for p in places]
    box = f"{tensor}[{', '.join(str(a) if b - a == 1 else f'{a}:{b}' for a, b in ends)}]"
    count, total = len(left), prod(shape)
    if count == total:
        return f"no element of {tensor} is ever written"
    every = "" if count == prod(b - a for a, b in ends) else "some of "
    verb = "is" if count == 1 else "are"
    return f"{count} of the {total} elements of {tensor} {verb} never written: {every}{box}"


def first_run(units: np.ndarray, size: int) -> tuple[int, int]:
    """The bytes of the first contiguous run among ``units`` of ``size`` bytes."""
    units = np.unique(units)
    gaps = np.flatnonzero(np.diff(units) > 1)
    last = units[gaps[0]] if len(gaps) else units[-1]
    return int(units[0]) * size, (int(last) + 1) * size


def statement(stmt: tir.Stmt) -> str:
    """One line of TIR without the reason and source line that follow it."""
    line = text.print_stmt(stmt)
    if isinstance(stmt, tir.Sync):
        line = line.split(' "', 1)[0]
    return line.removesuffix(f" line {stmt.line}")
