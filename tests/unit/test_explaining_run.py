"""Explanations of a plan that was made from a small trace, with and without that trace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from easybalance_sim.errors import PlanError, UsageError
from easybalance_sim.explaining.load import load_of
from easybalance_sim.explaining.run import ExplainRequest, explain_plan
from easybalance_sim.plan.planfile import PlanDocument, read_plan, write_plan
from easybalance_sim.trace.dataset import open_trace
from easybalance_sim.trace.schema import CountTrace
from tests.listeners import Heard
from tests.plan_documents import example_document
from tests.plan_runs import run
from tests.skewed_traces import EXPERTS, HOT, LAYERS, RANKS, skewed_counts, skewed_trace
from tests.trace_files import random_columns, token_meta, write_trace


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("explaining")
    trace = skewed_trace(folder / "trace.parquet")
    run(trace, output=folder / "plan.json", policies=("eplb",), split="request", force=True)
    return folder


def explained(folder: Path, *, trace: str = "trace.parquet", **about: Any) -> dict[str, Any]:
    traces = (folder / trace,) if trace else ()
    answer = explain_plan(ExplainRequest(plan=folder / "plan.json", traces=traces, **about), Heard())
    found: dict[str, Any] = answer[answer["of"]]
    return found


def document(folder: Path) -> PlanDocument:
    return read_plan(folder / "plan.json")


def test_the_load_is_that_of_the_fit_side(folder: Path) -> None:
    doc = document(folder)
    load = load_of(doc, (folder / "trace.parquet",))
    assert load.own and len(load.tokens) == doc.trace.fit["windows"]
    assert load.total[0].sum() == doc.trace.fit["tokens"] * 2
    np.testing.assert_allclose(load.over_mean.mean(axis=1), 1)
    assert sorted(load.place[1]) == list(range(1, EXPERTS + 1))
    hot = [expert for side in HOT.values() for expert in side]
    assert set(np.flatnonzero(load.place[0] <= 8)) == set(hot) == set(np.flatnonzero(load.peak_place[0] <= 8))


def test_another_trace_counts_whole(folder: Path) -> None:
    other = skewed_trace(folder / "other.parquet", 64, seed=9)
    load = load_of(document(folder), (other,))
    assert not load.own and len(load.tokens) == 4
    assert load.total[0].sum() == 64 * 32 * 2
    heard = Heard()
    explain_plan(ExplainRequest(plan=folder / "plan.json", traces=(other,)), heard)
    assert any("not made from this trace" in note for note in heard.notes)


def test_counts_are_split_as_for_the_plan(tmp_path: Path) -> None:
    trace = skewed_counts(tmp_path / "counts.parquet", 20)
    run(trace, output=tmp_path / "plan.json", policies=("eplb",), held_out=0.25, force=True)
    load = load_of(read_plan(tmp_path / "plan.json"), (trace,))
    recorded = open_trace([trace])
    assert isinstance(recorded, CountTrace)
    np.testing.assert_array_equal(load.tokens, recorded.tokens[:15])


def test_a_trace_of_another_model_is_refused(folder: Path) -> None:
    meta = token_meta((3, 5), 8, 2)
    trace = write_trace(folder / "small.parquet", random_columns(np.random.default_rng(0), [4, 4], meta), meta)
    with pytest.raises(PlanError, match="2 layers × 16 experts, the trace has 2 × 8"):
        load_of(document(folder), (trace,))


def test_overview(folder: Path) -> None:
    found, plan = explained(folder), document(folder).plan()
    assert sum(one["replicas"] * one["experts"] for one in found["replicas"]) == plan.slots * plan.layers
    replicas = [one["replicas"] for one in found["experts"]]
    assert replicas == sorted(replicas, reverse=True) and min(replicas) > 1
    excess = [one["rank_imbalance"] - one["lower_bound"] for one in found["layers"]]
    assert excess == sorted(excess, reverse=True) and min(excess) >= 0
    evidence = document(folder).evidence
    assert found["judged"]["plan"] == evidence["plan"]["rank_imbalance"]["mean"]
    by_layer = {one["layer"]: one["held_out"]["plan"] for one in found["layers"]}
    assert [by_layer[layer] for layer in LAYERS] == evidence["plan"]["rank_imbalance_by_layer"]["mean"]


def test_an_expert(folder: Path) -> None:
    plan, load = document(folder).plan(), load_of(document(folder), (folder / "trace.parquet",))
    expert = int(np.argmax(plan.replicas[1]))
    found = explained(folder, layer=LAYERS[1], expert=expert)
    assert found["share"] == pytest.approx(load.total[1, expert] / load.total[1].sum(), abs=1e-6)
    assert found["replica_fills_ranks"] * found["replicas"] == pytest.approx(found["share"] * RANKS, abs=1e-5)
    assert found["ranks"] == [one["rank"] for one in found["holders"]] and len(found["ranks"]) == found["replicas"]
    for holder in found["holders"]:
        beside = {one["expert"] for one in holder["experts"]} | {expert}
        assert beside == set(plan.expert_of_slot[1, plan.rank_of_slot == holder["rank"]].tolist())
    assert found["one_fewer"]["leaves"] == expert
    assert found["one_fewer"]["growth"] == pytest.approx(
        found["one_fewer"]["rank_imbalance"]["mean"] / found["rank_imbalance"]["mean"] - 1, abs=1e-5
    )
    assert found["lower_bound"] <= found["rank_imbalance"]["mean"]


def test_a_layer_and_a_rank_agree(folder: Path) -> None:
    layer = explained(folder, layer=LAYERS[0])
    assert [one["place"] for one in layer["experts"]] == list(range(1, EXPERTS + 1))
    assert np.mean([one["over_mean"] for one in layer["ranks"]]) == pytest.approx(1, abs=1e-5)
    rank = explained(folder, rank=2)
    assert rank["layers"][0] == {"layer": LAYERS[0], **layer["ranks"][2]}
    filled = sum(one["replica_fills_ranks"] for one in rank["layers"][0]["experts"])
    assert filled == pytest.approx(rank["layers"][0]["over_mean"], abs=1e-4)
    assert [one["layer"] for one in explained(folder, rank=2, layer=LAYERS[1])["layers"]] == [LAYERS[1]]
    assert sum(explained(folder, rank=at)["busiest_in"] for at in range(RANKS)) >= len(LAYERS)


def test_without_a_trace_loads_are_null(folder: Path) -> None:
    found = explained(folder, trace="", layer=LAYERS[0], expert=0)
    assert found["replicas"] >= 1 and found["holders"][0]["experts"]
    assert (found["share"], found["place"], found["rank_imbalance"], found["one_more"]) == (None, None, None, None)
    assert explained(folder, trace="", rank=0)["busiest_in"] is None
    overview = explained(folder, trace="")
    assert overview["layers"][0]["rank_imbalance"] is None and overview["layers"][0]["held_out"]["plan"] > 1
    heard = Heard()
    explain_plan(ExplainRequest(plan=folder / "plan.json"), heard)
    assert heard.notes == [
        "the plan file holds no load: shares, excess and what-ifs need --trace "
        f"{folder / 'trace.parquet'} (the plan's own)"
    ]


def test_a_plan_without_evidence(tmp_path: Path) -> None:
    write_plan(tmp_path / "plan.json", example_document())
    found = explained(tmp_path, trace="")
    assert found["judged"] == {"plan": 1.0625}
    assert found["layers"][0]["held_out"] == {"baseline": None, "plan": None, "floor": None}
    assert [(one["layer"], one["expert"], one["replicas"]) for one in found["experts"]] == [
        (3, 0, 2), (3, 1, 2), (4, 0, 2), (4, 2, 2),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("about", "line"),
    [
        ({"expert": 3}, "--expert: every layer has such an expert — say --layer too"),
        ({"layer": 4}, "--layer: the plan has no MoE layer 4 — its layers are 3, 5"),
        ({"layer": 3, "expert": 16}, "--expert: the plan has no expert 16 — give 0 to 15"),
        ({"rank": 4}, "--rank: the plan has no rank 4 — give 0 to 3"),
        ({"rank": 1, "layer": 3, "expert": 1}, "--expert and --rank exclude each other"),
    ],
)
def test_what_the_plan_does_not_have_is_refused(folder: Path, about: dict[str, int], line: str) -> None:
    with pytest.raises(UsageError) as told:
        explained(folder, trace="", **about)
    assert line in str(told.value)
