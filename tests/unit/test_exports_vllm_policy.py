"""The plug-in package for vLLM, imported as pip would install it, beside a stand-in of vLLM's policy registry."""

from __future__ import annotations

import ast
import importlib
import logging
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from easybalance_sim import exports
from easybalance_sim.exports import vllm_policy
from easybalance_sim.exports.engine_file import Deployment
from tests.plan_documents import example_document, example_plan

LOAD = np.ones((2, 4))
DRAFT = np.ones((1, 4))


class OwnPolicy:
    """Stands for vLLM's default policy."""

    @classmethod
    def rebalance_experts(cls, *arguments: Any) -> str:
        return f"{cls.__name__} was asked with {len(arguments)} arguments"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    exports.load("vllm").write(example_document(), Deployment(), tmp_path / "plan", "")
    return tmp_path / "plan"


@pytest.fixture
def policies(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """The registry after the entry point of the written package was called, twice as vLLM may do."""
    registry = ModuleType("vllm.distributed.eplb.policy")
    vars(registry)["EPLB_POLICIES"] = {"default": OwnPolicy}
    stands_in = {name: ModuleType(name) for name in ("vllm", "vllm.distributed", "vllm.distributed.eplb")}
    torch = SimpleNamespace(tensor=lambda rows, dtype: np.array(rows, dtype), int64=np.int64)
    for name, module in {**stands_in, registry.__name__: registry, "torch": torch}.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.syspath_prepend(str(folder))
    module, _, function = _project(folder)["entry-points"]["vllm.general_plugins"]["ebsim_plan"].partition(":")
    register = getattr(importlib.import_module(module), function)
    register()
    register()
    yield vars(registry)["EPLB_POLICIES"]
    del sys.modules[module]


def _project(folder: Path) -> dict[str, Any]:
    return dict(tomllib.loads((folder / "pyproject.toml").read_text())["project"])


def test_every_rearrangement_leads_to_the_plan(policies: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    policy = policies["default"]
    assert list(policies) == ["default"] and issubclass(policy, OwnPolicy) and policy.__bases__ == (OwnPolicy,)
    caplog.set_level(logging.INFO, "vllm")
    placed = policy.rebalance_experts(LOAD, 6, 1, 1, 2, example_plan().expert_of_slot)
    assert placed.dtype == np.int64
    assert np.array_equal(placed, example_plan().expert_of_slot)
    assert f"placed by plan {example_document().fingerprint()[:12]}" in caplog.text


def test_a_draft_model_is_left_to_vllm(policies: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    said = policies["default"].rebalance_experts(DRAFT, 6, 1, 1, 2)
    assert said == "PlannedEplbPolicy was asked with 6 arguments"
    assert "the plan is for 2 MoE layers, this model has 1: vLLM places it" in caplog.text


@pytest.mark.parametrize(
    ("load", "slots", "ranks", "runs"),
    [(LOAD, 4, 2, "4 in 4 on 2"), (LOAD, 6, 3, "4 in 6 on 3"), (np.ones((2, 5)), 6, 2, "5 in 6 on 2")],
)
def test_another_deployment_is_refused(load: Any, slots: int, ranks: int, runs: str, policies: dict[str, Any]) -> None:
    message = f"the plan is for 4 experts in 6 slots on 2 ranks, vLLM runs {runs}: num_redundant_experts must be 2"
    with pytest.raises(ValueError, match=message):
        policies["default"].rebalance_experts(load, slots, 1, 1, ranks)


def test_the_package_is_complete_and_named_after_the_plan(folder: Path) -> None:
    project = _project(folder)
    assert (project["name"], project["version"]) == ("ebsim-vllm-plan", f"1+{example_document().fingerprint()[:12]}")
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    assert files == ["ebsim_vllm_plan/__init__.py", "ebsim_vllm_plan/placement.json", "pyproject.toml"]


def test_the_module_stands_alone() -> None:
    tree = ast.parse(Path(vllm_policy.__file__).read_text(encoding="utf-8"))
    imported = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in imported} <= set(sys.stdlib_module_names)


def test_an_older_package_is_replaced(folder: Path) -> None:
    (folder / "ebsim_vllm_plan.egg-info").mkdir()
    exports.load("vllm").write(example_document(), Deployment(), folder, "plugin")
    assert sorted(path.name for path in folder.iterdir()) == ["ebsim_vllm_plan", "pyproject.toml"]
    assert sorted(path.name for path in folder.parent.iterdir()) == ["plan", "plan.ebsim.json"]
