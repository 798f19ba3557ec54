"""`tidegate sanitize`: what is run, and its report as text."""

from __future__ import annotations

import linecache
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from tidegate.cli.files import is_tir, kernel_of_tir, kernels_of, split
from tidegate.cli.options import Options, compiled, scalars_of
from tidegate.errors import BadTool, UnknownKernel
from tidegate.runtime.sanitize import (
    TOOLS,
    DelayRun,
    Finding,
    Place,
    Report,
    ToolRun,
    find_sanitizer,
    sanitize,
    usable_device,
)
from tidegate.runtime.trial_sizes import trial_arrays, trial_sizes

if TYPE_CHECKING:
    import numpy as np

    from tidegate.ir import tir


def tools_of(name: str) -> tuple[str, ...]:
    """The tools that --tool names; raises BadTool."""
    if name == "all":
        return TOOLS
    if name not in TOOLS:
        raise BadTool(name=name, known=", ".join((*TOOLS, "all")))
    return (name,)


def reports(file: str, options: Options, tool: str, delays: int, seed: int) -> Iterator[tuple[Report, str]]:
    """A report per kernel, and the author's file ('' for TIR). What is missing on this machine is said first."""
    tools = tools_of(tool)
    usable_device()
    find_sanitizer()
    for kernel, arrays, source in _subjects(file, options, seed):
        yield sanitize(kernel, arrays, tools, delays), source


def _subjects(file: str, options: Options, seed: int) -> Iterator[tuple[tir.Kernel, Mapping[str, np.ndarray], str]]:
    path, name = split(file)
    if is_tir(path):
        kernel = kernel_of_tir(path)
        if name not in (None, kernel.name):
            raise UnknownKernel(path=path, name=name, known=kernel.name)
        scalars = {str(s.name): s.dtype for s in kernel.arguments}
        sizes = trial_sizes(kernel, {n: v for n, v in options.settings.items() if n not in scalars})
        yield kernel, trial_arrays(kernel, sizes, seed) | scalars_of(scalars, options.settings), ""
        return
    from tidegate.cli.trial import default_sizes, draw, outputs, sizes_of

    chosen = kernels_of(file)
    for item in compiled(chosen, options):
        inputs = draw(item, chosen.inputs, default_sizes(item), options.settings, seed)
        sizes = sizes_of(item, inputs, default_sizes(item))
        yield item.kernel, {**inputs, **outputs(item, sizes)}, item.program.file


# ---------------------------------------------------------------------------------------------- text


def render(report: Report, source: str) -> str:
    """The report; ``source`` is the author's file, '' where there is none."""
    sizes = ", ".join(f"{n}={v}" for n, v in report.sizes.items()) or "all sizes fixed"
    lines = [f"{report.kernel} on {report.device}: {sizes}"]
    for run in report.tools:
        lines += _tool(run, source)
    lines += [f"  {'delay ' + str(run.seed):<10} {_delay(run)}" for run in report.delays]
    lines += ["  not seen", *(f"    {line}" for line in report.unseen)]
    return "\n".join(lines)


def _tool(run: ToolRun, source: str) -> Iterator[str]:
    count = len(run.findings)
    found = f"{count} finding{'s' * (count != 1)}" if count else "nothing found"
    yield f"  {run.tool:<10} {found if run.outcome == 'done' else f'{run.outcome}; {found}'}"
    for finding in run.findings:
        yield from _finding(finding, source)


def _finding(finding: Finding, source: str) -> Iterator[str]:
    yield f"    {finding.title}{f' ({finding.count} times)' if finding.count > 1 else ''}"
    for place in finding.places:
        yield f"      {place.access + ':' if place.access else 'at':<7} {_where(place)}"
        if place.source_line and source:
            yield f"              {source}:{place.source_line}: {linecache.getline(source, place.source_line).strip()}"


def _where(place: Place) -> str:
    cuda = f"line {place.cuda_line} of the CUDA text" if place.cuda_line else "a place without line information"
    return f"{place.statement}  ({cuda})" if place.statement else cuda


def _delay(run: DelayRun) -> str:
    if run.outcome != "done":
        return run.outcome
    parts = [f"{', '.join(run.changed)} MISMATCH with the run without delays"] if run.changed else []
    parts += ["guard bytes of shared memory were written"] if run.guard else []
    return "; ".join(parts) or "agrees with the run without delays"
