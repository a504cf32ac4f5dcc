"""Whatever day is asked for: a layer holds K choices of every token, and no expert more often than once a token."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from easybalance_sim.trace.schema import check_meta
from easybalance_sim.trace.synthesis_day import DayRecipe, day, day_parts

few = settings(max_examples=40, deadline=None)


@st.composite
def recipes(draw: st.DrawFn) -> DayRecipe:
    """Small days, the extremes of every knob included."""
    experts = draw(st.sampled_from([2, 6, 12]))
    tenants = draw(st.integers(2, 4))
    window_seconds = draw(st.sampled_from([1.0, 37.5, 60.0, 900.0]))
    more: dict[str, Any] = {
        "layers": draw(st.integers(1, 3)),
        "experts": experts,
        "top_k": draw(st.integers(1, experts)),
        "tokens_per_step": draw(st.sampled_from([1, 7, 500])),
        "hours": window_seconds * draw(st.integers(16, 90)) / 3600,
        "step_ms": draw(st.sampled_from([0.5, 25.0, 1000.0])),
        "topics": draw(st.integers(tenants, 6)),
        "groups": draw(st.sampled_from([1, 2])),
        "concentration": draw(st.sampled_from([0.01, 0.3, 100.0])),
        "skew": draw(st.sampled_from([0.0, 1.0, 6.0])),
        "within": draw(st.sampled_from([1.0, 50.0, 1e9])),
        "stationary": draw(st.booleans()),
        "seed": draw(st.integers(0, 99)),
    }
    return DayRecipe(tenants=tenants, window_seconds=window_seconds, **more)


@few
@given(recipes())
def test_counts_are_the_tokens_choices(recipe: DayRecipe) -> None:
    truth = day(recipe)
    first = 0
    for part in day_parts(recipe, truth):
        check_meta(part.meta, "day")
        assert part.window.tolist() == list(range(first, first + len(part.window)))
        wanted = np.repeat(part.batch_tokens[:, None] * recipe.top_k, recipe.layers, axis=1)
        np.testing.assert_array_equal(part.tokens.sum(axis=2), wanted)
        assert part.tokens.min() >= 0 and (part.tokens <= part.batch_tokens[:, None, None]).all()
        first += len(part.window)
    assert first == recipe.windows == len(truth.tokens)
    assert truth.tokens.min() >= 1


@few
@given(recipes())
def test_events_lie_apart_and_inside_the_day(recipe: DayRecipe) -> None:
    truth = day(recipe)
    if recipe.stationary:
        assert (truth.switches, truth.burst) == ((), None)
        return
    burst = truth.burst
    assert burst and burst.window > 0 and burst.windows >= 1
    at = [one.window for one in truth.switches]
    assert at[0] > 0 and at == sorted(set(at)) and at[-1] < recipe.windows
    assert not any(burst.window < window < burst.window + burst.windows for window in at)
    assert burst.window + burst.windows <= recipe.windows
    assert truth.mix[burst.window, burst.topic] > 0
