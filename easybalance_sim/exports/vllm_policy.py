"""The plan beside this file as vLLM's placement of experts.

`ebsim export vllm` copies this module into the plug-in package that it writes, so it stands alone: nothing but the
standard library, PyTorch and vLLM. Written against vLLM 0.33.0: the entry point group `vllm.general_plugins`
(`vllm/plugins`), `EPLB_POLICIES` and the policy class there (`vllm/distributed/eplb/policy`).
"""

from __future__ import annotations

import importlib
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

LOG = logging.getLogger("vllm.ebsim_plan")
PLACEMENT = Path(__file__).with_name("placement.json")


def register() -> None:
    """Take the place of vLLM's default policy; vLLM calls this in every process, perhaps more than once."""
    policies = importlib.import_module("vllm.distributed.eplb.policy").EPLB_POLICIES
    if not hasattr(policies["default"], "placement"):
        policies["default"] = planned(policies["default"], json.loads(PLACEMENT.read_text(encoding="utf-8")))


def planned(own: Any, placement: Mapping[str, Any]) -> Any:
    """vLLM's policy class `own`, but every rearrangement leads to the plan.

    placement: `physical_to_logical_map` [L][P], `experts`, `slots`, `ranks`, `fingerprint`. Models with another number
    of MoE layers (a draft model beside the main one) are left to `own`. The class raises ValueError where vLLM runs
    with other experts, slots or ranks than the plan was made for.
    """

    def rebalance_experts(
        cls: Any,
        weight: Any,
        num_replicas: int,
        num_groups: int,
        num_nodes: int,
        num_ranks: int,
        old_global_expert_indices: Any = None,
    ) -> Any:
        layers, experts = weight.shape
        _require_fit(placement, experts, num_replicas, num_ranks)
        rows = placement["physical_to_logical_map"]
        if layers != len(rows):
            LOG.warning("the plan is for %d MoE layers, this model has %d: vLLM places it", len(rows), layers)
            return super(policy, cls).rebalance_experts(
                weight, num_replicas, num_groups, num_nodes, num_ranks, old_global_expert_indices
            )
        LOG.info("experts are placed by plan %s", placement["fingerprint"][:12])
        torch = importlib.import_module("torch")
        return torch.tensor(rows, dtype=torch.int64)

    members = {"placement": placement, "rebalance_experts": classmethod(rebalance_experts), "__doc__": __doc__}
    policy: Any = type("PlannedEplbPolicy", (own,), members)
    return policy


def _require_fit(placement: Mapping[str, Any], experts: int, slots: int, ranks: int) -> None:
    wanted = (placement["experts"], placement["slots"], placement["ranks"])
    if (experts, slots, ranks) != wanted:
        raise ValueError(
            f"the plan is for {wanted[0]} experts in {wanted[1]} slots on {wanted[2]} ranks, vLLM runs {experts} in "
            f"{slots} on {ranks}: num_redundant_experts must be {wanted[1] - wanted[0]}"
        )
