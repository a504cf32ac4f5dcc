"""Clusters whose ranks differ, and numbers of ranks that no power of two is: from trace to verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from easybalance_sim.arrays import FloatArray
from easybalance_sim.load.counting import Windowing, count_windows
from easybalance_sim.plan.planfile import read_plan
from easybalance_sim.replay.tally import rank_sums
from easybalance_sim.trace.dataset import TokenTrace, open_trace
from tests.phase_traces import phase_trace
from tests.plan_runs import run
from tests.skewed_traces import skewed_counts, skewed_trace

NO_CLUSTER: dict[str, Any] = {"ranks": None, "slots_per_rank": None}


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return skewed_trace(tmp_path_factory.mktemp("uneven") / "skewed.parquet")


def cluster(path: Path, **fields: object) -> Path:
    """A cluster file; 4 ranks on one node, 5 slots each, unless said."""
    said = {"ranks": 4, "ranks_per_node": 4, "slots_per_rank": 5, **fields}
    path.write_text("".join(f"{name} = {value}\n" for name, value in said.items()))
    return path


def held_out_shares(plan: Path, trace: Path) -> FloatArray:
    """float64[R] share of each rank in the second half of the trace, replicas sharing evenly."""
    opened = open_trace([trace])
    assert isinstance(opened, TokenTrace)
    windows = count_windows(opened.batches(), opened.meta, Windowing(steps=16))
    tokens = windows.tokens[len(windows.tokens) // 2 :].sum(axis=0)
    placed = read_plan(plan).plan()
    slots = (tokens / placed.replicas)[np.arange(placed.layers)[:, None], placed.expert_of_slot]
    ranks: FloatArray = rank_sums(slots, placed).sum(axis=0)
    shares: FloatArray = ranks / ranks.sum()
    return shares


def test_a_rank_of_half_the_speed_gets_half_the_load(trace: Path, tmp_path: Path) -> None:
    even, slow = cluster(tmp_path / "even.toml"), cluster(tmp_path / "slow.toml", speed=[1.0, 0.5, 1.0, 1.0])
    run(trace, said={**NO_CLUSTER, "cluster": even}, output=tmp_path / "even.json", force=True)
    said = {**NO_CLUSTER, "cluster": slow}
    report, verdict = run(trace, said=said, output=tmp_path / "slow.json")
    assert verdict.status == "accepted"
    assert held_out_shares(tmp_path / "even.json", trace)[1] == pytest.approx(1 / 4, rel=0.1)
    shares = held_out_shares(tmp_path / "slow.json", trace)
    assert shares[1] == pytest.approx(1 / 7, rel=0.1)
    assert np.delete(shares, 1) == pytest.approx(2 / 7, rel=0.1)
    # The plan for equal ranks, in force on the cluster with the slow one.
    unaware = run(trace, said=said, current=tmp_path / "even.json", policies=("keep",))[0]["baseline"]
    assert unaware["rank_imbalance"]["mean"] > 1.7
    assert report["plan"]["rank_imbalance"]["p99"] - 1 < 0.3 * (unaware["rank_imbalance"]["p99"] - 1)


def test_layers_wait_less_for_a_slow_rank_that_gets_less(tmp_path: Path) -> None:
    """Prefill of a wide model, where time follows tokens: P99 308 → 291 µs (tiles are padded to 128 tokens)."""
    path = phase_trace(tmp_path / "prefill.parquet")
    fields: dict[str, object] = {"ranks": 8, "ranks_per_node": 8}
    even = cluster(tmp_path / "even.toml", **fields)
    slow = cluster(tmp_path / "slow.toml", **fields, speed=[1.0, 1.0, 1.0, 0.5, 1.0, 1.0, 1.0, 1.0])
    said = {**NO_CLUSTER, "phase": "prefill", "window_steps": 8}
    run(path, said={**said, "cluster": even}, output=tmp_path / "even.json", force=True)
    report, verdict = run(path, said={**said, "cluster": slow}, output=tmp_path / "slow.json")
    assert verdict.status == "accepted"
    assert held_out_shares(tmp_path / "slow.json", path)[3] == pytest.approx(0.5 / 7.5, rel=0.1)
    unaware = run(
        path, said={**said, "cluster": slow}, current=tmp_path / "even.json", policies=("keep",)
    )[0]["baseline"]  # fmt: skip
    assert report["plan"]["layer_us"]["p99"] < 0.96 * unaware["layer_us"]["p99"]
    assert report["plan"]["rank_imbalance"]["p99"] < unaware["rank_imbalance"]["p99"]


@pytest.mark.parametrize(
    "fields",
    [
        {"ranks": 7, "ranks_per_node": 4, "slots_per_rank": 4},
        {"ranks": 12, "ranks_per_node": 8, "slots_per_rank": 2},
        {"ranks": 20, "ranks_per_node": 8, "slots_per_rank": 1},
        {"ranks": 5, "ranks_per_node": 2, "slots_per_rank": [8, 2, 2, 6, 1]},
        {"ranks": 3, "ranks_per_node": 3, "slots_per_rank": 6, "speed": [0.3, 1.0, 2.0]},
    ],
    ids=lambda fields: f"{fields['ranks']} ranks",
)
def test_any_number_of_ranks_is_planned_for(fields: dict[str, object], trace: Path, tmp_path: Path) -> None:
    file = cluster(tmp_path / "cluster.toml", **fields)
    report, verdict = run(trace, said={**NO_CLUSTER, "cluster": file}, output=tmp_path / "plan.json", force=True)
    plan = read_plan(tmp_path / "plan.json").plan()
    wanted = fields["slots_per_rank"]
    most = np.array(wanted if isinstance(wanted, list) else [wanted] * plan.ranks)
    assert plan.ranks == fields["ranks"] and (plan.slots_per_rank <= most).all()
    assert verdict.status != "insufficient_evidence"
    for section in (report["plan"], report["baseline"]):
        assert section["rank_imbalance"]["mean"] >= section["lower_bound_per_window"]["mean"] - 1e-6
    assert report["plan"]["rank_imbalance"]["p99"] <= report["baseline"]["rank_imbalance"]["p99"] + 0.01


def test_counts_on_uneven_ranks(tmp_path: Path) -> None:
    counts = skewed_counts(tmp_path / "counts.parquet", windows=40)
    file = cluster(tmp_path / "slow.toml", speed=[1.0, 0.5, 1.0, 1.0])
    report, _ = run(counts, said={**NO_CLUSTER, "cluster": file}, policies=("eplb",))
    assert report["plan"]["rank_imbalance"]["mean"] < 0.75 * report["baseline"]["rank_imbalance"]["mean"]
    assert report["plan"]["rank_imbalance"]["mean"] >= report["plan"]["lower_bound_per_window"]["mean"] - 1e-6
