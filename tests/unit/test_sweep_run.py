"""A sweep from trace to report, in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from easybalance_sim.errors import UsageError
from easybalance_sim.planning.request import PlanRequest
from easybalance_sim.planning.session import Settings
from easybalance_sim.policies import Effort
from easybalance_sim.sweep.request import SweepRequest
from easybalance_sim.sweep.run import run_sweep
from tests.listeners import Heard
from tests.plan_runs import run
from tests.skewed_traces import LAYERS, skewed_columns, skewed_counts, skewed_meta
from tests.trace_files import random_ids, take, token_meta, write_trace

QUICK = Effort(proposals=10_000)


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Blocks of 40 steps with only one of the two workloads: a search has something to win."""
    columns = skewed_columns(640, hot={"left": (0, 1, 2), "right": (8, 9)})
    left = columns["workload"] == "left"
    kept = take(columns, left == (columns["step"] // 40 % 2 == 0))
    return write_trace(tmp_path_factory.mktemp("sweep") / "skewed.parquet", kept, skewed_meta())


@pytest.fixture(scope="module")
def one_hot_layer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first layer has no hot experts, in the second one two experts take all: four replicas of each are needed."""
    columns = skewed_columns()
    rng = np.random.default_rng(0)
    columns["experts"][:, 0] = random_ids(rng, len(columns["step"]), token_meta((0,), 16, 2))[:, 0]
    columns["experts"][:, 1] = np.where(rng.random((len(columns["step"]), 2)) < 0.02, (2, 3), (0, 1))
    return write_trace(tmp_path_factory.mktemp("sweep") / "one.parquet", columns, skewed_meta())


def sweep(path: Path, heard: Heard | None = None, *, said: Any = None, plan: Any = None, **more: Any) -> dict[str, Any]:
    """The report on 4 ranks with 0, 1 and 2 extra slots; said: settings, plan: fields of the plan request."""
    settings = Settings(traces=(path,), **(said or {}))
    request = PlanRequest(settings=settings, **{"effort": QUICK, "split": "request", **(plan or {})})
    chosen = {"ranks": (4,), "redundancy": (0, 1, 2), **more}
    return run_sweep(SweepRequest(plan=request, **chosen), heard or Heard())


@pytest.fixture(scope="module")
def report(trace: Path) -> dict[str, Any]:
    return sweep(trace, per_layer=True)


def test_points_rise_from_zero_redundancy(report: dict[str, Any]) -> None:
    (curve,) = report["curves"]
    points = curve["points"]
    assert [point["slots_per_rank"] for point in points] == [4, 5, 6]
    assert [point["extra_slots_per_rank"] for point in points] == [0, 1, 2]
    assert [point["redundant_slots"] for point in points] == [0, 4, 8]
    assert [point["memory_bytes_per_rank"] for point in points] == [
        slots * len(LAYERS) * report["model"]["expert_bytes"] for slots in (4, 5, 6)
    ]
    assert curve["held_out_tokens"] > 0 and curve["held_out_windows"] >= 8


def test_a_point_is_what_a_plan_with_these_slots_reaches(trace: Path, report: dict[str, Any]) -> None:
    """Same split, same seed, the same policy: the figures are those of `ebsim plan`."""
    point = report["curves"][0]["points"][2]
    made, _ = run(trace, said={"slots_per_rank": 6}, policies=(point["policy"],), split="request")
    assert point["policy"] == "window_search"
    for name in ("rank_imbalance", "layer_us", "step_us", "cross_node_bytes_per_token", "memory_bytes_per_rank"):
        assert point[name] == made["plan"][name], name


def test_gains_are_against_zero_redundancy(report: dict[str, Any]) -> None:
    first, *others = report["curves"][0]["points"]
    assert first["gain"]["imbalance_p99"] == {"saved": 0.0, "noise": 0.0, "counts": False}
    for point in others:
        for name, key in (("rank_imbalance", "imbalance_p99"), ("step_us", "step_us_p99")):
            saved = first[name]["p99"] - point[name]["p99"]
            assert point["gain"][key]["saved"] == pytest.approx(saved, abs=2e-4)


def test_without_skew_there_is_no_knee(tmp_path: Path) -> None:
    columns = skewed_columns()
    columns["experts"] = random_ids(np.random.default_rng(0), len(columns["step"]), token_meta(LAYERS, 16, 2))
    report = sweep(write_trace(tmp_path / "even.parquet", columns, skewed_meta()), plan={"objective": "seconds"})
    assert report["gain_by"] == "seconds"
    assert report["curves"][0]["knee"] == {"seconds": None, "imbalance": None}


def test_slots_by_layer_go_to_the_layer_with_hot_experts(one_hot_layer: Path) -> None:
    report = sweep(one_hot_layer, per_layer=True, plan={"objective": "tokens"})
    assert report["gain_by"] == "imbalance" and "no plan is written" in report["per_layer_note"]
    one, row = report["curves"][0]["points"][1], report["curves"][0]["points"][1]["per_layer"]
    assert row["slots_per_rank"][str(LAYERS[0])] == 4 < row["slots_per_rank"][str(LAYERS[1])]
    assert row["memory_bytes_per_rank"] <= one["memory_bytes_per_rank"]
    assert row["rank_imbalance"]["p99"] < one["rank_imbalance"]["p99"] + 0.02


def test_slots_by_layer_stay_within_the_memory_of_the_point(report: dict[str, Any]) -> None:
    first, *others = report["curves"][0]["points"]
    assert "per_layer" not in first
    for point in others:
        row = point["per_layer"]
        assert sum(row["slots_per_rank"].values()) <= point["slots_per_rank"] * len(LAYERS)
        assert row["memory_bytes_per_rank"] <= point["memory_bytes_per_rank"]


def test_layers_that_all_take_the_point_are_the_point(one_hot_layer: Path) -> None:
    """With one layer there is nothing to divide: the row by layer equals the uniform one or a cheaper one."""
    report = sweep(one_hot_layer, per_layer=True, redundancy=(0, 1))
    first, second = report["curves"][0]["points"]
    row = second["per_layer"]
    for number, layer in enumerate(LAYERS):
        like = first if row["slots_per_rank"][str(layer)] == 4 else second
        assert row["rank_imbalance_by_layer"]["p99"][number] == like["rank_imbalance_by_layer"]["p99"][number]


def test_one_curve_for_every_number_of_ranks_and_window_length(trace: Path) -> None:
    heard = Heard()
    report = sweep(trace, heard, ranks=(2, 4), window_steps=(8, 16), redundancy=(1,))
    pairs = [(curve["ranks"], curve["window_steps"]) for curve in report["curves"]]
    assert pairs == [(2, 8), (2, 16), (4, 8), (4, 16)]
    assert [curve["points"][0]["slots_per_rank"] for curve in report["curves"]] == [8, 8, 4, 4]
    assert report["curves"][0]["held_out_windows"] > report["curves"][1]["held_out_windows"]
    assert heard.stages.count("replaying the held-out side") == 4
    assert any(stage.startswith("point 1 of 2, 8 slots per rank: searching") for stage in heard.stages)


def test_ranks_that_do_not_divide_the_experts(trace: Path) -> None:
    points = sweep(trace, ranks=(3,), redundancy=(0, 1))["curves"][0]["points"]
    assert [(point["slots"], point["slots_per_rank"]) for point in points] == [(16, 6), (21, 7)]


def test_a_cluster_file_gives_ranks_and_memory_but_not_slots(trace: Path, tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("ranks = 4\nranks_per_node = 2\nslots_per_rank = [8, 8, 9, 9]\nhbm_gib = 0.035\n")
    heard = Heard()
    report = sweep(trace, heard, said={"cluster": tmp_path / "c.toml"}, ranks=(), redundancy=())
    (curve,) = report["curves"]
    assert (curve["ranks"], curve["nodes"]) == (4, 2)
    assert [point["slots_per_rank"] for point in curve["points"]] == [4, 5]
    assert "4 ranks: left out are 6, 7, 8 slots per rank (16 experts need 4, memory for 5)" in heard.notes


def test_count_traces_are_swept_too_but_with_one_window_length(tmp_path: Path) -> None:
    counts = skewed_counts(tmp_path / "counts.parquet", 40)
    report = sweep(counts, plan={"split": "time"})
    assert report["trace"]["kind"] == "counts" and report["cost"]["expected_values"]
    assert len(report["curves"][0]["points"]) == 3
    with pytest.raises(UsageError, match="has the windows that were recorded"):
        sweep(counts, plan={"split": "time"}, window_steps=(1, 16))


def test_kv_tokens_come_from_the_model(trace: Path) -> None:
    assert [point["kv_tokens_lost"] for point in sweep(trace)["curves"][0]["points"]] == [None] * 3
    columns = skewed_columns(64)
    columns["experts"] = random_ids(np.random.default_rng(0), len(columns["step"]), token_meta(LAYERS, 64, 8))
    path = write_trace(trace.parent / "olmoe.parquet", columns, token_meta(LAYERS, 64, 8))
    heard = Heard()
    bf16 = sweep(path, heard, said={"model": "olmoe-1b-7b"}, plan={"policies": ("eplb",)})
    slot = 16 * 3 * 2048 * 1024 * 2
    points = bf16["curves"][0]["points"]
    assert [point["kv_tokens_lost"] for point in points] == [0, -(-slot // 131072), -(-2 * slot // 131072)]
    assert points[0]["kv_tokens_left"] - points[1]["kv_tokens_left"] == slot // 131072
    fp8 = sweep(path, said={"model": "olmoe-1b-7b"}, plan={"policies": ("eplb",)}, kv_dtype="fp8")
    assert fp8["curves"][0]["points"][1]["kv_tokens_lost"] == -(-slot // 65536)


def test_policies_that_cannot_use_the_slots_are_noted_or_refused(trace: Path) -> None:
    heard = Heard()
    report = sweep(trace, heard, plan={"policies": ("eplb", "eplb_hierarchical")})
    assert {point["policy"] for point in report["curves"][0]["points"]} == {"eplb"}
    (note,) = [note for note in heard.notes if "eplb_hierarchical" in note]
    assert "with 16, 20, 24 slots: one node" in note
    with pytest.raises(UsageError, match="no plan for 20 slots: none of contiguous uses them all"):
        sweep(trace, plan={"policies": ("contiguous",)})


def test_one_seed_gives_one_report(trace: Path, report: dict[str, Any]) -> None:
    again = sweep(trace, per_layer=True)
    assert {**again, "timing_s": 0} == {**report, "timing_s": 0}


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"ranks": (4,), "said": {"cluster": Path("c.toml")}}, "--cluster and --ranks exclude each other"),
        ({"window_steps": (1, 2), "said": {"window_seconds": 1.0}}, "--window-seconds and several --window-steps"),
        ({"figure": Path("sweep.png")}, "sweep.png is not an .svg file"),
        ({"slots_per_rank": (5,)}, "--slots-per-rank and --redundancy exclude each other"),
        ({"kv_dtype": "int3"}, "--kv-cache-dtype: 'int3' is not known"),
        ({"plan": {"policies": ("best",)}}, "--policy: 'best' is not known"),
        ({"slots_per_rank": (3,), "redundancy": ()}, "slots per rank can be 4 to 16, not 3"),
    ],
)
def test_what_cannot_be_is_refused(trace: Path, wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        sweep(trace, **wrong)
