"""Sizing: the bisection finds any edge, another layout loses neither GPUs nor what the engine allows."""

from __future__ import annotations

from dataclasses import replace

import msgspec
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from easybalance_sim.cluster.topology import topology_of
from easybalance_sim.deployment.scenario import load_scenario
from easybalance_sim.deployment.sizing.highest_rate import highest_rate
from easybalance_sim.deployment.sizing.search import MOST_GROWTH, least_of
from easybalance_sim.deployment.sizing.variants import Layout, layout_of, splits, with_layout
from easybalance_sim.simulate.serving.limits import MIXED
from tests.attainments import Deployment
from tests.ebsim_process import ROOT

SCENARIO = load_scenario(ROOT / "scenarios" / "hgx-2-nodes.toml")


@settings(max_examples=60, deadline=None)
@given(most=st.floats(1.0, 1000.0), start=st.floats(1.0, 1000.0), tolerance=st.floats(0.002, 0.5), grows=st.booleans())
def test_the_bisection_ends_at_the_edge(most: float, start: float, tolerance: float, grows: bool) -> None:
    found = highest_rate(Deployment(most, grows=grows).at, 0.9, start, tolerance)
    assert found.holds is not None and found.fails is not None
    assert found.holds.rate_per_s <= most < found.fails.rate_per_s <= found.holds.rate_per_s * (1 + tolerance) * 1.0001


@settings(max_examples=60, deadline=None)
@given(least=st.integers(1, 200), start=st.integers(1, 64))
def test_the_least_number_is_found_up_to_four_times_the_first(least: int, start: int) -> None:
    asked: list[int] = []

    def holds(number: int) -> bool:
        asked.append(number)
        return number >= least

    assert least_of(holds, start) == (least if least <= MOST_GROWTH * start else 0)
    assert len(asked) == len(set(asked))


layouts = st.builds(
    lambda groups, attention, expert, spare: Layout(
        gpus=groups * attention * expert, expert_tensor=expert, attention_tensor=attention * expert, spare=spare
    ),
    st.integers(1, 24), st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 4]), st.integers(0, 4),
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(layout=layouts)
def test_a_layout_keeps_gpus_and_what_a_gpu_may_do(layout: Layout) -> None:
    shape = SCENARIO.shape
    assume(-(-shape.experts // layout.ranks) + layout.spare <= shape.experts)
    (own,), (pool,) = SCENARIO.pools, with_layout(SCENARIO, MIXED, layout).pools
    assert pool.gpus == layout.gpus == pool.data_ranks * layout.attention_tensor
    assert pool.cluster.ranks * layout.expert_tensor == layout.gpus
    assert layout_of(pool, shape.experts) == layout
    assert topology_of(pool.cluster).slots >= shape.experts
    assert pool.cluster.ranks_per_node * layout.expert_tensor <= 8
    for name in ("running", "batch_tokens"):
        per_gpu = getattr(pool.engine, name) * pool.data_ranks / pool.gpus
        assert per_gpu == getattr(own.engine, name) * own.data_ranks / own.gpus
    assert pool.engine.limits(1).chunk_tokens <= pool.engine.batch_tokens


@settings(max_examples=30, deadline=None)
@given(gpus=st.integers(1, 64), per_node=st.integers(1, 16), block=st.sampled_from([1, 128]))
def test_gpus_that_share_an_expert_cut_nothing(gpus: int, per_node: int, block: int) -> None:
    shape = replace(SCENARIO.shape, dtype="bf16" if block == 1 else "fp8_block")
    pool = SCENARIO.pools[0]
    pool = msgspec.structs.replace(
        pool, cluster=msgspec.structs.replace(pool.cluster, ranks=gpus, ranks_per_node=per_node)
    )
    for number in splits(pool, shape):
        assert gpus % number == 0 and number <= per_node
        assert number == 1 or shape.intermediate % (block * number) == 0
