"""One pool by hand: every step takes a second, whatever is in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from easybalance_sim import kernels
from easybalance_sim.arrays import FloatArray
from easybalance_sim.errors import EbsimError, UsageError
from easybalance_sim.kernels.serving_state import STUCK
from easybalance_sim.simulate.serving.engine import serve
from easybalance_sim.simulate.serving.pool_run import PoolRun
from easybalance_sim.simulate.serving.profiles import Profiles
from easybalance_sim.simulate.serving.workload import Workload
from tests.serving_models import constant_model, poisson_workload, random_profiles, roomy_limits, skewed_model

NAN = float("nan")
Asked = tuple[float, int, int]
"""Arrival, prompt, output."""


def asked(*requests: Asked, cached: Sequence[int] = (), tenant: Sequence[int] = ()) -> Workload:
    arrival, prompt, output = zip(*requests, strict=True)
    return Workload(
        arrival_s=np.array(arrival, float),
        prompt_tokens=np.array(prompt, np.int32),
        output_tokens=np.array(output, np.int32),
        cached_tokens=np.array(cached or [0] * len(requests), np.int32),
        tenant=np.array(tenant or [0] * len(requests), np.int32),
        tenants=("a", "b", "c"),
    )


def served(
    workload: Workload,
    *,
    ranks: int = 1,
    role: str = "mixed",
    end_s: float = np.inf,
    bucket_s: float = 0.0,
    **limits: Any,
) -> PoolRun:
    model = replace(
        constant_model(1.0),
        mean=np.zeros((1, 1, ranks)),
        spread=np.zeros((1, 1, ranks)),
        expert_s=np.zeros((1, ranks, 2)),
        arrive_s=np.zeros((2, 1, ranks)),
        sum_row_s=np.zeros((1, ranks)),
        data_ranks=ranks,
    )
    rows = np.zeros(workload.requests, np.int32)
    profiles = Profiles(prefill=rows, decode=rows)
    return serve(workload, profiles, roomy_limits(**limits), model, role=role, end_s=end_s, bucket_s=bucket_s)


def times(run: PoolRun) -> list[tuple[float, float, float]]:
    """Start, first token and end of each request."""
    return list(zip(run.start_s.tolist(), run.first_token_s.tolist(), run.finish_s.tolist(), strict=True))


def test_a_prompt_is_a_step_and_so_is_every_further_token() -> None:
    run = served(asked((2.5, 100, 3)))
    assert times(run) == [(2.5, 3.5, 5.5)]
    assert (run.steps, run.prompt_tokens, run.decode_tokens, run.end_s) == (3, 100, 2, 5.5)
    assert run.seconds["idle"] == 2.5 and run.seconds["outside"] == 3.0 and run.present_s == 3.0


def test_what_arrives_during_a_step_joins_the_next() -> None:
    assert times(served(asked((0, 1, 3), (0.5, 1, 2)))) == [(0, 1, 3), (1, 2, 3)]


def test_a_prompt_is_cut_into_chunks_that_leave_room_for_answers() -> None:
    """Of four tokens a step the answer of the first takes one."""
    run = served(asked((0, 1, 4), (0.5, 7, 1)), batch_tokens=4, chunk_tokens=8)
    assert times(run) == [(0, 1, 4), (1, 4, 4)]
    chunked = served(asked((0, 7, 1)), chunk_tokens=2)
    assert times(chunked) == [(0, 4, 4)]


def test_cached_tokens_are_not_computed_but_hold_blocks() -> None:
    run = served(asked((0, 9, 1), cached=[6]), chunk_tokens=3, kv_blocks=3, block_tokens=3)
    assert (times(run), run.prompt_tokens, float(run.timeline.kv_frac[0])) == ([(0, 1, 1)], 3, 1.0)


def test_requests_wait_for_a_place_among_those_running() -> None:
    run = served(asked((0, 1, 2), (0, 1, 2)), running=1)
    assert times(run) == [(0, 1, 2), (2, 3, 4)]
    assert (run.waited, float(run.timeline.waiting[0]), float(run.timeline.running[0])) == (2, 0.5, 1.0)


def test_no_more_run_than_a_step_has_tokens() -> None:
    assert times(served(asked((0, 1, 2), (0, 1, 2), (0, 1, 1)), batch_tokens=2)) == [(0, 1, 2), (0, 1, 2), (2, 3, 3)]


def test_a_prompt_waits_for_blocks() -> None:
    run = served(asked((0, 4, 1), (0, 4, 1), (0, 1, 1)), kv_blocks=6, block_tokens=1)
    assert times(run) == [(0, 1, 1), (1, 2, 2), (1, 2, 2)]


def test_the_one_admitted_last_gives_up_its_cache() -> None:
    """Both take two blocks of five. At 1 s the first takes the fifth; the second finds none and is the last itself: it
    waits for the first to end and then computes its prompt of two and the token that it has."""
    run = served(asked((0, 2, 4), (0, 2, 4)), kv_blocks=5, block_tokens=1)
    assert run.preemptions.tolist() == [0, 1]
    assert times(run) == [(0, 1, 4), (0, 1, 7)]
    assert (run.prompt_tokens, run.decode_tokens, run.dropped_tokens) == (2 + 2 + 3, 3 + 2, 2)


def test_who_lost_the_cache_is_ahead_of_those_who_wait() -> None:
    """The third came before the second lost its cache, and still waits for it."""
    run = served(asked((0, 2, 4), (0, 2, 4), (0.5, 3, 1)), kv_blocks=5, block_tokens=1)
    assert run.preemptions.tolist() == [0, 1, 0]
    assert times(run) == [(0, 1, 4), (0, 1, 7), (7, 8, 8)]


def test_a_block_lasts_for_its_tokens() -> None:
    """Blocks of three: the second request's first one is full with its third token; the fourth takes another."""
    run = served(asked((0, 3, 3), (0, 2, 6)), kv_blocks=4, block_tokens=3)
    assert run.preemptions.tolist() == [0, 0] and times(run) == [(0, 1, 3), (0, 1, 6)]
    tight = served(asked((0, 3, 3), (0, 2, 6)), kv_blocks=3, block_tokens=3)
    assert tight.preemptions.tolist() == [0, 1] and times(tight) == [(0, 1, 3), (0, 1, 7)]


def test_an_answer_takes_blocks_as_it_grows() -> None:
    """Tokens in cache during the steps: 3 to 8."""
    run = served(asked((0, 3, 6)), kv_blocks=10, block_tokens=3, bucket_s=1.0)
    assert run.timeline.kv_frac.tolist() == pytest.approx([0.1, 0.2, 0.2, 0.2, 0.3, 0.3])


def test_a_rank_whose_requests_left_has_no_load() -> None:
    run = served(asked((0, 9, 1), (0, 1, 5), (1, 1, 1)), ranks=2)
    assert run.data_rank.tolist() == [0, 1, 0]


def test_prompts_first_stop_answers() -> None:
    """A prompt of two chunks comes when an answer is under way."""
    workload = asked((0, 1, 3), (0.5, 4, 1))
    assert times(served(workload, chunk_tokens=2)) == [(0, 1, 3), (1, 3, 3)]
    assert times(served(workload, chunk_tokens=2, schedule="prefill-first")) == [(0, 1, 5), (1, 3, 3)]


def test_prompts_first_stop_answers_of_their_own_rank_only() -> None:
    workload = asked((0, 1, 4), (0, 1, 4), (0.5, 4, 1))
    run = served(workload, ranks=2, router="round-robin", chunk_tokens=2, schedule="prefill-first")
    assert times(run) == [(0, 1, 6), (0, 1, 4), (1, 3, 3)]
    assert run.waited == 2


@pytest.mark.parametrize(
    ("router", "ranks"),
    [("round-robin", [0, 1, 2, 0, 1]), ("least-loaded", [0, 1, 2, 1, 2]), ("affinity", [0, 0, 2, 2, 0])],
)
def test_routers(router: str, ranks: list[int]) -> None:
    workload = asked((0, 9, 1), (0, 2, 1), (0, 3, 1), (0, 4, 1), (0, 1, 1), tenant=[0, 0, 2, 2, 0])
    assert served(workload, ranks=3, router=router).data_rank.tolist() == ranks


def test_a_tenant_whose_rank_is_full_goes_elsewhere() -> None:
    workload = asked((0, 9, 1), (0, 2, 1), (0, 3, 1))
    assert served(workload, ranks=2, router="affinity", waiting=1).data_rank.tolist() == [0, 1, -1]


def test_a_full_queue_refuses() -> None:
    run = served(asked((0, 1, 1), (0, 1, 1), (0, 1, 1), (1, 1, 1)), waiting=2)
    assert run.refused.tolist() == [False, False, True, False]
    assert (run.too_long, run.unfinished) == (0, 0)


@pytest.mark.parametrize(("role", "fits"), [("mixed", False), ("decode", False), ("prefill", True)])
def test_what_never_fits_is_refused(role: str, fits: bool) -> None:
    """The last token of an answer needs no place: 3 + 2 in four places, 3 in a pool of prompts."""
    run = served(asked((0, 3, 3), (0, 3, 2)), role=role, kv_blocks=2, block_tokens=2)
    assert run.refused.tolist() == [not fits, False]
    assert run.too_long == int(not fits)


def test_a_pool_of_prompts_ends_with_the_first_token() -> None:
    run = served(asked((0, 5, 9)), role="prefill")
    assert (times(run), run.decode_tokens) == ([(0, 1, 1)], 0)


def test_a_pool_of_answers_has_the_prompt_and_one_token() -> None:
    run = served(asked((0, 5, 3), (0.5, 5, 1)), role="decode", kv_blocks=7, block_tokens=1)
    assert times(run) == [(0, 1, 2), (0.5, 0.5, 0.5)]
    assert run.prompt_tokens + run.decode_tokens == 2


def test_in_a_pool_of_answers_a_lost_cache_is_computed_anew() -> None:
    """Both hold three of six blocks; the second, which has two tokens, computes four when the first has gone."""
    run = served(asked((0, 2, 4), (0, 2, 4)), role="decode", kv_blocks=6, block_tokens=1, chunk_tokens=3)
    assert run.preemptions.tolist() == [0, 1]
    assert times(run) == [(0, 1, 3), (0, 1, 6)]


def test_the_end_cuts_a_run() -> None:
    run = served(asked((0, 1, 9), (7, 1, 1)), end_s=2.5)
    assert (run.arrived, run.unfinished, run.end_s) == (1, 1, 3.0)
    assert np.isnan(run.finish_s).all() and run.first_token_s[0] == 1.0
    assert served(asked((5, 1, 1)), end_s=2.5).end_s == 2.5


def test_the_timeline_adds_up() -> None:
    workload = poisson_workload(1, 300, 40.0, prompt=(1, 40), output=(1, 20))
    model = skewed_model(1)
    run, whole = (
        serve(workload, random_profiles(1, workload, model), roomy_limits(), model, bucket_s=bucket_s)
        for bucket_s in (0.01, 0.0)
    )
    line = run.timeline
    assert len(line.steps) > 512 and len(whole.timeline.steps) == 1
    assert line.steps.sum() == run.steps
    assert line.tokens.sum() == run.prompt_tokens + run.decode_tokens
    np.testing.assert_allclose(line.busy_s.sum(axis=0), whole.timeline.busy_s[0])
    assert (line.busy_s.sum(axis=0) < run.seconds["expert"]).all()
    assert run.seconds == whole.seconds


def test_samples_are_steps_spread_over_the_run() -> None:
    workload = poisson_workload(1, 300, 400.0, prompt=(1, 40), output=(1, 20))
    model = skewed_model(1)
    run = serve(workload, random_profiles(1, workload, model), roomy_limits(chunk_tokens=8), model, samples=10)
    apart = np.diff([sample.step for sample in run.samples])
    assert 5 <= len(run.samples) <= 10 and len(set(apart.tolist())) == 1
    assert apart[0] * len(run.samples) > run.steps // 2
    every = serve(workload, random_profiles(1, workload, model), roomy_limits(chunk_tokens=8), model, samples=10**6)
    assert len(every.samples) == every.steps == run.steps
    assert sum(int(sample.prompt.sum()) for sample in every.samples) == run.prompt_tokens
    assert sum(int(sample.decode.sum()) for sample in every.samples) == run.decode_tokens
    first_steps = {int(i): sample.start_s for sample in reversed(every.samples) for i in sample.request}
    np.testing.assert_allclose([first_steps[i] for i in range(300)], run.start_s)
    seconds: FloatArray = np.array([[*sample.seconds.values()] for sample in every.samples])
    np.testing.assert_allclose(seconds.sum(axis=0), [run.seconds[name] for name in every.samples[0].seconds])


def test_progress_tells_of_every_request() -> None:
    told: list[int] = []
    workload = asked((0, 1, 1), (0, 1, 1), (0, 1, 9), (99, 1, 1))
    rows = np.zeros(4, np.int32)
    limits = roomy_limits(waiting=2)
    serve(workload, Profiles(prefill=rows, decode=rows), limits, constant_model(1.0), progress=told.append)
    assert sum(told) == 4


def test_a_seed_is_a_run() -> None:
    workload = poisson_workload(1, 100, 400.0, prompt=(1, 40), output=(1, 20))
    model = skewed_model(1)
    profiles = random_profiles(1, workload, model)
    ends = [serve(workload, profiles, roomy_limits(), model, seed=seed).end_s for seed in (0, 0, 1)]
    assert ends[0] == ends[1] != ends[2]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"role": "both"}, "no role 'both'"),
        ({"end_s": 0.0}, "0 s"),
        ({"bucket_s": -1.0}, "-1 s"),
        ({"prefill": np.zeros(2, np.int32)}, "profile.prefill: 2 rows for 1 requests"),
        ({"decode": np.full(1, 5, np.int32)}, "profile.decode: a row outside 0 to 0"),
        ({"data_ranks": 2}, "2 data-parallel ranks on 1 ranks"),
    ],
)
def test_what_does_not_fit_is_refused(given: dict[str, Any], says: str) -> None:
    rows = {name: given.pop(name, np.zeros(1, np.int32)) for name in ("prefill", "decode")}
    model = replace(constant_model(1.0), data_ranks=given.pop("data_ranks", 1))
    with pytest.raises(UsageError, match=says):
        serve(asked((0, 1, 1)), Profiles(**rows), roomy_limits(), model, **given)


@pytest.mark.parametrize(
    ("name", "shape"), [("spread", (1, 1, 2)), ("even_expert_s", (1, 3)), ("expert_s", (1, 1, 1)), ("leave_s", (1, 2))]
)
def test_a_step_model_of_odd_shape_is_refused(name: str, shape: tuple[int, ...]) -> None:
    rows = np.zeros(1, np.int32)
    odd = replace(constant_model(1.0), **{name: np.zeros(shape)})  # type: ignore[arg-type]
    with pytest.raises(EbsimError, match=name):
        serve(asked((0, 1, 1)), Profiles(prefill=rows, decode=rows), roomy_limits(), odd)


def test_a_timeline_too_long_is_refused() -> None:
    rows = np.zeros(1, np.int32)
    with pytest.raises(UsageError, match="timeline"):
        serve(asked((9, 1, 1)), Profiles(prefill=rows, decode=rows), roomy_limits(), constant_model(1.0), bucket_s=1e-9)


def test_a_step_without_tokens_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "load", lambda _: SimpleNamespace(serve_steps=lambda *_: STUCK))
    with pytest.raises(RuntimeError, match="no tokens"):
        served(asked((0, 1, 1)))
