"""compute-sanitizer finds nothing in the examples: memcheck, racecheck (with cp.async), synccheck."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
SRC = HERE.parents[1] / "src"


@pytest.mark.parametrize("tool", ["memcheck", "racecheck", "synccheck"])
def test_sanitizer_reports_nothing(gpu: Any, tool: str) -> None:
    sanitizer = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not Path(sanitizer).exists():
        pytest.skip("compute-sanitizer is not on PATH")
    command = [sanitizer, "--tool", tool, "--error-exitcode", "9", sys.executable, str(HERE / "sanitized.py")]
    env = {**os.environ, "PYTHONPATH": f"{SRC}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, env=env, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    assert "ERROR SUMMARY: 0 errors" in done.stdout or "0 hazards" in done.stdout, done.stdout[-2000:]
