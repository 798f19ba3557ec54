"""Compile-time values as keys: told apart by more than ``==``."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any


def key_of(value: Any) -> Hashable:
    """Equal for values that mean the same in a kernel. 1, 1.0 and True do not, nor do 0.0 and -0.0; NaN is itself."""
    kind = type(value)
    if kind is float:
        return kind, repr(value)
    if kind is tuple or kind is frozenset:
        return kind, kind(map(key_of, value))
    try:
        hash(value)
    except TypeError:
        return kind, repr(value)
    return kind, value


def keys_of(given: Mapping[str, Any]) -> tuple[Hashable, ...]:
    """Named values as a key."""
    return (*given, *map(key_of, given.values()))
