"""bf16 GEMM beside torch (cuBLAS) in one run: `python benchmarks/gemm.py [--sizes 4096,8192] [--repeat 20]`.

Needs a GPU and PyTorch. Inputs are random and rotate between calls so that no run finds its operands in L2 for free.
Medians of CUDA event times; the table says GPU, clocks and versions.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))


def clocks() -> str:
    """SM and memory clock as the driver reports them now."""
    command = ["nvidia-smi", "--query-gpu=name,clocks.sm,clocks.mem,driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "clocks unknown"


def measure(torch: Any, work: Callable[[int], None], repeat: int) -> tuple[float, float]:
    """Median and spread (largest minus smallest) of the time of one call in milliseconds."""
    for i in range(3):
        work(i)
    torch.cuda.synchronize()
    times = []
    for i in range(repeat):
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        work(i)
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop))
    return statistics.median(times), max(times) - min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="4096,8192")
    parser.add_argument("--repeat", type=int, default=20)
    options = parser.parse_args()
    import gemm
    import torch

    import tidegate

    rows = []
    for size in map(int, options.sizes.split(",")):
        sets = [[torch.randn(size, size, device="cuda").bfloat16() for _ in range(2)] for _ in range(3)]
        outputs = [torch.empty(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(3)]
        runs: dict[str, Callable[[int], Any]] = {
            "torch.matmul": lambda i, s=sets, o=outputs: torch.matmul(*s[i % 3], out=o[i % 3]),
        }
        for name in ("gemm_v0", "gemm_v1", "gemm_v2"):
            kernel = getattr(gemm, name)
            runs[f"tidegate {name}"] = lambda i, f=kernel, s=sets, o=outputs: f(*s[i % 3], o[i % 3])
        want = torch.matmul(*sets[0])
        for name, work in runs.items():
            work(0)
            torch.cuda.synchronize()
            error = ((outputs[0].float() - want.float()).norm() / want.float().norm()).item()
            median, spread = measure(torch, work, options.repeat)
            rows.append((size, name, median, spread, 2 * size**3 / median / 1e9, error))
    print(f"GPU: {clocks()}; torch {torch.__version__}, tidegate {tidegate.__version__}")
    print(f"{'size':>6} {'what':<18} {'ms':>8} {'spread':>8} {'TFLOP/s':>8} {'rel. diff':>10}")
    for size, name, median, spread, rate, error in rows:
        print(f"{size:>6} {name:<18} {median:>8.3f} {spread:>8.3f} {rate:>8.1f} {error:>10.2e}")


if __name__ == "__main__":
    main()
