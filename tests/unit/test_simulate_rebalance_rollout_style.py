from __future__ import annotations

from typing import Any

import pytest

from easybalance_sim.simulate.rebalance.rollout_style import Change, Style
from tests.rebalance_toys import toy_plan

OLD = toy_plan([[0, 1]] * 3, 2, 2)
NEW = toy_plan([[1, 0]] * 3, 2, 2)


def _change(layer_s: tuple[float, ...] = (2.0, 0.0, 4.0), **style: Any) -> Change:
    return Change(old=OLD, new=NEW, style=Style(**style), layer_s=layer_s)


def _first_experts(change: Change) -> list[int]:
    return [int(expert) for expert in change.serving().expert_of_slot[:, 0]]


def test_one_stop_pauses_for_planning_and_all_of_the_transfer() -> None:
    change = _change(fixed_s=0.5)
    assert change.steps_left(1.0) == 0.0
    assert change.advance(0.0, 1.0) == [6.5]
    assert change.is_done and change.serving() is NEW


def test_a_measured_pause_is_all_of_it() -> None:
    assert _change(fixed_s=0.5, measured_s=9.0).advance(0.0, 1.0) == [9.0]
    assert _change(fixed_s=0.5, measured_s=9.0, chunk_layers=1).advance(2.0, 1.0) == [3.0, 3.0, 3.0]


def test_chunks_pause_one_after_the_other_and_serve_mixed_rows() -> None:
    change = _change(chunk_layers=1, chunk_steps=10, fixed_s=0.5)
    assert change.advance(0.0, 1.0) == [2.5]
    assert _first_experts(change) == [1, 0, 0]
    assert change.steps_left(1.0) == 20.0
    # The second layer has nothing to fetch, so serving does not wait for it.
    assert change.advance(10.0, 1.0) == []
    assert change.advance(9.0, 1.0) == [] and not change.is_done
    assert change.advance(1.0, 1.0) == [4.0] and change.is_done


def test_weights_that_travel_beside_serving_never_pause_and_arrive_in_order() -> None:
    change = _change(chunk_layers=1, stops=False, fixed_s=9.0)
    assert change.advance(0.0, 1.0) == [] and change.serving() is OLD
    assert change.steps_left(0.5) == 12.0
    assert change.advance(5.0, 0.5) == []
    # 2.5 s carried the first layer and the empty second one.
    assert _first_experts(change) == [1, 1, 0]
    assert change.steps_left(0.5) == 7.0
    assert change.advance(7.0, 0.5) == [] and change.is_done


def test_the_steps_so_far_are_not_taken_to_be_as_long_as_the_last() -> None:
    change = _change((3.0, 3.0, 3.0), chunk_layers=1, stops=False)
    change.advance(2.0, 2.0)
    change.advance(1.0, 0.1)
    assert change.seconds == pytest.approx(4.1) and change.done == 1


def test_fast_links_still_take_a_step_for_each_layer() -> None:
    change = _change((0.0, 0.0, 0.0), chunk_layers=1, stops=False)
    assert change.steps_left(1.0) == 3.0
    change.advance(2.0, 1.0)
    assert change.done == 2


def test_plans_with_other_slots_serve_the_old_one_until_the_last_layer() -> None:
    wide = toy_plan([[1, 0, 0, 1]] * 3, 2, 2)
    change = Change(old=OLD, new=wide, style=Style(chunk_layers=1, chunk_steps=1), layer_s=(1.0, 1.0, 1.0))
    change.advance(0.0, 1.0)
    assert change.done == 1 and change.serving() is OLD
