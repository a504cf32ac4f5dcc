"""The console: notes once, progress only when it takes long, results that survive a closed pipe."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from easybalance_sim.cli.console import Console, aligned, emit, say_notes
from easybalance_sim.errors import UsageError


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that the console sees; tests put it forward."""
    now = [100.0]
    monkeypatch.setattr("easybalance_sim.cli.console.time.monotonic", lambda: now[0])
    return now


def test_a_note_is_said_once_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    out = Console()
    for text in ("first", "second", "first"):
        out.note(text)
    assert out.notes == ["first", "second"]
    assert tuple(capsys.readouterr()) == ("", "note: first\nnote: second\n")


def test_short_stages_are_silent(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    advance = Console().progress("replay", 10)
    clock[0] += 0.9
    for _ in range(10):
        advance(1)
    assert tuple(capsys.readouterr()) == ("", "")


def test_long_stages_report_after_a_second_then_now_and_then(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    advance = Console().progress("replay", 20)
    for _ in range(20):
        clock[0] += 1
        advance(1)
    shares = (5, 30, 55, 80, 100)
    assert capsys.readouterr().err.splitlines() == [f"replay: {share} %" for share in shares]


def test_the_end_of_a_stage_that_was_heard_of_is_said_once(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    advance = Console().progress("choosing a plan", 3)
    for seconds in (2.0, 0.1, 0.1, 9.0):
        clock[0] += seconds
        advance(1)
    assert capsys.readouterr().err.splitlines() == ["choosing a plan: 33 %", "choosing a plan: 100 %"]


def test_a_terminal_hears_every_second(
    clock: list[float], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    advance = Console().progress("replay", 4)
    for _ in range(4):
        clock[0] += 1
        advance(1)
    assert len(capsys.readouterr().err.splitlines()) == 4


@pytest.mark.parametrize("total", [0, 3])
def test_progress_never_passes_100(clock: list[float], capsys: pytest.CaptureFixture[str], total: int) -> None:
    advance = Console().progress("replay", total)
    clock[0] += 2
    advance(7)
    assert capsys.readouterr().err == "replay: 100 %\n"


def test_columns_line_up_without_trailing_blanks() -> None:
    rows = [("name", "a", ""), ("x", "100", "µs"), ("long name", "7", "")]
    assert aligned(rows).splitlines() == ["name         a", "x          100  µs", "long name    7"]
    assert aligned(rows, left=3).splitlines() == ["name       a", "x          100  µs", "long name  7"]


def test_notes_are_lines_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    say_notes(["one", "two"])
    assert tuple(capsys.readouterr()) == ("", "note: one\nnote: two\n")


def test_a_result_goes_to_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    emit("result")
    assert tuple(capsys.readouterr()) == ("result\n", "")


@pytest.fixture
def closed_pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """stdout is a pipe whose reader has gone."""
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w", encoding="utf-8") as stream:  # noqa: PTH123 — a file descriptor, not a path
        monkeypatch.setattr(sys, "stdout", stream)
        yield


@pytest.mark.usefixtures("closed_pipe")
def test_a_reader_that_has_gone_is_no_error() -> None:
    emit("result")
    emit("more")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_a_full_disk_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    stream = os.fdopen(full, "w", encoding="utf-8")
    monkeypatch.setattr(sys, "stdout", stream)
    with pytest.raises(UsageError, match="stdout: cannot write the result: No space left on device"):
        emit("result")
    os.dup2(os.open(os.devnull, os.O_WRONLY), full)
    stream.close()
