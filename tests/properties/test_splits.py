"""Whatever the trace: no request on both sides, in time order where time decides, and nothing lost in between."""

from __future__ import annotations

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from easybalance_sim.errors import UsageError
from easybalance_sim.load.split import FIT, HELD_OUT, MODES, make_split
from easybalance_sim.trace.schema import TokenBatch
from tests.trace_files import scanned
from tests.unit.test_load_split import WORKLOADS, batch

modest = settings(max_examples=150, deadline=None)


@st.composite
def traffic(draw: st.DrawFn) -> TokenBatch:
    tokens = draw(st.lists(st.tuples(st.integers(0, 2), st.integers(-3, 9)), min_size=1, max_size=40))
    spread = draw(st.sampled_from([1, 10**9]))
    request = np.array([request for _, request in tokens]) * spread
    return batch(np.cumsum([gap for gap, _ in tokens]), request, request // spread % 3 + 1)


@modest
@given(traffic(), st.sampled_from(MODES), st.floats(0.01, 0.99), st.integers(0, 5), st.integers(1, 9))
def test_sides_share_no_request(tokens: TokenBatch, by: str, held_out: float, seed: int, window_steps: int) -> None:
    try:
        split = make_split(scanned([tokens]), WORKLOADS, by, held_out, seed, window_steps)
    except UsageError:
        assume(False)
    fit, held = split.mask(tokens, FIT), split.mask(tokens, HELD_OUT)
    requests = [set(tokens.request[side].tolist()) for side in (fit, held)]
    assert requests[0] and requests[1] and not requests[0] & requests[1]
    if by != "time":
        assert (fit ^ held).all()
        return
    assert tokens.step[fit].max() < split.boundary <= tokens.step[held].min()
    unused = ~(fit | held)
    assert (tokens.step[unused] < split.boundary).all()
    assert set(tokens.request[unused].tolist()) <= requests[1]
