"""Published config.json layouts, reduced to the keys that matter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from easybalance_sim.cluster.config_json import read_config, shape_of_config
from easybalance_sim.cluster.shapes import ModelShape, load_shape
from easybalance_sim.errors import ProfileError
from tests.model_configs import CONFIGS, with_widths

GQA = {"num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128}
DEEPSEEK_V3 = {
    "model_type": "deepseek_v3",
    "num_hidden_layers": 61,
    "num_nextn_predict_layers": 1,
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "n_group": 8,
    "topk_group": 4,
    "first_k_dense_replace": 3,
    "moe_layer_freq": 1,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "num_attention_heads": 128,
    "torch_dtype": "bfloat16",
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}
QWEN3 = {
    "num_hidden_layers": 94,
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "moe_intermediate_size": 1536,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "num_key_value_heads": 4,
    "num_attention_heads": 64,
    "head_dim": 128,
    "torch_dtype": "bfloat16",
}
FAMILIES: list[tuple[str, dict[str, Any]]] = [
    ("deepseek-v3", DEEPSEEK_V3),
    ("qwen3-235b-a22b", {"model_type": "qwen3_vl_moe", "text_config": QWEN3}),
    (
        "mixtral-8x7b",
        GQA
        | {
            "model_type": "mixtral",
            "num_hidden_layers": 32,
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
        },
    ),
    (
        "gpt-oss-20b",
        {
            "model_type": "gpt_oss",
            "num_hidden_layers": 24,
            "hidden_size": 2880,
            "intermediate_size": 2880,
            "num_local_experts": 32,
            "experts_per_token": 4,
            "num_attention_heads": 64,
            "num_key_value_heads": 8,
            "head_dim": 64,
            "layer_types": ["sliding_attention", "full_attention"] * 12,
            "quantization_config": {"quant_method": "mxfp4"},
        },
    ),
    (
        "llama-4-maverick",
        {
            "model_type": "llama4",
            "text_config": GQA
            | {
                "model_type": "llama4_text",
                "num_hidden_layers": 48,
                "hidden_size": 5120,
                "intermediate_size": 8192,
                "interleave_moe_layer_step": 2,
                "num_local_experts": 128,
                "num_experts_per_tok": 1,
                "attention_chunk_size": 8192,
            },
        },
    ),
    (
        "glm-4.5",
        {
            "model_type": "glm4_moe",
            "num_hidden_layers": 92,
            "num_nextn_predict_layers": 1,
            "hidden_size": 5120,
            "moe_intermediate_size": 1536,
            "n_routed_experts": 160,
            "n_shared_experts": 1,
            "num_experts_per_tok": 8,
            "first_k_dense_replace": 3,
            "num_attention_heads": 96,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "n_group": None,
        },
    ),
    (
        "kimi-k2.5",
        DEEPSEEK_V3
        | {
            "num_nextn_predict_layers": 0,
            "model_type": "kimi_k2",
            "n_routed_experts": 384,
            "first_k_dense_replace": 1,
            "n_group": 1,
            "topk_group": 1,
            "quantization_config": {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "int", "group_size": 32}}},
            },
        },
    ),
    (
        "minimax-m2",
        {
            "model_type": "minimax_m2",
            "num_hidden_layers": 62,
            "hidden_size": 3072,
            "intermediate_size": 1536,
            "num_local_experts": 256,
            "num_experts_per_tok": 8,
            "num_attention_heads": 48,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
        },
    ),
    (
        "olmoe-1b-7b",
        {
            "model_type": "olmoe",
            "num_hidden_layers": 16,
            "hidden_size": 2048,
            "intermediate_size": 1024,
            "num_experts": 64,
            "num_experts_per_tok": 8,
            "num_attention_heads": 16,
            "num_key_value_heads": 16,
        },
    ),
    (
        "nemotron-3-super-120b-a12b",
        {
            "model_type": "nemotron_h",
            "num_hidden_layers": 88,
            "hidden_size": 4096,
            "moe_latent_size": 1024,
            "moe_intermediate_size": 2688,
            "n_routed_experts": 512,
            "n_shared_experts": 1,
            "num_experts_per_tok": 22,
            "num_attention_heads": 32,
            "num_key_value_heads": 2,
            "head_dim": 128,
            "hybrid_override_pattern": (
                "MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEME"
            ),
            "quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8"},
        },
    ),
    (
        "deepseek-v4-pro",
        {
            "model_type": "deepseek_v4",
            "num_hidden_layers": 61,
            "num_nextn_predict_layers": 1,
            "hidden_size": 7168,
            "moe_intermediate_size": 3072,
            "n_routed_experts": 384,
            "n_shared_experts": 1,
            "num_experts_per_tok": 6,
            "num_attention_heads": 128,
            "num_key_value_heads": 1,
            "head_dim": 512,
            "compress_ratios": [128, 4],
            "expert_dtype": "fp4",
            "quantization_config": {"quant_method": "fp8"},
        },
    ),
]


FAMILIES += CONFIGS.items()


def _facts(shape: ModelShape) -> dict[str, object]:
    return {name: getattr(shape, name) for name in shape.__dataclass_fields__ if name not in ("name", "source")}


@pytest.mark.parametrize(("name", "config"), FAMILIES, ids=[name for name, _ in FAMILIES])
def test_config_of_each_family_gives_the_known_shape(name: str, config: dict[str, Any]) -> None:
    assert _facts(shape_of_config(with_widths(name, config), name, "config.json")) == _facts(load_shape(name))


def test_qwen2_moe_has_a_shared_expert_of_its_own_width() -> None:
    """Qwen1.5-MoE-A2.7B."""
    config = {
        "model_type": "qwen2_moe", "num_hidden_layers": 24, "hidden_size": 2048, "intermediate_size": 5632,
        "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632, "num_experts": 60,
        "num_experts_per_tok": 4, "decoder_sparse_step": 1, "num_attention_heads": 16, "num_key_value_heads": 16,
    }  # fmt: skip
    shape = shape_of_config(config, "q", "config.json")
    assert (len(shape.layers), shape.experts, shape.top_k, shape.intermediate) == (24, 60, 4, 1408)
    assert (shape.shared_experts, shape.kv_bytes_per_token, shape.dtype) == (1, 24 * 2 * 16 * 128 * 2, "bf16")


def test_layers_that_hunyuan_skips_are_dense() -> None:
    shape = shape_of_config(CONFIGS["hunyuan-a13b"] | {"moe_layer_num_skipped": 2}, "h", "config.json")
    assert shape.layers == tuple(range(2, 32))


def test_only_full_attention_keeps_a_cache_that_grows() -> None:
    """Kimi's hybrid lists them, counted from 1."""
    mla = {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "linear_attn_config": {"full_attn_layers": [4, 8, 93]}}
    config = {"text_config": CONFIGS["kimi-k3"]["text_config"] | mla}
    assert shape_of_config(config, "k", "config.json").kv_bytes_per_token == 3 * 576 * 2


def test_draft_layers_of_deepseek_v4_have_two_names() -> None:
    config = DEEPSEEK_V3 | {"num_nextn_predict_layers": 0, "n_mtp_layers": 2}
    assert shape_of_config(config, "v4", "config.json").mtp_layers == (61, 62)


def test_sparse_step_and_dense_exceptions() -> None:
    shape = shape_of_config(QWEN3 | {"decoder_sparse_step": 2, "mlp_only_layers": [3]}, "q", "config.json")
    assert shape.layers[:3] == (1, 5, 7)


@pytest.mark.parametrize(
    ("marks", "layers"),
    [
        ({"moe_layer_freq": [0] * 90 + [1] * 4}, (90, 91, 92, 93)),
        ({"mlp_layer_types": ["dense"] * 92 + ["sparse"] * 2}, (92, 93)),
        ({"moe_layers_enum": "4, 93"}, (4, 93)),
        ({"moe_layer_start_index": 91, "moe_layer_end_index": 92, "moe_layer_interval": 1}, (91, 92)),
    ],
)
def test_layers_listed_one_by_one(marks: dict[str, Any], layers: tuple[int, ...]) -> None:
    assert shape_of_config(QWEN3 | marks, "q", "config.json").layers == layers


@pytest.mark.parametrize(
    "key", ["num_hidden_layers", "hidden_size", "moe_intermediate_size", "num_experts", "num_experts_per_tok"]
)
def test_a_missing_key_is_named(key: str) -> None:
    config = {name: value for name, value in QWEN3.items() if name != key}
    with pytest.raises(ProfileError, match=rf"config\.json: key .*{key}.* is missing") as caught:
        shape_of_config(config, "q", "config.json")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", ["8", 2.5, True, [8, 4]])
def test_a_value_that_is_no_number_is_named(value: object) -> None:
    with pytest.raises(ProfileError, match="num_experts_per_tok is"):
        shape_of_config(QWEN3 | {"num_experts_per_tok": value}, "q", "config.json")


@pytest.mark.parametrize(
    ("quantisation", "dtype"),
    [
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4"),
        ({"quant_method": "awq", "bits": 4}, "int4_g32"),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"g": {"weights": {"num_bits": 8, "type": "float"}}},
            },
            "fp8_block",
        ),
    ],
)
def test_quantisation(quantisation: dict[str, Any], dtype: str) -> None:
    assert shape_of_config(QWEN3 | {"quantization_config": quantisation}, "q", "c").dtype == dtype


@pytest.mark.parametrize(
    "quantisation", [{"quant_method": "bitnet"}, {"quant_method": "compressed-tensors"}, {"quant_algo": "W3"}]
)
def test_unknown_quantisation_is_refused(quantisation: dict[str, Any]) -> None:
    with pytest.raises(ProfileError, match="is not understood"):
        shape_of_config(QWEN3 | {"quantization_config": quantisation}, "q", "c")


def test_dense_model_is_refused() -> None:
    with pytest.raises(ProfileError, match="none of its 94 layers is an MoE layer"):
        shape_of_config(QWEN3 | {"first_k_dense_replace": 94}, "q", "c")


@pytest.mark.parametrize(("text", "words"), [("{", "not JSON"), ("[]", "holds no JSON object")])
def test_broken_files(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(ProfileError, match=words):
        read_config(path)


def test_absent_file(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="cannot read"):
        read_config(tmp_path / "config.json")


def test_layers_of_all_kinds() -> None:
    shape = shape_of_config(DEEPSEEK_V3, "x", "config.json")
    assert (len(shape.layers), shape.hidden_layers, shape.mtp_layers) == (58, 61, (61,))
    without = shape_of_config(DEEPSEEK_V3 | {"num_nextn_predict_layers": None}, "x", "config.json")
    assert (without.hidden_layers, without.mtp_layers) == (61, ())
