"""Means and variances of what routed requests send to the ranks."""

from __future__ import annotations

import numpy as np
import pytest

from easybalance_sim.arrays import AnyArray, FloatArray
from easybalance_sim.simulate.serving.moments import Moments, likeness, replica_shares, row_moments, row_sums, run_share
from easybalance_sim.simulate.serving.routed import routed_requests
from tests.routed_cases import WORKLOADS, Served, served, token_batch


def moments_of(case: Served, run_tokens: int) -> tuple[AnyArray, AnyArray]:
    """Of the rows as recorded."""
    return row_moments(case.routed, row_sums(case.routed, case.plan, case.replay().subject.dispatch), run_tokens)


def sent_by_token(case: Served) -> FloatArray:
    """float64[T, L, R] assignments of every token, for plans without replicas."""
    rank = case.plan.rank_of_slot[np.argsort(case.plan.expert_of_slot, axis=1)]
    layer = np.arange(case.plan.layers)[None, :, None]
    return np.stack([(rank[layer, case.routed.experts] == r).sum(axis=2) for r in range(case.plan.ranks)], axis=2)


def test_means_are_those_of_the_tokens() -> None:
    case = served(1, slots=4)
    mean, _ = moments_of(case, 0)
    sent = sent_by_token(case)
    for row in range(6):
        first, tokens = case.routed.first[row], case.routed.tokens[row]
        np.testing.assert_allclose(mean[row], sent[first : first + tokens].mean(axis=0), rtol=1e-5, atol=1e-6)


def test_a_row_that_is_long_keeps_its_own_variance() -> None:
    case = served(2, slots=4)
    _, spread = moments_of(case, 1)
    sent = sent_by_token(case)
    row = int(np.argmax(case.routed.tokens * (np.arange(len(case.routed.tokens)) % 2)))
    first, tokens = case.routed.first[row], int(case.routed.tokens[row])
    own = sent[first : first + tokens].var(axis=0)
    usual = np.median(np.abs(spread[row] - own)) / own.mean()
    assert tokens > 30
    assert usual < 0.1


def test_variances_over_and_inside_rows_add_up() -> None:
    """A token of a request drawn at random varies as the answers' tokens do, every request weighted alike."""
    case = served(3, slots=4)
    mean, spread = moments_of(case, 0)
    sent = sent_by_token(case)
    rows = range(1, 2 * case.routed.requests, 2)
    each = [sent[case.routed.first[row] :][: case.routed.tokens[row]] for row in rows]
    second = np.mean([(one * one).mean(axis=0) for one in each], axis=0)
    wanted = second - np.mean([one.mean(axis=0) for one in each], axis=0) ** 2
    found = spread[1::2].mean(axis=0) + mean[1::2].var(axis=0)
    np.testing.assert_allclose(found, wanted, rtol=0.05)


def test_a_row_of_one_token_has_no_variance() -> None:
    ids = np.arange(16).reshape(8, 1, 2)
    routed = routed_requests([token_batch(np.arange(8), np.ones(8), np.zeros(8), ids)], WORKLOADS, 16)
    case = served(4, slots=4, routed=routed)
    _, spread = moments_of(case, 0)
    assert not spread.any()


@pytest.mark.parametrize("rule", ["even", "vllm", "sglang-static", "sglang-dynamic", "ascend-v1"])
def test_replicas_share_all_of_an_expert(rule: str) -> None:
    case = served(5, slots=7, per_node=2, rule=rule)
    shares = replica_shares(case.plan, case.replay().subject.dispatch)
    for layer in range(case.plan.layers):
        of_expert = np.add.reduceat(shares[layer], case.plan.replica_start[layer, :-1])
        np.testing.assert_allclose(of_expert, 1.0)


def test_replicas_in_turn_vary_less_than_drawn_ones() -> None:
    turn, drawn = (served(6, slots=7, rule=rule) for rule in ("even", "vllm"))
    means, spreads = zip(
        *(moments_of(case, 0) for case in (turn, drawn)),
        strict=True,
    )
    np.testing.assert_allclose(means[0], means[1])
    assert (spreads[0] <= spreads[1] + 1e-6).all()
    assert spreads[0].sum() < 0.95 * spreads[1].sum()


def test_tokens_of_one_topic_after_another_make_runs_alike() -> None:
    rng = np.random.default_rng(7)
    blocks = np.repeat(rng.permuted(np.tile(np.arange(8), (20, 2)), axis=1).ravel(), 16)
    mixed = rng.integers(0, 8, len(blocks))
    found = []
    for topic in (blocks, mixed):
        ids = np.stack([2 * topic, 2 * topic + 1], axis=1)[:, None]
        request = np.repeat(np.arange(20), 256)
        batch = token_batch(request, np.ones(len(ids)), np.tile(np.arange(256), 20), ids)
        routed = routed_requests([batch], WORKLOADS, 16)
        case = served(7, slots=4, routed=routed)
        found.append(likeness(routed, Moments(case.plan, case.replay().subject.dispatch)))
    assert found[0][0] > 6
    assert found[0][1] > 12
    np.testing.assert_allclose(found[1][:3], 1.0, atol=0.2)


def test_a_whole_row_has_little_chance_left() -> None:
    tokens = np.array([100.0, 100.0, 100.0])
    shares = [float(run_share(tokens, run, np.array([]))[0]) for run in (1, 50, 100, 400, 1000)]
    assert shares[0] == pytest.approx(0.99)
    assert shares[1] == pytest.approx(0.5)
    assert shares[2] == pytest.approx(1 / 6)
    assert shares[3] == pytest.approx(1 / 24)
    assert shares[4] == pytest.approx(1 / 60)
    np.testing.assert_allclose(run_share(tokens, 0, np.array([2.0, 3.0])), run_share(tokens, 100, np.array([2.0, 3.0])))
