"""`step_model`: the seconds of a step under one plan, fitted to what replaying tokens one by one gives.

Means and variances come from the routed requests (`moments`), seconds of the experts from splits of rows over slots
that are drawn (`curves`), those of the links from replayed steps (`link_lines`). What single ranks do by chance does
not quite add up to what the slowest one does: `fitting` scales it until layers are like replayed ones.

Fitted, and compared (`as_recorded`), are the rows as recorded, for these can be replayed; what serves are those of
`requests_like`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from easybalance_sim.arrays import FloatArray, stream
from easybalance_sim.cluster.topology import Topology
from easybalance_sim.cost.layer import LayerCost
from easybalance_sim.cost.reduction import ReductionSeconds
from easybalance_sim.plan.plan import Plan
from easybalance_sim.replay.engine import Dispatched
from easybalance_sim.simulate.serving.curves import Curves, curves
from easybalance_sim.simulate.serving.fitting import fitted
from easybalance_sim.simulate.serving.link_lines import link_lines
from easybalance_sim.simulate.serving.mixing import Pieces, answers
from easybalance_sim.simulate.serving.moments import before_moving, replica_shares, row_moments, row_sums
from easybalance_sim.simulate.serving.replayed import Replayed, replayed, sent
from easybalance_sim.simulate.serving.requests_like import requests_like
from easybalance_sim.simulate.serving.routed import Routed
from easybalance_sim.simulate.serving.step_model import AttentionSeconds, OutsideSeconds, StepModel

MOST_ROWS = float(1 << 20)
WORK_TOKENS, EVEN_TOKENS, ALONE_RANKS = 64, 1 << 14, 4
"""Tokens per rank, and in all, of the steps from which the links' lines are read; data-parallel ranks sending alone."""
ALONE = ReductionSeconds()
"""A GPU that shares its experts with none has nothing to add up."""
_TOP_RUNGS = 4
"""Of a curve, at which the slope would reach beyond its end."""


def step_model(
    routed: Routed,
    plan: Plan,
    topology: Topology,
    cost: LayerCost,
    *,
    attention: AttentionSeconds,
    outside: OutsideSeconds,
    data_ranks: int,
    rule: str,
    hidden: float = 0.0,
    run_tokens: int = 0,
    most_rows: float = MOST_ROWS,
    layer_ids: Sequence[int] | None = None,
    seed: int = 0,
    summing: ReductionSeconds = ALONE,
) -> StepModel:
    """The step model of a plan; the formulas are in `step_model` the module, how they are filled in the module's text.

    data_ranks: D, divides R · rule: of dispatch · hidden: as in `StepModel` · run_tokens: prompt tokens of a request
    in a step, typically, 0 = its whole routed prompt · most_rows: rows of a rank that may occur (curves end earlier
    where they are lines) · layer_ids: as for `replay.dispatch.prepare` · summing: of a token's output over the GPUs
    that share a rank's experts, once for every rank that it is sent to. Raises `UsageError` for ranks that do not fit.
    """
    replay = replayed(plan, topology, cost, data_ranks=data_ranks, rule=rule, seed=seed, layer_ids=layer_ids)
    sums = row_sums(routed, plan, replay.subject.dispatch)
    mean, spread = row_moments(routed, sums, run_tokens)
    even, alone = (list(sent(replay, routed, pieces)) for pieces in (_even(routed, replay), _alone(routed, replay)))
    lines = link_lines(cost, even, alone, WORK_TOKENS * replay.own)
    distinct = _distinct(even)
    curve = curves(cost, slot_shares(routed, plan, replay), distinct, most_rows, seed)
    expert = curve.at_knots(curve.mean)
    variance = spread[1::2].mean(axis=0, dtype=np.float64)
    first = StepModel(
        mean=mean,
        spread=before_moving(spread),
        knot=curve.knot,
        expert_s=expert,
        chance_rows=curve.at_knots(chance_rows(curve, variance / np.maximum(mean[1::2].mean(axis=0), 1e-9))),
        even_expert_s=np.einsum("lrg,r->lg", expert, topology.speed) / topology.speed.sum(),
        arrive_s=lines.arrive_s,
        even_arrive_s=lines.even_arrive_s,
        leave_s=lines.leave_s,
        link_fixed_s=lines.fixed_s,
        attention=attention,
        outside=outside,
        data_ranks=data_ranks,
        hidden=hidden,
        reasons=cost.reasons,
        band_p90=cost.band_p90,
        sum_fixed_s=summing.fixed,
        sum_row_s=summing.token * distinct,
        run_tokens=run_tokens,
    )
    mean, spread = requests_like(routed, sums, run_tokens)
    return replace(fitted(first, routed, replay, run_tokens, seed), mean=mean, spread=before_moving(spread))


def slot_shares(routed: Routed, plan: Plan, replay: Replayed) -> FloatArray:
    """float64[L, P] of all tokens of a layer that each slot gets, every routed request counting as much."""
    weight = np.repeat(1.0 / np.diff(routed.start), np.diff(routed.start))
    weight = np.repeat(weight, routed.experts.shape[2])
    load = np.stack([np.bincount(ids.ravel(), weight, routed.n_experts) for ids in np.moveaxis(routed.experts, 1, 0)])
    by_replica = replica_shares(plan, replay.subject.dispatch)
    shares = np.zeros((plan.layers, plan.slots))
    np.put_along_axis(shares, plan.replica_slot, by_replica, axis=1)
    return np.asarray(shares * np.take_along_axis(load / load.sum(axis=1, keepdims=True), plan.expert_of_slot, axis=1))


def chance_rows(curve: Curves, variance: FloatArray) -> FloatArray:
    """float64[L, J] rows that make the seconds of the curve's ranks vary as much as they do, beyond what the rows
    themselves vary.

    variance: float64[L, R] of a rank's rows, per row. With slope f' over about the rows' own scatter and sd σ at given
    rows: τ = Σ σ·f' / Σ f'² over ranks is the noise in rows; rows that vary with v are made to vary with v + τ².
    """
    step = 1.5 * np.sqrt(curve.rows)
    layers, ranks, _ = curve.mean.shape
    above = np.empty_like(curve.mean)
    for layer, rank in np.ndindex(layers, ranks):
        above[layer, rank] = np.interp(curve.rows + step, curve.rows, curve.mean[layer, rank])
    slope = (above - curve.mean) / np.maximum(step, 1e-9)
    slope[..., -_TOP_RUNGS:] = slope[..., -_TOP_RUNGS - 1 : -_TOP_RUNGS]
    square = (slope * slope).sum(axis=1)
    noise = np.divide((curve.sd * slope).sum(axis=1), square, out=np.zeros_like(square), where=square > 0)
    own = variance.mean(axis=1)[:, None] * curve.rows
    return np.asarray(np.sqrt(own + noise * noise) - np.sqrt(own))


def _even(routed: Routed, replay: Replayed) -> Pieces:
    steps = max(1, EVEN_TOKENS // (WORK_TOKENS * replay.ranks))
    every = np.arange(routed.requests)
    return answers(routed, every, steps, WORK_TOKENS * replay.own, replay.data_ranks, stream(0, "steps of all ranks"))


def _alone(routed: Routed, replay: Replayed) -> Pieces:
    """Steps that one data-parallel rank each sends alone, some ranks all over the cluster."""
    ranks = np.unique(np.linspace(0, replay.data_ranks - 1, ALONE_RANKS).astype(np.int64))
    pieces = answers(
        routed, np.arange(routed.requests), len(ranks), WORK_TOKENS * replay.own, 1, stream(0, "steps of one rank")
    )
    return replace(pieces, data_rank=ranks[pieces.step])


def _distinct(parts: Sequence[Dispatched]) -> FloatArray:
    """float64[L, R] distinct tokens per row of a rank."""
    tokens, rows = (
        sum(np.einsum("wlr->lr", column, dtype=np.float64) for column in columns)
        for columns in ([part.distinct for part in parts], [part.rank_rows for part in parts])
    )
    return np.asarray(np.divide(tokens, rows, out=np.ones_like(tokens), where=rows > 0))
