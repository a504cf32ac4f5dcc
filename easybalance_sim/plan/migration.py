"""What it takes to go from the plan in force to a new one: experts to copy, bytes, seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np

from easybalance_sim.arrays import AnyArray, BoolArray, IntArray
from easybalance_sim.errors import PlanError
from easybalance_sim.plan.plan import Plan


@dataclass(frozen=True, kw_only=True)
class Migration:
    """moves: slots whose expert must be fetched · cross_node_moves: those fetched from another NVLink domain ·
    bytes: weights that travel · seconds: until the slowest rank has received its share.
    """

    moves: int
    cross_node_moves: int
    bytes: int
    seconds: float

    def to_dict(self) -> Mapping[str, int | float]:
        """The `migration` section of a report."""
        return asdict(self)


def migration(
    old: Plan,
    new: Plan,
    *,
    expert_bytes: int,
    node_of_rank: IntArray,
    nvlink_bytes_per_s: float,
    network_bytes_per_s: float,
    held: BoolArray | None = None,
) -> Migration:
    """Cost of replacing `old` by `new`.

    held: bool[L, R, E] experts that ranks hold, None = those of `old` (after a loss of ranks they hold less) ·
    expert_bytes: weights of one expert in one layer · node_of_rank: int64[R] NVLink domain of each rank ·
    the bandwidths are what one rank can receive.
    A slot moves when its expert is nowhere on the same rank under `old` (changing slots inside a rank is free). It is
    fetched over NVLink when a rank of the same domain holds the expert, otherwise over the network, also when no rank
    holds it any more. Engines fetch layer by layer, so a rank's NVLink and network times add up; ranks work at the same
    time, so the slowest one counts. Senders are taken to keep up. Raises `PlanError` when the plans differ in layers,
    experts or ranks.
    """
    near_slots, far_slots = fetches(old, new, node_of_rank, held)
    near, far = (
        np.bincount(new.rank_of_slot[slots.nonzero()[1]], minlength=new.ranks) * expert_bytes
        for slots in (near_slots, far_slots)
    )
    seconds = _transfer_s(near, nvlink_bytes_per_s, "NVLink") + _transfer_s(far, network_bytes_per_s, "network")
    return Migration(
        moves=int(near_slots.sum() + far_slots.sum()),
        cross_node_moves=int(far_slots.sum()),
        bytes=int(near.sum() + far.sum()),
        seconds=float(seconds.max()),
    )


def fetches(old: Plan, new: Plan, node_of_rank: IntArray, held: BoolArray | None = None) -> tuple[BoolArray, BoolArray]:
    """(bool[L, P] slots of `new` whose expert is fetched inside the NVLink domain, bool[L, P] those from elsewhere);
    arguments and errors as of `migration`."""
    _require_comparable(old, new, node_of_rank)
    on_rank = resident(old) if held is None else held
    moving = _moving(on_rank, new)
    rows = np.arange(new.layers)[:, None]
    near = _on_node(on_rank, node_of_rank)[rows, node_of_rank[new.rank_of_slot][None, :], new.expert_of_slot]
    return moving & near, moving & ~near


def moving_slots(old: Plan, new: Plan, held: BoolArray | None = None) -> BoolArray:
    """bool[L, P] slots of `new` whose expert is not on that rank under `old`; held: as of `migration`, which see for
    errors."""
    _require_comparable(old, new, None)
    return _moving(resident(old) if held is None else held, new)


def resident(plan: Plan) -> BoolArray:
    """bool[L, R, E] whether a rank holds an expert."""
    holds = np.zeros((plan.layers, plan.ranks, plan.experts), np.bool_)
    holds[np.arange(plan.layers)[:, None], plan.rank_of_slot[None, :], plan.expert_of_slot] = True
    return holds


def _require_comparable(old: Plan, new: Plan, node_of_rank: IntArray | None) -> None:
    for name in ("layers", "experts", "ranks"):
        before, after = getattr(old, name), getattr(new, name)
        if before != after:
            raise PlanError(f"the plan in force has {before} {name}, the new one {after}", where="migration")
    if node_of_rank is not None and len(node_of_rank) != new.ranks:
        raise PlanError(f"the cluster has {len(node_of_rank)} ranks, the plans {new.ranks}", where="migration")


def _moving(resident: BoolArray, new: Plan) -> BoolArray:
    rows = np.arange(new.layers)[:, None]
    return np.logical_not(resident[rows, new.rank_of_slot[None, :], new.expert_of_slot])


def _on_node(resident: BoolArray, node_of_rank: IntArray) -> BoolArray:
    """bool[L, N, E] whether some rank of an NVLink domain holds an expert."""
    on_node = np.zeros((resident.shape[0], int(node_of_rank.max()) + 1, resident.shape[2]), np.bool_)
    for rank, node in enumerate(node_of_rank):
        on_node[:, node] |= resident[:, rank]
    return on_node


def _transfer_s(received: IntArray, bytes_per_s: float, link: str) -> AnyArray:
    if received.any() and not bytes_per_s > 0:
        raise PlanError(f"{link} bandwidth is {bytes_per_s} bytes/s but experts must cross it", where="migration")
    return received / bytes_per_s if received.any() else np.zeros(len(received))
