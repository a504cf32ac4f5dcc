"""Steps of constant time and one request at a time are queues of which the mean wait is known.

Pollaczek–Khinchine for Poisson arrivals of rate λ and one server: W = λ·E[S²] / (2·(1 − λ·E[S])); with constant service
times, M/D/1, that is ρ·S / (2·(1 − ρ)) (Kleinrock, Queueing Systems, volume 1, 1975, chapter 5).
"""

from __future__ import annotations

import numpy as np
import pytest

from easybalance_sim.simulate.serving.engine import serve
from easybalance_sim.simulate.serving.profiles import Profiles
from tests.serving_models import constant_model, poisson_workload, roomy_limits

REQUESTS = 600_000
"""With these the mean wait of one run differs by 0.3 to 0.9 % from that of another."""

STEP_S = 0.25


@pytest.mark.parametrize("load", [0.5, 0.65])
@pytest.mark.parametrize("outputs", [1, 6], ids=["M/D/1", "M/G/1"])
def test_mean_wait_and_number_in_the_system(outputs: int, load: float) -> None:
    """An answer of n tokens takes n steps, the first of which computes the prompt."""
    steps = np.arange(1, outputs + 1)
    service, squared = steps.mean() * STEP_S, (steps**2).mean() * STEP_S**2
    rate = load / service
    workload = poisson_workload(0, REQUESTS, rate, output=(1, outputs))
    rows = np.zeros(REQUESTS, np.int32)
    run = serve(workload, Profiles(prefill=rows, decode=rows), roomy_limits(running=1), constant_model(STEP_S))
    wait = rate * squared / (2 * (1 - load))
    assert (run.start_s - workload.arrival_s).mean() == pytest.approx(wait, rel=0.02)
    assert run.present_s / run.end_s == pytest.approx(rate * (wait + service), rel=0.02)
    assert run.step_s / run.end_s == pytest.approx(load, rel=0.02)
    assert run.steps == workload.output_tokens.sum()
