"""Routed requests of a trace, and which of them a request in service stands for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from easybalance_sim.errors import TraceError
from easybalance_sim.simulate.serving.routed import SET_ASIDE, Routed, drawn, routed_requests, strangers
from easybalance_sim.trace.schema import DECODE, PREFILL, UNKNOWN_PHASE
from tests.routed_cases import WORKLOADS, routed_batch, routed_of, token_batch
from tests.serving_models import poisson_workload


def test_tokens_lie_by_request_prompt_first_in_order_of_position() -> None:
    batch = routed_batch(1)
    routed = routed_requests([batch], WORKLOADS, 16)
    for place, request in enumerate(routed.request.tolist()):
        for phase in (PREFILL, DECODE):
            mine = np.flatnonzero((batch.request == request) & (batch.phase == phase))
            mine = mine[np.argsort(batch.position[mine])]
            first, tokens = routed.first[2 * place + phase], routed.tokens[2 * place + phase]
            assert (routed.experts[first : first + tokens] == batch.experts[mine]).all()
        assert routed.workload[place] == request % 2
    assert routed.start[-1] == batch.tokens
    assert routed.notes == ()


def test_it_does_not_matter_how_the_trace_is_cut() -> None:
    batch = routed_batch(2)
    parts = [batch.select(slice(at, at + 100)) for at in range(0, batch.tokens, 100)]
    whole, cut = (routed_requests(batches, WORKLOADS, 16, most_requests=15) for batches in ([batch], parts))
    assert (whole.request == cut.request).all()
    assert (whole.experts == cut.experts).all()


def test_too_many_are_thinned_to_whole_requests() -> None:
    batch = routed_batch(3)
    few = routed_requests([batch], WORKLOADS, 16, most_requests=10)
    assert few.requests == 10
    assert few.notes == ("10 of 40 routed requests were drawn to stand for those in service",)
    assert few.tokens.sum() == np.isin(batch.request, few.request).sum()
    small = routed_requests([batch], WORKLOADS, 16, most_tokens=200)
    assert 0 < small.tokens.sum() <= 200
    assert routed_requests([batch], WORKLOADS, 16, most_tokens=1).requests == 1


def test_another_seed_keeps_others() -> None:
    first, second = (routed_requests([routed_batch(3)], WORKLOADS, 16, most_requests=10, seed=n) for n in (0, 1))
    assert first.request.tolist() != second.request.tolist()


@pytest.mark.parametrize("phase", [PREFILL, DECODE, UNKNOWN_PHASE])
def test_a_missing_phase_is_that_which_there_is(phase: int) -> None:
    ids = np.arange(12).reshape(6, 1, 2)
    routed = routed_requests([token_batch(np.repeat([4, 7], 3), np.full(6, phase), np.arange(6), ids)], WORKLOADS, 16)
    assert routed.stretch.tolist() == [0, 0, 1, 1]
    assert routed.tokens.tolist() == [3, 3, 3, 3]


def test_no_tokens_are_refused() -> None:
    with pytest.raises(TraceError, match="no tokens"):
        routed_requests([], WORKLOADS, 16)


def test_requests_stand_for_those_of_their_tenant() -> None:
    routed = routed_of(5)
    workload = replace(poisson_workload(5, 300, 1.0, tenants=2), tenants=("blue", "green"))
    rows = drawn(routed, workload, 5)
    of_blue = rows.prefill[workload.tenant == 0] // 2
    assert {routed.workloads[code] for code in routed.workload[of_blue]} == {"blue"}
    of_green = rows.prefill[workload.tenant == 1] // 2
    assert {routed.workloads[code] for code in routed.workload[of_green]} == {"red", "blue"}
    assert (rows.decode == rows.prefill + 1).all()
    assert strangers(routed, workload) == ("green",)


def test_requests_set_aside_stand_for_nobody() -> None:
    routed = routed_of(6)
    rows = drawn(routed, poisson_workload(6, 500, 1.0), 6)
    assert routed.aside.sum() == routed.requests // SET_ASIDE
    assert not routed.aside[rows.prefill // 2].any()
    assert len(np.unique(rows.prefill)) == (~routed.aside).sum()


def test_the_draw_depends_on_the_seed_alone() -> None:
    routed, workload = routed_of(7), poisson_workload(7, 50, 1.0)
    first, again, other = (drawn(routed, workload, seed).decode for seed in (1, 1, 2))
    assert (first == again).all()
    assert (first != other).any()


def test_few_requests_of_a_workload_all_serve() -> None:
    routed: Routed = routed_of(8, requests=6)
    assert not routed.aside.any()
