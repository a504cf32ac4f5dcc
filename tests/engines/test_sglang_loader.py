"""Files that we write for SGLang, through SGLang 0.5.23's own loader on every rank."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.engines.engine_plans import DEEPSEEK_V3, Case, location_file
from tests.engines.sglang_runtime import SGLang

pytestmark = pytest.mark.engine_loader

CASES = {
    "2 ranks": Case(ranks=2, nodes=1, experts=64, slots_per_rank=36, dense=2, moe=3),
    "8 ranks": Case(ranks=8, nodes=1, experts=64, slots_per_rank=10, dense=1, moe=3),
    "8 ranks, 4 nodes": Case(ranks=8, nodes=4, experts=64, slots_per_rank=10, dense=0, moe=3),
    "32 ranks": Case(ranks=32, nodes=1, experts=64, slots_per_rank=4, dense=1, moe=3),
    "32 ranks, 4 nodes": Case(ranks=32, nodes=4, experts=64, slots_per_rank=4, dense=1, moe=3),
    "DeepSeek-V3 on 32 ranks, 4 nodes": DEEPSEEK_V3,
}


def require_loaded(sglang: SGLang, case: Case, file: Path) -> None:
    """Every rank holds our placement and sends its tokens where our replay sends them."""
    plan = case.plan()
    table = case.dispatch_table(plan)
    for rank in range(case.ranks):
        loaded = sglang.load(file, case.serving, rank)
        held, sent = loaded.physical_to_logical_map.numpy(), loaded.logical_to_rank_dispatch_physical_map.numpy()
        assert np.array_equal(held[case.dense :], plan.expert_of_slot)
        assert np.array_equal(sent[case.dense :], table[rank]), rank
        assert len(held) == len(sent) == case.dense + case.moe
        assert loaded.num_local_physical_experts == case.slots_per_rank


@pytest.mark.parametrize("name", CASES)
def test_every_rank_loads_the_plan(name: str, sglang: SGLang, tmp_path: Path) -> None:
    case = CASES[name]
    plan = case.plan()
    rows = np.concatenate([np.tile(np.arange(plan.slots) % plan.experts, (case.dense, 1)), plan.expert_of_slot])
    require_loaded(sglang, case, location_file(tmp_path / "plan.json", rows))
