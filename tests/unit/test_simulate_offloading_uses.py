"""Uses of experts, halves of a trace, requests queued again."""

from __future__ import annotations

import numpy as np
import pytest

from easybalance_sim.errors import UsageError
from easybalance_sim.simulate.offloading import uses as module
from easybalance_sim.simulate.offloading.uses import requeued, sides, uses_of
from tests.offload_steps import random_steps, steps_of

FOUR = steps_of(
    [
        (0, 7, [[0, 1], [2, 3]]),
        (0, 8, [[0, 2], [2, 1]]),
        (1, 7, [[3, 0], [0, 1]]),
        (4, 9, [[1, 2], [3, 2]]),
    ]
)


def test_uses_are_the_distinct_experts_with_their_tokens() -> None:
    uses = uses_of(FOUR)
    assert (uses.steps, uses.positions, uses.items) == (3, 6, 8)
    assert uses.start.tolist() == [0, 3, 6, 8, 10, 12, 14]
    assert uses.item.tolist() == [0, 1, 2, 5, 6, 7, 0, 3, 4, 5, 1, 2, 6, 7]
    assert uses.tokens.tolist() == [2, 1, 1, 1, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1]
    assert uses.position.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert np.argwhere(uses.presence[1]).tolist() == [[0, 0], [0, 3], [1, 0], [1, 1]]


def test_uses_are_the_same_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = random_steps(3, 20, 5)
    whole = uses_of(steps)
    monkeypatch.setattr(module, "COUNTS_AT_ONCE", 3 * steps.layers * steps.meta.experts)
    for name in ("start", "item", "tokens"):
        np.testing.assert_array_equal(getattr(uses_of(steps), name), getattr(whole, name))


def test_nothing_is_learned_from_requests_that_are_judged() -> None:
    two = sides(FOUR, 0.7)
    assert (two.past.step.tolist(), two.judged.step.tolist()) == ([0], [1, 4])
    assert two.ended.tolist() == [False, True]
    assert two.frequency().tolist() == [1, 0, 1, 0, 0, 1, 1, 0]


@pytest.mark.parametrize("held_out", [0.01, 0.99])
def test_both_halves_must_hold_steps(held_out: float) -> None:
    with pytest.raises(UsageError, match="3 steps have no past and judged part"):
        sides(FOUR, held_out)


def test_requests_are_queued_again_in_their_order_without_gaps() -> None:
    """By hand: request 7 takes two steps, 8 and 9 one each."""
    alone = requeued(FOUR, 1)
    assert (alone.step.tolist(), alone.start.tolist()) == ([0, 1, 2, 3], [0, 1, 2, 3, 4])
    assert alone.request.tolist() == [7, 7, 8, 9]
    np.testing.assert_array_equal(alone.experts, FOUR.experts[[0, 2, 1, 3]])
    pairs = requeued(FOUR, 2)
    assert (pairs.start.tolist(), pairs.request.tolist()) == ([0, 2, 4], [7, 8, 7, 9])


def test_queued_again_every_step_has_as_many_requests() -> None:
    steps = random_steps(5, 40, 3)
    again = requeued(steps, 7)
    assert set(np.diff(again.start).tolist()) == {7}
    assert sorted(again.request.tolist()) == sorted(steps.request[np.isin(steps.request, again.request)].tolist())


def test_more_requests_at_once_than_there_are_is_refused() -> None:
    with pytest.raises(UsageError, match="--batch 4: the trace has 3 requests"):
        requeued(FOUR, 4)
