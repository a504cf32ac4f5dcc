"""What a rule and a number of micro-batches in flight come to: `simulate_queue` and its result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from easybalance_sim.arrays import FloatArray
from easybalance_sim.plan.plan import Plan
from easybalance_sim.simulate.layer_queue import queue
from easybalance_sim.simulate.layer_queue.micro_batches import MicroBatches, cut, dealt_evenly, jobs_of
from easybalance_sim.simulate.layer_queue.queue import HEAT_S, RULES, Jobs, QueueRun
from easybalance_sim.simulate.layer_queue.service import ServiceTimes
from easybalance_sim.simulate.steps.recorded import RecordedSteps

IN_FLIGHT = (1, 2, 4)


@dataclass(frozen=True, kw_only=True)
class QueueRow:
    """One rule with so many micro-batches in flight.

    batch_p50_s, …: seconds of a micro-batch from its first stage to its end · request_p50_s, …: from the start of its
    first micro-batch to the end of its last · idle: share of the time in which a rank serves nothing, mean over ranks;
    busiest_idle: of the busiest rank · busiest_s, longest_lane_s: bounds that no order beats · gap: makespan over the
    larger bound - 1.
    """

    in_flight: int
    rule: str
    makespan_s: float
    batches_per_s: float
    tokens_per_s: float
    batch_p50_s: float
    batch_p99_s: float
    request_p50_s: float
    request_p99_s: float
    idle: float
    busiest_idle: float
    busiest_s: float
    longest_lane_s: float
    gap: float


@dataclass(frozen=True, kw_only=True)
class QueueReport:
    """rows: by micro-batches in flight, then rule · lockstep_s: all steps with a barrier per layer and nothing else in
    flight, which one micro-batch in flight is · tokens, steps."""

    rows: tuple[QueueRow, ...]
    lockstep_s: float
    tokens: int
    steps: int

    def row(self, in_flight: int, rule: str) -> QueueRow:
        """One of `rows`. Raises `KeyError` when it was not asked for."""
        found = [row for row in self.rows if (row.in_flight, row.rule) == (in_flight, rule)]
        if not found:
            raise KeyError((in_flight, rule))
        return found[0]

    def to_dict(self) -> dict[str, Any]:
        """For reports."""
        return asdict(self) | {"rows": [asdict(row) for row in self.rows]}

    def explained(self) -> list[str]:
        """What the rows say, in plain lines."""
        lines = [f"barrier per layer, one micro-batch in flight: {self.lockstep_s:.3f} s for {self.steps} steps"]
        for in_flight in sorted({row.in_flight for row in self.rows} - {1}):
            rows = [row for row in self.rows if row.in_flight == in_flight]
            first, best = rows[0], min(rows, key=lambda row: row.makespan_s)
            lines.append(
                f"{in_flight} in flight, {first.rule}: {self.lockstep_s / first.makespan_s:.3f} x the throughput of "
                f"one; the best order ({best.rule}) {self.lockstep_s / best.makespan_s:.3f} x; no order can pass "
                f"{self.lockstep_s / max(best.busiest_s, best.longest_lane_s):.3f} x "
                f"({'the busiest rank' if best.busiest_s >= best.longest_lane_s else 'the longest lane'}'s work)"
            )
        return lines


def simulate_queue(
    steps: RecordedSteps,
    plan: Plan,
    times: ServiceTimes,
    *,
    in_flight: tuple[int, ...] = IN_FLIGHT,
    rules: tuple[str, ...] = RULES,
    heat_s: float = HEAT_S,
    advance: Callable[[int], None] = lambda done: None,
) -> QueueReport:
    """Serve the recorded steps as fast as they go, with each number of micro-batches in flight and each rule.

    A request stays in its lane, and a lane's micro-batches follow one another, so more of them in flight are smaller:
    what is compared does the same tokens in the same order. With replicas an expert's tokens take turns. `advance` is
    told of each row, `len(in_flight) * len(rules)` in all.
    Raises `UsageError` for an unknown rule or fewer than one micro-batch in flight.
    """
    rows: list[QueueRow] = []
    for lanes in in_flight:
        batches = cut(steps, lanes, plan.ranks)
        jobs = _jobs(batches, plan, times, int(steps.experts.shape[2]))
        for rule in rules:
            rows.append(replace(_row(jobs, batches, queue.run(jobs, rule, heat_s=heat_s), rule), in_flight=lanes))
            advance(1)
    alone = _jobs(cut(steps, 1, plan.ranks), plan, times, int(steps.experts.shape[2]))
    return QueueReport(rows=tuple(rows), lockstep_s=float(alone.alone_s.sum()), tokens=steps.tokens, steps=len(steps))


def _jobs(batches: MicroBatches, plan: Plan, times: ServiceTimes, top_k: int) -> Jobs:
    seconds = times.of(dealt_evenly(batches.counts, plan), batches.home, plan, top_k)
    return jobs_of(seconds, batches.lane, batches.home.sum(axis=1))


def _row(jobs: Jobs, batches: MicroBatches, run: QueueRun, rule: str) -> QueueRow:
    lasts = run.finish - run.start
    stays = run.finish[batches.last] - run.start[batches.first]
    span = run.makespan_s
    return QueueRow(
        in_flight=jobs.lanes,
        rule=rule,
        makespan_s=span,
        batches_per_s=_over(len(jobs.tokens), span),
        tokens_per_s=_over(float(jobs.tokens.sum()), span),
        batch_p50_s=_percentile(lasts, 50),
        batch_p99_s=_percentile(lasts, 99),
        request_p50_s=_percentile(stays, 50),
        request_p99_s=_percentile(stays, 99),
        idle=float(run.idle.mean()),
        busiest_idle=float(run.idle.min()),
        busiest_s=jobs.busiest_s,
        longest_lane_s=jobs.longest_lane_s,
        gap=_over(span, jobs.lower_bound_s) - 1.0 if jobs.lower_bound_s else 0.0,
    )


def _over(amount: float, seconds: float) -> float:
    return amount / seconds if seconds else 0.0


def _percentile(values: FloatArray, percent: float) -> float:
    return float(np.percentile(values, percent))
