"""Reads a Hugging Face `config.json` of an MoE model into a `ModelShape`.

The key names are those of the published configurations: DeepSeek V2/V3/V4, Kimi, GLM and Ling (`n_routed_experts`,
`first_k_dense_replace`, `moe_layer_freq`), Qwen (`num_experts`, `decoder_sparse_step`, `mlp_only_layers`), Mixtral,
GPT-OSS and MiniMax (`num_local_experts`), Llama 4 (`interleave_moe_layer_step`), ERNIE (`moe_layer_start_index`),
Nemotron-H (`hybrid_override_pattern`), LongCat (`moe_topk`, `expert_ffn_hidden_size`), Hunyuan (lists per layer,
`moe_layer_num_skipped`), Kimi-K3 (`routed_expert_hidden_size`, `linear_attn_config`).
"""

from __future__ import annotations

import json
from pathlib import Path

from easybalance_sim.cluster.config_attention import attention_of_config, full_attention_layers
from easybalance_sim.cluster.config_keys import Config, Keys
from easybalance_sim.cluster.model_shape import ModelShape, weight_dtype
from easybalance_sim.errors import ProfileError

_EXPERTS = ("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts")
_TOP_K = ("num_experts_per_tok", "experts_per_token", "num_experts_per_token", "moe_topk", "moe_k")
_WIDTH = ("moe_intermediate_size", "expert_ffn_hidden_size")
_ALL_LAYERS_ARE_MOE = ("mixtral", "gpt_oss", "olmoe", "minimax", "llama4")
_SHARED = ("n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts")


def read_config(path: Path) -> ModelShape:
    """The shape that `path` describes; its name is the folder's. Raises `ProfileError` naming the file and the key."""
    config = _decoded(path)
    name = path.resolve().parent.name if path.name == "config.json" else path.stem
    return shape_of_config(config, name, str(path))


def read_model_type(path: Path) -> str:
    """The `model_type` of the config at `path`, "" where it has none. Raises `ProfileError` as `read_config`."""
    return str(_decoded(path).get("model_type") or "")


def _decoded(path: Path) -> Config:
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ProfileError(f"cannot read: {error.strerror}", where=str(path), fix="check --model") from error
    except ValueError as error:
        raise ProfileError(f"not JSON: {error}", where=str(path), fix="give a Hugging Face config.json") from error
    if not isinstance(config, dict):
        raise ProfileError("holds no JSON object", where=str(path), fix="give a Hugging Face config.json")
    return config


def shape_of_config(config: Config, name: str, where: str) -> ModelShape:
    """The shape that a decoded config.json describes. Raises `ProfileError` (with `where`) naming the missing key."""
    flat = {**config, **_language_part(config)}
    keys = Keys(flat, where)
    total, layers = keys.number("num_hidden_layers", "num_layers"), _moe_layers(keys)
    return ModelShape(
        name=name,
        layers=layers,
        hidden_layers=total,
        mtp_layers=tuple(range(total, total + _draft_layers(keys))),
        experts=keys.number(*_EXPERTS),
        top_k=keys.number(*_TOP_K),
        groups=keys.optional("n_group", keys.optional("num_expert_group", 1)),
        topk_groups=keys.optional("topk_group", 1),
        hidden=keys.number("moe_latent_size", "routed_expert_hidden_size", "hidden_size"),
        intermediate=_intermediate(keys),
        shared_experts=_shared_experts(keys),
        matrices=2 if "hybrid_override_pattern" in flat or flat.get("mlp_hidden_act") == "relu2" else 3,
        dtype=_dtype(flat, where),
        kv_bytes_per_token=_kv_bytes(keys),
        attention=attention_of_config(keys),
        model_width=_model_width(keys),
        dense_intermediate=_dense_intermediate(keys, len(layers) < total),
        shared_intermediate=_shared_intermediate(keys),
        vocab=keys.optional("vocab_size", 0),
        source=where,
    )


def _draft_layers(keys: Keys) -> int:
    return keys.optional("num_nextn_predict_layers", 0) or keys.optional("n_mtp_layers", 0)


def _language_part(config: Config) -> Config:
    nested = (config.get(key) for key in ("text_config", "llm_config", "language_config"))
    return next((part for part in nested if isinstance(part, dict)), {})


def _intermediate(keys: Keys) -> int:
    if any(keys.has(name) for name in _WIDTH):
        return keys.number(*_WIDTH)
    if str(keys.config.get("model_type", "")).startswith(_ALL_LAYERS_ARE_MOE):
        return keys.number("intermediate_size")
    return keys.number(*_WIDTH)


def _moe_layers(keys: Keys) -> tuple[int, ...]:
    total = keys.number("num_hidden_layers", "num_layers")
    layers = tuple(layer for layer in range(total) if _is_moe(layer, keys))
    if not layers:
        raise ProfileError(f"none of its {total} layers is an MoE layer", where=keys.where, fix="is it an MoE model?")
    return layers


def _is_moe(layer: int, keys: Keys) -> bool:
    listed = _listed(layer, keys)
    if listed is not None:
        return listed
    if keys.has("moe_layer_start_index"):
        start, last = keys.number("moe_layer_start_index"), keys.config.get("moe_layer_end_index")
        inside = layer >= start and (not isinstance(last, int) or last < 0 or layer <= last)
        return inside and (layer + 1) % keys.optional("moe_layer_interval", 1) == 0
    step = max(1, keys.optional("decoder_sparse_step", 1), keys.optional("interleave_moe_layer_step", 1))
    if (layer + 1) % step or layer in (keys.config.get("mlp_only_layers") or ()):
        return False
    dense = max(keys.optional("first_k_dense_replace", 0), keys.optional("moe_layer_num_skipped", 0))
    return layer >= dense and layer % max(1, keys.optional("moe_layer_freq", 1)) == 0


def _listed(layer: int, keys: Keys) -> bool | None:
    """Whether the layer is MoE where the config lists the layers one by one, None where it does not."""
    for name, mark in (("hybrid_override_pattern", "E"), ("mlp_layer_types", "sparse"), ("moe_layer_freq", 1)):
        marks = keys.config.get(name)
        if isinstance(marks, str | list):
            return layer < len(marks) and marks[layer] == mark
    chosen = keys.config.get("moe_layers") or keys.config.get("moe_layers_enum")
    if isinstance(chosen, str):
        return str(layer) in chosen.replace(" ", "").split(",")
    return layer in chosen if isinstance(chosen, list) else None


def _shared_experts(keys: Keys) -> int:
    for name in _SHARED:
        if keys.has(name):
            return keys.number(name)
    implied = keys.has("interleave_moe_layer_step") or keys.optional("shared_expert_intermediate_size", 0) > 0
    return int(implied)


def _model_width(keys: Keys) -> int:
    """Where experts work on a narrower vector than the model."""
    latent = keys.has("moe_latent_size") or keys.has("routed_expert_hidden_size")
    return keys.number("hidden_size") if latent else 0


def _dense_intermediate(keys: Keys, has_dense: bool) -> int:
    """Width of the layers without experts. Hybrids have none, and LongCat's stand beside the experts."""
    if not has_dense or keys.has("hybrid_override_pattern"):
        return 0
    return keys.optional("intermediate_size_mlp", keys.optional("intermediate_size", 0))


def _shared_intermediate(keys: Keys) -> int:
    """Where it is not that of as many routed experts. LongCat runs two dense parts beside the experts of a layer."""
    if keys.has("zero_expert_num"):
        return 2 * keys.optional("ffn_hidden_size", 0)
    own = keys.optional("moe_shared_expert_intermediate_size", keys.optional("shared_expert_intermediate_size", 0))
    return 0 if own == _intermediate(keys) else own * _shared_experts(keys)


def _dtype(config: Config, where: str) -> str:
    quantisation = config.get("quantization_config")
    if not isinstance(quantisation, dict):
        dtype = "mxfp4" if config.get("expert_dtype") == "fp4" else weight_dtype(_declared_dtype(config))
        return _known(dtype, f"dtype {_declared_dtype(config)!r}", where)
    method = str(quantisation.get("quant_method", "")).lower()
    if method == "compressed-tensors":
        return _known(_compressed_tensors(quantisation), "quantization_config.config_groups", where)
    algorithm = str(quantisation.get("quant_algo", method)).lower()
    if "nvfp4" in algorithm:
        return "nvfp4"
    if config.get("expert_dtype") == "fp4":
        return "mxfp4"
    return _known(weight_dtype(algorithm), f"quantization_config.quant_method {algorithm!r}", where)


def _declared_dtype(config: Config) -> str:
    return str(config.get("torch_dtype") or config.get("dtype") or "bfloat16")


def _compressed_tensors(quantisation: Config) -> str | None:
    groups = quantisation.get("config_groups")
    weights = [g.get("weights") or {} for g in groups.values()] if isinstance(groups, dict) else []
    kinds = {("int", 4): "int4_g32", ("float", 4): "nvfp4", ("float", 8): "fp8_block"}
    found = (kinds.get((str(w.get("type")), int(w.get("num_bits") or 0))) for w in weights)
    return next(found, None)


def _known(dtype: str | None, what: str, where: str) -> str:
    if dtype is None:
        raise ProfileError(f"{what} is not understood", where=where, fix="use a known model name, or remove the key")
    return dtype


def _kv_bytes(keys: Keys) -> int:
    """KV bytes of one token at 2 bytes a value, over full-attention layers (others do not grow); 0 when not told."""
    layers = full_attention_layers(keys)
    if keys.has("kv_lora_rank") and keys.has("qk_rope_head_dim"):
        return layers * (keys.number("kv_lora_rank") + keys.number("qk_rope_head_dim")) * 2
    if keys.has("attention_chunk_size") or keys.has("compress_ratios") or not keys.has("num_attention_heads"):
        return 0
    heads = keys.number("num_attention_heads")
    default = keys.optional("attention_head_dim", keys.number("hidden_size") // max(1, heads))
    width = keys.optional("head_dim", default)
    return layers * 2 * keys.optional("num_key_value_heads", heads) * width * 2
