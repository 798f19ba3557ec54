"""Time limits that hold on a busy machine: processor time, the shortest of a few tries.

The clock on the wall also counts other processes; a single try may meet the collection of another test's garbage.
"""

from __future__ import annotations

import gc
import resource
import subprocess
import sys
from collections.abc import Callable


def least_seconds(work: Callable[[], object], tries: int = 3) -> float:
    """The processor time, in seconds, of the fastest try of `work` in this process."""
    gc.collect()
    return min(_spent(resource.RUSAGE_SELF, work) for _ in range(tries))


def least_seconds_of_process(arguments: list[str], tries: int = 3) -> float:
    """The processor time, in seconds, of the fastest run of this interpreter with these arguments.

    Raises `subprocess.CalledProcessError` when a run fails."""
    command = [sys.executable, *arguments]
    return min(
        _spent(resource.RUSAGE_CHILDREN, lambda: subprocess.run(command, capture_output=True, check=True))
        for _ in range(tries)
    )


def _spent(whose: int, work: Callable[[], object]) -> float:
    before = resource.getrusage(whose)
    work()
    after = resource.getrusage(whose)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
