"""A closed terminal or a dropped connection (SIGHUP) ends a run as Ctrl-C does; under `nohup` it goes on."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from easybalance_sim.plan.planfile import read_plan, write_plan
from tests.ebsim_process import PATIENCE_S, SAMPLE, environment, hear_interrupts
from tests.plan_documents import example_document
from tests.terminal import on_terminal

EBSIM = (sys.executable, "-m", "easybalance_sim", "-v")
SAID = "ebsim: interrupted; no file was left half-written\n"
BUSY = "scoring candidates"
"""A stage of `ebsim plan` in which threads pass over the trace."""


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    """A folder with an earlier plan in it."""
    path = tmp_path / "plan.json"
    write_plan(path, example_document())
    return path


def _arguments(path: Path, policy: str = "eplb") -> Sequence[str]:
    return ("plan", str(SAMPLE), "--policy", policy, "--force", "-o", str(path))


@contextlib.contextmanager
def _running(command: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """A process in a group of its own, which is killed when the block ends."""
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=environment(), start_new_session=True, preexec_fn=hear_interrupts,
    )  # fmt: skip
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=PATIENCE_S)


def _wait_for(process: subprocess.Popen[str], stage: str) -> None:
    assert process.stderr is not None
    seen = []
    for line in process.stderr:
        seen.append(line)
        if line.startswith(stage):
            return
    raise AssertionError("".join(seen))


def _require_old(path: Path, old: bytes) -> None:
    assert path.read_bytes() == old
    assert [found.name for found in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("stage", ["scanning the trace", "searching", BUSY, "replaying the held-out side"])
def test_a_hang_up_in_the_midst_of_a_plan_ends_it(stage: str, earlier: Path) -> None:
    old = earlier.read_bytes()
    with _running([*EBSIM, *_arguments(earlier, "window_search")]) as process:
        _wait_for(process, stage)
        os.kill(process.pid, signal.SIGHUP)
        out, err = process.communicate(timeout=PATIENCE_S)
        assert (process.returncode, out) == (130, "")
        assert err.endswith(SAID) and err.count("interrupted") == 1 and "Traceback" not in err
        with pytest.raises(ProcessLookupError):
            os.killpg(process.pid, 0)
    _require_old(earlier, old)


def test_a_hang_up_twice_is_one(earlier: Path) -> None:
    """A shell that ends tells its jobs, and so does the system."""
    old = earlier.read_bytes()
    with _running([*EBSIM, *_arguments(earlier)]) as process:
        _wait_for(process, "scanning the trace")
        for one in (signal.SIGHUP, signal.SIGCONT, signal.SIGHUP, signal.SIGTERM):
            os.kill(process.pid, one)
        _, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, err.count(SAID)) == (130, 1)
    _require_old(earlier, old)


def test_a_terminal_that_is_closed_ends_a_run_that_nobody_hears_any_more(earlier: Path) -> None:
    old = earlier.read_bytes()
    with on_terminal([*EBSIM, *_arguments(earlier, "window_search")]) as terminal:
        assert terminal.wait_for("searching: 8 layers")
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, terminal.handle)
        os.close(nowhere)
        assert terminal.process.wait(PATIENCE_S) == 130
    _require_old(earlier, old)


def test_under_nohup_a_plan_goes_on(earlier: Path) -> None:
    if shutil.which("nohup") is None:
        pytest.skip("needs nohup")
    with _running(["nohup", *EBSIM, *_arguments(earlier)]) as process:
        _wait_for(process, "scanning the trace")
        for _ in range(2):
            os.kill(process.pid, signal.SIGHUP)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0 and out.startswith("ACCEPTED: ") and "interrupted" not in err
    assert read_plan(earlier).model != example_document().model
