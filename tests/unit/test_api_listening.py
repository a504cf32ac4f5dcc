"""`Told`: notes are kept once, progress is written only where it was asked for."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace

import pytest

from easybalance_sim.api import listening
from easybalance_sim.api.listening import Told


def test_notes_are_kept_once_and_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    told = Told(progress=False)
    for text in ("one", "two", "one"):
        told.note(text)
    told.progress("reading", 10)(10)
    assert (told.notes, capsys.readouterr()) == (["one", "two"], ("", ""))


def test_progress_is_written_when_time_has_passed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = iter([0.0, 0.5, 2.0, 2.1, 9.0])
    monkeypatch.setattr(listening, "time", SimpleNamespace(monotonic=lambda: next(now)))
    monkeypatch.setattr(listening, "kernels", SimpleNamespace(compiled_before=lambda: False))
    advance = Told(progress=True).progress("reading", 8)
    for units in (1, 1, 1, 6):
        advance(units)
    written = capsys.readouterr()
    assert (written.out, written.err) == ("", "first run: compiling kernels\nreading: 25 %\nreading: 100 %\n")


class Unread(io.StringIO):
    """A pipe that nobody reads."""

    def write(self, text: str) -> int:
        raise BrokenPipeError(32, "Broken pipe")


@pytest.mark.parametrize("stream", [None, Unread()])
def test_progress_that_nobody_hears_is_no_error(monkeypatch: pytest.MonkeyPatch, stream: Unread | None) -> None:
    monkeypatch.setattr(listening, "kernels", SimpleNamespace(compiled_before=lambda: False))
    monkeypatch.setattr(listening, "PAUSE_S", 0.0)
    monkeypatch.setattr(sys, "stderr", stream)
    told = Told(progress=True)
    told.note("one")
    told.progress("reading", 1)(1)
    assert told.notes == ["one"]
