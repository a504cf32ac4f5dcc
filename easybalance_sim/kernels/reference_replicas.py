"""How many assignments every replica takes when the counts of a step are known, as naive loops: the specification of
`numba_replicas`.

Counts and replicas of one layer: an expert with one replica gives it all; the others share theirs so that ranks end
even. All four rules hand out whole assignments and all of them.
"""

from __future__ import annotations

import itertools
from math import floor

import numpy as np
import numpy.typing as npt

EVEN, LEAST_LOADED, WATER, OPTIMUM = range(4)
"""Taking turns · whole assignments to the least loaded rank, experts in descending load · shares levelled again and
again, then rounded · the lowest possible busiest rank."""

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Replicas = dict[int, list[int]]
"""Slots of each expert."""


def split_counts(
    counts: Ints,
    step: Longs,
    replica_start: Ints,
    replica_slot: Ints,
    rank_of_slot: Ints,
    ranks: int,
    rule: int,
    passes: int,
    took: Ints,
    bound: Floats,
) -> None:
    """Share the assignments of every step and layer among replicas.

    In: counts int32[S, L, E] · step int64[S] step numbers · replica_start int32[L, E+1], replica_slot int32[L, P] slots
    of each expert in slot order, on different ranks · rank_of_slot int32[P] · ranks R · rule · passes of WATER.
    Out: took int32[S, L, P], zeros at first · bound float64[S, L] written by OPTIMUM: the lowest busiest rank if
    assignments could be cut in pieces.
    """
    for s, layer in np.ndindex(counts.shape[:2]):
        held = replicas_of(replica_start[layer], replica_slot[layer])
        given = {e: int(n) for e, n in enumerate(counts[s, layer])}
        if rule == EVEN:
            shares = {e: _in_turn(given[e], len(slots), int(step[s])) for e, slots in held.items()}
        elif rule == LEAST_LOADED:
            shares = _least_loaded(given, held, rank_of_slot, ranks)
        elif rule == WATER:
            shares = _levelled(given, held, rank_of_slot, ranks, passes)
        else:
            shares = _optimum(given, held, rank_of_slot, ranks)
            bound[s, layer] = lowest(given, held, rank_of_slot, ranks)
        for e, share in shares.items():
            took[s, layer][held[e]] += np.array(share, np.int32)


def replicas_of(starts: Ints, slots: Ints) -> Replicas:
    """The slots of each expert of one layer."""
    return {e: slots[starts[e] : starts[e + 1]].tolist() for e in range(len(starts) - 1)}


def lowest(given: dict[int, int], held: Replicas, rank_of_slot: Ints, ranks: int) -> float:
    """The busiest rank of the best split in fractions: max over sets of ranks of what can only go there, per rank
    (max-flow min-cut)."""
    homes = {e: {int(rank_of_slot[p]) for p in slots} for e, slots in held.items()}
    sets = itertools.chain.from_iterable(itertools.combinations(range(ranks), n) for n in range(1, ranks + 1))
    return max(sum(n for e, n in given.items() if homes[e] <= set(among)) / len(among) for among in sets)


def by_load(given: dict[int, int], held: Replicas) -> list[int]:
    """Experts with several replicas, the most loaded first, on a tie the lower id."""
    return sorted((e for e in held if len(held[e]) > 1), key=lambda e: (-given[e], e))


def singles(given: dict[int, int], held: Replicas, rank_of_slot: Ints, ranks: int) -> list[int]:
    """Rank loads of the experts without a choice."""
    load = [0] * ranks
    for e, slots in held.items():
        if len(slots) == 1:
            load[rank_of_slot[slots[0]]] += given[e]
    return load


def pour(count: int, slots: list[int], rank_of_slot: Ints, load: list[int]) -> list[int]:
    """One assignment after the other to the least loaded rank, on a tie the first slot; `load` rises."""
    share = [0] * len(slots)
    for _ in range(count):
        best = min(range(len(slots)), key=lambda c: load[rank_of_slot[slots[c]]])
        share[best] += 1
        load[rank_of_slot[slots[best]]] += 1
    return share


def _in_turn(count: int, replicas: int, step: int) -> list[int]:
    share = [0] * replicas
    for n in range(count):
        share[(step + n) % replicas] += 1
    return share


def _least_loaded(given: dict[int, int], held: Replicas, rank_of_slot: Ints, ranks: int) -> dict[int, list[int]]:
    load = singles(given, held, rank_of_slot, ranks)
    shares = {e: [given[e]] for e in held}
    for e in by_load(given, held):
        shares[e] = pour(given[e], held[e], rank_of_slot, load)
    return shares


def _levelled(
    given: dict[int, int], held: Replicas, rank_of_slot: Ints, ranks: int, passes: int
) -> dict[int, list[int]]:
    load = [float(n) for n in singles(given, held, rank_of_slot, ranks)]
    order = by_load(given, held)
    share = {e: [given[e] / len(held[e])] * len(held[e]) for e in order}
    for e in order:
        for c, p in enumerate(held[e]):
            load[rank_of_slot[p]] += share[e][c]
    for _ in range(passes):
        for e in order:
            homes = [int(rank_of_slot[p]) for p in held[e]]
            for c, rank in enumerate(homes):
                load[rank] -= share[e][c]
            share[e] = _fill_up(float(given[e]), [load[rank] for rank in homes])
            for c, rank in enumerate(homes):
                load[rank] += share[e][c]
    return {e: [given[e]] for e in held} | {e: _whole(share[e], given[e]) for e in order}


def _fill_up(amount: float, load: list[float]) -> list[float]:
    """What each rank takes of an amount until those that take some are level."""
    rising = sorted(load)
    total, level = 0.0, 0.0
    for n, one in enumerate(rising):
        total += one
        level = (amount + total) / (n + 1)
        if n + 1 == len(rising) or level <= rising[n + 1]:
            break
    return [max(0.0, level - one) for one in load]


def _whole(share: list[float], count: int) -> list[int]:
    """Rounded down, what is missing to those with the largest remainders, on a tie the first."""
    down = [min(floor(one), count) for one in share]
    order = sorted(range(len(share)), key=lambda c: (down[c] - share[c], c))
    for n in range(count - sum(down)):
        down[order[n % len(order)]] += 1
    return down


def _optimum(given: dict[int, int], held: Replicas, rank_of_slot: Ints, ranks: int) -> dict[int, list[int]]:
    """From the least loaded split, one assignment at a time along a chain of replicas that relieves the busiest rank,
    until no chain ends on a rank that is at least two lower."""
    shares = _least_loaded(given, held, rank_of_slot, ranks)
    while (chain := _chain(shares, held, rank_of_slot, ranks)) is not None:
        for e, start, end in chain:
            shares[e][start] -= 1
            shares[e][end] += 1
    return shares


def _chain(
    shares: dict[int, list[int]], held: Replicas, rank_of_slot: Ints, ranks: int
) -> list[tuple[int, int, int]] | None:
    load = [0] * ranks
    for e, slots in held.items():
        for c, p in enumerate(slots):
            load[rank_of_slot[p]] += shares[e][c]
    busiest = load.index(max(load))
    reached: dict[int, list[tuple[int, int, int]]] = {busiest: []}
    queue = [busiest]
    for rank in queue:
        for e, slots in held.items():
            homes = [int(rank_of_slot[p]) for p in slots]
            if rank not in homes or shares[e][homes.index(rank)] == 0:
                continue
            for c, home in enumerate(homes):
                if home not in reached:
                    reached[home] = [*reached[rank], (e, homes.index(rank), c)]
                    queue.append(home)
                    if load[home] <= load[busiest] - 2:
                        return reached[home]
    return None
