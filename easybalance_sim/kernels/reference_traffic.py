"""The placement search with a price on copies between nodes, as naive loops: the specification of `numba_traffic`.

A token's source node serves itself where it holds a replica (the rule of SGLang's static dispatch); where it holds
none, every replica elsewhere is as likely. So with c replicas of an expert, c[n] of them on node n:
one replica on node n carries share[n] / c[n] + (share of the sources without a replica) / c of the expert's tokens, and
a token of a source s without a replica goes to node n with probability c[n] / c. What a token costs between nodes:

* normal mode (one copy per remote node): sum over nodes n ≠ s of 1 - product over its experts that s lacks of
  (1 - c[n] / c), averaged over a sample of tokens;
* low latency (one message per assignment): sum over experts e and sources s without a replica of e of message[e, s].

Both are summed: an empty sample or zero messages leave the other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Ids = npt.NDArray[np.uint8] | npt.NDArray[np.uint16]
Sources = npt.NDArray[np.int16]

SWAP_SHARE = 3006477107
"""Of 2^32: proposals that swap two slots (0.7); the others give a slot of a replicated expert to another expert."""
PROPOSALS_PER_COOLING = 64


def copies_per_token(
    has: npt.NDArray[np.bool_], node: Longs, message: Doubles, ids: Ids, source: Sources, weight: Doubles
) -> Doubles:
    """float64[L, C] copies that leave a node per token, for C ways to put the ranks of each layer on nodes.

    has: bool[L, R, E] experts of each rank · node: int64[L, C, R] · message: float64[L, E, N] · ids [L, T, K] experts
    of the sampled tokens · source: int16[T] their nodes, -1 = as likely as `weight` says · weight: float64[N], sum 1.
    """
    out = np.zeros(node.shape[:2])
    for layer, way in np.ndindex(*out.shape):
        copies = np.zeros((has.shape[2], len(weight)), np.int64)
        for rank, place in enumerate(node[layer, way].tolist()):
            copies[:, place] += has[layer, rank]
        out[layer, way] = traffic(copies, message[layer], ids[layer], source, weight)
    return out


def traffic(copies: Longs, message: Doubles, ids: Ids, source: Sources, weight: Doubles) -> float:
    """Copies that leave a node per token; copies: int64[E, N] replicas of one layer's experts on each node."""
    nodes = range(len(weight))
    total = 0.0
    for token, own in zip(ids.tolist(), source.tolist(), strict=True):
        for s in nodes if own < 0 else [own]:
            share = float(weight[s]) if own < 0 else 1.0
            lacking = [e for e in token if copies[e, s] == 0]
            total += share * sum(1 - math.prod(1 - copies[e, n] / copies[e].sum() for e in lacking) for n in nodes)
    messages = sum(float(message[e, n]) for e, n in np.ndindex(*copies.shape) if copies[e, n] == 0)
    return total / max(1, len(ids)) + messages


def node_load(copies: Longs, share: Doubles) -> Doubles:
    """float64[E, N] share of an expert's tokens that one replica on each node gets, 0 where it has none."""
    out = np.zeros(copies.shape)
    for e, n in np.ndindex(*copies.shape):
        if copies[e, n]:
            away = sum(float(share[e, s]) for s in range(copies.shape[1]) if copies[e, s] == 0)
            out[e, n] = float(share[e, n]) / int(copies[e, n]) + away / int(copies[e].sum())
    return out


def search_traffic(
    start: Ints,
    rank_of_slot: Ints,
    node: Longs,
    pace: Floats,
    tokens: Floats,
    share: Doubles,
    message: Doubles,
    ids: Ids,
    source: Sources,
    weight: Doubles,
    price: Doubles,
    proposals: int,
    hot: Doubles,
    cold: Doubles,
    seed: int,
    out: Ints,
    objective: Doubles,
    traffic: Doubles,
) -> None:
    """Anneal every layer on its own on mean over windows and ranks of load^8 + price · traffic.

    In: start int32[L, P] without an expert twice on a rank · rank_of_slot int32[P] · node int64[R] · pace float32[R]
    cost of a token (1 / speed) · tokens float32[L, E, T] windows scaled to a mean rank load of 1 · share
    float64[L, E, N] of an expert's tokens that come from each node · message, ids, source, weight as in
    `copies_per_token` · price, hot, cold float64[L], the latter the first and last temperature in units of the
    objective · proposals per layer.
    Out: out int32[L, P] the best placement seen · objective, traffic float64[L] of it.
    """
    for at in range(len(start)):
        walk = _Walk(
            rank_of_slot, node, pace, tokens[at], share[at], message[at], ids[at], source, weight, float(price[at])
        )
        walk.state = ((seed + at) * 2654435769 + 88172645463325252) & 0xFFFFFFFFFFFFFFFF
        out[at] = walk.anneal(start[at], proposals, float(hot[at]), float(cold[at]))
        objective[at], traffic[at] = walk.value(out[at])


@dataclass
class _Walk:
    """One layer's random walk."""

    rank_of_slot: Ints
    node: Longs
    pace: Floats
    tokens: Floats
    share: Doubles
    message: Doubles
    ids: Ids
    source: Sources
    weight: Doubles
    price: float
    state: int = 0

    def anneal(self, start: Ints, proposals: int, hot: float, cold: float) -> Ints:
        """The best placement seen from `start`."""
        slots, temperature = start.copy(), hot
        value, _ = self.value(slots)
        best, lowest = slots, value
        cooling = (cold / hot) ** (1.0 / max(1, proposals // PROPOSALS_PER_COOLING))
        for proposal in range(proposals):
            if proposal % PROPOSALS_PER_COOLING == 0:
                temperature *= cooling
            changed = self._propose(slots)
            if changed is None:
                continue
            limit = -temperature * math.log((self._next() + 1) * 2.0**-32)
            after, _ = self.value(changed)
            if after - value >= limit:
                continue
            slots, value = changed, after
            if value < lowest - 1e-7 * abs(lowest):
                best, lowest = slots, value
        return best

    def value(self, slots: Ints) -> tuple[float, float]:
        """Objective and traffic of a placement."""
        copies = np.zeros(self.share.shape, np.int64)
        np.add.at(copies, (slots, self.node[self.rank_of_slot]), 1)
        part, load = node_load(copies, self.share), np.zeros((len(self.pace), self.tokens.shape[1]))
        for expert, rank in zip(slots.tolist(), self.rank_of_slot.tolist(), strict=True):
            load[rank] += self.tokens[expert] * part[expert, self.node[rank]] * self.pace[rank]
        cost = traffic(copies, self.message, self.ids, self.source, self.weight)
        return float((load**8).mean()) + self.price * cost, cost

    def _propose(self, slots: Ints) -> Ints | None:
        """Two slots of different ranks exchanged, or one slot of a replicated expert given to another expert."""
        first = self._below(len(slots))
        expert, changed = slots[first], slots.copy()
        if self._next() < SWAP_SHARE:
            second = self._below(len(slots))
            if self.rank_of_slot[first] == self.rank_of_slot[second] or expert == slots[second]:
                return None
            changed[first], changed[second] = slots[second], expert
        else:
            other = self._below(self.tokens.shape[0])
            if other == expert or np.count_nonzero(slots == expert) < 2:
                return None
            changed[first] = other
        held = set(zip(self.rank_of_slot.tolist(), changed.tolist(), strict=True))
        return changed if len(held) == len(slots) else None

    def _next(self) -> int:
        """xorshift64*: 32 random bits."""
        x = self.state
        x ^= x >> 12
        x = (x ^ (x << 25)) & 0xFFFFFFFFFFFFFFFF
        x ^= x >> 27
        self.state = x
        return ((x * 2685821657736338717) & 0xFFFFFFFFFFFFFFFF) >> 32

    def _below(self, bound: int) -> int:
        return (self._next() * bound) >> 32
