"""Register pressure of a loop: 32-bit words per thread that its tiles need at one time."""

from __future__ import annotations

from collections.abc import Iterator

from tidegate.ir import legal, tir
from tidegate.ir.dtypes import BOOL


def tiles(instr: tir.Instruction, how: str) -> Iterator[str]:
    """The register tiles that an instruction ``reads`` or ``writes``."""
    for name in getattr(type(instr), how):
        value = getattr(instr, name)
        yield from (v for v in (value if isinstance(value, tuple) else (value,)) if isinstance(v, str))


def peak(program: legal.LegalProgram, loop: legal.Loop) -> int:
    """The most words live between two steps of the loop's body, inner loops included.

    A lower bound on what the compiler needs: addresses, indices and its own temporaries come on top. A tile is live
    while its next use, around the loop, is a read, and at the end of a trip if it is read outside the loop.
    """
    inside = list(legal.steps(loop.body))
    own = {s.id for s in inside}
    outside = {n for s in legal.steps(program.body) if s.id not in own for n in tiles(s.instr, "reads")}
    words = _words(program)
    uses: dict[str, list[tuple[int, bool]]] = {}
    for at, step in enumerate(inside):
        for how in ("reads", "writes"):
            for name in tiles(step.instr, how):
                if name in words:
                    uses.setdefault(name, []).append((at, how == "reads"))

    def live(name: str, point: int) -> bool:
        following = [read for at, read in uses[name] if at > point]
        return following[0] if following else uses[name][0][1] or name in outside

    return max((sum(words[n] for n in uses if live(n, point)) for point in range(len(inside))), default=0)


def _words(program: legal.LegalProgram) -> dict[str, int]:
    """Per tile: masks become predicates, and a broadcast takes what its source does, whose registers it renames."""
    words = {}
    for register in program.registers:
        count = program.layout(register.layout).registers
        words[str(register.name)] = -(-count // 32) if register.dtype == BOOL else register.dtype.words(count)
    for step in legal.steps(program.body):
        if isinstance(step.instr, tir.Spread):
            words[step.instr.dst] = min(words[step.instr.dst], words[step.instr.src])
    return words
