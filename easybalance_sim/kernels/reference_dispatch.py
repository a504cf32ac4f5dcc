"""The replay kernel as naive loops: the specification of `numba_dispatch`."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

EVEN, TABLE, HASH, FLAT, BLOCKS, RANDOM, SHIFT = range(7)
"""How a replica is chosen; `replay.dispatch` says which engine does what."""

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
_M64 = (1 << 64) - 1


def dispatch(
    experts: npt.NDArray[Any],
    step_start: Longs,
    step: Longs,
    source: npt.NDArray[np.int16],
    row: Ints,
    replica_start: Ints,
    replica_slot: Ints,
    table: Ints,
    rank_of_slot: Ints,
    node: Ints,
    entry: Ints,
    rule: int,
    seed: int,
    per_node: bool,
    workers: int,
    slot_tokens: Ints,
    distinct: Ints,
    rdma: Ints,
    nvlink: Ints,
    rank_pairs: Longs,
    node_pairs: Longs,
) -> None:
    """Send every assignment of whole steps to one slot and count what arrives where.

    In: experts ids [T, L, K] · step_start int64[W+1] first token of each step · step int64[W] step numbers ·
    source int16[T] source rank 0..R-1 · row int32[T] row of the token in its source rank's batch of the step, in trace
    order · replica_start int32[L, E+1], replica_slot int32[L, P] slots of each expert in slot order · table int32[R, L,
    E] slot per source (rule TABLE; -1 = draw, rule RANDOM) · rank_of_slot int32[P] · node int32[R] · entry int32[R, N]
    rank of a node that receives a source's copies (the source itself on its own node) · rule, seed · per_node: True
    counts one copy per distinct node and rank (DeepEP normal mode), False one message per assignment (low latency) ·
    workers: threads of the compiled form.
    Out (added to, zeros at first): slot_tokens int32[W, L, P] · distinct int32[W, L, R] tokens that arrive at a rank ·
    rdma, nvlink int32[W, L, R] copies in the busier direction of each rank's links · rank_pairs int64[R, R],
    node_pairs int64[N, N] copies from source to destination, all steps and layers.
    """
    layers = experts.shape[1]
    for w in range(len(step)):
        tokens = range(int(step_start[w]), int(step_start[w + 1]))
        for layer in range(layers):
            chooser = _Chooser(rule, seed, int(step[w]), layer, replica_start[layer], replica_slot[layer], table)
            flow = np.zeros((4, len(node)), np.int32)
            for t in tokens:
                src, local = int(source[t]), int(row[t])
                slots = [
                    chooser.slot(e, k, src, local, experts.shape[2]) for k, e in enumerate(experts[t, layer].tolist())
                ]
                arrivals = [int(rank_of_slot[slot]) for slot in slots]
                np.add.at(slot_tokens[w, layer], slots, 1)
                distinct[w, layer][list(set(arrivals))] += 1
                if per_node:
                    _send_copies(src, arrivals, node, entry, flow, rank_pairs, node_pairs)
                else:
                    _send_assignments(src, arrivals, node, flow, rank_pairs, node_pairs)
            rdma[w, layer] += np.maximum(flow[0], flow[1])
            nvlink[w, layer] += np.maximum(flow[2], flow[3])


def _send_assignments(src: int, arrivals: list[int], node: Ints, flow: Ints, ranks: Longs, nodes: Longs) -> None:
    for dst in arrivals:
        ranks[src, dst] += 1
        nodes[node[src], node[dst]] += 1
        if dst != src:
            link = 2 if node[dst] == node[src] else 0
            flow[link, src] += 1
            flow[link + 1, dst] += 1


def _send_copies(
    src: int, arrivals: list[int], node: Ints, entry: Ints, flow: Ints, ranks: Longs, nodes: Longs
) -> None:
    for there in {int(node[dst]) for dst in arrivals}:
        nodes[node[src], there] += 1
        if there != node[src]:
            flow[0, src] += 1
            flow[1, entry[src, there]] += 1
    for dst in set(arrivals):
        ranks[src, dst] += 1
        via = entry[src, node[dst]]
        if via != dst:
            flow[2, via] += 1
            flow[3, dst] += 1


class _Chooser:
    """Picks replicas within one (step, layer); counters start empty."""

    def __init__(self, rule: int, seed: int, step: int, layer: int, starts: Ints, slots: Ints, table: Ints) -> None:
        self.rule, self.seed, self.step, self.layer = rule, seed, step, layer
        self.starts, self.slots, self.table = starts.tolist(), slots.tolist(), table
        self.seen: dict[tuple[int, ...], int] = {}

    def slot(self, expert: int, k: int, src: int, row: int, top_k: int) -> int:
        if self.rule in (TABLE, RANDOM) and self.table[src, self.layer, expert] >= 0:
            return int(self.table[src, self.layer, expert])
        first, n = self.starts[expert], self.starts[expert + 1] - self.starts[expert]
        return int(self.slots[first + self._number(expert, k, src, row, top_k) % n])

    def _number(self, expert: int, k: int, src: int, row: int, top_k: int) -> int:
        if self.rule == EVEN:
            return self._earlier(expert) + self.step
        if self.rule == HASH:
            return (row * 2654435769) & 0xFFFFFFFF
        if self.rule == FLAT:
            return row * top_k + k
        if self.rule == BLOCKS:
            block = (row * top_k + k) // 1024
            return block + src + self._earlier(src, expert, block)
        if self.rule == RANDOM:
            return draw(self.seed, self.step, self.layer, src, row, k)
        return row % 1024 + src + expert

    def _earlier(self, *key: int) -> int:
        count = self.seen.get(key, 0)
        self.seen[key] = count + 1
        return count


def draw(seed: int, step: int, layer: int, source: int, row: int, k: int) -> int:
    """A 16-bit number from a counter-based generator (splitmix64 finaliser): same place, same number."""
    x = _mixed(seed + 0x9E3779B97F4A7C15 * (step + 1))
    x = _mixed(x + (layer << 48) + (source << 32) + row)
    return _mixed(x + k) >> 48


def _mixed(value: int) -> int:
    x = value & _M64
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & _M64
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & _M64
    return x ^ (x >> 31)
