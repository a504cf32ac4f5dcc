from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from easybalance_sim.errors import ProfileError
from easybalance_sim.profiling.link_fit import LinkNumbers, cross_link_us, fit_link, link_us, looked_up
from easybalance_sim.profiling.rows import LinkRow
from tests.measured_rows import link_row

TRUTH = LinkNumbers(base_us=15.0, per_doubling_us=4.0, rdma_bytes_per_s=40e9, nvlink_bytes_per_s=250e9, q=0.0)
SMOOTH = replace(TRUTH, q=4.0)


def _rows(mode: str, numbers: LinkNumbers) -> list[LinkRow]:
    rows = [
        link_row(mode=mode, nodes=nodes, rdma_bytes=2e4 * tokens * (nodes - 1), nvlink_bytes=9e4 * tokens)
        for nodes in (1, 2, 4)
        for tokens in 2 ** np.arange(10)
    ]
    return [replace(row, us=float(us)) for row, us in zip(rows, link_us(numbers, rows), strict=True)]


def test_hand_worked_times_of_both_modes() -> None:
    row = link_row(nodes=4, rdma_bytes=4e6, nvlink_bytes=5e6)
    assert link_us(TRUTH, [row])[0] == pytest.approx(15 + 2 * 4 + 100)
    together = (100**4 + 20**4) ** 0.25
    assert link_us(SMOOTH, [replace(row, mode="normal")])[0] == pytest.approx(15 + 4 + together)


@pytest.mark.parametrize(("mode", "numbers"), [("low_latency", TRUTH), ("normal", SMOOTH)])
def test_the_fit_finds_the_numbers_that_made_the_rows(mode: str, numbers: LinkNumbers) -> None:
    found = fit_link(_rows(mode, numbers), 50e9, 450e9)
    assert found.rdma_bytes_per_s == pytest.approx(numbers.rdma_bytes_per_s, rel=0.02)
    assert found.nvlink_bytes_per_s == pytest.approx(numbers.nvlink_bytes_per_s, rel=0.02)
    assert found.base_us == pytest.approx(numbers.base_us, rel=0.1)


def test_bandwidths_stay_under_the_nominal_ones() -> None:
    found = fit_link(_rows("low_latency", TRUTH), 20e9, 100e9)
    assert found.rdma_bytes_per_s <= 20e9
    assert found.nvlink_bytes_per_s <= 100e9


def test_too_few_rows_are_refused() -> None:
    with pytest.raises(ProfileError, match="2 rows cannot fit"):
        fit_link(_rows("normal", SMOOTH)[:2], 50e9, 450e9)


def test_a_held_out_group_does_not_teach() -> None:
    rows = _rows("low_latency", TRUTH)
    spoiled = [replace(row, us=row.us * 3) if row.nodes == 2 else row for row in rows]
    found = cross_link_us(spoiled, [row.nodes for row in rows], 50e9, 450e9)
    held = np.array([row.nodes == 2 for row in rows])
    assert found[held] == pytest.approx(np.array([row.us for row in rows])[held], rel=0.02)


def test_every_second_inner_point_is_looked_up_between_the_others() -> None:
    curve = [link_row(size=size, us=us) for size, us in ((1, 10), (2, 14), (3, 20), (4, 22), (5, 30))]
    short = [replace(row, curve="short") for row in curve[:4]]
    measured, found = looked_up(curve + short)
    assert measured.tolist() == [14, 22]
    assert found.tolist() == [15, 25]
