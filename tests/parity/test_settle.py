"""Settling of small placements against its specification.

Claimed: the same placements and values, walk for walk (float64 sums in the same order); with walks enough, the optimum
of instances small enough to enumerate.
"""

from __future__ import annotations

from types import ModuleType
from typing import NamedTuple

import numpy as np
import pytest

from easybalance_sim.arrays import AnyArray, frozen
from easybalance_sim.kernels import numba_settle, reference_settle
from tests.parity.test_search import every_placement


class Small(NamedTuple):
    """See `reference_settle.settle`."""

    start: AnyArray
    rank_of_slot: AnyArray
    cost: AnyArray
    weight: AnyArray
    pace: AnyArray

    def run(self, module: ModuleType, walks: int, proposals: int, seed: int = 1) -> tuple[AnyArray, float]:
        out = np.zeros_like(self.start)
        return out, module.settle(*self, walks, proposals, seed, out)


def small(seed: int, experts: int, per_rank: list[int], *, windows: int = 3, active: float = 0.0) -> Small:
    rng = np.random.default_rng(seed)
    tokens = rng.gamma(0.7, 1.0, (experts, windows))[:, None] / np.arange(1, len(per_rank) + 1)[:, None]
    weight = rng.random(windows) + 0.1
    return Small(
        start=frozen(np.arange(sum(per_rank)) % experts, np.int32),
        rank_of_slot=frozen(np.repeat(np.arange(len(per_rank)), per_rank), np.int32),
        cost=frozen(tokens + active * (1 - np.exp(-tokens)), np.float64),
        weight=frozen(weight / weight.sum(), np.float64),
        pace=frozen(rng.uniform(0.8, 1.2, len(per_rank)), np.float64),
    )


@pytest.mark.parametrize("shape", [(8, [3, 3, 3, 3]), (9, [3, 3, 3]), (6, [1, 4, 3]), (4, [4])], ids=str)
@pytest.mark.parametrize("active", [0.0, 0.5])
def test_the_compiled_walk_is_the_specified_one(shape: tuple[int, list[int]], active: float) -> None:
    problem = small(len(shape[1]), *shape, active=active)
    (ours, low), (theirs, least) = (problem.run(module, 2, 300) for module in (numba_settle, reference_settle))
    np.testing.assert_array_equal(ours, theirs)
    assert low == pytest.approx(least, rel=1e-12)
    assert low == pytest.approx(reference_settle.busiest(ours, *problem[1:]), rel=1e-12)
    assert low <= reference_settle.busiest(*problem)


@pytest.mark.parametrize("per_rank", [[2, 2, 2], [3, 2], [2, 3, 2]], ids=str)
def test_small_instances_are_solved(per_rank: list[int]) -> None:
    for seed in range(3):
        problem = small(seed, 4, per_rank)
        best = min(reference_settle.busiest(slots, *problem[1:]) for slots in every_placement(4, per_rank))
        assert problem.run(numba_settle, 4, 3000)[1] == pytest.approx(best, rel=1e-9)
