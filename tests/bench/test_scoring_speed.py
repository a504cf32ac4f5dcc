"""Scoring many candidate plans on sample windows: the compiled kernel against the same figures in numpy."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest

from easybalance_sim.arrays import AnyArray, FloatArray, frozen
from easybalance_sim.plan.plan import Plan
from easybalance_sim.replay.expected import even_imbalances, even_rank_tokens
from easybalance_sim.replay.tally import imbalance

CANDIDATES, WINDOWS, LAYERS, EXPERTS, RANKS, SLOTS = 1000, 64, 58, 256, 32, 9
NUMPY_CANDIDATES = 40
ROUNDS = 5


def candidates(count: int) -> list[Plan]:
    """Random plans; what they are makes no difference to the work."""
    rng = np.random.default_rng(0)
    every = np.broadcast_to(np.arange(EXPERTS, dtype=np.int32), (count, LAYERS, EXPERTS))
    more = rng.integers(0, EXPERTS, (count, LAYERS, RANKS * SLOTS - EXPERTS), np.int32)
    slots = rng.permuted(np.concatenate([every, more], axis=2), axis=2)
    per_rank = np.full(RANKS, SLOTS)
    return [Plan(expert_of_slot=one, slots_per_rank=per_rank, experts=EXPERTS, policy="random") for one in slots]


def in_numpy(tokens: AnyArray, plans: list[Plan], speed: FloatArray) -> list[FloatArray]:
    return [imbalance(even_rank_tokens(tokens, plan), speed) for plan in plans]


def seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


@pytest.mark.bench
def test_scoring_speed(publish: Callable[[str], None]) -> None:
    rng, speed = np.random.default_rng(1), np.ones(RANKS)
    tokens = frozen(rng.poisson(rng.lognormal(3, 1, (WINDOWS, LAYERS, EXPERTS))), np.int64)
    plans = candidates(CANDIDATES)
    few = plans[:NUMPY_CANDIDATES]
    np.testing.assert_allclose(even_imbalances(tokens, few, speed), in_numpy(tokens, few, speed), rtol=1e-12)
    ours, one, plain = [], [], []
    # In turn, so that other work on the machine slows all of them.
    for _ in range(ROUNDS):
        ours.append(seconds(lambda: even_imbalances(tokens, plans, speed)))
        one.append(seconds(lambda: even_imbalances(tokens, plans[:1], speed)))
        plain.append(seconds(lambda: in_numpy(tokens, few, speed)) * CANDIDATES / NUMPY_CANDIDATES)
    best, single, numpy_s = min(ours), min(one), min(plain)
    publish(
        f"scoring {CANDIDATES} candidates × {WINDOWS} windows × {LAYERS} × {EXPERTS}, {RANKS * SLOTS} slots: "
        f"{best:.2f} s, {numpy_s / best:.0f}× numpy plan by plan ({numpy_s:.1f} s, from {NUMPY_CANDIDATES}); "
        f"one candidate {1e3 * single:.1f} ms, {numpy_s / CANDIDATES / single:.1f}×"
    )
    assert best < numpy_s / 4
