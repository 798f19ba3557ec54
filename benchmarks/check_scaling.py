"""Time of the checker against the number of statements: ``python benchmarks/check_scaling.py [--factors 1,10,100]``.

A safe kernel's work is repeated: one after the other ('after': the body, or the body of each role, with its loops), or
inside its innermost loops ('inside'). Every repetition is as long as the first, uses the same shared memory and writes
outputs of its own. Time per statement should not grow with their number; 'growth' is its ratio to the row before.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "unit"))

from scaled import repeated

from tidegate.check import check
from tidegate.ir import tir
from tidegate.ir.text import parse_kernel

KERNELS = Path(__file__).parents[1] / "tests" / "mutants" / "kernels"
AFTER = ("row_private", "transpose4", "transpose_bar", "transpose_ring", "gemm_ring3", "tma_ring", "ping_pong")
INSIDE = ("row_private", "transpose4", "transpose_bar", "tma_ring", "ping_pong")


def seconds(kernel: tir.Kernel) -> tuple[float, str]:
    """Time of a check, and its status."""
    start = time.perf_counter()
    verdict = check(kernel)
    return time.perf_counter() - start, verdict.status + (f" ({verdict.reason})" if verdict.reason else "")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", nargs="*", help="of tests/mutants/kernels; default: some of each kind")
    parser.add_argument("--factors", default="1,10,100")
    options = parser.parse_args()
    print(f"{'kernel':<16} {'repeated':<8} {'statements':>10} {'seconds':>9} {'ms per statement':>17} {'growth':>8}")
    for inside, default in ((False, AFTER), (True, INSIDE)):
        for name in [n for n in default if not options.kernels or n in options.kernels]:
            kernel = parse_kernel((KERNELS / f"{name}.tir").read_text())
            before = 0.0
            for factor in map(int, options.factors.split(",")):
                large = repeated(kernel, factor, inside)
                count = len(tir.walk(large.body))
                spent, status = seconds(large)
                growth = f"{spent / count / before:>7.2f}x" if before else ""
                note = "" if status == "safe" else f"  {status}"
                where = "inside" if inside else "after"
                print(
                    f"{name:<16} {where:<8} {count:>10} {spent:>9.3f} {spent / count * 1e3:>17.2f} {growth:>8}{note}",
                    flush=True,
                )
                before = spent / count
    return 0


if __name__ == "__main__":
    sys.exit(main())
