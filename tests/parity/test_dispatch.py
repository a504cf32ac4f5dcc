"""The compiled replay kernel against its specification: every count equal, bit for bit, for every rule."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easybalance_sim.kernels import numba_dispatch
from easybalance_sim.kernels.reference_dispatch import HASH
from tests.parity.cases import DISPATCH, OUTPUTS, RULES, Case, dispatch_cases, dispatch_differs, dispatched


@pytest.mark.parametrize("per_node", [False, True], ids=["per assignment", "per node"])
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
@pytest.mark.parametrize("case", DISPATCH.values(), ids=DISPATCH)
def test_dispatch(case: Case, rule: int, per_node: bool) -> None:
    assert dispatch_differs(numba_dispatch, dispatched(case, rule, per_node)) == []


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_any_number_of_workers_gives_the_same_sums(rule: int) -> None:
    ragged = dispatched(DISPATCH["ragged slots"], rule, True)
    alone = ragged.run(numba_dispatch, 1)
    for workers in (2, 3, 16):
        shared = ragged.run(numba_dispatch, workers)
        assert all(np.array_equal(alone[name], shared[name]) for name in OUTPUTS)


def test_every_assignment_is_one_message_in_low_latency() -> None:
    counts = dispatched(DISPATCH["two nodes"], HASH, False).run(numba_dispatch)
    assert counts["rank_pairs"].sum() == counts["node_pairs"].sum() == counts["slot_tokens"].sum()


@settings(max_examples=80, deadline=None)
@given(dispatch_cases(), st.sampled_from(list(RULES.values())), st.booleans(), st.integers(1, 5))
def test_dispatch_on_any_traffic(case: Case, rule: int, per_node: bool, workers: int) -> None:
    assert dispatch_differs(numba_dispatch, dispatched(case, rule, per_node), workers) == []
