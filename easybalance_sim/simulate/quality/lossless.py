"""What balance is to be had without touching the router: placements, replicas chosen per step; and mere chance."""

from __future__ import annotations

import numpy as np

from easybalance_sim import policies
from easybalance_sim.arrays import AnyArray, FloatArray, Int32Array, sealed, stream
from easybalance_sim.cluster.topology import Topology
from easybalance_sim.errors import UsageError
from easybalance_sim.plan.plan import Plan
from easybalance_sim.simulate.offsets.quality import Quality
from easybalance_sim.simulate.quality.judged import NO_SENSOR, Judged
from easybalance_sim.simulate.quality.price import LOSSLESS, Price
from easybalance_sim.simulate.replica_choice.choose import choose
from easybalance_sim.simulate.replica_choice.rules import SENSORS, rule_named
from easybalance_sim.simulate.steps.balance import WINDOW_STEPS, balance
from easybalance_sim.simulate.steps.placements import PROPOSALS, problem_of
from easybalance_sim.simulate.steps.recorded import RecordedSteps, rank_loads

LEAST_LOADED = "least-loaded"
PLAN_DELAY = 4
"""Steps that pass between the newest counts of a re-planned placement and its first step (100 ms of 25 ms steps)."""
_NOTHING = Quality(
    changed=0.0, score_lost=0.0, gate_mass_replaced=0.0, top1_lost=0.0, dropped=0.0, assignments=0
)  # fmt: skip
FREE = Price(families=(), total=_NOTHING, by_layer=(), by_workload={}, band=LOSSLESS, free=True)


def lossless(
    name: str,
    loads: FloatArray,
    slots: int,
    *,
    window: int = WINDOW_STEPS,
    sensor: str = NO_SENSOR,
    floor: bool = False,
) -> Judged:
    """A row for rank loads float64[S, L, R] under which every token keeps its experts."""
    return Judged(
        name=name, sensor=sensor, balance=balance(loads, window), price=FREE, slots=slots, floor=floor
    )  # fmt: skip


def placed(name: str, counts: AnyArray, plan: Plan, window: int = WINDOW_STEPS) -> Judged:
    """A placement whose replicas share evenly. counts: [S, L, E]."""
    return lossless(name, rank_loads(counts, plan), plan.slots, window=window)


def least_loaded(name: str, counts: Int32Array, plan: Plan, window: int = WINDOW_STEPS) -> Judged:
    """The same placement with the least loaded replica chosen in every step."""
    loads = choose(counts, plan, LEAST_LOADED).loads
    return lossless(
        f"{name} + least-loaded replica",
        loads,
        plan.slots,
        window=window,
        sensor=SENSORS[rule_named(LEAST_LOADED).sensor],
    )


def replanned(
    past: RecordedSteps,
    now: RecordedSteps,
    topology: Topology,
    every: int,
    last: int,
    *,
    delay: int = PLAN_DELAY,
    window: int = WINDOW_STEPS,
    seed: int = 0,
) -> FloatArray:
    """float64[S, L, R] loads of `now` under a greedy placement made anew each `every` steps, replicas shared evenly.

    It is made from the `last` steps, the newest of which is `delay` steps old: counts have to be gathered and experts
    moved. Raises `UsageError` when the past is too short for the first one.
    """
    if len(past) <= delay or min(every, last) < 1:
        raise UsageError(f"{len(past)} past steps are too few to plan from", where="replanned")
    counts = np.concatenate([past.counts, now.counts])
    out = np.zeros((len(now), now.layers, topology.ranks))
    for first in range(0, len(now), every):
        newest = len(past) + first - delay
        seen = counts[max(0, newest - last) : newest]
        plan = policies.make("eplb", problem_of(seen, now.meta, topology, window, seed, PROPOSALS))
        out[first : first + every] = rank_loads(now.counts[first : first + every], plan)
    return sealed(out)


def chance_alone(steps: RecordedSteps, ranks: int, seed: int = 0) -> FloatArray:
    """float64[S, L, R] loads if every assignment of the same tokens fell on any rank alike: a yardstick and no bound. A
    token's experts are distinct, which evens loads out a little, and so may a placement that splits what goes together.
    """
    assignments = np.diff(steps.start) * steps.meta.top_k
    draw = stream(seed, "chance alone")
    even = np.full(ranks, 1.0 / ranks)
    loads: FloatArray = draw.multinomial(assignments[:, None], even, size=(len(steps), steps.layers)).astype(
        np.float64
    )  # fmt: skip
    return sealed(loads)
