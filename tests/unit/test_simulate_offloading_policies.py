"""What policies value, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from easybalance_sim.simulate.offloading import policies
from easybalance_sim.simulate.offloading.policies import History, belady, lfu
from easybalance_sim.simulate.offloading.uses import sides, uses_of
from tests.offload_steps import steps_of

ONE_LAYER = steps_of([(0, 0, [[0, 1]]), (1, 1, [[1, 2]]), (2, 2, [[3, 1]]), (3, 2, [[1, 0]]), (3, 3, [[0, 2]])])


def history() -> History:
    two = sides(ONE_LAYER, 0.5)
    return History(past=uses_of(two.past), judged=uses_of(two.judged), frequency=two.frequency())


def test_the_files_are_the_policies() -> None:
    assert policies.names() == ("belady", "lfu", "lru", "static")
    assert [name for name in policies.names() if policies.is_bound(name)] == ["belady"]


def test_lru_goes_by_step_then_by_tokens() -> None:
    made = policies.priorities("lru", history())
    assert made.past is not None and made.first is None
    assert made.past.tolist() == [0.5, 0.5, 1.5, 1.5]
    np.testing.assert_allclose(made.judged, np.array([2, 2, 3, 3, 3]) + np.array([1, 1, 2, 1, 1]) / 3)


def test_lfu_halves_what_lies_a_half_life_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lfu, "HALF_LIFE_STEPS", 1.0)
    made = policies.priorities("lfu", history())
    assert made.past is not None
    np.testing.assert_allclose(2**made.past, [1, 1, 1 + 2, 2])
    np.testing.assert_allclose(2**made.judged, [1 + 2 + 4, 4, 1 + 8, 1 + 2 + 4 + 8, 2 + 8])


def test_static_knows_earlier_requests_only() -> None:
    made = policies.priorities("static", history())
    assert made.past is None and made.first is not None
    assert made.first.tolist() == [1, 2, 1, 0]
    assert made.judged.tolist() == [2, 0, 1, 2, 1]


def test_belady_goes_by_the_next_use() -> None:
    later, first = belady.next_uses(history().judged)
    assert later.tolist() == [1, np.inf, np.inf, np.inf, np.inf]
    assert first.tolist() == [1, 0, 1, 0]
