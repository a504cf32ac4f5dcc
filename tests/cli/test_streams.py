"""Streams that are closed, or that nobody reads: the work is done, the result and the exit code stay what they are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from easybalance_sim.plan.planfile import write_plan
from tests.ebsim_process import PATIENCE_S, environment
from tests.plan_documents import example_document


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("streams") / "plan.json"
    write_plan(path, example_document())
    return path


def in_shell(*arguments: str | Path, streams: str) -> tuple[int, str, str]:
    """The command with its streams redirected as a shell writes it: exit code, what came on stdout and on stderr."""
    words = (sys.executable, "-m", "easybalance_sim", *map(str, arguments))
    done = subprocess.run(
        ["sh", "-c", f'"$@" {streams}', "sh", *words],
        capture_output=True, text=True, check=False, timeout=PATIENCE_S, env=environment(),
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def test_without_a_stderr(plan: Path) -> None:
    assert in_shell("lint", plan, streams="2>&-") == (0, f"CLEAN: {plan} (plan file)\n", "")


def test_without_a_stdout() -> None:
    assert in_shell("--version", streams="<&- >&-") == (0, "", "")


@pytest.mark.parametrize(("arguments", "code"), [(("lint", "-v"), 0), (("lint", "-q", "-v"), 2)])
def test_a_stderr_that_nobody_reads(plan: Path, arguments: tuple[str, ...], code: int) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "easybalance_sim", *arguments, str(plan)]
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=writer, text=True, check=False, timeout=PATIENCE_S,
            env=environment(),
        )  # fmt: skip
    finally:
        os.close(writer)
    assert (done.returncode, done.stdout) == (code, f"CLEAN: {plan} (plan file)\n" if code == 0 else "")
