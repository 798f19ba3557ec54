"""One page about one trial of a kernel."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

WIDTH = 120
FAULTS = 3
"""Faults shown per simulation; the JSON form has them all."""


def summary(result: Mapping[str, Any]) -> str:
    """The page; ``result`` is an object of ``tidegate run --json``."""
    rows: list[tuple[str, str]] = [
        ("target", f"{result['target']}, {_count(result['warps'], 'warp')}{_settings(result['constants'], '; ')}"),
        ("plan", f"{result['plan']}, {_count(len(result['syncs']), 'sync')}"),
        ("memory", f"{result['smem_bytes']} of {result['smem_capacity']} bytes of shared memory"),
        ("check", f"{result['verdict'].upper()}: {result['scope']}"),
        *(("", line) for finding in result["findings"] for line in finding.splitlines()),
        *((("", f"because {result['not_proved_because']}"),) if result["not_proved_because"] else ()),
        *_simulations(result),
        *((("code", _code(result["code"])),) if result["code"] else ()),
        ("GPU", _gpu(result["gpu"])),
        ("time", _times(result["timings"])),
    ]
    lines = [f"{result['kernel']} ({result['file']}:{result['line']})"]
    for label, text in rows:
        lines += _wrapped(f"  {label:<10} ", text)
    if result["syncs"]:
        lines.append("  syncs")
    for sync in result["syncs"]:
        count = "" if sync["count_or_phase"] is None else f" {sync['count_or_phase']}"
        lines += _wrapped(f"    {sync['id']:<4} {sync['kind'] + count:<18} {sync['participants']:<12} ", sync["reason"])
    return "\n".join(lines)


def _wrapped(head: str, text: str) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=head, subsequent_indent=" " * len(head), break_long_words=False
    ) or [head.rstrip()]


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def _settings(values: Mapping[str, Any], head: str = "") -> str:
    return head + ", ".join(f"{n}={v}" for n, v in values.items()) if values else ""


def _simulations(result: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    scalars = _settings(result["scalars"], "; ")
    yield "sizes", f"{_settings(result['sizes']) or 'all fixed'}{scalars}; seed {result['seed']}"
    for number, run in enumerate(result["simulations"]):
        yield "simulation" if not number else "", f"{run['completion']}: {_outcome(run)}, {_error(run)}"
        for fault in run["faults"][:FAULTS]:
            yield "", f"  {fault}"
        if len(run["faults"]) > FAULTS:
            yield "", f"  and {len(run['faults']) - FAULTS} more faults"
    for loop in result["short_loops"]:
        most = f"had at most {_count(loop['trips'], 'trip')}" if loop["trips"] else "had no trip"
        yield "", f"the loop of line {loop['line']} {most}: give sizes or numbers by --set or inputs"
    if left := sorted({name for run in result["simulations"] for name in run["unwritten"]}):
        yield "", _unwritten(left)


def _outcome(run: Mapping[str, Any]) -> str:
    if not run["matches"]:
        return "MISMATCH with the plain program"
    if run["ok"]:
        return "agrees with the plain program"
    if len(run["unwritten"]) == len(run["faults"]):
        names = ", ".join(run["unwritten"])
        return f"UNWRITTEN elements of {names}; all that is written agrees with the plain program"
    return "MISMATCH: right numbers, but faults on the way"


def _unwritten(names: list[str]) -> str:
    """What to do about outputs of which elements are never written."""
    which, kept = ", ".join(names), "a tg.InOut" if len(names) == 1 else "tg.InOut tensors"
    return (
        f"every element of a tg.Out must be written: give sizes by --set of which the kernel writes all of {which}; or "
        f"make {which} {kept} where elements are meant to keep what they hold"
    )


def _error(run: Mapping[str, Any]) -> str:
    return f"largest relative error {run['max_rel_error']:.2g}" if run["max_rel_error"] else "every bit"


def _code(code: Mapping[str, Any]) -> str:
    text = f"{_count(code['registers'], 'register')} per thread, {code['spill_bytes'] or 'no'} bytes spilled"
    return f"{text}; WARNING: {code['warning']}" if code["warning"] else text


def _gpu(gpu: Mapping[str, Any] | None) -> str:
    if gpu is None:
        return "none here that runs this target"
    word = "agrees with the plain program" if gpu["matches"] else "MISMATCH with the plain program"
    return f"{gpu['name']}: {word}, {_error(gpu)}; {gpu['call_ms']:.3g} ms per call with copies to and from the device"


def _times(timings: Mapping[str, float | None]) -> str:
    parts = [f"{stage} {spent:.1f}" for stage, spent in timings.items() if spent is not None]
    return ", ".join(parts) + " ms" + ("; not compiled, NVRTC is not installed" if None in timings.values() else "")
