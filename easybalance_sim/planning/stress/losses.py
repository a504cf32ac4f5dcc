"""Node loss: what is left of a plan, what has to be fetched, and how the ranks that are left cope."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from easybalance_sim.arrays import AnyArray, FloatArray, IntArray, stream
from easybalance_sim.cluster.topology import Topology
from easybalance_sim.plan.plan import Plan
from easybalance_sim.plan.survivors import Survivors, repair, surviving_ranks, survivors, topology_of
from easybalance_sim.planning.session import Session
from easybalance_sim.planning.stress.cases import Case
from easybalance_sim.planning.stress.stretch import Stretch, bench_on

MOST_LOSSES = 8


@dataclass(frozen=True, kw_only=True)
class Loss:
    """What goes at once: a node, or one rank where there is one node."""

    name: str
    ranks: tuple[int, ...]


def losses(topology: Topology, seed: int) -> list[Loss]:
    """Every node in turn, or every rank of a single node; at most `MOST_LOSSES`, drawn by seed. None of one rank."""
    unit = topology.node_of_rank if topology.nodes > 1 else np.arange(topology.ranks)
    word, count = ("node" if topology.nodes > 1 else "rank"), int(unit.max()) + 1
    if topology.ranks == 1:
        return []
    chosen = np.sort(stream(seed, "losses").permutation(count)[:MOST_LOSSES])
    return [Loss(name=f"{word} {n}", ranks=tuple(np.flatnonzero(unit == n).tolist())) for n in chosen.tolist()]


def loss_cases(
    baseline: Plan, plan: Plan, traffic: Stretch, session: Session, load: FloatArray, expert_tokens: AnyArray
) -> Iterator[Case]:
    """Both plans on what is left of the cluster, mended with as many moves as experts were lost.

    load: float64[L, E] by which they are mended · expert_tokens: [L, E] assignments of the held-out traffic. Survivors
    take more slots than the cluster gives them where these are too few for the experts.
    """
    for loss in losses(session.topology, session.settings.seed):
        old = surviving_ranks(session.topology.ranks, loss.ranks)
        topology = _with_room(session.topology, old, plan.experts)
        left = {"baseline": survivors(baseline, old), "plan": survivors(plan, old)}
        mended = [repair(one, topology, load) for one in left.values()]
        before, after = traffic.replay(mended, bench_on(session, topology))
        yield Case(
            name=loss.name,
            before=before,
            after=after,
            seed=session.settings.seed,
            about={"slots_per_rank": int(topology.slots_per_rank.max())},
            extra={side: _lost(one, expert_tokens, session.shape.expert_bytes) for side, one in left.items()},
        )


def _with_room(topology: Topology, old: IntArray, experts: int) -> Topology:
    """What is left of the cluster, with slots for all experts."""
    left = topology_of(topology, old)
    return (
        left
        if left.slots >= experts
        else topology_of(topology, old, int(max(left.slots_per_rank.max(), -(-experts // len(old)))))
    )


def _lost(left: Survivors, expert_tokens: AnyArray, expert_bytes: int) -> dict[str, Any]:
    """Experts (of all layers) without a copy, the share of the traffic that wants them, bytes that bring them back."""
    lost = int(left.lost.sum())
    return {
        "experts_lost": lost,
        "experts_lost_frac": round(lost / left.lost.size, 6),
        "traffic_lost_frac": round(float(expert_tokens[left.lost].sum() / max(expert_tokens.sum(), 1)), 6),
        "mend_bytes": lost * expert_bytes,
    }
