"""The data of every figure of the sample's page: what is drawn changes only when somebody means it to."""

from __future__ import annotations

from easybalance_sim.report.canvas import svg_of
from tests.golden.report.make_golden import FOLDER, golden_page


def test_the_data_of_every_figure_are_the_golden_ones() -> None:
    """Made anew by `python -m tests.golden.report.make_golden`, after a look at the page."""
    found = {figure.name: figure.chart.table().csv() for figure in golden_page().figures()}
    assert sorted(found) == sorted(path.stem for path in FOLDER.glob("*.csv"))
    for name, text in found.items():
        assert text == (FOLDER / f"{name}.csv").read_text(encoding="utf-8"), name


def test_a_drawing_is_the_same_bytes_each_time() -> None:
    chosen = ("over_time", "front_node_bytes", "stress")
    first, second = (
        {figure.name: svg_of(figure.chart, figure.name) for figure in golden_page().figures() if figure.name in chosen}
        for _ in range(2)
    )
    assert sorted(first) == sorted(chosen) and first == second
