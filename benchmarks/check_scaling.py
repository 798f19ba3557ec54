"""Time of the checker against the number of statements: ``python benchmarks/check_scaling.py [--factors 1,10,100]``.

A safe kernel's work is repeated: one after the other ('after': the body, or the body of each role, with its loops), or
inside its innermost loops ('inside'). Every repetition is as long as the first, uses the same shared memory and writes
outputs of its own. Time per statement should not grow with their number; 'growth' is its ratio to the row before.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path

from tidegate.check import check
from tidegate.check.rewrite import mapped
from tidegate.ir import tir
from tidegate.ir.text import parse_kernel

KERNELS = Path(__file__).parents[1] / "tests" / "mutants" / "kernels"
AFTER = ("row_private", "transpose4", "transpose_bar", "transpose_ring", "gemm_ring3", "tma_ring", "ping_pong")
INSIDE = ("row_private", "transpose4", "transpose_bar", "tma_ring", "ping_pong")

Body = tuple[tir.Stmt, ...]


def repeated(kernel: tir.Kernel, times: int, inside: bool = False) -> tir.Kernel:
    """The kernel with its work ``times`` times; cursors go on where they are, as those of both sides of a ring do."""
    outputs = [p for p in kernel.params if p.output]
    more = tuple(replace(p, name=numbered(p.name, n)) for n in range(1, times) for p in outputs)
    if inside:
        body = innermost(kernel.body, times)
    elif kernel.roles:
        body = tuple(replace(s, body=copies(s.body, times)) if isinstance(s, tir.InRole) else s for s in kernel.body)
    else:
        body = copies((*kernel.body, tir.SyncBlock()), times)
    return replace(kernel, params=(*kernel.params, *more), body=body)


def numbered(name: str, number: int) -> tir.Name:
    return tir.Name(f"{name}_{number}" if number else name)


def copies(body: Body, times: int) -> Body:
    """The statements ``times`` times, each time with outputs of its own."""

    def to(number: int, stmt: tir.Stmt) -> Body:
        if isinstance(stmt, (tir.StGlobal, tir.TmaStore)):
            return (replace(stmt, dst=replace(stmt.dst, tensor=numbered(stmt.dst.tensor, number))),)
        return (stmt,)

    return tuple(s for number in range(times) for s in mapped(body, lambda stmt, n=number: to(n, stmt)))


def innermost(body: Body, times: int) -> Body:
    """The bodies of the innermost loops ``times`` times."""
    out: list[tir.Stmt] = []
    for stmt in body:
        if isinstance(stmt, tir.For) and not any(isinstance(s, tir.For) for s in tir.walk(stmt.body)):
            out.append(replace(stmt, body=copies(stmt.body, times)))
        elif isinstance(stmt, (tir.For, tir.If, tir.InRole)):
            out.append(replace(stmt, body=innermost(stmt.body, times)))
        else:
            out.append(stmt)
    return tuple(out)


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
