"""Widths of attention: counted weights and cache against what is published of the models."""

from __future__ import annotations

import pytest

from easybalance_sim.cluster.attention_shape import AttentionShape
from easybalance_sim.cluster.shapes import load_shape, model_names
from easybalance_sim.cost.attention import dense_parameters, shared_parameters
from easybalance_sim.errors import ProfileError

KNOWN = [name for name in model_names() if load_shape(name).attention]
BILLIONS = {  # public sizes, all parameters
    "deepseek-v3": 671, "deepseek-v3.2": 671, "deepseek-v2": 236, "deepseek-v2-lite": 15.7, "kimi-k2": 1026,
    "kimi-k2.5": 1026, "qwen3-235b-a22b": 235, "qwen3-30b-a3b": 30.5, "qwen3-coder-480b-a35b": 480, "glm-4.5": 355,
    "glm-4.5-air": 106, "glm-5": 744, "gpt-oss-120b": 117, "gpt-oss-20b": 20.9, "mixtral-8x7b": 46.7,
    "mixtral-8x22b": 141, "olmoe-1b-7b": 6.9, "minimax-m2": 229, "llama-4-maverick": 400, "llama-4-scout": 109,
    "hunyuan-a13b": 80, "dots.llm1": 142, "ling-mini-2.0": 16.3, "longcat-flash": 560, "ernie-4.5-21b-a3b": 21.8,
    "step-3.7-flash": 196, "qwen3-next-80b-a3b": 80, "qwen3.5-35b-a3b": 35, "qwen3.5-397b-a17b": 397,
    "qwen3.5-122b-a10b": 122, "minimax-m3": 428, "mimo-v2-flash": 309,
}  # fmt: skip
UNCOUNTED = {
    "llama-4-maverick": "what chunked layers keep depends on the engine, so no bytes are stated",
    "llama-4-scout": "as Maverick",
}


@pytest.mark.parametrize(("name", "billions"), BILLIONS.items())
def test_all_weights_add_up_to_the_public_size(name: str, billions: float) -> None:
    shape = load_shape(name)
    attention, moe = shape.attention, len(shape.layers)
    assert attention is not None
    routed = shape.experts * shape.matrices * shape.hidden * shape.intermediate
    layers = moe * (routed + shared_parameters(shape) + shape.experts * shape.width)
    layers += shape.dense_layers * dense_parameters(shape)
    blocks = (attention.blocks or shape.hidden_layers) * attention.parameters(shape.width)
    total = layers + blocks + 2 * shape.vocab * shape.width
    assert total / 1e9 == pytest.approx(billions, rel=0.016)


@pytest.mark.parametrize("name", [name for name in KNOWN if name not in UNCOUNTED])
def test_cache_bytes_follow_from_the_widths(name: str) -> None:
    shape = load_shape(name)
    assert shape.attention is not None
    assert shape.attention.cache_bytes(shape.hidden_layers) == shape.kv_bytes_per_token


@pytest.mark.parametrize("name", UNCOUNTED)
def test_cache_bytes_that_are_not_stated_are_the_known_exceptions(name: str) -> None:
    assert load_shape(name).kv_bytes_per_token == 0


def test_weights_of_deepseek_v3_attention() -> None:
    """7168·1536 + 1536·128·192 + 7168·576 + 512·128·256 + 128·128·7168."""
    attention = load_shape("deepseek-v3").attention
    assert attention is not None
    assert attention.parameters(7168) == 187_105_280
    assert attention.products == 6


def test_splitting_over_ranks_splits_heads_only() -> None:
    attention = load_shape("deepseek-v3").attention
    assert attention is not None
    latent = 7168 * (1536 + 576)
    assert attention.parameters(7168, 8) == latent + (187_105_280 - latent) / 8
    assert attention.token_values(8) == 576


def test_kv_heads_are_repeated_when_there_are_more_ranks() -> None:
    attention = AttentionShape(kind="gqa", heads=64, kv_heads=4, head_dim=128)
    assert [attention.token_values(ranks) for ranks in (1, 2, 4, 8)] == [1024, 512, 256, 256]


def test_flops_of_absorbed_and_expanded_attention() -> None:
    attention = load_shape("deepseek-v3").attention
    assert attention is not None
    assert attention.context_flops == 2 * 128 * (512 + 64 + 512)
    assert attention.pair_flops == 2 * 128 * (128 + 64 + 128)


@pytest.mark.parametrize(
    ("kind", "message"), [("mla", "lacks kv_lora"), ("gqa", "lacks kv_heads"), ("rwkv", "expected mla or gqa")]
)
def test_missing_widths_are_named(kind: str, message: str) -> None:
    with pytest.raises(ProfileError, match=message):
        AttentionShape(kind=kind, heads=8)
