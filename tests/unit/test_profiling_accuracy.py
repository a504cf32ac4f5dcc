"""The accuracy table itself: what counts as a pass, and the parts that need no measured tables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.bench import accuracy
from tests.bench.accuracy_layers import layer_lines
from tests.bench.accuracy_links import public_lines
from tests.bench.accuracy_rows import Line, error_lines


def test_a_line_passes_on_its_side_of_the_target() -> None:
    low = Line(item="error", measured=4.0, target=5.0, rows=1000)
    high = Line(item="order", measured=0.973, target=0.98, rows=5, at_most=False, percent=False)
    assert low.cells == ("error", "≤ 5.0 %", "4.0 %", "1,000", "pass")
    assert high.cells == ("order", "≥ 0.98", "0.973", "5", "MISS")


def test_errors_are_relative_to_the_measured_time() -> None:
    lines = error_lines("table", np.array([90.0, 120.0, 100.0]), np.full(3, 100.0), 10.0, p90=20.0)
    assert [(line.item, round(line.measured, 6)) for line in lines] == [("table, MAPE", 10), ("table, p90", 18)]


def test_without_the_tables_a_line_is_printed_and_nothing_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(accuracy, "TABLES", tmp_path / "absent")
    assert accuracy.main() == 0
    assert capsys.readouterr().out == f"accuracy: skipped, no measured tables at {tmp_path / 'absent'}\n"


def test_every_published_whole_layer_point_lies_inside_its_bracket() -> None:
    lines, brackets, ceilings = layer_lines()
    assert [bracket.run.name for bracket in brackets if not bracket.holds] == []
    assert lines[0].measured == 6
    serial, implied, full, taking, taking_implied, taking_full = ceilings
    assert 15 < serial.gain < implied.gain < 18 < full.gain < 20
    assert full.needed < 1.2 < implied.needed < serial.needed < 1.25
    assert taking.gain == serial.gain > taking_implied.gain > taking_full.gain >= 10
    assert serial.needed < taking_implied.needed < taking_full.needed < 1.4
    assert [line.passed for line in lines[1:]] == [True, True]


def test_the_shipped_h800_links_reproduce_the_published_tables() -> None:
    assert all(line.passed for line in public_lines())
