"""More published config.json layouts, reduced to the keys that matter, beside those of `test_cluster_config_json`."""

from __future__ import annotations

from typing import Any

FP8_BLOCKS = {"quant_method": "fp8", "weight_block_size": [128, 128]}
MLA = {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "num_attention_heads": 128, "num_key_value_heads": 128}
LINEAR_THEN_FULL = ["linear_attention", "linear_attention", "linear_attention", "full_attention"]

CONFIGS: dict[str, dict[str, Any]] = {
    "deepseek-v2": {
        "model_type": "deepseek_v2", "num_hidden_layers": 60, "hidden_size": 5120, "intermediate_size": 12288,
        "moe_intermediate_size": 1536, "n_routed_experts": 160, "n_shared_experts": 2, "num_experts_per_tok": 6,
        "n_group": 8, "topk_group": 3, "first_k_dense_replace": 1, "moe_layer_freq": 1,
        "topk_method": "group_limited_greedy", "torch_dtype": "bfloat16", **MLA,
    },
    "deepseek-v3.2": {
        "model_type": "deepseek_v32", "num_hidden_layers": 61, "num_nextn_predict_layers": 1, "hidden_size": 7168,
        "intermediate_size": 18432, "moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1,
        "num_experts_per_tok": 8, "n_group": 8, "topk_group": 4, "first_k_dense_replace": 3, "moe_layer_freq": 1,
        "index_head_dim": 128, "index_n_heads": 64, "index_topk": 2048, "torch_dtype": "bfloat16",
        "quantization_config": FP8_BLOCKS, **MLA,
    },
    "kimi-k2": {
        "model_type": "kimi_k2", "num_hidden_layers": 61, "num_nextn_predict_layers": 0, "hidden_size": 7168,
        "intermediate_size": 18432, "moe_intermediate_size": 2048, "n_routed_experts": 384, "n_shared_experts": 1,
        "num_experts_per_tok": 8, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1, "moe_layer_freq": 1,
        "torch_dtype": "bfloat16", "quantization_config": FP8_BLOCKS, **MLA, "num_attention_heads": 64,
    },
    "kimi-k3": {
        "model_type": "kimi_k3",
        "text_config": {
            "model_type": "kimi_linear", "num_hidden_layers": 93, "hidden_size": 7168, "intermediate_size": 33792,
            "moe_intermediate_size": 3072, "routed_expert_hidden_size": 3584, "num_experts": 896,
            "num_experts_per_token": 16, "num_shared_experts": 2, "num_expert_group": 1, "topk_group": 1,
            "first_k_dense_replace": 1, "moe_layer_freq": 1, "latent_moe_use_norm": True,
            "quantization_config": {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "int", "group_size": 32}}},
            },
        },
    },
    "qwen3-next-80b-a3b": {
        "model_type": "qwen3_next", "num_hidden_layers": 48, "hidden_size": 2048, "intermediate_size": 5120,
        "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512, "num_experts": 512,
        "num_experts_per_tok": 10, "decoder_sparse_step": 1, "mlp_only_layers": [], "full_attention_interval": 4,
        "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256, "torch_dtype": "bfloat16",
    },
    "qwen3.5-35b-a3b": {
        "model_type": "qwen3_5_moe",
        "text_config": {
            "model_type": "qwen3_5_moe_text", "num_hidden_layers": 40, "hidden_size": 2048,
            "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512, "num_experts": 256,
            "num_experts_per_tok": 8, "mlp_only_layers": [], "full_attention_interval": 4,
            "layer_types": LINEAR_THEN_FULL * 10, "num_attention_heads": 16, "num_key_value_heads": 2,
            "head_dim": 256, "dtype": "bfloat16",
        },
        "vision_config": {"hidden_size": 1152, "depth": 27},
    },
    "glm-5": {
        "model_type": "glm_moe_dsa", "num_hidden_layers": 78, "num_nextn_predict_layers": 1, "hidden_size": 6144,
        "intermediate_size": 12288, "moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1,
        "num_experts_per_tok": 8, "n_group": 1, "topk_group": 1,
        "mlp_layer_types": ["dense"] * 3 + ["sparse"] * 75, "dtype": "bfloat16", **MLA, "num_attention_heads": 64,
    },
    "hunyuan-a13b": {
        "model_type": "hunyuan_v1_moe", "num_hidden_layers": 32, "hidden_size": 4096, "intermediate_size": 3072,
        "moe_intermediate_size": [3072] * 32, "num_experts": 64, "moe_topk": [8] * 32, "num_shared_expert": [1] * 32,
        "moe_layer_num_skipped": 0, "use_mixed_mlp_moe": True, "num_attention_heads": 32, "num_key_value_heads": 8,
        "attention_head_dim": 128, "torch_dtype": "bfloat16",
    },
    "dots.llm1": {
        "model_type": "dots1", "num_hidden_layers": 62, "hidden_size": 4096, "intermediate_size": 10944,
        "moe_intermediate_size": 1408, "n_routed_experts": 128, "n_shared_experts": 2, "num_experts_per_tok": 6,
        "n_group": None, "topk_group": None, "first_k_dense_replace": 1, "num_attention_heads": 32,
        "num_key_value_heads": 32, "torch_dtype": "bfloat16",
    },
    "ling-mini-2.0": {
        "model_type": "bailing_moe", "num_hidden_layers": 20, "hidden_size": 2048, "intermediate_size": 5120,
        "moe_intermediate_size": 512, "moe_shared_expert_intermediate_size": 512, "num_experts": 256,
        "num_shared_experts": 1, "num_experts_per_tok": 8, "n_group": 8, "topk_group": 4, "first_k_dense_replace": 1,
        "num_nextn_predict_layers": 0, "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 128,
        "torch_dtype": "bfloat16",
    },
    "longcat-flash": {
        "model_type": "longcat_flash", "num_layers": 28, "hidden_size": 6144, "ffn_hidden_size": 12288,
        "expert_ffn_hidden_size": 2048, "n_routed_experts": 512, "zero_expert_num": 256,
        "zero_expert_type": "identity", "moe_topk": 12, "torch_dtype": "bfloat16", **MLA, "num_attention_heads": 64,
    },
    "ernie-4.5-21b-a3b": {
        "model_type": "ernie4_5_moe", "num_hidden_layers": 28, "hidden_size": 2560, "intermediate_size": 12288,
        "moe_intermediate_size": 1536, "moe_num_experts": 64, "moe_num_shared_experts": 2, "moe_k": 6,
        "moe_layer_start_index": 1, "moe_layer_end_index": 27, "moe_layer_interval": 1, "num_attention_heads": 20,
        "num_key_value_heads": 4, "head_dim": None, "torch_dtype": "bfloat16",
    },
    "nemotron-3-nano-30b-a3b": {
        "model_type": "nemotron_h", "num_hidden_layers": 52, "hidden_size": 2688, "intermediate_size": 1856,
        "moe_intermediate_size": 1856, "moe_shared_expert_intermediate_size": 3712, "n_routed_experts": 128,
        "n_shared_experts": 1, "num_experts_per_tok": 6, "n_group": 1, "topk_group": 1, "mlp_hidden_act": "relu2",
        "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME", "num_attention_heads": 32,
        "num_key_value_heads": 2, "head_dim": 128, "torch_dtype": "bfloat16",
    },
}  # fmt: skip

_MLA_WIDTHS = {"q_lora_rank": 1536, "qk_nope_head_dim": 128, "v_head_dim": 128}
WIDTHS: dict[str, dict[str, Any]] = {
    "deepseek-v3": {**_MLA_WIDTHS, "vocab_size": 129280},
    "deepseek-v3.2": {**_MLA_WIDTHS, "vocab_size": 129280},
    "deepseek-v4-pro": {"vocab_size": 129280, "q_lora_rank": 1536, "qk_rope_head_dim": 64},
    "deepseek-v2": {**_MLA_WIDTHS, "vocab_size": 102400},
    "kimi-k2": {**_MLA_WIDTHS, "vocab_size": 163840},
    "kimi-k2.5": {**_MLA_WIDTHS, "vocab_size": 163840, "num_attention_heads": 64},
    "glm-5": {
        "q_lora_rank": 2048, "qk_nope_head_dim": 192, "v_head_dim": 256, "head_dim": 64, "index_topk": 2048,
        "vocab_size": 154880,
    },
    "longcat-flash": {**_MLA_WIDTHS, "vocab_size": 131072},
    "qwen3-235b-a22b": {"vocab_size": 151936},
    "qwen3-next-80b-a3b": {"vocab_size": 151936},
    "qwen3.5-35b-a3b": {"vocab_size": 248320, "attn_output_gate": True},
    "mixtral-8x7b": {"vocab_size": 32000, "num_attention_heads": 32},
    "gpt-oss-20b": {"vocab_size": 201088, "sliding_window": 128},
    "llama-4-maverick": {"vocab_size": 202048, "intermediate_size_mlp": 16384, "num_attention_heads": 40},
    "glm-4.5": {"vocab_size": 151552, "intermediate_size": 12288},
    "minimax-m2": {"vocab_size": 200064},
    "olmoe-1b-7b": {"vocab_size": 50304},
    "hunyuan-a13b": {"vocab_size": 128167},
    "dots.llm1": {"vocab_size": 152064},
    "ling-mini-2.0": {"vocab_size": 157184},
    "ernie-4.5-21b-a3b": {"vocab_size": 103424},
    "nemotron-3-nano-30b-a3b": {"vocab_size": 131072},
    "nemotron-3-super-120b-a12b": {"vocab_size": 131072, "moe_shared_expert_intermediate_size": 5376},
}  # fmt: skip
"""The rest of what those configurations say of attention, dense layers and vocabulary."""


def with_widths(name: str, config: dict[str, Any]) -> dict[str, Any]:
    """The configuration with its `WIDTHS`, inside the language part where there is one."""
    if "text_config" in config:
        return config | {"text_config": config["text_config"] | WIDTHS.get(name, {})}
    return config | WIDTHS.get(name, {})
