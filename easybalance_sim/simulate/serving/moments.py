"""How a plan spreads the tokens of routed requests over the ranks.

With x_t the assignments that token t of a row of n tokens sends to a rank, in one layer:

    mean   = (1/n) Σ x_t
    spread = (1 - 1/n) · (Σ (x_t - mean)² + A·pooled) / (n - 1 + A),   pooled = ΣΣ (x_t - mean)² / Σ (n - 1) of all rows

A token drawn from a row at random then has the row's mean and, but for the shrinking of short rows towards what is
usual in the layer and rank, the row's variance; over rows drawn at random both together are the variance of any token.
The replica that gets a token is a matter of the dispatch rule: each has the share that the rule gives it on average
(over the sources, where the source decides).

Prompt tokens come in runs of m, in which neighbours are alike, while a whole row has no chance left. The variance of a
run is φ(m) · m · (1 - m/n) · spread, φ measured on the routed requests; what goes round a shorter row differs from
whole rounds by a part of one, on average φ(n/3) · n/6 · spread.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from easybalance_sim import kernels
from easybalance_sim.arrays import AnyArray, FloatArray, IntArray, frozen
from easybalance_sim.plan.plan import Plan
from easybalance_sim.replay.dispatch import Dispatch
from easybalance_sim.simulate.serving.routed import Routed

PRIOR_TOKENS = 8.0
"""A of the module's formula: so many tokens of what is usual are added to a row's own."""
IN_TURN = ("even", "tensorrt-llm")
"""Rules under which replicas take turns, so that which one gets a token adds no chance."""
SHORTEST_RUN, RUN_TOKENS, FEWEST_ROWS = 8, 1 << 14, 8
"""φ is measured on runs of 8, 16, 32, … tokens, in so many tokens, as long as so many rows hold two such runs."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RowSums:
    """What tokens of U stretches send. tokens: float64[U, 1, 1] · mean: float64[U, L, R] of a token · scatter:
    float64[U, L, R] sum of (x - mean)² · pooled: float64[L, R] as in the module's formulas · like: float64[J] φ."""

    tokens: FloatArray
    mean: FloatArray
    scatter: FloatArray
    pooled: FloatArray
    like: FloatArray

    @property
    def variance(self) -> FloatArray:
        """float64[U, L, R] of a token, of short rows mostly what is usual."""
        return np.asarray((self.scatter + PRIOR_TOKENS * self.pooled) / (self.tokens - 1 + PRIOR_TOKENS))


def row_sums(routed: Routed, plan: Plan, dispatch: Dispatch) -> RowSums:
    """The sums over every stretch of the routed requests under a plan."""
    moments = Moments(plan, dispatch)
    total, square = moments.of(routed.experts, routed.start)
    tokens = np.diff(routed.start)[:, None, None].astype(np.float64)
    mean = total / tokens
    scatter = np.maximum(square - total * mean, 0.0)
    return RowSums(
        tokens=tokens,
        mean=mean,
        scatter=scatter,
        pooled=scatter.sum(axis=0) / max(1.0, float((tokens - 1).sum())),
        like=likeness(routed, moments),
    )


def row_moments(routed: Routed, sums: RowSums, run_tokens: int) -> tuple[AnyArray, AnyArray]:
    """mean and spread, float32[2N, L, R], of the rows as recorded, by the module's formulas; run_tokens: m of prompts,
    0 = all of a row."""
    spread = (1 - 1 / sums.tokens) * sums.variance
    share = run_share(sums.tokens[:, 0, 0], run_tokens, sums.like)
    of_row = spread.astype(np.float32)[routed.stretch]
    of_row[::2] *= share.astype(np.float32)[routed.stretch[::2], None, None]
    return sums.mean.astype(np.float32)[routed.stretch], of_row


def before_moving(spread: AnyArray) -> AnyArray:
    """float32[2N, L, R] spread by so much larger that it is right once the sum of a layer is kept: of u stay
    u·(1 - u/Σu). No rank can have more than half of the sum's variance. By the mean of the answers."""
    variance = spread[1::2].mean(axis=0, dtype=np.float64)
    wanted = variance / np.maximum(variance.sum(axis=1, keepdims=True), 1e-300)
    before = wanted
    for _ in range(20):
        before = wanted / np.maximum(1 - before / np.maximum(before.sum(axis=1, keepdims=True), 1e-300), 0.5)
    larger: FloatArray = np.divide(before, wanted, out=np.ones_like(wanted), where=wanted > 0)
    return np.asarray(spread * larger.astype(np.float32))


def run_share(tokens: FloatArray, run: int, like: FloatArray) -> FloatArray:
    """float64[n] variance of a run over that of as many tokens drawn from all over its row; tokens: float64[n] of the
    rows · like: float64[J] φ of runs of 8, 16, 32, … tokens."""
    runs = np.full(len(tokens), float(run)) if run else tokens
    inside = alike(runs, like) * np.maximum(1 - runs / tokens, 0.0)
    around = alike(tokens / 3, like) * tokens / (6 * np.maximum(runs, tokens))
    return np.asarray(np.maximum(inside, around))


def alike(length: FloatArray, like: FloatArray) -> FloatArray:
    """φ of runs of so many tokens, between those of 1 (that is 1), 8, 16, 32, … tokens, beyond them the last one's."""
    lengths = np.append(1.0, SHORTEST_RUN * 2.0 ** np.arange(len(like)))
    return np.asarray(np.interp(np.log(np.maximum(length, 1.0)), np.log(lengths), np.append(1.0, like)))


def likeness(routed: Routed, moments: Moments) -> FloatArray:
    """float64[J] φ of runs of 8, 16, 32, … tokens in the longest stretches, all layers and ranks together."""
    tokens = np.diff(routed.start)
    order = np.argsort(-tokens, kind="stable")
    longest = order[np.cumsum(tokens[order]) <= RUN_TOKENS]
    sums = [_sums_of_runs(routed, moments, int(at)) for at in longest]
    found: list[float] = []
    length = SHORTEST_RUN
    while sum(len(runs) > 1 for runs, _ in sums) >= FEWEST_ROWS:
        each = [_variances(runs, length, variance) for runs, variance in sums if len(runs) > 1]
        of_runs, of_tokens = np.sum(each, axis=0)
        found.append(max(1.0, float(of_runs / of_tokens)) if of_tokens > 0 else 1.0)
        sums = [(runs[: len(runs) // 2 * 2].reshape(-1, 2, *runs.shape[1:]).sum(axis=1), v) for runs, v in sums]
        length *= 2
    return np.array(found)


def _sums_of_runs(routed: Routed, moments: Moments, stretch: int) -> tuple[FloatArray, FloatArray]:
    """float64[n, L, R] sums of a stretch's runs of 8 tokens, less what the mean says; float64[L, R] its variance."""
    first, end = int(routed.start[stretch]), int(routed.start[stretch + 1])
    starts = np.arange(first, end + 1, SHORTEST_RUN)
    total, square = moments.of(routed.experts, np.append(starts, end) if starts[-1] < end else starts)
    tokens = end - first
    mean = total.sum(axis=0) / tokens
    scatter = np.maximum(square.sum(axis=0) - tokens * mean * mean, 0.0)
    whole = (end - first) // SHORTEST_RUN
    return total[:whole] - SHORTEST_RUN * mean, scatter / max(1, tokens - 1)


def _variances(runs: FloatArray, length: int, variance: FloatArray) -> tuple[float, float]:
    """What runs of a stretch vary, and what as many tokens from all over it would, summed over layers and ranks."""
    share = 1 - length / (length * len(runs))
    return float((runs * runs).mean(axis=0).sum()), float(length * share * variance.sum())


class Moments:
    """Sums over tokens for one plan and dispatch rule."""

    def __init__(self, plan: Plan, dispatch: Dispatch) -> None:
        self._plan = plan
        self._rank = frozen(plan.rank_of_slot[plan.replica_slot], np.int32)
        self._share = replica_shares(plan, dispatch)
        self._by_chance = dispatch.rule not in IN_TURN

    def of(self, experts: AnyArray, start: IntArray) -> tuple[FloatArray, FloatArray]:
        """float64[n, L, R] assignments and their squares, summed over the tokens start[i] to start[i + 1] - 1."""
        total, square = (np.zeros((len(start) - 1, self._plan.layers, self._plan.ranks)) for _ in range(2))
        kernels.load().rank_moments(
            experts, frozen(start, np.int64), self._plan.replica_start, self._rank, self._share, self._by_chance,
            total, square,
        )  # fmt: skip
        return total, square


def replica_shares(plan: Plan, dispatch: Dispatch) -> FloatArray:
    """float64[L, P] share of its expert's tokens that each replica gets on average, in the order of `replica_slot`."""
    even = np.take_along_axis(1.0 / plan.replicas, plan.expert_of_slot, axis=1)
    by_slot = even
    if dispatch.table.shape[1:] == (plan.layers, plan.experts):
        by_slot = np.zeros((plan.layers, plan.slots))
        layer = np.broadcast_to(np.arange(plan.layers)[:, None], (plan.layers, plan.experts))
        for slots in dispatch.table:
            fixed = slots >= 0
            np.add.at(by_slot, (layer[fixed], slots[fixed]), 1.0)
            by_slot += even * np.take_along_axis(~fixed, plan.expert_of_slot, axis=1)
        by_slot /= len(dispatch.table)
    return frozen(np.take_along_axis(by_slot, plan.replica_slot, axis=1), np.float64)
