from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from easybalance_sim.plan.plan import Plan
from easybalance_sim.simulate.rebalance.controllers.fixed import Fixed
from easybalance_sim.simulate.rebalance.loop import Course, run
from easybalance_sim.simulate.rebalance.report import (
    break_even_steps,
    course_section,
    served_seconds,
    timeline_section,
    times_of,
    weighted_quantile,
    with_pauses,
)
from easybalance_sim.simulate.rebalance.rollout_style import Style
from easybalance_sim.simulate.rebalance.serving import Window
from tests.rebalance_toys import toy_plan, toy_service, toy_window

# Rank 0 has experts 0 and 1, which take all tokens, until they are dealt out.
START, EVEN = toy_plan([[0, 1, 2, 3]], 2, 4), toy_plan([[0, 2, 1, 3]], 2, 4)
LOADS = [[40, 40, 0, 0]]
WINDOWS = [toy_window(number, LOADS) for number in range(4)]


@dataclass
class Scripted:
    """Asks for given plans after given windows; remembers what it was shown."""

    style: Style
    asks: dict[int, Plan]
    name: str = "scripted"
    shown: list[tuple[int, bool]] = field(default_factory=list)

    def observe(self, window: Window, plan: Plan, *, busy: bool) -> Plan | None:
        self.shown.append((window.number, busy))
        return None if busy else self.asks.get(window.number)


def _served(style: Style, asks: dict[int, Plan]) -> Course:
    service = toy_service(2, 2)
    return run(WINDOWS, [(Scripted(style, asks), START)], service)[0]


def test_nothing_asked_is_plain_serving() -> None:
    course = _served(Style(), {})
    assert served_seconds(course) == 4 * 80 and course.plan is START and not course.replans


def test_a_stop_is_paid_before_the_next_window() -> None:
    course = _served(Style(fixed_s=0.5), {1: EVEN})
    # Steps of 8 s under the start plan, of 4 s after; one expert reaches each rank in 1 s.
    assert served_seconds(course) == 2 * 80 + 2 * 40 + 1.5
    assert [piece.steps for piece in course.pieces] == [10, 10, 10, 10]
    assert course.pauses == [1.5]


def test_the_old_plan_serves_until_the_weights_have_arrived() -> None:
    course = _served(Style(chunk_layers=1, stops=False), {1: EVEN})
    # The transfer of 1 s ends within the first step of 8 s, but a layer takes a whole step.
    assert [piece.steps for piece in course.pieces] == [10, 10, 1, 9, 10]
    assert served_seconds(course) == 2 * 80 + 8 + 9 * 4 + 40 and course.pauses == []


def test_a_change_may_take_several_windows_and_the_loop_is_told() -> None:
    style = Style(chunk_layers=1, stops=False)
    loop = Scripted(style, {0: EVEN, 1: START})
    service = toy_service(2, 2, nvlink_bytes_per_s=1.0)
    course = run(WINDOWS, [(loop, START)], service)[0]
    # 100 s of transfer over steps of 8 s: 12.5 steps.
    assert loop.shown == [(0, False), (1, True), (2, False), (3, False)]
    assert [piece.steps for piece in course.pieces] == [10, 10, 2.5, 7.5, 10]
    assert course.plan is EVEN


def test_a_plan_that_moves_nothing_is_no_change() -> None:
    course = _served(Style(fixed_s=5.0), {0: toy_plan([[1, 0, 3, 2]], 2, 4)})
    assert not course.replans and served_seconds(course) == 4 * 80


def test_every_event_is_judged_with_and_without() -> None:
    course = _served(Style(fixed_s=0.5), {0: EVEN, 2: START})
    never = _served(Style(), {})
    section = course_section(course, never, toy_service(2, 2))
    first, second = section["events"]
    assert (first["window"], first["moves"], first["bytes"], first["pause_s"]) == (0, 2, 200, 1.5)
    assert first["steps"] == 20 and first["saved_s"] == 80 - 1.5
    assert (first["step_p99_us"], first["step_p99_us_without"]) == (4e6, 8e6)
    assert second["oscillates"] and second["saved_s"] == -40 - 1.5
    assert (section["replans"], section["oscillations"], section["pauses"], section["pause_s"]) == (2, 1, 2, 3.0)
    assert section["staging_bytes"] == 100 and section["bytes"] == 400
    assert section["seconds"] == 2 * 80 + 2 * 40 + 3
    assert section["saved_s_per_hour"] == pytest.approx(3600 * (320 - 243) / 320)
    # 40 steps cost 240 s instead of 320, a re-plan 1.5 s.
    assert section["break_even_steps"] == pytest.approx(1.5 / 2)
    assert section["rank_imbalance"] == {"mean": 1.5, "p99": 2.0}


def test_a_change_that_never_served_lost_its_pause() -> None:
    course = _served(Style(fixed_s=0.5), {3: EVEN})
    event = course_section(course, course, toy_service(2, 2))["events"][0]
    assert (event["steps"], event["saved_s"], event["step_p99_us"]) == (0, -1.5, None)


def test_quantiles_are_of_steps_not_of_windows() -> None:
    values, weights = np.array([3.0, 1.0, 2.0]), np.array([1.0, 98.0, 1.0])
    assert [weighted_quantile(values, weights, share) for share in (0.5, 0.98, 0.985, 1.0)] == [1.0, 1.0, 2.0, 3.0]


def test_a_pause_is_one_long_step() -> None:
    values, weights = with_pauses([10.0], np.array([1.0, 3.0]), np.array([1.0, 1.0]))
    assert values.tolist() == [1.0, 3.0, 12.0] and weights.tolist() == [1.0, 1.0, 1.0]


def test_what_saves_nothing_never_pays() -> None:
    assert break_even_steps(10.0, 2.0, 1.5) == 20.0
    assert break_even_steps(10.0, 2.0, 2.0) is None


def test_loops_share_windows_but_not_plans() -> None:
    service = toy_service(2, 2)
    loops = [(Fixed(name="never"), START), (Fixed(name="static"), EVEN)]
    told: list[int] = []
    never, static = run(WINDOWS, loops, service, told.append)
    assert (served_seconds(never), served_seconds(static), told) == (320, 160, [1, 1, 1, 1])


def test_the_course_over_time_is_weighted_by_steps() -> None:
    course = _served(Style(stops=False), {1: EVEN})
    found = timeline_section(course.pieces)
    whole = [sum(piece.seconds for piece in course.pieces if piece.window == number) / 10 for number in range(4)]
    assert found["step_us"] == pytest.approx([1e6 * seconds for seconds in whole])
    assert len(course.pieces) > 4 and found["rank_imbalance"][0] == course.pieces[0].imbalance[0]
    assert found["rank_imbalance"][3] == course.pieces[-1].imbalance[0]


def test_a_course_has_few_points_however_long() -> None:
    assert times_of(np.arange(30, 40)).tolist() == list(range(30, 40))
    many = times_of(np.arange(30, 30 + 401))
    assert len(many) == 201 and many[0] == 30 and many[-1] == 430
