"""Seconds of a scenario's cluster: cost model for experts and all-to-all, a roofline for attention."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from easybalance_sim.arrays import FloatArray
from easybalance_sim.cluster.hardware import HardwareProfile
from easybalance_sim.cluster.model_shape import WEIGHT_BYTES
from easybalance_sim.cluster.topology import Topology, uniform
from easybalance_sim.cost.layer import LayerCost, layer_cost
from easybalance_sim.cost.memory import USABLE_HBM_FRAC
from easybalance_sim.cost.profiles import load_profile
from easybalance_sim.errors import UsageError
from easybalance_sim.plan.plan import Plan
from easybalance_sim.simulate.capacity.scenario import Model, Scenario
from easybalance_sim.simulate.layer_queue.service import ServiceTimes, by_cost
from easybalance_sim.simulate.replica_choice.budget import budget
from easybalance_sim.simulate.replica_choice.rules import rule_named
from easybalance_sim.simulate.replica_choice.sensor import gather_s

DENSE_DTYPE = "bf16"
ALL_TO_ALL = "normal"


@dataclass(frozen=True, kw_only=True, eq=False)
class Cluster:
    """A scenario with its hardware profile."""

    scenario: Scenario
    profile: HardwareProfile

    @property
    def peak_flops(self) -> float:
        """Nominal, of all ranks, for dense layers."""
        return self.scenario.ranks * self.profile.peak_flops[DENSE_DTYPE]

    def topology(self, slots_per_rank: int) -> Topology:
        """All ranks in one NVLink domain where it has room for them."""
        return uniform(self.scenario.ranks, self.profile.nvlink_domain, slots_per_rank, self.profile.name)

    def times(self, plan: Plan) -> ServiceTimes:
        """What the parts of a layer take under `plan`."""
        where = self.topology(int(plan.slots_per_rank[0]))
        return by_cost(self._cost(plan), plan, where, self.scenario.model.top_k, self.attention())

    def _cost(self, plan: Plan) -> LayerCost:
        where = self.topology(int(plan.slots_per_rank[0]))
        return layer_cost(self.profile, self.scenario.model.shape, where, plan.slots_per_rank, ALL_TO_ALL, "decode")

    def waiting_s(self, plan: Plan, rule: str | None) -> float:
        """Seconds in each layer before dispatch until the counts of all ranks are known, and replicas are chosen by a
        rule that works on them (None = none are)."""
        where, model = self.topology(int(plan.slots_per_rank[0])), self.scenario.model
        choosing = 0.0 if rule is None else budget(rule_named(rule), plan, 0.0, {}).us * 1e-6
        return gather_s(self._cost(plan), where, model.experts) + choosing

    def attention(self) -> Callable[[FloatArray], FloatArray]:
        """float64[B, R] tokens at home on a rank → seconds of attention in one layer.

        The larger of reading the layer's dense weights and multiplying with them, and for tokens that decode reading
        their context: a prompt and half of the answer. Attention inside prompts is left out; it is quadratic, and
        prompts are short where this matters.
        """
        service, traffic, model = self.scenario.service, self.scenario.traffic, self.scenario.model
        params = model.dense_params / model.layers
        read_s = params * WEIGHT_BYTES[DENSE_DTYPE] / (self.profile.hbm_bytes_per_s * service.hbm_frac)
        token_s = 2.0 * params / (self.profile.peak_flops[DENSE_DTYPE] * service.dense_flop_frac)
        kv_s = traffic.context_tokens * traffic.decode_share * model.kv_bytes_per_token / model.layers
        kv_s /= self.profile.hbm_bytes_per_s * service.hbm_frac

        def seconds(home: FloatArray) -> FloatArray:
            return np.where(home > 0, np.maximum(read_s, home * token_s) + home * kv_s, 0.0)

        return seconds

    def room_with(self, slots_per_rank: int) -> float:
        """Memory of all ranks that weights leave to the KV cache with so many expert slots on each; below 0 they do not
        fit."""
        model = self.scenario.model
        experts = slots_per_rank * model.layers * model.expert_params * WEIGHT_BYTES[model.dtype]
        dense = (model.dense_params + model.embedding_params) * WEIGHT_BYTES[DENSE_DTYPE]
        return self.scenario.ranks * (USABLE_HBM_FRAC * self.profile.hbm_bytes - experts - dense)

    def most_step_tokens(self, slots_per_rank: int) -> float:
        """Tokens of a step whose running requests fill the KV cache; endless where nothing decodes."""
        traffic = self.scenario.traffic
        if not traffic.output_tokens:
            return float("inf")
        of_request = traffic.context_tokens * self.scenario.model.kv_bytes_per_token
        return max(0.0, self.room_with(slots_per_rank)) / of_request / traffic.decode_share


def cluster_of(scenario: Scenario) -> Cluster:
    """The scenario with its profile. Raises `ProfileError` for one that cannot be read, `UsageError` for a model whose
    weights alone are more than the memory."""
    found = Cluster(scenario=scenario, profile=load_profile(scenario.profile))
    room = found.room_with(scenario.model.experts // scenario.ranks)
    if room <= 0:
        raise UsageError(
            f"the weights of {scenario.model.name!r} are {-room / 1e9:,.0f} GB more than {scenario.ranks} × "
            f"{scenario.profile} hold",
            where="scenario: model",
            fix="give more ranks, a GPU with more memory or a smaller model",
        )
    return found


def flops_per_token(model: Model) -> float:
    """Of a forward pass, attention over the context left out."""
    return 2.0 * model.active_params
