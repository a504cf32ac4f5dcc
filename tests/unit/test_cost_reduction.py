"""Tensor-parallel reductions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from easybalance_sim.cluster.hardware import load_profile
from easybalance_sim.cost.reduction import FITTED, reduction_seconds
from easybalance_sim.errors import UsageError

TABLES = Path(__file__).parents[3] / "shared" / "data" / "aiconfigurator_perf"
H100 = load_profile("h100")


def test_one_gpu_reduces_nothing() -> None:
    found = reduction_seconds(H100, 7168, 1)
    assert (found.fixed, found.token, found.reasons) == (0.0, 0.0, ())


def test_time_of_a_sum_is_fixed_and_linear_in_tokens() -> None:
    found = reduction_seconds(H100, 7168, 8)
    assert found.seconds(0) == 0.0
    assert found.seconds(1000) == pytest.approx(18.2e-6 + 1000 * 14336 / 162e9)
    assert found.reasons == ()


@pytest.mark.parametrize("gpu", ["h100", "h200", "b200", "gb200"])
def test_fits_the_measured_tables(gpu: str) -> None:
    path = TABLES / (gpu if gpu == "gb200" else f"{gpu}_sxm") / "comm" / "nccl" / "2.29.2" / "nccl_perf.parquet"
    if not path.is_file():
        pytest.skip(f"no measured NCCL table at {path}")
    rows = pd.read_parquet(path).query("op_name == 'all_reduce' and nccl_dtype == 'half'")
    rows = rows[(rows.message_size >= 2048) & (rows.message_size <= 32 * 2**20)]
    for ranks, group in rows.groupby("num_gpus"):
        tokens, us = group.message_size.to_numpy() / 7168, group.latency.to_numpy() * 1e3
        found = reduction_seconds(load_profile(gpu), 7168, int(str(ranks)))
        predicted = np.array([found.seconds(one) for one in tokens]) * 1e6
        assert np.abs(predicted / us - 1).mean() < 0.15, ranks


def test_other_numbers_of_gpus_take_the_nearest_and_say_so() -> None:
    found = reduction_seconds(H100, 7168, 16)
    assert found.fixed == FITTED["h100"][8][0]
    assert "no reduction of 16 GPUs was measured" in found.reasons[0]


def test_other_gpus_are_scaled_by_nvlink_and_say_so() -> None:
    found = reduction_seconds(load_profile("h800"), 7168, 8)
    assert found.token == pytest.approx(reduction_seconds(H100, 7168, 8).token * 450 / 200)
    assert "measured on the H100" in found.reasons[0]
    assert found.band_p90 > reduction_seconds(H100, 7168, 8).band_p90


def test_across_domains_it_is_slower_by_the_share_on_the_network() -> None:
    inside, across = reduction_seconds(H100, 7168, 8), reduction_seconds(H100, 7168, 16, domains=2)
    assert across.fixed == pytest.approx(inside.fixed + 2 * 19e-6)
    assert across.token == pytest.approx(inside.token + 2 * 14336 / 16 / 35.9e9)


@pytest.mark.parametrize(("ranks", "domains"), [(0, 1), (8, 3), (8, 0)])
def test_ranks_must_split_evenly(ranks: int, domains: int) -> None:
    with pytest.raises(UsageError, match="ranks in"):
        reduction_seconds(H100, 7168, ranks, domains=domains)
