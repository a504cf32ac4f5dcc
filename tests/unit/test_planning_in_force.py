"""Planning after a loss of ranks: what is in force then, what competes, and how moves are counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from easybalance_sim.errors import PlanError, UsageError
from easybalance_sim.plan.migration import resident
from easybalance_sim.plan.planfile import read_plan
from easybalance_sim.plan.survivors import surviving_ranks, survivors
from easybalance_sim.planning.in_force import open_in_force
from easybalance_sim.planning.request import PlanRequest
from easybalance_sim.planning.session import Settings
from easybalance_sim.policies import Effort
from tests.listeners import Heard
from tests.plan_runs import QUICK, run
from tests.skewed_traces import skewed_trace

NO_CLUSTER: dict[str, Any] = {"ranks": None, "slots_per_rank": None}


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return skewed_trace(tmp_path_factory.mktemp("in_force") / "skewed.parquet")


@pytest.fixture(scope="module")
def before(trace: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plan in force on 4 ranks × 6 slots."""
    path = tmp_path_factory.mktemp("before") / "plan.json"
    run(trace, said={"slots_per_rank": 6}, policies=("eplb",), output=path, force=True)
    return path


def after_loss(trace: Path, before: Path, *lost: int, said: Any = None, **more: Any) -> dict[str, Any]:
    heard = more.pop("heard", Heard())
    settings = {**NO_CLUSTER, **(said or {})}
    return run(trace, heard, said=settings, current=before, lost_ranks=lost, **more)[0]


def test_without_a_loss_the_plans_cluster_stands_in(trace: Path, before: Path) -> None:
    request = PlanRequest(settings=Settings(traces=(trace,)), current=before)
    session, parent = open_in_force(request, Heard())
    assert parent is not None and parent.left is None and session.held is None
    assert session.topology.slots_per_rank.tolist() == [6, 6, 6, 6]
    assert open_in_force(PlanRequest(settings=Settings(traces=(trace,))), Heard())[1] is None


def test_the_plan_for_the_survivors_knows_where_they_came_from(trace: Path, before: Path, tmp_path: Path) -> None:
    heard, output = Heard(), tmp_path / "new.json"
    report = after_loss(trace, before, 1, output=output, force=True, heard=heard)
    assert (report["cluster"]["ranks"], report["baseline"]["policy"]) == (3, "repair")
    doc, old = read_plan(output), read_plan(before)
    assert doc.parent_ranks == (0, 2, 3)
    assert (doc.generation, doc.parent_fingerprint) == (2, old.fingerprint())
    assert any(note.startswith("3 of 4 ranks are left; ") for note in heard.notes)
    assert "source ranks of the trace (4) do not fit 3 ranks: request mod R instead" in heard.notes


def test_moves_are_those_from_what_the_survivors_hold(trace: Path, before: Path, tmp_path: Path) -> None:
    output = tmp_path / "new.json"
    report = after_loss(trace, before, 1, output=output, force=True)
    left = survivors(read_plan(before).plan(), surviving_ranks(4, (1,)))
    lost = int(left.lost.sum())
    rows = {row["policy"]: row for row in report["candidates"]}
    assert "keep" not in rows and lost > 0 and rows["repair"]["moves"] == lost
    assert min(row["moves"] for row in rows.values()) == lost
    plan = read_plan(output).plan()
    assert report["migration"]["moves"] == int((resident(plan) & ~left.held).sum()) >= lost
    assert report["migration"]["bytes"] == report["migration"]["moves"] * report["model"]["expert_bytes"]


def test_a_limit_on_moves_counts_the_lost_experts(trace: Path, before: Path) -> None:
    left = survivors(read_plan(before).plan(), surviving_ranks(4, (1,)))
    lost = int(left.lost.sum())
    searched = after_loss(
        trace, before, 1, policies=("warm_search",), effort=Effort(proposals=20_000, max_moves=lost + 3)
    )
    assert lost <= searched["migration"]["moves"] <= lost + 3
    with pytest.raises(UsageError, match=f"--max-moves: {lost} experts must be fetched .* at most {lost - 1} may be"):
        after_loss(trace, before, 1, effort=Effort(max_moves=lost - 1))
    with pytest.raises(UsageError, match=r"--max-migration-bytes: .* experts must be fetched"):
        after_loss(trace, before, 1, max_migration_bytes=1)


def test_repair_alone_moves_only_what_was_lost(trace: Path, before: Path, tmp_path: Path) -> None:
    output = tmp_path / "new.json"
    report = after_loss(trace, before, 0, policies=("repair",), output=output, force=True)
    left = survivors(read_plan(before).plan(), surviving_ranks(4, (0,)))
    plan = read_plan(output).plan()
    layer, slot = np.nonzero(plan.expert_of_slot != left.expert_of_slot)
    assert left.lost[layer, plan.expert_of_slot[layer, slot]].all()
    assert report["migration"]["moves"] == int(left.lost.sum())


def test_more_slots_make_room(trace: Path, before: Path) -> None:
    with pytest.raises(UsageError, match=r"2 ranks that are left have 12 slots, too few for 16 .* --slots-per-rank 8"):
        after_loss(trace, before, 1, 2)
    report = after_loss(trace, before, 1, 2, said={"slots_per_rank": 9})
    assert (report["cluster"]["slots_per_rank"], report["baseline"]["slots"]) == (9, 16)


@pytest.mark.parametrize(
    ("lost", "more", "message"),
    [
        ((7,), {}, "--lost-ranks: there is no rank 7 — the plan has 0 to 3"),
        ((1,), {"current": None}, "--lost-ranks: without a plan in force there is nothing to lose"),
        ((1,), {"said": {"ranks": 3}}, "--lost-ranks: the cluster is what is left of the plan's"),
        ((1,), {"policies": ("keep",)}, "--policy keep: ranks were lost"),
    ],
)
def test_bad_losses(trace: Path, before: Path, lost: tuple[int, ...], more: dict[str, Any], message: str) -> None:
    settings = {**NO_CLUSTER, **more.pop("said", {})}
    with pytest.raises(UsageError, match=message):
        run(trace, said=settings, **{"current": before, "lost_ranks": lost, "effort": QUICK, **more})


def test_another_model_is_refused(before: Path, tmp_path: Path) -> None:
    from tests.phase_traces import phase_trace

    with pytest.raises(PlanError, match="the plan in force is for 2 layers × 16 experts, the trace has"):
        after_loss(phase_trace(tmp_path / "other.parquet", rounds=4), before, 1, said={"slots_per_rank": 12})


def test_a_plan_that_saw_what_is_held_out_is_pointed_out(trace: Path, before: Path) -> None:
    """`before` was fitted with a split by time: under the same split it saw nothing, under another it did."""
    for split, flattered in (("time", False), ("request", True)):
        heard = Heard()
        run(trace, heard, current=before, split=split, said=NO_CLUSTER, policies=("keep",), force=True)
        assert any("under another split" in note for note in heard.notes) == flattered
