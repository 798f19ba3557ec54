"""What a kernel does with a tensor."""

from __future__ import annotations

from enum import Enum


class Direction(Enum):
    """Read only, written only, or both: then what the caller gives is seen, and changed."""

    IN = "in"
    OUT = "out"
    INOUT = "inout"

    @property
    def reads(self) -> bool:
        return self is not Direction.OUT

    @property
    def writes(self) -> bool:
        return self is not Direction.IN
