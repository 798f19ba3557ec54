"""Prints docs/corpus.md: ``python benchmarks/corpus.py > docs/corpus.md``."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "corpus"))

from entries import page

if __name__ == "__main__":
    print(page(), end="")
