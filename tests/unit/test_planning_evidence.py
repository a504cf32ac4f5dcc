"""The report: its keys, and what they are made of."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from easybalance_sim.gate.criteria import load_criteria
from easybalance_sim.load.split import FIT, HELD_OUT
from easybalance_sim.plan.plan import Plan
from easybalance_sim.planning.evidence import Stopwatch, assemble, migration_between, with_verdict
from easybalance_sim.planning.session import Session, Settings, open_session
from tests.listeners import Heard
from tests.skewed_traces import EXPERTS, LAYERS, skewed_counts, skewed_trace

WINDOWS = {"fit_windows": 4, "held_out_windows": 4, "held_out_steps": 64, "fit_steps": 64}


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Session:
    path = skewed_trace(tmp_path_factory.mktemp("evidence") / "skewed.parquet", steps=128)
    return open_session(Settings(traces=(path,), ranks=4, ranks_per_node=2, slots_per_rank=5), Heard())


def contiguous() -> Plan:
    return _plan([*range(EXPERTS)], 4, "contiguous")


def dealt() -> Plan:
    """Experts dealt to the ranks in turn, and one replica more on each rank."""
    slots = [expert for rank in range(4) for expert in (*range(rank, EXPERTS, 4), (rank + 1) % 4)]
    return _plan(slots, 5, "dealt")


def _plan(slots: list[int], per_rank: int, policy: str) -> Plan:
    return Plan(
        expert_of_slot=np.array([slots] * len(LAYERS)),
        slots_per_rank=np.full(4, per_rank),
        experts=EXPERTS,
        policy=policy,
    )


def report_of(session: Session, before: Plan, after: Plan, floor: Plan | None = None) -> dict[str, Any]:
    traffic = session.traffic("time", 0.5, 0)
    first, second, least = traffic.replay([before, after, floor or after], HELD_OUT, session.bench)
    report = assemble(session, traffic, first, second, least, {**traffic.describe_split(), **WINDOWS})
    report["fit"] = None
    return report


def test_tokens_of_the_fit_are_not_called_held_out(session: Session) -> None:
    traffic = session.traffic("time", 0.5, 0)
    (outcome,) = traffic.replay([contiguous()], FIT, session.bench)
    split = {**WINDOWS, "held_out_windows": 0, "held_out_steps": 0}
    report = assemble(session, traffic, outcome, outcome, outcome, split)
    assert outcome.tokens > 0 and report["split"]["held_out_tokens"] == 0


def numbers(value: Any) -> Iterator[float]:
    if isinstance(value, dict):
        for inner in value.values():
            yield from numbers(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from numbers(inner)
    elif isinstance(value, float):
        yield value


def test_a_report_describes_the_run_with_finite_numbers(session: Session) -> None:
    report = report_of(session, contiguous(), dealt())
    assert all(math.isfinite(value) for value in numbers(report))
    trace = report["trace"]
    assert (trace["kind"], trace["tokens"], trace["steps"], trace["layers"]) == ("tokens", 4096, 128, 2)
    assert (trace["experts"], trace["top_k"], trace["fingerprint"]) == (16, 2, session.trace_fingerprint)
    assert report["cluster"] == {"ranks": 4, "nodes": 2, "slots_per_rank": 5, "slots": 20, "profile": "h200"}
    assert report["cost"]["all_to_all"] == "low_latency" and report["cost"]["expected_values"] is False
    assert report["split"]["held_out_tokens"] == 64 * 32
    assert (report["baseline"]["policy"], report["plan"]["policy"]) == ("contiguous", "dealt")
    assert (report["plan"]["slots"], report["plan"]["redundant_slots"]) == (20, 4)


def test_the_share_of_the_possible_gain(session: Session) -> None:
    report = report_of(session, contiguous(), dealt())
    before, after = (report[side]["rank_imbalance"]["mean"] for side in ("baseline", "plan"))
    possible = before - report["plan"]["lower_bound_per_window"]["mean"]
    assert 0 < report["gain"]["share_of_possible"] < 1
    assert report["gain"]["share_of_possible"] == pytest.approx((before - after) / possible, abs=1e-3)
    worse = report_of(session, dealt(), contiguous())
    assert worse["gain"]["share_of_possible"] < 0


def test_the_share_of_what_a_plan_made_for_the_traffic_gains(session: Session) -> None:
    report = report_of(session, contiguous(), contiguous(), floor=dealt())
    assert (report["floor"]["policy"], report["gain"]["share_of_floor"]) == ("dealt", 0)
    assert report["floor"]["rank_imbalance"] == report_of(session, contiguous(), dealt())["plan"]["rank_imbalance"]
    assert report_of(session, contiguous(), dealt())["gain"]["share_of_floor"] == 1


def test_a_plan_against_itself_moves_nothing_and_gains_nothing(session: Session) -> None:
    report = report_of(session, contiguous(), contiguous())
    assert report["migration"] == dict(migration_between(session, contiguous(), contiguous()))
    assert (report["migration"]["moves"], report["migration"]["bytes"], report["migration"]["seconds"]) == (0, 0, 0)
    assert report["gain"]["share_of_possible"] == 0
    assert report["baseline"] == report["plan"]


def test_nothing_is_possible_on_one_rank(tmp_path: Path) -> None:
    path = skewed_trace(tmp_path / "t.parquet", steps=64)
    alone = open_session(Settings(traces=(path,), ranks=1), Heard())
    plan = Plan(
        expert_of_slot=np.array([[*range(EXPERTS)]] * 2),
        slots_per_rank=np.array([EXPERTS]),
        experts=EXPERTS,
        policy="x",
    )
    assert report_of(alone, plan, plan)["gain"]["share_of_possible"] is None


def test_migration_costs_the_bytes_of_the_model(session: Session) -> None:
    moved = migration_between(session, contiguous(), dealt())
    assert moved["bytes"] == moved["moves"] * session.shape.expert_bytes
    assert moved["seconds"] > 0


def test_counts_are_said_to_be_expected_values(tmp_path: Path) -> None:
    path = skewed_counts(tmp_path / "c.parquet", windows=8)
    counts = open_session(Settings(traces=(path,), ranks=4, slots_per_rank=5), Heard())
    report = report_of(counts, contiguous(), dealt())
    assert report["cost"]["expected_values"] is True
    assert (report["trace"]["kind"], report["trace"]["tokens"], report["trace"]["steps"]) == ("counts", 32000, 8)


def test_the_verdict_stands_in_the_report(session: Session) -> None:
    report, verdict = with_verdict(report_of(session, contiguous(), dealt()), load_criteria())
    assert verdict.status == "insufficient_evidence"
    assert report["verdict"] == verdict.to_dict()
    assert {finding.criterion for finding in verdict.failed} >= {"held_out_windows_min", "fit_windows_min"}


def test_a_stopwatch_adds_up_its_laps(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([10.0, 11.5, 11.75])
    monkeypatch.setattr("easybalance_sim.planning.evidence.time.perf_counter", lambda: next(times))
    clock = Stopwatch()
    clock.lap("read")
    clock.lap("replay")
    assert clock.laps() == {"read": 1.5, "replay": 0.25, "total": 1.75}
