"""`Stretch`: traffic that plans are replayed on, of tokens or of counts, on any cluster of the session's hardware."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from easybalance_sim.arrays import IntArray
from easybalance_sim.cluster.topology import Topology
from easybalance_sim.cost.layer import layer_cost
from easybalance_sim.load.counting import Windowing
from easybalance_sim.plan.plan import Plan
from easybalance_sim.planning.session import Session
from easybalance_sim.replay.engine import links, replay, subject
from easybalance_sim.replay.expected import replay_counts
from easybalance_sim.replay.outcome import Outcome
from easybalance_sim.replay.traffic import Bench
from easybalance_sim.trace.schema import TokenBatch, TraceMeta


class Stretch(Protocol):
    """Some traffic."""

    def replay(self, plans: Sequence[Plan], bench: Bench) -> list[Outcome]:
        """Every plan on all of it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TokenStretch:
    """Whole steps of tokens, in memory. anew: their sources are request mod R, whatever the ranks of the recording."""

    meta: TraceMeta
    batch: TokenBatch
    windowing: Windowing
    anew: bool = False

    def replay(self, plans: Sequence[Plan], bench: Bench) -> list[Outcome]:
        """Every token under every plan."""
        subjects = [
            subject(plan, bench.topology, bench.rule, bench.cost(plan), bench.seed, self.meta.layers) for plan in plans
        ]
        recorded = 0 if self.anew else bench.recorded_ranks
        return replay([self.batch], subjects, links(bench.topology, bench.mode), self.windowing, recorded)


@dataclass(frozen=True, kw_only=True, eq=False)
class CountStretch:
    """Windows of counts. tokens: int64[W, L, E] assignments · times: steps are that many times as large as usual."""

    meta: TraceMeta
    tokens: IntArray
    times: int = 1

    def replay(self, plans: Sequence[Plan], bench: Bench) -> list[Outcome]:
        """What is expected of every plan."""
        route, step_tokens = links(bench.topology, bench.mode), bench.step_tokens * self.times
        return [
            replay_counts(
                self.tokens, self.meta.top_k, plan, bench.cost(plan), bench.topology, route, step_tokens, bench.seed
            )
            for plan in plans
        ]


def bench_on(session: Session, topology: Topology) -> Bench:
    """The session's bench on another cluster of the same hardware."""
    return replace(
        session.bench,
        topology=topology,
        cost=lambda plan: layer_cost(
            session.hardware,
            session.shape,
            topology,
            plan.slots_per_rank,
            session.bench.mode,
            session.phase,
            overlap=session.settings.overlap,
        ),
    )
