"""Figures as files: whole or not at all, with their data beside them."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.figure import Figure as Drawing

from easybalance_sim.errors import UsageError
from easybalance_sim.report.canvas import png_of, svg_of
from easybalance_sim.report.charts.bars import Bars
from easybalance_sim.report.figure_files import figure_bytes, write_figures
from tests.report_pages import bars, front, page


class Broken(Bars):
    """Cannot be drawn."""

    def draw(self, drawing: Drawing) -> None:
        """Fail half-way."""
        drawing.subplots()
        raise RuntimeError("half-way")


def test_every_figure_in_every_kind_with_its_data(tmp_path: Path) -> None:
    made = page(charts={"bars": bars(), "front": front()})
    paths = write_figures(made, tmp_path / "new" / "folder")
    assert [path.name for path in paths] == [
        "bars.svg", "bars.png", "bars.csv", "front.svg", "front.png", "front.csv",
    ]  # fmt: skip
    assert sorted(path.name for path in (tmp_path / "new" / "folder").iterdir()) == sorted(path.name for path in paths)
    assert paths[0].read_text(encoding="utf-8") == svg_of(bars(), "bars")
    assert paths[4].read_bytes() == png_of(front(), "front")
    assert paths[2].read_text(encoding="utf-8") == bars().table().csv()


def test_only_the_kinds_that_are_asked_for_and_others_stay(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("stays")
    paths = write_figures(page(charts={"bars": bars()}), tmp_path, kinds=("svg",))
    assert [path.name for path in paths] == ["bars.svg", "bars.csv"]
    assert (tmp_path / "mine.txt").read_text() == "stays"


def test_a_file_that_fails_leaves_the_old_one(tmp_path: Path) -> None:
    (tmp_path / "bars.svg").write_text("old")
    good = bars()
    broken = Broken(rows=good.rows, row=good.row, series=good.series, value=good.value)
    with pytest.raises(RuntimeError, match="half-way"):
        write_figures(page(charts={"bars": broken}), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["bars.svg"] and (tmp_path / "bars.svg").read_text() == "old"


def test_every_figure_that_is_there_is_told(tmp_path: Path) -> None:
    told: list[int] = []
    write_figures(page(charts={"bars": bars(), "front": front()}), tmp_path, kinds=("svg",), drawn=told.append)
    assert told == [1, 1]


def test_kinds_and_folders_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no kind 'gif'"):
        write_figures(page(), tmp_path, kinds=("gif",))
    with pytest.raises(UsageError, match="no kind 'pdf'"):
        figure_bytes(page().figures()[0], "pdf")
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="no folder can be made here"):
        write_figures(page(), tmp_path / "file" / "below")
