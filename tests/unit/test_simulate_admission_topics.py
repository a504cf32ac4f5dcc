"""Topics without labels."""

from __future__ import annotations

import numpy as np

from easybalance_sim.simulate.admission.requests import requests_of, split_sides
from easybalance_sim.simulate.admission.topics import CURVE, curve, fit_topics, spherical_kmeans
from tests.admission_cases import crowd, steps_of


def test_kmeans_finds_bundles_of_directions() -> None:
    rng = np.random.default_rng(1)
    axes = np.repeat(np.eye(5)[:3], 20, axis=0)
    points = axes + 0.05 * rng.standard_normal(axes.shape)
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    centre = spherical_kmeans(points, 3, np.random.default_rng(2))
    np.testing.assert_allclose(np.linalg.norm(centre, axis=1), 1)
    nearest = (points @ centre.T).argmax(axis=1).reshape(3, 20)
    assert sorted(nearest[:, 0].tolist()) == [0, 1, 2]
    assert (nearest == nearest[:, :1]).all()


def test_no_more_clusters_than_distinct_points() -> None:
    points = np.repeat(np.eye(2), 5, axis=0)
    assert spherical_kmeans(points, 6, np.random.default_rng(0)).shape == (2, 2)


def test_topics_are_those_of_the_traffic() -> None:
    sides = split_sides(crowd(2, requests=200), "request", 0.5, seed=1)
    past, unseen = ((side, requests_of(side)) for side in (sides.fit, sides.judged))
    topics = fit_topics(*past, 4, seed=0)
    known = curve(topics, past, unseen)
    assert [one.tokens for one in known] == [*CURVE, 0]
    by_all = known[-1]
    assert by_all.same_topic == 1.0
    assert by_all.purity is not None and by_all.accuracy is not None
    assert by_all.purity > 0.95 and by_all.accuracy > 0.95
    # One token tells less than four, and no workload is told better than by all tokens.
    assert known[0].same_topic < known[2].same_topic
    assert max(one.purity or 0.0 for one in known) <= by_all.purity + 0.02


def test_topics_are_the_same_for_the_same_seed() -> None:
    steps = crowd(4)
    requests = requests_of(steps)
    one, again = (fit_topics(steps, requests, 4, seed=7) for _ in range(2))
    np.testing.assert_array_equal(one.centre, again.centre)


def test_topics_look_only_at_first_tokens() -> None:
    """What a request does later changes nothing in what its first token tells."""
    steps = crowd(5)
    requests = requests_of(steps)
    topics = fit_topics(steps, requests, 4)
    early = topics.told(steps, requests, 2)
    other = np.asarray(steps.experts).copy()
    later = requests.place >= 2
    other[later] = (other[later] + 3) % 16
    rows = list(zip(steps.step_of_token.tolist(), steps.request.tolist(), strict=True))
    changed = steps_of(rows, other, n_experts=16)
    np.testing.assert_array_equal(topics.told(changed, requests, 2), early)
    assert (topics.told(changed, requests) != topics.told(steps, requests)).any()


def test_one_workload_has_no_purity() -> None:
    steps = steps_of([(0, 1), (0, 2), (1, 1), (1, 2)], np.arange(8).reshape(4, 1, 2) % 8, n_experts=8)
    both = (steps, requests_of(steps))
    known = curve(fit_topics(*both, 2), both, both)
    assert known[0].purity is None and known[0].accuracy is None
