"""Slots, attention and memory of a first deployment, and what is said when a model does not fit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from easybalance_sim.cluster.hardware import load_profile
from easybalance_sim.cluster.shapes import load_shape, model_names
from easybalance_sim.cluster.topology import load_cluster
from easybalance_sim.cost.kv_room import rank_memory
from easybalance_sim.deployment.scenario import load_scenario
from easybalance_sim.deployment.starting import LEAST_KV_TOKENS, start
from easybalance_sim.deployment.starting_files import write_files
from easybalance_sim.errors import EbsimError, UsageError
from easybalance_sim.gate.criteria import load_criteria


def test_one_slot_more_than_the_experts_need() -> None:
    chosen = start("deepseek-v3", 32)
    assert (chosen.slots_per_rank, chosen.spare_slots, chosen.ranks_per_node, chosen.tensor_ranks) == (9, 32, 8, 1)
    without_buffers = rank_memory(load_shape("deepseek-v3"), load_profile("h200").hbm_bytes, 9)
    assert without_buffers is not None and LEAST_KV_TOKENS < chosen.memory.tokens < without_buffers.tokens
    assert 0 < chosen.kv_loss < 0.1 and chosen.guessed == ()


def test_fewer_experts_than_gpus_and_gpus_that_do_not_divide_them() -> None:
    assert start("mixtral-8x7b", 16).slots_per_rank == 2
    odd = start("deepseek-v3", 24)
    assert (odd.slots_per_rank, odd.spare_slots) == (12, 24 * 12 - 256)
    assert start("olmoe-1b-7b", 1).slots_per_rank == 64
    assert start("deepseek-v3", 36, "gb200").ranks_per_node == 36


def test_no_spare_slot_where_it_would_cost_the_cache() -> None:
    chosen = start("glm-5", 16)
    assert (chosen.slots_per_rank, chosen.spare_slots, chosen.kv_loss) == (16, 0, 0.0)


def test_attention_is_split_where_one_gpu_has_no_room() -> None:
    chosen = start("kimi-k3", 16)
    assert chosen.tensor_ranks == 2 and len(chosen.guessed) == 2


def test_a_model_that_does_not_fit_says_what_would() -> None:
    with pytest.raises(
        UsageError, match=r"does not fit on 8 H100: weights of 85 GB .* --gpus 16, or --gpu b200"
    ) as told:
        start("deepseek-v3", 8, "h100")
    assert "h800" not in str(told.value)
    assert start("deepseek-v3", 16, "h100").memory.tokens >= LEAST_KV_TOKENS
    assert start("deepseek-v3", 8, "b200").memory.tokens >= LEAST_KV_TOKENS


def test_more_gpus_are_whole_nodes() -> None:
    with pytest.raises(UsageError, match=r"what fits: --gpus 12, or"):
        start("deepseek-v3", 6, "h100", 4)


@pytest.mark.parametrize(
    ("model", "gpu", "line"),
    [
        ("deepsek-v3", "h200", "--model: no model 'deepsek-v3' is known — did you mean deepseek-v3 or "),
        ("openai/gpt-os-20b", "h200", "did you mean gpt-oss-20b"),
        ("zzz", "h200", "known are deepseek-v2, "),
        ("deepseek-v3", "h300", "--gpu: no GPU 'h300' is known — did you mean h"),
    ],
)
def test_unknown_names_are_answered_with_the_nearest(model: str, gpu: str, line: str) -> None:
    with pytest.raises(UsageError) as told:
        start(model, 8, gpu)
    assert line in str(told.value)


def test_the_files_of_every_known_model_are_read_back(tmp_path: Path) -> None:
    made = 0
    for model in model_names():
        try:
            chosen = start(model, 16)
        except EbsimError as refusal:
            assert "does not fit" in str(refusal)
            continue
        cluster, scenario, gate = write_files(tmp_path, chosen, force=True)
        topology, found = load_cluster(cluster), load_scenario(scenario)
        assert (topology.ranks, topology.slots) == (16, 16 * chosen.slots_per_rank)
        assert topology.profile == "h200" and found.shape == chosen.shape
        assert found.pools[0].cluster.slots_per_rank == chosen.slots_per_rank
        assert found.pools[0].data_ranks == 16 // chosen.tensor_ranks
        assert load_criteria(gate) == load_criteria()
        made += 1
    assert made > 30


def test_a_dtype_and_a_config_file_are_kept(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    scenario = write_files(folder, start("deepseek-v3-nvfp4", 8, "b200"))[1]
    assert load_scenario(scenario).shape.dtype == "nvfp4"
    config = {
        "model_type": "qwen3_moe", "num_hidden_layers": 4, "num_experts": 16, "num_experts_per_tok": 2,
        "hidden_size": 256, "moe_intermediate_size": 64, "decoder_sparse_step": 1, "mlp_only_layers": [],
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 1000,
        "intermediate_size": 512, "torch_dtype": "bfloat16",
    }  # fmt: skip
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    scenario = write_files(folder, start(str(path), 4), force=True)[1]
    assert load_scenario(scenario).shape.experts == 16


def test_nothing_is_written_over(tmp_path: Path) -> None:
    chosen = start("gpt-oss-20b", 4)
    (tmp_path / "gate.toml").write_text("mine")
    with pytest.raises(UsageError, match=r"gate.toml would be lost — give another -o, or --force"):
        write_files(tmp_path, chosen)
    assert [path.name for path in tmp_path.iterdir()] == ["gate.toml"]
    write_files(tmp_path, chosen, force=True)
    assert (tmp_path / "gate.toml").read_text() != "mine"
