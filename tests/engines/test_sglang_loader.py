"""Files that we write for SGLang, through SGLang 0.5.23's own loader on every rank."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from easybalance_sim.plan.plan import Plan
from tests.engines.engine_plans import DEEPSEEK_V3, Case, exported
from tests.engines.sglang_runtime import SGLang

pytestmark = pytest.mark.engine_loader

CASES = {
    "2 ranks": Case(ranks=2, nodes=1, experts=64, slots_per_rank=36, dense=2, moe=3),
    "8 ranks": Case(ranks=8, nodes=1, experts=64, slots_per_rank=10, dense=1, moe=3),
    "8 ranks, 4 nodes": Case(ranks=8, nodes=4, experts=64, slots_per_rank=10, dense=0, moe=3),
    "32 ranks": Case(ranks=32, nodes=1, experts=64, slots_per_rank=4, dense=1, moe=3),
    "32 ranks, 4 nodes": Case(ranks=32, nodes=4, experts=64, slots_per_rank=4, dense=1, moe=3),
    "8 ranks, every second layer": Case(ranks=8, nodes=1, experts=64, slots_per_rank=10, dense=1, moe=3, every=2),
    "DeepSeek-V3 on 32 ranks, 4 nodes": DEEPSEEK_V3,
}


def require_loaded(sglang: SGLang, case: Case, file: Path, plan: Plan) -> None:
    """Every rank holds our placement and sends its tokens where our replay sends them."""
    table, layers = case.dispatch_table(plan), list(case.layers)
    for rank in range(case.ranks):
        loaded = sglang.load(file, case.serving, rank)
        held, sent = loaded.physical_to_logical_map.numpy(), loaded.logical_to_rank_dispatch_physical_map.numpy()
        assert np.array_equal(held[layers], plan.expert_of_slot)
        assert np.array_equal(sent[layers], table[rank]), rank
        assert len(held) == len(sent) == case.hidden_layers
        assert loaded.num_local_physical_experts == case.slots_per_rank


@pytest.mark.parametrize("suffix", [".json", ".pt"])
@pytest.mark.parametrize("name", CASES)
def test_every_rank_loads_the_plan(name: str, suffix: str, sglang: SGLang, tmp_path: Path) -> None:
    case = CASES[name]
    plan = case.plan()
    require_loaded(sglang, case, exported(case, plan, tmp_path / f"plan{suffix}"), plan)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Small models on up to eight ranks, from no spare slot to one per expert; every second layer may be dense."""
    nodes, per_node = draw(st.sampled_from([(1, 1), (1, 3), (1, 8), (2, 1), (2, 4), (4, 2)]))
    ranks = nodes * per_node
    slots_per_rank = draw(st.integers(1, 6))
    experts = draw(st.integers(max(1, slots_per_rank, ranks * slots_per_rank // 2), ranks * slots_per_rank))
    return Case(
        ranks=ranks, nodes=nodes, experts=experts, slots_per_rank=slots_per_rank, dense=draw(st.integers(0, 2)),
        moe=draw(st.integers(1, 3)), every=draw(st.integers(1, 2)), seed=draw(st.integers(0, 1000)),
    )  # fmt: skip


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=cases())
def test_any_plan_of_ours_loads(case: Case, sglang: SGLang, tmp_path: Path) -> None:
    plan = case.plan()
    require_loaded(sglang, case, exported(case, plan, tmp_path / "plan.json"), plan)
