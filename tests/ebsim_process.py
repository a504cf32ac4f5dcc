"""`ebsim` as a user runs it: a process of its own."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from unittest import mock

import pytest

from easybalance_sim.cli.app import main

ROOT = Path(__file__).parents[1]
SAMPLE = ROOT / "traces" / "tinymoe.parquet"
DATA = ROOT.parent / "shared" / "data"
PATIENCE_S = 300.0

Done = subprocess.CompletedProcess[str]


def ebsim(*arguments: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Done:
    """Run the command; `env` is added to the environment."""
    return python("-m", "easybalance_sim", *arguments, cwd=cwd, env=env)


def ebsim_here(*arguments: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Done:
    """The command in this process, which starts no Python: where a test of the same command has a process already."""
    command, out, err = ["ebsim", *map(str, arguments)], io.StringIO(), io.StringIO()
    with (
        contextlib.chdir(cwd or Path.cwd()),
        mock.patch.dict(os.environ, env or {}),
        mock.patch.object(sys, "argv", command),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        _signals_kept(),
        pytest.raises(SystemExit) as stopped,
    ):
        main()
    return subprocess.CompletedProcess(command, int(str(stopped.value.code)), out.getvalue(), err.getvalue())


@contextlib.contextmanager
def _signals_kept() -> Iterator[None]:
    """The command is deaf to signals at its end, this process must not be."""
    before = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def python(
    *arguments: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None, stdin: str | None = None
) -> Done:
    """Run this Python with the package importable from any folder."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True, text=True, check=False, timeout=PATIENCE_S, cwd=cwd, env=environment(env), input=stdin,
    )  # fmt: skip


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a command: this one, without its debug flag."""
    inherited = {name: value for name, value in os.environ.items() if name != "EBSIM_DEBUG"}
    return {**inherited, "PYTHONPATH": str(ROOT), **(extra or {})}


def hear_interrupts() -> None:
    """For a process about to start: a shell's background jobs are started deaf to interrupts, those of `nohup` to
    hang-ups, and so are their children."""
    for one in (signal.SIGINT, signal.SIGHUP):
        signal.signal(one, signal.SIG_DFL)


def one_line(done: Done) -> str:
    """The error of a refused command: nothing on stdout, exactly one line on stderr."""
    assert done.stdout == ""
    assert done.stderr.startswith("ebsim: error: ") and done.stderr.count("\n") == 1, done.stderr
    return done.stderr
