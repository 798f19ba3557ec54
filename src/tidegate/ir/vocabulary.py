"""The parts of docs/tir.md that are generated: declarations, statements, operands and the table of all instructions.

``python -m tidegate.ir.vocabulary docs/tir.md`` brings the document up to date.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path

from tidegate.ir import tir
from tidegate.ir.text import KINDS, TEMPLATES, Part, template


def regenerate(document: str) -> str:
    """``document`` with the text between each pair of generated markers replaced by what the classes say now."""
    for name, table in (("lines", line_table()), ("kinds", kind_table()), ("instructions", instruction_table())):
        marker = re.compile(rf"(<!-- generated: {name} -->\n).*?(<!-- end of {name} -->)", re.DOTALL)
        found = marker.search(document)
        if found:
            document = document[: found.end(1)] + table + document[found.start(2) :]
    return document


def line_table() -> str:
    """Declarations and block statements."""
    return _table(("line", "meaning"), [(_grammar(cls), _paragraph(cls)) for cls in TEMPLATES])


def kind_table() -> str:
    """How the values of fields are written."""
    return _table(("kind", "form"), [(f"`{name}`", kind.grammar) for name, kind in KINDS.items() if name != "flag"])


def instruction_table() -> str:
    """Every instruction: its line, what it reads and writes, and who executes it how."""
    rows = []
    for cls in tir.INSTRUCTIONS:
        effects = [", ".join(names) or "–" for names in (cls.reads, cls.writes)]
        rows.append((_grammar(cls), *effects, cls.proxy.value, cls.completes.value, cls.by.value, _paragraph(cls)))
    return _table(("line", "reads", "writes", "proxy", "complete", "executed by", "meaning"), rows)


def _grammar(cls: type) -> str:
    parts = template(cls)
    if issubclass(cls, tir.Instruction):
        parts = tuple(p for p in parts if not p.group)  # the suffix, which is the same for all
    return f"`{''.join(map(_piece, parts))}`"


def _piece(part: Part) -> str:
    if part.group:
        return f"({''.join(map(_piece, part.group))})?"
    if part.field:
        return "" if part.kind == "flag" else f"{{{part.field}:{part.kind}}}"
    return part.text


def _paragraph(cls: type) -> str:
    """The first paragraph of the docstring, on one line."""
    return " ".join((cls.__doc__ or "").split("\n\n")[0].split()).replace("``", "`")


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        path = Path(name)
        path.write_text(regenerate(path.read_text(encoding="utf-8")), encoding="utf-8", newline="\n")
