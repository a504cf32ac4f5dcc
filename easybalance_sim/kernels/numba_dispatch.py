"""The replay kernel, compiled; specification and argument list in `reference_dispatch`.

Counting adds conditions as 0 or 1 instead of branching on them: who receives a token is random, so branches would be
mispredicted. Tokens seen before are told by a stamp unique to (step, layer, token), so nothing is cleared in between.
The loops are compiled without numba's runtime (`bare_njit`), so nothing is allocated in them and no view's references
are counted: for each token that would be 2 to 5 times slower. What a thread counts with is its own until the end:
neighbouring parts of one array would share cache lines, which is up to 5 times slower.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from easybalance_sim.kernels.bare import bare_njit
from easybalance_sim.kernels.threads import on_threads

IntArray = npt.NDArray[np.int64]

EVEN, TABLE, HASH, FLAT, BLOCKS, RANDOM, SHIFT = range(7)


@njit(cache=True, nogil=True, inline="always")
def _mixed(value):  # type: ignore[no-untyped-def]
    x = np.uint64(value)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@njit(cache=True, nogil=True)
def _draw(seed, step, layer, source, row, k):  # type: ignore[no-untyped-def]
    x = _mixed(np.uint64(seed) + np.uint64(0x9E3779B97F4A7C15) * np.uint64(step + 1))
    x = _mixed(x + (np.uint64(layer) << np.uint64(48)) + (np.uint64(source) << np.uint64(32)) + np.uint64(row))
    return np.int64(_mixed(x + np.uint64(k)) >> np.uint64(48))


@njit(cache=True, nogil=True, inline="always")
def _number(rule, e, k, layer, step, src, row, top_k, seed, turn, stamp, mark):  # type: ignore[no-untyped-def]
    """What a rule takes modulo the number of replicas. BLOCKS: turn[R, E] uses in the block that stamp[R, E] names."""
    if rule == HASH:
        return (row * 2654435769) & 0xFFFFFFFF
    if rule == FLAT:
        return row * top_k + k
    if rule == SHIFT:
        return row % 1024 + src + e
    if rule == RANDOM:
        return _draw(seed, step, layer, src, row, k)
    block = (row * top_k + k) // 1024
    if stamp[src, e] != mark + block:
        stamp[src, e] = mark + block
        turn[src, e] = 0
    turn[src, e] += 1
    return block + src + turn[src, e] - 1


@njit(cache=True, nogil=True, inline="always", error_model="numpy")
def _choose(experts, t, layer, step, src, row, starts, slots, table, rule, seed, turn, stamp, mark, chosen):  # type: ignore[no-untyped-def]
    """Writes the slots of one token to chosen[K]. EVEN: turn[0, E] is the place in `slots` that is next."""
    top_k = experts.shape[2]
    if rule == EVEN:
        for k in range(top_k):
            e = experts[t, layer, k]
            at = turn[0, e]
            chosen[k] = slots[at]
            turn[0, e] = at + 1 if at + 1 < starts[e + 1] else starts[e]
        return
    for k in range(top_k):
        e = experts[t, layer, k]
        slot = table[src, layer, e] if rule == TABLE or rule == RANDOM else -1
        if slot < 0:
            number = _number(rule, np.int64(e), k, layer, step, src, row, top_k, seed, turn, stamp, mark)
            slot = slots[starts[e] + np.int64(np.uint64(number) % np.uint64(starts[e + 1] - starts[e]))]
        chosen[k] = slot


@njit(cache=True, nogil=True, inline="always")
def _count_assignments(chosen, now, src, rank_of_slot, node, tokens, arrived, flow, pairs, last_at):  # type: ignore[no-untyped-def]
    """One message per assignment (low latency); what stays on its rank lands in row 5 of `flow`, which is not read."""
    home = node[src]
    far, near = 0, 0
    for k in range(len(chosen)):
        slot = chosen[k]
        dst = rank_of_slot[slot]
        tokens[slot] += 1
        arrived[dst] += last_at[dst] != now
        last_at[dst] = now
        pairs[src, dst] += 1
        same = node[dst] == home
        far += not same
        near += same & (dst != src)
        flow[1 + 2 * same + 2 * (dst == src), dst] += 1
    flow[0, src] += far
    flow[2, src] += near


@njit(cache=True, nogil=True, inline="always")
def _count_copies(  # type: ignore[no-untyped-def]
    chosen, now, src, rank_of_slot, node, entry, tokens, arrived, flow, pairs, node_pairs, last_at, node_at
):
    """Once per distinct node over the network, then once per distinct rank over NVLink (normal mode)."""
    home = node[src]
    for k in range(len(chosen)):
        slot = chosen[k]
        dst = rank_of_slot[slot]
        there = node[dst]
        via = entry[src, there]
        fresh, reached = last_at[dst] != now, node_at[there] != now
        last_at[dst] = now
        node_at[there] = now
        tokens[slot] += 1
        arrived[dst] += fresh
        pairs[src, dst] += fresh
        node_pairs[home, there] += reached
        crosses, forwarded = reached & (there != home), fresh & (via != dst)
        flow[0, src] += crosses
        flow[1, via] += crosses
        flow[2, via] += forwarded
        flow[3, dst] += forwarded


@bare_njit(error_model="numpy")
def _dispatch_tasks(  # type: ignore[no-untyped-def]
    experts, step_start, step, source, row, replica_start, replica_slot, table, rank_of_slot, node, entry, rule, seed,
    per_node, first, last, slot_tokens, distinct, rdma, nvlink, pairs, across, chosen, turn, stamp, flow, last_at,
    node_at,
):  # fmt: skip
    """Tasks `first` to `last` of (step, layer), layers running fastest.

    pairs: int64[R, R] and across: int64[N, N] are added to · chosen: [K], turn and stamp: [R or 1, E], flow: zeros
    [6, R], last_at: -1 [R], node_at: -1 [N]: room to work in.
    """
    layers, n_experts, ranks = experts.shape[1], replica_start.shape[1] - 1, len(node)
    for task in range(first, last):
        w, layer, mark = task // layers, task % layers, np.int64(task) << 32
        starts, slots = replica_start[layer], replica_slot[layer]
        tokens, arrived = slot_tokens[w, layer], distinct[w, layer]
        if rule == EVEN:
            for e in range(n_experts):
                n = starts[e + 1] - starts[e]
                turn[0, e] = starts[e] + (step[w] % n if n > 1 else 0)
        for t in range(step_start[w], step_start[w + 1]):
            src = np.int64(source[t])
            _choose(
                experts, t, layer, step[w], src, np.int64(row[t]), starts, slots, table, rule, seed, turn, stamp,
                mark, chosen,
            )  # fmt: skip
            if per_node:
                _count_copies(
                    chosen, mark + t, src, rank_of_slot, node, entry, tokens, arrived, flow, pairs, across,
                    last_at, node_at,
                )  # fmt: skip
            else:
                _count_assignments(
                    chosen, mark + t, src, rank_of_slot, node, tokens, arrived, flow, pairs, last_at
                )  # fmt: skip
        for r in range(ranks):
            rdma[w, layer, r] = max(flow[0, r], flow[1, r])
            nvlink[w, layer, r] = max(flow[2, r], flow[3, r])
        flow[:] = 0


def dispatch(  # type: ignore[no-untyped-def]
    experts, step_start, step, source, row, replica_start, replica_slot, table, rank_of_slot, node, entry, rule, seed,
    per_node, workers, slot_tokens, distinct, rdma, nvlink, rank_pairs, node_pairs,
):  # fmt: skip
    """Shares of the tasks on threads: the compiled loop holds no lock."""
    ranks, nodes, n_experts = len(node), len(node_pairs), replica_start.shape[1] - 1
    tasks = len(step) * experts.shape[1]

    def count(worker: int) -> tuple[IntArray, IntArray]:
        pairs, across = np.zeros((ranks, ranks), np.int64), np.zeros((nodes, nodes), np.int64)
        turn = np.zeros((ranks if rule == BLOCKS else 1, n_experts), np.int64)
        _dispatch_tasks(
            experts, step_start, step, source, row, replica_start, replica_slot, table, rank_of_slot, node, entry,
            rule, seed, per_node, tasks * worker // workers, tasks * (worker + 1) // workers, slot_tokens, distinct,
            rdma, nvlink, pairs, across, np.empty(experts.shape[2], np.int32), turn, np.full_like(turn, -1),
            np.zeros((6, ranks), np.int32), np.full(ranks, -1, np.int64), np.full(nodes, -1, np.int64),
        )  # fmt: skip
        return pairs, across

    for pairs, across in on_threads(count, workers):
        rank_pairs += pairs
        if per_node:
            node_pairs += across
        else:
            np.add.at(node_pairs, (node[:, None], node[None, :]), pairs)
