"""Sensing: no rule looks ahead, units have no names, nothing is lost between steps and clock."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from easybalance_sim.arrays import FloatArray
from easybalance_sim.simulate.sensing.detectors import Hysteresis, Over, detectors
from easybalance_sim.simulate.sensing.metrics import saturated_clock
from easybalance_sim.simulate.sensing.series import Series
from easybalance_sim.simulate.sensing.tally import Looked, Tally

WINDOW, STEPS, UNITS = 3, 40, 4
RULES = detectors(WINDOW, 4.0, 1.2)
SEEDS = st.integers(0, 2**32 - 1)


def loads_of(seed: int) -> FloatArray:
    """Whole numbers, some of them 0, with a unit that turns hot."""
    rng = np.random.default_rng(seed)
    loads = rng.poisson(rng.uniform(0, 6, UNITS), (STEPS, UNITS)).astype(np.float64)
    loads[rng.integers(0, STEPS) :, rng.integers(0, UNITS)] += rng.integers(0, 9)
    return loads


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.integers(0, STEPS - 1))
def test_no_rule_looks_ahead(seed: int, last: int) -> None:
    loads = loads_of(seed)
    other = loads.copy()
    other[last + 1 :] = loads_of(seed + 1)[last + 1 :]
    for rule in RULES:
        assert (rule.fires(Series(loads))[: last + 1] == rule.fires(Series(other))[: last + 1]).all(), rule.name


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.integers(1, 6))
def test_units_have_no_names_and_loads_no_unit(seed: int, power: int) -> None:
    loads, order = loads_of(seed), np.random.default_rng(seed).permutation(UNITS)
    for rule in RULES:
        fired = rule.fires(Series(loads))
        assert (rule.fires(Series(loads[:, order])) == fired[:, order]).all(), rule.name
        assert (rule.fires(Series(loads * 2.0**power)) == fired).all(), rule.name


@settings(max_examples=40, deadline=None)
@given(SEEDS)
def test_hysteresis_only_adds_to_its_threshold(seed: int) -> None:
    series = Series(loads_of(seed))
    plain = Over(window=WINDOW, windows=3, threshold=1.2).fires(series)
    held = Hysteresis(window=WINDOW, windows=3, on=1.2, off=1.1).fires(series)
    longer = Hysteresis(window=WINDOW, windows=3, on=1.2, off=1.05).fires(series)
    assert (held | ~plain).all()
    assert (longer | ~held).all()
    # At a threshold that no share of such whole numbers meets there is nothing to hold.
    same = Hysteresis(window=WINDOW, windows=3, on=1.2003, off=1.2003).fires(series)
    assert (same == Over(window=WINDOW, windows=3, threshold=1.2003).fires(series)).all()


@settings(max_examples=30, deadline=None)
@given(SEEDS)
def test_every_pair_is_counted_once(seed: int) -> None:
    looked = Looked(window=WINDOW, ahead=5, threshold=1.2, first=8, end=STEPS - 5, tau_steps=4.0)
    tally = Tally(RULES, looked)
    tally.add(Series(loads_of(seed)))
    tally.add(Series(loads_of(seed + 1)))
    pairs = 2 * UNITS * (STEPS - 13)
    for place, score in enumerate(tally.scores(0.025)):
        hits = int(tally.hits[place].sum())
        assert round(score.fires * pairs) == hits + score.false_fires
        assert hits <= int(tally.truth.sum())
        assert score.suppressed <= tally.scores(0.025)[0].false_fires
        assert score.false_fires == tally.scores(0.025)[0].false_fires - score.suppressed + score.added
        assert 0 <= score.f1 <= 1
        assert tally.onsets[place].sum() <= tally.fires[place].sum()


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.integers(1, 30))
def test_nothing_is_lost_between_steps_and_clock(seed: int, steps: int) -> None:
    rng = np.random.default_rng(seed)
    lasts, amount = rng.uniform(0.001, 0.2, steps), rng.uniform(0, 9, (steps, 3))
    tick = float(lasts.sum()) / rng.integers(1, 40)
    clock = saturated_clock(lasts, tick)
    rates = clock.rate(amount)
    assert (rates >= -1e-9).all()
    np.testing.assert_allclose(rates.sum(axis=0) * tick, amount.sum(axis=0), rtol=1e-9, atol=1e-9)
