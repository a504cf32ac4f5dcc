"""One replica fewer or more, against every possibility tried one by one."""

from __future__ import annotations

import numpy as np
import pytest

from easybalance_sim.arrays import AnyArray
from easybalance_sim.explaining.changes import Layer
from easybalance_sim.plan.plan import Plan

SLOTS = [[0, 1, 2], [0, 3, 4], [1, 5, 0]]
SPEED = np.ones(3)


def naive_mean(tokens: AnyArray, slots: list[list[int]]) -> float:
    """Mean over windows of busiest rank over the mean; tokens: [W, E]."""
    copies = np.bincount(np.concatenate(slots), minlength=tokens.shape[1])
    ranks = np.stack([(tokens[:, held] / copies[held]).sum(axis=1) for held in slots], axis=1)
    return float((ranks.max(axis=1) / ranks.mean(axis=1)).mean())


def layer(tokens: AnyArray, slots: list[list[int]] = SLOTS) -> Layer:
    plan = Plan(
        expert_of_slot=np.array([np.concatenate(slots), np.concatenate(slots)]),
        slots_per_rank=np.array([len(held) for held in slots]),
        experts=tokens.shape[1],
        policy="test",
    )
    return Layer.of(plan, 1, np.stack([np.ones_like(tokens), tokens], axis=1), SPEED)


@pytest.mark.parametrize("seed", range(5))
def test_the_best_change_is_found(seed: int) -> None:
    tokens = np.random.default_rng(seed).integers(1, 100, (7, 6))
    found = layer(tokens)
    assert found.imbalance()[0] == pytest.approx(naive_mean(tokens, SLOTS))
    fewer = {
        (rank, comes): naive_mean(tokens, _changed(rank, 1, comes))
        for rank in (0, 2)
        for comes in range(6)
        if comes not in SLOTS[rank]
    }
    change = found.one_fewer(1)
    assert change is not None and change.leaves == 1
    assert change.mean == pytest.approx(min(fewer.values()))
    assert fewer[change.rank, change.comes] == pytest.approx(change.mean)
    # Expert 5 may come to ranks 0 and 1, where 0 and 1 have other replicas.
    more = {(0, 0), (0, 1), (1, 0)}
    change = found.one_more(5)
    assert change is not None and (change.rank, change.leaves) in more and change.comes == 5
    assert change.mean == pytest.approx(min(naive_mean(tokens, _changed(rank, one, 5)) for rank, one in more))


def _changed(rank: int, leaves: int, comes: int) -> list[list[int]]:
    return [[comes if at == rank and one == leaves else one for one in held] for at, held in enumerate(SLOTS)]


def test_no_change_where_none_is_possible() -> None:
    tokens = np.full((2, 6), 5)
    found = layer(tokens)
    assert found.one_fewer(3) is None
    assert found.one_more(0) is None
    alone = layer(tokens, [[0, 1], [2, 3], [4, 5]])
    assert (alone.one_fewer(0), alone.one_more(0)) == (None, None)


def test_windows_without_traffic_do_not_count() -> None:
    tokens = np.array([[9, 1, 1, 1, 1, 1], [0, 0, 0, 0, 0, 0]])
    assert layer(tokens).imbalance()[0] == pytest.approx(naive_mean(tokens[:1], SLOTS))
    assert layer(tokens * 0).imbalance() == (1.0, 1.0)
