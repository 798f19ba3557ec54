"""From what was typed to a compiled kernel."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tidegate.cli.files import Chosen, constants_known
from tidegate.errors import BadSetting, UnknownConstant

if TYPE_CHECKING:
    from tidegate.ir.dtypes import DType
    from tidegate.lang.kernel import Kernel
    from tidegate.runtime.compiled import Compiled

_INTEGER = re.compile(r"[+-]?[0-9](_?[0-9])*")
_FLOAT = re.compile(r"[+-]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))([eE][+-]?[0-9]+)?")
LONGEST = 19
"""Digits of an integer: what fits into 64 bits."""


@dataclass(frozen=True)
class Options:
    """What most commands take. ``plan`` is a producer's name or the path of a saved plan; ``fallback`` the target where
    none is given and there is no GPU."""

    target: str | None
    plan: str | None
    settings: Mapping[str, Any]
    fallback: str | None = None

    def of(self, chosen: Chosen) -> Options:
        """The options for a file, which may say what its kernels need."""
        return replace(self, fallback=chosen.target)

    def machine(self) -> str | None:
        """The target to compile for; None: the GPU here, or the package's default."""
        from tidegate.runtime.device import available

        return self.fallback if self.target is None and available() is None else self.target


def settings_of(texts: Sequence[str]) -> dict[str, Any]:
    """NAME=VALUE items; of one name, the last counts. Raises BadSetting."""
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise BadSetting(text=text, reason="there is no '='")
        if not name.strip().isidentifier():
            raise BadSetting(text=text, reason=f"{name!r} is no name")
        if not value.strip():
            raise BadSetting(text=text, reason="there is no value")
        found[name.strip()] = value_of(text, value.strip())
    return found


def value_of(text: str, value: str) -> int | float | bool | str:
    """An integer, a float, a truth value, or else the string itself."""
    if _INTEGER.fullmatch(value):
        if len(value) > LONGEST:
            raise BadSetting(text=text, reason="the number is too large")
        return int(value)
    if _FLOAT.fullmatch(value):
        return float(value)
    return {"true": True, "false": False}.get(value.lower(), value)


def settings_for(chosen: Chosen, settings: Mapping[str, Any]) -> dict[Kernel, dict[str, Any]]:
    """What each kernel is compiled for. A name must belong to at least one of the kernels, and the value of a scalar,
    which counts in a run only, be one of its dtype; raises UnknownConstant and BadSetting."""
    known = {k: constants_known(k) for k in chosen.kernels}
    for name in settings:
        if not any(name in names for names in known.values()):
            if len(chosen.kernels) == 1:
                whose = f"kernel {chosen.kernels[0].name}"
            else:
                whose = f"no kernel of {chosen.path}"
            has = "has no" if len(chosen.kernels) == 1 else "has a"
            every = dict.fromkeys(n for names in known.values() for n in names)
            raise UnknownConstant(
                what=f"{whose} {has} constant, dimension or scalar {name!r}", advice=f"use one of {', '.join(every)}"
            )
    for kernel in chosen.kernels:
        scalars_of(kernel.scalars, settings)
    return {k: {n: v for n, v in settings.items() if n in names and n not in k.scalars} for k, names in known.items()}


def scalars_of(scalars: Mapping[str, DType], settings: Mapping[str, Any]) -> dict[str, int | float]:
    """The values that are given for scalars, by name; raises BadSetting for one that its dtype cannot hold."""
    from tidegate.ir.dtypes import I32, number

    found: dict[str, int | float] = {}
    for name, dtype in scalars.items():
        if name not in settings:
            continue
        value = number(dtype, settings[name])
        if value is None:
            kind = "a whole number of 32 bits" if dtype == I32 else "a number within the range of f32"
            reason = f"{name} is a tg.Scalar of {dtype}, and {settings[name]!r} is not {kind}"
            raise BadSetting(text=f"{name}={settings[name]}", reason=reason)
        found[name] = value
    return found


def compiled(chosen: Chosen, options: Options) -> Iterator[Compiled]:
    """The kernels, planned, one after the other."""
    given = settings_for(chosen, options.settings)
    for kernel in chosen.kernels:
        yield compile_kernel(kernel, options.of(chosen), given[kernel])


def compile_kernel(kernel: Kernel, options: Options, given: Mapping[str, Any]) -> Compiled:
    """One kernel, planned; the time of the parser is measured as well."""
    from tidegate.errors import UnknownProducer
    from tidegate.plan.file import load
    from tidegate.plan.producers import PRODUCERS
    from tidegate.runtime.compiled import Timings, compile_program

    target = options.target
    plan: Any = options.plan
    if plan == "":
        raise UnknownProducer(name=plan, known=", ".join(PRODUCERS))
    if plan is not None and plan not in PRODUCERS and (plan.endswith(".json") or os.path.exists(plan)):
        plan = load(plan, kernel.name)
        target = target or plan.target
    clock = Timings()
    program = clock.measure("parse", lambda: kernel.program(None, **given))
    return compile_program(program, target or options.machine(), plan, True, timings=clock)
