"""Replica choice: nothing is lost, nothing goes where its expert is not, and the oracle is one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easybalance_sim.simulate.replica_choice.choose import Settings, choose
from easybalance_sim.simulate.replica_choice.rules import COUNTS, ENGINE, RULES
from tests.replica_cases import Case, all_splits, between_nodes, cases, linprog_bound, random_case

OURS = [name for name, rule in RULES.items() if rule.works_on != ENGINE]


@settings(max_examples=60, deadline=None)
@given(cases(), st.sampled_from(OURS), st.integers(1, 4), st.integers(1, 3), st.integers(1, 3), st.integers(0, 9))
def test_every_assignment_goes_to_one_replica_of_its_expert(
    case: Case, rule: str, passes: int, window: int, delay: int, seed: int
) -> None:
    ask = Settings(passes=passes, window=window, delay=delay, seed=seed)
    choice = choose(case.counts, case.plan, rule, ask, step=case.step, node_of_rank=case.node)
    assert choice.took.min() >= 0 and choice.sent is not None and choice.sent.min() >= 0
    # Slots hold one expert each, so the sums can only be right when no slot takes what its expert was not given.
    np.testing.assert_array_equal(case.by_expert(choice.took), case.total)
    np.testing.assert_array_equal(case.by_expert(choice.sent), case.counts)
    np.testing.assert_array_equal(choice.sent.sum(axis=2), choice.took)
    np.testing.assert_array_equal(choice.loads.sum(axis=2), case.total.sum(axis=2))


@settings(max_examples=60, deadline=None)
@given(cases())
def test_no_rule_is_lower_than_the_optimum(case: Case) -> None:
    best = choose(case.total, case.plan, "optimum")
    assert best.bound is not None
    busiest = best.loads.max(axis=2)
    np.testing.assert_array_equal(busiest, np.ceil(best.bound - 1e-9))
    for rule in OURS:
        other = choose(case.counts, case.plan, rule, node_of_rank=case.node)
        assert (other.loads.max(axis=2) >= busiest).all(), rule


@settings(max_examples=25, deadline=None)
@given(cases())
def test_the_bound_is_that_of_linear_programming(case: Case) -> None:
    bound = choose(case.total, case.plan, "optimum").bound
    assert bound is not None
    for s, layer in np.ndindex(bound.shape):
        assert bound[s, layer] == pytest.approx(linprog_bound(case.total[s, layer], case.plan, layer), abs=1e-7)


@pytest.mark.parametrize("seed", range(12))
def test_small_cases_are_solved(seed: int) -> None:
    case = random_case(seed, ranks=3, slots=2, layers=1, steps=4, most=1)
    plan = case.plan
    homes = [plan.rank_of_slot[plan.expert_of_slot[0] == e].tolist() for e in range(plan.experts)]
    busiest = choose(case.total, plan, "optimum").loads.max(axis=2)[:, 0]
    assert busiest.tolist() == [all_splits(counts, homes, 3) for counts in case.total[:, 0].tolist()]


@settings(max_examples=60, deadline=None)
@given(cases(), st.sampled_from([name for name in OURS if RULES[name].works_on == COUNTS]))
def test_sources_know_of_each_other_and_change_nothing_but_the_way(case: Case, rule: str) -> None:
    """Given what replicas take, as little crosses nodes as possible; what they take does not depend on the sources."""
    plan = case.plan
    choice = choose(case.counts, plan, rule, step=case.step, node_of_rank=case.node)
    np.testing.assert_array_equal(choice.took, choose(case.total, plan, rule, step=case.step).took)
    assert choice.sent is not None
    least = np.zeros(case.counts.shape[:2], np.int64)
    for layer in range(plan.layers):
        for node in range(int(case.node.max()) + 1):
            here = np.flatnonzero(case.node[plan.rank_of_slot] == node)
            for expert in range(plan.experts):
                room = choice.took[:, layer, here[plan.expert_of_slot[layer, here] == expert]].sum(axis=1)
                need = case.counts[:, layer, case.node == node, expert].sum(axis=1)
                least[:, layer] += need - np.minimum(room, need)
    np.testing.assert_array_equal(between_nodes(choice.sent, plan, case.node), least)


@settings(max_examples=30, deadline=None)
@given(cases())
def test_locality_never_leaves_a_node_that_holds_the_expert(case: Case) -> None:
    plan = case.plan
    for rule in ("locality-first", "locality-first-all"):
        sent = choose(case.counts, plan, rule, node_of_rank=case.node).sent
        assert sent is not None
        for layer, source, slot in np.argwhere(sent.any(axis=0)):
            held = plan.rank_of_slot[plan.expert_of_slot[layer] == plan.expert_of_slot[layer, slot]]
            if source in held:
                assert plan.rank_of_slot[slot] == source
            elif case.node[source] in case.node[held]:
                assert case.node[plan.rank_of_slot[slot]] == case.node[source]
