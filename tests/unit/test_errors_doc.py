"""The error catalogue and the page that is generated from it."""

from __future__ import annotations

import inspect
import re
import string
from pathlib import Path

import pytest

import tidegate as tg
from tidegate import cuda
from tidegate.errors import TidegateError, catalogue
from tidegate.explain.errors import SECTIONS, entries, markdown

PAGE = Path(__file__).parents[2] / "docs" / "errors.md"


def test_the_page_is_up_to_date() -> None:
    same = PAGE.read_text(encoding="utf-8") == markdown()
    assert same, "run python -m tidegate.explain.errors > docs/errors.md"


def test_codes_are_unique_and_in_a_section() -> None:
    codes = [e.code for e in entries()]
    assert len(codes) == len(set(codes))
    assert all(re.fullmatch(r"TG[1-9]\d\d", code) and code[2] in SECTIONS for code in codes)


def own() -> list[type[TidegateError]]:
    return [c for c in catalogue() if c.__module__ == "tidegate.errors"]


@pytest.mark.parametrize("cls", own(), ids=lambda c: c.code)
def test_every_error_says_what_and_what_next(cls: type[TidegateError]) -> None:
    assert cls.title
    assert cls.message
    assert cls.hint
    assert cls.__doc__
    names = {name for text in (cls.message, cls.hint) for _, name, _, _ in string.Formatter().parse(text) if name}
    error = cls(**dict.fromkeys(names, "something"))
    assert str(error).startswith(f"error[{cls.code}] {cls.title}: ")
    assert "{" not in error.text + error.next_step
    assert cls.example or cls.message != "{what}", "the catalogue would show the name of a field"


PUBLIC = [
    *(getattr(tg, name) for name in tg.__all__),
    *(f for f in vars(cuda).values() if getattr(f, "__module__", "") == cuda.__name__),
]


@pytest.mark.parametrize("thing", PUBLIC, ids=lambda t: t.__name__)
def test_every_public_name_says_what_it_does_and_raises(thing: type) -> None:
    text = inspect.getdoc(thing) or ""
    assert len(text.splitlines()[0]) > 20
    codes = {e.code for e in entries()}
    named = set(re.findall(r"TG\d\w\w", text))
    assert named, "no word of the errors that it raises"
    assert {code for code in named if code[2:].isdigit()} <= codes
