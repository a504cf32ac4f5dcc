"""Which points a sweep has."""

from __future__ import annotations

import pytest

from easybalance_sim.errors import UsageError
from easybalance_sim.sweep.grid import Wanted, layouts, zero_redundancy

PLENTY = 10_000


def slots(experts: int, ranks: int, wanted: Wanted, most: int = PLENTY) -> list[int]:
    found, _ = layouts(experts, ranks, wanted, most)
    return [layout.most for layout in found]


def test_the_default_goes_from_zero_redundancy_to_four_more() -> None:
    found, left_out = layouts(32, 8, Wanted(), PLENTY)
    assert [(layout.most, layout.extra, layout.slots) for layout in found] == [
        (4, 0, 32), (5, 1, 40), (6, 2, 48), (7, 3, 56), (8, 4, 64)
    ]  # fmt: skip
    assert left_out == []


def test_zero_redundancy_is_always_there_and_first() -> None:
    assert slots(32, 8, Wanted(redundancy=(2,))) == [4, 6]
    assert slots(32, 8, Wanted(slots_per_rank=(9, 5))) == [4, 5, 9]
    assert slots(32, 8, Wanted(slots_per_rank=(4,))) == [4]


def test_ranks_that_do_not_divide_the_experts() -> None:
    assert zero_redundancy(10, 4).slots_per_rank.tolist() == [3, 3, 2, 2]
    found, _ = layouts(10, 4, Wanted(redundancy=(0, 1)), PLENTY)
    assert [(layout.slots, layout.extra) for layout in found] == [(10, 0), (16, 1)]
    found, _ = layouts(10, 4, Wanted(slots_per_rank=(3, 4)), PLENTY)
    assert [(layout.slots, layout.extra) for layout in found] == [(10, 0), (12, 0), (16, 1)]


def test_fewer_experts_than_ranks_still_fill_every_rank() -> None:
    assert zero_redundancy(3, 4).slots_per_rank.tolist() == [1, 1, 1, 1]
    assert slots(3, 4, Wanted()) == [1, 2, 3]


def test_what_neither_experts_nor_memory_allow_is_left_out() -> None:
    found, left_out = layouts(32, 8, Wanted(), 6)
    assert ([layout.most for layout in found], left_out) == ([4, 5, 6], [7, 8])
    _, left_out = layouts(8, 2, Wanted(slots_per_rank=(3, 6, 9)), PLENTY)
    assert left_out == [3, 9]


def test_a_memory_that_does_not_hold_the_experts_is_refused() -> None:
    with pytest.raises(UsageError, match="holds 3 slots, 8 ranks need 4 each for 32 experts"):
        layouts(32, 8, Wanted(), 3)


def test_nothing_possible_is_refused_with_the_range() -> None:
    with pytest.raises(UsageError, match="--slots-per-rank: slots per rank can be 4 to 6, not 2, 3"):
        layouts(32, 8, Wanted(slots_per_rank=(2, 3)), 6)
