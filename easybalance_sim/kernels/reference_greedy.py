"""Greedy replication and packing (EPLB) as naive loops; the specification of `numba_greedy`.

The steps are those of DeepSeek's expert-parallel load balancer (github.com/deepseek-ai/EPLB): replicas go one by one to
the expert with the largest load per replica, replicas are packed heaviest first onto the least loaded rank. Two rules
are ours: an expert never sits twice on a rank, and slots per rank may differ.

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


def greedy(weight: FloatArray, slots_per_rank: IntArray) -> Int32Array:
    """int32[L, P] expert of each slot, slots numbered rank by rank; every layer is placed on its own.

    weight: float64[L, E] loads ≥ 0 · slots_per_rank: int64[R], each ≤ E, sum P ≥ E.
    """
    placed = [_place(layer, slots_per_rank) for layer in weight]
    return np.array(placed, np.int32).reshape(len(weight), int(slots_per_rank.sum()))


def greedy_hierarchical(
    weight: FloatArray, groups: int, node_of_rank: IntArray, slots_per_rank: IntArray
) -> Int32Array:
    """int32[L, P] expert of each slot; every group of E/groups neighbouring experts stays inside one node.

    weight: float64[L, E] · node_of_rank: int64[R], ids 0..N-1, N divides `groups` · slots_per_rank: int64[R]; the slots
    of each node hold E/N experts and no rank has more slots than that.
    """
    nodes = int(node_of_rank.max()) + 1
    first = np.concatenate([[0], np.cumsum(slots_per_rank)])
    out = np.full((len(weight), int(first[-1])), -1, np.int32)
    for layer, loads in enumerate(weight):
        for node, experts in enumerate(_experts_of_nodes(loads, groups, nodes)):
            ranks = [r for r in range(len(node_of_rank)) if node_of_rank[r] == node]
            slots = [first[r] + k for r in ranks for k in range(slots_per_rank[r])]
            placed = _place(loads[experts], slots_per_rank[ranks])
            for slot, local in zip(slots, placed, strict=True):
                out[layer, slot] = experts[local]
    return out


def _by_heat(weight: FloatArray, count: IntArray, experts: list[int]) -> list[int]:
    return sorted(experts, key=lambda e: (-weight[e] / count[e], count[e], e))


def _experts_of_nodes(weight: FloatArray, groups: int, nodes: int) -> list[list[int]]:
    """Groups to nodes, heaviest first to the least loaded node that still takes one; groups/nodes each."""
    size = len(weight) // groups
    load = [sum(float(w) for w in weight[g * size : (g + 1) * size]) for g in range(groups)]
    node_load = [0.0] * nodes
    experts: list[list[int]] = [[] for _ in range(nodes)]
    for group in sorted(range(groups), key=lambda g: (-load[g], g)):
        free = [n for n in range(nodes) if len(experts[n]) < size * (groups // nodes)]
        node = min(free, key=lambda n: (node_load[n], n))
        experts[node] += range(group * size, (group + 1) * size)
        node_load[node] += load[group]
    return [sorted(held) for held in experts]


def _place(weight: FloatArray, slots_per_rank: IntArray) -> list[int]:
    ranks = _Ranks([int(s) for s in slots_per_rank])
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
    """held: experts of each rank in slot order · load: sum of their loads per replica."""

    def __init__(self, slots: list[int]) -> None:
        self.slots = slots
        self.held: list[list[int]] = [[] for _ in slots]
        self.load = [0.0] * len(slots)

    def has_free(self, rank: int) -> bool:
        return len(self.held[rank]) < self.slots[rank]

    def put(self, expert: int, unit: FloatArray) -> bool:
        """One replica to the least loaded rank with a free slot that lacks the expert, if there is one."""
        able = [r for r in range(len(self.slots)) if self.has_free(r) and expert not in self.held[r]]
        if able:
            rank = min(able, key=lambda r: (self.load[r], r))
            self.held[rank].append(expert)
            self.load[rank] += unit[expert]
        return bool(able)

    def swap_in(self, expert: int, unit: FloatArray) -> bool:
        """One replica onto a full rank, whose expert moves to a free slot: the move that keeps both loads lowest.

        First found on a tie, scanning the rank with the free slot, then the full rank, then its slots.
        """
        best, move = np.inf, None
        for to in range(len(self.slots)):
            for full in range(len(self.slots)):
                if not self.has_free(to) or self.has_free(full) or expert in self.held[full]:
                    continue
                for slot, moved in enumerate(self.held[full]):
                    highest = max(self.load[to] + unit[moved], self.load[full] - unit[moved] + unit[expert])
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
