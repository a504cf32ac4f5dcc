"""Loads of a step by the step model, for any pieces: nothing is lost and chance has the variance it is said to have."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from easybalance_sim.simulate.serving.evaluation import expert_seconds, step_loads
from easybalance_sim.simulate.serving.mixing import Pieces, tokens_of
from easybalance_sim.simulate.serving.step_model import StepModel
from tests.routed_cases import Served, served

CASES: dict[int, tuple[Served, StepModel]] = {}


def made(ranks: int) -> tuple[Served, StepModel]:
    """Models are made once."""
    if ranks not in CASES:
        case = served(ranks, ranks=ranks, slots=16 // ranks + 1)
        CASES[ranks] = (case, case.model())
    return CASES[ranks]


@st.composite
def any_pieces(draw: st.DrawFn, ranks: int) -> Pieces:
    """Up to three steps of up to eight pieces, every step with at least one."""
    steps = [step for step in range(draw(st.integers(1, 3))) for _ in range(draw(st.integers(1, 8)))]
    columns = {
        name: np.array([draw(st.integers(low, high)) for _ in steps])
        for name, low, high in (("row", 0, 79), ("first", 0, 100), ("count", 1, 50), ("data_rank", 0, ranks - 1))
    }
    return Pieces(step=np.array(steps), **columns)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), ranks=st.sampled_from([1, 2, 4]), seed=st.integers(0, 100))
def test_rows_of_a_layer_keep_their_sum(data: st.DataObject, ranks: int, seed: int) -> None:
    case, model = made(ranks)
    pieces = data.draw(any_pieces(ranks))
    steps = step_loads(model, pieces, seed)
    tokens = np.bincount(tokens_of(case.routed, pieces, ranks, ranks).step)
    assert (steps.rows >= 0).all()
    np.testing.assert_allclose(steps.rows.sum(axis=2), 2.0 * tokens[:, None] * np.ones(3), rtol=1e-5)
    assert (steps.tokens.sum(axis=1) == tokens).all()
    assert np.isfinite(expert_seconds(model, steps)).all()


@settings(max_examples=10, deadline=None)
@given(row=st.integers(0, 39), count=st.integers(200, 400))
def test_chance_has_the_variance_of_the_row(row: int, count: int) -> None:
    """A thousand steps of one request's answer: rows vary by `spread` as it was before the sum was kept."""
    _, model = made(4)
    steps = 1000
    pieces = Pieces(
        step=np.arange(steps), row=np.full(steps, 2 * row + 1), first=np.zeros(steps, np.int64),
        count=np.full(steps, count), data_rank=np.zeros(steps, np.int64),
    )  # fmt: skip
    rows = step_loads(model, pieces, 1).rows
    before = count * model.spread[2 * row + 1].astype(np.float64)
    wanted = before * (1 - before / before.sum(axis=1, keepdims=True))
    inside = (rows > 0).all(axis=(0, 1))
    np.testing.assert_allclose(rows.var(axis=0)[:, inside], wanted[:, inside], rtol=0.25)
