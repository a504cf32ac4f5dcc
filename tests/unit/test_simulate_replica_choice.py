"""Replica choice on numbers worked by hand, and what a comparison says."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from easybalance_sim.arrays import AnyArray, frozen
from easybalance_sim.cluster.hardware import load_profile
from easybalance_sim.cluster.shapes import assumed_shape
from easybalance_sim.cluster.topology import Topology, uniform
from easybalance_sim.cost.layer import LayerCost, layer_cost
from easybalance_sim.errors import UsageError
from easybalance_sim.plan.plan import Plan
from easybalance_sim.replay.dispatch import prepare
from easybalance_sim.replay.engine import links
from easybalance_sim.simulate.replica_choice import sending
from easybalance_sim.simulate.replica_choice.budget import SOURCES, budget
from easybalance_sim.simulate.replica_choice.choose import Settings, choose, replicas_apart, seen_counts
from easybalance_sim.simulate.replica_choice.compare import Comparison, Request, compare
from easybalance_sim.simulate.replica_choice.rules import DEFAULT, RULES, SENSORS
from easybalance_sim.simulate.replica_choice.sensor import gather_s, sensor_s
from easybalance_sim.simulate.steps.recorded import RecordedSteps
from tests.staggering_steps import steps_of

CHAIN = Plan(
    expert_of_slot=np.array([[0, 2, 0, 1, 1, 3]]), slots_per_rank=np.array([2, 2, 2]), experts=4, policy="chain"
)
"""Expert 0 on ranks 0 and 1, expert 1 on ranks 1 and 2, expert 2 on rank 0 alone, expert 3 on rank 2 alone."""


def taken(rule: str, counts: list[int], plan: Plan = CHAIN, **settings: int) -> list[int]:
    """Assignments of each slot, one step of one layer."""
    took: list[int] = choose(np.array([[counts]]), plan, rule, Settings(**settings)).took[0, 0].tolist()
    return took


def test_least_loaded_takes_the_hottest_expert_first() -> None:
    # Expert 0 finds three empty ranks, expert 1 a rank with 3: it levels at 4 and 5, the odd one to the first slot.
    assert taken("least-loaded", [6, 6, 0, 0]) == [3, 0, 3, 2, 4, 0]
    # What has one replica is known before anything is shared out.
    assert taken("least-loaded", [4, 0, 3, 0]) == [1, 3, 3, 0, 0, 0]
    assert taken("least-loaded", [1, 4, 0, 9]) == [1, 0, 0, 4, 0, 9]


def test_the_optimum_moves_along_chains() -> None:
    choice = choose(np.array([[[6, 6, 0, 0], [7, 6, 0, 0], [0, 0, 5, 1]]]).transpose(1, 0, 2), CHAIN, "optimum")
    assert choice.loads[:, 0].max(axis=1).tolist() == [4, 5, 5]
    assert choice.bound is not None and choice.bound[:, 0].tolist() == pytest.approx([4, 13 / 3, 5])
    assert choice.loads[0, 0].tolist() == [4, 4, 4]


def test_water_filling_levels_again_and_again() -> None:
    # 3 and 3, 3 and 3; then expert 0 rises to 4.5 on rank 0 and expert 1 to 3.75 on rank 2; then 4.125 and so on.
    assert taken("water-filling", [6, 6, 0, 0], passes=1) == [5, 0, 1, 2, 4, 0]
    assert taken("water-filling", [6, 6, 0, 0], passes=3) == [4, 0, 2, 2, 4, 0]


def test_even_takes_turns_from_the_step_on() -> None:
    counts = np.array([[[5, 2, 0, 0]]] * 2)
    took = choose(counts, CHAIN, "even", step=np.array([6, 7])).took[:, 0]
    assert took.tolist() == [[3, 0, 2, 1, 1, 0], [2, 0, 3, 1, 1, 0]]


def by_source(*rows: list[int]) -> AnyArray:
    """One step of one layer: the counts of every source rank."""
    return np.array([[list(rows)]])


def test_a_source_alone_sees_only_itself() -> None:
    counts = by_source([2, 0, 0, 0], [2, 0, 0, 0], [2, 0, 2, 0])
    choice = choose(counts, CHAIN, "least-loaded-local")
    assert choice.sent is not None
    # Rank 2 has sent two to rank 0 already, so both of its others go to rank 1.
    assert choice.sent[0, 0, :, [0, 2]].T.tolist() == [[1, 1], [1, 1], [0, 2]]
    assert choose(counts, CHAIN, "power-of-two").sent[0, 0, 2, 2] == 2  # type: ignore[index]


def test_locality_comes_before_balance() -> None:
    counts = by_source([4, 4, 0, 0], [4, 4, 0, 0], [4, 4, 0, 0])
    sent = choose(counts, CHAIN, "locality-first", node_of_rank=np.array([0, 0, 1])).sent
    assert sent is not None
    # Expert 0 in slots 0 and 2 (ranks 0, 1), expert 1 in slots 3 and 4 (ranks 1, 2); rank 2 has a node of its own.
    assert sent[0, 0].tolist() == [[4, 0, 0, 4, 0, 0], [0, 0, 4, 4, 0, 0], [2, 0, 2, 0, 4, 0]]


def test_whose_assignments_a_replica_takes_is_settled_for_short_ways() -> None:
    sent = choose(by_source([0, 0, 0, 0], [1, 0, 0, 0], [3, 0, 0, 0]), CHAIN, "least-loaded").sent
    assert sent is not None
    assert sent[0, 0, :, [0, 2]].T.tolist() == [[0, 0], [0, 1], [2, 1]]


def test_delayed_sensors_follow_earlier_steps() -> None:
    counts = np.zeros((4, 1, 3, 4), np.int64)
    counts[:, 0, 0] = [[4, 0, 8, 0]] * 4
    known = choose(counts, CHAIN, "water-filling-delayed", Settings(window=2, delay=2))
    # Nothing is seen for two steps; then that rank 0 is full without expert 0.
    assert known.took[:, 0, [0, 2]].tolist() == [[2, 2], [2, 2], [0, 4], [0, 4]]
    herd = choose(counts, CHAIN, "power-of-two-delayed", Settings(window=1, delay=1)).took[1:, 0, [0, 2]]
    assert herd.tolist() == [[0, 4], [0, 4], [0, 4]]


def test_what_a_delayed_sensor_sees() -> None:
    counts = np.arange(1, 6)[:, None, None]
    assert seen_counts(counts, 2, 1)[:, 0, 0].tolist() == [0, 1, 3, 5, 7]
    assert seen_counts(counts, 3, 2)[:, 0, 0].tolist() == [0, 0, 1, 3, 6]


def test_a_second_replica_on_the_same_rank_shares_nothing() -> None:
    plan = Plan(expert_of_slot=np.array([[0, 0, 1, 0]]), slots_per_rank=np.array([2, 2]), experts=2, policy="twice")
    start, slot = replicas_apart(plan)
    assert start.tolist() == [[0, 2, 3]] and slot[0, :3].tolist() == [0, 3, 2]
    assert taken("optimum", [4, 2], plan) == [3, 0, 2, 1]


def test_what_does_not_fit_is_refused() -> None:
    counts = np.zeros((1, 1, 4), np.int64)
    with pytest.raises(UsageError, match="no replica choice 'best'"):
        choose(counts, CHAIN, "best")
    with pytest.raises(UsageError, match="chooses token by token"):
        choose(counts, CHAIN, "vllm")
    with pytest.raises(UsageError, match="needs the counts of every source rank"):
        choose(counts, CHAIN, "locality-first")
    with pytest.raises(UsageError, match="do not fit the plan"):
        choose(counts[:, :, :3], CHAIN, "even")
    with pytest.raises(UsageError, match="must be ≥ 1"):
        Settings(delay=0)


TOPOLOGY = uniform(4, 2, 3)
PLAN = Plan(
    expert_of_slot=np.array([[0, 1, 2, 3, 4, 0, 5, 6, 0, 7, 1, 2], [0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3]]),
    slots_per_rank=np.full(4, 3),
    experts=8,
    policy="replicated",
)


def skewed(seed: int = 0, steps: int = 12, tokens: int = 40) -> RecordedSteps:
    """Steps of tokens that like low ids, from known source ranks."""
    rng = np.random.default_rng(seed)
    race = rng.exponential(1 + np.arange(8), (steps * tokens, 2, 8))
    source = rng.integers(0, 4, steps * tokens)
    return steps_of(np.argsort(race, axis=2)[..., :2], [tokens] * steps, 8, source=source, ranks=4)


def price(topology: Topology = TOPOLOGY, mode: str = "low_latency", gpu: str = "h200") -> LayerCost:
    shape = assumed_shape((0, 1), 8, 2)
    return layer_cost(load_profile(gpu), shape, topology, topology.slots_per_rank, mode, "decode")


def compared(cost: LayerCost | None = None, **changed: Any) -> Comparison:
    return compare(skewed(), PLAN, TOPOLOGY, cost, Request(**changed))


def test_tokens_go_where_counts_say() -> None:
    steps, node = skewed(), frozen(TOPOLOGY.node_of_rank, np.int32)
    route = sending.Route.of(PLAN, TOPOLOGY, links(TOPOLOGY, "low_latency"), 4)
    (part,) = sending.parts(steps, 4, PLAN.slots, 0)
    counts = part.counts(8, 4)
    np.testing.assert_array_equal(counts.sum(axis=2), steps.counts)
    for name in ("least-loaded", "locality-first"):
        choice = choose(counts, PLAN, name, node_of_rank=node)
        sent = route.sent(part, choice)
        np.testing.assert_array_equal(sent.slot_tokens, choice.took)
        assert choice.sent is not None
        far = node[:, None] != node[PLAN.rank_of_slot][None, :]
        assert sent.node_pairs.sum() - np.trace(sent.node_pairs) == (choice.sent * far).sum()


def test_even_by_counts_is_even_by_tokens() -> None:
    steps = skewed()
    route = sending.Route.of(PLAN, TOPOLOGY, links(TOPOLOGY, "normal"), 4)
    (part,) = sending.parts(steps, 4, PLAN.slots, 0)
    dispatch = prepare("even", PLAN, frozen(TOPOLOGY.node_of_rank, np.int32), 0)
    took = choose(steps.counts, PLAN, "even", step=steps.step).took
    np.testing.assert_array_equal(route.by_engine(part, dispatch).slot_tokens, took)


def test_parts_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = compared(price(), warm_up=3)
    monkeypatch.setattr(sending, "CELLS", 2 * 2 * 4 * PLAN.slots)
    pieces = compared(price(), warm_up=3)
    assert whole.steps == pieces.steps == 9
    for one, other in zip(whole.rows, pieces.rows, strict=True):
        assert replace(one, choice_us=None) == replace(other, choice_us=None)


def test_every_rule_names_what_it_has_to_see() -> None:
    outcome = compared()
    assert [row.rule for row in outcome.rows] == list(DEFAULT)
    assert all(row.sensor in SENSORS for row in outcome.rows)
    assert {row.rule for row in outcome.rows if row.sensor == "step"} == {
        "least-loaded",
        "water-filling",
        "optimum",
        "locality-first-all",
    }
    assert outcome.floor_mean is not None
    assert outcome.floor_mean <= outcome.row("optimum").balance.step_mean
    assert all(outcome.row("optimum").balance.step_mean <= row.balance.step_mean for row in outcome.rows)
    json.dumps(outcome.to_dict())


def test_sensor_and_choosing_are_charged_to_the_gain() -> None:
    cost = price()
    outcome = compared(cost, rules=("optimum", "least-loaded-local", "vllm"))
    even, best, alone, engine = outcome.rows
    gather = gather_s(cost, TOPOLOGY, 8) * 1e6
    assert even.saved_us == even.sensor_us == even.budget_us == even.net_us == 0 and even.choice_us is None
    assert best.sensor_us == pytest.approx(gather) and alone.sensor_us == 0
    assert (best.budget_us, alone.budget_us, engine.budget_us) == (100.0, 1.0, 0.0)
    assert (best.budget_source, alone.budget_source) == ("published", "measured")
    assert best.saved_us == pytest.approx(even.layer_us - best.layer_us)  # type: ignore[operator]
    assert best.net_us == pytest.approx(best.saved_us - gather - 100.0)  # type: ignore[operator]
    # What a source knows costs no waiting, yet choosing takes more than a layer of so few tokens saves.
    assert alone.saved_us is not None and 0 < alone.saved_us < 1 and alone.net_us == alone.saved_us - 1.0
    assert any("take more than they save: optimum, least-loaded-local" in note for note in outcome.notes)
    assert alone.choice_us is not None and alone.choice_us > 0
    free = compared(cost, rules=("optimum",), gather_us=0.0, choice_us={"optimum": 0.0}).row("optimum")
    assert free.net_us == free.saved_us and free.budget_source == "stated"


def test_what_is_charged_is_the_same_in_every_run() -> None:
    one, other = (compared(price(), rules=("least-loaded", "power-of-two")) for _ in range(2))
    assert [replace(row, choice_us=None) for row in one.rows] == [replace(row, choice_us=None) for row in other.rows]


def large(slots: int, ranks: int) -> Plan:
    """So many slots of a layer, an expert in each."""
    each = np.arange(slots, dtype=np.int32)[None]
    return Plan(expert_of_slot=each, slots_per_rank=np.full(ranks, slots // ranks), experts=slots, policy="large")


def test_choosing_costs_more_of_larger_layers() -> None:
    rule = RULES["locality-first-all"]
    sizes = [large(80, 8), large(288, 8), large(288, 16), large(640, 64), large(1280, 64), large(1280, 128)]
    assert [budget(rule, plan, 0.0, {}).us for plan in sizes] == [6.0, 20.0, 75.0, 400.0, 800.0, 1600.0]
    assert budget(RULES["optimum"], large(1280, 64), 0.0, {}).us == 200.0
    # Draws are made for every assignment that a source sends, all else for experts.
    assert budget(RULES["power-of-two"], large(80, 8), 1000.0, {}).us == pytest.approx(7.0)
    assert budget(RULES["least-loaded"], large(80, 8), 1000.0, {}).us == 2.0
    assert budget(RULES["optimum"], large(80, 8), 0.0, {"optimum": 3.0}).us == 3.0


def test_every_rule_has_a_budget() -> None:
    for rule in RULES.values():
        charged = budget(rule, PLAN, 1.0, {})
        assert charged.source in SOURCES[:3]
        assert (charged.us == 0) == (rule.by_engines or rule.name == "even")


def test_no_seconds_without_a_cost() -> None:
    row = compared(rules=("least-loaded",)).row("least-loaded")
    assert row.layer_us is row.saved_us is row.net_us is row.cross_bytes_saved is None
    stated = compared(rules=("least-loaded",), gather_us=7.0).row("least-loaded")
    assert stated.sensor_us == 7.0 and stated.net_us is None


def test_locality_saves_bytes_between_nodes() -> None:
    cost = price()
    even, near = compared(cost, rules=("locality-first",)).rows
    assert near.cross_share < even.cross_share and near.own_share > even.own_share
    saved = (even.copies_per_layer - near.copies_per_layer) * cost.copy_bytes
    assert near.cross_bytes_saved == pytest.approx(saved) and saved > 0


def test_the_gather_is_the_latency_of_a_dispatch_and_few_bytes() -> None:
    cost, link = price(), load_profile("h200").links
    assert cost.dispatch.reasons  # two nodes: the row of several domains
    row = next(r for r in link if (r.mode, r.phase) == ("low_latency", "dispatch") and r.nodes[0] == 2)
    latency = row.base_us + row.per_doubling_us
    assert gather_s(cost, TOPOLOGY, 8) * 1e6 == pytest.approx(latency + 2 * 32 / row.rdma_bytes_per_s * 1e6)
    assert gather_s(price(uniform(4, 4, 3), "nccl"), uniform(4, 4, 3), 8) > 0
    # Counters need no exchange of layouts before them.
    assert gather_s(price(mode="normal"), TOPOLOGY, 8) < 60e-6
    assert [sensor_s(name, 1.0) for name in SENSORS] == [0, 0, 1, 0]


def test_notes_and_what_cannot_be_compared() -> None:
    plain = Plan(expert_of_slot=np.tile(np.arange(8), (2, 1)), slots_per_rank=np.full(4, 2), experts=8, policy="plain")
    outcome = compare(skewed(), plain, uniform(4, 4, 2), None, Request(rules=("optimum",)))
    assert any("no expert has a second replica" in note for note in outcome.notes)
    assert outcome.row("optimum").balance == outcome.row("even").balance
    unknown = compare(replace(skewed(), source_rank=frozen(np.full(480, -1), np.int16)), PLAN, TOPOLOGY)
    assert any("request mod ranks" in note for note in unknown.notes)
    with pytest.raises(UsageError, match="wanted"):
        compare(skewed(), PLAN, uniform(2, 2, 6))
    with pytest.raises(UsageError, match="none is left"):
        compared(warm_up=12)
    with pytest.raises(UsageError, match="no replica choice"):
        compared(rules=("best",))


def test_progress_is_told_of_every_step_of_every_rule() -> None:
    told: list[int] = []
    compare(skewed(), PLAN, TOPOLOGY, None, Request(rules=("optimum", "vllm"), warm_up=2), told.append)
    assert sum(told) == 3 * 12


def test_the_baseline_of_engines_is_what_they_do() -> None:
    assert {"even", "sglang-static", "sglang-dynamic", "vllm", "tensorrt-llm"} <= set(RULES)
    assert all(RULES[name].sensor == "none" for name in ("even", "vllm", "ascend-v2"))
