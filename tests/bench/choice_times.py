"""What choosing a replica takes on one core, beside what `replica_choice.budget` charges for it.

`python -m tests.bench.choice_times` prints a table (half a minute): steps drawn with skewed experts, 8 steps of 2
layers, the best of three runs, by the clock of the thread.
"""

from __future__ import annotations

import numpy as np

from easybalance_sim import policies
from easybalance_sim.arrays import IntArray
from easybalance_sim.cluster.topology import uniform
from easybalance_sim.plan.plan import Plan
from easybalance_sim.simulate.replica_choice.budget import budget
from easybalance_sim.simulate.replica_choice.choose import Chooser
from easybalance_sim.simulate.replica_choice.rules import BASELINE, RULES, Rule

LAYERS, STEPS, RUNS = 2, 8, 3
SIZES = ((64, 8, 80, 6), (256, 8, 288, 8), (256, 32, 288, 8), (512, 64, 640, 8))
"""Experts, ranks, slots, top k."""
TOKENS = (128, 1024, 8192)
NODE_RANKS = 8


def plan_of(experts: int, ranks: int, slots: int, popularity: IntArray) -> Plan:
    """A greedy plan for experts of these weights."""
    tokens = np.tile(popularity, (LAYERS, 1))
    problem = policies.Problem(
        forecast=tokens.astype(np.float64),
        windows=tokens[None],
        topology=uniform(ranks, min(ranks, NODE_RANKS), slots // ranks),
        seed=0,
        window_steps=1.0,
        top_k=1,
    )
    return policies.make("eplb", problem)


def drawn(draw: np.random.Generator, popularity: IntArray, ranks: int, assignments: int) -> IntArray:
    """int64[S, L, R, E] assignments of each source rank; topics of steps differ."""
    share = 50 * popularity / popularity.sum() + 1e-3
    mix = draw.dirichlet(share, size=(STEPS, LAYERS, 1))
    counts: IntArray = draw.multinomial(assignments // ranks, mix, size=(STEPS, LAYERS, ranks))
    return counts


def microseconds(plan: Plan, rule: Rule, counts: IntArray) -> float:
    """Of a layer of a step."""
    node = np.arange(plan.ranks) // NODE_RANKS
    chooser = Chooser.of(plan, rule, counts.sum(axis=2), np.arange(STEPS), node)
    chooser.choose(0, STEPS, counts)
    return min(chooser.choose(0, STEPS, counts).seconds for _ in range(RUNS)) / (STEPS * LAYERS) * 1e6


def main() -> None:
    """Print measured / charged."""
    draw = np.random.default_rng(1)
    rules = [rule for rule in RULES.values() if not rule.by_engines and rule.name != BASELINE]
    print("| slots, ranks, tokens |", " | ".join(rule.name for rule in rules), "|")
    print("|---" * (len(rules) + 1) + "|")
    for experts, ranks, slots, top_k in SIZES:
        popularity = draw.permutation(1e6 / (1 + np.arange(experts)) ** 0.7).astype(np.int64)
        plan = plan_of(experts, ranks, slots, popularity)
        for tokens in TOKENS:
            counts = drawn(draw, popularity, ranks, tokens * top_k)
            sent = counts.sum() / (STEPS * LAYERS * ranks)
            cells = [f"{microseconds(plan, one, counts):.1f} / {budget(one, plan, sent, {}).us:.1f}" for one in rules]
            print(f"| {slots}, {ranks}, {tokens} |", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
