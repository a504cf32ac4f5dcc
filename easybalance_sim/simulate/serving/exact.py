"""Steps of a simulation replayed token by token, against what the step model says of the same steps.

Only recorded tokens can be replayed, a long prompt's by going round a shorter one's: what is compared has the rows as
recorded, not those that serve. It judges sums, chance, curves and lines; that rows which serve have no more skew than
requests have is the matter of `requests_like`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from easybalance_sim.arrays import AnyArray, FloatArray, Int32Array, stream
from easybalance_sim.errors import ProfileError
from easybalance_sim.simulate.serving.evaluation import layer_parts, step_loads
from easybalance_sim.simulate.serving.mixing import Pieces
from easybalance_sim.simulate.serving.moments import before_moving, row_moments, row_sums
from easybalance_sim.simulate.serving.pool_run import StepSample
from easybalance_sim.simulate.serving.replayed import Replayed, sent
from easybalance_sim.simulate.serving.routed import Routed
from easybalance_sim.simulate.serving.step_model import StepModel

MOST_TOKENS = 1 << 17
"""Of the steps that are replayed: about a second for a model of 58 layers."""
PERCENTILE = 99.0
FEWEST_TOKENS = 4


@dataclass(frozen=True, kw_only=True)
class Tails:
    """Over steps × layers. mean_s, p99_s: MoE seconds of a layer, nothing hidden · mean_imbalance, p99_imbalance: rows
    of the busiest rank over the mean rank's, both by its speed, in steps of `FEWEST_TOKENS` per rank and more: in
    smaller ones it is the number of tokens that tells (all steps when there are no others)."""

    mean_s: float
    p99_s: float
    mean_imbalance: float
    p99_imbalance: float


@dataclass(frozen=True, kw_only=True)
class StepCheck:
    """steps, tokens: that were replayed · model, replayed: what either gives."""

    steps: int
    tokens: int
    model: Tails
    replayed: Tails

    def error(self, name: str) -> float:
        """By which share the model is above the replay in one of the fields of `Tails`."""
        return float(getattr(self.model, name) / getattr(self.replayed, name) - 1.0)

    @property
    def line(self) -> str:
        """ "step model against token-by-token replay: mean +0.4 %, P99 -1.2 % (32 steps, 131,072 tokens)"."""
        mean, tail = (100 * self.error(name) for name in ("mean_s", "p99_s"))
        return (
            f"step model against token-by-token replay: mean {mean:+.1f} %, P99 {tail:+.1f} % "
            f"({self.steps} steps, {self.tokens:,} tokens)"
        )


def check(
    samples: Sequence[StepSample],
    data_rank: Int32Array,
    routed: Routed,
    replay: Replayed,
    model: StepModel,
    *,
    most_tokens: int = MOST_TOKENS,
    seed: int = 0,
) -> StepCheck | None:
    """Replay sampled steps; None when there is none, or when they go beyond the user's measured tables.

    Each request's tokens are consecutive ones of the routed request that it stands for, from a place drawn at random,
    from its end on once more from the beginning. data_rank: int32[N] of the requests. Where the steps hold more than
    `most_tokens`, some of them, evenly spread, are replayed.
    """
    chosen = _affordable(samples, most_tokens)
    if not chosen:
        return None
    try:
        return compare(_pieces(chosen, data_rank, routed, seed), routed, replay, model, seed)
    except ProfileError:
        return None


def compare(pieces: Pieces, routed: Routed, replay: Replayed, model: StepModel, seed: int = 0) -> StepCheck:
    """The step model, with rows as recorded, against the replay for any steps. Raises `ProfileError` beyond the user's
    measured tables."""
    cost, model = replay.subject.cost, as_recorded(model, routed, replay)
    rows, seconds = [], []
    for part in sent(replay, routed, pieces):
        rows.append(part.rank_rows)
        seconds.append(cost.seconds(part.slot_tokens, part.distinct, part.rdma, part.nvlink).serial)
    steps = step_loads(model, pieces, seed)
    fewest = FEWEST_TOKENS * replay.ranks * routed.experts.shape[2] - 0.5
    return StepCheck(
        steps=pieces.steps,
        tokens=int(pieces.count.sum()),
        model=_tails(layer_parts(model, steps).serial, steps.rows, cost.speed, fewest),
        replayed=_tails(np.concatenate(seconds), np.concatenate(rows), cost.speed, fewest),
    )


def as_recorded(model: StepModel, routed: Routed, replay: Replayed) -> StepModel:
    """The step model with the rows of the routed requests themselves."""
    sums = row_sums(routed, replay.subject.plan, replay.subject.dispatch)
    mean, spread = row_moments(routed, sums, model.run_tokens)
    return replace(model, mean=mean, spread=before_moving(spread))


def _tails(seconds: FloatArray, rows: AnyArray, speed: FloatArray, fewest: float) -> Tails:
    """fewest: rows of a step that counts for imbalance."""
    enough = rows.sum(axis=2).mean(axis=1) >= fewest
    counted = rows[enough] if enough.any() else rows
    imbalance = (counted / speed).max(axis=2) / np.maximum(counted.sum(axis=2) / speed.sum(), 1e-300)
    return Tails(
        mean_s=float(seconds.mean()),
        p99_s=float(np.percentile(seconds, PERCENTILE)),
        mean_imbalance=float(imbalance.mean()),
        p99_imbalance=float(np.percentile(imbalance, PERCENTILE)),
    )


def _affordable(samples: Sequence[StepSample], most_tokens: int) -> Sequence[StepSample]:
    """Every n-th step, with the least n at which they hold no more than `most_tokens` (but one step at least)."""
    every = 1
    tokens = [int(sample.prompt.sum() + sample.decode.sum()) for sample in samples]
    while sum(tokens[::every]) > most_tokens and every < len(samples):
        every += 1
    return [sample for sample, held in zip(samples[::every], tokens[::every], strict=True) if held]


def _pieces(samples: Sequence[StepSample], data_rank: Int32Array, routed: Routed, seed: int) -> Pieces:
    request, row = (np.concatenate([getattr(sample, name) for sample in samples]) for name in ("request", "row"))
    count = np.concatenate([sample.prompt + sample.decode for sample in samples])
    return Pieces(
        step=np.repeat(np.arange(len(samples)), [len(sample.request) for sample in samples]),
        row=row,
        first=stream(seed, "where in routed requests").integers(0, routed.tokens[row]),
        count=count,
        data_rank=data_rank[request],
    )
