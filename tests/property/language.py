"""Which parts of the language random programs may use: those that the front end has."""

from __future__ import annotations

import importlib.util
import itertools
import sys
import tempfile
from pathlib import Path
from typing import Any

from tidegate.errors import TidegateError

HEAD = "import tidegate as tg\nfrom tidegate import cuda\n\n\n"

PROBES = {
    "guards": """@tg.kernel(warps=1)
def program(x: tg.Tensor["N", 16, "f32"], y: tg.Out["N", 16, "f32"]):
    for i in tg.tiles("N", 16):
        if i < 3 and i != 1:
            y[i, :] = tg.load(x[i, :])
""",
    "gathers": """@tg.kernel(warps=1)
def program(rows: tg.Tensor[16, "i32"], x: tg.Tensor[7, 16, "f32"], y: tg.Out[16, 16, "f32"]):
    y[:, :] = tg.load(x[tg.load(rows[:]), :], by=cuda.cp_async())
""",
    "slices": """@tg.kernel(warps=1)
def program(x: tg.Tensor["N", 16, "f32"], y: tg.Out["N", 16, "f32"]):
    for i in tg.tiles("N", 16):
        y[i, :] = tg.load(x[tg.begin(i) - 1 : tg.end(i) - 1, :])
""",
    "counts": """@tg.kernel(warps=1)
def program(counts: tg.Tensor[4, "i32"], y: tg.Out[16, 16, "f32"]):
    n = tg.load(counts[2])
    acc = tg.zeros((16, 16))
    for i in tg.range(n):
        acc = acc + 1.0
    y[:, :] = acc
""",
}

_numbers = itertools.count()


def kernel_of(text: str) -> Any:
    """Writes the text to a file (a kernel needs its source), imports it, and returns its ``program``."""
    with tempfile.TemporaryDirectory() as folder:
        name = f"random_program_{next(_numbers)}"
        path = Path(folder) / f"{name}.py"
        path.write_text(text)
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
            module.program.source  # noqa: B018  reads the file while it is there
            return module.program
        finally:
            del sys.modules[name]


def understood(part: str) -> bool:
    """Whether the front end takes a probe of that part."""
    try:
        kernel_of(HEAD + PROBES[part]).program()
    except (TidegateError, AttributeError):
        return False
    return True


PARTS = frozenset(part for part in PROBES if understood(part))
