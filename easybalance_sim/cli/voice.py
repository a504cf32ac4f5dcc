"""How much is said on stderr, in which colours, and the one line of a terminal that is written anew in place."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
import time
from dataclasses import dataclass
from enum import IntEnum
from typing import TextIO

from easybalance_sim.errors import UsageError

OWNED_S = 2.0
"""So long a line of progress is left to the stage that wrote it."""

NOBODY = "nobody"
"""Owner of a line that any stage may take."""

ALONE = threading.RLock()
"""Held by who writes on stderr."""


class Level(IntEnum):
    """quiet: errors only · normal: notes, and progress of what takes long · verbose: every stage with its seconds."""

    QUIET = 0
    NORMAL = 1
    VERBOSE = 2


@dataclass
class _State:
    """level: how much is said · owner: whose line of progress is there, at: since when · said: when anything was."""

    level: Level = Level.NORMAL
    owner: object = None
    at: float = 0.0
    said: float = 0.0


_state = _State()

_RED, _GREEN, _YELLOW, _BLUE = "31", "32", "33", "36"
_MARKS = (
    (_GREEN, r"^(?:ACCEPTED|READY|GOOD|CLEAN)(?=$|:| )|^ok(?= )|(?<=  )ok(?=  |$)"),
    (_RED, r"^(?:REJECTED|NOT READY|ERROR)(?=$|:| )|^NO(?= )|(?<=  )NO(?=  |$)|^\d+ errors?(?=, |:)|^error(?=  )"),
    (_YELLOW, r"^(?:INSUFFICIENT[ _]EVIDENCE|RECALIBRATE|TOO FEW OBSERVATIONS)(?=$|:| )"),
    (_YELLOW, r"^\d+ warnings?(?=:)|^warning(?=  )"),
    (_RED, r"^ebsim: error:"),
    (_YELLOW, r"^ebsim: interrupted"),
    (_BLUE, r"^note:"),
)  # fmt: skip
_PAINTED = [(colour, re.compile(pattern, re.MULTILINE)) for colour, pattern in _MARKS]


def level() -> Level:
    """How much is said."""
    return _state.level


def begin() -> None:
    """Before a command and after it: nothing is known of how much is to be said."""
    _state.level, _state.owner, _state.said = Level.NORMAL, None, time.monotonic()


def choose(wanted: Level) -> None:
    """`--quiet` or `--verbose` was given. Raises `UsageError` when both were."""
    if level() not in (Level.NORMAL, wanted):
        raise UsageError("--quiet and --verbose exclude each other", fix="say one of them")
    _state.level = wanted


def say(text: str) -> None:
    """A line on stderr, where a line of progress stood there in its place."""
    with ALONE:
        clear()
        _write(f"{painted(text, sys.stderr)}\n")


def rewrite(text: str, owner: object) -> None:
    """A line of progress on a terminal, cut to its width, in place of the last one; not of another owner's new one."""
    with ALONE:
        now = time.monotonic()
        if _state.owner not in (None, NOBODY, owner) and now - _state.at < OWNED_S:
            return
        _state.owner, _state.at, _state.said = owner, now, now
        _write(f"\r{text[: _columns() - 1]}\x1b[K")


def clear(owner: object = None) -> None:
    """Take away the line of progress, or only this owner's."""
    with ALONE:
        _state.said = time.monotonic()
        if _state.owner is not None and owner in (None, _state.owner):
            _state.owner = None
            _write("\r\x1b[K")


def fitted(text: str, then: str) -> str:
    """The text for stderr: on a terminal in lines of its width, each but the first beginning with `then`."""
    if not rewrites():
        return text
    import textwrap

    return textwrap.fill(text, _columns(), subsequent_indent=then, break_long_words=False, break_on_hyphens=False)


def silent_s() -> float:
    """Seconds since something was said."""
    return time.monotonic() - _state.said


def rewrites() -> bool:
    """Whether stderr is a terminal on which a line can be written anew."""
    return sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def painted(text: str, stream: TextIO) -> str:
    """The text with verdicts, errors and notes in colour where `stream` shows them, as it is elsewhere."""
    if not _coloured(stream):
        return text
    for colour, pattern in _PAINTED:
        text = pattern.sub(f"\x1b[{colour}m\\g<0>\x1b[0m", text)
    return text


def _coloured(stream: TextIO) -> bool:
    """As https://no-color.org, https://force-color.org and https://bixense.com/clicolors have it; the first wins."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR") or os.environ.get("CLICOLOR_FORCE", "0") not in ("", "0"):
        return True
    return stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def _write(text: str) -> None:
    # What nobody can hear, behind a closed pipe or on a full disk, does not change what the command does.
    with contextlib.suppress(OSError):
        sys.stderr.write(text)
        sys.stderr.flush()


def _columns() -> int:
    try:
        return max(20, os.get_terminal_size(sys.stderr.fileno()).columns or 80)
    except (OSError, ValueError):
        return 80
