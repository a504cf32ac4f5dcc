"""Replay of token batches: conserved, the same whatever the batches and chunks, and equal to a naive count."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from easybalance_sim import kernels
from easybalance_sim.arrays import AnyArray, sealed
from easybalance_sim.cluster.topology import uniform
from easybalance_sim.errors import UsageError
from easybalance_sim.load.counting import Windowing
from easybalance_sim.plan.plan import Plan
from easybalance_sim.replay import engine
from easybalance_sim.replay.engine import links, outcomes, replay, subject, tally
from easybalance_sim.trace.schema import TokenBatch
from tests.replay_cases import batch_of, cost_of, random_batch, random_ids, random_plan, replayed, same, steps_of

LAYERS, EXPERTS, TOP_K, RANKS = 3, 10, 3, 4
PLAN = random_plan(1, LAYERS, EXPERTS, [4, 2, 4, 4])


def traffic(tokens: int = 240, steps: int = 12, seed: int = 0) -> TokenBatch:
    return random_batch(
        seed, tokens=tokens, steps=steps, layers=LAYERS, experts=EXPERTS, top_k=TOP_K, ranks=RANKS
    )  # fmt: skip


def expert_counts(batch: TokenBatch) -> AnyArray:
    """int64[L, E]."""
    return np.stack([np.bincount(batch.experts[:, layer].ravel(), minlength=EXPERTS) for layer in range(LAYERS)])


@pytest.mark.parametrize("mode", ["low_latency", "normal"])
def test_every_assignment_is_computed_once(mode: str) -> None:
    batch = traffic()
    outcome = replayed(batch, PLAN, mode=mode)
    assert (outcome.tokens, outcome.steps) == (240, 12)
    assert outcome.tokens_per_step == 20
    assert outcome.expert_tokens.tolist() == expert_counts(batch).tolist()
    if mode == "low_latency":
        assert outcome.rank_pairs.sum() == outcome.node_pairs.sum() == 240 * LAYERS * TOP_K
        assert (
            outcome.rank_pairs.sum(axis=1).tolist()
            == (np.bincount(batch.source_rank, minlength=RANKS) * LAYERS * TOP_K).tolist()
        )


def spoiled(change: int) -> Any:
    """The kernels with a dispatch that loses or doubles an assignment of the last step."""
    real = kernels.load()

    def dispatch(*arguments: Any) -> None:
        real.dispatch(*arguments)
        arguments[15][-1, -1, 0] += change

    return SimpleNamespace(**{**{name: getattr(real, name) for name in real.__all__}, "dispatch": dispatch})


@pytest.mark.parametrize("change", [-1, 1])
def test_a_lost_or_doubled_assignment_stops_the_replay(monkeypatch: pytest.MonkeyPatch, change: int) -> None:
    wrong = spoiled(change)
    monkeypatch.setattr(kernels, "load", lambda name="auto": wrong)
    with pytest.raises(RuntimeError, match="assignments were lost or doubled"):
        replayed(traffic(), PLAN)


@pytest.mark.parametrize("rule", ["even", "tensorrt-llm", "sglang-dynamic"])
@pytest.mark.parametrize("cells", [1, LAYERS * PLAN.slots, 5 * LAYERS * PLAN.slots + 1])
def test_chunks_do_not_change_the_sums(monkeypatch: pytest.MonkeyPatch, cells: int, rule: str) -> None:
    whole = replayed(traffic(), PLAN, rule=rule)
    monkeypatch.setattr(engine, "CELLS_PER_CHUNK", cells)
    assert same(replayed(traffic(), PLAN, rule=rule), whole)


@pytest.mark.parametrize("rule", ["even", "vllm", "sglang-dynamic"])
def test_batches_do_not_change_the_sums_and_windows_straddle_them(rule: str) -> None:
    batch, windowing = traffic(), Windowing(steps=5)
    whole = replayed(batch, PLAN, rule=rule, windowing=windowing)
    assert same(replayed(list(steps_of(batch)), PLAN, rule=rule, windowing=windowing), whole)
    halves = [batch.select(sealed(batch.step < 7)), batch.select(sealed(batch.step >= 7))]
    assert same(replayed(halves, PLAN, rule=rule, windowing=windowing), whole)


def test_imbalance_is_max_over_mean_of_each_window() -> None:
    """One replica per expert, so that the rank of an assignment needs no rule."""
    plan = random_plan(2, LAYERS, 12, [3] * RANKS)
    batch = random_batch(3, tokens=300, steps=12, layers=LAYERS, experts=12, top_k=TOP_K, ranks=RANKS)
    found = replayed(batch, plan, windowing=Windowing(steps=4)).window_imbalance
    rank_of = np.stack([plan.rank_of_slot[plan.replica_slot[layer]] for layer in range(LAYERS)])
    for window, layer in np.ndindex(3, LAYERS):
        ids = batch.experts[batch.step // 4 == window, layer]
        load = np.bincount(rank_of[layer][ids].ravel(), minlength=RANKS)
        assert found[window, layer] == pytest.approx(load.max() / load.mean(), rel=1e-12)
    assert found.shape == (3, LAYERS)


def test_a_trailing_window_cut_short_is_left_out() -> None:
    batch = batch_of(np.repeat(np.arange(11), 6), np.arange(66) % RANKS, random_ids(0, 66, LAYERS, EXPERTS, TOP_K))
    outcome = replayed(batch, PLAN, windowing=Windowing(steps=4))
    assert outcome.steps == 11
    assert outcome.windows == 2
    assert len(outcome.layer_seconds) == 11
    assert replayed(batch, PLAN, windowing=Windowing(steps=100)).windows == 1


def test_windows_of_seconds() -> None:
    ids = random_ids(0, 60, LAYERS, EXPERTS, TOP_K)
    step = np.repeat(np.arange(10), 6)
    timed = batch_of(step, np.zeros(60), ids, time_s=step * 0.25 + 8)
    # Steps 0-3 lie in second 8, 4-7 in second 9, 8-9 in second 10, which is cut short.
    assert same(
        replayed(timed, PLAN, windowing=Windowing(seconds=1.0)), replayed(timed, PLAN, windowing=Windowing(steps=4))
    )
    with pytest.raises(UsageError, match="time_s"):
        replayed(batch_of(step, np.zeros(60), ids), PLAN, windowing=Windowing(seconds=1.0))


def test_recorded_sources_are_kept_when_the_ranks_fit() -> None:
    batch = batch_of([0] * 6, [3, 3, 3, 3, 1, 1], random_ids(0, 6, LAYERS, EXPERTS, TOP_K), request=[0, 1, 2, 3, 4, 5])
    assert (np.asarray(replayed(batch, PLAN).rank_pairs).sum(axis=1) / (LAYERS * TOP_K)).tolist() == [0, 2, 0, 4]


def test_sources_are_request_mod_ranks_when_they_do_not_fit() -> None:
    batch = batch_of([0] * 6, [3, 3, 3, 3, 1, 1], random_ids(0, 6, LAYERS, EXPERTS, TOP_K), request=[0, 4, 8, 5, 2, 6])
    for recorded in (0, 8):
        pairs = np.asarray(replayed(batch, PLAN, recorded_ranks=recorded).rank_pairs)
        assert (pairs.sum(axis=1) / (LAYERS * TOP_K)).tolist() == [3, 1, 2, 0]


def test_only_unknown_sources_are_replaced() -> None:
    batch = batch_of([0] * 4, [3, -1, 9, 0], random_ids(0, 4, LAYERS, EXPERTS, TOP_K), request=[8, 5, 6, 9])
    pairs = np.asarray(replayed(batch, PLAN).rank_pairs)
    assert (pairs.sum(axis=1) / (LAYERS * TOP_K)).tolist() == [1, 1, 1, 1]


def test_several_subjects_in_one_pass_are_as_alone() -> None:
    topology = uniform(RANKS, 2, 4)
    plans = [PLAN, random_plan(9, LAYERS, EXPERTS, [3, 3, 3, 2])]
    items = [subject(plan, topology, "vllm", cost_of(plan, topology), 0) for plan in plans]
    both = replay(list(steps_of(traffic())), items, links(topology, "low_latency"), Windowing(steps=2), RANKS)
    assert all(
        same(found, replayed(traffic(), plan, rule="vllm", ranks_per_node=2))
        for found, plan in zip(both, plans, strict=True)
    )


@pytest.mark.parametrize("cuts", [(), (3,), (1, 2), (0, 5, 11), tuple(range(1, 12))])
def test_parts_of_a_trace_join_to_the_same_outcome(cuts: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows of five steps lie across the cuts; of the seconds a sample stays."""
    monkeypatch.setattr("easybalance_sim.replay.tally.MOST_SECONDS", 5 * LAYERS)
    topology = uniform(RANKS, 2, 4)
    items = [subject(PLAN, topology, "vllm", cost_of(PLAN, topology), 0)]
    route, steps = links(topology, "normal"), list(steps_of(traffic()))
    (whole,) = replay(steps, items, route, Windowing(steps=5), RANKS)
    pieces = [steps[a:b] for a, b in itertools.pairwise([0, *cuts, len(steps)])]
    (found,) = outcomes([tally(piece, items, route, Windowing(steps=5), RANKS) for piece in pieces], items)
    assert same(found, whole) and whole.windows == 2
    assert 0 < len(whole.layer_seconds) <= 5 < len(steps)
    assert found.layer_seconds.tolist() == whole.layer_seconds.tolist()
    assert found.phase_share.tolist() == whole.phase_share.tolist()


def test_seconds_are_those_of_the_cost_model() -> None:
    """One step, one expert per rank: the counts that the cost model gets are plain to see."""
    plan = random_plan(0, 1, 4, [1] * 4)
    batch = batch_of([0] * 8, [0, 1, 2, 3] * 2, np.array([[0, 1], [1, 2], [2, 3], [3, 0]] * 2))
    topology = uniform(4, 4, 1)
    rank_of = plan.rank_of_slot[plan.replica_slot[0]][batch.experts[:, 0]]
    pairs = np.zeros((4, 4), np.int64)
    np.add.at(pairs, (batch.source_rank[:, None], rank_of), 1)
    away = pairs * (1 - np.eye(4, dtype=np.int64))
    nvlink = np.maximum(away.sum(axis=0), away.sum(axis=1)).astype(np.int32)[None, None]
    slots = np.full((1, 1, 4), 4, np.int32)
    wanted = cost_of(plan, topology).seconds(slots, slots, 0 * nvlink, nvlink)
    found = replayed(batch, plan, ranks_per_node=4)
    assert found.layer_seconds.tolist() == wanted.serial.astype(np.float32).tolist()
    assert found.phase_share == pytest.approx(
        np.array([wanted.dispatch, wanted.expert, wanted.combine]).ravel() / wanted.serial.sum()
    )
    assert found.active_slots.tolist() == [0, 4]


def test_no_tokens_give_an_empty_outcome() -> None:
    outcome = replayed([], PLAN)
    assert (outcome.tokens, outcome.steps, outcome.windows) == (0, 0, 0)


@pytest.mark.parametrize("slots_per_rank", [[2, 2], [1, 3]])
def test_the_peak_is_of_the_fullest_step(slots_per_rank: list[int]) -> None:
    """Four experts in four slots. Step 0: three tokens of rank 0, all to experts 2 and 3; step 1: one token of each."""
    plan = Plan(
        expert_of_slot=np.array([[0, 1, 2, 3]]), slots_per_rank=np.array(slots_per_rank), experts=4, policy="hand"
    )
    batch = batch_of([0, 0, 0, 1, 1], [0, 0, 0, 0, 1], [[2, 3], [2, 3], [3, 2], [0, 2], [0, 3]])
    peak = replayed(batch, plan).peak
    assert (peak.sent, peak.arriving, peak.rows, peak.slot_rows) == (3, 3, 6, 3)
    last = replayed(batch.select(slice(3, 5)), plan).peak
    assert (last.sent, last.arriving, last.rows, last.slot_rows) == (1, 2, 2, 2)
