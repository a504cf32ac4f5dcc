"""`make_plan`: what is fitted, chosen, judged and written."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from easybalance_sim import policies
from easybalance_sim.errors import EbsimError, UsageError
from easybalance_sim.gate.criteria import load_criteria
from easybalance_sim.gate.judge import judge
from easybalance_sim.pipeline import make_plan
from easybalance_sim.plan.plan import Plan
from easybalance_sim.plan.planfile import read_plan
from easybalance_sim.planning.candidates import EXCESS_TIE_FRAC, TIE_FRAC, score
from easybalance_sim.planning.cross_validation import NO_OPTIMISM, Balance, Validation
from easybalance_sim.planning.request import PlanRequest
from easybalance_sim.planning.session import Settings, open_session
from easybalance_sim.policies import Effort, NotApplicable, Problem
from tests.listeners import Heard
from tests.plan_runs import run
from tests.skewed_traces import EXPERTS, SLOTS, skewed_columns, skewed_counts, skewed_meta, skewed_trace
from tests.trace_files import joined, take, write_trace


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return skewed_trace(tmp_path_factory.mktemp("pipeline") / "skewed.parquet")


@pytest.fixture
def harsh(tmp_path: Path) -> Path:
    """Criteria that no plan meets."""
    path = tmp_path / "harsh.toml"
    path.write_text("p99_imbalance_drop_min = 0.999\n")
    return path


def test_an_accepted_plan_is_written_with_its_evidence(trace: Path, tmp_path: Path) -> None:
    report, verdict = run(trace, output=tmp_path / "plan.json")
    assert (verdict.status, report["plan_file"]) == ("accepted", str(tmp_path / "plan.json"))
    doc = read_plan(tmp_path / "plan.json")
    assert doc.fingerprint() == report["fingerprint"]
    assert (doc.generation, doc.parent_fingerprint, doc.dispatch) == (1, None, "even")
    assert doc.evidence["plan"]["rank_imbalance"] == report["plan"]["rank_imbalance"]
    assert doc.verdict == report["verdict"] and doc.migration == report["migration"]
    assert doc.trace.fingerprint == report["trace"]["fingerprint"]
    assert doc.trace.fit == {"steps": 160, "windows": 10, "tokens": report["split"]["fit_tokens"]}
    assert doc.trace.held_out["tokens"] == report["split"]["held_out_tokens"]
    assert doc.trace.split == {
        "by": "time", "held_out": 0.5, "seed": 0, "window_steps": 16, "window_seconds": 0.0, "phase": None,
        "workloads": [],
    }  # fmt: skip


def test_the_written_verdict_is_that_of_the_gate(trace: Path, tmp_path: Path) -> None:
    report, verdict = run(trace, output=tmp_path / "plan.json")
    assert judge(report, load_criteria()) == verdict


def test_without_an_output_nothing_is_written(trace: Path, tmp_path: Path) -> None:
    report, verdict = run(trace)
    assert (verdict.status, report["plan_file"]) == ("accepted", None)
    assert len(report["fingerprint"]) == 64
    assert list(tmp_path.iterdir()) == []


def test_a_refused_plan_leaves_the_old_file_and_force_does_not(trace: Path, harsh: Path, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    run(trace, output=path)
    old = path.read_bytes()
    report, verdict = run(trace, output=path, criteria=harsh, policies=("eplb",))
    assert (verdict.status, report["plan_file"]) == ("rejected", None)
    assert path.read_bytes() == old
    report, verdict = run(trace, output=path, criteria=harsh, policies=("eplb",), force=True)
    assert (verdict.status, report["plan_file"]) == ("rejected", str(path))
    assert read_plan(path).verdict["status"] == "rejected"
    assert read_plan(path).fingerprint() == report["fingerprint"]


def test_every_policy_competes_unless_some_are_named(trace: Path) -> None:
    def names(*asked: str) -> list[str]:
        return [row["policy"] for row in run(trace, policies=asked)[0]["candidates"]]

    wanted = {"contiguous", "round_robin", "eplb", "eplb_no_redundancy"}
    assert wanted <= set(names()) <= set(policies.names())
    assert names("eplb") == ["contiguous", "eplb"]
    assert names("eplb", "eplb", "round_robin") == ["contiguous", "eplb", "round_robin"]


def test_the_baseline_competes_only_when_it_is_named_or_nothing_is(trace: Path) -> None:
    assert run(trace, policies=("eplb",))[0]["plan"]["policy"] == "eplb"
    report, verdict = run(trace, policies=("contiguous",))
    assert (report["plan"]["policy"], verdict.status) == ("contiguous", "rejected")
    assert report["migration"]["moves"] == 0


def test_the_choice_is_the_lowest_tail_among_those_that_tie_in_seconds(trace: Path) -> None:
    report, _ = run(trace)
    fastest = min(row["objective_us"] for row in report["candidates"])
    frac = min(TIE_FRAC, load_criteria().p99_layer_time_growth_max)
    tied = [row for row in report["candidates"] if row["objective_us"] <= fastest * (1 + frac)]
    for figure in ("expected_imbalance_worst", "expected_imbalance_mean"):
        least = min(row[figure] for row in tied) - 1
        tied = [row for row in tied if row[figure] - 1 <= least * (1 + EXCESS_TIE_FRAC)]
    best = min(tied, key=lambda row: row["objective_us"])
    assert report["plan"]["policy"] == best["policy"] != "contiguous"


def test_with_assumed_widths_imbalance_alone_decides(tmp_path: Path) -> None:
    heard = Heard()
    path = skewed_trace(tmp_path / "t.parquet", meta=skewed_meta(hidden=0, model="nobody-knows"))
    report, _ = run(path, heard)
    rows = {row["policy"]: row["expected_imbalance_worst"] - 1 for row in report["candidates"]}
    assert rows[report["plan"]["policy"]] <= min(rows.values()) * (1 + EXCESS_TIE_FRAC)
    assert any("by rank imbalance alone" in note for note in heard.notes)


def test_the_planner_does_not_see_the_held_out_side(tmp_path: Path) -> None:
    """Two traces that agree up to the boundary give the same placement, whatever comes after it."""
    whole, other = skewed_columns(320), skewed_columns(320, seed=9, hot={"left": (12, 13, 14, 15), "right": (4, 5)})
    early = whole["step"] < 160
    changed = joined([take(whole, early), take(other, ~early)])
    slots = []
    for name, columns in (("same.parquet", whole), ("changed.parquet", changed)):
        path = write_trace(tmp_path / name, columns, skewed_meta())
        run(path, output=tmp_path / "plan.json", policies=("eplb",), force=True)
        slots.append(read_plan(tmp_path / "plan.json").plan().expert_of_slot)
    np.testing.assert_array_equal(slots[0], slots[1])


def test_a_plan_in_force_is_baseline_candidate_and_parent(trace: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    run(trace, output=first, policies=("round_robin",), force=True)
    report, _ = run(trace, current=first, output=second, force=True, policies=("eplb",))
    assert (report["baseline"]["policy"], report["plan"]["policy"]) == ("keep", "eplb")
    parent, child = read_plan(first), read_plan(second)
    assert (child.generation, child.parent_fingerprint) == (2, parent.fingerprint())
    old, new = parent.plan().expert_of_slot, child.plan().expert_of_slot
    assert report["migration"]["moves"] == _moved(old, 4, new, 4) > 0
    assert report["candidates"][0]["migration_s"] == 0
    report, verdict = run(trace, current=second, policies=("keep",))
    assert (report["plan"]["policy"], report["migration"]["moves"], verdict.status) == ("keep", 0, "rejected")
    assert "keep" in [row["policy"] for row in run(trace, current=second)[0]["candidates"]]


def _moved(old: Any, old_ranks: int, new: Any, new_ranks: int) -> int:
    """Experts that a rank holds after and did not hold before."""
    moves = 0
    for before, after in zip(old, new, strict=True):
        for had, has in zip(np.split(before, old_ranks), np.split(after, new_ranks), strict=True):
            moves += len(set(has.tolist()) - set(had.tolist()))
    return moves


def test_the_cluster_of_the_plan_in_force_stands_in_for_flags(trace: Path, tmp_path: Path) -> None:
    run(trace, output=tmp_path / "plan.json", said={"slots_per_rank": 6}, force=True)
    settings = Settings(traces=(trace,))
    report, _ = make_plan(PlanRequest(settings=settings, current=tmp_path / "plan.json"), Heard())
    assert report["cluster"] == {"ranks": 4, "nodes": 1, "slots_per_rank": 6, "slots": 24, "profile": "h200"}


def test_a_plan_in_force_that_does_not_fit_is_refused(trace: Path, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    run(trace, output=path, said={"slots_per_rank": 6}, policies=("eplb",), force=True)
    with pytest.raises(EbsimError, match="--current: the plan in force uses more slots than a rank has"):
        run(trace, current=path)
    with pytest.raises(EbsimError, match="--current: the plan in force is for 2 layers, 16 experts, 4 ranks"):
        run(trace, current=path, said={"ranks": 2, "slots_per_rank": 9})


def test_one_count_window_is_no_evidence(tmp_path: Path) -> None:
    heard = Heard()
    report, verdict = run(skewed_counts(tmp_path / "one.parquet", windows=1), heard, output=tmp_path / "plan.json")
    assert (verdict.status, verdict.exit_code, report["plan_file"]) == ("insufficient_evidence", 3, None)
    assert (report["split"]["held_out_windows"], report["split"]["fit_windows"]) == (0, 1)
    assert "nothing is held out: the figures are those of the fit windows, no proof" in heard.notes
    assert not (tmp_path / "plan.json").exists()


def test_counts_are_split_by_time_and_by_workload(tmp_path: Path) -> None:
    path = skewed_counts(tmp_path / "c.parquet", windows=200)
    report, verdict = run(path)
    assert (report["split"]["fit_windows"], report["split"]["held_out_windows"]) == (100, 100)
    assert verdict.status == "accepted"
    assert run(path, split="workload")[0]["split"]["fit_windows"] == 100
    with pytest.raises(UsageError, match="a count trace has no requests"):
        run(path, split="request")


@pytest.mark.parametrize("split", ["time", "request", "workload"])
def test_every_token_is_on_one_side_at_most(trace: Path, split: str) -> None:
    report, _ = run(trace, split=split)
    both = report["split"]["fit_tokens"] + report["split"]["held_out_tokens"]
    assert both <= 320 * SLOTS
    assert (both == 320 * SLOTS) == (split != "time")


def test_windows_of_seconds(trace: Path) -> None:
    by_step, by_second = run(trace)[0], run(trace, said={"window_seconds": 0.4})[0]
    assert by_second["split"]["window_seconds"] == 0.4
    assert by_second["plan"]["rank_imbalance"] == by_step["plan"]["rank_imbalance"]


def test_only_the_phase_and_workload_that_were_asked_for(trace: Path) -> None:
    report, _ = run(trace, said={"workloads": ("left",), "phase": "decode"}, split="request")
    assert report["split"]["fit_tokens"] + report["split"]["held_out_tokens"] == 320 * SLOTS // 2
    assert (report["split"]["workloads"], report["split"]["phase"]) == (["left"], "decode")
    with pytest.raises(UsageError, match="no token to fit a plan on"):
        run(trace, said={"phase": "prefill"})


def test_a_plan_without_folds_of_its_own_is_taken_for_as_optimistic_as_any(trace: Path) -> None:
    session = open_session(Settings(traces=(trace,), ranks=4, slots_per_rank=5), Heard())
    traffic = session.traffic("time", 0.5, 0)
    problem = Problem(
        forecast=traffic.fit_windows().tokens.mean(axis=0),
        windows=traffic.fit_windows().tokens,
        topology=session.topology,
    )
    plans = [policies.make(name, problem) for name in ("contiguous", "eplb", "round_robin")]
    unjudged = {one.plan.policy: one.fitted for one in score(plans, traffic, session)}
    level = Balance(mean=0.5, p99=0.5, tail=0.5)
    known = {
        name: Validation(optimism=gap, held=dict.fromkeys(("interleaved", "blocked"), unjudged[name] + level + gap))
        for name, gap in (("contiguous", NO_OPTIMISM), ("eplb", Balance(mean=0.25, p99=0.5, tail=0.4)))
    }
    scored = {one.plan.policy: one for one in score(plans, traffic, session, known)}
    assert scored["eplb"].expected == known["eplb"].expected
    assert scored["round_robin"].validation is None
    gap = (scored["round_robin"].expected - unjudged["round_robin"]).to_dict()
    assert gap == pytest.approx({"mean": 0.75, "p99": 1.0})


def test_an_output_that_is_an_input_and_endless_budgets_are_refused(trace: Path) -> None:
    with pytest.raises(UsageError, match="the run reads this file"):
        run(trace, output=trace)
    with pytest.raises(UsageError, match="--budget-s: nan is no length of time"):
        run(trace, effort=Effort(budget_s=math.nan))


def test_the_report_says_where_the_time_went(trace: Path) -> None:
    seconds = run(trace)[0]["timing_s"]
    assert list(seconds) == ["read", "candidates", "cross_validation", "scoring", "floor", "replay", "total"]
    assert all(math.isfinite(value) and value >= 0 for value in seconds.values())


def test_policies_that_do_not_apply_are_noted_or_refused(trace: Path) -> None:
    heard = Heard()
    run(trace, heard, said={"slots_per_rank": 8})
    assert any(note.startswith("policy window_search does not apply: batch noise only") for note in heard.notes)
    for plain in ("eplb_hierarchical", "eplb_relabelled", "warm_search", "keep", "repair"):
        assert not any(f"policy {plain}" in note for note in heard.notes)
    with pytest.raises(UsageError, match="--policy eplb_hierarchical: one node"):
        run(trace, policies=("eplb_hierarchical",))
    with pytest.raises(UsageError, match="--policy keep: no plan is in force"):
        run(trace, policies=("keep",))


def test_more_ranks_than_experts_start_from_experts_in_turn(trace: Path) -> None:
    report, _ = run(trace, said={"ranks": 32, "slots_per_rank": 1})
    assert (report["baseline"]["policy"], report["baseline"]["slots"]) == ("contiguous", 32)
    assert {row["policy"] for row in report["candidates"]} >= {"contiguous", "eplb"}


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        ({"policies": ("eplb", "nope")}, "--policy: 'nope' is not known — choose contiguous, "),
        ({"split": "nope"}, "--split: 'nope' is not known — choose time, request, workload"),
        ({"objective": "nope"}, "--objective: 'nope' is not known — choose auto, tokens, seconds"),
        ({"forecast": "nope"}, "--forecast: 'nope' is not known — choose mean, last"),
        ({"output": Path("absent/plan.json")}, "absent/plan.json: there is no folder absent"),
        ({"output": Path("/")}, "/: is a folder"),
        ({"criteria": Path("absent.toml")}, "absent.toml: cannot read"),
        ({"current": Path("absent.json")}, "absent.json: cannot read"),
    ],
)
def test_what_cannot_end_well_is_refused_before_the_trace_is_opened(request_: dict[str, Any], says: str) -> None:
    with pytest.raises(EbsimError, match=says) as refused:
        run(Path("absent.parquet"), **request_)
    assert refused.value.exit_code == 2


def test_a_policy_that_doubles_an_expert_on_a_rank_is_refused(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = policies.make

    def careless(name: str, problem: Problem) -> Plan:
        if name != "eplb":
            return real(name, problem)
        slots = np.array([[*range(EXPERTS), 0, 0, 1, 1]] * problem.layers)
        return Plan(expert_of_slot=slots, slots_per_rank=np.full(4, 5), experts=EXPERTS, policy=name)

    monkeypatch.setattr(policies, "make", careless)
    with pytest.raises(EbsimError, match="policy eplb, layer row 0"):
        run(trace, policies=("eplb",))


def test_a_policy_without_a_plan_is_skipped(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, heard = policies.make, Heard()

    def picky(name: str, problem: Problem) -> Plan:
        if name == "eplb":
            raise NotApplicable("not today")
        return real(name, problem)

    monkeypatch.setattr(policies, "make", picky)
    report, _ = run(trace, heard)
    assert "eplb" not in [row["policy"] for row in report["candidates"]]
    assert "policy eplb does not apply: not today" in heard.notes


def test_two_runs_write_the_same_bytes(trace: Path, tmp_path: Path) -> None:
    for name in ("a.json", "b.json"):
        run(trace, output=tmp_path / name, split="request")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


def test_the_seed_draws_another_split(trace: Path) -> None:
    one, two = (run(trace, split="request", said={"seed": seed})[0] for seed in (0, 1))
    assert one["split"]["fit_tokens"] != two["split"]["fit_tokens"]
