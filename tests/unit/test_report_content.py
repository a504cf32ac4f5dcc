"""What a page holds: data as CSV that every reader takes, figures in order, versions."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

import pytest

from easybalance_sim import __version__
from easybalance_sim.report.content import DataTable, made_by
from tests.report_pages import FORMULA, HOSTILE, page


def written(*cells: str | int | float | None) -> list[str]:
    """A row as a reader of CSV finds it."""
    columns = tuple(f"c{place}" for place in range(len(cells)))
    return list(csv.reader(io.StringIO(DataTable(columns=columns, rows=(cells,)).csv(), newline="")))[1]


def test_cells_come_back_from_csv() -> None:
    hard = 'a,"b"\nc'
    assert written(hard, 3, 0.5, None, 1.0, -2) == [hard, "3", "0.5", "", "1.0", "-2"]
    assert written(HOSTILE, "a\rb") == [HOSTILE, "a b"]


def test_numbers_keep_seven_digits() -> None:
    assert written(1 / 3, 123456.789, 1e-12, float("nan"), float("-inf"), 12345678901234.0) == [
        "0.3333333", "123456.8", "1e-12", "nan", "-inf", "12345678901234.0",
    ]  # fmt: skip


@pytest.mark.parametrize("text", [FORMULA, "@SUM(1)", "+1+cmd|' /C calc'!A0", "-2+3", "\t=1", "-x", "=1,2"])
def test_no_spreadsheet_takes_words_for_a_formula(text: str) -> None:
    assert written(text) == [f"'{text}"]
    assert DataTable(columns=(text,), rows=()).csv().strip().strip('"') == f"'{text}".strip()


@pytest.mark.parametrize("text", ["-11.8 %", "+0.2 %", "–", "-3", "+1.5e-3 µs", "-2 MB/s", "a=b", "1.931 → 1.366"])
def test_numbers_with_signs_and_units_stay_as_they_are(text: str) -> None:
    assert written(text) == [text]


def test_figures_come_in_order() -> None:
    assert [figure.name for figure in page().figures()] == ["heat", "bars", "lines", "front"]


def test_two_figures_of_one_name_are_refused() -> None:
    found = page()
    with pytest.raises(ValueError, match=r"one name would be one file: bars, front, heat, lines$"):
        replace(found, sections=(*found.sections, *found.sections))


def test_versions_of_all_that_counts() -> None:
    made = made_by("ebsim plan x")
    assert made.command == "ebsim plan x" and made.versions["ebsim"] == __version__
    assert set(made.versions) == {"ebsim", "python", "numpy", "numba", "pyarrow", "matplotlib"}
