"""Who hears of notes and progress while a function runs."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable

from easybalance_sim import kernels

PAUSE_S = 1.0


class Told:
    """A `Listener`: keeps each note once, and writes progress on stderr only when it was asked for."""

    def __init__(self, progress: bool) -> None:
        self.notes: list[str] = []
        self._progress = progress
        if progress and not kernels.compiled_before():
            _say("first run: compiling kernels")

    def note(self, text: str) -> None:
        """Keep a note, the first time."""
        if text not in self.notes:
            self.notes.append(text)

    def progress(self, label: str, total: int) -> Callable[[int], None]:
        """A stage of `total` units: `label: n %` every second, where progress was asked for."""
        if not self._progress:
            return lambda units: None
        done, last, one_at_a_time = 0, time.monotonic(), threading.Lock()

        def advance(units: int) -> None:
            nonlocal done, last
            with one_at_a_time:
                done += units
                now = time.monotonic()
                if now - last >= PAUSE_S:
                    last = now
                    _say(f"{label}: {min(100, 100 * done // max(total, 1))} %")

        return advance


def _say(text: str) -> None:
    # A program without a stderr, or with one that nobody reads, gets its result all the same.
    with contextlib.suppress(OSError):
        if sys.stderr is not None:
            sys.stderr.write(f"{text}\n")
