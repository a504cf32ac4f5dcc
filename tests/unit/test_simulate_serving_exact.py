"""Sampled steps replayed token by token, against the step model."""

from __future__ import annotations

import numpy as np
import pytest

from easybalance_sim.arrays import frozen
from easybalance_sim.simulate.serving.engine import serve
from easybalance_sim.simulate.serving.exact import StepCheck, Tails, check
from easybalance_sim.simulate.serving.limits import DECODE_ONLY, Limits
from easybalance_sim.simulate.serving.pool_run import StepSample
from easybalance_sim.simulate.serving.routed import drawn
from tests.routed_cases import Served, served
from tests.serving_models import poisson_workload

REQUESTS = 60


def sample(case: Served, step: int, *, decoding: int = 24, prompts: int = 2, chunk: int = 20) -> StepSample:
    """A step of some answers and a few prompts."""
    rows = drawn(case.routed, poisson_workload(0, REQUESTS, 1.0))
    rng = np.random.default_rng([0, step])
    kinds = np.arange(decoding + prompts) < decoding
    request = rng.choice(REQUESTS, decoding + prompts, replace=False)
    return StepSample(
        step=step,
        start_s=0.0,
        seconds={},
        request=frozen(request, np.int32),
        row=frozen(np.where(kinds, rows.decode[request], rows.prefill[request]), np.int32),
        prompt=frozen(np.where(kinds, 0, chunk), np.int32),
        decode=frozen(kinds, np.int32),
    )


def checked(case: Served, samples: list[StepSample], most_tokens: int = 1 << 17) -> StepCheck | None:
    """The check of these steps, requests on ranks in turn."""
    ranks = frozen(np.arange(REQUESTS) % case.data_ranks, np.int32)
    return check(samples, ranks, case.routed, case.replay(), case.model(run_tokens=20), most_tokens=most_tokens)


def test_the_model_is_near_the_replay() -> None:
    found = checked(served(1), [sample(served(1), step) for step in range(40)])
    assert found is not None
    assert (found.steps, found.tokens) == (40, 40 * 64)
    assert abs(found.error("mean_s")) < 0.03
    assert abs(found.error("p99_s")) < 0.08
    assert 1 < found.replayed.mean_imbalance < found.replayed.p99_imbalance


@pytest.mark.parametrize("mode", ["low_latency", "normal"])
def test_steps_that_the_engine_made(mode: str) -> None:
    """Prompts in chunks beside answers, ranks with unlike numbers of tokens: engine, model and replay agree."""
    case = served(5, mode=mode, per_node=2)
    workload = poisson_workload(5, 400, 40_000.0, prompt=(20, 300), output=(5, 60))
    model, rows = case.model(run_tokens=100), drawn(case.routed, workload)
    run = serve(workload, rows, Limits(batch_tokens=256, chunk_tokens=128, kv_blocks=10_000), model, samples=64)
    found = check(run.samples, run.data_rank, case.routed, case.replay(), model)
    assert found is not None
    assert abs(found.error("mean_s")) < 0.03
    assert abs(found.error("p99_s")) < 0.08
    parts = ("dispatch", "expert", "combine")
    of_engine = np.mean([sum(step.seconds[part] for part in parts) for step in run.samples]) / model.layers
    assert of_engine == pytest.approx(found.model.mean_s, rel=0.01)


def test_a_token_that_came_with_a_cache_is_the_answers() -> None:
    """A decode pool reads the last token of a prompt as its first step: spread by the row of the answer."""
    case = served(5)
    workload = poisson_workload(5, 40, 40_000.0, prompt=(20, 30), output=(5, 9))
    model, rows = case.model(), drawn(case.routed, workload)
    run = serve(workload, rows, Limits(kv_blocks=10_000), model, role=DECODE_ONLY, samples=8)
    assert any(step.prompt.any() for step in run.samples)
    assert all(np.array_equal(step.row, rows.decode[step.request]) for step in run.samples)
    mixed = serve(workload, rows, Limits(kv_blocks=10_000), model, samples=8)
    for step in mixed.samples:
        own = np.where(step.prompt > 0, rows.prefill[step.request], rows.decode[step.request])
        assert np.array_equal(step.row, own)


def test_too_many_tokens_are_thinned_evenly() -> None:
    found = checked(served(2), [sample(served(2), step) for step in range(10)], most_tokens=250)
    assert found is not None
    assert (found.steps, found.tokens) == (3, 3 * 64)


def test_one_step_is_replayed_however_large() -> None:
    found = checked(served(2), [sample(served(2), step) for step in range(3)], most_tokens=1)
    assert found is not None
    assert found.steps == 1


def test_nothing_to_check() -> None:
    case = served(3)
    assert checked(case, []) is None
    assert checked(case, [sample(case, 0, decoding=0, prompts=0)]) is None


def test_the_line_says_both_errors() -> None:
    tails = {"mean_s": 1.0, "p99_s": 2.0, "mean_imbalance": 1.1, "p99_imbalance": 1.2}
    found = StepCheck(
        steps=32, tokens=131072, model=Tails(**{**tails, "mean_s": 1.004, "p99_s": 1.976}), replayed=Tails(**tails)
    )
    assert found.error("mean_imbalance") == pytest.approx(0)
    assert found.line == (
        "step model against token-by-token replay: mean +0.4 %, P99 -1.2 % (32 steps, 131,072 tokens)"
    )
