"""Kernels that run in a process of their own, one after the other, each launch under a watchdog.

``python -m tidegate.runtime.batch DIR BATCH SECONDS`` runs the jobs of a batch in DIR that have not run yet: the way to
put another program around launches (compute-sanitizer), and to survive kernels that hang or break the context. A job
is four files, ``NAME.tir``, ``NAME.cubin``, ``NAME.json`` (architecture, file of arrays) and the arrays; it leaves
``NAME.out.npz`` with the outputs, and a line in ``BATCH.done``.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidegate.ir import tir

HUNG, BROKEN = 3, 4
"""Exit status after a launch that did not end, or after which the context cannot be used."""


@dataclass(frozen=True)
class Outcome:
    """What became of a batch. ``status`` per job: 'done', 'hung', or an error's first line; ``text``: all that the
    processes printed."""

    status: Mapping[str, str]
    text: str


def store(place: Path, name: str, kernel: tir.Kernel, code: bytes, arch: str, arrays: Path) -> None:
    """Adds a job to the directory."""
    from tidegate.ir.text import print_kernel

    (place / f"{name}.tir").write_text(print_kernel(kernel), encoding="utf-8")
    (place / f"{name}.cubin").write_bytes(code)
    about = {"arch": arch, "arrays": os.path.relpath(arrays, place)}
    (place / f"{name}.json").write_text(json.dumps(about), encoding="utf-8")


def store_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Arrays by parameter name, as bytes, so that every dtype comes back; and numbers."""
    import numpy as np

    held = {n: a.view(f"u{a.itemsize}") if isinstance(a, np.ndarray) else np.asarray(a) for n, a in arrays.items()}
    np.savez(path, **held)  # type: ignore[arg-type]


def read_arrays(path: Path, kernel: tir.Kernel) -> dict[str, Any]:
    """Arrays and numbers of a job, or its outputs, in the dtypes of the parameters."""
    import numpy as np

    with np.load(path) as found:
        arrays: dict[str, Any] = {p.name: found[p.name].view(p.dtype.numpy) for p in kernel.params if p.name in found}
        return arrays | {s.name: found[s.name].item() for s in kernel.arguments if s.name in found}


def run_all(
    place: Path, names: Sequence[str], around: Sequence[str] = (), limit: float = 5.0, total: float = 600.0
) -> Outcome:
    """Runs the jobs, in as many processes as it takes. ``around``: a command put before Python's; ``limit`` seconds
    per launch, ``total`` for all. Batches of different jobs may run at the same time."""
    done = place / f"{names[0]}.done"
    done.unlink(missing_ok=True)
    (place / f"{names[0]}.order").write_text("\n".join(names), encoding="utf-8")
    end = time.monotonic() + total
    texts: list[str] = []
    status: dict[str, str] = {}
    while len(status) < len(names) and (left := end - time.monotonic()) > 0:
        texts.append(_process([*around, sys.executable, "-m", __name__, str(place), names[0], str(limit)], left))
        before, status = status, _read(done)
        if len(status) == len(before):  # it ended before a launch: the next one is to blame
            lost = next(n for n in names if n not in status)
            last = texts[-1].strip().splitlines()[-1:] or [""]
            with done.open("a", encoding="utf-8") as file:
                file.write(f"{lost}\tprocess ended: {last[0]}\n")
            status = _read(done)
    return Outcome({n: status.get(n, "not run: out of time") for n in names}, "".join(texts))


def _process(command: Sequence[str], limit: float) -> str:
    """Runs a command with this package importable; kills it and its children at the limit. Returns what it printed."""
    root = str(Path(__file__).parents[2])
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH", ""))))}
    child = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=env,
        start_new_session=True,
    )
    try:
        return child.communicate(timeout=limit)[0]
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        return child.communicate()[0]


def _read(done: Path) -> dict[str, str]:
    if not done.exists():
        return {}
    rows = (line.split("\t", 1) for line in done.read_text(encoding="utf-8").splitlines())
    return {row[0]: row[1] for row in rows if len(row) == 2}


# ---------------------------------------------------------------------------------------------- in the process


def main(place: Path, batch: str, limit: float) -> int:
    """Runs what is left; returns the exit status."""
    from tidegate.errors import TidegateError

    done = _read(place / f"{batch}.done")
    with (place / f"{batch}.done").open("a", encoding="utf-8") as file:
        for name in (place / f"{batch}.order").read_text(encoding="utf-8").split():
            if name in done:
                continue

            def hung(name: str = name) -> None:
                file.write(f"{name}\thung\n")
                file.flush()
                os._exit(HUNG)

            watchdog = threading.Timer(limit, hung)
            watchdog.daemon = True
            watchdog.start()
            try:
                _run(place, name)
            except TidegateError as error:
                watchdog.cancel()
                file.write(f"{name}\t{error.text.splitlines()[0]}\n")
                if error.code == "TG823":  # the context is lost
                    return BROKEN
            else:
                watchdog.cancel()
                file.write(f"{name}\tdone\n")
            file.flush()
    return 0


def _run(place: Path, name: str) -> None:
    from tidegate.ir.text import parse_kernel
    from tidegate.runtime.compile import Cubin
    from tidegate.runtime.launch import Loaded

    about = json.loads((place / f"{name}.json").read_text(encoding="utf-8"))
    kernel = parse_kernel((place / f"{name}.tir").read_text(encoding="utf-8"))
    arrays = read_arrays(place / about["arrays"], kernel)
    loaded = Loaded(kernel, Cubin((place / f"{name}.cubin").read_bytes(), about["arch"], name, "", from_cache=True))
    loaded(*(arrays[p.name] for p in kernel.params), scalars=[arrays[s.name] for s in kernel.arguments])
    store_arrays(place / f"{name}.out.npz", {p.name: arrays[p.name] for p in kernel.params if p.output})


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])))
