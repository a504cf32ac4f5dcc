"""Plans that are made anew while they serve: a control loop with a statistics window, as engines run it.

Every `interval_s` a plan is made from the last `statistics_window_s` of traffic. What the loop has seen is told by the
requests that came in that time: for each, a routed request of the same workload is drawn from those that plans are made
of, never one that stands for a request in service. The plan comes into force when its experts have travelled.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from easybalance_sim import policies
from easybalance_sim.arrays import FloatArray, IntArray, frozen, stream
from easybalance_sim.cluster.topology import Topology
from easybalance_sim.deployment.fields import Placement, Pool, Rebalance
from easybalance_sim.deployment.ground import Ground
from easybalance_sim.deployment.placing import PROPOSALS
from easybalance_sim.deployment.scenario import Scenario
from easybalance_sim.deployment.schedule import Schedule
from easybalance_sim.errors import UsageError
from easybalance_sim.load.split import FIT
from easybalance_sim.plan.plan import Plan
from easybalance_sim.planning.session import Listener, Session
from easybalance_sim.policies import Effort, NotApplicable, Problem
from easybalance_sim.replay.traffic import TokenTraffic
from easybalance_sim.simulate.rebalance.transfer import transfer
from easybalance_sim.simulate.serving.limits import DECODE_ONLY, PREFILL_ONLY
from easybalance_sim.simulate.serving.routed import Routed, routed_requests
from easybalance_sim.simulate.serving.workload import Workload
from easybalance_sim.trace.dataset import TokenTrace

PARTS = 6
"""Windows that a statistics window is cut into, for policies that look at several."""
MOST_DRAWN = 512
"""Requests that a statistics window is told by."""


def schedule(
    scenario: Scenario, ground: Ground, pool: Pool, session: Session, first: Plan, workload: Workload, tell: Listener
) -> Schedule:
    """The plans of a run. first: in force until there are statistics. Raises `UsageError` for a plan file, which is
    never made anew, and for a policy that does not apply."""
    loop = scenario.rebalance
    if loop is None:
        raise UsageError("is not there", where="rebalance")
    seen = _Seen(_fit_side(ground, session), workload, pool.role, scenario.run.seed)
    plans, from_s, moves, transfer_s = [first], [0.0], [0], [0.0]
    for now_s in np.arange(loop.interval_s, scenario.run.duration_s, loop.interval_s):
        windows = seen.windows(max(0.0, now_s - loop.statistics_window_s), now_s)
        if not windows.any():
            continue
        plan = _made(loop, pool.placement, windows, session, plans[-1])
        travelling, seconds = _transfer(plans[-1], plan, session)
        plans.append(plan)
        moves.append(travelling)
        transfer_s.append(seconds)
        from_s.append(max(float(now_s) + seconds, from_s[-1]))
    tell.note(
        f"a new plan every {loop.interval_s:g} s from the last {loop.statistics_window_s:g} s: {len(plans) - 1} plans, "
        f"{np.mean(moves[1:] or [0]):,.0f} experts to copy for each, which takes up to {max(transfer_s):.2g} s of the "
        "links and is not charged to the steps meanwhile"
    )
    return Schedule(
        plans=tuple(plans),
        from_s=frozen(from_s, np.float64),
        moves=frozen(moves, np.int64),
        transfer_s=frozen(transfer_s, np.float64),
    )


class _Seen:
    """What the loop's counters hold of a stretch of time."""

    def __init__(self, fit: Routed, workload: Workload, role: str, seed: int) -> None:
        self._fit, self._workload, self._seed = fit, workload, seed
        names = np.array([fit.workloads[code] for code in fit.workload])
        alike = [np.flatnonzero(names == tenant) for tenant in workload.tenants]
        self._of_tenant = [found if len(found) else np.arange(fit.requests) for found in alike]
        prompt, answer = workload.prompt_tokens - workload.cached_tokens, workload.output_tokens
        self._tokens = prompt * (role != DECODE_ONLY), answer * (role != PREFILL_ONLY)

    def windows(self, since_s: float, until_s: float) -> IntArray:
        """int64[PARTS, L, E] assignments in equal parts of [since_s, until_s)."""
        edges = np.linspace(since_s, until_s, PARTS + 1)
        return np.stack([self._counts(*edges[part : part + 2]) for part in range(PARTS)])

    def _counts(self, since_s: float, until_s: float) -> IntArray:
        fit, rng = self._fit, stream(self._seed, f"statistics {until_s:.3f}")
        layers, experts = fit.experts.shape[1], fit.n_experts
        came = np.flatnonzero((self._workload.arrival_s >= since_s) & (self._workload.arrival_s < until_s))
        counts = np.zeros(layers * experts)
        scale = max(1.0, len(came) * PARTS / MOST_DRAWN)
        for request in rng.permutation(came)[: MOST_DRAWN // PARTS + 1]:
            stands_for = rng.choice(self._of_tenant[self._workload.tenant[request]])
            for part, tokens in enumerate(self._tokens):
                row = 2 * stands_for + part
                ids = fit.experts[fit.first[row] : fit.first[row] + fit.tokens[row]].astype(np.int64)
                cells = (np.arange(layers)[:, None] * experts + ids).ravel()
                counts += np.bincount(cells, minlength=len(counts)) * (scale * tokens[request] / fit.tokens[row])
        return np.rint(counts).astype(np.int64).reshape(layers, experts)


def _fit_side(ground: Ground, session: Session) -> Routed:
    traffic, trace = ground.traffic(session), session.trace
    if not isinstance(trace, TokenTrace) or not isinstance(traffic, TokenTraffic) or traffic.split is None:
        raise UsageError("counts do not know requests", where="routing", fix="give a token trace")
    chosen = session.selection().of_side(traffic.split, FIT)
    return routed_requests(
        chosen.batches(trace), trace.workloads, session.meta.experts, seed=ground.session.settings.seed
    )


def _made(loop: Rebalance, placement: Placement, windows: IntArray, session: Session, current: Plan) -> Plan:
    """The plan of a statistics window: the policy that the scenario names, EPLB where it says "auto"."""
    if placement.after.endswith(".json"):
        raise UsageError(
            "a plan file is never made anew", where="placement.after", fix="name a policy, or leave it out"
        )
    problem = Problem(
        forecast=windows.sum(axis=0).astype(np.float64),
        windows=windows[windows.any(axis=(1, 2))],
        topology=session.topology,
        groups=session.meta.groups,
        current=current,
        seed=session.settings.seed,
        top_k=session.meta.top_k,
        effort=Effort(proposals=placement.proposals or PROPOSALS),
    )
    aware = ("eplb_hierarchical", "eplb") if loop.topology_aware else ("eplb",)
    reasons = []
    for policy in aware if placement.after == "auto" else (placement.after,):
        try:
            return capped(policies.make(policy, problem), problem.forecast, session.topology, loop.max_replicas)
        except NotApplicable as reason:
            reasons.append(str(reason))
    raise UsageError(reasons[-1], where="placement.after", fix="name another policy")


def capped(plan: Plan, load: FloatArray, topology: Topology, most: int) -> Plan:
    """The plan with at most `most` replicas of an expert. A replica beyond goes from the fullest rank that has one; its
    slot gets the expert whose replicas have most to do each, of those that may have one more and are not there.

    load: float64[L, E]. Raises `UsageError` when the slots cannot be filled that way.
    """
    slots = plan.expert_of_slot.astype(np.int64)
    rank_of_slot = plan.rank_of_slot
    for layer, experts in enumerate(slots):
        replicas = np.bincount(experts, minlength=plan.experts)
        while (over := np.flatnonzero(replicas > most)).size:
            share = load[layer] / np.maximum(replicas, 1)
            full = np.bincount(rank_of_slot, weights=share[experts], minlength=plan.ranks) / topology.speed
            places = np.flatnonzero(experts == over[0])
            place = places[np.argmax(full[rank_of_slot[places]])]
            there = experts[rank_of_slot == rank_of_slot[place]]
            free = np.setdiff1d(np.flatnonzero(replicas < most), there)
            if not len(free):
                raise UsageError(
                    f"{plan.slots} slots for {plan.experts} experts of {most} replicas at most",
                    where="rebalance.max_replicas",
                    fix="allow more, or give fewer slots",
                )
            taken = free[np.argmax((load[layer] / replicas)[free])]
            experts[place] = taken
            replicas[over[0]] -= 1
            replicas[taken] += 1
    return replace(plan, expert_of_slot=frozen(slots, np.int32))


def _transfer(old: Plan, new: Plan, session: Session) -> tuple[int, float]:
    """Experts to copy and seconds until the last layer has them."""
    links = session.hardware.migration
    needs = transfer(
        old,
        new,
        expert_bytes=session.shape.expert_bytes,
        node_of_rank=session.topology.node_of_rank,
        nvlink_bytes_per_s=links.nvlink_bytes_per_s,
        network_bytes_per_s=links.cross_node_bytes_per_s,
    )
    return int(needs.moves.sum()), float(needs.layer_s.sum())
