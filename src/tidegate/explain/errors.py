"""The error catalogue as text: one entry, the list, and docs/errors.md.

``python -m tidegate.explain.errors > docs/errors.md`` writes the page.
"""

from __future__ import annotations

import difflib
import inspect
import textwrap
from dataclasses import asdict, dataclass

from tidegate.errors import TidegateError, UnknownCode, catalogue

SECTIONS = {
    "1": "Language",
    "2": "Shapes and dtypes",
    "3": "Schedule",
    "4": "Memory",
    "5": "Order and plans",
    "6": "TIR",
    "7": "Simulation and calls",
    "8": "CUDA text, compiling, launching, command line",
}
"""By the first digit of the code."""

NEAREST = 3

HEAD = """# Errors

Every refusal has a code, a place in the source where there is one, the facts that conflict, and a next step.
`tidegate errors CODE` shows one entry. In the templates, words in braces are filled in.

This page is generated from `src/tidegate/errors.py` by `python -m tidegate.explain.errors > docs/errors.md`.
"""


@dataclass(frozen=True)
class Entry:
    """One error. ``name`` is the class in tidegate.errors; ``message`` and ``hint`` are templates, ``example`` is a
    message where the template tells nothing."""

    code: str
    name: str
    title: str
    meaning: str
    message: str
    hint: str
    example: str

    def __str__(self) -> str:
        rows = {"message": _shown(self.message), "next step": _shown(self.hint)}
        if self.example:
            rows = {"example": self.example}
        rows["class"] = f"tidegate.errors.{self.name}"
        lines = [f"{self.code}: {self.title}", "", textwrap.fill(self.meaning, 100), ""]
        return "\n".join(lines + [f"{name:<9}  {text}" for name, text in rows.items()])

    def to_json(self) -> dict[str, str]:
        return asdict(self)


def entries() -> tuple[Entry, ...]:
    """The whole catalogue, by code."""
    own = (c for c in catalogue() if c.__module__ == TidegateError.__module__)
    return tuple(
        Entry(
            c.code,
            c.__name__,
            c.title,
            " ".join(inspect.cleandoc(c.__doc__ or "").split()),
            c.message,
            c.hint,
            f"{c.example[0]}; try: {c.example[1]}" if c.example else "",
        )
        for c in own
    )


def entry(code: str) -> Entry:
    """The entry of a code, in any case and with or without TG, or of a class; raises UnknownCode."""
    wanted = code.strip().upper()
    wanted = f"TG{wanted}" if wanted.isdigit() else wanted
    every = entries()
    found = [e for e in every if wanted in (e.code, e.name.upper())]
    if not found:
        raise UnknownCode(given=code, nearest=", ".join(_nearest(wanted, [e.code for e in every])))
    return found[0]


def _nearest(wanted: str, codes: list[str]) -> list[str]:
    digits = wanted.removeprefix("TG")
    if digits.isdecimal() and digits.isascii():
        number = int(digits[:9])
        return sorted(sorted(codes, key=lambda c: abs(int(c[2:]) - number))[:NEAREST])
    return difflib.get_close_matches(wanted, codes, NEAREST, 0.0)


def listing() -> str:
    """One line per code."""
    return "\n".join(f"{e.code}  {e.title}" for e in entries())


def markdown() -> str:
    """docs/errors.md."""
    parts = [HEAD]
    section = ""
    for e in entries():
        if e.code[2] != section:
            section = e.code[2]
            parts.append(f"## {SECTIONS[section]}\n")
        parts.append(f"### {e.code}: {e.title}\n\n{textwrap.fill(e.meaning, 120)}\n")
        templates = f"- message: {_code(e.message)}\n- next step: {_code(e.hint)}\n"
        parts.append((f"- example: {_code(e.example)}\n" if e.example else templates) + f"- class: `{e.name}`\n")
    return "\n".join(parts)


def _shown(template: str) -> str:
    return " / ".join(template.splitlines())


def _code(template: str) -> str:
    """Code in Markdown, also when the template has a backtick."""
    text = _shown(template)
    return f"`` {text} ``" if "`" in text else f"`{text}`"


if __name__ == "__main__":
    print(markdown(), end="")
