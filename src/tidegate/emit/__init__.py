"""CUDA C++ from TIR: one emitter per instruction, a kernel skeleton, and a header of PTX wrappers."""

from __future__ import annotations

from tidegate.emit.delays import Delays
from tidegate.emit.lines import line_table, traced, traced_line
from tidegate.emit.skeleton import EMITTERS, emit

__all__ = ["EMITTERS", "Delays", "emit", "line_table", "traced", "traced_line"]
