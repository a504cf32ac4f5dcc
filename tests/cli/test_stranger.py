"""The way of somebody who has never seen this: plan, read, show, export, lint and gate, in an empty folder.

The table that comes first is the one in the README.

Every step is a process of its own, as typed; the first installs the checkout into a fresh virtual environment.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

import pytest

from easybalance_sim.plan.planfile import read_plan
from tests.docs.readme_output import OUTPUT, README, block_after
from tests.ebsim_process import ROOT, Done

WHOLE_WAY_S = 300.0
"""What all steps may take together: a step that hangs is killed when the five minutes are over."""
COPIED = ("easybalance_sim", "traces", "pyproject.toml", "README.md")


@dataclass
class Stranger:
    """Somebody in a folder with nothing but the sample trace, and how long it took so far."""

    folder: Path
    command: Path
    began: float = field(default_factory=time.monotonic)

    def types(self, line: str) -> Done:
        """Run one line in a shell, `ebsim` being what is installed; nothing of the checkout is importable."""
        path = os.pathsep.join((str(self.command.parent), os.environ["PATH"]))
        inherited = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "EBSIM_DEBUG")}
        return subprocess.run(
            line, shell=True, cwd=self.folder, capture_output=True, text=True, check=False, timeout=_left(self.began),
            env={**inherited, "PATH": path, "GITHUB_STEP_SUMMARY": str(self.folder / "summary.md")},
        )  # fmt: skip

    def succeeds(self, line: str) -> str:
        """Run one line that must end with 0; its stdout."""
        done = self.types(line)
        assert done.returncode == 0, (line, done.stdout[-500:], done.stderr[-500:])
        return done.stdout


@pytest.fixture
def stranger(tmp_path: Path) -> Iterator[Stranger]:
    began = time.monotonic()
    command = _install(tmp_path / "clone", began)
    folder = tmp_path / "empty"
    (folder / "traces").mkdir(parents=True)
    shutil.copy(ROOT / "traces" / "tinymoe.parquet", folder / "traces")
    yield Stranger(folder, command, began)
    print(f"the whole way: {time.monotonic() - began:.0f} s")


def _left(began: float) -> float:
    return max(WHOLE_WAY_S - (time.monotonic() - began), 1.0)


def _install(clone: Path, began: float) -> Path:
    """The package in a virtual environment of its own, which borrows this one's dependencies; `ebsim` in it."""
    clone.mkdir()
    for name in COPIED:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
        copy(ROOT / name, clone / name)
    venv = [sys.executable, "-m", "venv", ".venv"]
    install = [".venv/bin/pip", "install", "-q", "--disable-pip-version-check", "--no-deps", "."]
    for step in (venv, install):
        subprocess.run(step, cwd=clone, check=True, timeout=_left(began), capture_output=True)
    (packages,) = (clone / ".venv" / "lib").glob("python*/site-packages")
    # A link file comes after the environment's own packages, so that the fresh copy of ours is the one that runs.
    (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    return clone / ".venv" / "bin" / "ebsim"


def test_the_whole_way(stranger: Stranger) -> None:
    table = stranger.succeeds("ebsim plan traces/tinymoe.parquet -o plan.json --report report.html")
    assert table == block_after(OUTPUT, README.read_text("utf-8")), "make it anew: python -m tests.docs.readme_output"
    assert table.startswith("ACCEPTED: window_search, written to plan.json\n")
    page = (stranger.folder / "report.html").read_text(encoding="utf-8")
    assert page.lower().startswith("<!doctype html>")
    assert "accepted" in page.lower()

    replayed = json.loads(
        stranger.succeeds("ebsim replay traces/tinymoe.parquet --plan plan.json --format json | tee report.json")
    )
    assert replayed["verdict"]["status"] == "accepted"
    assert replayed["plan"]["rank_imbalance"]["p99"] < replayed["baseline"]["rank_imbalance"]["p99"]

    launch = stranger.succeeds("ebsim export sglang plan.json -o expert_location.json --hidden-layers 8")
    assert "--init-expert-location expert_location.json" in launch
    rows = json.loads((stranger.folder / "expert_location.json").read_text())["physical_to_logical_map"]
    assert rows == read_plan(stranger.folder / "plan.json").plan().expert_of_slot.tolist()
    stranger.succeeds("ebsim lint expert_location.json --engine sglang")

    stranger.succeeds("ebsim gate report.json --junit gate.xml --github")
    suite = ElementTree.parse(stranger.folder / "gate.xml").getroot()
    assert suite.findall(".//testcase") != [] and suite.findall(".//failure") == []
    assert "ACCEPTED" in (stranger.folder / "summary.md").read_text(encoding="utf-8")

    strict = stranger.types(
        "echo 'p99_imbalance_drop_min = 0.99' > strict.toml; ebsim gate report.json --criteria strict.toml"
    )
    assert strict.returncode == 1
    assert strict.stdout.startswith("REJECTED")
