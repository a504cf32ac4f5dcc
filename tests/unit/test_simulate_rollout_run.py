from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from easybalance_sim.cluster.shapes import load_shape
from easybalance_sim.cluster.topology import uniform
from easybalance_sim.errors import UsageError
from easybalance_sim.plan import planfile
from easybalance_sim.plan.plan import Plan
from easybalance_sim.plan.planfile import write_plan
from easybalance_sim.simulate.rollout import explore as exploring
from easybalance_sim.simulate.rollout.faults import FAULTS
from easybalance_sim.simulate.rollout.run import OK, REFUSED, UNFINISHED, Request, faults_of, like, simulate_rollout
from tests.listeners import Heard
from tests.plan_documents import example_document

SMALL = {"ranks": 2, "steps": 1, "walks": 3, "faults": ()}
GATED = {"model": {"expert_bytes": 10**9, "assumed": False}}


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "plan.json"
    write_plan(path, example_document())
    return path


def run(plan: Path, heard: Heard | None = None, **flags: Any) -> tuple[dict[str, Any], int]:
    return simulate_rollout(Request(plan=plan, **{**SMALL, **flags}), heard or Heard())


def test_a_safe_rollout(plan: Path) -> None:
    heard = Heard()
    report, code = run(plan, heard, walks=10)
    assert (code, report["outcome"]) == (OK, {"status": "safe", "reason": "no order of events breaks an invariant"})
    assert report["current"] is None and report["plan"]["generation"] == 1
    assert set(report["plan"]["layer_checksums"]) == {"3", "4"}
    assert report["walks"]["published"] > 0 and report["walks"]["ranks"] == 2
    assert [one["fault"] for one in report["explored"]] == ["none"]
    assert heard.notes == [
        "no plan in force given: ranks hold the engine's own placement, experts in order",
        "model 'example-moe' is not known: bytes and seconds are left out (say --model)",
    ]
    assert heard.stages == ["exploring every order of events", "walking through random orders"]


def test_each_fault_alone_then_together(plan: Path) -> None:
    report, _ = run(plan, faults=FAULTS[:3], together=True, walks=0)
    rows = [(one["fault"], one["faults"], one["most_faults"]) for one in report["explored"]]
    assert rows == [
        ("none", [], 0),
        *((fault, [fault], 1) for fault in FAULTS[:3]),
        ("any two of them", list(FAULTS[:3]), 2),
        ("all of them", list(FAULTS[:3]), 3),
    ]
    states = [one["states"] for one in report["explored"]]
    assert min(states[1:]) > states[0] and states[-1] > max(states[1:4])


@pytest.mark.parametrize("together", [False, True])
def test_two_faults_together_are_looked_at_once(plan: Path, together: bool) -> None:
    report, _ = run(plan, faults=FAULTS[:2], together=together, walks=0)
    label = "all of them" if together else "any two of them"
    assert [one["fault"] for one in report["explored"]] == ["none", *FAULTS[:2], label]


def test_what_cannot_happen_in_place_is_left_out(plan: Path) -> None:
    report, _ = run(plan, faults=("staging-too-small",), in_place=True)
    assert [one["fault"] for one in report["explored"]] == ["none"]


@pytest.mark.parametrize("part", ["verify", "drain"])
def test_a_part_that_is_left_out_is_missed(part: str, plan: Path) -> None:
    report, code = run(plan, without=frozenset([part]), walks=20)
    (one,) = report["explored"]
    assert (code, report["outcome"]["status"]) == (REFUSED, "unsafe")
    assert one["violation"] == report["outcome"]["reason"] != "" and len(one["history"]) > 3
    assert report["protocol"]["left_out"] == [part]


def test_random_orders_alone_can_break_it(plan: Path) -> None:
    """Nothing goes wrong in one step of the small group, on the plan's ranks it does."""
    report, code = run(plan, without=frozenset(["drain"]), ranks=1, walks=40, steps=3)
    walks = report["walks"]
    assert code == REFUSED and walks["violation"] and walks["history"]
    again, _ = run(plan, without=frozenset(["drain"]), ranks=1, walks=1, steps=3, seed=walks["violating_seed"])
    assert again["walks"]["history"] == walks["history"]


def _with_memory(plan: Path, experts: float) -> Path:
    """The plan on GPUs that hold so many experts of one GB; it fills six and stages three, or two layer by layer."""
    document = msgspec.structs.replace(example_document(), evidence=GATED)
    topology = msgspec.structs.replace(document.topology, hbm_bytes=int(experts * 1e9 / 0.9))
    write_plan(plan, msgspec.structs.replace(document, topology=topology))
    return plan


@pytest.mark.parametrize(
    ("experts", "in_place", "code", "best"),
    [(9.1, False, OK, "whole"), (8.5, False, OK, "by-layer"), (7.5, False, REFUSED, "in-place"),
     (7.5, True, OK, "in-place"), (5.5, True, REFUSED, "in-place")],
)  # fmt: skip
def test_memory_is_a_fact(experts: float, in_place: bool, code: int, best: str, plan: Path) -> None:
    report, found = run(_with_memory(plan, experts), in_place=in_place)
    assert (found, report["facts"]["best_way"]) == (code, best)
    if code:
        assert report["outcome"]["status"] == "does-not-fit"
        assert ("--in-place" in report["outcome"]["reason"]) != in_place and "500.0 MB are missing" in str(report)


def test_an_unfinished_exploration_is_no_proof(plan: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    explore = exploring.explore
    monkeypatch.setattr(
        "easybalance_sim.simulate.rollout.run.explore", lambda start, how: explore(start, how, most_states=10)
    )
    report, code = run(plan)
    assert (code, report["outcome"]["status"], report["explored"][0]["finished"]) == (UNFINISHED, "unfinished", False)


def test_plans_that_were_not_made_for_each_other_are_told(plan: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.json"
    write_plan(new, example_document(parent=msgspec.structs.replace(example_document(), policy="another")))
    heard = Heard()
    report, _ = run(new, heard, current=plan)
    assert "the plan was made to replace" in heard.notes[0] and heard.notes[0].endswith(f"not {plan}")
    assert report["current"]["policy"] == "eplb" and report["facts"]["experts"] == 0


def test_layers_that_the_plan_lacks_are_told(tmp_path: Path) -> None:
    eight = Plan(
        expert_of_slot=np.tile(np.arange(8), (2, 1)), slots_per_rank=np.array([4, 4]), experts=8, policy="contiguous"
    )
    document = example_document()
    made = {name: getattr(document, name) for name in ("dispatch", "evidence", "verdict", "migration", "trace")}
    path, heard = tmp_path / "eight.json", Heard()
    write_plan(
        path, planfile.document(eight, layer_ids=(3, 4), topology=uniform(2, 2, 4), model="mixtral-8x7b", **made)
    )
    report, _ = run(path, heard)
    assert heard.notes[1].startswith("the plan has 2 of the model's 32 MoE layers: ")
    assert (report["facts"]["experts"], report["facts"]["expert_bytes"]) == (0, load_shape("mixtral-8x7b").expert_bytes)
    with pytest.raises(UsageError, match="model deepseek-v3 has 256 experts, the plan 8"):
        run(path, model="deepseek-v3")


def test_faults_by_name() -> None:
    assert (faults_of("pairs"), faults_of("all"), faults_of("none")) == (FAULTS, FAULTS, ())
    assert faults_of("rank-restarts,load-fails,rank-restarts") == ("rank-restarts", "load-fails")
    for text in ("fire", "load-fails,", ""):
        with pytest.raises(UsageError, match=r"--faults: '.*' is no fault — pairs, all, none or load-fails, "):
            faults_of(text)


@pytest.mark.parametrize(
    ("loads", "expected"),
    [
        ([True] * 8, (True, True, True)),
        ([False] * 8, (False, False, False)),
        ([True] * 7 + [False], (True, True, False)),
        ([False] * 7 + [True], (True, False, False)),
        ([True, False], (True, True, False)),
    ],
)
def test_a_small_group_is_like_the_large_one(loads: list[bool], expected: tuple[bool, ...]) -> None:
    assert like(loads, 3) == expected
    assert like(loads, 1) == (sum(loads) / len(loads) > 0.5,)


def test_requests_say_how_the_group_behaves() -> None:
    request = replace(Request(plan=Path("x")), in_place=True, without=frozenset(["drain"]), in_flight=1)
    behaviour = request.behaviour(2)
    assert (behaviour.staging, behaviour.in_flight, behaviour.steps, behaviour.without) == (
        False,
        1,
        2,
        frozenset(["drain"]),
    )
