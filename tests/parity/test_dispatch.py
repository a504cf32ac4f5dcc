"""The compiled replay kernel against its specification: every count equal, bit for bit, for every rule."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easybalance_sim.kernels import numba_dispatch
from easybalance_sim.kernels.reference_dispatch import BLOCKS, HASH
from tests.parity.cases import (
    DISPATCH,
    OUTPUTS,
    RULES,
    Case,
    Tokens,
    dispatch_cases,
    dispatch_differs,
    dispatched,
    spread,
)


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


@pytest.mark.parametrize("nodes", [64, 65, 130])
def test_more_nodes_than_a_word_has_bits(nodes: int) -> None:
    apart = Case(
        experts=2 * nodes, top_k=6, layers=2, slots=[3] * nodes, node=[*range(nodes)], tokens=spread(60, nodes, 2)
    )
    assert dispatch_differs(numba_dispatch, dispatched(apart, HASH, True)) == []


def test_a_token_may_straddle_two_blocks() -> None:
    straddling = Case(
        experts=6, top_k=3, layers=2, slots=[5, 5], node=[0, 1], tokens=Tokens([0] * 1000, [0, 0, 1, 0] * 250)
    )
    assert dispatch_differs(numba_dispatch, dispatched(straddling, BLOCKS, True)) == []


def test_every_assignment_is_one_message_in_low_latency() -> None:
    counts = dispatched(DISPATCH["two nodes"], HASH, False).run(numba_dispatch)
    assert counts["rank_pairs"].sum() == counts["node_pairs"].sum() == counts["slot_tokens"].sum()


@settings(max_examples=80, deadline=None)
@given(dispatch_cases(), st.sampled_from(list(RULES.values())), st.booleans(), st.integers(1, 5))
def test_dispatch_on_any_traffic(case: Case, rule: int, per_node: bool, workers: int) -> None:
    assert dispatch_differs(numba_dispatch, dispatched(case, rule, per_node), workers) == []
