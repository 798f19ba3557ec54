"""A kernel under NVIDIA's compute-sanitizer, and with delays: what a run on the GPU can find.

The sanitizer watches one run. Its reports are brought back to the TIR and to the author's lines; what it cannot see in
this kernel is said. ``tidegate.check`` decides for all runs.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.emit import Delays, emit, line_table, traced, traced_line
from tidegate.emit.delays import guarded
from tidegate.errors import NoDriver, NoSanitizer
from tidegate.ir import tir
from tidegate.ir.text import print_stmt
from tidegate.runtime import batch
from tidegate.runtime import device as devices
from tidegate.runtime.compile import cubin
from tidegate.runtime.sanitizer_text import Record, Site, parse, summary

if TYPE_CHECKING:
    import numpy as np

    from tidegate.runtime.device import Device

TOOLS = ("memcheck", "racecheck", "synccheck")

LAUNCH_SECONDS = 5.0
WATCHED_SECONDS = 60.0
"""For one launch, without and under the sanitizer, which makes kernels some hundred times slower."""

BASE = "plain"


@dataclass(frozen=True)
class Place:
    """One side of a finding. ``statement`` is TIR and ``source_line`` the author's line, '' and 0 where unknown;
    ``cuda_line`` counts from the first line of the emitted text."""

    access: str
    statement: str
    source_line: int
    cuda_line: int


@dataclass(frozen=True)
class Finding:
    """What a tool reported, ``count`` times."""

    tool: str
    title: str
    places: tuple[Place, ...]
    count: int


@dataclass(frozen=True)
class ToolRun:
    """One tool's run. ``outcome``: 'done', 'hung', or why it ended."""

    tool: str
    outcome: str
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class DelayRun:
    """One run with delays. ``changed``: outputs that differ from the run without delays; ``guard``: bytes of shared
    memory that nothing owns were written."""

    seed: int
    outcome: str
    changed: tuple[str, ...]
    guard: bool


@dataclass(frozen=True)
class Report:
    """All of it. ``clean``: nothing was found, and everything came to its end."""

    kernel: str
    device: str
    sizes: Mapping[str, int]
    tools: tuple[ToolRun, ...]
    delays: tuple[DelayRun, ...]
    unseen: tuple[str, ...]

    @property
    def clean(self) -> bool:
        tools = all(t.outcome == "done" and not t.findings for t in self.tools)
        return tools and all(d.outcome == "done" and not d.changed and not d.guard for d in self.delays)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "clean": self.clean}


def find_sanitizer() -> str:
    """The command: on PATH, below CUDA_HOME, or in the toolkit's usual place. Raises NoSanitizer."""
    if found := shutil.which("compute-sanitizer"):
        return found
    roots = [os.environ[v] for v in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(v)]
    for root in (*roots, "/usr/local/cuda"):
        path = Path(root) / "bin" / "compute-sanitizer"
        if os.access(path, os.X_OK):
            return str(path)
    raise NoSanitizer(looked=", ".join(["PATH", *(f"{root}/bin" for root in (*roots, "/usr/local/cuda"))]))


def usable_device() -> Device:
    """The GPU; raises NoDriver."""
    device = devices.available()
    if device is None:
        raise NoDriver(reason="the NVIDIA driver (libcuda.so.1) is not on this machine, or it has no GPU")
    return device


def sanitize(kernel: tir.Kernel, arrays: Mapping[str, Any], tools: Sequence[str] = TOOLS, delays: int = 0) -> Report:
    """Runs ``kernel`` on ``arrays`` (one per parameter, by name) under each of ``tools``, then with ``delays``
    different delays. Nothing of it runs in this process: a kernel that hangs is killed and reported.

    Raises NoDriver and NoSanitizer where that is not possible, and what emitting, compiling and launching raise.
    """
    from tidegate.simulate.arguments import bind

    device = usable_device()
    command = find_sanitizer() if tools else ""
    text = emit(kernel)
    sizes, _, _ = bind(kernel, arrays)
    with tempfile.TemporaryDirectory(prefix="tidegate-") as directory:
        place = Path(directory)
        code = cubin(traced(text), device.arch, f"{kernel.name}.cu").code
        batch.store_arrays(place / "arrays.npz", arrays)
        batch.store(place, BASE, kernel, code, device.arch, place / "arrays.npz")
        ran = tuple(_tool(place, kernel, text, command, tool) for tool in tools)
        delayed = tuple(_delayed(place, kernel, arrays, device, delays)) if delays else ()
    return Report(kernel.name, device.name, sizes, ran, delayed, unseen(kernel, sizes))


# ---------------------------------------------------------------------------------------------- the tools


def around(command: str, tool: str) -> list[str]:
    """The sanitizer's command line in front of a program."""
    most = "0" if tool == "racecheck" else "10000"  # a report per pair of instructions, or one per thread
    return [command, "--tool", tool, "--print-limit", most, "--show-backtrace", "device"]


def _tool(place: Path, kernel: tir.Kernel, text: str, command: str, tool: str) -> ToolRun:
    total = 2 * WATCHED_SECONDS
    outcome = batch.run_all(place, [BASE], around(command, tool), WATCHED_SECONDS, total)
    records = parse(tool, outcome.text)
    found = tuple(findings(kernel, text, records))
    status = outcome.status[BASE]
    if status == "done" and summary(outcome.text) is None:
        status = "the sanitizer did not come to its summary"
    return ToolRun(tool, status, found)


def findings(kernel: tir.Kernel, text: str, records: Sequence[Record]) -> Iterator[Finding]:
    """Records with their places in ``text``, of which the traced form was compiled, as ``<kernel name>.cu``; records
    of the same statements are one."""
    table = line_table(kernel, text)
    found: dict[tuple[object, ...], Finding] = {}
    for record in records:
        sides: dict[tuple[object, object], Place] = {}
        for site in record.sites:
            place = _place(site, f"{kernel.name}.cu", table)
            sides.setdefault((place.access, place.statement or place.cuda_line), place)
        key = (record.title, *sides)
        before = found[key].count if key in found else 0
        found[key] = Finding(record.tool, record.title, tuple(sides.values()), before + record.count)
    yield from found.values()


def _place(site: Site, file: str, table: Mapping[int, tir.Instruction]) -> Place:
    """The innermost frame that belongs to a statement: of a wrapper of an instruction, the line that it names."""
    frames = [f for f in site.frames if Path(f.file).name == file]
    lines = [traced_line(f.function) or f.line for f in frames]
    number = next((n for n in lines if n in table), lines[0] if lines else 0)
    stmt = table.get(number)
    return Place(site.what.lower(), print_stmt(stmt) if stmt else "", stmt.line if stmt else 0, number)


# ---------------------------------------------------------------------------------------------- delays


def _delayed(
    place: Path, kernel: tir.Kernel, arrays: Mapping[str, Any], device: Device, count: int
) -> Iterator[DelayRun]:
    import numpy as np

    padded, guard = guarded(kernel, device.shared)
    batch.store_arrays(place / "guarded.npz", {**arrays, **({guard: np.zeros(1, np.float32)} if guard else {})})
    for seed in range(count):
        code = cubin(emit(padded, Delays(seed, guard)), device.arch).code
        batch.store(place, f"delay{seed}", padded, code, device.arch, place / "guarded.npz")
    names = [BASE, *(f"delay{seed}" for seed in range(count))]
    status = batch.run_all(place, names, limit=LAUNCH_SECONDS).status
    base = _outputs(place, BASE, kernel) if status[BASE] == "done" else {}
    for seed, name in enumerate(names[1:]):
        got = _outputs(place, name, padded) if status[name] == "done" else {}
        outcome = status[name] if base else f"the run without delays: {status[BASE]}"
        yield DelayRun(seed, outcome, changed(base, got) if got else (), bool(guard and got and got[guard][0]))


def _outputs(place: Path, name: str, kernel: tir.Kernel) -> dict[str, np.ndarray]:
    return batch.read_arrays(place / f"{name}.out.npz", kernel)


def changed(base: Mapping[str, np.ndarray], got: Mapping[str, np.ndarray]) -> tuple[str, ...]:
    """Outputs that are not the same bit by bit; NaN is the same as NaN."""
    import numpy as np

    def same(a: np.ndarray, b: np.ndarray) -> bool:
        bits = f"u{a.itemsize}"
        nan = np.isnan(a.astype(np.float32)) & np.isnan(b.astype(np.float32))
        return bool(((a.view(bits) == b.view(bits)) | nan).all())

    return tuple(n for n, a in base.items() if not same(a, got[n]))


# ---------------------------------------------------------------------------------------------- its limits

_BLIND: tuple[tuple[str, tuple[type[tir.Stmt], ...]], ...] = (
    ("the writes and reads of tensor copies", (tir.TmaLoad, tir.TmaStore)),
    ("the reads of wgmma", (tir.Wgmma,)),
    ("missing proxy fences", (tir.TmaLoad, tir.TmaStore, tir.Wgmma)),
    ("order by phase barriers, which can look like races", (tir.BarrierWait,)),
    ("copies in flight at the end", (tir.CpAsync,)),
    ("shared memory read before it is written, or through another buffer", (tir.LdShared, tir.LdMatrix)),
)
"""What no tool reports, and the instructions that it concerns: docs/sanitizers.md has the measurements."""


def unseen(kernel: tir.Kernel, sizes: Mapping[str, int]) -> tuple[str, str]:
    """Two lines: what the sanitizer cannot see in this kernel."""
    present = {type(s) for s in tir.walk(kernel.body)}
    parts = [what for what, classes in _BLIND if present & set(classes)]
    said = ", ".join(f"{n} = {v}" for n, v in sizes.items()) or "its sizes"
    hidden = f"by any tool: {'; '.join(parts)}" if parts else "by any tool: nothing that this kernel could do wrong"
    return hidden, f"in this run: other interleavings, and other sizes and trip counts than {said}"
