"""Step models and workloads for tests of serving."""

from __future__ import annotations

import numpy as np

from easybalance_sim.simulate.serving.limits import Limits
from easybalance_sim.simulate.serving.profiles import Profiles
from easybalance_sim.simulate.serving.step_model import AttentionSeconds, OutsideSeconds, StepModel
from easybalance_sim.simulate.serving.workload import Workload


def constant_model(step_s: float) -> StepModel:
    """Every step takes the same time, whatever is in it."""
    return StepModel(
        mean=np.zeros((1, 1, 1)), spread=np.zeros((1, 1, 1)), knot=1.0, expert_s=np.zeros((1, 1, 2)),
        even_expert_s=np.zeros((1, 2)), arrive_s=np.zeros((2, 1, 1)), even_arrive_s=np.zeros((2, 1)),
        leave_s=np.zeros((2, 1)), link_fixed_s=np.zeros(2), attention=AttentionSeconds(),
        outside=OutsideSeconds(host=step_s), data_ranks=1,
    )  # fmt: skip


def skewed_model(
    seed: int, *, requests: int = 64, layers: int = 3, ranks: int = 4, data_ranks: int = 4, top_k: int = 8,
    knots: int = 32, hidden: float = 0.0, chance: float = 0.0,
) -> StepModel:  # fmt: skip
    """Random shares of ranks, every second of a step in some part: 20 µs + 0.1 µs per row of an expert, 30 + 0.05 µs of
    attention, links of 10 + 0.02 µs. chance: share of the root of the rows by which a rank's experts vary."""
    rng = np.random.default_rng(seed)
    share = rng.dirichlet(np.full(ranks, 8.0), (requests, layers))
    knot = 4.0
    rows = (np.arange(knots) * knot) ** 2
    speed = rng.uniform(0.8, 1.25, (layers, ranks, 1))
    expert = np.where(rows > 0, 20e-6, 0.0) + 1e-7 * rows
    return StepModel(
        mean=share * top_k,
        spread=share * (1 - share) * top_k,
        knot=knot,
        expert_s=expert * speed,
        even_expert_s=np.broadcast_to(expert, (layers, knots)),
        arrive_s=np.broadcast_to(2e-8 * np.array([1.0, 2.0])[:, None, None], (2, layers, ranks)),
        even_arrive_s=np.broadcast_to(2e-8 * np.array([1.0, 2.0])[:, None], (2, layers)),
        leave_s=np.full((2, layers), 1e-7),
        link_fixed_s=np.array([1e-5, 1.2e-5]),
        attention=AttentionSeconds(
            fixed=1e-5,
            weights=2e-5,
            token=5e-8,
            kv=2e-10,
            pair=1e-10,
            shared_fixed=3e-6,
            shared_weights=6e-6,
            shared_token=1e-6,
        ),
        outside=OutsideSeconds(host=1e-3, dense_layers=2, weights=1e-5, token=1e-7, head_weights=2e-5, head_token=5e-6),
        data_ranks=data_ranks,
        hidden=hidden,
        sum_fixed_s=4e-6,
        sum_row_s=2e-8 * share[0],
        chance_rows=np.broadcast_to(chance * np.sqrt(rows), (layers, knots)),
    )


def poisson_workload(
    seed: int, requests: int, rate_per_s: float, *, prompt: tuple[int, int] = (1, 1), output: tuple[int, int] = (1, 1),
    cached_frac: float = 0.0, tenants: int = 1,
) -> Workload:  # fmt: skip
    """Exponential times between arrivals; lengths uniform, both ends included."""
    rng = np.random.default_rng(seed)
    prompts = rng.integers(prompt[0], prompt[1] + 1, requests, np.int32)
    return Workload(
        arrival_s=rng.exponential(1 / rate_per_s, requests).cumsum(),
        prompt_tokens=prompts,
        output_tokens=rng.integers(output[0], output[1] + 1, requests, np.int32),
        cached_tokens=np.minimum(prompts - 1, (prompts * cached_frac * rng.random(requests)).astype(np.int32)),
        tenant=rng.integers(0, tenants, requests, np.int32),
        tenants=tuple(f"tenant {n}" for n in range(tenants)),
        source="random",
    )


def random_profiles(seed: int, workload: Workload, model: StepModel) -> Profiles:
    """Any row for any request."""
    rng = np.random.default_rng(seed)
    return Profiles(
        prefill=rng.integers(0, len(model.mean), workload.requests, np.int32),
        decode=rng.integers(0, len(model.mean), workload.requests, np.int32),
    )


def roomy_limits(**given: int | str) -> Limits:
    """Limits that never bind but for those given."""
    return Limits(**{"kv_blocks": 1 << 20, "running": 256, **given})  # type: ignore[arg-type]
