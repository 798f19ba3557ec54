"""From a line of the emitted text, or from what a tool says of it, back to the statement that it belongs to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from tidegate.emit.header import Part, parts
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


_CALL = re.compile(r"\b(\w+)(?=[(<])")
_TRACED = re.compile(r"_at_line_(\d+)$")


def traced(text: str) -> str:
    """The same program, in which every call of a wrapper of the header names its line: ``st_shared_f32_at_line_57``.

    Tools report the innermost function that an instruction was inlined from, which is the wrapper, and not its caller.
    So each line of the kernel gets wrappers of its own; the kernel's lines keep their numbers.
    """
    head, entry, body = text.partition('extern "C" __global__')
    first = head.count("\n") + 1
    copies: list[str] = []
    lines = []
    for number, line in enumerate((entry + body).splitlines(), first):
        code, slashes, comment = line.partition("//")
        for part in dict.fromkeys(_wrappers()[name] for name in _CALL.findall(code) if name in _wrappers()):
            copies.append(_numbered(part.text, part, number) + "\n")
            code = _numbered(code, part, number)
        lines.append(code + slashes + comment)
    return "\n".join([head.rstrip("\n"), "", *copies, f"#line {first}", *lines]) + "\n"


def traced_line(function: str) -> int:
    """The line that the name of a wrapper in :func:`traced` tells; 0 for other functions."""
    found = _TRACED.search(function)
    return int(found[1]) if found else 0


@cache
def _wrappers() -> Mapping[str, Part]:
    """The header's definitions that hold an instruction, by name."""
    return {name: part for part in parts() if "asm" in part.text for name in part.names}


def _numbered(code: str, part: Part, number: int) -> str:
    """Code with the names that ``part`` defines bound to a line."""
    return re.sub(rf"\b({'|'.join(sorted(part.names))})(?=[(<])", rf"\1_at_line_{number}", code)
