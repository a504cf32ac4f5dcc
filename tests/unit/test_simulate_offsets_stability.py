"""Limits of loops, the gain of a router, and what tells that a loop swings."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easybalance_sim.arrays import FloatArray
from easybalance_sim.errors import UsageError
from easybalance_sim.simulate.offsets.controllers import EXPERT, HEAT, LAYER, MAX, PI, SIGN, Controller, I, P
from easybalance_sim.simulate.offsets.loop import Loop
from easybalance_sim.simulate.offsets.predictability import forecast, predictability
from easybalance_sim.simulate.offsets.scores import scores_of
from easybalance_sim.simulate.offsets.stability import (
    LEAST_DELAY,
    SAFE_SHARE,
    SLOW_SHARE,
    PlantGain,
    limit,
    margin,
    oscillation,
    plant_gain,
    safe,
)
from easybalance_sim.simulate.steps.placements import contiguous
from tests.recorded_scores import overlaid, recorded_steps

GAIN = PlantGain(rank=10.0, rank_low=8.0, rank_high=12.0, expert=5.0, expert_low=4.0, expert_high=6.0, probe=0.01)


def simulated(window: int, delay: int, gain: float, integral: float) -> float:
    """How large a disturbance of 1 is after many steps of the linear model, at its largest."""
    z, held = [0.0] * (window + delay), 0.0
    for step in range(4000):
        mean = sum(z[-delay - k] for k in range(window)) / window
        held += integral * mean
        z.append(float(step == 0) - gain * mean - held)
        if abs(z[-1]) > 1e6:
            return math.inf
    return max(map(abs, z[-window - delay :]))


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 16), st.integers(1, 6), st.sampled_from([(1.0, 0.0), (0.0, 1.0), (1.0, 0.05)]))
def test_a_disturbance_dies_below_the_limit_and_grows_above(
    window: int, delay: int, direction: tuple[float, float]
) -> None:
    most = limit(window, delay, *direction, 1.0)
    below, above = (simulated(window, delay, *(share * most * one for one in direction)) for share in (0.9, 1.1))
    assert below < 1.0 < above


def test_limits_by_hand() -> None:
    # z(t) = -K z(t-1) stays for K = 1; with an integral u(t) = u(t-1) + K z(t-1) it is K = 2.
    assert limit(1, 1, 1.0, 0.0, 1.0) == pytest.approx(1.0)
    assert limit(1, 1, 0.0, 1.0, 1.0) == pytest.approx(2.0)
    assert limit(1, 1, 0.5, 0.0, 1.0) == pytest.approx(2.0)
    # A leak only helps.
    assert limit(12, 4, 0.0, 1.0, 0.9) > limit(12, 4, 0.0, 1.0, 1.0)
    with pytest.raises(UsageError, match="has no limit"):
        limit(12, 1, 0.0, 0.0, 1.0)


def test_margins_warn_and_refuse() -> None:
    # With W = 1 the largest stable K is 1: gains of 0.039, 0.041 and 0.071 are 0.39, 0.41 and 0.71 of it.
    loop = Loop(window=1, delay=3)
    found = [margin(Controller(law=P, signal=LAYER, gain=gain), GAIN, loop) for gain in (0.039, 0.041, 0.071)]
    assert [one.share for one in found] == pytest.approx([0.39, 0.41, 0.71], rel=1e-4)
    assert [(one.warns, one.refuses) for one in found] == [(False, False), (True, False), (True, True)]
    assert margin(Controller(law=P, signal=EXPERT, gain=0.041), GAIN, loop).share == pytest.approx(0.205, rel=1e-4)


def test_a_delay_of_one_is_judged_as_two() -> None:
    controller = Controller(law=P, signal=HEAT, gain=0.1)
    assert margin(controller, GAIN, Loop(delay=1)) == margin(controller, GAIN, Loop(delay=LEAST_DELAY))


@pytest.mark.parametrize("law", [SIGN, MAX])
def test_laws_without_a_limit(law: str) -> None:
    controller = Controller(law=law, signal=HEAT, gain=0.1)
    found = margin(controller, GAIN, Loop())
    assert (found.limit, found.share, found.warns, found.refuses) == (None, None, False, False)
    with pytest.raises(UsageError, match="no linear limit"):
        safe(controller, GAIN, Loop())


@pytest.mark.parametrize(("law", "share"), [(P, SAFE_SHARE), (I, SLOW_SHARE), (PI, SAFE_SHARE)])
def test_safe_gains_are_a_share_of_the_limit(law: str, share: float) -> None:
    controller = safe(Controller(law=law, signal=LAYER, leak=0.99, clip=0.03), GAIN, Loop(delay=3))
    assert margin(controller, GAIN, Loop(delay=3)).share == pytest.approx(share, rel=1e-4)
    assert (controller.gain > 0, controller.integral > 0) == (law != I, law != P)
    assert (controller.leak, controller.clip) == (0.99, 0.03)


def test_a_safe_gain_keeps_the_proportion_that_was_given() -> None:
    given_ = Controller(law=PI, signal=LAYER, gain=2.0, integral=0.5)
    found = safe(given_, GAIN, Loop())
    assert found.gain / found.integral == pytest.approx(4.0)


def test_loop_gain_of_a_router_that_is_known() -> None:
    # Each of two experts is chosen when its score, uniform on (0, 1), is the larger: an offset o takes from an expert
    # 2 o - o² of the tokens' half that chose it, thus S = 2 at first.
    steps = recorded_steps(3, steps=200, tokens=100, layers=3, experts=2, top_k=1, skew=0.0)
    found = plant_gain(scores_of(steps), contiguous(3, 2, 2))
    assert found.rank == pytest.approx(2.0, abs=0.15)
    assert found.expert == pytest.approx(found.rank)
    assert found.rank_low <= found.rank <= found.rank_high
    assert found.of(EXPERT) == found.expert and found.of(HEAT) == found.of(LAYER) == found.rank
    assert set(found.to_dict()) >= {"rank", "expert", "probe"}


def test_a_router_without_gaps_has_no_measurable_gain() -> None:
    scores = replace(scores_of(recorded_steps(steps=2)), gap=0.0)
    with pytest.raises(UsageError, match="cannot be measured"):
        plant_gain(scores, contiguous(2, 16, 2))


def waves(amplitude: float, period: float, *, noise: float = 0.0) -> FloatArray:
    """float64[600, 1, 2] loads of two ranks that swing against each other."""
    rng = np.random.default_rng(0)
    swing = amplitude * np.sin(2 * np.pi * np.arange(600) / period) + noise * rng.normal(size=600)
    return np.stack([100 * (1 + swing), 100 * (1 - swing)], axis=1)[:, None]


def test_a_swing_is_seen_with_its_period() -> None:
    found = oscillation(waves(0.1, 14), waves(0.2, 14), Loop())
    assert (found.lag, found.oscillates, found.unstable) == (7, True, True)
    assert found.autocorrelation == pytest.approx(-1, abs=0.05) and not found.grows
    assert found.heat_ratio == found.layer_ratio == pytest.approx(0.5)


def test_noise_is_no_swing_unless_it_grows() -> None:
    calm, wild = waves(0.0, 14, noise=0.1), waves(0.0, 14, noise=0.12)
    assert not oscillation(calm, wild, Loop()).oscillates
    assert not oscillation(calm, calm, Loop()).oscillates
    grown = oscillation(wild, calm, Loop())
    assert grown.unstable and grown.grows and not grown.oscillates and grown.heat_ratio == pytest.approx(1.2)
    assert grown.to_dict()["unstable"] is True


def test_in_few_steps_a_swing_has_to_be_clearer() -> None:
    assert oscillation(waves(0.1, 14), waves(0.2, 14), Loop()).below == -0.35
    few = oscillation(waves(0.1, 14)[:80], waves(0.2, 14)[:80], Loop())
    assert few.below == pytest.approx(-0.35 - 80**-0.5 + 600**-0.5) and few.unstable


def test_even_loads_do_not_swing() -> None:
    found = oscillation(waves(0.0, 14), waves(0.1, 14), Loop())
    assert (found.autocorrelation, found.lag, found.heat_ratio, found.oscillates) == (0.0, 0, 0.0, False)


def test_a_forecast_by_hand() -> None:
    # A load that stays is foreseen whole; independent loads are not.
    still = np.tile([[[3.0, 1.0]]], (60, 1, 1))
    assert forecast(still, Loop(warm_up=0)).r2 == pytest.approx(1.0)
    assert forecast(still, Loop(warm_up=0)).slope == pytest.approx(1.0)
    assert forecast(still, Loop(warm_up=0)).variance == pytest.approx(0.25)
    noise = waves(0.0, 14, noise=0.1)
    assert forecast(noise, Loop()).r2 < 0.02
    assert forecast(still[:5], Loop()).r2 == 0.0
    assert forecast(np.ones((60, 1, 2)), Loop()).r2 == 0.0


def test_whether_offsets_help_is_said_first() -> None:
    plan = contiguous(2, 16, 4)
    steady = predictability(recorded_steps(steps=300, tokens=400, skew=0.3), plan, Loop())
    assert steady.helps and steady.verdict.startswith("the sensed window explains")
    random = predictability(recorded_steps(steps=300, tokens=20, skew=0.0), plan, Loop())
    assert not random.helps and random.verdict.startswith("offsets cannot help single steps here")
    assert 1 < random.step_floor <= random.step_mean
    assert list(random.copies) == [2, 4] and random.to_dict()["copies"].keys() == {"2", "4"}


def test_overlaid_steps_hold_the_tokens_of_all_copies() -> None:
    steps = recorded_steps(steps=50, tokens=4)
    laid = overlaid(steps, 3, 10)
    assert len(laid) == 30 and laid.tokens == 30 * 12
    wanted = steps.counts[:30] + steps.counts[10:40] + steps.counts[20:50]
    np.testing.assert_array_equal(laid.counts, wanted)
    np.testing.assert_array_equal(laid.step, steps.step[:30])
    assert scores_of(laid).explained == 1.0
    with pytest.raises(ValueError, match="need more than 50 steps"):
        overlaid(steps, 6, 10)
