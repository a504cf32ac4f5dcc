"""Overflow of ranks inside one step, re-routed or dropped, as naive loops: the specification of `numba_overflow`."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]

NONE = -1
"""In place of an expert and its rank: this assignment is dropped."""
NEXT, LEAST, DROP = range(3)
"""Where an assignment goes that has to leave its rank."""
MOVED, SHIFTED, DROPPED, STUCK = range(4)
"""What happens to assignments, see `reroute_overflow`."""
ROUNDING = 1e-9
"""Taken off cap · mean, so that 1.1 · 10 is 11."""


def reroute_overflow(
    experts: Ints, ranks: Ints, gates: Floats, scores: Floats, start: Longs, replica_start: Ints, replica_rank: Ints,
    n_ranks: int, cap: float, rule: int, out: Ints, out_ranks: Ints, done: Longs,
) -> None:  # fmt: skip
    """Let no rank have more than ceil(cap · mean) assignments of a step and layer.

    In: experts int32[T, L, K], `NONE` = dropped before · ranks int32[T, L, K] that each goes to, below 0 = an expert's
    replicas are dealt in turn, from number e mod n on · gates float32[T, L, K] of these experts · scores
    float32[T, L, E], -inf = never chosen · start int64[S+1] first token of each step · replica_start int32[L, E+1] into
    replica_rank int32[L, P] · cap ≥ 1 · rule `NEXT`: to the best-scored expert with room, `LEAST`: to the one with the
    fewest assignments of the step, among equals on the least loaded rank, `DROP`: nowhere.
    Out: out, out_ranks int32[T, L, K] · done int64[S, L, 4] assignments that went to another expert, to another replica
    of their own, nowhere, and that had to stay although their rank is over the cap.
    What another replica of the same expert has room for goes there first, in the order of tokens. Of the rest
    the lowest gates leave. A token never gets an expert that it has already; lower ids come first among equals.
    """
    for step in range(len(start) - 1):
        here = slice(int(start[step]), int(start[step + 1]))
        for row in range(experts.shape[1]):
            bounds = zip(replica_start[row, :-1].tolist(), replica_start[row, 1:].tolist(), strict=True)
            layer = _Layer(experts[here, row], [replica_rank[row, a:b].tolist() for a, b in bounds], n_ranks, cap)
            layer.deal(ranks[here, row])
            layer.shift()
            layer.leave(gates[here, row], scores[here, row], rule)
            out[here, row], out_ranks[here, row], done[step, row] = layer.chosen, layer.rank, layer.done


class _Layer:
    """One layer of one step. chosen, rank: [T, K] · load: of ranks · count: of experts · done: see above."""

    def __init__(self, experts: Ints, homes: list[list[int]], n_ranks: int, cap: float) -> None:
        self.chosen, self.homes = experts.copy(), homes
        self.rank = np.full(experts.shape, NONE, np.int32)
        self.load, self.count, self.done = [0] * n_ranks, [0] * len(homes), [0, 0, 0, 0]
        self.most = math.ceil(cap * int((experts != NONE).sum()) / n_ranks - ROUNDING)

    def deal(self, ranks: Ints) -> None:
        """Give every assignment a rank."""
        for place in np.ndindex(self.chosen.shape):
            e = int(self.chosen[place])
            if e == NONE:
                continue
            dealt = self.homes[e][(e + self.count[e]) % len(self.homes[e])]
            self.rank[place] = int(ranks[place]) if ranks[place] >= 0 else dealt
            self.load[self.rank[place]] += 1
            self.count[e] += 1

    def shift(self) -> None:
        """Other replicas take what they have room for."""
        for place in np.ndindex(self.chosen.shape):
            e, here = int(self.chosen[place]), int(self.rank[place])
            if e == NONE or self.load[here] <= self.most:
                continue
            there = self.roomiest(e)
            if self.load[there] < self.most:
                self._move(place, e, there)
                self.done[SHIFTED] += 1

    def leave(self, gates: Floats, scores: Floats, rule: int) -> None:
        """Assignments of the lowest gates leave ranks that are over the cap."""
        over = [max(0, load - self.most) for load in self.load]
        places = [place for place in np.ndindex(self.chosen.shape) if self.chosen[place] != NONE]
        for place in sorted(places, key=lambda place: float(gates[place])):
            if over[self.rank[place]] == 0:
                continue
            over[self.rank[place]] -= 1
            if rule == DROP:
                self._move(place, NONE, NONE)
                self.done[DROPPED] += 1
                continue
            e = self._best(place[0], scores[place[0]], rule)
            self.done[MOVED if e != NONE else STUCK] += 1
            if e != NONE:
                self._move(place, e, self.roomiest(e))

    def roomiest(self, e: int) -> int:
        """The least loaded rank that holds expert e, the first in its list among equals."""
        return min(self.homes[e], key=lambda rank: self.load[rank])

    def _best(self, token: int, scores: Floats, rule: int) -> int:
        """The expert that gets an assignment of this token, `NONE` where none has room."""
        found = [
            e
            for e in range(len(self.homes))
            if self.load[self.roomiest(e)] < self.most and e not in self.chosen[token] and scores[e] > -math.inf
        ]
        if rule == NEXT:
            return min(found, key=lambda e: (-scores[e], e), default=NONE)
        return min(found, key=lambda e: (self.count[e], self.load[self.roomiest(e)], e), default=NONE)

    def _move(self, place: tuple[int, ...], e: int, rank: int) -> None:
        self.load[self.rank[place]] -= 1
        self.count[self.chosen[place]] -= 1
        if e != NONE:
            self.load[rank] += 1
            self.count[e] += 1
        self.chosen[place], self.rank[place] = e, rank
