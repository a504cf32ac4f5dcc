"""What predictors want, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from easybalance_sim.simulate.offloading import prefetch
from easybalance_sim.simulate.offloading.prefetch import View, history, previous_layer
from easybalance_sim.simulate.offloading.uses import sides, uses_of
from easybalance_sim.simulate.steps.recorded import RecordedSteps
from tests.offload_steps import random_steps, steps_of


def view(steps: RecordedSteps, held_out: float = 0.5, ahead: int = 1) -> View:
    two = sides(steps, held_out)
    return View(sides=two, past=uses_of(two.past), judged=uses_of(two.judged), ahead=ahead)


def lists(name: str, seen: View) -> list[list[int]]:
    """Wanted items of every position."""
    found = prefetch.wanted(name, seen)
    return [part.tolist() for part in np.split(found.item, found.start[1:-1])]


def test_the_files_are_the_predictors() -> None:
    assert prefetch.names() == ("none", "history", "oracle", "previous-layer")
    assert [name for name in prefetch.names() if prefetch.is_bound(name)] == ["oracle"]


def test_none_wants_nothing_and_the_oracle_what_comes() -> None:
    seen = view(random_steps(1, 10, 2))
    assert lists("none", seen) == [[]] * seen.judged.positions
    wanted = [part.tolist() for part in np.split(seen.judged.item, seen.judged.start[1:-1])]
    assert lists("oracle", seen) == wanted


def test_history_is_a_moving_average_of_the_steps_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half-life 1: half of the last step, a quarter of the one before."""
    monkeypatch.setattr(history, "HALF_LIFE_STEPS", 1.0)
    steps = steps_of([(0, 0, [[0, 1]]), (1, 0, [[1, 2]]), (2, 1, [[2, 3]]), (3, 1, [[0, 1]])])
    ((layer, chance),) = history.chances(view(steps))
    assert (layer, chance.tolist()) == (0, [[0.25, 0.75, 0.5, 0.0], [0.125, 0.375, 0.75, 0.5]])
    assert lists("history", view(steps)) == [[1, 2], [2, 3]]


def test_the_layer_before_is_learned_from_requests_that_are_over() -> None:
    """Request 5 is judged: its token in the past must teach nothing."""
    steps = steps_of(
        [
            (0, 0, [[0], [2]]),
            (0, 1, [[0], [3]]),
            (1, 2, [[0], [3]]),
            (1, 3, [[1], [1]]),
            (1, 5, [[1], [0]]),
            (2, 5, [[0], [0]]),
            (2, 6, [[1], [0]]),
            (3, 5, [[2], [0]]),
        ]
    )
    seen = view(steps)
    ((layer, chance),) = previous_layer.chances(seen)
    assert layer == 1
    always = previous_layer.ALMOST_ONE
    np.testing.assert_allclose(chance[0], [0, always, 1 / 3, 2 / 3], atol=1e-5)
    np.testing.assert_allclose(chance[1], [0, 1 / 4, 1 / 4, 1 / 2], atol=1e-9)
    assert lists("previous-layer", seen) == [[], [5, 7], [], [7]]


def test_tokens_of_a_step_add_up_in_blocks_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = view(random_steps(2, 30, 6, layers=3), ahead=2)
    whole = list(previous_layer.chances(seen))
    assert [layer for layer, _ in whole] == [2]
    monkeypatch.setattr(previous_layer, "TOKENS_AT_ONCE", 7)
    for (_, mine), (_, other) in zip(previous_layer.chances(seen), whole, strict=True):
        np.testing.assert_allclose(mine, other, atol=1e-12)
