"""Microseconds that choosing itself holds up a layer: stated by rule and size, so that a net gain is the same on every
machine.

*measured*: our kernel on one core of an AMD EPYC server, by the clock of its thread, rounded up from drawn steps
of each size (`python -m tests.bench.choice_times` prints both) · *published*: what a project that solves the
problem on a GPU says of itself · *the engine's own*: nothing, its dispatch chooses today · *stated*: by the user.

A core that gets the counts for nothing is the best case: no copy to the host and back is in these figures. A kernel on
the GPU is another matter, so whoever has one states its time instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from easybalance_sim.plan.plan import Plan
from easybalance_sim.simulate.replica_choice.rules import BASELINE, Rule

SIZES = ((128, 8), (320, 8), (320, 32), (640, 64))
"""Slots of a layer and ranks up to which a column of the table holds."""

MEASURED_US: dict[str, tuple[float, float, float, float]] = {
    "least-loaded": (2.0, 3.0, 3.0, 12.0),
    "water-filling": (3.0, 5.0, 5.0, 20.0),
    "locality-first-all": (6.0, 20.0, 75.0, 400.0),
    "locality-first": (1.0, 2.5, 2.5, 6.0),
    "least-loaded-local": (1.0, 2.5, 2.5, 6.0),
    "power-of-two": (1.0, 2.0, 2.0, 4.0),
    "power-of-two-delayed": (1.0, 2.0, 2.0, 4.0),
    "water-filling-delayed": (1.0, 2.0, 2.0, 5.0),
}

PER_ASSIGNMENT_US = 0.006
"""Of each assignment that a source sends, where replicas are drawn for one after the other (same measurement)."""
DRAWN = ("power-of-two", "power-of-two-delayed")

PUBLISHED_US = {"optimum": 100.0}
"""A linear program of one node's replicas on one SM takes about 100 µs (README of deepseek-ai/LPLB)."""

SOURCES = ("measured", "published", "the engine's own", "stated")


@dataclass(frozen=True, kw_only=True)
class Budget:
    """us: of a layer of a step · source: one of `SOURCES`."""

    us: float
    source: str


def budget(rule: Rule, plan: Plan, sent: float, stated: Mapping[str, float]) -> Budget:
    """What choosing is charged. sent: mean assignments of a source rank in a layer of a step · stated: µs by rule, in
    place of the table. Beyond its largest size the table grows with slots and ranks."""
    if rule.name in stated:
        return Budget(us=stated[rule.name], source=SOURCES[3])
    if rule.by_engines or rule.name == BASELINE:
        return Budget(us=0.0, source=SOURCES[2])
    if rule.name in PUBLISHED_US:
        return Budget(us=PUBLISHED_US[rule.name] * _beyond(plan), source=SOURCES[1])
    fits = (place for place, (slots, ranks) in enumerate(SIZES) if plan.slots <= slots and plan.ranks <= ranks)
    of_size = MEASURED_US[rule.name][next(fits, -1)] * _beyond(plan)
    return Budget(us=of_size + (PER_ASSIGNMENT_US * sent if rule.name in DRAWN else 0.0), source=SOURCES[0])


def _beyond(plan: Plan) -> float:
    slots, ranks = SIZES[-1]
    return max(1.0, plan.slots / slots) * max(1.0, plan.ranks / ranks)
