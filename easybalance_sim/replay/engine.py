"""Streams token batches through plans: every token of a step to slots, ranks, link copies and layer seconds."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from easybalance_sim import kernels
from easybalance_sim.arrays import AnyArray, Int32Array, IntArray, frozen, sealed
from easybalance_sim.cluster.topology import Topology
from easybalance_sim.cost.layer import LayerCost
from easybalance_sim.cost.memory_peak import Peak
from easybalance_sim.errors import UsageError
from easybalance_sim.kernels.threads import cores
from easybalance_sim.load.counting import Windowing
from easybalance_sim.plan.plan import Plan
from easybalance_sim.replay.dispatch import Dispatch, prepare
from easybalance_sim.replay.outcome import Outcome
from easybalance_sim.replay.tally import StepBlock, Tally, rank_sums
from easybalance_sim.trace.schema import TokenBatch

CELLS_PER_CHUNK = 1 << 23
"""Upper bound of steps × layers × slots handled at once: 32 MB of counts."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Subject:
    """One plan under test with its replica choice and its cost model."""

    plan: Plan
    dispatch: Dispatch
    cost: LayerCost


@dataclass(frozen=True, kw_only=True, eq=False)
class Links:
    """How copies travel in a topology. node: int32[R] · entry: int32[R, N] rank of a node that takes in the copies of a
    source (the one with the source's local index; the source itself at home) · per_node: DeepEP normal mode."""

    node: Int32Array
    entry: Int32Array
    nodes: int
    per_node: bool


def links(topology: Topology, mode: str) -> Links:
    """The links of a topology in an all-to-all mode: `low_latency` sends every assignment, others a token once."""
    node = topology.node_of_rank
    members = [np.flatnonzero(node == n) for n in range(topology.nodes)]
    local = np.array([int(np.searchsorted(members[node[rank]], rank)) for rank in range(topology.ranks)])
    entry = np.stack([ranks[local % len(ranks)] for ranks in members], axis=1)
    return Links(
        node=frozen(node, np.int32), entry=frozen(entry, np.int32), nodes=topology.nodes, per_node=mode != "low_latency"
    )


def subject(
    plan: Plan, topology: Topology, rule: str, cost: LayerCost, seed: int, layer_ids: Sequence[int] | None = None
) -> Subject:
    """Make a plan ready for replay; layer_ids as for `prepare`. Raises `UsageError` when its ranks are not the
    topology's."""
    if plan.ranks != topology.ranks:
        raise UsageError(
            f"the plan is for {plan.ranks} ranks, the cluster has {topology.ranks}",
            where=plan.policy,
            fix="check --cluster",
        )
    dispatch = prepare(rule, plan, frozen(topology.node_of_rank, np.int32), seed, layer_ids)
    return Subject(plan=plan, dispatch=dispatch, cost=cost)


def replay(
    batches: Iterable[TokenBatch],
    subjects: Sequence[Subject],
    route: Links,
    windowing: Windowing,
    recorded_ranks: int,
) -> list[Outcome]:
    """Replay all batches under every subject; one pass over the trace, memory independent of its length per step.

    recorded_ranks: R of the recording; when it is not the cluster's R, a token's source rank is request mod R.
    """
    return outcomes([tally(batches, subjects, route, windowing, recorded_ranks)], subjects)


def tally(
    batches: Iterable[TokenBatch],
    subjects: Sequence[Subject],
    route: Links,
    windowing: Windowing,
    recorded_ranks: int,
) -> list[Tally]:
    """What every subject does on a part of a trace, as `replay` for `outcomes`."""
    tallies = [Tally(item.plan, item.cost.speed) for item in subjects]
    for chunk in _placed(batches, route, max(item.plan.slots for item in subjects), recorded_ranks):
        steps, window = _Steps.of(chunk, len(route.node)), windowing.of_steps(chunk, chunk.step_starts)
        for item, one in zip(subjects, tallies, strict=True):
            one.add(_block(chunk, steps, window, item, route))
    return tallies


def dispatched(
    batches: Iterable[TokenBatch], plan: Plan, dispatch: Dispatch, route: Links, recorded_ranks: int
) -> Iterator[tuple[TokenBatch, Dispatched]]:
    """Where the tokens of every step go, a few whole steps at a time; recorded_ranks as for `replay`."""
    for chunk in _placed(batches, route, plan.slots, recorded_ranks):
        yield chunk, _dispatched(chunk, _Steps.of(chunk, len(route.node)), plan, dispatch, route)


def _placed(batches: Iterable[TokenBatch], route: Links, slots: int, recorded_ranks: int) -> Iterator[TokenBatch]:
    """The batches in chunks with a source rank for every token."""
    for batch in batches:
        yield from _chunks(with_sources(batch, len(route.node), recorded_ranks), slots)


def outcomes(parts: Iterable[Sequence[Tally]], subjects: Sequence[Subject]) -> list[Outcome]:
    """The outcome of every subject over the parts of a trace, in order."""
    whole = [Tally(item.plan, item.cost.speed) for item in subjects]
    for part in parts:
        for one, later in zip(whole, part, strict=True):
            one.extend(later)
    return [one.outcome(item.cost.copy_bytes) for item, one in zip(subjects, whole, strict=True)]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Steps:
    """start: int64[W+1] first token of each step · step: int64[W] · row: int32[T] row in its source's batch."""

    start: IntArray
    step: IntArray
    row: Int32Array

    @classmethod
    def of(cls, batch: TokenBatch, ranks: int) -> _Steps:
        first = batch.step_starts
        return cls(
            start=frozen(np.append(first, batch.tokens), np.int64),
            step=frozen(batch.step[first], np.int64),
            row=sealed(kernels.load().local_rows(batch.step, batch.source_rank, ranks)),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Dispatched:
    """Steps under one plan.

    slot_tokens: int32[W, L, P] assignments of each slot · rank_rows: int32[W, L, R] the same of each rank · distinct:
    int32[W, L, R] tokens that arrive at a rank · rdma, nvlink: int32[W, L, R] copies in the busier direction of each
    rank · rank_pairs: int64[R, R], node_pairs: int64[N, N] copies.
    """

    slot_tokens: Int32Array
    rank_rows: Int32Array
    distinct: Int32Array
    rdma: Int32Array
    nvlink: Int32Array
    rank_pairs: IntArray
    node_pairs: IntArray


def _dispatched(batch: TokenBatch, steps: _Steps, plan: Plan, dispatch: Dispatch, route: Links) -> Dispatched:
    count, layers, ranks = len(steps.step), plan.layers, plan.ranks
    slot_tokens = np.zeros((count, layers, plan.slots), np.int32)
    distinct, rdma, nvlink = (np.zeros((count, layers, ranks), np.int32) for _ in range(3))
    rank_pairs, node_pairs = np.zeros((ranks, ranks), np.int64), np.zeros((route.nodes, route.nodes), np.int64)
    kernels.load().dispatch(
        batch.experts, steps.start, steps.step, batch.source_rank, steps.row, plan.replica_start, plan.replica_slot,
        dispatch.table, plan.rank_of_slot, route.node, route.entry, dispatch.code, dispatch.seed,
        route.per_node, cores(), slot_tokens, distinct, rdma, nvlink, rank_pairs, node_pairs,
    )  # fmt: skip
    rank_rows = _rank_rows(slot_tokens, plan)
    _require_conserved(rank_rows, np.diff(steps.start) * batch.experts.shape[2])
    return Dispatched(
        slot_tokens=sealed(slot_tokens),
        rank_rows=sealed(rank_rows),
        distinct=sealed(distinct),
        rdma=sealed(rdma),
        nvlink=sealed(nvlink),
        rank_pairs=rank_pairs,
        node_pairs=node_pairs,
    )


def _block(batch: TokenBatch, steps: _Steps, window: IntArray, item: Subject, route: Links) -> StepBlock:
    sent = _dispatched(batch, steps, item.plan, item.dispatch, route)
    return StepBlock(
        step=steps.step,
        window=window,
        tokens=np.diff(steps.start),
        slot_tokens=sent.slot_tokens,
        seconds=item.cost.seconds(sent.slot_tokens, sent.distinct, sent.rdma, sent.nvlink),
        rank_pairs=sent.rank_pairs,
        node_pairs=sent.node_pairs,
        peak=Peak(
            sent=int(steps.row.max()) + 1,
            arriving=int(sent.distinct.max()),
            rows=int(sent.rank_rows.max()),
            slot_rows=int(sent.slot_tokens.max()),
        ),
    )


def _rank_rows(slot_tokens: Int32Array, plan: Plan) -> Int32Array:
    """int32[W, L, R] assignments of each rank."""
    if np.ptp(plan.slots_per_rank):
        return np.asarray(rank_sums(slot_tokens, plan))
    # Slot by slot, ten times as fast as the sums over runs of any length.
    by_slot = np.moveaxis(slot_tokens.reshape(*slot_tokens.shape[:2], plan.ranks, -1), -1, 0)
    return np.asarray(reduce(np.add, by_slot))


def _require_conserved(rank_rows: Int32Array, assignments: IntArray) -> None:
    """Every assignment went to exactly one slot: the ranks of each step and layer sum to tokens × K (int64[W])."""
    if not (np.einsum("wlr->wl", rank_rows) == assignments[:, None]).all():
        raise RuntimeError("assignments were lost or doubled in the replay kernel")


def with_sources(batch: TokenBatch, ranks: int, recorded_ranks: int) -> TokenBatch:
    """The batch with a source rank for every token: the recorded one, or request mod R (see `replay`)."""
    if recorded_ranks == ranks and batch.source_rank.min() >= 0 and batch.source_rank.max() < ranks:
        return batch
    source: AnyArray = (batch.request % ranks).astype(np.int16)
    if recorded_ranks == ranks:
        known = (batch.source_rank >= 0) & (batch.source_rank < ranks)
        source = np.where(known, batch.source_rank, source)
    return replace(batch, source_rank=sealed(source))


def _chunks(batch: TokenBatch, slots: int) -> Iterator[TokenBatch]:
    """Whole steps, few enough that the counts of a chunk stay small."""
    first = batch.step_starts
    limit = max(1, CELLS_PER_CHUNK // (slots * batch.experts.shape[1]))
    if len(first) <= limit:
        yield batch
        return
    edges = np.append(first[::limit], batch.tokens)
    for start, stop in itertools.pairwise(edges.tolist()):
        yield batch.select(slice(start, stop))
