"""The compiled sums over ranks against their specification: sums of a few fractions, equal to rounding."""

from __future__ import annotations

import numpy as np
import pytest

from easybalance_sim.arrays import AnyArray, frozen
from easybalance_sim.kernels import numba_rank_moments, reference_rank_moments
from easybalance_sim.simulate.serving.moments import replica_shares
from tests.replay_cases import random_ids
from tests.routed_cases import served


@pytest.mark.parametrize("by_chance", [False, True])
@pytest.mark.parametrize("rule", ["even", "sglang-static", "sglang-dynamic"])
def test_sums_are_the_same(rule: str, by_chance: bool) -> None:
    case = served(3, ranks=3, slots=8, per_node=2, rule=rule)
    experts = frozen(random_ids(3, 90, 3, 16, 4), np.uint8)
    start = frozen([0, 1, 40, 40, 90], np.int64)
    plan = case.plan
    rank = frozen(plan.rank_of_slot[plan.replica_slot], np.int32)
    found: list[tuple[AnyArray, AnyArray]] = []
    for module in (numba_rank_moments, reference_rank_moments):
        total, square = np.zeros((4, 3, 3)), np.zeros((4, 3, 3))
        shares = replica_shares(plan, case.replay().subject.dispatch)
        module.rank_moments(experts, start, plan.replica_start, rank, shares, by_chance, total, square)
        found.append((total, square))
    for ours, wanted in zip(*found, strict=True):
        np.testing.assert_allclose(ours, wanted, rtol=1e-12, atol=1e-12)
    assert not found[0][0][2].any()
