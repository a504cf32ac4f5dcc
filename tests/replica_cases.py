"""Random plans and counts for tests of replica choice."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from easybalance_sim.arrays import AnyArray, FloatArray, Int32Array, frozen
from easybalance_sim.plan.plan import Plan


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """plan: no expert twice on a rank · node: int32[R] · counts: int32[S, L, R, E] of every source rank."""

    plan: Plan
    node: Int32Array
    counts: Int32Array

    @property
    def total(self) -> Int32Array:
        """int32[S, L, E]."""
        return frozen(self.counts.sum(axis=2), np.int32)

    @property
    def step(self) -> AnyArray:
        """int64[S]."""
        return frozen(np.arange(len(self.counts)) + 5, np.int64)

    def by_expert(self, by_slot: AnyArray) -> AnyArray:
        """[…, L, …, P] summed to [S, L, E] or [S, L, R, E]."""
        out = np.zeros((*by_slot.shape[:-1], self.plan.experts), np.int64)
        for layer, slot in np.ndindex(self.plan.expert_of_slot.shape):
            out[:, layer, ..., self.plan.expert_of_slot[layer, slot]] += by_slot[:, layer, ..., slot]
        return out


def random_case(seed: int, *, ranks: int, slots: int, layers: int = 2, steps: int = 3, most: int = 9) -> Case:
    """A case of R ranks with S slots each and as many replicas as chance wants; two ranks share a node."""
    rng = np.random.default_rng(seed)
    experts = int(rng.integers(slots, ranks * slots + 1))
    rows = np.stack([_row(rng, ranks, slots, experts) for _ in range(layers)])
    shape = (steps, layers, ranks, experts)
    counts = rng.integers(0, most + 1, shape) * (rng.random(shape) < rng.uniform(0.2, 1))
    return Case(
        plan=Plan(expert_of_slot=rows, slots_per_rank=np.full(ranks, slots), experts=experts, policy="random"),
        node=frozen(np.arange(ranks) // 2, np.int32),
        counts=frozen(counts, np.int32),
    )


def _row(rng: np.random.Generator, ranks: int, slots: int, experts: int) -> AnyArray:
    """Every expert once, in random order over the ranks; the other slots with experts that their rank lacks."""
    free = rng.permutation(np.repeat(np.arange(ranks), slots))
    held: list[list[int]] = [[] for _ in range(ranks)]
    for expert, rank in enumerate(free[:experts]):
        held[rank].append(expert)
    for rank in free[experts:]:
        held[rank].append(int(rng.choice(np.setdiff1d(np.arange(experts), held[rank]))))
    return np.array([rng.permutation(one) for one in held]).ravel()


def cases() -> st.SearchStrategy[Case]:
    """Two to five ranks with up to five slots."""
    return st.builds(
        random_case,
        st.integers(0, 10_000),
        ranks=st.integers(2, 5),
        slots=st.integers(1, 5),
        most=st.sampled_from([1, 9, 200]),
    )


def linprog_bound(counts: AnyArray, plan: Plan, layer: int) -> float:
    """The lowest busiest rank of one step and layer, int[E] counts, as HiGHS finds it."""
    from scipy.optimize import linprog

    slots = plan.expert_of_slot[layer]
    weight = np.append(np.zeros(plan.slots), 1.0)
    given = np.zeros((plan.experts, plan.slots + 1))
    given[slots, np.arange(plan.slots)] = 1.0
    below = np.zeros((plan.ranks, plan.slots + 1))
    below[plan.rank_of_slot, np.arange(plan.slots)] = 1.0
    below[:, -1] = -1.0
    found = linprog(weight, A_ub=below, b_ub=np.zeros(plan.ranks), A_eq=given, b_eq=counts, method="highs")
    assert found.fun is not None
    return float(found.fun)


def between_nodes(sent: AnyArray, plan: Plan, node: AnyArray) -> FloatArray:
    """[S, L] assignments of int[S, L, R, P] that leave their node."""
    far = node[:, None] != node[plan.rank_of_slot][None, :]
    crossing: FloatArray = (sent * far).sum(axis=(2, 3))
    return crossing


def all_splits(counts: list[int], homes: list[list[int]], ranks: int) -> int:
    """The lowest busiest rank over every way to share whole assignments (a few of them)."""
    ways = [list(itertools.combinations_with_replacement(home, n)) for n, home in zip(counts, homes, strict=True)]
    return min(
        int(np.bincount(list(itertools.chain(*chosen)), minlength=ranks).max()) for chosen in itertools.product(*ways)
    )
