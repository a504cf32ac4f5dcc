"""The plug-in package in vLLM 0.33.0's own policy registry, and what the engine makes of the placement.

EBSIM_VLLM names the wheel of vLLM, or a folder that holds `vllm/`; only `vllm/distributed/eplb` of it is run.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import numpy as np
import pytest

from easybalance_sim import exports
from easybalance_sim.exports.engine_file import Deployment
from tests.plan_documents import example_document, example_plan

VARIABLE = "EBSIM_VLLM"
pytestmark = [
    pytest.mark.engine_loader,
    pytest.mark.skipif(
        not os.environ.get(VARIABLE) or find_spec("torch") is None,
        reason=f"needs PyTorch, and the wheel of vLLM 0.33.0 at {VARIABLE}",
    ),
]


@pytest.fixture
def policies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """vLLM's registry, in which the written package has registered."""
    root = Path(os.environ[VARIABLE]).resolve()
    for name in ("vllm", "vllm.distributed", "vllm.distributed.eplb"):
        package = ModuleType(name)
        package.__path__ = [f"{root}/{name.replace('.', '/')}"]
        package.__spec__ = ModuleSpec(name, None, is_package=True)
        monkeypatch.setitem(sys.modules, name, package)
    parallel = ModuleType("vllm.config.parallel")
    vars(parallel)["EPLBPolicyOption"] = Literal["default"]
    monkeypatch.setitem(sys.modules, "vllm.config", ModuleType("vllm.config"))
    monkeypatch.setitem(sys.modules, parallel.__name__, parallel)
    exports.load("vllm").write(example_document(), Deployment(), tmp_path / "plan", "plugin")
    monkeypatch.syspath_prepend(str(tmp_path / "plan"))
    registry = importlib.import_module("vllm.distributed.eplb.policy")
    importlib.import_module("ebsim_vllm_plan").register()
    yield dict(registry.EPLB_POLICIES)
    for name in [name for name in sys.modules if name.startswith(("vllm.distributed.eplb.policy", "ebsim_vllm_plan"))]:
        del sys.modules[name]


def test_the_registered_policy_is_one_of_vllm_and_returns_the_plan(policies: dict[str, Any]) -> None:
    torch = importlib.import_module("torch")
    policy = policies["default"]
    abstract = importlib.import_module("vllm.distributed.eplb.policy.abstract").AbstractEplbPolicy
    own = importlib.import_module("vllm.distributed.eplb.policy.default").DefaultEplbPolicy
    assert issubclass(policy, abstract) and issubclass(policy, own) and policy is not own
    before = torch.tensor([[0, 1, 2, 3, 0, 1]] * 2)
    placed = policy.rebalance_experts(torch.ones(2, 4), 6, 1, 1, 2, before)
    assert (placed.dtype, placed.device.type) == (torch.int64, "cpu")
    assert np.array_equal(placed.numpy(), example_plan().expert_of_slot)


def test_the_draft_model_gets_the_placement_that_vllm_gives_it(policies: dict[str, Any]) -> None:
    torch = importlib.import_module("torch")
    own = importlib.import_module("vllm.distributed.eplb.policy.default").DefaultEplbPolicy
    load = torch.tensor([[5.0, 1.0, 1.0, 1.0]])
    asked = (load, 6, 1, 1, 2, torch.tensor([[0, 1, 2, 3, 0, 1]]))
    assert torch.equal(policies["default"].rebalance_experts(*asked), own.rebalance_experts(*asked))
