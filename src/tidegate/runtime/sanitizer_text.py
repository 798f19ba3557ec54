"""What compute-sanitizer prints, as data: one record per finding, equal ones counted."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

MARK = "========="

_PLACE = re.compile(
    r"(?:^at|access at|^Device Frame:)\s+(?P<function>[^+]*?)\+?(?P<offset>0x[0-9a-f]+)"
    r"(?: in (?P<file>[^:]+?)(?::(?P<line>\d+))?:?)?(?:\s|$)"
)
_ACCESS = re.compile(r"(?:between|and) (?P<what>\w+) access at ")
_HAZARDS = re.compile(r"\[(\d+) hazards?\]")
_SUMMARY = re.compile(r"(?:ERROR|RACECHECK|SYNCCHECK) SUMMARY: (?P<count>\d+) ")
_QUIET = (
    "COMPUTE-SANITIZER", "LEAK SUMMARY", "Target application returned", "Saved host backtrace", "Host Frame",
    "Program hit ",  # the API's own error after a fault that has its report
)  # fmt: skip
_ENTRY = re.compile(r"^\w+")


@dataclass(frozen=True)
class Frame:
    """A place in device code: ``function`` without its parameters, offset in bytes, and file and line (0: unknown)."""

    function: str
    offset: int
    file: str
    line: int


@dataclass(frozen=True)
class Site:
    """One side of a finding: what was done there ('Write', 'Read', '' where the tool does not say), and the frames,
    innermost first."""

    what: str
    frames: tuple[Frame, ...]


@dataclass(frozen=True)
class Record:
    """A finding. ``title`` is the tool's first line without places; ``count``: hazards or equal reports."""

    tool: str
    title: str
    sites: tuple[Site, ...]
    count: int

    @property
    def unit(self) -> str:
        """Name of the file, without its ending, of the first frame that tells one; else the outermost function."""
        frames = [f for s in self.sites for f in s.frames]
        named = next((f.file for f in frames if f.file), "")
        return named.rpartition("/")[2].rpartition(".")[0] or (frames[-1].function if frames else "")


def parse(tool: str, text: str) -> list[Record]:
    """The findings in the output of ``compute-sanitizer --tool <tool>``, equal ones once, in order of appearance."""
    found: dict[tuple[str, tuple[Site, ...]], Record] = {}
    for block in _blocks(text.splitlines()):
        record = _record(tool, block)
        if record is None:
            continue
        known = found.get((record.title, record.sites))
        found[record.title, record.sites] = replace(record, count=record.count + (known.count if known else 0))
    return list(found.values())


def summary(text: str) -> int | None:
    """The number of errors and hazards that the tool counts itself, over all processes; None where none ended well."""
    counts = [int(m["count"]) for m in map(_SUMMARY.search, text.splitlines()) if m]
    return sum(counts) if counts else None


def _blocks(lines: Iterable[str]) -> Iterable[list[str]]:
    """Lines of one report: it begins one space behind the mark, what belongs to it is indented."""
    block: list[str] = []
    for line in lines:
        if not line.startswith(MARK):  # the program's own output
            continue
        content = line[len(MARK) :]
        if content.startswith("  ") and content.strip():
            block.append(content.strip())
            continue
        yield block
        block = [content.strip()]
    yield block


def _record(tool: str, block: list[str]) -> Record | None:
    if not block or not block[0] or block[0].startswith(_QUIET) or _SUMMARY.search(block[0]):
        return None
    sites: list[Site] = []
    count = 1
    for line in block:
        if line.startswith(_QUIET):
            break
        count = int(m[1]) if (m := _HAZARDS.search(line)) else count
        place = _PLACE.search(line)
        if place is None:
            continue
        frame = _frame(place)
        access = _ACCESS.search(line)
        inner = line.startswith("Device Frame:")
        if sites and inner:
            sites[-1] = replace(sites[-1], frames=(*sites[-1].frames, frame))
        else:
            sites.append(Site(access["what"] if access else "", (frame,)))
    title = block[0]
    if sites and sites[0].what:
        others = dict.fromkeys(s.what.lower() for s in sites[1:])
        title = f"{title.split(' reported')[0]} between {' and '.join([sites[0].what.lower(), *others])}"
    return Record(tool, re.sub(r" at \S.*", "", title) if sites else title, tuple(sites), count)


def _frame(place: re.Match[str]) -> Frame:
    name = _ENTRY.match(place["function"].removeprefix("void ").strip())
    line = int(place["line"]) if place["line"] else 0
    return Frame(name[0] if name else "", int(place["offset"], 16), place["file"] or "", line)
