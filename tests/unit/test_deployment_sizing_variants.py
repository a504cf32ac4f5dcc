"""Scenarios laid out otherwise: what is refused, and what memory and limits become."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from easybalance_sim.deployment.fields import Pool
from easybalance_sim.deployment.scenario import Scenario, load_scenario
from easybalance_sim.deployment.sizing.search import split_layouts
from easybalance_sim.deployment.sizing.variants import Layout, layout_of, splits, with_layout
from easybalance_sim.errors import UsageError
from easybalance_sim.simulate.serving.limits import DECODE_ONLY, MIXED
from tests.ebsim_process import ROOT

NODES = load_scenario(ROOT / "scenarios" / "hgx-2-nodes.toml")
PREFILL_HEAVY = load_scenario(ROOT / "scenarios" / "prefill-heavy.toml")
POOLS = load_scenario(ROOT / "scenarios" / "decode-heavy-wide-ep.toml")


def changed(scenario: Scenario, part: str, **fields: Any) -> Scenario:
    (pool,) = scenario.pools
    inner = msgspec.structs.replace(getattr(pool, part), **fields)
    return msgspec.structs.replace(scenario, pool=msgspec.structs.replace(pool, **{part: inner}))


def laid_out(scenario: Scenario, gpus: int, experts: int, attention: int, spare: int = 1) -> Pool:
    layout = Layout(gpus=gpus, expert_tensor=experts, attention_tensor=attention, spare=spare)
    (pool,) = with_layout(scenario, MIXED, layout).pools
    return pool


def test_the_scenario_s_own_layout_changes_nothing() -> None:
    for scenario in (NODES, PREFILL_HEAVY):
        (pool,) = scenario.pools
        again = with_layout(scenario, MIXED, layout_of(pool, scenario.shape.experts)).pools[0]
        assert again.cluster == pool.cluster
        assert msgspec.structs.replace(again.engine, data_ranks=0) == msgspec.structs.replace(pool.engine, data_ranks=0)
        assert again.data_ranks == pool.data_ranks


def test_names() -> None:
    layout = Layout(gpus=16, expert_tensor=2, attention_tensor=16, spare=0)
    assert (layout.experts_name, layout.attention_name, layout.ranks, layout.data_ranks) == ("EP8 x TP2", "TP16", 8, 1)


def test_plain_tensor_parallelism_is_one_rank_with_every_expert() -> None:
    pool = laid_out(changed(NODES, "cluster", ranks=8, slots_per_rank=17), 8, 8, 8, spare=0)
    assert (pool.cluster.ranks, pool.cluster.slots_per_rank, pool.data_ranks, pool.gpus) == (1, 128, 1, 8)
    assert pool.engine.running == 8 * NODES.pools[0].engine.running


def test_fewer_gpus_take_more_experts_each() -> None:
    pool = laid_out(NODES, 5, 1, 1)
    assert (pool.cluster.ranks, pool.cluster.slots_per_rank, pool.cluster.ranks_per_node) == (5, 27, 5)


def test_a_cache_that_was_said_grows_by_heads_that_are_split() -> None:
    """4 KV heads: over 8 GPUs each keeps one of them. MLA's latent cache is kept whole by each."""
    grouped = changed(NODES, "engine", kv_blocks=1000)
    assert laid_out(grouped, 16, 1, 2).engine.kv_blocks == 2000
    assert laid_out(grouped, 16, 1, 8).engine.kv_blocks == 4000
    latent = changed(PREFILL_HEAVY, "engine", kv_blocks=1000)
    assert laid_out(latent, 32, 1, 4).engine.kv_blocks == 1000


def test_a_smaller_batch_has_no_larger_chunk() -> None:
    engine = laid_out(PREFILL_HEAVY, 32, 1, 1).engine
    assert (engine.batch_tokens, engine.chunk_tokens, engine.data_ranks) == (2048, 2048, 32)


@pytest.mark.parametrize(
    ("gpus", "experts", "attention", "spare", "says"),
    [
        (16, 3, 3, 0, "16 GPUs do not split into groups of 3"),
        (16, 4, 2, 0, "16 GPUs do not split into groups of 2 for attention and 4"),
        (0, 1, 1, 0, "0 GPUs do not split"),
        (15, 5, 5, 0, "experts of width 1536 do not split over 5 GPUs"),
        (15, 1, 3, 0, "64 heads do not split over 3 GPUs"),
        (16, 1, 1, 121, "a rank with 129 slots would hold an expert twice"),
    ],
)
def test_what_cannot_be(gpus: int, experts: int, attention: int, spare: int, says: str) -> None:
    with pytest.raises(UsageError, match=re.escape(says)):
        laid_out(NODES, gpus, experts, attention, spare)


@pytest.mark.parametrize(
    ("part", "fields"),
    [
        ("cluster", {"slots_per_rank": [9] * 16}),
        ("cluster", {"speed": [1.0] * 16}),
        ("cluster", {"node_of_rank": [0, 1] * 8}),
        ("placement", {"before": "old.json"}),
        ("placement", {"after": "new.json"}),
    ],
)
def test_what_has_no_other_size(part: str, fields: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=part):
        layout_of(changed(NODES, part, **fields).pools[0], 128)


def test_of_two_pools_the_other_one_stays() -> None:
    layout = Layout(gpus=36, expert_tensor=1, attention_tensor=1, spare=0)
    prefill, decode = with_layout(POOLS, DECODE_ONLY, layout).pools
    assert prefill == POOLS.pools[0]
    assert (decode.role, decode.gpus, decode.cluster.slots_per_rank) == (DECODE_ONLY, 36, 8)


def test_blocks_of_weights_are_not_cut() -> None:
    """2,048 columns in blocks of 128 are 16 blocks."""
    assert splits(PREFILL_HEAVY.pools[0], PREFILL_HEAVY.shape) == (1, 2, 4, 8)
    wide = changed(PREFILL_HEAVY, "cluster", ranks_per_node=32).pools[0]
    assert splits(wide, PREFILL_HEAVY.shape) == (1, 2, 4, 8, 16)


def test_splits_begin_with_the_scenario_and_come_once() -> None:
    found = split_layouts(NODES, NODES.pools[0])
    assert found[0] == layout_of(NODES.pools[0], 128) and len(found) == len(set(found))
    names = [(one.experts_name, one.attention_name) for one in found]
    assert names == [
        ("EP16", "DP16"), ("EP8 x TP2", "DP8 x TP2"), ("EP4 x TP4", "DP4 x TP4"), ("EP2 x TP8", "DP2 x TP8"),
        ("EP16", "DP2 x TP8"),
    ]  # fmt: skip
