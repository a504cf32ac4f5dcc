"""A table of balanced loads, and what the formula makes of skew, more slots and slow ranks."""

from __future__ import annotations

from dataclasses import replace
from math import comb

import msgspec
import numpy as np
import pytest

from easybalance_sim.arrays import FloatArray, Int32Array, frozen
from easybalance_sim.cluster.hardware import ExpertTable, load_profile
from easybalance_sim.cluster.shapes import assumed_shape, load_shape
from easybalance_sim.cost.anchored import AnchoredCost, anchored_cost, dealt_evenly
from easybalance_sim.cost.expert import ExpertCost, expert_cost
from easybalance_sim.errors import ProfileError

DSV3 = load_shape("deepseek-v3")
FORMULA = expert_cost(load_profile("h200"), DSV3, "decode")
TABLE = ExpertTable(tokens=(4, 400), us=(100, 500), slots=4, calibrated=True, source="mine.csv")
ONE = frozen(np.ones(1))


def _seconds(cost: AnchoredCost | ExpertCost, slots: list[int], speed: FloatArray = ONE) -> float:
    counts, start = np.array([[slots]], np.int32), frozen([0, len(slots)], np.int32)
    return float(cost.seconds(counts, np.array([[[sum(slots)]]], np.int32), start, speed)[0][0, 0])


def _anchored(table: ExpertTable = TABLE, formula: ExpertCost = FORMULA) -> AnchoredCost:
    return anchored_cost(table, formula, 64)


def test_a_balanced_load_costs_what_the_table_says() -> None:
    assert _seconds(_anchored(), [1, 1, 1, 1]) == pytest.approx(100e-6)
    assert _seconds(_anchored(), [51, 51, 50, 50]) == pytest.approx(300e-6)
    assert _seconds(_anchored(), [0, 0, 0, 0]) == 0


def test_an_inactive_slot_saves_its_weights_by_hand() -> None:
    """4 tokens on one slot instead of four: c0 + (w^q + f^q)^(1/q) with one weight read for four, rows as before."""
    c0, weights, tile, q, _, rows, _ = (float(value) for value in FORMULA.params)
    skewed, even = (c0 + ((n * weights) ** q + (n * tile) ** q) ** (1 / q) + 4 * rows for n in (1, 4))
    assert _seconds(_anchored(), [4, 0, 0, 0]) == pytest.approx(100e-6 * skewed / even)


def test_the_level_of_the_formula_cancels() -> None:
    """A kernel of half the speed and twice the fixed time has the same skew."""
    row = FORMULA.kernel
    slow = msgspec.structs.replace(row, c0_us=2 * row.c0_us, eff_bw=row.eff_bw / 2, eff_flop=row.eff_flop / 2)
    rows_only = replace(FORMULA, bytes_per_s=1e30)
    slower = replace(rows_only, kernel=slow)
    for slots in ([9, 0, 0, 0], [300, 1, 1, 1]):
        assert _seconds(_anchored(formula=slower), slots) == pytest.approx(
            _seconds(_anchored(formula=rows_only), slots), rel=1e-6
        )


def test_more_slots_than_the_table_had_read_more_weights() -> None:
    table = msgspec.structs.replace(TABLE, us=(100, 100))
    four, five = _seconds(_anchored(table), [4, 4, 4, 4]), _seconds(_anchored(table), [4, 3, 3, 3, 3])
    assert four == pytest.approx(100e-6)
    assert five / four == pytest.approx(_seconds(FORMULA, [4, 3, 3, 3, 3]) / _seconds(FORMULA, [4, 4, 4, 4]))
    assert five > 1.1 * four


def test_slots_that_are_not_said_are_those_without_redundancy() -> None:
    unsaid = msgspec.structs.replace(TABLE, slots=0)
    assert _anchored(unsaid).slots == 256 // 64
    assert anchored_cost(unsaid, FORMULA, 100).slots == 3
    assert anchored_cost(TABLE, FORMULA, 8).slots == 4


def test_the_slowest_rank_decides_with_its_speed() -> None:
    counts: Int32Array = frozen([[[1, 1, 1, 1, 2, 2, 2, 2]]], np.int32)
    distinct, start = frozen([[[4, 8]]], np.int32), frozen([0, 4, 8], np.int32)
    even, active = _anchored().seconds(counts, distinct, start, frozen([1.0, 1.0]))
    slow, _ = _anchored().seconds(counts, distinct, start, frozen([0.5, 1.0]))
    assert even[0, 0] == pytest.approx((100 + 400 * 4 / 396) * 1e-6)
    assert slow[0, 0] == pytest.approx(200e-6)
    assert active.tolist() == [[[4, 4]]]


def test_ranks_of_unequal_slots_cost_what_each_costs_alone() -> None:
    counts: Int32Array = frozen([[[7, 1, 0, 9, 2]]], np.int32)
    start, distinct = frozen([0, 2, 5], np.int32), frozen([[[8, 11]]], np.int32)
    found, active = _anchored().seconds(counts, distinct, start, frozen([1.0, 1.0]))
    assert found[0, 0] == pytest.approx(max(_seconds(_anchored(), [7, 1]), _seconds(_anchored(), [0, 9, 2])))
    assert active.tolist() == [[[2, 2]]]


def test_beyond_four_times_the_table_is_refused() -> None:
    assert _seconds(_anchored(), [400, 400, 400, 400]) == pytest.approx((500 + 1200 * 400 / 396) * 1e-6)
    with pytest.raises(ProfileError, match=r"1601 tokens at a rank are more than 4 times the table's largest \(400\)"):
        _seconds(_anchored(), [401, 400, 400, 400])


def test_what_the_label_is_made_of() -> None:
    assert _anchored().name == "expert table mine.csv, skew by fp8_block deepgemm_masked"
    assert (_anchored().band_p90, _anchored().reasons) == (0.29, ())
    guess = expert_cost(load_profile("h200"), assumed_shape((0,), 256, 8), "decode")
    assert _anchored(formula=guess).reasons == ("the model's widths are assumed",)
    doubted = ExpertTable(tokens=(1, 2), us=(1, 2), calibrated=False, why="another clock", source="t.csv")
    assert _anchored(doubted).reasons == ("another clock",)


def test_a_balanced_rank_gets_the_distinct_tokens_of_uniform_choices() -> None:
    """4 of 256 experts, top-8: a token reaches them with probability 1 - C(252, 8) / C(256, 8)."""
    reached = 1 - comb(252, 8) / comb(256, 8)
    assert _anchored().tokens_of_assignment == pytest.approx(reached * 256 / (4 * 8))
    assert 0.9 < _anchored().tokens_of_assignment < 1
    whole = anchored_cost(msgspec.structs.replace(TABLE, slots=256), FORMULA, 1)
    assert whole.tokens_of_assignment == pytest.approx(1 / 8)


def test_fewer_distinct_tokens_than_a_balanced_rank_has_move_fewer_rows() -> None:
    """A kernel that moves rows; half of the balanced number of tokens brings the same assignments."""
    moves = replace(FORMULA, kernel=msgspec.structs.replace(FORMULA.kernel, tok=50.0))
    cost, counts, start = (
        _anchored(formula=moves),
        np.array([[[100, 100, 100, 100]]], np.int32),
        frozen([0, 4], np.int32),
    )
    usual = round(400 * cost.tokens_of_assignment)
    found = [
        float(cost.seconds(counts, np.array([[[distinct]]], np.int32), start, ONE)[0][0, 0])
        for distinct in (usual, usual // 2)
    ]
    assert found[0] == pytest.approx(500e-6)
    assert found[1] < 0.95 * found[0]


def test_dealt_evenly() -> None:
    assert dealt_evenly(np.array([0, 3, 9]), 4).tolist() == [[0, 0, 0, 0], [1, 1, 1, 0], [3, 2, 2, 2]]
