"""Time and held-out balance of the window search on a big model: figures for reports/benchmarks.md.

a / b is mean / P99 over held-out windows of busiest rank / mean rank, averaged over layers.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from easybalance_sim import policies
from easybalance_sim.arrays import AnyArray
from easybalance_sim.cluster.topology import Topology, uniform
from easybalance_sim.plan.plan import Plan
from easybalance_sim.policies import Effort, NotApplicable
from tests.bench.sglang_ports import sglang_ports
from tests.bench.window_rows import SEEDS
from tests.window_problems import balance, chance_windows, problem_of, topic_windows

BIG = uniform(32, 8, 9)
BIG_TOKENS = 131_072 * 8


def seconds_of(windows: AnyArray, proposals: int, topology: Topology = BIG) -> tuple[Plan, float, float]:
    """The plan of a search, and the seconds and CPU seconds of a run without compiling."""
    policies.make("window_search", problem_of(windows[:, :2], topology, effort=Effort(proposals=1)))
    problem = problem_of(windows, topology, effort=Effort(proposals=proposals))
    begin, used = time.perf_counter(), time.process_time()
    plan = policies.make("window_search", problem)
    return plan, time.perf_counter() - begin, time.process_time() - used


@pytest.mark.bench
@pytest.mark.parametrize("seed", SEEDS)
def test_a_big_model_on_a_topic_mixture(seed: int, publish: Callable[[str], None]) -> None:
    fit, held = (
        topic_windows(2 * seed + side, count, layers=58, experts=256, topics=8, tokens=BIG_TOKENS, model=seed)
        for side, count in ((1, 64), (2, 300))
    )
    peers = {"EPLB": policies.make("eplb", problem_of(fit, BIG))}
    if (ports := sglang_ports()) is not None:
        peers |= {f"SGLang {name}": plan for name, plan in ports.plans(fit, BIG).items()}
    lines = [f"58 × 256, 32 × 9, 64 windows of 8 topics, seed {seed}"]
    lines += ["  {}: {:.3f} / {:.3f}".format(name, *balance(plan, held)) for name, plan in peers.items()]
    eplb = balance(peers["EPLB"], held)
    for proposals in (1_000_000, 1_500_000, 5_000_000):
        plan, seconds, used = seconds_of(fit, proposals)
        mean, p99 = balance(plan, held)
        lines.append(f"  {proposals / 1e6:g} M proposals: {mean:.3f} / {p99:.3f} in {seconds:.1f} s, {used:.1f} CPU s")
        assert p99 - 1 < 0.4 * (eplb[1] - 1)
    publish("\n".join(lines))


@pytest.mark.bench
def test_windows_that_differ_by_chance_are_told_apart_quickly(publish: Callable[[str], None]) -> None:
    fit = chance_windows(1, 64, layers=58, experts=256, tokens=4096 * 8)
    problem = problem_of(fit, BIG)
    begin = time.perf_counter()
    with pytest.raises(NotApplicable, match="batch noise only"):
        policies.make("window_search", problem)
    seconds = time.perf_counter() - begin
    publish(f"58 × 256, 32 × 9, 64 windows by chance: EPLB's plan kept after {seconds:.2f} s")
    assert seconds < 5
