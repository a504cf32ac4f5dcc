"""The price of affinity, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from easybalance_sim.arrays import frozen
from easybalance_sim.cluster.topology import uniform
from easybalance_sim.simulate.admission.admit import Admitted
from easybalance_sim.simulate.admission.price import price_of, residents
from easybalance_sim.simulate.admission.requests import Requests, requests_of
from tests.admission_cases import life, steps_of

CLUSTER = uniform(2, 1, 1)


def two_requests() -> Requests:
    """Request 0: 3 tokens in step 0, then one in each of steps 1 and 2. Request 1: 2 in step 1, one in step 2. Both
    have 10 tokens of context before."""
    rows = sorted(life(0, 3, 0, 3) + life(1, 2, 1, 2), key=lambda row: row[0])
    ids = np.tile(np.array([[[0, 1]]]), (len(rows), 1, 1))
    return requests_of(steps_of(rows, ids, n_experts=2, position=[10] * len(rows)))


def placed(rank: list[int], probe: list[int], probed: int, spilled: bool = False, forced: bool = False) -> Admitted:
    return Admitted(
        rank=frozen(rank, np.int16),
        probe=frozen(probe, np.int16),
        probed=np.full(len(rank), probed),
        spilled=np.array([spilled, False]),
        overload=np.array([1.5, 0.5]),
        forced=np.array([forced, False]),
    )


def test_residents_by_hand() -> None:
    kv, running = residents(two_requests(), np.array([0, 1]), 2)
    assert kv.tolist() == [[13, 0], [14, 12], [15, 13]]
    assert running.tolist() == [[1, 0], [1, 1], [1, 1]]


def test_unevenness_and_waiting_by_hand() -> None:
    apart = price_of(two_requests(), placed([0, 1], [0, 1], 0), CLUSTER, first=1)
    assert apart.kv_rank.mean == pytest.approx((14 / 13 + 15 / 14) / 2)
    assert apart.kv_node == apart.kv_rank
    assert apart.running_rank.mean == 1.0 and apart.waiting_share == 0.0
    # Both on one rank: one slot per rank is the even share of two requests, so one of two waits in steps 1 and 2.
    together = price_of(two_requests(), placed([0, 0], [0, 0], 0), CLUSTER)
    assert together.kv_rank.mean == 2.0
    assert together.waiting_share == pytest.approx(2 / 5)


def test_cold_start_by_hand() -> None:
    admitted = placed([0, 1], [0, 0], 2, spilled=True)
    price = price_of(two_requests(), admitted, CLUSTER, kv_bytes_per_token=100, link_bytes_per_s=1e3)
    cold = price.cold
    assert (price.spilled_share, price.forced_share, price.worst_overload) == (0.5, 0.0, 1.5)
    assert (cold.tokens_per_request, cold.moved_share, cold.waited_steps) == (2.0, 0.5, 1)
    # Request 1 moves with 10 tokens of context and 2 that were probed.
    assert (cold.kv_tokens_per_move, cold.kv_bytes, cold.seconds_per_move) == (12.0, 1200.0, 1.2)
    assert cold.recomputed_share == pytest.approx(12 / 8)


def test_nothing_probed_costs_nothing() -> None:
    cold = price_of(two_requests(), placed([0, 1], [1, 0], 0), CLUSTER).cold
    assert (cold.tokens_per_request, cold.moved_share, cold.recomputed_share, cold.waited_steps) == (0, 0, 0, 0)
    assert cold.kv_bytes is None and cold.seconds_per_move is None


def test_forced_admissions_are_not_over_the_limit() -> None:
    price = price_of(two_requests(), placed([0, 1], [0, 1], 0, forced=True), CLUSTER)
    assert (price.forced_share, price.worst_overload) == (0.5, 0.5)


def test_only_requests_of_the_span_count() -> None:
    price = price_of(two_requests(), placed([0, 1], [1, 0], 1, spilled=True), CLUSTER, first=1, end=3)
    assert (price.spilled_share, price.cold.moved_share, price.cold.kv_tokens_per_move) == (0.0, 1.0, 11.0)
