"""Small recordings with every expert's score, made up: a router whose favourites drift."""

from __future__ import annotations

import numpy as np

from easybalance_sim.arrays import frozen
from easybalance_sim.simulate.offsets.scores import Scores, scores_of
from easybalance_sim.simulate.steps.recorded import RecordedSteps
from easybalance_sim.trace.schema import ScoreMeta, TraceMeta


def scored_steps(
    seed: int = 0, *, steps: int = 60, tokens: int = 24, layers: int = 2, workloads: int = 1
) -> RecordedSteps:
    """Scores in [0, 1) of 16 experts, of which 2 are chosen, low ids more often and more so as time goes by; as many
    tokens in every step."""
    experts, top_k, skew = 16, 2, 0.3
    rng = np.random.default_rng(seed)
    total = steps * tokens
    lead = skew * np.linspace(0.5, 1.0, total)[:, None, None] * np.linspace(1, 0, experts)
    scores = (rng.random((total, layers, experts)) * (1 - skew) + lead).astype(np.float16)
    chosen = np.argsort(-scores.astype(np.float32), axis=2, kind="stable")[..., :top_k]
    meta = TraceMeta(
        kind="tokens", layers=tuple(range(layers)), experts=experts, top_k=top_k, model="made up",
        all_scores=ScoreMeta(),
    )  # fmt: skip
    return RecordedSteps(
        meta=meta,
        step=frozen(np.arange(steps), np.int64),
        start=frozen(np.arange(steps + 1) * tokens, np.int64),
        experts=frozen(chosen, np.uint8),
        scores=frozen(scores),
        request=frozen(np.arange(total), np.int64),
        position=frozen(np.zeros(total), np.int32),
        phase=frozen(np.zeros(total), np.uint8),
        workload=frozen(np.arange(total) % workloads, np.int16),
        source_rank=frozen(np.full(total, -1), np.int16),
        workloads=tuple(f"w{index}" for index in range(workloads)),
    )


def scored(seed: int = 0, **settings: int) -> Scores:
    """The scores of `scored_steps`."""
    return scores_of(scored_steps(seed, **settings))
