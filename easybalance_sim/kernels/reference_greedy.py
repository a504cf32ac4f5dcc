"""Greedy replication and packing (EPLB) as naive loops; the specification of `numba_greedy`.

The steps are those of DeepSeek's expert-parallel load balancer (github.com/deepseek-ai/EPLB): replicas go one by one to
the expert with the largest load per replica, replicas are packed heaviest first onto the least loaded rank. Three rules
are ours: an expert never sits twice on a rank; slots per rank may differ; so may speeds: a replica goes where load /
speed is lowest once it is there. Equally fast ranks are told apart by their load before that.

Every choice follows one total order, so that a plan does not depend on the machine: an expert is *hotter* than another
when its load per replica is larger, on a tie when it has fewer replicas, on a tie when its id is lower.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]
FloatArray = npt.NDArray[np.float64]


def replicate(weight: FloatArray, slots: int, cap: int) -> IntArray:
    """int64[E] replica counts: one each, then +1 to the hottest expert below `cap`, until `slots` are used.

    weight: float64[E] loads ≥ 0 · slots ≥ E; with slots > cap·E every expert ends at `cap`.
    Minimises max_e weight_e / count_e over all counts with that sum and cap.
    """
    count = np.ones(len(weight), np.int64)
    for _ in range(slots - len(weight)):
        open_experts = [e for e in range(len(weight)) if count[e] < cap]
        if not open_experts:
            break
        count[_by_heat(weight, count, open_experts)[0]] += 1
    return count


def greedy(weight: FloatArray, slots_per_rank: IntArray, speed: FloatArray | None = None) -> Int32Array:
    """int32[L, P] expert of each slot, slots numbered rank by rank; every layer is placed on its own.

    weight: float64[L, E] loads ≥ 0 · slots_per_rank: int64[R], each ≤ E, sum P ≥ E · speed: float64[R], None = equal.
    """
    placed = [_place(layer, slots_per_rank, _relative(speed, len(slots_per_rank))) for layer in weight]
    return np.array(placed, np.int32).reshape(len(weight), int(slots_per_rank.sum()))


def greedy_hierarchical(
    weight: FloatArray, groups: int, node_of_rank: IntArray, slots_per_rank: IntArray, speed: FloatArray | None = None
) -> Int32Array:
    """int32[L, P] expert of each slot; every group of E/groups neighbouring experts stays inside one node.

    weight: float64[L, E] · node_of_rank: int64[R], ids 0..N-1, N divides `groups` · slots_per_rank: int64[R]; the slots
    of each node hold E/N experts and no rank has more slots than that · speed: float64[R], None = equal.
    """
    nodes, pace = int(node_of_rank.max()) + 1, _relative(speed, len(node_of_rank))
    node_pace = [sum(float(p) for p in pace[node_of_rank == n]) for n in range(nodes)]
    first = np.concatenate([[0], np.cumsum(slots_per_rank)])
    out = np.full((len(weight), int(first[-1])), -1, np.int32)
    for layer, loads in enumerate(weight):
        for node, experts in enumerate(_experts_of_nodes(loads, groups, node_pace)):
            ranks = [r for r in range(len(node_of_rank)) if node_of_rank[r] == node]
            slots = [first[r] + k for r in ranks for k in range(slots_per_rank[r])]
            placed = _place(loads[experts], slots_per_rank[ranks], pace[ranks])
            for slot, local in zip(slots, placed, strict=True):
                out[layer, slot] = experts[local]
    return out


def _by_heat(weight: FloatArray, count: IntArray, experts: list[int]) -> list[int]:
    return sorted(experts, key=lambda e: (-weight[e] / count[e], count[e], e))


def _relative(speed: FloatArray | None, ranks: int) -> FloatArray:
    """float64[R] speed over the highest one: exactly 1 for equal ranks, so that they are compared by their loads."""
    return np.ones(ranks) if speed is None else speed / speed.max()


def _least_busy(able: list[int], load: list[float], pace: FloatArray | list[float], more: float) -> int:
    """The first of `able` that no later one beats with `more` load added."""
    best = able[0]
    for one in able[1:]:
        if pace[one] == pace[best]:
            sooner = load[one] < load[best]
        else:
            sooner = (load[one] + more) / pace[one] < (load[best] + more) / pace[best]
        best = one if sooner else best
    return best


def _experts_of_nodes(weight: FloatArray, groups: int, node_pace: list[float]) -> list[list[int]]:
    """Groups to nodes, heaviest first to the least busy node that still takes one; groups/nodes each."""
    size, nodes = len(weight) // groups, len(node_pace)
    load = [sum(float(w) for w in weight[g * size : (g + 1) * size]) for g in range(groups)]
    node_load = [0.0] * nodes
    experts: list[list[int]] = [[] for _ in range(nodes)]
    for group in sorted(range(groups), key=lambda g: (-load[g], g)):
        free = [n for n in range(nodes) if len(experts[n]) < size * (groups // nodes)]
        node = _least_busy(free, node_load, node_pace, load[group])
        experts[node] += range(group * size, (group + 1) * size)
        node_load[node] += load[group]
    return [sorted(held) for held in experts]


def _place(weight: FloatArray, slots_per_rank: IntArray, pace: FloatArray) -> list[int]:
    ranks = _Ranks([int(s) for s in slots_per_rank], pace)
    count = replicate(weight, sum(ranks.slots), sum(s > 0 for s in ranks.slots))
    unit = weight / count
    for expert in _by_heat(weight, count, list(range(len(weight)))):
        for replica in range(count[expert]):
            if not (ranks.put(expert, unit) or ranks.swap_in(expert, unit)):
                count[expert] = replica
                ranks.reload(expert, unit, weight[expert] / replica)
                break
    ranks.fill(weight, count)
    return [expert for held in ranks.held for expert in held]


class _Ranks:
    """pace: relative speed · held: experts of each rank in slot order · load: sum of their loads per replica."""

    def __init__(self, slots: list[int], pace: FloatArray) -> None:
        self.slots, self.pace = slots, pace
        self.held: list[list[int]] = [[] for _ in slots]
        self.load = [0.0] * len(slots)

    def has_free(self, rank: int) -> bool:
        return len(self.held[rank]) < self.slots[rank]

    def put(self, expert: int, unit: FloatArray) -> bool:
        """One replica to the least busy rank with a free slot that lacks the expert, if there is one."""
        able = [r for r in range(len(self.slots)) if self.has_free(r) and expert not in self.held[r]]
        if able:
            rank = _least_busy(able, self.load, self.pace, float(unit[expert]))
            self.held[rank].append(expert)
            self.load[rank] += unit[expert]
        return bool(able)

    def swap_in(self, expert: int, unit: FloatArray) -> bool:
        """One replica onto a full rank, whose expert moves to a free slot: the move that keeps both least busy.

        First found on a tie, scanning the rank with the free slot, then the full rank, then its slots.
        """
        best, move = np.inf, None
        for to in range(len(self.slots)):
            for full in range(len(self.slots)):
                if not self.has_free(to) or self.has_free(full) or expert in self.held[full]:
                    continue
                for slot, moved in enumerate(self.held[full]):
                    highest = max(
                        (self.load[to] + unit[moved]) / self.pace[to],
                        (self.load[full] - unit[moved] + unit[expert]) / self.pace[full],
                    )
                    if moved not in self.held[to] and highest < best:
                        best, move = highest, (to, full, slot)
        if move is not None:
            to, full, slot = move
            moved = self.held[full][slot]
            self.held[to].append(moved)
            self.held[full][slot] = expert
            self.load[to] += unit[moved]
            self.load[full] = self.load[full] - unit[moved] + unit[expert]
        return move is not None

    def reload(self, expert: int, unit: FloatArray, load_per_replica: float) -> None:
        """Correct the loads after the expert lost the replicas that found no rank."""
        for rank, held in enumerate(self.held):
            if expert in held:
                self.load[rank] += load_per_replica - unit[expert]
        unit[expert] = load_per_replica

    def fill(self, weight: FloatArray, count: IntArray) -> None:
        """Give every slot that is still free to the hottest expert that its rank lacks."""
        for rank, held in enumerate(self.held):
            while self.has_free(rank):
                expert = _by_heat(weight, count, [e for e in range(len(weight)) if e not in held])[0]
                held.append(expert)
                count[expert] += 1
