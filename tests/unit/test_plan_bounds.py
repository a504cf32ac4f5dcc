"""The bound below which no placement goes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from easybalance_sim.plan.bounds import lower_bound


@pytest.mark.parametrize(
    ("loads", "ranks", "slots", "expected"),
    [
        ([6.0, 6.0, 6.0, 6.0], 2, 4, 1.0),  # mean binds
        ([9.0, 1.0, 1.0, 1.0], 4, 4, 3.0),  # a single replica holds 9 of 12
        ([9.0, 1.0, 1.0, 1.0], 4, 5, 1.5),  # two replicas of 4.5
        ([9.0, 1.0, 1.0, 1.0], 2, 8, 1.0),  # never more replicas than ranks: 4.5 against a mean of 6
        ([0.0, 0.0], 2, 2, 1.0),
    ],
)
def test_known_bounds(loads: list[float], ranks: int, slots: int, expected: float) -> None:
    assert lower_bound(np.array([loads]), ranks, slots).tolist() == [expected]


def test_each_layer_has_its_bound() -> None:
    assert lower_bound(np.array([[1.0, 1.0], [3.0, 1.0]]), 2, 2).tolist() == [1.0, 1.5]


def test_no_placement_of_a_small_instance_is_better() -> None:
    rng = np.random.default_rng(5)
    for loads in rng.integers(1, 20, (30, 3)):
        best = min(_imbalance(loads, slots) for slots in itertools.product(range(3), repeat=5) if len(set(slots)) == 3)
        assert lower_bound(loads[None].astype(float), 5, 5)[0] == pytest.approx(best)


def _imbalance(loads: np.ndarray[tuple[int], np.dtype[np.int64]], expert_of_rank: tuple[int, ...]) -> float:
    count = np.bincount(expert_of_rank, minlength=len(loads))
    held = (loads / count)[list(expert_of_rank)]
    return float(held.max() / held.mean())
