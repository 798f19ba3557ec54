"""Random scheduled programs through the whole way, each rule counted: ``python benchmarks/random_programs.py 10000``.

Of every program: it compiles by both producers with and without sharing of bytes, or is refused with a code; the kernel
is legal TIR; the checker calls it safe; the simulator, under every completion policy, agrees with the plain program
within its rounding bound and meets no fault; the saved plan is the plan. Of every ``--sample``-th program (default 4,
1: of all) also: without any one of its syncs the checker objects, and its plan with a sync less, or with a wait for a
group less, is rejected. Plans order rings that share bytes as wholes: syncs that these rings need for no slot are told,
and break no rule.

``--seed`` starts the sequence, ``--jobs`` spreads it over processes, ``--seconds`` ends it early, ``--show`` prints
programs that break a rule. The exit status is 1 if one does.
"""

from __future__ import annotations

import argparse
import collections
import functools
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from multiprocessing.pool import AsyncResult
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # the tables are small: threads of each process would only contend

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "property"))

from judging import Outcome, judge
from strategies import seeded

GRACE = 30.0
"""Seconds that programs which have begun may take after the time is up."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int, nargs="?", default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes (default 1)")
    parser.add_argument("--sample", type=int, default=4, metavar="N", help="break every N-th program (default 4)")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no further program after this time")
    parser.add_argument("--show", type=int, default=3, metavar="N", help="print the first N programs that break a rule")
    options = parser.parse_args()
    table = Table()
    start = time.perf_counter()
    seeds = range(options.seed, options.seed + options.count)
    for seed, outcome, cpu in judged(seeds, options.sample, options.jobs, start + options.seconds):
        table.add(seed, outcome, cpu)
        if outcome.faults and sum(table.faults.values()) <= options.show:
            kinds = sorted({kind for kind, _ in outcome.faults})
            print(f"seed {seed}: {', '.join(kinds)}\n{seeded(seed)}")
            for kind, text in outcome.faults[:6]:
                print(f"  {kind}: {text}", flush=True)
    table.print(options.seed, options.sample, time.perf_counter() - start)
    return 1 if table.faults else 0


def judged(seeds: range, sample: int, jobs: int, until: float) -> Iterator[tuple[int, Outcome, float]]:
    """The outcome and processor seconds of every seed, in any order."""
    work = functools.partial(judge_seed, sample=sample)
    following = (seed for seed in seeds if time.perf_counter() < until)
    try:
        if jobs == 1:
            yield from map(work, following)
            return
        with multiprocessing.Pool(jobs) as pool:
            running: dict[int, AsyncResult[tuple[int, Outcome, float]]] = {}
            for seed in following:
                running[seed] = pool.apply_async(work, (seed,))
                while len(running) >= 2 * jobs and time.perf_counter() < until:
                    yield from finished(running)
            while running and time.perf_counter() < until + GRACE:
                yield from finished(running)
            if running:
                print(f"not finished in time: seeds {', '.join(map(str, sorted(running)))}")
    except KeyboardInterrupt:  # the table tells of what has been judged
        return


def finished(running: dict[int, AsyncResult[tuple[int, Outcome, float]]]) -> Iterator[tuple[int, Outcome, float]]:
    """Takes out what is done; waits a moment if nothing is."""
    done = [seed for seed, result in running.items() if result.ready()]
    if not done:
        time.sleep(0.02)
    for seed in done:
        yield running.pop(seed).get()


def judge_seed(seed: int, sample: int) -> tuple[int, Outcome, float]:
    start = time.process_time()
    outcome = judge(seeded(seed), seed, broken=seed % sample == 0)
    return seed, outcome, time.process_time() - start


class Table:
    """Counts of what was judged."""

    def __init__(self) -> None:
        self.refusals: collections.Counter[str] = collections.Counter()
        self.faults: collections.Counter[str] = collections.Counter()
        self.seconds: collections.Counter[str] = collections.Counter()
        self.seeds: collections.defaultdict[str, list[int]] = collections.defaultdict(list)
        self.cpu: list[tuple[float, int]] = []
        self.syncs = self.slotwise = self.plans = self.kernels = self.proved = 0

    def add(self, seed: int, outcome: Outcome, cpu: float) -> None:
        self.refusals[outcome.refusal.split(":")[0] or "accepted"] += 1
        self.seconds.update(outcome.seconds)
        self.cpu.append((cpu, seed))
        self.syncs += outcome.syncs
        self.slotwise += outcome.slotwise
        self.plans += outcome.plans
        self.kernels += outcome.kernels
        self.proved += outcome.proved
        for kind in {kind for kind, _ in outcome.faults}:
            self.faults[kind] += 1
            self.seeds[kind].append(seed)

    def print(self, seed: int, sample: int, took: float) -> None:
        done = len(self.cpu)
        total = sum(cpu for cpu, _ in self.cpu)
        print(f"{done} programs from seed {seed} in {took:.1f} s ({total / max(done, 1):.2f} s of processor each)")
        print(f"{self.kernels} kernels: {self.proved} proved for all sizes, the others for some")
        print(f"of every {sample}. program: {self.syncs} syncs removed one by one, {self.plans} broken plans")
        print(f"{self.slotwise} of these syncs matter only where rings that share bytes are ordered as wholes")
        for title, table in (("programs", self.refusals), ("programs that break a rule", self.faults)):
            print(title)
            for name, number in table.most_common():
                seeds = ", ".join(map(str, sorted(self.seeds[name])[:8]))
                print(f"  {name:<24} {number:>7}{f'   seeds {seeds}' if seeds else ''}")
        print("seconds")
        for name, number in self.seconds.most_common():
            print(f"  {name:<24} {number:>7.1f}")
        slowest = ", ".join(f"{seed} ({cpu:.1f} s)" for cpu, seed in sorted(self.cpu, reverse=True)[:5])
        print(f"slowest seeds: {slowest}")


if __name__ == "__main__":
    raise SystemExit(main())
