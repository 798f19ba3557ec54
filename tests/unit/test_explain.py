"""Explanations of syncs: the author's lines, and what could happen without each."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

import tidegate as tg
from tidegate import cuda
from tidegate.explain.summary import WIDTH, summary
from tidegate.explain.syncs import Explanation, explanation, render


@tg.kernel(warps=4)
def transpose(a: tg.Tensor["M", "N", "f32"], b: tg.Out["N", "M", "f32"], *, STAGES=1):
    for m in tg.grid(tg.tiles("M", 32)):
        for n in tg.tiles("N", 32):
            t = tg.load(a[m, n], by=cuda.cp_async(), stages=STAGES)
            b[n, m] = t.T


@tg.kernel(warps=1)
def plain_copy(x: tg.Tensor[4, 128, "f32"], y: tg.Out[4, 128, "f32"]):
    for r in tg.tiles(4, 1):
        y[r, :] = tg.load(x[r, :], by=cuda.ld())


@tg.kernel(warps=4)
def product(x: tg.Tensor["M", "K", "f16"], y: tg.Tensor["K", "N", "f16"], z: tg.Out["M", "N", "f32"]):
    for m, n in tg.grid(tg.tiles("M", 64), tg.tiles("N", 64)):
        acc = tg.zeros((64, 64))
        for k in tg.tiles("K", 32):
            a = tg.load(x[m, k], by=cuda.cp_async(), stages=3)
            b = tg.load(y[k, n], by=cuda.cp_async(), stages=3)
            acc = tg.dot(a, b, acc, by=cuda.mma())
        z[m, n] = acc


def explained(**given: Any) -> Explanation:
    compiled = transpose.compile(target="h200", **given)
    return explanation(compiled.plan, compiled.legal)


@pytest.mark.parametrize("stages", [1, 3])
def test_every_sync_says_what_breaks_without_it(stages: int) -> None:
    found = explained(STAGES=stages)
    assert found.syncs
    for sync in found.syncs:
        assert sync.protects, f"{sync.id} protects nothing"
        for item in sync.protects:
            assert item.without
            assert f"line {item.source.number}" in item.without
            assert item.source.text
            assert item.sink.text
        assert sync.where.split()[0] in ("before", "in", "at")


def test_places_around_a_loop_that_reads_early() -> None:
    compiled = product.compile(target="sm_80")
    where = {s.place: s.where for s in explanation(compiled.plan, compiled.legal).syncs}
    line = compiled.legal.body[-2].span.line
    assert where["L1.first"] == f"before the loop of line {line}, before the reads of its first trip"
    assert where["L1.next"] == f"at the end of each trip of the loop of line {line}, before the reads of the next"


def test_lines_are_quoted() -> None:
    found = explained()
    (raw,) = [i for s in found.syncs if s.mechanism == "cp.async wait" for i in s.protects if i.kind == "RAW"]
    assert raw.source.text == "t = tg.load(a[m, n], by=cuda.cp_async(), stages=STAGES)"
    assert raw.sink.text == "b[n, m] = t.T"
    assert raw.without == (
        f"line {raw.sink.number} could read t before the copy of line {raw.source.number} has landed"
    )
    (war,) = [i for s in found.syncs for i in s.protects if i.kind == "WAR"]
    assert "could overwrite t while other threads still read it" in war.without


def test_text_and_json() -> None:
    found = explained(STAGES=2)
    text = render(found)
    for sync in found.syncs:
        assert f"{sync.id}: {sync.mechanism}" in text
    data = json.loads(json.dumps(found.to_json()))
    assert [s["id"] for s in data["syncs"]] == [s.id for s in found.syncs]


def test_a_plan_without_syncs() -> None:
    compiled = plain_copy.compile(target="h200")
    plan = replace(compiled.plan, syncs=())
    assert "program order of each thread is enough" in render(explanation(plan, compiled.legal))


def test_the_summary_is_a_page() -> None:
    run = {"ok": False, "matches": True, "max_rel_error": 0.0, "faults": ["fault"] * 9, "unwritten": []}
    result = {
        "kernel": "k", "file": "k.py", "line": 3, "target": "sm_80", "plan": "in_order", "warps": 1, "constants": {},
        "sizes": {}, "scalars": {"s": 0.5}, "seed": 0, "verdict": "not proved", "scope": "every CTA",
        "short_loops": [{"line": 5, "trips": 1}], "findings": ["race: " + "word " * 60],
        "not_proved_because": "too much", "simulations": [{"completion": "late", **run}], "smem_bytes": 0,
        "smem_capacity": 1, "gpu": None, "code": None, "syncs": [], "timings": {"parse": 1.0, "compile": None},
    }  # fmt: skip
    text = summary(result)
    assert all(len(line) <= WIDTH for line in text.splitlines())
    assert "NOT PROVED" in text
    assert "right numbers, but faults on the way" in text
    assert "and 6 more faults" in text
    assert "the loop of line 5 had at most 1 trip: give sizes" in text
    assert "NVRTC is not installed" in text
    gpu = {"name": "H200", "matches": False, "max_rel_error": 0.5, "call_ms": 1.0, "registers": 32}
    assert "H200: MISMATCH" in summary({**result, "gpu": gpu})
