from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from easybalance_sim.arrays import AnyArray
from easybalance_sim.plan.migration import moving_slots
from easybalance_sim.plan.plan import Plan
from easybalance_sim.simulate.rebalance.controllers.fixed import Fixed
from easybalance_sim.simulate.rebalance.controllers.guarded import Guard, Guarded, Trial
from easybalance_sim.simulate.rebalance.controllers.layerwise import DECAY, Layerwise, remembered
from easybalance_sim.simulate.rebalance.controllers.periodic import Periodic
from easybalance_sim.simulate.rebalance.controllers.swaps import Swaps
from easybalance_sim.simulate.rebalance.loop import run
from easybalance_sim.simulate.rebalance.rollout_style import Style
from easybalance_sim.simulate.rebalance.serving import Window
from tests.rebalance_toys import toy_plan, toy_service, toy_window

START = toy_plan([[0, 1, 2, 3]], 2, 4)
HOT = [[40, 40, 1, 1]]


def _periodic(**changes: Any) -> Periodic:
    settings: dict[str, Any] = {
        "name": "p", "service": toy_service(2, 2), "interval_steps": 30, "window_steps": 20, "style": Style(),
        **changes,
    }  # fmt: skip
    return Periodic(**settings)


def _asked(loop: Any, windows: list[Window], plan: Plan = START, busy: tuple[int, ...] = ()) -> list[int]:
    """Windows after which a loop asks for a plan."""
    return [one.number for one in windows if loop.observe(one, plan, busy=one.number in busy) is not None]


def _hot(count: int, steps: float = 10.0) -> list[Window]:
    return [toy_window(number, HOT, steps) for number in range(count)]


def test_no_control_asks_for_nothing() -> None:
    assert _asked(Fixed(name="never"), _hot(5)) == []


def test_a_plan_every_interval_and_the_rest_carries_over() -> None:
    assert _asked(_periodic(), _hot(9)) == [2, 5, 8]
    # Windows of 24 steps: 72 steps are two intervals and 12 steps of the third.
    assert _asked(_periodic(), _hot(8, 24.0)) == [1, 2, 3, 4, 6, 7]
    assert _asked(_periodic(first_steps=10), _hot(9)) == [0, 3, 6]


def test_a_plan_on_its_way_delays_the_next_but_its_steps_count() -> None:
    assert _asked(_periodic(), _hot(8), busy=(2, 3)) == [4, 5]


def test_only_the_last_steps_make_the_plan() -> None:
    loop = _periodic()
    for number, tokens in enumerate(([[90, 90, 0, 0]], [[0, 0, 40, 40]], [[1, 1, 40, 40]])):
        plan = loop.observe(toy_window(number, tokens), START, busy=False)
    assert plan is not None
    # The two that are busy in the last 20 steps, 2 and 3, come apart; 0 and 1 are as cold as they were.
    rank = {int(expert): slot // 2 for slot, expert in enumerate(plan.expert_of_slot[0])}
    assert rank[2] != rank[3]


def test_a_utilisation_that_is_high_enough_is_left_alone() -> None:
    # 82 tokens of which rank 0 has 80: 41 / 80.
    assert _asked(_periodic(enough=0.5), _hot(3)) == []
    assert _asked(_periodic(enough=0.6), _hot(3)) == [2]


def test_a_layer_without_traffic_says_nothing_of_utilisation() -> None:
    plan = toy_plan([[0, 1, 2, 3], [0, 1, 2, 3]], 2, 4)
    windows = [toy_window(number, [*HOT, [0, 0, 0, 0]]) for number in range(3)]
    assert _asked(_periodic(enough=0.5), windows, plan) == []


def test_what_a_decaying_load_remembers() -> None:
    assert remembered(1) == pytest.approx((1, 1))
    assert remembered(1000) == pytest.approx((1 / (1 - DECAY), (1 + DECAY) / (1 - DECAY)))


def _layered(service: Any, **changes: Any) -> Layerwise:
    return Layerwise(name="t", service=service, layers_per_step=0.1, **changes)


def test_layers_take_turns_and_forget_their_load() -> None:
    plan = toy_plan([[0, 1, 2, 3]] * 3, 2, 4)
    loop = _layered(toy_service(2, 2))
    windows = [toy_window(number, HOT * 3) for number in range(4)]
    for number, window in enumerate(windows):
        asked = loop.observe(window, plan, busy=False)
        assert asked is not None
        changed = moving_slots(plan, asked).any(axis=1)
        assert changed.tolist() == [layer == number % 3 for layer in range(3)]
        assert loop._load is not None and loop._load.any(axis=1).tolist() == [layer != number % 3 for layer in range(3)]


def test_turns_that_came_while_busy_are_caught_up_for_each_layer_once() -> None:
    plan = toy_plan([[0, 1, 2, 3]] * 3, 2, 4)
    loop = _layered(toy_service(2, 2))
    for number in range(9):
        assert loop.observe(toy_window(number, HOT * 3), plan, busy=True) is None
    asked = loop.observe(toy_window(9, HOT * 3), plan, busy=False)
    assert asked is not None and moving_slots(plan, asked).any(axis=1).all()


def test_a_swap_takes_the_busiest_rank_down() -> None:
    loop = Swaps(name="s", service=toy_service(2, 2), interval_steps=20, style=Style())
    assert loop.observe(toy_window(0, HOT), START, busy=False) is None
    asked = loop.observe(toy_window(1, HOT), START, busy=False)
    assert asked is not None
    loads = np.array(HOT[0])[asked.expert_of_slot[0]].reshape(2, 2).sum(axis=1)
    assert loads.tolist() == [41, 41] and moving_slots(START, asked).sum() == 2


def test_swaps_leave_alone_what_is_balanced() -> None:
    loop = Swaps(name="s", service=toy_service(2, 2), interval_steps=10, style=Style())
    assert _asked(loop, [toy_window(number, [[5, 5, 5, 5]]) for number in range(3)]) == []


def test_a_swap_never_puts_an_expert_twice_on_a_rank() -> None:
    plan = toy_plan([[0, 1, 0, 2]], 2, 3)
    loop = Swaps(name="s", service=toy_service(2, 2), interval_steps=10, style=Style())
    # Rank 0 would like to give expert 0 away, which rank 1 has; experts 1 and 2 swapped gain nothing.
    assert loop.observe(toy_window(0, [[80, 10, 10]]), plan, busy=False) is None


def _shares(hot: tuple[int, ...], experts: int = 8) -> AnyArray:
    weight = np.ones(experts)
    weight[list(hot)] = 8
    share: AnyArray = weight / weight.sum()
    return share


def _traffic(count: int, hot: Any, seed: int) -> list[Window]:
    rng = np.random.default_rng(seed)
    return [toy_window(number, rng.multinomial(20_000, [_shares(hot(number))] * 2)) for number in range(count)]


RANKS = toy_plan([[0, 4, 1, 5, 2, 6, 3, 7]] * 2, 4, 8)
QUICK = Guard(proposals=2000, min_gain=0.05)


def _guarded(guard: Guard = QUICK) -> Guarded:
    style = Style(chunk_layers=1, stops=False)
    return Guarded(name="guarded", service=toy_service(4, 2, nvlink_bytes_per_s=1e4), style=style, guard=guard)


def _course(windows: list[Window], guard: Guard = QUICK) -> list[int]:
    loop = _guarded(guard)
    course = run(windows, [(loop, RANKS)], loop.service)[0]
    return [replan.window for replan in course.replans]


def test_traffic_that_stays_is_never_planned_again() -> None:
    assert _course(_traffic(60, lambda number: (0, 1, 2, 3), 100)) == []


def test_a_sudden_change_is_planned_from_one_window_and_confirmed_on_the_next() -> None:
    # Experts 0 and 4 share a rank: after window 30 both are hot.
    windows = _traffic(60, lambda number: (0, 1, 2, 3) if number < 30 else (0, 4, 1, 5), 100)
    assert _course(windows)[0] == 31


def test_what_proves_itself_after_a_sudden_change_ends_what_was_remembered() -> None:
    windows = _traffic(60, lambda number: (0, 1, 2, 3) if number < 30 else (0, 4, 1, 5), 100)
    loop = _guarded()
    run(windows, [(loop, RANKS)], loop.service)
    assert loop.alarms[0] == 31
    # 256 + 60 windows, shared by the regimes that ended and the one that is guessed.
    assert loop._horizon() == pytest.approx((256 + 60) / (1 + len(loop.alarms)))


def _saves(share: float, swing: float, later: int) -> int | None:
    """Looks until a candidate is taken that saves `share` ± `swing` of a window, at most `later`."""
    loop = _guarded(replace(QUICK, min_gain=0.005))
    trial = Trial(plan=RANKS)
    for look in range(1, later + 1):
        trial.later += 1
        trial.saved.append(share + swing * (-1) ** look)
        trial.seconds.append(100.0)
        loop._trial = trial
        if loop._look(trial, MOVED) is not None:
            return look
    return None


MOVED = toy_plan([[0, 4, 1, 5, 2, 7, 3, 6]] * 2, 4, 8)


def test_the_larger_the_saving_the_fewer_windows_it_has_to_show_it_on() -> None:
    looks = [_saves(share, 0.001, 30) for share in (0.05, 0.015, 0.008)]
    assert looks == [1, 2, 3]


def test_the_noisier_the_saving_the_more_windows_it_takes() -> None:
    assert _saves(0.05, 0.0, 30) == 1
    quiet, noisy = _saves(0.012, 0.002, 16), _saves(0.02, 0.02, 16)
    assert quiet is not None and noisy is not None and quiet < noisy
    assert _saves(0.02, 0.09, 16) is None


def test_a_candidate_that_is_older_than_the_memory_makes_room() -> None:
    loop = replace(_guarded(), service=toy_service(4, 2, nvlink_bytes_per_s=1e-9))
    trial = Trial(plan=RANKS, saved=[0.2], seconds=[1.0], later=QUICK.memory - 1)
    loop._trial = trial
    assert loop._look(trial, MOVED) is None and loop._trial is trial
    trial.later += 1
    assert loop._look(trial, MOVED) is None and loop._trial is None


def test_more_windows_have_to_speak_for_it_when_asked() -> None:
    windows = _traffic(60, lambda number: (0, 1, 2, 3) if number < 30 else (0, 4, 1, 5), 100)
    assert _course(windows, replace(QUICK, confirm=5))[0] >= 35


def test_a_window_without_traffic_tells_nothing() -> None:
    windows = _traffic(60, lambda number: (0, 1, 2, 3) if number < 30 else (0, 4, 1, 5), 100)
    idle = [replace(window, tokens=window.tokens * 0, drawn=window.drawn * 0) for window in windows[:1]]
    loop, other = _guarded(), _guarded()
    for window in windows[:30]:
        assert loop.observe(window, RANKS, busy=False) == other.observe(window, RANKS, busy=False)
        assert loop.observe(idle[0], RANKS, busy=False) is None
    assert len(loop._seen) == len(other._seen) and loop._served == 30


def test_a_change_that_does_not_last_is_not_confirmed() -> None:
    windows = _traffic(40, lambda number: (0, 4, 1, 5) if number == 30 else (0, 1, 2, 3), 100)
    assert _course(windows) == []


def test_what_cannot_earn_its_transfer_is_not_moved() -> None:
    windows = _traffic(60, lambda number: (0, 1, 2, 3) if number < 30 else (0, 4, 1, 5), 100)
    loop = replace(_guarded(), service=toy_service(4, 2, nvlink_bytes_per_s=1e-6))
    assert run(windows, [(loop, RANKS)], loop.service)[0].replans == []


def test_a_change_fetches_no_more_than_its_limit() -> None:
    windows = _traffic(60, lambda number: (0, 1, 2, 3) if number < 30 else (0, 4, 1, 5), 100)
    loop = _guarded()
    replans = run(windows, [(loop, RANKS)], loop.service)[0].replans
    # A fourth of 16 slots.
    assert replans and all(replan.moves <= 4 for replan in replans)
    assert _course(windows, replace(QUICK, step_limit=0.0)) == []


def test_a_minimum_interval_holds_even_when_ranks_run_hot() -> None:
    hot = [(0, 1, 2, 3), (0, 4, 1, 5), (0, 2, 4, 6), (1, 3, 5, 7)]
    windows = _traffic(80, lambda number: hot[number // 20], 100)
    quick, slow = (_course(windows, replace(QUICK, min_interval=interval)) for interval in (1, 25))
    assert min(np.diff(quick)) < 25 <= min(np.diff(slow)) and quick[0] == slow[0]


def test_it_decides_by_what_it_has_seen() -> None:
    windows = _traffic(50, lambda number: (0, 1, 2, 3) if number < 30 else (0, 4, 1, 5), 100)
    other = windows[:40] + _traffic(50, lambda number: (0, 1, 2, 3), 7)[40:]
    assert [w for w in _course(windows) if w < 40] == [w for w in _course(other) if w < 40] != []
