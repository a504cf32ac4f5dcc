"""GitHub's annotations and job summary."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from easybalance_sim.errors import UsageError
from easybalance_sim.gate.github import SUMMARY, append_summary, summary, workflow_commands
from tests.ci_checks import EVERY_OUTCOME
from tests.ebsim_process import ROOT

GOLDEN = ROOT / "tests" / "golden" / "ci" / "summary.md"


def test_annotations_are_one_line_each_and_escaped() -> None:
    assert workflow_commands(EVERY_OUTCOME) == [
        "::error file=report.json,title=ebsim gate%3A stress.burst::worst: <a|b> & 50 %25%0AP99 \x07, limit 1.02, "
        "observed 1.5",
        "::error title=ebsim run%3A run::report split: is missing",
        "::warning file=a%2Cb.json,title=ebsim lint SGLang 0.5.23%3A extra-layers::row 9: no such layer",
    ]


def test_a_file_outside_the_repository_is_not_linked() -> None:
    (line,) = workflow_commands([replace(EVERY_OUTCOME[3], file="/tmp/report.json", message="")])
    assert line == "::error title=ebsim gate%3A stress.burst::limit 1.02, observed 1.5"


@pytest.mark.parametrize(("count", "last"), [(10, "name 9"), (11, "2 more, in the job summary")])
def test_no_more_than_github_keeps(count: int, last: str) -> None:
    lines = workflow_commands([replace(EVERY_OUTCOME[4], message=f"name {number}") for number in range(count)])
    assert (len(lines), lines[-1].rpartition("::")[2]) == (10, last)


def test_the_summary_is_the_golden_file() -> None:
    text = summary("ebsim gate: REJECTED", EVERY_OUTCOME)
    assert text == GOLDEN.read_text(encoding="utf-8")
    rows = [line.replace("\\|", "") for line in text.splitlines() if line.startswith("|")]
    assert {row.count("|") for row in rows} == {6}


def test_it_is_appended_where_github_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SUMMARY, raising=False)
    assert not append_summary("nothing")
    monkeypatch.setenv(SUMMARY, str(tmp_path / "summary.md"))
    assert append_summary("one") and append_summary("zwölf")
    assert (tmp_path / "summary.md").read_text(encoding="utf-8") == "one\nzwölf\n"
    monkeypatch.setenv(SUMMARY, str(tmp_path))
    with pytest.raises(UsageError, match="cannot append: Is a directory"):
        append_summary("one")
