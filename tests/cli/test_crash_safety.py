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
from tests.plan_documents import example_document

ROOT = Path(__file__).parents[2]
PLAN = [sys.executable, "-m", "easybalance_sim", "plan", str(ROOT / "traces" / "tinymoe.parquet"), "--force", "-o"]
PATIENCE_S = 300.0


@contextlib.contextmanager
def _planning(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A running `ebsim plan`, killed with SIGKILL when the block ends."""
    process = subprocess.Popen([*PLAN, str(path)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def run_s(tmp_path_factory: pytest.TempPathFactory) -> float:
    """Seconds of a whole warm run; the first one, which may compile, is not counted."""
    path = tmp_path_factory.mktemp("whole") / "plan.json"
    for _ in range(2):
        started = time.monotonic()
        subprocess.run([*PLAN, str(path)], capture_output=True, check=False, timeout=PATIENCE_S)
    read_plan(path)
    return time.monotonic() - started


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


def _kill_after(delay_s: float, path: Path) -> None:
    old = path.read_bytes()
    with _planning(path) as process, contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(delay_s)
    _assert_whole(path, old)


@pytest.mark.parametrize("share", [random.Random(seed).uniform(0.05, 1.0) for seed in range(3)])
def test_kill_at_a_random_moment(share: float, run_s: float, path: Path) -> None:
    _kill_after(share * run_s, path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_kill_at_many_moments(seed: int, run_s: float, path: Path) -> None:
    _kill_after(random.Random(seed).uniform(0.0, 1.1) * run_s, path)


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
def test_kill_at_every_stage_of_the_write(moment: str, path: Path) -> None:
    """The same process, killed from inside: these moments are too short to be met from outside every time."""
    old, command = path.read_bytes(), [sys.executable, "-c", DYING, moment, *PLAN[3:], str(path)]
    done = subprocess.run(command, capture_output=True, check=False, timeout=PATIENCE_S)
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, b"")
    _assert_whole(path, old)
    leftovers = [found for found in path.parent.iterdir() if found != path]
    assert ((path.read_bytes() == old), len(leftovers)) == ((False, 0) if moment == "renamed" else (True, 1))


@pytest.mark.parametrize("extra_s", [0.0, 0.0005, 0.002])
def test_kill_while_the_file_is_being_written(extra_s: float, run_s: float, path: Path) -> None:
    old, deadline = path.read_bytes(), time.monotonic() + PATIENCE_S
    with _planning(path) as process:
        while process.poll() is None and not list(path.parent.glob(".plan.json.*.part")):
            assert time.monotonic() < deadline
        time.sleep(extra_s)
    _assert_whole(path, old)


def test_the_next_run_succeeds_beside_a_leftover(run_s: float, path: Path) -> None:
    leftover = path.with_name(".plan.json.abc.part")
    leftover.write_bytes(path.read_bytes()[:100])
    subprocess.run([*PLAN, str(path)], capture_output=True, check=False, timeout=PATIENCE_S)
    assert read_plan(path).model != example_document().model
