"""Groups of experts take turns in resting: for offline batches, it is said; every token wants particular experts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from easybalance_sim.arrays import AnyArray, IntArray, frozen
from easybalance_sim.errors import UsageError
from easybalance_sim.plan.plan import Plan
from easybalance_sim.simulate.offsets.loop import Acting, Loop, Nudge, Sensor
from easybalance_sim.simulate.offsets.scores import Scores
from easybalance_sim.simulate.quality.price import DIVERSION

BY_RANK, STRIPED = "rank", "stripe"
CLOCK_SENSOR = "none: a clock"


@dataclass(frozen=True, kw_only=True, eq=False)
class Rotation:
    """active: groups that serve at a time · groups: of each layer, None = as many as there are ranks · every: steps
    until the next group rests · kind: `BY_RANK` groups are the ranks' experts, `STRIPED` ones hold hot and cold
    experts alike · load: [L, E] past assignments that say which are hot, None = by number."""

    active: int
    groups: int | None = None
    every: int = 4
    kind: str = BY_RANK
    load: AnyArray | None = None

    families = (DIVERSION,)
    sensor = CLOCK_SENSOR

    def __post_init__(self) -> None:
        if self.kind not in (BY_RANK, STRIPED):
            raise UsageError(f"no rotation {self.kind!r}", fix=f"{BY_RANK} or {STRIPED}")
        if self.active < 1 or self.every < 1 or (self.groups is not None and self.groups < self.active):
            raise UsageError("one group or more serves, of those there are, for a step or more", where=self.name)

    @property
    def name(self) -> str:
        """Such as "rotation rank, 7 groups at a time"."""
        return f"rotation {self.kind}, {self.active} groups at a time"

    def start(self, plan: Plan, scores: Scores, loop: Loop) -> Acting:
        """See `Mechanism`. Raises `UsageError` for more active groups than ranks."""
        count = plan.ranks if self.groups is None or self.kind == BY_RANK else self.groups
        if count < self.active or self.groups not in (None, count):
            raise UsageError(f"{self.active} of {self.groups} groups on {plan.ranks} ranks", where=self.name)
        return _Running(self, self._groups(plan, count), count)

    def _groups(self, plan: Plan, count: int) -> IntArray:
        """int64[L, E] group of each expert; an expert with replicas is in the group of its first one's rank."""
        if self.kind == BY_RANK:
            first = np.take_along_axis(plan.replica_slot, plan.replica_start[:, :-1], axis=1)
            return frozen(plan.rank_of_slot[first], np.int64)
        load = np.zeros((plan.layers, plan.experts)) if self.load is None else np.asarray(self.load)
        place = np.argsort(np.argsort(-load, axis=1, kind="stable"), axis=1)
        return frozen(place % count, np.int64)


class _Running(Acting):
    def __init__(self, rotation: Rotation, groups: IntArray, count: int) -> None:
        self.rotation, self.groups, self.count = rotation, groups, count

    def nudge(self, sensor: Sensor) -> Nudge:
        first = sensor.step // self.rotation.every
        resting = (first + np.arange(self.count - self.rotation.active)) % self.count
        return Nudge(allowed=~np.isin(self.groups, resting))
