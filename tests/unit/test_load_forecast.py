"""Forecasts against naive loops, and the age of windows without traffic."""

from __future__ import annotations

import numpy as np
import pytest

from easybalance_sim.arrays import FloatArray
from easybalance_sim.errors import UsageError
from easybalance_sim.load.forecast import FAST_HALF_LIFE, METHODS, SLOW_HALF_LIFE, ema, forecast
from easybalance_sim.load.windows import LoadWindows


def windows(ids: list[int], seed: int = 0) -> LoadWindows:
    tokens = np.random.default_rng(seed).integers(0, 100, (len(ids), 2, 5))
    return LoadWindows(tokens=tokens, window=np.array(ids), steps=np.ones(len(ids), np.int32), steps_per_window=1)


def naive_ema(made: LoadWindows, half_life: float) -> FloatArray:
    """Window by window, windows without traffic included: those carry no news, so they only age what is known."""
    out = np.zeros(made.tokens.shape)
    for layer in range(2):
        for expert in range(5):
            estimate, weight_of_old = sum(made.tokens[:, layer, expert].tolist()) / len(made.window), 1.0
            row = 0
            for now in range(made.window[0], made.window[-1] + 1):
                weight_of_old *= 0.5 ** (1 / half_life)
                if now == made.window[row]:
                    count = int(made.tokens[row, layer, expert])
                    estimate = weight_of_old * estimate + (1 - weight_of_old) * count
                    out[row, layer, expert] = estimate
                    weight_of_old, row = 1.0, row + 1
    return out


def test_mean_and_last() -> None:
    made = windows([3, 4, 9])
    found = forecast(made)
    assert (found.method, found.half_life) == ("mean", 0.0) and found.windows is made
    assert not found.tokens.flags.writeable
    np.testing.assert_allclose(found.tokens, (made.tokens[0] + made.tokens[1] + made.tokens[2]) / 3)
    np.testing.assert_array_equal(forecast(made, "last").tokens, made.tokens[2])


@pytest.mark.parametrize("ids", [[7], [0, 1, 2, 3], [5, 6, 20, 21, 90]])
@pytest.mark.parametrize("half_life", [0.5, 4.0, 64.0])
def test_ema_equals_a_naive_loop(ids: list[int], half_life: float) -> None:
    made = windows(ids)
    np.testing.assert_allclose(ema(made, half_life), naive_ema(made, half_life), rtol=1e-12)
    found = forecast(made, "ema-fast", half_life)
    np.testing.assert_array_equal(found.tokens, ema(made, half_life)[-1])
    assert found.half_life == half_life


@pytest.mark.parametrize(("method", "life"), [("ema-fast", FAST_HALF_LIFE), ("ema-slow", SLOW_HALF_LIFE)])
def test_half_lives_of_the_methods(method: str, life: float) -> None:
    made = windows([0, 1, 2])
    found = forecast(made, method)
    assert found.half_life == life
    np.testing.assert_array_equal(found.tokens, ema(made, life)[-1])


def test_after_one_half_life_the_new_counts_weigh_half() -> None:
    made = LoadWindows(
        tokens=np.array([[[8]], [[0]]]), window=np.array([0, 4]), steps=np.ones(2, np.int32), steps_per_window=1
    )
    before, after = ema(made, 4.0)[:, 0, 0]
    assert after == pytest.approx(before / 2)


@pytest.mark.parametrize("method", METHODS)
def test_a_steady_load_is_what_is_forecast(method: str) -> None:
    tokens = np.broadcast_to(np.arange(10).reshape(2, 5), (6, 2, 5))
    made = LoadWindows(
        tokens=tokens, window=np.array([0, 1, 2, 7, 8, 30]), steps=np.ones(6, np.int32), steps_per_window=1
    )
    np.testing.assert_allclose(forecast(made, method).tokens, tokens[0])


def test_what_cannot_be_forecast() -> None:
    with pytest.raises(UsageError, match=r"no forecast 'median' — did you mean mean\? choose mean, last, "):
        forecast(windows([1]), "median")
    with pytest.raises(UsageError, match="no window with traffic to forecast from"):
        forecast(windows([]))
    for life in (-1.0, float("nan")):
        with pytest.raises(UsageError, match="half-life"):
            forecast(windows([1]), "ema-fast", life)
