"""What requests cost in each node."""

from __future__ import annotations

import numpy as np

from easybalance_sim.plan.plan import Plan
from easybalance_sim.simulate.admission.homes import (
    first_homes,
    home_cost,
    lacking,
    own_cost,
    remote_share,
    topic_counts,
)
from easybalance_sim.simulate.admission.requests import EVERY_TOKEN, first_counts, requests_of
from tests.admission_cases import crowd, steps_of

GROUP = np.array([0, 1])
# Experts 0 and 1 on node 0, 2 and 3 on node 1, and 1 on both.
PLAN = Plan(expert_of_slot=np.array([[0, 1, 1, 2, 3]]), slots_per_rank=np.array([2, 3]), experts=4, policy="by hand")


def test_shares_by_hand() -> None:
    assert lacking(PLAN, GROUP)[0].tolist() == [[False, True], [False, False], [True, False], [True, False]]
    counts = np.array([[[2, 1, 1, 0]], [[0, 4, 0, 0]], [[0, 0, 0, 0]]])
    np.testing.assert_allclose(remote_share(counts, PLAN, GROUP), [[0.25, 0.5], [0.0, 0.0], [0.0, 0.0]])


def test_own_cost_is_the_share_of_first_tokens() -> None:
    steps = crowd(1, requests=30, experts=8)
    requests = requests_of(steps)
    row = np.concatenate([np.arange(8), [0, 1, 2, 3]])
    plan = Plan(expert_of_slot=np.stack([row, row[::-1]]), slots_per_rank=np.array([6, 6]), experts=8, policy="toy")
    for tokens in (1, 3, EVERY_TOKEN):
        expected = remote_share(first_counts(steps, requests, tokens), plan, GROUP)
        found = own_cost(steps, requests, np.minimum(requests.tokens, tokens), plan, GROUP)
        np.testing.assert_allclose(found, expected)


def test_topic_counts_keep_every_assignment() -> None:
    steps = steps_of([(0, 3), (0, 4), (1, 3)], np.array([[[0, 1]], [[2, 1]], [[0, 3]]]), n_experts=4)
    found = topic_counts(steps, requests_of(steps), np.array([1, 0]), 3)
    assert found[:, 0].tolist() == [[0, 1, 1, 0], [2, 1, 0, 1], [0, 0, 0, 0]]


def test_topics_that_use_the_same_experts_share_a_home() -> None:
    usage = np.array([[[9, 9, 0, 0]], [[0, 0, 9, 9]], [[8, 9, 1, 0]], [[0, 1, 8, 9]]])
    home = first_homes(usage, 2, seed=1)
    assert home[0] == home[2] != home[1] == home[3]
    np.testing.assert_array_equal(home_cost(home, 2)[0], np.arange(2) != home[0])


def test_a_home_has_room_for_a_fair_share() -> None:
    usage = np.tile(np.array([[[9, 1]]]), (8, 1, 1))
    assert np.bincount(first_homes(usage, 4, seed=0), minlength=4).tolist() == [2, 2, 2, 2]
