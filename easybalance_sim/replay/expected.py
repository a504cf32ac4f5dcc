"""Count traces: expected rank loads, and seconds of steps drawn from the counts.

Counts say how often each expert was chosen in a window, not in which step nor by whom. So rank loads are expectations
under an even split over replicas (every engine's rule splits evenly on average, except those fixed per source rank),
sources are taken as uniform over ranks, and the choices of a token as independent. Seconds are never those of the mean
counts: step counts are drawn at a step size and each draw is costed (cost of the mean is 16-98 % off on decode).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from easybalance_sim import kernels
from easybalance_sim.arrays import FloatArray, Int32Array, IntArray, sealed, stream
from easybalance_sim.cluster.topology import Topology
from easybalance_sim.cost.layer import LayerCost, LayerSeconds
from easybalance_sim.cost.memory_peak import Peak
from easybalance_sim.errors import PlanError, UsageError
from easybalance_sim.plan.bounds import window_bound
from easybalance_sim.plan.plan import Plan
from easybalance_sim.replay.engine import Links
from easybalance_sim.replay.outcome import Outcome, WindowMarks
from easybalance_sim.replay.tally import imbalance, rank_sums

MIN_DRAWS = 16
MAX_DRAWS = 512


def replay_counts(
    tokens: IntArray,
    top_k: int,
    plan: Plan,
    cost: LayerCost,
    topology: Topology,
    route: Links,
    step_tokens: int,
    seed: int,
) -> Outcome:
    """Expected outcome of a plan on count windows.

    tokens: int64[W, L, E] assignments · step_tokens: tokens of one step over all ranks, for the drawn seconds ·
    draws: at least 16 and about one per window. Raises `UsageError` without any traffic.
    """
    if tokens.sum() == 0:
        raise UsageError("the windows hold no tokens", where="trace")
    rank_tokens = even_rank_tokens(tokens, plan)
    batch = tokens.sum(axis=2) / top_k
    flow = _Flow.of(rank_tokens, batch[:, :, None], top_k, topology, route)
    drawn = _draw_steps(tokens, plan, top_k, step_tokens, seed)
    step_flow = _Flow.of_draws(drawn, plan, step_tokens, top_k, topology, route)
    seconds = step_flow.seconds(drawn, cost)
    parts = np.array([seconds.dispatch.sum(), seconds.expert.sum(), seconds.combine.sum()])
    return Outcome(
        plan=plan,
        tokens=round(float(batch.max(axis=1).sum())),
        steps=len(tokens),
        tokens_per_step=float(step_tokens),
        window_imbalance=imbalance(rank_tokens, topology.speed),
        window_marks=_marks(tokens),
        window_bound=window_bound(tokens, plan.slots_per_rank, topology.speed, whole=False),
        layer_seconds=seconds.ranked,
        layer_bracket=np.stack([seconds.overlapped, seconds.serial], axis=-1),
        active_slots=np.bincount(seconds.active.ravel()),
        phase_share=parts / max(parts.sum(), 1e-300),
        expert_tokens=tokens.sum(axis=0),
        slot_tokens=_even_slot_tokens(tokens.sum(axis=0), plan),
        rank_pairs=np.broadcast_to(flow.arriving.sum(axis=(0, 1)) / plan.ranks, (plan.ranks, plan.ranks)),
        node_pairs=_node_pairs(flow, topology),
        copy_bytes=cost.copy_bytes,
        peak=Peak(
            sent=-(-step_tokens // plan.ranks),
            arriving=ceil(step_flow.distinct.max()),
            rows=int(rank_sums(drawn, plan).max()),
            slot_rows=int(drawn.max()),
        ),
        speed=topology.speed,
        expected=True,
    )


def _marks(tokens: IntArray) -> WindowMarks:
    """Of windows numbered from 0, a step each."""
    count = len(tokens)
    return WindowMarks(ids=np.arange(count), steps=np.ones(count, np.int64), assignments=tokens.sum(axis=2).max(axis=1))


def drawn_layer_seconds(
    counts: IntArray, plan: Plan, cost: LayerCost, topology: Topology, route: Links, step_tokens: int, top_k: int
) -> FloatArray:
    """float64[D, L] seconds of drawn steps under a plan; counts: int64[D, L, E] assignments, see `draw_counts`."""
    drawn = on_slots(counts, plan)
    seconds: FloatArray = _Flow.of_draws(drawn, plan, step_tokens, top_k, topology, route).seconds(drawn, cost).ranked
    return seconds


def even_rank_tokens(tokens: IntArray, plan: Plan) -> FloatArray:
    """float64[W, L, R] tokens of each rank when replicas share evenly; tokens: int64[W, L, E]."""
    return rank_sums(_even_slot_tokens(tokens, plan), plan)


def _even_slot_tokens(tokens: IntArray, plan: Plan) -> FloatArray:
    """float64[…, L, P] tokens of each slot when replicas share evenly; tokens: int64[…, L, E]."""
    layer = np.arange(plan.layers)[:, None]
    shares: FloatArray = tokens[..., layer, plan.expert_of_slot] / plan.replicas[layer, plan.expert_of_slot]
    return shares


def even_imbalance(tokens: IntArray, plan: Plan, speed: FloatArray) -> FloatArray:
    """float64[W, L] rank imbalance when replicas share evenly, NaN without traffic; speed: float64[R]."""
    one: FloatArray = even_imbalances(tokens, [plan], speed)[0]
    return one


def even_imbalances(tokens: IntArray, plans: Sequence[Plan], speed: FloatArray) -> FloatArray:
    """float64[C, W, L] `even_imbalance` of plans with the same slots per rank, at least one; tokens: int64[W, L, E].

    Much faster than plan by plan when there are many. Raises `PlanError` when slots per rank differ.
    """
    first = plans[0]
    if any(not np.array_equal(plan.slots_per_rank, first.slots_per_rank) for plan in plans):
        raise PlanError("plans that are scored together must have the same slots per rank", where="scoring")
    slots = np.stack([plan.expert_of_slot for plan in plans])
    out = np.empty((len(plans), first.layers, len(tokens)))
    windows = sealed(np.ascontiguousarray(tokens, np.int64).view())
    pace = sealed(speed.mean() * len(speed) / speed)
    kernels.load().score_plans(sealed(slots), first.slot_start, windows, pace, out)
    ratio: FloatArray = out.transpose(0, 2, 1)
    return ratio


@dataclass(frozen=True, kw_only=True, eq=False)
class _Flow:
    """Expected copies. distinct: [W, L, R] tokens that reach a rank · arriving: [W, L, R] copies a rank is sent ·
    on_node: [W, L, N] copies a node is sent · rdma, nvlink: [W, L, R] copies in the busier direction."""

    distinct: FloatArray
    arriving: FloatArray
    on_node: FloatArray
    rdma: FloatArray
    nvlink: FloatArray

    @classmethod
    def of(cls, rank_tokens: FloatArray, batch: FloatArray, top_k: int, topology: Topology, route: Links) -> _Flow:
        member = topology.node_of_rank[:, None] == np.arange(topology.nodes)
        size = member.sum(axis=0)
        node_tokens = rank_tokens @ member
        distinct = reached(rank_tokens, batch, top_k)
        arriving = distinct if route.per_node else rank_tokens
        on_node = reached(node_tokens, batch, top_k) if route.per_node else node_tokens
        mine = topology.node_of_rank
        ranks, peers = topology.ranks, size[mine]
        received = on_node[..., mine] / peers if route.per_node else arriving
        sent = (on_node.sum(axis=-1, keepdims=True) - on_node[..., mine]) / ranks
        inside = (arriving @ member)[..., mine]
        share = peers if route.per_node else ranks
        return cls(
            distinct=distinct,
            arriving=arriving,
            on_node=on_node,
            rdma=np.maximum(received * (ranks - peers) / ranks, sent),
            nvlink=np.maximum(arriving * (peers - 1), inside - arriving) / share,
        )

    @classmethod
    def of_draws(
        cls, drawn: Int32Array, plan: Plan, step_tokens: int, top_k: int, topology: Topology, route: Links
    ) -> _Flow:
        """Of single steps; drawn: int32[D, L, P]."""
        size = np.full((len(drawn), 1, 1), float(step_tokens))
        return cls.of(rank_sums(drawn, plan).astype(np.float64), size, top_k, topology, route)

    def seconds(self, drawn: Int32Array, cost: LayerCost) -> LayerSeconds:
        """Of the steps that the flow is of."""
        return cost.seconds(sealed(drawn), self.whole(self.distinct), self.whole(self.rdma), self.whole(self.nvlink))

    @staticmethod
    def whole(copies: FloatArray) -> Int32Array:
        """Copies as whole numbers, for the cost model."""
        return sealed(np.rint(copies).astype(np.int32))


def reached(assignments: FloatArray, batch: FloatArray, top_k: int) -> FloatArray:
    """Expected tokens with at least one of their K choices among these assignments: T·(1 - (1 - p/K)^K), p = n/T."""
    hit = np.clip(assignments / np.maximum(batch, 1e-300) / top_k, 0, 1)
    reached: FloatArray = batch * (1 - (1 - hit) ** top_k)
    return reached


def _node_pairs(flow: _Flow, topology: Topology) -> FloatArray:
    size = np.bincount(topology.node_of_rank, minlength=topology.nodes)
    pairs: FloatArray = size[:, None] / topology.ranks * flow.on_node.sum(axis=(0, 1))
    return pairs


def _draw_steps(tokens: IntArray, plan: Plan, top_k: int, step_tokens: int, seed: int) -> Int32Array:
    """int32[D, L, P] slot tokens of steps drawn from windows that lie apart as evenly as can be."""
    windows = np.flatnonzero(tokens.sum(axis=(1, 2)))
    draws = int(np.clip(len(windows), MIN_DRAWS, MAX_DRAWS))
    chosen = windows[np.arange(draws) * len(windows) // draws]
    return on_slots(draw_counts(tokens[chosen], step_tokens * top_k, stream(seed, "step draws")), plan)


def draw_counts(tokens: IntArray, assignments: int, rng: np.random.Generator) -> IntArray:
    """int64[D, L, E] one step of `assignments` drawn from each window; tokens: int64[D, L, E]. A layer without traffic
    in a window stays empty."""
    total = tokens.sum(axis=2, keepdims=True)
    shares = np.divide(tokens, total, out=np.full(tokens.shape, 1 / tokens.shape[2]), where=total > 0)
    counts: IntArray = rng.multinomial(assignments, shares) * (total > 0)
    return counts


def on_slots(counts: IntArray, plan: Plan) -> Int32Array:
    """int32[D, L, P] slot tokens of drawn steps, replicas sharing an expert's tokens as evenly as whole tokens can.

    counts: int64[D, L, E] · which replica takes one more turns with the draw.
    """
    layer = np.arange(plan.layers)[:, None]
    replicas = plan.replicas[layer, plan.expert_of_slot]
    order = np.empty_like(plan.replica_slot)
    np.put_along_axis(order, plan.replica_slot, np.arange(plan.slots, dtype=np.int32)[None, :], axis=1)
    turn = (order - plan.replica_start[layer, plan.expert_of_slot] - np.arange(len(counts))[:, None, None]) % replicas
    share, rest = np.divmod(counts[:, layer, plan.expert_of_slot], replicas)
    drawn: Int32Array = (share + (turn < rest)).astype(np.int32)
    return drawn
