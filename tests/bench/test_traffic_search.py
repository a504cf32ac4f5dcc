"""Copies between nodes on recorded routing: traffic search, EPLB and relabelled EPLB on held-out requests.

8 ranks × 5 slots on 2 or 4 nodes, 64 requests at once, windows of 16 steps, requests enter at a random node, a node
with a replica serves itself. Prices are chosen on the fit side alone. P99: mean over layers of the P99 over held-out
windows of busiest / mean rank. A row is a split with its seeds in brackets, or a seed with its splits in brackets.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from easybalance_sim import policies
from easybalance_sim.arrays import FloatArray
from easybalance_sim.cluster.topology import Topology, uniform
from easybalance_sim.load.sampling import TokenSample
from easybalance_sim.plan.plan import Plan
from easybalance_sim.policies import Effort, Problem
from tests.bench.recorded_requests import Recorded, Served, in_topic_order, recorded, serve, splits
from tests.bench.sglang_ports import sglang_ports

SEEDS = [int(seed) for seed in os.environ.get("EBSIM_BENCH_SEEDS", "0,1,2").split(",")]
WINDOW_STEPS, SAMPLED = 16, 3000
POLICIES = ("eplb", "eplb_relabelled", "traffic_search")
HEADER = (
    "| case | EPLB | EPLB relabelled | traffic search | fewer than EPLB | fewer than relabelled | P99 of EPLB "
    "| P99 of traffic search |\n|---|---|---|---|---|---|---|---|"
)


@dataclass(frozen=True, kw_only=True)
class Score:
    """mean, p99: imbalance · copies: distinct remote nodes per token · messages: remote assignments per token."""

    mean: float
    p99: float
    copies: float
    messages: float


def problem_of(given: Recorded, queue: list[int], topology: Topology, seed: int, low_latency: bool) -> Problem:
    fit = serve(given, np.array(queue), WINDOW_STEPS, topology.nodes, seed)
    again = serve(given, in_topic_order(given, np.array(queue), seed), WINDOW_STEPS, topology.nodes, seed)
    rows = np.sort(np.random.default_rng([seed, 3]).choice(len(fit.node), SAMPLED, replace=False))
    windows = fit.windows.sum(axis=3)
    return Problem(
        forecast=windows.mean(axis=0), windows=windows, rebatched=again.windows.sum(axis=3), topology=topology,
        seed=seed, window_steps=WINDOW_STEPS, per_assignment=low_latency,
        sample=TokenSample(experts=fit.experts[rows], source_node=np.full(SAMPLED, -1, np.int16)),
        effort=Effort(proposals=int(os.environ.get("EBSIM_BENCH_PROPOSALS", "0"))),
    )  # fmt: skip


def judge(plan: Plan, held: Served, topology: Topology) -> Score:
    """What the dispatcher would pay, each window with the sources that it had; remote replicas are drawn evenly."""
    node = topology.node_of_rank[plan.rank_of_slot]
    ratio, copies, messages = [], 0.0, 0.0
    for layer, slots in enumerate(plan.expert_of_slot):
        on = np.zeros((plan.experts, topology.nodes))
        np.add.at(on, (slots, node), 1)
        lacks, total = on == 0, on.sum(axis=1)
        tokens = held.windows[:, layer].astype(np.float64)
        away = (tokens * lacks).sum(axis=2) / total
        per_slot = (tokens / np.maximum(on, 1))[:, slots, node] + away[:, slots]
        loads: FloatArray = np.add.reduceat(per_slot, plan.slot_start[:-1], axis=1)
        ratio.append(loads.max(axis=1) / loads.mean(axis=1))
        ids = held.experts[:, layer]
        missing = lacks[ids, held.node[:, None]]
        avoids = np.where(missing[:, :, None], 1 - on[ids] / total[ids][:, :, None], 1.0).prod(axis=1)
        copies += float((1 - avoids).sum(axis=1).mean()) / plan.layers
        messages += float(missing.sum(axis=1).mean()) / plan.layers
    p99 = np.quantile(ratio, 0.99, axis=1).mean()
    return Score(mean=float(np.mean(ratio)), p99=float(p99), copies=copies, messages=messages)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One split of one seed: scores of EPLB, relabelled EPLB and traffic search."""

    split: str
    seed: int
    eplb: Score
    relabelled: Score
    ours: Score
    paid: str

    def cut(self, other: Score) -> float:
        """Share of the other's traffic that is gone."""
        return 1 - float(getattr(self.ours, self.paid)) / float(getattr(other, self.paid))


def compare(given: Recorded, topology: Topology, seed: int, low_latency: bool) -> list[Row]:
    rows = []
    for name, (fit, held_out) in splits(given, seed).items():
        problem = problem_of(given, fit.tolist(), topology, seed, low_latency)
        held = serve(given, held_out, WINDOW_STEPS, topology.nodes, seed + 1000)
        scores = [judge(policies.make(each, problem), held, topology) for each in POLICIES]
        paid = "messages" if low_latency else "copies"
        rows.append(Row(split=name, seed=seed, eplb=scores[0], relabelled=scores[1], ours=scores[2], paid=paid))
    return rows


def line(label: str, rows: list[Row]) -> str:
    """A Markdown row: averages, and in brackets what single rows say."""

    def mean(of: Callable[[Row], float]) -> float:
        return float(np.mean([of(row) for row in rows]))

    def cuts(of: Callable[[Row], Score]) -> str:
        each = ", ".join(f"{100 * row.cut(of(row)):.0f}" for row in rows)
        return f"{100 * mean(lambda row: row.cut(of(row))):.1f} % [{each}]"

    paid = rows[0].paid
    each: list[Callable[[Row], Score]] = [lambda row: row.eplb, lambda row: row.relabelled, lambda row: row.ours]
    traffic = " | ".join(f"{np.mean([getattr(of(row), paid) for row in rows]):.3f}" for of in each)
    tails = ", ".join(f"{row.ours.p99 - row.eplb.p99:+.3f}" for row in rows)
    return (
        f"| {label} | {traffic} | {cuts(lambda row: row.eplb)} | {cuts(lambda row: row.relabelled)} "
        f"| {mean(lambda row: row.eplb.p99):.3f} | {mean(lambda row: row.ours.p99):.3f} [{tails}] |"
    )


@pytest.mark.bench
@pytest.mark.parametrize(("nodes", "low_latency"), [(2, False), (4, False), (2, True), (4, True)])
def test_crossings(nodes: int, low_latency: bool, capsys: pytest.CaptureFixture[str]) -> None:
    given, topology = recorded(), uniform(8, 8 // nodes, 5)
    rows, begin = [], time.perf_counter()
    for seed in SEEDS:
        rows += compare(given, topology, seed, low_latency)
    mode = "low latency" if low_latency else "normal"
    with capsys.disabled():
        print("\n" + HEADER)
        for split in dict.fromkeys(row.split for row in rows):
            print(line(f"{nodes} nodes, {mode}, {split}", [row for row in rows if row.split == split]))
        for seed in SEEDS:
            print(line(f"{nodes} nodes, {mode}, seed {seed}", [row for row in rows if row.seed == seed]))
        print(f"{time.perf_counter() - begin:.0f} s", flush=True)
    assert min(row.cut(row.relabelled) for row in rows) > 0


@pytest.mark.bench
@pytest.mark.parametrize("nodes", [2, 4])
def test_crossings_of_peers(nodes: int, capsys: pytest.CaptureFixture[str]) -> None:
    """The same splits and seeds for SGLang's two ports, which do not look at nodes."""
    given, topology = recorded(), uniform(8, 8 // nodes, 5)
    scores: dict[str, list[Score]] = {}
    for seed in SEEDS:
        for fit, held_out in splits(given, seed).values():
            windows = serve(given, fit, WINDOW_STEPS, nodes, seed).windows.sum(axis=3)
            held = serve(given, held_out, WINDOW_STEPS, nodes, seed + 1000)
            plain = Problem(forecast=windows.mean(axis=0), windows=windows, topology=topology)
            plans = {"EPLB": policies.make("eplb", plain)}
            if (ports := sglang_ports()) is not None:
                plans |= {f"SGLang {name}": plan for name, plan in ports.plans(windows, topology).items()}
            for name, plan in plans.items():
                scores.setdefault(name, []).append(judge(plan, held, topology))
    with capsys.disabled():
        print(f"\n| {nodes} nodes | remote nodes per token | remote assignments | P99 |\n|---|---|---|---|")
        for name, each in scores.items():
            figures = (np.mean([getattr(one, of) for one in each]) for of in ("copies", "messages", "p99"))
            print("| {} | {:.3f} | {:.3f} | {:.3f} |".format(name, *figures), flush=True)
    assert min(one.copies for each in scores.values() for one in each) > 0
