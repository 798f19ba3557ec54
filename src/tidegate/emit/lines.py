"""From a line of the emitted text back to the statement that it belongs to."""

from __future__ import annotations

from collections.abc import Mapping

from tidegate.ir import tir
from tidegate.ir.text import print_stmt


def line_table(kernel: tir.Kernel, text: str) -> Mapping[int, tir.Instruction]:
    """Instruction per line of :func:`tidegate.emit.emit`'s text for ``kernel``, lines counting from 1.

    Every instruction begins with a comment that is its TIR, in the order of the TIR, and reaches to the next one. Lines
    of the header, the declarations and before the first instruction are not in the table.
    """
    pending = [s for s in tir.walk(kernel.body) if isinstance(s, tir.Instruction)]
    heads = [f"// {print_stmt(s)}" for s in pending]
    table: dict[int, tir.Instruction] = {}
    at = -1
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if at + 1 < len(heads) and stripped == heads[at + 1]:
            at += 1
        if at >= 0 and stripped.strip("}"):
            table[number] = pending[at]
    return table
