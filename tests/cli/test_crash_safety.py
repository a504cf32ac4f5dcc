"""kill -9 during `ebsim plan -o plan.json`: at any moment the plan file is the whole old one or a whole new one."""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from easybalance_sim.plan.planfile import read_plan, write_plan
from tests.ebsim_process import PATIENCE_S, environment
from tests.plan_documents import example_document
from tests.skewed_traces import skewed_trace

# How long the search for a plan takes is nothing to the file: a small trace and a cheap policy.
FLAGS = ("--ranks", "4", "--slots-per-rank", "5", "--policy", "round_robin", "--force", "-o")
GLANCE_S = 0.0002


@pytest.fixture(scope="module")
def arguments(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Those of a command that writes a plan; the path follows."""
    return ["plan", str(skewed_trace(tmp_path_factory.mktemp("crash") / "skewed.parquet", steps=64)), *FLAGS]


@pytest.fixture(scope="module")
def command(arguments: list[str]) -> list[str]:
    """The process that writes a plan; the path follows."""
    return [sys.executable, "-m", "easybalance_sim", *arguments]


@contextlib.contextmanager
def _planning(command: list[str], path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A running `ebsim plan`, killed with SIGKILL when the block ends."""
    quiet = subprocess.DEVNULL
    process = subprocess.Popen([*command, str(path)], stdout=quiet, stderr=quiet, env=environment())
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def run_s(command: list[str], tmp_path_factory: pytest.TempPathFactory) -> float:
    """Seconds of a whole warm run; the first one, which may compile, is not counted."""
    path = tmp_path_factory.mktemp("whole") / "plan.json"
    for _ in range(2):
        started = time.monotonic()
        _whole_run(command, path)
    read_plan(path)
    return time.monotonic() - started


def _whole_run(command: list[str], path: Path) -> None:
    done = subprocess.run(
        [*command, str(path)], capture_output=True, check=False, timeout=PATIENCE_S, env=environment()
    )
    assert done.returncode in (0, 1, 3), done.stderr


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A folder with an earlier plan in it."""
    path = tmp_path / "plan.json"
    write_plan(path, example_document())
    return path


def _assert_whole(path: Path, old: bytes) -> None:
    """The old plan byte for byte, or a valid new one; leftovers do not look like plans."""
    assert path.read_bytes() == old or read_plan(path).model != example_document().model
    others = [found.name for found in path.parent.iterdir() if found != path]
    assert [name for name in others if not (name.startswith(".plan.json.") and name.endswith(".part"))] == []


def _kill_after(delay_s: float, command: list[str], path: Path) -> None:
    old = path.read_bytes()
    with _planning(command, path) as process, contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(delay_s)
    _assert_whole(path, old)


@pytest.mark.parametrize("share", [random.Random(seed).uniform(0.05, 1.0) for seed in range(3)])
def test_kill_at_a_random_moment(share: float, run_s: float, command: list[str], path: Path) -> None:
    _kill_after(share * run_s, command, path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_kill_at_many_moments(seed: int, run_s: float, command: list[str], path: Path) -> None:
    _kill_after(random.Random(seed).uniform(0.0, 1.1) * run_s, command, path)


DYING = """
import os, signal, sys
from pathlib import Path
from easybalance_sim.cli.app import main

moment, write, replace, sync = sys.argv.pop(1), Path.write_text, Path.replace, os.fsync
def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)
def die_half_way(path, text, **more):
    write(path, text[: len(text) // 2], **more)
    die()
def die_after(path, target):
    replace(path, target)
    die()
if moment == "created":
    Path.write_text = die
elif moment == "half written":
    Path.write_text = die_half_way
elif moment == "not synced":
    os.fsync = die
elif moment == "not renamed":
    Path.replace = die
elif moment == "renamed":
    Path.replace = die_after
main()
"""


@pytest.mark.parametrize("moment", ["created", "half written", "not synced", "not renamed", "renamed"])
def test_kill_at_every_stage_of_the_write(moment: str, arguments: list[str], path: Path) -> None:
    """The same process, killed from inside: these moments are too short to be met from outside every time."""
    old, dying = path.read_bytes(), [sys.executable, "-c", DYING, moment, *arguments, str(path)]
    done = subprocess.run(dying, capture_output=True, check=False, timeout=PATIENCE_S, env=environment())
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, b"")
    _assert_whole(path, old)
    leftovers = [found for found in path.parent.iterdir() if found != path]
    assert ((path.read_bytes() == old), len(leftovers)) == ((False, 0) if moment == "renamed" else (True, 1))


@pytest.mark.parametrize("extra_s", [0.0, 0.0005, 0.002])
def test_kill_while_the_file_is_being_written(extra_s: float, command: list[str], path: Path) -> None:
    old, deadline = path.read_bytes(), time.monotonic() + PATIENCE_S
    with _planning(command, path) as process:
        while process.poll() is None and not list(path.parent.glob(".plan.json.*.part")):
            assert time.monotonic() < deadline
            time.sleep(GLANCE_S)
        time.sleep(extra_s)
    _assert_whole(path, old)


def test_the_next_run_succeeds_beside_a_leftover(command: list[str], path: Path) -> None:
    leftover = path.with_name(".plan.json.abc.part")
    leftover.write_bytes(path.read_bytes()[:100])
    _whole_run(command, path)
    assert read_plan(path).model != example_document().model
