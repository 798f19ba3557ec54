"""Random programs per language feature, against plain: ``benchmarks/feature_programs.py --count 100``.

Every program is compiled to machine code, verified, checked, and simulated under every completion policy; with
``--gpu`` the same programs run on the GPU instead. The table counts, per feature: programs; refused, by code; not
proved for all sizes; wrong. ``--show`` prints the programs that break a rule. The exit status is 1 if any does.
"""

from __future__ import annotations

import argparse
import collections
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "property"))

from features import FEATURES
from features.judge import Judgement, seeded
from features.workers import Job, judge_all


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--feature", action="append", choices=sorted(FEATURES), help="all by default")
    parser.add_argument("--count", type=int, default=100, help="programs per feature")
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--gpu", action="store_true", help="run on the GPU, not on the simulator")
    parser.add_argument("--processes", type=int, default=min(os.cpu_count() or 1, 16))
    parser.add_argument("--show", type=int, default=3, metavar="N", help="print the first N programs that break a rule")
    options = parser.parse_args()
    names = options.feature or list(FEATURES)
    found: dict[Job, Judgement] = {}
    start = time.perf_counter()

    def report(job: Job, outcome: Judgement) -> None:
        if outcome.faults and sum(bool(o.faults) for o in found.values()) < options.show:
            print(f"{job[0]}, seed {job[1]}\n{seeded(*job)}")
            for kind, text in outcome.faults[:6]:
                print(f"  {kind}: {text}", flush=True)
        found[job] = outcome

    # Seed by seed, so that a run that is interrupted has seen something of every feature.
    jobs = [(name, seed) for seed in range(options.seed, options.seed + options.count) for name in names]
    try:
        judge_all(jobs, options.gpu, options.processes, report)
    except KeyboardInterrupt:
        print("interrupted: the table tells of what has been judged")
    print_table(names, found)
    took = time.perf_counter() - start
    where = "the GPU" if options.gpu else "the simulator"
    print(f"{len(found)} programs from seed {options.seed} on {where} in {took:.0f} s")
    return 1 if any(o.faults for o in found.values()) else 0


def print_table(names: list[str], found: dict[Job, Judgement]) -> None:
    print(f"{'feature':<20} {'programs':>8} {'refused':>8} {'unproved':>8} {'wrong':>6}  codes and seeds")
    for name in names:
        mine = {seed: outcome for (feature, seed), outcome in found.items() if feature == name}
        codes = collections.Counter(o.refusal.split()[0] for o in mine.values() if o.refusal)
        wrong = sorted(seed for seed, o in mine.items() if o.faults)
        unproved = sum(bool(o.unproved) for o in mine.values())
        notes = [f"{code} {count}" for code, count in codes.most_common()]
        notes += [f"wrong: {' '.join(map(str, wrong[:12]))}"] if wrong else []
        row = f"{name:<20} {len(mine):>8} {codes.total():>8} {unproved:>8} {len(wrong):>6}  {', '.join(notes)}"
        print(row.rstrip())


if __name__ == "__main__":
    raise SystemExit(main())
