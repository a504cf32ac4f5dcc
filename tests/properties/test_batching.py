"""What holds for every continuous batch: no slot is shared, order is kept, no slot idles while somebody waits."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from easybalance_sim.trace.batching import schedule, token_steps

LENGTHS = st.lists(st.integers(1, 20), min_size=1, max_size=40)


@settings(max_examples=60, deadline=None)
@given(lengths=LENGTHS, slots=st.integers(1, 8), gaps=st.lists(st.integers(0, 9), min_size=40, max_size=40))
def test_batching_is_fifo_work_conserving_and_bounded(lengths: list[int], slots: int, gaps: list[int]) -> None:
    length = np.array(lengths)
    arrival = np.cumsum(gaps)[: len(lengths)]
    plan = schedule(length, slots, arrival)
    end = plan.start + length
    assert (plan.start >= arrival).all()
    assert (np.diff(plan.start) >= 0).all()
    for step in range(int(end.max())):
        running = int(((plan.start <= step) & (step < end)).sum())
        waiting = int(((arrival <= step) & (plan.start > step)).sum())
        assert running <= slots
        assert waiting == 0 or running == slots


@settings(max_examples=60, deadline=None)
@given(lengths=LENGTHS, slots=st.integers(1, 8))
def test_every_token_has_its_own_step_and_the_server_is_full_until_it_says(lengths: list[int], slots: int) -> None:
    plan = schedule(np.array(lengths), slots)
    steps = token_steps(plan)
    assert len(steps) == sum(lengths)
    per_step = np.bincount(steps, minlength=plan.full_until + 1)
    assert (per_step[: plan.full_until] == slots).all()
    assert plan.full_until == len(per_step) or per_step[plan.full_until] < slots
    first = np.cumsum(lengths) - np.array(lengths)
    for begin, tokens, start in zip(first, lengths, plan.start, strict=True):
        assert steps[begin : begin + tokens].tolist() == list(range(start, start + tokens))
