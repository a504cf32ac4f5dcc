"""The roofline of attention and dense parts against published figures, and how it scales."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from easybalance_sim.cluster.attention_shape import AttentionShape
from easybalance_sim.cluster.hardware import load_profile, profile_names
from easybalance_sim.cluster.model_shape import ModelShape
from easybalance_sim.cluster.shapes import assumed_shape, load_shape, model_names
from easybalance_sim.cost.attention import (
    ASSUMED_BAND,
    AttentionCost,
    attention_seconds,
    outside_seconds,
    stand_in_attention,
)
from easybalance_sim.cost.efficiency import efficiency

GEMM = Path(__file__).parents[3] / "shared" / "data" / "infersim_gemm" / "gemm"
H800 = load_profile("h800")
DSV3 = load_shape("deepseek-v3")
UNSHARED = replace(DSV3, shared_experts=0)


@pytest.mark.parametrize(
    ("tokens", "context", "pairs", "published_us", "within"),
    [
        (8192, 0, 2 * 4096 * 2048, 4415, 0.05),
        (4096, 0, 4096 * 2048, 2221, 0.07),
        (64, 64 * 4096, 0, 327, 0.03),
        (128, 128 * 4096, 0, 471, 0.04),
    ],
)
def test_infersims_h800_attention(tokens: int, context: int, pairs: int, published_us: float, within: float) -> None:
    found = attention_seconds(UNSHARED, H800).seconds(tokens, context, pairs)
    assert found * 1e6 == pytest.approx(published_us, rel=within)


@pytest.mark.parametrize(("tokens", "published_us"), [(8192, 518), (4096, 267), (64, 28), (128, 31)])
def test_infersims_h800_shared_expert(tokens: int, published_us: float) -> None:
    """Within 25 %: at few tokens both are launches and reading the weights."""
    found = attention_seconds(DSV3, H800)
    assert found.shared_seconds(tokens) * 1e6 == pytest.approx(published_us, rel=0.25)
    assert found.seconds(tokens) == attention_seconds(UNSHARED, H800).seconds(tokens)


@pytest.mark.parametrize(("gpu", "mean", "median"), [("h800", 0.12, 0.09), ("h20", 0.06, 0.05)])
def test_dense_products_fit_the_measured_table(gpu: str, mean: float, median: float) -> None:
    path = GEMM / gpu / "data.csv"
    if not path.is_file():
        pytest.skip(f"no measured products at {path}")
    rows, profile = pd.read_csv(path).query("k != 65536"), load_profile(gpu)
    share = efficiency(profile).fp8
    read_s = rows.k * rows.n / (profile.hbm_bytes_per_s * share.read)
    flop_s = 2.0 * rows.m * rows.k * rows.n / (profile.peak_flops["fp8_block"] * share.multiply)
    error = np.abs((share.launch_s + np.maximum(read_s, flop_s)) * 1e6 / rows.latency_us - 1)
    assert error.mean() < mean
    assert error.median() < median


@pytest.mark.parametrize("name", model_names())
@pytest.mark.parametrize("gpu", profile_names())
def test_every_model_on_every_gpu_has_a_time(name: str, gpu: str) -> None:
    shape, profile = load_shape(name), load_profile(gpu)
    found, outside = attention_seconds(shape, profile), outside_seconds(shape, profile)
    assert min(found.fixed, found.weights, found.token, found.kv, found.pair) > 0
    assert outside.dense_layers == shape.hidden_layers - len(shape.layers)
    assert (shape.attention is None) == any("is assumed" in reason for reason in found.reasons)


def test_cache_reads_and_flops_compete_in_decoding() -> None:
    """128 heads on one latent vector are limited by flops, a quarter of them by reading it."""
    assert DSV3.attention is not None
    narrow = replace(DSV3, attention=replace(DSV3.attention, heads=32))
    whole, few = attention_seconds(DSV3, H800).kv, attention_seconds(narrow, H800).kv
    assert whole == pytest.approx(278_528 / (9.89e14 * 0.55))
    assert few == pytest.approx(1152 / (3.35e12 * 0.94))
    assert attention_seconds(narrow, H800, kv_frac=0.5).kv < few
    assert attention_seconds(DSV3, H800, kv_frac=0.5).kv == whole


def test_tensor_ranks_split_heads_and_pay_a_reduction() -> None:
    shape, hardware = load_shape("qwen3-235b-a22b"), load_profile("h100")
    one, four = (attention_seconds(shape, hardware, ranks) for ranks in (1, 4))
    assert four.kv == pytest.approx(one.kv / 4)
    assert four.pair == pytest.approx(one.pair / 4)
    assert four.weights == pytest.approx(one.weights / 4)
    assert four.fixed > one.fixed
    assert four.token > one.token / 4


def test_layers_without_context_count_into_the_mean() -> None:
    shape = load_shape("gpt-oss-120b")
    assert shape.attention is not None
    every = replace(shape, attention=replace(shape.attention, full=0, window=0))
    half, whole = attention_seconds(shape, H800), attention_seconds(every, H800)
    assert half.kv == pytest.approx(whole.kv / 2)
    assert (half.weights, half.token) == (whole.weights, whole.token)
    assert any("last 128 tokens" in reason for reason in half.reasons)


def test_a_model_that_nobody_named_gets_a_stand_in_and_says_so() -> None:
    shape = assumed_shape((0, 1), 64, 8)
    found = attention_seconds(shape, H800)
    assert stand_in_attention(shape).heads == 32
    assert "is assumed" in found.reasons[0]
    assert found.band_p90 == ASSUMED_BAND


def test_another_gpu_says_where_it_was_measured_and_widens() -> None:
    bands = [attention_seconds(DSV3, load_profile(name)).band_p90 for name in ("h800", "h100", "b200")]
    assert bands == sorted(set(bands))
    assert attention_seconds(DSV3, load_profile("b200")).reasons == (
        "attention was measured on the H800, another architecture",
    )


def test_a_step_without_tokens_takes_nothing() -> None:
    cost = AttentionCost(fixed=1.0, weights=2.0, token=0.5, kv=0.1, pair=0.01)
    assert cost.seconds(0, 100, 100) == 0.0
    assert cost.seconds(2, 10, 100) == pytest.approx(1.0 + 2.0 + 1.0 + 1.0)
    assert cost.seconds(10) == pytest.approx(1.0 + 5.0)
    shared = replace(cost, shared_fixed=1.0, shared_weights=2.0, shared_token=0.5)
    assert [shared.shared_seconds(tokens) for tokens in (0, 2, 10)] == [0.0, 3.0, 6.0]


def test_outside_of_deepseek_v3() -> None:
    """Three dense layers of 18,432 in FP8 and a head of 129,280 rows in BF16."""
    found = outside_seconds(DSV3, H800, host_s=2e-3)
    dense, head = 3 * 3 * 7168 * 18432, 7168 * 129280
    assert found.dense_layers == 3
    assert found.weights == pytest.approx(dense * 1.00024 / (3.35e12 * 0.84))
    assert found.token == pytest.approx(2 * dense / (1.979e15 * 0.685))
    assert found.head_weights == pytest.approx(head * 2 / (3.35e12 * 0.81))
    assert found.head_token == pytest.approx(2 * head / (9.89e14 * 0.80))
    assert found.host == pytest.approx(2e-3 + 6 * 9.2e-6)
    prompts = found.seconds(1e5, 2, 0.5)
    assert prompts == pytest.approx(found.host + 3 * 0.5 + found.token * 1e5 + found.head_weights)
    answers = found.seconds(1000, 1000, 0.5) - found.seconds(1000, 2, 0.5)
    assert answers == pytest.approx(found.head_token * 1000 - found.head_weights)
    shared = outside_seconds(DSV3, H800, 8)
    assert (shared.weights, shared.head_weights) == pytest.approx((found.weights / 8, found.head_weights / 8))


def test_outside_says_what_is_not_known() -> None:
    reasons = outside_seconds(load_shape("ling-3.0-flash"), H800).reasons
    assert any("dense layers is assumed" in reason for reason in reasons)
    assert any("head is left out" in reason for reason in reasons)


def _gqa(heads: int, kv_heads: int, head_dim: int) -> ModelShape:
    """A model of one such block and of projections too narrow to matter."""
    attention = AttentionShape(kind="gqa", heads=heads, kv_heads=kv_heads, head_dim=head_dim)
    return replace(UNSHARED, attention=attention, hidden=1, hidden_layers=61, dtype="bf16")


@pytest.mark.parametrize(
    ("gpu", "heads", "requests", "context", "us", "within"),
    [
        ("h800", (32, 8, 128), 128, 8192, 1363.6, 0.02),
        ("h800", (32, 8, 128), 32, 4096, 178.7, 0.08),
        ("h800", (32, 4, 128), 128, 4096, 352.2, 0.03),
        ("h800", (64, 2, 128), 256, 8192, 702.9, 0.02),
        ("h20", (32, 4, 128), 128, 4096, 362.9, 0.08),
        ("h20", (16, 2, 256), 128, 8192, 783.3, 0.08),
    ],
)
def test_flashinfer_decode_kernels(
    gpu: str, heads: tuple[int, int, int], requests: int, context: int, us: float, within: float
) -> None:
    """Rows of InferSim's bench_data/mha/decode."""
    found = attention_seconds(_gqa(*heads), load_profile(gpu))
    launches = 2 * efficiency(load_profile(gpu)).bf16.launch_s
    kernel_s = found.seconds(requests, requests * context) - launches
    assert kernel_s * 1e6 == pytest.approx(us, rel=within)


@pytest.mark.parametrize(
    ("gpu", "requests", "context", "us", "within"),
    [
        ("h800", 64, 4096, 155.2, 0.02),
        ("h800", 128, 8192, 550.4, 0.02),
        ("h800", 64, 32768, 1119.3, 0.05),
        ("h800", 16, 8192, 84.0, 0.08),
        ("h20", 64, 8192, 1361.8, 0.03),
    ],
)
def test_flashmla_decode_kernels(gpu: str, requests: int, context: int, us: float, within: float) -> None:
    """Rows of InferSim's bench_data/mla/decode, 128 heads."""
    speed = efficiency(load_profile(gpu))
    kernel_s = speed.start_s + attention_seconds(DSV3, load_profile(gpu)).kv * requests * context
    assert kernel_s * 1e6 == pytest.approx(us, rel=within)


@pytest.mark.parametrize(
    ("gpu", "heads", "prompt", "us", "within"),
    [
        ("h800", None, 4096, 1104.7, 0.03),
        ("h800", None, 32768, 76337.7, 0.07),
        ("h20", (64, 8, 128), 4096, 2153.0, 0.02),
        ("h20", (32, 4, 128), 16384, 16670.1, 0.03),
    ],
)
def test_flash_attention_of_prompts(
    gpu: str, heads: tuple[int, int, int] | None, prompt: int, us: float, within: float
) -> None:
    """Rows of InferSim's bench_data/mla/prefill (no heads given: DeepSeek's) and mha/prefill."""
    found = attention_seconds(_gqa(*heads) if heads else DSV3, load_profile(gpu))
    assert found.pair * prompt**2 / 2 * 1e6 == pytest.approx(us, rel=within)
