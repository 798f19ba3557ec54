"""Targets: named machines with their facts, and what is bound to them."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

from tidegate.errors import UnknownTarget, UnknownTargetFact

DEFAULT_TARGET = "sm_80"
"""The target of a command or call that names none, where there is no GPU: the oldest that has every mechanism."""

OLDER = re.compile(r"sm_?[1-7]\d|v100s?|t4g?|p100|p40?|k[48]0|rtx_?20\d0|gtx_?\d+|titan.*")
"""Names of GPUs that are older than every target."""


@dataclass(frozen=True)
class Fact:
    """A number with its origin (vendor document, derived, measured)."""

    value: int
    origin: str


@dataclass(frozen=True)
class Target:
    """One machine. ``arch`` is the compiler's name for it; ``bindings`` maps a base class or a name to what the target
    puts in its place."""

    name: str
    arch: str
    facts: Mapping[str, Fact]
    default_plan: str = "multistage"
    bindings: Mapping[Any, Any] = field(default_factory=dict, hash=False)

    def fact(self, name: str) -> int:
        """A fact's value; raises UnknownTargetFact rather than assume one."""
        if name not in self.facts:
            raise UnknownTargetFact(fact=name, target=self.name)
        return self.facts[name].value

    def resolve(self, base: Any) -> Any:
        """What the target binds for ``base`` (itself if nothing)."""
        return self.bindings.get(base, base)


@lru_cache(maxsize=1)
def _builtin() -> dict[str, Target]:
    """All names and aliases of the targets that come with the package."""
    with open(os.path.join(os.path.dirname(__file__), "nvidia", "facts.toml"), "rb") as file:
        rows = tomllib.load(file)
    found: dict[str, Target] = {}
    for name, row in rows.items():
        facts = {k: Fact(v["value"], v["origin"]) for k, v in row.items() if isinstance(v, dict)}
        target = Target(name, row["arch"], facts)
        for alias in (name, *row["aliases"]):
            found[alias] = target
    return found


def find(name: str | None) -> Target:
    """The target of that name or alias, whose case does not matter; packages add targets through the entry point
    ``tidegate.targets``.

    Raises UnknownTarget.
    """
    builtin = _builtin()
    wanted: object = DEFAULT_TARGET if name is None else name
    if isinstance(wanted, str) and wanted.lower() in builtin:
        return builtin[wanted.lower()]
    from importlib import metadata  # slow to import, and rarely needed

    for entry in metadata.entry_points(group="tidegate.targets"):
        if entry.name == wanted:
            target = entry.load()
            if isinstance(target, Target):
                return target
    near = get_close_matches(str(wanted).lower(), builtin, 1)
    guess = f"did you mean {near[0]!r}? Else " if near else ""
    if OLDER.fullmatch(str(wanted).lower()):
        guess = "asynchronous copies need a GPU of sm_80 or later: "
    raise UnknownTarget(name=wanted, guess=guess, known=", ".join(sorted(builtin)))
