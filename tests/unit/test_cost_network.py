"""All-to-all phases against measured DeepEP times and the written formula."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from easybalance_sim.cluster.hardware import load_profile, profile_names
from easybalance_sim.cluster.shapes import load_shape
from easybalance_sim.cost.network import combine_bytes, dispatch_bytes, link_cost
from easybalance_sim.errors import UsageError

DSV3 = load_shape("deepseek-v3")
DATA = Path(__file__).parents[3] / "shared" / "data"


def _us(gpu: str, nodes: int, mode: str, phase: str, rdma: float, nvlink: float) -> float:
    cost = link_cost(load_profile(gpu), DSV3, nodes, mode, phase)
    return 1e6 * float(
        cost.seconds(np.array([[[round(rdma)]]], np.int32), np.array([[[round(nvlink)]]], np.int32))[0, 0]
    )


def test_bytes_of_a_copy() -> None:
    assert dispatch_bytes(DSV3, "low_latency") == 7408
    assert dispatch_bytes(DSV3, "normal") == 7392
    assert combine_bytes(DSV3) == 14336


def test_latent_experts_send_the_latent_width() -> None:
    assert combine_bytes(load_shape("kimi-k3")) == 2 * 3584


def test_low_latency_dispatch_near_the_measured_143_us() -> None:
    """EP32 on 4 nodes, 128 tokens, top-8: 3/4 of the copies leave the node, 7/32 stay in it (H100, DeepEP)."""
    time = _us("h100", 4, "low_latency", "dispatch", 128 * 8 * 0.75, 128 * 8 * 7 / 32)
    assert time == pytest.approx(143, rel=0.02)
    assert time == pytest.approx(15.1 + 4.6 * 2 + 768 * 7408 / 47.7e9 * 1e6, rel=1e-9)


@pytest.mark.parametrize(("phase", "limit"), [("dispatch", 0.05), ("combine", 0.08)])
def test_measured_low_latency(phase: str, limit: float) -> None:
    """DeepEP on 1 to 8 nodes of H100, uniform routing (aiconfigurator): mean error within 5 % and 8 %."""
    path = DATA / "aiconfigurator_perf/h100_sxm/comm/sglang/0.5.6.post2/wideep_deepep_ll_perf.parquet"
    if not path.exists():
        pytest.skip(f"needs the measured table {path}")
    errors = []
    for row in pd.read_parquet(path).to_dict("records"):
        nodes, copies = int(row["node_num"]), row["num_token"] * row["num_topk"]
        rdma, nvlink = copies * (nodes - 1) / nodes, copies * 7 / (8 * nodes)
        errors.append(abs(_us("h100", nodes, "low_latency", phase, rdma, nvlink) / row[f"{phase}_avg_t_us"] - 1))
    assert np.mean(errors) < limit


def test_normal_combine_near_the_measured_3522_us() -> None:
    """EP32 on 4 nodes, 4096 tokens: 2.711 remote nodes and 7.267 ranks per token (H100, DeepEP, 24 SM)."""
    assert _us("h100", 4, "normal", "combine", 4096 * 2.711, 4096 * 7.267 * 7 / 8) == pytest.approx(3522, rel=0.18)


def test_normal_dispatch_written_out() -> None:
    rdma, nvlink = 10000 * 7392 / 42.7e9, 30000 * 7392 / 285e9
    expected = 21.7 + 11.3 + 60 + 1e6 * (rdma**5.9 + nvlink**5.9) ** (1 / 5.9)
    assert _us("h100", 4, "normal", "dispatch", 10000, 30000) == pytest.approx(expected, rel=1e-9)


def test_layout_exchange_is_read_between_measured_node_counts() -> None:
    two, three, four = (_us("h100", nodes, "normal", "dispatch", 100, 100) for nodes in (2, 3, 4))
    assert three - two == pytest.approx(12.5)
    assert four - two == pytest.approx(25)


def test_one_node_pays_no_node_terms() -> None:
    assert _us("h100", 1, "normal", "dispatch", 0, 1000) == pytest.approx(21.7 + 1000 * 7392 / 285e9 * 1e6)


@pytest.mark.parametrize("mode", ["normal", "low_latency"])
def test_nothing_sent_costs_nothing(mode: str) -> None:
    assert _us("h200", 4, mode, "dispatch", 0, 0) == 0.0


def test_the_busiest_rank_decides() -> None:
    cost = link_cost(load_profile("h100"), DSV3, 4, "normal", "combine")
    rdma = np.array([[[10, 900, 20]]], np.int32)
    alone = np.array([[[900]]], np.int32)
    assert cost.seconds(rdma, 0 * rdma)[0, 0] == cost.seconds(alone, 0 * alone)[0, 0]


def test_one_node_row_is_measured_and_multi_node_row_is_transferred_on_h200() -> None:
    profile = load_profile("h200")
    one = link_cost(profile, DSV3, 1, "low_latency", "dispatch")
    four = link_cost(profile, DSV3, 4, "low_latency", "dispatch")
    assert one.reasons == ()
    assert four.reasons == ("no multi-node table of this GPU: parameters of the H100 (same NVLink and RDMA)",)


def test_more_nodes_than_measured_says_so() -> None:
    cost = link_cost(load_profile("h100"), DSV3, 16, "normal", "combine")
    assert cost.reasons == ("normal combine was measured on at most 4 nodes",)


@pytest.mark.parametrize("gpu", profile_names())
@pytest.mark.parametrize("mode", ["normal", "low_latency"])
@pytest.mark.parametrize("phase", ["dispatch", "combine"])
def test_every_profile_has_a_time_for_every_node_count(gpu: str, mode: str, phase: str) -> None:
    times = [_us(gpu, nodes, mode, phase, 100 * (nodes > 1), 100) for nodes in (1, 2, 4, 8, 16)]
    assert all(np.isfinite(times))
    assert min(times) > 0


def test_unknown_mode_lists_the_modes() -> None:
    with pytest.raises(UsageError, match="fast: unknown all-to-all mode; there are normal, low_latency, nccl, nvlink"):
        dispatch_bytes(DSV3, "fast")
