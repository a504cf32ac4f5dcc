"""Seconds of every rank are those that the layer's cost takes the slowest of."""

from __future__ import annotations

import numpy as np

from easybalance_sim.arrays import frozen, sealed
from easybalance_sim.cluster.shapes import find_shape
from easybalance_sim.cluster.topology import uniform
from easybalance_sim.cost.layer import layer_cost
from easybalance_sim.cost.profiles import load_profile
from easybalance_sim.observed.predicted import rank_seconds
from easybalance_sim.replay.engine import Dispatched


def test_the_slowest_rank_is_the_layer() -> None:
    shape = find_shape("qwen3-30b-a3b")
    assert shape is not None
    slots = np.array([3, 2, 2])
    cost = layer_cost(load_profile("h200"), shape, uniform(3, 3, 3), slots, "normal", "prefill")
    rng = np.random.default_rng(100)
    tokens = frozen(rng.integers(0, 300, (5, 2, 7)), np.int32)
    ranks = frozen(np.add.reduceat(tokens, [0, 3, 5], axis=2), np.int32)
    nothing = sealed(np.zeros((3, 3), np.int64))
    sent = Dispatched(
        slot_tokens=tokens, rank_rows=ranks, distinct=ranks, rdma=ranks, nvlink=ranks,
        rank_pairs=nothing, node_pairs=nothing,
    )  # fmt: skip
    found = rank_seconds(cost, sent)
    whole, _ = cost.expert.seconds(tokens, ranks, cost.slot_start, cost.speed)
    assert found.shape == (5, 2, 3)
    assert found.max(axis=2).tolist() == whole.tolist()
    assert (found.min(axis=2) < whole).all()
