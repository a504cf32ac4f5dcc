"""Plans with a planted weakness, before the gate: each is told by the scenario that it is weak in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from easybalance_sim.gate.criteria import SCENARIOS, load_criteria
from easybalance_sim.gate.judge import judge
from easybalance_sim.gate.verdict import Verdict
from easybalance_sim.plan.planfile import read_plan
from easybalance_sim.planning.session import Settings
from easybalance_sim.verification import ReplayRequest, replay_plan
from tests.listeners import Heard
from tests.plan_runs import run
from tests.skewed_traces import skewed_counts
from tests.stress_cases import BALANCED, EXPERTS, OVERFITTED, kinds_trace, placed, stressed

SEED: dict[str, Any] = {"seed": 5}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stress")


@pytest.fixture(scope="module")
def trace(folder: Path) -> Path:
    return kinds_trace(folder / "kinds.parquet")


@pytest.fixture(scope="module")
def written(folder: Path) -> Path:
    return folder / "written.json"


@pytest.fixture(scope="module")
def made(trace: Path, written: Path) -> tuple[dict[str, Any], Verdict]:
    """Report and verdict of a greedy plan under stress; the plan is written."""
    return run(trace, said=SEED, split="request", stress=True, force=True, output=written, policies=("eplb",))


@pytest.fixture(scope="module")
def on_two_nodes(trace: Path) -> dict[str, Any]:
    said = {"ranks": 4, "ranks_per_node": 2, "slots_per_rank": 5}
    return run(trace, split="request", stress=True, policies=("eplb",), said=said)[0]


def case(report: dict[str, Any], scenario: str, name: str) -> dict[str, Any]:
    return next(one for one in report["stress"][scenario]["cases"] if one["name"] == name)


def test_a_plan_for_one_workload_fails_when_the_mix_changes(trace: Path, folder: Path) -> None:
    report, findings = stressed(trace, OVERFITTED, folder)
    failed = {name for name, finding in findings.items() if not finding.ok and name.startswith("stress")}
    assert {"stress.mix-change", "stress.burst", "stress.imbalance"} <= failed
    assert findings["p99_imbalance_drop_min"].ok and findings["p99_layer_time_growth_max"].ok
    assert "worst: rare" in findings["stress.mix-change"].note
    rare, usual = case(report, "mix-change", "rare"), case(report, "mix-change", "usual")
    assert rare["over_baseline"]["step_p99"] > 1.02 and usual["over_baseline"]["step_p99"] < 1


def test_a_plan_for_both_holds(trace: Path, folder: Path) -> None:
    report, findings = stressed(trace, BALANCED, folder)
    assert [name for name in findings if name.startswith("stress.") and not findings[name].ok] == []
    assert list(report["stress"]) == list(SCENARIOS)
    assert all(one["not_judged"] is None and one["cases"] for one in report["stress"].values())


def test_experts_that_only_a_lost_node_held_are_counted(trace: Path, folder: Path, tmp_path: Path) -> None:
    # Ranks 0 and 1 hold every expert once; the other node has nothing but copies of expert 0.
    one_node = placed(tuple(range(8)), tuple(range(8, 16)), (0,) * 8, (0,) * 8)
    cluster = tmp_path / "two.toml"
    cluster.write_text("ranks = 4\nranks_per_node = 2\nslots_per_rank = 8\n", encoding="utf-8")
    report, findings = stressed(trace, one_node, folder, cluster=cluster)
    first, second = case(report, "node-loss", "node 0"), case(report, "node-loss", "node 1")
    assert (first["plan"]["experts_lost"], second["plan"]["experts_lost"]) == (2 * (EXPERTS - 1), 0)
    assert first["plan"]["traffic_lost_frac"] > 0.7 and second["plan"]["traffic_lost_frac"] == 0
    assert first["plan"]["mend_bytes"] == 2 * (EXPERTS - 1) * report["model"]["expert_bytes"]
    assert first["baseline"]["experts_lost"] == second["baseline"]["experts_lost"] == EXPERTS
    lost = findings["stress.lost-experts"]
    assert lost.observed == (EXPERTS - 1) / EXPERTS and lost.ok and "node-loss" not in lost.note


def test_lost_experts_can_be_forbidden(trace: Path, folder: Path, tmp_path: Path) -> None:
    strict = tmp_path / "strict.toml"
    strict.write_text("stress_lost_experts_frac_max = 0.0\n", encoding="utf-8")
    single = stressed(trace, BALANCED, folder, criteria=strict)[1]["stress.lost-experts"]
    double = placed(*(tuple(range(8 * (rank % 2), 8 * (rank % 2) + 8)) for rank in range(4)))
    twice = stressed(trace, double, folder, criteria=strict)[1]["stress.lost-experts"]
    assert (single.ok, single.observed) == (False, 0.25) and (twice.ok, twice.observed) == (True, 0.0)


def test_a_plan_that_stacks_replicas_fails_under_uniform_routing(trace: Path, folder: Path) -> None:
    # Copies of the usual hot experts fill all ranks but one, which holds the twelve others.
    stacked = placed((0, 1, 2, 3), (0, 1, 2, 3), (0, 1, 2, 3), tuple(range(4, 16)))
    report, findings = stressed(trace, stacked, folder)
    uniform = case(report, "uniform", "uniform")
    assert uniform["plan"]["rank_imbalance"]["mean"] > 2.5 and uniform["baseline"]["rank_imbalance"]["mean"] < 1.05
    assert not findings["stress.uniform"].ok and findings["stress.uniform"].limit == 1.15


def test_either_plan_has_its_own_hottest_rank_slowed(trace: Path, folder: Path) -> None:
    report, _ = stressed(trace, OVERFITTED, folder)
    slow = case(report, "heterogeneous", "hottest rank")
    assert (slow["baseline"]["slowed"], slow["plan"]["slowed"]) == (0, 0)
    for side in ("baseline", "plan"):
        assert slow[side]["step_us"]["p99"] > report[side]["step_us"]["p99"]
        assert slow[side]["rank_imbalance"]["mean"] > report[side]["rank_imbalance"]["mean"]


def test_stress_is_the_same_every_time_and_of_the_seed(trace: Path, folder: Path) -> None:
    first, again = (stressed(trace, BALANCED, folder, seed=3)[0]["stress"] for _ in range(2))
    other = stressed(trace, BALANCED, folder, seed=4)[0]["stress"]
    assert first == again and first != other


def test_only_held_out_tokens_are_used(made: tuple[dict[str, Any], Verdict]) -> None:
    report, _ = made
    held = report["split"]["held_out_tokens"]
    assert all(one["tokens"] == held for one in report["stress"]["node-loss"]["cases"])
    assert report["stress"]["uniform"]["cases"][0]["tokens"] == held


def test_a_written_plan_meets_the_same_stress_again(
    trace: Path, written: Path, made: tuple[dict[str, Any], Verdict]
) -> None:
    report, _ = made
    request = ReplayRequest(settings=Settings(traces=(trace,), **SEED), plan=written, stress=True)
    again = replay_plan(request, Heard())[0]["stress"]
    for scenario in ("mix-change", "burst", "uniform"):
        assert again[scenario] == report["stress"][scenario]
    assert read_plan(written).evidence["stress"] == report["stress"]
    # What is mended, and what a plan that knows would be, hangs on the past load, which the plan file does not hold.
    assert case(report, "heterogeneous", "hottest rank")["knowing"]["step_us"]["p99"] > 0
    assert again["heterogeneous"]["cases"][0]["knowing"] is None


def test_without_stress_nothing_is_said_of_it(
    trace: Path, tmp_path: Path, made: tuple[dict[str, Any], Verdict]
) -> None:
    output = tmp_path / "plain.json"
    plain, verdict = run(trace, said=SEED, split="request", force=True, output=output, policies=("eplb",))
    with_it, judged = made
    assert "stress" not in plain and "stress" in with_it
    assert judged.findings[: len(verdict.findings)] == verdict.findings
    volatile = ("stress", "verdict", "fingerprint", "timing_s", "plan_file")
    assert {k: v for k, v in plain.items() if k not in volatile} == {
        k: v for k, v in with_it.items() if k not in volatile
    }


def test_the_gate_judges_a_saved_report_alike(made: tuple[dict[str, Any], Verdict]) -> None:
    report, verdict = made
    assert judge(json.loads(json.dumps(report)), load_criteria()) == verdict


def test_counts_say_what_they_can(tmp_path: Path) -> None:
    report, verdict = run(skewed_counts(tmp_path / "counts.parquet", 64), stress=True)
    assert verdict.status == "accepted"
    assert [one["name"] for one in report["stress"]["mix-change"]["cases"]] == ["left", "right"]
    assert [one["name"] for one in report["stress"]["burst"]["cases"]] == ["usual mix", "left", "right"]
    usual, burst = report["plan"]["step_us"]["p99"], case(report, "burst", "usual mix")["plan"]["step_us"]["p99"]
    assert burst > 1.2 * usual


def test_a_single_window_of_counts_holds_nothing_out(tmp_path: Path) -> None:
    report, verdict = run(skewed_counts(tmp_path / "one.parquet", 1), stress=True)
    assert verdict.status == "insufficient_evidence"
    assert {one["not_judged"] for one in report["stress"].values()} == {"nothing is held out"}


def test_a_single_rank_has_nothing_to_lose(trace: Path) -> None:
    report, _ = run(
        trace, split="request", stress=True, policies=("round_robin",), said={"ranks": 1, "slots_per_rank": EXPERTS}
    )
    for name in ("node-loss", "heterogeneous"):
        assert report["stress"][name]["not_judged"] == "a single rank has nobody to take its work"
    assert report["stress"]["burst"]["cases"]


def test_few_slots_grow_where_a_node_is_lost(on_two_nodes: dict[str, Any]) -> None:
    assert {one["slots_per_rank"] for one in on_two_nodes["stress"]["node-loss"]["cases"]} == {EXPERTS // 2}


def test_a_plan_that_knows_of_slow_ranks_evens_them_out(on_two_nodes: dict[str, Any]) -> None:
    cases = on_two_nodes["stress"]["heterogeneous"]["cases"]
    assert [one["name"] for one in cases] == ["hottest rank", "hottest node"]
    for one in cases:
        assert one["knowing"]["rank_imbalance"]["mean"] < one["plan"]["rank_imbalance"]["mean"] - 0.05
        assert one["knowing"]["rank_imbalance"]["mean"] >= one["lower_bound_imbalance"]
