"""What holds for any labels of ranks: nothing is lost, no layer changes, and who waits less is never later."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from easybalance_sim.cluster.topology import uniform
from easybalance_sim.simulate.staggering.relabel import (
    Freedom,
    as_is,
    at_random,
    carried,
    freedom,
    objective,
    relabelled,
    search,
)
from easybalance_sim.simulate.staggering.timing import barrier, drifting, unbound
from easybalance_sim.simulate.staggering.totals import arrivals, from_other_nodes
from easybalance_sim.simulate.steps.recorded import rank_loads
from tests.staggering_steps import chance_plan, chance_steps

SEEDS = st.integers(0, 2**20)


@given(SEEDS, st.booleans())
@settings(max_examples=40, deadline=None)
def test_a_relabelled_plan_is_lossless_and_no_layer_gets_less_even(seed: int, inside_nodes: bool) -> None:
    steps, plan = chance_steps(seed, steps=6), chance_plan(seed)
    free = freedom(plan, uniform(4, 2, 3), inside_nodes=inside_nodes)
    labels = at_random(plan.layers, free, np.random.default_rng(seed))
    found = relabelled(plan, labels)
    np.testing.assert_array_equal(found.replicas, plan.replicas)
    before, after = rank_loads(steps.counts, plan), rank_loads(steps.counts, found)
    np.testing.assert_allclose(after, carried(before, labels), atol=1e-12)
    np.testing.assert_allclose(after.sum(axis=2), steps.counts.sum(axis=2))
    assert barrier(carried(before, labels)).tolist() == barrier(before).tolist()


@given(SEEDS, st.integers(1, 6), st.integers(1, 5), st.booleans())
@settings(max_examples=25, deadline=None)
def test_no_exchange_of_two_ranks_improves_what_was_found(seed: int, layers: int, ranks: int, split: bool) -> None:
    source = np.random.default_rng(seed)
    windows = source.gamma(0.5, size=(4, layers, ranks))
    free = Freedom(kinds=np.arange(ranks) % (2 if split else 1), layers=np.ones(layers, np.bool_))
    found = search(windows, free, seed=seed)
    value = objective(windows, found)
    assert value <= objective(windows, as_is(layers, ranks))
    np.testing.assert_array_equal(free.kinds[found], np.tile(free.kinds, (layers, 1)))
    for layer in range(layers):
        for one, two in zip(*np.triu_indices(ranks, 1), strict=True):
            if free.kinds[one] == free.kinds[two]:
                other = found.copy()
                other[layer, [one, two]] = found[layer, [two, one]]
                assert objective(windows, other) >= value * (1 - 1e-9)


@given(SEEDS, st.integers(1, 6), st.integers(1, 5))
@settings(max_examples=40, deadline=None)
def test_who_may_run_further_ahead_is_never_later(seed: int, layers: int, ranks: int) -> None:
    loads = np.random.default_rng(seed).integers(0, 9, (3, layers, ranks)).astype(np.float64)
    times = np.array([drifting(loads, ahead) for ahead in range(layers + 1)])
    np.testing.assert_array_equal(times[0], barrier(loads))
    np.testing.assert_array_equal(times[-1], unbound(loads))
    assert (np.diff(times, axis=0) <= 0).all()
    assert (times[-1] >= loads.sum(axis=(1, 2)) / ranks).all()


@given(SEEDS)
@settings(max_examples=20, deadline=None)
def test_exchanges_inside_a_node_leave_the_traffic_of_nodes_as_it_is(seed: int) -> None:
    steps, plan, topology = chance_steps(seed, steps=6), chance_plan(seed), uniform(4, 2, 3)
    free = freedom(plan, topology, inside_nodes=True)
    found = relabelled(plan, at_random(plan.layers, free, np.random.default_rng(seed)))
    node = topology.node_of_rank
    before, after = (arrivals(steps, one, node, 3) for one in (plan, found))
    np.testing.assert_allclose(before.sum(), np.prod(steps.experts.shape))
    by_node = [from_other_nodes(each, node).reshape(2, 2, 2).sum(axis=2) for each in (before, after)]
    np.testing.assert_allclose(*by_node)
