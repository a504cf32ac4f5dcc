"""The replay kernel, compiled; specification and argument list in `reference_dispatch`."""

from __future__ import annotations

import numpy as np
from numba import njit, prange

EVEN, TABLE, HASH, FLAT, BLOCKS, RANDOM, SHIFT = range(7)


@njit(cache=True, nogil=True, inline="always")
def _mixed(value):  # type: ignore[no-untyped-def]
    x = np.uint64(value)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@njit(cache=True, nogil=True, inline="always")
def _draw(seed, step, layer, source, row, k):  # type: ignore[no-untyped-def]
    x = _mixed(np.uint64(seed) + np.uint64(0x9E3779B97F4A7C15) * np.uint64(step + 1))
    x = _mixed(x + (np.uint64(layer) << np.uint64(48)) + (np.uint64(source) << np.uint64(32)) + np.uint64(row))
    return np.int64(_mixed(x + np.uint64(k)) >> np.uint64(48))


@njit(cache=True, nogil=True)
def _one_layer(
    experts, first, last, layer, step, source, row, starts, slots, table, rule, seed, seen, stamp, mark, chosen
):  # type: ignore[no-untyped-def]
    """Writes the slot of every assignment of one (step, layer) to chosen[(token, k)]."""
    top_k = experts.shape[2]
    for t in range(first, last):
        src = source[t]
        local = np.int64(row[t])
        base = (t - first) * top_k
        for k in range(top_k):
            e = np.int64(experts[t, layer, k])
            n = starts[e + 1] - starts[e]
            pick = np.int64(0)
            if rule == TABLE:
                chosen[base + k] = table[src, layer, e]
                continue
            if rule == EVEN:
                pick = (seen[0, e] + step) % n
                seen[0, e] += 1
            elif n == 1:
                pick = 0
            elif rule == HASH:
                pick = ((local * 2654435769) & 0xFFFFFFFF) % n
            elif rule == FLAT:
                pick = (local * top_k + k) % n
            elif rule == BLOCKS:
                block = (local * top_k + k) // 1024
                if stamp[src, e] != mark + block:
                    stamp[src, e] = mark + block
                    seen[src, e] = 0
                pick = (block + src + seen[src, e]) % n
                seen[src, e] += 1
            elif rule == RANDOM:
                slot = table[src, layer, e]
                if slot >= 0:
                    chosen[base + k] = slot
                    continue
                pick = _draw(seed, step, layer, src, local, k) % n
            else:
                pick = ((local % 1024) + src + e) % n
            chosen[base + k] = slots[starts[e] + pick]


@njit(cache=True, nogil=True)
def _count_assignments(
    chosen, first, last, top_k, source, rank_of_slot, node, tokens, distinct, flow, ranks, nodes, last_at
):  # type: ignore[no-untyped-def]
    """One message per assignment (low latency)."""
    for t in range(first, last):
        src = source[t]
        for k in range(top_k):
            slot = chosen[(t - first) * top_k + k]
            dst = rank_of_slot[slot]
            tokens[slot] += 1
            if last_at[dst] != t:
                last_at[dst] = t
                distinct[dst] += 1
            ranks[src, dst] += 1
            nodes[node[src], node[dst]] += 1
            if dst != src:
                link = 2 if node[dst] == node[src] else 0
                flow[link, src] += 1
                flow[link + 1, dst] += 1


@njit(cache=True, nogil=True)
def _count_copies(
    chosen,
    first,
    last,
    top_k,
    source,
    rank_of_slot,
    node,
    entry,
    tokens,
    distinct,
    flow,
    ranks,
    nodes,
    last_at,
    node_at,
):  # type: ignore[no-untyped-def]
    """Once per distinct node over the network, then once per distinct rank over NVLink (normal mode)."""
    for t in range(first, last):
        src = source[t]
        home = node[src]
        for k in range(top_k):
            slot = chosen[(t - first) * top_k + k]
            dst = rank_of_slot[slot]
            tokens[slot] += 1
            if last_at[dst] == t:
                continue
            last_at[dst] = t
            distinct[dst] += 1
            ranks[src, dst] += 1
            there = node[dst]
            via = entry[src, there]
            if node_at[there] != t:
                node_at[there] = t
                nodes[home, there] += 1
                if there != home:
                    flow[0, src] += 1
                    flow[1, via] += 1
            if via != dst:
                flow[2, via] += 1
                flow[3, dst] += 1


@njit(cache=True, nogil=True, parallel=True)
def dispatch(
    experts, step_start, step, source, row, replica_start, replica_slot, table, rank_of_slot, node, entry, rule, seed,
    per_node, workers, slot_tokens, distinct, rdma, nvlink, rank_pairs, node_pairs,
):  # type: ignore[no-untyped-def]  # fmt: skip
    steps, layers, top_k = len(step), experts.shape[1], experts.shape[2]
    n_experts, ranks, nodes = replica_start.shape[1] - 1, len(node), node_pairs.shape[0]
    longest = 0
    for w in range(steps):
        longest = max(longest, step_start[w + 1] - step_start[w])
    sources = ranks if rule == BLOCKS else 1
    part_ranks = np.zeros((workers, ranks, ranks), np.int64)
    part_nodes = np.zeros((workers, nodes, nodes), np.int64)
    tasks = steps * layers
    for worker in prange(workers):
        chosen = np.empty(longest * top_k, np.int32)
        seen = np.zeros((sources, n_experts), np.int64)
        stamp = np.full((sources, n_experts), -1, np.int64)
        flow = np.zeros((4, ranks), np.int32)
        last_at = np.full(ranks, -1, np.int64)
        node_at = np.full(nodes, -1, np.int64)
        for task in range(tasks * worker // workers, tasks * (worker + 1) // workers):
            w, layer = task // layers, task % layers
            first, last = step_start[w], step_start[w + 1]
            if rule == EVEN:
                seen[:] = 0
            _one_layer(
                experts, first, last, layer, step[w], source, row, replica_start[layer], replica_slot[layer], table,
                rule, seed, seen, stamp, np.int64(task) << 32, chosen,
            )  # fmt: skip
            flow[:] = 0
            last_at[:] = -1
            node_at[:] = -1
            if per_node:
                _count_copies(
                    chosen, first, last, top_k, source, rank_of_slot, node, entry, slot_tokens[w, layer],
                    distinct[w, layer], flow, part_ranks[worker], part_nodes[worker], last_at, node_at,
                )  # fmt: skip
            else:
                _count_assignments(
                    chosen, first, last, top_k, source, rank_of_slot, node, slot_tokens[w, layer], distinct[w, layer],
                    flow, part_ranks[worker], part_nodes[worker], last_at,
                )  # fmt: skip
            for r in range(ranks):
                rdma[w, layer, r] = max(flow[0, r], flow[1, r])
                nvlink[w, layer, r] = max(flow[2, r], flow[3, r])
    for worker in range(workers):
        rank_pairs += part_ranks[worker]
        node_pairs += part_nodes[worker]
