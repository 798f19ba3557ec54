"""Small kernels, right and wrong: the checker says what their headers say, and the simulator agrees."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from entries import OVER_SYNCHRONISED, Entry, arrays, entries, page

from tidegate.check import Verdict, check
from tidegate.ir.spec import verify
from tidegate.simulate import Completion, Simulation, simulate

DOCS = Path(__file__).parents[2] / "docs"
CORPUS = {entry.name: entry for entry in entries()}
COMPLETIONS: tuple[Completion, ...] = ("late", "early", "random")
SEEDS = range(2)
SECONDS = 20

every = pytest.mark.parametrize("name", CORPUS)


@cache
def verdict_of(name: str) -> tuple[Verdict, float]:
    start = time.process_time()
    verdict = check(CORPUS[name].kernel)
    return verdict, time.process_time() - start


@every
def test_the_checker_says_what_the_header_says(name: str) -> None:
    entry, (verdict, _) = CORPUS[name], verdict_of(name)
    kind = verdict.findings[0].kind if verdict.findings else ""
    assert (verdict.status, kind) == (entry.verdict, entry.kind), verdict.text()
    if kind != "divergent barrier":  # which the specification refuses as well
        assert bool(verify(entry.kernel)) == (kind == "malformed")
    if entry.verdict == "safe" and any(d.value is None for d in entry.kernel.dims):
        assert "every trip count" in verdict.scope


def test_the_whole_corpus_is_checked_quickly() -> None:
    assert sum(verdict_of(name)[1] for name in CORPUS) < SECONDS


# ---------------------------------------------------------------------------------------------- the simulator


def simulations(entry: Entry) -> Iterator[tuple[Simulation, Simulation]]:
    """Every run, with the first one of the same inputs."""
    for run in entry.runs:
        given, first = arrays(entry.kernel, run), None
        for completion in COMPLETIONS:
            for seed in SEEDS:
                found = simulate(entry.kernel, given, completion=completion, seed=seed)
                first = first or found
                yield found, first


def agrees(found: Simulation, first: Simulation) -> bool:
    """Silent, and the same results whatever happens when."""
    same = (np.array_equal(found.outputs[n], first.outputs[n], equal_nan=True) for n in first.outputs)
    return found.ok and all(same)


@pytest.mark.parametrize("name", [n for n, e in CORPUS.items() if e.verdict == "safe"])
def test_a_safe_kernel_is_silent_and_reproduces_itself(name: str) -> None:
    for found, first in simulations(CORPUS[name]):
        assert agrees(found, first), found


@pytest.mark.parametrize("name", [n for n, e in CORPUS.items() if e.verdict != "safe" and e.kind != "malformed"])
def test_an_unsafe_kernel_shows_in_some_run(name: str) -> None:
    shown = next((str(found) for found, first in simulations(CORPUS[name]) if not agrees(found, first)), "")
    assert bool(shown) == (CORPUS[name].simulator != "silent"), shown


# ---------------------------------------------------------------------------------------------- the corpus itself


@every
def test_the_header(name: str) -> None:
    entry = CORPUS[name]
    assert entry.name == f"{entry.number:02}_{entry.kernel.name}"
    assert entry.verdict in ("safe", "unsafe", "not proved")
    assert bool(entry.kind) == bool(entry.twin) == (entry.verdict == "unsafe")
    assert entry.simulator in ("", "silent")
    assert entry.why.endswith(".")
    if entry.twin:
        assert CORPUS[entry.twin].verdict == "safe"
    if entry.kind:
        assert f"`{entry.kind}`" in (DOCS / "checking.md").read_text()


def test_every_kind_of_fault_has_wrong_kernels_or_must_be_accepted() -> None:
    for number in {entry.number for entry in CORPUS.values()}:
        verdicts = {entry.verdict for entry in CORPUS.values() if entry.number == number}
        assert verdicts == {"safe"} if number == OVER_SYNCHRONISED else "unsafe" in verdicts, number
    assert {entry.number for entry in CORPUS.values()} == {*range(1, 20), 22}


def test_no_kernel_is_there_twice() -> None:
    bodies = [re.sub(r"\Akernel \w+", "", _without_header(entry.path.read_text())) for entry in CORPUS.values()]
    assert len(set(bodies)) == len(bodies)


def _without_header(text: str) -> str:
    return text[text.index("kernel ") :] if text.startswith("//") else text


def test_the_page_is_up_to_date(request: pytest.FixtureRequest) -> None:
    path = DOCS / "corpus.md"
    if request.config.getoption("--update-golden"):
        path.write_text(page(), encoding="utf-8")
    assert path.read_text(encoding="utf-8") == page(), "pytest --update-golden rewrites docs/corpus.md"
