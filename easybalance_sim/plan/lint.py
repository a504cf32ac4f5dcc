"""House rules of a placement, stricter than what `Plan` itself demands; serving engines mostly check none of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from easybalance_sim.cluster.topology import Topology
from easybalance_sim.plan.plan import Plan

ERROR, WARNING = "error", "warning"
INT16_SLOTS = 32767
KERNEL_EXPERTS = 1024


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One broken rule.

    level: "error" or "warning" · layer: row of the plan or layer of an engine's file, None = all · slot: first slot
    concerned, None = all · rule: its name, empty for house rules of a plan.
    """

    level: str
    message: str
    layer: int | None = None
    slot: int | None = None
    rule: str = ""


def lint(plan: Plan, topology: Topology | None = None) -> list[Finding]:
    """Everything about `plan` (and its fit on `topology`) that an engine would choke on; empty when clean.

    Errors: an expert twice on one rank (SGLang 0.5.23 leaves the second slot unloaded, vllm-ascend corrupts its slot
    table), more replicas than ranks, a rank count or slots per rank that the topology does not have.
    Warnings: ranks of different size (SGLang, vLLM and TensorRT-LLM want equal ones), more than 32767 slots
    (TensorRT-LLM keeps slot ids in int16), more than 1024 experts (its kernel limit).
    """
    return [*_duplicates(plan), *_too_many_replicas(plan), *_fit(plan, topology), *_engine_limits(plan)]


def _duplicates(plan: Plan) -> list[Finding]:
    place = plan.rank_of_slot.astype(np.int64) * plan.experts + plan.expert_of_slot
    order = np.argsort(place, axis=1, kind="stable")
    ordered = np.take_along_axis(place, order, axis=1)
    findings = []
    for layer, at in np.argwhere(ordered[:, 1:] == ordered[:, :-1]):
        slot = int(order[layer, at + 1])
        expert, rank = int(plan.expert_of_slot[layer, slot]), int(plan.rank_of_slot[slot])
        message = f"expert {expert} is already on rank {rank} (slot {int(order[layer, at])})"
        findings.append(Finding(level=ERROR, message=message, layer=int(layer), slot=slot))
    return findings


def _too_many_replicas(plan: Plan) -> list[Finding]:
    findings = []
    for layer, expert in np.argwhere(plan.replicas > plan.ranks):
        slot = int(plan.replica_slot[layer, plan.replica_start[layer, expert]])
        message = f"expert {int(expert)} has {int(plan.replicas[layer, expert])} replicas on {plan.ranks} ranks"
        findings.append(Finding(level=ERROR, message=message, layer=int(layer), slot=slot))
    return findings


def _fit(plan: Plan, topology: Topology | None) -> list[Finding]:
    if topology is None:
        return []
    if plan.ranks != topology.ranks:
        return [Finding(level=ERROR, message=f"the plan is for {plan.ranks} ranks, the cluster has {topology.ranks}")]
    findings = []
    for rank in np.flatnonzero(plan.slots_per_rank > topology.slots_per_rank):
        wanted, room = int(plan.slots_per_rank[rank]), int(topology.slots_per_rank[rank])
        message = f"rank {int(rank)} holds {wanted} slots, the cluster gives it {room}"
        findings.append(Finding(level=ERROR, message=message, slot=int(plan.slot_start[rank]) + room))
    return findings


def _engine_limits(plan: Plan) -> list[Finding]:
    messages = []
    if plan.slots_per_rank.min() != plan.slots_per_rank.max():
        messages.append("slots per rank differ: SGLang, vLLM and TensorRT-LLM need the same number on every rank")
    if plan.slots > INT16_SLOTS:
        messages.append(f"{plan.slots} slots: TensorRT-LLM keeps slot ids in int16, {INT16_SLOTS} at most")
    if plan.experts > KERNEL_EXPERTS:
        messages.append(f"{plan.experts} experts: TensorRT-LLM's kernel takes {KERNEL_EXPERTS} at most")
    return [Finding(level=WARNING, message=message) for message in messages]
