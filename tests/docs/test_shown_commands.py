"""Every command in README.md and docs/*.md runs as it stands, in a folder with what a clone has and the text assumes.

Commands run one after the other, as a reader would type them. What is neither ours nor sets up an environment, or reads
a file that nothing makes, fails.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from easybalance_sim.cli.commands import app
from tests.docs.shown_commands import DOCUMENTS, Shown, shown
from tests.docs.stage import Stage, run_block
from tests.ebsim_process import ROOT

ADDED = ("adding.md", "adding-costs.md")
"""Their commands run in test_adding.py, where what they add is installed."""
ANSWERS = ("compare", "diff")
"""Exit 1 is an answer, too: times that nobody measured are not predicted well, and two plans differ."""


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with pytest.MonkeyPatch.context() as patch:
        yield Stage(tmp_path_factory.mktemp("documented"), patch)


def in_order() -> list[Shown]:
    """What runs here; a command that is shown again has the files of the first time."""
    first: dict[str, Shown] = {}
    for command in shown():
        if command.document not in ADDED:
            first.setdefault(command.text, command)
    return list(first.values())


def run(stage: Stage, command: Shown) -> str:
    """Run it; what went wrong, or nothing."""
    done = stage.run(*command.arguments)
    if command.stdout:
        (stage.folder / command.stdout).write_text(done.stdout, encoding="utf-8")
    if done.returncode == 0 or (done.returncode == 1 and command.arguments[0] in ANSWERS):
        return ""
    return f"{command.document}:{command.line}: {command.text}: exit {done.returncode}: {done.stderr[-400:]}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: str(document.relative_to(DOCUMENTS[0].parent)))
def test_every_command_is_one(document: Path) -> None:
    root = _without_work(typer.main.get_command(app))
    for command in shown((document,)):
        root.main(list(command.arguments), standalone_mode=False, prog_name="ebsim")


def test_all_commands_run_as_they_stand(stage: Stage) -> None:
    faults = [fault for command in in_order() if (fault := run(stage, command))]
    assert not faults, "\n".join(faults)


def test_blocks_of_python_run(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    stage.run("explain", "plan.json")
    with stage.here():
        run_block("trace-format.md")
        run_block("plan-format.md")
    assert capsys.readouterr().out.startswith("window_search accepted 8 72\n0 (")


def test_every_key_of_a_plan_is_explained(stage: Stage) -> None:
    stage.run("explain", "plan.json")
    rows = re.findall(r"^\| (`[^|]+) \|", (ROOT / "docs" / "plan-format.md").read_text("utf-8"), re.MULTILINE)
    explained = {key for row in rows for key in re.findall(r"`(\w+)`", row)}
    assert explained - {"parent_ranks"} == set(json.loads((stage.folder / "plan.json").read_text("utf-8")))


def test_the_parts_of_the_page_are_those_that_are_explained(stage: Stage) -> None:
    """reading-the-report.md has a row for each part of the page of a plan, in its order."""
    text = (ROOT / "docs" / "reading-the-report.md").read_text("utf-8").partition("## The page")[2]
    explained = [row for row in re.findall(r"^\| ([^|]+?) \|", text, re.MULTILINE) if row not in ("part", "---")]
    if not (stage.folder / "plan.html").exists():
        stage.require("report", "plan.json", "-o", "plan.html")
    page = (stage.folder / "plan.html").read_text("utf-8")
    shown_parts = [part.strip() for part in re.findall(r"<h2[^>]*>([^<]+)", page)]
    assert [part for part in explained if part in shown_parts] == [part for part in shown_parts if part in explained]
    assert [part for part in shown_parts if part not in (*explained, "Notes of the run")] == []


def _without_work(command: Any) -> Any:
    """The command whose arguments are read and whose work is left out."""
    bare = copy.copy(command)
    if hasattr(command, "commands"):
        bare.commands = {name: _without_work(inner) for name, inner in command.commands.items()}
    bare.callback = None
    return bare
