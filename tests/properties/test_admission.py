"""Admission, whatever requests come: nobody moves, nothing is lost, no limit is passed, nothing depends on chance."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from easybalance_sim.arrays import AnyArray, FloatArray, IntArray
from easybalance_sim.cluster.topology import uniform
from easybalance_sim.plan.plan import Plan
from easybalance_sim.simulate.admission.admit import RECENT_STEPS, Admitted, Rule, admit
from easybalance_sim.simulate.admission.homes import own_cost, remote_share
from easybalance_sim.simulate.admission.judged import judge
from easybalance_sim.simulate.admission.price import residents
from easybalance_sim.simulate.admission.requests import Requests, first_counts, requests_of
from easybalance_sim.simulate.admission.topics import spherical_kmeans
from easybalance_sim.simulate.steps.recorded import RecordedSteps
from tests.admission_cases import course, life, steps_of

LIVES = st.lists(
    st.tuples(st.integers(0, 12), st.integers(1, 8), st.integers(1, 20)), min_size=1, max_size=30
)  # first step, steps, tokens of the first one


def crowd_of(lives: list[tuple[int, int, int]]) -> RecordedSteps:
    rows = [row for number, (first, length, chunk) in enumerate(lives) for row in life(first, length, number, chunk)]
    rows.sort(key=lambda row: row[0])
    ids = np.random.default_rng(len(rows)).integers(0, 7, (len(rows), 2, 1))
    return steps_of(rows, np.concatenate([ids, ids + 1], axis=2), n_experts=8)


def costs(seed: int, requests: Requests, groups: int) -> FloatArray:
    return np.random.default_rng(seed).random((len(requests), groups))


def overloads(requests: Requests, admitted: Admitted, group: IntArray) -> list[FloatArray]:
    """What every group's overload would have been at each admission, from scratch, in order of admission."""
    groups = int(group.max()) + 1
    fair = np.bincount(group) / len(group)
    out: list[FloatArray] = []
    done: list[int] = []
    for request in np.argsort(requests.first, kind="stable").tolist():
        now = int(requests.first[request])
        cache, recent = np.zeros(groups), np.zeros(groups)
        for other in done:
            home = int(group[admitted.rank[other]])
            if requests.last[other] >= now:
                cache[home] += requests.context[other]
            # Every token counts in its step, those of the first chunk from the first step on.
            for step in steps_run(requests, other, now):
                recent[home] += (1 - 1 / RECENT_STEPS) ** (now - step)
                cache[home] += requests.last[other] >= now
        more_cache = requests.context[request] + requests.chunk[request]
        over_cache = (cache + more_cache) / (max(cache.sum() + more_cache, 1) * fair)
        over_recent = (recent + requests.chunk[request]) / (max(recent.sum() + requests.chunk[request], 1) * fair)
        out.append(np.maximum(over_cache, over_recent))
        done.append(request)
    return out


def steps_run(requests: Requests, request: int, now: int) -> list[int]:
    """Steps of the tokens of a request that count before the admissions of step `now`, and its first chunk if it came
    in that step."""
    step = np.repeat(np.arange(len(requests.start) - 1), np.diff(requests.start))
    mine = step[requests.of_token == request]
    return [int(one) for one in mine if one < now] + [now] * (int(requests.first[request]) == now) * int(
        requests.chunk[request]
    )


@given(lives=LIVES, seed=st.integers(0, 99), slack=st.sampled_from([0.0, 0.3, 1.0]), price=st.sampled_from([0.0, 0.5]))
@settings(max_examples=40, deadline=None)
def test_no_group_is_over_the_limit(lives: list[tuple[int, int, int]], seed: int, slack: float, price: float) -> None:
    requests, group = requests_of(crowd_of(lives)), np.array([0, 0, 1, 2])
    cost = costs(seed, requests, 3)
    found = admit(requests, cost, group, Rule(slack=slack, price=price))
    order = np.argsort(requests.first, kind="stable").tolist()
    for request, over in zip(order, overloads(requests, found, group), strict=True):
        home = int(group[found.rank[request]])
        np.testing.assert_allclose(found.overload[request], over[home])
        if found.forced[request]:
            assert over.min() > 1 + slack - 1e-9 and over[home] <= over.min() + 1e-9
        else:
            assert over[home] <= 1 + slack + 1e-9
        assert bool(found.spilled[request]) == bool(cost[request, home] > cost[request].min())


@given(lives=LIVES, seed=st.integers(0, 99), probed=st.integers(0, 6))
@settings(max_examples=40, deadline=None)
def test_a_request_stays_where_it_was_admitted(lives: list[tuple[int, int, int]], seed: int, probed: int) -> None:
    requests, group = requests_of(crowd_of(lives)), np.array([0, 0, 1, 1])
    found = admit(requests, costs(seed, requests, 2), group, Rule(), np.full(len(requests), probed))
    source = found.source(requests)
    assert ((source >= 0) & (source < 4)).all()
    np.testing.assert_array_equal(
        source[requests.place >= probed], found.rank[requests.of_token][requests.place >= probed]
    )
    np.testing.assert_array_equal(
        source[requests.place < probed], found.probe[requests.of_token][requests.place < probed]
    )
    kv, running = residents(requests, found.rank, 4)
    step = np.repeat(np.arange(len(requests.start) - 1), np.diff(requests.start))
    for at in range(len(requests.start) - 1):
        alive = (requests.first <= at) & (requests.last >= at)
        assert running[at].sum() == alive.sum()
        assert kv[at].sum() == (step[alive[requests.of_token]] <= at).sum()
    assert (kv >= 0).all()


@given(lives=LIVES, seed=st.integers(0, 99), scale=st.sampled_from([0.5, 2.0]))
@settings(max_examples=20, deadline=None)
def test_the_newest_request_changes_no_earlier_admission(
    lives: list[tuple[int, int, int]], seed: int, scale: float
) -> None:
    """Nothing of the future is known: without the last one to come, all others are admitted alike."""
    requests, group = requests_of(crowd_of(lives)), np.array([0, 1, 1])
    cost = costs(seed, requests, 2)
    whole = admit(requests, cost, group, Rule(slack=scale))
    newest = int(np.argsort(requests.first, kind="stable")[-1])
    kept = [life_of for number, life_of in enumerate(lives) if number != newest]
    if not kept:
        return
    fewer = requests_of(crowd_of(kept))
    without = admit(fewer, np.delete(cost, newest, axis=0), group, Rule(slack=scale))
    np.testing.assert_array_equal(without.rank, np.delete(whole.rank, newest))


@given(lives=LIVES, seed=st.integers(0, 99))
@settings(max_examples=20, deadline=None)
def test_sources_change_copies_but_no_load_of_single_replicas(lives: list[tuple[int, int, int]], seed: int) -> None:
    steps = crowd_of(lives)
    requests, cluster = requests_of(steps), uniform(4, 2, 2)
    plan = Plan(
        expert_of_slot=np.stack([np.random.default_rng([seed, n]).permutation(8) for n in range(2)]),
        slots_per_rank=np.full(4, 2), experts=8, policy="random",
    )  # fmt: skip
    group = cluster.node_of_rank
    cost = own_cost(steps, requests, requests.tokens, plan, group)
    np.testing.assert_allclose(cost, remote_share(first_counts(steps, requests, 1 << 20), plan, group))
    near, far = (admit(requests, sign * cost, group, Rule(slack=np.inf, price=0.0)) for sign in (1, -1))
    one, other = (judge(course(cluster, 1), plan, steps, each.source(requests)) for each in (near, far))
    assert one.balance == other.balance
    assert one.crossing["low_latency"].copies_per_token <= other.crossing["low_latency"].copies_per_token + 1e-12
    assert one.least_remote <= one.crossing["low_latency"].copies_per_token + 1e-12
    # Without replicas the share that leaves is what the cost said.
    per_request = cost.min(axis=1) * requests.tokens * steps.meta.top_k
    np.testing.assert_allclose(one.crossing["low_latency"].copies_per_token, per_request.sum() / requests.tokens.sum())


@given(seed=st.integers(0, 999), clusters=st.integers(1, 6))
@settings(max_examples=25, deadline=None)
def test_kmeans_centres_are_unit_vectors(seed: int, clusters: int) -> None:
    points: AnyArray = np.random.default_rng(seed).standard_normal((20, 4))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    one, again = (spherical_kmeans(points, clusters, np.random.default_rng(seed)) for _ in range(2))
    np.testing.assert_array_equal(one, again)
    assert len(one) <= clusters
    np.testing.assert_allclose(np.linalg.norm(one, axis=1), 1)
