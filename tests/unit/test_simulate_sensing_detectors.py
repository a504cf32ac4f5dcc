"""Hot-spot rules on loads that can be followed by hand: windows of two steps, three units, mostly a mean of 10."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from easybalance_sim.arrays import FloatArray
from easybalance_sim.simulate.sensing.detectors import (
    ARTICLE,
    Average,
    Detector,
    Growing,
    Hysteresis,
    Jump,
    Lasting,
    Over,
    Trend,
    detectors,
    release,
)
from easybalance_sim.simulate.sensing.series import Series, share

WINDOW = 2


def windows(*rows: Sequence[float]) -> Series:
    """Loads that stay for a window."""
    return Series(np.repeat(np.array(rows, np.float64), WINDOW, axis=0))


def at_end(rule: Detector, series: Series) -> list[bool]:
    """What a rule calls hot after the last step."""
    hot: list[bool] = rule.fires(series)[-1].tolist()
    return hot


def test_what_is_seen_of_the_past_and_what_comes() -> None:
    series = Series(np.array([[1.0], [2.0], [4.0], [8.0]]))
    assert series.recent(2)[:, 0].tolist() == [1, 3, 6, 12]
    assert series.recent(2, ago=1)[:, 0].tolist() == [0, 1, 3, 6]
    assert series.ahead(2)[:, 0].tolist() == [6, 12, 8, 0]


def test_a_moving_average_forgets_by_e_over_its_time() -> None:
    seen = Series(np.array([[1.0], [0.0], [0.0], [0.0]])).averaged(3.0)[:, 0]
    assert seen[3] == pytest.approx(seen[0] / np.e)
    assert Series(np.ones((200, 1))).averaged(3.0)[-1, 0] == pytest.approx(1.0)


def test_share_without_load_is_even() -> None:
    assert share(np.array([[6.0, 3.0, 3.0], [0.0, 0.0, 0.0]])).tolist() == [[1.5, 0.75, 0.75], [1, 1, 1]]


def test_traffic_that_grows_everywhere_is_a_hot_spot_by_counts_alone() -> None:
    series = windows([12, 9, 9], [12, 9, 9], [24, 18, 18])
    assert at_end(Growing(window=WINDOW), series) == [True, False, False]
    assert at_end(Growing(window=WINDOW, of_share=True), series) == [False, False, False]
    assert at_end(Jump(window=WINDOW), series) == [True, True, True]


@pytest.mark.parametrize(("last", "hot"), [(23.1, True), (22.9, False)])
def test_growth_starts_at_fifteen_percent(last: float, hot: bool) -> None:
    series = windows([20, 9, 9], [20, 9, 9], [last, 8, 8])
    assert at_end(Growing(window=WINDOW), series)[0] is hot


def test_growth_from_below_the_mean_is_none() -> None:
    assert at_end(Growing(window=WINDOW), windows([9, 12, 9], [12, 9, 9], [20, 5, 5])) == [False, False, False]


def test_three_windows_above_the_mean() -> None:
    assert at_end(Lasting(window=WINDOW), windows([11, 12, 7], [11, 7, 12], [11, 12, 7])) == [True, False, False]


def test_the_jump_looks_past_the_window_between() -> None:
    assert at_end(Jump(window=WINDOW), windows([10, 10, 10], [50, 1, 10], [13, 13.5, 3.5])) == [False, True, False]


def test_the_longer_window_does_not_fall_for_one_spike() -> None:
    series = windows([10, 10, 10], [10, 10, 10], [14, 8, 8])
    assert at_end(Over(window=WINDOW, windows=1, threshold=1.2), series)[0]
    assert not at_end(Over(window=WINDOW, windows=3, threshold=1.2), series)[0]
    assert at_end(Over(window=WINDOW, windows=3, threshold=1.13), series)[0]


def test_hysteresis_holds_between_its_thresholds() -> None:
    rule = Hysteresis(window=1, windows=1, on=1.2, off=1.1)
    shares = [1.0, 1.25, 1.15, 1.12, 1.05, 1.15, 1.3, 1.1]
    series = Series(np.array([[part, 2 - part] for part in shares]))
    assert rule.fires(series)[:, 0].tolist() == [False, True, True, True, False, False, True, True]


def test_a_trend_goes_on_as_it_went() -> None:
    series = windows([10, 10, 10], [11, 10, 9])
    assert at_end(Trend(window=WINDOW, threshold=1.19), series) == [True, False, False]
    assert at_end(Trend(window=WINDOW, threshold=1.21), series) == [False, False, False]


def test_an_average_over_the_threshold() -> None:
    series = Series(np.tile([13.0, 9.0, 8.0], (40, 1)))
    assert at_end(Average(window=WINDOW, tau_steps=4.0, threshold=1.29), series) == [True, False, False]
    assert at_end(Average(window=WINDOW, tau_steps=4.0, threshold=1.31), series) == [False, False, False]


def test_nothing_fires_before_its_past_is_there() -> None:
    always: FloatArray = np.tile([30.0, 1.0, 1.0], (9, 1))
    first = {rule.name: int(rule.fires(Series(always))[:, 0].argmax()) for rule in detectors(WINDOW, 4.0, 1.2)}
    assert first.pop("growing counts") == first.pop("growing share") == first.pop("jump") == 0  # never
    assert first == {
        "above mean": 5,
        "last window": 1,
        "last 3 windows": 5,
        "hysteresis": 5,
        "moving average": 1,
        "trend": 3,
    }


def test_the_article_comes_first_and_names_differ() -> None:
    rules = detectors(WINDOW, 4.0, 1.2)
    assert rules[0].name == ARTICLE
    assert len({rule.name for rule in rules}) == len({rule.says for rule in rules}) == 9
    assert release(1.2) == pytest.approx(1.1)
    assert release(1.1) == pytest.approx(1.05)
