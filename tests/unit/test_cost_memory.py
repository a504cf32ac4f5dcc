"""Expert bytes and the KV cache that redundant slots take."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from easybalance_sim.cluster.shapes import assumed_shape, load_shape
from easybalance_sim.cost.memory import KvRoom, expert_memory_bytes, kv_loss_frac, staging_bytes

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


ROOM = KvRoom(token_bytes=DSV3.kv_bytes_per_token, moe_layers=58, hbm_bytes=141 * GIB)


def test_one_more_slot_of_deepseek_v3_displaces_36_thousand_tokens() -> None:
    """2.55 GB over 61 layers × 576 values × 2 bytes."""
    assert ROOM.tokens_lost(1, DSV3) == pytest.approx(2.55e9 / 70272, rel=3e-3)
    assert (ROOM.tokens_lost(0, DSV3), ROOM.tokens_lost(-1, DSV3)) == (0, 0)


def test_what_is_lost_is_no_longer_left() -> None:
    left = [ROOM.tokens_left(slots, DSV3) for slots in (8, 9, 9.5)]
    lost = [ROOM.tokens_lost(slots - 8, DSV3) for slots in (8, 9, 9.5)]
    sums = [one + other for one, other in zip(left, lost, strict=True) if one is not None and other is not None]
    assert len(sums) == 3 and max(sums) - min(sums) <= 1
    assert ROOM.tokens_left(60, DSV3) == 0


def test_a_trace_of_some_layers_still_loses_what_the_whole_model_does() -> None:
    part = replace(DSV3, layers=DSV3.layers[:4])
    assert ROOM.tokens_lost(1, part) == ROOM.tokens_lost(1, DSV3)
    assert ROOM.most_slots(part) == ROOM.most_slots(DSV3)


def test_most_slots_fill_the_usable_memory() -> None:
    most = ROOM.most_slots(DSV3)
    assert most is not None
    slot = int(expert_memory_bytes(np.array([1]), DSV3)[0])
    assert most * slot <= 0.9 * 141 * GIB < (most + 1) * slot


def test_unknown_models_and_caches_have_no_tokens() -> None:
    unknown = assumed_shape((0,), 8, 2)
    assert (ROOM.tokens_lost(1, unknown), ROOM.tokens_left(1, unknown), ROOM.most_slots(unknown)) == (None, None, None)
    silent = replace(ROOM, token_bytes=0.0)
    assert (silent.tokens_lost(1, DSV3), silent.tokens_left(1, DSV3)) == (None, None)


def test_staging_holds_the_layer_that_brings_a_rank_most() -> None:
    """Ranks of 2 and 3 slots: layer 0 brings them 1 and 2 experts, layer 1 brings 2 and 1."""
    arriving = np.array([[True, False, True, True, False], [True, True, False, False, True]])
    assert staging_bytes(arriving, np.array([2, 3]), DSV3) == 2 * DSV3.expert_bytes
    assert staging_bytes(np.zeros((2, 5), np.bool_), np.array([2, 3]), DSV3) == 0
    assert staging_bytes(arriving, np.array([2, 3]), assumed_shape((0,), 8, 2)) is None


def test_experts_and_staging_share_the_memory() -> None:
    """Nine slots of 58 layers and two more experts on 141 GiB."""
    frac = ROOM.expert_frac(9, 2 * DSV3.expert_bytes, DSV3)
    assert frac == pytest.approx((9 * 58 + 2) * DSV3.expert_bytes / (141 * GIB))
    assert ROOM.expert_frac(9, 0, assumed_shape((0,), 8, 2)) is None
