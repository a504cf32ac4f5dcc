"""The window search against EPLB on windows that neither saw: figures for reports/benchmarks.md.

a / b is mean / P99 over held-out windows of busiest rank / mean rank, averaged over layers; "cut" is how much of EPLB's
P99 excess (P99 - 1) is gone, per seed.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import pytest

from easybalance_sim import policies
from easybalance_sim.arrays import AnyArray, IntArray
from easybalance_sim.cluster.topology import Topology, uniform
from easybalance_sim.plan.migration import moving_slots
from easybalance_sim.plan.plan import Plan
from easybalance_sim.policies import Effort, NotApplicable
from tests.bench.recorded_requests import Recorded, in_topic_order, recorded, serve, splits
from tests.window_problems import balance, chance_windows, problem_of, topic_windows

SEEDS = (0, 1, 2)
BIG = uniform(32, 8, 9)
BIG_TOKENS = 131_072 * 8


@pytest.fixture(scope="module")
def requests() -> Recorded:
    return recorded()


@dataclass(frozen=True, kw_only=True)
class Row:
    """Held-out balance of the plans of one seed."""

    eplb: tuple[float, float]
    window: tuple[float, float]
    rebatched: tuple[float, float]

    def cut(self, of: tuple[float, float]) -> float:
        """Share of EPLB's P99 excess that is gone."""
        return 1 - (of[1] - 1) / (self.eplb[1] - 1)


def row_of(given: Recorded, fit: IntArray, held: IntArray, steps: int, slots: int, seed: int) -> Row:
    topology = uniform(8, 8, slots)
    windows, judged, again = (
        serve(given, queue, steps, 1, seed).windows[..., 0] for queue in (fit, held, in_topic_order(given, fit, seed))
    )
    problems = [
        problem_of(windows, topology, seed=seed, window_steps=float(steps), rebatched=more) for more in (None, again)
    ]
    plans = [policies.make("eplb", problems[0]), *(policies.make("window_search", problem) for problem in problems)]
    figures = [balance(plan, judged) for plan in plans]
    return Row(eplb=figures[0], window=figures[1], rebatched=figures[2])


def told(name: str, rows: list[Row]) -> str:
    def mean(figures: list[tuple[float, float]]) -> str:
        return "{:.3f} / {:.3f}".format(*np.mean(figures, axis=0))

    def cuts(figures: list[float]) -> str:
        return f"{100 * np.mean(figures):.0f} % [{', '.join(f'{100 * cut:.0f}' for cut in figures)}]"

    cells = [
        name, mean([row.eplb for row in rows]), mean([row.window for row in rows]),
        mean([row.rebatched for row in rows]), cuts([row.cut(row.window) for row in rows]),
        cuts([row.cut(row.rebatched) for row in rows]),
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


@pytest.mark.bench
@pytest.mark.parametrize("slots", [5, 4])
@pytest.mark.parametrize("steps", [16, 64, 1])
@pytest.mark.parametrize("name", ["blocks", "shuffled", "unseen", "unseen, fitted mixed"])
def test_recorded_requests(
    name: str, steps: int, slots: int, requests: Recorded, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = []
    for seed in SEEDS:
        fit, held = splits(requests, seed)[name.partition(",")[0]]
        if "mixed" in name:
            fit = np.random.default_rng([seed, 3]).permutation(fit)
        rows.append(row_of(requests, fit, held, steps, slots, seed))
    with capsys.disabled():
        print("\n" + told(f"GPT-OSS 8 × {slots}, {name}, {steps} steps", rows), flush=True)
    assert np.mean([row.cut(row.rebatched) for row in rows]) > 0


def seconds_of(windows: AnyArray, proposals: int, topology: Topology = BIG) -> tuple[Plan, float]:
    """The plan of a search, and the seconds of a run without compiling."""
    policies.make("window_search", problem_of(windows[:, :2], topology, effort=Effort(proposals=1)))
    problem = problem_of(windows, topology, effort=Effort(proposals=proposals))
    begin = time.perf_counter()
    plan = policies.make("window_search", problem)
    return plan, time.perf_counter() - begin


@pytest.mark.bench
def test_a_big_model_on_a_topic_mixture(capsys: pytest.CaptureFixture[str]) -> None:
    fit, held = (
        topic_windows(seed, count, layers=58, experts=256, topics=8, tokens=BIG_TOKENS)
        for seed, count in ((1, 64), (2, 300))
    )
    eplb = balance(policies.make("eplb", problem_of(fit, BIG)), held)
    lines = ["58 × 256, 32 × 9, 64 windows of 8 topics: EPLB {:.3f} / {:.3f}".format(*eplb)]
    for proposals in (1_000_000, 3_000_000):
        plan, seconds = seconds_of(fit, proposals)
        mean, p99 = balance(plan, held)
        lines.append(f"  {proposals / 1e6:g} M proposals: {mean:.3f} / {p99:.3f} in {seconds:.1f} s")
        assert p99 - 1 < 0.4 * (eplb[1] - 1)
    with capsys.disabled():
        print("\n" + "\n".join(lines), flush=True)


@pytest.mark.bench
def test_windows_that_differ_by_chance_are_told_apart_quickly(capsys: pytest.CaptureFixture[str]) -> None:
    fit = chance_windows(1, 64, layers=58, experts=256, tokens=4096 * 8)
    problem = problem_of(fit, BIG)
    begin = time.perf_counter()
    with pytest.raises(NotApplicable, match="batch noise only"):
        policies.make("window_search", problem)
    seconds = time.perf_counter() - begin
    with capsys.disabled():
        print(f"\n58 × 256, 32 × 9, 64 windows by chance: EPLB's plan kept after {seconds:.2f} s", flush=True)
    assert seconds < 5


@pytest.mark.bench
def test_a_warm_start_after_a_drift_of_ten_per_cent(capsys: pytest.CaptureFixture[str]) -> None:
    lines = ["58 × 256, 32 × 9, loads drifted by 10 %: balance, slots fetched"]
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        before = np.exp(rng.normal(0, 1, (58, 256))) * 1000
        after = before * (1 + 0.1 * rng.standard_normal(before.shape)).clip(0.1)
        loads = np.repeat(np.rint(after)[None].astype(np.int64), 8, axis=0)
        old = policies.make("eplb", problem_of(np.rint(before)[None].astype(np.int64), BIG))
        given = problem_of(loads, BIG, current=old, seed=seed)
        plans = {"stale": old, **{name: policies.make(name, given) for name in ("eplb", "warm_search")}}
        figures = {name: (balance(plan, loads)[0], moving_slots(old, plan).mean()) for name, plan in plans.items()}
        cells = (f"{name} {mean:.4f}, {100 * moved:.1f} %" for name, (mean, moved) in figures.items())
        lines.append(f"  seed {seed}: {' · '.join(cells)}")
        assert figures["warm_search"][1] < 0.3 * figures["eplb"][1]
        assert figures["warm_search"][0] - 1 < 0.3 * (figures["stale"][0] - 1)
    with capsys.disabled():
        print("\n" + "\n".join(lines), flush=True)
