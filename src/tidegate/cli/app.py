"""The commands; each is a few lines around what the other rooms do."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Annotated, Any

import typer

from tidegate.cli.files import Chosen, is_tir, kernel_of_tir, kernels_of, split
from tidegate.cli.options import Options, compile_kernel, compiled, planned, settings_for, settings_of
from tidegate.cli.terminal import print_json, progress, reporting, show
from tidegate.errors import BadSetting, UnknownKernel

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Plans, checks, simulates and compiles asynchronous GPU tile kernels.",
    epilog="Exit status: 0 everything agreed; 1 a mismatch, or unsafe (of run: or not proved); "
    "2 refused, or wrong usage; 3 of check: nothing unsafe, but not proved.",
)

File = Annotated[str, typer.Argument(metavar="FILE[:KERNEL]", help="A Python file; all its kernels, or the one named.")]
AnyFile = Annotated[
    str, typer.Argument(metavar="FILE[:KERNEL]", help="A Python file (all kernels, or the one named), or a .tir file.")
]
Target = Annotated[str | None, typer.Option("--target", metavar="T", help="e.g. h200; default: the GPU here.")]
Plan = Annotated[str | None, typer.Option("--plan", metavar="P", help="A plan producer, or a saved plan.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A constant, a size, a scalar, warps, .. May be repeated."),
]
# Commands that draw nothing take it too: changing the verb of a command line must not make it an error.
Seed = Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Draws inputs and interleavings.")]
Json = Annotated[bool, typer.Option("--json", help="Machine readable output.")]


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", is_eager=True, help="Show the version and exit.")] = False,
) -> None:
    if version:
        from tidegate import __version__

        print(f"tidegate {__version__}")
        raise typer.Exit


def _options(target: str | None, plan: str | None, settings: list[str] | None) -> Options:
    if target is not None:
        from tidegate.target.target import find

        target = find(target).name  # an unknown target is the first thing to say
    return Options(target, plan, settings_of(settings or ()))


def _emit(
    named: bool, items: Iterable[Any], as_json: bool, data: Callable[[Any], Any], text: Callable[[Any], str]
) -> None:
    """One object for a kernel that was named, else a list; or texts, a blank line between them."""
    if as_json:
        found = [data(item) for item in items]
        print_json(found[0] if named else found)
        return
    for number, item in enumerate(items):
        show(("\n" if number else "") + text(item).rstrip("\n"))


NOT_PROVED = 3
"""Exit status of ``check`` when nothing is unsafe and something is not proved."""


@app.command()
def run(
    file: File, target: Target = None, plan: Plan = None, set_: Set = None, seed: Seed = 0, as_json: Json = False
) -> None:
    """Plan, check, simulate, compile and run; compare with the plain program."""
    with reporting(as_json):
        from tidegate.cli.trial import agreed, trial
        from tidegate.explain.summary import summary

        chosen, options = kernels_of(file), _options(target, plan, set_)
        results = []
        for item in compiled(chosen, options):
            results.append(trial(item, chosen.inputs, options.settings, seed, progress))
            if not as_json:
                show(("\n" if len(results) > 1 else "") + summary(results[-1]))
        if as_json:
            print_json(results)
        if not all(map(agreed, results)):
            raise SystemExit(1)


@app.command("plan")
def plan_(
    file: File, target: Target = None, plan: Plan = None, set_: Set = None, seed: Seed = 0, as_json: Json = False
) -> None:
    """Show the plan; with --json, one that --plan reads back."""
    with reporting(as_json):
        chosen = kernels_of(file)
        items = compiled(chosen, _options(target, plan, set_))
        _emit(chosen.named, items, as_json, lambda c: c.plan.to_json(), lambda c: str(c.plan))


@app.command()
def explain(
    file: File, target: Target = None, plan: Plan = None, set_: Set = None, seed: Seed = 0, as_json: Json = False
) -> None:
    """Say for every sync what it protects and what breaks without it."""
    with reporting(as_json):
        from tidegate.explain.syncs import explanation, render

        chosen = kernels_of(file)
        items = compiled(chosen, _options(target, plan, set_))
        _emit(
            chosen.named,
            items,
            as_json,
            lambda c: explanation(c.plan, c.legal).to_json(),
            lambda c: render(explanation(c.plan, c.legal)),
        )


@app.command()
def tir(
    file: AnyFile, target: Target = None, plan: Plan = None, set_: Set = None, seed: Seed = 0, as_json: Json = False
) -> None:
    """Show the explicit program that is checked, simulated and emitted."""
    with reporting(as_json):
        from tidegate.ir.text import print_kernel

        named, kernels = _lowered(file, _options(target, plan, set_))
        _emit(named, kernels, as_json, lambda k: _text(k, print_kernel(k)), print_kernel)


@app.command()
def cuda(
    file: AnyFile, target: Target = None, plan: Plan = None, set_: Set = None, seed: Seed = 0, as_json: Json = False
) -> None:
    """Show the CUDA C++ text."""
    with reporting(as_json):
        from tidegate.emit import emit

        named, kernels = _lowered(file, _options(target, plan, set_))
        _emit(named, kernels, as_json, lambda k: _text(k, emit(k)), emit)


@app.command()
def smem(
    file: File, target: Target = None, plan: Plan = None, set_: Set = None, seed: Seed = 0, as_json: Json = False
) -> None:
    """Show where every buffer lies in shared memory, and how many stages would fit."""
    with reporting(as_json):
        chosen = kernels_of(file)
        items = _memory(chosen, _options(target, plan, set_))
        _emit(chosen.named, items, as_json, lambda m: m.to_json(), str)


@app.command()
def check(
    file: AnyFile,
    replayed: Annotated[bool, typer.Option("--replay", help="Replay the witness in the simulator.")] = False,
    target: Target = None,
    plan: Plan = None,
    set_: Set = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Ask the independent checker whether every access is ordered, for every size and timing."""
    with reporting(as_json):
        options = _options(target, plan, set_)
        sizes = options.settings if is_tir(split(file)[0]) else {}
        named, kernels = _lowered(file, replace(options, settings={}) if sizes else options)
        verdicts = []
        for kernel in kernels:
            with progress(f"{kernel.name}: check"):
                from tidegate.check import check as verdict_of

                verdict = verdict_of(kernel, sizes)
                verdicts.append((verdict, _replayed(kernel, verdict) if replayed else None))

        def plain(pair: Any) -> dict[str, Any]:
            return {**pair[0].to_json(), **({"replay": pair[1].to_json()} if pair[1] else {})}

        _emit(named, verdicts, as_json, plain, lambda pair: "\n".join(str(x) for x in pair if x))
        if not all(v.safe for v, _ in verdicts):
            raise SystemExit(1 if any(v.status == "unsafe" for v, _ in verdicts) else NOT_PROVED)


def _replayed(kernel: Any, verdict: Any) -> Any:
    """The witness of an unsafe verdict, replayed; None where there is none."""
    from tidegate.runtime.replay import replay

    malformed = any(f.kind == "malformed" for f in verdict.findings)
    return replay(kernel, verdict) if verdict.status == "unsafe" and not malformed else None


@app.command()
def sanitize(
    file: AnyFile,
    tool: Annotated[str, typer.Option("--tool", metavar="T", help="memcheck, racecheck, synccheck or all.")] = "all",
    delay: Annotated[int, typer.Option("--delay", metavar="N", min=0, max=64, help="Runs with delays injected.")] = 0,
    target: Target = None,
    plan: Plan = None,
    set_: Set = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Run on the GPU under compute-sanitizer; findings point at the TIR and the source."""
    with reporting(as_json):
        from tidegate.cli.watched import render, reports

        named = is_tir(split(file)[0]) or split(file)[1] is not None
        found = []
        for report, source in reports(file, _options(target, plan, set_), tool, delay, seed):
            found.append(report)
            if not as_json:
                show(("\n" if len(found) > 1 else "") + render(report, source))
        if as_json:
            print_json(found[0].to_json() if named else [r.to_json() for r in found])
        if not all(r.clean for r in found):
            raise SystemExit(1)


@app.command()
def mutate(
    file: AnyFile, target: Target = None, plan: Plan = None, set_: Set = None, seed: Seed = 0, as_json: Json = False
) -> None:
    """Break the kernel in every known way, and show which of it the checker catches."""
    with reporting(as_json):
        from tidegate.cli.mutation import mutate as mutants_of

        named, kernels = _lowered(file, _options(target, plan, set_))
        found = []
        for kernel in kernels:
            with progress(f"{kernel.name}: mutants"):
                found.append(mutants_of(kernel, seed))
        _emit(named, found, as_json, lambda m: m.to_json(), str)
        if not all(m.passed for m in found):
            raise SystemExit(1)


@app.command()
def errors(
    code: Annotated[
        str | None, typer.Argument(metavar="[CODE]", help="e.g. TG401 or OverCapacity; default: list all.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List the errors, or explain one."""
    with reporting(as_json):
        from tidegate.explain.errors import entries, entry, listing

        if code is None:
            print_json([e.to_json() for e in entries()]) if as_json else show(listing())
        else:
            print_json(entry(code).to_json()) if as_json else show(str(entry(code)))


def _lowered(file: str, options: Options) -> tuple[bool, Iterable[Any]]:
    """TIR kernels, and whether a single one was named."""
    path, name = split(file)
    if is_tir(path):
        kernel = kernel_of_tir(path)
        if name not in (None, kernel.name):
            raise UnknownKernel(path=path, name=name, known=kernel.name)
        for setting, value in options.settings.items():
            raise BadSetting(
                text=f"{setting}={value}", reason="the kernel is TIR as it stands, of which nothing is open"
            )
        return True, [kernel]
    chosen = kernels_of(file)
    return chosen.named, (c.kernel for c in compiled(chosen, options))


def _memory(chosen: Chosen, options: Options) -> Iterable[Any]:
    """Memory reports: without a plan, from the allocation alone."""
    chosen = planned(chosen, options)
    given, options = settings_for(chosen, options.settings), options.of(chosen)
    for kernel in chosen.kernels:
        if options.plan is None:
            yield kernel.smem(options.machine(), **given[kernel])
        else:
            yield compile_kernel(kernel, options, given[kernel]).smem


def _text(kernel: Any, text: str) -> dict[str, str]:
    return {"kernel": kernel.name, "target": kernel.target, "text": text}
