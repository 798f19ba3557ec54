"""Random scheduled programs through the whole way, each rule counted: ``python benchmarks/random_programs.py 500``.

Every program is compiled by both producers with and without sharing of bytes, verified, checked, simulated under every
completion policy, stripped of each sync in turn, and its plan saved, loaded and broken. ``--seed`` starts the sequence,
``--show`` prints the programs that break a rule.
"""

from __future__ import annotations

import argparse
import collections
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "property"))

from judging import judge
from strategies import seeded


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int, nargs="?", default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", type=int, default=3, metavar="N", help="print the first N programs that break a rule")
    options = parser.parse_args()
    refusals: collections.Counter[str] = collections.Counter()
    faults: collections.Counter[str] = collections.Counter()
    seconds: collections.Counter[str] = collections.Counter()
    syncs, shown, start = 0, 0, time.perf_counter()
    done = 0
    for seed in range(options.seed, options.seed + options.count):
        program = seeded(seed)
        try:
            outcome = judge(program, seed)
        except KeyboardInterrupt:  # the table tells of what has been judged
            break
        done += 1
        refusals[outcome.refusal.split(":")[0] or "accepted"] += 1
        seconds.update(outcome.seconds)
        syncs += outcome.syncs
        kinds = {kind for kind, _ in outcome.faults}
        faults.update(kinds)
        if kinds and shown < options.show:
            shown += 1
            print(f"seed {seed}: {', '.join(sorted(kinds))}\n{program}")
            for kind, text in outcome.faults[:6]:
                print(f"  {kind}: {text}")
    took = time.perf_counter() - start
    print(f"{done} programs from seed {options.seed} in {took:.1f} s, {syncs} syncs removed one by one")
    for title, table in (("programs", refusals), ("programs that break a rule", faults)):
        print(title)
        for name, number in table.most_common():
            print(f"  {name:<24} {number:>7}")
    print("seconds")
    for name, number in seconds.most_common():
        print(f"  {name:<24} {number:>7.1f}")
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
