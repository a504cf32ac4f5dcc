"""Loads of ranks against loops over the tokens, windows of steps, expected loads of counts, and the summary."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from easybalance_sim.arrays import AnyArray, IntArray, frozen
from easybalance_sim.cluster.topology import uniform
from easybalance_sim.plan.plan import Plan
from easybalance_sim.profiling.alpha import gini
from easybalance_sim.replay.dispatch import prepare
from easybalance_sim.replay.engine import links
from easybalance_sim.replay.loads import MIXED, StepLoads, Windows, joined, step_loads, window_loads
from easybalance_sim.replay.loads_summary import Summary
from easybalance_sim.trace.schema import CountTrace, TokenBatch
from tests.replay_cases import random_batch, random_plan, steps_of
from tests.trace_files import token_meta

PLAN = random_plan(3, 2, 12, [4, 4, 4, 4])
BATCH = random_batch(5, tokens=400, steps=9, layers=2, experts=12, top_k=3, ranks=4)


def followed(
    batches: TokenBatch | Iterator[TokenBatch], plan: Plan = PLAN, rule: str = "vllm", every: int = 1
) -> StepLoads:
    """All steps in one piece."""
    topology = uniform(plan.ranks, plan.ranks, 4)
    parts = step_loads(
        [batches] if isinstance(batches, TokenBatch) else batches,
        plan,
        prepare(rule, plan, frozen(topology.node_of_rank, np.int32), 0),
        links(topology, "normal"),
        plan.ranks,
        every,
    )
    first, *others = parts
    for part in others:
        first = joined(first, part)
    return first


def slots_of(batch: TokenBatch, plan: Plan) -> AnyArray:
    """[T, L, K] the slot of every choice under the rule of vLLM: hash of the row in the source's batch of the step."""
    slots = np.zeros(batch.experts.shape, np.int64)
    rows: dict[tuple[int, int], int] = {}
    for token, (step, rank) in enumerate(zip(batch.step.tolist(), batch.source_rank.tolist(), strict=True)):
        row = rows.get((step, rank), 0)
        rows[step, rank] = row + 1
        for layer, ids in enumerate(batch.experts[token].tolist()):
            for column, expert in enumerate(ids):
                held = np.flatnonzero(plan.expert_of_slot[layer] == expert)
                slots[token, layer, column] = held[row * 2654435769 % 2**32 % len(held)]
    return slots


def test_every_measure_equals_a_loop_over_tokens() -> None:
    found, slots = followed(BATCH), slots_of(BATCH, PLAN)
    assert found.step.tolist() == np.unique(BATCH.step).tolist()
    for row, step in enumerate(found.step.tolist()):
        mine = slots[BATCH.step == step]
        assert found.tokens[row] == len(mine)
        for layer, rank in np.ndindex(2, 4):
            here = mine[:, layer] // 4 == rank
            counts = np.bincount(mine[:, layer][here], minlength=16)
            assert found.assignments[row, layer, rank] == here.sum()
            assert found.local_tokens[row, layer, rank] == here.any(axis=1).sum()
            assert found.activated[row, layer, rank] == np.count_nonzero(counts)
            assert found.busiest[row, layer, rank] == counts.max()


def test_experts_are_counted_whatever_replica_serves_them() -> None:
    found = followed(BATCH)
    for row, step in enumerate(found.step.tolist()):
        for layer in range(2):
            ids = BATCH.experts[BATCH.step == step, layer]
            assert found.expert_tokens[row, layer].tolist() == np.bincount(ids.ravel(), minlength=12).tolist()


def test_steps_come_out_alike_whichever_batches_bring_them() -> None:
    whole, apart = followed(BATCH), followed(steps_of(BATCH))
    assert all(np.array_equal(getattr(whole, name), getattr(apart, name)) for name in StepLoads.__dataclass_fields__)


def test_only_sampled_steps_count_their_experts() -> None:
    some = followed(BATCH, every=3)
    assert 0 < some.sampled.sum() < 9
    assert some.expert_tokens.tolist() == followed(BATCH).expert_tokens[some.sampled].tolist()


@pytest.mark.parametrize("length", [1, 2, 4, 100])
def test_windows_add_up_their_steps_however_they_come(length: int) -> None:
    loads, windows = followed(BATCH), Windows(length)
    parts = [windows.closed(followed(one)) for one in steps_of(BATCH)]
    rest = windows.rest()
    assert rest is not None
    found = rest
    for part in reversed(parts):
        found = joined(part, found)
    ids = loads.step // length
    assert found.step.tolist() == [int(loads.step[ids == one].min()) for one in np.unique(ids)]
    assert found.steps.tolist() == np.bincount(ids)[np.unique(ids)].tolist()
    for name in ("tokens", "assignments", "local_tokens", "activated", "busiest"):
        sums = [getattr(loads, name)[ids == one].sum(axis=0) for one in np.unique(ids)]
        assert np.array_equal(getattr(found, name), np.stack(sums))


def test_a_step_with_tokens_of_two_phases_is_mixed() -> None:
    phases = np.where(BATCH.step == 4, np.arange(BATCH.tokens) % 2, np.where(BATCH.step < 4, 0, 1))
    columns = {name: getattr(BATCH, name) for name in TokenBatch.__dataclass_fields__}
    found = followed(TokenBatch(**{**columns, "phase": frozen(phases, np.uint8)}))
    assert found.phase.tolist() == [0, 0, 0, 0, MIXED, 1, 1, 1, 1]
    windows = Windows(3)
    closed, rest = windows.closed(found), windows.rest()
    assert rest is not None and [*closed.phase.tolist(), *rest.phase.tolist()] == [0, MIXED, 1]


def counts_trace(tokens: IntArray, top_k: int = 2) -> CountTrace:
    """Decode windows with these counts, int64[W, L, E]."""
    windows = len(tokens)
    return CountTrace(
        meta=token_meta((0,), tokens.shape[2], top_k, kind="counts"),
        paths=("counts.parquet",),
        tokens=tokens,
        window=np.arange(windows),
        start_s=np.arange(windows, dtype=np.float64),
        span_s=np.ones(windows),
        phase=np.ones(windows, np.uint8),
        workload=np.zeros(windows, np.int16),
        batch_tokens=tokens.sum(axis=(1, 2)) // top_k,
    )


def test_counts_are_shared_evenly_and_tokens_are_expected() -> None:
    plan = Plan(expert_of_slot=np.array([[0, 1, 0, 2]]), slots_per_rank=np.array([2, 2]), experts=3, policy="hand")
    tokens = np.array([[[9, 9, 9]], [[0, 2, 0]], [[10, 4, 6]]])
    (found,) = window_loads(counts_trace(tokens), np.array([False, True, True]), plan)
    assert found.step.tolist() == [1, 2]
    assert found.assignments.tolist() == [[[2, 0]], [[9, 11]]]
    assert found.busiest.tolist() == [[[2, 0]], [[5, 6]]]
    assert found.activated.tolist() == [[[1, 0]], [[2, 2]]]
    # 10 tokens with two choices each: 9 of 20 choices on rank 0 are 10 · (1 - 0.55²) tokens.
    assert found.local_tokens[1, 0] == pytest.approx([10 * (1 - 0.55**2), 10 * (1 - 0.45**2)])


def test_summary_by_phase_and_layer() -> None:
    loads, summary = followed(BATCH), Summary(2, 12, 3)
    for one in steps_of(BATCH):
        summary.add(followed(one))
    (phase,) = summary.phases()
    assert (phase.phase, phase.steps) == ("decode", 9)
    assert phase.tokens.mean.tolist() == pytest.approx([loads.tokens.mean()] * 2)
    for name in ("local_tokens", "activated"):
        values, spread = getattr(loads, name), phase.measures[name]
        for row, mine in enumerate([values[:, 0], values[:, 1], values]):
            assert spread.mean[row] == pytest.approx(mine.mean())
            for part, found in ((0.5, spread.p50), (0.99, spread.p99)):
                assert found[row] == np.quantile(mine, part, method="inverted_cdf")
    assert phase.power_law.gini[:2] == pytest.approx(gini(loads.expert_tokens).mean(axis=0))
    assert phase.power_law.gini[2] == pytest.approx(gini(loads.expert_tokens).mean())


def test_large_values_are_told_to_a_thousandth() -> None:
    rng, summary = np.random.default_rng(0), Summary(1, 12, 3)
    values = rng.integers(0, 3_000_000, (500, 1, 4)).astype(np.float64)
    few = followed(next(steps_of(BATCH)))
    shape = {name: np.repeat(getattr(few, name), 500, axis=0) for name in ("step", "steps", "phase", "tokens")}
    summary.add(
        StepLoads(
            **shape, assignments=values, local_tokens=values, activated=values, busiest=values,
            sampled=np.zeros(500, np.bool_), expert_tokens=np.zeros((0, 1, 12), np.int64),
        )
    )  # fmt: skip
    spread = summary.phases()[0].measures["local_tokens"]
    assert spread.p50[0] == pytest.approx(np.quantile(values, 0.5), rel=0.002)
    assert spread.p99[0] == pytest.approx(np.quantile(values, 0.99), rel=0.002)
    assert spread.mean[0] == pytest.approx(values.mean())
