from __future__ import annotations

import numpy as np
import pytest

from easybalance_sim.errors import TraceError
from easybalance_sim.trace.slot_map import SlotMap

MAP = SlotMap(expert_of_slot=np.array([[0, 1, 2, 3, 0, 1], [0, 2, 1, 3, 2, 0]]), experts=4, name="plan.json")


def test_counts_of_replicas_are_summed() -> None:
    slots = np.array([[[10, 1, 5, 2, 9, 1], [2, 8, 1, 3, 1, 2]], [[0, 0, 0, 0, 0, 7], [1, 0, 0, 0, 0, 0]]])
    counts = MAP.counts(slots)
    assert counts.tolist() == [[[19, 2, 5, 2], [4, 1, 9, 3]], [[0, 7, 0, 0], [1, 0, 0, 0]]]


def test_ids_keep_padding() -> None:
    assert MAP.ids(np.array([[5, 1], [-1, 4]]), 1).tolist() == [[0, 2], [-1, 2]]


@pytest.mark.parametrize("slot", [6, -2])
def test_a_slot_outside_the_map_is_named(slot: int) -> None:
    with pytest.raises(TraceError, match=rf"plan.json: layer row 1: slot {slot} is not in 0..5 — give the plan"):
        MAP.ids(np.array([0, slot]), 1)


def test_counts_of_another_shape_are_refused() -> None:
    with pytest.raises(TraceError, match=r"counts have shape \(2, 5\), the map \(2, 6\)"):
        MAP.counts(np.zeros((2, 5), np.int64))


def test_a_map_with_a_hole_is_refused() -> None:
    with pytest.raises(TraceError, match=r"layer row 0, slot 1: expert 4 is not in 0..3"):
        SlotMap(expert_of_slot=np.array([[0, 4]]), experts=4, name="x")
