"""The search from the plan in force after a drift: balance against slots fetched, for reports/benchmarks.md."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest

from easybalance_sim import policies
from easybalance_sim.cluster.topology import uniform
from easybalance_sim.plan.migration import moving_slots
from tests.bench.sglang_ports import sglang_ports
from tests.window_problems import balance, problem_of

SEEDS = (0, 1, 2)
BIG = uniform(32, 8, 9)


@pytest.mark.bench
def test_a_warm_start_after_a_drift_of_ten_per_cent(publish: Callable[[str], None]) -> None:
    lines = ["58 × 256, 32 × 9, loads drifted by 10 %: balance, slots fetched"]
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        before = np.exp(rng.normal(0, 1, (58, 256))) * 1000
        after = before * (1 + 0.1 * rng.standard_normal(before.shape)).clip(0.1)
        loads = np.repeat(np.rint(after)[None].astype(np.int64), 8, axis=0)
        old = policies.make("eplb", problem_of(np.rint(before)[None].astype(np.int64), BIG))
        given = problem_of(loads, BIG, current=old, seed=seed)
        begin = time.perf_counter()
        front = policies.make_all("warm_search", given)
        seconds = time.perf_counter() - begin
        plans = {"stale": old, "eplb": policies.make("eplb", given)}
        if (ports := sglang_ports()) is not None:
            plans |= {f"SGLang {name}": plan for name, plan in ports.plans(loads, BIG).items()}
        plans |= {plan.policy: plan for plan in front}
        figures = {name: (balance(plan, loads)[0], moving_slots(old, plan).mean()) for name, plan in plans.items()}
        cells = (f"{name} {mean:.4f}, {100 * moved:.1f} %" for name, (mean, moved) in figures.items())
        lines.append(f"  seed {seed}: {' · '.join(cells)}; front in {seconds:.1f} s")
        chosen = figures[front[2].policy]
        assert chosen[0] <= 1.01 and chosen[1] <= 0.1
    publish("\n".join(lines))
