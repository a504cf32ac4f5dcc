"""The one place that talks to the terminal: results on stdout, notes and progress on stderr."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum

from easybalance_sim.errors import UsageError

QUIET_S = 1.0
REPEAT_S = 5.0


class Format(StrEnum):
    """How the result is printed."""

    TABLE = "table"
    JSON = "json"


class Console:
    """Notes once each, progress for what takes longer than a second; a `Listener` of the pipeline."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        """Print `note: text` on stderr, the first time."""
        if text not in self.notes:
            self.notes.append(text)
            sys.stderr.write(f"note: {text}\n")

    def progress(self, label: str, total: int) -> Callable[[int], None]:
        """A stage of `total` units: `label: n %` after a second, now and then (more on a terminal), at last 100 %."""
        started = last = time.monotonic()
        done, said, pause = 0, 0, QUIET_S if sys.stderr.isatty() else REPEAT_S
        one_at_a_time = threading.Lock()

        def advance(units: int) -> None:
            nonlocal done, said, last
            with one_at_a_time:
                done += units
                now, share = time.monotonic(), min(100, 100 * done // max(total, 1))
                due = now - started >= QUIET_S and (last == started or now - last >= pause)
                # A stage that was heard of is also heard to end.
                if (due or (share == 100 and last != started)) and said < 100:
                    last, said = now, share
                    sys.stderr.write(f"{label}: {share} %\n")

        return advance


def emit(text: str) -> None:
    """Print the result on stdout. A reader that closes the pipe early does not change how the command ends.

    Raises `UsageError` when stdout cannot take it (a full disk).
    """
    try:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # What is still buffered would fail again when Python flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        raise UsageError(f"cannot write the result: {error.strerror}", where="stdout", fix="make room") from error


def aligned(rows: Sequence[Sequence[str]], *, left: int = 1) -> str:
    """Rows of texts as columns; the first `left` columns to the left, the others to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [text.ljust(width) for text, width in zip(row[:left], widths[:left], strict=True)]
        cells += [text.rjust(width) for text, width in zip(row[left:], widths[left:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def say_notes(notes: Iterable[str]) -> None:
    """Each note as one line on stderr."""
    for note in notes:
        sys.stderr.write(f"note: {note}\n")
