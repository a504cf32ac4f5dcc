"""Where single tokens go when it is known how many assignments each replica takes, and over which links."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from easybalance_sim import kernels
from easybalance_sim.arrays import AnyArray, Int32Array, frozen, sealed
from easybalance_sim.cluster.topology import Topology
from easybalance_sim.plan.plan import Plan
from easybalance_sim.replay.dispatch import Dispatch, prepare
from easybalance_sim.replay.engine import Dispatched, Links, dispatched, with_sources
from easybalance_sim.simulate.replica_choice.choose import Choice
from easybalance_sim.simulate.steps.recorded import RecordedSteps
from easybalance_sim.trace.schema import TokenBatch

CELLS = 1 << 23
"""Steps × layers × source ranks × slots handled at once: 32 MB of counts."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Part:
    """Steps in places first..end-1. batch: their tokens, with a source rank each · start: int64[s+1] first tokens."""

    first: int
    end: int
    batch: TokenBatch
    start: AnyArray

    def counts(self, experts: int, ranks: int) -> Int32Array:
        """int32[s, L, R, E] assignments of each source rank."""
        steps, layers = self.end - self.first, self.batch.experts.shape[1]
        out = np.zeros((steps, layers, ranks, experts), np.int32)
        row = (np.repeat(np.arange(steps), np.diff(self.start)) * ranks + self.batch.source_rank) * experts
        for layer in range(layers):
            flat = (row[:, None] + self.batch.experts[:, layer]).ravel()
            out[:, layer] = np.bincount(flat, minlength=steps * ranks * experts).reshape(steps, ranks, experts)
        return sealed(out)


def parts(steps: RecordedSteps, ranks: int, slots: int, first_scored: int) -> Iterator[Part]:
    """The steps in parts that fit in memory, none of which reaches over place `first_scored`."""
    most = max(1, CELLS // (steps.layers * ranks * slots))
    for low, high in ((0, first_scored), (first_scored, len(steps))):
        for first in range(low, high, most):
            end = min(first + most, high)
            some = steps.between(first, end)
            batch = with_sources(_batch(some), ranks, steps.meta.ranks)
            yield Part(first=first, end=end, batch=batch, start=some.start)


def _batch(steps: RecordedSteps) -> TokenBatch:
    return TokenBatch(
        step=frozen(np.repeat(steps.step, np.diff(steps.start)), np.int32),
        request=steps.request,
        position=steps.position,
        phase=steps.phase,
        source_rank=steps.source_rank,
        workload=steps.workload,
        experts=steps.experts,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Route:
    """How tokens travel. by_slot: a plan of the same ranks in which every slot is an expert of its own · table: its
    dispatch · recorded_ranks: of the recording, see `replay.engine.replay`."""

    plan: Plan
    topology: Topology
    links: Links
    by_slot: Plan
    table: Dispatch
    recorded_ranks: int

    @classmethod
    def of(cls, plan: Plan, topology: Topology, links: Links, recorded_ranks: int) -> Route:
        """The route of a plan in a topology."""
        numbered = np.tile(np.arange(plan.slots, dtype=np.int32), (plan.layers, 1))
        by_slot = replace(plan, expert_of_slot=frozen(numbered), experts=plan.slots)
        return cls(
            plan=plan,
            topology=topology,
            links=links,
            by_slot=by_slot,
            table=prepare("even", by_slot, frozen(topology.node_of_rank, np.int32), 0),
            recorded_ranks=recorded_ranks,
        )

    def sent(self, part: Part, choice: Choice) -> Dispatched:
        """Every assignment to the slot that was chosen for it; `choice` knows the sources."""
        dtype = part.batch.experts.dtype if self.plan.slots <= 256 else np.uint16
        slots = np.empty(part.batch.experts.shape, dtype)
        kernels.load().fill_slots(
            part.batch.experts, part.start, part.batch.source_rank, self.plan.replica_start, self.plan.replica_slot,
            np.array(choice.sent), slots,
        )  # fmt: skip
        return self._counted(replace(part.batch, experts=sealed(slots)), self.by_slot, self.table)

    def by_engine(self, part: Part, dispatch: Dispatch) -> Dispatched:
        """Every assignment to the slot that an engine's rule gives it."""
        return self._counted(part.batch, self.plan, dispatch)

    def _counted(self, batch: TokenBatch, plan: Plan, dispatch: Dispatch) -> Dispatched:
        pieces = [sent for _, sent in dispatched([batch], plan, dispatch, self.links, self.recorded_ranks)]
        return pieces[0] if len(pieces) == 1 else reduce(joined, pieces)


def joined(one: Dispatched, later: Dispatched) -> Dispatched:
    """Steps that follow each other under one plan."""
    by_step = ("slot_tokens", "rank_rows", "distinct", "rdma", "nvlink")
    rows = {name: sealed(np.concatenate([getattr(one, name), getattr(later, name)])) for name in by_step}
    return Dispatched(
        **rows,
        rank_pairs=sealed(one.rank_pairs + later.rank_pairs),
        node_pairs=sealed(one.node_pairs + later.node_pairs),
    )
