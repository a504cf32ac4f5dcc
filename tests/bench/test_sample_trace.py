"""The recorded TinyMoE traces: what `ebsim plan` makes of them, split by request, beside EPLB and SGLang's ports.

8 ranks, all 8 layers, the columns of the window search's rows. Problem, held-out windows and replay are the product's
own. "in service": windows up to the one in which the last held-out request joins; after that the batch only drains,
down to one token per step. Below the rows stands what `ebsim plan` chose among all its policies, over all windows.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from easybalance_sim.load.split import HELD_OUT
from easybalance_sim.planning.problems import problem_of
from easybalance_sim.planning.request import PlanRequest
from easybalance_sim.planning.session import Settings, open_session
from easybalance_sim.replay.traffic import TokenTraffic
from tests.bench.window_rows import (
    EPLB,
    MARGIN,
    SEEDS,
    Figures,
    Row,
    plans_of,
    print_header,
    ratio_figures,
    require_no_worse,
    told,
)
from tests.ebsim_process import DATA, SAMPLE, ebsim
from tests.listeners import Heard

RANKS, SPLIT = 8, "request"
TRACES = {"whole recording": DATA / "tinymoe_routing" / "tokens.parquet", "sample": SAMPLE}


@pytest.fixture(scope="module", autouse=True)
def headed() -> None:
    print_header()


def rows_of(trace: Path, steps: int, slots: int, seed: int) -> tuple[Row, Row]:
    """In service, and over all windows."""
    settings = Settings(traces=(trace,), ranks=RANKS, slots_per_rank=slots, window_steps=steps, seed=seed)
    request, session = PlanRequest(settings=settings, split=SPLIT), open_session(settings, Heard())
    traffic = session.traffic(SPLIT, request.held_out, seed)
    assert isinstance(traffic, TokenTraffic)
    problem = problem_of(request, session, traffic, traffic.fit_windows(), None)
    plans, kept = plans_of(replace(problem, rebatched=None), problem)
    outcomes = traffic.replay(list(plans.values()), HELD_OUT, session.bench)
    ratios = dict(zip(plans, (outcome.window_imbalance for outcome in outcomes), strict=True))
    until = serving_steps(traffic) // steps
    return (
        Row(seed=seed, figures={name: ratio_figures(ratio[:until]) for name, ratio in ratios.items()}, kept=kept),
        Row(seed=seed, figures={name: ratio_figures(ratio) for name, ratio in ratios.items()}, kept=kept),
    )


def serving_steps(traffic: TokenTraffic) -> int:
    """Steps until the last held-out request joins."""
    scan, split = traffic.trace.scan(), traffic.split
    assert split is not None
    return int(scan.request_first[split.side == HELD_OUT].max()) - scan.first_step + 1


def planned(trace: Path, steps: int, slots: int, seed: int) -> dict[str, Any]:
    """The report of `ebsim plan`."""
    done = ebsim(
        "plan", trace, "--ranks", str(RANKS), "--slots-per-rank", str(slots), "--split", SPLIT,
        "--window-steps", str(steps), "--seed", str(seed), "--format", "json",
    )  # fmt: skip
    assert done.returncode in (0, 1, 3), done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def chosen(report: dict[str, Any]) -> Figures:
    """Mean over layers of the mean and of the P99 over held-out windows of the plan that was chosen."""
    ratios = report["plan"]["rank_imbalance_by_layer"]
    return float(np.mean(ratios["mean"])), float(np.mean(ratios["p99"]))


def choice(seed: int, report: dict[str, Any]) -> str:
    mean, p99 = chosen(report)
    verdict = report["verdict"]["status"]
    return f"  seed {seed}: ebsim plan chose {report['plan']['policy']}, {mean:.3f} / {p99:.3f}, {verdict}"


@pytest.mark.bench
@pytest.mark.parametrize("slots", [10, 8])
@pytest.mark.parametrize("steps", [16, 64, 1])
@pytest.mark.parametrize("name", TRACES)
def test_tinymoe(name: str, steps: int, slots: int, capsys: pytest.CaptureFixture[str]) -> None:
    trace = TRACES[name]
    if not trace.is_file():
        pytest.skip(f"needs the recording at {trace}")
    serving, whole = zip(*(rows_of(trace, steps, slots, seed) for seed in SEEDS), strict=True)
    reports = [planned(trace, steps, slots, seed) for seed in SEEDS]
    case = f"TinyMoE {name}, {RANKS} × {slots}, {steps} step{'s' if steps > 1 else ''}"
    lines = ["", told(f"{case}, in service", serving), told(f"{case}, all windows", whole)]
    with capsys.disabled():
        print("\n".join([*lines, *map(choice, SEEDS, reports)]), flush=True)
    require_no_worse([*serving, *whole])
    for row, report in zip(whole, reports, strict=True):
        for ours, eplb in zip(chosen(report), row.figures[EPLB], strict=True):
            assert ours <= (1 + MARGIN) * eplb, report["plan"]["policy"]
