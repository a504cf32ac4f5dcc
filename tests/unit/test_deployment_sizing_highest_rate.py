"""The search for the highest rate, on deployments whose rate is known."""

from __future__ import annotations

import pytest

from easybalance_sim.deployment.sizing.attainment import GROWS, TPOT
from easybalance_sim.deployment.sizing.highest_rate import FACTORS, highest_rate
from tests.attainments import Deployment

SHARE = 0.95


@pytest.mark.parametrize("start", [1.0, 99.0, 101.0, 5000.0])
@pytest.mark.parametrize("tolerance", [0.1, 0.005])
def test_it_is_found_from_anywhere(start: float, tolerance: float) -> None:
    deployment = Deployment(100.0)
    found = highest_rate(deployment.at, SHARE, start, tolerance)
    assert 100.0 / (1 + tolerance) <= found.rate_per_s <= 100.0
    assert found.fails is not None and 100.0 < found.fails.rate_per_s <= found.rate_per_s * (1 + tolerance)
    assert found.ends_by == TPOT
    assert found.runs == len(deployment.asked) == len(set(deployment.asked))


def test_near_the_answer_few_runs_do() -> None:
    assert highest_rate(Deployment(100.0).at, SHARE, 95.0, 0.1).runs <= 4


def test_none_holds() -> None:
    found = highest_rate(Deployment(0.0).at, SHARE, 10.0)
    assert (found.holds, found.rate_per_s, found.ends_by) == (None, 0.0, TPOT)
    assert found.runs == FACTORS + 1
    assert found.fails is not None and found.fails.rate_per_s < 0.02


def test_all_hold() -> None:
    found = highest_rate(Deployment(1e30).at, SHARE, 10.0)
    assert (found.fails, found.ends_by) == (None, "")
    assert found.rate_per_s > 1e4


def test_a_queue_that_grows_ends_it() -> None:
    found = highest_rate(Deployment(100.0, grows=True).at, SHARE, 10.0)
    assert found.ends_by == GROWS and found.rate_per_s <= 100.0
