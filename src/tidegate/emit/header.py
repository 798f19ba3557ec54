"""The CUDA header: wrappers of PTX instructions, of which a kernel's text holds those that it uses."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_DEFINES = re.compile(r"^__device__ .*?(\w+)\(", re.MULTILINE)
_TYPES = re.compile(r"^using (\w+) =", re.MULTILINE)


@dataclass(frozen=True)
class Part:
    """One definition with its comment, ``names`` being what it defines."""

    names: frozenset[str]
    text: str


@cache
def parts() -> tuple[Part, ...]:
    """The header's paragraphs, headings left out."""
    text = (Path(__file__).parent / "header.cuh").read_text(encoding="utf-8")
    found = []
    for paragraph in text.split("\n\n"):
        names = frozenset([*_DEFINES.findall(paragraph), *_TYPES.findall(paragraph)])
        if names:
            found.append(Part(names, paragraph.strip("\n")))
    return tuple(found)


@cache
def header_names() -> frozenset[str]:
    return frozenset().union(*(p.names for p in parts()))


def header_for(code: str) -> str:
    """The parts of the header that ``code`` needs, verbatim and in the header's order."""
    needed: set[Part] = set()
    words = _words(code)
    while True:
        more = [p for p in parts() if p not in needed and p.names & words]
        if not more:
            return "\n\n".join(p.text for p in parts() if p in needed)
        for part in more:
            needed.add(part)
            words |= _words(part.text)


def _words(code: str) -> set[str]:
    return set(re.findall(r"\w+", re.sub(r"//.*", "", code)))
