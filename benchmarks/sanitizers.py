"""What checker, sanitizer, plain and delayed runs catch: ``python benchmarks/sanitizers.py STEP DIR``.

Takes the kernels of tests/mutants/kernels with their mutants, and tests/corpus, as far as they can be emitted. Three
steps, of which only the second needs a GPU and compute-sanitizer:

  build   checks, emits and compiles everything into DIR (--arch, --most mutants per kernel and operator)
  run     runs DIR under each tool, plainly and with delays; leaves texts and results.json in DIR (or --out)
  report  prints the table (--from, where the results are, if not in DIR)

A kernel is broken if the checker says unsafe. 'wrong numbers' compares with the correct kernel that it was made from.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tidegate.check import check
from tidegate.check.mutate import OPERATORS
from tidegate.emit import Delays, emit, traced
from tidegate.emit.delays import guarded
from tidegate.errors import TidegateError
from tidegate.ir import tir
from tidegate.ir.text import parse_kernel
from tidegate.runtime import batch
from tidegate.runtime.sanitize import TOOLS, around, changed, find_sanitizer, findings
from tidegate.runtime.sanitizer_text import parse, summary
from tidegate.runtime.trial_sizes import trial_arrays, trial_sizes

ROOT = Path(__file__).parents[1]
KERNELS, CORPUS = ROOT / "tests" / "mutants" / "kernels", ROOT / "tests" / "corpus"
SEEDS = (0, 1, 2)
SHARED = 232_448
TOGETHER, AT_ONCE = 4, 8
"""Kernels per process under a tool, and such processes."""

SIZES = {"gemm": {"M": 130, "N": 136, "K": 200}}
"""Where the default sizes would make the run long, by the kernel's name up to '_'."""


@dataclass(frozen=True)
class Case:
    """``origin``: the case that it was made from, '' where it is the correct one; ``name``: of its entry point too."""

    name: str
    label: str
    fault: str
    origin: str
    status: str
    kind: str
    sizes: Mapping[str, int]


# ---------------------------------------------------------------------------------------------- build


def subjects(most: int) -> Iterator[tuple[str, str, str, tir.Kernel, dict[str, int]]]:
    """Label, fault, label of the correct kernel, kernel, sizes."""
    for path in sorted(KERNELS.glob("*.tir")):
        kernel = parse_kernel(path.read_text())
        sizes = trial_sizes(kernel, SIZES.get(kernel.name.split("_")[0], {}))
        yield path.stem, "none", "", kernel, sizes
        for operator in OPERATORS:
            for _, (what, mutant) in zip(range(most), operator.apply(kernel), strict=False):
                yield f"{path.stem}: {what}", operator.name, path.stem, mutant, sizes
    for path in sorted(CORPUS.glob("*.tir")):
        kernel, sizes, head = corpus(path)
        fault = re.sub(r"^\d+ ", "", head.get("fault", "")).lower() if "twin" in head else "none"
        twin = CORPUS / f"{head.get('twin')}.tir"
        origin = twin.stem if twin.exists() else ""
        if origin and (other := corpus(twin))[1] != sizes and set(other[1]) == set(sizes):
            origin = f"{twin.stem} for {path.stem}"
            yield origin, "none", "", other[0], sizes
        yield path.stem, fault, origin, kernel, sizes


def corpus(path: Path) -> tuple[tir.Kernel, dict[str, int], dict[str, str]]:
    """A kernel of the corpus, the largest of the sizes that its head gives, and the head."""
    text = path.read_text()
    head = dict(re.findall(r"^// (\w+): (.*)$", text, re.MULTILINE))
    kernel = parse_kernel(text)
    runs = [dict(re.findall(r"(\w+)=(\d+)", run)) for run in head.get("runs", "").split("|")]
    largest = max(runs, key=lambda r: sum(map(int, r.values())))
    free = {d.name for d in kernel.dims if d.value is None}
    return kernel, trial_sizes(kernel, {n: int(v) for n, v in largest.items() if n in free}), head


def build(place: Path, arch: str, most: int) -> None:
    place.mkdir(parents=True, exist_ok=True)
    todo = []
    for number, (label, fault, origin, kernel, sizes) in enumerate(subjects(most)):
        try:
            emit(kernel)
        except TidegateError:
            continue
        name = f"k{number:03d}_{kernel.name}"
        todo.append((place, arch, label, fault, origin, replace(kernel, name=tir.Name(name)), sizes))
    with ProcessPoolExecutor(2) as pool:
        cases = [case for case in pool.map(_build, todo) if case]
    (place / "cases.json").write_text(json.dumps([asdict(c) for c in cases], indent=1))
    print(f"{len(cases)} kernels, {sum(c.status == 'unsafe' for c in cases)} unsafe")


def _build(job: tuple[Path, str, str, str, str, tir.Kernel, dict[str, int]]) -> Case | None:
    from tidegate.runtime.compile import cubin

    place, arch, label, fault, origin, kernel, sizes = job
    verdict = check(kernel)
    kind = verdict.findings[0].kind if verdict.findings else ""
    if kind == "malformed":  # refused before anything runs
        return None
    name = str(kernel.name)
    arrays = place / f"{name}.npz"
    try:
        batch.store_arrays(arrays, trial_arrays(kernel, sizes))
        batch.store(place, name, kernel, cubin(traced(emit(kernel)), arch, f"{name}.cu").code, arch, arrays)
        padded, guard = guarded(kernel, SHARED)
        for seed in SEEDS:
            code = cubin(emit(padded, Delays(seed, guard)), arch).code
            extra = {guard: np.zeros(1, np.float32)} if guard else {}
            batch.store_arrays(place / f"{name}.guard.npz", {**trial_arrays(kernel, sizes), **extra})
            batch.store(place, f"{name}.d{seed}", padded, code, arch, place / f"{name}.guard.npz")
    except TidegateError as error:
        print(f"{label}: {error.text.splitlines()[0]}")
        return None
    return Case(name, label, fault, origin, verdict.status, kind, sizes)


# ---------------------------------------------------------------------------------------------- run


def run(place: Path, out: Path, seconds: float) -> None:
    cases = [Case(**c) for c in json.loads((place / "cases.json").read_text())]
    names = [c.name for c in cases]
    results: dict[str, Any] = {"machine": machine(), "seconds": {}}
    for tool in ("", *TOOLS):
        start = time.perf_counter()
        if tool:
            outcome = watched(place, names, around(find_sanitizer(), tool), seconds)
        else:
            outcome = batch.run_all(place, names, limit=5.0, total=seconds)
        results["seconds"][tool or "plain"] = round(time.perf_counter() - start, 1)
        results[tool or "plain"] = dict(outcome.status)
        (out / f"{tool or 'plain'}.txt").write_text(outcome.text)
        if not tool:
            results["wrong"] = wrong(place, cases, outcome.status, "")
    start = time.perf_counter()
    delayed = [f"{n}.d{seed}" for n in names for seed in SEEDS]
    outcome = batch.run_all(place, delayed, limit=5.0, total=seconds)
    results["delayed"] = dict(outcome.status)
    results["delayed wrong"] = {seed: wrong(place, cases, outcome.status, f".d{seed}") for seed in SEEDS}
    results["seconds"]["delayed"] = round(time.perf_counter() - start, 1)
    (out / "results.json").write_text(json.dumps(results, indent=1))
    print(results["machine"], results["seconds"])


def watched(place: Path, names: list[str], watch: list[str], seconds: float) -> batch.Outcome:
    """A few kernels per process: of many, racecheck silently reports the first ones only."""
    groups = [names[at : at + TOGETHER] for at in range(0, len(names), TOGETHER)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        parts = list(pool.map(lambda group: batch.run_all(place, group, watch, 20.0, seconds), groups))
    return batch.Outcome({n: s for p in parts for n, s in p.status.items()}, "".join(p.text for p in parts))


def machine() -> str:
    """GPU, driver and sanitizer."""
    import subprocess

    def said(*command: str) -> str:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout

    gpu = said("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader").strip()
    version = re.search(r"Version (\S+)", said(find_sanitizer(), "--version"))
    return f"{gpu}, compute-sanitizer {version[1] if version else '?'}"


def wrong(place: Path, cases: list[Case], status: Mapping[str, str], suffix: str) -> dict[str, str]:
    """Per case that ran: 'wrong', 'guard', 'same', or 'no reference'."""
    by_label = {c.label: c for c in cases}
    found = {}
    for case in cases:
        if status.get(case.name + suffix) != "done":
            continue
        kernel = parse_kernel((place / f"{case.name}{suffix}.tir").read_text())
        got = batch.read_arrays(place / f"{case.name}{suffix}.out.npz", kernel)
        origin = by_label.get(case.origin) if case.origin else case
        path = place / f"{origin.name}.out.npz" if origin else None
        if origin is None or path is None or not path.exists() or origin.sizes != case.sizes:
            found[case.name] = "no reference"
            continue
        good = batch.read_arrays(path, parse_kernel((place / f"{origin.name}.tir").read_text()))
        if any(n not in got or got[n].shape != a.shape for n, a in good.items()):
            found[case.name] = "no reference"
        elif changed(good, got):
            found[case.name] = "wrong"
        else:
            guard = [a for n, a in got.items() if n not in good]
            found[case.name] = "guard" if any(a.any() for a in guard) else "same"
    return found


# ---------------------------------------------------------------------------------------------- report


def report(place: Path, source: Path) -> None:
    cases = [Case(**c) for c in json.loads((place / "cases.json").read_text())]
    results = json.loads((source / "results.json").read_text())
    caught = {tool: _reported(place, cases, tool, (source / f"{tool}.txt").read_text()) for tool in TOOLS}
    hung = {t: {n for n, s in results[t].items() if s == "hung"} for t in (*TOOLS, "plain", "delayed")}
    plain = {n for n, w in results["wrong"].items() if w == "wrong"} | hung["plain"]
    late = {n for table in results["delayed wrong"].values() for n, w in table.items() if w in ("wrong", "guard")}
    late |= {n.rsplit(".", 1)[0] for n in hung["delayed"]}
    failed = {n for n, s in results["plain"].items() if s not in ("done", "hung")}
    columns = {**{t: caught[t] | hung[t] for t in TOOLS}, "plain": plain | failed, "delay": late}
    print(f"{results['machine']}; seconds: {results['seconds']}\n")
    at_size = {c.name for c in cases if c.status == "unsafe" and unsafe_here(place, c)}
    table(cases, columns, at_size)
    unclean = [c for c in cases if c.status == "safe" and any(c.name in names for names in columns.values())]
    print("\nSafe kernels with a report:")
    for case in unclean:
        print(f"  {case.label}: {', '.join(t for t, names in columns.items() if case.name in names)}")
    print("\nNot caught by anything but the checker:")
    missed = [c for c in cases if c.status == "unsafe" and not any(c.name in names for names in columns.values())]
    for case in missed:
        print(f"  {case.label} ({case.kind}){'' if case.name in at_size else ': not at the size run'}")
    odd = {t: {n: s for n, s in results[t].items() if s != "done"} for t in (*TOOLS, "plain", "delayed")}
    print("\nNot done:", json.dumps(odd, indent=1))


def unsafe_here(place: Path, case: Case) -> bool:
    """Whether the checker says unsafe for the sizes that were run."""
    kernel = parse_kernel((place / f"{case.name}.tir").read_text())
    return check(kernel, {d.name: case.sizes[d.name] for d in kernel.dims if d.value is None}).status == "unsafe"


def _reported(place: Path, cases: list[Case], tool: str, text: str) -> set[str]:
    """Kernels with a finding; and how many findings lead to a statement."""
    names = {c.name for c in cases}
    records = parse(tool, text)
    located = total = 0
    for name in sorted({r.unit for r in records} & names):
        kernel = parse_kernel((place / f"{name}.tir").read_text())
        cuda = emit(kernel)
        for finding in findings(kernel, cuda, [r for r in records if r.unit == name]):
            total += 1
            located += all(p.statement for p in finding.places)
    count = summary(text)
    print(f"{tool}: {total} findings, {located} located at a statement on every side; the tool's count: {count}")
    lost = [r for r in records if r.unit not in names]
    if lost:
        print(f"{tool}: {len(lost)} records without a kernel, e.g. {lost[0]}")
    return {r.unit for r in records} & names


def table(cases: list[Case], columns: Mapping[str, set[str]], at_size: set[str]) -> None:
    """Markdown: per fault, of how many unsafe kernels each way caught how many."""
    print(f"| fault | unsafe kernels | checker | of these at the size run | {' | '.join(columns)} | only the checker |")
    print(f"|---|{'---|' * (4 + len(columns))}")
    anything = set().union(*columns.values())
    groups: dict[str, list[Case]] = {}
    for case in cases:
        if case.status == "unsafe":
            groups.setdefault(case.fault, []).append(case)
    everything = [c for group in groups.values() for c in group]
    for fault, group in [*sorted(groups.items()), ("**all**", everything)]:
        counts = [sum(c.name in names for c in group) for names in columns.values()]
        counts.append(sum(c.name not in anything for c in group))
        here = sum(c.name in at_size for c in group)
        print(f"| {fault} | {len(group)} | {len(group)} | {here} | {' | '.join(map(str, counts))} |")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=["build", "run", "report"])
    parser.add_argument("place", type=Path, metavar="DIR")
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--most", type=int, default=2, metavar="N", help="mutants per kernel and operator")
    parser.add_argument("--seconds", type=float, default=600.0, help="limit per tool")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--from", type=Path, dest="source")
    options = parser.parse_args()
    if options.step == "build":
        build(options.place, options.arch, options.most)
    elif options.step == "run":
        run(options.place, options.out or options.place, options.seconds)
    else:
        report(options.place, options.source or options.out or options.place)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
