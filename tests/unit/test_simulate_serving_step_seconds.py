"""The seconds of a step by the formula, for steps of which everything is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from easybalance_sim.simulate.serving.engine import serve
from easybalance_sim.simulate.serving.pool_run import PoolRun
from easybalance_sim.simulate.serving.profiles import Profiles
from easybalance_sim.simulate.serving.step_model import AttentionSeconds, OutsideSeconds, StepModel
from easybalance_sim.simulate.serving.workload import Workload
from tests.serving_models import roomy_limits

BACKENDS = pytest.mark.parametrize("backend", ["reference", "numba"])


def model(**given: object) -> StepModel:
    """One layer on two ranks, each a data-parallel one. Row 0 sends a token 3 + 1 times, row 1 sends it 1 + 3 times."""
    whole = StepModel(
        mean=np.array([[[3.0, 1.0]], [[1.0, 3.0]]]),
        spread=np.zeros((2, 1, 2)),
        knot=2.0,
        expert_s=np.array([[[0.0, 4.0, 10.0], [0.0, 8.0, 20.0]]]),
        even_expert_s=np.array([[0.0, 6.0, 15.0]]),
        arrive_s=np.array([[[1.0, 2.0]], [[2.0, 1.0]]]),
        even_arrive_s=np.array([[1.5], [1.5]]),
        leave_s=np.array([[100.0], [0.0]]),
        link_fixed_s=np.array([0.25, 0.5]),
        attention=AttentionSeconds(fixed=1.0, weights=7.0, token=2.0, kv=0.01, pair=0.1),
        outside=OutsideSeconds(host=5.0, dense_layers=3, weights=4.0, token=1.5, head_weights=0.5, head_token=0.375),
        data_ranks=2,
    )
    return replace(whole, **given)  # type: ignore[arg-type]


def run_of(
    prompts: list[int], outputs: list[int], step_model: StepModel, backend: str, samples: int = 9, **limits: int | str
) -> PoolRun:
    """All at once, dealt to the two ranks in turn; prompts are like row 0, answers like row 1."""
    count = len(prompts)
    workload = Workload(
        arrival_s=np.zeros(count),
        prompt_tokens=np.array(prompts, np.int32),
        output_tokens=np.array(outputs, np.int32),
        cached_tokens=np.zeros(count, np.int32),
        tenant=np.zeros(count, np.int32),
        tenants=("",),
    )
    rows = Profiles(prefill=np.zeros(count, np.int32), decode=np.ones(count, np.int32))
    return serve(
        workload, rows, roomy_limits(router="round-robin", **limits), step_model, samples=samples, backend=backend
    )


@BACKENDS
def test_a_step_of_prompts(backend: str) -> None:
    """Three tokens on rank 0, two on rank 1: 15 and 5 rows, knots at 0, 4, 16 rows."""
    (step,) = run_of([3, 2], [1, 1], model(), backend).samples
    attention = 1 + max(7 + 0.1 * 4.5, 7 + 0.1 * 2)
    expert = max(4 + 11 / 12 * 6, 8 + 1 / 12 * 12)
    assert step.seconds == pytest.approx(
        {
            "attention": 4 * attention,
            "outside": 5 + max(4, 1.5 * 3) + 0.5,
            "dispatch": 0.25 + max(15 * 1, 5 * 2, 3 * 100),
            "expert": expert,
            "combine": 0.5 + 15 * 2,
            "hidden": 0,
            "lost_dispatch": 0,
            "lost_expert": expert - (6 + 6 / 12 * 9),
            "lost_combine": 15 * 2 - 10 * 1.5,
            "balanced": 10.0 + 4 * attention + 300.25 + 10.5 + 15.5,
        }
    )
    assert step.prompt.tolist() == [3, 2] and step.decode.tolist() == [0, 0]


@BACKENDS
def test_a_step_of_answers(backend: str) -> None:
    """Two tokens on rank 0 that read 3 + 1 and 4 + 1, one on rank 1: 3 and 9 rows in all."""
    _, step = run_of([3, 2, 4], [2, 2, 2], model(leave_s=np.zeros((2, 1))), backend).samples
    attention = 1 + 7 + 0.01 * (4 + 5)
    outside = 5 + max(4, 1.5 * 2) + 0.375 * 2
    parts = {
        "attention": 4 * attention,
        "outside": outside,
        "dispatch": 0.25 + 9 * 2,
        "expert": 8 + 5 / 12 * 12,
        "combine": 0.5 + 9,
    }
    assert {name: step.seconds[name] for name in parts} == pytest.approx(parts)
    assert step.request.tolist() == [0, 2, 1] and step.decode.tolist() == [1, 1, 1]


@BACKENDS
def test_what_attention_reads_grows(backend: str) -> None:
    """A prompt of five in chunks of three and two: 3 · 1.5, then 2 · (3 + 1) pairs; then caches of 6 and 7."""
    few = model(attention=AttentionSeconds(kv=0.01, pair=0.1), outside=OutsideSeconds())
    steps = run_of([5], [3], few, backend, chunk_tokens=3).samples
    assert [step.seconds["attention"] for step in steps] == pytest.approx([0.45, 0.8, 0.06, 0.07])


@BACKENDS
def test_shared_experts_are_no_part_of_dense_layers(backend: str) -> None:
    """Three tokens on rank 0, two on rank 1: one layer of four has experts."""
    attention = AttentionSeconds(token=2.0, shared_fixed=0.5, shared_weights=1.0, shared_token=0.75)
    (step,) = run_of([3, 2], [1, 1], model(attention=attention), backend).samples
    assert step.seconds["attention"] == pytest.approx(4 * 6 + 0.5 + 0.75 * 3)
    (step,) = run_of([1], [1], model(attention=attention), backend).samples
    assert step.seconds["attention"] == pytest.approx(4 * 2 + 0.5 + 1.0)


@BACKENDS
def test_gpus_that_share_experts_add_up_what_arrives_at_them(backend: str) -> None:
    """15 and 5 rows; even ranks have 10 each at the mean seconds per row. No dense layer pays for it."""
    steps = [
        run_of([3, 2], [1, 1], model(sum_fixed_s=each, sum_row_s=np.full((1, 2), each) * [1, 3]), backend).samples[0]
        for each in (0.0, 0.5)
    ]
    alone, shared = (step.seconds for step in steps)
    assert alone["expert"] == pytest.approx(max(4 + 11 / 12 * 6, 8 + 1 / 12 * 12))
    assert shared["expert"] == pytest.approx(max(4 + 11 / 12 * 6 + 0.5 + 7.5, 8 + 1 / 12 * 12 + 0.5 + 7.5))
    assert shared["lost_expert"] - alone["lost_expert"] == pytest.approx(0.5 + 7.5 - (0.5 + 10))
    assert (shared["attention"], shared["outside"]) == (alone["attention"], alone["outside"])


@BACKENDS
def test_answers_that_stand_back_send_nothing(backend: str) -> None:
    """Under prefill-first rank 0 has the last two of a prompt while its first request stands back; rank 1 answers."""
    steps = run_of(
        [1, 1, 5], [3, 3, 1], model(leave_s=np.zeros((2, 1))), backend, chunk_tokens=3, schedule="prefill-first"
    ).samples
    assert [(step.prompt.tolist(), step.decode.tolist()) for step in steps[:2]] == [
        ([1, 3, 1], [0, 0, 0]),
        ([2, 0], [0, 1]),
    ]
    second = steps[1].seconds
    assert second["dispatch"] == pytest.approx(0.25 + max(2 * 3 + 1, 2 * (2 * 1 + 3)))
    assert second["attention"] == pytest.approx(4 * (1 + max(7 + 0.1 * 2 * 4, 7 + 0.01 * 2)))


@BACKENDS
@pytest.mark.parametrize("hidden", [0.25, 1.0])
def test_what_hides(hidden: float, backend: str) -> None:
    (step,) = run_of([3, 2], [1, 1], model(hidden=hidden, leave_s=np.zeros((2, 1))), backend).samples
    moving, computing = 15.25 + 30.5, 8.45 + 9.5
    even_moving, even_computing = 15.25 + 15.5, 8.45 + 10.5
    assert step.seconds["hidden"] == pytest.approx(hidden * computing)
    assert computing < moving
    serial = 10.0 + 3 * 8.45 + even_moving + even_computing
    assert step.seconds["balanced"] == pytest.approx(serial - hidden * min(even_moving, even_computing))


@BACKENDS
def test_rows_beyond_the_last_knot_go_on_along_the_last_slope(backend: str) -> None:
    (step,) = run_of([9], [1], model(), backend).samples
    assert step.seconds["expert"] == pytest.approx(max(4 + 23 / 12 * 6, 8 + 5 / 12 * 12))


@BACKENDS
def test_noise_keeps_the_rows_of_a_layer(backend: str) -> None:
    """Dispatch has the rows of rank 0 for its seconds, combine those of rank 1."""
    spread, slope = np.full((2, 1, 2), 4.0), np.array([[[1.0, 0.0]], [[0.0, 1.0]]])
    noisy = model(spread=spread, arrive_s=slope, leave_s=np.zeros((2, 1)), link_fixed_s=np.zeros(2))
    steps = run_of([400, 300], [60, 60], noisy, backend).samples
    assert len({sample.seconds["dispatch"] for sample in steps}) == len(steps)
    rows = [sample.seconds["dispatch"] + sample.seconds["combine"] for sample in steps]
    np.testing.assert_allclose(rows, [4 * (sample.prompt + sample.decode).sum() for sample in steps])


def test_noise_has_the_variance_that_a_sum_leaves() -> None:
    """Of four ranks with variance 1 a token each varies by 3/4 of it, given that all four keep their sum."""
    ranks, tokens = 4, 100
    slope = np.zeros((2, 1, ranks))
    slope[0, 0, 0] = 1.0
    noisy = replace(
        model(),
        mean=np.full((2, 1, ranks), 8.0),
        spread=np.ones((2, 1, ranks)),
        expert_s=np.zeros((1, ranks, 2)),
        even_expert_s=np.zeros((1, 2)),
        chance_rows=np.zeros((1, 2)),
        sum_row_s=np.zeros((1, ranks)),
        arrive_s=slope,
        leave_s=np.zeros((2, 1)),
        link_fixed_s=np.zeros(2),
    )
    steps = run_of([1] * tokens, [3000] * tokens, noisy, "numba", samples=3000).samples
    rows = np.array([sample.seconds["dispatch"] for sample in steps if sample.decode.sum() == tokens])
    assert len(rows) == 2999
    assert rows.mean() == pytest.approx(8 * tokens, rel=0.002)
    assert rows.var() == pytest.approx(0.75 * tokens, rel=0.1)
