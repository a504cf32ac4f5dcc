"""One GPU cache by hand: what is there, what comes over the link, and when."""

from __future__ import annotations

import numpy as np
import pytest

from easybalance_sim.arrays import frozen
from easybalance_sim.errors import UsageError
from easybalance_sim.simulate.offloading.cache import Run, Transfer, cached, fetching_ahead, on_demand
from easybalance_sim.simulate.offloading.link import DRIVE_LATENCY_S, PCIE_LATENCY_S, link_of
from easybalance_sim.simulate.offloading.points import Ground, by_layer, point
from easybalance_sim.simulate.offloading.policies import Priorities
from easybalance_sim.simulate.offloading.prefetch import Wanted
from easybalance_sim.simulate.offloading.uses import Uses, uses_of
from tests.offload_steps import steps_of

LINK = Transfer(latency_s=1.0, item_s=10.0)
STEPS = uses_of(steps_of([(0, 0, [[0], [1]]), (1, 0, [[1], [1]]), (2, 0, [[0], [2]])]))
"""Items 0, 5 · 1, 5 · 0, 6."""


def cold(uses: Uses, scope: str = "layer") -> Run:
    """Least recently used from an empty cache, one place for each layer."""
    values = Priorities(judged=frozen(np.arange(len(uses.item)), np.float64), first=np.full(uses.items, -np.inf))
    return on_demand(cached(uses, uses, values, scope), 2, LINK)


def fetched(wanted: list[list[int]], compute: float, ahead: int = 1, size: int = 2) -> Run:
    values = Priorities(judged=frozen(np.arange(len(STEPS.item)), np.float64), first=np.full(STEPS.items, -np.inf))
    lists = Wanted(
        start=frozen(np.cumsum([0, *map(len, wanted)]), np.int64),
        item=frozen([one for part in wanted for one in part], np.int32),
    )
    took = frozen(np.full(STEPS.positions, compute))
    return fetching_ahead(cached(STEPS, STEPS, values, "layer"), size, LINK, took, lists, ahead)


def test_each_layer_keeps_its_last_expert() -> None:
    run = cold(STEPS)
    assert run.hits.tolist() == [0, 0, 0, 1, 0, 0]
    assert run.stall.tolist() == [11, 11, 11, 0, 11, 11]


def test_one_cache_for_all_layers_forgets_what_the_next_step_begins_with() -> None:
    assert cold(STEPS, "model").hits.tolist() == [0, 0, 0, 1, 0, 0]
    again = uses_of(steps_of([(step, 0, [[0], [1], [2]]) for step in range(4)]))
    assert cold(again, "model").hits.sum() == 0
    assert cold(again).hits.tolist() == [0, 0, 0, 1, 1, 0, 1, 1, 0, 1, 1, 0]


def test_what_is_fetched_while_a_layer_computes_is_there_in_time() -> None:
    """Asked for when layer 0 begins, behind its own miss: on its way from 11 to 21, needed at 11 + 30."""
    run = fetched([[], [5], [], [], [], []], 30.0)
    assert (run.ahead.tolist(), run.used_ahead.tolist()) == ([0, 1, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0])
    assert run.stall.tolist() == [11, 0, 11, 0, 11, 11]


def test_what_comes_late_is_waited_for() -> None:
    run = fetched([[], [5], [], [], [], []], 4.0)
    assert (run.late.tolist(), run.stall[1]) == ([0, 1, 0, 0, 0, 0], 6.0)


def test_a_wrong_guess_holds_up_what_is_missing() -> None:
    """7 comes from 11 to 21, layer 1 begins at 15 and its own expert comes from 21 to 31."""
    run = fetched([[], [7], [], [], [], []], 4.0)
    assert (run.misses[1], run.used_ahead.sum(), run.stall[1]) == (1, 0, 16.0)


def test_a_guess_replaces_what_would_have_been_used() -> None:
    """Layer 1 keeps 5; what is fetched for it in the second step takes its place."""
    assert fetched([[], [], [], [7], [], []], 30.0).hits.tolist() == [0, 0, 0, 0, 0, 0]
    assert fetched([[], [], [], [5, 7], [], []], 30.0).hits.tolist() == [0, 0, 0, 1, 0, 0]


def test_two_layers_ahead_there_is_more_time() -> None:
    late, early = (fetched([[], [], [1], [], [], []], 8.0, ahead, 4) for ahead in (1, 2))
    assert (late.late[2], early.hits[2]) == (1, 1)


def test_numbers_of_a_size_add_up() -> None:
    ground = Ground(
        uses=STEPS, compute=frozen(np.full(6, 5.0)), tokens=3, transfer=LINK, resident_bytes=100, link_bytes=30
    )
    numbers = point(ground, 2, cold(STEPS))
    assert (numbers["loads"], numbers["link_bytes"], numbers["link_bytes_per_token"]) == (5, 150, 50)
    assert numbers["gpu_bytes"] == (2 + 2) * 100
    assert (numbers["hit_rate"], numbers["token_hit_rate"]) == (1 / 6, 1 / 6)
    assert numbers["added_us"]["mean"] == pytest.approx(55e6 / 3)
    assert numbers["slowdown"] == pytest.approx(85 / 30)
    assert numbers["throughput_ratio"] == pytest.approx(30 / 85)
    layers = by_layer(ground, (3, 5), cold(STEPS))
    assert [(one["layer"], one["hit_rate"], one["loads_per_step"]) for one in layers] == [(3, 0, 1), (5, 1 / 3, 2 / 3)]
    assert sum(one["added_us"] for one in layers) == pytest.approx(numbers["added_us"]["mean"])


def test_memory_and_experts_go_both_ways() -> None:
    ground = Ground(uses=STEPS, compute=frozen(np.ones(6)), tokens=3, transfer=LINK, resident_bytes=100, link_bytes=1)
    assert [ground.experts_in(size) for size in (99, 399, 400, 799, 800, 5000)] == [0, 1, 2, 5, 8, 8]
    assert [ground.gpu_bytes(ground.experts_in(size)) for size in (400, 799, 800)] == [400, 700, 800]


def test_links_by_name_and_by_rate() -> None:
    five, drive, own = link_of("pcie5"), link_of("nvme"), link_of("55")
    assert [five.bytes_per_s, drive.bytes_per_s] == pytest.approx([51.2e9, 6.4e9])
    assert (five.latency_s, drive.latency_s) == (PCIE_LATENCY_S, DRIVE_LATENCY_S)
    assert (own.name, own.bytes_per_s) == ("55 GB/s", 55e9)


@pytest.mark.parametrize("text", ["pcie3", "0", "-5", "inf", "nan", ""])
def test_no_link_is_refused(text: str) -> None:
    with pytest.raises(
        UsageError, match=r"--host: '.*' is no link — choose pcie4, pcie5, pcie6, nvme, or GB/s like 55"
    ):
        link_of(text)
