"""Charts by their data: what is drawn, cell by cell, is what it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from easybalance_sim.report.charts import heat_map
from easybalance_sim.report.content import Chart
from tests.report_pages import bars, front, heat, lines

GOLDEN = Path(__file__).parents[1] / "golden" / "charts"
CHARTS: dict[str, Chart] = {"heat": heat(2, 3), "bars": bars(), "lines": lines(), "front": front()}


@pytest.mark.parametrize("name", CHARTS)
def test_the_data_are_those_of_the_golden_file(name: str) -> None:
    assert CHARTS[name].table().csv() == (GOLDEN / f"{name}.csv").read_text(encoding="utf-8")


def test_one_panel_needs_no_column_for_its_name() -> None:
    assert heat(2, 3, panels=("only",)).table().columns == ("layer", "rank", "load over mean")


def test_a_large_map_has_a_column_per_column() -> None:
    side = int((heat_map.LARGE / 2) ** 0.5)
    small, large = heat(side, side).table(), heat(side, side + 1).table()
    assert len(small.rows) == 2 * side**2 and len(large.rows) == 2 * side
    assert large.columns[:3] == ("load over mean: panel", "layer", "rank 0") and len(large.columns) == side + 3
    cells = {(*row[:2], column): row[2 + column] for row in large.rows for column in range(side)}
    assert all(cells[panel, layer, rank] == value for panel, layer, rank, value in small.rows)


def test_charts_grow_with_their_rows_to_a_limit() -> None:
    assert bars(("a",)).size[1] < bars().size[1]
    assert heat(8, 4).size[1] < heat(20, 4).size[1] < heat(40, 4).size[1] == heat(100, 4).size[1]
