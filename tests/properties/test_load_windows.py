"""Sums of shards are a commutative monoid, so a trace may be counted in any pieces and any order."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from easybalance_sim.load.windows import LoadWindows

modest = settings(max_examples=80, deadline=None)


@st.composite
def shards(draw: st.DrawFn) -> LoadWindows:
    ids = sorted(draw(st.sets(st.integers(-5, 20), max_size=6)))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    return LoadWindows(
        tokens=rng.integers(0, 2**40, (len(ids), 2, 3)),
        window=np.array(ids, np.int64),
        steps=rng.integers(1, 9, len(ids), np.int32),
        steps_per_window=8,
    )


def require_same(a: LoadWindows, b: LoadWindows) -> None:
    for name in ("tokens", "window", "steps"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))


NONE = LoadWindows(
    tokens=np.zeros((0, 2, 3), np.int64), window=np.zeros(0, np.int64), steps=np.zeros(0, np.int32), steps_per_window=8
)


@modest
@given(shards(), shards(), shards())
def test_monoid(a: LoadWindows, b: LoadWindows, c: LoadWindows) -> None:
    require_same((a + b) + c, a + (b + c))
    require_same(a + b, b + a)
    require_same(a + NONE, a)
    np.testing.assert_array_equal((a + b).total, a.total + b.total)
    assert (a + b).steps.sum() == a.steps.sum() + b.steps.sum()
