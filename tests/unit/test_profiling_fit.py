from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from easybalance_sim.arrays import frozen
from easybalance_sim.cluster.hardware import load_profile
from easybalance_sim.cluster.shapes import load_shape
from easybalance_sim.cost.expert import expert_cost
from easybalance_sim.errors import ProfileError
from easybalance_sim.profiling.fit import ExpertNumbers, Peaks, cross_predicted, each_group, fit_expert, predicted_us
from easybalance_sim.profiling.work import Work, Workload
from tests.measured_rows import expert_row

PEAKS = Peaks(bytes_per_s=2e9, flops=4e9, weight_bytes=1.0)
TRUTH = ExpertNumbers(c0_us=20.0, eff_bw=0.8, eff_flop=0.5, q=1.5, tok=10.0)


def _work() -> Work:
    rng = np.random.default_rng(100)
    rows = [
        expert_row(counts=tuple(int(count) for count in rng.integers(1, 2**size + 1, 8)), hidden=wide, tokens=2**size)
        for size in range(12)
        for wide in (8, 64, 512)
    ]
    work = Workload().of(rows, 16)
    return replace(work, us=frozen(predicted_us(TRUTH, work, PEAKS)))


def test_a_hand_worked_prediction() -> None:
    work = Workload().of([expert_row(counts=(1, 0, 17))], 16)
    # 2 of 3 slots read 96 bytes each; 48 padded tokens cost 192 FLOP each; 18 rows move 56 bytes, 18 tokens 10 x 16.
    read_us, flop_us = 2 * 96 / 1.6e3, 48 * 192 / 2e3
    rows_us = (18 * 56 + 10 * 18 * 16) / 2e3
    expected = 20 + (read_us**1.5 + flop_us**1.5) ** (1 / 1.5) + rows_us
    assert predicted_us(TRUTH, work, PEAKS)[0] == pytest.approx(expected)


def test_a_rank_without_tokens_takes_no_time() -> None:
    assert predicted_us(TRUTH, Workload().of([expert_row(counts=(0, 0))], 16), PEAKS).tolist() == [0]


def test_the_fit_finds_the_numbers_that_made_the_rows() -> None:
    found = fit_expert(_work(), PEAKS)
    assert found.array == pytest.approx(TRUTH.array, rel=0.02)


def test_efficiencies_stay_physical_on_rows_faster_than_the_hardware() -> None:
    work = _work()
    found = fit_expert(replace(work, us=frozen(work.us / 5)), PEAKS)
    assert 0 < found.eff_bw <= 1
    assert 0 < found.eff_flop <= 1
    assert found.q >= 1


def test_a_kernel_that_moves_no_rows_keeps_tok_at_zero() -> None:
    assert fit_expert(_work(), PEAKS, free_tok=False).tok == 0


def test_too_few_rows_are_refused() -> None:
    with pytest.raises(ProfileError, match="4 rows cannot fit 5 numbers"):
        fit_expert(_work().take(np.arange(4)), PEAKS)


@pytest.mark.parametrize(("us", "counts"), [(0.0, (3,)), (5.0, (0,))])
def test_rows_without_a_time_or_tokens_are_refused(us: float, counts: tuple[int, ...]) -> None:
    rows = [expert_row(counts=(n + 1,)) for n in range(8)] + [expert_row(us=us, counts=counts)]
    with pytest.raises(ProfileError, match="no time or no tokens"):
        fit_expert(Workload().of(rows, 16), PEAKS)


def test_a_held_out_group_does_not_teach() -> None:
    work = _work()
    groups = [row % 3 for row in range(len(work.us))]
    spoiled = work.us.copy()
    spoiled[::3] *= 7
    held_out = cross_predicted(replace(work, us=frozen(spoiled)), PEAKS, groups)
    assert held_out[::3] == pytest.approx(work.us[::3], rel=0.02)
    assert held_out[1] != pytest.approx(work.us[1], rel=0.1)


def test_groups_come_in_the_order_of_their_first_row() -> None:
    assert [held.tolist() for held in each_group(["b", "a", "b"])] == [[True, False, True], [False, True, False]]


def test_the_fitted_formula_is_the_one_that_plans_are_costed_with() -> None:
    shape, profile = load_shape("deepseek-v3"), load_profile("h200")
    cost = expert_cost(profile, shape, "prefill", "trtllm_cutlass")
    counts = (0, 3, 200, 17)
    row = expert_row(counts=counts, hidden=shape.hidden, intermediate=shape.intermediate, tokens=1000)
    work = Workload().of([row], cost.kernel.block)
    kernel = cost.kernel
    numbers = ExpertNumbers(
        c0_us=kernel.c0_us, eff_bw=kernel.eff_bw, eff_flop=kernel.eff_flop, q=kernel.q, tok=kernel.tok
    )
    peaks = Peaks(bytes_per_s=profile.hbm_bytes_per_s, flops=profile.peak_flops["fp8_block"], weight_bytes=1.00024)
    seconds, _ = cost.seconds(
        np.array([[counts]], np.int32), np.array([[[220]]], np.int32), np.array([0, 4], np.int32), np.ones(1)
    )
    assert predicted_us(numbers, work, peaks)[0] == pytest.approx(seconds[0, 0] * 1e6)
