"""CUDA C++ from TIR: one emitter per instruction, a kernel skeleton, and a header of PTX wrappers."""

from __future__ import annotations

from tidegate.emit.skeleton import EMITTERS, emit

__all__ = ["EMITTERS", "emit"]
