"""docs/faults.md names every test of this folder, and no other."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "faults.md"


def test_the_page_and_the_tests_name_each_other() -> None:
    text = PAGE.read_text()
    files = [p for p in Path(__file__).parent.glob("test_*.py") if p.name != "test_page.py"]
    tests = {name for p in files for name in re.findall(r"^def (test_\w+)", p.read_text(), re.MULTILINE)}
    assert tests == set(re.findall(r"`(test_\w+)`", text))
    corpus = Path(__file__).parents[1] / "corpus"
    kernels = re.findall(r"corpus `(\w+)`", text)
    assert kernels
    assert not [k for k in kernels if not (corpus / f"{k}.tir").exists()]
