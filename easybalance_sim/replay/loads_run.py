"""One pass over a trace: the loads of its steps to a file, and their summary."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from easybalance_sim.arrays import frozen
from easybalance_sim.cluster.topology import Topology
from easybalance_sim.errors import UsageError
from easybalance_sim.load.selection import Selection
from easybalance_sim.plan.plan import Plan
from easybalance_sim.replay.dispatch import prepare
from easybalance_sim.replay.engine import links
from easybalance_sim.replay.loads import StepLoads, Windows, step_loads, window_loads
from easybalance_sim.replay.loads_file import loads_writer
from easybalance_sim.replay.loads_summary import PhaseLoads, Summary
from easybalance_sim.trace.dataset import TokenTrace
from easybalance_sim.trace.schema import CountTrace, TokenBatch

COUNTED_STEPS = 2048
"""Of a longer trace about so many steps are looked at expert by expert."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LoadsJob:
    """What to follow. rule, seed: replica choice · window_steps: steps of one row of the file · output: the file, None
    for the summary alone."""

    trace: TokenTrace | CountTrace
    selection: Selection
    plan: Plan
    topology: Topology
    rule: str
    seed: int
    window_steps: int
    output: Path | None


def run(job: LoadsJob, advance: Callable[[int], None]) -> list[PhaseLoads]:
    """Write the file and sum up; advance: called with the tokens done. Raises `UsageError` when no token is left."""
    meta = job.trace.meta
    summary, windows = Summary(len(meta.layers), meta.experts, meta.top_k), Windows(job.window_steps)
    whole = isinstance(job.trace, TokenTrace) and job.window_steps == 1
    with loads_writer(job.output, meta.layers, whole) if job.output else nullcontext(_ignored) as write:
        for loads in _every(job, advance):
            summary.add(loads)
            write(windows.closed(loads))
        rest = windows.rest()
        if rest is None:
            raise UsageError("no token is left", where="trace", fix="choose other --workload or --phase")
        write(rest)
    return summary.phases()


def _ignored(loads: StepLoads) -> None:
    """Where no file was asked for."""


def _every(job: LoadsJob, advance: Callable[[int], None]) -> Iterator[StepLoads]:
    trace = job.trace
    if isinstance(trace, CountTrace):
        kept = np.ones(len(trace.tokens), np.bool_)
        if job.selection.phase is not None:
            kept &= trace.phase == job.selection.phase
        if job.selection.workloads is not None:
            kept &= np.isin(trace.workload, job.selection.workloads)
        return window_loads(trace, kept, job.plan)
    node = frozen(job.topology.node_of_rank, np.int32)
    return step_loads(
        job.selection.of(_heard(trace.batches(), advance)),
        job.plan,
        prepare(job.rule, job.plan, node, job.seed, trace.meta.layers),
        links(job.topology, "normal"),
        recorded_ranks(trace),
        max(1, trace.scan().steps // COUNTED_STEPS),
    )


def recorded_ranks(trace: TokenTrace) -> int:
    """R of the recording, 0 when its sources are not known."""
    return trace.meta.ranks or trace.scan().max_source + 1


def _heard(batches: Iterable[TokenBatch], advance: Callable[[int], None]) -> Iterator[TokenBatch]:
    for batch in batches:
        yield batch
        advance(batch.tokens)
