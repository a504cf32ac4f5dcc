"""What every draw of a recipe must satisfy, older or not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from easybalance_sim.arrays import stream
from easybalance_sim.profiling.draws import Recipe, _by_rank, draw, power_law


@st.composite
def recipes(draw_from: st.DrawFn) -> Recipe:
    """Older recipes of 1 to 8 ranks with 1 to 16 experts each."""
    ranks, own = draw_from(st.sampled_from((1, 2, 4, 8))), draw_from(st.integers(1, 16))
    experts = ranks * own
    return Recipe(
        tokens=draw_from(st.integers(1, 200)),
        experts=experts,
        top_k=draw_from(st.integers(1, min(8, experts))),
        ranks=ranks,
        alpha=draw_from(st.sampled_from((0.3, 0.6, 0.8, 1.01, 1.2, 1.5))),
        slots=experts,
        older_draws=True,
    )


@settings(max_examples=60, deadline=None)
@given(recipe=recipes(), seed=st.integers(100, 1000))
def test_older_draws_hold_every_assignment_and_none_above_the_cap(recipe: Recipe, seed: int) -> None:
    counts = _by_rank(power_law(stream(seed, "shares"), recipe, 6), recipe)
    by_rank = counts.reshape(6, recipe.ranks, -1).sum(axis=2)
    assert (counts.sum(axis=1) == recipe.tokens * recipe.top_k).all()
    assert counts.min() >= 0
    assert counts.max() <= recipe.tokens
    assert (by_rank[:, 0] == by_rank.max(axis=1)).all()


@settings(max_examples=40, deadline=None)
@given(recipe=recipes(), seed=st.integers(100, 1000))
def test_distinct_tokens_stay_within_bounds_in_either_recipe(recipe: Recipe, seed: int) -> None:
    for one in (recipe, replace(recipe, older_draws=False)):
        found = draw(one, 6, seed=seed)
        assert (found.distinct <= np.minimum(found.counts.sum(axis=1), recipe.tokens)).all()
        assert (found.distinct >= found.counts.max(axis=1)).all()
