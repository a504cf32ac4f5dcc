"""Greedy expert-parallel load balancing whose ranks are dealt to nodes so that least leaves a node."""

from __future__ import annotations

from dataclasses import replace

from easybalance_sim.plan.plan import Plan
from easybalance_sim.policies import Problem, eplb
from easybalance_sim.policies._node_relabel import relabelled
from easybalance_sim.policies._traffic import flow_of


def place(problem: Problem) -> Plan:
    """The `eplb` plan, each layer's ranks relabelled.

    `NotApplicable` on one node, without a sample of tokens, when ranks differ in slots or speed, and above 16 ranks.
    """
    flow = flow_of(problem)
    return replace(relabelled(eplb.place(problem), flow, problem.topology), policy="eplb_relabelled")
