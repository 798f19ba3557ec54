"""Tidegate beside its peers in one run: `python benchmarks/peers.py [gemm rows attention launch]`.

Needs a GPU and PyTorch; Triton where it is installed. Each case runs its contestants in turns, so that clocks and heat
are the same for all; inputs are random and rotate through more memory than L2 holds, so that no call finds its
operands there for free. The table has medians of CUDA event times and their spread, from the fastest tenth to the
slowest.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1] / "examples"), str(Path(__file__).parent)]

BATCH = 12
"""Calls per sample; fewer of those that take milliseconds."""

SAMPLE_MS = 5.0
"""About what a sample takes at most."""

HEAD_START = 1_000_000
"""GPU cycles that a sample waits before its first call: the host runs ahead, and its own time does not count."""

HOST_CALLS = 200
"""Calls per sample of host time: fewer than the GPU queues."""

GEMM_SIZES = (4096, 8192)
ROWS = (8192, 8192)
ATTENTION = (4, 16, 4096)
"""Batch, heads, length."""

Work = Callable[[int], Any]


@dataclass(frozen=True)
class Case:
    """Contestants for one operation, by name; the first is the reference. ``runs[name](i)`` works on the i-th set of
    inputs and leaves its result in the i-th output, or returns it. ``amount``: what a call does, in units of
    ``unit`` times seconds. ``host``: the time of the host is meant, not of the GPU."""

    name: str
    runs: Mapping[str, Work]
    sets: int
    result: Callable[[], Any]
    amount: float = 0.0
    unit: str = ""
    host: bool = False


@dataclass(frozen=True)
class Row:
    """One line of the table: milliseconds, ``rate`` in ``unit``, ``error`` relative to the reference (norms), and the
    SM clock behind the case. ``failed``: why there is no figure."""

    case: str
    what: str
    ms: float = 0.0
    spread: float = 0.0
    rate: float = 0.0
    unit: str = ""
    error: float = 0.0
    clock: str = ""
    failed: str = ""


# ---------------------------------------------------------------------------------------------- the machine


def smi(*fields: str) -> list[str]:
    """What nvidia-smi says of the GPU that is measured; '?' where it cannot be asked."""
    import torch

    uuid = str(getattr(torch.cuda.get_device_properties(0), "uuid", "")).removeprefix("GPU-")
    command = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader"]
    try:
        for which in ([f"--id=GPU-{uuid}"] if uuid else [], ["--id=0"]):
            found = subprocess.run([*command, *which], capture_output=True, text=True, timeout=20, check=False)
            if found.returncode == 0 and found.stdout.strip():
                return [part.strip() for part in found.stdout.splitlines()[0].split(",")]
    except (OSError, subprocess.SubprocessError):
        pass
    return ["?"] * len(fields)


def versions() -> str:
    """Of everything that takes part."""
    import torch

    def of(package: str) -> str:
        try:
            return f"{package} {version(package)}"
        except PackageNotFoundError:
            return f"{package} is not installed"

    parts = [of("tidegate"), of("torch"), f"CUDA {torch.version.cuda}", of("triton"), of("nvidia-cuda-nvrtc")]
    return ", ".join([*parts, f"Python {sys.version.split()[0]}"])


def triton_peers() -> Any:
    """The contestants in Triton, or None where it is not installed, or the GPU is one that they are not written for."""
    import torch

    try:
        import triton_peers as found
    except ImportError:
        return None
    return found if torch.cuda.get_device_capability() >= (9, 0) else None


def sets_of(bytes_per_set: int) -> int:
    """How many sets of tensors a case rotates through, at least 2: together twice as much as L2 holds."""
    import torch

    l2 = int(getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 0)) or 64 << 20
    return max(2, -(-2 * l2 // bytes_per_set) + 1)


# ---------------------------------------------------------------------------------------------- measuring


def measure(case: Case, repeat: int) -> Iterator[Row]:
    """Tries each contestant once, then measures those that worked in turns."""
    import torch

    want, errors, failed = None, {}, {}
    for what, work in case.runs.items():
        try:
            got = work(0)
            got = (case.result() if got is None else got).float()
            want = got.clone() if want is None else want
            errors[what] = ((got - want).norm() / want.norm()).item()
            for i in range(case.sets):
                work(i)
            torch.cuda.synchronize()
        except Exception as error:  # a contestant that cannot run costs its own line only
            failed[what] = (str(error).splitlines() or [type(error).__name__])[0]
    running = {what: work for what, work in case.runs.items() if what not in failed}
    times = (host_times if case.host else gpu_times)(running, repeat)
    (clock,) = smi("clocks.sm")
    for what in case.runs:
        if what in failed:
            yield Row(case.name, what, failed=failed[what])
            continue
        ms, spread = middle(times[what])
        rate = ms * 1e3 if case.host else case.amount / ms * 1e3
        yield Row(case.name, what, ms, spread, rate, "us" if case.host else case.unit, errors[what], clock)


def middle(times: list[float]) -> tuple[float, float]:
    """The median, and from the first to the last tenth."""
    ordered = sorted(times)
    tenth = len(ordered) // 10
    return statistics.median(ordered), ordered[-1 - tenth] - ordered[tenth]


def gpu_times(runs: Mapping[str, Work], repeat: int) -> dict[str, list[float]]:
    """Milliseconds per call, by contestant, a sample per turn."""
    calls = {what: batch_of(work) for what, work in runs.items()}
    times: dict[str, list[float]] = {what: [] for what in runs}
    for turn in range(repeat):
        for what in turned(list(runs), turn):
            times[what].append(sample(runs[what], calls[what]))
    return times


def batch_of(work: Work) -> int:
    """Calls that take about SAMPLE_MS, at most BATCH."""
    return min(BATCH, max(2, round(SAMPLE_MS / max(sample(work, 2), 1e-3))))


def sample(work: Work, calls: int) -> float:
    """Milliseconds per call of calls in a row."""
    import torch

    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(HEAD_START)
    start.record()
    for i in range(calls):
        work(i)
    stop.record()
    stop.synchronize()
    return start.elapsed_time(stop) / calls


def host_times(runs: Mapping[str, Work], repeat: int) -> dict[str, list[float]]:
    """Milliseconds of the host per call, by contestant, a sample per turn."""
    import torch

    times: dict[str, list[float]] = {what: [] for what in runs}
    for turn in range(repeat):
        for what in turned(list(runs), turn):
            work = runs[what]
            torch.cuda.synchronize()
            start = time.perf_counter()
            for i in range(HOST_CALLS):
                work(i)
            times[what].append((time.perf_counter() - start) / HOST_CALLS * 1e3)
    return times


def turned(names: list[str], turn: int) -> list[str]:
    """Who comes first changes from turn to turn."""
    at = turn % max(len(names), 1)
    return names[at:] + names[:at]


# ---------------------------------------------------------------------------------------------- cases


def gemm() -> Iterator[Case]:
    """Square products: cuBLAS, Triton, and the last step of examples/gemm.py."""
    import gemm as kernels
    import torch

    name = max(n for n in vars(kernels) if n.startswith("gemm_v"))
    kernel, triton = getattr(kernels, name), triton_peers()
    for size in GEMM_SIZES:
        sets = sets_of(3 * 2 * size**2)
        a, b = ([torch.randn(size, size, device="cuda").bfloat16() for _ in range(sets)] for _ in range(2))
        out = [torch.empty(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(sets)]

        def on(work: Callable[..., Any], a: Any = a, b: Any = b, out: Any = out, n: int = sets) -> Work:
            return lambda i: work(a[i % n], b[i % n], out[i % n])

        runs = {"torch.matmul (cuBLAS)": on(lambda a, b, out: torch.matmul(a, b, out=out))}
        if triton is not None:
            runs["Triton"] = on(triton.matmul)
        runs[f"tidegate {name}"] = on(kernel)
        flops = 2 * size**3 / 1e12
        yield Case(f"gemm {size}^3 bf16", runs, sets, lambda out=out: out[0].clone(), flops, "TFLOP/s")


def rows() -> Iterator[Case]:
    """Softmax and norms over rows; a copy of the same bytes shows what memory allows."""
    import layernorm
    import rmsnorm
    import softmax
    import torch

    count, columns = ROWS
    sets = sets_of(2 * 2 * count * columns)
    x = [torch.randn(count, columns, device="cuda").bfloat16() for _ in range(sets)]
    out = [torch.empty_like(t) for t in x]
    gain, bias = (torch.randn(columns, device="cuda").bfloat16() for _ in range(2))
    nn, triton = torch.nn.functional, triton_peers()

    def on(work: Callable[..., Any], *vectors: Any) -> Work:
        return lambda i: work(x[i % sets], *vectors, out[i % sets])

    def peer(work: Callable[[Any], Any]) -> Work:
        return lambda i: work(x[i % sets])

    cases: dict[str, tuple[Work, Any, tuple[Any, ...]]] = {
        "softmax": (peer(lambda t: nn.softmax(t, dim=1)), softmax.softmax, ()),
        "rmsnorm": (peer(lambda t: nn.rms_norm(t, (columns,), gain, 1e-6)), rmsnorm.rmsnorm, (gain,)),
        "layernorm": (
            peer(lambda t: nn.layer_norm(t, (columns,), gain, bias, 1e-5)), layernorm.layernorm, (gain, bias),
        ),
    }  # fmt: skip
    traffic = 2 * count * columns * 2 / 1e9

    def case(name: str, runs: dict[str, Work]) -> Case:
        return Case(f"{name} {count}x{columns} bf16", runs, sets, lambda: out[0].clone(), traffic, "GB/s")

    yield case("copy", {"torch copy": on(lambda t, o: o.copy_(t))})
    for name, (torch_, kernel, vectors) in cases.items():
        runs = {f"torch {name}": torch_}
        if triton is not None:
            runs["Triton"] = on(getattr(triton, name), *vectors)
        yield case(name, {**runs, f"tidegate {name}": on(kernel, *vectors)})


def attention() -> Iterator[Case]:
    """Attention forward: torch's FlashAttention and, where torch offers it, cuDNN."""
    import attention_small as kernels
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    batch, heads, length = ATTENTION
    for width in (64, 128):
        sets = sets_of(4 * 2 * batch * heads * length * width)
        q, k, v = (
            [torch.randn(batch, heads, length, width, device="cuda").bfloat16() for _ in range(sets)] for _ in range(3)
        )
        out = [torch.empty_like(t) for t in q]
        for causal, kernel in ((False, kernels.attention), (True, kernels.attention_causal)):

            def torch_(backend: Any, q: Any = q, k: Any = k, v: Any = v, n: int = sets, causal: bool = causal) -> Work:
                def work(i: int) -> Any:
                    with sdpa_kernel(backend):
                        return torch.nn.functional.scaled_dot_product_attention(
                            q[i % n], k[i % n], v[i % n], is_causal=causal
                        )

                return work

            def ours(i: int, f: Any = kernel, q: Any = q, k: Any = k, v: Any = v, o: Any = out, n: int = sets) -> None:
                f(q[i % n], k[i % n], v[i % n], o[i % n])

            runs: dict[str, Work] = {"torch FlashAttention": torch_(SDPBackend.FLASH_ATTENTION)}
            if hasattr(SDPBackend, "CUDNN_ATTENTION"):
                runs["torch cuDNN"] = torch_(SDPBackend.CUDNN_ATTENTION)
            runs[f"tidegate {kernel.name}"] = ours
            flops = 4 * batch * heads * length**2 * width / 1e12 / (2 if causal else 1)
            case = f"{'causal' if causal else 'attention'} {length} head {width}"
            yield Case(case, runs, sets, lambda out=out: out[0].clone(), flops, "TFLOP/s")


def launch() -> Iterator[Case]:
    """Host time per call of kernels that add 128 numbers: three tensors each."""
    import torch

    import tidegate as tg

    @tg.kernel(warps=1)
    def add(x: tg.Tensor["N", "f32"], y: tg.Tensor["N", "f32"], z: tg.Out["N", "f32"]):
        for n in tg.grid(tg.tiles("N", 128)):
            z[n] = tg.load(x[n]) + tg.load(y[n])

    x, y, z = (torch.randn(128, device="cuda") for _ in range(3))
    runs: dict[str, Work] = {"torch.add": lambda i: torch.add(x, y, out=z)}
    triton = triton_peers()
    if triton is not None:
        runs["Triton"] = lambda i: triton.add(x, y, z)
    runs["tidegate"] = lambda i: add(x, y, z)
    yield Case("host time per call", runs, 1, lambda: z.clone(), host=True)

    sets = [[torch.randn(128 * (1 + i % 3), device="cuda") for _ in range(3)] for i in range(12)]
    turns: dict[str, Work] = {"torch.add": lambda i: torch.add(*sets[i % 12][:2], out=sets[i % 12][2])}
    if triton is not None:
        turns["Triton"] = lambda i: triton.add(*sets[i % 12])
    turns["tidegate"] = lambda i: add(*sets[i % 12])
    yield Case("12 places, 3 sizes in turns", turns, 12, lambda: sets[0][2].clone(), host=True)

    @tg.kernel(warps=1)
    def scaled(x: tg.Tensor["N", "f32"], y: tg.Out["N", "f32"], by: tg.Scalar["f32"]):
        for n in tg.grid(tg.tiles("N", 128)):
            y[n] = tg.load(x[n]) * by

    numbers: dict[str, Work] = {"torch.mul": lambda i: torch.mul(x, 0.5 + i, out=z)}
    if triton is not None:
        numbers["Triton"] = lambda i: triton.scaled(x, z, 0.5 + i)
    numbers["tidegate"] = lambda i: scaled(x, z, 0.5 + i)
    yield Case("a number that changes", numbers, 1, lambda: z.clone(), host=True)


SECTIONS: dict[str, Callable[[], Iterator[Case]]] = {
    "gemm": gemm,
    "rows": rows,
    "attention": attention,
    "launch": launch,
}


# ---------------------------------------------------------------------------------------------- the table


def figures(r: Row) -> tuple[str, ...]:
    digits = 1 if r.rate >= 100 else 2
    return f"{r.ms:.4f}", f"{r.spread:.4f}", f"{r.rate:.{digits}f}", r.unit, f"{r.error:.1e}", r.clock


def table(rows: list[Row], markdown: bool) -> Iterator[str]:
    """The lines of the table."""
    heads = ("case", "what", "ms", "spread", "rate", "unit", "rel. diff", "SM clock")
    cells = [
        (r.case, r.what, f"failed: {r.failed}", "", "", "", "", "") if r.failed else (r.case, r.what, *figures(r))
        for r in rows
    ]
    if markdown:
        yield f"| {' | '.join(heads)} |"
        yield "|---|---|---:|---:|---:|---|---:|---:|"
        yield from (f"| {' | '.join(line)} |" for line in cells)
        return
    short = [line for line in cells if not line[2].startswith("failed")]
    widths = [max(len(line[i]) for line in (heads, *(cells if i < 2 else short))) for i in range(len(heads))]
    for line in (heads, *cells):
        cells_of = enumerate(zip(line, widths, strict=True))
        yield "  ".join(c.ljust(w) if i in (0, 1, 5) else c.rjust(w) for i, (c, w) in cells_of).rstrip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", help=", ".join(SECTIONS))
    parser.add_argument("--repeat", type=int, default=30, help="samples per contestant (default 30)")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    parser.add_argument("--json", metavar="FILE", help="write the rows to a file too")
    options = parser.parse_args()
    if unknown := sorted(set(options.sections) - set(SECTIONS)):
        parser.error(f"no section {', '.join(unknown)}; there are {', '.join(SECTIONS)}")
    try:
        import torch
    except ImportError:
        sys.exit("peers.py compares with PyTorch, which is not installed: pip install torch")
    if not torch.cuda.is_available():
        sys.exit("peers.py measures on an NVIDIA GPU, and PyTorch finds none")
    found = []
    for name in options.sections or SECTIONS:
        for case in SECTIONS[name]():
            print(f"{case.name} ...", file=sys.stderr, flush=True)
            found += measure(case, options.repeat)
    title, memory, driver, power = smi("name", "clocks.max.mem", "driver_version", "power.limit")
    print(f"{torch.cuda.get_device_name(0)} ({title}), memory {memory}, power limit {power}, driver {driver}")
    print(versions() + ("" if triton_peers() else "; no contestants in Triton here"))
    print(f"medians of {options.repeat} samples in turns; spread: first to last tenth; host time in us\n")
    print("\n".join(table(found, options.markdown)))
    if options.json:
        Path(options.json).write_text(json.dumps([asdict(r) for r in found], indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
