"""What `--stress` adds to a report: five scenarios, for none of which the plan was made."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from easybalance_sim.amounts import Amount
from easybalance_sim.arrays import FloatArray
from easybalance_sim.gate.criteria import BURST, HETEROGENEOUS, MIX_CHANGE, NODE_LOSS, UNIFORM
from easybalance_sim.load.split import HELD_OUT
from easybalance_sim.planning.session import Session
from easybalance_sim.planning.stress.cases import Case
from easybalance_sim.planning.stress.counts import count_material
from easybalance_sim.planning.stress.losses import loss_cases
from easybalance_sim.planning.stress.material import Material
from easybalance_sim.planning.stress.speeds import speed_cases
from easybalance_sim.planning.stress.stretch import Stretch
from easybalance_sim.planning.stress.tokens import token_material
from easybalance_sim.replay.outcome import Outcome
from easybalance_sim.replay.traffic import CountTraffic, TokenTraffic, Traffic

WHAT = {
    MIX_CHANGE: "one kind of traffic makes 80 % of the tokens, each in turn",
    BURST: "steps of 4 times the tokens, of the usual mix and with the excess of one kind, each in turn",
    UNIFORM: "every token chooses its experts at random",
    NODE_LOSS: "a node is gone, each in turn (a rank where there is one node); lost experts are fetched, none else",
    HETEROGENEOUS: "the rank that a plan loads most itself, then such a node, at 0.8 of its speed",
}
ALONE = "a single rank has nobody to take its work"


def stress_section(
    before: Outcome, after: Outcome, traffic: Traffic, session: Session, load: FloatArray | None
) -> dict[str, dict[str, Any]]:
    """The `stress` section of a report: every scenario with its cases, in each the baseline beside the plan.

    before, after: baseline and plan on the held-out side · load: float64[L, E] of the past, by which what a lost node
    took is placed anew; None = not known, all experts count as equally busy.
    """
    if not traffic.has_held_out():
        return {name: _scenario(what, [], "nothing is held out") for name, what in WHAT.items()}
    run = _Run(before, after, _material(traffic, session, after), session, load)
    done = session.bench.progress("under stress", Amount(len(WHAT), "cases"))
    section = {}
    for number, name in enumerate(WHAT):
        section[name] = _scenario(WHAT[name], *run.cases(name))
        if name in (MIX_CHANGE, BURST):
            section[name]["left_out"] = list(run.material.left_out)
        done(number + 1)
    return section


def _scenario(what: str, cases: list[Case], why_not: str) -> dict[str, Any]:
    return {"what": what, "not_judged": why_not or None, "cases": [case.to_dict() for case in cases]}


def _material(traffic: Traffic, session: Session, after: Outcome) -> Material:
    seed = session.settings.seed
    if isinstance(traffic, CountTraffic):
        return count_material(traffic, seed)
    if isinstance(traffic, TokenTraffic):
        held = traffic.selected(HELD_OUT)
        return token_material(traffic.trace, held, after.tokens, session.bench.windowing, seed)
    raise TypeError(f"no stress traffic can be made from {type(traffic).__name__}")


class _Run:
    """The scenarios of one run, by name."""

    def __init__(
        self, before: Outcome, after: Outcome, material: Material, session: Session, load: FloatArray | None
    ) -> None:
        self.before, self.after, self.session, self.load = before, after, session, load
        self.material = material
        self.held_out = material.as_held_out()

    def cases(self, name: str) -> tuple[list[Case], str]:
        """The cases of a scenario, and why there are none."""
        if name == MIX_CHANGE:
            mixes = [self._case(kind, self.material.dominated(n)) for n, kind in enumerate(self.material.kinds)]
            return mixes, self.material.why_alike
        if name == BURST:
            return list(self._bursts()), ""
        if name == UNIFORM:
            return [self._case("uniform", self.material.uniform())], ""
        if self.session.topology.ranks == 1:
            return [], ALONE
        plans, tokens = (self.before.plan, self.after.plan), self.after.expert_tokens
        if name == NODE_LOSS:
            load = np.ones(tokens.shape) if self.load is None else self.load
            return list(loss_cases(*plans, self.held_out, self.session, load, tokens)), ""
        return list(speed_cases(*plans, self.held_out, self.session, self.load, tokens)), ""

    def _bursts(self) -> Iterator[Case]:
        yield self._case("usual mix", self.material.burst(None))
        for number, kind in enumerate(self.material.kinds):
            yield self._case(kind, self.material.burst(number))

    def _case(self, name: str, traffic: Stretch) -> Case:
        before, after = traffic.replay([self.before.plan, self.after.plan], self.session.bench)
        return Case(name=name, before=before, after=after, seed=self.session.settings.seed)
