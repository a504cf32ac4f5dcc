"""Two plans from one trace: each of its phase, with its own file and verdict, and what each is worth to the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from easybalance_sim.errors import UsageError
from easybalance_sim.phases import make_phase_plans, named_after, of_phase
from easybalance_sim.plan.planfile import read_plan
from easybalance_sim.planning.request import PlanRequest
from easybalance_sim.planning.session import Settings
from easybalance_sim.policies import Effort
from tests.json_reports import require_documented
from tests.listeners import Heard
from tests.phase_traces import phase_trace
from tests.skewed_traces import skewed_counts, skewed_trace

QUICK = Effort(proposals=5_000)


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return phase_trace(tmp_path_factory.mktemp("phases") / "two.parquet")


def request_of(trace: Path, *, said: Any = None, **more: Any) -> PlanRequest:
    """8 ranks × 5 slots, windows of 8 steps."""
    settings = Settings(traces=(trace,), **{"ranks": 8, "slots_per_rank": 5, "window_steps": 8, **(said or {})})
    return PlanRequest(settings=settings, **{"effort": QUICK, **more})


@pytest.fixture(scope="module")
def made(trace: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], int, Path]:
    output = tmp_path_factory.mktemp("plans") / "plan.json"
    report, code = make_phase_plans(request_of(trace, output=output), Heard())
    return report, code, output


def test_each_phase_has_its_own_evidence_cost_model_and_file(made: tuple[dict[str, Any], int, Path]) -> None:
    report, code, output = made
    assert code == 0 and list(report["phases"]) == ["prefill", "decode"]
    for phase, mode in (("prefill", "normal"), ("decode", "low_latency")):
        one, doc = report["phases"][phase], read_plan(named_after(output, phase))
        require_documented(one)
        assert (one["cost"]["phase"], one["cost"]["all_to_all"], one["split"]["phase"]) == (phase, mode, phase)
        assert one["plan_file"] == str(output.with_name(f"plan.{phase}.json"))
        assert (doc.phase, doc.fingerprint()) == (phase, one["fingerprint"])
    tokens = [report["phases"][phase]["split"] for phase in ("prefill", "decode")]
    assert [one["fit_tokens"] + one["held_out_tokens"] for one in tokens] == [20 * 8 * 2048, 20 * 16 * 32]
    assert sorted(path.name for path in output.parent.iterdir()) == ["plan.decode.json", "plan.prefill.json"]


def test_decode_pays_for_active_experts_and_prefill_for_tokens(made: tuple[dict[str, Any], int, Path]) -> None:
    """Two tokens per expert: a second replica is one more expert to read; 128 tokens: the hot ones are halved."""
    plans = {phase: one["plan"] for phase, one in made[0]["phases"].items()}
    balanced = {row["policy"]: row for row in made[0]["phases"]["decode"]["candidates"]}["eplb"]
    assert plans["decode"]["redundant_slots"] == 0 and plans["prefill"]["redundant_slots"] == 8
    assert balanced["fit_imbalance_p99"] < plans["decode"]["rank_imbalance"]["p99"]
    on = made[0]["cross"]["on"]
    active = {phase: on["decode"][phase]["active_experts_per_rank"]["mean"] for phase in on}
    assert active["decode"] < 0.8 * active["prefill"]
    assert on["decode"]["decode"]["layer_us"]["p99"] < 0.95 * on["decode"]["prefill"]["layer_us"]["p99"]
    assert on["prefill"]["prefill"]["rank_imbalance"]["p99"] < on["prefill"]["decode"]["rank_imbalance"]["p99"]
    assert on["prefill"]["prefill"]["layer_us"]["p99"] < on["prefill"]["decode"]["layer_us"]["p99"]


def test_the_comparison_repeats_each_plan_on_its_own_traffic(made: tuple[dict[str, Any], int, Path]) -> None:
    cross = made[0]["cross"]
    for phase, one in made[0]["phases"].items():
        own = cross["on"][phase][phase]
        assert own["policy"] == one["plan"]["policy"]
        assert own["layer_us"]["p99"] == one["plan"]["layer_us"]["p99"]
        assert own["rank_imbalance"]["mean"] == one["plan"]["rank_imbalance"]["mean"]
    assert 0 < cross["differing_experts"] < cross["placed_experts"] == 2 * 32


def test_the_worst_exit_code_counts_and_only_what_is_accepted_is_written(trace: Path, tmp_path: Path) -> None:
    """Decode has few steps when they are counted against this limit: no evidence; prefill is rejected."""
    criteria = tmp_path / "c.toml"
    criteria.write_text("held_out_steps_min = 100\np99_imbalance_drop_min = 0.999\n")
    request = request_of(trace, criteria=criteria, output=tmp_path / "plan.json", policies=("eplb",))
    report, code = make_phase_plans(request, Heard())
    status = {phase: one["verdict"]["status"] for phase, one in report["phases"].items()}
    assert (status, code) == ({"prefill": "insufficient_evidence", "decode": "rejected"}, 3)
    assert [path.name for path in tmp_path.iterdir()] == ["c.toml"]


def test_notes_of_both_phases_are_said_once(trace: Path) -> None:
    heard = Heard()
    make_phase_plans(request_of(trace, said={"ranks": 4, "slots_per_rank": 9}, policies=("eplb",)), heard)
    assert [note for note in heard.notes if "source ranks" in note] == [
        "source ranks of the trace (8) do not fit 4 ranks: request mod R instead"
    ]
    assert {label.partition(":")[0] for label in heard.stages} == {"prefill", "decode"}


def test_one_phase_makes_one_plan(tmp_path: Path) -> None:
    heard = Heard()
    path = skewed_trace(tmp_path / "decode.parquet")
    report, code = make_phase_plans(request_of(path, said={"ranks": 4}, policies=("eplb",)), heard)
    assert (list(report["phases"]), report["cross"], code) == (["decode"], None, 0)
    assert "the trace holds decode only: one plan" in heard.notes


def test_counts_have_phases_too(tmp_path: Path) -> None:
    path = skewed_counts(tmp_path / "counts.parquet", windows=40)
    report, _ = make_phase_plans(request_of(path, said={"ranks": 4}, policies=("eplb",)), Heard())
    assert [one["split"]["fit_windows"] for one in report["phases"].values()] == [10, 10]
    assert report["cross"]["on"]["prefill"]["decode"]["rank_imbalance"]["mean"] >= 1


def test_unknown_tokens_are_in_no_plan(tmp_path: Path) -> None:
    heard = Heard()
    path = phase_trace(tmp_path / "part.parquet", ("prefill", "unknown"))
    report, _ = make_phase_plans(request_of(path, policies=("eplb",)), heard)
    assert list(report["phases"]) == ["prefill"]
    assert "10,240 tokens of unknown phase are in no plan" in heard.notes
    path = phase_trace(tmp_path / "unknown.parquet", ("unknown", "unknown"), rounds=2)
    with pytest.raises(UsageError, match="--per-phase: the trace does not say which tokens are prefill"):
        make_phase_plans(request_of(path), Heard())


def test_a_refused_phase_is_named(trace: Path) -> None:
    with pytest.raises(UsageError, match=r"^prefill: --policy keep: no plan is in force"):
        make_phase_plans(request_of(trace, policies=("keep",)), Heard())
    with pytest.raises(UsageError, match="--per-phase: plans for both phases — leave out --phase"):
        make_phase_plans(request_of(trace, said={"phase": "decode"}), Heard())


def test_the_plan_in_force_is_that_of_the_phase_where_there_is_one(trace: Path, tmp_path: Path) -> None:
    shared = tmp_path / "now.json"
    own = tmp_path / "now.decode.json"
    own.write_text("")
    request = request_of(trace, current=shared, output=tmp_path / "new")
    assert [of_phase(request, phase).current for phase in ("prefill", "decode")] == [shared, own]
    assert of_phase(request, "decode").output == tmp_path / "new.decode"
    assert of_phase(request_of(trace), "decode").current is None
