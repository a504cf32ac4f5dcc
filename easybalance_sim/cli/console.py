"""The one place that talks to the terminal: results on stdout, notes and progress on stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any

from easybalance_sim.cli import voice
from easybalance_sim.cli.progress import Stage
from easybalance_sim.cli.voice import Level
from easybalance_sim.errors import UsageError


class Format(StrEnum):
    """How the result is printed."""

    TABLE = "table"
    JSON = "json"


class Console:
    """Notes once each, progress for what takes longer than a second; a `Listener` of the pipeline."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        """Print `note: text` on stderr, the first time; with --quiet it is only kept, for the report."""
        if text not in self.notes:
            self.notes.append(text)
            say_notes([text])

    def progress(self, label: str, total: int) -> Callable[[int], None]:
        """A stage of `total` units begins (an `Amount` says of what); call the result with the units done."""
        return _silent if voice.level() == Level.QUIET else Stage(label, total).advance

    def took(self, report: Mapping[str, Any]) -> None:
        """With --verbose: the seconds of the stages of a run, as its report has them."""
        if voice.level() == Level.VERBOSE and "timing_s" in report:
            laps = ", ".join(f"{name.replace('_', ' ')} {seconds:.2f}" for name, seconds in report["timing_s"].items())
            voice.say(f"seconds: {laps}")


def _silent(_units: int) -> None:
    """Hear of progress and say nothing."""


def emit(text: str) -> None:
    """Print the result on stdout. A reader that closes the pipe early does not change how the command ends.

    Raises `UsageError` when stdout cannot take it (a full disk).
    """
    with voice.ALONE:
        voice.clear()
        _print(f"{voice.painted(text, sys.stdout)}\n")


def _print(text: str) -> None:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # What is still buffered would fail again when Python flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        raise UsageError(f"cannot write the result: {error.strerror}", where="stdout", fix="make room") from error


def say_notes(notes: Iterable[str]) -> None:
    """Each note on stderr, without --quiet: one line, on a terminal broken between words."""
    if voice.level() != Level.QUIET:
        for note in notes:
            voice.say(voice.fitted(f"note: {note}", "      "))
