"""How serving engines choose a replica, as inputs of the dispatch kernel.

t = row of the token in its source rank's batch of the step, k = top-k column, n = replicas of the expert in slot order.

| rule | choice | read in |
|---|---|---|
| even | the expert's assignments of a step take turns over its replicas, first turn = step: the EPLB model in whole tokens | deepseek-ai/EPLB d52c72d |
| sglang-static | fixed per source rank: only one, on the same GPU, first on the same node if that narrows, else fair shuffle; dense layers take part | SGLang 0.5.23 |
| sglang-dynamic | as static where a near replica exists, else uniform over all | SGLang 0.5.23 |
| vllm | (t · 2654435769 mod 2^32) mod n | vLLM 0.20–0.33 |
| vllm-legacy | (t · K + k) mod n | vLLM after PR #24573, before the hash |
| tensorrt-llm | blocks of 1024 flat entries: (block + source + earlier uses in the block) mod n | TensorRT-LLM c85e8726 |
| ascend-v1 | source mod n, fixed | vllm-ascend 182b75e, MRv1, tp 1 |
| ascend-v2 | ((t mod 1024) + source + e) mod n | vllm-ascend 182b75e, MRv2 |
"""  # noqa: E501

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from easybalance_sim.arrays import Int32Array, frozen, sealed
from easybalance_sim.errors import UsageError, did_you_mean
from easybalance_sim.kernels.reference_dispatch import BLOCKS, EVEN, FLAT, HASH, RANDOM, SHIFT, TABLE
from easybalance_sim.plan.plan import Plan

RULES = {
    "even": EVEN,
    "sglang-static": TABLE,
    "sglang-dynamic": RANDOM,
    "vllm": HASH,
    "vllm-legacy": FLAT,
    "tensorrt-llm": BLOCKS,
    "ascend-v1": TABLE,
    "ascend-v2": SHIFT,
}
_NO_TABLE = sealed(np.full((1, 1, 1), -1, np.int32))
_SGLANG_SEED = 42
_MOST_HIDDEN_LAYERS = 1024


@dataclass(frozen=True, kw_only=True, eq=False)
class Dispatch:
    """A rule made ready for one plan. code: kernel rule · table: int32[R, L, E] slot per source, -1 = open, or a
    dummy where the rule needs none · seed: of the random rule."""

    rule: str
    code: int
    table: Int32Array
    seed: int


def prepare(
    rule: str, plan: Plan, node_of_rank: Int32Array, seed: int, layer_ids: Sequence[int] | None = None
) -> Dispatch:
    """Build the per-source tables that `rule` needs; layer_ids: absolute ids of the plan's layers, None = 0, 1, ….

    Raises `UsageError` for an unknown rule.
    """
    if rule not in RULES:
        raise UsageError(
            f"no dispatch rule {rule!r}",
            where="--dispatch",
            fix=f"{did_you_mean(rule, RULES)}choose {', '.join(RULES)}",
        )
    table = _NO_TABLE
    if rule == "sglang-static":
        table = _fair_fill(plan, node_of_rank, tuple(layer_ids or range(plan.layers)))
    elif rule == "sglang-dynamic":
        table = nearest_slots(plan, node_of_rank)
    elif rule == "ascend-v1":
        table = _by_source(plan)
    return Dispatch(rule=rule, code=RULES[rule], table=table, seed=seed)


def nearest_slots(plan: Plan, node_of_rank: Int32Array) -> Int32Array:
    """int32[R, L, E]: the slot that a rank always uses, -1 where no replica is nearer than the others.

    The only replica; else the first on the same rank; else the first on the same node if not all are on that node.
    """
    ranks = np.arange(plan.ranks)
    node_of_slot = node_of_rank[plan.rank_of_slot]
    first = np.take_along_axis(plan.replica_slot, plan.replica_start[:, :-1], axis=1)
    table = np.repeat(np.where(plan.replicas == 1, first, -1)[None], plan.ranks, axis=0).astype(np.int32)
    for layer, expert in np.argwhere(plan.replicas > 1):
        slots = plan.replica_slot[layer, plan.replica_start[layer, expert] : plan.replica_start[layer, expert + 1]]
        on_node = node_of_slot[slots][None, :] == node_of_rank[ranks][:, None]
        narrows = on_node.any(axis=1) & ~on_node.all(axis=1)
        table[narrows, layer, expert] = slots[on_node.argmax(axis=1)[narrows]]
        for slot in slots[::-1]:
            table[plan.rank_of_slot[slot], layer, expert] = slot
    return sealed(table)


def _fair_fill(plan: Plan, node_of_rank: Int32Array, layer_ids: Sequence[int]) -> Int32Array:
    """`nearest_slots` with the open entries filled: every rank draws, from a stream of its own, one fair shuffle over
    the open ranks, hidden layer by hidden layer."""
    nearest = nearest_slots(plan, node_of_rank)
    streams = [random.Random(_SGLANG_SEED) for _ in range(plan.ranks)]
    dense = dense_row(plan)
    dense_nearest = nearest_slots(dense, node_of_rank)
    table = nearest.copy()
    for row in _hidden_rows(layer_ids):
        if row is None:
            _fill(dense_nearest[:, 0].copy(), dense, 0, streams)
        else:
            _fill(table[:, row], plan, row, streams)
    return sealed(table)


def dense_row(plan: Plan) -> Plan:
    """What a file for SGLang holds where the model has no experts: slot modulo E, as the engine starts by itself."""
    return replace(plan, expert_of_slot=np.arange(plan.slots, dtype=np.int32)[None] % plan.experts)


def _hidden_rows(layer_ids: Sequence[int]) -> Iterator[int | None]:
    """The plan's row of each hidden layer, None for a dense one; ids that no model has are taken in their order."""
    rows = sorted(range(len(layer_ids)), key=lambda row: layer_ids[row])
    numbered = {layer_ids[row]: row for row in rows}
    if layer_ids[rows[-1]] >= _MOST_HIDDEN_LAYERS:
        return iter(rows)
    return (numbered.get(layer) for layer in range(layer_ids[rows[-1]] + 1))


def _fill(table: Int32Array, plan: Plan, layer: int, streams: Sequence[random.Random]) -> None:
    """Fill the open entries of one layer's table, int32[R, E], in place."""
    for expert in np.flatnonzero((table < 0).any(axis=0)):
        slots = plan.replica_slot[layer, plan.replica_start[layer, expert] : plan.replica_start[layer, expert + 1]]
        open_ranks = np.flatnonzero(table[:, expert] < 0).tolist()
        for place, rank in enumerate(open_ranks):
            table[rank, expert] = _fair_shuffle(slots.tolist(), len(open_ranks), streams[rank])[place]


def _fair_shuffle(slots: list[int], count: int, stream: random.Random) -> list[int]:
    rounds, rest = divmod(count, len(slots))
    dealt = slots * rounds + stream.sample(slots, k=rest)
    stream.shuffle(dealt)
    return dealt


def _by_source(plan: Plan) -> Int32Array:
    pick = np.arange(plan.ranks)[:, None, None] % plan.replicas[None]
    place = plan.replica_start[None, :, :-1] + pick
    return frozen(np.take_along_axis(plan.replica_slot[None], place, axis=2), np.int32)
