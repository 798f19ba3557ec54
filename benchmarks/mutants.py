"""Breaks the examples in every known way and counts what the checker catches: ``python benchmarks/mutants.py``.

Every kernel of examples/ is planned for a target by each of its producers; ``--tir`` takes the kernels in TIR of the
tests instead. Prints one line per kernel, each mutant that is not caught, and totals per operator; the status is 1 if a
broken kernel is taken for safe.
"""

from __future__ import annotations

import argparse
import collections
import time
from collections.abc import Iterator
from pathlib import Path

from tidegate.check import check
from tidegate.check.mutate import OPERATORS
from tidegate.cli.files import kernel_of_tir, kernels_of
from tidegate.cli.mutation import OUTCOMES, mutate
from tidegate.cli.options import Options, compiled
from tidegate.ir import tir

ROOT = Path(__file__).parents[1]


def examples(target: str) -> Iterator[tuple[str, tir.Kernel]]:
    for path in sorted((ROOT / "examples").glob("*.py")):
        for plan in ("in_order", "multistage"):
            for item in compiled(kernels_of(str(path)), Options(target, plan, {})):
                yield f"{item.kernel.name} {plan}", item.kernel


def written_by_hand() -> Iterator[tuple[str, tir.Kernel]]:
    for path in sorted((ROOT / "tests").glob("*/**/*.tir")):
        if "verdict: unsafe" in path.read_text() or "golden" in path.parts:
            continue
        kernel = kernel_of_tir(str(path))
        if check(kernel).safe:
            yield path.stem, kernel


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="sm_90a")  # has the instructions of every example, and room
    parser.add_argument("--tir", action="store_true", help="the kernels of the tests, in TIR")
    options = parser.parse_args()
    totals: dict[int, collections.Counter[str]] = {o.number: collections.Counter() for o in OPERATORS}
    seen: set[tir.Kernel] = set()
    for name, kernel in written_by_hand() if options.tir else examples(options.target):
        if kernel in seen:
            continue
        seen.add(kernel)
        start = time.perf_counter()
        found = mutate(kernel)
        counts = ", ".join(f"{n} {outcome}" for outcome, n in found.counts.items() if n)
        print(f"{name:<36} {len(found.mutants):4} mutants  {time.perf_counter() - start:6.1f} s  {counts}", flush=True)
        for mutant in found.mutants:
            totals[mutant.operator][mutant.verdict] += 1
            if mutant.verdict != "caught":
                print(f"    {mutant.verdict}: {mutant.name}: {mutant.place} ({mutant.found})")
    print(f"\n{'operator':<40} {'mutants':>8}" + "".join(f"{outcome:>15}" for outcome in OUTCOMES))
    for operator in OPERATORS:
        row = totals[operator.number]
        print(f"{operator.number:2} {operator.name:<37} {row.total():>8}" + "".join(f"{row[o]:>15}" for o in OUTCOMES))
    every = sum(totals.values(), collections.Counter())
    print(f"{'all':<40} {every.total():>8}" + "".join(f"{every[outcome]:>15}" for outcome in OUTCOMES))
    return int(every["MISSED"] > 0)


if __name__ == "__main__":
    raise SystemExit(main())
