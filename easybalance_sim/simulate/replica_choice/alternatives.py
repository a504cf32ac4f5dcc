"""What balance costs no quality: placements from the past, re-planned ones, and least loaded replicas on top."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import numpy as np

from easybalance_sim import policies
from easybalance_sim.arrays import AnyArray, FloatArray, Int32Array, frozen, sealed, stream
from easybalance_sim.cluster.topology import uniform
from easybalance_sim.errors import UsageError
from easybalance_sim.plan.plan import Plan
from easybalance_sim.policies import NotApplicable
from easybalance_sim.simulate.replica_choice.choose import choose
from easybalance_sim.simulate.steps.balance import WINDOW_STEPS, Balance, balance
from easybalance_sim.simulate.steps.placements import PROPOSALS, contiguous, planned, problem_of
from easybalance_sim.simulate.steps.recorded import RecordedSteps, rank_loads

PLAN_DELAY = 4
"""Steps that pass between the newest counts of a re-planned placement and its first step (100 ms of 25 ms steps)."""

PAST, HINDSIGHT = "past", "hindsight"
FITS = (PAST, HINDSIGHT)


@dataclass(frozen=True, kw_only=True)
class Lossless:
    """What to try. slots_per_rank: several memories · replanned: (every, last): a fresh greedy placement each `every`
    steps from the last `last` ones · delay: of these, in steps · replicas: choices on top of placements that have
    replicas · window, proposals, seed: of the search."""

    ranks: int
    slots_per_rank: tuple[int, ...]
    replanned: tuple[tuple[int, int], ...] = ((40, 40), (120, 120), (120, 240))
    delay: int = PLAN_DELAY
    replicas: tuple[str, ...] = ("least-loaded", "optimum")
    window: int = WINDOW_STEPS
    proposals: int = PROPOSALS
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class Alternative:
    """placement: policy, or `uniform` for experts drawn by chance · slots_per_rank: its memory · fitted: `past`,
    `hindsight` (on the judged steps: what no plan can know) or "last 40 steps, each 40" · replicas: `even` (in
    fractions) or a rule · balance."""

    placement: str
    slots_per_rank: int
    fitted: str
    replicas: str
    balance: Balance

    def to_dict(self) -> dict[str, object]:
        """For reports."""
        return asdict(self)


def lossless(
    past: RecordedSteps, now: RecordedSteps, ask: Lossless, advance: Callable[[int], None] = lambda rows: None
) -> tuple[Alternative, ...]:
    """Balance on the steps of `now` of every placement, none of which changes a routing decision.

    A search that has nothing to gain is left out; `advance` is told of rows.
    """
    rows = []
    for placement, slots, fitted, replicas, loads in _tried(past, now, ask):
        rows.append(
            Alternative(
                placement=placement,
                slots_per_rank=slots,
                fitted=fitted,
                replicas=replicas,
                balance=balance(loads, ask.window),
            )
        )
        advance(1)
    return tuple(rows)


Tried = tuple[str, int, str, str, FloatArray]


def _tried(past: RecordedSteps, now: RecordedSteps, ask: Lossless) -> Iterator[Tried]:
    experts, least = now.meta.experts, -(-now.meta.experts // ask.ranks)
    yield "uniform", least, HINDSIGHT, "even", by_chance(now.counts, ask.ranks, ask.seed)
    yield "contiguous", least, PAST, "even", rank_loads(now.counts, contiguous(now.layers, experts, ask.ranks))
    for slots in ask.slots_per_rank:
        for policy in ("eplb", "window_search"):
            for fitted, steps in zip(FITS, (past, now), strict=True):
                yield from _fitted(policy, slots, fitted, steps, now, ask)
        for every, last in ask.replanned:
            loads = replanned(past, now, ask, slots, every, last)
            yield "eplb", slots, f"last {last} steps, each {every}", "even", loads


def _fitted(
    policy: str, slots: int, fitted: str, steps: RecordedSteps, now: RecordedSteps, ask: Lossless
) -> Iterator[Tried]:
    try:
        plan = planned(policy, steps, ask.ranks, slots, ask.seed, ask.proposals, window=ask.window)
    except NotApplicable:
        return
    yield policy, slots, fitted, "even", rank_loads(now.counts, plan)
    for rule in ask.replicas if plan.redundant_slots else ():
        yield policy, slots, fitted, rule, choose(now.counts, plan, rule).loads


def replanned(past: RecordedSteps, now: RecordedSteps, ask: Lossless, slots: int, every: int, last: int) -> FloatArray:
    """float64[S, L, R] loads of `now` under a greedy placement made anew each `every` steps, replicas shared evenly.

    It is made from the `last` steps, the newest of which is `ask.delay` steps old: counts have to be gathered and
    experts moved. Raises `UsageError` when the past is too short for the first one.
    """
    if len(past) <= ask.delay or min(every, last) < 1:
        raise UsageError(f"{len(past)} past steps are too few to plan from", where="replanned")
    counts = np.concatenate([past.counts, now.counts])
    out = np.zeros((len(now), now.layers, ask.ranks))
    for first in range(0, len(now), every):
        newest = len(past) + first - ask.delay
        plan = _greedy(counts[max(0, newest - last) : newest], now, ask, slots)
        out[first : first + every] = rank_loads(now.counts[first : first + every], plan)
    return sealed(out)


def _greedy(counts: Int32Array, now: RecordedSteps, ask: Lossless, slots: int) -> Plan:
    topology = uniform(ask.ranks, ask.ranks, slots)
    return policies.make("eplb", problem_of(counts, now.meta, topology, ask.window, ask.seed, ask.proposals))


def by_chance(counts: AnyArray, ranks: int, seed: int) -> FloatArray:
    """float64[S, L, R] loads if every assignment of counts int[S, L, E] fell on a rank by chance: the floor for
    placements that do not know the step."""
    totals = np.asarray(counts).sum(axis=2)
    drawn = stream(seed, "by chance").multinomial(totals, np.full(ranks, 1 / ranks))
    return frozen(drawn, np.float64)
