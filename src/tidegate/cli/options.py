"""From what was typed to a compiled kernel."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tidegate.cli.files import Chosen, constants_known, read
from tidegate.errors import BadSetting, TidegateError, UnknownConstant

if TYPE_CHECKING:
    from tidegate.ir.dtypes import DType
    from tidegate.lang.kernel import Kernel
    from tidegate.runtime.compiled import Compiled

_INTEGER = re.compile(r"[+-]?[0-9](_?[0-9])*")
_FLOAT = re.compile(r"[+-]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))([eE][+-]?[0-9]+)?")
LONGEST = 19
"""Digits of an integer: what fits into 64 bits."""

MULTIPLES = "multiples"
"""The setting that says what divides sizes."""


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
    """NAME=VALUE items, each name once. Raises BadSetting."""
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise BadSetting(text=text, reason="there is no '='")
        if not name.strip().isidentifier():
            raise BadSetting(text=text, reason=f"{name!r} is no name")
        if not value.strip():
            raise BadSetting(text=text, reason="there is no value")
        if name.strip() in found:
            raise BadSetting(text=text, reason=f"{name.strip()} is set twice")
        found[name.strip()] = value_of(text, value.strip())
        if name.strip() == MULTIPLES:
            found[MULTIPLES] = multiples_of(text, value)
    return found


def multiples_of(text: str, value: str) -> dict[str, int]:
    """What divides sizes, as N:1,K:16; raises BadSetting."""
    pairs = [(name.strip(), number.strip()) for name, _, number in (item.partition(":") for item in value.split(","))]
    for name, number in pairs:
        if not name.isidentifier() or not _INTEGER.fullmatch(number) or len(number) > LONGEST:
            reason = "multiples are names of dimensions and what divides their sizes: multiples=N:1,K:16"
            raise BadSetting(text=text, reason=reason)
    return {name: int(number) for name, number in pairs}


def value_of(text: str, value: str) -> int | float | bool | str:
    """An integer, a float, a truth value, or else the string itself."""
    if _INTEGER.fullmatch(value):
        if len(value) > LONGEST:
            raise BadSetting(text=text, reason="the number is too large")
        return int(value)
    if _FLOAT.fullmatch(value):
        if math.isinf(float(value)):
            raise BadSetting(text=text, reason="the number is too large")
        return float(value)
    return {"true": True, "false": False}.get(value.lower(), value)


def settings_for(chosen: Chosen, settings: Mapping[str, Any]) -> dict[Kernel, dict[str, Any]]:
    """What each kernel is compiled for. A name must belong to at least one of the kernels, and the value of a scalar,
    which counts in a run only, be one of its dtype; raises UnknownConstant and BadSetting."""
    known = {k: constants_known(k) for k in chosen.kernels}
    divisors = settings.get(MULTIPLES, {})
    _known(chosen, settings, known.values(), "constant, dimension or scalar")
    _known(chosen, divisors, [k.dims for k in chosen.kernels], "dimension")
    found: dict[Kernel, dict[str, Any]] = {}
    for kernel, names in known.items():
        scalars_of(kernel.scalars, settings)
        found[kernel] = {n: v for n, v in settings.items() if n in names and n not in kernel.scalars}
        if divisors:
            found[kernel][MULTIPLES] = {n: v for n, v in divisors.items() if n in kernel.dims}
    return found


def _known(chosen: Chosen, given: Iterable[str], known: Iterable[Iterable[str]], kind: str) -> None:
    """Raises UnknownConstant for a name that no kernel has."""
    every = dict.fromkeys(n for names in known for n in names)
    for name in given:
        if name not in every:
            whose = f"no kernel of {chosen.path} has a"
            if len(chosen.kernels) == 1:
                whose = f"kernel {chosen.kernels[0].name} has no"
            advice = f"use one of {', '.join(every)}" if every else f"drop it: there is no {kind}"
            raise UnknownConstant(what=f"{whose} {kind} {name!r}", advice=advice)


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


def is_saved(plan: str | None) -> bool:
    """Does --plan name a file?"""
    from tidegate.plan.producers import PRODUCERS

    return plan is not None and plan not in PRODUCERS and (plan.endswith(".json") or os.path.exists(plan))


def planned(chosen: Chosen, options: Options) -> Chosen:
    """Of all kernels of a file, those that a saved plan is for; all where it names none of them or cannot be read,
    which is refused where it is used."""
    if chosen.named or options.plan is None or not is_saved(options.plan):
        return chosen
    try:
        data = json.loads(read(options.plan))
    except (TidegateError, ValueError, RecursionError):
        return chosen
    names = {plan.get("kernel") for plan in (data if isinstance(data, list) else [data]) if isinstance(plan, dict)}
    return replace(chosen, kernels=tuple(k for k in chosen.kernels if k.name in names) or chosen.kernels)


def compiled(chosen: Chosen, options: Options) -> Iterator[Compiled]:
    """The kernels, planned, one after the other."""
    chosen = planned(chosen, options)
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
    if is_saved(plan):
        plan = load(plan, kernel.name)
        target = target or plan.target
    clock = Timings()
    program = clock.measure("parse", lambda: kernel.program(**given))
    return compile_program(program, target or options.machine(), plan, True, timings=clock)
