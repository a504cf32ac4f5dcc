"""`make_plan` with searches: what competes, what is balanced, and which limits on moves and time are kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from easybalance_sim import policies
from easybalance_sim.cluster.topology import uniform
from easybalance_sim.errors import UsageError
from easybalance_sim.plan.migration import moving_slots
from easybalance_sim.plan.plan import Plan
from easybalance_sim.plan.planfile import document, read_plan, write_plan
from easybalance_sim.plan.relabel import nearest_to
from easybalance_sim.planning import candidates
from easybalance_sim.policies import Effort, Problem
from tests.listeners import Heard
from tests.plan_runs import run
from tests.skewed_traces import EXPERTS, HOT, LAYERS, skewed_columns, skewed_meta, skewed_trace
from tests.trace_files import joined, take, write_trace


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return skewed_trace(tmp_path_factory.mktemp("pipeline") / "skewed.parquet")


@pytest.fixture(scope="module")
def topics(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace whose workloads take turns: blocks of 40 steps have only `left` or only `right` requests."""
    columns, turned = skewed_columns(640), skewed_columns(640, seed=1, hot={"left": HOT["left"]})
    other = skewed_columns(640, seed=2, hot={"right": HOT["right"]})
    block = columns["step"] // 40 % 4
    parts = [take(columns, block % 2 == 0), take(turned, block == 1), take(other, block == 3)]
    whole = joined(parts)
    return write_trace(
        tmp_path_factory.mktemp("topics") / "t.parquet",
        take(whole, np.argsort(whole["step"], kind="stable")),
        skewed_meta(),
    )


@pytest.fixture(scope="module")
def in_force(topics: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("in_force") / "plan.json"
    run(topics, output=path, policies=("contiguous",), force=True)
    return path


def row_of(report: dict[str, Any], policy: str) -> dict[str, Any]:
    return next(row for row in report["candidates"] if row["policy"] == policy)


def test_a_search_competes_and_balances_the_fit_windows_best(topics: Path) -> None:
    report, _ = run(topics, policies=("eplb", "window_search"))
    searched, greedy = row_of(report, "window_search"), row_of(report, "eplb")
    assert searched["fit_imbalance_p99"] - 1 < 0.7 * (greedy["fit_imbalance_p99"] - 1)
    held = [run(topics, policies=(name,))[0]["plan"]["rank_imbalance"] for name in ("window_search", "eplb")]
    assert held[0]["p99"] < held[1]["p99"] and held[0]["mean"] < held[1]["mean"]


def test_requests_are_queued_again_only_when_a_search_is_asked(topics: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int | None] = []
    real = policies.make

    def noting(name: str, problem: Problem) -> Plan:
        seen.append(None if problem.rebatched is None else len(problem.rebatched))
        return real(name, problem)

    monkeypatch.setattr(policies, "make", noting)
    run(topics, policies=("round_robin",))
    assert set(seen) == {None}
    seen.clear()
    run(topics, policies=("window_search",))
    assert (seen[0] or seen[1] or 0) >= 8


MEASURED = {"hidden": 7168, "intermediate": 2048, "weight_dtype": "fp8_block"}


@pytest.mark.parametrize(
    ("widths", "objective", "seconds"),
    [(MEASURED, "auto", True), (MEASURED, "tokens", False), ({}, "auto", False), ({}, "seconds", True)],
)
def test_a_search_balances_seconds_where_they_are_calibrated_or_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, widths: dict[str, Any], objective: str, seconds: bool
) -> None:
    path = skewed_trace(tmp_path / "t.parquet", meta=skewed_meta(**widths))
    seen: list[Problem] = []
    real = policies.make

    def noting(name: str, problem: Problem) -> Plan:
        seen.append(problem)
        return real(name, problem)

    monkeypatch.setattr(policies, "make", noting)
    run(path, policies=("eplb",), objective=objective)
    cost = seen[0].slot_cost
    assert (cost is not None) == seconds
    # 3 tokens per slot, fewer than a tile: the weights are nearly all that counts.
    assert cost is None or cost.active_s > 10 * cost.token_s > 0
    assert seen[0].window_steps == 16.0


def test_with_a_plan_in_force_ranks_are_renamed_to_move_less(
    topics: Path, in_force: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, found = read_plan(in_force).plan(), {}
    for name, rename in (("renamed", nearest_to), ("as made", lambda old, new, kind: new)):
        monkeypatch.setattr(candidates, "nearest_to", rename)
        report, _ = run(topics, current=in_force, output=tmp_path / "p.json", policies=("eplb",), force=True)
        found[name] = report, read_plan(tmp_path / "p.json").plan()
    renamed, made = found["renamed"], found["as made"]
    assert renamed[0]["migration"]["moves"] < made[0]["migration"]["moves"]
    assert renamed[0]["plan"]["rank_imbalance"]["mean"] == pytest.approx(
        made[0]["plan"]["rank_imbalance"]["mean"], abs=0.01
    )
    stays = ~moving_slots(old, renamed[1])
    ranks = renamed[1].rank_of_slot
    for layer, slot in np.argwhere(stays):
        position = slot - renamed[1].slot_start[ranks[slot]]
        had = old.expert_of_slot[layer, old.rank_of_slot == ranks[slot]]
        assert position >= len(had) or had[position] == renamed[1].expert_of_slot[layer, slot]


def test_plans_with_uneven_slots_are_compared_to_the_plan_in_force(trace: Path, tmp_path: Path) -> None:
    """16 experts on 3 ranks: 6, 5 and 5 slots without redundancy; such ranks cannot exchange their experts."""
    said = {"ranks": 3, "slots_per_rank": 7}
    run(trace, output=tmp_path / "a.json", said=said, policies=("contiguous",), force=True)
    report, _ = run(trace, current=tmp_path / "a.json", said=said)
    assert row_of(report, "eplb_no_redundancy")["slots"] == EXPERTS


@pytest.mark.parametrize("most", [0, 3, 8])
def test_a_limit_on_moves_is_kept(topics: Path, in_force: Path, most: int) -> None:
    report, _ = run(topics, current=in_force, effort=Effort(proposals=10_000, max_moves=most))
    assert report["migration"]["moves"] <= most
    kept, warm = row_of(report, "keep"), row_of(report, "warm_search@0.0035")
    assert kept["moves"] == 0 and warm["moves"] <= most < row_of(report, "eplb")["moves"]
    assert warm["fit_imbalance_mean"] < kept["fit_imbalance_mean"] - 0.025 * most or most == 0


def test_a_limit_on_bytes_is_one_on_moves(topics: Path, in_force: Path) -> None:
    size = run(topics, policies=("eplb",))[0]["model"]["expert_bytes"]
    report, _ = run(topics, current=in_force, max_migration_bytes=5 * size + 1)
    assert report["plan"]["policy"].startswith("warm_search@")
    assert 0 < report["migration"]["bytes"] <= 5 * size
    both, _ = run(topics, current=in_force, max_migration_bytes=5 * size, effort=Effort(proposals=10_000, max_moves=2))
    assert both["migration"]["moves"] <= 2


@pytest.mark.parametrize(
    ("limit", "flag"),
    [({"effort": Effort(max_moves=1)}, "--max-moves"), ({"max_migration_bytes": 10}, "--max-migration-bytes")],
)
def test_a_limit_that_no_asked_plan_keeps_is_refused(
    topics: Path, in_force: Path, limit: dict[str, Any], flag: str
) -> None:
    with pytest.raises(UsageError, match=rf"{flag}: every plan moves more; the fewest moves are \d+ \(\d+ bytes\)"):
        run(topics, current=in_force, policies=("eplb",), **limit)
    with pytest.raises(UsageError, match=f"{flag}: there are no moves without a plan in force"):
        run(topics, **limit)


def test_a_budget_of_time_still_gives_a_plan(topics: Path) -> None:
    report, _ = run(topics, policies=("window_search",), effort=Effort(budget_s=1e-6))
    assert report["plan"]["policy"] == "window_search"
    assert report["plan"]["rank_imbalance"]["mean"] < report["baseline"]["rank_imbalance"]["mean"]


def test_a_plan_in_force_with_an_expert_twice_on_a_rank_can_be_replaced(trace: Path, tmp_path: Path) -> None:
    run(trace, output=tmp_path / "eplb.json", policies=("eplb",), force=True)
    doc = read_plan(tmp_path / "eplb.json")
    rows = np.array(doc.plan().expert_of_slot)
    spare = int(np.flatnonzero(doc.plan().replicas[0, rows[0]] > 1)[0])
    neighbour = spare + 1 if spare % 5 == 0 else spare - 1
    rows[0, spare] = rows[0, neighbour]
    doubled = Plan(expert_of_slot=rows, slots_per_rank=np.full(4, 5), experts=EXPERTS, policy="theirs")
    evidence: dict[str, Any] = {name: {} for name in ("evidence", "verdict", "migration")}
    write_plan(
        tmp_path / "twice.json",
        document(doubled, layer_ids=LAYERS, topology=uniform(4, 8, 5), trace=doc.trace, dispatch="even", **evidence),
    )
    heard = Heard()
    report, _ = run(trace, heard, current=tmp_path / "twice.json")
    assert any("an expert twice on a rank" in note for note in heard.notes)
    assert report["plan"]["policy"] != "keep"
