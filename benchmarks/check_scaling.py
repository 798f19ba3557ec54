"""Time of the checker against the number of statements: ``python benchmarks/check_scaling.py [--factors 1,10,100]``.

A safe kernel's body is repeated, loop indices renamed, so that every repetition is as long as the first and independent
of it but for the shared memory that they share. Time per statement should not grow with their number.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from tidegate.check import check
from tidegate.ir import tir
from tidegate.ir.text import parse_kernel, print_kernel

KERNELS = Path(__file__).parents[1] / "tests" / "mutants" / "kernels"
DEFAULT = ("row_private", "transpose1", "transpose4", "transpose_bar", "transpose_ring", "shared_bytes")


def repeated(kernel: tir.Kernel, times: int) -> tir.Kernel:
    """The kernel with its body ``times`` times in a row, and a barrier in between; for kernels without roles.

    Cursors go on where they are, as those of both sides of a ring do, and each repetition writes an output of its own.
    """
    head, body = print_kernel(kernel).split("body {\n")
    lines = body.rstrip().removesuffix("}").rstrip().splitlines()
    loops = sorted({s.index for s in tir.walk(kernel.body) if isinstance(s, tir.For)})
    outputs = [p.name for p in kernel.params if p.output]
    params = [line for line in head.splitlines() if line.startswith("param ") and " out" in line]
    copies, more = [], []
    for number in range(times):
        text = "\n".join(lines)
        for name in loops if number else ():
            text = _renamed(text, name, f"{name}_{number}")
        for name in outputs if number else ():
            text = _renamed(text, name, f"{name}_{number}")
        more += [_renamed(line, line.split()[1], f"{line.split()[1]}_{number}") for line in params if number]
        copies += [text, "  sync_block"]
    place = head.index(params[-1]) + len(params[-1])
    wide = head[:place] + "".join("\n" + line for line in more) + head[place:]
    return parse_kernel(f"{wide}body {{\n" + "\n".join(copies) + "\n}\n")


def _renamed(text: str, old: str, new: str) -> str:
    import re

    return re.sub(rf"(?<![\w.#]){old}(?!\w)", new, text)


def seconds(kernel: tir.Kernel) -> float:
    start = time.perf_counter()
    verdict = check(kernel)
    spent = time.perf_counter() - start
    if not verdict.safe:
        sys.exit(f"{kernel.name} should be safe:\n{verdict.text()}")
    return spent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", nargs="*", default=DEFAULT)
    parser.add_argument("--factors", default="1,10,100")
    options = parser.parse_args()
    factors = [int(f) for f in options.factors.split(",")]
    print(f"{'kernel':<16} {'statements':>10} {'seconds':>9} {'ms per statement':>17} {'growth':>8}")
    for name in options.kernels:
        kernel = parse_kernel((KERNELS / f"{name}.tir").read_text())
        before = None
        for factor in factors:
            large = repeated(kernel, factor)
            count = len(tir.walk(large.body))
            spent = seconds(large)
            growth = f"{spent / before[1] / (count / before[0]):>7.2f}x" if before else ""
            print(f"{name:<16} {count:>10} {spent:>9.3f} {spent / count * 1e3:>17.2f} {growth:>8}", flush=True)
            before = (count, spent)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
