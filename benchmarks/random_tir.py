"""Random hand-written TIR, checker against simulator: ``python benchmarks/random_tir.py COUNT --seed N``.

COUNT programs of every kind (rings, guards and nested loops by one group; rings with phase barriers and staged tensor
stores by roles), usually with something bent. A program that a simulation shows to be wrong must not be called safe.
The opposite is no contradiction: a simulation tries a few sizes and timings, the checker decides for all.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "property"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "unit"))

from generators import GENERATORS
from random_tir_judge import judge


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int, nargs="?", default=100, metavar="COUNT", help="programs per kind")
    parser.add_argument("--seed", type=int, default=0, help="of the first program")
    parser.add_argument("--runs", type=int, default=1, help="simulations per size and completion policy")
    parser.add_argument("--only", choices=GENERATORS, help="one kind")
    options = parser.parse_args()
    start = time.perf_counter()
    wrong = 0
    heads = ("safe", "unsafe", "not proved", "faults", "unseen", "wrong", "check s", "simulate s")
    print(f"{'kind':<20}" + "".join(f"{head:>12}" for head in heads))
    for kind in (options.only,) if options.only else GENERATORS:
        seen: Counter[str] = Counter()
        spent = [0.0, 0.0]
        for seed in range(options.seed, options.seed + options.count):
            found = judge(kind, seed, options.runs)
            seen[found.status] += 1
            seen["faults"] += bool(found.fault)
            seen["unseen"] += found.status == "unsafe" and not found.fault
            seen["wrong"] += found.wrong
            spent[0] += found.check_s
            spent[1] += found.simulate_s
            if found.wrong:
                print(f"{kind}, seed {seed} is called safe: {found.fault}\n{found.text}")
        wrong += seen["wrong"]
        numbers = [f"{seen[head]:>12}" for head in heads[:6]] + [f"{s:>12.1f}" for s in spent]
        print(f"{kind:<20}{''.join(numbers)}", flush=True)
    print(f"{time.perf_counter() - start:.1f} s; faults: shown by a simulation; unseen: unsafe, none shows it")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
