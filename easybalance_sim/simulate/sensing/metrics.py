"""The four loads that the EasyBalance article wants watched, per rank and node on an even clock, from a replay.

Expert tokens per second, share of the time in expert kernels, share of the memory bandwidth, bytes per second on the
links. Each step begins when it was recorded, or when the step before is done if that is later: it lasts as long as one
was recorded to last, or the MoE layers take by the cost model. Saturated, steps follow each other without waiting.
What a rank does in a step is spread evenly over it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from easybalance_sim.arrays import FloatArray, IntArray, frozen, sealed
from easybalance_sim.cluster.model_shape import ModelShape
from easybalance_sim.cost.layer import LayerCost
from easybalance_sim.plan.plan import Plan
from easybalance_sim.replay.dispatch import Dispatch
from easybalance_sim.replay.engine import Dispatched, Links, dispatched
from easybalance_sim.replay.tally import rank_sums
from easybalance_sim.simulate.steps.recorded import RecordedSteps
from easybalance_sim.trace.schema import TokenBatch

METRICS = ("expert_tokens_per_s", "compute_frac", "hbm_frac", "link_bytes_per_s", "nvlink_bytes_per_s")
"""link: between NVLink domains · nvlink: inside one."""
ACTIVATION_BYTES = 2.0
"""Of one number between the matrices of an expert: BF16, as in `cost.expert`."""
STEPS_AT_ONCE = 256


@dataclass(frozen=True, kw_only=True, eq=False)
class Served:
    """What serves the recorded steps. route: the links of the cluster · hbm_bytes_per_s: nominal, of one GPU ·
    recorded_ranks: R of the recording, as for `replay.engine.replay`."""

    plan: Plan
    dispatch: Dispatch
    route: Links
    cost: LayerCost
    shape: ModelShape
    hbm_bytes_per_s: float
    recorded_ranks: int


@dataclass(frozen=True, kw_only=True, eq=False)
class StepWork:
    """float64[S, R] what each rank does in each step, over all layers: assignments computed, seconds in expert kernels,
    bytes read and written by them, bytes in the busier direction of its links to other domains and inside its own ·
    layer_s: float64[S] seconds of all MoE layers of a step, ranks waiting for each other."""

    assignments: FloatArray
    expert_s: FloatArray
    hbm_bytes: FloatArray
    link_bytes: FloatArray
    nvlink_bytes: FloatArray
    layer_s: FloatArray


def step_work(steps: RecordedSteps, served: Served, advance: Callable[[int], None]) -> StepWork:
    """Replay all steps; advance: called with the steps done."""
    parts = []
    for batch, sent in dispatched(_batches(steps), served.plan, served.dispatch, served.route, served.recorded_ranks):
        parts.append(_work(sent, served))
        advance(len(batch.step_starts))
    names = StepWork.__dataclass_fields__
    return StepWork(**{name: sealed(np.concatenate([getattr(part, name) for part in parts])) for name in names})


def _batches(steps: RecordedSteps) -> Iterator[TokenBatch]:
    for first in range(0, len(steps), STEPS_AT_ONCE):
        some = steps.between(first, min(first + STEPS_AT_ONCE, len(steps)))
        yield TokenBatch(
            step=frozen(some.step[some.step_of_token], np.int32),
            request=some.request,
            position=some.position,
            phase=some.phase,
            source_rank=some.source_rank,
            workload=some.workload,
            experts=some.experts,
        )


def _work(sent: Dispatched, served: Served) -> StepWork:
    seconds = served.cost.seconds(sent.slot_tokens, sent.distinct, sent.rdma, sent.nvlink)
    copy_bytes = served.cost.copy_bytes
    return StepWork(
        assignments=_over_layers(sent.rank_rows),
        expert_s=_expert_seconds(sent, served),
        hbm_bytes=_hbm_bytes(sent, served),
        link_bytes=_over_layers(sent.rdma) * copy_bytes,
        nvlink_bytes=_over_layers(sent.nvlink) * copy_bytes,
        layer_s=seconds.ranked.sum(axis=1, dtype=np.float64),
    )


def _expert_seconds(sent: Dispatched, served: Served) -> FloatArray:
    """float64[W, R] seconds of each rank alone: asked for one at a time, none waits for another."""
    plan, cost = served.plan, served.cost
    out = np.zeros((len(sent.slot_tokens), plan.ranks))
    for rank in range(plan.ranks):
        first, end = (int(place) for place in plan.slot_start[rank : rank + 2])
        alone, _ = cost.expert.seconds(
            frozen(sent.slot_tokens[:, :, first:end], np.int32),
            frozen(sent.distinct[:, :, rank : rank + 1], np.int32),
            frozen([0, end - first], np.int32),
            frozen(cost.speed[rank : rank + 1], np.float64),
        )
        out[:, rank] = alone.sum(axis=1)
    return out


def _hbm_bytes(sent: Dispatched, served: Served) -> FloatArray:
    """float64[W, R] weights of active experts, once each, and the rows of every assignment."""
    shape = served.shape
    active = _over_layers(rank_sums((sent.slot_tokens > 0).astype(np.int32), served.plan))
    row = ACTIVATION_BYTES * (2 * shape.hidden + shape.matrices * shape.intermediate)
    return active * shape.expert_bytes + _over_layers(sent.rank_rows) * row


def _over_layers(values: IntArray | np.typing.NDArray[np.int32]) -> FloatArray:
    sums: FloatArray = values.sum(axis=1, dtype=np.float64)
    return sums


@dataclass(frozen=True, kw_only=True, eq=False)
class Clock:
    """Steps on an even clock. begin, end: float64[S] seconds of each step · ticks: whole ones up to the last end ·
    tick_s: of one."""

    begin: FloatArray
    end: FloatArray
    ticks: int
    tick_s: float

    def rate(self, amount: FloatArray) -> FloatArray:
        """float64[ticks, …] amount per second during each tick; amount: float64[S, …] of each step."""
        # What has been done at any moment is a broken line, flat between steps.
        at = np.arange(self.ticks + 1) * self.tick_s
        place = np.searchsorted(self.begin, at, side="right")
        done = np.concatenate([np.zeros((1, *amount.shape[1:])), np.cumsum(amount, axis=0)])
        inside = np.maximum(place - 1, 0)
        part = np.clip((at - self.begin[inside]) / (self.end - self.begin)[inside], 0.0, 1.0)
        part = part.reshape(-1, *[1] * (amount.ndim - 1))
        level = done[inside] + part * amount[inside]
        rates: FloatArray = np.diff(level, axis=0) / self.tick_s
        return rates


def clock_of(steps: RecordedSteps, layer_s: FloatArray, tick_s: float) -> Clock:
    """When each step begins and ends as recorded; layer_s: float64[S] seconds of its MoE layers."""
    due = (steps.step - steps.step[0]) * steps.step_s
    lasts = np.maximum(layer_s, steps.step_s)
    begin, free = np.empty(len(due)), 0.0
    for place, (recorded, length) in enumerate(zip(due.tolist(), lasts.tolist(), strict=True)):
        begin[place] = max(recorded, free)
        free = begin[place] + length
    return _clock(begin, begin + lasts, tick_s)


def saturated_clock(step_s: FloatArray, tick_s: float) -> Clock:
    """Steps of float64[S] seconds, one after the other."""
    end = np.cumsum(step_s)
    return _clock(end - step_s, end, tick_s)


def _clock(begin: FloatArray, end: FloatArray, tick_s: float) -> Clock:
    """The last tick is a whole one, unless it is the only one."""
    # A last end that rounding left a little before a tick is at the tick.
    return Clock(begin=begin, end=end, ticks=max(1, int(end[-1] / tick_s + 1e-9)), tick_s=tick_s)


def rank_metrics(work: StepWork, clock: Clock, served: Served) -> dict[str, FloatArray]:
    """float64[ticks, R] of each of `METRICS`."""
    peak = served.hbm_bytes_per_s
    values = (
        clock.rate(work.assignments),
        clock.rate(work.expert_s),
        clock.rate(work.hbm_bytes) / peak,
        clock.rate(work.link_bytes),
        clock.rate(work.nvlink_bytes),
    )
    return dict(zip(METRICS, map(sealed, values), strict=True))


def moving(values: FloatArray, ticks: int) -> FloatArray:
    """float64[t, …] mean of the last `ticks` ticks, of those there are at the start."""
    total = np.concatenate([np.zeros((1, *values.shape[1:])), np.cumsum(values, axis=0)])
    end = np.arange(1, len(values) + 1)
    start = np.maximum(end - ticks, 0)
    seen = (end - start).reshape(-1, *[1] * (values.ndim - 1))
    means: FloatArray = np.maximum((total[end] - total[start]) / seen, 0.0)
    return sealed(means)
