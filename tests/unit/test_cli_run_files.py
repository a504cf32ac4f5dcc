"""What a run found is printed before its files are written, and what they cannot be written for is one line."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from easybalance_sim.cli import metrics_file, report_file, run_files
from easybalance_sim.cli.console import Format
from easybalance_sim.errors import UsageError
from easybalance_sim.report.content import Page
from tests.report_pages import page


@pytest.mark.parametrize("broken", [metrics_file, report_file])
def test_the_report_is_printed_whatever_becomes_of_the_files(
    broken: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(broken, "write", lambda *_: json.loads("{}")["never"])
    for format in Format:
        with pytest.raises(KeyError):
            run_files.deliver(
                {"found": 1}, tmp_path / "x.prom" if broken is metrics_file else None, tmp_path / "x.html", None,
                format, lambda made: f"found {made['found']}",
            )  # fmt: skip
        said = capsys.readouterr().out
        assert json.loads(said) == {"found": 1} if format is Format.JSON else said == "found 1\n"


def test_a_full_disk_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def drawn(_page: Page, _report: Path | None, _figures: Path | None) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("easybalance_sim.report.pages.page_of", lambda *_: page())
    monkeypatch.setattr(report_file, "_draw", drawn)
    with pytest.raises(UsageError, match=r"x\.html: the page or its figures cannot be written: No space left"):
        report_file.write(tmp_path / "x.html", None, {})
