"""Topics of requests, found without labels: spherical k-means on the experts that requests use.

A request is the square roots of the shares of its expert choices, layer by layer, less those of the average request, at
length one (square roots tame the few experts that everybody uses). Topics are fitted on whole past requests; a request
that is not known yet is told from its first tokens alone.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from easybalance_sim.arrays import FloatArray, Int16Array, IntArray, sealed, stream
from easybalance_sim.load.rebatch import feature_layers
from easybalance_sim.simulate.admission.requests import EVERY_TOKEN, Requests, first_counts
from easybalance_sim.simulate.steps.recorded import RecordedSteps

RESTARTS, ROUNDS = 4, 30
CURVE = (1, 2, 4, 8, 16, 32)
"""First tokens at which it is asked how well a topic is known."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Topics:
    """Topics of past requests. layers: int64[l] rows of the layers that are looked at · mean: float64[l·E] square
    roots of the average shares · centre: float64[k, l·E] unit vectors."""

    layers: IntArray
    mean: FloatArray
    centre: FloatArray

    def __len__(self) -> int:
        return len(self.centre)

    def of(self, counts: IntArray) -> IntArray:
        """int64[Q] topic of requests with counts int64[Q, l, E] over `layers`."""
        nearest: IntArray = (_points(counts, self.mean) @ self.centre.T).argmax(axis=1)
        return nearest

    def told(self, steps: RecordedSteps, requests: Requests, tokens: int = EVERY_TOKEN) -> IntArray:
        """int64[Q] topic of every request by its first `tokens` tokens."""
        return self.of(first_counts(steps, requests, tokens, self.layers))


def fit_topics(steps: RecordedSteps, requests: Requests, topics: int, seed: int = 0) -> Topics:
    """At most `topics` topics of these requests, from all of their tokens; of many layers some are looked at."""
    layers = feature_layers(steps.layers, steps.meta.experts)
    counts = first_counts(steps, requests, EVERY_TOKEN, layers)
    total = counts.sum(axis=0)
    mean = np.sqrt(total / np.maximum(total.sum(axis=1, keepdims=True), 1)).ravel()
    centre = spherical_kmeans(_points(counts, mean), topics, stream(seed, "topics of requests"))
    return Topics(layers=layers, mean=sealed(mean), centre=sealed(centre))


def spherical_kmeans(points: FloatArray, clusters: int, rng: np.random.Generator) -> FloatArray:
    """float64[k, D] unit centres of unit points [Q, D], the best of a few starts; k = clusters, or the distinct points.

    Starts are drawn as in k-means++ (Arthur and Vassilvitskii 2007) with 1 - cosine for the squared distance.
    """
    tried = [_one_start(points, clusters, rng) for _ in range(RESTARTS)]
    return max(tried, key=lambda centre: float((points @ centre.T).max(axis=1).sum()))


def _one_start(points: FloatArray, clusters: int, rng: np.random.Generator) -> FloatArray:
    centre = _starts(points, clusters, rng)
    nearest = np.full(len(points), -1)
    for _ in range(ROUNDS):
        before, nearest = nearest, (points @ centre.T).argmax(axis=1)
        if (before == nearest).all():
            break
        for at in np.unique(nearest):
            total = points[nearest == at].sum(axis=0)
            centre[at] = total / max(float(np.linalg.norm(total)), 1e-12)
    return centre


def _starts(points: FloatArray, clusters: int, rng: np.random.Generator) -> FloatArray:
    chosen = [int(rng.integers(len(points)))]
    away = 1 - points @ points[chosen[0]]
    while len(chosen) < clusters:
        away = np.maximum(away, 0)
        away[away < 1e-9] = 0
        if not away.any():
            break
        chosen.append(int(rng.choice(len(points), p=away / away.sum())))
        away = np.minimum(away, 1 - points @ points[chosen[-1]])
    return points[chosen].copy()


def _points(counts: IntArray, mean: FloatArray) -> FloatArray:
    share = counts / np.maximum(counts.sum(axis=2, keepdims=True), 1)
    away = np.sqrt(share).reshape(len(counts), -1) - mean
    points: FloatArray = away / np.maximum(np.linalg.norm(away, axis=1, keepdims=True), 1e-12)
    return points


@dataclass(frozen=True, kw_only=True)
class Known:
    """How well the first tokens tell a topic. tokens: of a request that were looked at, 0 = all · same_topic: share of
    unseen requests with the topic that all of their tokens have · purity: share whose workload is the commonest of
    their topic's · accuracy: share whose workload is the commonest that past requests of the topic had; None without
    workloads."""

    tokens: int
    same_topic: float
    purity: float | None
    accuracy: float | None

    def to_dict(self) -> dict[str, float | int | None]:
        """For reports."""
        return asdict(self)


def curve(
    topics: Topics, past: tuple[RecordedSteps, Requests], unseen: tuple[RecordedSteps, Requests]
) -> tuple[Known, ...]:
    """How well topics of unseen requests are known by their first tokens, for each number of them in `CURVE`, and by
    all."""
    whole, had = topics.told(*unseen), topics.told(*past)
    found = []
    for tokens in (*CURVE, 0):
        told = topics.told(*unseen, tokens) if tokens else whole
        labels = _agreement(told, unseen[1].workload, had, past[1].workload)
        found.append(
            Known(tokens=tokens, same_topic=float((told == whole).mean()), purity=labels[0], accuracy=labels[1])
        )
    return tuple(found)


def _agreement(
    topic: IntArray, workload: Int16Array, past_topic: IntArray, past_workload: Int16Array
) -> tuple[float | None, float | None]:
    """Purity of topics and accuracy of what they foretell."""
    if len(np.unique(workload)) < 2:
        return None, None
    size = (int(max(topic.max(), past_topic.max())) + 1, int(max(workload.max(), past_workload.max())) + 1)
    seen, before = np.zeros(size), np.zeros(size)
    np.add.at(seen, (topic, workload), 1)
    np.add.at(before, (past_topic, past_workload), 1)
    foretold = before.argmax(axis=1)
    return float(seen.max(axis=1).sum() / len(topic)), float((foretold[topic] == workload).mean())
