"""The `ebsim` command: hears interrupts before anything else is imported, and ends politely when one comes."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import time

from easybalance_sim.cli.exit_codes import INTERRUPTED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sys import UnraisableHookArgs
    from types import FrameType
    from typing import NoReturn

TIDYING_S = 1.0
"""So long after an interrupt another one is not heard: half-written files are being removed. Then it comes again by
itself until `main` has seen it: one that is raised while Python calls back from other code is lost."""


def start() -> NoReturn:
    """The program: `main`, then an end at once. Taking numba apart would cost as much as a small command."""
    sys.unraisablehook = _lost
    try:
        main()
        code: object = 0
    except SystemExit as end:
        code = end.code
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    os._exit(code if isinstance(code, int) else 0 if code is None else 1)


def _lost(exception: UnraisableHookArgs) -> None:
    # An interrupt that is lost comes again: nothing to tell of.
    if not issubclass(exception.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(exception)


def main() -> None:
    """Run the command line and exit with its code; a polite kill and a hang-up end it as an interrupt does, files
    whole."""
    _hear_interrupts()
    _open_closed_streams()
    sys.exit(_run())


def _open_closed_streams() -> None:
    """A stream that was closed before the program began takes everything, and a file does not get its number."""
    sys.stdin = sys.stdin or open(os.devnull, encoding="utf-8")  # noqa: PTH123, SIM115
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 — as long as the program runs
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115


def _hear_interrupts() -> None:
    last = float("-inf")

    def interrupt(number: int, _frame: FrameType | None) -> None:
        nonlocal last
        now = time.monotonic()
        if number == signal.SIGALRM or now - last >= TIDYING_S:
            last = now
            signal.setitimer(signal.ITIMER_REAL, TIDYING_S)
            raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, interrupt)
    signal.signal(signal.SIGTERM, interrupt)
    # Jobs that a shell starts in the background are deaf to interrupts, those of `nohup` to hang-ups, and stay so.
    for one in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(one) is not signal.SIG_IGN:
            signal.signal(one, interrupt)


def _run() -> int:
    try:
        from easybalance_sim.cli.running import run

        code, said = run(sys.argv[1:])
    except KeyboardInterrupt:
        code, said = INTERRUPTED, ""
    # What is left is one line and the end: nothing that an interrupt could still save time by.
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    for one in (signal.SIGALRM, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(one, signal.SIG_IGN)
    if code == INTERRUPTED:
        _tidy_up()
        said = "ebsim: interrupted; no file was left half-written"
    from easybalance_sim.cli import voice

    voice.clear()
    if said:
        voice.say(said)
    voice.begin()
    return code


def _tidy_up() -> None:
    """Remove what a write had begun, in case that a second interrupt kept the first one from doing so."""
    if "easybalance_sim.files" in sys.modules:
        sys.modules["easybalance_sim.files"].remove_unfinished()
