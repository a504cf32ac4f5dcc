"""What holds for every replay, whatever the traffic, the plan and the rule."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easybalance_sim.arrays import AnyArray, frozen
from easybalance_sim.load.counting import Windowing
from easybalance_sim.plan.plan import Plan
from easybalance_sim.replay.outcome import Outcome
from easybalance_sim.trace.schema import TokenBatch
from tests.replay_cases import ALL_RULES, random_batch, random_plan, replayed, steps_of

LIMITED = settings(max_examples=80, deadline=None)
EXPERT_BLIND = ("even", "vllm", "vllm-legacy", "tensorrt-llm", "ascend-v1", "sglang-dynamic")
"""Rules whose choice does not depend on the number of the expert."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    batch: TokenBatch
    plan: Plan
    ranks_per_node: int

    def replayed(self, rule: str, mode: str = "low_latency") -> Outcome:
        return replayed(
            self.batch,
            self.plan,
            rule=rule,
            mode=mode,
            ranks_per_node=self.ranks_per_node,
            windowing=Windowing(steps=1),
        )


@st.composite
def cases(draw: st.DrawFn, redundant: bool = True) -> Case:
    slots = draw(st.lists(st.integers(1, 4), min_size=1, max_size=6))
    experts = draw(st.integers(2, sum(slots))) if redundant and sum(slots) > 1 else sum(slots)
    layers, top_k = draw(st.integers(1, 3)), draw(st.integers(1, min(3, experts)))
    seed = draw(st.integers(0, 9999))
    batch = random_batch(
        seed,
        tokens=draw(st.integers(1, 60)),
        steps=draw(st.integers(1, 6)),
        layers=layers,
        experts=experts,
        top_k=top_k,
        ranks=len(slots),
    )
    return Case(
        batch=batch, plan=random_plan(seed, layers, experts, slots), ranks_per_node=draw(st.integers(1, len(slots)))
    )


def rank_loads(outcome: Outcome) -> AnyArray:
    """int64[R] assignments that arrive at each rank (low latency: one message each)."""
    loads: AnyArray = np.asarray(outcome.rank_pairs).sum(axis=0)
    return loads


@LIMITED
@given(rule=st.sampled_from(ALL_RULES), case=cases())
def test_assignments_are_conserved_and_go_to_holders_of_their_expert(rule: str, case: Case) -> None:
    found, ids = case.replayed(rule), case.batch.experts
    chosen = np.stack(
        [np.bincount(ids[:, layer].ravel(), minlength=case.plan.experts) for layer in range(ids.shape[1])]
    )
    # Tokens per expert are read off the slots that hold it: equality means no token went to a slot of another expert.
    assert found.expert_tokens.tolist() == chosen.tolist()
    assert rank_loads(found).sum() == found.node_pairs.sum() == ids.size


@LIMITED
@given(rule=st.sampled_from(ALL_RULES), case=cases())
def test_normal_mode_sends_no_more_copies_than_assignments(rule: str, case: Case) -> None:
    every, distinct = case.replayed(rule), case.replayed(rule, "normal")
    assert (np.asarray(distinct.rank_pairs) <= every.rank_pairs).all()
    assert (np.asarray(distinct.node_pairs) <= every.node_pairs).all()
    assert distinct.expert_tokens.tolist() == every.expert_tokens.tolist()
    assert distinct.window_imbalance.tolist() == every.window_imbalance.tolist()


@LIMITED
@given(rule=st.sampled_from(ALL_RULES), case=cases())
def test_imbalance_lies_between_one_and_the_number_of_ranks(rule: str, case: Case) -> None:
    ratios = case.replayed(rule).window_imbalance
    assert (ratios >= 1).all()
    assert (ratios <= case.plan.ranks + 1e-9).all()


@LIMITED
@given(rule=st.sampled_from(ALL_RULES), case=cases())
def test_steps_replayed_apart_add_up(rule: str, case: Case) -> None:
    whole = case.replayed(rule)
    apart = [replace(case, batch=one).replayed(rule) for one in steps_of(case.batch)]
    assert np.sum([one.rank_pairs for one in apart], axis=0).tolist() == whole.rank_pairs.tolist()
    assert np.sum([one.active_slots for one in apart], axis=0).tolist() == whole.active_slots.tolist()
    assert np.concatenate([one.layer_seconds for one in apart]).tolist() == whole.layer_seconds.tolist()


@LIMITED
@given(rule=st.sampled_from(EXPERT_BLIND), case=cases(), seed=st.integers(0, 99))
def test_numbering_the_experts_anew_changes_nothing(rule: str, case: Case, seed: int) -> None:
    new = np.random.default_rng(seed).permutation(case.plan.experts)
    plan = replace(case.plan, expert_of_slot=frozen(new[case.plan.expert_of_slot], np.int32))
    batch = replace(case.batch, experts=frozen(new[case.batch.experts], np.uint8))
    before, after = case.replayed(rule), replace(case, plan=plan, batch=batch).replayed(rule)
    assert after.rank_pairs.tolist() == before.rank_pairs.tolist()
    assert after.window_imbalance.tolist() == before.window_imbalance.tolist()


@LIMITED
@given(rule=st.sampled_from(ALL_RULES), case=cases(redundant=False), seed=st.integers(0, 99))
def test_without_redundancy_ranks_may_change_places(rule: str, case: Case, seed: int) -> None:
    order = np.random.default_rng(seed).permutation(case.plan.ranks)
    held = np.split(np.arange(case.plan.slots), case.plan.slot_start[1:-1])
    plan = Plan(
        expert_of_slot=case.plan.expert_of_slot[:, np.concatenate([held[rank] for rank in order])],
        slots_per_rank=case.plan.slots_per_rank[order],
        experts=case.plan.experts,
        policy="moved",
    )
    before, after = case.replayed(rule), replace(case, plan=plan).replayed(rule)
    assert rank_loads(after).tolist() == rank_loads(before)[order].tolist()
    assert after.window_imbalance == pytest.approx(before.window_imbalance)


@LIMITED
@given(case=cases())
def test_even_differs_by_one_token_at_most_between_replicas(case: Case) -> None:
    """Slots are ranks here, so that the load of a replica is that of its rank."""
    plan = random_plan(0, case.plan.layers, case.plan.experts, np.ones(case.plan.slots, np.int64))
    for one in steps_of(case.batch):
        loads = [rank_loads(replayed(one_layer(one, layer), of_layer(plan, layer))) for layer in range(plan.layers)]
        for layer, expert in np.ndindex(plan.layers, plan.experts):
            replicas = loads[layer][plan.expert_of_slot[layer] == expert]
            assert replicas.max() - replicas.min() <= 1


def one_layer(batch: TokenBatch, layer: int) -> TokenBatch:
    return replace(
        batch,
        experts=frozen(batch.experts[:, layer : layer + 1]),
        source_rank=frozen(np.zeros(batch.tokens), np.int16),
    )  # fmt: skip


def of_layer(plan: Plan, layer: int) -> Plan:
    return replace(plan, expert_of_slot=plan.expert_of_slot[layer : layer + 1])
