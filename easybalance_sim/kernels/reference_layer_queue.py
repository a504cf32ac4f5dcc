"""Micro-batches that wait for ranks, event by event as naive loops: the specification of `numba_layer_queue`.

A micro-batch passes its stages one after another. A stage has a part on every rank; a rank serves one part at a time,
to its end. When the last part is done the micro-batch travels for the stage's delay, then its next stage begins. The
micro-batches of a lane follow one another without a pause. All that happens at one moment happens before any rank
chooses; ranks choose in the order of their numbers, among parts of equal claim that of the lowest micro-batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]

FIFO, OLDEST, HEAT, PATH, CLOSING = 0, 1, 2, 3, 4
"""Which waiting part a free rank takes: the one that came first; that of the lowest micro-batch; on a rank hotter than
the mean the part of the stage that is coldest there, on another that of the hottest; that with the longest
tail; that of the micro-batch with the fewest parts left in its stage."""


def layer_queue(
    service: Floats, delay: Floats, lane: Ints, hot: Floats, tail: Floats, rule: int, decay_s: float
) -> tuple[Floats, Floats, Floats]:
    """Runs all micro-batches.

    In: service float64[B, G, R] ≥ 0 seconds of each part · delay float64[B, G] ≥ 0 · lane int32[B], 0-based · hot
    float64[G, R] how hot a stage is on a rank · tail float64[B, G] seconds that follow a stage at least · rule: one of
    the constants · decay_s > 0: in which a rank's heat, the seconds of work that came to it, falls to 1/e.
    Returns start and finish float64[B] and busy float64[R] seconds of each rank.
    """
    run = _Run(service, delay, hot, tail, rule, decay_s)
    lanes = [_Lane([b for b, own in enumerate(lane.tolist()) if own == m]) for m in range(int(lane.max()) + 1)]
    ranks = [_Rank() for _ in range(service.shape[2])]
    start, finish = np.zeros(len(service)), np.zeros(len(service))
    busy = np.zeros(len(ranks))
    while True:
        now = min([each.ready for each in lanes] + [each.until for each in ranks])
        if now == math.inf:
            return start, finish, busy
        while min([each.ready for each in lanes] + [each.until for each in ranks]) <= now:
            for rank in ranks:
                if rank.until <= now:
                    run.end_part(rank, now)
            for own in lanes:
                if own.ready <= now:
                    run.begin_stage(own, ranks, now, start, finish)
        for number, rank in enumerate(ranks):
            if rank.until == math.inf and rank.waiting:
                busy[number] += run.choose(number, ranks, now)


@dataclass
class _Lane:
    """todo: its micro-batches · stage: that begins at `ready` or runs · open: parts that are not done."""

    todo: list[int]
    stage: int = 0
    ready: float = 0.0
    open: int = 0
    entered: bool = False


@dataclass
class _Rank:
    """waiting: (time of arrival, lane) · until: end of what it serves, for `serves`."""

    waiting: list[tuple[float, _Lane]] = field(default_factory=list)
    until: float = math.inf
    serves: _Lane | None = None
    heat: float = 0.0
    heated: float = 0.0


@dataclass
class _Run:
    service: Floats
    delay: Floats
    hot: Floats
    tail: Floats
    rule: int
    decay_s: float

    def end_part(self, rank: _Rank, now: float) -> None:
        own = rank.serves
        rank.until, rank.serves = math.inf, None
        if own is not None:
            own.open -= 1
            if own.open == 0:
                self._leave(own, now)

    def begin_stage(self, own: _Lane, ranks: list[_Rank], now: float, start: Floats, finish: Floats) -> None:
        own.ready = math.inf
        if own.entered and own.stage == self.service.shape[1]:
            finish[own.todo.pop(0)] = now
            own.entered = False
        if not own.todo:
            return
        batch = own.todo[0]
        if not own.entered:
            own.entered, own.stage, start[batch] = True, 0, now
        for number, rank in enumerate(ranks):
            seconds = float(self.service[batch, own.stage, number])
            if seconds > 0:
                rank.heat, rank.heated = self._heat(rank, now) + seconds, now
                rank.waiting.append((now, own))
                own.open += 1
        if own.open == 0:
            self._leave(own, now)

    def choose(self, number: int, ranks: list[_Rank], now: float) -> float:
        """Seconds of the part that rank `number` takes up."""
        rank = ranks[number]
        is_hot = self._heat(rank, now) > sum(self._heat(each, now) for each in ranks) / len(ranks)
        claims = [(*self._claim(came, own, number, is_hot), place) for place, (came, own) in enumerate(rank.waiting)]
        own = rank.waiting.pop(min(claims)[2])[1]
        seconds = float(self.service[own.todo[0], own.stage, number])
        rank.until, rank.serves = now + seconds, own
        return seconds

    def _leave(self, own: _Lane, now: float) -> None:
        own.ready = now + float(self.delay[own.todo[0], own.stage])
        own.stage += 1

    def _claim(self, came: float, own: _Lane, number: int, is_hot: bool) -> tuple[float, int]:
        """What is served first is lowest."""
        batch, stage = own.todo[0], own.stage
        heat = float(self.hot[stage, number])
        claims = {
            FIFO: came,
            OLDEST: 0.0,
            HEAT: heat if is_hot else -heat,
            PATH: -float(self.tail[batch, stage]),
            CLOSING: float(own.open),
        }
        return claims[self.rule], batch

    def _heat(self, rank: _Rank, now: float) -> float:
        return rank.heat * math.exp((rank.heated - now) / self.decay_s)
