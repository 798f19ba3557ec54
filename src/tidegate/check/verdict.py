"""What the checker says: a verdict with three values, and for a fault the two accesses and a run that shows them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Literal

Status = Literal["safe", "unsafe", "not proved"]


@dataclass(frozen=True)
class Access:
    """One side of a fault: who did what, where and when.

    ``threads`` are thread indices in the CTA (one thread, or those that together witness the fault); ``low`` and
    ``high`` bound the bytes of shared memory, or the elements along the tensor's axes when ``memory`` names a tensor;
    ``iteration`` gives the loop indices; ``line`` is the author's line (0: none); ``text`` is the statement in TIR;
    ``group`` is the role that executes it ("" for all warps).
    """

    action: str
    memory: str
    threads: tuple[int, ...]
    low: int | tuple[int, ...]
    high: int | tuple[int, ...]
    iteration: tuple[tuple[str, int], ...]
    line: int
    text: str
    group: str = ""

    @property
    def warps(self) -> tuple[int, ...]:
        return tuple(sorted({t // 32 for t in self.threads}))

    def __str__(self) -> str:
        who = _span(self) + (f" of {self.group}" if self.group else "")
        if self.low == self.high and isinstance(self.low, int):
            where = self.memory
        elif isinstance(self.low, tuple) and isinstance(self.high, tuple):
            box = ", ".join(f"{a}..{b - 1}" for a, b in zip(self.low, self.high, strict=True))
            where = f"{self.memory}[{box}]"
        else:
            where = f"{self.memory}, bytes {self.low}..{self.high}"
        where = f" {where}" if where else ""
        at = ", ".join(f"{name} = {value}" for name, value in self.iteration)
        line = f", line {self.line}" if self.line else ""
        return f"{who} {self.action}{where}{f' at {at}' if at else ''}{line}: {self.text}"


def _span(access: Access) -> str:
    if not access.threads:
        return "the CTA"
    if len(access.threads) == 1:
        return f"thread {access.threads[0]} (warp {access.threads[0] // 32})"
    return f"threads {min(access.threads)}..{max(access.threads)} (warps {', '.join(map(str, access.warps))})"


@dataclass(frozen=True)
class Finding:
    """One fault. ``kind`` is a short fixed name (see docs/checking.md); ``first`` and ``second`` are the accesses in
    program order; ``remedy`` says what would have ordered them."""

    kind: str
    message: str
    first: Access | None = None
    second: Access | None = None
    remedy: str = ""

    def __str__(self) -> str:
        lines = [f"{self.kind}: {self.message}"]
        lines += [f"  first:  {self.first}"] if self.first else []
        lines += [f"  second: {self.second}"] if self.second else []
        lines += [f"  needed: {self.remedy}"] if self.remedy else []
        return "\n".join(lines)


@dataclass(frozen=True)
class Step:
    """One executed statement of the witness, by ``group`` ("" for all warps); ``count`` > 1 stands for steps that are
    left out."""

    text: str
    iteration: tuple[tuple[str, int], ...]
    line: int = 0
    note: str = ""
    count: int = 1
    group: str = ""

    def __str__(self) -> str:
        if self.count > 1:
            return f"... {self.count} steps ..."
        at = ", ".join(f"{name}={value}" for name, value in self.iteration)
        who = f"{self.group}: " if self.group else ""
        return f"{who}{f'[{at}] ' if at else ''}{self.text}{f'    <- {self.note}' if self.note else ''}"


@dataclass(frozen=True)
class Run:
    """What a concrete run was given: sizes, the place of its CTA, the integers that it read from inputs (tensor, place,
    value), and its integer arguments."""

    sizes: tuple[tuple[str, int], ...]
    cta: tuple[tuple[str, int], ...] = ()
    elements: tuple[tuple[str, tuple[int, ...], int], ...] = ()
    arguments: tuple[tuple[str, int], ...] = ()

    def text(self, fixed: Collection[str]) -> str:
        """In words, without the sizes that are ``fixed``."""
        parts = [f"{name} = {value}" for name, value in self.sizes if name not in fixed]
        parts += [f"CTA {name} = {value}" for name, value in self.cta]
        parts += [f"{name} = {value}" for name, value in self.arguments]
        parts += [f"{tensor}[{', '.join(map(str, place))}] = {value}" for tensor, place, value in self.elements]
        return f"shown by a run with {', '.join(parts)}" if parts else "shown by a run"


@dataclass(frozen=True)
class Verdict:
    """The outcome of a check.

    ``scope`` says for which sizes and trip counts it holds. ``reason`` is given for 'not proved' only. ``timeline`` is
    the run that shows the first finding, and ``run`` what the checker chose for it. ``exempted``: pairs of
    statements that lack a fence which the caller trusts not to be needed.
    """

    kernel: str
    status: Status
    scope: str
    findings: tuple[Finding, ...] = ()
    timeline: tuple[Step, ...] = ()
    reason: str = ""
    exempted: tuple[str, ...] = ()
    run: Run | None = None

    @property
    def safe(self) -> bool:
        return self.status == "safe"

    def text(self) -> str:
        """The verdict in words, several lines."""
        lines = [f"{self.kernel}: {self.status.upper()} ({self.scope})"]
        if self.reason:
            lines.append(f"reason: {self.reason}")
        lines.extend(f"trusted without a fence: {pair}" for pair in self.exempted)
        lines.extend(map(str, self.findings))
        if self.timeline:
            lines.append("a run that shows it:")
            lines.extend(f"  {step}" for step in self.timeline)
        return "\n".join(lines)

    def to_json(self) -> dict[str, object]:
        """Plain dicts, lists, strings and numbers, with every field of the verdict."""
        return asdict(self)

    def __str__(self) -> str:
        return self.text()
