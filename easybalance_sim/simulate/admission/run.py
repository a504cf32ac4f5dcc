"""The what-if: topics, placements and admission are fitted on past requests and judged on others, on one schedule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from easybalance_sim import policies
from easybalance_sim.cluster.topology import Topology
from easybalance_sim.errors import UsageError
from easybalance_sim.plan.plan import Plan
from easybalance_sim.policies import NotApplicable
from easybalance_sim.simulate.admission.admit import Admitted, Rule, admit, by_number, least_loaded
from easybalance_sim.simulate.admission.joint import Past, plan_alone, plan_jointly, tail_limit
from easybalance_sim.simulate.admission.judged import MODES, Course, Judged, judge
from easybalance_sim.simulate.admission.knowledge import KINDS, Knowledge, know
from easybalance_sim.simulate.admission.price import NIC_BYTES_PER_S, Price, price_of
from easybalance_sim.simulate.admission.requests import Requests, Sides, requests_of, split_sides
from easybalance_sim.simulate.admission.topics import Known, Topics, curve, fit_topics
from easybalance_sim.simulate.steps.recorded import RecordedSteps

BY_NUMBER, IDLEST = "request mod R", "least loaded"
BASELINE = ("eplb", BY_NUMBER)
OTHERS = (("eplb", IDLEST), ("eplb_hierarchical", BY_NUMBER), ("window_search", BY_NUMBER))
RULES = (Rule(price=0.25), Rule(price=0.5), Rule(price=1.0))
GRAINS = ("node", "rank")
STAGES = len(OTHERS) + len(KINDS) + 3
"""Units of progress of `what_if`."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Question:
    """What is asked. mode: all-to-all mode whose copies the planner saves · by, held_out: see `split_sides` · topics:
    at most so many · first_tokens: by which a request is known · knowledge: of `KINDS`, one joint plan for each ·
    grain: whether requests are sent to a node or to a rank for its experts · rules: prices of load that are tried ·
    kv_bytes_per_token: 0 = unknown · link_bytes_per_s: at which caches move · proposals: see `Past`."""

    course: Course
    mode: str = "normal"
    by: str = "time"
    held_out: float = 0.5
    topics: int = 16
    first_tokens: int = 16
    knowledge: tuple[str, ...] = ("probe", "workload")
    grain: str = "node"
    rules: tuple[Rule, ...] = RULES
    kv_bytes_per_token: int = 0
    link_bytes_per_s: float = NIC_BYTES_PER_S
    seed: int = 0
    proposals: int = 0

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise UsageError(f"no mode {self.mode!r}", where="admission", fix=f"choose {', '.join(MODES)}")
        if self.grain not in GRAINS:
            raise UsageError(f"no grain {self.grain!r}", where="admission", fix=f"choose {', '.join(GRAINS)}")
        if self.topics < 1 or self.first_tokens < 1 or not self.rules:
            raise UsageError("topics, first tokens and rules must be at least one", where="admission")

    @property
    def domains(self) -> Topology:
        """The cluster with what requests are sent to as its nodes."""
        topology = self.course.topology
        return topology if self.grain == "node" else replace(topology, node_of_rank=np.arange(topology.ranks))


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One placement with one admission, judged on requests that neither has seen. rule: that was chosen, None where
    experts do not matter."""

    policy: str
    admission: str
    rule: Rule | None
    judged: Judged
    price: Price

    @property
    def name(self) -> str:
        """Policy and admission."""
        return f"{self.policy}, {self.admission}"

    def cut(self, other: Variant, mode: str) -> float:
        """Share of another's copies between nodes that is gone."""
        theirs = other.judged.crossing[mode].copies_per_token
        return 1 - self.judged.crossing[mode].copies_per_token / theirs if theirs else 0.0

    def to_dict(self) -> dict[str, Any]:
        """For reports."""
        return {"name": self.name, **asdict(self)}


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What was found. fit_requests, requests, tokens, steps: fitted on, judged on · known: how well first tokens tell
    topics · variants: the first is the baseline · notes: what could not be tried, and why."""

    mode: str
    seed: int
    fit_requests: int
    requests: int
    tokens: int
    steps: int
    known: tuple[Known, ...]
    variants: tuple[Variant, ...]
    notes: tuple[str, ...]

    def variant(self, name: str) -> Variant:
        """By its name; raises KeyError."""
        return {one.name: one for one in self.variants}[name]

    def to_dict(self) -> dict[str, Any]:
        """For reports; every variant with its cut against the baseline."""
        base = self.variants[0]
        found = asdict(self)
        found["variants"] = [
            one.to_dict()
            | {
                "fewer_copies": {mode: one.cut(base, mode) for mode in MODES},
                "window_p99_difference": one.judged.balance.window_p99 - base.judged.balance.window_p99,
            }
            for one in self.variants
        ]
        return found


def what_if(steps: RecordedSteps, question: Question, advance: Callable[[int], None] = lambda done: None) -> Answer:
    """Compare placements and admissions; advance: called with units done of `STAGES`. Deterministic per seed.

    Raises `UsageError` when the requests cannot be split.
    """
    desk = _Desk.of(split_sides(steps, question.by, question.held_out, question.seed), question)
    advance(1)
    variants: list[Variant] = []
    notes: list[str] = []
    for label, tried in desk.trials():
        try:
            variants.append(tried())
        except (NotApplicable, UsageError) as reason:
            notes.append(f"{label}: {reason}")
        advance(1)
    advance(len(KINDS) - len(question.knowledge))
    judged = slice(desk.sides.first, desk.sides.end)
    return Answer(
        mode=question.mode,
        seed=question.seed,
        fit_requests=len(desk.past.requests),
        requests=len(desk.unseen),
        tokens=int(np.diff(desk.sides.judged.start)[judged].sum()),
        steps=desk.sides.end - desk.sides.first,
        known=curve(desk.topics, (desk.past.steps, desk.past.requests), (desk.sides.judged, desk.unseen)),
        variants=tuple(variants),
        notes=tuple(notes),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Desk:
    """Everything that variants are made from. limit: tail of rank loads that a choice has to keep on past requests."""

    question: Question
    sides: Sides
    past: Past
    unseen: Requests
    topics: Topics
    limit: float

    @classmethod
    def of(cls, sides: Sides, question: Question) -> _Desk:
        past = Past(
            steps=sides.fit,
            requests=requests_of(sides.fit),
            course=question.course,
            domains=question.domains,
            mode=question.mode,
            seed=question.seed,
            proposals=question.proposals,
        )
        base = past.judge(policies.make("eplb", past.problem()), by_number(past.requests, past.domains.ranks))
        return cls(
            question=question,
            sides=sides,
            past=past,
            unseen=requests_of(sides.judged),
            topics=fit_topics(past.steps, past.requests, question.topics, question.seed),
            limit=tail_limit(base),
        )

    def trials(self) -> Iterator[tuple[str, Callable[[], Variant]]]:
        """Every variant, to be tried."""
        for policy, admission in (BASELINE, *OTHERS):
            yield f"{policy}, {admission}", partial(self.named, policy, admission)
        yield f"traffic_search, {BY_NUMBER}", self.alone
        for kind in self.question.knowledge:
            yield f"joint, {kind}", partial(self.joint, kind)

    def named(self, policy: str, admission: str) -> Variant:
        """A policy that knows nothing of admission, and an admission that knows nothing of experts."""
        plan = policies.make(policy, replace(self.past.problem(), topology=self.question.course.topology))
        return self._judged(policy, admission, plan, self._blind(self.unseen, admission))

    def alone(self) -> Variant:
        """The placement for few crossings of requests that enter anywhere."""
        choice = plan_alone(self.past, self._blind(self.past.requests, BY_NUMBER), self.limit)
        return self._judged("traffic_search", BY_NUMBER, choice.plan, self._blind(self.unseen, BY_NUMBER))

    def joint(self, kind: str) -> Variant:
        """Placement and admission for each other."""
        question, group = self.question, self.past.domains.node_of_rank
        mind = know(
            kind,
            self.topics,
            question.first_tokens,
            (self.past.steps, self.past.requests),
            (self.sides.judged, self.unseen),
        )
        choice = plan_jointly(
            self.past,
            mind.start(self.past.domains.nodes, question.seed),
            lambda plan: mind.cost(mind.past, plan, group),
            question.rules,
            self.limit,
            mind.past.probed,
        )
        admitted = self._knowing(mind, choice.plan, choice.rule)
        return self._judged("joint", kind, choice.plan, admitted, choice.rule)

    def _knowing(self, mind: Knowledge, plan: Plan, rule: Rule) -> Admitted:
        group = self.past.domains.node_of_rank
        return admit(self.unseen, mind.cost(mind.unseen, plan, group), group, rule, mind.unseen.probed)

    def _blind(self, requests: Requests, admission: str) -> Admitted:
        ranks = self.question.course.topology.ranks
        return by_number(requests, ranks) if admission == BY_NUMBER else least_loaded(requests, ranks)

    def _judged(self, policy: str, admission: str, plan: Plan, admitted: Admitted, rule: Rule | None = None) -> Variant:
        question, span = self.question, (self.sides.first, self.sides.end)
        price = price_of(
            self.unseen,
            admitted,
            question.course.topology,
            first=span[0],
            end=span[1],
            kv_bytes_per_token=question.kv_bytes_per_token,
            link_bytes_per_s=question.link_bytes_per_s,
        )
        judged = judge(question.course, plan, self.sides.judged, admitted.source(self.unseen), *span)
        return Variant(policy=policy, admission=admission, rule=rule, judged=judged, price=price)
