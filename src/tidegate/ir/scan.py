"""Lines and tokens of the text form, and errors that point into it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TypeVar

from tidegate.errors import Span, UnreadableTir

T = TypeVar("T")

MAX_TOKENS = 300
"""Per line; bounds the depth of an expression."""
MAX_DIGITS = 18

ADVICE = "docs/tir.md gives the grammar and lists every instruction"

_TOKEN = re.compile(
    r"""\s*(?:(?P<comment>//.*)
    |(?P<string>"(?:[^"\\]|\\.)*")
    |(?P<number>\d+\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\d+)
    |(?P<name>[A-Za-z_]\w*)
    |(?P<mark><-|<=|==|!=|&&|\|\||\.\.|[-+*/%<()\[\],{}=@.\#]))""",
    re.VERBOSE | re.ASCII,
)


@dataclass
class Line:
    """The tokens of one line, the last one empty, and the place of the next one to read."""

    number: int
    text: str
    tokens: list[str]
    columns: list[int]
    file: str = "<tir>"
    at: int = 0

    @property
    def token(self) -> str:
        return self.tokens[self.at]

    @property
    def ahead(self) -> str:
        """The token after the next one."""
        return self.tokens[min(self.at + 1, len(self.tokens) - 1)]

    @property
    def whole(self) -> Span:
        """The place of the line."""
        return Span(self.file, self.number, self.columns[0], self.columns[-1], self.text)

    def next(self) -> str:
        token = self.token
        self.at += 1
        return token

    def accept(self, token: str) -> bool:
        """Whether the next token is this one, which is then read."""
        found = self.token == token
        self.at += found
        return found

    def expect(self, token: str, other: str = "") -> None:
        if not self.accept(token):
            raise self.expected(f"{token!r}" + (f" or {other}" if other else ""))

    def end(self) -> None:
        if self.token:
            raise self.expected("the end of the line")

    def choose(self, table: Mapping[str, T], what: str) -> T:
        """The entry for the next token, which stays to be read."""
        if self.token in table:
            return table[self.token]
        close = get_close_matches(self.token, table, 1)
        raise self.expected(what, f"{close[0]!r} instead" if close else ADVICE)

    def expected(self, what: str, advice: str = ADVICE) -> UnreadableTir:
        found = repr(self.token) if self.token else "the end of the line"
        return self.error(f"expected {what}, found {found}", advice=advice)

    def error(self, what: str, at: int | None = None, advice: str = ADVICE) -> UnreadableTir:
        index = min(self.at if at is None else at, len(self.columns) - 1)
        token, column = self.tokens[index], self.columns[index]
        return _error(what, advice, Span(self.file, self.number, column, column + len(token), self.text))


def _error(what: str, advice: str, span: Span) -> UnreadableTir:
    return UnreadableTir(span, what=what, advice=advice)


def scan(text: str, file: str = "<tir>") -> list[Line]:
    """The lines that hold tokens, or one empty line when there is none. Raises UnreadableTir."""
    lines = [_scan_line(number, row, file) for number, row in enumerate(text.split("\n"), 1)]
    return [line for line in lines if len(line.tokens) > 1] or lines[:1]


def _scan_line(number: int, text: str, file: str) -> Line:
    line = Line(number, text, [], [], file)
    at = 0
    end = len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if not match:
            at += len(text[at:]) - len(text[at:].lstrip())
            what = "a string does not end" if text[at] == '"' else f"no token begins with {text[at]!r}"
            raise _error(what, ADVICE, Span(file, number, at, at + 1, text))
        at = match.end()
        if match.lastgroup == "comment":
            break
        kind = match.lastgroup or ""
        token, start = match[kind], match.start(kind)
        line.tokens.append(token)
        line.columns.append(start)
        if kind == "number" and len(token) > MAX_DIGITS and token.isdigit():
            raise line.error(f"a number has at most {MAX_DIGITS} digits", -1)
        if len(line.tokens) > MAX_TOKENS:
            raise line.error(f"a line has at most {MAX_TOKENS} words and marks", -1)
    line.tokens.append("")
    line.columns.append(min(at, end))
    return line
