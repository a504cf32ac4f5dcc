"""docs/adding*.md: their files are a package, their commands and the cost model do what the text says."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from easybalance_sim import exports, policies
from easybalance_sim.arrays import frozen
from easybalance_sim.cluster.hardware import load_profile
from easybalance_sim.cluster.shapes import load_shape
from easybalance_sim.cluster.topology import uniform
from easybalance_sim.cost.expert import ExpertModel
from easybalance_sim.cost.layer import layer_cost
from easybalance_sim.exports.checks import UNIVERSAL
from easybalance_sim.plan.planfile import read_plan
from easybalance_sim.trace import importers
from easybalance_sim.trace.dataset import open_trace
from tests.docs.shown_commands import shown
from tests.docs.stage import Stage
from tests.ebsim_process import ROOT

ADDING = (ROOT / "docs" / "adding.md", ROOT / "docs" / "adding-costs.md")
TEXT = "\n".join(document.read_text("utf-8") for document in ADDING)
FILE = re.compile(r"<!-- file: (\S+) -->\n```[a-z]*\n(.*?)```", re.DOTALL)
ENTRY = re.compile(r'^\[project\.entry-points\."(\S+)"\]\n(\w+) = "(\S+)"$', re.MULTILINE)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A folder with the files of the documents, which is importable and registered as they say."""
    folder = tmp_path_factory.mktemp("adding")
    found = EntryPoints(EntryPoint(name, target, group) for group, name, target in ENTRY.findall(TEXT))
    with pytest.MonkeyPatch.context() as patch:
        for module in (policies, importers, exports):
            patch.setattr(module, "entry_points", lambda group: found.select(group=group))
        patch.syspath_prepend(folder)
        for name, content in FILE.findall(TEXT):
            (folder / name).write_text(content, encoding="utf-8")
        yield Stage(folder, patch)


def test_the_commands_use_what_was_added(stage: Stage) -> None:
    rng = np.random.default_rng(0)
    lines = [
        f"{window} {layer} {expert}" for window in range(20) for layer in (0, 1) for expert in rng.integers(16, size=40)
    ]
    (stage.folder / "choices.txt").write_text("\n".join(lines))
    for command in shown(ADDING):
        stage.require(*command.arguments)
    tried = {one["policy"] for one in read_plan(stage.folder / "zigzag.json").evidence["candidates"]}
    assert {"zigzag", "eplb"} <= tried
    trace = open_trace([stage.folder / "choices.parquet"])
    assert trace.meta.experts == 16
    rows = json.loads((stage.folder / "house_plan.json").read_text())
    assert np.array_equal(rows, read_plan(stage.folder / "zigzag.json").plan().expert_of_slot)
    assert "kernel.csv" in json.dumps(read_plan(stage.folder / "table.json").evidence["cost"])


def test_they_are_among_the_names(stage: Stage) -> None:
    assert "zigzag" in policies.names()
    assert "choices_log" in importers.names()
    assert "house" in exports.names()
    assert set(UNIVERSAL) <= set(exports.load("house").RULES.effects)


def test_a_broken_file_of_the_engine_is_found(stage: Stage) -> None:
    (stage.folder / "broken.json").write_text("[[0, 1], [0, 0]]")
    done = stage.run("lint", "broken.json", "--engine", "house", "--ranks", "2")
    assert done.returncode == 1
    assert "does not start" in done.stdout


def test_the_cost_model_costs_a_step(stage: Stage) -> None:
    module: Any = importlib.import_module("linear_cost")
    model: ExpertModel = module.LinearCost(fixed_s=10e-6, token_s=1e-6)
    topology = uniform(2, 2, 2)
    cost = layer_cost(
        load_profile("h200"), load_shape("gpt-oss-20b"), topology, topology.slots_per_rank, "normal", "decode"
    )
    tokens = frozen(np.array([[[3, 4, 0, 2]]]), np.int32)
    none = frozen(np.zeros((1, 1, 2)), np.int32)
    found = replace(cost, expert=model).seconds(tokens, none, none, none)
    assert found.expert.tolist() == [[pytest.approx(17e-6)]]
    assert found.active.tolist() == [[[2, 1]]]


def test_every_file_is_written_to_be_used() -> None:
    names = [Path(name) for name, _ in FILE.findall(TEXT)]
    assert {name.suffix for name in names} == {".py", ".csv"}
    assert len(names) == 5
