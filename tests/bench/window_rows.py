"""Rows of the window search's table: what every planner reaches on held-out windows, seed by seed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from easybalance_sim import policies
from easybalance_sim.arrays import FloatArray
from easybalance_sim.plan.plan import Plan
from easybalance_sim.policies import NotApplicable, Problem
from tests.bench.sglang_ports import sglang_ports

SEEDS = tuple(int(seed) for seed in os.environ.get("EBSIM_BENCH_SEEDS", "0,1,2").split(","))
EPLB, RECORDED, OURS = "EPLB", "recorded windows", "+ re-batched"
PLANNERS = (EPLB, "SGLang deepseek", "SGLang deepseek_vec", RECORDED, OURS)
CUTS = (RECORDED, OURS)
MARGIN = 0.01
"""By how much a plan of ours may be worse than EPLB's on any seed."""

Figures = tuple[float, float]


@dataclass(frozen=True, kw_only=True, eq=False)
class Row:
    """One seed. figures: mean and P99 over held-out windows of busiest / mean rank, averaged over layers, by planner ·
    kept: why the planner keeps EPLB's plan, empty where it does not."""

    seed: int
    figures: dict[str, Figures]
    kept: str = ""

    def cut(self, planner: str) -> float:
        """Share of EPLB's P99 excess (P99 - 1) that is gone."""
        return 1 - (self.figures[planner][1] - 1) / (self.figures[EPLB][1] - 1)

    def against_eplb(self) -> float:
        """The larger of our mean and our P99, relative to EPLB's, less 1."""
        return max(ours / eplb for ours, eplb in zip(self.figures[OURS], self.figures[EPLB], strict=True)) - 1


def plans_of(recorded: Problem, rebatched: Problem) -> tuple[dict[str, Plan], str]:
    """A plan by planner, and why the search does not apply (then EPLB's plan stands in, as it does in the planner)."""
    plans, kept = {EPLB: policies.make("eplb", recorded)}, ""
    if (ports := sglang_ports()) is not None:
        found = ports.plans(recorded.windows, recorded.topology)
        plans |= {f"SGLang {name}": plan for name, plan in found.items()}
    for name, problem in ((RECORDED, recorded), (OURS, rebatched)):
        try:
            plans[name] = policies.make("window_search", problem)
        except NotApplicable as reason:
            plans[name], kept = plans[EPLB], str(reason)
    return plans, kept


def ratio_figures(ratio: FloatArray) -> Figures:
    """ratio: float64[W, L] busiest / mean rank, NaN without traffic."""
    return float(np.nanmean(ratio, axis=0).mean()), float(np.nanquantile(ratio, 0.99, axis=0).mean())


def print_header() -> None:
    """The two lines above the rows, after the reason if peers are missing: a test's own output would be captured."""
    sglang_ports()
    cells = ["case", *PLANNERS, *(f"cut, {name}" for name in CUTS), "against EPLB, worst seed"]
    print(f"\n| {' | '.join(cells)} |\n|{'---|' * len(cells)}", flush=True)


def told(case: str, rows: Sequence[Row]) -> str:
    """The row of a case, the figures of its seeds below it."""
    cells = [case, *(_averaged([row.figures.get(name) for row in rows]) for name in PLANNERS)]
    cells += [_cuts([row.cut(name) for row in rows]) for name in CUTS]
    cells.append(f"{100 * max(row.against_eplb() for row in rows):+.1f} %")
    return "\n".join([f"| {' | '.join(cells)} |", *(_seed(row) for row in rows)])


def require_no_worse(rows: Sequence[Row]) -> None:
    """On no seed may our mean or P99 be over EPLB's by more than the margin."""
    for row in rows:
        assert row.against_eplb() <= MARGIN, f"seed {row.seed}: {row.figures}"


def _averaged(figures: list[Figures | None]) -> str:
    known = [each for each in figures if each is not None]
    return _pair(np.mean(known, axis=0)) if known else "–"


def _pair(figures: Figures | FloatArray) -> str:
    return f"{figures[0]:.3f} / {figures[1]:.3f}"


def _cuts(cuts: list[float]) -> str:
    return f"{100 * np.mean(cuts):.0f} % [{', '.join(f'{100 * cut:.0f}' for cut in cuts)}]"


def _seed(row: Row) -> str:
    known = " · ".join(f"{name} {_pair(figures)}" for name, figures in row.figures.items())
    return f"  seed {row.seed}: {known}" + (f" · EPLB's plan kept: {row.kept}" if row.kept else "")
