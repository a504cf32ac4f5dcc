"""`replay_plan`: which traffic a plan is judged on, under which settings, against what."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from easybalance_sim.cluster.topology import uniform
from easybalance_sim.errors import EbsimError
from easybalance_sim.gate.verdict import Verdict
from easybalance_sim.pipeline import make_plan
from easybalance_sim.plan.plan import Plan
from easybalance_sim.plan.planfile import document, read_plan, write_plan
from easybalance_sim.planning.request import PlanRequest
from easybalance_sim.planning.session import Settings
from easybalance_sim.verification import ReplayRequest, replay_plan
from tests.listeners import Heard
from tests.skewed_traces import EXPERTS, LAYERS, SLOTS, skewed_columns, skewed_counts, skewed_meta, skewed_trace
from tests.trace_files import random_columns, token_meta, write_trace

NOT_SEEN = "the plan was fitted on this trace: only what it was not made from is replayed"
OTHER_WINDOWS = "windows or dispatch are not the plan's: its fit side is no measure here"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("verification")


@pytest.fixture(scope="module")
def trace(folder: Path) -> Path:
    return skewed_trace(folder / "skewed.parquet")


@pytest.fixture(scope="module")
def later(folder: Path) -> Path:
    """Other traffic of the same model."""
    return skewed_trace(folder / "later.parquet", seed=5)


def planned(trace: Path, output: Path, *, said: Any = None, **request: Any) -> tuple[Path, dict[str, Any]]:
    """A plan by eplb, written whatever its verdict, and its report."""
    settings = Settings(traces=(trace,), **{"ranks": 4, "slots_per_rank": 5, **(said or {})})
    request = {"policies": ("eplb",), "force": True, "output": output, **request}
    return output, make_plan(PlanRequest(settings=settings, **request), Heard())[0]


@pytest.fixture(scope="module")
def plan(trace: Path, folder: Path) -> Path:
    return planned(trace, folder / "plan.json")[0]


def replayed(
    trace: Path, plan: Path, heard: Heard | None = None, *, said: Any = None, **request: Any
) -> tuple[dict[str, Any], Verdict]:
    settings = Settings(traces=(trace,), **(said or {}))
    return replay_plan(ReplayRequest(settings=settings, plan=plan, **request), heard or Heard())


@pytest.mark.parametrize("by", ["time", "request", "workload"])
def test_on_its_own_trace_a_plan_meets_exactly_its_held_out_side(trace: Path, tmp_path: Path, by: str) -> None:
    heard = Heard()
    path, made = planned(trace, tmp_path / "plan.json", split=by)
    report, verdict = replayed(trace, path, heard)
    assert heard.notes == [NOT_SEEN]
    assert report["split"]["by"] == "unseen"
    for key in ("held_out_tokens", "held_out_steps", "held_out_windows", "fit_steps", "fit_windows"):
        assert report["split"][key] == made["split"][key]
    assert {**report["plan"], "policy": ""} == {**made["plan"], "policy": ""}
    assert (report["baseline"], report["fit"]) == (made["baseline"], made["fit"])
    assert verdict.to_dict() == made["verdict"]


def test_what_the_run_did_not_select_is_unseen_as_a_whole(trace: Path, tmp_path: Path) -> None:
    path, made = planned(trace, tmp_path / "plan.json", said={"workloads": ("left",)}, split="request")
    right, _ = replayed(trace, path, said={"workloads": ("right",)})
    assert right["split"]["held_out_tokens"] == 320 * SLOTS // 2
    left, _ = replayed(trace, path, said={"workloads": ("left",)})
    assert left["split"]["held_out_tokens"] == made["split"]["held_out_tokens"]
    both, _ = replayed(trace, path)
    assert both["split"]["held_out_tokens"] == 320 * SLOTS - made["split"]["fit_tokens"]


def test_no_request_of_the_fit_is_replayed_in_another_phase(tmp_path: Path) -> None:
    """Every request has a prefill token and decode tokens; the plan is of decode alone."""
    columns = skewed_columns()
    first = np.zeros(len(columns["step"]), np.bool_)
    first[np.unique(columns["request"], return_index=True)[1]] = True
    columns["phase"] = np.where(first, "prefill", "decode")
    trace = write_trace(tmp_path / "two.parquet", columns, skewed_meta())
    path, made = planned(trace, tmp_path / "plan.json", said={"phase": "decode"}, split="request")
    decode, _ = replayed(trace, path, said={"phase": "decode"})
    assert decode["split"]["held_out_tokens"] == made["split"]["held_out_tokens"]
    prefill, _ = replayed(trace, path, said={"phase": "prefill"})
    whole, _ = replayed(trace, path)
    requests = len(np.unique(columns["request"]))
    assert prefill["split"]["held_out_tokens"] == requests - round(requests / 2)
    assert whole["split"]["held_out_tokens"] == sum(report["split"]["held_out_tokens"] for report in (decode, prefill))


def test_a_plan_fitted_on_one_workload_is_refused_on_another(trace: Path, tmp_path: Path) -> None:
    path, made = planned(trace, tmp_path / "plan.json", said={"workloads": ("left",)})
    assert made["verdict"]["status"] == "accepted"
    report, verdict = replayed(trace, path, said={"workloads": ("right",)})
    assert (verdict.status, verdict.exit_code) == ("rejected", 1)
    assert "fit_gap_max" in [finding.criterion for finding in verdict.failed]
    fit, held = (
        (before["rank_imbalance"]["mean"], after["rank_imbalance"]["mean"])
        for before, after in ((report["fit"]["baseline"], report["fit"]), (report["baseline"], report["plan"]))
    )
    promised, kept = ((before - after) / (before - 1) for before, after in (fit, held))
    assert kept < 0.8 * promised


def test_a_plan_of_another_model_is_said(trace: Path, plan: Path, tmp_path: Path) -> None:
    heard, again = Heard(), Heard()
    other = skewed_trace(tmp_path / "other.parquet", seed=5, meta=skewed_meta(model="other-moe"))
    replayed(other, plan, heard)
    (note,) = [note for note in heard.notes if "two models" in note]
    made_for = read_plan(plan).model
    assert note.startswith(f"the plan was made for {made_for}, the trace is of other-moe: ")
    same = skewed_trace(tmp_path / "same.parquet", seed=5, meta=skewed_meta(model=f"us/{made_for}"))
    replayed(same, plan, again)
    assert not [note for note in again.notes if "two models" in note]


def test_other_traffic_is_replayed_whole(later: Path, plan: Path) -> None:
    heard = Heard()
    report, verdict = replayed(later, plan, heard)
    assert (report["split"]["by"], report["split"]["held_out_tokens"]) == ("all", 320 * SLOTS)
    assert (verdict.status, heard.notes) == ("accepted", [])
    assert report["plan_file"] == str(plan) and report["fingerprint"] == read_plan(plan).fingerprint()
    assert list(report["timing_s"]) == ["read", "floor", "replay", "total"]


def test_windows_and_dispatch_are_the_plans_unless_said(trace: Path, later: Path, tmp_path: Path) -> None:
    path, _ = planned(trace, tmp_path / "plan.json", said={"window_steps": 8, "dispatch": "vllm"})
    heard = Heard()
    report, _ = replayed(later, path, heard)
    assert (report["split"]["held_out_windows"], report["dispatch"], heard.notes) == (40, "vllm", [])
    assert report["fit"] is not None
    for said in ({"window_steps": 32}, {"dispatch": "even"}, {"window_seconds": 1.6}):
        heard = Heard()
        report, verdict = replayed(later, path, heard, **said)
        assert heard.notes == [OTHER_WINDOWS]
        gap = next(finding for finding in verdict.findings if finding.criterion == "fit_gap_max")
        assert report["fit"] is None and gap.ok and gap.note.startswith("not judged")


def test_windows_of_seconds_are_the_plans_too(trace: Path, later: Path, tmp_path: Path) -> None:
    path, _ = planned(trace, tmp_path / "plan.json", said={"window_seconds": 1.0})
    heard = Heard()
    report, _ = replayed(later, path, heard)
    assert (report["split"]["window_seconds"], report["split"]["held_out_windows"]) == (1.0, 8)
    assert heard.notes == []
    assert replayed(later, path, window_steps=16)[0]["split"]["held_out_windows"] == 20


def test_baselines_are_policies_without_a_load_or_plan_files(later: Path, plan: Path) -> None:
    assert replayed(later, plan)[0]["baseline"]["policy"] == "contiguous"
    dealt, _ = replayed(later, plan, baseline="round_robin")
    assert dealt["baseline"]["policy"] == "round_robin"
    itself, verdict = replayed(later, plan, baseline=str(plan))
    assert itself["baseline"] == itself["plan"]
    assert (verdict.status, itself["migration"]["moves"]) == ("rejected", 0)
    with pytest.raises(EbsimError, match="--baseline: 'eplb' is neither a plan file nor"):
        replayed(later, plan, baseline="eplb")


def test_a_plan_for_another_model_is_refused(plan: Path, tmp_path: Path) -> None:
    meta = token_meta((3, 5, 7), experts=16, top_k=2)
    columns = random_columns(np.random.default_rng(0), np.repeat(np.arange(20), 4).tolist(), meta)
    other = write_trace(tmp_path / "other.parquet", columns, meta)
    with pytest.raises(EbsimError, match="--plan: the plan is for 2 layers × 16 experts, the trace has 3 × 16"):
        replayed(other, plan)


@pytest.mark.parametrize(("ranks", "slots"), [(4, 4), (2, 10)])
def test_a_cluster_without_room_for_the_plan_is_refused(
    later: Path, plan: Path, tmp_path: Path, ranks: int, slots: int
) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(f"ranks = {ranks}\nranks_per_node = {ranks}\nslots_per_rank = {slots}\n")
    with pytest.raises(EbsimError, match=f"the cluster has {ranks} with up to {slots} — check --cluster"):
        replayed(later, plan, said={"cluster": path})


def test_a_baseline_for_another_cluster_is_refused(later: Path, plan: Path, trace: Path, tmp_path: Path) -> None:
    wide, _ = planned(trace, tmp_path / "wide.json", said={"slots_per_rank": 6})
    with pytest.raises(EbsimError, match="--baseline: the plan is for 4 ranks with up to 6 slots"):
        replayed(later, plan, baseline=str(wide))


def test_more_ranks_than_experts_leave_round_robin_out(later: Path, plan: Path, tmp_path: Path) -> None:
    doc, ranks = read_plan(plan), 32
    spread = document(
        Plan(
            expert_of_slot=np.array([[*range(EXPERTS), *range(EXPERTS)]] * len(LAYERS)),
            slots_per_rank=np.ones(ranks, np.int64),
            experts=EXPERTS,
            policy="spread",
        ),
        layer_ids=LAYERS,
        topology=uniform(ranks, 8, 1),
        trace=doc.trace,
        dispatch="even",
        evidence={},
        verdict={},
        migration={},
    )
    write_plan(tmp_path / "spread.json", spread)
    with pytest.raises(EbsimError, match=r"--baseline round_robin: 16 experts .* give a plan file"):
        replayed(later, tmp_path / "spread.json", baseline="round_robin")
    report, _ = replayed(later, tmp_path / "spread.json")
    assert (report["cluster"]["ranks"], report["baseline"]["slots"]) == (ranks, ranks)


def test_counts_keep_the_windows_that_the_plan_did_not_see(tmp_path: Path) -> None:
    trace = skewed_counts(tmp_path / "c.parquet", windows=24)
    path, made = planned(trace, tmp_path / "plan.json")
    report, _ = replayed(trace, path)
    assert report["split"]["held_out_windows"] == made["split"]["held_out_windows"] == 12
    assert report["plan"]["rank_imbalance"] == made["plan"]["rank_imbalance"]
    other, _ = replayed(skewed_counts(tmp_path / "d.parquet", windows=24, seed=3), path)
    assert (other["split"]["held_out_windows"], other["split"]["by"]) == (24, "all")
    chosen, _ = replayed(trace, path, said={"workloads": ("right",)})
    assert chosen["split"]["held_out_windows"] == 6


def test_counts_that_the_plan_has_all_seen_are_refused(tmp_path: Path) -> None:
    trace = skewed_counts(tmp_path / "one.parquet", windows=1)
    path, _ = planned(trace, tmp_path / "plan.json")
    with pytest.raises(EbsimError, match="no window is left that the plan was not fitted on"):
        replayed(trace, path)


def test_a_selection_without_tokens_is_refused(later: Path, plan: Path) -> None:
    with pytest.raises(EbsimError, match="no token is left to judge on"):
        replayed(later, plan, said={"phase": "prefill"})


def test_a_copy_of_the_trace_is_known_again(trace: Path, plan: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.parquet"
    copy.write_bytes(trace.read_bytes())
    heard = Heard()
    replayed(copy, plan, heard)
    assert heard.notes == [NOT_SEEN]


def test_a_part_of_the_trace_that_the_plan_was_made_from_is_no_other_traffic(
    trace: Path, later: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "days"
    folder.mkdir()
    for name, source in (("1.parquet", trace), ("2.parquet", later)):
        (folder / name).write_bytes(source.read_bytes())
    path, _ = planned(folder, tmp_path / "plan.json")
    with pytest.raises(EbsimError, match=r"2\.parquet: the plan was made from this file.*replay the whole trace"):
        replayed(folder / "2.parquet", path)
    assert replayed(folder, path)[0]["split"]["by"] == "unseen"


def test_the_workload_that_the_plan_was_made_for_is_known_by_name(tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "t.parquet", skewed_columns(160), skewed_meta())
    path, made = planned(trace, tmp_path / "plan.json", said={"workloads": ("right",)}, split="request")
    left, _ = replayed(trace, path, said={"workloads": ("left",)})
    right, _ = replayed(trace, path, said={"workloads": ("right",)})
    assert left["split"]["held_out_tokens"] == 160 * SLOTS // 2
    assert right["split"]["held_out_tokens"] == made["split"]["held_out_tokens"]
