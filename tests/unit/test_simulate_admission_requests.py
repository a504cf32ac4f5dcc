"""Requests behind recorded steps, and their two sides."""

from __future__ import annotations

import numpy as np
import pytest

from easybalance_sim.errors import UsageError
from easybalance_sim.simulate.admission.requests import EVERY_TOKEN, batch_of, first_counts, requests_of, split_sides
from tests.admission_cases import crowd, steps_of

# Request 7 runs 2 tokens in step 0 and 1 in step 3; request 9 one token in steps 2 and 3.
ROWS = [(0, 7), (0, 7), (2, 9), (3, 7), (3, 9)]
IDS = np.array([[[0, 1]], [[1, 2]], [[3, 0]], [[0, 2]], [[3, 1]]])


def test_requests_by_hand() -> None:
    steps = steps_of(ROWS, IDS, n_experts=4, position=[5, 6, 0, 7, 1])
    found = requests_of(steps)
    assert found.id.tolist() == [7, 9]
    # Places of steps, not their ids: step 1 has no token.
    assert (found.first.tolist(), found.last.tolist()) == ([0, 1], [2, 2])
    assert (found.tokens.tolist(), found.chunk.tolist(), found.context.tolist()) == ([3, 2], [2, 1], [5, 0])
    assert found.of_token.tolist() == [0, 0, 1, 0, 1]
    assert found.place.tolist() == [0, 1, 0, 2, 1]


def test_first_counts_by_hand() -> None:
    steps = steps_of(ROWS, IDS, n_experts=4)
    found = requests_of(steps)
    assert first_counts(steps, found, 1)[:, 0].tolist() == [[1, 1, 0, 0], [1, 0, 0, 1]]
    assert first_counts(steps, found, EVERY_TOKEN)[:, 0].tolist() == [[2, 2, 2, 0], [1, 1, 0, 2]]


def test_layers_of_first_counts() -> None:
    steps = crowd(0)
    found = requests_of(steps)
    every = first_counts(steps, found, 3)
    np.testing.assert_array_equal(first_counts(steps, found, 3, np.array([1])), every[:, 1:])


def test_replay_takes_places_and_new_sources() -> None:
    steps = steps_of(ROWS, IDS, n_experts=4)
    batch = batch_of(steps, np.array([1, 1, 0, 1, 0], np.int16))
    assert batch.step.tolist() == [0, 0, 1, 2, 2]
    assert batch.source_rank.tolist() == [1, 1, 0, 1, 0]
    np.testing.assert_array_equal(batch.experts, steps.experts)


@pytest.mark.parametrize("by", ["time", "request"])
def test_no_request_is_on_both_sides(by: str) -> None:
    steps = crowd(1)
    sides = split_sides(steps, by, 0.4, seed=3)
    fit, judged = (set(side.request.tolist()) for side in (sides.fit, sides.judged))
    assert not fit & judged and fit | judged == set(steps.request.tolist())
    assert sides.fit.tokens + sides.judged.tokens == steps.tokens
    assert 0 <= sides.first < sides.end <= len(sides.judged)
    np.testing.assert_array_equal(sides.judged.counts.sum(axis=0) + sides.fit.counts.sum(axis=0), steps.counts.sum(0))


def test_time_split_learns_from_what_has_ended() -> None:
    steps = crowd(1)
    sides = split_sides(steps, "time", 0.5)
    boundary = round(len(steps) * 0.5)
    assert sides.fit.step.max() < steps.step[boundary]
    assert sides.judged.step[sides.first] >= steps.step[boundary]
    assert requests_of(sides.judged).first.max() == sides.end - 1


def test_request_split_has_the_share_asked_for() -> None:
    steps = crowd(1)
    sides = split_sides(steps, "request", 0.25, seed=5)
    assert len(requests_of(sides.judged)) == 30 and sides.first == 0
    again = split_sides(steps, "request", 0.25, seed=5)
    np.testing.assert_array_equal(sides.judged.request, again.judged.request)
    assert set(sides.fit.request.tolist()) != set(split_sides(steps, "request", 0.25, seed=6).fit.request.tolist())


def test_unknown_split_and_empty_sides() -> None:
    with pytest.raises(UsageError, match="no split 'day'"):
        split_sides(crowd(0), "day")
    with pytest.raises(UsageError, match="leaves one side of 2 requests empty"):
        split_sides(steps_of(ROWS, IDS, n_experts=4), "time")
