"""The golden fixture itself: a golden test that cannot fail protects nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

CONFTEST = Path(__file__).parents[1] / "conftest.py"


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makeconftest(CONFTEST.read_text(encoding="utf-8"))
    pytester.makepyfile("""
        def test_plan(golden):
            golden("deep/plan.txt", "one\\ntwo\\nthree")
    """)
    return pytester


def run(project: pytest.Pytester, *args: str) -> pytest.RunResult:
    return project.runpytest_subprocess("-p", "no:cacheprovider", *args)


def test_a_missing_file_fails_and_names_the_remedy(project: pytest.Pytester) -> None:
    result = run(project)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*tests/golden/deep/plan.txt does not exist; pytest --update-golden writes it:*"])
    assert not (project.path / "golden").exists()


def test_update_writes_what_then_passes(project: pytest.Pytester) -> None:
    run(project, "--update-golden").assert_outcomes(passed=1)
    assert (project.path / "golden/deep/plan.txt").read_bytes() == b"one\ntwo\nthree\n"
    run(project).assert_outcomes(passed=1)


def test_a_difference_fails_with_a_unified_diff_and_leaves_the_file(project: pytest.Pytester) -> None:
    file = project.path / "golden/deep/plan.txt"
    file.parent.mkdir(parents=True)
    file.write_text("one\n2\nthree\n")
    result = run(project)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["--- tests/golden/deep/plan.txt", "+++ what the test produced", "-2", "+two"])
    assert file.read_text() == "one\n2\nthree\n"


def test_a_name_cannot_leave_the_folder(project: pytest.Pytester) -> None:
    project.makepyfile("""
        def test_plan(golden):
            golden("../plan.txt", "one")
    """)
    result = run(project, "--update-golden")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*ValueError: golden file '../plan.txt' lies outside tests/golden*"])
