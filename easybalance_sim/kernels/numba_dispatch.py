"""The replay kernel, compiled; specification and argument list in `reference_dispatch`.

For each assignment only three cells are added to: its slot, and where its token was not seen before the pair of ranks
and of source and node. All else follows from these two tables, once per step and layer. Conditions are added as 0 or 1
instead of being branched on: who receives a token is random, so branches would be mispredicted. Indices are unsigned:
numba asks of every signed one whether it counts from the end, which is a third of the time.
The loops are compiled without numba's runtime (`bare_njit`), so nothing is allocated in them and no view's references
are counted: for each token that would be 2 to 5 times slower. What a thread counts with is its own until the end:
neighbouring parts of one array would share cache lines, which is up to 5 times slower.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from easybalance_sim.kernels.bare import bare_njit
from easybalance_sim.kernels.threads import on_threads

AnyArray = npt.NDArray[Any]

EVEN, TABLE, HASH, FLAT, BLOCKS, RANDOM, SHIFT = range(7)
U = np.uint64


@njit(cache=True, nogil=True, inline="always")
def _mixed(value):  # type: ignore[no-untyped-def]
    x = U(value)
    x = (x ^ (x >> U(30))) * U(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> U(27))) * U(0x94D049BB133111EB)
    return x ^ (x >> U(31))


@njit(cache=True, nogil=True, inline="always", error_model="numpy")
def _replica(number, e, starts, slots):  # type: ignore[no-untyped-def]
    """The slot of expert e that a rule's number stands for, modulo how many there are."""
    return slots[U(starts[e]) + U(number) % U(starts[e + U(1)] - starts[e])]


@njit(cache=True, nogil=True, inline="always", error_model="numpy")
def _choose_in_turn(ids, starts, slots, turn, chosen):  # type: ignore[no-untyped-def]
    """EVEN: turn[0, E] is the place in `slots` that is next."""
    for k in range(len(ids)):
        e = U(ids[U(k)])
        at = turn[U(0), e]
        chosen[U(k)] = slots[U(at)]
        turn[U(0), e] = at + 1 if at + 1 < starts[e + U(1)] else starts[e]


@njit(cache=True, nogil=True, inline="always", error_model="numpy")
def _choose_by_table(ids, src, layer, row, starts, slots, table, drawn, chosen):  # type: ignore[no-untyped-def]
    """RANDOM, where TABLE is the case that nothing is open. drawn: the state of the step and layer."""
    token = _mixed(drawn + (src << U(32)) + U(row))
    for k in range(len(ids)):
        e = U(ids[U(k)])
        slot = table[src, layer, e]
        if slot < 0:
            slot = _replica(_mixed(token + U(k)) >> U(48), e, starts, slots)
        chosen[U(k)] = slot


@njit(cache=True, nogil=True, inline="always", error_model="numpy")
def _choose_in_blocks(ids, src, row, starts, slots, turn, block_of, chosen):  # type: ignore[no-untyped-def]
    """BLOCKS: turn[R, E] uses in the block that block_of[R] names; a source's rows never go back."""
    for k in range(len(ids)):
        e, block = U(ids[U(k)]), (row * len(ids) + k) >> 10
        if block != block_of[src]:
            block_of[src] = block
            for other in range(turn.shape[1]):
                turn[src, U(other)] = 0
        chosen[U(k)] = _replica(block + np.int64(src) + turn[src, e], e, starts, slots)
        turn[src, e] += 1


@njit(cache=True, nogil=True, inline="always", error_model="numpy")
def _choose_by_row(ids, src, row, starts, slots, rule, chosen):  # type: ignore[no-untyped-def]
    """HASH, FLAT and SHIFT, which remember nothing."""
    for k in range(len(ids)):
        e = U(ids[U(k)])
        if rule == HASH:
            number = (row * 2654435769) & 0xFFFFFFFF
        elif rule == FLAT:
            number = row * len(ids) + k
        else:
            number = (row & 1023) + np.int64(src) + np.int64(e)
        chosen[U(k)] = _replica(number, e, starts, slots)


@njit(cache=True, nogil=True, inline="always", error_model="numpy")
def _choose(rule, ids, src, layer, row, starts, slots, table, drawn, turn, block_of, chosen):  # type: ignore[no-untyped-def]
    """Writes the slots of one token to chosen[K]."""
    if rule == EVEN:
        _choose_in_turn(ids, starts, slots, turn, chosen)
    elif rule == TABLE or rule == RANDOM:
        _choose_by_table(ids, src, layer, row, starts, slots, table, drawn, chosen)
    elif rule == BLOCKS:
        _choose_in_blocks(ids, src, row, starts, slots, turn, block_of, chosen)
    else:
        _choose_by_row(ids, src, row, starts, slots, rule, chosen)


@njit(cache=True, nogil=True, inline="always", error_model="numpy")
def _first_turns(step, starts, turn):  # type: ignore[no-untyped-def]
    for expert in range(turn.shape[1]):
        e = U(expert)
        n = starts[e + U(1)] - starts[e]
        turn[U(0), e] = starts[e] + (step % n if n > 1 else 0)


@njit(cache=True, nogil=True, inline="always")
def _count_assignments(chosen, now, src, rank_of_slot, tokens, arrived, sent, last_at):  # type: ignore[no-untyped-def]
    """One message per assignment (low latency)."""
    for k in range(len(chosen)):
        slot = U(chosen[U(k)])
        dst = U(rank_of_slot[slot])
        tokens[slot] += 1
        sent[src, dst] += 1
        arrived[dst] += last_at[dst] != now
        last_at[dst] = now


@njit(cache=True, nogil=True, inline="always")
def _count_copies(chosen, now, src, rank_of_slot, node_bit, tokens, sent, reached, last_at):  # type: ignore[no-untyped-def]
    """One copy per distinct rank and per distinct node (normal mode)."""
    seen, nodes = U(0), reached[src]
    for k in range(len(chosen)):
        slot = U(chosen[U(k)])
        dst = U(rank_of_slot[slot])
        tokens[slot] += 1
        seen |= node_bit[U(0), slot]
        sent[src, dst] += last_at[dst] != now
        last_at[dst] = now
    for word in range(len(node_bit)):
        if word > 0:
            seen = U(0)
            for k in range(len(chosen)):
                seen |= node_bit[U(word), U(chosen[U(k)])]
        first = 64 * word
        for n in range(min(len(nodes) - first, 64)):
            nodes[U(first + n)] += np.int32((seen >> U(n)) & U(1))


@njit(cache=True, nogil=True, inline="always")
def _route_assignments(src, sent, node, pairs, flow):  # type: ignore[no-untyped-def]
    """Sums of one source's messages; what stays on its rank uses no link."""
    far, near, home = 0, 0, node[src]
    for dst in range(len(node)):
        d = U(dst)
        count, same = sent[src, d], node[d] == home
        between = count * (d != src)
        sent[src, d] = 0
        pairs[src, d] += count
        far += between * (not same)
        near += between * same
        flow[U(1), d] += between * (not same)
        flow[U(3), d] += between * same
    flow[U(0), src] += far
    flow[U(2), src] += near


@njit(cache=True, nogil=True, inline="always")
def _route_copies(src, sent, reached, node, entry, arrived, pairs, across, flow):  # type: ignore[no-untyped-def]
    """Sums of one source's copies: over the network to an entry rank per node, from there over NVLink to the others.

    All that arrives at a rank came over NVLink, except where it is itself the entry: row 3 only lacks the latter.
    """
    home, copies, summed = U(node[src]), sent[src], pairs[src]
    for there in range(reached.shape[1]):
        n = U(there)
        count, via = reached[src, n], U(entry[src, n])
        reached[src, n] = 0
        across[home, n] += count
        flow[U(0), src] += count * (n != home)
        flow[U(1), via] += count * (n != home)
        flow[U(2), via] -= copies[via]
        flow[U(3), via] -= copies[via]
    for dst in range(len(copies)):
        flow[U(2), U(entry[src, U(node[U(dst)])])] += copies[U(dst)]
    # One array at a time: so these loops become vector instructions.
    for dst in range(len(copies)):
        summed[U(dst)] += copies[U(dst)]
    for dst in range(len(copies)):
        arrived[U(dst)] += copies[U(dst)]
    for dst in range(len(copies)):
        copies[U(dst)] = 0


@njit(cache=True, nogil=True, inline="always")
def _busier(flow, arrived, per_node, rdma, nvlink):  # type: ignore[no-untyped-def]
    """Copies in the busier direction of each rank's links; clears flow: [4, R] RDMA out, in, NVLink out, in."""
    for rank in range(len(rdma)):
        r = U(rank)
        if per_node:
            flow[U(3), r] += arrived[r]
        rdma[r] = max(flow[U(0), r], flow[U(1), r])
        nvlink[r] = max(flow[U(2), r], flow[U(3), r])
    flow[:] = 0


@bare_njit(error_model="numpy")
def _dispatch_tasks(  # type: ignore[no-untyped-def]
    experts, step_start, step, source, row, replica_start, replica_slot, table, rank_of_slot, node, entry, rule, seed,
    per_node, first, last, slot_tokens, distinct, rdma, nvlink, pairs, across, node_bit, chosen, turn, block_of, active,
    sent, reached, flow, last_at,
):  # fmt: skip
    """Tasks `first` to `last` of (step, layer), layers running fastest.

    pairs: int64[R, R] and across: int64[N, N] are added to · node_bit: uint64[⌈N / 64⌉, P] bit of each slot's node ·
    chosen: [K], turn: [R or 1, E], block_of and active: [R], zeros sent: [R, R], reached: [R, N] and flow: [4, R],
    last_at: -1 [R]: room to work in.
    """
    layers, ranks = experts.shape[1], len(node)
    for task in range(first, last):
        w, layer, mark = U(task // layers), U(task % layers), np.int64(task) << 32
        starts, slots = replica_start[layer], replica_slot[layer]
        tokens, arrived = slot_tokens[w, layer], distinct[w, layer]
        if rule == EVEN:
            _first_turns(step[w], starts, turn)
        drawn = _mixed(U(seed) + U(0x9E3779B97F4A7C15) * U(step[w] + 1)) + (layer << U(48))
        block_of[:] = -1
        active[:] = 0
        for token in range(step_start[w], step_start[w + U(1)]):
            t = U(token)
            src = U(source[t])
            active[src] = 1
            _choose(
                rule, experts[t, layer], src, layer, np.int64(row[t]), starts, slots, table, drawn, turn, block_of,
                chosen,
            )  # fmt: skip
            if per_node:
                _count_copies(chosen, mark + token, src, rank_of_slot, node_bit, tokens, sent, reached, last_at)
            else:
                _count_assignments(chosen, mark + token, src, rank_of_slot, tokens, arrived, sent, last_at)
        for rank in range(ranks):
            if active[U(rank)]:
                if per_node:
                    _route_copies(U(rank), sent, reached, node, entry, arrived, pairs, across, flow)
                else:
                    _route_assignments(U(rank), sent, node, pairs, flow)
        _busier(flow, arrived, per_node, rdma[w, layer], nvlink[w, layer])


def dispatch(  # type: ignore[no-untyped-def]
    experts, step_start, step, source, row, replica_start, replica_slot, table, rank_of_slot, node, entry, rule, seed,
    per_node, workers, slot_tokens, distinct, rdma, nvlink, rank_pairs, node_pairs,
):  # fmt: skip
    """Shares of the tasks on threads: the compiled loop holds no lock."""
    ranks, nodes, n_experts = len(node), len(node_pairs), replica_start.shape[1] - 1
    tasks, node_bit = len(step) * experts.shape[1], _node_bits(node[rank_of_slot], nodes)

    def count(worker: int) -> tuple[AnyArray, AnyArray]:
        pairs, across = np.zeros((ranks, ranks), np.int64), np.zeros((nodes, nodes), np.int64)
        _dispatch_tasks(
            experts, step_start, step, source, row, replica_start, replica_slot, table, rank_of_slot, node, entry,
            rule, seed, per_node, tasks * worker // workers, tasks * (worker + 1) // workers, slot_tokens, distinct,
            rdma, nvlink, pairs, across, node_bit, np.empty(experts.shape[2], np.int32),
            np.zeros((ranks if rule == BLOCKS else 1, n_experts), np.int32), np.empty(ranks, np.int64),
            np.empty(ranks, np.int8), np.zeros((ranks, ranks), np.int32), np.zeros((ranks, nodes), np.int32),
            np.zeros((4, ranks), np.int32), np.full(ranks, -1, np.int64),
        )  # fmt: skip
        return pairs, across

    for pairs, across in on_threads(count, workers):
        rank_pairs += pairs
        if per_node:
            node_pairs += across
        else:
            np.add.at(node_pairs, (node[:, None], node[None, :]), pairs)


def _node_bits(node_of_slot: AnyArray, nodes: int) -> AnyArray:
    """uint64[⌈N / 64⌉, P]: one bit per slot, that of its node."""
    word = np.arange(-(-nodes // 64))[:, None]
    return np.where(node_of_slot // 64 == word, U(1) << (node_of_slot % 64).astype(U), U(0))
