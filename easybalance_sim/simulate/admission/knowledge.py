"""What admission goes by when a request comes, for past requests as for unseen ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from easybalance_sim.arrays import FloatArray, IntArray, sealed
from easybalance_sim.errors import UsageError
from easybalance_sim.plan.plan import Plan
from easybalance_sim.simulate.admission.homes import first_homes, home_cost, own_cost, remote_share, topic_counts
from easybalance_sim.simulate.admission.requests import Requests
from easybalance_sim.simulate.admission.topics import Topics
from easybalance_sim.simulate.steps.recorded import RecordedSteps

KINDS = ("probe", "topic", "chunk", "workload")
"""`probe`: the experts of its first tokens, which run before it is admitted · `topic`: the experts of the topic that
these tokens tell · `chunk`: the experts of its whole first chunk, which so does not run at home · `workload`: the
experts of its workload, known before anything runs."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Crowd:
    """Requests of one side with what is known of them. probed: int64[Q] tokens that run first · topic: int64[Q] rows of
    the experts that their topics use, None = their own are taken."""

    steps: RecordedSteps
    requests: Requests
    probed: IntArray
    topic: IntArray | None


@dataclass(frozen=True, kw_only=True, eq=False)
class Knowledge:
    """One of `KINDS`, made ready. usage: int64[k, L, E] assignments of past requests by topic or workload · told:
    int64[Q] topic of every past request, from all of its tokens."""

    kind: str
    past: Crowd
    unseen: Crowd
    usage: IntArray
    told: IntArray

    def cost(self, crowd: Crowd, plan: Plan, group: IntArray) -> FloatArray:
        """float64[Q, G] share of the assignments of each request that is expected to leave each group of ranks."""
        if crowd.topic is None:
            return own_cost(crowd.steps, crowd.requests, crowd.probed, plan, group)
        return remote_share(self.usage, plan, group)[crowd.topic]

    def start(self, groups: int, seed: int) -> FloatArray:
        """float64[Q, G] of past requests while there is no plan yet: topics that use the same experts go together."""
        return home_cost(first_homes(self.usage, groups, seed), groups)[self.told]


def know(
    kind: str,
    topics: Topics,
    first_tokens: int,
    past: tuple[RecordedSteps, Requests],
    unseen: tuple[RecordedSteps, Requests],
) -> Knowledge:
    """Make a kind ready. Raises `UsageError` for an unknown one, or for workloads where all requests have the same."""
    if kind not in KINDS:
        raise UsageError(f"no way {kind!r} to know a request", where="knowledge", fix=f"choose {', '.join(KINDS)}")
    if kind == "workload":
        if len(np.unique(past[1].workload)) < 2:
            raise UsageError("the trace tells no workloads apart", where="column workload", fix="use probe or topic")
        told = past[1].workload.astype(np.int64)
        size = 1 + max(int(one[1].workload.max()) for one in (past, unseen))
    else:
        told, size = topics.told(*past), len(topics)
    return Knowledge(
        kind=kind,
        past=_crowd(kind, topics, first_tokens, *past),
        unseen=_crowd(kind, topics, first_tokens, *unseen),
        usage=topic_counts(*past, told, size),
        told=sealed(told),
    )


def _crowd(kind: str, topics: Topics, first_tokens: int, steps: RecordedSteps, requests: Requests) -> Crowd:
    topic = None
    probed = np.zeros(len(requests), np.int64)
    if kind == "workload":
        topic = requests.workload.astype(np.int64)
    elif kind == "chunk":
        probed = requests.chunk
    else:
        probed = np.minimum(requests.tokens, first_tokens)
        topic = topics.told(steps, requests, first_tokens) if kind == "topic" else None
    return Crowd(steps=steps, requests=requests, probed=sealed(probed), topic=topic)
