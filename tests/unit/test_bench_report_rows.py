"""Rows of benchmarks in a report: each in its place, and nothing else touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.report_rows import with_rows

REPORT = "head\n<!-- rows: a -->\nold\n<!-- end of rows -->\nmiddle\n<!-- rows: b -->\n<!-- end of rows -->\ntail\n"


def test_rows_replace_those_of_their_place() -> None:
    found = with_rows(REPORT, {"b": ["one\ntwo", "\nthree"]})
    assert found == REPORT.replace("<!-- rows: b -->\n", "<!-- rows: b -->\n```text\none\ntwo\nthree\n```\n")
    again = with_rows(found, {"a": ["new"], "b": ["four"]})
    assert (
        "old" not in again
        and "two" not in again
        and "new" in again
        and again.endswith("middle\n" + again.partition("middle\n")[2])
    )
    assert with_rows(again, {"b": ["four"]}) == again


def test_a_table_is_one_table() -> None:
    found = with_rows(REPORT, {"a": ["| x |\n|---|\n| 1 |", "| x |\n|---|\n| 2 |"]})
    assert "<!-- rows: a -->\n| x |\n|---|\n| 1 |\n| 2 |\n<!-- end of rows -->" in found


@pytest.mark.parametrize(("report", "says"), [("nothing", "no place"), ("<!-- rows: a -->\nrest", "no end")])
def test_a_name_without_a_place(report: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        with_rows(report, {"a": ["1"]})


def test_every_benchmark_that_publishes_has_its_place() -> None:
    folder = Path(__file__).parents[1] / "bench"
    report = (folder.parents[1] / "reports" / "benchmarks.md").read_text(encoding="utf-8")
    for path in folder.glob("test_*.py"):
        text = path.read_text(encoding="utf-8")
        for part in text.split("\ndef test_")[1:]:
            head, _, body = part.partition("(")
            if "publish:" in body.partition(") -> None")[0]:
                assert f"<!-- rows: {path.stem}::test_{head} -->\n" in report
