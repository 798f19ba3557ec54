"""The corpus: small kernels, right and wrong, each with a header that says what a checker must say of it.

A header is a block of ``// key: value`` lines in front of the kernel:

    verdict    safe, unsafe or not proved
    kind       of an unsafe one: the kind of its finding (docs/checking.md)
    fault      number and name of the kind of fault that it is about
    twin       of an unsafe one: the file of its corrected form
    why        one line
    simulator  silent: no run of the simulator shows what is wrong, for the reason in ``why``
    runs       sizes for the simulator, NAME=VALUE,... | ...; left out: one run, all sizes being fixed
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from tidegate.ir import tir
from tidegate.ir.expr import evaluate
from tidegate.ir.text import parse_kernel

FOLDER = Path(__file__).parent
KEYS = ("verdict", "kind", "fault", "twin", "why", "simulator", "runs")

OVER_SYNCHRONISED = 19
"""The fault of a compiler that syncs too much: its kernels have few syncs and must be accepted as they are."""


@dataclass(frozen=True)
class Entry:
    """One file of the corpus; the fields are those of its header."""

    path: Path
    verdict: str
    number: int
    fault: str
    why: str
    kind: str = ""
    twin: str = ""
    simulator: str = ""
    runs: tuple[dict[str, int], ...] = ({},)

    @property
    def name(self) -> str:
        return self.path.stem

    @cached_property
    def kernel(self) -> tir.Kernel:
        return parse_kernel(self.path.read_text(), str(self.path))


def entries() -> tuple[Entry, ...]:
    """All of them, by name, and so by the number of their fault."""
    return tuple(read(path) for path in sorted(FOLDER.glob("*.tir")))


def read(path: Path) -> Entry:
    """Raises ValueError for a header that lacks something or says too much."""
    header: dict[str, str] = {}
    for line in path.read_text().splitlines():
        if not line.startswith("// "):
            break
        key, colon, value = line[3:].partition(": ")
        if not colon or key not in KEYS or key in header:
            raise ValueError(f"{path.name}: {line!r} is no line of a header")
        header[key] = value
    if missing := {"verdict", "fault", "why"} - header.keys():
        raise ValueError(f"{path.name}: the header lacks {', '.join(sorted(missing))}")
    number, _, fault = header.pop("fault").partition(" ")
    runs = tuple(sizes(text) for text in header.pop("runs", "").split("|"))
    return Entry(path, number=int(number), fault=fault, runs=runs, **header)


def sizes(text: str) -> dict[str, int]:
    pairs = (item.split("=") for item in text.replace(" ", "").split(",") if item)
    return {name: int(value) for name, value in pairs}


def arrays(kernel: tir.Kernel, run: dict[str, int]) -> dict[str, np.ndarray]:
    """Arrays for every parameter; small integers, of which every sum is exact."""
    rng = np.random.default_rng(3)
    known: dict[str, int] = {d.name: run[d.name] if d.value is None else d.value for d in kernel.dims}
    shapes = {p: tuple(evaluate(e, known) for e in p.shape) for p in kernel.params}
    return {p.name: rng.integers(-4, 5, shape).astype(p.dtype.numpy) for p, shape in shapes.items()}


def faults() -> dict[int, str]:
    return {e.number: e.fault for e in entries()}


# ---------------------------------------------------------------------------------------------- the page


def page() -> str:
    """docs/corpus.md."""
    found = entries()
    wrong = sum(e.verdict == "unsafe" for e in found)
    return PAGE.format(total=len(found), wrong=wrong, faults="\n".join(_faults(found)), kernels="\n".join(_list(found)))


def _faults(found: tuple[Entry, ...]) -> Iterator[str]:
    yield "| fault | kernels | safe | unsafe | not proved | findings |"
    yield "|---|---|---|---|---|---|"
    for number, fault in faults().items():
        mine = [e for e in found if e.number == number]
        each = [sum(e.verdict == v for e in mine) for v in ("safe", "unsafe", "not proved")]
        kinds = ", ".join(sorted({e.kind for e in mine if e.kind})) or "–"
        yield f"| {number} {fault} | {len(mine)} | {' | '.join(map(str, each))} | {kinds} |"


def _list(found: tuple[Entry, ...]) -> Iterator[str]:
    yield "| kernel | verdict | what it shows |"
    yield "|---|---|---|"
    for e in found:
        verdict = f"{e.verdict}: {e.kind}" if e.kind else e.verdict
        yield f"| [{e.name}](../tests/corpus/{e.name}.tir) | {verdict} | {e.why} |"


PAGE = """# The corpus

{total} small kernels in [TIR](tir.md), written by hand, {wrong} of them wrong, in `tests/corpus`. Every one is about
one kind of fault of asynchronous tile pipelines, and its header says what the [checker](checking.md) must say of it:
the verdict, and of a wrong kernel the kind of finding. A wrong kernel names its corrected twin, which differs in that
fault alone. Right kernels are silent in the simulator, whatever happens when. Wrong ones show in some run of it, unless
the header says why not, or the kernel breaks the specification of TIR and cannot run.

```
tidegate check tests/corpus/02_ring_one_less.tir
python benchmarks/corpus.py                         # this page
```

## By kind of fault

{faults}

Kernels about over-synchronisation have no more syncs than they need, and must be accepted.

## All kernels

{kernels}
"""
