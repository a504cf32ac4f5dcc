"""Requests sent to the node whose experts they use, planned with the placement: copies between nodes, and their price.

8 ranks on 2 or 4 nodes, replicas chosen as SGLang's static dispatch does (the own node first) for everybody. TinyMoE:
fitted on requests that ended in the first half of the recording, judged on the others in the second half, on the
recorded schedule; in the rows "by request" fitted on a random half of the requests. GPT-OSS-20B: 64 requests at once in
random order, half of them fitted, the other half judged; its 11 benchmark sets are the workloads. Rows are means over
seeds, single seeds in brackets.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from easybalance_sim.simulate.admission.judged import MODES
from easybalance_sim.simulate.admission.requests import requests_of, split_sides
from easybalance_sim.simulate.admission.run import Answer, Variant, what_if
from easybalance_sim.simulate.admission.topics import curve, fit_topics
from tests.bench.admission_traces import RANKS, TRACES, Case, asked

SEEDS = [int(seed) for seed in os.environ.get("EBSIM_BENCH_SEEDS", "0,1,2").split(",")]
COLUMNS = (
    "case", "placement, admission", "copies per token", "at least", "fewer than EPLB", "P99", "against EPLB",
    "MB per step", "layer µs", "KV of ranks", "of nodes", "spilled", "moved", "run again",
)  # fmt: skip
HEADER = f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}"


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
        f"{mean(lambda one: one.judged.least_remote):.3f}" if mode == "low_latency" else "–",
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
BY_REQUEST = [Case(name="TinyMoE by request", nodes=2, slots=slots, mode="low_latency") for slots in (10, 12)]


@pytest.mark.bench
@pytest.mark.parametrize("case", [*CASES, *BY_REQUEST], ids=str)
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
@pytest.mark.parametrize("name", ["TinyMoE", "GPT-OSS-20B"])
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
