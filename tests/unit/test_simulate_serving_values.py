"""Requests and limits that cannot be are refused by name; those that can keep their order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from easybalance_sim.errors import UsageError
from easybalance_sim.simulate.serving.limits import Limits
from easybalance_sim.simulate.serving.workload import Workload


def workload(**given: Any) -> Workload:
    values: dict[str, Any] = {
        "arrival_s": [0.0, 1.0, 4.0],
        "prompt_tokens": [5, 6, 7],
        "output_tokens": [1, 2, 3],
        "cached_tokens": [0, 5, 0],
        "tenant": [0, 1, 0],
    }
    return Workload(tenants=("a", "b"), source="by hand", **(values | given))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"arrival_s": [0.0, 2.0, 1.0]}, "request 2 of by hand: arrives before the one in front"),
        ({"arrival_s": [-1.0, 2.0, 3.0]}, "request 0 of by hand: arrives before"),
        ({"arrival_s": [0.0, np.nan, 3.0]}, "request 1 of by hand: arrives before"),
        ({"prompt_tokens": [5, 0, 7]}, "request 1 of by hand: has no prompt or no output"),
        ({"output_tokens": [1, 2, 0]}, "request 2 of by hand: has no prompt or no output"),
        ({"cached_tokens": [5, 5, 0]}, "request 0 of by hand: has more cached tokens"),
        ({"tenant": [0, 2, 0]}, "request 1 of by hand: is of no known tenant"),
        (
            {name: [] for name in ("arrival_s", "prompt_tokens", "output_tokens", "cached_tokens", "tenant")},
            "there are",
        ),
    ],
)
def test_requests_that_cannot_be(given: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        workload(**given)


def test_a_workload_at_another_rate() -> None:
    whole = workload()
    assert (whole.requests, whole.span_s, whole.rate_per_s) == (3, 4.0, 0.75)
    faster = whole.at_rate(3.0)
    assert faster.arrival_s.tolist() == [0.0, 0.25, 1.0] and faster.rate_per_s == 3.0
    assert workload(arrival_s=[0.0, 0.0, 0.0]).rate_per_s == 3.0
    with pytest.raises(UsageError, match="0 requests per second"):
        whole.at_rate(0.0)


def test_some_of_the_requests() -> None:
    some = workload().take(np.array([True, False, True]))
    assert some.arrival_s.tolist() == [0.0, 4.0] and some.output_tokens.tolist() == [1, 3]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"batch_tokens": 0}, "engine.batch_tokens"),
        ({"chunk_tokens": 0}, "engine.chunk_tokens"),
        ({"running": 0}, "engine.running"),
        ({"kv_blocks": 0}, "engine.kv_blocks"),
        ({"block_tokens": 0}, "engine.block_tokens"),
        ({"waiting": -1}, "engine.waiting"),
        ({"router": "random"}, "engine.router: is 'random' — use round-robin"),
        ({"schedule": "fifo"}, "engine.schedule: is 'fifo' — use decode-first"),
    ],
)
def test_limits_that_cannot_be(given: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        Limits(**({"kv_blocks": 1} | given))
