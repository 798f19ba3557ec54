"""Places in the author's text, for refusals."""

from __future__ import annotations

import linecache
import sys
from dataclasses import dataclass
from itertools import islice


@dataclass(frozen=True)
class Span:
    """A place in the author's text: 1-based line, 0-based columns, and the text of that line."""

    file: str
    line: int
    column: int
    end_column: int
    text: str

    def render(self, label: str = "") -> str:
        """The location, the line and a caret under it."""
        gutter, text = " " * len(str(self.line)), self.text.expandtabs(1).strip()
        return f"  {self.file}:{self.line}\n {gutter} |\n {self.line} | {text}\n{self.pointer(label)}"

    def pointer(self, label: str = "") -> str:
        """The caret alone, for a line that stands above."""
        text = self.text.expandtabs(1)
        stripped = text.lstrip()
        shift = len(text) - len(stripped)
        start = max(self.column - shift, 0)
        width = max(min(self.end_column - shift, len(stripped.rstrip())) - start, 1)
        gutter = " " * len(str(self.line))
        return f" {gutter} | {' ' * start}{'^' * width}{' ' + label if label else ''}"


def calling(above: int) -> Span | None:
    """The place in the author's text that is being executed, ``above`` frames over the caller; None without a text."""
    frame = sys._getframe(above + 1)
    at = next(islice(frame.f_code.co_positions(), frame.f_lasti // 2, None))
    line, last, column, end = at
    text = linecache.getline(frame.f_code.co_filename, line or 0).rstrip("\n")
    if line is None or column is None or end is None or not text:
        return None
    start, stop = (len(text.encode()[:n].decode(errors="replace")) for n in (column, end))
    return Span(frame.f_code.co_filename, line, start, stop if last == line else len(text), text)
