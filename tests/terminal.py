"""A process on a real pseudo-terminal: what it writes there, keys that are pressed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.ebsim_process import environment, hear_interrupts

PATIENCE_S = 60.0
_COLOURS = ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE")


@dataclass
class Terminal:
    """process: what runs on it · text: all that was seen so far."""

    process: subprocess.Popen[bytes]
    handle: int
    text: str = field(default="")

    @property
    def lasting(self) -> str:
        """What was seen without lines of progress, which come and go in place."""
        return re.sub(r"\r[^\r\n]*\x1b\[K", "", self.text)

    def press(self, keys: str) -> None:
        """As if typed."""
        os.write(self.handle, keys.encode())

    def wait_for(self, awaited: str, patience_s: float = PATIENCE_S) -> bool:
        """Whether `awaited` comes to be seen."""
        deadline = time.monotonic() + patience_s
        while awaited not in self.text and time.monotonic() < deadline and self._read():
            pass
        return awaited in self.text

    def finish(self) -> int:
        """Read until the process ends; its exit code."""
        while self._read():
            pass
        return self.process.wait(PATIENCE_S)

    def _read(self) -> bool:
        """Whether there may be more."""
        if not select.select([self.handle], [], [], 0.1)[0]:
            return self.process.poll() is None
        try:
            piece = os.read(self.handle, 1 << 16)
        # Linux says so when the last process has closed its end.
        except OSError:
            return False
        self.text += piece.decode(errors="replace")
        return piece != b""


@contextlib.contextmanager
def on_terminal(
    command: Sequence[str], env: Mapping[str, str] | None = None, cwd: Path | None = None, stdout: int | None = None
) -> Iterator[Terminal]:
    """Run `command` on a terminal of 80 columns, or with another stdout; it is killed when the block ends."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))

    def lead() -> None:
        hear_interrupts()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    inherited = {name: value for name, value in environment().items() if name not in _COLOURS}
    with warnings.catch_warnings():
        # Newer Pythons warn of forks beside threads; `lead` calls the system, and nothing that a thread could hold.
        warnings.simplefilter("ignore", DeprecationWarning)
        process = subprocess.Popen(
            list(command), stdin=theirs, stdout=theirs if stdout is None else stdout, stderr=theirs, cwd=cwd,
            env={**inherited, "TERM": "xterm", **(env or {})}, start_new_session=True, preexec_fn=lead,
        )  # fmt: skip
    os.close(theirs)
    try:
        yield Terminal(process, ours)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
