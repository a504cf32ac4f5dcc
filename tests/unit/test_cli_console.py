"""The console: notes once, nothing of them when quiet, results that survive a closed pipe."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from easybalance_sim.cli import voice
from easybalance_sim.cli.console import Console, emit, say_notes
from easybalance_sim.cli.voice import Level
from easybalance_sim.errors import UsageError


@pytest.fixture(autouse=True)
def _level() -> Iterator[None]:
    """Every test begins, and leaves the process, at the usual level."""
    voice.begin()
    yield
    voice.begin()


def test_a_note_is_said_once_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    out = Console()
    for text in ("first", "second", "first"):
        out.note(text)
    assert out.notes == ["first", "second"]
    assert tuple(capsys.readouterr()) == ("", "note: first\nnote: second\n")


def test_quiet_keeps_notes_for_the_report_and_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    voice.choose(Level.QUIET)
    out = Console()
    out.note("first")
    out.progress("replay", 1)(1)
    say_notes(["second"])
    assert (out.notes, tuple(capsys.readouterr())) == (["first"], ("", ""))


def test_verbose_says_the_seconds_of_a_report(capsys: pytest.CaptureFixture[str]) -> None:
    report = {"timing_s": {"read": 0.25, "cross_validation": 1.5, "total": 1.75}}
    Console().took(report)
    voice.choose(Level.VERBOSE)
    Console().took(report)
    Console().took({})
    assert tuple(capsys.readouterr()) == ("", "seconds: read 0.25, cross validation 1.50, total 1.75\n")


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
