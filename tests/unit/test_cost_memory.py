"""Expert bytes and the KV cache that redundant slots take."""

from __future__ import annotations

import numpy as np
import pytest

from easybalance_sim.cluster.shapes import assumed_shape, load_shape
from easybalance_sim.cost.memory import expert_memory_bytes, kv_loss_frac

DSV3 = load_shape("deepseek-v3")
GIB = 2**30


def test_bytes_are_slots_times_layers_times_expert() -> None:
    assert expert_memory_bytes(np.array([8, 9]), DSV3).tolist() == [
        8 * 58 * DSV3.expert_bytes,
        9 * 58 * DSV3.expert_bytes,
    ]


def test_one_more_slot_of_deepseek_v3_takes_2_55_gb() -> None:
    assert expert_memory_bytes(np.array([1]), DSV3)[0] == pytest.approx(2.55e9, rel=3e-3)


def test_loss_is_the_share_of_what_the_baseline_leaves() -> None:
    loss = kv_loss_frac(np.array([9, 9]), np.array([8, 8]), DSV3, 141 * GIB)
    slot = 58 * DSV3.expert_bytes
    assert loss == pytest.approx(slot / (0.9 * 141 * GIB - 8 * slot))


def test_the_rank_that_loses_most_counts() -> None:
    uneven = kv_loss_frac(np.array([8, 10]), np.array([8, 8]), DSV3, 141 * GIB)
    assert uneven == kv_loss_frac(np.array([10, 10]), np.array([8, 8]), DSV3, 141 * GIB)


def test_no_more_slots_no_loss() -> None:
    assert kv_loss_frac(np.array([8]), np.array([8]), DSV3, 141 * GIB) == 0.0
    assert kv_loss_frac(np.array([7]), np.array([8]), DSV3, 141 * GIB) == 0.0


@pytest.mark.parametrize("slots", [(32, 40), (40, 48)])
def test_weights_that_do_not_fit_lose_everything(slots: tuple[int, int]) -> None:
    baseline, plan = slots
    assert kv_loss_frac(np.array([plan]), np.array([baseline]), DSV3, 100 * GIB) == 1.0


def test_unknown_model_has_no_figure() -> None:
    assert kv_loss_frac(np.array([9]), np.array([8]), assumed_shape((0,), 8, 2), 141 * GIB) is None
