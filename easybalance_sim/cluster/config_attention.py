"""Attention widths of a Hugging Face `config.json`: DeepSeek's MLA (`kv_lora_rank`), and grouped-query attention, also
in hybrids whose other layers are sliding-window, chunked, linear or Mamba."""

from __future__ import annotations

from easybalance_sim.cluster.attention_shape import GQA, MLA, AttentionShape
from easybalance_sim.cluster.config_keys import Keys

SPARSE = "sparse attention is priced as if it read the whole context: an upper bound"
CHUNKED = "chunked attention of three layers in four is priced as full attention"
LINEAR = "linear-attention layers are priced as the projections of a full one, without their state"
MAMBA = "Mamba layers are left out"
_GATED = ("qwen3_next", "qwen3_5_moe")


def attention_of_config(keys: Keys) -> AttentionShape | None:
    """The attention, None where the config lacks a width or is of another kind (DeepSeek-V4, Kimi-Linear)."""
    if keys.has("compress_ratios") or keys.has("linear_attn_config") or not keys.has("num_attention_heads"):
        return None
    if keys.has("kv_lora_rank"):
        return _mla(keys)
    if keys.has("v_head_dim"):
        return None
    heads = keys.number("num_attention_heads")
    default = keys.optional("attention_head_dim", keys.number("hidden_size") // max(1, heads))
    total, full = keys.number("num_hidden_layers", "num_layers"), full_attention_layers(keys)
    mamba = keys.has("hybrid_override_pattern")
    sliding = "sliding_attention" in (keys.config.get("layer_types") or ())
    return AttentionShape(
        kind=GQA,
        heads=heads,
        kv_heads=keys.optional("num_key_value_heads", heads),
        head_dim=keys.optional("head_dim", default),
        gated=bool(keys.config.get("attn_output_gate") or _is_gated(keys)),
        blocks=full if mamba else 0,
        full=0 if full == total else full,
        window=keys.optional("sliding_window", 0) if sliding else 0,
        note=MAMBA if mamba else "" if sliding else LINEAR if full < total else _chunked(keys),
    )


def full_attention_layers(keys: Keys) -> int:
    """Layers (or blocks) that attend to the whole context."""
    total = keys.number("num_hidden_layers", "num_layers")
    kinds, pattern = keys.config.get("layer_types"), keys.config.get("hybrid_override_pattern")
    hybrid = keys.config.get("linear_attn_config")
    if isinstance(hybrid, dict) and isinstance(hybrid.get("full_attn_layers"), list):
        return len(hybrid["full_attn_layers"])
    if keys.has("zero_expert_num"):
        # Each layer of LongCat-Flash holds two attention blocks around its experts.
        return 2 * total
    if isinstance(pattern, str):
        return pattern.count("*")
    if isinstance(kinds, list):
        return kinds.count("full_attention")
    return total // max(1, keys.optional("full_attention_interval", 1))


def _mla(keys: Keys) -> AttentionShape | None:
    if not all(keys.has(name) for name in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")):
        return None
    total, blocks = keys.number("num_hidden_layers", "num_layers"), full_attention_layers(keys)
    return AttentionShape(
        kind=MLA,
        heads=keys.number("num_attention_heads"),
        q_lora=keys.optional("q_lora_rank", 0),
        kv_lora=keys.number("kv_lora_rank"),
        nope=keys.number("qk_nope_head_dim"),
        rope=keys.number("qk_rope_head_dim"),
        value=keys.number("v_head_dim"),
        blocks=0 if blocks == total else blocks,
        full=0 if blocks == total else blocks,
        note=SPARSE if keys.has("index_topk") else "",
    )


def _is_gated(keys: Keys) -> bool:
    return str(keys.config.get("model_type", "")).startswith(_GATED)


def _chunked(keys: Keys) -> str:
    return CHUNKED if keys.has("attention_chunk_size") else ""
