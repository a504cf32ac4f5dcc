"""The objective adds seconds to seconds."""

from __future__ import annotations

import pytest

from easybalance_sim.cost.objective import objective_seconds
from easybalance_sim.errors import UsageError


def test_three_parts_in_seconds() -> None:
    value = objective_seconds(0.030, 8 * 50e6, 20.0, rdma_bytes_per_s=50e9, ranks=8, replan_steps=10_000)
    assert value == pytest.approx(0.030 + 0.001 + 0.002)


def test_a_plan_that_lives_longer_pays_less_for_moving() -> None:
    short, long = (
        objective_seconds(0.03, 0.0, 10.0, rdma_bytes_per_s=50e9, ranks=8, replan_steps=n) for n in (100, 100_000)
    )
    assert short > long


@pytest.mark.parametrize(("rate", "ranks", "steps"), [(0.0, 8, 1), (1.0, 0, 1), (1.0, 8, 0)])
def test_impossible_rates_are_refused(rate: float, ranks: int, steps: int) -> None:
    with pytest.raises(UsageError, match="must be > 0"):
        objective_seconds(1.0, 1.0, 1.0, rdma_bytes_per_s=rate, ranks=ranks, replan_steps=steps)
