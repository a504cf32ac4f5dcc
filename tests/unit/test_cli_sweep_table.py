"""The text of a sweep."""

from __future__ import annotations

from pathlib import Path

import pytest

from easybalance_sim.cli.sweep_options import numbers
from easybalance_sim.cli.sweep_table import of_sweep
from easybalance_sim.errors import UsageError
from easybalance_sim.report.content import MadeBy, Table
from easybalance_sim.report.pages import page_of
from easybalance_sim.report.sweep_words import BETTER, no_knee
from tests.one_text import unbroken
from tests.sweep_reports import example_report

GOLDEN = Path(__file__).parents[1] / "golden" / "sweep" / "table.txt"


def test_the_table_is_the_golden_one() -> None:
    assert of_sweep(example_report()) + "\n" == GOLDEN.read_text(encoding="utf-8")


def test_the_arrow_is_at_the_knee_that_counts() -> None:
    report = example_report()
    marked = [line for line in of_sweep(report).splitlines() if line.startswith("→")]
    assert [line.split()[1:3] for line in marked] == [["1", "5"], ["1", "window_search"], ["0", "2"], ["0", "eplb"]]
    marked = [line for line in of_sweep({**report, "gain_by": "imbalance"}).splitlines() if line.startswith("→")]
    assert [line.split()[1:3] for line in marked[::2]] == [["1", "5"], ["1", "3"]]


def test_unknown_tokens_are_dashes_and_the_knee_costs_memory() -> None:
    text = unbroken(of_sweep(example_report(tokens=False)))
    assert "KV cache: unknown for this model, expert bytes are shown" in text
    assert "(-10.0 %) for 4.0 MB per rank" in text


def test_the_reason_for_no_knee_is_said() -> None:
    report = example_report()
    (curve,) = report["curves"] = report["curves"][1:]
    curve["knee"] = {"seconds": None, "imbalance": None}
    text = unbroken(of_sweep(report))
    assert "by MoE time of a step: no knee, zero redundancy is best (no point gains more than the noise)" in text
    assert "by rank imbalance: no knee, zero redundancy is best (what gains has a slower step)" in text
    for gain in curve["points"][1]["gain"].values():
        gain["noise"] = None
    assert unbroken(of_sweep(report)).count("too few windows to tell a gain from noise") == 2


def test_the_page_says_what_the_terminal_says() -> None:
    report = example_report()
    one, two = report["curves"]
    one["points"], one["knee"] = one["points"][:1], {"seconds": None, "imbalance": None}
    two["knee"] = {"seconds": None, "imbalance": None}
    page, text = page_of(report, MadeBy(command="", versions={})), unbroken(of_sweep(report))
    conclusions = {figure.name: figure.conclusion for figure in page.figures()}
    for by, better in BETTER.items():
        for curve in (one, two):
            told = f"no knee, {no_knee(curve, by)}"
            assert told in conclusions[by] and f"by {better}: {told}" in text
    assert no_knee(one, "seconds") == "nothing but zero redundancy was tried"
    (table,) = [block for block in page.sections[0].blocks if isinstance(block, Table)]
    assert all(" ".join((row[0], row[1], *row[2:])) in text for row in table.rows)


def test_one_curve_is_not_compared_with_itself() -> None:
    report = example_report()
    report["curves"] = report["curves"][:1]
    assert "the curves at their knees" not in of_sweep(report)


def test_figures_of_the_fit_are_called_so() -> None:
    report = example_report()
    report["curves"][0]["held_out_windows"] = 0
    assert "nothing is held out: figures of the 90 windows of the fit" in unbroken(of_sweep(report))


def test_lists_of_numbers() -> None:
    assert numbers("--ranks", "8, 16,8", 1, 99) == (8, 16)
    assert numbers("--ranks", "", 1, 99) == ()


@pytest.mark.parametrize("text", ["8;16", "a", "1,", "-1", "1.5", "0", "100", "²"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--ranks: "):
        numbers("--ranks", text, 1, 99)
