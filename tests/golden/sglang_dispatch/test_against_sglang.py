"""Our `sglang-static` and `sglang-dynamic` tables against those of SGLang 0.5.23's own loader (`make_golden.py`)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from easybalance_sim.arrays import AnyArray, Int32Array, frozen
from easybalance_sim.plan.plan import Plan
from easybalance_sim.replay.dispatch import prepare

with np.load(Path(__file__).with_name("sglang_dispatch.npz")) as archive:
    GOLDEN: dict[str, AnyArray] = dict(archive)
CASES = sorted({key.split("/")[0] for key in GOLDEN})


def load(name: str) -> tuple[Plan, Int32Array]:
    """The plan of a case and the node of each rank."""
    ranks, slots, nodes = GOLDEN[f"{name}/shape"].tolist()
    expert_of_slot = GOLDEN[f"{name}/plan"]
    plan = Plan(
        expert_of_slot=expert_of_slot,
        slots_per_rank=np.full(ranks, slots),
        experts=int(expert_of_slot.max()) + 1,
        policy=name,
    )
    return plan, frozen(np.arange(ranks) // (ranks // nodes), np.int32)


@pytest.mark.parametrize("name", CASES)
def test_static_table_of_every_rank(name: str) -> None:
    plan, node = load(name)
    assert prepare("sglang-static", plan, node, 0).table.tolist() == GOLDEN[f"{name}/table"].tolist()


@pytest.mark.parametrize("name", CASES)
def test_dynamic_candidates_of_every_rank(name: str) -> None:
    plan, node = load(name)
    table, theirs = prepare("sglang-dynamic", plan, node, 0).table, GOLDEN[f"{name}/candidates"]
    for rank, layer, expert in np.ndindex(*table.shape):
        start, stop = plan.replica_start[layer, expert : expert + 2]
        near = int(table[rank, layer, expert])
        ours = [near] if near >= 0 else plan.replica_slot[layer, start:stop].tolist()
        assert ours == [slot for slot in theirs[rank, layer, expert].tolist() if slot >= 0]


def test_the_golden_file_covers_every_branch() -> None:
    """Near and far replicas, several left to choose from, one rank with the same expert twice."""
    widths = {name: (GOLDEN[f"{name}/candidates"] >= 0).sum(axis=-1) for name in CASES}
    assert all(widths[name].max() == 1 for name in ("no_redundancy", "one_rank"))
    assert all(widths[name].max() >= 2 for name in ("one_node", "two_nodes", "four_nodes", "hot_experts"))
    twice = GOLDEN["twice_on_a_rank/plan"].reshape(3, 4, 5)
    assert any(len(set(held.tolist())) < 5 for held in twice.reshape(-1, 5))
