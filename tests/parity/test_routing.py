"""Choosing experts again, compiled against its specification: ids are equal bit for bit, sums up to rounding."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easybalance_sim.arrays import AnyArray, frozen
from easybalance_sim.kernels import numba_routing, reference_routing
from easybalance_sim.kernels.reference_routing import NONE

SHAPES = {"plain": (8, 1, 1, 3), "groups": (12, 4, 2, 4), "few kept": (12, 4, 1, 5), "pairs": (8, 4, 3, 2)}
"""Experts, groups, groups kept, top-k."""


class Routing:
    """Scores on a grid, so that ties are common; some not known, some experts not allowed."""

    def __init__(self, seed: int, shape: tuple[int, int, int, int], *, closed: float, unknown: float) -> None:
        rng = np.random.default_rng(seed)
        experts, self.groups, self.topk_group, self.top_k = shape
        size = (6, 2, experts)
        scores = (rng.integers(0, 6, size) / 8).astype(np.float32)
        self.recorded = frozen(rng.random(size).argsort(axis=2)[:, :, : self.top_k], np.int32)
        scores[rng.random(size) < unknown] = -np.inf
        known = rng.random((6, 2, self.top_k)).astype(np.float32)
        np.put_along_axis(scores, self.recorded.astype(np.int64), known, axis=2)
        self.scores = frozen(scores)
        self.head = frozen(rng.choice([0, 0, 0.125, np.inf], size[:2]), np.float32)
        self.offset = frozen(rng.integers(-1, 2, size[1:]) / 8, np.float32)
        self.factor = frozen(rng.choice([1.0, 0.5], size[1:]), np.float32)
        self.allowed = frozen(rng.random(size[1:]) >= closed)
        self.gates = frozen(rng.random(self.recorded.shape), np.float32)

    def run(self, module: ModuleType) -> AnyArray:
        out = np.full(self.recorded.shape, -7, np.int32)
        module.route(
            self.scores, self.recorded, self.head, self.offset, self.factor, self.allowed, self.groups,
            self.topk_group, out,
        )  # fmt: skip
        return out

    def compare(self, module: ModuleType, experts: AnyArray) -> AnyArray:
        out = np.zeros((2, 2, 8))
        workload = frozen(np.arange(6) % 2, np.int16)
        module.compare_routing(frozen(experts), self.recorded, self.scores, self.offset, self.gates, workload, out)
        return out


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(sorted(SHAPES)), st.sampled_from([0.0, 0.5]), st.sampled_from([0.0, 0.6]))
def test_the_compiled_choice_is_the_specified_one(seed: int, shape: str, closed: float, unknown: float) -> None:
    case = Routing(seed, SHAPES[shape], closed=closed, unknown=unknown)
    ours, theirs = (case.run(module) for module in (numba_routing, reference_routing))
    np.testing.assert_array_equal(ours, theirs)
    ours, theirs = (case.compare(module, theirs) for module in (numba_routing, reference_routing))
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("module", [numba_routing, reference_routing], ids=lambda m: m.__name__.rsplit(".", 1)[1])
def test_groups_and_ties_by_hand(module: ModuleType) -> None:
    # Groups are worth 0.9, 1.1, 1.0, 1.0: the second stays, then the third before the fourth of the same worth.
    scores = np.array([0.9, 0.0, 0.6, 0.5, 0.5, 0.5, 0.75, 0.25], np.float32).reshape(1, 1, 8)
    flat = frozen(np.zeros((1, 8)), np.float32)
    out = np.zeros((1, 1, 5), np.int32)

    def chosen(*closed: int, head: float = 0.0) -> list[int]:
        allowed = np.ones((1, 8), np.bool_)
        allowed[0, list(closed)] = False
        recorded = frozen([[[6, 7, 2, 3, 4]]], np.int32)
        heads = frozen([[head]], np.float32)
        module.route(
            frozen(scores), recorded, heads, flat, frozen(flat + 1), frozen(allowed), 4, 2, out
        )  # fmt: skip
        return [int(e) for e in out[0, 0]]

    # Four experts are inside the kept groups, the fifth is the best outside.
    assert chosen() == [2, 3, 4, 5, 0]
    assert chosen(2) == [6, 4, 5, 7, 0]
    assert chosen(0, 1, 2, 3) == [6, 4, 5, 7, NONE]
    assert chosen(head=0.0625) == [6, 2, 3, 7, 0]
    assert sorted(chosen(head=np.inf)) == [2, 3, 4, 6, 7]
