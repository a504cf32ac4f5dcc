"""The rules that share the assignments of a step among replicas, and what each has to see for it.

| rule | sees | choice |
|---|---|---|
| even | nothing | assignments take turns over the expert's replicas |
| the rules of `replay.dispatch` | nothing | what serving engines do today |
| least-loaded | this step, all ranks | experts in descending load, each assignment to the least loaded rank |
| water-filling | this step, all ranks | shares levelled again and again, then rounded |
| optimum | this step, all ranks | the lowest possible busiest rank, by flow: the oracle |
| locality-first-all | this step, all ranks | own rank, else own node, else all: there the least loaded rank |
| locality-first | what the source sends | the same by the source's own counts |
| least-loaded-local | what the source sends | the source evens out what it sends itself |
| power-of-two | what the source sends | of two drawn replicas that of the rank it sends less to |
| power-of-two-delayed | earlier steps | of two drawn replicas that of the rank that had less |
| water-filling-delayed | earlier steps | shares that would have levelled the earlier steps |

Least-loaded goes over the experts once: of large steps under a plan that is even on the mean it makes less even ones
than taking turns does. Water-filling comes back to each expert and does not.
"""

from __future__ import annotations

from dataclasses import dataclass

from easybalance_sim.errors import UsageError
from easybalance_sim.kernels.reference_replica_sources import (
    ALONE,
    NEAR,
    NEAR_TOGETHER,
    TWO_ALONE,
    TWO_DELAYED,
    WEIGHTED,
)
from easybalance_sim.kernels.reference_replicas import EVEN, LEAST_LOADED, OPTIMUM, WATER
from easybalance_sim.replay import dispatch

SENSORS = {
    "none": "nothing",
    "local": "what the source rank itself sends in this step",
    "step": "the counts of this step on all ranks before dispatch: an all-gather of R × E counters in every layer",
    "delayed": "counts of earlier steps, gathered beside the work",
}
COUNTS, SOURCES, ENGINE = "counts", "sources", "engine"
"""What a rule works on: the counts of a step, the counts of every source rank, or single tokens as an engine does."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """sensor: one of `SENSORS` · works_on: `COUNTS`, `SOURCES` or `ENGINE` · code: of its kernel."""

    name: str
    sensor: str
    works_on: str
    code: int = 0

    @property
    def by_engines(self) -> bool:
        """A rule of `replay.dispatch`."""
        return self.name in dispatch.RULES

    @property
    def everywhere(self) -> bool:
        """Every source rank decides for itself, so that all do it at the same time."""
        return self.works_on == SOURCES and self.sensor != "step"


def _own() -> tuple[Rule, ...]:
    return (
        Rule(name="even", sensor="none", works_on=COUNTS, code=EVEN),
        Rule(name="least-loaded", sensor="step", works_on=COUNTS, code=LEAST_LOADED),
        Rule(name="water-filling", sensor="step", works_on=COUNTS, code=WATER),
        Rule(name="optimum", sensor="step", works_on=COUNTS, code=OPTIMUM),
        Rule(name="locality-first-all", sensor="step", works_on=SOURCES, code=NEAR_TOGETHER),
        Rule(name="locality-first", sensor="local", works_on=SOURCES, code=NEAR),
        Rule(name="least-loaded-local", sensor="local", works_on=SOURCES, code=ALONE),
        Rule(name="power-of-two", sensor="local", works_on=SOURCES, code=TWO_ALONE),
        Rule(name="power-of-two-delayed", sensor="delayed", works_on=SOURCES, code=TWO_DELAYED),
        Rule(name="water-filling-delayed", sensor="delayed", works_on=SOURCES, code=WEIGHTED),
    )


RULES = {rule.name: rule for rule in _own()} | {
    name: Rule(name=name, sensor="none", works_on=ENGINE) for name in dispatch.RULES if name != "even"
}
BASELINE = "even"
DEFAULT = (BASELINE, "vllm", "sglang-static", "sglang-dynamic", "tensorrt-llm", *(rule.name for rule in _own()[1:]))


def rule_named(name: str) -> Rule:
    """Raises `UsageError` for an unknown rule."""
    if name not in RULES:
        raise UsageError(f"no replica choice {name!r}", fix=f"choose {', '.join(RULES)}")
    return RULES[name]
