from __future__ import annotations

from typing import Any

import numpy as np

from easybalance_sim.simulate.rebalance.transfer import takes_back, transfer
from tests.rebalance_toys import toy_plan

LINKS: dict[str, Any] = {"expert_bytes": 100, "nvlink_bytes_per_s": 100.0, "network_bytes_per_s": 10.0}


def test_layers_travel_one_after_the_other_and_ranks_side_by_side() -> None:
    old = toy_plan([[0, 1, 2, 3], [0, 1, 2, 3]], 2, 4)
    new = toy_plan([[2, 1, 0, 3], [2, 3, 0, 1]], 2, 4)
    near = transfer(old, new, node_of_rank=np.array([0, 0]), **LINKS)
    assert near.moves.tolist() == [2, 4] and near.layer_s.tolist() == [1.0, 2.0] and near.staging_slots == 2
    assert transfer(old, new, node_of_rank=np.array([0, 1]), **LINKS).layer_s.tolist() == [10.0, 20.0]


def test_a_new_order_within_a_rank_is_free() -> None:
    old, new = toy_plan([[0, 1, 2, 3]], 2, 4), toy_plan([[1, 0, 3, 2]], 2, 4)
    free = transfer(old, new, node_of_rank=np.array([0, 0]), **LINKS)
    assert (free.moves.sum(), free.layer_s.sum(), free.staging_slots) == (0, 0.0, 0)


def test_two_plans_that_take_turns_are_named() -> None:
    one, other = toy_plan([[0, 1, 2, 3]], 2, 4), toy_plan([[2, 1, 0, 3]], 2, 4)
    # The slot differs, the rank is the same.
    back = toy_plan([[1, 0, 3, 2]], 2, 4)
    assert takes_back(one, other, back)
    assert not takes_back(one, other, toy_plan([[2, 3, 0, 1]], 2, 4))
    assert not takes_back(one, other, other)
