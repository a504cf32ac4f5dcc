"""`Schedule`: plans that follow each other while they serve, as one step model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from easybalance_sim.arrays import FloatArray, IntArray, frozen
from easybalance_sim.plan.plan import Plan
from easybalance_sim.simulate.serving.pool_run import StepSample
from easybalance_sim.simulate.serving.profiles import Profiles
from easybalance_sim.simulate.serving.step_model import StepModel


@dataclass(frozen=True, kw_only=True, eq=False)
class Schedule:
    """n plans in the order in which they are in force. from_s: float64[n] since when, the first since 0 · moves:
    int64[n] experts that had to travel for each, 0 for the first · transfer_s: float64[n] how long they did."""

    plans: tuple[Plan, ...]
    from_s: FloatArray
    moves: IntArray
    transfer_s: FloatArray

    def profiles(self, drawn: Profiles, arrival_s: FloatArray, rows: int) -> Profiles:
        """Rows of the joined model: those of the plan in force when a request comes, of `rows` for each plan. A request
        that runs on while plans change keeps the plan that it came under, which for requests much shorter than the
        interval makes little difference."""
        at = (np.searchsorted(self.from_s, arrival_s, side="right") - 1) * rows
        return Profiles(
            prefill=frozen(drawn.prefill + at, np.int32),
            decode=frozen(drawn.decode + at, np.int32),
        )


def under_last(
    schedule: Schedule, samples: Sequence[StepSample], model: StepModel
) -> tuple[list[StepSample], StepModel]:
    """What the last plan did alone: the steps all of whose requests came under it, and the step model, with its rows
    only."""
    rows = len(model.mean) // len(schedule.plans)
    first = rows * (len(schedule.plans) - 1)
    alone = [replace(one, row=frozen(one.row - first, np.int32)) for one in samples if (one.row >= first).all()]
    return alone, replace(model, mean=frozen(model.mean[first:]), spread=frozen(model.spread[first:]))


def joined(models: Sequence[StepModel]) -> StepModel:
    """One step model with the rows of all, one model's after the other's. What belongs to slots and links, not to
    requests, is the mean over the models; their curves are brought to the longest one's knots."""
    longest = max(model.expert_s.shape[-1] for model in models)

    def mean(name: str) -> FloatArray:
        held = [getattr(model, name) for model in models]
        of_slots = name in ("expert_s", "even_expert_s", "chance_rows")
        whole: FloatArray = np.mean([_to_knots(one, longest) for one in held] if of_slots else held, axis=0)
        return whole

    return replace(
        models[-1],
        mean=np.concatenate([model.mean for model in models]),
        spread=np.concatenate([model.spread for model in models]),
        expert_s=mean("expert_s"),
        even_expert_s=mean("even_expert_s"),
        chance_rows=mean("chance_rows"),
        sum_row_s=mean("sum_row_s"),
        arrive_s=mean("arrive_s"),
        even_arrive_s=mean("even_arrive_s"),
        leave_s=mean("leave_s"),
        link_fixed_s=mean("link_fixed_s"),
    )


def _to_knots(curve: FloatArray, knots: int) -> FloatArray:
    """float64[…, knots]: the curve over (g · knot)² rows, its last slope going on."""
    held = curve.shape[-1]
    if held == knots:
        return curve
    last, before = (held - 1) ** 2, (held - 2) ** 2
    slope = (curve[..., -1] - curve[..., -2]) / (last - before)
    beyond = np.arange(held, knots) ** 2 - last
    longer: FloatArray = np.concatenate([curve, curve[..., -1:] + slope[..., None] * beyond], axis=-1)
    return longer
