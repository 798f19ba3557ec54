"""Tidegate beside its peers in one run: `python benchmarks/peers.py [gemm rows attention launch] [--repeat 20]`.

Needs a GPU and PyTorch. Inputs are random and rotate between calls so that no run finds its operands in L2 for free.
Medians of CUDA event times with their spread (largest minus smallest); the table says GPU, clocks and versions.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

SETS = 3
"""Input sets that calls rotate through."""

BATCH = 2 * SETS
"""Calls per sample."""


@dataclass(frozen=True)
class Row:
    """One measurement: ``rate`` in ``unit``, ``error`` relative to torch's result."""

    case: str
    what: str
    ms: float
    spread: float
    rate: float
    unit: str
    error: float


def clocks() -> str:
    """GPU, SM and memory clock and driver, as the driver reports them now."""
    command = ["nvidia-smi", "--query-gpu=name,clocks.sm,clocks.mem,driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "GPU and clocks unknown"


def measure(work: Callable[[int], Any], repeat: int) -> tuple[float, float]:
    """Median and spread of the time of one call in milliseconds. Each sample times BATCH calls in a row, so that the
    host runs ahead and its own time does not count."""
    import torch

    for i in range(SETS):
        work(i)
    torch.cuda.synchronize()
    times = []
    for _ in range(repeat):
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for i in range(BATCH):
            work(i)
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop) / BATCH)
    return statistics.median(times), max(times) - min(times)


def compare(
    case: str, runs: dict[str, Callable[[int], Any]], amount: float, unit: str, result: Callable[[], Any], repeat: int
) -> Iterator[Row]:
    """Measures each run; ``amount`` is the work of a call in units of ``unit`` seconds; the first is the reference."""
    import torch

    want = None
    for what, work in runs.items():
        got = work(0)
        torch.cuda.synchronize()
        got = (result() if got is None else got).float()
        want = got.clone() if want is None else want
        error = ((got - want).norm() / want.norm()).item()
        ms, spread = measure(work, repeat)
        yield Row(case, what, ms, spread, amount / ms * 1e3, unit, error)


def gemm(repeat: int) -> Iterator[Row]:
    import gemm as kernels
    import torch

    for size in (4096, 8192):
        sets = [[torch.randn(size, size, device="cuda").bfloat16() for _ in range(2)] for _ in range(SETS)]
        outs = [torch.empty(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(SETS)]
        runs: dict[str, Callable[[int], Any]] = {
            "torch.matmul (cuBLAS)": lambda i, s=sets, o=outs: torch.matmul(*s[i % SETS], out=o[i % SETS])
        }
        for name in ("gemm_v0", "gemm_v1", "gemm_v2"):
            kernel = getattr(kernels, name)
            runs[f"tidegate {name}"] = lambda i, f=kernel, s=sets, o=outs: f(*s[i % SETS], o[i % SETS])
        yield from compare(f"gemm {size}^3 bf16", runs, 2 * size**3 / 1e12, "TFLOP/s", lambda o=outs: o[0], repeat)


def rows(repeat: int) -> Iterator[Row]:
    import torch
    from layernorm import layernorm
    from rmsnorm import rmsnorm
    from softmax import softmax

    count, columns = 8192, 8192
    inputs = [torch.randn(count, columns, device="cuda").bfloat16() for _ in range(SETS)]
    outs = [torch.empty_like(x) for x in inputs]
    gain, bias = (torch.randn(columns, device="cuda").bfloat16() for _ in range(2))
    nn = torch.nn.functional
    traffic = 2 * count * columns * 2 / 1e9

    def pair(name: str, peer: Callable[[Any], Any], kernel: Any, *vectors: Any) -> Iterator[Row]:
        runs = {
            f"torch {name}": lambda i: peer(inputs[i % SETS]),
            f"tidegate {name}": lambda i: kernel(inputs[i % SETS], *vectors, outs[i % SETS]),
        }
        yield from compare(f"{name} {count}x{columns} bf16", runs, traffic, "GB/s", lambda: outs[0], repeat)

    copy: dict[str, Callable[[int], Any]] = {"torch copy": lambda i: outs[i % SETS].copy_(inputs[i % SETS])}
    yield from compare(f"copy {count}x{columns} bf16", copy, traffic, "GB/s", lambda: outs[0], repeat)
    yield from pair("softmax", lambda x: nn.softmax(x, dim=1), softmax)
    yield from pair("rmsnorm", lambda x: nn.rms_norm(x, (columns,), gain, 1e-6), rmsnorm, gain)
    yield from pair("layernorm", lambda x: nn.layer_norm(x, (columns,), gain, bias, 1e-5), layernorm, gain, bias)


def attention(repeat: int) -> Iterator[Row]:
    import attention_small as kernels
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    batch, heads, length = 4, 16, 4096
    for width in (64, 128):
        sets = [
            [torch.randn(batch, heads, length, width, device="cuda").bfloat16() for _ in range(3)] for _ in range(SETS)
        ]
        outs = [torch.empty_like(s[0]) for s in sets]
        for causal, kernel in ((False, kernels.attention), (True, kernels.attention_causal)):

            def flash(i: int, sets: Any = sets, causal: bool = causal) -> Any:
                with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
                    return torch.nn.functional.scaled_dot_product_attention(*sets[i % SETS], is_causal=causal)

            runs: dict[str, Callable[[int], Any]] = {
                "torch FlashAttention-2": flash,
                f"tidegate {kernel.name}": lambda i, f=kernel, s=sets, o=outs: f(*s[i % SETS], o[i % SETS]),
            }
            flops = 4 * batch * heads * length**2 * width / 1e12 / (2 if causal else 1)
            case = f"{'causal' if causal else 'attention'} {length} head {width}"
            yield from compare(case, runs, flops, "TFLOP/s", lambda o=outs: o[0], repeat)


def launch(repeat: int) -> Iterator[Row]:
    """Host time per call of a kernel that does almost nothing."""
    import torch
    from row_ring import row_ring

    x = torch.randn(1, 128, device="cuda")
    y = torch.empty_like(x)
    runs: dict[str, Callable[[], Any]] = {
        "torch.add": lambda: torch.add(x, x, out=y),
        "tidegate row_ring": lambda: row_ring(x, y),
    }
    for what, work in runs.items():
        for _ in range(100):
            work()
        times = []
        for _ in range(repeat):
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(200):
                work()
            times.append((time.perf_counter() - start) / 200 * 1e3)
        ms = statistics.median(times)
        yield Row("host time per call", what, ms, max(times) - min(times), ms * 1e3, "us", 0.0)


SECTIONS: dict[str, Callable[[int], Iterator[Row]]] = {
    "gemm": gemm,
    "rows": rows,
    "attention": attention,
    "launch": launch,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sections", nargs="*", help=", ".join(SECTIONS))
    parser.add_argument("--repeat", type=int, default=20)
    options = parser.parse_args()
    unknown = set(options.sections) - set(SECTIONS)
    if unknown:
        parser.error(f"no section {', '.join(sorted(unknown))}")
    import torch

    import tidegate

    found = [row for name in options.sections or SECTIONS for row in SECTIONS[name](options.repeat)]
    print(f"{clocks()}; torch {torch.__version__}, CUDA {torch.version.cuda}, tidegate {tidegate.__version__}")
    print(f"{'case':<26} {'what':<24} {'ms':>9} {'spread':>8} {'rate':>9} {'unit':<8} {'rel. diff':>9}")
    for r in found:
        print(f"{r.case:<26} {r.what:<24} {r.ms:>9.4f} {r.spread:>8.4f} {r.rate:>9.1f} {r.unit:<8} {r.error:>9.1e}")


if __name__ == "__main__":
    main()
