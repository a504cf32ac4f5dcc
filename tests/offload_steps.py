"""Recorded steps of a toy model for tests of offloading."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from easybalance_sim.arrays import frozen
from easybalance_sim.simulate.steps.recorded import RecordedSteps
from tests.trace_files import token_meta

Token = tuple[int, int, Sequence[Sequence[int]]]
"""Step, request, experts [L, K]."""


def steps_of(tokens: Sequence[Token], experts: int = 4) -> RecordedSteps:
    """Steps with exactly these tokens, in this order."""
    ids = np.array([one[2] for one in tokens], np.uint8)
    step, start = np.unique([one[0] for one in tokens], return_index=True)
    count = len(tokens)
    return RecordedSteps(
        meta=token_meta(range(ids.shape[1]), experts, ids.shape[2]),
        step=frozen(step, np.int64),
        start=frozen(np.append(start, count), np.int64),
        experts=frozen(ids),
        request=frozen([one[1] for one in tokens], np.int64),
        position=frozen(np.arange(count), np.int32),
        phase=frozen(np.ones(count), np.uint8),
        workload=frozen(np.zeros(count), np.int16),
        source_rank=frozen(np.full(count, -1), np.int16),
        workloads=("",),
    )


def random_steps(
    seed: int, steps: int, tokens: int, layers: int = 2, experts: int = 6, top_k: int = 2
) -> RecordedSteps:
    """So many steps of so many tokens with uniform choices; each request has one token a step, for four steps."""
    rng = np.random.default_rng(seed)
    made: list[Token] = []
    for step in range(steps):
        for place in range(tokens):
            chosen = [rng.permutation(experts)[:top_k].tolist() for _ in range(layers)]
            made.append((step, step // 4 * tokens + place, chosen))
    return steps_of(made, experts)
