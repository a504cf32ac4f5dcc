"""The whole what-if on small traffic with known topics."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from easybalance_sim.cluster.topology import uniform
from easybalance_sim.errors import UsageError
from easybalance_sim.plan.plan import Plan
from easybalance_sim.simulate.admission.admit import Rule
from easybalance_sim.simulate.admission.knowledge import KINDS, know
from easybalance_sim.simulate.admission.requests import requests_of, split_sides
from easybalance_sim.simulate.admission.run import STAGES, Answer, Question, what_if
from easybalance_sim.simulate.admission.topics import fit_topics
from tests.admission_cases import course, crowd

QUESTION = Question(
    course=course(uniform(4, 2, 4)), mode="low_latency", topics=4, first_tokens=2, knowledge=KINDS,
    rules=(Rule(slack=1.0),), proposals=2000,
)  # fmt: skip


@pytest.fixture(scope="module")
def answer() -> Answer:
    told: list[int] = []
    found = what_if(crowd(11, requests=240), QUESTION, told.append)
    assert sum(told) == STAGES
    return found


def test_every_variant_is_there_or_excused(answer: Answer) -> None:
    names = [one.name for one in answer.variants]
    assert names[0] == "eplb, request mod R"
    assert names[-4:] == [f"joint, {kind}" for kind in KINDS]
    assert "traffic_search, request mod R" in names
    assert answer.notes == ("eplb_hierarchical, request mod R: the router has no expert groups",) or any(
        note.startswith("eplb_hierarchical") for note in answer.notes
    )


def test_affinity_saves_copies_of_unseen_requests(answer: Answer) -> None:
    """Four topics, each with experts of its own, on two nodes without room for replicas."""
    base = answer.variants[0]
    alone = answer.variant("traffic_search, request mod R")
    for kind in ("probe", "topic"):
        assert answer.variant(f"joint, {kind}").cut(base, "low_latency") > alone.cut(base, "low_latency") + 0.05
    by_label, by_chunk = (answer.variant(f"joint, {kind}") for kind in ("workload", "chunk"))
    assert by_label.cut(base, "low_latency") > max(0.25, by_chunk.cut(base, "low_latency"))


def test_prices_are_those_of_the_admission(answer: Answer) -> None:
    for one in answer.variants:
        cold = one.price.cold
        if one.policy != "joint" or one.admission == "workload":
            assert (cold.tokens_per_request, cold.moved_share, cold.waited_steps) == (0, 0, 0)
        else:
            assert cold.moved_share > 0 and cold.recomputed_share > 0
        if one.policy == "joint":
            assert one.price.worst_overload <= 2.0 + 1e-9
    probe, chunk = (answer.variant(f"joint, {kind}").price.cold for kind in ("probe", "chunk"))
    assert probe.tokens_per_request == 2.0 < chunk.tokens_per_request
    # The first chunk is all of the prompt: nothing waits for its routing.
    assert (probe.waited_steps, chunk.waited_steps) == (1, 0)


def test_the_answer_is_json(answer: Answer) -> None:
    found = json.loads(json.dumps(answer.to_dict()))
    assert found["requests"] + found["fit_requests"] == 240
    first = found["variants"][0]
    assert first["fewer_copies"] == {"normal": 0.0, "low_latency": 0.0} and first["window_p99_difference"] == 0.0
    assert found["variants"][-1]["rule"] == {"slack": 1.0, "price": 0.25}


def test_the_same_question_has_the_same_answer() -> None:
    ask = replace(QUESTION, knowledge=("probe",), proposals=300)
    one, again = (what_if(crowd(12), ask).to_dict() for _ in range(2))
    assert one == again


def test_one_node_leaves_nothing_to_cross() -> None:
    found = what_if(crowd(13), replace(QUESTION, course=course(uniform(4, 4, 6)), knowledge=("probe",)))
    assert any("one node" in note for note in found.notes)
    assert all(one.judged.crossing["normal"].copies_per_token == 0 for one in found.variants)


def test_requests_can_be_sent_to_ranks() -> None:
    ask = replace(QUESTION, course=course(uniform(4, 4, 6)), grain="rank", knowledge=("workload",), proposals=2000)
    found = what_if(crowd(14, requests=200), ask)
    base, joint = found.variants[0], found.variant("joint, workload")
    one, other = (each.judged.crossing["low_latency"].rank_copies_per_token for each in (joint, base))
    assert one < other


def test_what_cannot_be_asked() -> None:
    for change, fault in (
        ({"mode": "nccl"}, "no mode"), ({"grain": "rack"}, "no grain"), ({"topics": 0}, "at least one"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=fault):
            replace(QUESTION, **change)


def test_workloads_that_are_not_told_apart() -> None:
    steps = crowd(15)
    plain = replace(steps, workload=np.zeros_like(steps.workload))
    found = what_if(plain, replace(QUESTION, knowledge=("workload",), proposals=300))
    assert any("no workloads apart" in note for note in found.notes)
    assert all(one.purity is None for one in found.known)


def test_unknown_knowledge() -> None:
    sides = split_sides(crowd(16), "request")
    past, unseen = ((side, requests_of(side)) for side in (sides.fit, sides.judged))
    with pytest.raises(UsageError, match="'oracle'"):
        know("oracle", fit_topics(*past, 2), 2, past, unseen)


def test_a_topic_without_past_costs_the_same_everywhere() -> None:
    """A workload that was never seen has no home."""
    sides = split_sides(crowd(17), "request", 0.5)
    past, unseen = ((side, requests_of(side)) for side in (sides.fit, sides.judged))
    new = replace(unseen[1], workload=np.full(len(unseen[1]), 9, np.int16))
    mind = know("workload", fit_topics(*past, 2), 2, past, (unseen[0], new))
    plan = Plan(
        expert_of_slot=np.tile(np.arange(16), (2, 1)), slots_per_rank=np.full(4, 4), experts=16, policy="by hand"
    )
    cost = mind.cost(mind.unseen, plan, np.array([0, 0, 1, 1]))
    assert cost.shape == (len(new), 2) and (cost == 0).all()
    assert mind.cost(mind.past, plan, np.array([0, 0, 1, 1])).any()
