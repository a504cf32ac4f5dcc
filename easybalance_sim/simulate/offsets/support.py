"""Which what-ifs a trace supports, told from its columns and its first tokens."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from easybalance_sim.errors import TraceError
from easybalance_sim.simulate.offsets.scores import BEST, BEST_PER_GROUP, FROZEN, FROZEN_NOTE, FULL, Scores, scores_of
from easybalance_sim.simulate.steps.recorded import RecordedSteps, read_steps
from easybalance_sim.trace.dataset import TokenTrace
from easybalance_sim.trace.schema import NO_WORKLOAD, PREFILL, CountTrace

_LOOKED_AT = 2_000

_SAYS = {
    FULL: "the scores of all experts are there",
    BEST_PER_GROUP: "the best scores of every group are there, groups are chosen again",
    BEST: "the best scores are there; experts behind the last runner-up cannot be chosen",
    FROZEN: FROZEN_NOTE,
}


@dataclass(frozen=True, kw_only=True)
class WhatIf:
    """One kind of simulation. supported: whether this trace allows it · why: one line."""

    name: str
    supported: bool
    why: str

    def to_dict(self) -> dict[str, str | bool]:
        """For reports."""
        return asdict(self)


def what_ifs(trace: TokenTrace | CountTrace) -> tuple[WhatIf, ...]:
    """What can be simulated on a trace. Reads its first tokens only. Raises `TraceError` for an unusable trace."""
    if isinstance(trace, CountTrace):
        counts = "counts of windows, not single tokens"
        return (
            WhatIf(name="placements", supported=True, why="the load of every expert is there"),
            *(WhatIf(name=name, supported=False, why=counts) for name in ("single steps", "admission", *_ON_SCORES)),
        )
    steps = _first_steps(trace)
    return (
        WhatIf(name="placements", supported=True, why="the load of every expert is there"),
        WhatIf(name="single steps", supported=True, why="staggering, layer queues and replica choice need ids only"),
        _admission(steps),
        *_on_scores(steps),
        _workloads(steps),
    )


_ON_SCORES = ("router offsets", "stability of offsets", "re-routing")


def _first_steps(trace: TokenTrace) -> RecordedSteps:
    steps, _ = read_steps(trace, most_bytes=1)
    end = int((steps.start <= _LOOKED_AT).sum()) - 1
    return steps.between(0, max(1, end))


def _admission(steps: RecordedSteps) -> WhatIf:
    known = bool((steps.phase == PREFILL).any())
    why = "requests have first tokens to tell topics by" if known else "no token says that it is prefill (column phase)"
    return WhatIf(name="admission", supported=known, why=why)


def _on_scores(steps: RecordedSteps) -> tuple[WhatIf, ...]:
    try:
        scores = scores_of(steps)
    except TraceError as error:
        return tuple(WhatIf(name=name, supported=False, why=f"{error.what}: {error.fix}") for name in _ON_SCORES)
    offsets, stability, rerouting = _ON_SCORES
    why = _SAYS[scores.mode]
    return (
        WhatIf(name=offsets, supported=True, why=why),
        WhatIf(name=stability, supported=not scores.is_frozen, why=why),
        WhatIf(name=rerouting, supported=True, why=_rerouting(scores)),
    )


def _rerouting(scores: Scores) -> str:
    if scores.mode == FULL:
        return _SAYS[FULL]
    return f"to experts whose scores are there only, {_known(scores)} of {scores.experts} of a token on average"


def _known(scores: Scores) -> int:
    values = scores.values(0, len(scores.recorded))
    return round(float((values > -float("inf")).sum(axis=2).mean()))


def _workloads(steps: RecordedSteps) -> WhatIf:
    names = [name for name in steps.workloads if name != NO_WORKLOAD]
    many = len(names) > 1
    why = f"{len(names)} workloads are named" if many else "column workload names no two of them"
    return WhatIf(name="quality by workload", supported=many, why=why)
