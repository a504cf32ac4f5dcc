"""docs/python.md and docs/python.ipynb run from top to bottom, in a clone, and leave what they say."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import easybalance_sim as ebs
from easybalance_sim.api import planning
from easybalance_sim.pipeline import Made, fit_and_judge
from easybalance_sim.planning.request import PlanRequest
from tests.ebsim_process import ROOT
from tests.listeners import Heard

DOCUMENT, NOTEBOOK = ROOT / "docs" / "python.md", ROOT / "docs" / "python.ipynb"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
FUNCTION = re.compile(r"^\| `(\w+)\(.*?\)` \|", re.MULTILINE)


@cache
def made_once(request: PlanRequest) -> Made:
    """Document and notebook plan the same."""
    return fit_and_judge(request, Heard())


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the sample trace, which is the working directory."""
    (tmp_path / "traces").symlink_to(ROOT / "traces")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(planning, "fit_and_judge", lambda request, tell: made_once(request))
    return tmp_path


def shown(code: str, names: dict[str, Any], where: str) -> Any:
    """Run the code as a notebook does: the value of its last line, if that is an expression."""
    tree = ast.parse(code, where)
    *before, last = tree.body
    if not isinstance(last, ast.Expr):
        return exec(compile(tree, where, "exec"), names)
    exec(compile(ast.Module(before, []), where, "exec"), names)
    return eval(compile(ast.Expression(last.value), where, "eval"), names)


def cells() -> Iterator[dict[str, Any]]:
    yield from json.loads(NOTEBOOK.read_text("utf-8"))["cells"]


def test_the_notebook_runs_and_shows_itself(clone: Path) -> None:
    names: dict[str, Any] = {}
    code = ["".join(cell["source"]) for cell in cells() if cell["cell_type"] == "code"]
    first, *others = [shown(text, names, f"cell {at}") for at, text in enumerate(code)]
    assert isinstance(first, ebs.PlanResult)
    page = first._repr_html_()
    assert page.startswith('<div class="ebsim-report') and "<script" not in page
    assert page.count("<svg") == len(first.figures) > 5
    assert "ACCEPTED" in page
    table, figure, *_, launch = others
    assert table.loc["redundant_slots", "plan"] == 16
    assert figure._repr_svg_().startswith("<?xml") and "<svg" in figure._repr_svg_()
    assert any("--init-expert-location" in line for line in launch)
    written = {path.name for path in clone.iterdir()} - {"traces"}
    assert written == {"plan.json", "expert_location.json", "expert_location.json.ebsim.json"}


def test_the_notebook_is_kept_without_what_it_showed() -> None:
    notebook = json.loads(NOTEBOOK.read_text("utf-8"))
    assert notebook["nbformat"] == 4
    assert len({cell["id"] for cell in cells()}) == len(notebook["cells"])
    assert [cell["id"] for cell in cells() if cell.get("outputs") or cell.get("execution_count")] == []


def test_the_blocks_of_the_document_run(clone: Path) -> None:
    names: dict[str, Any] = {}
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        for block in BLOCK.findall(DOCUMENT.read_text("utf-8")):
            shown(block, names, DOCUMENT.name)
    assert said.getvalue().count("\n") == 1 and "64 experts" in said.getvalue()
    assert names["result"].accepted and names["later"].report["split"]["workloads"] == ["chinese"]
    assert names["deployed"].document.layers == names["result"].document.layers
    assert len(names["change"].moves()) == names["change"].report["moves"] > 0
    page = (clone / "report.html").read_text("utf-8")
    assert page.lower().startswith("<!doctype html>") and names["result"].call.replace("'", "&#39;") in page
    assert (clone / "expert_load.svg").exists()


def test_the_document_names_every_function() -> None:
    functions = {name for name in ebs.__all__ if name.islower()}
    assert set(FUNCTION.findall(DOCUMENT.read_text("utf-8"))) == functions
    text = DOCUMENT.read_text("utf-8")
    assert [name for name in ebs.__all__ if name not in text] == []
