"""The independent checker: reads TIR, replays it on exact bytes and threads, and says what is not ordered."""

from __future__ import annotations

from tidegate.check.api import check
from tidegate.check.verdict import Access, Finding, Run, Step, Verdict

__all__ = ["Access", "Finding", "Run", "Step", "Verdict", "check"]
