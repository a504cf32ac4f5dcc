"""What a request costs in each group of ranks, from the experts that it uses or from those of its topic."""

from __future__ import annotations

import numpy as np

from easybalance_sim.arrays import BoolArray, FloatArray, IntArray, sealed, stream
from easybalance_sim.plan.plan import Plan
from easybalance_sim.simulate.admission.requests import Requests
from easybalance_sim.simulate.steps.recorded import RecordedSteps

STARTS, ROUNDS = 32, 20
ROOM = 1.15
"""Of its even share, the tokens that a first group of topics may hold."""


def lacking(plan: Plan, group: IntArray) -> BoolArray:
    """bool[L, E, G] whether a group of ranks holds no replica of an expert; group: int64[R]."""
    held = np.zeros((plan.layers, plan.experts, int(group.max()) + 1), np.bool_)
    held[np.arange(plan.layers)[:, None], plan.expert_of_slot, group[plan.rank_of_slot][None]] = True
    return sealed(~held)


def remote_share(counts: IntArray, plan: Plan, group: IntArray) -> FloatArray:
    """float64[Q, G] share of the assignments counts int64[Q, L, E] that leave each group of ranks.

    Without assignments all groups are alike. Sums are layer by layer: no copy of counts by group is made.
    """
    lacks = lacking(plan, group).astype(np.float64)
    away = np.zeros((len(counts), lacks.shape[2]))
    for layer in range(plan.layers):
        away += counts[:, layer] @ lacks[layer]
    shares: FloatArray = away / np.maximum(counts.sum(axis=(1, 2)), 1)[:, None]
    return shares


def topic_counts(steps: RecordedSteps, requests: Requests, topic: IntArray, topics: int) -> IntArray:
    """int64[k, L, E] assignments of all tokens of the requests of each topic."""
    out = np.zeros((topics, steps.layers, steps.meta.experts), np.int64)
    row = topic[requests.of_token]
    for layer in range(steps.layers):
        flat = row[:, None] * steps.meta.experts + steps.experts[:, layer]
        out[:, layer] = np.bincount(flat.ravel(), minlength=out[:, 0].size).reshape(topics, -1)
    return sealed(out)


def first_homes(usage: IntArray, groups: int, seed: int) -> IntArray:
    """int64[k] a group for each topic before there is a placement: topics that use the same experts together, groups
    about as full as each other.

    usage: int64[k, L, E]. Spherical k-means over topics with room for `ROOM` of a fair share, the best of a few starts.
    """
    weight = usage.sum(axis=(1, 2)).astype(np.float64)
    flat = np.sqrt(usage / np.maximum(usage.sum(axis=2, keepdims=True), 1)).reshape(len(usage), -1)
    points = flat - (flat * weight[:, None]).sum(axis=0) / max(float(weight.sum()), 1.0)
    rng = stream(seed, "homes of topics")
    tried = [_grouped(points, weight, rng.integers(0, groups, len(points)), groups) for _ in range(STARTS)]
    return max(tried, key=lambda found: found[0])[1]


def _grouped(points: FloatArray, weight: FloatArray, home: IntArray, groups: int) -> tuple[float, IntArray]:
    """(how well topics agree with their group, groups) when nothing changes any more."""
    for _ in range(ROUNDS):
        member = (home == np.arange(groups)[:, None]) * weight
        centre = member @ points
        centre /= np.maximum(np.linalg.norm(centre, axis=1, keepdims=True), 1e-12)
        likes = points @ centre.T
        before, home = home, _with_room(likes, weight)
        if (before == home).all():
            break
    return float((likes[np.arange(len(home)), home] * weight).sum()), home


def _with_room(likes: FloatArray, weight: FloatArray) -> IntArray:
    """int64[k] the group that each topic likes best of those with room, heavy topics first."""
    home, room = np.zeros(len(likes), np.int64), np.full(likes.shape[1], ROOM * weight.sum() / likes.shape[1])
    for topic in np.argsort(-weight, kind="stable"):
        fits = room >= weight[topic]
        home[topic] = np.where(fits, likes[topic], -np.inf).argmax() if fits.any() else room.argmax()
        room[home[topic]] -= weight[topic]
    return home


def home_cost(home: IntArray, groups: int) -> FloatArray:
    """float64[k, G] 0 at home, 1 elsewhere."""
    return sealed((home[:, None] != np.arange(groups)).astype(np.float64))


def own_cost(steps: RecordedSteps, requests: Requests, tokens: IntArray, plan: Plan, group: IntArray) -> FloatArray:
    """float64[Q, G] share of the assignments of each request's first tokens int64[Q] that leave each group."""
    lacks = lacking(plan, group)
    rows = np.flatnonzero(requests.place < tokens[requests.of_token])
    away = np.zeros((len(rows), lacks.shape[2]))
    for layer in range(plan.layers):
        away += lacks[layer][steps.experts[rows, layer]].sum(axis=1)
    out = np.zeros((len(requests), lacks.shape[2]))
    np.add.at(out, requests.of_token[rows], away)
    looked_at = np.bincount(requests.of_token[rows], minlength=len(requests))
    shares: FloatArray = out / np.maximum(looked_at * plan.layers * steps.meta.top_k, 1)[:, None]
    return shares
