"""KV cache beside weights."""

from __future__ import annotations

from dataclasses import replace

import pytest

from easybalance_sim.cluster.hardware import load_profile
from easybalance_sim.cluster.shapes import assumed_shape, load_shape
from easybalance_sim.cost.kv_room import rank_memory, step_buffers
from easybalance_sim.errors import UsageError

H800, H200 = load_profile("h800"), load_profile("h200")
DSV3, QWEN = load_shape("deepseek-v3"), load_shape("qwen3-235b-a22b")
GIB = 2**30


def test_deepseek_v3_on_one_gpu() -> None:
    found = rank_memory(DSV3, H800.hbm_bytes, 9)
    assert found is not None
    assert found.experts == 9 * 58 * DSV3.expert_bytes
    assert found.attention == pytest.approx(61 * 187_105_280 * 1.00024)
    assert found.embeddings == 2 * 129280 * 7168 * 2
    assert found.token_bytes == 70272
    left = 0.9 * 80 * GIB - found.weights
    assert found.tokens == int(left // 70272)


def test_another_slot_costs_its_experts_in_every_layer() -> None:
    eight, nine = (rank_memory(DSV3, H800.hbm_bytes, slots) for slots in (8, 9))
    assert eight is not None
    assert nine is not None
    assert eight.tokens - nine.tokens == pytest.approx(58 * DSV3.expert_bytes / 70272, abs=1)


def test_a_smaller_cache_value_and_buffers() -> None:
    plain, half = rank_memory(QWEN, H200.hbm_bytes, 17), rank_memory(QWEN, H200.hbm_bytes, 17, kv_frac=0.5)
    taken = rank_memory(QWEN, H200.hbm_bytes, 17, buffers=192_512 * 1000)
    assert plain is not None
    assert half is not None
    assert taken is not None
    assert half.tokens in (2 * plain.tokens, 2 * plain.tokens + 1)
    assert taken.tokens == plain.tokens - 1000


def test_tensor_ranks_split_weights_and_gqa_cache_but_not_mla_cache() -> None:
    one, four = rank_memory(QWEN, H200.hbm_bytes, 17), rank_memory(QWEN, H200.hbm_bytes, 17, 4)
    assert one is not None
    assert four is not None
    assert four.token_bytes == one.token_bytes / 4
    assert four.attention == pytest.approx(one.attention / 4)
    latent = rank_memory(DSV3, H800.hbm_bytes, 9, 8)
    assert latent is not None
    assert latent.token_bytes == 70272


def test_tensor_parallel_experts_take_a_share_of_each() -> None:
    whole, shared = (rank_memory(DSV3, H800.hbm_bytes, slots, expert_ranks=t) for slots, t in ((32, 1), (256, 8)))
    assert whole is not None
    assert shared is not None
    assert shared.experts == whole.experts


def test_weights_that_do_not_fit_leave_nothing() -> None:
    found = rank_memory(DSV3, H800.hbm_bytes, 32)
    assert found is not None
    assert found.tokens == 0


def test_unknown_models_have_no_answer() -> None:
    assert rank_memory(assumed_shape((0,), 8, 2), H800.hbm_bytes, 1) is None
    assert rank_memory(load_shape("kimi-k3"), H800.hbm_bytes, 1) is None
    assert rank_memory(replace(DSV3, vocab=0), H800.hbm_bytes, 1) is None


def test_blocks_are_whole() -> None:
    found = rank_memory(DSV3, H800.hbm_bytes, 9)
    assert found is not None
    assert found.blocks(64) == found.tokens // 64
    with pytest.raises(UsageError, match="blocks of 0 tokens"):
        found.blocks(0)


def test_buffers_grow_with_the_step_in_normal_mode_only_to_the_usual_size_in_low_latency() -> None:
    normal = [step_buffers(DSV3, tokens, 32, 288, "normal") for tokens in (1024, 8192)]
    latency = [step_buffers(DSV3, tokens, 32, 288, "low_latency") for tokens in (128, 8192)]
    assert normal[0] is not None
    assert normal[1] is not None
    assert normal[1] == pytest.approx(8 * normal[0], rel=1e-6)
    assert latency[0] == latency[1]
    assert step_buffers(assumed_shape((0,), 8, 2), 8, 2, 8, "normal") is None
