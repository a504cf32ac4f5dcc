"""Balance against loss: mechanisms beside placements and replica choices that cost no quality, and their front."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from easybalance_sim.cluster.topology import uniform
from easybalance_sim.plan.plan import Plan
from easybalance_sim.policies import NotApplicable
from easybalance_sim.simulate.offsets.loop import Loop, Mechanism, run
from easybalance_sim.simulate.offsets.scores import Scores
from easybalance_sim.simulate.quality.front import STEP_MEAN, STEP_P99, Front, front
from easybalance_sim.simulate.quality.judged import Judged, judged
from easybalance_sim.simulate.quality.lossless import chance_alone, least_loaded, lossless, placed, replanned
from easybalance_sim.simulate.rerouting.overflow import Overflow
from easybalance_sim.simulate.steps import placements
from easybalance_sim.simulate.steps.recorded import RecordedSteps

TITLES = {"eplb": "EPLB", "window_search": "window plan"}
CAPS = (1.5, 1.3, 1.2, 1.1, 1.05)


@dataclass(frozen=True, kw_only=True)
class TableRequest:
    """ranks, slots_per_rank: slots of a rank without and with redundant ones · caps: of in-step re-routing · offsets:
    controllers that are tried on both placements and under the cap of 1.1 · more: further mechanisms, on the contiguous
    placement · replan_s: seconds between plans made anew · loop: of the sensors, its warm-up is not judged · seed,
    proposals: of the searches."""

    ranks: int
    slots_per_rank: tuple[int, ...]
    caps: tuple[float, ...] = CAPS
    offsets: tuple[Mechanism, ...] = ()
    more: tuple[Mechanism, ...] = ()
    replan_s: tuple[float, ...] = (1.0, 3.0)
    loop: Loop = field(default_factory=Loop)
    seed: int = 0
    proposals: int = placements.PROPOSALS


@dataclass(frozen=True, kw_only=True)
class ParetoTable:
    """rows: floors, lossless alternatives, then lossy mechanisms · by_mean, by_p99: fronts of what can be deployed ·
    notes: rows that are missing, and why."""

    rows: tuple[Judged, ...]
    by_mean: Front
    by_p99: Front
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """For reports."""
        return {
            "rows": [row.to_dict() for row in self.rows],
            "fronts": [self.by_mean.to_dict(), self.by_p99.to_dict()],
            "notes": list(self.notes),
        }


def table_of(rows: Sequence[Judged], notes: Sequence[str] = ()) -> ParetoTable:
    """The rows with their fronts; floors are no points of them."""
    points = [row.point for row in rows if not row.floor]
    return ParetoTable(
        rows=tuple(rows), by_mean=front(points, STEP_MEAN), by_p99=front(points, STEP_P99), notes=tuple(notes)
    )


def pareto_table(
    scores: Scores, past: RecordedSteps, request: TableRequest, advance: Callable[[int], None] = lambda rows: None
) -> ParetoTable:
    """Everything side by side on `scores.steps`; placements are made from `past`. advance: told of rows that are done.

    Raises what `offsets.loop.run` does.
    """
    making = _Making(scores, past, request)
    rows = []
    for row in making.rows():
        rows.append(row)
        advance(1)
    return table_of(rows, making.notes)


class _Making:
    """The rows one by one."""

    def __init__(self, scores: Scores, past: RecordedSteps, request: TableRequest) -> None:
        self.scores, self.past, self.request = scores, past, request
        steps = scores.steps
        self.test = steps.between(request.loop.warm_up, len(steps))
        self.window = request.loop.window
        self.fixed = placements.contiguous(steps.layers, steps.meta.experts, request.ranks)
        self.notes: list[str] = []

    def rows(self) -> Iterator[Judged]:
        """Floors, lossless, lossy."""
        name, fixed = f"contiguous {_size(self.fixed)}", self.fixed
        yield lossless("floor: chance alone", self._chance(), fixed.slots, window=self.window, floor=True)
        yield placed(name, self.test.counts, fixed, self.window)
        windowed = None
        for slots in self.request.slots_per_rank:
            yield from self._greedy(slots)
            plan = self._plan("window_search", self.past, slots)
            if plan is not None:
                windowed = plan if windowed is None else windowed
                yield from self._with_replicas(f"window plan {_size(plan)}", plan)
            if plan is not None and plan is windowed:
                yield from self._hindsight(slots)
        yield from self._lossy(name, fixed, self.request.more)
        if windowed is not None:
            yield from self._lossy(f"window plan {_size(windowed)}", windowed, ())

    def _chance(self) -> Any:
        return chance_alone(self.test, self.request.ranks, self.request.seed)

    def _greedy(self, slots: int) -> Iterator[Judged]:
        plan = self._plan("eplb", self.past, slots)
        if plan is None:
            return
        yield from self._with_replicas(f"EPLB {_size(plan)}", plan)
        for seconds in self.request.replan_s:
            every = max(1, round(seconds / self.test.step_s))
            cluster = uniform(self.request.ranks, self.request.ranks, slots)
            loads = replanned(self.past.counts, self.test.counts, cluster, every)
            yield lossless(f"EPLB {_size(plan)} every {seconds:g} s", loads, plan.slots, window=self.window)

    def _with_replicas(self, name: str, plan: Plan) -> Iterator[Judged]:
        yield placed(name, self.test.counts, plan, self.window)
        if plan.redundant_slots:
            yield least_loaded(name, self.test.counts, plan, self.window)

    def _hindsight(self, slots: int) -> Iterator[Judged]:
        plan = self._plan("window_search", self.test, slots)
        if plan is not None:
            row = placed(f"floor: window plan {_size(plan)} in hindsight", self.test.counts, plan, self.window)
            yield Judged(
                name=row.name, sensor=row.sensor, balance=row.balance, price=row.price, slots=row.slots, floor=True
            )  # fmt: skip

    def _lossy(self, name: str, plan: Plan, more: Sequence[Mechanism]) -> Iterator[Judged]:
        capped = tuple(Overflow(cap=cap) for cap in self.request.caps)
        both = tuple(Overflow(cap=1.1, inner=offset) for offset in self.request.offsets[:1])
        for mechanism in (*self.request.offsets, *capped, *both, *more):
            yield judged(mechanism, run(mechanism, self.scores, plan, self.request.loop), plan, on=name)

    def _plan(self, policy: str, steps: RecordedSteps, slots: int) -> Plan | None:
        request = self.request
        try:
            return placements.planned(
                policy, steps, request.ranks, slots, request.seed, request.proposals, window=self.window
            )  # fmt: skip
        except NotApplicable as reason:
            self.notes.append(f"no {TITLES[policy]} of {slots} slots a rank: {reason}")
            return None


def _size(plan: Plan) -> str:
    per_rank = set(plan.slots_per_rank.tolist())
    return f"{plan.ranks}×{per_rank.pop()}" if len(per_rank) == 1 else f"{plan.slots} slots"
