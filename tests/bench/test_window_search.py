"""The window search against EPLB on windows that neither saw: figures for reports/benchmarks.md.

a / b is mean / P99 over held-out windows of busiest rank / mean rank, averaged over layers; "cut" is how much of EPLB's
P99 excess (P99 - 1) is gone, per seed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from easybalance_sim import policies
from easybalance_sim.arrays import IntArray
from easybalance_sim.cluster.topology import uniform
from tests.bench.recorded_requests import Recorded, in_topic_order, recorded, serve, splits
from tests.window_problems import balance, problem_of

SEEDS = (0, 1, 2)


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
