"""Serving engines against their specification.

Claimed: the same requests in the same steps, integers bit for bit; seconds to 1e-9, as sums of rows are kept by adding
and taking away instead of being made anew.
"""

from __future__ import annotations

from dataclasses import fields
from itertools import product

import numpy as np
import pytest

from easybalance_sim.kernels.serving_state import REBUILD_STEPS
from easybalance_sim.simulate.serving.engine import serve
from easybalance_sim.simulate.serving.kernel_arrays import ROLES
from easybalance_sim.simulate.serving.limits import ROUTERS, SCHEDULES, Limits
from easybalance_sim.simulate.serving.pool_run import PoolRun
from tests.serving_models import poisson_workload, random_profiles, skewed_model

CLOSE = 1e-9


def require_same(ours: object, theirs: object) -> None:
    """All fields of two values, whatever is inside them."""
    assert type(ours) is type(theirs)
    if isinstance(ours, np.ndarray) and isinstance(theirs, np.ndarray):
        np.testing.assert_allclose(ours, theirs, rtol=CLOSE if ours.dtype.kind == "f" else 0, atol=1e-12)
    elif isinstance(ours, dict | float):
        assert ours == pytest.approx(theirs, rel=CLOSE, abs=1e-12)
    elif isinstance(ours, tuple) and isinstance(theirs, tuple):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            require_same(one, other)
    elif hasattr(ours, "__dataclass_fields__"):
        for each in fields(ours):  # type: ignore[arg-type]
            require_same(getattr(ours, each.name), getattr(theirs, each.name))
    else:
        assert ours == theirs


def runs(seed: int, role: str, router: str, schedule: str) -> tuple[PoolRun, PoolRun]:
    """A crowded pool with a small cache on both kernels. Odd seeds: with a limit to the queues and an early end."""
    workload = poisson_workload(seed, 60, 3000.0, prompt=(1, 60), output=(1, 24), cached_frac=0.5, tenants=6)
    model = skewed_model(seed, layers=2, hidden=0.25 * (seed % 3), chance=0.5)
    limits = Limits(
        batch_tokens=24, chunk_tokens=10, running=6, kv_blocks=20, block_tokens=4, waiting=4 * (seed % 2),
        router=router, schedule=schedule,
    )  # fmt: skip
    end_s = 0.05 if seed % 2 else np.inf
    ours, theirs = (
        serve(
            workload, random_profiles(seed, workload, model), limits, model, role=role, seed=seed, end_s=end_s,
            bucket_s=0.02, samples=3, backend=backend,
        )
        for backend in ("numba", "reference")
    )  # fmt: skip
    return ours, theirs


@pytest.mark.parametrize(("role", "router", "schedule"), list(product(ROLES, ROUTERS, SCHEDULES)))
def test_the_compiled_engine_is_the_specified_one(role: str, router: str, schedule: str) -> None:
    for seed in (100, 101):
        ours, theirs = runs(seed, role, router, schedule)
        require_same(ours, theirs)
        assert ours.refused.any() or role == "prefill"
        assert ours.preemptions.any() or role == "prefill"


def test_sums_made_anew_are_those_kept() -> None:
    """More steps than sums are kept for."""
    workload = poisson_workload(7, 60, 8.0, prompt=(1, 9), output=(200, 400))
    model = skewed_model(7, layers=1, ranks=2, data_ranks=2)
    limits = Limits(running=4, kv_blocks=4000)
    profiles = random_profiles(7, workload, model)
    ours, theirs = (serve(workload, profiles, limits, model, backend=backend) for backend in ("numba", "reference"))
    assert ours.steps > REBUILD_STEPS
    require_same(ours, theirs)
