"""The expert formula against values worked out by hand and measured kernel times."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from easybalance_sim.arrays import FloatArray, IntArray
from easybalance_sim.cluster.hardware import load_profile, profile_names
from easybalance_sim.cluster.shapes import assumed_shape, load_shape, model_names
from easybalance_sim.cost.expert import ExpertCost, expert_cost
from easybalance_sim.errors import ProfileError

DSV3 = load_shape("deepseek-v3")
DATA = Path(__file__).parents[3] / "shared" / "data"


def _us(cost: ExpertCost, *ranks: list[int], speed: FloatArray | None = None) -> float:
    """µs of one layer whose ranks hold these slot counts."""
    slots = np.array([[[count for rank in ranks for count in rank]]], np.int32)
    distinct = np.array([[[sum(rank) for rank in ranks]]], np.int32)
    start = np.cumsum([0, *map(len, ranks)])
    seconds, _ = cost.seconds(slots, distinct, start.astype(np.int32), np.ones(len(ranks)) if speed is None else speed)
    return float(seconds[0, 0]) * 1e6


def test_h200_decode_values() -> None:
    cost = expert_cost(load_profile("h200"), DSV3, "decode")
    assert cost.kernel.kernel == "deepgemm_masked"
    assert _us(cost, [64] * 8) == pytest.approx(121, abs=0.5)
    assert _us(cost, [512] + [0] * 7) == pytest.approx(58, abs=0.5)


@pytest.mark.parametrize("kernel", ["deepgemm_masked", "trtllm_cutlass", "deepgemm_contig"])
def test_formula_written_out(kernel: str, rng: np.random.Generator) -> None:
    cost = expert_cost(load_profile("h200"), DSV3, "decode", kernel)
    row = cost.kernel
    weights, hidden, inter = 3 * 7168 * 2048, 7168, 2048
    for counts in rng.poisson(rng.gamma(1.0, 50.0, (20, 8))):
        t_w = np.sum(counts > 0) * weights * 1.00024 / (4.8e12 * row.eff_bw)
        t_f = np.sum(np.ceil(counts / row.block)) * row.block * 2 * weights / (1979e12 * row.eff_flop)
        rows = (counts.sum() * (2 * hidden + 3 * inter) * 2 + row.tok * counts.sum() * 2 * hidden) / 4.8e12
        expected = row.c0_us * 1e-6 + (t_w**row.q + t_f**row.q) ** (1 / row.q) + rows
        assert _us(cost, counts.tolist()) == pytest.approx(expected * 1e6, rel=1e-9)


@pytest.mark.parametrize("gpu", ["h100", "h200", "gb200"])
def test_measured_decode_kernels(gpu: str) -> None:
    """SGLang DeepGEMM masked, uniform routing, EP2 to EP256 (aiconfigurator): mean error within 8 %."""
    folder = "gb200" if gpu == "gb200" else f"{gpu}_sxm"
    path = DATA / "aiconfigurator_perf" / folder / "moe/sglang/0.5.10/wideep_generation_moe_perf.parquet"
    if not path.exists():
        pytest.skip(f"needs the measured table {path}")
    table = pd.read_parquet(path).query("distribution == 'uniform'")
    cost = expert_cost(load_profile(gpu), DSV3, "decode", "deepgemm_masked")
    errors = []
    for tokens, ranks, ms in zip(table.num_tokens, table.moe_ep_size, table.latency, strict=True):
        each, left = divmod(tokens * 8 // ranks, 256 // ranks)
        counts = [each + (slot < left) for slot in range(256 // ranks)]
        errors.append(abs(_us(cost, counts) / (1000 * ms) - 1))
    assert np.mean(errors) < 0.08
    assert np.quantile(errors, 0.9) < cost.kernel.band_p90


@pytest.mark.parametrize(("kernel", "folder"), [("deepgemm_masked", "decode"), ("deepgemm_contig", "prefill")])
def test_measured_h800_gemms(kernel: str, folder: str) -> None:
    """Balanced grouped GEMMs of DeepSeek-V3 (InferSim): median error within 5 %, 90th percentile at most the band."""
    path = DATA / "infersim_gemm" / "grouped_gemm" / folder / "h800" / "data.csv"
    if not path.exists():
        pytest.skip(f"needs the measured table {path}")
    table = pd.read_csv(path)
    cost = expert_cost(load_profile("h800"), DSV3, "decode", kernel)
    measured = table.up_proj_us + table.down_proj_us
    rows = zip(table.num_local_experts, table.tokens_per_expert, measured, strict=True)
    errors = [abs(_us(cost, [tokens] * slots) / us - 1) for slots, tokens, us in rows]
    assert np.median(errors) < 0.05
    assert np.quantile(errors, 0.9) < cost.kernel.band_p90 + 0.002


def test_idle_layer_costs_nothing_and_idle_ranks_do_not_count() -> None:
    cost = expert_cost(load_profile("h200"), DSV3, "decode")
    assert _us(cost, [0, 0], [0]) == 0.0
    assert _us(cost, [0, 0], [5]) == _us(cost, [5])


def test_the_slowest_rank_decides_and_speed_divides() -> None:
    cost = expert_cost(load_profile("h200"), DSV3, "decode")
    small, large = _us(cost, [10, 10]), _us(cost, [300, 300])
    assert _us(cost, [10, 10], [300, 300]) == large
    assert _us(cost, [10, 10], [300, 300], speed=np.array([0.01, 1.0])) == pytest.approx(100 * small)


def test_active_slots_are_those_with_tokens() -> None:
    cost = expert_cost(load_profile("h200"), DSV3, "decode")
    slots = np.array([[[3, 0, 1, 0, 0]], [[0, 0, 0, 0, 9]]], np.int32)
    distinct = np.array([[[4, 0]], [[0, 9]]], np.int32)
    _, active = cost.seconds(slots, distinct, np.array([0, 3, 5], np.int32), np.ones(2))
    assert active.tolist() == [[[2, 0]], [[0, 1]]]


def test_experts_without_a_gate_have_two_matrices() -> None:
    shape = load_shape("nemotron-3-nano-30b-a3b")
    cost = expert_cost(load_profile("h200"), shape, "decode")
    row = cost.kernel
    t_w = 2 * 2688 * 1856 * 2.0 / (4.8e12 * row.eff_bw)
    t_f = row.block * 4 * 2688 * 1856 / (989e12 * row.eff_flop)
    rows = ((2 * 2688 + 2 * 1856) * 2 + row.tok * 2 * 2688) / 4.8e12
    assert _us(cost, [1]) == pytest.approx(
        row.c0_us + 1e6 * ((t_w**row.q + t_f**row.q) ** (1 / row.q) + rows), rel=1e-9
    )


def test_the_row_fitted_on_the_width_is_preferred() -> None:
    assert expert_cost(load_profile("h200"), DSV3, "decode").reasons == ()
    glm_5 = expert_cost(load_profile("h200"), load_shape("glm-5-fp8"), "decode")
    assert (glm_5.kernel.kernel, glm_5.reasons) == ("trtllm_cutlass", ())


@pytest.mark.parametrize(
    ("gpu", "model", "words"),
    [
        ("h200", "gpt-oss-20b", "no mxfp4 kernel was measured"),
        ("b200", "deepseek-v3", "parameters of the GB200"),
        ("h200", "qwen3-30b-a3b-fp8", "width 2048×768 lies outside the fitted 7168×2048"),
        ("a100", "mixtral-8x7b", "another architecture"),
    ],
)
def test_what_was_not_measured_says_so(gpu: str, model: str, words: str) -> None:
    cost = expert_cost(load_profile(gpu), load_shape(model), "decode")
    assert any(words in reason for reason in cost.reasons)


def test_assumed_widths_say_so() -> None:
    shape = assumed_shape((0,), 8, 2)
    assert expert_cost(load_profile("h200"), shape, "decode").reasons[0] == "the model's widths are assumed"


def test_another_dtype_uses_its_own_bytes_and_peak() -> None:
    cost = expert_cost(load_profile("h200"), load_shape("gpt-oss-20b"), "decode")
    assert cost.peak_flops == 989e12
    assert cost.params[1] == pytest.approx(3 * 2880**2 * 0.53125 / (4.8e12 * cost.kernel.eff_bw))
    assert cost.band_p90 == pytest.approx(cost.kernel.band_p90 + 0.2)
    assert cost.name.startswith("mxfp4 as ")


@pytest.mark.parametrize("gpu", profile_names())
def test_every_model_has_a_positive_time_on_every_gpu(gpu: str) -> None:
    profile = load_profile(gpu)
    for model in model_names():
        for phase in ("prefill", "decode"):
            params: FloatArray = expert_cost(profile, load_shape(model), phase).params
            assert np.isfinite(params).all()
            assert (params[1:6] > 0).all()


def test_unknown_kernel_lists_the_kernels() -> None:
    with pytest.raises(ProfileError, match="no kernel magic; kernels are deepgemm_contig, deepgemm_masked"):
        expert_cost(load_profile("h200"), DSV3, "decode", "magic")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def test_mean_of_costs_is_not_cost_of_means(rng: np.random.Generator) -> None:
    """Why steps are costed one by one: the mean counts see every expert active."""
    cost = expert_cost(load_profile("h200"), DSV3, "decode")
    draws: IntArray = rng.poisson(0.3, (64, 8))
    each = np.mean([_us(cost, draw.tolist()) for draw in draws])
    assert each < 0.7 * _us(cost, [1] * 8)
