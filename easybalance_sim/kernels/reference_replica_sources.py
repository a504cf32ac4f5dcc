"""Replica choice that looks at where tokens are, as naive loops: the specification of `numba_replica_sources`.

Every source rank has its own counts. It decides alone, or all together decide how much a replica takes and only share
out whose assignments these are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from easybalance_sim.kernels.reference_dispatch import draw
from easybalance_sim.kernels.reference_replicas import Ints, Longs, by_load, pour, replicas_of, singles

ALONE, NEAR, NEAR_TOGETHER, TWO_ALONE, TWO_DELAYED, WEIGHTED = range(6)
"""Least loaded by what the source itself sends · the same among the nearest replicas · the same by what all send · of
two drawn replicas the one to whose rank the source sends less · the one whose rank had less in earlier steps · by
weights."""

DRAWN = 1 << 16


def split_by_source(
    counts: Ints,
    step: Longs,
    replica_start: Ints,
    replica_slot: Ints,
    rank_of_slot: Ints,
    node: Ints,
    rule: int,
    seed: int,
    weights: Ints,
    loads: Longs,
    window: int,
    delay: int,
    sent: Ints,
) -> None:
    """Every source rank of a step and layer chooses replicas for its own assignments.

    In: counts int32[S, L, R, E] of each source · step, replica_start, replica_slot, rank_of_slot as for `split_counts`
    · node int32[R] · rule, seed · weights int32[S, L, P] of WEIGHTED, all 0 = equal · window, delay of TWO_DELAYED:
    steps whose rank loads are seen, the newest `delay` steps ago.
    Out: sent int32[S, L, R, P], zeros at first · loads int64[H+S, L, R] rank loads: H earlier steps are given (H at
    least window + delay - 1), those of the S steps are written.
    """
    earlier = len(loads) - len(counts)
    for s, layer in np.ndindex(counts.shape[:2]):
        held = replicas_of(replica_start[layer], replica_slot[layer])
        newest = earlier + s - delay
        seen = loads[newest - window + 1 : newest + 1, layer].sum(axis=0).tolist()
        if rule == NEAR_TOGETHER:
            seen = singles(_given(counts[s, layer].sum(axis=0)), held, rank_of_slot, len(node))
        for source in range(len(node)):
            given, out = _given(counts[s, layer, source]), sent[s, layer, source]
            if rule in (ALONE, NEAR, TWO_ALONE):
                seen = singles(given, held, rank_of_slot, len(node))
            for e, slots in held.items():
                if len(slots) == 1:
                    out[slots[0]] += given[e]
            place = (seed, int(step[s]), layer, source)
            for e in by_load(given, held):
                if rule in (TWO_ALONE, TWO_DELAYED):
                    _of_two(given[e], held[e], rank_of_slot, seen, rule == TWO_ALONE, (*place, e), out)
                elif rule == WEIGHTED:
                    _by_weight(given[e], held[e], weights[s, layer][held[e]].tolist(), (*place, e), out)
                else:
                    slots = held[e] if rule == ALONE else nearest(held[e], source, rank_of_slot, node)
                    out[slots] += np.array(pour(given[e], slots, rank_of_slot, seen), np.int32)
        np.add.at(loads[earlier + s, layer], rank_of_slot, sent[s, layer].sum(axis=0))


def nearest(slots: list[int], source: int, rank_of_slot: Ints, node: Ints) -> list[int]:
    """Those on the source's own rank, else on its node, else all."""
    own = [p for p in slots if rank_of_slot[p] == source]
    near = [p for p in slots if node[rank_of_slot[p]] == node[source]]
    return own or near or slots


def share_by_source(
    counts: Ints, took: Ints, replica_start: Ints, replica_slot: Ints, rank_of_slot: Ints, node: Ints, sent: Ints
) -> None:
    """Whose assignments a replica takes, when it is known how many: those of its own rank first, then of its node.

    In: counts int32[S, L, R, E] · took int32[S, L, P] with the same sum for every expert. Out: sent int32[S, L, R, P],
    zeros at first. Of all ways to share out this one leaves the fewest assignments between nodes. Sources
    begin with different replicas: one of two on a node would get all that comes from there, the other what comes from
    far.
    """
    for s, layer in np.ndindex(counts.shape[:2]):
        held = replicas_of(replica_start[layer], replica_slot[layer])
        for e, slots in held.items():
            need = counts[s, layer, :, e].copy()
            left = {p: int(took[s, layer, p]) for p in slots}
            for reach in range(3):
                for source in range(len(node)):
                    for c in range(len(slots)):
                        p = slots[(c + source) % len(slots)]
                        if _within(reach, source, int(rank_of_slot[p]), node):
                            more = min(int(need[source]), left[p])
                            sent[s, layer, source, p] += more
                            need[source] -= more
                            left[p] -= more


def fill_slots(
    experts: npt.NDArray[Any],
    start: Longs,
    source: npt.NDArray[np.int16],
    replica_start: Ints,
    replica_slot: Ints,
    sent: Ints,
    slots: npt.NDArray[Any],
) -> None:
    """The slot of every assignment: a source's tokens in trace order fill what it sends to the first replica, then to
    the second, and so on.

    In: experts ids [T, L, K] · start int64[S+1] first token of each step · source int16[T] · sent int32[S, L, R, P],
    counted down to 0. Out: slots [T, L, K].
    """
    for s in range(len(start) - 1):
        for t in range(int(start[s]), int(start[s + 1])):
            for layer, k in np.ndindex(experts.shape[1:]):
                e, left = int(experts[t, layer, k]), sent[s, layer, source[t]]
                held = replica_slot[layer, replica_start[layer, e] : replica_start[layer, e + 1]]
                slot = next(int(p) for p in held if left[p] > 0)
                left[slot] -= 1
                slots[t, layer, k] = slot


def _given(counts: npt.NDArray[Any]) -> dict[int, int]:
    return {e: int(n) for e, n in enumerate(counts)}


def _within(reach: int, source: int, rank: int, node: Ints) -> bool:
    return bool(reach == 2 or (reach == 1 and node[rank] == node[source]) or rank == source)


def _of_two(
    count: int,
    slots: list[int],
    rank_of_slot: Ints,
    seen: list[int],
    own: bool,
    place: tuple[int, int, int, int, int],
    out: Ints,
) -> None:
    for n in range(count):
        first, second = (draw(*place, k) for k in (2 * n, 2 * n + 1))
        first, second = first % len(slots), second % (len(slots) - 1)
        second += second >= first
        one, other = slots[first], slots[second]
        chosen = other if seen[rank_of_slot[other]] < seen[rank_of_slot[one]] else one
        out[chosen] += 1
        if own:
            seen[rank_of_slot[chosen]] += 1


def _by_weight(
    count: int, slots: list[int], weights: list[int], place: tuple[int, int, int, int, int], out: Ints
) -> None:
    """Systematic sampling: every replica gets its share, rounded down or up by one draw for all."""
    weights = weights if sum(weights) else [1] * len(slots)
    total, drawn = sum(weights), draw(*place, 0)
    reached, before = 0, 0
    for slot, weight in zip(slots, weights, strict=True):
        reached += weight
        upto = (reached * count * DRAWN + drawn * total) // (total * DRAWN)
        out[slot] += upto - before
        before = upto
