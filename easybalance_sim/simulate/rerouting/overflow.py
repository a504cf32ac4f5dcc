"""In-step overflow re-routing: no rank takes more than a cap times the mean of a step and layer.

The one mechanism on routing that cuts what a barrier per layer waits for, since it acts on the step itself; for that it
has to know the counts of all ranks before tokens are dispatched. The lowest weights leave, so what they were worth is
little, and where they go hardly matters.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from easybalance_sim import kernels
from easybalance_sim.arrays import AnyArray, Int32Array, IntArray, frozen
from easybalance_sim.errors import UsageError
from easybalance_sim.kernels import reference_overflow as rules
from easybalance_sim.plan.plan import Plan
from easybalance_sim.simulate.offsets.loop import Acting, Loop, Mechanism, Nudge, Sensor, Sent, StepTokens
from easybalance_sim.simulate.offsets.scores import Scores
from easybalance_sim.simulate.quality.price import DROP, REROUTE, families_of

RULES = {"next": rules.NEXT, "least": rules.LEAST, "drop": rules.DROP}
SAMPLE, LOGITS = 512, 0.01
"""Tokens that are looked at, and the share of scores below 0 from which they are logits."""
STEP_SENSOR = "counts of all ranks of the step, before dispatch"


@dataclass(frozen=True, kw_only=True)
class Overflow:
    """cap: of load / mean load, at least 1 · rule: overflow goes to the best-scored expert with room ("next"), to the
    least loaded one ("least"), or nowhere ("drop") · inner: mechanism whose choice overflows, None = the router's.

    Replicas that share evenly are dealt to in turn, and another replica with room comes before another expert.
    """

    cap: float
    rule: str = "next"
    inner: Mechanism | None = None

    sensor = STEP_SENSOR

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise UsageError(f"no overflow rule {self.rule!r}", fix=f"one of {', '.join(RULES)}")
        if not 1.0 <= self.cap < float("inf"):
            raise UsageError(f"a rank cap of {self.cap:g}", where=self.name, fix="give 1 or more, times the mean load")

    @property
    def name(self) -> str:
        """Such as "re-route next cap 1.1"."""
        own = f"drop cap {self.cap:g}" if self.rule == "drop" else f"re-route {self.rule} cap {self.cap:g}"
        return own if self.inner is None else f"{own} + {self.inner.name}"

    @property
    def families(self) -> tuple[str, ...]:
        """See `quality.price`."""
        own = (DROP if self.rule == "drop" else REROUTE,)
        return own if self.inner is None else (*own, *families_of(self.inner))

    def start(self, plan: Plan, scores: Scores, loop: Loop) -> Acting:
        """See `Mechanism`."""
        inner = Acting() if self.inner is None else self.inner.start(plan, scores, loop)
        return _Running(self, inner, plan, scores)


class _Running(Acting):
    def __init__(self, overflow: Overflow, inner: Acting, plan: Plan, scores: Scores) -> None:
        self.overflow, self.inner, self.plan, self.bias = overflow, inner, plan, scores.bias
        self.logits = are_logits(scores)
        self.replica_rank = frozen(plan.rank_of_slot[plan.replica_slot], np.int32)

    def nudge(self, sensor: Sensor) -> Nudge | None:
        return self.inner.nudge(sensor)

    def act(self, step: StepTokens, experts: Int32Array) -> Sent:
        sent = self.inner.act(step, experts)
        shape, chosen = experts.shape, frozen(sent.experts, np.int32)
        ranks = frozen(np.full(shape, rules.NONE) if sent.ranks is None else sent.ranks, np.int32)
        out, out_ranks = np.empty(shape, np.int32), np.empty(shape, np.int32)
        start: IntArray = frozen([0, len(chosen)], np.int64)
        kernels.load().reroute_overflow(
            chosen, ranks, self._weights(step, chosen), step.scores, start, self.plan.replica_start, self.replica_rank,
            self.plan.ranks, self.overflow.cap, RULES[self.overflow.rule], out, out_ranks,
            np.empty((1, shape[1], 4), np.int64),
        )  # fmt: skip
        return Sent(experts=out, ranks=out_ranks)

    def _weights(self, step: StepTokens, chosen: Int32Array) -> AnyArray:
        """float32[t, L, K] what each assignment is worth: its score without the bias, before it is normalised; of
        logits the softmax over the chosen."""
        own = _own_scores(step.scores, chosen, self.bias)
        if self.logits:
            own = np.exp(own - own.max(axis=2, keepdims=True))
            own = own / own.sum(axis=2, keepdims=True)
        return frozen(own, np.float32)


def _own_scores(values: AnyArray, experts: Int32Array, bias: AnyArray) -> AnyArray:
    """float32[t, L, K] scores of some experts without the bias."""
    ids = np.maximum(experts, 0).astype(np.int64)
    own: AnyArray = np.take_along_axis(values, ids, axis=2) - bias[np.arange(len(bias))[:, None], ids]
    return own


def are_logits(scores: Scores) -> bool:
    """Whether scores lie below 0 more often than rounding explains."""
    sample = min(SAMPLE, len(scores.recorded))
    own = _own_scores(scores.values(0, sample), scores.recorded[:sample], scores.bias)
    return bool((own < 0).mean() > LOGITS)
