from __future__ import annotations

from dataclasses import replace

import numpy as np

from easybalance_sim.profiling.rows import ExpertRow
from easybalance_sim.profiling.work import AVERAGED_DRAWS, KEPT_DRAWS, Workload
from tests.measured_rows import expert_row


def test_a_row_of_known_counts_is_one_load() -> None:
    work = Workload().of([expert_row(counts=(0, 1, 65))], 64)
    assert work.active.tolist() == [[2]]
    assert work.tiles.tolist() == [[192]]
    assert work.pairs.tolist() == [[66]]
    assert work.distinct.tolist() == [[64]]
    assert work.weights.tolist() == [3 * 8 * 4]
    assert work.row_values.tolist() == [2 * 8 + 3 * 4]


def test_known_and_drawn_rows_stand_side_by_side() -> None:
    rows = [expert_row(counts=(3,) * 8), expert_row(distribution="power_law_1.2")]
    work = Workload(seed=100).of(rows, 1)
    assert work.pairs.shape == (2, AVERAGED_DRAWS)
    assert set(work.pairs[0].tolist()) == {24}
    assert len(set(work.pairs[1].tolist())) > 1


def test_a_recorded_rank_takes_the_nearest_draws() -> None:
    few, many = (expert_row(distribution="power_law_1.2", arrived=arrived) for arrived in (36, 60))
    work = Workload(seed=100).of([few, many], 1)
    assert work.distinct.shape == (2, KEPT_DRAWS)
    assert work.distinct[0].mean() < work.distinct[1].mean()


def test_rows_of_either_recipe_keep_their_own_draws() -> None:
    row = expert_row(distribution="power_law_0.6", tokens=4)
    rows = [row, replace(row, older_draws=True)]
    workload = Workload(seed=100)
    work = workload.of(rows, 1)
    assert work.active[0].mean() < work.active[1].mean()
    assert np.array_equal(workload.of(rows[::-1], 1).active, work.active[::-1])


def test_a_scattering_kernel_moves_the_tokens_of_all_ranks() -> None:
    assert Workload().of([expert_row(counts=(3, 3))], 1, scattered=True).distinct.tolist() == [[64]]


def test_rows_can_be_taken_apart() -> None:
    rows: list[ExpertRow] = [expert_row(counts=(n,), us=float(n)) for n in (1, 2, 3)]
    taken = Workload().of(rows, 1).take(np.array([True, False, True]))
    assert taken.us.tolist() == [1, 3]
    assert taken.pairs.tolist() == [[1], [3]]
