"""Stress traffic from held-out tokens: requests queued again, their kinds told by workload or by topic."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from easybalance_sim.arrays import AnyArray, IntArray, frozen, sealed, stream
from easybalance_sim.load.counting import Windowing
from easybalance_sim.load.selection import Selection
from easybalance_sim.planning.stress.material import BURST, DOMINANT
from easybalance_sim.planning.stress.queueing import Queue, queue_of
from easybalance_sim.planning.stress.stretch import TokenStretch
from easybalance_sim.planning.stress.uniform import uniform_experts
from easybalance_sim.simulate.admission.requests import Requests, batch_of, requests_of
from easybalance_sim.simulate.admission.topics import fit_topics
from easybalance_sim.simulate.steps.recorded import RecordedSteps, read_steps
from easybalance_sim.trace.dataset import TokenTrace
from easybalance_sim.trace.schema import TokenBatch

MOST_ASSIGNMENTS = 8_000_000
"""Of a stretch; of more held-out traffic a sample of the windows is taken."""

MOST_KINDS, TOPICS = 8, 4
LEAST_REQUESTS = 8
"""Of a kind. With fewer, a mix that it dominates is the same few requests over and over."""

LEAST_STEPS = 64
"""Of a stretch of bursts, as the gate asks of a replay."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TokenMaterial:
    """Held-out tokens. kind: int64[Q] of each request, -1 = of none · kinds, left_out, why_alike: as in `Material`."""

    steps: RecordedSteps
    requests: Requests
    kind: IntArray
    kinds: tuple[str, ...]
    left_out: tuple[str, ...]
    why_alike: str
    windowing: Windowing
    seed: int

    def as_held_out(self) -> TokenStretch:
        """See `Material`; sources as recorded."""
        return self._stretch(batch_of(self.steps, self.steps.source_rank))

    def dominated(self, kind: int) -> TokenStretch:
        """See `Material`; as many steps as are held out."""
        return self._queued(kind, DOMINANT, len(self.steps), 1)

    def burst(self, kind: int | None) -> TokenStretch:
        """See `Material`; a part of the steps, so that it is no more tokens than are held out."""
        steps = max(min(LEAST_STEPS, len(self.steps)), len(self.steps) // BURST)
        if kind is None:
            return self._queued(None, 1.0, steps, BURST)
        usual = float(self.requests.tokens[self.kind == kind].sum() / self.requests.tokens.sum())
        return self._queued(kind, (BURST - 1 + usual) / BURST, steps, BURST)

    def uniform(self) -> TokenStretch:
        """See `Material`."""
        batch = batch_of(self.steps, self.steps.source_rank)
        experts = uniform_experts(batch.tokens, self.steps.meta, stream(self.seed, "uniform routing"))
        return self._stretch(_with_experts(batch, experts))

    @cached_property
    def _queue(self) -> Queue:
        return queue_of(self.steps, self.requests)

    def _queued(self, kind: int | None, share: float, steps: int, times: int) -> TokenStretch:
        chosen = self.kind == kind if kind is not None else np.ones(len(self.requests), np.bool_)
        rng = stream(self.seed, f"stress queue {kind} {times}")
        return self._stretch(self._queue.drawn(chosen, share, steps, times, rng), anew=True)

    def _stretch(self, batch: TokenBatch, anew: bool = False) -> TokenStretch:
        return TokenStretch(meta=self.steps.meta, batch=batch, windowing=self.windowing, anew=anew)


def token_material(trace: TokenTrace, held: Selection, tokens: int, windowing: Windowing, seed: int) -> TokenMaterial:
    """Read the held-out tokens, of long traces those of some windows.

    tokens: how many are held out · windowing: of the run; stress traffic has windows of as many steps.
    """
    work = tokens * len(trace.meta.layers) * trace.meta.top_k
    every = max(1, round(work / MOST_ASSIGNMENTS))
    steps, _ = read_steps(trace, held.sampled(every, windowing), gates=False, scores=False)
    requests = requests_of(steps)
    told = _kinds(steps, requests, seed)
    return TokenMaterial(
        steps=steps, requests=requests, windowing=_by_steps(windowing, steps), seed=seed, **told._asdict()
    )


def _by_steps(windowing: Windowing, steps: RecordedSteps) -> Windowing:
    """Windows of seconds as windows of the steps that these usually hold."""
    if windowing.length:
        return windowing
    return Windowing(steps=max(1, round(windowing.seconds / steps.step_s)))


class _Kinds(NamedTuple):
    """Fields of `TokenMaterial`."""

    kind: IntArray
    kinds: tuple[str, ...]
    left_out: tuple[str, ...]
    why_alike: str


def _kinds(steps: RecordedSteps, requests: Requests, seed: int) -> _Kinds:
    """Workloads, or topics where requests of one workload alone are held out; the largest first."""
    code, names = requests.workload.astype(np.int64), steps.workloads
    if len(np.unique(code)) < 2:
        code = fit_topics(steps, requests, TOPICS, seed).told(steps, requests)
        names = tuple(f"topic {number + 1}" for number in range(TOPICS))
    found = np.unique(code)
    tokens = np.bincount(code, weights=requests.tokens, minlength=len(names))
    enough = np.bincount(code, minlength=len(names)) >= LEAST_REQUESTS
    order = [int(k) for k in np.argsort(-tokens, kind="stable") if enough[k]][:MOST_KINDS]
    if len(found) < 2 or not order:
        return _Kinds(np.full(len(code), -1), (), (), f"the {len(code)} held-out requests cannot be told apart")
    place = np.full(len(names), -1)
    place[order] = np.arange(len(order))
    others = tuple(names[k] for k in found if place[k] < 0)
    return _Kinds(sealed(place[code]), tuple(names[k] for k in order), others, "")


def _with_experts(batch: TokenBatch, experts: AnyArray) -> TokenBatch:
    return TokenBatch(
        step=batch.step,
        request=batch.request,
        position=batch.position,
        phase=batch.phase,
        source_rank=batch.source_rank,
        workload=batch.workload,
        experts=frozen(experts),
    )
