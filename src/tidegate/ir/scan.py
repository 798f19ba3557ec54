"""Lines and tokens of the text form, and errors that point into it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TypeVar

T = TypeVar("T")

MAX_TOKENS = 400
"""Per line; bounds the depth of an expression."""
MAX_DIGITS = 18

_TOKEN = re.compile(
    r"""\s*(?:(?P<comment>//.*)
    |(?P<string>"(?:[^"\\]|\\.)*")
    |(?P<number>\d+\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\d+)
    |(?P<name>[A-Za-z_]\w*)
    |(?P<mark><-|<=|==|!=|&&|\.\.|[-+*/%<()\[\],{}=@.\#]))""",
    re.VERBOSE | re.ASCII,
)


class TextError(ValueError):
    """Text that is no TIR. ``line`` and ``column`` count from 1."""

    def __init__(self, message: str, line: int, column: int, text: str) -> None:
        self.message, self.line, self.column, self.text = message, line, column, text
        super().__init__(f"line {line}, column {column}: {message}\n  {text}\n  {' ' * (column - 1)}^")


@dataclass
class Line:
    """The tokens of one line, the last one empty, and the place of the next one to read."""

    number: int
    text: str
    tokens: list[str]
    columns: list[int]
    at: int = 0

    @property
    def token(self) -> str:
        return self.tokens[self.at]

    @property
    def ahead(self) -> str:
        """The token after the next one."""
        return self.tokens[min(self.at + 1, len(self.tokens) - 1)]

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
        raise self.expected(what, f"; did you mean {close[0]!r}?" if close else "")

    def expected(self, what: str, hint: str = "") -> TextError:
        return self.error(f"expected {what}, found {repr(self.token) if self.token else 'the end of the line'}{hint}")

    def error(self, message: str, at: int | None = None) -> TextError:
        index = min(self.at if at is None else at, len(self.columns) - 1)
        return TextError(message, self.number, self.columns[index] + 1, self.text)


def scan(text: str) -> list[Line]:
    """The lines that hold tokens, or one empty line when there is none. Raises TextError."""
    lines = [line for number, t in enumerate(text.split("\n"), 1) if len((line := _scan_line(number, t)).tokens) > 1]
    return lines or [Line(1, "", [""], [0])]


def _scan_line(number: int, text: str) -> Line:
    line = Line(number, text, [], [])
    at = 0
    end = len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if not match:
            at += len(text[at:]) - len(text[at:].lstrip())
            raise TextError(f"no token begins with {text[at]!r}", number, at + 1, text)
        at = match.end()
        if match.lastgroup == "comment":
            break
        token = match[match.lastgroup or 0]
        start = match.start(match.lastgroup or 0)
        if match.lastgroup == "number" and len(token) > MAX_DIGITS and token.isdigit():
            raise TextError(f"a number has at most {MAX_DIGITS} digits", number, start + 1, text)
        line.tokens.append(token)
        line.columns.append(start)
        if len(line.tokens) > MAX_TOKENS:
            raise TextError(f"a line has at most {MAX_TOKENS} words and marks", number, start + 1, text)
    line.tokens.append("")
    line.columns.append(min(at, end))
    return line
