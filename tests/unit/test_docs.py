"""Every Python snippet of the documentation runs, and prints what the ``text`` block behind it shows.

The blocks of a page run in order in one namespace; each is a file of its own, so that kernels have source text and
line numbers count from the block's first line. ``pytest --update-golden`` rewrites the shown output.
"""

from __future__ import annotations

import contextlib
import io
import re
import runpy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/concepts.md", "docs/language.md", "docs/plan.md")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A python block, and where the output behind it stands in the page (None: none is shown)."""

    code: str
    line: int
    output: tuple[int, int] | None


def blocks(page: str) -> Iterator[Block]:
    fences = list(FENCE.finditer(page))
    for at, fence in enumerate(fences):
        if fence[1] != "python":
            continue
        following = fences[at + 1] if at + 1 < len(fences) else None
        shown = following is not None and following[1] == "text" and not page[fence.end() : following.start()].strip()
        span = following.span(2) if shown and following is not None else None
        yield Block(fence[2], page.count("\n", 0, fence.start()) + 2, span)


@pytest.mark.parametrize("name", PAGES)
def test_snippets_run_and_print_what_is_shown(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    page = (ROOT / name).read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    space: dict[str, object] = {"__name__": "snippet"}
    updated, shift = page, 0
    for number, block in enumerate(blocks(page)):
        path = tmp_path / f"block{number}.py"
        path.write_text(block.code, encoding="utf-8")
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(block.code, str(path), "exec"), space)
        text = out.getvalue().replace(f"{tmp_path}/", "").replace(f"{ROOT}/examples/", "")
        printed = "\n".join(line.rstrip() for line in text.splitlines()) + "\n"
        where = f"{name}:{block.line}"
        if block.output is None:
            assert not out.getvalue(), f"{where} prints, and no ```text block shows it"
        elif request.config.getoption("--update-golden"):
            start, end = block.output
            updated = updated[: start + shift] + printed + updated[end + shift :]
            shift += len(printed) - (end - start)
        else:
            start, end = block.output
            assert printed == page[start:end], f"{where} prints something else (pytest --update-golden rewrites it)"
    if updated != page:
        (ROOT / name).write_text(updated, encoding="utf-8")


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name: str) -> None:
    page = FENCE.sub("", (ROOT / name).read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page):
        assert ((ROOT / name).parent / target).exists(), f"{name} links to {target}"


def test_picture_is_what_its_script_draws() -> None:
    script = runpy.run_path(str(ROOT / "docs" / "pipeline.py"))
    assert (ROOT / "docs" / "pipeline.svg").read_text() == script["draw"](), "run python docs/pipeline.py"
