"""Requests sent to the node whose experts they use, planned with the placement: copies between nodes, and their price.

8 ranks on 2 or 4 nodes, replicas chosen as SGLang's static dispatch does (the own node first) for everybody. TinyMoE:
fitted on requests that ended in the first half of the recording, judged on the others in the second half, on the
recorded schedule. GPT-OSS-20B: 64 requests at once in random order, half of them fitted, the other half judged; its 11
benchmark sets are the workloads. Rows are means over seeds, single seeds in brackets.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow.parquet as pq
import pytest

from easybalance_sim.arrays import frozen
from easybalance_sim.cluster.hardware import load_profile
from easybalance_sim.cluster.shapes import assumed_shape, find_shape
from easybalance_sim.cluster.topology import uniform
from easybalance_sim.cost.layer import layer_cost
from easybalance_sim.simulate.admission.judged import MODES, Course
from easybalance_sim.simulate.admission.knowledge import KINDS
from easybalance_sim.simulate.admission.requests import requests_of, split_sides
from easybalance_sim.simulate.admission.run import Answer, Question, Variant, what_if
from easybalance_sim.simulate.admission.topics import curve, fit_topics
from easybalance_sim.simulate.steps.recorded import RecordedSteps, read_steps
from easybalance_sim.trace.batching import schedule, token_steps
from easybalance_sim.trace.dataset import TokenTrace, open_trace
from easybalance_sim.trace.schema import DECODE, TraceMeta
from tests.bench.recorded_requests import AT_ONCE, DATA, EXPERTS, LAYERS, TOP_K, recorded
from tests.ebsim_process import DATA as SHARED

SEEDS = [int(seed) for seed in os.environ.get("EBSIM_BENCH_SEEDS", "0,1,2").split(",")]
TINYMOE = SHARED / "tinymoe_routing" / "tokens.parquet"
RANKS = 8
HEADER = (
    "| case | placement, admission | copies per token | fewer than EPLB | P99 | against EPLB | MB per step | layer µs "
    "| KV of ranks | of nodes | spilled | moved | run again |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|"
)


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


def told(case: Case, answers: list[Answer]) -> list[str]:
    """A row per variant; a variant that some seed could not have is left out."""
    names = [one.name for one in answers[0].variants if all(one.name in _names(answer) for answer in answers)]
    return [_row(str(case) if name == names[0] else "", name, answers, case.mode) for name in names]


def _names(answer: Answer) -> list[str]:
    return [one.name for one in answer.variants]


def _row(case: str, name: str, answers: list[Answer], mode: str) -> str:
    each = [answer.variant(name) for answer in answers]
    bases = [answer.variants[0] for answer in answers]
    cuts = [100 * one.cut(base, mode) for one, base in zip(each, bases, strict=True)]
    tails = [
        one.judged.balance.window_p99 - base.judged.balance.window_p99 for one, base in zip(each, bases, strict=True)
    ]

    def mean(of: Callable[[Variant], float]) -> float:
        return float(np.mean([of(one) for one in each]))

    cells = [
        case,
        name.replace("request mod R", "mod R"),
        f"{mean(lambda one: one.judged.crossing[mode].copies_per_token):.3f}",
        f"{np.mean(cuts):.1f} % [{', '.join(f'{cut:.0f}' for cut in cuts)}]",
        f"{mean(lambda one: one.judged.balance.window_p99):.3f}",
        f"{np.mean(tails):+.3f} [{', '.join(f'{tail:+.3f}' for tail in tails)}]",
        f"{mean(lambda one: one.judged.crossing[mode].bytes_per_step) / 1e6:.1f}",
        f"{mean(lambda one: one.judged.crossing[mode].layer_us_p50):.0f} / "
        f"{mean(lambda one: one.judged.crossing[mode].layer_us_p99):.0f}",
        f"{mean(lambda one: one.price.kv_rank.mean):.2f} / {mean(lambda one: one.price.kv_rank.p99):.2f}",
        f"{mean(lambda one: one.price.kv_node.mean):.2f} / {mean(lambda one: one.price.kv_node.p99):.2f}",
        f"{100 * mean(lambda one: one.price.spilled_share):.0f} %",
        f"{100 * mean(lambda one: one.price.cold.moved_share):.0f} %",
        f"{100 * mean(lambda one: one.price.cold.recomputed_share):.1f} %",
    ]
    return f"| {' | '.join(cells)} |"


CASES = [
    Case(name=name, nodes=nodes, slots=slots, mode=mode)
    for name, slots in (("TinyMoE", 10), ("TinyMoE", 12), ("GPT-OSS-20B", 5))
    for nodes in (2, 4)
    for mode in ("low_latency", "normal")
]


@pytest.mark.bench
@pytest.mark.parametrize("case", CASES, ids=str)
def test_admission(case: Case, publish: Callable[[str], None]) -> None:
    made = TRACES[case.name][0]
    answers = []
    for seed in SEEDS:
        steps = made(seed)
        answers.append(what_if(steps, asked(case, steps, seed)))
    publish("\n".join([HEADER, *told(case, answers)]))
    for answer in answers:
        by_probe, alone = answer.variant("joint, probe"), answer.variant("traffic_search, request mod R")
        assert by_probe.cut(answer.variants[0], case.mode) > 0
        assert by_probe.price.worst_overload <= 1.5 + 1e-9
        assert alone.judged.least_remote > 0


@pytest.mark.bench
@pytest.mark.parametrize("name", TRACES)
def test_how_many_first_tokens(name: str, publish: Callable[[str], None]) -> None:
    """How well first tokens tell the topic of an unseen request, 16 topics."""
    make, by, _ = TRACES[name]
    known = []
    for seed in SEEDS:
        sides = split_sides(make(seed), by, seed=seed)
        past, unseen = ((side, requests_of(side)) for side in (sides.fit, sides.judged))
        known.append(curve(fit_topics(*past, 16, seed), past, unseen))
    rows = ["| trace | first tokens | topic as by all tokens | purity by workload | workload foretold |"]
    rows.append("|---|---|---|---|---|")
    for each in zip(*known, strict=True):
        cells = [np.mean([getattr(one, of) or 0.0 for one in each]) for of in ("same_topic", "purity", "accuracy")]
        tokens = str(each[0].tokens) if each[0].tokens else "all"
        rows.append(f"| {name} | {tokens} | " + " | ".join(f"{100 * cell:.0f} %" for cell in cells) + " |")
    publish("\n".join(rows))
    assert known[0][-1].same_topic == 1.0


@pytest.mark.bench
@pytest.mark.parametrize("case", [case for case in CASES if case.mode == "normal"], ids=str)
def test_eplb_with_even_replicas(case: Case, publish: Callable[[str], None]) -> None:
    """What EPLB's plan does where replicas take turns instead, wherever a token enters."""
    figures = []
    for seed in SEEDS:
        steps = TRACES[case.name][0](seed)
        ask = replace(asked(case, steps, seed), knowledge=(), proposals=1)
        answer = what_if(steps, replace(ask, course=replace(ask.course, replicas="even")))
        judged = answer.variants[0].judged
        copies = [judged.crossing[mode].copies_per_token for mode in MODES]
        figures.append([*copies, judged.balance.window_p99])
    cells = " | ".join(f"{value:.3f}" for value in np.mean(figures, axis=0))
    head = "| cluster | copies, normal | low latency | P99 |\n|---|---|---|---|\n"
    publish(f"{head}| {case.name}, {case.nodes} × {RANKS // case.nodes}, {case.slots} slots | {cells} |")
    assert min(figures[0]) > 0
