"""The window search against EPLB on windows that neither saw: figures for reports/benchmarks.md.

Recorded routing of GPT-OSS-20B on 8 ranks, all 24 layers. a / b is mean / P99 over held-out windows of busiest rank /
mean rank, averaged over layers and seeds; "cut" is how much of EPLB's P99 excess (P99 - 1) is gone, per seed. SGLang's
own ports of EPLB are compared where they are found, see `sglang_ports`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from easybalance_sim.arrays import IntArray
from easybalance_sim.cluster.topology import uniform
from tests.bench.recorded_requests import TOP_K, Recorded, recorded, searched_on, serve, splits
from tests.bench.window_rows import SEEDS, Row, plans_of, print_header, require_no_worse, told
from tests.window_problems import balance, problem_of


@pytest.fixture(scope="module")
def requests() -> Recorded:
    given = recorded()
    print_header()
    return given


def sides(given: Recorded, name: str, seed: int) -> tuple[IntArray, IntArray]:
    """Queues of the fit and the held-out requests; "fitted mixed" fits on a random order."""
    fit, held = splits(given, seed)[name.partition(",")[0]]
    return (np.random.default_rng([seed, 3]).permutation(fit) if "mixed" in name else fit), held


def row_of(given: Recorded, fit: IntArray, held: IntArray, steps: int, slots: int, seed: int) -> Row:
    windows, judged = (serve(given, queue, steps, 1, seed).windows[..., 0] for queue in (fit, held))
    both = problem_of(
        windows, uniform(8, 8, slots), seed=seed, window_steps=float(steps), top_k=TOP_K,
        **searched_on(given, fit, steps, seed),
    )  # fmt: skip
    alone = replace(both, rebatched=None)
    plans, kept = plans_of(alone, both)
    return Row(seed=seed, figures={name: balance(plan, judged) for name, plan in plans.items()}, kept=kept)


@pytest.mark.bench
@pytest.mark.parametrize("slots", [5, 4])
@pytest.mark.parametrize("steps", [16, 64, 1])
@pytest.mark.parametrize("name", ["blocks", "shuffled", "unseen", "unseen, fitted mixed"])
def test_recorded_requests(
    name: str, steps: int, slots: int, requests: Recorded, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [row_of(requests, *sides(requests, name, seed), steps, slots, seed) for seed in SEEDS]
    with capsys.disabled():
        print("\n" + told(f"GPT-OSS 8 × {slots}, {name}, {steps} step{'s' if steps > 1 else ''}", rows), flush=True)
    require_no_worse(rows)
