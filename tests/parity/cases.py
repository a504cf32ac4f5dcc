"""One list of cases for every rung: numba, the CUDA sources on the CPU, and a GPU, each against the specification."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

from easybalance_sim.arrays import AnyArray, IntArray, frozen
from easybalance_sim.kernels import numba_counts, reference_counts, reference_dispatch, reference_scoring
from easybalance_sim.kernels.reference_dispatch import BLOCKS, EVEN, FLAT, HASH, RANDOM, SHIFT, TABLE
from easybalance_sim.plan.plan import Plan
from easybalance_sim.replay.dispatch import nearest_slots
from tests.parity.search_cases import search_differences

RULES = {
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


def spread(tokens: int, ranks: int, steps: int) -> Tokens:
    """Steps of random sizes, random sources."""
    rng = np.random.default_rng(tokens)
    step = 3 * np.sort(rng.integers(0, steps, tokens))
    return Tokens(step.tolist(), rng.integers(0, ranks, tokens).tolist())


DISPATCH = {
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
    "large steps": Case(experts=64, top_k=8, layers=2, slots=[18] * 4, node=[0, 0, 1, 1], tokens=spread(300, 4, 2)),
    "a step number below zero": Case(
        experts=4, top_k=2, layers=1, slots=[4] * 3, node=[0, 0, 1], tokens=Tokens([-5] * 9, [0, 1, 2] * 3)
    ),
}


class Dispatched(NamedTuple):
    """Arguments of `dispatch` up to `per_node`; `counts` gives the rest."""

    experts: AnyArray
    step_start: AnyArray
    step: AnyArray
    source: AnyArray
    row: AnyArray
    replica_start: AnyArray
    replica_slot: AnyArray
    table: AnyArray
    rank_of_slot: AnyArray
    node: AnyArray
    entry: AnyArray
    rule: int
    seed: int
    per_node: bool

    def counts(self) -> list[AnyArray]:
        """Zeros for `OUTPUTS`."""
        ranks, nodes = self.entry.shape
        shape = (len(self.step), self.experts.shape[1])
        out: list[AnyArray] = [np.zeros((*shape, len(self.rank_of_slot)), np.int32)]
        out += [np.zeros((*shape, ranks), np.int32) for _ in range(3)]
        return out + [np.zeros((n, n), np.int64) for n in (ranks, nodes)]

    def run(self, module: Any, workers: int = 2) -> dict[str, AnyArray]:
        """What a kernel module counts."""
        out = self.counts()
        module.dispatch(*self, workers, *out)
        return dict(zip(OUTPUTS, out, strict=True))


def entries(node: IntArray) -> AnyArray:
    """int32[R, N]: any rank of the other node, the source itself at home."""
    first = np.array([np.flatnonzero(node == n)[-1] for n in range(int(node.max()) + 1)])
    table = np.tile(first, (len(node), 1))
    table[np.arange(len(node)), node] = np.arange(len(node))
    return frozen(table, np.int32)


def dispatched(case: Case, rule: int, per_node: bool) -> Dispatched:
    """The arguments of a case under a rule."""
    plan, ranks = case.plan(), len(case.slots)
    node, step = frozen(case.node, np.int32), np.array(case.tokens.step, np.int32)
    first = np.flatnonzero(np.diff(step, prepend=-1))
    source = frozen(case.tokens.source, np.int16)
    nearest = nearest_slots(plan, node)
    fixed = np.arange(ranks)[:, None, None] % plan.replicas + plan.replica_start[:, :-1]
    table = np.take_along_axis(plan.replica_slot[None], fixed, axis=2) if rule == TABLE else nearest
    return Dispatched(
        experts=case.chosen(),
        step_start=frozen(np.append(first, len(step)), np.int64),
        step=frozen(step[first], np.int64),
        source=source,
        row=frozen(numba_counts.local_rows(frozen(step), source, ranks)),
        replica_start=plan.replica_start,
        replica_slot=plan.replica_slot,
        table=frozen(table, np.int32),
        rank_of_slot=plan.rank_of_slot,
        node=node,
        entry=entries(node),
        rule=rule,
        seed=SEED,
        per_node=per_node,
    )


def dispatch_differs(module: Any, given: Dispatched, workers: int = 2) -> list[str]:
    """The outputs in which a kernel module differs from the specification, bit for bit."""
    specified = given.run(reference_dispatch, 1)
    found = given.run(module, workers)
    assert specified["slot_tokens"].sum() == given.experts.size
    return [name for name in OUTPUTS if not np.array_equal(found[name], specified[name])]


@st.composite
def dispatch_cases(draw: st.DrawFn) -> Case:
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


class Counted(NamedTuple):
    """Arguments of `count_windows`; `start` is what `out` holds before."""

    experts: AnyArray
    window: AnyArray
    start: AnyArray

    def run(self, module: Any) -> AnyArray:
        """`out` after a kernel module has added to it."""
        out = self.start.copy()
        module.count_windows(self.experts, self.window, out)
        return out


def counted(
    seed: int,
    shape: tuple[int, int, int],
    experts: int,
    windows: int,
    *,
    dtype: type = np.uint8,
    in_order: bool = False,
    skipped: bool = True,
) -> Counted:
    """Random ids of shape [T, L, K] and windows; skipped: some tokens belong to none."""
    rng = np.random.default_rng(seed)
    window = rng.integers(-1 if skipped else 0, windows, shape[0])
    cells = (windows, shape[1], experts)
    return Counted(
        experts=frozen(rng.integers(0, experts, shape), dtype),
        window=frozen(np.sort(window) if in_order else window, np.int32),
        start=np.arange(np.prod(cells), dtype=np.int64).reshape(cells),
    )


COUNTS = {
    "windows in any order": counted(0, (60, 3, 2), 9, 4),
    "windows in order": counted(1, (300, 4, 3), 16, 3, in_order=True),
    "more tokens than a block takes": counted(2, (1500, 2, 2), 8, 2, in_order=True),
    "many layers": counted(3, (40, 61, 8), 128, 3),
    "a wide top-k": counted(4, (40, 3, 70), 128, 3),
    "a top-k wider than a block": counted(5, (9, 2, 300), 40, 2),
    "uint16 ids": counted(6, (50, 9, 4), 300, 2, dtype=np.uint16),
    "as many experts as shared memory holds": counted(7, (30, 2, 2), 12288, 2, dtype=np.uint16),
    "more experts than shared memory holds": counted(8, (30, 2, 2), 12289, 2, dtype=np.uint16),
    "every token skipped": counted(9, (20, 2, 2), 8, 2)._replace(window=frozen(np.full(20, -1), np.int32)),
    "no token": counted(10, (0, 2, 2), 8, 2),
    "one expert": counted(11, (64, 2, 1), 1, 1, skipped=False),
    "writable ids": (given := counted(12, (50, 2, 2), 8, 2))._replace(experts=given.experts.copy()),
}


def count_differs(module: Any, given: Counted) -> bool:
    """Whether a kernel module counts otherwise than the specification."""
    return not np.array_equal(given.run(module), given.run(reference_counts))


class Scored(NamedTuple):
    """Arguments of `score_plans` before `out`."""

    expert_of_slot: AnyArray
    slot_start: AnyArray
    tokens: AnyArray
    pace: AnyArray

    def run(self, module: Any) -> AnyArray:
        """float64[C, L, W]: what a kernel module finds."""
        plans, layers, _ = self.expert_of_slot.shape
        out = np.full((plans, layers, len(self.tokens)), -1.0)
        module.score_plans(*self, out)
        return out


def scored(seed: int, plans: int, layers: int, experts: int, windows: int, per_rank: list[int]) -> Scored:
    """Experts dealt at random, each at least once; some windows of some layers are empty."""
    rng, spare = np.random.default_rng(seed), sum(per_rank) - experts
    every = np.broadcast_to(np.arange(experts), (plans, layers, experts))
    more = rng.integers(0, experts, (plans, layers, spare))
    tokens = rng.poisson(rng.lognormal(1, 1.5, (windows, layers, experts)))
    tokens[rng.random((windows, layers)) < 0.1] = 0
    return Scored(
        expert_of_slot=frozen(rng.permuted(np.concatenate([every, more], axis=2), axis=2), np.int32),
        slot_start=frozen(np.concatenate([[0], np.cumsum(per_rank)]), np.int32),
        tokens=frozen(tokens, np.int64),
        pace=frozen(rng.uniform(0.5, 2.0, len(per_rank)), np.float64),
    )


SCORES = {
    "even ranks": scored(0, 3, 2, 8, 5, [3] * 4),
    "ragged ranks": scored(1, 2, 3, 9, 4, [1, 7, 2, 3]),
    "more windows than a block takes": scored(2, 2, 1, 6, 300, [4, 4]),
    "one plan, one window": scored(3, 1, 1, 5, 1, [5]),
    "no window": scored(4, 2, 1, 5, 0, [5]),
    "more slots than shared memory holds": scored(5, 1, 1, 4100, 1, [2050] * 2),
}


def score_differs(module: Any, given: Scored) -> bool:
    """Whether scores differ from the specification by more than rounding, or are NaN elsewhere."""
    return not np.allclose(given.run(module), given.run(reference_scoring), rtol=1e-12, atol=0, equal_nan=True)


def differences(module: Any) -> Iterator[tuple[str, str]]:
    """Every case by name, with what a kernel module counts otherwise than the specification, if anything."""
    for name, given in COUNTS.items():
        yield f"count_windows: {name}", "out" if count_differs(module, given) else ""
    for (name, case), (how, rule), per_node in itertools.product(DISPATCH.items(), RULES.items(), (False, True)):
        outputs = dispatch_differs(module, dispatched(case, rule, per_node))
        yield f"dispatch: {name}, {how}, per node {per_node}", ", ".join(outputs)
    for name, plans in SCORES.items():
        yield f"score_plans: {name}", "out" if score_differs(module, plans) else ""
    yield from search_differences(module)
