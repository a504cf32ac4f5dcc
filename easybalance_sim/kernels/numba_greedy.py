"""Greedy replication and packing (EPLB), compiled; specification in `reference_greedy`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

IntArray = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]
FloatArray = npt.NDArray[np.float64]


@njit(cache=True, nogil=True)
def replicate(weight: FloatArray, slots: int, cap: int) -> IntArray:
    """int64[E] replica counts of float64[E] loads; see the specification."""
    count, _ = _replicas(weight.copy(), slots, cap)
    return count


def greedy(weight: FloatArray, slots_per_rank: IntArray, speed: FloatArray | None = None) -> Int32Array:
    """int32[L, P] expert of each slot for float64[L, E] loads; see the specification."""
    placed: Int32Array = _greedy(weight, slots_per_rank, _relative(speed, len(slots_per_rank)))
    return placed


def greedy_hierarchical(
    weight: FloatArray, groups: int, node_of_rank: IntArray, slots_per_rank: IntArray, speed: FloatArray | None = None
) -> Int32Array:
    """int32[L, P] expert of each slot with every group inside one node; see the specification."""
    pace = _relative(speed, len(slots_per_rank))
    placed: Int32Array = _greedy_hierarchical(weight, groups, node_of_rank, slots_per_rank, pace)
    return placed


def _relative(speed: FloatArray | None, ranks: int) -> FloatArray:
    return np.ones(ranks) if speed is None else speed / speed.max()


@njit(cache=True, nogil=True)
def _greedy(weight: FloatArray, slots_per_rank: IntArray, pace: FloatArray) -> Int32Array:
    slots = slots_per_rank.copy()
    out = np.empty((weight.shape[0], _first_slot(slots)[-1]), np.int32)
    for layer in range(weight.shape[0]):
        _place(weight[layer].copy(), slots, pace, out[layer])
    return out


@njit(cache=True, nogil=True)
def _greedy_hierarchical(
    weight: FloatArray, groups: int, node_of_rank: IntArray, slots_per_rank: IntArray, pace: FloatArray
) -> Int32Array:
    ranks, layers = len(slots_per_rank), weight.shape[0]
    nodes = 0
    for rank in range(ranks):
        nodes = max(nodes, node_of_rank[rank] + 1)
    node_pace = np.zeros(nodes)
    for rank in range(ranks):
        node_pace[node_of_rank[rank]] += pace[rank]
    first = _first_slot(slots_per_rank.copy())
    out = np.empty((layers, first[ranks]), np.int32)
    for layer in range(layers):
        node_of_group = _pack_groups(weight[layer].copy(), groups, node_pace)
        for node in range(nodes):
            _place_on_node(weight[layer], node, node_of_group, node_of_rank, slots_per_rank, pace, first, out[layer])
    return out


@njit(cache=True, nogil=True)
def _sooner(a: int, b: int, load: FloatArray, pace: FloatArray, more: float) -> bool:
    if pace[a] == pace[b]:
        return bool(load[a] < load[b])
    return bool((load[a] + more) / pace[a] < (load[b] + more) / pace[b])


@njit(cache=True, nogil=True)
def _first_slot(slots_per_rank: IntArray) -> IntArray:
    first = np.zeros(len(slots_per_rank) + 1, np.int64)
    for rank in range(len(slots_per_rank)):
        first[rank + 1] = first[rank] + slots_per_rank[rank]
    return first


@njit(cache=True, nogil=True)
def _hotter(a: int, b: int, unit: FloatArray, count: IntArray) -> bool:
    if unit[a] != unit[b]:
        return bool(unit[a] > unit[b])
    if count[a] != count[b]:
        return bool(count[a] < count[b])
    return a < b


@njit(cache=True, nogil=True)
def _sift(heap: IntArray, size: int, at: int, unit: FloatArray, count: IntArray) -> None:
    moving = heap[at]
    child = 2 * at + 1
    while child < size:
        if child + 1 < size and _hotter(heap[child + 1], heap[child], unit, count):
            child += 1
        if not _hotter(heap[child], moving, unit, count):
            break
        heap[at] = heap[child]
        at, child = child, 2 * child + 1
    heap[at] = moving


@njit(cache=True, nogil=True)
def _heap(unit: FloatArray, count: IntArray) -> IntArray:
    heap = np.arange(len(unit))
    for at in range(len(unit) // 2 - 1, -1, -1):
        _sift(heap, len(unit), at, unit, count)
    return heap


@njit(cache=True, nogil=True)
def _replicas(weight: FloatArray, slots: int, cap: int) -> tuple[IntArray, FloatArray]:
    count, unit = np.ones(len(weight), np.int64), weight.copy()
    heap, size, spare = _heap(unit, count), len(weight), slots - len(weight)
    while spare > 0 and size > 0:
        hottest = heap[0]
        if count[hottest] < cap:
            count[hottest] += 1
            unit[hottest] = weight[hottest] / count[hottest]
            spare -= 1
        else:
            size -= 1
            heap[0] = heap[size]
        _sift(heap, size, 0, unit, count)
    return count, unit


@njit(cache=True, nogil=True)
def _by_heat(unit: FloatArray, count: IntArray) -> IntArray:
    heap, order = _heap(unit, count), np.empty(len(unit), np.int64)
    for taken in range(len(unit)):
        order[taken] = heap[0]
        heap[0] = heap[len(unit) - 1 - taken]
        _sift(heap, len(unit) - 1 - taken, 0, unit, count)
    return order


@njit(cache=True, nogil=True)
def _pack_groups(weight: FloatArray, groups: int, node_pace: FloatArray) -> IntArray:
    nodes = len(node_pace)
    size, per_node = len(weight) // groups, groups // nodes
    load, node_load, used = np.zeros(groups), np.zeros(nodes), np.zeros(nodes, np.int64)
    for expert in range(size * groups):
        load[expert // size] += weight[expert]
    node_of_group = np.empty(groups, np.int64)
    for group in _by_heat(load, np.ones(groups, np.int64)):
        node = -1
        for n in range(nodes):
            if used[n] < per_node and (node < 0 or _sooner(n, node, node_load, node_pace, load[group])):
                node = n
        node_of_group[group] = node
        used[node] += 1
        node_load[node] += load[group]
    return node_of_group


@njit(cache=True, nogil=True)
def _place_on_node(
    weight: FloatArray,
    node: int,
    node_of_group: IntArray,
    node_of_rank: IntArray,
    slots_per_rank: IntArray,
    pace: FloatArray,
    first: IntArray,
    out: Int32Array,
) -> None:
    size = len(weight) // len(node_of_group)
    experts = np.array([e for e in range(len(weight)) if node_of_group[e // size] == node])
    slots = np.array([slots_per_rank[r] for r in range(len(node_of_rank)) if node_of_rank[r] == node])
    paces = np.array([pace[r] for r in range(len(node_of_rank)) if node_of_rank[r] == node])
    placed = np.empty(slots.sum(), np.int32)
    _place(weight[experts], slots, paces, placed)
    taken = 0
    for rank in range(len(node_of_rank)):
        if node_of_rank[rank] == node:
            for slot in range(first[rank], first[rank + 1]):
                out[slot] = experts[placed[taken]]
                taken += 1


@njit(cache=True, nogil=True)
def _place(weight: FloatArray, slots_per_rank: IntArray, pace: FloatArray, out: Int32Array) -> None:
    ranks = len(slots_per_rank)
    first = _first_slot(slots_per_rank)
    used, load, holds = np.zeros(ranks, np.int64), np.zeros(ranks), np.zeros(ranks, np.int64)
    cap = 0
    for rank in range(ranks):
        # Replicas of one expert are placed in a row, so the last expert noted at a rank tells whether it holds it.
        holds[rank] = -1
        cap += slots_per_rank[rank] > 0
    count, unit = _replicas(weight, len(out), cap)
    for expert in _by_heat(unit, count):
        for replica in range(count[expert]):
            rank = _least_busy(load, pace, unit[expert], used, slots_per_rank, holds, expert)
            if rank >= 0:
                out[first[rank] + used[rank]] = expert
                used[rank] += 1
                load[rank] += unit[expert]
            else:
                rank = _swap_in(expert, unit, out, first, used, slots_per_rank, pace, holds, load)
            if rank < 0:
                _drop_rest(expert, replica, weight, count, unit, holds, load)
                break
            holds[rank] = expert
    _fill(weight, count, unit, out, first, used, slots_per_rank)


@njit(cache=True, nogil=True)
def _least_busy(
    load: FloatArray, pace: FloatArray, more: float, used: IntArray, slots: IntArray, holds: IntArray, expert: int
) -> int:
    best = -1
    for rank in range(len(load)):
        if used[rank] == slots[rank] or holds[rank] == expert:
            continue
        if best < 0 or _sooner(rank, best, load, pace, more):
            best = rank
    return best


@njit(cache=True, nogil=True)
def _swap_in(
    expert: int,
    unit: FloatArray,
    out: Int32Array,
    first: IntArray,
    used: IntArray,
    slots: IntArray,
    pace: FloatArray,
    holds: IntArray,
    load: FloatArray,
) -> int:
    best, to, full, from_slot = np.inf, -1, -1, -1
    for a in range(len(slots)):
        for b in range(len(slots)):
            if used[a] == slots[a] or used[b] < slots[b] or holds[b] == expert:
                continue
            for slot in range(first[b], first[b] + used[b]):
                moved = out[slot]
                highest = max((load[a] + unit[moved]) / pace[a], (load[b] - unit[moved] + unit[expert]) / pace[b])
                if highest < best and not _contains(out, first[a], used[a], moved):
                    best, to, full, from_slot = highest, a, b, slot
    if to >= 0:
        moved = out[from_slot]
        out[first[to] + used[to]] = moved
        used[to] += 1
        out[from_slot] = expert
        load[to] += unit[moved]
        load[full] = load[full] - unit[moved] + unit[expert]
    return full


@njit(cache=True, nogil=True)
def _contains(out: Int32Array, first: int, used: int, expert: int) -> bool:
    for slot in range(first, first + used):
        if out[slot] == expert:
            return True
    return False


@njit(cache=True, nogil=True)
def _drop_rest(
    expert: int,
    placed: int,
    weight: FloatArray,
    count: IntArray,
    unit: FloatArray,
    holds: IntArray,
    load: FloatArray,
) -> None:
    per_replica = weight[expert] / placed
    for rank in range(len(load)):
        if holds[rank] == expert:
            load[rank] += per_replica - unit[expert]
    count[expert] = placed
    unit[expert] = per_replica


@njit(cache=True, nogil=True)
def _fill(
    weight: FloatArray,
    count: IntArray,
    unit: FloatArray,
    out: Int32Array,
    first: IntArray,
    used: IntArray,
    slots: IntArray,
) -> None:
    for rank in range(len(slots)):
        while used[rank] < slots[rank]:
            best = -1
            for expert in range(len(weight)):
                if not _contains(out, first[rank], used[rank], expert) and (
                    best < 0 or _hotter(expert, best, unit, count)
                ):
                    best = expert
            out[first[rank] + used[rank]] = best
            used[rank] += 1
            count[best] += 1
            unit[best] = weight[best] / count[best]
