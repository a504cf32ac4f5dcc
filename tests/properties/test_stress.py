"""Stress traffic, whatever requests are held out: nothing is made up, everybody keeps a pace, steps are full."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from easybalance_sim.cluster.topology import Topology
from easybalance_sim.planning.stress.cases import p99_ratio
from easybalance_sim.planning.stress.losses import MOST_LOSSES, losses
from easybalance_sim.planning.stress.queueing import queue_of
from easybalance_sim.planning.stress.uniform import subsets, uniform_experts
from easybalance_sim.simulate.admission.requests import requests_of
from easybalance_sim.simulate.steps.recorded import RecordedSteps
from easybalance_sim.trace.schema import TraceMeta
from tests.admission_cases import life, steps_of

LIVES = st.lists(
    st.tuples(st.integers(0, 12), st.integers(1, 8), st.integers(1, 20)), min_size=1, max_size=30
)  # first step, steps, tokens of the first one


def held_out(lives: list[tuple[int, int, int]]) -> RecordedSteps:
    """Requests whose tokens say by their position which row they are."""
    rows = [row for number, (first, length, chunk) in enumerate(lives) for row in life(first, length, number, chunk)]
    rows.sort(key=lambda row: row[0])
    ids = np.random.default_rng(len(rows)).integers(0, 7, (len(rows), 2, 1))
    ids = np.concatenate([ids, ids + 1], axis=2)
    return steps_of(rows, ids, n_experts=8, position=np.arange(len(rows)))


@settings(max_examples=60, deadline=None)
@given(LIVES, st.integers(1, 30), st.sampled_from([1, 4]), st.integers(0, 9))
def test_requests_run_again_as_they_ran(lives: list[tuple[int, int, int]], wanted: int, times: int, seed: int) -> None:
    steps = held_out(lives)
    requests = requests_of(steps)
    queue = queue_of(steps, requests)
    chosen = np.arange(len(requests)) % 3 == 0
    batch = queue.drawn(chosen, 0.8, wanted, times, np.random.default_rng(seed))
    row = batch.position
    np.testing.assert_array_equal(batch.experts, steps.experts[row])
    assert (np.diff(batch.step) >= 0).all() and batch.step.min() >= 0 and batch.step.max() < wanted
    assert len(np.unique(np.stack([batch.request, row]), axis=1).T) == batch.tokens
    for copy in np.unique(batch.request):
        mine = np.flatnonzero(batch.request == copy)
        assert len(np.unique(requests.of_token[row[mine]])) == 1
        # A copy is the recorded request, moved.
        moved = batch.step[mine] - steps.step_of_token[row[mine]]
        assert len(np.unique(moved)) == 1
        inside = requests.of_token == requests.of_token[row[mine[0]]]
        due = steps.step_of_token[inside] + moved[0]
        assert ((due >= 0) & (due < wanted)).sum() == len(mine)


@settings(max_examples=40, deadline=None)
@given(LIVES, st.integers(1, 20), st.sampled_from([1, 4]), st.integers(0, 9))
def test_every_step_is_full(lives: list[tuple[int, int, int]], wanted: int, times: int, seed: int) -> None:
    lives = [(0, length, chunk) for _, length, chunk in lives]
    steps = held_out(lives)
    queue = queue_of(steps, requests_of(steps))
    everyone = np.ones(len(lives), np.bool_)
    batch = queue.drawn(everyone, 1.0, wanted, times, np.random.default_rng(seed))
    alive = [len(np.unique(batch.request[batch.step == step])) for step in range(wanted)]
    assert alive == [queue.at_once * times] * wanted


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 30), st.integers(0, 9))
def test_subsets_are_sets(of: int, size: int, rows: int, seed: int) -> None:
    size = min(of, size)
    found = subsets(rows, of, size, np.random.default_rng(seed))
    assert found.shape == (rows, size) and found.min() >= 0 and found.max() < of
    assert all(len(set(row)) == size for row in found.tolist())


def test_all_sets_are_as_likely() -> None:
    drawn = np.sort(subsets(20_000, 5, 3, np.random.default_rng(1)), axis=1)
    sets = np.array(list(itertools.combinations(range(5), 3)))
    counts = np.array([(drawn == one).all(axis=1).sum() for one in sets])
    assert counts.sum() == 20_000
    # Chi-square with 9 degrees of freedom: above 27.9 once in a thousand.
    assert ((counts - 2000.0) ** 2 / 2000.0).sum() < 27.9


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from([(8, 2, 1), (8, 4, 2), (16, 4, 2), (12, 1, 1), (300, 4, 3)]), st.integers(1, 3), st.integers(0, 9)
)
def test_uniform_routing_keeps_to_the_groups(groups: tuple[int, int, int], top_k: int, seed: int) -> None:
    experts, of, kept = groups
    top_k = min(top_k, kept * experts // of)
    meta = TraceMeta(kind="tokens", layers=(0, 1, 2), experts=experts, top_k=top_k, groups=of, topk_group=kept)
    ids = uniform_experts(9, meta, np.random.default_rng(seed))
    assert ids.shape == (9, 3, top_k) and ids.dtype == (np.uint8 if experts <= 256 else np.uint16)
    for row in ids.reshape(-1, top_k).tolist():
        assert len(set(row)) == top_k and max(row) < experts
        assert len({expert // (experts // of) for expert in row}) <= kept


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 20), st.integers(1, 6), st.integers(0, 9))
def test_losses_take_whole_units_and_leave_somebody(ranks: int, per_node: int, seed: int) -> None:
    nodes = np.arange(ranks) // per_node
    topology = Topology(node_of_rank=nodes, slots_per_rank=np.full(ranks, 2), speed=np.ones(ranks))
    found = losses(topology, seed)
    units = topology.nodes if topology.nodes > 1 else ranks
    assert len(found) == (0 if ranks == 1 else min(units, MOST_LOSSES))
    for loss in found:
        assert 0 < len(loss.ranks) < ranks
        assert len(loss.ranks) == 1 if topology.nodes == 1 else set(nodes[list(loss.ranks)]) == {int(loss.name[5:])}


@settings(max_examples=30, deadline=None)
@given(st.integers(20, 200), st.floats(0.5, 2.0), st.integers(1, 16), st.integers(0, 9))
def test_a_plan_that_is_slower_by_a_factor_has_no_noise(steps: int, factor: float, block: int, seed: int) -> None:
    before = np.random.default_rng(seed).exponential(size=steps) + 1
    ratio, noise = p99_ratio(before, before * factor, block, seed)
    assert abs(ratio - factor) < 1e-9 and noise < 1e-9
    assert p99_ratio(before, before * 0 + 1, block, seed)[1] > 0
