"""Replay on the GPU; specification in `reference_dispatch`, kernels in `dispatch.cu` and `turns.cu`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import cupy
import numpy as np
import numpy.typing as npt

from easybalance_sim.kernels import numba_cpu
from easybalance_sim.kernels.cupy_tiles import (
    SHARED_BYTES,
    Lane,
    cut_into,
    in_tiles,
    ints,
    kernel,
    tile,
    tokens_per_tile,
)
from easybalance_sim.kernels.reference_dispatch import BLOCKS, EVEN

AnyArray = npt.NDArray[Any]
IntArray = npt.NDArray[np.int64]
Ints = npt.NDArray[np.int32]

MOST_CHOICES = 64
"""Top-k up to which dispatch.cu keeps a token's ranks (kMostChoices)."""

WARPS = 4
THREADS = 256


def dispatch(
    experts: AnyArray,
    step_start: IntArray,
    step: IntArray,
    source: AnyArray,
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
    rank_pairs: IntArray,
    node_pairs: IntArray,
) -> None:
    """See `reference_dispatch.dispatch`."""
    plan = (replica_start, replica_slot, table, rank_of_slot, node, entry)
    counts = (slot_tokens, distinct, rdma, nvlink)
    steps = _Steps(experts, step_start, step, source, row)
    shape = _Shape.of(steps, plan, len(node_pairs))
    compiled: Any = numba_cpu.dispatch
    if not shape.fits():
        compiled(*steps, *plan, rule, seed, per_node, workers, *counts, rank_pairs, node_pairs)
        return

    def launch(lane: Lane, first: int, last: int) -> Callable[[], None]:
        results = [cupy.empty((last - first, *out.shape[1:]), np.int32) for out in counts]
        pairs, across = (cupy.zeros(out.shape, np.uint64) for out in (rank_pairs, node_pairs))
        _start_dispatch(lane, steps, plan, shape, (rule, seed, per_node), first, last, (*results, pairs, across))

        def fetch() -> None:
            lane.stream.synchronize()
            for out, counted in zip(counts, results, strict=True):
                counted.get(stream=lane.stream, out=out[first:last])
            sent = pairs.get(stream=lane.stream).view(np.int64)
            np.add(rank_pairs, sent, out=rank_pairs)
            if per_node:
                np.add(node_pairs, across.get(stream=lane.stream).view(np.int64), out=node_pairs)
            else:
                np.add.at(node_pairs, (node[:, None], node[None, :]), sent)

        return fetch

    def on_cpu(first: int, last: int) -> None:
        few = steps._replace(step_start=step_start[first : last + 1], step=step[first:last])
        part = (out[first:last] for out in counts)
        compiled(*few, *plan, rule, seed, per_node, workers, *part, rank_pairs, node_pairs)

    in_tiles(step_start, tokens_per_tile(experts), launch, on_cpu)


class _Steps(NamedTuple):
    """Traffic; see `reference_dispatch.dispatch`."""

    experts: AnyArray
    step_start: IntArray
    step: IntArray
    source: AnyArray
    row: Ints


class _Shape(NamedTuple):
    """Lengths of the axes. together: whether a block counts pairs in shared memory."""

    layers: int
    top_k: int
    experts: int
    slots: int
    ranks: int
    nodes: int
    together: bool
    threads: int

    @classmethod
    def of(cls, steps: _Steps, plan: tuple[Ints, ...], nodes: int) -> _Shape:
        replica_start, replica_slot, _, _, node, _ = plan
        _, layers, top_k = steps.experts.shape
        tokens = int(steps.step_start[-1] - steps.step_start[0]) // max(1, len(steps.step))
        slots, ranks = replica_slot.shape[1], len(node)
        pairs = ranks * ranks + nodes * nodes
        # Clearing and adding up the pairs of a block must cost less than counting its assignments.
        together = 2 * pairs <= tokens * top_k and 8 * pairs + 4 * (slots + 5 * ranks) <= SHARED_BYTES
        threads = min(THREADS, max(32, -(-tokens // 32) * 32))
        return cls(layers, top_k, replica_start.shape[1] - 1, slots, ranks, nodes, together, threads)

    def fits(self) -> bool:
        """Whether a block has memory for what it counts."""
        return self.top_k <= MOST_CHOICES and 4 * max(self.slots + 5 * self.ranks, WARPS * self.experts) <= SHARED_BYTES

    def shared_bytes(self) -> int:
        pairs = self.ranks * self.ranks + self.nodes * self.nodes
        return 8 * pairs * self.together + 4 * (self.slots + 5 * self.ranks)


def _start_dispatch(
    lane: Lane,
    steps: _Steps,
    plan: tuple[Ints, ...],
    shape: _Shape,
    how: tuple[int, int, bool],
    first: int,
    last: int,
    results: tuple[Any, ...],
) -> None:
    rule, seed, per_node = how
    start, stop = int(steps.step_start[first]), int(steps.step_start[last])
    edges, source = steps.step_start[first : last + 1] - start, steps.source[start:stop]
    ids = tile(lane, steps.experts, start, stop)
    earlier = _earlier(ids, edges, source, rule, shape)
    per_step = (edges, steps.step[first:last], source, steps.row[start:stop])
    kernel("dispatch", f"dispatch_{steps.experts.dtype.name}")(
        ((last - first) * shape.layers,), (shape.threads,),
        (
            ids, *(cupy.asarray(each) for each in (*per_step, *plan)), earlier, np.int32(rule),
            np.uint64(seed % (1 << 64)), *ints(per_node, shape.together, *shape[:6]), *results,
        ),
        shared_mem=shape.shared_bytes(),
    )  # fmt: skip


def _earlier(ids: Any, edges: IntArray, source: AnyArray, rule: int, shape: _Shape) -> Any:
    """int32[T, L, K] on the device: see turns.cu. A dummy where the rule counts nothing."""
    if rule not in (EVEN, BLOCKS):
        return cupy.empty(1, np.int32)
    order, first, last = (
        _series_of_steps(edges, shape.top_k) if rule == EVEN else _series_of_blocks(edges, source, shape.top_k)
    )
    earlier = cupy.empty(ids.shape, np.int32)
    kernel("turns", f"turns_{ids.dtype.name}")(
        (-(-len(first) * shape.layers // WARPS),), (32 * WARPS,),
        (
            ids, *(cupy.asarray(each) for each in (order, first, last)), earlier,
            *ints(len(first), shape.layers, shape.top_k, shape.experts),
        ),
        shared_mem=4 * WARPS * shape.experts,
    )  # fmt: skip
    return earlier


def _series_of_steps(edges: IntArray, top_k: int) -> tuple[Ints, IntArray, IntArray]:
    return np.arange(edges[-1], dtype=np.int32), edges[:-1] * top_k, edges[1:] * top_k


def _series_of_blocks(edges: IntArray, source: AnyArray, top_k: int) -> tuple[Ints, IntArray, IntArray]:
    """1024 assignments each of one step and source rank: tokens of a source stand in the order of their rows."""
    group = np.repeat(np.arange(len(edges) - 1), np.diff(edges)) * (int(source.max(initial=0)) + 1) + source
    order = np.argsort(group, kind="stable")
    bounds = np.flatnonzero(np.diff(group[order], prepend=-1, append=-1)) * top_k
    first, last, _ = cut_into(bounds[:-1], bounds[1:], 1024)
    return order.astype(np.int32), first, last
