"""Recorded requests for the benchmarks of admission, and what is asked of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow.parquet as pq
import pytest

from easybalance_sim.arrays import frozen
from easybalance_sim.cluster.hardware import load_profile
from easybalance_sim.cluster.shapes import assumed_shape, find_shape
from easybalance_sim.cluster.topology import uniform
from easybalance_sim.cost.layer import layer_cost
from easybalance_sim.simulate.admission.judged import Course
from easybalance_sim.simulate.admission.knowledge import KINDS
from easybalance_sim.simulate.admission.run import Question
from easybalance_sim.simulate.steps.recorded import RecordedSteps, read_steps
from easybalance_sim.trace.batching import schedule, token_steps
from easybalance_sim.trace.dataset import TokenTrace, open_trace
from easybalance_sim.trace.schema import DECODE, TraceMeta
from tests.bench.recorded_requests import AT_ONCE, DATA, EXPERTS, LAYERS, TOP_K, recorded
from tests.ebsim_process import DATA as SHARED

TINYMOE = SHARED / "tinymoe_routing" / "tokens.parquet"
RANKS = 8


@dataclass(frozen=True, kw_only=True)
class Case:
    """One cluster and one trace. name: of the trace."""

    name: str
    nodes: int
    slots: int
    mode: str

    def __str__(self) -> str:
        return f"{self.name}, {self.nodes} × {RANKS // self.nodes}, {self.slots} slots, {self.mode.replace('_', ' ')}"


def tinymoe(seed: int) -> RecordedSteps:
    """As recorded."""
    if not TINYMOE.is_file():
        pytest.skip(f"needs the recording at {TINYMOE}")
    trace = open_trace([TINYMOE])
    assert isinstance(trace, TokenTrace)
    return read_steps(trace, gates=False, scores=False)[0]


def gpt_oss(seed: int) -> RecordedSteps:
    """Queued in random order; request numbers are places in the queue."""
    given = recorded()
    facts = pq.read_table(DATA / "requests.parquet").to_pandas().set_index("request_id")
    ids = pq.read_table(DATA / "routing_tokens.parquet", columns=["request_id"])["request_id"].to_numpy()[given.first]
    names = tuple(sorted(set(facts["dataset"])))
    kind = np.array([names.index(name) for name in facts.loc[ids, "dataset"]])
    queue = np.random.default_rng([seed, 7]).permutation(len(given.first))
    plan = schedule(given.length[queue], AT_ONCE)
    step, place = token_steps(plan), np.concatenate([np.arange(tokens) for tokens in plan.length])
    rows = np.argsort(step, kind="stable")
    rows = rows[step[rows] < plan.full_until]
    number = np.repeat(np.arange(len(queue)), plan.length)[rows]
    request, place = queue[number], place[rows]
    found, start = np.unique(step[rows], return_index=True)
    return RecordedSteps(
        meta=TraceMeta(kind="tokens", layers=tuple(range(LAYERS)), experts=EXPERTS, top_k=TOP_K),
        step=frozen(found, np.int64),
        start=frozen(np.append(start, len(rows)), np.int64),
        experts=frozen(given.experts[given.first[request] + place]),
        request=frozen(number, np.int64),
        position=frozen(facts.loc[ids, "first_pos"].to_numpy()[request] + place, np.int32),
        phase=frozen(np.full(len(rows), DECODE), np.uint8),
        workload=frozen(kind[request], np.int16),
        source_rank=frozen(np.full(len(rows), -1), np.int16),
        workloads=names,
    )


TRACES: dict[str, tuple[Callable[[int], RecordedSteps], str, str]] = {
    "TinyMoE": (tinymoe, "time", ""),
    "TinyMoE by request": (tinymoe, "request", ""),
    "GPT-OSS-20B": (gpt_oss, "request", "gpt-oss-20b"),
}


def asked(case: Case, steps: RecordedSteps, seed: int) -> Question:
    """Every kind of knowledge; seconds of an H200."""
    _, by, model = TRACES[case.name]
    topology, profile = uniform(RANKS, RANKS // case.nodes, case.slots), load_profile("h200")
    meta = steps.meta
    shape = find_shape(model) if model else None
    widths = shape or assumed_shape(meta.layers, meta.experts, meta.top_k, meta.groups, meta.topk_group)
    course = Course(
        topology=topology,
        cost=lambda plan, mode: layer_cost(profile, widths, topology, plan.slots_per_rank, mode, "decode"),
    )
    return Question(course=course, mode=case.mode, by=by, seed=seed, knowledge=KINDS)
