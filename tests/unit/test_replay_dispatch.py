"""Every rule by its formula: t = row in the source rank's batch of the step, k = column, n = replicas in slot order."""

from __future__ import annotations

import random

import numpy as np
import pytest

from easybalance_sim.arrays import AnyArray, frozen
from easybalance_sim.errors import UsageError
from easybalance_sim.plan.plan import Plan
from easybalance_sim.replay.dispatch import nearest_slots, prepare
from easybalance_sim.trace.schema import TokenBatch
from tests.replay_cases import ALL_RULES, batch_of, random_batch, random_plan, replayed, steps_of

HOLDERS = (0, 1, 0, 2, 0, 1)
"""Expert in each slot, one slot per rank: expert 0 has replicas 0, 2, 4; expert 1 has 1, 5; expert 2 has 3."""


def one_slot_ranks(*layers: tuple[int, ...]) -> Plan:
    """Ranks of one slot, so that pairs of ranks tell which slot was chosen."""
    ids = np.array(layers)
    one = np.ones(ids.shape[1], np.int64)
    return Plan(expert_of_slot=ids, slots_per_rank=one, experts=int(ids.max()) + 1, policy="hand")


def sent(rule: str, batch: TokenBatch, *, node: int = 6, seed: int = 0) -> AnyArray:
    """int64[R, R] assignments from source rank to slot, all steps together."""
    return np.asarray(replayed(batch, one_slot_ranks(HOLDERS), rule=rule, ranks_per_node=node, seed=seed).rank_pairs)


def arrivals(rule: str, ids: list[int], source: int = 0) -> list[list[int]]:
    """Slots of successive top-1 tokens of one source, each seen by the difference that it makes."""
    pairs = [sent(rule, batch_of([7] * n, [source] * n, np.array(ids[:n])[:, None])) for n in range(1, len(ids) + 1)]
    steps = np.diff(np.concatenate([np.zeros((1, 6, 6), np.int64), pairs]), axis=0)
    return [np.flatnonzero(step[source]).tolist() for step in steps]


def test_even_takes_turns_from_the_step_number_on() -> None:
    # Step 7: expert 0 begins with replica 7 mod 3 = 1, expert 1 with 7 mod 2 = 1.
    assert arrivals("even", [0, 0, 1, 0, 1, 0, 2]) == [[2], [4], [5], [0], [1], [2], [3]]


def test_even_takes_turns_over_all_sources() -> None:
    assert sent("even", batch_of([0] * 3, [4, 2, 5], [[0], [0], [0]])).nonzero()[1].tolist() == [2, 0, 4]


def test_vllm_hashes_the_row() -> None:
    # 2654435769·t mod 2^32 is 0, 2654435769, 1013904242, 3668340011, 2027808484, … for t = 0, 1, 2, 3, 4.
    hashed = [0, 2654435769, 1013904242, 3668340011, 2027808484, 387276957]
    assert arrivals("vllm", [0] * 6) == [[[0, 2, 4][value % 3]] for value in hashed]
    assert arrivals("vllm", [0, 1, 1, 0, 1, 1], source=3) == [
        [([0, 2, 4] if e == 0 else [1, 5])[h % (3 - e)]] for e, h in zip([0, 1, 1, 0, 1, 1], hashed, strict=True)
    ]


def test_vllm_counts_rows_per_source() -> None:
    pairs = sent("vllm", batch_of([0] * 4, [1, 2, 1, 2], [[0]] * 4))
    assert pairs[1].tolist() == pairs[2].tolist() == [2, 0, 0, 0, 0, 0]


def test_vllm_legacy_numbers_the_flat_entries() -> None:
    # Two columns: entry t·2 + k. Rows 0, 1, 2 choose experts (0, 1), (1, 0), (0, 2).
    pairs = sent("vllm-legacy", batch_of([0] * 3, [0] * 3, [[0, 1], [1, 0], [0, 2]]))
    # Expert 0 at entries 0, 3, 4: replicas 0, 0, 1; expert 1 at entries 1, 2: replicas 1, 0.
    assert pairs[0].tolist() == [2, 1, 1, 1, 0, 1]


def test_tensorrt_llm_takes_turns_from_the_source_rank_on() -> None:
    assert arrivals("tensorrt-llm", [0, 0, 1, 0, 1, 0], source=4) == [[2], [4], [1], [0], [5], [2]]


def test_tensorrt_llm_begins_anew_every_1024_entries() -> None:
    # Entries 0 … 1023 are block 0, the rest block 1, which begins one replica further.
    pairs = sent("tensorrt-llm", batch_of([0] * 515, [0] * 515, [[0, 1]] * 515))
    block = np.arange(1030) // 1024
    use = np.where(block == 0, np.arange(1030) // 2, (np.arange(1030) - 1024) // 2)
    wanted = np.zeros(6, np.int64)
    for entry in range(1030):
        replicas = [0, 2, 4] if entry % 2 == 0 else [1, 5]
        wanted[replicas[(block[entry] + use[entry]) % len(replicas)]] += 1
    assert pairs[0].tolist() == wanted.tolist()


def test_ascend_v1_is_fixed_per_source() -> None:
    pairs = sent("ascend-v1", batch_of([0] * 12, list(range(6)) * 2, [[0]] * 6 + [[1]] * 6))
    wanted = np.zeros((6, 6), np.int64)
    for source in range(6):
        wanted[source, [0, 2, 4][source % 3]] += 1
        wanted[source, [1, 5][source % 2]] += 1
    assert pairs.tolist() == wanted.tolist()


def test_ascend_v2_adds_row_source_and_expert() -> None:
    assert arrivals("ascend-v2", [0, 1, 0, 1, 2], source=2) == [
        [[0, 2, 4][(0 + 2 + 0) % 3]],
        [[1, 5][(1 + 2 + 1) % 2]],
        [[0, 2, 4][(2 + 2 + 0) % 3]],
        [[1, 5][(3 + 2 + 1) % 2]],
        [3],
    ]
    tall = sent("ascend-v2", batch_of([0] * 1030, [0] * 1030, [[0]] * 1030))
    assert tall[0].tolist() == (np.bincount(np.arange(1030) % 1024 % 3) @ np.eye(6, dtype=int)[[0, 2, 4]]).tolist()


def test_sglang_static_prefers_own_rank_then_own_node_then_shares_fairly() -> None:
    # Nodes {0, 1, 2} and {3, 4, 5}. Expert 0 in slots 0, 2, 4; expert 1 in 1, 5; expert 2 in 3.
    table = prepare("sglang-static", one_slot_ranks(HOLDERS), frozen([0, 0, 0, 1, 1, 1], np.int32), 0).table[:, 0]
    assert table[:, 0].tolist() == [0, 0, 2, 4, 4, 4]
    assert table[:, 1].tolist() == [1, 1, 1, 5, 5, 5]
    assert table[:, 2].tolist() == [3] * 6


def test_sglang_static_spreads_far_ranks_over_all_replicas() -> None:
    # One node: nothing narrows, so only owners are near; three ranks are dealt the three replicas, each once.
    table = prepare("sglang-static", one_slot_ranks(HOLDERS), frozen([0] * 6, np.int32), 0).table[:, 0, 0]
    assert table[[0, 2, 4]].tolist() == [0, 2, 4]
    assert set(table.tolist()) <= {0, 2, 4}


def test_sglang_dynamic_uses_the_near_replica_and_else_draws_evenly() -> None:
    tokens = 6000
    near = sent("sglang-dynamic", batch_of([0] * tokens, [2] * tokens, [[0]] * tokens))
    assert near[2].tolist() == [0, 0, tokens, 0, 0, 0]
    far = sent("sglang-dynamic", batch_of([0] * tokens, [3] * tokens, [[0]] * tokens))[3]
    assert far[[0, 2, 4]] == pytest.approx(tokens / 3, abs=5 * np.sqrt(tokens * 2 / 9))
    assert far.sum() == far[[0, 2, 4]].sum() == tokens


def test_sglang_dynamic_draws_by_seed() -> None:
    batch = batch_of([0] * 500, [3] * 500, [[0]] * 500)
    first = sent("sglang-dynamic", batch)
    assert sent("sglang-dynamic", batch).tolist() == first.tolist()
    assert sent("sglang-dynamic", batch, seed=1).tolist() != first.tolist()


def numbered(rule: str, t: AnyArray, k: int, source: AnyArray, expert: AnyArray, top_k: int) -> AnyArray:
    """What the rules without state take modulo n, as one numpy expression each."""
    formulas: dict[str, AnyArray] = {
        "vllm": (t.astype(np.uint64) * 2654435769 % 2**32).astype(np.int64),
        "vllm-legacy": t * top_k + k,
        "ascend-v1": source,
        "ascend-v2": t % 1024 + source + expert,
    }
    return formulas[rule]


@pytest.mark.parametrize("rule", ["vllm", "vllm-legacy", "ascend-v1", "ascend-v2"])
def test_rules_without_state_on_random_traffic(rule: str) -> None:
    ranks, layers, top_k = 12, 2, 3
    plan = random_plan(0, layers, 7, np.ones(ranks, np.int64))
    batch = random_batch(1, tokens=900, steps=4, layers=layers, experts=7, top_k=top_k, ranks=ranks)
    source = batch.source_rank.astype(np.int64)
    same_batch = (batch.step[:, None] == batch.step) & (source[:, None] == source)
    row = np.tril(same_batch, -1).sum(axis=1)
    wanted = np.zeros((ranks, ranks), np.int64)
    for layer in range(layers):
        for k in range(top_k):
            expert = batch.experts[:, layer, k].astype(np.int64)
            pick = numbered(rule, row, k, source, expert, top_k) % plan.replicas[layer, expert]
            slot = plan.replica_slot[layer, plan.replica_start[layer, expert] + pick]
            np.add.at(wanted, (source, slot), 1)
    assert np.asarray(replayed(batch, plan, rule=rule).rank_pairs).tolist() == wanted.tolist()


@pytest.mark.parametrize("rule", ALL_RULES)
def test_every_step_begins_anew(rule: str) -> None:
    plan = random_plan(3, 2, 6, [2, 2, 2, 2])
    batch = random_batch(4, tokens=300, steps=5, layers=2, experts=6, top_k=2, ranks=4)
    alone = sum(np.asarray(replayed(one, plan, rule=rule).rank_pairs) for one in steps_of(batch))
    assert np.asarray(replayed(batch, plan, rule=rule).rank_pairs).tolist() == np.asarray(alone).tolist()


def test_nearest_slot_on_unsorted_nodes_and_ragged_ranks() -> None:
    plan = Plan(
        expert_of_slot=np.array([[0, 1, 0, 2, 0, 1, 3]]),
        slots_per_rank=np.array([1, 3, 1, 2]),
        experts=4,
        policy="hand",
    )
    # Slots 0 | 1 2 3 | 4 | 5 6 on ranks 0 … 3; nodes {0, 2} and {1, 3}.
    table = nearest_slots(plan, frozen([0, 1, 0, 1], np.int32))[:, 0]
    assert table[:, 0].tolist() == [0, 2, 4, 2]
    assert table[:, 1].tolist() == [-1, 1, -1, 5]
    assert table[:, 2].tolist() == [3] * 4
    assert table[:, 3].tolist() == [6] * 4


def test_an_expert_twice_on_a_rank_is_served_by_its_first_slot_there() -> None:
    plan = Plan(expert_of_slot=np.array([[0, 0, 1, 0]]), slots_per_rank=np.array([2, 2]), experts=2, policy="hand")
    assert nearest_slots(plan, frozen([0, 1], np.int32))[:, 0, 0].tolist() == [0, 3]


@pytest.mark.parametrize("rule", ["even", "vllm", "vllm-legacy", "tensorrt-llm", "ascend-v2"])
def test_rules_without_a_table_need_none(rule: str) -> None:
    assert prepare(rule, one_slot_ranks(HOLDERS), frozen([0] * 6, np.int32), 0).table.tolist() == [[[-1]]]


def test_unknown_rule_names_the_known_ones() -> None:
    with pytest.raises(UsageError, match="no dispatch rule 'fair'") as caught:
        prepare("fair", one_slot_ranks(HOLDERS), frozen([0] * 6, np.int32), 0)
    assert all(rule in str(caught.value) for rule in ALL_RULES)


def test_the_first_deal_of_sglang_static_is_one_fair_shuffle_for_all_ranks() -> None:
    """Streams of all ranks begin alike: four far ranks over two replicas get each of them twice, in shuffled order."""
    table = prepare("sglang-static", one_slot_ranks((0, 1, 0, 2, 3, 4)), frozen([0] * 6, np.int32), 0).table[:, 0, 0]
    dealt, stream = [0, 2, 0, 2], random.Random(42)
    stream.sample([0, 2], k=0)
    stream.shuffle(dealt)
    assert table[[0, 2]].tolist() == [0, 2]
    assert table[[1, 3, 4, 5]].tolist() == dealt


def static_table(plan: Plan, layer_ids: list[int] | None) -> AnyArray:
    """int32[R, L, E] with all ranks on one node."""
    return prepare("sglang-static", plan, frozen([0] * plan.ranks, np.int32), 0, layer_ids).table


def test_sglang_static_deals_for_dense_layers_too() -> None:
    """Their rows hold slot modulo E and take random numbers from the layers behind."""
    dense, moe = (0, 1, 2, 3, 4, 0), (0, 1, 0, 2, 3, 4)
    walked = static_table(one_slot_ranks(dense, moe, dense, moe), None)
    skipped = static_table(one_slot_ranks(moe, moe), [1, 3])
    assert skipped.tolist() == walked[:, [1, 3]].tolist()
    assert skipped.tolist() != static_table(one_slot_ranks(moe, moe), None).tolist()


def test_sglang_static_walks_layers_by_their_ids() -> None:
    first, second = (0, 1, 0, 2, 3, 4), (0, 1, 2, 2, 3, 4)
    in_order = static_table(one_slot_ranks(first, second), [0, 1])
    assert static_table(one_slot_ranks(second, first), [1, 0]).tolist() == in_order[:, ::-1].tolist()
    # Numbers that are no ids of hidden layers only order the rows.
    assert static_table(one_slot_ranks(second, first), [2**40, 7]).tolist() == in_order[:, ::-1].tolist()
