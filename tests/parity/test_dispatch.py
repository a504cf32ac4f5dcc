"""The compiled replay kernel against its specification: every count equal, bit for bit, for every rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easybalance_sim.arrays import AnyArray, IntArray, frozen
from easybalance_sim.kernels import numba_counts, numba_dispatch, reference_dispatch
from easybalance_sim.kernels.reference_dispatch import BLOCKS, EVEN, FLAT, HASH, RANDOM, SHIFT, TABLE
from easybalance_sim.plan.plan import Plan
from easybalance_sim.replay.dispatch import nearest_slots

KERNEL_RULES = {
    "even": EVEN,
    "table": TABLE,
    "hash": HASH,
    "flat": FLAT,
    "blocks": BLOCKS,
    "random": RANDOM,
    "shift": SHIFT,
}
OUTPUTS = ("slot_tokens", "distinct", "rdma", "nvlink", "rank_pairs", "node_pairs")
SEED = 7


class Tokens(NamedTuple):
    """Step and source rank of each token."""

    step: list[int]
    source: list[int]


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """Traffic and cluster. slots: slots per rank · node: of each rank · dtype: of the ids."""

    experts: int
    top_k: int
    layers: int
    slots: list[int]
    node: list[int]
    tokens: Tokens
    dtype: type = np.uint8
    seed: int = 0

    def plan(self) -> Plan:
        rng = np.random.default_rng(self.seed)
        spare = sum(self.slots) - self.experts
        rows = [
            rng.permutation(np.concatenate([np.arange(self.experts), rng.integers(0, self.experts, spare)]))
            for _ in range(self.layers)
        ]
        return Plan(
            expert_of_slot=np.stack(rows), slots_per_rank=np.array(self.slots), experts=self.experts, policy="random"
        )

    def chosen(self) -> AnyArray:
        """[T, L, K] distinct experts per token."""
        rng = np.random.default_rng(self.seed + 1)
        keys = rng.random((len(self.tokens.step), self.layers, self.experts))
        return frozen(np.argsort(keys, axis=2)[:, :, : self.top_k], self.dtype)


def entries(node: IntArray) -> AnyArray:
    """int32[R, N]: any rank of the other node, the source itself at home."""
    first = np.array([np.flatnonzero(node == n)[-1] for n in range(int(node.max()) + 1)])
    table = np.tile(first, (len(node), 1))
    table[np.arange(len(node)), node] = np.arange(len(node))
    return frozen(table, np.int32)


def run(module: Any, case: Case, rule: int, per_node: bool, workers: int) -> dict[str, AnyArray]:
    plan, ranks = case.plan(), len(case.slots)
    node, step = frozen(case.node, np.int32), np.array(case.tokens.step, np.int32)
    first = np.flatnonzero(np.diff(step, prepend=-1))
    source = frozen(case.tokens.source, np.int16)
    nearest = nearest_slots(plan, node)
    fixed = np.arange(ranks)[:, None, None] % plan.replicas + plan.replica_start[:, :-1]
    table = np.take_along_axis(plan.replica_slot[None], fixed, axis=2) if rule == TABLE else nearest
    shape = (len(first), case.layers)
    out: list[AnyArray] = [np.zeros((*shape, plan.slots), np.int32)]
    out += [np.zeros((*shape, ranks), np.int32) for _ in range(3)]
    out += [np.zeros((n, n), np.int64) for n in (ranks, int(node.max()) + 1)]
    module.dispatch(
        case.chosen(), frozen(np.append(first, len(step)), np.int64), frozen(step[first], np.int64), source,
        frozen(numba_counts.local_rows(frozen(step), source, ranks)), plan.replica_start, plan.replica_slot,
        frozen(table, np.int32), plan.rank_of_slot, node, entries(node), rule, SEED, per_node, workers, *out,
    )  # fmt: skip
    return dict(zip(OUTPUTS, out, strict=True))


def check(case: Case, rule: int, per_node: bool, workers: int = 2) -> None:
    specified = run(reference_dispatch, case, rule, per_node, 1)
    compiled = run(numba_dispatch, case, rule, per_node, workers)
    for name in OUTPUTS:
        assert np.array_equal(compiled[name], specified[name]), name
    assert specified["slot_tokens"].sum() == len(case.tokens.step) * case.layers * case.top_k


def spread(tokens: int, ranks: int, steps: int) -> Tokens:
    """Steps of random sizes, random sources."""
    rng = np.random.default_rng(tokens)
    step = 3 * np.sort(rng.integers(0, steps, tokens))
    return Tokens(step.tolist(), rng.integers(0, ranks, tokens).tolist())


CASES = {
    "two nodes": Case(experts=8, top_k=3, layers=3, slots=[3] * 4, node=[0, 0, 1, 1], tokens=spread(90, 4, 5)),
    "one rank": Case(experts=6, top_k=2, layers=2, slots=[9], node=[0], tokens=spread(40, 1, 3)),
    "ragged slots": Case(experts=9, top_k=4, layers=2, slots=[1, 7, 2, 3], node=[0, 1, 0, 1], tokens=spread(70, 4, 3)),
    "ranks not a multiple of the node size": Case(
        experts=10, top_k=3, layers=2, slots=[3] * 5, node=[0, 0, 1, 1, 2], tokens=spread(80, 5, 4)
    ),
    "uint16 ids": Case(
        experts=300, top_k=6, layers=2, slots=[90] * 4, node=[0, 0, 1, 1], dtype=np.uint16, tokens=spread(60, 4, 2)
    ),
    "sources without tokens": Case(
        experts=8,
        top_k=2,
        layers=2,
        slots=[3] * 6,
        node=[0, 0, 1, 1, 2, 2],
        tokens=Tokens([0, 0, 0, 4, 4], [5, 5, 5, 5, 1]),
    ),
    "one token": Case(experts=4, top_k=4, layers=1, slots=[3, 3], node=[0, 1], tokens=Tokens([9], [1])),
    "every expert everywhere": Case(
        experts=4, top_k=2, layers=2, slots=[4] * 3, node=[0, 0, 1], tokens=spread(50, 3, 2)
    ),
    "more than one block of 1024": Case(
        experts=6, top_k=4, layers=1, slots=[5, 5], node=[0, 1], tokens=Tokens([0] * 700, [0] * 650 + [1] * 50)
    ),
}


@pytest.mark.parametrize("per_node", [False, True], ids=["per assignment", "per node"])
@pytest.mark.parametrize("rule", KERNEL_RULES.values(), ids=KERNEL_RULES)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_dispatch(case: Case, rule: int, per_node: bool) -> None:
    check(case, rule, per_node)


@pytest.mark.parametrize("rule", KERNEL_RULES.values(), ids=KERNEL_RULES)
def test_any_number_of_workers_gives_the_same_sums(rule: int) -> None:
    case = CASES["ragged slots"]
    alone = run(numba_dispatch, case, rule, True, 1)
    for workers in (2, 3, 16):
        shared = run(numba_dispatch, case, rule, True, workers)
        assert all(np.array_equal(alone[name], shared[name]) for name in OUTPUTS)


def test_every_assignment_is_one_message_in_low_latency() -> None:
    counts = run(numba_dispatch, CASES["two nodes"], HASH, False, 2)
    assert counts["rank_pairs"].sum() == counts["node_pairs"].sum() == counts["slot_tokens"].sum()


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Ranks need not be sorted by node, may differ in slots; steps may skip numbers."""
    nodes = draw(st.integers(1, 3))
    node = draw(st.permutations([*range(nodes), *draw(st.lists(st.integers(0, nodes - 1), max_size=4))]))
    slots = draw(st.lists(st.integers(1, 4), min_size=len(node), max_size=len(node)))
    experts = draw(st.integers(1, sum(slots)))
    tokens = draw(st.integers(1, 25))
    return Case(
        experts=experts,
        top_k=draw(st.integers(1, min(4, experts))),
        layers=draw(st.integers(1, 3)),
        slots=slots,
        node=list(node),
        tokens=Tokens(
            sorted(draw(st.lists(st.integers(0, 1500), min_size=tokens, max_size=tokens))),
            draw(st.lists(st.integers(0, len(node) - 1), min_size=tokens, max_size=tokens)),
        ),
        dtype=draw(st.sampled_from([np.uint8, np.uint16])),
        seed=draw(st.integers(0, 999)),
    )


@settings(max_examples=80, deadline=None)
@given(cases(), st.sampled_from(list(KERNEL_RULES.values())), st.booleans(), st.integers(1, 5))
def test_dispatch_on_any_traffic(case: Case, rule: int, per_node: bool, workers: int) -> None:
    check(case, rule, per_node, workers)
