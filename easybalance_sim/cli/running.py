"""One command line, run: errors become one line and an exit code."""

from __future__ import annotations

import os
import platform
import sys
import time
import traceback
from typing import Any

from easybalance_sim import __version__
from easybalance_sim.cli import voice
from easybalance_sim.cli.exit_codes import INTERNAL, INTERRUPTED
from easybalance_sim.cli.progress import watched
from easybalance_sim.cli.suggesting import suggesting
from easybalance_sim.errors import EbsimError

LIBRARIES = ("numpy", "numba", "pyarrow", "pandas", "scipy", "matplotlib", "cupy")


def run(arguments: list[str]) -> tuple[int, str]:
    """The exit code and the last line, "" for none. Interrupts are the caller's."""
    began = time.monotonic()
    voice.begin()
    with watched():
        code, said = _ended(arguments)
    if voice.level() == voice.Level.VERBOSE and code != INTERRUPTED:
        voice.say(_about(time.monotonic() - began))
    return code, said


def _ended(arguments: list[str]) -> tuple[int, str]:
    if "_EBSIM_COMPLETE" in os.environ:
        # Typer hands what a shell shows through rich where it finds it: slow, and words in brackets get lost.
        sys.modules["rich"] = None  # type: ignore[assignment]
    try:
        from easybalance_sim.cli.commands import app

        return int(app(arguments, standalone_mode=False, prog_name="ebsim") or 0), ""
    except EbsimError as error:
        return _refused(str(error), error.exit_code)
    except OSError as error:
        if error.filename is None:
            return _internal(error)
        return _refused(f"{error.filename}: {error.strerror} — check the path", EbsimError.exit_code)
    except Exception as error:
        return _of_typer(error) if type(error).__module__.startswith(("typer", "click")) else _internal(error)


def _of_typer(error: Any) -> tuple[int, str]:
    """Some typer releases use click, others carry their own copy of it: its errors are known by what they offer."""
    if type(error).__name__ == "Abort":
        return INTERRUPTED, ""
    if not hasattr(error, "format_message"):
        return _internal(error)
    if type(error).__name__ == "NoArgsIsHelpError":
        return int(error.exit_code), str(error.format_message())
    return _refused(suggesting(error), int(error.exit_code))


def _about(seconds: float) -> str:
    """What ran, and for how long: versions of the libraries that were needed, and where kernels ran."""
    parts = [f"ebsim {__version__}", f"Python {platform.python_version()}"]
    parts += [f"{name} {sys.modules[name].__version__}" for name in LIBRARIES if name in sys.modules]
    if "numba" in sys.modules:
        from easybalance_sim import kernels

        parts.append(kernels.in_use())
    return f"{', '.join(parts)}; {seconds:.2f} s in all"


def _internal(error: Exception) -> tuple[int, str]:
    if os.environ.get("EBSIM_DEBUG"):
        voice.say(traceback.format_exc().rstrip())
    return _refused(f"internal error: {type(error).__name__}: {error} (EBSIM_DEBUG=1 shows where)", INTERNAL)


def _refused(message: str, code: int) -> tuple[int, str]:
    return code, f"ebsim: error: {' '.join(message.split())}"
