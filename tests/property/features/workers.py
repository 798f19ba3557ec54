"""Programs judged in processes of their own: several at a time, and one that hangs or dies takes no other with it.

``python -m features.workers`` is such a process: it reads ``FEATURE SEED`` per line and writes a line of JSON per
program. With ``--gpu`` the programs run on the GPU instead of the simulator, each launch under a watchdog.
"""

from __future__ import annotations

import functools
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import tidegate
from features.device import TORCH, call_on_tensors
from features.judge import Judgement, differences, expected, judge, seeded, simulated
from features.program import FeatureProgram
from tidegate.runtime.device import available

LIMIT_SECONDS = 10.0
"""A launch of a small kernel that takes longer hangs."""

COMPILE_SECONDS = 60.0
"""The same for a call that may compile."""

Job = tuple[str, int]


def judge_all(jobs: Iterable[Job], gpu: bool, processes: int, report: Callable[[Job, Judgement], None]) -> None:
    """Judges the programs of seeds and reports each, in no order; the caller's thread is the one that reports."""
    waiting: queue.SimpleQueue[Job] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[Job, Judgement] | None] = queue.SimpleQueue()
    for job in jobs:
        waiting.put(job)
    threads = [threading.Thread(target=_attend, args=(waiting, done, gpu), daemon=True) for _ in range(processes)]
    for thread in threads:
        thread.start()
    left = len(threads)
    while left:
        found = done.get()
        if found is None:
            left -= 1
        else:
            report(*found)


def _attend(waiting: queue.SimpleQueue[Job], done: queue.SimpleQueue[tuple[Job, Judgement] | None], gpu: bool) -> None:
    """Feeds one process after the other."""
    child: subprocess.Popen[str] | None = None
    while True:
        try:
            job = waiting.get_nowait()
        except queue.Empty:
            break
        if child is None:
            child = _start(gpu)
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            child.stdin.write(f"{job[0]} {job[1]}\n")
            child.stdin.flush()
            line = child.stdout.readline()
        except BrokenPipeError:
            line = ""
        if line:
            found = json.loads(line)
            found["faults"] = [tuple(f) for f in found["faults"]]
            done.put((job, Judgement(**found)))
        else:
            how = "hung" if child.wait() == HUNG else f"the process ended with status {child.returncode}"
            done.put((job, Judgement(faults=[("died", how)])))
            child.communicate()
            child = None
    if child is not None:
        child.communicate()  # the end of its input ends it
    done.put(None)


def _start(gpu: bool) -> subprocess.Popen[str]:
    paths = [str(Path(__file__).parents[1]), str(Path(tidegate.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    # Threads of BLAS in every process would only take the cores from one another.
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-m", __spec__.name, *(["--gpu"] if gpu else [])]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)


# ---------------------------------------------------------------------------------------------- in the process

HUNG = 3


def launched(
    program: FeatureProgram, kernel: Any, compiled: Any, seed: int, outcome: Judgement
) -> list[tuple[str, str]]:
    """Faults of the kernel on the GPU, called twice: what differs between the calls is a race. Every other seed calls
    the kernel object, which compiles for what divides the sizes of the arrays, with torch tensors where torch is."""
    wanted, bounds = expected(program, kernel, compiled, seed)
    call = compiled
    if seed % 2:
        how = {"warps": program.warps, "plan": program.producer, "share": program.share}
        call = functools.partial(kernel, **program.fixed, **how)
    else:
        outcome.timed("cubin", lambda: compiled.cubin)
    tensors = TORCH and (seed % 2 == 1 or any(p.strided for p in program.parameters))
    found = []
    for limit in (COMPILE_SECONDS if seed % 2 else LIMIT_SECONDS, LIMIT_SECONDS):
        got = program.arguments(seed)
        watchdog = threading.Timer(limit, os._exit, (HUNG,))
        watchdog.daemon = True
        watchdog.start()
        if tensors:
            got = outcome.timed("launch", lambda: call_on_tensors(call, got))  # noqa: B023
        else:
            outcome.timed("launch", lambda: call(*got))  # noqa: B023
        watchdog.cancel()
        found += [("value", text) for text in differences(program, got, wanted, bounds)]
    return found


def compiled_and_simulated(
    program: FeatureProgram, kernel: Any, compiled: Any, seed: int, outcome: Judgement
) -> list[tuple[str, str]]:
    """Faults of the TIR; the CUDA text has to compile as well."""
    outcome.timed("cubin", lambda: compiled.cubin)
    return simulated(program, kernel, compiled, seed, outcome)


def main(gpu: bool) -> None:
    """Answers until the input ends."""
    answers = os.dup(1)
    os.dup2(2, 1)  # what a compiler prints goes elsewhere
    device = available() if gpu else None
    for line in sys.stdin:
        feature, seed = line.split()
        program = seeded(feature, int(seed))
        if device is not None:
            program = replace(program, target=device.arch)
        outcome = judge(program, int(seed), launched if gpu else compiled_and_simulated)
        try:
            os.write(answers, (json.dumps(asdict(outcome)) + "\n").encode())
        except BrokenPipeError:  # nobody wants to know any more
            return


if __name__ == "__main__":
    main("--gpu" in sys.argv)
