"""How long Tidegate takes: import, source to CUDA text, and the whole compile, cold and from the cache.

    python benchmarks/compile_time.py [--kernel gemm_v2] [--target h200] [--repeat 5]

Every number is the best of several fresh processes, so that nothing is warm but the operating system's files. The
table comes last, below the versions that it holds for.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
PACKAGES = ("tidegate", "numpy", "cuda-bindings", "nvidia-cuda-nvrtc")

PROBE = """
import json, sys, time
start = time.perf_counter()
import tidegate
imported = time.perf_counter()
sys.path.insert(0, {examples!r})
import numpy, ml_dtypes
import gemm
from tidegate.errors import NoCompiler
import tidegate.runtime.compiled
ready = time.perf_counter()
kernel = gemm.{kernel}.compile(target={target!r})
kernel.cuda
text = time.perf_counter()
try:
    cached = kernel.cubin.from_cache
except NoCompiler as error:
    cached = None
done = time.perf_counter()
again = gemm.{kernel}.compile(target={target!r})
again.cuda
second = time.perf_counter()
print(json.dumps(dict(imported=imported - start, text=text - ready, compile=done - text, whole=done - ready,
                      again=second - done, cached=cached, stages=kernel.timings.spent)))
"""


def probe(kernel: str, target: str, cache: str) -> dict:
    """One fresh process; seconds."""
    code = PROBE.format(examples=str(EXAMPLES), kernel=kernel, target=target)
    environment = {**os.environ, "TIDEGATE_CACHE_DIR": cache}
    out = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return json.loads(out.stdout)


def best(rows: list[dict], field: str) -> float:
    return min(row[field] for row in rows) * 1e3


def version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernel", default="gemm_v2", help="a kernel of examples/gemm.py")
    parser.add_argument("--target", default="h200")
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    cold, warm = [], []
    for _ in range(options.repeat):
        with tempfile.TemporaryDirectory() as cache:
            cold.append(probe(options.kernel, options.target, cache))
            warm.append(probe(options.kernel, options.target, cache))
    nvrtc = cold[0]["cached"] is not None
    rows = [
        ("import tidegate", best(cold, "imported")),
        (f"{options.kernel}, source to CUDA text, first in a process", best(cold, "text")),
        (f"{options.kernel}, source to CUDA text, again", best(cold, "again")),
    ]
    if nvrtc:
        assert not any(r["cached"] for r in cold)
        assert all(r["cached"] for r in warm)
        rows += [
            ("CUDA text to cubin, cold", best(cold, "compile")),
            ("CUDA text to cubin, from the cache", best(warm, "compile")),
            ("source to cubin, cold", best(cold, "whole")),
            ("source to cubin, from the cache", best(warm, "whole")),
        ]
    print(f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores; target {options.target}")
    print(", ".join(f"{p} {version(p)}" for p in PACKAGES))
    if not nvrtc:
        print("NVRTC is not installed: no compile times")
    stages = min(cold, key=lambda r: r["text"])["stages"]
    print("stages of the first: " + ", ".join(f"{s} {ms:.1f}" for s, ms in stages.items()) + " ms\n")
    print(f"| what (best of {options.repeat}) | ms |\n|---|---:|")
    for name, spent in rows:
        print(f"| {name} | {spent:.1f} |")


if __name__ == "__main__":
    main()
