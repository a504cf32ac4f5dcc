"""Greedy replication and packing (EPLB), compiled; specification in `reference_greedy`.

Only as many of the hottest experts as there are spare slots can get a replica: a heap of these is enough, and the
others keep their order. Equally fast ranks stand at the leaves of a tournament tree whose root is the least busy one
that may take the expert. Layers in which that finds no rank, and ranks of different speeds, take the careful way, which
is compiled when the first one comes. The loops are compiled without numba's runtime and work in arrays that they are
given. To compile in a second, functions with one caller are inlined before, else they would be compiled alone too, and
numbers that start as constants are written np.int64(…), else what they are passed to would be compiled for the constant
and for the variable.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from easybalance_sim.kernels.bare import bare_njit

IntArray = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]
FloatArray = npt.NDArray[np.float64]


def replicate(weight: FloatArray, slots: int, cap: int) -> IntArray:
    """int64[E] replica counts of float64[E] loads; see the specification."""
    loads, count = np.array(weight, np.float64), np.empty(len(weight), np.int64)
    order = np.argsort(-loads)
    _replicate(loads, order, slots - len(loads), cap, np.empty_like(order), count, np.empty_like(loads))
    return count


def greedy(weight: FloatArray, slots_per_rank: IntArray, speed: FloatArray | None = None) -> Int32Array:
    """int32[L, P] expert of each slot for float64[L, E] loads; see the specification."""
    return _place(weight, slots_per_rank, _relative(speed, len(slots_per_rank)))


def greedy_hierarchical(
    weight: FloatArray, groups: int, node_of_rank: IntArray, slots_per_rank: IntArray, speed: FloatArray | None = None
) -> Int32Array:
    """int32[L, P] expert of each slot with every group inside one node; see the specification."""
    size, pace = weight.shape[1] // groups, _relative(speed, len(slots_per_rank))
    node_pace = np.bincount(node_of_rank, pace).astype(np.float64)
    node_of_expert = np.repeat(_nodes_of_groups(weight, groups, node_pace), size, axis=1)
    out = np.empty((len(weight), int(slots_per_rank.sum())), np.int32)
    for node in range(len(node_pace)):
        ranks, share = node_of_rank == node, groups // len(node_pace) * size
        experts = np.argsort(node_of_expert != node, axis=1, kind="stable")[:, :share]
        placed = _place(np.take_along_axis(weight, experts, axis=1), slots_per_rank[ranks], pace[ranks])
        out[:, np.repeat(ranks, slots_per_rank)] = np.take_along_axis(experts, placed, axis=1)
    return out


def _relative(speed: FloatArray | None, ranks: int) -> FloatArray:
    return np.ones(ranks) if speed is None else speed / speed.max()


def _nodes_of_groups(weight: FloatArray, groups: int, node_pace: FloatArray) -> IntArray:
    """int64[L, G] node of each group, all layers at once."""
    layer, nodes, size = np.arange(len(weight)), len(node_pace), weight.shape[1] // groups
    load = np.zeros((len(weight), groups))
    # One expert after the other: numpy's own sum adds in another order.
    for place in range(size):
        load += weight[:, place : size * groups : size]
    node_of_group = np.zeros((len(weight), groups), np.int64)
    node_load, used = np.zeros((len(weight), nodes)), np.zeros((len(weight), nodes), np.int64)
    for group in np.argsort(-load, axis=1, kind="stable").T:
        more, best = load[layer, group], np.full(len(weight), -1)
        for node in range(nodes):
            mine, least = node_load[:, node], node_load[layer, best]
            sooner = (mine + more) / node_pace[node] < (least + more) / node_pace[best]
            sooner = np.where(node_pace[best] == node_pace[node], mine < least, sooner)
            best = np.where((used[:, node] < groups // nodes) & ((best < 0) | sooner), node, best)
        node_of_group[layer, group] = best
        node_load[layer, best] += more
        used[layer, best] += 1
    return node_of_group


def _place(weight: FloatArray, slots_per_rank: IntArray, pace: FloatArray) -> Int32Array:
    # Own copies: a caller's arrays that are read-only would be other types, compiled anew.
    loads, slots, pace = np.array(weight, np.float64), np.array(slots_per_rank, np.int64), np.array(pace, np.float64)
    first = np.concatenate([np.zeros(1, np.int64), np.cumsum(slots)])
    out, order = np.empty((len(loads), int(first[-1])), np.int32), np.argsort(-loads)
    leaves = 2 ** (len(slots) - 1).bit_length()
    width = max(loads.shape[1], 2 * leaves)
    ints, floats, left = np.empty((6, width), np.int64), np.empty((3, width)), np.arange(len(loads))
    if (pace == pace[0]).all():
        done = np.zeros(len(loads), np.bool_)
        _place_quickly(loads, order, slots, first, leaves, ints, floats, out, done)
        left = np.flatnonzero(~done)
    if len(left):
        _place_carefully(loads, order, left, slots, pace, first, ints, floats, out)
    return out


@bare_njit(error_model="numpy")
def _place_quickly(weight, order, slots, first, leaves, ints, floats, out, done):  # type: ignore[no-untyped-def]
    """Layers in which each replica finds a rank that lacks the expert and no slot stays free are `done`.

    order: int64[L, E] experts by falling load, on a tie in any order · ints: [6, …] and floats: [3, …] with rows as
    long as there are experts and nodes of the tree: room to work in.
    """
    experts, ranks = weight.shape[1], len(slots)
    count, ranked, taken, tree = ints[1, :experts], ints[2, :experts], ints[3], ints[5]
    unit, load, key = floats[0, :experts], floats[1], floats[2]
    for layer in range(len(weight)):
        cap, placed = np.int64(0), 0
        for rank in range(ranks):
            taken[rank], load[rank] = first[rank], 0.0
            cap += slots[rank] > 0
        _replicate(weight[layer], order[layer], out.shape[1] - experts, cap, ints[0], count, unit)
        _reorder(order[layer], unit, count, ints[0], ranked)
        _plant(slots, key, tree, leaves)
        for expert in ranked:
            if not _deal(
                expert, count[expert], unit[expert], first, taken, load, key, tree, leaves, ints[4], out[layer]
            ):
                break
            placed += count[expert]
        done[layer] = placed == out.shape[1]


@bare_njit(error_model="numpy", inline="always")
def _plant(slots, key, tree, leaves):  # type: ignore[no-untyped-def]
    """key[r]: load of a rank that can take the expert, else infinite · tree[a]: the first rank of lowest key among the
    leaves under node a. All ranks are empty."""
    for rank in range(leaves):
        key[rank] = 0.0 if rank < len(slots) and slots[rank] > 0 else np.inf
        tree[leaves + rank] = rank
    for at in range(leaves - 1, 0, -1):
        left, right = tree[2 * at], tree[2 * at + 1]
        tree[at] = right if key[right] < key[left] else left


@bare_njit(error_model="numpy", inline="always")
def _deal(expert, replicas, more, first, taken, load, key, tree, leaves, holders, out):  # type: ignore[no-untyped-def]
    """All replicas of an expert; whether each found a rank."""
    for replica in range(replicas):
        rank = tree[1]
        if key[rank] == np.inf:
            return False
        out[taken[rank]] = expert
        taken[rank] += 1
        load[rank] += more
        holders[replica] = rank
        # A rank is closed until the last replica is placed.
        is_open = replicas == 1 and taken[rank] < first[rank + 1]
        _seat(rank, load[rank] if is_open else np.inf, key, tree, leaves)
    if replicas > 1:
        for replica in range(replicas):
            rank = holders[replica]
            if taken[rank] < first[rank + 1]:
                _seat(rank, load[rank], key, tree, leaves)
    return True


@bare_njit(error_model="numpy")
def _seat(rank, value, key, tree, leaves):  # type: ignore[no-untyped-def]
    """One key changed: the winners on its way to the root."""
    key[rank] = value
    at, best, lowest = leaves + rank, rank, value
    while at > 1:
        other = tree[at ^ 1]
        high = key[other]
        beaten = (high < lowest) | ((high == lowest) & (other < best))
        best = other if beaten else best
        lowest = high if beaten else lowest
        at >>= 1
        tree[at] = best


@bare_njit(error_model="numpy")
def _hotter(a, b, unit, count):  # type: ignore[no-untyped-def]
    if unit[a] != unit[b]:
        return unit[a] > unit[b]
    if count[a] != count[b]:
        return count[a] < count[b]
    return a < b


@bare_njit(error_model="numpy", inline="always")
def _sink(heap, size, unit, count):  # type: ignore[no-untyped-def]
    """The top of the heap finds its place."""
    moving, at, child = heap[0], 0, 1
    while child < size:
        if child + 1 < size and _hotter(heap[child + 1], heap[child], unit, count):
            child += 1
        if not _hotter(heap[child], moving, unit, count):
            break
        heap[at] = heap[child]
        at, child = child, 2 * child + 1
    heap[at] = moving


@bare_njit(error_model="numpy")
def _arrange(order, size, unit, count):  # type: ignore[no-untyped-def]
    """The first `size` of `order` by heat, by insertion: they are few, or in order but for ties."""
    for at in range(1, size):
        moving, to = order[at], at
        while to > 0 and _hotter(moving, order[to - 1], unit, count):
            order[to] = order[to - 1]
            to -= 1
        order[to] = moving


@bare_njit(error_model="numpy")
def _replicate(weight, order, spare, cap, heap, count, unit):  # type: ignore[no-untyped-def]
    """Fills count[E] and unit[E] and unties `order`. What is sorted already is a heap."""
    for expert in range(len(weight)):
        count[expert], unit[expert] = 1, weight[expert]
    _arrange(order, len(order), unit, count)
    size = min(len(weight), max(spare, 0))
    for at in range(size):
        heap[at] = order[at]
    while spare > 0 and size > 0:
        hottest = heap[0]
        if count[hottest] < cap:
            count[hottest] += 1
            unit[hottest] = weight[hottest] / count[hottest]
            spare -= 1
        else:
            size -= 1
            heap[0] = heap[size]
        _sink(heap, size, unit, count)


@bare_njit(error_model="numpy", inline="always")
def _reorder(order, unit, count, changed, ranked):  # type: ignore[no-untyped-def]
    """ranked[E] by heat: replicated experts arranged anew, merged with the others, which are still in order."""
    size, next_changed, taken = np.int64(0), 0, 0
    for expert in order:
        if count[expert] > 1:
            changed[size] = expert
            size += 1
    _arrange(changed, size, unit, count)
    for expert in order:
        if count[expert] == 1:
            while next_changed < size and _hotter(changed[next_changed], expert, unit, count):
                ranked[taken] = changed[next_changed]
                next_changed += 1
                taken += 1
            ranked[taken] = expert
            taken += 1
    for at in range(next_changed, size):
        ranked[taken] = changed[at]
        taken += 1


@bare_njit(error_model="numpy")
def _place_carefully(weight, order, layers, slots, pace, first, ints, floats, out):  # type: ignore[no-untyped-def]
    """The given layers; the other arguments as in `_place_quickly`."""
    experts, ranks = weight.shape[1], len(slots)
    heap, count, ranked, used, holds = ints[0], ints[1, :experts], ints[2, :experts], ints[3], ints[4, :ranks]
    unit, load = floats[0, :experts], floats[1]
    for layer in layers:
        cap = np.int64(0)
        for rank in range(ranks):
            # Replicas of one expert are placed in a row, so the last expert noted at a rank tells whether it holds it.
            used[rank], holds[rank], load[rank] = 0, -1, 0.0
            cap += slots[rank] > 0
        _replicate(weight[layer], order[layer], out.shape[1] - experts, cap, heap, count, unit)
        _reorder(order[layer], unit, count, heap, ranked)
        for expert in ranked:
            _put(expert, weight[layer], count, unit, out[layer], first, used, slots, pace, holds, load)
        _fill(weight[layer], count, unit, out[layer], first, used, slots)


@bare_njit(error_model="numpy", inline="always")
def _put(expert, weight, count, unit, out, first, used, slots, pace, holds, load):  # type: ignore[no-untyped-def]
    """All replicas of an expert."""
    for replica in range(count[expert]):
        rank = _least_busy(load, pace, unit[expert], used, slots, holds, expert)
        if rank >= 0:
            out[first[rank] + used[rank]] = expert
            used[rank] += 1
            load[rank] += unit[expert]
        else:
            rank = _swap_in(expert, unit, out, first, used, slots, pace, holds, load)
        if rank < 0:
            _drop_rest(expert, replica, weight, count, unit, holds, load)
            break
        holds[rank] = expert


@bare_njit(error_model="numpy", inline="always")
def _least_busy(load, pace, more, used, slots, holds, expert):  # type: ignore[no-untyped-def]
    best = np.int64(-1)
    for rank in range(len(slots)):
        if used[rank] == slots[rank] or holds[rank] == expert:
            continue
        if best < 0 or _sooner(rank, best, load, pace, more):
            best = np.int64(rank)
    return best


@bare_njit(error_model="numpy")
def _sooner(a, b, load, pace, more):  # type: ignore[no-untyped-def]
    if pace[a] == pace[b]:
        return load[a] < load[b]
    return (load[a] + more) / pace[a] < (load[b] + more) / pace[b]


@bare_njit(error_model="numpy", inline="always")
def _swap_in(expert, unit, out, first, used, slots, pace, holds, load):  # type: ignore[no-untyped-def]
    best, to, full, from_slot = np.inf, -1, -1, -1
    for a in range(len(slots)):
        for b in range(len(slots)):
            if used[a] == slots[a] or used[b] < slots[b] or holds[b] == expert:
                continue
            for slot in range(first[b], first[b] + used[b]):
                moved = np.int64(out[slot])
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


@bare_njit(error_model="numpy")
def _contains(out, first, used, expert):  # type: ignore[no-untyped-def]
    for slot in range(first, first + used):
        if out[slot] == expert:
            return True
    return False


@bare_njit(error_model="numpy", inline="always")
def _drop_rest(expert, placed, weight, count, unit, holds, load):  # type: ignore[no-untyped-def]
    per_replica = weight[expert] / placed
    for rank in range(len(holds)):
        if holds[rank] == expert:
            load[rank] += per_replica - unit[expert]
    count[expert] = placed
    unit[expert] = per_replica


@bare_njit(error_model="numpy", inline="always")
def _fill(weight, count, unit, out, first, used, slots):  # type: ignore[no-untyped-def]
    for rank in range(len(slots)):
        while used[rank] < slots[rank]:
            best = np.int64(-1)
            for expert in range(len(weight)):
                if not _contains(out, first[rank], used[rank], expert) and (
                    best < 0 or _hotter(expert, best, unit, count)
                ):
                    best = np.int64(expert)
            out[first[rank] + used[rank]] = best
            used[rank] += 1
            count[best] += 1
            unit[best] = weight[best] / count[best]
