"""Held-out requests queued again: as many run at once as one asks for, and one kind of them may dominate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from easybalance_sim.arrays import BoolArray, IntArray, frozen, sealed
from easybalance_sim.simulate.admission.requests import Requests
from easybalance_sim.simulate.steps.recorded import RecordedSteps
from easybalance_sim.trace.batching import schedule
from easybalance_sim.trace.schema import TokenBatch


@dataclass(frozen=True, kw_only=True, eq=False)
class Queue:
    """Requests that may be run again, each at its own pace.

    row: int64[T] tokens by request, in order of steps · begin: int64[Q] first of each request's in `row` ·
    life: int64[Q] steps.
    """

    steps: RecordedSteps
    requests: Requests
    row: IntArray
    begin: IntArray
    life: IntArray

    @property
    def at_once(self) -> int:
        """Requests in a step, mean."""
        return max(1, round(float(self.life.sum()) / len(self.steps)))

    def drawn(self, chosen: BoolArray, share: float, steps: int, times: int, rng: np.random.Generator) -> TokenBatch:
        """So many steps with `times` as many requests in them as usual, step numbers from 0, sources not known.

        chosen: bool[Q] requests that make `share` of the tokens; the others make the rest in their usual mix. Requests
        come in random order, none again before all of its side have come. A request keeps its pace, so its prompt
        stays a burst.
        """
        at_once = self.at_once * times
        ramp = max(1, round(float(self.life.mean())))
        queue = self._arrivals(chosen, share, at_once * (steps + ramp + int(self.life.max())), rng)
        arrival = np.minimum(np.arange(len(queue)) * ramp // at_once, ramp)
        start = schedule(self.life[queue], at_once, arrival).start
        early = start < steps + ramp
        return self._run(queue[early], start[early] - ramp, steps)

    def _arrivals(self, chosen: BoolArray, share: float, busy_steps: int, rng: np.random.Generator) -> IntArray:
        """int64[n] requests in order of arrival, lives adding up to `busy_steps` or more."""
        sides = [side for side in (np.flatnonzero(chosen), np.flatnonzero(~chosen)) if len(side)]
        shares = np.array([share, 1 - share][: len(sides)] if len(sides) == 2 else [1.0])
        rate = shares / np.array([self.requests.tokens[side].mean() for side in sides])
        rate = rate / rate.sum()
        length = float(rate @ np.array([self.life[side].mean() for side in sides]))
        parts, held = [], 0
        while held < busy_steps:
            part = _dealt(sides, rate, 16 + round((busy_steps - held) / length), rng)
            parts.append(part)
            held += int(self.life[part].sum())
        return np.concatenate(parts)

    def _run(self, queue: IntArray, start: IntArray, steps: int) -> TokenBatch:
        """The tokens of requests int64[n] that start at steps int64[n], those in steps 0..steps-1."""
        tokens = self.requests.tokens[queue]
        copy = np.repeat(np.arange(len(queue)), tokens)
        place = np.arange(len(copy)) - np.repeat(np.cumsum(tokens) - tokens, tokens)
        row = self.row[self.begin[queue][copy] + place]
        step = self.steps.step_of_token[row] - self.requests.first[queue][copy] + start[copy]
        inside = np.flatnonzero((step >= 0) & (step < steps))
        order = inside[np.argsort(step[inside], kind="stable")]
        row = row[order]
        return TokenBatch(
            step=frozen(step[order], np.int32),
            request=frozen(copy[order], np.int64),
            position=sealed(self.steps.position[row]),
            phase=sealed(self.steps.phase[row]),
            source_rank=sealed(np.full(len(row), -1, np.int16)),
            workload=sealed(self.steps.workload[row]),
            experts=sealed(self.steps.experts[row]),
        )


def queue_of(steps: RecordedSteps, requests: Requests) -> Queue:
    """The requests of the steps."""
    return Queue(
        steps=steps,
        requests=requests,
        row=sealed(np.argsort(requests.of_token, kind="stable")),
        begin=sealed(np.cumsum(requests.tokens) - requests.tokens),
        life=sealed(requests.last - requests.first + 1),
    )


def _dealt(sides: list[IntArray], rate: IntArray, count: int, rng: np.random.Generator) -> IntArray:
    """int64[count] members of the sides by their rates, each side dealt through before it is shuffled anew."""
    side = rng.choice(len(sides), count, p=rate)
    out = np.empty(count, np.int64)
    for index, members in enumerate(sides):
        mine = np.flatnonzero(side == index)
        rounds = -(-len(mine) // len(members))
        dealt = [rng.permutation(members) for _ in range(rounds)]
        out[mine] = np.concatenate([*dealt, members[:0]])[: len(mine)]
    return out
