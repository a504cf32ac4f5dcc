"""Replica choice against its specification.

Claimed: the same integers, except for the optimum: there the same busiest rank, and the same bound as over all sets of
ranks. The specification pours one assignment after the other, the compiled form in one go.
"""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easybalance_sim.arrays import AnyArray, FloatArray, frozen
from easybalance_sim.kernels import (
    numba_replica_sources,
    numba_replicas,
    reference_replica_sources,
    reference_replicas,
)
from easybalance_sim.kernels.reference_replicas import EVEN, LEAST_LOADED, OPTIMUM, WATER
from tests.replica_cases import Case, cases, random_case


def split(module: ModuleType, case: Case, rule: int, passes: int = 3) -> tuple[AnyArray, FloatArray]:
    plan = case.plan
    took, bound = np.zeros((*case.counts.shape[:2], plan.slots), np.int32), np.zeros(case.counts.shape[:2])
    module.split_counts(
        case.total, case.step, plan.replica_start, plan.replica_slot, plan.rank_of_slot, plan.ranks, rule, passes, took,
        bound,
    )  # fmt: skip
    return took, bound


@settings(max_examples=60, deadline=None)
@given(cases(), st.sampled_from([EVEN, LEAST_LOADED, WATER]), st.integers(1, 4))
def test_shares_are_the_specified_ones(case: Case, rule: int, passes: int) -> None:
    ours, specified = (split(module, case, rule, passes)[0] for module in (numba_replicas, reference_replicas))
    np.testing.assert_array_equal(ours, specified)


@settings(max_examples=40, deadline=None)
@given(cases())
def test_the_optimum_is_as_low_as_specified(case: Case) -> None:
    (ours, bound), (specified, lowest) = (
        split(module, case, OPTIMUM) for module in (numba_replicas, reference_replicas)
    )
    np.testing.assert_allclose(bound, lowest, rtol=1e-12)
    np.testing.assert_array_equal(_busiest(ours, case), _busiest(specified, case))


def _busiest(took: AnyArray, case: Case) -> AnyArray:
    busiest: AnyArray = np.add.reduceat(took, case.plan.slot_start[:-1], axis=2).max(axis=2)
    return busiest


@settings(max_examples=60, deadline=None)
@given(cases(), st.integers(0, 5), st.integers(1, 3), st.integers(1, 3), st.integers(0, 99))
def test_sources_choose_as_specified(case: Case, rule: int, window: int, delay: int, seed: int) -> None:
    plan, rng = case.plan, np.random.default_rng(seed)
    earlier = rng.integers(0, 50, (window + delay, plan.layers, plan.ranks))
    weights = frozen(rng.integers(0, 4, (*case.counts.shape[:2], plan.slots)), np.int32)
    found = []
    for module in (numba_replica_sources, reference_replica_sources):
        sent = np.zeros((*case.counts.shape[:3], plan.slots), np.int32)
        loads = np.concatenate([earlier, np.zeros((len(case.counts), plan.layers, plan.ranks), np.int64)])
        module.split_by_source(
            case.counts, case.step, plan.replica_start, plan.replica_slot, plan.rank_of_slot, case.node, rule, seed,
            weights, loads, window, delay, sent,
        )  # fmt: skip
        found.append((sent, loads))
    np.testing.assert_array_equal(found[0][0], found[1][0])
    np.testing.assert_array_equal(found[0][1], found[1][1])


@settings(max_examples=40, deadline=None)
@given(cases())
def test_shares_are_shared_out_as_specified(case: Case) -> None:
    plan = case.plan
    took = frozen(split(numba_replicas, case, LEAST_LOADED)[0])
    found = []
    for module in (numba_replica_sources, reference_replica_sources):
        sent = np.zeros((*case.counts.shape[:3], plan.slots), np.int32)
        module.share_by_source(
            case.counts, took, plan.replica_start, plan.replica_slot, plan.rank_of_slot, case.node, sent
        )
        found.append(sent)
    np.testing.assert_array_equal(found[0], found[1])


@pytest.mark.parametrize("seed", range(5))
def test_tokens_fill_the_same_slots(seed: int) -> None:
    case = random_case(seed, ranks=3, slots=4)
    plan, rng = case.plan, np.random.default_rng(seed)
    start = frozen([0, 7, 7, 20], np.int64)
    experts = frozen(rng.integers(0, plan.experts, (20, plan.layers, 2)), np.uint8)
    source = frozen(rng.integers(0, 3, 20), np.int16)
    wanted = np.zeros((3, plan.layers, 3, plan.slots), np.int32)
    for token, layer, k in np.ndindex(experts.shape):
        held = plan.replica_slot[layer, slice(*plan.replica_start[layer, experts[token, layer, k] :][:2])]
        wanted[int(token >= 7) * 2, layer, source[token], rng.choice(held)] += 1
    found = []
    for module in (numba_replica_sources, reference_replica_sources):
        sent, slots = wanted.copy(), np.full(experts.shape, 255, np.uint8)
        module.fill_slots(experts, start, source, plan.replica_start, plan.replica_slot, sent, slots)
        assert not sent.any()
        found.append(slots)
    np.testing.assert_array_equal(found[0], found[1])
