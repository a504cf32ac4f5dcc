"""Colours only where they are seen, and how much is said."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator

import pytest

from easybalance_sim.cli import voice
from easybalance_sim.cli.console import emit
from easybalance_sim.cli.voice import Level, painted
from easybalance_sim.errors import UsageError


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


class Unread(Terminal):
    """A terminal that has gone, or a pipe that nobody reads."""

    def write(self, text: str) -> int:
        raise BrokenPipeError(32, "Broken pipe")


TEXT = "ACCEPTED: plan\n\nok  a\nNO  b\nbook  okra  NO\n"
PAINTED = "\x1b[32mACCEPTED\x1b[0m: plan\n\n\x1b[32mok\x1b[0m  a\n\x1b[31mNO\x1b[0m  b\nbook  okra  \x1b[31mNO\x1b[0m\n"


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    voice.begin()
    yield
    voice.begin()


@pytest.mark.parametrize(
    ("stream", "environment", "coloured"),
    [
        (Terminal(), {}, True),
        (io.StringIO(), {}, False),
        (Terminal(), {"NO_COLOR": "1"}, False),
        (Terminal(), {"NO_COLOR": ""}, True),
        (Terminal(), {"TERM": "dumb"}, False),
        (io.StringIO(), {"FORCE_COLOR": "1"}, True),
        (io.StringIO(), {"CLICOLOR_FORCE": "1"}, True),
        (io.StringIO(), {"CLICOLOR_FORCE": "0"}, False),
        (Terminal(), {"FORCE_COLOR": "1", "NO_COLOR": "0"}, False),
    ],
)
def test_colours_only_where_they_are_seen(
    stream: io.StringIO, environment: dict[str, str], coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert painted(TEXT, stream) == (PAINTED if coloured else TEXT)


@pytest.mark.parametrize(
    "text",
    ["REJECTED (p99)", "NOT READY: x", "2 errors, 1 warning: f", "ebsim: error: x", "note: x", "INSUFFICIENT_EVIDENCE",
     "RECALIBRATE: x", "warning  layer 3", "READY"],
)  # fmt: skip
def test_leading_words_are_marked(text: str) -> None:
    assert painted(text, Terminal()).startswith("\x1b[") and "\x1b[0m" in painted(text, Terminal())


@pytest.mark.parametrize(
    "text", ['{"status": "ACCEPTED"}', "NOTE", "okay  x", "NO2", "  errors", "READYMADE", "no  x", "notes: x"]
)
def test_other_words_are_left_alone(text: str) -> None:
    assert painted(text, Terminal()) == text


def test_what_nobody_hears_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Unread())
    voice.say("a note")
    voice.rewrite("progress", voice.NOBODY)
    voice.clear()


def test_a_result_is_printed_when_nobody_hears_of_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", Unread())
    voice.rewrite("progress", voice.NOBODY)
    emit("result")
    assert out.getvalue() == "result\n"


def test_quiet_and_verbose_exclude_each_other() -> None:
    voice.choose(Level.QUIET)
    voice.choose(Level.QUIET)
    with pytest.raises(UsageError, match="--quiet and --verbose exclude each other"):
        voice.choose(Level.VERBOSE)
