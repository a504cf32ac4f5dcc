"""The straight line of a slot against the expert formula that it approximates."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from easybalance_sim.arrays import FloatArray, frozen
from easybalance_sim.cluster.hardware import ExpertTable, load_profile
from easybalance_sim.cluster.shapes import load_shape
from easybalance_sim.cluster.topology import uniform
from easybalance_sim.cost.anchored import AnchoredCost
from easybalance_sim.cost.expert import ExpertCost
from easybalance_sim.cost.layer import LayerCost, layer_cost
from easybalance_sim.cost.slots import slot_cost

SLOTS = 9


def cost_of(model: str = "deepseek-v3", phase: str = "decode", gpu: str = "h200") -> LayerCost:
    topology = uniform(1, 8, SLOTS)
    mode = "normal" if phase == "prefill" else "low_latency"
    return layer_cost(load_profile(gpu), load_shape(model), topology, topology.slots_per_rank, mode, phase)


def expert_s(cost: LayerCost, per_slot: int, active: int = SLOTS) -> float:
    """The formula for one rank of which `active` slots have `per_slot` tokens each."""
    slots = np.zeros((1, 1, SLOTS), np.int32)
    slots[:, :, :active] = per_slot
    distinct = np.full((1, 1, 1), active * per_slot, np.int32)
    seconds: FloatArray = cost.expert.seconds(slots, distinct, frozen([0, SLOTS], np.int32), np.ones(1))[0]
    return float(seconds[0, 0])


def copies_s(cost: LayerCost) -> float:
    return sum(part.copy_bytes / part.nvlink_bytes_per_s for part in (cost.dispatch, cost.combine))


def block_of(cost: LayerCost) -> int:
    assert isinstance(cost.expert, ExpertCost)
    return cost.expert.kernel.block


CASES = pytest.mark.parametrize(
    ("model", "phase", "gpu"),
    [
        ("deepseek-v3", "decode", "h200"), ("deepseek-v3", "prefill", "h200"), ("gpt-oss-20b", "decode", "h100"),
        ("mixtral-8x7b", "prefill", "a100"),
    ],
)  # fmt: skip


@CASES
@pytest.mark.parametrize("tiles", [2, 5, 20])
def test_the_slope_is_that_of_the_formula_from_tile_to_tile(model: str, phase: str, gpu: str, tiles: int) -> None:
    """Per slot and token, over whole tiles on either side."""
    cost = cost_of(model, phase, gpu)
    block = block_of(cost)
    low, high = (expert_s(cost, (tiles + side) * block) for side in (-1, 1))
    found = slot_cost(cost, tiles * block).token_s - copies_s(cost)
    assert found == pytest.approx((high - low) / (2 * block * SLOTS), rel=0.08)


@CASES
@pytest.mark.parametrize("tiles", [1, 3, 20])
def test_the_line_touches_the_formula(model: str, phase: str, gpu: str, tiles: int) -> None:
    """A rank of equal slots costs what its slots add up to (the fixed start of a kernel is no slot's)."""
    cost = cost_of(model, phase, gpu)
    assert isinstance(cost.expert, ExpertCost)
    tokens = tiles * block_of(cost)
    line = slot_cost(cost, tokens)
    added = SLOTS * (line.active_s + (line.token_s - copies_s(cost)) * tokens)
    assert added == pytest.approx(expert_s(cost, tokens) - float(cost.expert.params[0]), rel=1e-6)


def test_below_a_tile_a_slot_costs_the_same_with_any_tokens() -> None:
    cost = cost_of()
    few = [slot_cost(cost, tokens) for tokens in (1.0, 4.0, float(block_of(cost)))]
    assert few[0] == few[1] == few[2]
    one_more = (expert_s(cost, 1, SLOTS) - expert_s(cost, 1, SLOTS - 1)) / few[0].active_s
    assert one_more == pytest.approx(1.0, rel=0.05)
    assert few[0].active_s > 100 * few[0].token_s


def test_active_slots_matter_in_decode_and_hardly_in_prefill() -> None:
    decode, prefill = slot_cost(cost_of(), 4.0), slot_cost(cost_of(phase="prefill"), 4096.0)
    assert decode.active_s > 0.9 * (decode.active_s + 4.0 * decode.token_s)
    assert prefill.active_s < 0.1 * (prefill.active_s + 4096.0 * prefill.token_s)


@CASES
def test_a_table_twice_as_slow_as_the_formula_doubles_both(model: str, phase: str, gpu: str) -> None:
    plain = cost_of(model, phase, gpu)
    assert isinstance(plain.expert, ExpertCost)
    tokens = [float(SLOTS * each) for each in (1, 64, 128, 256)]
    table = ExpertTable(tokens=tuple(tokens), us=(1.0,) * len(tokens), calibrated=True, source="t.csv")
    expert = AnchoredCost(table=table, formula=plain.expert, slots=SLOTS)
    # At level 1e-6 s over the formula's seconds; twice those makes a level of 2.
    us = tuple(2.0 / expert.level(each) for each in tokens)
    anchored = replace(plain, expert=replace(expert, table=msgspec.structs.replace(table, us=us)))
    for each in (1.0, 128.0, 256.0):
        line, found = slot_cost(plain, each), slot_cost(anchored, each)
        assert found.active_s == pytest.approx(2 * line.active_s)
        assert found.token_s - copies_s(plain) == pytest.approx(2 * (line.token_s - copies_s(plain)))


def test_another_expert_model_has_no_line() -> None:
    given: Any = {name: getattr(cost_of(), name) for name in ("profile", "dispatch", "combine", "slot_start", "speed")}
    with pytest.raises(TypeError, match="no slot cost for object"):
        slot_cost(LayerCost(**{**given, "expert": object()}), 1.0)
